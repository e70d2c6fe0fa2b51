//! The replicated state of one quorum queue: the queue machine, and what makes orders of many nodes
//! take effect once.
//!
//! ```text
//!  entry of the log ─► ledger: new, repeat, gap ─► queue machine ─► outputs
//! ```
//!
//! Every member applies every entry and comes to the same state; the leader alone performs the
//! outputs, except that bodies are released everywhere. It is pure: time is the leader's stamp.
//!
//! Every publish of an entry gets a name, also one that is refused or comes a second time, so that
//! a name and its place in the log follow from each other.

mod state;

use std::collections::{BTreeMap, BTreeSet};

use amqp::request::{Flow, Outcome};
use bytes::Bytes;
use model::id::{ConnectionId, ConsumerId, NodeId, Seq};
use model::time::Timestamp;
use queue::command::{
    Arrival, Command, Outcome as QueueOutcome, Reply as QueueReply, Subscription,
};
use queue::effect::Effect;
use queue::queue::Queue;
use queue::settings::{Settings, Style};

use crate::replicated::notice::Reply;
use crate::replicated::numbered::{Ledger, Sender, Verdict};
use crate::replicated::order::{self, OWN, Order, Published, Run, Subscribed};
#[cfg(test)]
use crate::replicated::sim::rules::{self, Rule};
use crate::replicated::version::{self, Unreadable};
use crate::shard::command::{Consumed, Counts, Deleted, Settlement};

/// What an entry brings about, in order.
#[derive(Debug)]
pub(crate) enum Output {
    /// A publish got this name; the queue has taken it.
    Stored { seq: Seq, published: Published },
    /// A publish got this name and is not here: it was refused, or is here under another one.
    Dropped { seq: Seq },
    /// The queue machine's effects.
    Effect(Effect),
    /// The publisher is refused.
    Refused { sender: Sender, number: u64 },
    /// A question is answered.
    Reply { sender: Sender, number: u64, reply: Reply },
    /// A message for `basic.get`.
    Got(Got),
    /// What follows is all that the sender's consumers hold, and then what is new.
    Attaching { sender: Sender, number: u64 },
    /// A consumer that held this before may not have got it.
    Again { consumer: ConsumerId, seq: Seq, redelivered: bool, delivery_count: u32 },
    /// All of the sender's consumers have got what they hold once more; these are unknown here.
    Attached { sender: Sender, number: u64, unknown: Vec<ConsumerId> },
    /// A consumer is gone. Until then it was there, and settled nothing or not.
    Unsubscribed { consumer: ConsumerId, was: Option<(Sender, bool)> },
    /// Orders of a sender up to this number have been performed.
    Done { sender: Sender, upto: u64 },
    /// A number is missing.
    Gap { sender: Sender, expected: u64 },
}

/// A message that was taken by `basic.get`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) sender: Sender,
    pub(crate) number: u64,
    pub(crate) connection: ConnectionId,
    pub(crate) seq: Seq,
    pub(crate) redelivered: bool,
    pub(crate) delivery_count: u32,
    pub(crate) remaining: u64,
    pub(crate) no_ack: bool,
}

/// See the module head.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    /// The version in force.
    version: u8,
    /// The newest that this node knows.
    known: u8,
    queue: Queue,
    ledger: Ledger,
    /// The name of the last publish.
    last: Seq,
    /// The highest stamp: time never runs backwards here.
    stamp: Timestamp,
    /// No settings have come yet.
    is_new: bool,
    subscribed: BTreeMap<ConsumerId, Subscribed>,
    /// Cancelled consumers that still hold something, and whose they were.
    parted: BTreeMap<ConsumerId, (Sender, ConnectionId)>,
    /// What is held by `basic.get`.
    gets: BTreeMap<Seq, Got>,
    /// The buffer that the queue machine fills; empty between commands.
    effects: Vec<Effect>,
}

impl Machine {
    /// An empty queue, without settings yet: the first leader's first entry brings them.
    pub(crate) fn new(known: u8) -> Self {
        Self {
            version: version::FIRST,
            known,
            queue: Queue::new(Settings::new(Style::Quorum), Timestamp(0)),
            ledger: Ledger::default(),
            last: Seq(0),
            stamp: Timestamp(0),
            is_new: true,
            subscribed: BTreeMap::new(),
            parted: BTreeMap::new(),
            gets: BTreeMap::new(),
            effects: Vec::new(),
        }
    }

    /// The version in force.
    pub(crate) fn version(&self) -> u8 {
        self.version
    }

    /// The newest version that this node knows.
    pub(crate) fn known(&self) -> u8 {
        self.known
    }

    /// Whether no settings have come yet: nothing has happened to it.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// The queue machine, to look at.
    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The name of the last publish.
    pub(crate) fn last(&self) -> Seq {
        self.last
    }

    /// Subscriptions, in order.
    pub(crate) fn subscribed(&self) -> &BTreeMap<ConsumerId, Subscribed> {
        &self.subscribed
    }

    /// Where a consumer is, which may have been cancelled, and whether it settles nothing.
    pub(crate) fn place_of(&self, consumer: ConsumerId) -> Option<(Sender, bool)> {
        let subscribed = self.subscribed.get(&consumer).map(|one| (one.at, one.no_ack));
        subscribed.or_else(|| self.parted.get(&consumer).map(|(at, _)| (*at, false)))
    }

    /// Who has consumers or holds messages here: starts of nodes, and their connections.
    pub(crate) fn holders(&self) -> impl Iterator<Item = (Sender, ConnectionId)> + '_ {
        let consumers = self.subscribed.values().map(|one| (one.at, one.connection));
        let gets = self.gets.values().map(|got| (got.sender, got.connection));
        consumers.chain(self.parted.values().copied()).chain(gets)
    }

    /// Nodes that have consumers or hold messages here.
    pub(crate) fn nodes(&self) -> BTreeSet<NodeId> {
        self.holders().map(|(at, _)| at.node).collect()
    }

    /// Applies an entry. Returns the number of publishes in it.
    ///
    /// # Errors
    /// If it cannot be read: the member must stop. Nothing has changed.
    pub(crate) fn apply(
        &mut self,
        entry: Bytes,
        outputs: &mut Vec<Output>,
    ) -> Result<u32, Unreadable> {
        let (stamp, batches) = order::read_entry(entry, self.known)?;
        let mut decoded = Vec::with_capacity(batches.len());
        for mut batch in batches {
            let mut orders = Vec::with_capacity(batch.count as usize);
            let (sender, first) = (batch.sender, batch.first);
            while let Some(order) = batch.take() {
                let order = order?;
                if let Order::Version(next) = order {
                    version::check(next, self.known)?;
                }
                orders.push(order);
            }
            decoded.push((sender, first, orders));
        }
        self.stamp = self.stamp.max(stamp);
        #[cfg(test)]
        if rules::broken(Rule::NoClock) {
            self.stamp = rules::clock();
        }
        let before = self.last;
        for (sender, first, orders) in decoded {
            self.batch(sender, first, orders, outputs);
        }
        Ok(u32::try_from(self.last.0 - before.0).expect("an entry is small"))
    }

    fn batch(&mut self, sender: Sender, first: u64, orders: Vec<Order>, outputs: &mut Vec<Output>) {
        if sender == OWN {
            for order in orders {
                self.perform(sender, 0, order, outputs);
            }
            return;
        }
        let mut gap = None;
        for (number, order) in (first..).zip(orders) {
            let verdict = match gap {
                Some(expected) => Verdict::Gap { expected },
                None => self.ledger.take(sender, number),
            };
            match verdict {
                Verdict::New => self.perform(sender, number, order, outputs),
                Verdict::Repeat => self.repeat(sender, number, &order, outputs),
                Verdict::Gap { expected } => {
                    gap = Some(expected);
                    self.pass_over(&order, outputs);
                }
            }
        }
        outputs.push(Output::Done { sender, upto: self.ledger.last(sender) });
        if let Some(expected) = gap {
            outputs.push(Output::Gap { sender, expected });
        }
    }

    /// A publish that is not taken has a name all the same.
    fn pass_over(&mut self, order: &Order, outputs: &mut Vec<Output>) {
        if order.is_publish() {
            self.last = self.last.next();
            outputs.push(Output::Dropped { seq: self.last });
        }
    }

    /// An order that was performed before: whoever asked may not have had the answer.
    fn repeat(&mut self, sender: Sender, number: u64, order: &Order, outputs: &mut Vec<Output>) {
        self.pass_over(order, outputs);
        let reply = match order {
            Order::Attach { consumers } => {
                return self.attach(sender, number, consumers.clone(), outputs);
            }
            Order::Consume(subscribed) => {
                let stands = self.subscribed.contains_key(&subscribed.consumer);
                Reply::Consumed(if stands { Consumed::Done } else { Consumed::ExclusiveUse })
            }
            Order::Cancel { .. } => Reply::Cancelled(false),
            Order::Count => self.counted(),
            Order::Purge => Reply::Purged(0),
            Order::Delete { .. } => Reply::Deleted(Deleted::Done(0)),
            Order::Get { .. } => {
                let held = self.gets.values().find(|it| it.sender == sender && it.number == number);
                match held {
                    Some(got) => {
                        outputs.push(Output::Got(*got));
                        return;
                    }
                    None => Reply::Empty,
                }
            }
            _ => return,
        };
        outputs.push(Output::Reply { sender, number, reply });
    }

    fn perform(&mut self, sender: Sender, number: u64, order: Order, outputs: &mut Vec<Output>) {
        let reply = |outputs: &mut Vec<Output>, reply| {
            outputs.push(Output::Reply { sender, number, reply });
        };
        match order {
            Order::Publish(published) => self.publish(sender, number, published, outputs),
            Order::Settle { runs, outcome } => self.settle(sender, &runs, outcome, outputs),
            Order::Sent { consumer, messages, bytes } => {
                self.queue_does(Command::Sent { consumer, messages, bytes }, outputs);
            }
            Order::Grant { consumer, count } => {
                self.queue_does(Command::Grant { consumer, count }, outputs);
            }
            Order::Limit { consumer } => {
                self.queue_does(Command::Limit { consumer }, outputs);
            }
            Order::End { consumer } => {
                self.queue_does(Command::Cancel { consumer }, outputs);
            }
            Order::Gone { consumer } => self.gone(consumer, outputs),
            Order::Consume(subscribed) => {
                let consumed = self.consume(*subscribed, outputs);
                reply(outputs, Reply::Consumed(consumed));
            }
            Order::Cancel { consumer } => {
                self.queue_does(Command::Cancel { consumer }, outputs);
                let was = self.place_of(consumer);
                if let Some(one) = self.subscribed.remove(&consumer)
                    && self.queue.held_by(consumer) > 0
                {
                    self.parted.insert(consumer, (one.at, one.connection));
                }
                outputs.push(Output::Unsubscribed { consumer, was });
                reply(outputs, Reply::Cancelled(false));
            }
            Order::Get { connection, no_ack } => {
                self.get(sender, number, connection, no_ack, outputs);
            }
            Order::Left { connection } => {
                self.leave(|at, by| at == sender && by == connection, outputs);
            }
            Order::Count => reply(outputs, self.counted()),
            Order::Purge => {
                let count = match self.queue_does(Command::Purge, outputs) {
                    QueueReply::Count(count) => count,
                    _ => 0,
                };
                reply(outputs, Reply::Purged(count));
            }
            Order::Delete { if_unused, if_empty } => {
                let deleted =
                    match self.queue_does(Command::Delete { if_unused, if_empty }, outputs) {
                        QueueReply::Count(count) => Deleted::Done(count),
                        QueueReply::InUse => Deleted::InUse,
                        _ => Deleted::NotEmpty,
                    };
                reply(outputs, Reply::Deleted(deleted));
            }
            Order::Hello => self.hello(sender, outputs),
            Order::Attach { consumers } => self.attach(sender, number, consumers, outputs),
            Order::Nothing => {}
            Order::Configure(settings) => {
                // The leader encoded it with the version that all members know.
                if let Ok(settings) = Settings::decode(&settings) {
                    if self.is_new {
                        // It begins now, not when the member was made.
                        self.is_new = false;
                        self.queue = Queue::new(settings.clone(), self.stamp);
                    }
                    self.queue_does(Command::Configure(settings), outputs);
                }
            }
            Order::Touch => {
                self.queue_does(Command::Touch, outputs);
            }
            Order::Tick => {
                self.queue_does(Command::Tick, outputs);
            }
            Order::Restarted { start } => {
                self.leave(|at, _| at.node == start.node && at.boot < start.boot, outputs);
            }
            Order::Lost { node } => self.lose(node, outputs),
            // It never falls: two leaders may have proposed it.
            Order::Version(next) => self.version = self.version.max(next),
            Order::Bury { seqs } => {
                for seq in seqs {
                    self.queue_does(Command::Bury { seq }, outputs);
                }
            }
        }
    }

    fn queue_does(&mut self, command: Command, outputs: &mut Vec<Output>) -> QueueReply {
        let reply = self.queue.apply(self.stamp, command, &mut self.effects);
        outputs.extend(self.effects.drain(..).map(Output::Effect));
        reply
    }

    fn publish(
        &mut self,
        sender: Sender,
        number: u64,
        published: Published,
        outputs: &mut Vec<Output>,
    ) {
        self.last = self.last.next();
        let seq = self.last;
        let arrival = Arrival {
            seq,
            bytes: u32::try_from(published.message.body().len()).unwrap_or(u32::MAX),
            priority: published.priority,
            ttl: published.ttl,
        };
        let reply = self.queue.apply(self.stamp, Command::Enqueue(arrival), &mut self.effects);
        if reply == QueueReply::Rejected {
            outputs.push(Output::Dropped { seq });
            outputs.push(Output::Refused { sender, number });
        } else {
            outputs.push(Output::Stored { seq, published });
        }
        outputs.extend(self.effects.drain(..).map(Output::Effect));
    }

    fn settle(
        &mut self,
        sender: Sender,
        runs: &[Run],
        outcome: Settlement,
        outputs: &mut Vec<Output>,
    ) {
        let outcome = match outcome {
            Settlement::Client(Outcome::Accept) => QueueOutcome::Accept,
            Settlement::Client(Outcome::Return) => QueueOutcome::Return,
            Settlement::Client(Outcome::Retry) => QueueOutcome::Retry,
            Settlement::Client(Outcome::Discard) => QueueOutcome::Discard,
            Settlement::Lost => QueueOutcome::Lost,
        };
        for (index, run) in runs.iter().enumerate() {
            let more = index + 1 < runs.len();
            if run.holder.is_none() {
                self.settle_gets(sender, run, outcome, more, outputs);
                continue;
            }
            let command = Command::Settle {
                consumer: run.holder,
                first: run.first,
                last: run.last,
                outcome,
                more,
            };
            self.queue_does(command, outputs);
            if let Some(holder) = run.holder
                && !self.parted.is_empty()
                && self.queue.held_by(holder) == 0
            {
                self.parted.remove(&holder);
            }
        }
    }

    /// Settles what the sender got by `basic.get`: what was taken back from it meanwhile may be held
    /// by somebody else.
    fn settle_gets(
        &mut self,
        sender: Sender,
        run: &Run,
        outcome: QueueOutcome,
        more: bool,
        outputs: &mut Vec<Output>,
    ) {
        let held = self.gets.range(run.first..).take_while(|(seq, _)| **seq <= run.last);
        let is_theirs = |got: &Got| sender == OWN || got.sender == sender;
        let theirs: Vec<Seq> =
            held.filter(|(_, got)| is_theirs(got)).map(|(seq, _)| *seq).collect();
        for (index, &seq) in theirs.iter().enumerate() {
            self.gets.remove(&seq);
            let more = more || index + 1 < theirs.len();
            let (consumer, first, last) = (None, seq, seq);
            let command = Command::Settle { consumer, first, last, outcome, more };
            self.queue_does(command, outputs);
        }
        if theirs.is_empty() && !more {
            // The last of several: what was returned before goes out again now.
            let (consumer, first, last) = (None, Seq(1), Seq(0));
            self.queue_does(Command::Settle { consumer, first, last, outcome, more }, outputs);
        }
    }

    fn consume(&mut self, subscribed: Subscribed, outputs: &mut Vec<Output>) -> Consumed {
        let consumer = subscribed.consumer;
        let (prefetch, granted) = match subscribed.flow {
            Flow::Prefetch(count) => (count, false),
            Flow::Granted => (0, true),
        };
        let subscription = Subscription {
            consumer,
            prefetch,
            granted,
            no_ack: subscribed.no_ack,
            exclusive: subscribed.exclusive,
            priority: subscribed.priority,
            timeout: subscribed.timeout,
            window_bytes: subscribed.window,
        };
        let command = Command::Consume(subscription);
        let reply = self.queue.apply(self.stamp, command, &mut self.effects);
        if reply != QueueReply::ExclusiveUse {
            self.subscribed.insert(consumer, subscribed);
        }
        outputs.extend(self.effects.drain(..).map(Output::Effect));
        if reply == QueueReply::ExclusiveUse { Consumed::ExclusiveUse } else { Consumed::Done }
    }

    fn get(
        &mut self,
        sender: Sender,
        number: u64,
        connection: ConnectionId,
        no_ack: bool,
        outputs: &mut Vec<Output>,
    ) {
        let reply = self.queue.apply(self.stamp, Command::Get { no_ack }, &mut self.effects);
        match reply {
            QueueReply::Got { seq, redelivered, delivery_count, remaining } => {
                let got = Got {
                    sender,
                    number,
                    connection,
                    seq,
                    redelivered,
                    delivery_count,
                    remaining,
                    no_ack,
                };
                if !no_ack {
                    self.gets.insert(seq, got);
                }
                // Before the release of its body.
                outputs.push(Output::Got(got));
            }
            QueueReply::SingleActive => {
                outputs.push(Output::Reply { sender, number, reply: Reply::SingleActive });
            }
            _ => outputs.push(Output::Reply { sender, number, reply: Reply::Empty }),
        }
        outputs.extend(self.effects.drain(..).map(Output::Effect));
    }

    fn counted(&self) -> Reply {
        let consumers = self.subscribed.len() as u64;
        Reply::Counted(Counts { ready: self.queue.ready(), consumers })
    }

    fn gone(&mut self, consumer: ConsumerId, outputs: &mut Vec<Output>) {
        self.end(Command::Gone { consumer }, consumer, outputs);
    }

    /// A consumer is gone, and what it held comes back.
    fn end(&mut self, command: Command, consumer: ConsumerId, outputs: &mut Vec<Output>) {
        self.queue_does(command, outputs);
        let was = self.place_of(consumer);
        self.subscribed.remove(&consumer);
        self.parted.remove(&consumer);
        outputs.push(Output::Unsubscribed { consumer, was });
    }

    /// A node has started again: what its earlier starts held comes back.
    fn hello(&mut self, sender: Sender, outputs: &mut Vec<Output>) {
        self.leave(|at, _| at.node == sender.node && at.boot < sender.boot, outputs);
        self.ledger.forget_before(sender);
    }

    /// A node has been silent for too long: what its consumers hold comes back, and has not failed.
    fn lose(&mut self, node: NodeId, outputs: &mut Vec<Output>) {
        let consumers = self.consumers_of(|at, _| at.node == node);
        for consumer in consumers {
            self.end(Command::Unreachable { consumer }, consumer, outputs);
        }
        let held = self.gets.iter().filter(|(_, got)| got.sender.node == node);
        let runs: Vec<Run> =
            held.map(|(seq, _)| Run { holder: None, first: *seq, last: *seq }).collect();
        self.settle(OWN, &runs, Settlement::Client(Outcome::Return), outputs);
    }

    /// Consumers of these, also those that were cancelled and hold something still.
    fn consumers_of(&self, is_theirs: impl Fn(Sender, ConnectionId) -> bool) -> Vec<ConsumerId> {
        let subscribed =
            self.subscribed.iter().map(|(consumer, one)| (*consumer, (one.at, one.connection)));
        let parted = self.parted.iter().map(|(consumer, of)| (*consumer, *of));
        let theirs = subscribed.chain(parted).filter(|(_, (at, by))| is_theirs(*at, *by));
        let theirs: BTreeSet<ConsumerId> = theirs.map(|(consumer, _)| consumer).collect();
        theirs.into_iter().collect()
    }

    fn leave(&mut self, is_gone: impl Fn(Sender, ConnectionId) -> bool, outputs: &mut Vec<Output>) {
        let gone = self.consumers_of(&is_gone);
        for consumer in gone {
            self.gone(consumer, outputs);
        }
        let held: Vec<Seq> = self
            .gets
            .iter()
            .filter(|(_, got)| is_gone(got.sender, got.connection))
            .map(|(seq, _)| *seq)
            .collect();
        let runs: Vec<Run> =
            held.into_iter().map(|seq| Run { holder: None, first: seq, last: seq }).collect();
        self.settle(OWN, &runs, Settlement::Lost, outputs);
    }

    /// A node follows a new leader, which cannot know what the old one had sent.
    ///
    /// A consumer that was cancelled may lack something too: its node gives that back.
    fn attach(
        &mut self,
        sender: Sender,
        number: u64,
        consumers: Vec<ConsumerId>,
        outputs: &mut Vec<Output>,
    ) {
        outputs.push(Output::Attaching { sender, number });
        for consumer in self.consumers_of(|at, _| at == sender) {
            outputs.extend(self.queue.holdings(consumer).map(|held| Output::Again {
                consumer,
                seq: held.seq,
                redelivered: held.redelivered,
                delivery_count: held.delivery_count,
            }));
        }
        outputs.extend(
            self.gets.values().filter(|got| got.sender == sender).map(|got| Output::Got(*got)),
        );
        let unknown = consumers
            .into_iter()
            .filter(|consumer| !self.subscribed.contains_key(consumer))
            .collect();
        outputs.push(Output::Attached { sender, number, unknown });
        // What was on its way to them is gone with the leader or the connection, for good, and takes
        // no room in their windows any more.
        let forgotten = self.subscribed.values().filter(|one| one.at == sender && one.no_ack);
        for consumer in forgotten.map(|one| one.consumer).collect::<Vec<_>>() {
            let (messages, bytes) = (u32::MAX, u64::MAX);
            self.queue_does(Command::Sent { consumer, messages, bytes }, outputs);
        }
    }
}

#[cfg(test)]
mod tests;
