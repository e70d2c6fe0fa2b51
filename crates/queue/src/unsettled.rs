//! The messages that one consumer holds.
//!
//! ```text
//!  line     7 8 · 10 · · 13 14      ascending; · = settled out of order
//!  strays   9 3                     what was delivered after a younger one, where, and in which order
//! ```
//!
//! Deliveries mostly ascend, and settlements mostly come in the order of delivery: then both ends
//! of the line are all that is touched. A message in the middle is found by binary search; settled
//! ones leave a hole, and the line is closed up when more than half of it is holes.

use std::collections::{BTreeMap, VecDeque};

use model::id::Seq;
use model::time::Timestamp;

use crate::message::{Message, NEVER};

/// A message that is held.
#[derive(Debug, Clone, Copy)]
struct Held {
    message: Message,
    /// When it was delivered. [`NEVER`] marks a hole.
    since: Timestamp,
}

impl Held {
    fn is_hole(&self) -> bool {
        self.since == NEVER
    }
}

/// A message that was delivered after a younger one.
#[derive(Debug, Clone, Copy)]
struct Stray {
    held: Held,
    /// Which line there was then, and what it ended with.
    after: (u64, Seq),
    /// Counts strays.
    turn: u64,
}

/// Holes that are not worth closing up.
const HOLES_MIN: usize = 32;

/// What one consumer, or everybody who used `basic.get`, holds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unsettled {
    /// Never begins with a hole. Its end stays until it is empty, so that it and the strays tell the
    /// order of all deliveries.
    line: VecDeque<Held>,
    holes: usize,
    /// Counts how often the line began.
    lines: u64,
    strays: BTreeMap<Seq, Stray>,
    strayed: u64,
}

impl Unsettled {
    pub(crate) fn len(&self) -> usize {
        self.line.len() - self.holes + self.strays.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty() && self.strays.is_empty()
    }

    /// Adds a message that was delivered at `since`.
    pub(crate) fn insert(&mut self, message: Message, since: Timestamp) {
        debug_assert!(since != NEVER, "the end of time is taken");
        let held = Held { message, since };
        match self.line.back() {
            Some(youngest) if youngest.message.seq >= message.seq => {
                let after = (self.lines, youngest.message.seq);
                self.strayed += 1;
                self.strays.insert(message.seq, Stray { held, after, turn: self.strayed });
            }
            Some(_) => self.line.push_back(held),
            None => {
                self.lines += 1;
                self.line.push_back(held);
            }
        }
    }

    /// Removes what is held from `first` to `last`, in ascending order.
    pub(crate) fn take(&mut self, first: Seq, last: Seq, mut taken: impl FnMut(&Message)) {
        if self.strays.is_empty() {
            self.take_line(first, last, taken);
        } else if first == last {
            match self.strays.remove(&first) {
                Some(stray) => taken(&stray.held.message),
                None => self.take_line(first, last, taken),
            }
        } else if first < last {
            let mut all: Vec<Message> =
                self.strays.range(first..=last).map(|(_, stray)| stray.held.message).collect();
            for message in &all {
                self.strays.remove(&message.seq);
            }
            self.take_line(first, last, |message| all.push(*message));
            all.sort_unstable_by_key(|message| message.seq);
            all.iter().for_each(taken);
        }
    }

    /// Removes everything, in ascending order.
    pub(crate) fn take_all(&mut self, taken: impl FnMut(&Message)) {
        self.take(Seq(0), Seq(u64::MAX), taken);
    }

    /// When the one that is held for longest was delivered. Looks at all.
    pub(crate) fn oldest_since(&self) -> Timestamp {
        let strays = self.strays.values().map(|stray| &stray.held);
        self.line.iter().chain(strays).map(|held| held.since).min().unwrap_or(NEVER)
    }

    /// The names of those that were delivered at `until` or before, ascending. Looks at all.
    pub(crate) fn held_since(&self, until: Timestamp) -> Vec<Seq> {
        let mut seqs: Vec<Seq> = self
            .deliveries()
            .filter(|(_, since)| *since <= until)
            .map(|(message, _)| message.seq)
            .collect();
        seqs.sort_unstable();
        seqs
    }

    /// All, and since when they are held, in the order of delivery.
    pub(crate) fn deliveries(&self) -> impl Iterator<Item = (Message, Timestamp)> {
        let mut strays: Vec<&Stray> = self.strays.values().collect();
        strays.sort_unstable_by_key(|stray| stray.turn);
        let mut strays = strays.into_iter().peekable();
        let mut line = self.line.iter().filter(|held| !held.is_hole()).peekable();
        std::iter::from_fn(move || {
            let stray = match (strays.peek(), line.peek()) {
                (Some(stray), Some(held)) => stray.after < (self.lines, held.message.seq),
                (stray, _) => stray.is_some(),
            };
            let held = if stray { &strays.next()?.held } else { line.next()? };
            Some((held.message, held.since))
        })
    }

    pub(crate) fn find(&self, seq: Seq) -> Option<Message> {
        let place = self.line.binary_search_by_key(&seq, |held| held.message.seq).ok();
        let in_line = place.map(|place| &self.line[place]).filter(|held| !held.is_hole());
        in_line.or_else(|| self.strays.get(&seq).map(|stray| &stray.held)).map(|held| held.message)
    }

    /// Gives back spare memory.
    pub(crate) fn shrink(&mut self) {
        self.line.shrink_to_fit();
    }

    fn take_line(&mut self, first: Seq, last: Seq, mut taken: impl FnMut(&Message)) {
        while let Some(front) = self.line.front() {
            if front.is_hole() {
                self.holes -= 1;
            } else if front.message.seq < first {
                break;
            } else if front.message.seq > last {
                return;
            } else {
                taken(&front.message);
            }
            self.line.pop_front();
        }
        if self.line.is_empty() {
            return;
        }
        let start = self.line.partition_point(|held| held.message.seq < first);
        for held in self.line.range_mut(start..) {
            if held.message.seq > last {
                break;
            }
            if !held.is_hole() {
                held.since = NEVER;
                self.holes += 1;
                taken(&held.message);
            }
        }
        if self.holes > HOLES_MIN && self.holes * 2 > self.line.len() {
            let end = self.line.back().map(|held| held.message.seq);
            self.line.retain(|held| !held.is_hole() || Some(held.message.seq) == end);
            self.holes = self.line.back().map_or(0, |held| usize::from(held.is_hole()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(seq: u64) -> Message {
        Message {
            seq: Seq(seq),
            expires_at: NEVER,
            bytes: 1,
            delivery_count: 0,
            priority: 0,
            delivered: true,
        }
    }

    fn take(held: &mut Unsettled, first: u64, last: u64) -> Vec<u64> {
        let mut seqs = Vec::new();
        held.take(Seq(first), Seq(last), |message| seqs.push(message.seq.0));
        seqs
    }

    #[test]
    fn runs_come_out_ascending_wherever_they_were() {
        let mut held = Unsettled::default();
        for seq in [5, 6, 9, 2, 7, 12] {
            held.insert(message(seq), Timestamp(seq));
        }
        assert_eq!(held.len(), 6);
        assert_eq!(held.oldest_since(), Timestamp(2));
        assert_eq!(take(&mut held, 6, 9), [6, 7, 9]);
        assert_eq!(take(&mut held, 6, 9), [0; 0]);
        assert_eq!(held.find(Seq(9)), None);
        assert_eq!(held.find(Seq(2)), Some(message(2)));
        assert_eq!(take(&mut held, 9, 3), [0; 0], "a run that ends before it begins is empty");
        assert_eq!(take(&mut held, 0, u64::MAX), [2, 5, 12]);
        assert!(held.is_empty());
        assert_eq!(held.len(), 0);
    }

    #[test]
    fn deliveries_come_in_their_order() {
        let mut held = Unsettled::default();
        let order = |held: &Unsettled| {
            held.deliveries().map(|(message, _)| message.seq.0).collect::<Vec<_>>()
        };
        for seq in [5, 6, 9, 7, 2, 12] {
            held.insert(message(seq), Timestamp(seq));
        }
        assert_eq!(order(&held), [5, 6, 9, 7, 2, 12]);
        take(&mut held, 5, 6);
        take(&mut held, 9, 12);
        assert_eq!(order(&held), [7, 2]);
        for seq in [11, 8, 13] {
            held.insert(message(seq), Timestamp(seq));
        }
        assert_eq!(order(&held), [7, 2, 11, 8, 13]);
        take(&mut held, 13, 13);
        held.insert(message(12), Timestamp(0));
        take(&mut held, 11, 11);
        assert_eq!(order(&held), [7, 2, 8, 12]);
        for seq in [1, 9, 3] {
            held.insert(message(seq), Timestamp(0));
        }
        assert_eq!(order(&held), [7, 2, 8, 12, 1, 9, 3], "the line began anew");
        assert_eq!(held.line.len(), 2);
        assert_eq!(take(&mut held, 0, 20), [1, 2, 3, 7, 8, 9, 12]);
    }

    #[test]
    fn closing_up_keeps_the_order_of_deliveries() {
        let mut held = Unsettled::default();
        for seq in 1..=200 {
            held.insert(message(seq), Timestamp(0));
        }
        held.insert(message(0), Timestamp(0));
        take(&mut held, 2, 200);
        assert!(held.line.len() < 100, "it was closed up");
        for seq in [150, 201] {
            held.insert(message(seq), Timestamp(0));
        }
        let order: Vec<u64> = held.deliveries().map(|(message, _)| message.seq.0).collect();
        assert_eq!(order, [1, 0, 150, 201]);
        assert_eq!(held.len(), 4);
    }

    #[test]
    fn one_old_message_does_not_keep_the_others_room() {
        let mut held = Unsettled::default();
        for seq in 0..100_000 {
            held.insert(message(seq), Timestamp(0));
            if seq > 0 {
                assert_eq!(take(&mut held, seq, seq), [seq]);
            }
            assert!(held.line.len() <= 2 * HOLES_MIN + 2);
        }
        assert_eq!(held.len(), 1);
        assert_eq!(take(&mut held, 0, 0), [0]);
        assert!(held.is_empty());
    }
}
