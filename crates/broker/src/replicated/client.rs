//! One node's side of a queue whose leader may be anywhere: what this node's connections want of
//! it, numbered, on its way, and not yet answered; and where its deliveries go.
//!
//! ```text
//!  connections ─► ask ─► Courier ─ batches ─► leader
//!  connections ◄─ confirms, answers, deliveries ◄─ Notice ─┘
//! ```
//!
//! It is pure: what has to be sent is taken from it, and what has to be told to connections goes
//! through the shard's outboxes and the senders that came with the questions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use amqp::request::{ChannelId, Delivery, Error, Event};
use bytes::{Bytes, BytesMut};
use model::id::{ConnectionId, ConsumerId, NodeId, QueueId, Seq};
use model::time::Timestamp;
use tokio::sync::oneshot;

use crate::origin::Origin;
use crate::replicated::notice::{Item, Notice, Reply};
use crate::replicated::numbered::{Courier, Sender};
use crate::replicated::order::{self, Order, Run};
use crate::shard::command::{Consumed, Counts, Deleted, Done, Got, answer};
use crate::shard::confirms::{Confirms, Owed};
use crate::shard::outboxes::{OutboxId, Outboxes};

/// Most orders, and bytes of them, in one batch to the leader.
const BATCH_ORDERS: usize = 4096;

/// Without any answer for so long, what is under way is sent again.
const RESEND: u64 = 5000;
/// After so long without a leader, the one that this node's member has heard of is taken for it.
const TAKE_HINT: u64 = 1000;

/// Who leads, as far as this node knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leader {
    pub(crate) node: NodeId,
    pub(crate) term: u64,
}

/// Whom an order answers to.
#[derive(Debug)]
pub(crate) enum Asker {
    Nobody,
    /// A publish: its connection, and the bytes that it has in flight.
    Publisher {
        origin: Option<Arc<Origin>>,
        bytes: usize,
        done: Done,
    },
    Consume(ConsumerId, oneshot::Sender<Consumed>),
    Cancel(ConsumerId, oneshot::Sender<bool>),
    Get(oneshot::Sender<Got>),
    Count(oneshot::Sender<Option<Counts>>),
    Purge(oneshot::Sender<Option<u64>>),
    Delete(oneshot::Sender<Deleted>),
}

#[derive(Debug)]
struct Pending {
    order: Order,
    asker: Asker,
    since: Timestamp,
}

/// A consumer of this node.
#[derive(Debug)]
struct Seat {
    outbox: OutboxId,
    connection: ConnectionId,
    channel: ChannelId,
}

/// The present leader was asked to deliver again.
#[derive(Debug)]
struct Attaching {
    term: u64,
    /// The number of the last order that asks so.
    number: u64,
    /// Settled since the first one: not to be delivered again.
    settled: BTreeSet<(Option<ConsumerId>, Seq)>,
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct Client {
    queue: QueueId,
    me: Sender,
    leader: Option<Leader>,
    /// Who probably leads.
    hint: Option<Leader>,
    /// When something last went on: an answer, another leader, or the first order of several.
    moved_at: Timestamp,
    courier: Courier<Pending>,
    /// Questions that were performed and whose answers are still to come.
    asking: BTreeMap<u64, Asker>,
    /// Answers that have overtaken the word that their orders were performed.
    early: BTreeMap<u64, Reply>,
    seats: BTreeMap<ConsumerId, Seat>,
    /// What was settled since the present leader was asked to deliver again.
    attaching: Option<Attaching>,
}

impl Client {
    /// Nothing is under way. The first order of every start is [`Order::Hello`].
    pub(crate) fn new(queue: QueueId, me: Sender) -> Self {
        Self {
            queue,
            me,
            leader: None,
            hint: None,
            moved_at: Timestamp(0),
            courier: Courier::default(),
            asking: BTreeMap::new(),
            early: BTreeMap::new(),
            seats: BTreeMap::new(),
            attaching: None,
        }
    }

    /// This start of this node.
    pub(crate) fn me(&self) -> Sender {
        self.me
    }

    /// The broker ends a consumer: its client is told.
    pub(crate) fn revoke(&mut self, outboxes: &mut Outboxes, consumer: ConsumerId) {
        self.tell(outboxes, consumer, |channel| Event::ConsumerCancelled { channel, consumer });
        self.unseat(outboxes, consumer);
    }

    /// Who leads.
    pub(crate) fn leader(&self) -> Option<Leader> {
        self.leader
    }

    /// Refuses what has just been asked, if nobody leads: there is nobody to wait for.
    pub(crate) fn refuse_without_leader(&mut self, outboxes: &mut Outboxes) {
        if self.leader.is_none() && self.courier.len() > 0 {
            self.abandon(outboxes);
        }
    }

    /// Takes an order.
    pub(crate) fn order(&mut self, now: Timestamp, order: Order, asker: Asker) {
        if self.courier.len() == 0 && self.courier_is_new() {
            self.push(now, Order::Hello, Asker::Nobody);
        }
        if let (Some(attaching), Order::Settle { runs, .. }) = (&mut self.attaching, &order) {
            for run in runs {
                attaching
                    .settled
                    .extend((run.first.0..=run.last.0).map(|seq| (run.holder, Seq(seq))));
            }
        }
        self.push(now, order, asker);
    }

    fn courier_is_new(&self) -> bool {
        self.courier.next() == 1
    }

    fn push(&mut self, now: Timestamp, order: Order, asker: Asker) -> u64 {
        if self.courier.len() == 0 {
            self.moved_at = now;
        }
        self.courier.push(Pending { order, asker, since: now })
    }

    /// A consumer of this node that is about to subscribe.
    pub(crate) fn seat(
        &mut self,
        outboxes: &mut Outboxes,
        consumer: ConsumerId,
        origin: &Arc<Origin>,
        channel: ChannelId,
    ) {
        let outbox = outboxes.join(origin);
        if let Some(old) =
            self.seats.insert(consumer, Seat { outbox, connection: origin.id, channel })
        {
            outboxes.leave(old.outbox);
        }
    }

    /// A consumer of this node is gone.
    pub(crate) fn unseat(&mut self, outboxes: &mut Outboxes, consumer: ConsumerId) {
        if let Some(seat) = self.seats.remove(&consumer) {
            outboxes.leave(seat.outbox);
        }
    }

    /// A connection is gone: its consumers here are. Returns whether the queue may hold something
    /// for it: it has consumers, or has ever been asked from here.
    pub(crate) fn leave(&mut self, outboxes: &mut Outboxes, connection: ConnectionId) -> bool {
        let gone: Vec<ConsumerId> = self
            .seats
            .iter()
            .filter(|(_, seat)| seat.connection == connection)
            .map(|(consumer, _)| *consumer)
            .collect();
        for consumer in gone {
            self.unseat(outboxes, consumer);
        }
        !self.courier_is_new()
    }

    /// Learns who leads. Everything without an answer goes to the new one, in order, and what this
    /// node's consumers hold is asked for again.
    pub(crate) fn follow(&mut self, now: Timestamp, leader: Option<Leader>) {
        if leader == self.leader {
            return;
        }
        self.moved_at = now;
        let had_one = self.leader.is_some() || self.attaching.is_some() || self.courier.next() > 1;
        self.leader = leader;
        self.courier.rewind();
        if let Some(Leader { term, .. }) = leader
            && had_one
        {
            // What was asked before and is not answered would be answered with what stood then.
            for pending in self.courier.waiting_mut() {
                if matches!(pending.order, Order::Attach { .. }) {
                    pending.order = Order::Nothing;
                }
            }
            // The same leader may still have answers to what was asked before.
            let before = self.attaching.take().filter(|attaching| attaching.term == term);
            let settled = before.map(|attaching| attaching.settled).unwrap_or_default();
            let consumers = self.seats.keys().copied().collect();
            let number = self.push(now, Order::Attach { consumers }, Asker::Nobody);
            self.attaching = Some(Attaching { term, number, settled });
        }
    }

    /// The member of this node has heard that somebody leads.
    pub(crate) fn hint(&mut self, leader: Option<Leader>) {
        self.hint = leader;
    }

    /// When [`Client::tick`] has something to do, if nothing happens before.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        if self.courier.len() == 0 {
            return None;
        }
        match (self.leader, self.hint) {
            (Some(_), _) => Some(Timestamp(self.moved_at.0 + RESEND)),
            (None, Some(_)) => Some(Timestamp(self.moved_at.0 + TAKE_HINT)),
            (None, None) => None,
        }
    }

    /// Nothing has gone on for a while: something was lost on the way.
    pub(crate) fn tick(&mut self, now: Timestamp) {
        if self.deadline().is_none_or(|deadline| deadline > now) {
            return;
        }
        self.moved_at = now;
        match self.leader {
            Some(_) => self.courier.rewind(),
            None => self.follow(now, self.hint),
        }
    }

    /// The next batch for the leader, encoded; `None`: there is nothing to send, or nobody leads.
    pub(crate) fn batch(&mut self) -> Option<(Leader, Bytes)> {
        let leader = self.leader?;
        let me = self.me;
        let (first, pending) = self.courier.send(BATCH_ORDERS)?;
        let mut weight = 28;
        let pending: Vec<&Order> = pending.map(|pending| &pending.order).collect();
        weight += pending.iter().map(|order| order.weight()).sum::<usize>();
        let mut out = BytesMut::with_capacity(weight);
        order::write_batch(&mut out, me, first, pending.into_iter());
        Some((leader, out.freeze()))
    }

    /// The leader has something to tell. Returns how many publishes were confirmed by it.
    pub(crate) fn notice(
        &mut self,
        now: Timestamp,
        outboxes: &mut Outboxes,
        notice: Notice,
    ) -> u64 {
        let current = self.leader.is_some_and(|leader| leader.term == notice.term);
        if !current || notice.boot != self.me.boot {
            return 0;
        }
        self.moved_at = now;
        let Notice { upto, expected, items, .. } = notice;
        let mut confirmed = 0;
        if upto > 0 {
            confirmed = self.performed(upto, &items);
            while let Some(first) = self.early.first_entry()
                && !self.courier.is_waiting(*first.key())
            {
                let (number, reply) = first.remove_entry();
                self.item(outboxes, Item::Reply { number, reply });
            }
        }
        if expected > 0 {
            self.courier.rewind_to(expected);
        }
        for item in items {
            self.item(outboxes, item);
        }
        confirmed
    }

    fn performed(&mut self, upto: u64, items: &[Item]) -> u64 {
        let refused: BTreeSet<u64> = items
            .iter()
            .filter_map(|item| match item {
                Item::Refused { number } => Some(*number),
                _ => None,
            })
            .collect();
        let mut confirmed = 0;
        let mut owed = Owed::default();
        for (number, pending) in self.courier.answered(upto) {
            match pending.asker {
                Asker::Nobody => {}
                Asker::Publisher { origin, bytes, done } => {
                    let same = match (&owed.origin, &origin) {
                        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
                        (None, None) => true,
                        _ => false,
                    };
                    if !same {
                        confirmed += Confirms::pay_now(std::mem::take(&mut owed));
                        owed.origin = origin;
                    }
                    owed.bytes += bytes;
                    if refused.contains(&number) {
                        refuse(owed.origin.as_deref(), done);
                        continue;
                    }
                    match done {
                        Done::Nothing => {}
                        Done::Confirm { channel, number } => {
                            owed.confirms.push((channel, number));
                        }
                        Done::Group(group) => owed.groups.push(group),
                    }
                }
                asker => {
                    self.asking.insert(number, asker);
                }
            }
        }
        confirmed + Confirms::pay_now(owed)
    }

    fn item(&mut self, outboxes: &mut Outboxes, item: Item) {
        match item {
            Item::Refused { .. } => {}
            Item::Reply { number, reply } => {
                if let Some(asker) = self.asking.remove(&number) {
                    self.reply(outboxes, asker, reply);
                } else if self.courier.is_waiting(number) {
                    self.early.insert(number, reply);
                }
            }
            Item::Deliver { consumer, seq, redelivered, again, message } => {
                let Some(seat) = self.seats.get(&consumer) else { return };
                let is_settled = |it: &Attaching| it.settled.contains(&(Some(consumer), seq));
                if again && self.attaching.as_ref().is_some_and(is_settled) {
                    return;
                }
                let delivery = Delivery {
                    channel: seat.channel,
                    consumer: Some(consumer),
                    queue: self.queue,
                    seq,
                    redelivered,
                    message,
                };
                let event =
                    if again { Event::DeliverAgain(delivery) } else { Event::Deliver(delivery) };
                outboxes.push(seat.outbox, event);
            }
            Item::Attached { number } => {
                if self.attaching.as_ref().is_some_and(|attaching| attaching.number == number) {
                    self.attaching = None;
                    self.lose_gets_before(number);
                }
            }
            Item::Cancelled { consumer } => {
                self.tell(outboxes, consumer, |channel| Event::ConsumerCancelled {
                    channel,
                    consumer,
                });
                self.unseat(outboxes, consumer);
            }
            Item::TimedOut { consumer, code, text } => {
                self.tell(outboxes, consumer, |channel| Event::ConsumerTimedOut {
                    channel,
                    consumer,
                    error: Error { code, text },
                });
            }
            Item::Demand { consumer } => {
                self.tell(outboxes, consumer, |channel| Event::Demand { channel, consumer });
            }
            Item::GrantUnused { consumer, count } => {
                self.tell(outboxes, consumer, |channel| Event::GrantUnused {
                    channel,
                    consumer,
                    count,
                });
            }
        }
    }

    fn tell(
        &self,
        outboxes: &mut Outboxes,
        consumer: ConsumerId,
        event: impl FnOnce(ChannelId) -> Event,
    ) {
        if let Some(seat) = self.seats.get(&consumer) {
            outboxes.push(seat.outbox, event(seat.channel));
        }
    }

    fn reply(&mut self, outboxes: &mut Outboxes, asker: Asker, reply: Reply) {
        match (asker, reply) {
            (Asker::Consume(consumer, to), Reply::Consumed(consumed)) => {
                if consumed != Consumed::Done {
                    self.unseat(outboxes, consumer);
                }
                answer(to, consumed);
            }
            (Asker::Count(to), Reply::Counted(counts)) => answer(to, Some(counts)),
            (Asker::Cancel(consumer, to), Reply::Cancelled(last)) => {
                self.unseat(outboxes, consumer);
                // What was gathered for the consumer before leaves before the answer.
                outboxes.flush();
                answer(to, last);
            }
            (Asker::Get(to), Reply::Got { seq, redelivered, message, remaining }) => {
                let got = Got::Message { seq, redelivered, message, remaining };
                if let Err(Got::Message { .. }) = to.send(got) {
                    // Its connection is gone: nobody will settle it.
                    let runs = vec![Run { holder: None, first: seq, last: seq }];
                    let outcome = crate::shard::command::Settlement::Lost;
                    self.push(Timestamp(0), Order::Settle { runs, outcome }, Asker::Nobody);
                }
            }
            (Asker::Get(to), Reply::SingleActive) => answer(to, Got::SingleActive),
            (Asker::Get(to), _) => answer(to, Got::Empty),
            (Asker::Purge(to), Reply::Purged(count)) => answer(to, Some(count)),
            (Asker::Delete(to), Reply::Deleted(deleted)) => answer(to, deleted),
            // An answer to another question: the asker learns that there is none.
            (_, _) => {}
        }
    }

    /// Publishes that have waited since before `oldest` are refused; they may or may not have
    /// reached the queue. Returns how many.
    pub(crate) fn refuse_older(&mut self, oldest: Timestamp) -> u64 {
        let mut refused = 0;
        for pending in self.courier.waiting_mut() {
            if pending.since >= oldest {
                break;
            }
            if let Asker::Publisher { origin, bytes, done } =
                std::mem::replace(&mut pending.asker, Asker::Nobody)
            {
                refuse(origin.as_deref(), done);
                if let Some(origin) = &origin {
                    origin.in_flight.settle(bytes);
                }
                // Its number stays, so that those behind it have theirs.
                pending.order = Order::Nothing;
                refused += 1;
            }
        }
        refused
    }

    /// When the oldest publish that has no answer came.
    pub(crate) fn oldest_publish(&self) -> Option<Timestamp> {
        self.courier
            .waiting()
            .find(|pending| matches!(pending.asker, Asker::Publisher { .. }))
            .map(|pending| pending.since)
    }

    /// The node that keeps the queue is lost: publishes are refused, questions find nothing, and
    /// consumers are told.
    pub(crate) fn abandon(&mut self, outboxes: &mut Outboxes) {
        for pending in self.courier.give_up() {
            match pending.asker {
                Asker::Publisher { origin, bytes, done } => {
                    refuse(origin.as_deref(), done);
                    if let Some(origin) = &origin {
                        origin.in_flight.settle(bytes);
                    }
                }
                asker => self.no_queue(outboxes, asker),
            }
        }
        for asker in std::mem::take(&mut self.asking).into_values() {
            self.no_queue(outboxes, asker);
        }
        self.early.clear();
        self.cancel_all(outboxes);
    }

    fn no_queue(&mut self, outboxes: &mut Outboxes, asker: Asker) {
        match asker {
            Asker::Nobody | Asker::Publisher { .. } => {}
            Asker::Consume(consumer, to) => {
                self.unseat(outboxes, consumer);
                answer(to, Consumed::NoQueue);
            }
            Asker::Cancel(_, to) => answer(to, false),
            Asker::Get(to) => answer(to, Got::NoQueue),
            Asker::Count(to) => answer(to, None),
            Asker::Purge(to) => answer(to, None),
            Asker::Delete(to) => answer(to, Deleted::NoQueue),
        }
    }

    /// What a leader had got for somebody, and whose message the next one does not know to be held,
    /// went with that leader: nobody will answer.
    fn lose_gets_before(&mut self, number: u64) {
        let later = self.asking.split_off(&number);
        for (number, asker) in std::mem::replace(&mut self.asking, later) {
            match asker {
                Asker::Get(to) => answer(to, Got::Empty),
                asker => {
                    self.asking.insert(number, asker);
                }
            }
        }
    }

    fn cancel_all(&mut self, outboxes: &mut Outboxes) {
        for (consumer, seat) in std::mem::take(&mut self.seats) {
            let channel = seat.channel;
            outboxes.push(seat.outbox, Event::ConsumerCancelled { channel, consumer });
            outboxes.leave(seat.outbox);
        }
    }

    /// The queue is gone: publishes are as good as taken and then deleted, questions find nothing,
    /// and consumers are told.
    pub(crate) fn end(mut self, outboxes: &mut Outboxes) -> u64 {
        let mut confirmed = 0;
        for pending in self.courier.give_up() {
            match pending.asker {
                Asker::Publisher { origin, bytes, done } => {
                    let mut owed = Owed { origin, bytes, ..Owed::default() };
                    match done {
                        Done::Nothing => {}
                        Done::Confirm { channel, number } => owed.confirms.push((channel, number)),
                        Done::Group(group) => owed.groups.push(group),
                    }
                    confirmed += Confirms::pay_now(owed);
                }
                asker => self.no_queue(outboxes, asker),
            }
        }
        for asker in std::mem::take(&mut self.asking).into_values() {
            self.no_queue(outboxes, asker);
        }
        self.cancel_all(outboxes);
        confirmed
    }
}

fn refuse(origin: Option<&Origin>, done: Done) {
    match done {
        Done::Nothing => {}
        Done::Confirm { channel, number } => {
            if let Some(origin) = origin {
                origin.outlet.post_one(Event::Confirmed { channel, number, accepted: false });
            }
        }
        Done::Group(group) => group.answer(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Sender = Sender { node: NodeId(1), boot: 1 };
    const LEADER: Leader = Leader { node: NodeId(2), term: 3 };

    fn notice(upto: u64, items: Vec<Item>) -> Notice {
        Notice { queue: QueueId(9), term: LEADER.term, boot: 1, upto, expected: 0, items }
    }

    /// A client whose `basic.get`, the second of its orders, is on its way.
    fn getting() -> (Client, oneshot::Receiver<Got>) {
        let mut client = Client::new(QueueId(9), ME);
        client.follow(Timestamp(0), Some(LEADER));
        let (to, got) = oneshot::channel();
        let get = Order::Get { connection: ConnectionId(1), no_ack: true };
        client.order(Timestamp(0), get, Asker::Get(to));
        assert!(client.batch().is_some());
        (client, got)
    }

    #[test]
    fn an_answer_may_overtake_the_word_that_its_order_was_performed() {
        let (mut client, mut got) = getting();
        let mut outboxes = Outboxes::default();
        let early = vec![Item::Reply { number: 2, reply: Reply::Empty }];
        client.notice(Timestamp(0), &mut outboxes, notice(0, early));
        assert!(got.try_recv().is_err(), "it was not performed yet, as far as is known");
        client.notice(Timestamp(0), &mut outboxes, notice(2, Vec::new()));
        assert!(matches!(got.try_recv(), Ok(Got::Empty)));
    }

    #[test]
    fn a_get_that_its_leader_took_along_is_answered() {
        let (mut client, mut got) = getting();
        let mut outboxes = Outboxes::default();
        client.notice(Timestamp(0), &mut outboxes, notice(2, Vec::new()));
        client.follow(Timestamp(0), Some(Leader { node: NodeId(3), term: 4 }));
        let attached = Notice { term: 4, ..notice(3, vec![Item::Attached { number: 3 }]) };
        client.notice(Timestamp(0), &mut outboxes, attached);
        assert!(matches!(got.try_recv(), Ok(Got::Empty)));
    }
}
