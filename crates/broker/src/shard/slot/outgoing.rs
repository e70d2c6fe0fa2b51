//! Messages on their way to consumers, and the bodies that have to be read for them.

use std::collections::BTreeSet;

use amq_protocol_types::AMQPValue;
use amqp::request::{Delivery, Event, Unsettled};
use bytes::Bytes;
use model::id::Seq;
use model::message::Message;
use queue::command::{Command as QueueCommand, Outcome as QueueOutcome};

use super::{DEAD_IN_FLIGHT, Fresh, Outgoing, READ_BYTES, READ_MESSAGES, Slot};
use crate::death;
use crate::shard::bodies::Body;
use crate::shard::command::{Got, Settlement};
use crate::shard::desk::Desk;

impl Slot {
    pub(super) fn deliver(
        &mut self,
        desk: &mut Desk,
        outgoing: Outgoing,
        fresh: Option<Fresh<'_>>,
    ) {
        let Outgoing::Deliver { consumer, seq, .. } = outgoing else { return };
        let Ok(at) = self.consumers.binary_search_by_key(&consumer, |one| one.id) else { return };
        if self.outgoing.is_empty() {
            let message = match fresh {
                Some(fresh) if fresh.seq == seq => Some(fresh.message.clone()),
                _ => self.bodies.get(seq).map(|body| body.message.clone()),
            };
            if let Some(message) = message {
                self.send(desk, &outgoing, message);
                return;
            }
        }
        if self.consumers[at].view.no_ack {
            self.held.insert(seq.0);
        }
        self.outgoing.push_back(outgoing);
        self.read(desk);
    }

    pub(super) fn send(&mut self, desk: &mut Desk, outgoing: &Outgoing, message: Message) {
        let Outgoing::Deliver { consumer, seq, redelivered, delivery_count } = *outgoing else {
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
        while let Some(front) = self.outgoing.front() {
            let seq = front.seq();
            let Some(body) = self.bodies.get(seq) else {
                self.read(desk);
                break;
            };
            let message = body.message.clone();
            let Some(front) = self.outgoing.pop_front() else { return };
            match front {
                Outgoing::Deliver { .. } => self.send(desk, &front, message),
                Outgoing::Get {
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
            if self.held.remove(&seq.0) {
                self.release(seq, seq);
            }
        }
        self.finish_endings(desk);
    }

    /// Starts reading what is missing at the heads of `outgoing` and `dead`, and what follows.
    pub(super) fn read(&mut self, desk: &mut Desk) {
        if self.reading {
            return;
        }
        let mut seqs: Vec<Seq> = Vec::new();
        let mut bytes = 0;
        let wanted = self
            .outgoing
            .iter()
            .map(Outgoing::seq)
            .chain(self.dead.iter().take(DEAD_IN_FLIGHT).filter_map(|dead| dead.seq));
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
                        || self.held.contains(&seq.0)
                        || self.dead.iter().any(|dead| dead.seq == Some(seq));
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
        let waiting: BTreeSet<Seq> = self
            .outgoing
            .iter()
            .map(Outgoing::seq)
            .chain(self.dead.iter().filter_map(|dead| dead.seq))
            .filter(|seq| unreadable.contains(seq))
            .collect();
        if waiting.is_empty() {
            return; // read ahead of time; it is tried again when it is needed
        }
        tracing::error!(
            queue = %self.profile.name, vhost = %self.profile.vhost, count = waiting.len(),
            "stored messages cannot be read back and are dropped"
        );
        let mut settled = Vec::new();
        let id = self.profile.id;
        self.outgoing.retain_mut(|one| {
            if !waiting.contains(&one.seq()) {
                return true;
            }
            let consumer = match one {
                Outgoing::Deliver { consumer, .. } => Some(*consumer),
                Outgoing::Get { .. } => None,
            };
            settled.push(Unsettled { queue: id, seq: one.seq(), consumer });
            false
        });
        self.dead.retain(|dead| dead.seq.is_none_or(|seq| !waiting.contains(&seq)));
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
        for seq in waiting {
            self.held.remove(&seq.0);
            self.release(seq, seq);
        }
    }
}
