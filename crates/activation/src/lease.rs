//! The holder's side of a lock's lease, as numbers.
//!
//! The service may give the lock to another node one full lease after it applied the last renewal.
//! The holder counts from *before it sent* that renewal, on a clock that goes on while the machine
//! sleeps (`CLOCK_BOOTTIME`), and stops a tenth early: so it has stopped before anybody can begin,
//! whatever time the renewal took and if the two clocks differ by less than a tenth.

use model::time::Millis;

/// A lease that was granted or renewed. Times are milliseconds of the boot clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    length: Millis,
    sent_at: Millis,
}

impl Lease {
    /// The shortest sensible length: a renewal must fit in several times.
    pub const LENGTH_MIN: Millis = Millis(200);

    /// A lease of `length` that was asked for at `sent_at`.
    ///
    /// # Panics
    /// If it is shorter than [`Lease::LENGTH_MIN`], which the configuration refuses.
    pub fn new(length: Millis, sent_at: Millis) -> Self {
        assert!(length >= Self::LENGTH_MIN, "a lease of {} ms is too short", length.0);
        Self { length, sent_at }
    }

    /// A renewal that was sent at `sent_at` has succeeded, as is heard at `now`. An answer that comes
    /// late, after a later one, changes nothing; nor does one that comes when the lease has ended:
    /// whoever has looked meanwhile has stopped, and must not be the only one. Returns whether the
    /// lease goes on.
    pub fn renewed(&mut self, sent_at: Millis, now: Millis) -> bool {
        let goes_on = self.is_usable(now);
        if goes_on {
            self.sent_at = self.sent_at.max(sent_at);
        }
        goes_on
    }

    /// The first moment at which nothing may be confirmed any more.
    pub fn ends_at(&self) -> Millis {
        Millis(self.sent_at.0.saturating_add(self.length.0 - self.length.0.div_ceil(10)))
    }

    /// Whether something may be confirmed at `now`.
    pub fn is_usable(&self, now: Millis) -> bool {
        now < self.ends_at()
    }

    /// When the next renewal is to be sent: three fit into a lease.
    pub fn renew_at(&self) -> Millis {
        Millis(self.sent_at.0.saturating_add(self.length.0 / 4))
    }

    /// Milliseconds until it ends.
    pub fn remaining(&self, now: Millis) -> Millis {
        Millis(self.ends_at().0.saturating_sub(now.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_holder_stops_early() {
        let mut lease = Lease::new(Millis(2000), Millis(100));
        assert!(lease.is_usable(Millis(1899)) && !lease.is_usable(Millis(1900)));
        assert_eq!(lease.remaining(Millis(900)), Millis(1000));
        assert!(lease.renewed(Millis(600), Millis(700)));
        assert_eq!(lease.ends_at(), Millis(2400));
        assert!(lease.renewed(Millis(500), Millis(800)));
        assert_eq!(lease.ends_at(), Millis(2400), "answers may overtake each other");
        assert_eq!(lease.renew_at(), Millis(1100));
        assert_eq!(lease.remaining(Millis(3000)), Millis(0));
    }

    /// The answer to a renewal comes between the end of the lease and the moment at which somebody
    /// notices it.
    #[test]
    fn what_has_ended_does_not_come_back() {
        let mut lease = Lease::new(Millis(2000), Millis(100));
        assert!(!lease.renewed(Millis(1800), Millis(1900)));
        assert!(!lease.is_usable(Millis(1900)));
        assert_eq!(lease.ends_at(), Millis(1900));
    }

    proptest! {
        /// However long a renewal took and whatever the clocks read: when the service may give the
        /// lock on, the holder has stopped, if its clock goes at most a tenth slower.
        #[test]
        fn the_service_never_comes_first(
            length in 200_u64..60_000,
            sent_at in 0_u64..1_000_000,
            travelled in 0_u64..10_000,
            slower_per_mille in 0_u64..=100,
        ) {
            let lease = Lease::new(Millis(length), Millis(sent_at));
            // The service waits `length` on its own clock from the moment it applied.
            let passed_here = travelled + length * (1000 - slower_per_mille) / 1000;
            prop_assert!(!lease.is_usable(Millis(sent_at + passed_here)));
        }
    }
}
