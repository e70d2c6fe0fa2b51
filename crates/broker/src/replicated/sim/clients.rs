//! Clients: connections that publish, consume, get and purge, and go as they please.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use amqp::mailbox::Mailbox;
use amqp::request::{Delivery, Event, Flow, Outcome, Unsettled};
use model::id::{ConnectionId, ConsumerId, QueueId, Seq};
use model::message::Message;
use quorum::sim::watch;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::book::{self, Name};
use super::node::Node;
use super::rng::Rng;
use super::world::World;
use crate::origin::{InFlight, Origin};
use crate::outlet::Outlet;
use crate::shard::command::{
    Arrival, Batch, Command, Consume, Consumed, Content, Done, Got, Settlement,
};

/// A connection to a node.
pub(super) struct Connection {
    node: Arc<Node>,
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

    pub(super) fn is_dead(&self) -> bool {
        *self.dead.borrow()
    }

    /// Publishes messages, with one batch.
    pub(super) fn publish(&self, world: &World, queue: QueueId, names: &[Name], length: u64) {
        let mut weight = 0;
        let commands = names.iter().map(|&name| {
            world.book.lock().published(name, queue, world.elapsed());
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
            Command::Publish(arrival)
        });
        let commands = commands.collect();
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

    /// Asks something; `None`: the node has died, or there was no answer for a long time.
    async fn ask<T>(&mut self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.post(0, vec![command(answer)]);
        tokio::select! {
            biased;
            _ = self.dead.wait_for(|dead| *dead) => None,
            answer = tokio::time::timeout(Duration::from_secs(40), answered) => answer.ok()?.ok(),
        }
    }

    pub(super) async fn consume(
        &mut self,
        queue: QueueId,
        consumer: ConsumerId,
        prefetch: u16,
        no_ack: bool,
    ) -> Option<Consumed> {
        let origin = Arc::clone(&self.origin);
        self.ask(|answer| {
            Command::Consume(Box::new(Consume {
                queue,
                consumer,
                origin,
                channel: 1,
                tag: "tag".into(),
                no_ack,
                exclusive: false,
                priority: 0,
                timeout: None,
                flow: Flow::Prefetch(prefetch),
                arguments: amq_protocol_types::FieldTable::default(),
                user: "guest".into(),
                answer,
            }))
        })
        .await
    }

    pub(super) fn settle(&self, queue: QueueId, unsettled: Vec<Unsettled>, outcome: Outcome) {
        let outcome = Settlement::Client(outcome);
        self.post(0, vec![Command::Settle { queue, unsettled, outcome }]);
    }

    pub(super) fn sent(&self, queue: QueueId, consumer: ConsumerId, messages: u32, bytes: u64) {
        self.post(0, vec![Command::Sent { queue, consumer, messages, bytes }]);
    }

    /// It ends without a word.
    pub(super) fn leave(self) {
        self.post(0, vec![Command::ConnectionGone { connection: self.origin.id }]);
    }
}

/// Whether clients shall stop.
pub(super) type Stop = watch::Receiver<bool>;

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
        let window = rng.between(1, 60) as usize;
        let pause = rng.between(5, 150);
        // Some publish as fast as they hear of confirms; most leave room for more seeds.
        let pace = *rng.pick(&[0, 5, 20, 60]).expect("there are some");
        let mut due = Instant::now();
        loop {
            if Instant::now() >= due
                && open.len() < window
                && !*stop.borrow()
                && Instant::now() < until
            {
                let burst = rng.between(1, 6);
                let names: Vec<Name> = (0..burst).map(|at| (publisher, next + at)).collect();
                next += burst;
                open.extend(names.iter().map(|name| name.1));
                let length = rng.between(0, 200);
                connection.publish(&world, queue, &names, length);
                due = Instant::now() + Duration::from_millis(pace);
            }
            match connection.wait(rng.millis(1, pause)).await {
                Happened::Died => break,
                Happened::Nothing => {}
                Happened::Events(events) => {
                    for event in events {
                        confirmed(&world, publisher, &mut open, event);
                    }
                }
            }
            // Some wait for their last confirms, others just go.
            let over = *stop.borrow() || Instant::now() >= until;
            if over && (open.is_empty() || rng.chance(2)) {
                break;
            }
        }
        if !connection.is_dead() {
            connection.leave();
        }
    }
}

fn confirmed(world: &World, publisher: u64, open: &mut BTreeSet<u64>, event: Event) {
    let Event::Confirmed { number, accepted, .. } = event else {
        return world.fail(format!("a publisher got {event:?}"));
    };
    open.remove(&number);
    world.answered((publisher, number), accepted);
}

/// What a consumer has.
struct Held {
    consumer: ConsumerId,
    /// What it has got and not settled.
    messages: BTreeMap<Seq, Name>,
    /// What it has accepted.
    accepted: BTreeSet<Seq>,
    /// The last message of each publisher that nobody had before.
    newest: BTreeMap<u64, u64>,
    settles: bool,
    cancelled: bool,
    /// What has come since it was last told to the queue.
    written: (u32, u64),
}

impl Held {
    fn new(consumer: ConsumerId) -> Self {
        Self {
            consumer,
            messages: BTreeMap::new(),
            accepted: BTreeSet::new(),
            newest: BTreeMap::new(),
            settles: true,
            cancelled: false,
            written: (0, 0),
        }
    }

    fn event(&mut self, world: &World, event: Event) {
        match event {
            Event::Deliver(delivery) => self.delivery(world, delivery),
            Event::ConsumerCancelled { .. } => self.cancelled = true,
            other => world.fail(format!("a consumer got {other:?}")),
        }
    }

    fn delivery(&mut self, world: &World, delivery: Delivery) {
        let Delivery { queue, seq, consumer, redelivered, message, .. } = delivery;
        if consumer != Some(self.consumer) {
            return;
        }
        self.written.0 += 1;
        self.written.1 += message.body().len() as u64;
        let Some(name) = world.delivered(queue, consumer, seq, &message, redelivered) else {
            return;
        };
        if self.accepted.contains(&seq) {
            world.fail(format!("{name:?} comes again to the consumer that has accepted it"));
        }
        if !redelivered
            && !world.book.lock().is_inherited_by(queue, seq)
            && let Some(last) = self.newest.insert(name.0, name.1)
            && last > name.1
        {
            world.fail(format!("{name:?} comes to a consumer after {last} of its publisher"));
        }
        if !self.settles {
            return;
        }
        if self.messages.insert(seq, name).is_some() {
            world.fail(format!("{name:?} comes again to the consumer that holds it"));
        }
    }

    /// Settles some of it.
    fn settle(
        &mut self,
        world: &World,
        to: &Connection,
        queue: QueueId,
        count: usize,
        how: Outcome,
    ) {
        let taken: Vec<Seq> = self.messages.keys().copied().take(count).collect();
        let mut unsettled = Vec::new();
        for seq in taken {
            let Some(name) = self.messages.remove(&seq) else { continue };
            if !matches!(how, Outcome::Return | Outcome::Retry) {
                let mut book = world.book.lock();
                if how == Outcome::Discard && world.heir(queue).is_some() {
                    book.discarded(name);
                } else {
                    book.settled(name);
                }
                drop(book);
                self.accepted.insert(seq);
            }
            unsettled.push(Unsettled { queue, seq, consumer: Some(self.consumer) });
        }
        if !unsettled.is_empty() {
            to.settle(queue, unsettled, how);
        }
    }

    /// Says what has been written to the socket.
    fn tell(&mut self, to: &Connection, queue: QueueId) {
        let (messages, bytes) = std::mem::take(&mut self.written);
        if messages > 0 {
            to.sent(queue, self.consumer, messages, bytes);
        }
    }
}

/// Consumes until it shall stop; accepts most, returns some, now and then goes or cancels.
pub(super) async fn consumer(world: Arc<World>, queue: QueueId, mut rng: Rng, stop: Stop) {
    while !*stop.borrow() {
        let Some(mut connection) = Connection::somewhere(&world, &mut rng) else {
            tokio::time::sleep(rng.millis(5, 100)).await;
            continue;
        };
        let prefetch = if rng.chance(10) { 0 } else { rng.between(1, 30) as u16 };
        let mut held = Held::new(connection.node.consumer());
        let subscribed = connection.consume(queue, held.consumer, prefetch, false).await;
        if subscribed != Some(Consumed::Done) {
            if subscribed.is_some() {
                world.fail(format!("a subscription is answered with {subscribed:?}"));
            }
            if !connection.is_dead() {
                connection.leave();
            }
            continue;
        }
        let until = Instant::now() + rng.millis(200, 8_000);
        let pause = rng.between(1, 60);
        loop {
            match connection.wait(rng.millis(1, pause)).await {
                Happened::Died => break,
                Happened::Nothing => {}
                Happened::Events(events) => {
                    for event in events {
                        held.event(&world, event);
                    }
                }
            }
            held.tell(&connection, queue);
            let how = match rng.below(20) {
                0 | 1 => Outcome::Return,
                2 => Outcome::Discard,
                3 | 4 if world.plan.limit > 0 => Outcome::Retry,
                _ => Outcome::Accept,
            };
            if rng.chance(70) {
                let count = rng.between(1, 10) as usize;
                held.settle(&world, &connection, queue, count, how);
            }
            if *stop.borrow() || held.cancelled || Instant::now() >= until {
                break;
            }
        }
        if connection.is_dead() {
            continue;
        }
        if rng.chance(30) {
            let consumer = held.consumer;
            let cancel = |answer| Command::Cancel { queue, consumer, answer };
            if connection.ask(cancel).await.is_some() {
                while let Happened::Events(events) = connection.wait(Duration::ZERO).await {
                    for event in events {
                        held.event(&world, event);
                    }
                }
                let all = held.messages.len();
                held.settle(&world, &connection, queue, all, Outcome::Accept);
                if rng.chance(50) {
                    // It has ended in good order, of which the queue hears nothing.
                    continue;
                }
            }
        }
        if !connection.is_dead() {
            connection.leave();
        }
    }
}

/// Consumes without settling anything, until it shall stop or somebody ends it.
pub(super) async fn careless(world: Arc<World>, queue: QueueId, mut rng: Rng, stop: Stop) {
    while !*stop.borrow() {
        let Some(mut connection) = Connection::somewhere(&world, &mut rng) else {
            tokio::time::sleep(rng.millis(5, 100)).await;
            continue;
        };
        let mut held = Held::new(connection.node.consumer());
        held.settles = false;
        world.book.lock().careless(held.consumer);
        let subscribed = connection.consume(queue, held.consumer, 0, true).await;
        let until = Instant::now() + rng.millis(100, 2_000);
        while subscribed == Some(Consumed::Done)
            && !*stop.borrow()
            && !held.cancelled
            && Instant::now() < until
        {
            match connection.wait(rng.millis(1, 60)).await {
                Happened::Died => break,
                Happened::Nothing => {}
                Happened::Events(events) => {
                    for event in events {
                        held.event(&world, event);
                    }
                }
            }
            held.tell(&connection, queue);
        }
        if !connection.is_dead() {
            connection.leave();
        }
        tokio::time::sleep(rng.millis(1, 1_000)).await;
    }
}

/// Gets one message at a time, and purges if it may.
pub(super) async fn getter(world: Arc<World>, queue: QueueId, mut rng: Rng, stop: Stop) {
    while !*stop.borrow() {
        let Some(mut connection) = Connection::somewhere(&world, &mut rng) else {
            tokio::time::sleep(rng.millis(5, 100)).await;
            continue;
        };
        for _ in 0..rng.between(1, 20) {
            tokio::time::sleep(rng.millis(1, 200)).await;
            if *stop.borrow() || connection.is_dead() {
                break;
            }
            if world.plan.purges && rng.chance(5) {
                // Until it is answered it may happen at any time, and without an answer for ever.
                world.book.lock().purged(queue, u64::MAX);
                connection.ask(|answer| Command::Purge { queue, answer }).await;
                continue;
            }
            let origin = connection.origin.id;
            let get = |answer| Command::Get { queue, connection: origin, no_ack: false, answer };
            match connection.ask(get).await {
                Some(Got::Message { seq, redelivered, message, .. }) => {
                    let Some(name) = world.delivered(queue, None, seq, &message, redelivered)
                    else {
                        continue;
                    };
                    let how = if rng.chance(20) { Outcome::Return } else { Outcome::Accept };
                    if how == Outcome::Accept {
                        world.book.lock().settled(name);
                    }
                    connection.settle(queue, vec![Unsettled { queue, seq, consumer: None }], how);
                }
                Some(Got::Empty) | None => {}
                Some(other) => world.fail(format!("a get is answered with {other:?}")),
            }
        }
        if !connection.is_dead() {
            connection.leave();
        }
    }
}

/// Publishes one message by a node and waits for its confirm, which may come late.
pub(super) async fn proves_to_serve(world: &World, node: &Arc<Node>, queue: QueueId) -> bool {
    let mut connection = Connection::new(Arc::clone(node));
    let publisher = world.book.lock().publisher();
    let mut confirmed = false;
    // While there is no leader publishes are refused after a time.
    for number in 1.. {
        connection.publish(world, queue, &[(publisher, number)], 10);
        let answer = match connection.wait(Duration::from_secs(30)).await {
            Happened::Events(events) => events,
            Happened::Nothing => {
                world.fail(format!("queue {queue}, node {}: no answer", node.me.node));
                return false;
            }
            Happened::Died => return false,
        };
        for event in answer {
            if let Event::Confirmed { accepted, number, .. } = event {
                world.answered((publisher, number), accepted);
                confirmed |= accepted;
            }
        }
        if confirmed || number > 20 {
            break;
        }
    }
    connection.leave();
    confirmed
}

/// Takes everything that a queue has. Nothing may happen for `patience` at most.
pub(super) async fn drain(world: &World, node: &Arc<Node>, queue: QueueId, patience: Duration) {
    let mut connection = Connection::new(Arc::clone(node));
    let mut held = Held::new(connection.node.consumer());
    let subscribed = connection.consume(queue, held.consumer, 100, false).await;
    if subscribed != Some(Consumed::Done) {
        return world.fail(format!("queue {queue}: a late subscription got {subscribed:?}"));
    }
    let (mut least, mut until) = (u64::MAX, Instant::now() + patience);
    loop {
        let left = world.book.lock().left(queue);
        if left < least {
            (least, until) = (left, Instant::now() + patience);
        }
        if left == 0 || Instant::now() > until {
            break;
        }
        if let Happened::Events(events) = connection.wait(Duration::from_millis(100)).await {
            for event in events {
                held.event(world, event);
            }
        }
        if held.cancelled {
            return world.fail(format!("queue {queue}: the last consumer is cancelled"));
        }
        for name in held.messages.values() {
            world.book.lock().taken(*name);
        }
        held.tell(&connection, queue);
        let all = held.messages.len();
        held.settle(world, &connection, queue, all, Outcome::Accept);
    }
    let left = world.book.lock().left(queue);
    if left > 0 {
        let book = world.book.lock();
        let how = book.describe(queue);
        drop(book);
        world.fail(format!("queue {queue} is stuck with {left} messages: {how}"));
    }
    connection.leave();
}
