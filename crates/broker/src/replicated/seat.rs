//! A consumer of this node, as its client of the queue sees it: where its messages go, and which of
//! them its session has and has not settled.
//!
//! What has been posted to a session reaches it, so that nothing which a new leader repeats has to be
//! given to a session twice, also while its acknowledgement is on the way.

use std::collections::BTreeMap;

use amqp::request::ChannelId;
use model::id::{ConnectionId, Seq};

use crate::shard::outboxes::{OutboxId, Outboxes};

/// See the module head.
#[derive(Debug)]
pub(super) struct Seat {
    /// `None`: it was cancelled, and is here because its session holds messages.
    outbox: Option<OutboxId>,
    connection: ConnectionId,
    channel: ChannelId,
    no_ack: bool,
    held: Runs,
}

impl Seat {
    pub(super) fn new(
        outbox: OutboxId,
        connection: ConnectionId,
        channel: ChannelId,
        no_ack: bool,
    ) -> Self {
        Self { outbox: Some(outbox), connection, channel, no_ack, held: Runs::default() }
    }

    pub(super) fn connection(&self) -> ConnectionId {
        self.connection
    }

    pub(super) fn channel(&self) -> ChannelId {
        self.channel
    }

    pub(super) fn outbox(&self) -> Option<OutboxId> {
        self.outbox
    }

    /// Whether it settles nothing.
    pub(super) fn no_ack(&self) -> bool {
        self.no_ack
    }

    /// Its session gets nothing more.
    pub(super) fn leave(&mut self, outboxes: &mut Outboxes) {
        if let Some(outbox) = self.outbox.take() {
            outboxes.leave(outbox);
        }
    }

    /// Whether it was cancelled.
    pub(super) fn is_parted(&self) -> bool {
        self.outbox.is_none()
    }

    /// Whether nothing is left of it.
    pub(super) fn is_over(&self) -> bool {
        self.is_parted() && self.held.is_empty()
    }

    /// Its session gets a message.
    pub(super) fn takes(&mut self, seq: Seq) {
        if !self.no_ack {
            self.held.insert(seq.0);
        }
    }

    /// Whether its session has a message and has not settled it.
    pub(super) fn holds(&self, seq: Seq) -> bool {
        self.held.contains(seq.0)
    }

    /// Its session has settled these.
    pub(super) fn settled(&mut self, first: Seq, last: Seq) {
        self.held.remove(first.0, last.0);
    }
}

/// Numbers, as runs of neighbours: the first of each, and the last.
#[derive(Debug, Default)]
struct Runs(BTreeMap<u64, u64>);

impl Runs {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn contains(&self, number: u64) -> bool {
        self.0.range(..=number).next_back().is_some_and(|(_, last)| *last >= number)
    }

    fn insert(&mut self, number: u64) {
        let before = self.0.range_mut(..=number).next_back();
        let before = match before {
            Some((_, last)) if *last >= number => return,
            Some((&first, last)) if *last + 1 == number => {
                *last = number;
                Some(first)
            }
            _ => None,
        };
        if let Some(last) = self.0.remove(&(number + 1)) {
            self.0.insert(before.unwrap_or(number), last);
        } else if before.is_none() {
            self.0.insert(number, number);
        }
    }

    fn remove(&mut self, first: u64, last: u64) {
        let Some((&start, _)) = self.0.range(..=last).next_back() else { return };
        // Mostly it is the front of the only run.
        let mut start = start;
        loop {
            let Some(end) = self.0.remove(&start) else { return };
            if end < first {
                self.0.insert(start, end);
                return;
            }
            if start < first {
                self.0.insert(start, first - 1);
            }
            if end > last {
                self.0.insert(last + 1, end);
            }
            if start <= first {
                return;
            }
            match self.0.range(..start).next_back() {
                Some((&before, _)) => start = before,
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn runs_are_a_set(steps in prop::collection::vec((any::<bool>(), 0u64..30, 0u64..5), 0..200)) {
            let (mut runs, mut set) = (Runs::default(), BTreeSet::new());
            for (adds, number, width) in steps {
                if adds {
                    runs.insert(number);
                    set.insert(number);
                } else {
                    runs.remove(number, number + width);
                    set.retain(|it| !(number..=number + width).contains(it));
                }
                for number in 0..40 {
                    prop_assert_eq!(runs.contains(number), set.contains(&number));
                }
                prop_assert_eq!(runs.is_empty(), set.is_empty());
                let neighbours = runs.0.iter().zip(runs.0.keys().skip(1));
                for ((_, last), next) in neighbours {
                    prop_assert!(last + 1 < *next, "runs are as long as can be");
                }
            }
        }
    }
}
