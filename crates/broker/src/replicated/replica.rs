//! This node's member of a quorum queue: the state, and what a leader does beyond keeping it.
//!
//! ```text
//!  batches of all nodes ─► proposals ─► Raft ─► committed ─► Machine ─► outputs ─┐
//!                                                                               ▼
//!  every member: bodies are released   the leader: notices to nodes ◄── `outgoing` (waits for
//!                                                  dead letters     ◄── `dead`      bodies)
//! ```
//!
//! At most [`IN_FLIGHT`] entries of this node are under way at once; everything that arrives
//! meanwhile becomes the next one.

pub(crate) mod carry;
pub(crate) mod checkpoint;
mod dead;
mod lend;
pub(crate) mod peek;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use amq_protocol_types::AMQPValue;
use bytes::{BufMut, Bytes, BytesMut};
use model::id::{ConsumerId, NodeId, QueueId, Seq, StreamId};
use model::message::Message;
use model::time::Timestamp;
use parking_lot::Mutex;
use queue::effect::{Effect, Reason};
use quorum::member::Committed;

use crate::death;
use crate::replicated::containers::{Containers, Place};
use crate::replicated::machine::{Got, Machine, Output};
use crate::replicated::notice::{Item, Notice, Reply};
use crate::replicated::numbered::Sender;
use crate::replicated::order::{self, Malformed, OWN, Order, Published, Run};
use crate::replicated::version::{self, Unreadable};
use crate::shard::bodies::{Bodies, Body as Kept, Weight};
use crate::shard::command::Settlement;
use crate::shard::desk::{Chore, Desk};
use crate::shard::profile::Profile;
use crate::totals::Counters;

/// Entries under way at once.
const IN_FLIGHT: usize = 2;
/// An entry takes no more batches when it has this many bytes.
const ENTRY_BYTES: usize = 2 << 20;
/// After so many milliseconds what was not durable is read again.
const REREAD: u64 = 20;
/// Most messages that one read brings back.
const READ_MESSAGES: usize = 512;

/// Something on its way out that waits for its body, or for one before it.
#[derive(Debug)]
enum Outgoing {
    Deliver { consumer: ConsumerId, seq: Seq, redelivered: bool, delivery_count: u32, again: bool },
    Got(Got),
    Attaching(Sender, u64),
    Attached(Sender, u64),
}

impl Outgoing {
    fn seq(&self) -> Option<Seq> {
        match self {
            Self::Deliver { seq, .. } => Some(*seq),
            Self::Got(got) => Some(got.seq),
            Self::Attaching(..) | Self::Attached(..) => None,
        }
    }
}

/// What the leader of a term has under way.
#[derive(Debug, Default)]
struct Leading {
    term: u64,
    /// Entries proposed and not committed.
    in_flight: usize,
    /// An entry that the host had no room for.
    refused: Option<Bytes>,
    /// Encoded batches for the next entry.
    waiting: VecDeque<Bytes>,
    /// The leader's own orders for it.
    own: Vec<Order>,
    /// What a queue that nobody has used yet is like: it comes with the first order.
    first: Option<Order>,
    /// What this turn has to tell.
    notices: BTreeMap<Sender, Notice>,
    outgoing: VecDeque<Outgoing>,
    dead: VecDeque<(Seq, Reason)>,
    dead_in_flight: usize,
    /// Dead messages that are kept and were not taken: when they are sent again.
    dead_later: BTreeSet<(Timestamp, Seq)>,
    /// Dead messages that were kept and are where they go.
    buried: Vec<Seq>,
    /// Messages that are gone for the machine and wait in `outgoing`: released when they are sent.
    held: BTreeSet<Seq>,
    /// A tick is proposed.
    ticking: bool,
    /// The version that is proposed.
    agreed: u8,
    /// Nodes whose consumers may lack what an earlier leader had assigned to them: they get nothing
    /// new before they have asked for that, or the order would break.
    unattached: BTreeSet<Sender>,
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct Replica {
    /// Where its records are.
    stream: StreamId,
    machine: Machine,
    containers: Arc<Mutex<Containers>>,
    bodies: Bodies,
    leading: Option<Leading>,
    outputs: Vec<Output>,
    /// Where consumers were that the entry being performed ends: what comes before their end is for them.
    leaving: BTreeMap<ConsumerId, (Sender, bool)>,
    /// What is being read, and where it lay then.
    reading: Option<Vec<(Seq, Place)>>,
    /// Everything applied lies before this in the journal.
    applied: journal::op::Lsn,
    /// Something was not durable when it was to be read: when it is read again.
    reread: Option<Timestamp>,
    /// What other members are asked for.
    wanted: lend::Wanted,
    /// The container whose last bodies are being carried over.
    carrying: Option<Seq>,
    /// How often another state was installed.
    installs: u64,
    /// Why it has stopped, if it has.
    stopped: Option<String>,
    weighed: Weight,
    counters: Counters,
    reported: Counters,
}

impl Replica {
    /// An empty member whose records are in that stream.
    pub(crate) fn new(stream: StreamId, containers: Arc<Mutex<Containers>>) -> Self {
        Self {
            stream,
            machine: Machine::new(version::NEWEST),
            containers,
            bodies: Bodies::default(),
            leading: None,
            outputs: Vec::new(),
            leaving: BTreeMap::new(),
            reading: None,
            applied: journal::op::Lsn(0),
            reread: None,
            wanted: lend::Wanted::default(),
            carrying: None,
            installs: 0,
            stopped: None,
            weighed: Weight::default(),
            counters: Counters::default(),
            reported: Counters::default(),
        }
    }

    /// Where its records are.
    pub(crate) fn stream(&self) -> StreamId {
        self.stream
    }

    /// It is a member no more, or its queue is gone: nothing of it is in memory from now on.
    pub(crate) fn end(&mut self, desk: &mut Desk) {
        self.step_down();
        self.bodies = Bodies::default();
        self.report(desk);
    }

    /// The replicated state, to look at.
    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The term in which it leads, if it does.
    pub(crate) fn led_in(&self) -> Option<u64> {
        self.leading.as_ref().map(|leading| leading.term)
    }

    /// Why it has stopped, if it has: then it is read-only.
    pub(crate) fn stopped(&self) -> Option<&str> {
        self.stopped.as_deref()
    }

    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    /// Bodies in memory, and their weight.
    pub(crate) fn in_memory(&self) -> (u64, u64) {
        (self.bodies.len() as u64, self.bodies.weight().total())
    }

    /// It leads from now on.
    pub(crate) fn lead(&mut self, term: u64, profile: &Profile) {
        self.step_down();
        let mut leading = Leading { term, ..Leading::default() };
        let configure = Order::Configure(profile.settings.encode().into());
        if self.machine.is_new() && profile.settings.expires.is_none() {
            leading.first = Some(configure);
        } else if self.machine.is_new() || *self.machine.queue().settings() != profile.settings {
            leading.own.push(configure);
        }
        if profile.settings.expires.is_some() {
            // Its clock may be ahead of its predecessor's, and nobody could use the queue in between.
            leading.own.push(Order::Touch);
        }
        let consumers = self.machine.subscribed().values();
        leading.unattached = consumers.filter(|one| !one.no_ack).map(|one| one.at).collect();
        leading.inherit_dead(self.machine.queue().deaths());
        self.leading = Some(leading);
    }

    /// It leads no longer. What it had under way is the next leader's concern, or lost as its
    /// sender knows.
    pub(crate) fn step_down(&mut self) {
        let Some(leading) = self.leading.take() else { return };
        self.wanted = lend::Wanted::default();
        let waiting = leading.outgoing.iter().filter_map(Outgoing::seq);
        let dead = leading.dead.iter().map(|(seq, _)| *seq).filter(|seq| !self.is_kept(*seq));
        let gone: BTreeSet<Seq> =
            waiting.filter(|seq| leading.held.contains(seq)).chain(dead).collect();
        for seq in gone {
            self.release(seq, seq);
        }
    }

    /// Batches of orders for the leader. What cannot stand in an entry is dropped, and its sender is
    /// not answered.
    ///
    /// # Errors
    /// If they are dropped.
    pub(crate) fn orders(&mut self, batches: Bytes) -> Result<(), Malformed> {
        if let Some(leading) = &mut self.leading {
            order::check_batches(&batches)?;
            leading.waiting.push_back(batches);
        }
        Ok(())
    }

    /// An order of the leader itself, for the next entry.
    pub(crate) fn own(&mut self, order: Order) {
        if let Some(leading) = &mut self.leading {
            leading.own.push(order);
        }
    }

    /// The same for one that concerns all orders before it, also those that are still waiting.
    fn own_behind(&mut self, order: &Order) {
        if let Some(leading) = &mut self.leading {
            let mut batch = BytesMut::new();
            order::write_batch(&mut batch, OWN, 0, std::iter::once(order));
            leading.waiting.push_back(batch.freeze());
        }
    }

    /// Whether orders are on their way into the state, whose effects cannot be seen in it yet.
    fn is_busy(&self) -> bool {
        self.leading.as_ref().is_some_and(|leading| {
            leading.in_flight > 0 || leading.refused.is_some() || !leading.waiting.is_empty()
        })
    }

    /// A node is not there any more: what it holds comes back.
    pub(crate) fn is_lost(&mut self, node: NodeId) {
        if self.leading.is_some() && (self.is_busy() || self.machine.nodes().contains(&node)) {
            self.own_behind(&Order::Lost { node });
        }
    }

    /// The effective arguments have changed.
    pub(crate) fn configure(&mut self, profile: &Profile) {
        let has_first = self.leading.as_ref().is_some_and(|leading| leading.first.is_some());
        if has_first && let Some(leading) = &mut self.leading {
            leading.first = Some(Order::Configure(profile.settings.encode().into()));
            if profile.settings.expires.is_some() {
                leading.own.push(Order::Touch);
            }
        } else if *self.machine.queue().settings() != profile.settings {
            self.own(Order::Configure(profile.settings.encode().into()));
        }
    }

    /// The nodes of all members know this version: if it leads, that is in force soon.
    pub(crate) fn agree(&mut self, all_know: u8) {
        let next = all_know.min(self.machine.known());
        let Some(leading) = &mut self.leading else { return };
        if next > self.machine.version() && leading.agreed < next {
            leading.agreed = next;
            leading.own.push(Order::Version(next));
        }
    }

    /// When the machine wants to be told the time.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        let leading = self.leading.as_ref()?;
        if leading.ticking { None } else { self.machine.queue().next_deadline() }
    }

    /// The time has come.
    pub(crate) fn tick(&mut self) {
        if let Some(leading) = &mut self.leading
            && !leading.ticking
        {
            leading.ticking = true;
            leading.own.push(Order::Tick);
        }
    }

    /// The next entry to propose, if there is something to say and few enough are under way.
    pub(crate) fn proposal(&mut self, now: Timestamp) -> Option<Bytes> {
        let leading = self.leading.as_mut()?;
        if leading.in_flight >= IN_FLIGHT || self.stopped.is_some() {
            return None;
        }
        if let Some(refused) = leading.refused.take() {
            leading.in_flight += 1;
            return Some(refused);
        }
        leading.bury();
        if leading.waiting.is_empty() && leading.own.is_empty() {
            return None;
        }
        if let Some(first) = leading.first.take() {
            leading.own.insert(0, first);
        }
        let weight: usize = leading.waiting.iter().map(Bytes::len).sum();
        let mut entry = BytesMut::with_capacity(order::ENTRY_HEAD + weight.min(ENTRY_BYTES) + 64);
        order::begin_entry(&mut entry, self.machine.version(), now);
        if !leading.own.is_empty() {
            order::write_batch(&mut entry, OWN, 0, leading.own.iter());
            leading.own.clear();
        }
        while entry.len() < ENTRY_BYTES
            && let Some(batch) = leading.waiting.pop_front()
        {
            entry.put_slice(&batch);
        }
        leading.in_flight += 1;
        Some(entry.freeze())
    }

    /// The host did not take an entry: it is proposed again, unless another one leads by then.
    pub(crate) fn not_proposed(&mut self, entry: Bytes) {
        if let Some(leading) = &mut self.leading {
            leading.refused = Some(entry);
            leading.in_flight -= 1;
        }
    }

    /// Whether an entry has to be proposed again.
    pub(crate) fn has_refused(&self) -> bool {
        self.leading.as_ref().is_some_and(|leading| leading.refused.is_some())
    }

    /// Entries are committed.
    ///
    /// # Errors
    /// If one cannot be read: the member stops, and says why.
    pub(crate) fn committed(
        &mut self,
        desk: &mut Desk,
        profile: &Profile,
        entries: Vec<Committed>,
    ) -> Result<(), Unreadable> {
        for Committed { index, term, position, payload } in entries {
            let first = self.machine.last().next();
            if payload.is_empty() {
                self.containers.lock().entry(index, position, first, 0);
                continue;
            }
            if let Some(leading) = &mut self.leading
                && leading.term == term
            {
                leading.in_flight = leading.in_flight.saturating_sub(1);
                leading.ticking = leading.own.iter().any(|order| matches!(order, Order::Tick));
            }
            let mut outputs = std::mem::take(&mut self.outputs);
            let count = self.machine.apply(payload, &mut outputs).inspect_err(|error| {
                self.stopped = Some(error.to_string());
            })?;
            self.containers.lock().entry(index, position, first, count);
            self.perform(desk, profile, &mut outputs);
            self.outputs = outputs;
        }
        // Everything applied lies before this in the journal.
        let lsn = desk.journal.submit(Vec::new());
        self.bodies.handed(lsn, self.machine.last());
        self.applied = lsn;
        Ok(())
    }

    fn perform(&mut self, desk: &mut Desk, profile: &Profile, outputs: &mut Vec<Output>) {
        // The machine has applied the whole entry, and knows these no longer.
        self.leaving.extend(outputs.iter().filter_map(|output| match output {
            Output::Unsubscribed { consumer, was } => Some((*consumer, (*was)?)),
            _ => None,
        }));
        for output in outputs.drain(..) {
            match output {
                Output::Stored { seq, published: Published { message, .. } } => {
                    self.counters.enqueued += 1;
                    if self.leading.is_some() {
                        self.bodies.insert(seq, Kept { message, journalled: true });
                    }
                }
                Output::Dropped { seq } => self.release(seq, seq),
                Output::Effect(effect) => self.effect(desk, profile, effect),
                Output::Refused { sender, number } => {
                    self.counters.refused += 1;
                    self.tell(profile.id, sender, Item::Refused { number });
                }
                Output::Reply { sender, number, reply } => {
                    self.tell(profile.id, sender, Item::Reply { number, reply });
                }
                Output::Got(got) => {
                    self.counters.got += 1;
                    self.send(desk, profile, Outgoing::Got(got));
                }
                Output::Attaching { sender, number } => {
                    self.send(desk, profile, Outgoing::Attaching(sender, number));
                }
                Output::Again { consumer, seq, redelivered, delivery_count } => {
                    let again = true;
                    let deliver =
                        Outgoing::Deliver { consumer, seq, redelivered, delivery_count, again };
                    self.send(desk, profile, deliver);
                }
                Output::Attached { sender, number, unknown } => {
                    if let Some(leading) = &mut self.leading {
                        leading.unattached.remove(&sender);
                    }
                    for consumer in unknown {
                        self.tell(profile.id, sender, Item::Cancelled { consumer });
                    }
                    self.send(desk, profile, Outgoing::Attached(sender, number));
                }
                Output::Unsubscribed { consumer, .. } => {
                    self.leaving.remove(&consumer);
                    self.forget(consumer);
                }
                Output::Done { sender, upto } => {
                    if let Some(notice) = self.notice(profile.id, sender) {
                        notice.upto = upto;
                    }
                }
                Output::Gap { sender, expected } => {
                    if let Some(notice) = self.notice(profile.id, sender) {
                        notice.expected = expected;
                    }
                }
            }
        }
        self.pump_dead(desk, profile);
    }

    fn effect(&mut self, desk: &mut Desk, profile: &Profile, effect: Effect) {
        let queue = profile.id;
        match effect {
            Effect::Deliver { consumer, seq, redelivered, delivery_count } => {
                if self.may_get(consumer) {
                    let again = false;
                    let deliver =
                        Outgoing::Deliver { consumer, seq, redelivered, delivery_count, again };
                    self.send(desk, profile, deliver);
                }
            }
            Effect::Release { first, last } => self.release(first, last),
            Effect::DeadLetter { seq, reason } => {
                self.died(profile, seq, reason);
            }
            // The state itself is what is kept.
            Effect::Noted { .. } => {}
            Effect::Demand { consumer } => {
                self.tell_consumer(queue, consumer, Item::Demand { consumer });
            }
            Effect::GrantUnused { consumer, count } => {
                self.tell_consumer(queue, consumer, Item::GrantUnused { consumer, count });
            }
            Effect::ConsumerCancelled { consumer } => {
                self.tell_consumer(queue, consumer, Item::Cancelled { consumer });
            }
            Effect::TimedOut { consumer, returned } => {
                let Some(one) = self.machine.subscribed().get(&consumer) else { return };
                let timeout = one.timeout.or(profile.settings.consumer_timeout);
                let timeout = timeout.map_or(0, |timeout| timeout.0);
                let channel = one.channel;
                if self.leading.is_some() {
                    tracing::warn!(
                        queue = %profile.name, vhost = %profile.vhost, consumer = %one.tag,
                        returned, timeout_ms = timeout, "consumer held messages too long"
                    );
                }
                let text = format!(
                    "delivery acknowledgement on channel {channel} timed out. Timeout value used: \
                     {timeout} ms. This timeout value can be configured, see consumers doc guide \
                     to learn more"
                );
                self.tell_consumer(queue, consumer, Item::TimedOut { consumer, code: 406, text });
            }
            Effect::ActiveChanged { .. } | Effect::LastConsumerGone => {}
            Effect::Expired => {
                if self.leading.is_some() {
                    desk.chore(Chore::DeleteQueue { queue, why: "idle too long" });
                }
            }
        }
    }

    /// Whether a consumer may be sent something new now.
    fn may_get(&self, consumer: ConsumerId) -> bool {
        let Some(leading) = &self.leading else { return false };
        let subscribed = self.machine.subscribed().get(&consumer).map(|one| (one.at, one.no_ack));
        let place = subscribed.or_else(|| self.leaving.get(&consumer).copied());
        place.is_some_and(|(at, no_ack)| no_ack || !leading.unattached.contains(&at))
    }

    /// What this turn tells a sender.
    fn notice(&mut self, queue: QueueId, sender: Sender) -> Option<&mut Notice> {
        let leading = self.leading.as_mut()?;
        let term = leading.term;
        Some(leading.notices.entry(sender).or_insert_with(|| Notice {
            queue,
            term,
            boot: sender.boot,
            upto: 0,
            expected: 0,
            items: Vec::new(),
        }))
    }

    fn tell(&mut self, queue: QueueId, sender: Sender, item: Item) {
        if let Some(notice) = self.notice(queue, sender) {
            notice.items.push(item);
        }
    }

    fn tell_consumer(&mut self, queue: QueueId, consumer: ConsumerId, item: Item) {
        if let Some(at) = self.machine.subscribed().get(&consumer).map(|one| one.at) {
            self.tell(queue, at, item);
        }
    }

    /// Takes what has to be told.
    pub(crate) fn take_notices(&mut self) -> BTreeMap<Sender, Notice> {
        self.leading
            .as_mut()
            .map(|leading| std::mem::take(&mut leading.notices))
            .unwrap_or_default()
    }

    /// Sends something, behind what waits already.
    fn send(&mut self, desk: &mut Desk, profile: &Profile, what: Outgoing) {
        let Some(leading) = &mut self.leading else { return };
        leading.outgoing.push_back(what);
        if leading.outgoing.len() == 1 {
            self.pump(desk, profile);
        }
    }

    /// Sends what waits, as far as its bodies are here.
    fn pump(&mut self, desk: &mut Desk, profile: &Profile) {
        loop {
            let Some(leading) = &mut self.leading else { return };
            let Some(front) = leading.outgoing.front() else { return };
            let message = match front.seq() {
                None => None,
                Some(seq) => match self.bodies.get(seq) {
                    Some(body) => Some(body.message.clone()),
                    None => return self.read(desk, profile),
                },
            };
            let Some(front) = leading.outgoing.pop_front() else { return };
            let seq = front.seq();
            self.send_now(profile, front, message);
            let Some(leading) = &mut self.leading else { return };
            if let Some(seq) = seq
                && leading.held.remove(&seq)
            {
                self.release(seq, seq);
            }
        }
    }

    fn send_now(&mut self, profile: &Profile, what: Outgoing, message: Option<Message>) {
        match (what, message) {
            (Outgoing::Attaching(sender, number), _) => {
                self.tell(profile.id, sender, Item::Attaching { number });
            }
            (Outgoing::Attached(sender, number), _) => {
                self.tell(profile.id, sender, Item::Attached { number });
            }
            (
                Outgoing::Deliver { consumer, seq, redelivered, delivery_count, again },
                Some(message),
            ) => {
                tracing::trace!(target: "walk", "deliver");
                let known = self.leaving.get(&consumer).copied();
                let Some((at, no_ack)) = known.or_else(|| self.machine.place_of(consumer)) else {
                    return;
                };
                if no_ack {
                    self.counters.delivered_no_ack += 1;
                } else {
                    self.counters.delivered += 1;
                }
                self.counters.redelivered += u64::from(redelivered);
                let message = counting(message, delivery_count);
                self.tell(
                    profile.id,
                    at,
                    Item::Deliver { consumer, seq, redelivered, again, message },
                );
            }
            (Outgoing::Got(got), Some(message)) => {
                let reply = Reply::Got {
                    seq: got.seq,
                    redelivered: got.redelivered,
                    message: counting(message, got.delivery_count),
                    remaining: got.remaining,
                };
                self.tell(profile.id, got.sender, Item::Reply { number: got.number, reply });
            }
            _ => {}
        }
    }

    /// A consumer is gone: what waits for it is not sent, unless it may have it already.
    fn forget(&mut self, consumer: ConsumerId) {
        let Some(leading) = &mut self.leading else { return };
        let holds = self.machine.place_of(consumer).is_some();
        let mut unsent = Vec::new();
        leading.outgoing.retain(|one| match one {
            Outgoing::Deliver { consumer: to, seq, again, .. }
                if *to == consumer && !(*again && holds) =>
            {
                unsent.push(*seq);
                false
            }
            _ => true,
        });
        let mut runs = Vec::new();
        let mut released = Vec::new();
        for seq in unsent {
            if leading.held.remove(&seq) {
                released.push(seq);
            } else {
                runs.push(Run { holder: Some(consumer), first: seq, last: seq });
            }
        }
        for seq in released {
            self.release(seq, seq);
        }
        if !runs.is_empty() {
            // Its client never saw them. If they have come back already, nothing happens.
            let outcome = Settlement::Client(amqp::request::Outcome::Return);
            self.own(Order::Settle { runs, outcome });
        }
    }

    /// Reads the bodies that are missing at the heads of what waits, and some behind them.
    fn read(&mut self, desk: &mut Desk, profile: &Profile) {
        let Some(leading) = &self.leading else { return };
        if self.reading.is_some() || self.reread.is_some() {
            return;
        }
        let containers = self.containers.lock();
        let mut places: Vec<(Seq, Place)> = Vec::new();
        let waiting = leading.outgoing.iter().filter_map(Outgoing::seq);
        let dead = leading.dead.iter().map(|(seq, _)| *seq);
        let ahead = self.machine.queue().oldest_ready().map_or(0..0, |next| {
            next.0..(next.0 + READ_MESSAGES as u64).min(self.machine.last().0 + 1)
        });
        let ahead = ahead.map(Seq).filter(|seq| self.machine.queue().head(*seq).is_some());
        for seq in waiting.chain(dead).chain(ahead) {
            if places.len() >= READ_MESSAGES {
                break;
            }
            if self.bodies.get(seq).is_none()
                && !self.wanted.has(seq)
                && let Some(place) = containers.place(seq)
            {
                places.push((seq, place));
            }
        }
        drop(containers);
        places.sort_unstable_by_key(|(_, place)| *place);
        places.dedup();
        if places.is_empty() {
            return;
        }
        self.reading = Some(places.clone());
        self.counters.disk_reads += places.len() as u64;
        desk.read_places(profile.id, self.stream, places, false);
    }

    /// Bodies have come from the journal; `None`: they cannot be read.
    pub(crate) fn on_read(
        &mut self,
        desk: &mut Desk,
        profile: &Profile,
        bodies: Vec<(Seq, Option<Message>)>,
    ) {
        let asked: BTreeMap<Seq, Place> = self.reading.take().into_iter().flatten().collect();
        if self.leading.is_none() {
            return;
        }
        let containers = self.containers.lock();
        let mut unreadable = BTreeSet::new();
        for (seq, message) in bodies {
            match message {
                Some(message) if self.bodies.get(seq).is_none() => {
                    self.bodies.insert(seq, Kept { message, journalled: true });
                }
                Some(_) => {}
                // It was carried elsewhere meanwhile, and is read again.
                None if containers.place(seq) != asked.get(&seq).copied() => {}
                None => {
                    unreadable.insert(seq);
                }
            }
        }
        drop(containers);
        if !unreadable.is_empty() && desk.journal.durable() < self.applied {
            // The others have it on their disks, and this one, which followed until now, not yet.
            self.reread = Some(Timestamp(desk.now.0 + REREAD));
            return;
        }
        self.want(desk, profile, unreadable);
        self.pump(desk, profile);
        self.pump_dead(desk, profile);
    }

    /// The log needs nothing up to `index` any more.
    pub(crate) fn purged(&mut self, desk: &Desk, queue: QueueId, index: u64) {
        self.containers.lock().purged(index);
        self.carry(desk, queue);
    }

    /// Messages are gone: from memory, and from their records.
    fn release(&mut self, first: Seq, last: Seq) {
        if let Some(leading) = &mut self.leading
            && !leading.outgoing.is_empty()
        {
            let waits: Vec<Seq> = leading
                .outgoing
                .iter()
                .filter_map(Outgoing::seq)
                .filter(|seq| (first..=last).contains(seq))
                .collect();
            if !waits.is_empty() {
                // Their bodies are needed once more; the rest goes now.
                leading.held.extend(&waits);
                let held: BTreeSet<Seq> = waits.into_iter().collect();
                for seq in (first.0..=last.0).map(Seq).filter(|seq| !held.contains(seq)) {
                    self.bodies.remove(seq);
                    self.containers.lock().release(seq, seq);
                }
                return;
            }
        }
        self.bodies.remove_range(first, last);
        self.containers.lock().release(first, last);
    }

    /// Records that the journal may forget.
    pub(crate) fn take_free(&mut self) -> Vec<Seq> {
        self.containers.lock().take_free()
    }

    /// The journal has synced up to `lsn`: bodies up to there may be dropped.
    pub(crate) fn synced(&mut self, lsn: journal::op::Lsn, keep: u64) {
        self.bodies.synced(lsn);
        self.bodies.evict(keep, self.machine.queue().oldest_ready().unwrap_or(Seq(u64::MAX)));
    }

    /// Reports to the desk what has changed since the last report.
    pub(crate) fn report(&mut self, desk: &mut Desk) {
        let before = std::mem::replace(&mut self.weighed, self.bodies.weight());
        desk.weight.follow(before, self.weighed);
        self.containers.lock().weigh(self.machine.queue().body_bytes());
        if self.leading.is_some() {
            desk.counted.add_difference(&self.counters, &self.reported);
        }
        self.reported = self.counters;
    }

    /// A node is connected with this start: earlier ones hold nothing any more.
    pub(crate) fn is_here(&mut self, start: Sender) {
        let earlier = |at: Sender| at.node == start.node && at.boot < start.boot;
        let may_hold = || self.is_busy() || self.machine.holders().any(|(at, _)| earlier(at));
        if self.leading.is_some() && may_hold() {
            self.own_behind(&Order::Restarted { start });
        }
    }

    /// Nodes that have consumers or hold messages here.
    pub(crate) fn nodes(&self) -> BTreeSet<NodeId> {
        self.machine.nodes()
    }
}

/// The name under which a body is carried to another record or node.
pub(crate) fn body_name(first: Seq, whole_record: bool) -> u64 {
    (first.0 << 1) | u64::from(whole_record)
}

fn named_body(name: u64) -> (Seq, bool) {
    (Seq(name >> 1), name & 1 == 1)
}

/// Adds `x-delivery-count` to a message that failed before.
fn counting(message: Message, delivery_count: u32) -> Message {
    if delivery_count == 0 {
        return message;
    }
    let count = AMQPValue::LongLongInt(i64::from(delivery_count));
    death::with_header(&message, "x-delivery-count", count)
}
