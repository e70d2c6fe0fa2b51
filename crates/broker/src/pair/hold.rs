//! How long the node may still confirm for a journal: the end of its lease, for those who look at it
//! with every confirm.
//!
//! A lease that has once ended does not come back: what is granted then is another one.

use std::sync::atomic::{AtomicU64, Ordering};

use model::time::Millis;

/// No lease is needed: there is no other copy.
const NEVER: u64 = u64::MAX;

/// See the module head. Times are those of [`crate::pair::clock`].
#[derive(Debug, Default)]
pub(crate) struct Hold {
    /// The first moment at which nothing may be confirmed any more; 0: nothing may.
    ends_at: AtomicU64,
}

impl Hold {
    /// No lease is needed.
    pub(crate) fn free(&self) {
        self.ends_at.store(NEVER, Ordering::Release);
    }

    /// A lease that ends then. What was before does not count.
    pub(crate) fn grant(&self, ends_at: Millis) {
        self.ends_at.store(ends_at.0, Ordering::Release);
    }

    /// The lease ends later, unless it has ended.
    pub(crate) fn extend(&self, ends_at: Millis, now: Millis) {
        // Nothing else than the driver changes it, and whoever reads it needs one of the two values.
        let present = self.ends_at.load(Ordering::Acquire);
        if now.0 < present && present != NEVER {
            self.ends_at.store(ends_at.0.max(present), Ordering::Release);
        }
    }

    /// Nothing may be confirmed any more.
    pub(crate) fn end(&self) {
        self.ends_at.store(0, Ordering::Release);
    }

    /// Whether something may be confirmed at this moment.
    pub(crate) fn is_usable(&self, now: Millis) -> bool {
        #[cfg(test)]
        if crate::pair::sim::rules::broken(crate::pair::sim::rules::Rule::Lease) {
            return self.ends_at.load(Ordering::Acquire) != 0;
        }
        now.0 < self.ends_at.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_has_ended_does_not_come_back() {
        let hold = Hold::default();
        assert!(!hold.is_usable(Millis(0)));
        hold.grant(Millis(100));
        assert!(hold.is_usable(Millis(99)) && !hold.is_usable(Millis(100)));
        hold.extend(Millis(200), Millis(99));
        assert!(hold.is_usable(Millis(199)));
        hold.extend(Millis(150), Millis(120));
        assert!(hold.is_usable(Millis(199)), "answers may overtake each other");
        hold.extend(Millis(900), Millis(200));
        assert!(!hold.is_usable(Millis(201)));
        hold.grant(Millis(300));
        assert!(hold.is_usable(Millis(201)));
        hold.end();
        hold.extend(Millis(900), Millis(201));
        assert!(!hold.is_usable(Millis(201)));
        hold.free();
        assert!(hold.is_usable(Millis(u64::MAX - 1)));
    }
}
