//! One queue in its shard: the machine, the bodies, and what is under way.
//!
//! ```text
//!  Command ─► machine ─► effects ─► perform ─┬─► outbox of a connection        (body in memory)
//!                                            ├─► `outgoing`, waits for a read  (body on disk)
//!                                            ├─► `dead`, to the dead-letter exchange
//!                                            └─► puts, notes, releases of this turn ─► journal
//! ```
//!
//! Order: while something waits in `outgoing`, everything that follows waits behind it.

mod dead_lettering;
mod dead_letters;
mod delivery;
mod gaps;
mod outgoing;
mod perform;
mod storage;
pub(crate) mod subscriptions;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use amqp::request::Unsettled;
use journal::op::{Head, Op, Payload};
use model::id::{ConnectionId, ConsumerId, QueueId, Seq, StreamId};
use model::message::Message;
use model::time::Timestamp;
use queue::command::{
    Arrival as QueueArrival, Command as QueueCommand, Outcome as QueueOutcome, Reply,
};
use queue::queue::Queue;
use tokio::sync::oneshot;

use crate::shard::bodies::{Bodies, Weight};
use crate::shard::command::{self, Arrival, Content, Deleted, Got, Settlement};
use crate::shard::desk::Desk;
use crate::shard::profile::Profile;
use crate::shard::slot::dead_letters::DeadLetters;
use crate::shard::slot::gaps::Gaps;
use crate::shard::slot::outgoing::{Going, Outgoing};
use crate::shard::slot::storage::stored_head;
use crate::shard::slot::subscriptions::{Consumer, Ending};
use crate::shard::spilled::Spilled;
use crate::shard::view::QueueView;
use crate::totals::Counters;

/// A message that has just arrived and is not among the bodies yet.
#[derive(Clone, Copy)]
struct Fresh<'a> {
    seq: Seq,
    message: &'a Message,
    journalled: bool,
}

/// See the module head.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about one turn")]
pub(crate) struct Slot {
    pub(crate) profile: Profile,
    machine: Queue,
    next_seq: Seq,
    gaps: Gaps,
    bodies: Bodies,
    spilled: Spilled,
    /// Bytes of bodies that the desk has counted.
    counted: Weight,
    consumers: Vec<Consumer>,
    /// How many of them are ending.
    ending: usize,
    /// The last consumer of an auto-delete queue went, and others are still ending.
    last_consumer_gone: bool,
    /// Consumers that were cancelled and may still hold messages, and whose they were.
    ended: Vec<(ConsumerId, ConnectionId)>,
    /// Which connection holds what was taken by `basic.get`.
    got: BTreeMap<u64, ConnectionId>,
    active: Option<ConsumerId>,
    /// What an earlier run of the node may have handed out.
    handed_out_before: Option<Seq>,
    outgoing: Outgoing,
    dead: DeadLetters,
    /// Bodies are being read.
    reading: bool,
    /// Of this turn.
    puts: Vec<(Seq, Head, Payload)>,
    releases: Vec<(Seq, Seq)>,
    notes: Vec<Seq>,
    /// Whether it has puts in the batch that is being handed over.
    handing: bool,
    /// Whether the journal has ever had anything of it.
    in_journal: bool,
    /// Whether this turn's list of touched queues has it.
    pub(crate) touched: bool,
    /// The deadline that the shard has on its list.
    pub(crate) deadline: Option<Timestamp>,
    counters: Counters,
    /// What the desk has been told of them.
    reported: Counters,
    used_at: Timestamp,
}

impl Slot {
    /// A new queue.
    pub(crate) fn new(profile: Profile, now: Timestamp) -> Self {
        let machine = Queue::new(profile.settings.clone(), now);
        Self::around(profile, machine, Seq(1), now)
    }

    /// A queue that is about to be filled by [`Slot::restore`].
    /// Up to `handed_out`, messages may have been handed out before the restart; `None`: any.
    pub(crate) fn restored(
        profile: Profile,
        next_seq: Seq,
        handed_out: Option<Seq>,
        now: Timestamp,
    ) -> Self {
        let machine = Queue::restore(profile.settings.clone(), now);
        let mut slot = Self::around(profile, machine, next_seq, now);
        slot.in_journal = true;
        slot.handed_out_before = Some(handed_out.unwrap_or(Seq(next_seq.0 - 1)));
        slot.bodies.restored(Seq(next_seq.0 - 1));
        slot
    }

    /// New messages get positions behind this one, unless they are further already.
    pub(crate) fn begin_behind(&mut self, position: Seq) {
        if self.next_seq <= position {
            self.gaps.used(position);
            self.next_seq = position.next();
        }
    }

    fn around(profile: Profile, machine: Queue, next_seq: Seq, now: Timestamp) -> Self {
        Self {
            profile,
            machine,
            next_seq,
            gaps: Gaps::default(),
            bodies: Bodies::default(),
            spilled: Spilled::default(),
            counted: Weight::default(),
            consumers: Vec::new(),
            ending: 0,
            last_consumer_gone: false,
            ended: Vec::new(),
            got: BTreeMap::new(),
            active: None,
            handed_out_before: None,
            outgoing: Outgoing::default(),
            dead: DeadLetters::default(),
            reading: false,
            puts: Vec::new(),
            releases: Vec::new(),
            notes: Vec::new(),
            handing: false,
            in_journal: false,
            touched: false,
            deadline: None,
            counters: Counters::default(),
            reported: Counters::default(),
            used_at: now,
        }
    }

    /// Puts back one message of the journal; `false` if it was only spilled and must be released.
    pub(crate) fn restore(&mut self, seq: Seq, head: &[u8]) -> bool {
        self.gaps.used(seq);
        let maybe_delivered = Some(seq) <= self.handed_out_before;
        let Some((&spilled, head)) = head.split_last() else { return false };
        if spilled != 0 {
            return false;
        }
        match self.machine.restore_message(seq, head, maybe_delivered) {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(queue = %self.profile.name, %seq, ?error, "head of a stored message is damaged; it is dropped");
                false
            }
        }
    }

    fn stream(&self) -> StreamId {
        self.profile.id.into()
    }

    /// A message arrives. Returns whether the queue takes it, and whether the answer must wait for
    /// the journal: for a spilled message too, since the publisher must not outrun the disk.
    pub(crate) fn publish(&mut self, desk: &mut Desk, arrival: &Arrival) -> (bool, bool) {
        self.used_at = desk.now;
        let message = arrival.content.message();
        let seq = self.next_seq;
        let queue_arrival = QueueArrival {
            seq,
            bytes: u32::try_from(message.body().len()).unwrap_or(u32::MAX),
            priority: arrival.priority,
            ttl: arrival.ttl,
        };
        let reply =
            self.machine.apply(desk.now, QueueCommand::Enqueue(queue_arrival), &mut desk.effects);
        if reply == Reply::Rejected {
            self.counters.refused += 1;
            self.perform_rejected(desk, message);
            return (false, false);
        }
        tracing::trace!(target: "walk", "turn");
        self.next_seq = seq.next();
        self.counters.enqueued += 1;
        let durable = arrival.persistent && self.profile.durable;
        let spilled = !durable && desk.must_spill();
        let journalled = durable || spilled;
        if journalled {
            let head = self.machine.arrival_head(desk.now, &queue_arrival);
            let payload = match &arrival.content {
                Content::Own(message) => Payload::Message(message.clone()),
                Content::Shared(shared) => Payload::Shared(Arc::clone(shared)),
            };
            self.puts.push((seq, stored_head(head, spilled), payload));
            if spilled {
                self.spilled.insert(seq);
            }
        }
        self.perform(desk, Some(Fresh { seq, message, journalled }));
        (true, journalled)
    }

    /// Messages are settled.
    pub(crate) fn settle(&mut self, desk: &mut Desk, unsettled: &[Unsettled], how: Settlement) {
        self.used_at = desk.now;
        let outcome = match how {
            Settlement::Client(amqp::request::Outcome::Accept) => QueueOutcome::Accept,
            Settlement::Client(amqp::request::Outcome::Return) => QueueOutcome::Return,
            Settlement::Client(amqp::request::Outcome::Retry) => QueueOutcome::Retry,
            Settlement::Client(amqp::request::Outcome::Discard) => QueueOutcome::Discard,
            Settlement::Lost => QueueOutcome::Lost,
        };
        if outcome == QueueOutcome::Accept {
            self.counters.acknowledged += unsettled.len() as u64;
        }
        if !self.got.is_empty() {
            for one in unsettled.iter().filter(|one| one.consumer.is_none()) {
                self.got.remove(&one.seq.0);
            }
        }
        tracing::trace!(target: "walk", "settle");
        let mut rest = unsettled;
        while let Some(&head) = rest.first() {
            let run = rest
                .iter()
                .zip(0..)
                .take_while(|(one, offset)| {
                    one.consumer == head.consumer && one.seq.0 == head.seq.0 + offset
                })
                .count();
            let last = rest[run - 1].seq;
            rest = &rest[run..];
            let command = QueueCommand::Settle {
                consumer: head.consumer,
                first: head.seq,
                last,
                outcome,
                more: !rest.is_empty(),
            };
            self.machine.apply(desk.now, command, &mut desk.effects);
            self.perform(desk, None);
        }
    }

    /// Deliveries have reached the socket.
    pub(crate) fn sent(
        &mut self,
        desk: &mut Desk,
        consumer: ConsumerId,
        messages: u32,
        bytes: u64,
    ) {
        self.apply(desk, QueueCommand::Sent { consumer, messages, bytes });
    }

    /// A consumer's channel has got a limit for all its consumers.
    pub(crate) fn limit(&mut self, desk: &mut Desk, consumer: ConsumerId) {
        self.apply(desk, QueueCommand::Limit { consumer });
    }

    /// A channel lets a consumer take more.
    pub(crate) fn grant(&mut self, desk: &mut Desk, consumer: ConsumerId, count: u32) {
        self.apply(desk, QueueCommand::Grant { consumer, count });
    }

    /// Up to which message it may have handed some out, if it is durable and has messages.
    pub(crate) fn handed_out(&self) -> Option<(QueueId, Seq)> {
        let highest = self.machine.highest_delivered().max(self.handed_out_before);
        highest.filter(|_| self.profile.durable).map(|highest| (self.profile.id, highest))
    }

    /// `basic.get`.
    pub(crate) fn get(
        &mut self,
        desk: &mut Desk,
        connection: ConnectionId,
        no_ack: bool,
        answer: oneshot::Sender<Got>,
    ) {
        self.used_at = desk.now;
        let reply = self.machine.apply(desk.now, QueueCommand::Get { no_ack }, &mut desk.effects);
        match reply {
            Reply::Got { seq, redelivered, delivery_count, remaining } => {
                if no_ack {
                    self.counters.got_no_ack += 1;
                } else {
                    self.counters.got += 1;
                }
                self.counters.redelivered += u64::from(redelivered);
                let going = Going::Get {
                    seq,
                    redelivered,
                    delivery_count,
                    remaining,
                    connection,
                    no_ack,
                    answer,
                };
                self.outgoing.push(going, no_ack);
            }
            Reply::SingleActive => command::answer(answer, Got::SingleActive),
            _ => {
                self.counters.got_empty += 1;
                command::answer(answer, Got::Empty);
            }
        }
        self.perform(desk, None);
        self.pump_outgoing(desk);
    }

    /// Removes what is ready.
    pub(crate) fn purge(&mut self, desk: &mut Desk) -> u64 {
        self.used_at = desk.now;
        let reply = self.machine.apply(desk.now, QueueCommand::Purge, &mut desk.effects);
        self.perform(desk, None);
        match reply {
            Reply::Count(count) => count,
            _ => 0,
        }
    }

    /// Ends the queue if the conditions hold. What remains is dropped by the caller, when
    /// [`Slot::leave`] says so.
    pub(crate) fn delete(&mut self, desk: &mut Desk, if_unused: bool, if_empty: bool) -> Deleted {
        // For the machine what waits to be sent may be gone already; for clients it is still here.
        if if_empty && self.outgoing.holds_any() {
            return Deleted::NotEmpty;
        }
        let reply = self.machine.apply(
            desk.now,
            QueueCommand::Delete { if_unused, if_empty },
            &mut desk.effects,
        );
        let deleted = match reply {
            Reply::InUse => Deleted::InUse,
            Reply::NotEmpty => Deleted::NotEmpty,
            Reply::Count(count) => Deleted::Done(count),
            _ => Deleted::Done(0),
        };
        self.perform(desk, None);
        if matches!(deleted, Deleted::Done(_)) {
            for waiting in self.outgoing.drain() {
                if let Going::Get { answer, .. } = waiting {
                    command::answer(answer, Got::Empty);
                }
            }
            for consumer in std::mem::take(&mut self.consumers) {
                desk.consumers.fetch_sub(1, Ordering::Relaxed);
                desk.outboxes.leave(consumer.outbox);
                if let Some(Ending::Asked(answer)) = consumer.ending {
                    command::answer(answer, false);
                }
            }
            self.report(desk);
            desk.weight.follow(self.counted, Weight::default());
            self.counted = Weight::default();
            self.puts.clear();
            self.releases.clear();
            self.notes.clear();
            self.ending = 0;
        }
        deleted
    }

    /// Lets the journal forget a deleted queue once its dead messages are where they go; returns
    /// whether that is so. Until then [`Slot::on_read`] and [`Slot::on_dead_lettered`] are called.
    pub(crate) fn leave(&mut self, desk: &mut Desk) -> bool {
        self.releases.clear();
        let done = self.dead.is_done();
        if done && std::mem::take(&mut self.in_journal) {
            desk.ops.push(Op::Drop { stream: self.stream() });
        }
        done
    }

    /// Other policies, another dead-letter target.
    pub(crate) fn configure(&mut self, desk: &mut Desk, profile: Profile) {
        let settings = profile.settings.clone();
        self.profile = profile;
        if *self.machine.settings() != settings {
            self.apply(desk, QueueCommand::Configure(settings));
        }
    }

    /// It was declared again.
    pub(crate) fn touch(&mut self, desk: &mut Desk) {
        self.used_at = desk.now;
        self.apply(desk, QueueCommand::Touch);
    }

    /// Its deadline has come.
    pub(crate) fn tick(&mut self, desk: &mut Desk) {
        self.apply(desk, QueueCommand::Tick);
    }

    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.machine.next_deadline()
    }

    pub(crate) fn ready(&self) -> u64 {
        self.machine.ready()
    }

    pub(crate) fn consumer_count(&self) -> u64 {
        self.consumers.len() as u64
    }

    fn apply(&mut self, desk: &mut Desk, command: QueueCommand) {
        self.machine.apply(desk.now, command, &mut desk.effects);
        self.perform(desk, None);
    }

    /// Reports to the desk what has changed since the last report.
    pub(crate) fn report(&mut self, desk: &mut Desk) {
        let weight = self.bodies.weight();
        desk.weight.follow(self.counted, weight);
        self.counted = weight;
        let id = self.profile.id;
        desk.attached.extend(std::iter::repeat_n(id, self.bodies.take_begun()));
        desk.counted.add_difference(&self.counters, &self.reported);
        self.reported = self.counters;
    }

    pub(crate) fn view(&self) -> QueueView {
        let messages = self.machine.ready() + self.machine.unsettled();
        QueueView {
            id: self.profile.id,
            ready: self.machine.ready(),
            unsettled: self.machine.unsettled(),
            ready_bytes: self.machine.ready_bytes(),
            unsettled_bytes: self.machine.unsettled_bytes(),
            delayed: 0,
            delayed_bytes: 0,
            dead: 0,
            dead_bytes: 0,
            in_memory: self.bodies.len() as u64,
            in_memory_bytes: self.bodies.weight().total(),
            persistent: if self.profile.durable { messages } else { 0 },
            consumers: self.consumers.iter().map(|one| one.view.clone()).collect(),
            active: self.active,
            term: None,
            voters: Vec::new(),
            learners: Vec::new(),
            counters: self.counters,
            used_at: self.used_at.0,
        }
    }
}

#[cfg(test)]
mod tests;
