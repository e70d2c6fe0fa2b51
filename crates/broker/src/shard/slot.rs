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

mod dead;
mod outgoing;
mod perform;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use amqp::request::{Event, Unsettled};
use journal::op::{Head, Lsn, Op, Payload};
use model::id::{ConnectionId, ConsumerId, QueueId, Seq, StreamId};
use model::message::Message;
use model::time::Timestamp;
use queue::command::{Arrival as QueueArrival, Command as QueueCommand, Outcome as QueueOutcome};
use queue::command::{Reply, Subscription};
use queue::effect::Reason;
use queue::queue::Queue;
use tokio::sync::oneshot;

use crate::shard::bodies::{Bodies, Weight};
use crate::shard::command::{self, Arrival, Consume, Consumed, Content, Deleted, Got, Settlement};
use crate::shard::desk::{Chore, Desk};
use crate::shard::outboxes::OutboxId;
use crate::shard::profile::Profile;
use crate::shard::spilled::Spilled;
use crate::shard::view::{ConsumerView, QueueView};
use crate::totals::Counters;

/// Most messages, and bytes of bodies, that one read brings back from the journal.
const READ_MESSAGES: usize = 512;
const READ_BYTES: u64 = 1024 * 1024;
/// Most dead messages on their way at once.
const DEAD_IN_FLIGHT: usize = 512;

/// What is written behind the machine's head of a message: whether it is only spilled, so that a
/// restart drops it.
const STORED_HEAD_LEN: usize = queue::head::Head::LEN + 1;

/// A consumer of this queue.
#[derive(Debug)]
struct Consumer {
    id: ConsumerId,
    outbox: OutboxId,
    view: ConsumerView,
    /// It was cancelled, and still gets what was assigned to it.
    ending: Option<Ending>,
}

/// Who has to hear that a consumer has got everything.
#[derive(Debug)]
pub(crate) enum Ending {
    /// Its client, which asked for it: whether the queue must be deleted now, since its last
    /// consumer went.
    Asked(oneshot::Sender<bool>),
    /// Its client, which did not.
    Revoked,
}

/// A message on its way out whose body, or that of one before it, is being read.
#[derive(Debug)]
enum Outgoing {
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

impl Outgoing {
    fn seq(&self) -> Seq {
        match self {
            Self::Deliver { seq, .. } | Self::Get { seq, .. } => *seq,
        }
    }
}

/// A message on its way to the dead-letter exchange.
#[derive(Debug)]
struct Dead {
    /// `None`: the queue never had it.
    seq: Option<Seq>,
    message: Option<Message>,
    reason: Reason,
}

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
    outgoing: VecDeque<Outgoing>,
    /// Messages in `outgoing` that are gone for the machine: released when they are sent.
    held: BTreeSet<u64>,
    dead: VecDeque<Dead>,
    dead_in_flight: usize,
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

    fn around(profile: Profile, machine: Queue, next_seq: Seq, now: Timestamp) -> Self {
        Self {
            profile,
            machine,
            next_seq,
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
            outgoing: VecDeque::new(),
            held: BTreeSet::new(),
            dead: VecDeque::new(),
            dead_in_flight: 0,
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

    /// The consumer's channel is closing; [`Slot::gone`] follows.
    pub(crate) fn end(&mut self, desk: &mut Desk, consumer: ConsumerId) {
        self.apply(desk, QueueCommand::Cancel { consumer });
    }

    /// The consumer's channel is gone.
    pub(crate) fn gone(&mut self, desk: &mut Desk, consumer: ConsumerId) {
        self.outgoing.retain(
            |one| !matches!(one, Outgoing::Deliver { consumer: to, .. } if *to == consumer),
        );
        self.apply(desk, QueueCommand::Gone { consumer });
        self.finish_endings(desk);
        self.forget_consumer(desk, consumer);
        self.ended.retain(|(ended, _)| *ended != consumer);
        self.release_unsent();
    }

    /// Whether a connection consumes from this queue, or may hold messages of it.
    pub(crate) fn serves(&self, connection: ConnectionId) -> bool {
        self.consumers.iter().any(|one| one.view.connection == connection)
            || self.ended.iter().any(|(_, whose)| *whose == connection)
            || self.got.values().any(|whose| *whose == connection)
    }

    /// A connection has ended, and nobody will say what becomes of what it held.
    pub(crate) fn connection_gone(&mut self, desk: &mut Desk, connection: ConnectionId) {
        let live = self.consumers.iter().map(|one| (one.id, one.view.connection));
        let mut consumers: Vec<ConsumerId> = live
            .chain(self.ended.iter().copied())
            .filter(|(_, whose)| *whose == connection)
            .map(|(consumer, _)| consumer)
            .collect();
        consumers.sort_unstable();
        // All of them end first, so that nothing goes from one to the next.
        for &consumer in &consumers {
            self.end(desk, consumer);
        }
        let queue = self.profile.id;
        let got: Vec<Unsettled> = self
            .got
            .iter()
            .filter(|(_, whose)| **whose == connection)
            .map(|(&seq, _)| Unsettled { queue, seq: Seq(seq), consumer: None })
            .collect();
        if !got.is_empty() {
            self.settle(desk, &got, Settlement::Lost);
        }
        for consumer in consumers {
            self.gone(desk, consumer);
        }
    }

    /// A consumer is cancelled: it gets nothing more. What was assigned to it and has not left for
    /// its connection goes back, unless it settles on delivery: then it is delivered first, since
    /// for the queue it is gone.
    pub(crate) fn cancel(&mut self, desk: &mut Desk, consumer: ConsumerId, ending: Ending) {
        let Ok(at) = self.consumers.binary_search_by_key(&consumer, |one| one.id) else {
            if let Ending::Asked(answer) = ending {
                command::answer(answer, false);
            }
            return;
        };
        let mut unsent = Vec::new();
        if !self.consumers[at].view.no_ack {
            self.outgoing.retain(|one| match one {
                Outgoing::Deliver { consumer: to, seq, .. } if *to == consumer => {
                    unsent.push(Unsettled {
                        queue: self.profile.id,
                        seq: *seq,
                        consumer: Some(consumer),
                    });
                    false
                }
                _ => true,
            });
        }
        match (&self.consumers[at].ending, ending) {
            (Some(Ending::Asked(_)), Ending::Asked(answer)) => command::answer(answer, false),
            (Some(_), Ending::Revoked) => {}
            (before, ending) => {
                self.ending += usize::from(before.is_none());
                self.consumers[at].ending = Some(ending);
            }
        }
        self.apply(desk, QueueCommand::Cancel { consumer });
        if !unsent.is_empty() {
            self.settle(desk, &unsent, Settlement::Client(amqp::request::Outcome::Return));
        }
        self.ended.retain(|(ended, _)| self.machine.held_by(*ended) > 0);
        if self.machine.held_by(consumer) > 0 {
            self.ended.push((consumer, self.consumers[at].view.connection));
        }
        self.finish_endings(desk);
    }

    /// Ends the cancelled consumers that have got everything.
    fn finish_endings(&mut self, desk: &mut Desk) {
        if self.ending == 0 {
            return;
        }
        let mut waiting: BTreeSet<ConsumerId> = BTreeSet::new();
        for one in &self.outgoing {
            if let Outgoing::Deliver { consumer, .. } = one {
                waiting.insert(*consumer);
            }
        }
        while let Some(at) =
            self.consumers.iter().position(|one| one.ending.is_some() && !waiting.contains(&one.id))
        {
            let consumer = self.consumers[at].id;
            self.ending -= 1;
            let delete = self.ending == 0 && std::mem::take(&mut self.last_consumer_gone);
            let told = match self.consumers[at].ending.take() {
                Some(Ending::Asked(answer)) => {
                    // What was gathered for the consumer before leaves before the answer.
                    desk.outboxes.flush();
                    answer.send(delete).is_ok()
                }
                _ => {
                    self.tell(desk, consumer, |channel| Event::ConsumerCancelled {
                        channel,
                        consumer,
                    });
                    false
                }
            };
            if delete && !told {
                self.delete_without_consumers(desk);
            }
            self.forget_consumer(desk, consumer);
        }
    }

    fn delete_without_consumers(&self, desk: &Desk) {
        desk.chore(Chore::DeleteQueue { queue: self.profile.id, why: "last consumer gone" });
    }

    /// Up to which message it may have handed some out, if it is durable and has messages.
    pub(crate) fn handed_out(&self) -> Option<(QueueId, Seq)> {
        let highest = self.machine.highest_delivered().max(self.handed_out_before);
        highest.filter(|_| self.profile.durable).map(|highest| (self.profile.id, highest))
    }

    /// Releases what was held for a delivery that will not happen any more (its consumer settled
    /// on delivery, so for the machine it is gone).
    fn release_unsent(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let waiting: BTreeSet<u64> = self.outgoing.iter().map(|one| one.seq().0).collect();
        let lost: Vec<u64> = self.held.difference(&waiting).copied().collect();
        for position in lost {
            self.held.remove(&position);
            self.release(Seq(position), Seq(position));
        }
    }

    /// A subscription.
    pub(crate) fn consume(&mut self, desk: &mut Desk, consume: Consume) {
        self.used_at = desk.now;
        let (prefetch, granted) = match consume.flow {
            amqp::request::Flow::Prefetch(count) => (count, false),
            amqp::request::Flow::Granted => (0, true),
        };
        let subscription = Subscription {
            consumer: consume.consumer,
            prefetch,
            granted,
            no_ack: consume.no_ack,
            exclusive: consume.exclusive,
            priority: consume.priority,
            timeout: consume.timeout,
            window_bytes: desk.consumer_window,
        };
        let reply =
            self.machine.apply(desk.now, QueueCommand::Consume(subscription), &mut desk.effects);
        if reply == Reply::ExclusiveUse {
            command::answer(consume.answer, Consumed::ExclusiveUse);
            self.perform(desk, None);
            return;
        }
        let timeout = consume.timeout.or(self.machine.settings().consumer_timeout);
        let view = ConsumerView {
            id: consume.consumer,
            connection: consume.origin.id,
            channel: consume.channel,
            tag: consume.tag,
            no_ack: consume.no_ack,
            exclusive: consume.exclusive,
            prefetch,
            arguments: consume.arguments,
            user: consume.user,
            timeout: timeout.map(|timeout| timeout.0),
        };
        let outbox = desk.outboxes.join(&consume.origin);
        let entry = Consumer { id: consume.consumer, outbox, view, ending: None };
        let at = self.consumers.partition_point(|one| one.id < entry.id);
        self.consumers.insert(at, entry);
        desk.consumers.fetch_add(1, Ordering::Relaxed);
        // The answer overtakes the deliveries, which are flushed at the end of the turn.
        if consume.answer.send(Consumed::Done).is_err() {
            self.gone(desk, consume.consumer);
            return;
        }
        self.perform(desk, None);
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
                    self.held.insert(seq.0);
                } else {
                    self.counters.got += 1;
                }
                self.counters.redelivered += u64::from(redelivered);
                self.outgoing.push_back(Outgoing::Get {
                    seq,
                    redelivered,
                    delivery_count,
                    remaining,
                    connection,
                    no_ack,
                    answer,
                });
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

    /// Ends the queue if the conditions hold. What remains is dropped by the caller.
    pub(crate) fn delete(&mut self, desk: &mut Desk, if_unused: bool, if_empty: bool) -> Deleted {
        // For the machine what waits to be sent may be gone already; for clients it is still here.
        if if_empty && !self.held.is_empty() {
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
            for waiting in self.outgoing.drain(..) {
                if let Outgoing::Get { answer, .. } = waiting {
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
            if self.in_journal {
                desk.ops.push(Op::Drop { stream: self.stream() });
            }
        }
        deleted
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

    /// Messages are gone: from memory, from this turn's puts, from the journal.
    fn release(&mut self, first: Seq, last: Seq) {
        if !self.held.is_empty()
            && let Some(&position) = self.held.range(first.0..=last.0).next()
        {
            // Held for a delivery that waits for its body: released when it is sent.
            if first.0 < position {
                self.release(first, Seq(position - 1));
            }
            if position < last.0 {
                self.release(Seq(position + 1), last);
            }
            return;
        }
        self.spilled.remove(first, last);
        let stored = self.bodies.remove_range(first, last);
        let mut put = 0;
        while let Some((seq, ..)) = self.puts.last()
            && first <= *seq
            && *seq <= last
        {
            self.puts.pop();
            put += 1;
        }
        if put == 0 && !self.puts.is_empty() {
            let from = self.puts.partition_point(|(seq, ..)| *seq < first);
            let to = self.puts.partition_point(|(seq, ..)| *seq <= last);
            put += (to - from) as u64;
            self.puts.drain(from..to);
        }
        if !stored || !self.in_journal || put == last.0 - first.0 + 1 {
            return;
        }
        tracing::trace!(target: "walk", "release");
        match self.releases.last_mut() {
            Some((_, end)) if end.next() == first => *end = last,
            _ => self.releases.push((first, last)),
        }
    }

    fn forget_consumer(&mut self, desk: &mut Desk, consumer: ConsumerId) {
        if let Ok(at) = self.consumers.binary_search_by_key(&consumer, |one| one.id) {
            let gone = self.consumers.remove(at);
            desk.consumers.fetch_sub(1, Ordering::Relaxed);
            desk.outboxes.leave(gone.outbox);
        }
    }

    /// Adds this turn's operations to the journal's batch; returns whether there are puts.
    pub(crate) fn hand_over(&mut self, ops: &mut Vec<Op>) -> bool {
        let stream = self.stream();
        let any = !self.puts.is_empty();
        self.handing = any;
        self.counters.disk_writes += self.puts.len() as u64;
        self.in_journal |= any;
        for (seq, head, payload) in self.puts.drain(..) {
            ops.push(Op::Put { stream, seq, head, payload });
        }
        for seq in self.notes.drain(..) {
            // Transient messages have nothing to note; the journal passes over what it does not have.
            if self.in_journal
                && let Some(head) = self.machine.head(seq)
            {
                let bytes = stored_head(head, self.spilled.contains(seq));
                ops.push(Op::Note { stream, seq, bytes });
            }
        }
        for (first, last) in self.releases.drain(..) {
            ops.push(Op::Release { stream, first, last });
        }
        any
    }

    /// The turn's operations were handed to the journal under `lsn`, which has synced `durable`.
    pub(crate) fn handed(&mut self, lsn: Lsn, durable: Lsn) {
        if std::mem::take(&mut self.handing) {
            self.bodies.synced(durable);
            self.bodies.handed(lsn, Seq(self.next_seq.0 - 1));
        }
    }

    /// The journal has synced up to `lsn`: bodies up to there may be dropped.
    pub(crate) fn synced(&mut self, lsn: Lsn, keep: u64) {
        self.bodies.synced(lsn);
        self.bodies.evict(keep, self.machine.oldest_ready().unwrap_or(Seq(u64::MAX)));
    }

    /// Bodies that have stayed for long let go of their buffer.
    pub(crate) fn detach_oldest(&mut self) {
        self.bodies.detach_oldest();
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
            in_memory: self.bodies.len() as u64,
            in_memory_bytes: self.bodies.weight().total(),
            persistent: if self.profile.durable { messages } else { 0 },
            consumers: self.consumers.iter().map(|one| one.view.clone()).collect(),
            active: self.active,
            counters: self.counters,
            used_at: self.used_at.0,
        }
    }
}

fn stored_head(head: queue::head::Head, spilled: bool) -> Head {
    let mut bytes = [0; STORED_HEAD_LEN];
    bytes[..queue::head::Head::LEN].copy_from_slice(&head.encode());
    bytes[queue::head::Head::LEN] = u8::from(spilled);
    Head::new(&bytes)
}
