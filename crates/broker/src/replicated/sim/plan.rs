//! What a run is like, all of it from the seed.

use super::disk::Speed;
use super::net::Pace;
use super::rng::Rng;
use super::rules::Rule;

/// See the module head.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a die of its own")]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) nodes: u64,
    pub(super) queues: u64,
    /// How many of the nodes keep each queue.
    pub(super) members: u64,
    pub(super) publishers: u64,
    pub(super) consumers: u64,
    pub(super) getters: u64,
    /// Consumers that settle nothing.
    pub(super) careless: u64,
    pub(super) purges: bool,
    /// How long there are faults, in milliseconds.
    pub(super) storm: u64,
    /// The pauses between faults are at most so long, in milliseconds; 0: there are none.
    pub(super) calm: u64,
    /// All nodes may be down at once.
    pub(super) blackouts: bool,
    pub(super) disk: Speed,
    pub(super) pace: Pace,
    /// Clocks differ by so many milliseconds at most.
    pub(super) skew: u64,
    pub(super) tail_bytes: usize,
    pub(super) checkpoint_entries: u64,
    pub(super) keep_entries: u64,
    pub(super) cache: u64,
    pub(super) window: u32,
    pub(super) publish_timeout: u64,
    /// A minority of the nodes stays down after the storm.
    pub(super) widow: bool,
    /// So often may a message fail; 0: there is no limit.
    pub(super) limit: u32,
    /// What comes back waits at least so long, in milliseconds; 0: it does not wait.
    pub(super) delay: u64,
    /// Each queue keeps what is dead until the next one has it.
    pub(super) keeps: bool,
    /// A group that was idle for so many milliseconds sleeps; 0: none does.
    pub(super) sleeps: u64,
    /// More groups than this sleep sooner.
    pub(super) awake: usize,
    /// Groups begin with a leader.
    pub(super) begins_led: bool,
    pub(super) broken: Option<Rule>,
}

impl Plan {
    /// The run of a seed.
    pub(super) fn new(seed: u64) -> Self {
        let rng = &mut Rng::new(seed);
        let nodes = if rng.chance(25) { 5 } else { 3 };
        let members = if nodes == 5 && rng.chance(40) { 3 } else { nodes };
        let mut one = |of: &[u64]| *rng.pick(of).expect("there are some");
        let mut plan = Self {
            seed,
            nodes,
            members,
            queues: one(&[1, 1, 2, 3]),
            publishers: one(&[1, 2, 3, 4]),
            consumers: one(&[1, 2, 3, 5]),
            getters: one(&[0, 0, 1]),
            purges: one(&[0, 0, 0, 1]) == 1,
            storm: one(&[4_000, 8_000, 12_000]),
            calm: one(&[300, 1_000, 3_000]),
            blackouts: one(&[0, 0, 1]) == 1,
            disk: Speed { least: 0, most: one(&[0, 2, 2, 10]) },
            pace: Pace { slow: one(&[5, 30, 80]), most: one(&[1, 4, 30]) },
            skew: one(&[0, 0, 50, 5_000]),
            tail_bytes: one(&[0, 2_000, 1 << 20]) as usize,
            checkpoint_entries: one(&[7, 40, 200, 16_384]),
            keep_entries: one(&[1, 10, 100]),
            cache: one(&[0, 1_500, 1 << 20]),
            window: one(&[300, 4_000, 1 << 20]) as u32,
            publish_timeout: one(&[1_500, 5_000, 10_000]),
            widow: one(&[0, 0, 0, 1]) == 1,
            careless: one(&[0, 0, 0, 1]),
            limit: one(&[0, 0, 0, 2]) as u32,
            delay: one(&[0, 0, 0, 60]),
            keeps: one(&[0, 1]) == 1,
            sleeps: 0,
            awake: 0,
            begins_led: true,
            broken: None,
        };
        // A die of its own, so that all else of a seed is what it was before groups slept.
        let rng = &mut Rng::new(seed ^ 0x51ee_9000);
        plan.sleeps = *rng.pick(&[0, 20, 20, 60, 200, 1_000]).expect("there are some");
        plan.awake = *rng.pick(&[0, 1, 100]).expect("there are some");
        plan.begins_led = Rng::new(seed ^ 0xb691_5000).chance(75);
        plan.keeps &= plan.queues > 1;
        plan.purges &= !plan.keeps;
        plan
    }
}
