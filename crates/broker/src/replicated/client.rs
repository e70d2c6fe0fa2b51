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

use amqp::request::{ChannelId, Delivery, Error, Event, Outcome};
use bytes::{Bytes, BytesMut};
use model::id::{ConnectionId, ConsumerId, NodeId, QueueId, Seq};
use model::time::Timestamp;
use tokio::sync::oneshot;

use crate::origin::Origin;
use crate::replicated::notice::{Item, Notice, Reply};
use crate::replicated::numbered::{Courier, Sender};
use crate::replicated::order::{self, Order, Run, Subscribed};
use crate::replicated::seat::Seat;
use crate::shard::command::{Consumed, Counts, Deleted, Done, Got, Settlement, answer};
use crate::shard::confirms::{Confirms, Owed};
use crate::shard::outboxes::Outboxes;

/// Most orders, and bytes of them, in one batch to the leader.
const BATCH_ORDERS: usize = 4096;
const BATCH_BYTES: usize = 2 << 20;

/// Without any answer for so long, what is under way is sent again.
const RESEND: u64 = 5000;
/// So long after this node's member has heard of a leader, that one is taken for it.
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
    /// A consumer that has subscribed with an earlier leader.
    Again(ConsumerId),
    Cancel(ConsumerId, oneshot::Sender<bool>),
    Get(oneshot::Sender<Got>),
    Count(oneshot::Sender<Option<Counts>>),
    Purge(oneshot::Sender<Option<u64>>),
    Delete(oneshot::Sender<Deleted>),
}

impl Asker {
    /// Whether nobody waits for the answer any more, without which there is no use in asking.
    fn is_gone(&self) -> bool {
        match self {
            Self::Get(to) => to.is_closed(),
            Self::Count(to) => to.is_closed(),
            Self::Purge(to) => to.is_closed(),
            Self::Delete(to) => to.is_closed(),
            // These stand for somebody who is there until it says that it is not.
            Self::Nobody
            | Self::Publisher { .. }
            | Self::Consume(..)
            | Self::Again(_)
            | Self::Cancel(..) => false,
        }
    }
}

#[derive(Debug)]
struct Pending {
    order: Order,
    asker: Asker,
    since: Timestamp,
}

/// The present leader was asked to deliver again. Deliveries from before it does so have gaps.
#[derive(Debug)]
struct Attaching {
    /// The number of the order that asks so.
    number: u64,
    /// The leader has begun.
    begun: bool,
    /// Settled since it was asked: not to be delivered again.
    settled: BTreeSet<(ConsumerId, Seq)>,
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct Client {
    queue: QueueId,
    me: Sender,
    leader: Option<Leader>,
    /// Who probably leads, and since when that is known.
    hint: Option<(Leader, Timestamp)>,
    /// The leader was only heard of, and has said nothing itself: it may not be ready, and drops what comes.
    is_hearsay: bool,
    /// When something last went on: an answer, another leader, or the first order of several.
    moved_at: Timestamp,
    courier: Courier<Pending>,
    /// Questions that were performed and whose answers are still to come.
    asking: BTreeMap<u64, Asker>,
    seats: BTreeMap<ConsumerId, Seat>,
    /// What was settled since the present leader was asked to deliver again.
    attaching: Option<Attaching>,
    /// Until then whoever keeps the queue had no room for publishes.
    excused: Timestamp,
    /// Subscriptions that wait for whoever leads next.
    parked: Vec<(Subscribed, Asker)>,
}

impl Client {
    /// Nothing is under way. The first order of every start is [`Order::Hello`].
    pub(crate) fn new(queue: QueueId, me: Sender) -> Self {
        Self {
            queue,
            me,
            leader: None,
            hint: None,
            is_hearsay: false,
            moved_at: Timestamp(0),
            courier: Courier::default(),
            asking: BTreeMap::new(),
            seats: BTreeMap::new(),
            attaching: None,
            excused: Timestamp(0),
            parked: Vec::new(),
        }
    }

    /// This start of this node.
    pub(crate) fn me(&self) -> Sender {
        self.me
    }

    /// The broker ends a consumer: its client is told.
    pub(crate) fn revoke(&mut self, outboxes: &mut Outboxes, consumer: ConsumerId) {
        self.tell(outboxes, consumer, |channel| Event::ConsumerCancelled { channel, consumer });
        self.part(outboxes, consumer);
    }

    /// Who leads.
    pub(crate) fn leader(&self) -> Option<Leader> {
        self.leader
    }

    /// Whether orders wait for a leader to be there.
    pub(crate) fn wants_leader(&self) -> bool {
        self.leader.is_none() && self.courier.len() > 0
    }

    /// Refuses what has just been asked, if nobody leads: there is nobody to wait for.
    pub(crate) fn refuse_without_leader(&mut self, outboxes: &mut Outboxes) {
        if self.leader.is_none() && self.courier.len() > 0 {
            self.abandon(outboxes);
        }
    }

    /// The same for everything but publishes, which somebody may soon lead again.
    pub(crate) fn refuse_questions_without_leader(&mut self, outboxes: &mut Outboxes) {
        if self.leader.is_none() && self.courier.len() > 0 {
            self.give_up_questions(outboxes);
        }
    }

    /// Takes an order.
    pub(crate) fn order(&mut self, now: Timestamp, order: Order, asker: Asker) {
        if self.courier.len() == 0 && self.courier_is_new() {
            self.push(now, Order::Hello, Asker::Nobody);
        }
        if let Order::Settle { runs, .. } = &order {
            self.settled(runs);
        }
        self.push(now, order, asker);
    }

    /// Consumers have settled these.
    fn settled(&mut self, runs: &[Run]) {
        for run in runs {
            let Some(consumer) = run.holder else { continue };
            if let Some(attaching) = &mut self.attaching {
                let names = run.first.0..=run.last.0;
                attaching.settled.extend(names.map(|seq| (consumer, Seq(seq))));
            }
            if let Some(seat) = self.seats.get_mut(&consumer) {
                seat.settled(run.first, run.last);
                if seat.is_over() {
                    self.seats.remove(&consumer);
                }
            }
        }
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
        no_ack: bool,
    ) {
        let outbox = outboxes.join(origin);
        let seat = Seat::new(outbox, origin.id, channel, no_ack);
        if let Some(mut old) = self.seats.insert(consumer, seat) {
            old.leave(outboxes);
        }
    }

    /// A consumer of this node is gone.
    pub(crate) fn unseat(&mut self, outboxes: &mut Outboxes, consumer: ConsumerId) {
        if let Some(mut seat) = self.seats.remove(&consumer) {
            seat.leave(outboxes);
        }
    }

    /// A consumer of this node gets nothing more, and keeps what it has.
    fn part(&mut self, outboxes: &mut Outboxes, consumer: ConsumerId) {
        if let Some(seat) = self.seats.get_mut(&consumer) {
            seat.leave(outboxes);
            if seat.is_over() {
                self.seats.remove(&consumer);
            }
        }
    }

    /// A connection is gone: its consumers here are. Returns whether the queue may hold something
    /// for it: it has consumers, or has ever been asked from here.
    pub(crate) fn leave(&mut self, outboxes: &mut Outboxes, connection: ConnectionId) -> bool {
        let gone: Vec<ConsumerId> = self
            .seats
            .iter()
            .filter(|(_, seat)| seat.connection() == connection)
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
        let was_hearsay = std::mem::take(&mut self.is_hearsay);
        if leader == self.leader {
            if was_hearsay {
                self.send_again(now);
            }
            return;
        }
        self.moved_at = now;
        let had_one = self.leader.is_some() || self.attaching.is_some() || self.courier.next() > 1;
        self.leader = leader;
        self.courier.rewind();
        if leader.is_some() {
            self.drop_forsaken();
        }
        if leader.is_some() && had_one {
            // What was asked before and is not answered would be answered with what stood then.
            for pending in self.courier.waiting_mut() {
                if matches!(pending.order, Order::Attach { .. }) {
                    pending.order = Order::Nothing;
                }
            }
            let consumers = self.seats.iter().filter(|(_, seat)| !seat.is_parted());
            let consumers = consumers.map(|(consumer, _)| *consumer).collect();
            let number = self.push(now, Order::Attach { consumers }, Asker::Nobody);
            let settled = BTreeSet::new();
            self.attaching = Some(Attaching { number, begun: false, settled });
        }
    }

    /// The member of this node has heard that somebody leads.
    pub(crate) fn hint(&mut self, now: Timestamp, leader: Option<Leader>) {
        if self.hint.map(|(known, _)| known) != leader {
            self.hint = leader.map(|leader| (leader, now));
        }
    }

    /// When [`Client::tick`] has something to do, if nothing happens before.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        if self.courier.len() == 0 {
            return None;
        }
        match (self.leader, self.hint) {
            (Some(_), _) => Some(Timestamp(self.moved_at.0 + RESEND)),
            (None, Some((_, since))) => Some(Timestamp(self.moved_at.0.max(since.0) + TAKE_HINT)),
            (None, None) => None,
        }
    }

    /// Nothing has gone on for a while: something was lost on the way.
    pub(crate) fn tick(&mut self, now: Timestamp) {
        if self.deadline().is_none_or(|deadline| deadline > now) {
            return;
        }
        match (self.leader, self.hint) {
            (None, Some((leader, _))) => {
                self.follow(now, Some(leader));
                self.is_hearsay = true;
            }
            _ => self.send_again(now),
        }
    }

    /// Sends everything that has no answer once more: nobody performs it twice.
    fn send_again(&mut self, now: Timestamp) {
        self.moved_at = now;
        self.drop_forsaken();
        self.courier.rewind();
    }

    /// Whoever has asked may have been told that it was not done, for want of an answer in time: then
    /// nobody does it later. What an earlier leader has written down it has done all the same.
    fn drop_forsaken(&mut self) {
        for pending in self.courier.waiting_mut().filter(|pending| pending.asker.is_gone()) {
            // Its number stays, so that those behind it have theirs.
            pending.order = Order::Nothing;
            pending.asker = Asker::Nobody;
        }
    }

    /// The next batch for the leader, encoded; `None`: there is nothing to send, or nobody leads.
    pub(crate) fn batch(&mut self) -> Option<(Leader, Bytes)> {
        let leader = self.leader?;
        let me = self.me;
        let (first, pending) = self
            .courier
            .send_within(BATCH_ORDERS, BATCH_BYTES, |pending| pending.order.weight())?;
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
        (self.moved_at, self.is_hearsay) = (now, false);
        let Notice { upto, expected, items, .. } = notice;
        let mut confirmed = 0;
        if upto > 0 {
            confirmed = self.performed(upto, &items);
        }
        if expected > 0 {
            self.courier.rewind_to(expected);
        }
        for item in items {
            self.item(now, outboxes, item);
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

    fn item(&mut self, now: Timestamp, outboxes: &mut Outboxes, item: Item) {
        match item {
            Item::Refused { .. } => {}
            Item::Reply { number, reply } => {
                let asker = self.asking.remove(&number).or_else(|| self.answered_early(number));
                if let Some(asker) = asker {
                    self.reply(now, outboxes, asker, reply);
                }
            }
            Item::Deliver { consumer, seq, redelivered, again, message } => {
                if let Some(channel) = self.takes(now, consumer, seq, again) {
                    let (queue, to) = (self.queue, Some(consumer));
                    let delivery =
                        Delivery { channel, consumer: to, queue, seq, redelivered, message };
                    self.tell(outboxes, consumer, |_| Event::Deliver(delivery));
                }
            }
            Item::Attaching { number } => {
                if let Some(attaching) = &mut self.attaching {
                    attaching.begun |= attaching.number == number;
                }
            }
            Item::Attached { number } => {
                if self.attaching.as_ref().is_some_and(|attaching| attaching.number == number) {
                    self.attaching = None;
                    self.lose_answers_before(now, outboxes, number);
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

    /// Whom an answer is for that has overtaken the word that its order was performed: it says so
    /// itself. That word stands for all orders before as well, and so waits for every publish among
    /// them: on a full disk for as long as there is no room, for which nobody who reads has to wait.
    fn answered_early(&mut self, number: u64) -> Option<Asker> {
        let pending = self.courier.waiting_at(number)?;
        if matches!(pending.asker, Asker::Publisher { .. }) {
            return None;
        }
        // Its number stays, so that those behind it have theirs; whoever leads next must not do it again.
        pending.order = Order::Nothing;
        Some(std::mem::replace(&mut pending.asker, Asker::Nobody))
    }

    fn tell(
        &self,
        outboxes: &mut Outboxes,
        consumer: ConsumerId,
        event: impl FnOnce(ChannelId) -> Event,
    ) {
        if let Some(seat) = self.seats.get(&consumer)
            && let Some(outbox) = seat.outbox()
        {
            outboxes.push(outbox, event(seat.channel()));
        }
    }

    /// Takes a delivery for a consumer; gives the channel that it is for.
    ///
    /// After a leader or the way to it was lost there are gaps in what comes, until the leader has
    /// begun to repeat what consumers hold: what was left out then comes along with that.
    fn takes(
        &mut self,
        now: Timestamp,
        consumer: ConsumerId,
        seq: Seq,
        again: bool,
    ) -> Option<ChannelId> {
        let seat = self.seats.get_mut(&consumer);
        if let Some(seat) = &seat
            && seat.no_ack()
        {
            return Some(seat.channel());
        }
        match &self.attaching {
            // It was asked twice and has answered before.
            None if again => return None,
            Some(attaching) if !attaching.begun => return None,
            Some(attaching) if again && attaching.settled.contains(&(consumer, seq)) => {
                return None;
            }
            _ => {}
        }
        match seat {
            Some(seat) if again && seat.holds(seq) => None,
            Some(seat) if !seat.is_parted() => {
                seat.takes(seq);
                Some(seat.channel())
            }
            // Its session has ended the consumer and will not get this any more.
            _ => {
                let runs = vec![Run { holder: Some(consumer), first: seq, last: seq }];
                let outcome = Settlement::Client(Outcome::Return);
                self.push(now, Order::Settle { runs, outcome }, Asker::Nobody);
                None
            }
        }
    }

    fn reply(&mut self, now: Timestamp, outboxes: &mut Outboxes, asker: Asker, reply: Reply) {
        match (asker, reply) {
            (Asker::Consume(consumer, to), Reply::Consumed(consumed)) => {
                if consumed != Consumed::Done {
                    self.unseat(outboxes, consumer);
                }
                answer(to, consumed);
            }
            (Asker::Again(consumer), Reply::Consumed(consumed)) => {
                // Somebody else was faster, and has the queue exclusively.
                if consumed != Consumed::Done {
                    self.revoke(outboxes, consumer);
                    self.unseat(outboxes, consumer);
                }
            }
            (Asker::Count(to), Reply::Counted(counts)) => answer(to, Some(counts)),
            (Asker::Cancel(consumer, to), Reply::Cancelled(last)) => {
                self.part(outboxes, consumer);
                // What was gathered for the consumer before leaves before the answer.
                outboxes.flush();
                answer(to, last);
            }
            (Asker::Get(to), Reply::Got { seq, redelivered, message, remaining }) => {
                let got = Got::Message { seq, redelivered, message, remaining };
                if let Err(Got::Message { .. }) = to.send(got) {
                    // Its connection is gone: nobody will settle it.
                    let runs = vec![Run { holder: None, first: seq, last: seq }];
                    let outcome = Settlement::Lost;
                    self.push(now, Order::Settle { runs, outcome }, Asker::Nobody);
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
            if pending.since.max(self.excused) >= oldest {
                break;
            }
            if !matches!(pending.asker, Asker::Publisher { .. }) {
                continue;
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

    /// Whoever keeps the queue is there, and has no room at this moment: publishes wait for room, as
    /// they do where it is kept.
    pub(crate) fn excuse(&mut self, now: Timestamp) {
        self.excused = now;
    }

    /// Since when the oldest publish waits that has no answer, if nobody had to wait for room.
    pub(crate) fn oldest_publish(&self) -> Option<Timestamp> {
        self.courier
            .waiting()
            .find(|pending| matches!(pending.asker, Asker::Publisher { .. }))
            .map(|pending| pending.since.max(self.excused))
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
        self.cancel_all(outboxes);
    }

    /// Whoever leads the queue next knows nothing of this node's consumers and of what they hold.
    /// Publishes that were sent are refused, since the next one may have them already; those that
    /// were not wait for it, and so do subscriptions and counts. Other questions find nothing.
    pub(crate) fn give_up_questions(&mut self, outboxes: &mut Outboxes) {
        let waits = |asker: &Asker| matches!(asker, Asker::Consume(..) | Asker::Count(_));
        let (mut kept, mut askers) = (BTreeMap::new(), Vec::new());
        for (number, asker) in std::mem::take(&mut self.asking) {
            if waits(&asker) {
                kept.insert(number, asker);
            } else {
                askers.push(asker);
            }
        }
        self.asking = kept;
        let sent = self.courier.in_flight();
        for (at, pending) in self.courier.waiting_mut().enumerate() {
            let is_publish = matches!(pending.asker, Asker::Publisher { .. });
            // The first order of a start stays, so that it is seen as one.
            if (is_publish && at >= sent)
                || matches!(pending.asker, Asker::Count(_))
                || matches!(pending.order, Order::Hello)
            {
                continue;
            }
            // It has to come behind what ends everything that this node had there.
            if let (Order::Consume(_), Asker::Consume(..)) = (&pending.order, &pending.asker) {
                let order = std::mem::replace(&mut pending.order, Order::Nothing);
                let asker = std::mem::replace(&mut pending.asker, Asker::Nobody);
                if let Order::Consume(subscribed) = order {
                    self.parked.push((*subscribed, asker));
                }
                continue;
            }
            // Its number stays, so that those behind it have theirs.
            pending.order = Order::Nothing;
            match std::mem::replace(&mut pending.asker, Asker::Nobody) {
                Asker::Publisher { origin, bytes, done } => {
                    refuse(origin.as_deref(), done);
                    if let Some(origin) = &origin {
                        origin.in_flight.settle(bytes);
                    }
                }
                asker => askers.push(asker),
            }
        }
        for asker in askers {
            self.no_queue(outboxes, asker);
        }
        self.attaching = None;
    }

    /// The consumers of this node subscribe with the new leader, unless they are about to.
    pub(crate) fn subscribe_again<'s>(
        &mut self,
        now: Timestamp,
        subscribed: impl Iterator<Item = &'s Subscribed>,
    ) {
        let mut asked = BTreeSet::new();
        for (subscribed, asker) in std::mem::take(&mut self.parked) {
            let consumer = subscribed.consumer;
            asked.insert(consumer);
            // Its connection may have gone meanwhile.
            if self.is_seated(consumer) {
                self.push(now, Order::Consume(Box::new(subscribed)), asker);
            }
        }
        for subscribed in subscribed.filter(|subscribed| !asked.contains(&subscribed.consumer)) {
            let consumer = subscribed.consumer;
            if self.is_seated(consumer) {
                let order = Order::Consume(Box::new(subscribed.clone()));
                self.push(now, order, Asker::Again(consumer));
            }
        }
    }

    fn is_seated(&self, consumer: ConsumerId) -> bool {
        self.seats.get(&consumer).is_some_and(|seat| !seat.is_parted())
    }

    fn no_queue(&mut self, outboxes: &mut Outboxes, asker: Asker) {
        match asker {
            Asker::Nobody | Asker::Publisher { .. } | Asker::Again(_) => {}
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

    /// Questions that a leader has performed, and whose answers went with it or with the way to it.
    /// What a get still holds has been given again by now.
    fn lose_answers_before(&mut self, now: Timestamp, outboxes: &mut Outboxes, number: u64) {
        let later = self.asking.split_off(&number);
        for asker in std::mem::replace(&mut self.asking, later).into_values() {
            let reply = match &asker {
                Asker::Nobody | Asker::Publisher { .. } | Asker::Again(_) => continue,
                Asker::Get(_) => Reply::Empty,
                // Had it been refused, the leader would have said that it does not know it.
                Asker::Consume(consumer, _) if self.seats.contains_key(consumer) => {
                    Reply::Consumed(Consumed::Done)
                }
                Asker::Consume(..) => Reply::Consumed(Consumed::ExclusiveUse),
                Asker::Cancel(..) => Reply::Cancelled(false),
                Asker::Purge(_) => Reply::Purged(0),
                Asker::Delete(_) => Reply::Deleted(Deleted::Done(0)),
                Asker::Count(_) => {
                    self.push(now, Order::Count, asker);
                    continue;
                }
            };
            self.reply(now, outboxes, asker, reply);
        }
    }

    fn cancel_all(&mut self, outboxes: &mut Outboxes) {
        let consumers: Vec<ConsumerId> = self.seats.keys().copied().collect();
        for consumer in consumers {
            self.tell(outboxes, consumer, |channel| Event::ConsumerCancelled { channel, consumer });
            self.unseat(outboxes, consumer);
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
        let parked = std::mem::take(&mut self.parked).into_iter().map(|(_, asker)| asker);
        for asker in std::mem::take(&mut self.asking).into_values().chain(parked) {
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
mod tests;
