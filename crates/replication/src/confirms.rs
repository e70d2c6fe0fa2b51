//! What may be confirmed to clients: the rule of every mode, as watermarks over one order.
//!
//! ```text
//!   positions of the journal:   1 2 3 4 5 6 7 8 9
//!     confirmed                 ──►
//!     answered by the replica   ────►
//!     durable here              ──────────►
//!     appended                  ────────────────►
//!
//!   gate Alone     up to what is durable here
//!   gate Replica   up to what is durable here and was answered
//!   gate Hold      no further
//!   gate Closed    nothing more, ever: what is held has no answer from this node
//! ```
//!
//! `confirmed ≤ durable ≤ appended` and `answered ≤ appended` always. Each operation has exactly one
//! end: it is confirmed, or it is dropped when the gate closes.

use activation::gate::Gate;

/// The watermarks of a journal that is served here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confirms {
    gate: Gate,
    appended: u64,
    durable: u64,
    /// By the present replica, since it is in the stream.
    answered: u64,
    confirmed: u64,
}

/// The positions that may be confirmed now, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Released {
    /// The first one.
    pub from: u64,
    /// The last one.
    pub through: u64,
}

impl Confirms {
    /// Of a journal that begins to be served; everything up to `position` is durable and its fate is
    /// none of ours.
    pub fn new(position: u64) -> Self {
        Self {
            gate: Gate::Closed,
            appended: position,
            durable: position,
            answered: position,
            confirmed: position,
        }
    }

    /// The journal has taken an operation at the next position.
    ///
    /// # Panics
    /// If the gate is closed: nothing is accepted then.
    pub fn appended(&mut self) -> u64 {
        assert!(self.gate.is_open(), "a journal that is not served takes nothing");
        self.appended += 1;
        self.appended
    }

    /// Everything up to a position is durable here.
    ///
    /// # Panics
    /// If it was never appended.
    pub fn durable(&mut self, through: u64) {
        assert!(through <= self.appended, "{through} is durable, and {} appended", self.appended);
        self.durable = self.durable.max(through);
    }

    /// The replica has answered everything up to a position. Not to be told of a replica that is
    /// lost.
    ///
    /// # Panics
    /// If it was never appended.
    pub fn answered(&mut self, through: u64) {
        assert!(through <= self.appended, "{through} is answered, and {} appended", self.appended);
        self.answered = self.answered.max(through);
    }

    /// A replica begins to be in the stream: what comes up to here it has by the copy, and its
    /// answer to "whole" stands for that.
    pub fn attached(&mut self, through: u64) {
        self.answered = through;
    }

    /// What [`activation::output::Output::Gate`] says. Returns how many operations are dropped: those
    /// that were held when the gate closes.
    pub fn set_gate(&mut self, gate: Gate) -> u64 {
        self.gate = gate;
        if gate.is_open() {
            return 0;
        }
        let dropped = self.appended - self.confirmed;
        self.confirmed = self.appended;
        self.durable = self.appended;
        self.answered = self.appended;
        dropped
    }

    /// Takes what may be confirmed now. `lease` says whether the node's lease is usable at this very
    /// moment, or is not needed; without it nothing is.
    pub fn release(&mut self, lease: bool) -> Option<Released> {
        let through = match self.gate {
            Gate::Closed | Gate::Hold => return None,
            Gate::Alone => self.durable,
            Gate::Replica => self.durable.min(self.answered),
        };
        if !lease || through <= self.confirmed {
            return None;
        }
        let from = self.confirmed + 1;
        self.confirmed = through;
        Some(Released { from, through })
    }

    /// How many operations wait for their confirm.
    pub fn held(&self) -> u64 {
        self.appended - self.confirmed
    }

    /// Whether the replica has answered everything up to a position.
    pub fn is_answered(&self, position: u64) -> bool {
        position <= self.answered
    }

    /// The last position that was appended.
    pub fn last(&self) -> u64 {
        self.appended
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn released(from: u64, through: u64) -> Released {
        Released { from, through }
    }

    #[test]
    fn each_gate_has_its_rule() {
        let mut confirms = Confirms::new(10);
        confirms.set_gate(Gate::Alone);
        for position in 11..=15 {
            assert_eq!(confirms.appended(), position);
        }
        assert_eq!(confirms.release(true), None);
        confirms.durable(12);
        assert_eq!(confirms.release(false), None, "no lease");
        assert_eq!(confirms.release(true), Some(released(11, 12)));
        assert_eq!(confirms.release(true), None, "each once");
        confirms.set_gate(Gate::Hold);
        confirms.durable(15);
        assert_eq!((confirms.release(true), confirms.held()), (None, 3));
        confirms.set_gate(Gate::Replica);
        assert_eq!(confirms.release(true), None);
        confirms.answered(14);
        assert_eq!(confirms.release(true), Some(released(13, 14)));
        // The replica is lost: what it has not answered waits for the commit of the next age.
        assert_eq!(confirms.release(true), None);
        confirms.set_gate(Gate::Alone);
        assert_eq!(confirms.release(true), Some(released(15, 15)));
    }

    /// An answer to what is not durable here is not enough either.
    #[test]
    fn both_disks_are_needed() {
        let mut confirms = Confirms::new(0);
        confirms.set_gate(Gate::Replica);
        confirms.appended();
        assert!(!confirms.is_answered(1));
        confirms.answered(1);
        assert!(confirms.is_answered(1));
        assert_eq!(confirms.release(true), None);
        confirms.durable(1);
        assert_eq!(confirms.release(true), Some(released(1, 1)));
    }

    #[test]
    fn br_12_closing_ends_what_is_held() {
        let mut confirms = Confirms::new(0);
        confirms.set_gate(Gate::Replica);
        for _ in 0..3 {
            confirms.appended();
        }
        confirms.durable(3);
        confirms.answered(1);
        assert_eq!(confirms.release(true), Some(released(1, 1)));
        assert_eq!(confirms.set_gate(Gate::Closed), 2);
        assert_eq!((confirms.held(), confirms.release(true)), (0, None));
        // Late news of what was dropped confirm nothing when it is served here again.
        confirms.durable(3);
        confirms.answered(3);
        confirms.set_gate(Gate::Alone);
        assert_eq!(confirms.release(true), None);
    }

    proptest! {
        /// Against the rule written down for single operations.
        #[test]
        fn watermarks_are_the_rule(steps in proptest::collection::vec((0..7_u8, 0..6_u64, any::<bool>()), 0..80)) {
            let mut confirms = Confirms::new(0);
            let mut gate = Gate::Closed;
            let (mut appended, mut durable, mut answered) = (0_u64, 0_u64, 0_u64);
            let mut open: BTreeSet<u64> = BTreeSet::new();
            for (step, amount, lease) in steps {
                match step {
                    0 | 1 if gate.is_open() => {
                        appended += 1;
                        prop_assert_eq!(confirms.appended(), appended);
                        open.insert(appended);
                    }
                    2 => {
                        durable = durable.max((durable + amount).min(appended));
                        confirms.durable(durable);
                    }
                    3 => {
                        answered = answered.max((answered + amount).min(appended));
                        confirms.answered(answered);
                    }
                    4 => {
                        gate = [Gate::Closed, Gate::Hold, Gate::Replica, Gate::Alone, Gate::Replica, Gate::Alone]
                            [usize::try_from(amount).unwrap()];
                        let dropped = confirms.set_gate(gate);
                        if !gate.is_open() {
                            prop_assert_eq!(dropped, open.len() as u64);
                            open.clear();
                            (durable, answered) = (appended, appended);
                        }
                    }
                    _ => {
                        let may = |position: &u64| lease && match gate {
                            Gate::Closed | Gate::Hold => false,
                            Gate::Alone => *position <= durable,
                            Gate::Replica => *position <= durable && *position <= answered,
                        };
                        let wanted: Vec<u64> = open.iter().copied().filter(may).collect();
                        let got: Vec<u64> = confirms
                            .release(lease)
                            .map(|released| (released.from..=released.through).collect())
                            .unwrap_or_default();
                        prop_assert_eq!(&got, &wanted);
                        for position in got {
                            open.remove(&position);
                        }
                    }
                }
                prop_assert_eq!(confirms.held(), open.len() as u64);
            }
        }
    }
}
