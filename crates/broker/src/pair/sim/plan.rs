//! What a run is like, all of it from the seed.

use std::time::Duration;

use super::disk::Speed;
use super::net::Pace;
use super::rules::Rule;
use super::trap::Point;
use crate::config;
use crate::replicated::sim::rng::Rng;

/// See the module head.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a die of its own")]
pub(super) struct Plan {
    pub(super) seed: u64,
    /// The metadata group is on nodes of its own, and not on the pair and a witness: so that each
    /// link of the pair to it can be cut without that between the two.
    pub(super) apart: bool,
    /// The journal has data before it is paired.
    pub(super) later: bool,
    pub(super) queues: u64,
    pub(super) publishers: u64,
    pub(super) consumers: u64,
    /// How long there are faults, in milliseconds.
    pub(super) storm: u64,
    /// The pauses between faults are at most so long, in milliseconds.
    pub(super) calm: u64,
    /// All nodes may lose power at once.
    pub(super) blackouts: bool,
    /// Nodes of the pair lose their disks for good, and come back as others.
    pub(super) wipes: bool,
    /// One node of the pair comes back later than everything else.
    pub(super) away: bool,
    pub(super) disk: Speed,
    pub(super) pace: Pace,
    /// Work that blocks takes at most so many milliseconds.
    pub(super) slow: u64,
    pub(super) cache: u64,
    pub(super) window: u32,
    pub(super) settings: config::Journal,
    /// Every trap is at this point.
    pub(super) trap: Option<Point>,
    pub(super) broken: Option<Rule>,
}

impl Plan {
    /// A run without chance, for a script.
    pub(super) fn quiet() -> Self {
        Self {
            apart: false,
            later: false,
            queues: 1,
            disk: Speed { least: 1, most: 1 },
            pace: Pace { slow: 100, most: 1 },
            slow: 1,
            cache: 1 << 20,
            ..Self::new(0)
        }
    }

    /// The run of a seed.
    pub(super) fn new(seed: u64) -> Self {
        let rng = &mut Rng::new(seed ^ 0x7a17);
        let mut one = |of: &[u64]| *rng.pick(of).expect("there are some");
        let settings = config::Journal {
            segment_size: 1 << 20,
            reserve_segments: 2,
            sync_delay: Duration::from_millis(20),
            write_delay: Duration::from_millis(2),
            lease: Duration::from_millis(one(&[500, 1_000, 2_000])),
            replica_timeout: Duration::from_millis(one(&[300, 1_000, 3_000])),
            allow_failback: one(&[0, 1]) == 1,
            max_saved_copies: Some(2),
        };
        Self {
            seed,
            apart: one(&[0, 1]) == 1,
            later: one(&[0, 0, 1]) == 1,
            queues: one(&[1, 1, 2]),
            publishers: one(&[1, 2, 2]),
            consumers: one(&[0, 1, 1, 2]),
            storm: one(&[6_000, 12_000, 20_000]),
            calm: one(&[300, 1_000, 3_000]),
            blackouts: one(&[0, 0, 1]) == 1,
            away: one(&[0, 0, 1]) == 1,
            wipes: one(&[0, 1]) == 1,
            disk: Speed { least: 0, most: one(&[0, 2, 2, 10]) },
            pace: Pace { slow: one(&[5, 30, 80]), most: one(&[1, 4, 30]) },
            slow: one(&[0, 2, 20]),
            cache: one(&[0, 1_500, 1 << 20]),
            window: 1 << 20,
            settings,
            trap: None,
            broken: None,
        }
    }
}
