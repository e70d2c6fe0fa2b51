//! Clients: connections to any node that publish and consume, and go as they please.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use amqp::mailbox::Mailbox;
use amqp::request::{Event, Flow, Outcome, Unsettled};
use model::id::{ConnectionId, ConsumerId, NodeId, QueueId};
use model::message::Message;
use quorum::sim::watch;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::book::{self, Name};
use super::node::Node;
use super::world::World;
use crate::origin::{InFlight, Origin};
use crate::outlet::Outlet;
use crate::replicated::sim::rng::Rng;
use crate::shard::command::{
    Arrival, Batch, Command, Consume, Consumed, Content, Done, Settlement,
};

/// Whether clients shall stop.
pub(super) type Stop = watch::Receiver<bool>;

/// A connection to a node.
pub(super) struct Connection {
    pub(super) node: Arc<Node>,
    origin: Arc<Origin>,
    mailbox: Mailbox,
    dead: watch::Receiver<bool>,
}

/// What happened to a connection.
pub(super) enum Happened {
    Events(Vec<Event>),
    /// Nothing, for as long as was waited.
    Nothing,
    /// Its node has died.
    Died,
}

impl Connection {
    pub(super) fn new(node: Arc<Node>) -> Self {
        let mailbox = Mailbox::new();
        let origin = Arc::new(Origin {
            id: ConnectionId(node.name()),
            outlet: Outlet::new(mailbox.clone()),
            totals: Arc::default(),
            in_flight: InFlight::default(),
        });
        let dead = node.dead.subscribe();
        Self { node, origin, mailbox, dead }
    }

    /// To a node that is there, or `None`.
    fn somewhere(world: &World, rng: &mut Rng) -> Option<Self> {
        rng.pick(&world.alive()).map(|node| Self::new(Arc::clone(node)))
    }

    fn post(&self, bytes: usize, commands: Vec<Command>) {
        let origin = Some(Arc::clone(&self.origin));
        self.node.shards.inbox(0).post(Batch { origin, bytes, commands });
    }

    fn is_dead(&self) -> bool {
        *self.dead.borrow()
    }

    /// Publishes messages, with one batch.
    pub(super) fn publish(&self, world: &World, queue: QueueId, names: &[Name], length: u64) {
        let mut weight = 0;
        let mut commands = Vec::with_capacity(names.len());
        for &name in names {
            world.book.lock().published(name, queue);
            let message = Message::from_parts("", "q", &[0, 0], &book::body(name, length));
            let arrival = Arrival {
                queue,
                content: Content::Own(message),
                persistent: true,
                priority: None,
                ttl: None,
                done: Done::Confirm { channel: 1, number: name.1 },
            };
            weight += arrival.weight();
            commands.push(Command::Publish(arrival));
        }
        self.origin.in_flight.add(weight);
        self.post(weight, commands);
    }

    pub(super) async fn wait(&mut self, most: Duration) -> Happened {
        let mailbox = self.mailbox.clone();
        tokio::select! {
            biased;
            _ = self.dead.wait_for(|dead| *dead) => Happened::Died,
            events = mailbox.next() => Happened::Events(events),
            () = tokio::time::sleep(most) => Happened::Nothing,
        }
    }

    pub(super) async fn consume(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        prefetch: u16,
    ) -> Option<Consumed> {
        let (answer, answered) = oneshot::channel();
        let consume = Consume {
            queue,
            consumer,
            origin: Arc::clone(&self.origin),
            channel: 1,
            tag: "tag".into(),
            no_ack: false,
            exclusive: false,
            priority: 0,
            timeout: None,
            flow: Flow::Prefetch(prefetch),
            arguments: amq_protocol_types::FieldTable::default(),
            user: "guest".into(),
            answer,
        };
        self.post(0, vec![Command::Consume(Box::new(consume))]);
        tokio::select! {
            biased;
            _ = self.dead.wait_for(|dead| *dead) => None,
            answer = tokio::time::timeout(Duration::from_secs(40), answered) => answer.ok()?.ok(),
        }
    }

    /// Takes what has come; gives what is to be settled.
    pub(super) fn take(
        &self,
        world: &World,
        queue: QueueId,
        consumer: ConsumerId,
        events: Vec<Event>,
        last: bool,
    ) -> Result<Vec<(Unsettled, Name)>, ()> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        for event in events {
            match event {
                Event::Deliver(delivery) => {
                    bytes += delivery.message.body().len() as u64;
                    let Some(name) = world.on_delivered(queue, &delivery.message, last) else {
                        return Err(());
                    };
                    let seq = delivery.seq;
                    taken.push((Unsettled { queue, seq, consumer: delivery.consumer }, name));
                }
                Event::ConsumerCancelled { .. } => return Err(()),
                other => world.fail(format!("a consumer got {other:?}")),
            }
        }
        if !taken.is_empty() {
            let messages = u32::try_from(taken.len()).expect("they are few");
            self.post(0, vec![Command::Sent { queue, consumer, messages, bytes }]);
        }
        Ok(taken)
    }

    pub(super) fn settle(&self, queue: QueueId, unsettled: Vec<Unsettled>, outcome: Outcome) {
        let outcome = Settlement::Client(outcome);
        self.post(0, vec![Command::Settle { queue, unsettled, outcome }]);
    }

    /// It ends without a word.
    pub(super) fn leave(self) {
        if !self.is_dead() {
            self.post(0, vec![Command::ConnectionGone { connection: self.origin.id }]);
        }
    }
}

/// Publishes until it shall stop, now from this node, now from that one.
pub(super) async fn publisher(world: Arc<World>, queue: QueueId, mut rng: Rng, stop: Stop) {
    while !*stop.borrow() {
        let Some(mut connection) = Connection::somewhere(&world, &mut rng) else {
            tokio::time::sleep(rng.millis(5, 100)).await;
            continue;
        };
        let publisher = world.book.lock().publisher();
        let (mut next, mut open) = (1, BTreeSet::new());
        let until = Instant::now() + rng.millis(500, 6_000);
        let window = rng.between(1, 40) as usize;
        let pace = *rng.pick(&[5, 20, 60]).expect("there are some");
        let mut due = Instant::now();
        loop {
            let goes_on = !*stop.borrow() && Instant::now() < until;
            if goes_on && Instant::now() >= due && open.len() < window {
                let burst = rng.between(1, 5);
                let names: Vec<Name> = (0..burst).map(|at| (publisher, next + at)).collect();
                next += burst;
                open.extend(names.iter().map(|name| name.1));
                connection.publish(&world, queue, &names, rng.between(0, 200));
                due = Instant::now() + Duration::from_millis(pace);
            }
            match connection.wait(Duration::from_millis(pace)).await {
                Happened::Died => break,
                Happened::Nothing => {}
                Happened::Events(events) => heard(&world, publisher, &mut open, events),
            }
            // Some wait for their last confirms, others just go.
            if !goes_on && (open.is_empty() || rng.chance(2)) {
                break;
            }
        }
        connection.leave();
    }
}

pub(super) fn heard(world: &World, publisher: u64, open: &mut BTreeSet<u64>, events: Vec<Event>) {
    for event in events {
        let Event::Confirmed { number, accepted, .. } = event else {
            return world.fail(format!("a publisher got {event:?}"));
        };
        open.remove(&number);
        world.on_confirm((publisher, number), accepted);
    }
}

/// Consumes until it shall stop; accepts most, returns some, now and then goes.
pub(super) async fn consumer(world: Arc<World>, queue: QueueId, mut rng: Rng, stop: Stop) {
    while !*stop.borrow() {
        let Some(mut connection) = Connection::somewhere(&world, &mut rng) else {
            tokio::time::sleep(rng.millis(5, 100)).await;
            continue;
        };
        let consumer = connection.node.consumer();
        let prefetch = rng.between(1, 20) as u16;
        let subscribed = connection.consume(queue, consumer, prefetch).await;
        let until = Instant::now() + rng.millis(200, 6_000);
        let mut held = Vec::new();
        while subscribed == Some(Consumed::Done) && !*stop.borrow() && Instant::now() < until {
            match connection.wait(rng.millis(1, 60)).await {
                Happened::Died => break,
                Happened::Nothing => {}
                Happened::Events(events) => {
                    match connection.take(&world, queue, consumer, events, false) {
                        Ok(taken) => held.extend(taken),
                        Err(()) => break,
                    }
                }
            }
            if held.is_empty() || rng.chance(30) || connection.is_dead() {
                continue;
            }
            let outcome = if rng.chance(15) { Outcome::Return } else { Outcome::Accept };
            let count = (rng.between(1, 8) as usize).min(held.len());
            let mut unsettled = Vec::new();
            for (one, name) in held.drain(..count) {
                if outcome == Outcome::Accept {
                    world.book.lock().settled(name);
                }
                unsettled.push(one);
            }
            connection.settle(queue, unsettled, outcome);
        }
        connection.leave();
        tokio::time::sleep(rng.millis(1, 300)).await;
    }
}

/// Whether a queue takes a message by a node and confirms it, within a time. The node may start again
/// meanwhile.
pub(super) async fn proves_to_serve(
    world: &World,
    node: NodeId,
    queue: QueueId,
    time: Duration,
) -> bool {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if let Some(node) = world.node(node) {
            if proves_until(world, node, queue, until).await {
                return true;
            }
        } else {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    false
}

async fn proves_until(world: &World, node: Arc<Node>, queue: QueueId, until: Instant) -> bool {
    let mut connection = Connection::new(node);
    let publisher = world.book.lock().publisher();
    let (mut open, mut number) = (BTreeSet::new(), 0);
    while Instant::now() < until {
        if open.is_empty() {
            number += 1;
            open.insert(number);
            connection.publish(world, queue, &[(publisher, number)], 10);
        }
        let left = until.saturating_duration_since(Instant::now());
        match connection.wait(left).await {
            Happened::Died => return false,
            Happened::Nothing => break,
            Happened::Events(events) => {
                let before = world.book.lock().tally.confirmed;
                heard(world, publisher, &mut open, events);
                if world.book.lock().tally.confirmed > before {
                    connection.leave();
                    return true;
                }
            }
        }
    }
    connection.leave();
    false
}

/// Takes everything that a queue has. Nothing may happen for `patience` at most.
pub(super) async fn drain(world: &World, node: &Arc<Node>, queue: QueueId, patience: Duration) {
    let mut connection = Connection::new(Arc::clone(node));
    let consumer = connection.node.consumer();
    let subscribed = connection.consume(queue, consumer, 100).await;
    if subscribed != Some(Consumed::Done) {
        return world.fail(format!("queue {queue}: a late subscription got {subscribed:?}"));
    }
    let (mut least, mut until) = (usize::MAX, Instant::now() + patience);
    loop {
        let left = world.book.lock().left(queue).len();
        if left < least {
            (least, until) = (left, Instant::now() + patience);
        }
        if left == 0 || Instant::now() > until {
            break;
        }
        if let Happened::Events(events) = connection.wait(Duration::from_millis(100)).await {
            let Ok(taken) = connection.take(world, queue, consumer, events, true) else {
                return world.fail(format!("queue {queue}: the last consumer is cancelled"));
            };
            let unsettled = taken.into_iter().map(|(one, _)| one).collect();
            connection.settle(queue, unsettled, Outcome::Accept);
        }
    }
    let book = world.book.lock();
    let left = book.left(queue);
    if let Some(name) = left.first() {
        let how = book.describe();
        let count = left.len();
        drop(book);
        world.fail(format!(
            "{count} confirmed messages of queue {queue} are missing: {name:?} …; {how}"
        ));
    }
    connection.leave();
}
