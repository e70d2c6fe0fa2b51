//! When publishers must stop. Pure: it sees samples and remembers what is on.

use std::time::Duration;

use super::usage::Usage;

/// Which alarms are on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Alarms {
    /// Resident memory reached its limit.
    pub memory: bool,
    /// The data folder's file system is nearly full.
    pub disk: bool,
}

impl Alarms {
    /// Whether publishers must wait.
    pub fn any(self) -> bool {
        self.memory || self.disk
    }

    /// The reason that `connection.blocked` carries; `None` while nothing is on.
    pub fn reason(self) -> Option<&'static str> {
        match (self.memory, self.disk) {
            (false, false) => None,
            (true, false) => Some("low on memory"),
            (false, true) => Some("low on disk"),
            (true, true) => Some("low on memory & disk"),
        }
    }
}

/// The shortest time between two samples of usage. One takes some tens of microseconds.
pub const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest.
pub const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Bytes in a millisecond by which neither memory nor disk is used up faster: 2 GB/s.
const FASTEST: u64 = 2_000_000;

/// Turns samples into alarms.
///
/// ```text
///            resident >= limit                     free < limit
///      off ──────────────────▶ on            off ─────────────────▶ on
///       ▲    resident < 95 %    │             ▲    free >= 105 %     │
///       └──────────────────────┘              └─────────────────────┘
/// ```
///
/// The gap keeps publishers from being stopped and released many times a second around the mark.
#[derive(Debug)]
pub struct Watch {
    memory_limit: u64,
    disk_free_limit: u64,
    alarms: Alarms,
}

impl Watch {
    /// Nothing is on. Limits in bytes; a `memory_limit` of 0 is reached at once and for good, a
    /// `disk_free_limit` of 0 never.
    pub fn new(memory_limit: u64, disk_free_limit: u64) -> Self {
        Self { memory_limit, disk_free_limit, alarms: Alarms::default() }
    }

    /// Takes one sample; returns the alarms if they changed.
    pub fn step(&mut self, sample: Usage) -> Option<Alarms> {
        let memory_mark = if self.alarms.memory {
            self.memory_limit - self.memory_limit / 20
        } else {
            self.memory_limit
        };
        let disk_mark = if self.alarms.disk {
            self.disk_free_limit.saturating_add(self.disk_free_limit / 20)
        } else {
            self.disk_free_limit
        };
        let now =
            Alarms { memory: sample.resident >= memory_mark, disk: sample.disk_free < disk_mark };
        let changed = now != self.alarms;
        self.alarms = now;
        changed.then_some(now)
    }

    /// How long after this sample the next one is taken: half of what it would take to use up what is
    /// left, within [`PAUSE_MIN`] and [`PAUSE_MAX`]; the shortest while an alarm is on.
    pub fn pause(&self, sample: Usage) -> Duration {
        if self.alarms.any() {
            return PAUSE_MIN;
        }
        let memory = self.memory_limit.saturating_sub(sample.resident);
        let disk = sample.disk_free.saturating_sub(self.disk_free_limit);
        let lasts_ms = memory.min(disk) / FASTEST;
        Duration::from_millis(lasts_ms / 2).clamp(PAUSE_MIN, PAUSE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_come_the_more_often_the_less_is_left() {
        const GB: u64 = 1_000_000_000;
        let pause = |resident: u64, disk_free: u64| {
            let mut watch = Watch::new(10 * GB, GB);
            let sample = Usage { resident, disk_free, ..Usage::default() };
            watch.step(sample);
            watch.pause(sample).as_millis()
        };
        assert_eq!(pause(GB, 100 * GB), 1000);
        assert_eq!(pause(8 * GB, 100 * GB), 500);
        assert_eq!(pause(GB, 3 * GB), 500);
        assert_eq!(pause(9_900_000_000, 100 * GB), 100);
        assert_eq!(pause(10 * GB, 100 * GB), 100, "the alarm is on");
        assert_eq!(pause(GB, 0), 100);
    }

    /// Steps through (resident, free) samples and compares the reasons after each.
    fn check(limits: (u64, u64), samples: &[(u64, u64, Option<&str>)]) {
        let mut watch = Watch::new(limits.0, limits.1);
        let mut reason = None;
        for &(resident, disk_free, expected) in samples {
            let before = reason;
            match watch.step(Usage { resident, disk_free, ..Usage::default() }) {
                Some(alarms) => {
                    reason = alarms.reason();
                    assert_ne!(reason, before, "only changes are told");
                }
                None => assert_eq!(reason, before),
            }
            assert_eq!(reason, expected, "at {resident}, {disk_free}");
        }
    }

    #[test]
    fn alarms_go_on_at_the_mark_and_off_beyond_a_gap() {
        check(
            (1000, 100),
            &[
                (999, 100, None),
                (1000, 100, Some("low on memory")),
                (950, 100, Some("low on memory")),
                (949, 100, None),
                (999, 99, Some("low on disk")),
                (999, 104, Some("low on disk")),
                (1000, 104, Some("low on memory & disk")),
                (1000, 105, Some("low on memory")),
                (0, 105, None),
            ],
        );
    }

    #[test]
    fn zero_means_always_for_memory_and_never_for_disk() {
        check((0, 0), &[(0, 0, Some("low on memory")), (1, 1, Some("low on memory"))]);
    }
}
