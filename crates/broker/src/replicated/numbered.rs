//! Commands of one sender as one numbered stream, so that each takes effect once and in order.
//!
//! ```text
//!  sender's node                     leader              every member
//!  Courier ── 7, 8, 9 ─────────────► proposes ──log───► Ledger: 7 new, 8 new, 9 new
//!     ▲  leader lost: 7, 8, 9 again ─► new leader ─────► Ledger: 7 and 8 repeats, 9 new
//!     └───────────── "done up to 9" ───────────────────────┘
//! ```
//!
//! A sender is one start of one node. The ledger is part of the replicated state: one number for
//! each sender, not one for each command or connection.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

use model::id::NodeId;

#[cfg(test)]
use crate::replicated::sim::rules::{self, Rule};

/// One start of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Sender {
    pub(crate) node: NodeId,
    /// Which start of it.
    pub(crate) boot: u64,
}

/// What a number means to a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The next one: perform it.
    New,
    /// It was performed before.
    Repeat,
    /// Something before it is missing: refuse it; the sender starts again from `expected`.
    Gap { expected: u64 },
}

/// The numbers that were performed, of every sender.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    last: BTreeMap<Sender, u64>,
}

impl Ledger {
    /// Judges a number, and counts it as performed if it is the next one.
    pub(crate) fn take(&mut self, sender: Sender, number: u64) -> Verdict {
        let last = self.last.entry(sender).or_default();
        let expected = *last + 1;
        match number.cmp(&expected) {
            Ordering::Equal => {
                *last = number;
                Verdict::New
            }
            #[cfg(test)]
            Ordering::Less if rules::broken(Rule::DropRepeats) => Verdict::New,
            Ordering::Less => Verdict::Repeat,
            Ordering::Greater => Verdict::Gap { expected },
        }
    }

    /// The last number of a sender that was performed; 0: none.
    pub(crate) fn last(&self, sender: Sender) -> u64 {
        self.last.get(&sender).copied().unwrap_or_default()
    }

    /// Forgets all starts of a node before this one: nothing of theirs can come any more.
    pub(crate) fn forget_before(&mut self, sender: Sender) {
        self.last.retain(|known, _| known.node != sender.node || known.boot >= sender.boot);
    }

    /// Every sender with its last number, in order.
    pub(crate) fn entries(&self) -> impl ExactSizeIterator<Item = (Sender, u64)> + '_ {
        self.last.iter().map(|(sender, last)| (*sender, *last))
    }

    /// What [`Ledger::entries`] gave.
    pub(crate) fn restore(entries: impl IntoIterator<Item = (Sender, u64)>) -> Self {
        Self { last: entries.into_iter().collect() }
    }
}

/// The sender's side: what has no answer yet, and what of it the present leader has not got.
#[derive(Debug)]
pub(crate) struct Courier<T> {
    /// The number of the first one in `waiting`.
    first: u64,
    waiting: VecDeque<T>,
    /// How many of `waiting` have been sent to the present leader.
    sent: usize,
}

impl<T> Default for Courier<T> {
    fn default() -> Self {
        Self { first: 1, waiting: VecDeque::new(), sent: 0 }
    }
}

impl<T> Courier<T> {
    /// Adds one; returns its number.
    pub(crate) fn push(&mut self, item: T) -> u64 {
        self.waiting.push_back(item);
        self.next() - 1
    }

    /// What has to be sent now, with the number of the first; counts as sent from then on.
    pub(crate) fn send(&mut self, most: usize) -> Option<(u64, impl ExactSizeIterator<Item = &T>)> {
        let from = self.sent;
        let to = self.waiting.len().min(from.saturating_add(most));
        if from == to {
            return None;
        }
        self.sent = to;
        Some((self.first + from as u64, self.waiting.range(from..to)))
    }

    /// The same within a budget of bytes, which one alone may exceed.
    pub(crate) fn send_within(
        &mut self,
        most: usize,
        budget: usize,
        weigh: impl Fn(&T) -> usize,
    ) -> Option<(u64, impl ExactSizeIterator<Item = &T>)> {
        let mut weight = 0;
        let fits = self.waiting.range(self.sent.min(self.waiting.len())..).take(most);
        let fits = fits.take_while(|item| {
            let is_first = weight == 0;
            weight += weigh(item);
            is_first || weight <= budget
        });
        let count = fits.count();
        self.send(count)
    }

    /// The number that the next one gets.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.waiting.len() as u64
    }

    /// The one with this number, to change it, if it has no answer yet.
    pub(crate) fn waiting_at(&mut self, number: u64) -> Option<&mut T> {
        let at = number.checked_sub(self.first)?;
        self.waiting.get_mut(usize::try_from(at).ok()?)
    }

    /// What has no answer yet, in order.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &T> {
        self.waiting.iter()
    }

    /// The same, to change it.
    pub(crate) fn waiting_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.waiting.iter_mut()
    }

    /// How many have no answer yet.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// How many the present leader has and has not answered.
    pub(crate) fn in_flight(&self) -> usize {
        self.sent
    }

    /// Nothing that was sent counts any more: there is another leader.
    pub(crate) fn rewind(&mut self) {
        self.sent = 0;
    }

    /// Everything from `number` on has to be sent again.
    pub(crate) fn rewind_to(&mut self, number: u64) {
        let keep = usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX);
        self.sent = self.sent.min(keep);
    }

    /// Takes the ones up to `number` out: they are answered.
    pub(crate) fn answered(&mut self, number: u64) -> impl Iterator<Item = (u64, T)> {
        let count = usize::try_from((number + 1).saturating_sub(self.first))
            .unwrap_or(usize::MAX)
            .min(self.waiting.len());
        let first = self.first;
        self.first += count as u64;
        self.sent = self.sent.saturating_sub(count);
        (first..).zip(self.waiting.drain(..count).collect::<Vec<_>>())
    }

    /// Takes everything out: nobody will answer. Their numbers are not given again.
    pub(crate) fn give_up(&mut self) -> Vec<T> {
        self.first += self.waiting.len() as u64;
        self.sent = 0;
        self.waiting.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ME: Sender = Sender { node: NodeId(7), boot: 1 };

    #[test]
    fn a_ledger_takes_each_number_once_and_in_order() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.take(ME, 2), Verdict::Gap { expected: 1 });
        assert_eq!(ledger.take(ME, 1), Verdict::New);
        assert_eq!(ledger.take(ME, 1), Verdict::Repeat);
        assert_eq!(ledger.take(ME, 2), Verdict::New);
        let next = Sender { boot: 2, ..ME };
        assert_eq!(ledger.take(next, 1), Verdict::New, "another start counts for itself");
        ledger.forget_before(next);
        assert_eq!((ledger.last(ME), ledger.last(next)), (0, 1));
        assert_eq!(Ledger::restore(ledger.entries()), ledger);
    }

    #[test]
    fn a_batch_keeps_to_its_budget_unless_one_alone_exceeds_it() {
        let mut courier = Courier::default();
        for weight in [3, 4, 3, 12, 1, 1, 1] {
            courier.push(weight);
        }
        let mut next = || {
            let (first, batch) = courier.send_within(2, 10, |weight| *weight)?;
            Some((first, batch.copied().collect::<Vec<usize>>()))
        };
        assert_eq!(next(), Some((1, vec![3, 4])), "two at most");
        assert_eq!(next(), Some((3, vec![3])));
        assert_eq!(next(), Some((4, vec![12])));
        assert_eq!(next(), Some((5, vec![1, 1])));
        assert_eq!(next(), Some((7, vec![1])));
        assert_eq!(next(), None);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Push,
        /// The leader gets what is unsent, and commits so many of it before it fails (or not).
        Send {
            commits: usize,
            fails: bool,
        },
        Answer,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            Just(Step::Push),
            (0usize..5, any::<bool>()).prop_map(|(commits, fails)| Step::Send { commits, fails }),
            Just(Step::Answer),
        ]
    }

    proptest! {
        /// Whatever leaders lose, the log's effects are 1, 2, 3 … without repeats or gaps, and in
        /// the end everything is answered.
        #[test]
        fn every_item_takes_effect_once(steps in prop::collection::vec(step(), 1..200)) {
            let (mut courier, mut ledger) = (Courier::default(), Ledger::default());
            let (mut made, mut performed) = (0u64, Vec::new());
            let mut commit = |ledger: &mut Ledger, number: u64, item: u64| {
                if ledger.take(ME, number) == Verdict::New {
                    performed.push(item);
                }
            };
            for step in steps.into_iter().chain([
                Step::Send { commits: 0, fails: true },
                Step::Send { commits: usize::MAX, fails: false },
                Step::Answer,
            ]) {
                match step {
                    Step::Push => {
                        made += 1;
                        prop_assert_eq!(courier.push(made), made);
                    }
                    Step::Send { commits, fails } => {
                        if let Some((first, items)) = courier.send(usize::MAX) {
                            let sent: Vec<u64> = items.copied().collect();
                            let commits = if fails { commits.min(sent.len()) } else { sent.len() };
                            for (number, item) in (first..).zip(sent).take(commits) {
                                commit(&mut ledger, number, item);
                            }
                        }
                        if fails {
                            courier.rewind();
                        }
                    }
                    Step::Answer => {
                        for (number, item) in courier.answered(ledger.last(ME)) {
                            prop_assert_eq!(number, item);
                        }
                    }
                }
            }
            prop_assert_eq!(performed, (1..=made).collect::<Vec<_>>());
            prop_assert_eq!(courier.len(), 0);
        }
    }
}
