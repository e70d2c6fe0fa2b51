//! The leader's count of leases: when a grant may be taken from a holder that is silent.
//!
//! ```text
//!   holder   │ sends a renewal ........ stops confirming, a tenth early
//!            │     ╲                   │
//!   leader   │      ╲ applies it ......│......... proposes Expire
//!            └───────┴─────────────────┴─────────┴──► each on its own clock
//! ```
//!
//! Only the leader counts, on a clock that never goes back, from the later of two moments: when it
//! applied the last renewal, and when it became leader. A renewal that an earlier leader applied a
//! moment before is so never shortened, at the price of one lease more after an election. The
//! command names the renewals that were counted for, so that one that is applied first makes it void.

use std::collections::BTreeMap;

use model::time::Millis;

use crate::coordination::Coordination;
use crate::objects::Name;
use crate::objects::lock::{Holder, Lock};
use crate::state::State;

/// What a node knows of the leases of the locks. Times are milliseconds of its own monotonic clock.
#[derive(Debug, Clone, Default)]
pub struct Leases {
    leads_since: Option<Millis>,
    seen: BTreeMap<Name, Seen>,
}

/// A renewal, and when it was applied here.
#[derive(Debug, Clone, Copy)]
struct Seen {
    token: u64,
    renewals: u64,
    since: Millis,
}

impl Leases {
    /// Of a node that has applied nothing and does not lead.
    pub fn new() -> Self {
        Self::default()
    }

    /// The node has become leader, and has applied what was committed before.
    pub fn lead(&mut self, now: Millis) {
        self.leads_since = Some(now);
    }

    /// The node leads no longer.
    pub fn follow(&mut self) {
        self.leads_since = None;
    }

    /// Commands were applied. To be called before the next one can be; costs as much as there are
    /// locks.
    pub fn applied(&mut self, state: &State, now: Millis) {
        self.seen.retain(|id, seen| {
            held(state.lock(id)).is_some_and(|(lock, _)| lock.token == seen.token)
        });
        for (lock, holder) in state.locks().filter_map(|lock| held(Some(lock))) {
            let (token, renewals) = (lock.token, holder.renewals);
            let known = self.seen.get(&lock.id);
            if known.is_none_or(|known| (known.token, known.renewals) != (token, renewals)) {
                self.seen.insert(Name::clone(&lock.id), Seen { token, renewals, since: now });
            }
        }
    }

    /// The grants whose leases are over: the commands that the leader proposes. The same ones again
    /// until they are applied.
    pub fn over(&self, state: &State, now: Millis) -> Vec<Coordination> {
        self.ends(state)
            .filter(|(end, ..)| *end <= now)
            .map(|(_, id, seen)| Coordination::Expire {
                id: Name::clone(id),
                token: seen.token,
                renewals: seen.renewals,
            })
            .collect()
    }

    /// When the next lease will be over; `None` if nobody has a lock, or this node does not lead.
    pub fn deadline(&self, state: &State) -> Option<Millis> {
        self.ends(state).map(|(end, ..)| end).min()
    }

    fn ends<'l>(&'l self, state: &'l State) -> impl Iterator<Item = (Millis, &'l Name, &'l Seen)> {
        let leads_since = self.leads_since;
        self.seen.iter().filter_map(move |(id, seen)| {
            let (_, holder) = held(state.lock(id))?;
            let from = seen.since.max(leads_since?);
            Some((Millis(from.0.saturating_add(holder.lease_ms)), id, seen))
        })
    }
}

fn held(lock: Option<&std::sync::Arc<Lock>>) -> Option<(&Lock, &Holder)> {
    let lock = lock?;
    Some((lock, lock.holder.as_ref()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::command::Command;
    use crate::coordination::Answer;
    use crate::scene::state;

    const LEASE: u64 = 2000;

    fn ask(state: &mut State, change: Coordination) -> Answer {
        state.apply(Command::Coordinate(change)).unwrap().answer.unwrap()
    }

    fn acquire(state: &mut State, id: &str) -> u64 {
        let (id, node, boot, attempt) = (id.into(), 1, 1, 1);
        let answer = ask(state, Coordination::Acquire { id, node, boot, attempt, lease_ms: LEASE });
        let Answer::Granted { token } = answer else { panic!("{answer:?}") };
        token
    }

    fn expire(id: &str, token: u64, renewals: u64) -> Coordination {
        Coordination::Expire { id: id.into(), token, renewals }
    }

    #[test]
    fn a_full_lease_after_the_last_renewal() {
        let (mut state, mut leases) = (state(), Leases::new());
        leases.lead(Millis(0));
        assert_eq!(leases.deadline(&state), None);
        let token = acquire(&mut state, "j");
        leases.applied(&state, Millis(100));
        assert_eq!(leases.over(&state, Millis(2099)), []);
        ask(&mut state, Coordination::Renew { id: "j".into(), token });
        leases.applied(&state, Millis(2099));
        // What is applied again for other reasons counts for nothing.
        leases.applied(&state, Millis(3000));
        assert_eq!(leases.deadline(&state), Some(Millis(4099)));
        assert_eq!(leases.over(&state, Millis(4098)), []);
        assert_eq!(leases.over(&state, Millis(4099)), [expire("j", token, 1)]);
        let [change] = leases.over(&state, Millis(4099)).try_into().unwrap();
        assert_eq!(ask(&mut state, change), Answer::Done);
        leases.applied(&state, Millis(4100));
        assert_eq!(leases.deadline(&state), None);
    }

    #[test]
    fn a_new_leader_gives_a_full_lease() {
        let (mut state, mut leases) = (state(), Leases::new());
        let token = acquire(&mut state, "j");
        leases.applied(&state, Millis(0));
        assert_eq!(leases.over(&state, Millis(9000)), [], "followers do not count");
        leases.lead(Millis(9000));
        assert_eq!(leases.over(&state, Millis(10_999)), []);
        assert_eq!(leases.over(&state, Millis(11_000)), [expire("j", token, 0)]);
        leases.follow();
        assert_eq!(leases.over(&state, Millis(20_000)), []);
    }

    /// A grant that is released and given again is another lease.
    #[test]
    fn each_grant_has_its_own() {
        let (mut state, mut leases) = (state(), Leases::new());
        leases.lead(Millis(0));
        let token = acquire(&mut state, "j");
        leases.applied(&state, Millis(0));
        ask(&mut state, Coordination::Release { id: "j".into(), token });
        let next = acquire(&mut state, "j");
        leases.applied(&state, Millis(1500));
        assert_eq!(leases.over(&state, Millis(2000)), []);
        assert_eq!(leases.over(&state, Millis(3500)), [expire("j", next, 0)]);
    }

    proptest! {
        /// Whatever is renewed and whoever leads: a grant never ends sooner than a lease after its
        /// last renewal was applied.
        #[test]
        fn never_too_early(steps in proptest::collection::vec((0..4_u8, 0..3000_u64), 0..60)) {
            let (mut state, mut leases) = (state(), Leases::new());
            let token = acquire(&mut state, "j");
            leases.applied(&state, Millis(0));
            let (mut now, mut renewed) = (0, 0);
            for (step, passed) in steps {
                now += passed;
                match step {
                    0 => {
                        ask(&mut state, Coordination::Renew { id: "j".into(), token });
                        leases.applied(&state, Millis(now));
                        renewed = now;
                    }
                    1 => leases.lead(Millis(now)),
                    2 => leases.follow(),
                    _ => {
                        let over = leases.over(&state, Millis(now));
                        prop_assert!(over.is_empty() || now >= renewed + LEASE);
                        // And not never, as long as somebody leads.
                        if leases.leads_since.is_some_and(|since| now >= since.0.max(renewed) + LEASE) {
                            prop_assert_eq!(over.len(), 1);
                        }
                    }
                }
            }
        }
    }
}
