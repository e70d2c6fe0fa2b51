//! Groups the answers to publishes of one channel in confirm mode.
//!
//! ```text
//!   answered, or in `run`     window (may be empty)         not answered
//!   … 5 6 7 8               | 9:pending 10:acc 11:ref 12:acc | 13 14 …
//!                             └ base                           └ next = number of the next publish
//! ```
//!
//! Answers may come in any order. What comes in order is gathered into a run, which becomes one
//! `basic.ack` with `multiple`; what comes ahead of an undecided number is answered alone. A
//! run ends where a number was refused, so no group covers a refused or an undecided number.
//!
//! The broker's numbers go on where those of earlier channels ended: a channel may be closed and
//! opened again while confirms for it are on their way, and these must not be taken for those of
//! new publishes.

use std::collections::VecDeque;

/// What is to be written to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) number: u64,
    pub(crate) multiple: bool,
    /// `basic.ack`, else `basic.nack`.
    pub(crate) accepted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Undecided,
    /// Accepted; not written yet.
    Accepted,
    /// Accepted and written alone.
    AcceptedWritten,
    /// Refused; not written yet.
    Refused,
    RefusedWritten,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Confirms {
    /// By how much the broker's numbers are higher than the client's.
    offset: u64,
    next: u64,
    base: u64,
    window: VecDeque<State>,
    /// Last number and length of the run that waits to be written.
    run: Option<(u64, u64)>,
    /// Runs and refusals that ended while waiting.
    done: Vec<Answer>,
    /// Numbers that were decided ahead of `base`, and not yet written then.
    ahead: Vec<u64>,
    undecided: u64,
}

impl Confirms {
    /// `offset`: at least the highest number that the broker has got for this channel before.
    pub(crate) fn new(offset: u64) -> Self {
        Self {
            offset,
            next: 1,
            base: 1,
            window: VecDeque::new(),
            run: None,
            done: Vec::new(),
            ahead: Vec::new(),
            undecided: 0,
        }
    }

    /// One more publish: its number for the broker.
    pub(crate) fn take_number(&mut self) -> u64 {
        self.next += 1;
        self.undecided += 1;
        self.offset + self.next - 1
    }

    /// Publishes without an answer.
    pub(crate) fn undecided(&self) -> u64 {
        self.undecided
    }

    /// The broker decided. Numbers that were never given out, or were decided before, are ignored.
    pub(crate) fn decide(&mut self, number: u64, accepted: bool) {
        let Some(number) = number.checked_sub(self.offset) else { return };
        if number < self.base || number >= self.next {
            return;
        }
        if number == self.base && self.window.is_empty() && accepted {
            self.base += 1;
            self.undecided -= 1;
            self.extend_run(number);
            return;
        }
        let index = usize::try_from(number - self.base).expect("a window fits in memory");
        if self.window.len() <= index {
            self.window.resize(index + 1, State::Undecided);
        }
        if self.window[index] != State::Undecided {
            return;
        }
        self.undecided -= 1;
        self.window[index] = if accepted { State::Accepted } else { State::Refused };
        if index == 0 {
            self.absorb();
        } else {
            self.ahead.push(number);
        }
    }

    /// Moves what is decided from the front of the window into runs.
    fn absorb(&mut self) {
        while let Some(&state) = self.window.front() {
            match state {
                State::Undecided => break,
                State::Accepted => self.extend_run(self.base),
                State::AcceptedWritten => {}
                State::Refused => {
                    self.end_run();
                    let number = self.base;
                    self.done.push(Answer { number, multiple: false, accepted: false });
                }
                State::RefusedWritten => self.end_run(),
            }
            self.window.pop_front();
            self.base += 1;
        }
    }

    fn extend_run(&mut self, number: u64) {
        self.run = Some((number, self.run.map_or(1, |(_, length)| length + 1)));
    }

    fn end_run(&mut self) {
        if let Some((number, length)) = self.run.take() {
            self.done.push(Answer { number, multiple: length > 1, accepted: true });
        }
    }

    /// Hands out all answers that are not written, in ascending order.
    pub(crate) fn flush(&mut self, mut write: impl FnMut(Answer)) {
        for answer in self.done.drain(..) {
            write(answer);
        }
        if let Some((number, length)) = self.run.take() {
            write(Answer { number, multiple: length > 1, accepted: true });
        }
        self.ahead.sort_unstable();
        for number in self.ahead.drain(..) {
            // those below `base` went out with a run
            let Some(index) = number.checked_sub(self.base) else { continue };
            let state = &mut self.window[usize::try_from(index).expect("it is in the window")];
            let accepted = *state == State::Accepted;
            *state = if accepted { State::AcceptedWritten } else { State::RefusedWritten };
            write(Answer { number, multiple: false, accepted });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn answers(confirms: &mut Confirms) -> Vec<(u64, bool, bool)> {
        let mut out = Vec::new();
        confirms.flush(|answer| out.push((answer.number, answer.multiple, answer.accepted)));
        out
    }

    #[test]
    fn what_comes_in_order_is_one_group() {
        let mut confirms = Confirms::new(0);
        for _ in 0..10 {
            confirms.take_number();
        }
        for number in 1..=7 {
            confirms.decide(number, true);
        }
        assert_eq!(answers(&mut confirms), [(7, true, true)]);
        confirms.decide(8, true);
        assert_eq!(answers(&mut confirms), [(8, false, true)]);
        assert_eq!(confirms.undecided(), 2);
    }

    #[test]
    fn groups_end_at_refused_and_undecided_numbers() {
        let mut confirms = Confirms::new(0);
        for _ in 0..9 {
            confirms.take_number();
        }
        for (number, accepted) in
            [(2, true), (1, true), (3, false), (4, true), (5, true), (7, true), (8, false)]
        {
            confirms.decide(number, accepted);
        }
        assert_eq!(
            answers(&mut confirms),
            [
                (2, true, true),
                (3, false, false),
                (5, true, true),
                (7, false, true),
                (8, false, false)
            ]
        );
        confirms.decide(9, true);
        confirms.decide(6, true);
        assert_eq!(answers(&mut confirms), [(6, false, true), (9, false, true)]);
        assert_eq!(confirms.undecided(), 0);
    }

    proptest! {
        /// Whatever the order and the batches: one answer for each number, and the right one.
        #[test]
        fn each_number_gets_exactly_its_answer(
            decisions in prop::collection::vec((any::<u32>(), prop::bool::weighted(0.8), any::<bool>()), 1..60),
        ) {
            let mut confirms = Confirms::new(0);
            for _ in 0..decisions.len() {
                confirms.take_number();
            }
            let mut order: Vec<usize> = (0..decisions.len()).collect();
            order.sort_by_key(|&index| decisions[index].0 as usize % 8 + index);
            let mut open: BTreeMap<u64, bool> =
                decisions.iter().enumerate().map(|(i, d)| (i as u64 + 1, d.1)).collect();
            let mut decided = std::collections::BTreeSet::new();
            let mut refused = std::collections::BTreeSet::new();
            for index in order {
                let (_, accepted, flush) = decisions[index];
                confirms.decide(index as u64 + 1, accepted);
                decided.insert(index as u64 + 1);
                if !accepted {
                    refused.insert(index as u64 + 1);
                }
                if !flush {
                    continue;
                }
                let mut last = 0;
                for (number, multiple, accepted) in answers(&mut confirms) {
                    prop_assert!(number > last);
                    last = number;
                    prop_assert_eq!(open.get(&number), Some(&accepted));
                    if multiple {
                        let covered: Vec<u64> = open.range(..=number).map(|(n, _)| *n).collect();
                        prop_assert!(covered.len() > 1);
                        for number in covered {
                            prop_assert!(decided.contains(&number) && !refused.contains(&number));
                            open.remove(&number);
                        }
                    } else {
                        open.remove(&number);
                    }
                }
                prop_assert!(open.keys().all(|number| !decided.contains(number)));
            }
        }
    }
}
