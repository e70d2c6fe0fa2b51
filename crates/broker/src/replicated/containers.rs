//! Where the bodies of a quorum queue's live messages lie: in the records of its Raft log.
//!
//! A log entry carries many messages and is one record of the journal. The log gives a record up
//! when it is purged, but the record stays as a *container* while messages in it are alive. When
//! few of them are left they are carried over, each into a record of its own, so that the room that
//! a queue takes on disk stays in proportion to what is in it.

use std::collections::{BTreeMap, VecDeque};

use model::id::Seq;

/// A container gives its last messages away when this part of its bytes, or more, is dead.
const DEAD_PART: u64 = 2;

/// One record with messages in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Container {
    position: Seq,
    count: u32,
    live: u32,
    /// The entry's index; 0 if the record came from another node.
    index: u64,
    /// The log needs it no more.
    purged: bool,
    /// It could not be read: nothing is carried out of it.
    unreadable: bool,
}

/// A record that holds several messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) position: Seq,
    /// The index of its entry; 0 if it came from another node.
    pub(crate) index: u64,
    /// How many messages it was born with.
    pub(crate) count: u32,
}

/// Where a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The record's position in the stream.
    pub(crate) position: Seq,
    /// Which message of the record, counted from 0; `None`: the record is the message.
    pub(crate) ordinal: Option<u32>,
}

/// See the module head.
#[derive(Debug, Default)]
pub(crate) struct Containers {
    /// By the name of the first message.
    by_first: BTreeMap<u64, Container>,
    /// Messages in records of their own.
    alone: BTreeMap<u64, Seq>,
    /// Entries that the log still needs: index, position, and the first message if it has any.
    log: VecDeque<(u64, Seq, Option<u64>)>,
    /// Records that nobody needs any more.
    free: Vec<Seq>,
    /// Bytes of the bodies that are alive, as they were last told.
    body_bytes: u64,
}

impl Containers {
    /// So many bytes of bodies are alive.
    pub(crate) fn weigh(&mut self, body_bytes: u64) {
        self.body_bytes = body_bytes;
    }

    /// See [`weigh`](Self::weigh).
    pub(crate) fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// A committed entry with `count` messages from `first` on.
    pub(crate) fn entry(&mut self, index: u64, position: Seq, first: Seq, count: u32) {
        let names = (count > 0).then_some(first.0);
        self.log.push_back((index, position, names));
        if count > 0 {
            let (purged, unreadable) = (false, false);
            let container = Container { position, count, live: count, index, purged, unreadable };
            self.by_first.insert(first.0, container);
        }
    }

    /// A message in a record of its own.
    pub(crate) fn alone(&mut self, seq: Seq, position: Seq) {
        if let Some(old) = self.alone.insert(seq.0, position) {
            self.free.push(old);
        }
    }

    /// A record that a checkpoint knows, with so many live messages. An entry (its index is not 0)
    /// is needed by the log until it is purged, even if it has none.
    pub(crate) fn known(&mut self, first: Option<Seq>, record: Record, live: u32) {
        let Record { position, index, count } = record;
        let names = first.filter(|_| live > 0).map(|first| first.0);
        if index > 0 {
            self.log.push_back((index, position, names));
        } else if names.is_none() {
            self.free.push(position);
        }
        if let Some(first) = names {
            let purged = index == 0;
            // The same messages may lie in two records, if a node died while it was brought up. The
            // log keeps its own for as long as it needs it.
            if let Some(double) = self.by_first.remove(&first) {
                let needed = self.log.iter_mut().find(|(_, at, _)| *at == double.position);
                match needed.filter(|_| !double.purged) {
                    Some((.., names)) => *names = None,
                    None => self.free.push(double.position),
                }
            }
            let unreadable = false;
            let container = Container { position, count, live, index, purged, unreadable };
            self.by_first.insert(first, container);
        }
    }

    /// Messages are gone; each is released once.
    pub(crate) fn release(&mut self, first: Seq, last: Seq) {
        let alone: Vec<u64> = self.alone.range(first.0..=last.0).map(|(seq, _)| *seq).collect();
        for seq in alone {
            self.free.extend(self.alone.remove(&seq));
        }
        let from = self.by_first.range(..=first.0).next_back().map_or(first.0, |(from, _)| *from);
        let mut gone = Vec::new();
        for (&start, container) in self.by_first.range_mut(from..=last.0) {
            let end = start + u64::from(container.count) - 1;
            if end < first.0 {
                continue;
            }
            let inside = first.0.max(start)..=last.0.min(end);
            let dead = inside.end() + 1 - inside.start();
            container.live -= u32::try_from(dead).unwrap_or(u32::MAX).min(container.live);
            if container.live == 0 && container.purged {
                gone.push(start);
            }
        }
        for start in gone {
            self.free.extend(self.by_first.remove(&start).map(|container| container.position));
        }
    }

    /// The log needs nothing up to `index` any more.
    pub(crate) fn purged(&mut self, index: u64) {
        while self.log.front().is_some_and(|(at, ..)| *at <= index) {
            let Some((_, position, names)) = self.log.pop_front() else { return };
            match names.and_then(|first| self.by_first.get_mut(&first).map(|it| (first, it))) {
                Some((_, container)) if container.live > 0 => container.purged = true,
                Some((first, _)) => {
                    self.by_first.remove(&first);
                    self.free.push(position);
                }
                None => self.free.push(position),
            }
        }
    }

    /// Where a live message lies.
    pub(crate) fn place(&self, seq: Seq) -> Option<Place> {
        if let Some(&position) = self.alone.get(&seq.0) {
            return Some(Place { position, ordinal: None });
        }
        let (&first, container) = self.by_first.range(..=seq.0).next_back()?;
        let ordinal = u32::try_from(seq.0 - first).ok()?;
        (ordinal < container.count)
            .then_some(Place { position: container.position, ordinal: Some(ordinal) })
    }

    /// Names of messages, by container, that should be carried over: at most `most` containers.
    /// The caller filters those that are alive, and says so by [`Containers::carried`].
    pub(crate) fn wasteful(&self, most: usize) -> Vec<(Seq, u32)> {
        self.by_first
            .iter()
            .filter(|(_, one)| {
                one.purged
                    && !one.unreadable
                    && one.count > 1
                    && u64::from(one.count - one.live) * DEAD_PART >= u64::from(one.count)
            })
            .take(most)
            .map(|(&first, one)| (Seq(first), one.count))
            .collect()
    }

    /// How many messages a container was born with, if it is there.
    pub(crate) fn count(&self, first: Seq) -> Option<u32> {
        self.by_first.get(&first.0).map(|container| container.count)
    }

    /// A container cannot be read: it stays as it is, and holds up no other.
    pub(crate) fn is_unreadable(&mut self, first: Seq) {
        if let Some(container) = self.by_first.get_mut(&first.0) {
            container.unreadable = true;
        }
    }

    /// Records that hold nothing of use.
    pub(crate) fn unwanted(&mut self, positions: &[Seq]) {
        self.free.extend_from_slice(positions);
    }

    /// Everything alive of a container has got a record of its own.
    pub(crate) fn carried(&mut self, first: Seq, survivors: &[(Seq, Seq)]) {
        if let Some(container) = self.by_first.remove(&first.0) {
            self.free.push(container.position);
        }
        for &(seq, position) in survivors {
            self.alone(seq, position);
        }
    }

    /// Takes the records that nobody needs any more, in ascending order.
    pub(crate) fn take_free(&mut self) -> Vec<Seq> {
        let mut free = std::mem::take(&mut self.free);
        free.sort_unstable();
        free
    }

    /// Whole records with live messages, by the name of their first.
    pub(crate) fn records(&self) -> impl Iterator<Item = (Seq, Record)> + '_ {
        self.by_first.iter().filter(|(_, one)| one.live > 0).map(|(&first, one)| {
            let record = Record { position: one.position, index: one.index, count: one.count };
            (Seq(first), record)
        })
    }

    /// Messages in records of their own, with their positions.
    pub(crate) fn loners(&self) -> impl Iterator<Item = (Seq, Seq)> + '_ {
        self.alone.iter().map(|(&seq, &position)| (Seq(seq), position))
    }

    /// Forgets everything: another state takes its place, and says what it needs of the log.
    pub(crate) fn clear(&mut self) {
        let Self { by_first, alone, log, free, body_bytes } = self;
        *body_bytes = 0;
        free.extend(by_first.values().filter(|it| it.purged).map(|it| it.position));
        free.extend(alone.values().copied());
        by_first.clear();
        alone.clear();
        log.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_record_goes_when_the_log_and_the_queue_are_done_with_it() {
        let mut containers = Containers::default();
        containers.entry(1, Seq(10), Seq(1), 2);
        containers.entry(2, Seq(11), Seq(3), 0);
        containers.release(Seq(1), Seq(1));
        assert_eq!(containers.take_free(), []);
        containers.purged(2);
        assert_eq!(containers.take_free(), [Seq(11)], "one message of 10 is alive");
        assert_eq!(containers.wasteful(9), [(Seq(1), 2)]);
        assert_eq!(containers.place(Seq(2)), Some(Place { position: Seq(10), ordinal: Some(1) }));
        containers.carried(Seq(1), &[(Seq(2), Seq(12))]);
        assert_eq!(containers.place(Seq(2)), Some(Place { position: Seq(12), ordinal: None }));
        containers.release(Seq(2), Seq(2));
        assert_eq!(containers.take_free(), [Seq(10), Seq(12)]);
    }

    #[test]
    fn messages_that_lie_in_two_records_leave_both() {
        let mut containers = Containers::default();
        let first = Some(Seq(1));
        containers.known(first, Record { position: Seq(3), index: 7, count: 2 }, 2);
        containers.known(first, Record { position: Seq(9), index: 0, count: 2 }, 2);
        assert_eq!(containers.place(Seq(1)), Some(Place { position: Seq(9), ordinal: Some(0) }));
        containers.purged(7);
        assert_eq!(containers.take_free(), [Seq(3)], "the log was done with it");
        containers.release(Seq(1), Seq(2));
        assert_eq!(containers.take_free(), [Seq(9)]);
        containers.known(first, Record { position: Seq(11), index: 0, count: 2 }, 1);
        containers.known(first, Record { position: Seq(12), index: 0, count: 2 }, 1);
        assert_eq!(containers.take_free(), [Seq(11)]);
    }

    #[test]
    fn what_cannot_be_read_holds_up_no_other() {
        let mut containers = Containers::default();
        for (index, first) in [(1, 1), (2, 3)] {
            containers.entry(index, Seq(10 + index), Seq(first), 2);
            containers.release(Seq(first), Seq(first));
        }
        containers.purged(2);
        assert_eq!(containers.wasteful(1), [(Seq(1), 2)]);
        containers.is_unreadable(Seq(1));
        assert_eq!(containers.wasteful(9), [(Seq(3), 2)]);
        containers.release(Seq(2), Seq(2));
        assert_eq!(containers.take_free(), [Seq(11)], "nobody needs it any more");
    }

    proptest! {
        /// Against the obvious: a record is free once its entry is purged and no message of it
        /// lives there; every live message has a place in a record that is not free.
        #[test]
        fn agrees_with_the_obvious(
            counts in prop::collection::vec(0u32..5, 1..30),
            steps in prop::collection::vec((0u8..3, any::<prop::sample::Index>(), 0u64..4), 0..100),
        ) {
            let mut containers = Containers::default();
            let (mut live, mut next) = (BTreeSet::new(), 1u64);
            for (index, &count) in (1u64..).zip(&counts) {
                containers.entry(index, Seq(index), Seq(next), count);
                live.extend(next..next + u64::from(count));
                next += u64::from(count);
            }
            let (mut next_position, mut freed) = (counts.len() as u64 + 1, BTreeSet::new());
            let mut purged = 0;
            for (kind, index, width) in steps {
                match kind {
                    0 => {
                        let Some(&first) = live.iter().nth(index.index(live.len().max(1))) else {
                            continue;
                        };
                        let mut last = first;
                        while last < first + width && live.contains(&(last + 1)) {
                            last += 1;
                        }
                        containers.release(Seq(first), Seq(last));
                        live.retain(|seq| !(first..=last).contains(seq));
                    }
                    1 => {
                        purged = purged.max(index.index(counts.len() + 1) as u64);
                        containers.purged(purged);
                    }
                    _ => {
                        for (first, count) in containers.wasteful(1) {
                            let survivors: Vec<_> = (first.0..first.0 + u64::from(count))
                                .filter(|seq| live.contains(seq))
                                .map(|seq| {
                                    next_position += 1;
                                    (Seq(seq), Seq(next_position))
                                })
                                .collect();
                            containers.carried(first, &survivors);
                        }
                    }
                }
                for position in containers.take_free() {
                    prop_assert!(freed.insert(position.0), "freed twice");
                }
                for &seq in &live {
                    let place = containers.place(Seq(seq)).expect("it is alive");
                    prop_assert!(!freed.contains(&place.position.0));
                }
            }
            for seq in live {
                containers.release(Seq(seq), Seq(seq));
            }
            containers.purged(counts.len() as u64);
            freed.extend(containers.take_free().into_iter().map(|position| position.0));
            for index in 1..=counts.len() as u64 {
                prop_assert!(freed.contains(&index), "record {} is never freed", index);
            }
        }
    }
}
