//! How openraft is set.

use crate::host::Care;
use openraft::{Config, SnapshotPolicy};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Leaders without heartbeats refuse proposals once this long has passed since a majority
/// answered, so it must be longer than any silence: a century.
const LEASE: Duration = Duration::from_hours(100 * 365 * 24);
/// How long a vote or a transfer may take.
const VOTE_WAIT: Duration = Duration::from_secs(5);

/// How many entries one message to a follower, and one write to the log, may have.
const ENTRIES_MAX: u64 = 4096;

static SUPERVISED: LazyLock<Arc<Config>> = LazyLock::new(|| {
    build(Config {
        enable_tick: false,
        enable_heartbeat: false,
        enable_elect: false,
        election_timeout_min: millis(VOTE_WAIT),
        election_timeout_max: millis(LEASE),
        heartbeat_interval: 1000,
        ..common()
    })
});

static HEARTBEATS: LazyLock<Arc<Config>> = LazyLock::new(|| {
    build(Config {
        election_timeout_min: 1500,
        election_timeout_max: 3000,
        heartbeat_interval: 300,
        enable_pre_vote: Some(true),
        ..common()
    })
});

fn common() -> Config {
    Config {
        cluster_name: "leveret".into(),
        max_payload_entries: ENTRIES_MAX,
        max_append_entries: Some(ENTRIES_MAX),
        // Replication runs ahead of the local disk, so a leader that starts again may have lost
        // entries which its followers hold: it must not resume its term and give their log ids to
        // others.
        enable_leader_restore: Some(false),
        snapshot_policy: SnapshotPolicy::Never,
        // The host purges, by bytes.
        max_in_snapshot_log_to_keep: u64::MAX,
        install_snapshot_timeout: 600_000,
        // The rings for statistics that nobody reads.
        log_stage_capacity: Some(8),
        ..Config::default()
    }
}

fn build(config: Config) -> Arc<Config> {
    Arc::new(config.validate().expect("the settings agree with each other"))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("far from 64 bits")
}

static RESUMING: LazyLock<Arc<Config>> =
    LazyLock::new(|| build(Config { enable_leader_restore: Some(true), ..(**SUPERVISED).clone() }));

/// The settings of a group that wakes on the node that led it when it fell asleep, in this same
/// process, with all that it had on the disk.
pub(crate) fn resuming() -> Arc<Config> {
    Arc::clone(&RESUMING)
}

/// The settings of a group.
pub(crate) fn of(care: Care) -> Arc<Config> {
    #[cfg(feature = "sim")]
    if crate::sim::breaks(crate::sim::Broken::RestoredLeader) {
        let config = Config { enable_leader_restore: Some(true), ..(**SUPERVISED).clone() };
        return Arc::new(config);
    }
    Arc::clone(match care {
        Care::Supervised => &SUPERVISED,
        Care::Heartbeats => &HEARTBEATS,
    })
}
