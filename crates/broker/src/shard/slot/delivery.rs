//! How messages leave for clients, and how bodies are read for them.

use std::collections::BTreeSet;

use amq_protocol_types::AMQPValue;
use amqp::request::{Delivery, Event, Unsettled};
use bytes::Bytes;
use model::id::Seq;
use model::message::Message;
use queue::command::{Command as QueueCommand, Outcome as QueueOutcome};

use super::outgoing::{Going, Next};
use super::{Fresh, Slot};
use crate::death;
use crate::shard::bodies::Body;
use crate::shard::command::{Got, Settlement};
use crate::shard::desk::Desk;

/// Most messages, and bytes of bodies, that one read brings back from the journal.
const READ_MESSAGES: usize = 512;
const READ_BYTES: u64 = 1024 * 1024;

impl Slot {
    pub(super) fn deliver(&mut self, desk: &mut Desk, going: Going, fresh: Option<Fresh<'_>>) {
        let Going::Deliver { consumer, seq, .. } = going else { return };
        let Ok(at) = self.consumers.binary_search_by_key(&consumer, |one| one.id) else { return };
        if self.outgoing.is_empty() {
            let message = match fresh {
                Some(fresh) if fresh.seq == seq => Some(fresh.message.clone()),
                _ => self.bodies.get(seq).map(|body| body.message.clone()),
            };
            if let Some(message) = message {
                self.send(desk, &going, message);
                return;
            }
        }
        self.outgoing.push(going, self.consumers[at].view.no_ack);
        self.read(desk);
    }

    pub(super) fn send(&mut self, desk: &mut Desk, going: &Going, message: Message) {
        let Going::Deliver { consumer, seq, redelivered, delivery_count } = *going else {
            return;
        };
        let Ok(at) = self.consumers.binary_search_by_key(&consumer, |one| one.id) else { return };
        let to = &self.consumers[at];
        if to.view.no_ack {
            self.counters.delivered_no_ack += 1;
        } else {
            self.counters.delivered += 1;
        }
        self.counters.redelivered += u64::from(redelivered);
        let message = self.counting(message, delivery_count);
        let delivery = Delivery {
            channel: to.view.channel,
            consumer: Some(consumer),
            queue: self.profile.id,
            seq,
            redelivered,
            message,
        };
        tracing::trace!(target: "walk", "deliver");
        desk.outboxes.push(to.outbox, Event::Deliver(delivery));
    }

    /// The message as it is handed out: where failures count, the client sees the count.
    pub(super) fn counting(&self, message: Message, delivery_count: u32) -> Message {
        if delivery_count == 0 || self.machine.settings().delivery_limit.is_none() {
            return message;
        }
        let count = AMQPValue::LongLongInt(i64::from(delivery_count));
        death::with_header(&message, "x-delivery-count", count)
    }

    /// Sends what waited for bodies, as far as they are there.
    pub(super) fn pump_outgoing(&mut self, desk: &mut Desk) {
        loop {
            let (going, message, held) = match self.outgoing.next(&self.bodies) {
                Next::Ready { going, message, held } => (going, message, held),
                Next::Missing if self.skip_settled() => continue,
                Next::Missing => {
                    self.read(desk);
                    break;
                }
                Next::Nothing => break,
            };
            let seq = going.seq();
            match going {
                Going::Deliver { .. } => self.send(desk, &going, message),
                Going::Get {
                    redelivered,
                    delivery_count,
                    remaining,
                    connection,
                    no_ack,
                    answer,
                    ..
                } => {
                    let message = self.counting(message, delivery_count);
                    let got = Got::Message { seq, redelivered, message, remaining };
                    let taken = answer.send(got).is_ok();
                    if taken && !no_ack {
                        self.got.insert(seq.0, connection);
                    } else if !no_ack {
                        // The connection is gone: nobody will settle it.
                        let one = Unsettled { queue: self.profile.id, seq, consumer: None };
                        self.settle(desk, &[one], Settlement::Lost);
                    }
                }
            }
            if held {
                self.release(seq, seq);
            }
        }
        self.finish_endings(desk);
    }

    /// Drops the first delivery if its message was settled before the body came: for the machine it is
    /// gone, so that a body that is read for it is not kept, and it would be read for ever.
    fn skip_settled(&mut self) -> bool {
        let Some(seq) = self.outgoing.wanted().next() else { return false };
        let is_gone = self.machine.head(seq).is_none() || self.machine.death(seq).is_some();
        let is_settled = is_gone && !self.outgoing.is_held(seq);
        is_settled && !self.outgoing.take(&BTreeSet::from([seq])).is_empty()
    }

    /// Starts reading what is missing at the heads of `outgoing` and `dead`, and what follows.
    pub(super) fn read(&mut self, desk: &mut Desk) {
        if self.reading {
            return;
        }
        let mut seqs: Vec<Seq> = Vec::new();
        let mut bytes = 0;
        let wanted = self.outgoing.wanted().chain(self.dead.wanted());
        for seq in wanted {
            if seqs.len() >= READ_MESSAGES || (bytes >= READ_BYTES && !seqs.is_empty()) {
                break;
            }
            if self.bodies.get(seq).is_none() {
                seqs.push(seq);
                bytes += self.machine.head(seq).map_or(0, |head| u64::from(head.bytes));
            }
        }
        // What will be delivered next lies next to it in the journal.
        let room = desk.budget.cached.saturating_sub(desk.weight.cached).min(READ_BYTES);
        if let Some(next) = self.machine.oldest_ready() {
            let ahead = next.0..self.next_seq.0.min(next.0 + READ_MESSAGES as u64);
            for seq in ahead.map(Seq) {
                if seqs.len() >= READ_MESSAGES || bytes >= room {
                    break;
                }
                if self.bodies.get(seq).is_none()
                    && let Some(head) = self.machine.head(seq)
                    && !seqs.contains(&seq)
                {
                    seqs.push(seq);
                    bytes += u64::from(head.bytes);
                }
            }
        }
        if seqs.is_empty() {
            return;
        }
        self.reading = true;
        self.counters.disk_reads += seqs.len() as u64;
        desk.read(self.profile.id, seqs);
    }

    /// Bodies have come from the journal; `None`: it cannot be read.
    pub(crate) fn on_read(&mut self, desk: &mut Desk, bodies: Vec<(Seq, Option<Bytes>)>) {
        self.reading = false;
        let mut unreadable = BTreeSet::new();
        for (seq, bytes) in bodies {
            let message = bytes.and_then(|bytes| Message::decode(bytes).ok());
            match message {
                Some(message) => {
                    let wanted = self.machine.head(seq).is_some()
                        || self.outgoing.is_held(seq)
                        || self.dead.contains(seq);
                    if wanted && self.bodies.get(seq).is_none() {
                        self.bodies.insert(seq, Body { message, journalled: true });
                    }
                }
                None => {
                    unreadable.insert(seq);
                }
            }
        }
        if !unreadable.is_empty() {
            self.lose(desk, &unreadable);
        }
        self.pump_outgoing(desk);
        self.pump_dead(desk);
    }

    /// Messages whose bodies are damaged on disk cannot be delivered. What waited for them goes on.
    pub(super) fn lose(&mut self, desk: &mut Desk, unreadable: &BTreeSet<Seq>) {
        let going = self.outgoing.take(unreadable);
        let mut waiting: BTreeSet<Seq> = going.iter().map(Going::seq).collect();
        waiting.extend(self.dead.take(unreadable));
        if waiting.is_empty() {
            return; // read ahead of time; it is tried again when it is needed
        }
        tracing::error!(
            queue = %self.profile.name, vhost = %self.profile.vhost, count = waiting.len(),
            "stored messages cannot be read back and are dropped"
        );
        let queue = self.profile.id;
        let settled: Vec<Unsettled> = going
            .iter()
            .map(|one| Unsettled { queue, seq: one.seq(), consumer: one.consumer() })
            .collect();
        for one in &settled {
            self.machine.apply(
                desk.now,
                QueueCommand::Settle {
                    consumer: one.consumer,
                    first: one.seq,
                    last: one.seq,
                    outcome: QueueOutcome::Accept,
                    more: false,
                },
                &mut desk.effects,
            );
            self.perform(desk, None);
        }
        self.bury(desk, &waiting.into_iter().collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod tests {
    use model::id::{ConsumerId, NodeId, QueueId};
    use model::time::Timestamp;
    use queue::settings::{Settings, Style};

    use super::*;
    use crate::shard::profile::Profile;

    #[test]
    fn what_is_settled_before_its_body_comes_is_not_waited_for() {
        let profile = Profile {
            id: QueueId(1),
            vhost: "/".into(),
            name: "q".into(),
            durable: true,
            home: NodeId(0),
            journal: None,
            settings: Settings::new(Style::Classic),
            dead_letter: None,
            quorum: None,
            led_by: None,
        };
        let mut slot = Slot::new(profile, Timestamp(1));
        let consumer = ConsumerId(1);
        let going = |seq| Going::Deliver { consumer, seq, redelivered: false, delivery_count: 0 };
        // The machine knows neither; the second settles on delivery.
        slot.outgoing.push(going(Seq(1)), false);
        slot.outgoing.push(going(Seq(2)), true);
        assert!(slot.skip_settled());
        assert!(!slot.skip_settled());
        assert_eq!(slot.outgoing.wanted().collect::<Vec<_>>(), [Seq(2)]);
    }
}
