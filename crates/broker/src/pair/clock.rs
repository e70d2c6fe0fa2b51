//! The clock of leases: it never goes back, and it goes on while the machine sleeps.

use model::time::Millis;
use rustix::time::{ClockId, clock_gettime};

/// Milliseconds since the machine was started.
pub(crate) fn now() -> Millis {
    #[cfg(test)]
    if let Some(now) = crate::pair::sim::time() {
        return now;
    }
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or_default();
    Millis(seconds * 1000 + nanoseconds / 1_000_000)
}
