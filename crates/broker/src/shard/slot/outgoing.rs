//! Messages on their way to clients, in order, while the body of one of them is not in memory.

use std::collections::{BTreeSet, VecDeque};

use model::id::{ConnectionId, ConsumerId, Seq};
use model::message::Message;
use tokio::sync::oneshot;

use crate::shard::bodies::Bodies;
use crate::shard::command::Got;

/// One of them.
#[derive(Debug)]
pub(super) enum Going {
    Deliver {
        consumer: ConsumerId,
        seq: Seq,
        redelivered: bool,
        delivery_count: u32,
    },
    Get {
        seq: Seq,
        redelivered: bool,
        delivery_count: u32,
        remaining: u64,
        connection: ConnectionId,
        no_ack: bool,
        answer: oneshot::Sender<Got>,
    },
}

impl Going {
    pub(super) fn seq(&self) -> Seq {
        match self {
            Self::Deliver { seq, .. } | Self::Get { seq, .. } => *seq,
        }
    }

    pub(super) fn consumer(&self) -> Option<ConsumerId> {
        match self {
            Self::Deliver { consumer, .. } => Some(*consumer),
            Self::Get { .. } => None,
        }
    }
}

/// What can be done now.
#[derive(Debug)]
pub(super) enum Next {
    /// Send this one. `held`: then the journal may let go of it.
    Ready {
        going: Going,
        message: Message,
        held: bool,
    },
    /// The body of the first one has to be read.
    Missing,
    Nothing,
}

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    queue: VecDeque<Going>,
    /// Those that settle on delivery: gone for the machine, and released when they are sent.
    held: BTreeSet<u64>,
}

impl Outgoing {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Adds one. `held`: for the machine it is gone.
    pub(super) fn push(&mut self, going: Going, held: bool) {
        if held {
            self.held.insert(going.seq().0);
        }
        self.queue.push_back(going);
    }

    /// Takes the first one out if its body is there.
    pub(super) fn next(&mut self, bodies: &Bodies) -> Next {
        let Some(front) = self.queue.front() else { return Next::Nothing };
        let Some(body) = bodies.get(front.seq()) else { return Next::Missing };
        let message = body.message.clone();
        match self.queue.pop_front() {
            Some(going) => {
                let held = self.held.remove(&going.seq().0);
                Next::Ready { going, message, held }
            }
            None => Next::Nothing,
        }
    }

    /// Messages whose bodies are needed, most urgent first.
    pub(super) fn wanted(&self) -> impl Iterator<Item = Seq> + '_ {
        self.queue.iter().map(Going::seq)
    }

    /// Forgets what goes to a consumer: which messages, and whether they were held.
    pub(super) fn drop_consumer(&mut self, consumer: ConsumerId) -> Vec<(Seq, bool)> {
        let Self { queue, held } = self;
        let mut dropped = Vec::new();
        queue.retain(|one| {
            let other = one.consumer() != Some(consumer);
            if !other {
                dropped.push((one.seq(), held.remove(&one.seq().0)));
            }
            other
        });
        dropped
    }

    /// The consumers that something goes to.
    pub(super) fn consumers(&self) -> BTreeSet<ConsumerId> {
        self.queue.iter().filter_map(Going::consumer).collect()
    }

    /// Takes those of some messages out.
    pub(super) fn take(&mut self, seqs: &BTreeSet<Seq>) -> Vec<Going> {
        let mut taken = Vec::new();
        for one in std::mem::take(&mut self.queue) {
            if seqs.contains(&one.seq()) {
                self.held.remove(&one.seq().0);
                taken.push(one);
            } else {
                self.queue.push_back(one);
            }
        }
        taken
    }

    /// Takes all of them out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Going> + '_ {
        self.held.clear();
        self.queue.drain(..)
    }

    /// Whether a message must stay although it is gone for the machine.
    pub(super) fn is_held(&self, seq: Seq) -> bool {
        !self.held.is_empty() && self.held.contains(&seq.0)
    }

    /// Whether any must.
    pub(super) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// The parts of a range between those that must: first and last of each, ascending.
    pub(super) fn not_held(&self, first: Seq, last: Seq) -> Vec<(Seq, Seq)> {
        let mut parts = Vec::new();
        let mut from = first.0;
        for &held in self.held.range(first.0..=last.0) {
            if from < held {
                parts.push((Seq(from), Seq(held - 1)));
            }
            from = held + 1;
        }
        if from <= last.0 {
            parts.push((Seq(from), last));
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::bodies::Body;

    fn delivery(consumer: u64, seq: u64) -> Going {
        Going::Deliver {
            consumer: ConsumerId(consumer),
            seq: Seq(seq),
            redelivered: false,
            delivery_count: 0,
        }
    }

    fn bodies(seqs: &[u64]) -> Bodies {
        let mut bodies = Bodies::default();
        for &seq in seqs {
            let message = Message::from_parts("", "q", &[0, 0], &[]);
            bodies.insert(Seq(seq), Body { message, journalled: true });
        }
        bodies
    }

    #[test]
    fn nothing_overtakes_what_waits_for_its_body() {
        let mut outgoing = Outgoing::default();
        outgoing.push(delivery(1, 5), true);
        outgoing.push(delivery(2, 6), false);
        assert!(matches!(outgoing.next(&bodies(&[6])), Next::Missing));
        assert_eq!(outgoing.wanted().collect::<Vec<_>>(), [Seq(5), Seq(6)]);
        assert!(outgoing.is_held(Seq(5)) && !outgoing.is_held(Seq(6)));
        let bodies = bodies(&[5, 6]);
        for (expected, expected_held) in [(5, true), (6, false)] {
            match outgoing.next(&bodies) {
                Next::Ready { going, held, .. } => {
                    assert_eq!((going.seq(), held), (Seq(expected), expected_held));
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(outgoing.next(&bodies), Next::Nothing));
        assert!(!outgoing.holds_any());
    }

    #[test]
    fn what_is_taken_out_is_held_no_more() {
        let mut outgoing = Outgoing::default();
        for (consumer, seq) in [(1, 1), (2, 2), (1, 3), (2, 4), (2, 5)] {
            outgoing.push(delivery(consumer, seq), consumer == 2);
        }
        assert_eq!(outgoing.not_held(Seq(3), Seq(9)), [(Seq(3), Seq(3)), (Seq(6), Seq(9))]);
        assert_eq!(outgoing.not_held(Seq(4), Seq(5)), []);
        assert_eq!(outgoing.drop_consumer(ConsumerId(1)), [(Seq(1), false), (Seq(3), false)]);
        assert_eq!(outgoing.consumers(), [ConsumerId(2)].into());
        let taken = outgoing.take(&[Seq(4), Seq(1)].into());
        assert_eq!(taken.iter().map(Going::seq).collect::<Vec<_>>(), [Seq(4)]);
        assert_eq!(outgoing.not_held(Seq(2), Seq(5)), [(Seq(3), Seq(4))]);
        assert_eq!(outgoing.drop_consumer(ConsumerId(2)), [(Seq(2), true), (Seq(5), true)]);
        assert!(outgoing.is_empty() && !outgoing.holds_any());
    }
}
