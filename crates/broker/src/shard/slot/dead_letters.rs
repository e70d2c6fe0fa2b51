//! Messages that a queue gave up, on their way to its dead-letter exchange: in order, and a bounded
//! number at once.

use std::collections::{BTreeSet, VecDeque};

use model::id::Seq;
use model::message::Message;
use queue::effect::Reason;

use crate::shard::bodies::Bodies;

/// Most of them under way at once.
const IN_FLIGHT: usize = 512;

/// Where it is.
#[derive(Debug)]
pub(super) enum Departed {
    /// Among the bodies or in the journal, until its targets have it.
    Stored(Seq),
    /// Here alone: the queue never had it.
    Refused(Message),
}

#[derive(Debug)]
struct Dead {
    departed: Departed,
    reason: Reason,
}

impl Dead {
    fn seq(&self) -> Option<Seq> {
        match self.departed {
            Departed::Stored(seq) => Some(seq),
            Departed::Refused(_) => None,
        }
    }
}

/// What can be done now.
#[derive(Debug)]
pub(super) enum Next {
    /// Send this one on. If it has a name and is under way, [`DeadLetters::on_sent`].
    Ready { seq: Option<Seq>, message: Message, reason: Reason },
    /// The body of the first one has to be read.
    Missing,
    /// None waits, or enough are under way.
    Nothing,
}

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct DeadLetters {
    queue: VecDeque<Dead>,
    in_flight: usize,
}

impl DeadLetters {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether none waits and none is under way.
    pub(super) fn is_done(&self) -> bool {
        self.queue.is_empty() && self.in_flight == 0
    }

    pub(super) fn push(&mut self, departed: Departed, reason: Reason) {
        self.queue.push_back(Dead { departed, reason });
    }

    /// Takes the first one out if it can be sent.
    pub(super) fn next(&mut self, bodies: &Bodies) -> Next {
        if self.in_flight >= IN_FLIGHT {
            return Next::Nothing;
        }
        let Some(front) = self.queue.pop_front() else { return Next::Nothing };
        let reason = front.reason;
        match front.departed {
            Departed::Refused(message) => Next::Ready { seq: None, message, reason },
            Departed::Stored(seq) => {
                if let Some(body) = bodies.get(seq) {
                    Next::Ready { seq: Some(seq), message: body.message.clone(), reason }
                } else {
                    self.queue.push_front(front);
                    Next::Missing
                }
            }
        }
    }

    /// One is under way.
    pub(super) fn on_sent(&mut self) {
        self.in_flight += 1;
    }

    /// One has been taken by its targets.
    pub(super) fn on_done(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Messages whose bodies are needed, most urgent first.
    pub(super) fn wanted(&self) -> impl Iterator<Item = Seq> + '_ {
        self.queue.iter().take(IN_FLIGHT).filter_map(Dead::seq)
    }

    pub(super) fn contains(&self, seq: Seq) -> bool {
        self.queue.iter().any(|dead| dead.seq() == Some(seq))
    }

    /// Takes those of some messages out.
    pub(super) fn take(&mut self, seqs: &BTreeSet<Seq>) -> Vec<Seq> {
        let mut taken = Vec::new();
        self.queue.retain(|dead| match dead.seq() {
            Some(seq) if seqs.contains(&seq) => {
                taken.push(seq);
                false
            }
            _ => true,
        });
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::bodies::Body;

    #[test]
    fn a_bounded_number_is_under_way_and_none_overtakes_another() {
        let message = Message::from_parts("", "q", &[0, 0], &[]);
        let mut bodies = Bodies::default();
        let mut dead = DeadLetters::default();
        dead.push(Departed::Stored(Seq(1)), Reason::Expired);
        dead.push(Departed::Refused(message.clone()), Reason::MaxLen);
        for position in 2..IN_FLIGHT as u64 + 3 {
            dead.push(Departed::Stored(Seq(position)), Reason::Expired);
            bodies.insert(Seq(position), Body { message: message.clone(), journalled: true });
        }
        assert!(matches!(dead.next(&bodies), Next::Missing));
        assert_eq!(dead.wanted().next(), Some(Seq(1)));
        bodies.insert(Seq(1), Body { message, journalled: true });
        let mut sent = Vec::new();
        while let Next::Ready { seq, .. } = dead.next(&bodies) {
            if seq.is_some() {
                dead.on_sent();
            }
            sent.push(seq);
        }
        assert_eq!(sent[..3], [Some(Seq(1)), None, Some(Seq(2))]);
        assert_eq!(sent.len(), IN_FLIGHT + 1);
        assert_eq!(
            dead.take(&[Seq(1), Seq(IN_FLIGHT as u64 + 2)].into()),
            [Seq(IN_FLIGHT as u64 + 2)]
        );
        dead.on_done();
        assert!(matches!(dead.next(&bodies), Next::Ready { seq: Some(_), .. }));
        assert!(dead.is_empty() && !dead.contains(Seq(1)) && !dead.is_done());
        for _ in 1..IN_FLIGHT {
            dead.on_done();
        }
        assert!(dead.is_done());
    }
}
