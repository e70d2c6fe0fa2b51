//! Runs of which every step is given: what storms have found, at its shortest.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use amqp::request::Outcome;
use model::id::NodeId;
use tokio::time::Instant;

use super::clients::{self, Connection, Happened};
use super::disk::Speed;
use super::node::Node;
use super::plan::Plan;
use super::trap::Point;
use super::world::{Death, PAIR, World};
use super::{HEALING, begin, run_script};
use crate::replicated::sim::rng::Rng;
use crate::shard::command::Consumed;

const WITNESS: NodeId = NodeId(3);

/// A consumer has a message that was not durable when the pair lost power, and then acknowledges it:
/// a message that came since must not go for it.
#[test]
fn an_acknowledgement_of_what_was_lost_settles_nothing_else() {
    let outcome = run_script(Plan::quiet(), |world| async move {
        begin(&world, &mut Rng::new(1));
        let queue = world.queues()[0];
        assert!(clients::proves_to_serve(&world, WITNESS, queue, HEALING).await);
        let witness = world.node(WITNESS).expect("it is there");
        clients::drain(&world, &witness, queue, HEALING).await;
        let mut consumer = Connection::new(Arc::clone(&witness));
        let id = witness.consumer();
        assert_eq!(consumer.consume(queue, id, 10).await, Some(Consumed::Done));
        for drive in world.drives() {
            drive.set_speed(Speed { least: 60_000, most: 60_000 });
        }
        let lost = Connection::new(world.node(PAIR[1]).expect("it is there"));
        lost.publish(&world, queue, &[(900, 1)], 0);
        let held = delivered(&world, &mut consumer, queue, id).await;
        for node in PAIR {
            world.end_node(node, Death::Power);
        }
        for drive in world.drives() {
            drive.set_speed(Speed { least: 1, most: 1 });
        }
        for node in PAIR {
            world.boot(node);
        }
        // The consumer's connection takes nothing more, so that what comes now waits for it.
        let mut publisher = Connection::new(witness);
        // While nobody serves they are refused.
        for number in 1..50 {
            publisher.publish(&world, queue, &[(901, number)], 0);
            let mut open = BTreeSet::from([number]);
            if let Happened::Events(events) = publisher.wait(HEALING).await {
                clients::heard(&world, 901, &mut open, events);
            }
            if world.book.lock().tally.confirmed == 2 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        consumer.settle(queue, held, Outcome::Accept);
        tokio::time::sleep(Duration::from_secs(1)).await;
        consumer.leave();
        let node = world.node(PAIR[0]).expect("it is there");
        clients::drain(&world, &node, queue, HEALING).await;
        0
    });
    assert_eq!(outcome.failure, None);
    assert_eq!(outcome.tally.confirmed, 2, "the first one proved that the queue is served");
}

/// The disk of the active node hangs, without an error: the other one, which finishes what it gets, serves.
#[test]
fn the_disk_of_the_active_node_hangs() {
    let outcome = run_script(Plan::quiet(), |world| async move {
        begin(&world, &mut Rng::new(1));
        let queue = world.queues()[0];
        assert!(clients::proves_to_serve(&world, WITNESS, queue, HEALING).await);
        while world.book.lock().tally.synced == 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // The first confirm that both have given.
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(clients::proves_to_serve(&world, WITNESS, queue, HEALING).await);
        let served = world.book.lock().tally.served;
        let hang = Speed { least: 600_000, most: 600_000 };
        world.drive(PAIR[0]).set_speed(hang);
        let since = Instant::now();
        assert!(clients::proves_to_serve(&world, WITNESS, queue, HEALING).await);
        // The time-out of the replica, the lease, and what it takes to begin.
        let most = world.plan.settings.replica_timeout + world.plan.settings.lease;
        let took = since.elapsed();
        assert!(took <= most + Duration::from_secs(1), "{took:?}");
        assert_eq!(world.book.lock().tally.served, served + 1);
        0
    });
    assert_eq!(outcome.failure, None);
}

/// A journal of which both copies are in sync.
async fn in_sync(world: &Arc<World>) {
    begin(world, &mut Rng::new(1));
    let queue = world.queues()[0];
    assert!(clients::proves_to_serve(world, WITNESS, queue, HEALING).await);
    while world.book.lock().tally.synced == 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The first confirm that both have given.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(clients::proves_to_serve(world, WITNESS, queue, HEALING).await);
}

async fn hangs(world: &World, node: NodeId) {
    let is_hung = async {
        while !world.node(node).is_some_and(|node| node.owner.is_hung()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(HEALING, is_hung).await.expect("it comes there");
}

/// A disk hangs where the lock is held and nothing is confirmed: the other copy is as good.
async fn the_other_serves(world: &Arc<World>, hung: NodeId, patience: Duration) {
    let (queue, served) = (world.queues()[0], world.book.lock().tally.served);
    let since = Instant::now();
    assert!(clients::proves_to_serve(world, WITNESS, queue, HEALING).await);
    // The lease, and what it takes to begin.
    let most = patience + world.plan.settings.lease;
    let took = since.elapsed();
    assert!(took <= most + Duration::from_secs(1), "{took:?}");
    assert_eq!(world.book.lock().tally.served, served + 1);
    // When the disk goes on it is a copy of that one.
    let synced = world.book.lock().tally.synced;
    world.node(hung).expect("it is there").owner.go_on();
    let is_copied = async {
        while world.book.lock().tally.synced == synced {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(HEALING, is_copied).await.expect("it is copied");
    assert!(clients::proves_to_serve(world, WITNESS, queue, HEALING).await);
}

/// Whoever takes over claims the age, and cannot write it; or it cannot open its journal.
#[test]
fn the_disk_of_who_takes_over_hangs() {
    for (point, still) in [(Point::File, 0), (Point::Lock, 10)] {
        let outcome = run_script(Plan::quiet(), |world| async move {
            in_sync(&world).await;
            *world.hangs_at.lock() = Some((PAIR[1], point));
            world.end_node(PAIR[0], Death::Kill);
            hangs(&world, PAIR[1]).await;
            world.boot(PAIR[0]);
            let patience = world.plan.settings.replica_timeout.max(Duration::from_secs(still));
            the_other_serves(&world, PAIR[1], patience).await;
            0
        });
        assert_eq!(outcome.failure, None, "{point:?}");
    }
}

/// Whoever hands over cannot close its journal.
#[test]
fn the_disk_of_who_hands_over_hangs() {
    let outcome = run_script(Plan::quiet(), |world| async move {
        in_sync(&world).await;
        *world.hangs_at.lock() = Some((PAIR[0], Point::HandingOver));
        let node = world.node(PAIR[0]).expect("it is there");
        let pairs = Arc::clone(&node.pairs);
        tokio::spawn(async move { pairs.hand_over_all().await });
        hangs(&world, PAIR[0]).await;
        the_other_serves(&world, PAIR[0], world.plan.settings.replica_timeout).await;
        0
    });
    assert_eq!(outcome.failure, None);
}

/// A disk hangs for less than a lease: the lock is given back, and it is the other one who takes it.
#[test]
fn a_disk_that_hangs_for_a_short_time_loses_the_journal_all_the_same() {
    let mut plan = Plan::quiet();
    plan.settings.replica_timeout = Duration::from_millis(300);
    plan.settings.lease = Duration::from_millis(2_000);
    let outcome = run_script(plan, |world| async move {
        in_sync(&world).await;
        let (queue, served) = (world.queues()[0], world.book.lock().tally.served);
        let usual = world.plan.disk;
        let (drive, node) = (world.drive(PAIR[0]), world.node(PAIR[0]).expect("it is there"));
        drive.set_speed(Speed { least: 1_000, most: 1_000 });
        // Nor can it close its journal: the other one finds the lock taken, and waits.
        node.owner.hang();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(1_000)).await;
            drive.set_speed(usual);
            node.owner.go_on();
        });
        assert!(clients::proves_to_serve(&world, WITNESS, queue, HEALING).await);
        assert_eq!(world.book.lock().tally.served, served + 1);
        assert_eq!(world.book.lock().is_active(PAIR[1]), Ok(()));
        0
    });
    assert_eq!(outcome.failure, None);
}

/// Publishes of which all together are more than a disk without room for another segment takes.
struct Flood {
    connection: Connection,
    open: BTreeSet<u64>,
}

impl Flood {
    const PUBLISHER: u64 = 900;

    fn begin(world: &World, queue: model::id::QueueId) -> Self {
        let connection = Connection::new(world.node(WITNESS).expect("it is there"));
        let open: BTreeSet<u64> = (1..=60).collect();
        for number in &open {
            connection.publish(world, queue, &[(Self::PUBLISHER, *number)], 100_000);
        }
        Self { connection, open }
    }

    /// Waits until all are answered, or nothing happens for so long.
    async fn answered(&mut self, world: &World, patience: Duration) {
        while !self.open.is_empty()
            && let Happened::Events(events) = self.connection.wait(patience).await
        {
            clients::heard(world, Self::PUBLISHER, &mut self.open, events);
        }
    }
}

/// From now on the disk has no room but in the files that it has.
fn fill(world: &World, node: NodeId) {
    let disk = &world.drive(node).disk;
    disk.set_capacity(disk.used());
}

/// The copy of a node comes to be in sync, and no node has stopped on the way.
async fn comes_back(world: &World, synced: u64, nodes: &[Arc<Node>]) {
    let is_copied = async {
        while world.book.lock().tally.synced == synced {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(HEALING, is_copied).await.expect("it is copied");
    assert!(clients::proves_to_serve(world, WITNESS, world.queues()[0], HEALING).await);
    for node in nodes {
        assert_eq!(*node.failed.borrow(), None);
        assert!(world.is_alive(node.me), "it has not been started again");
    }
}

/// The backup has no room: it falls out, everybody goes on, and it comes back when there is some.
#[test]
fn a_backup_without_room_is_a_backup_again_later() {
    let mut plan = Plan::quiet();
    plan.settings.replica_timeout = Duration::from_millis(300);
    let outcome = run_script(plan, |world| async move {
        in_sync(&world).await;
        let nodes = PAIR.map(|node| world.node(node).expect("it is there"));
        let synced = world.book.lock().tally.synced;
        fill(&world, PAIR[1]);
        let mut flood = Flood::begin(&world, world.queues()[0]);
        flood.answered(&world, HEALING).await;
        assert!(flood.open.is_empty(), "the active node goes on alone");
        // It tries in vain, some times.
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(world.book.lock().tally.synced, synced);
        assert_eq!(world.book.lock().is_active(PAIR[0]), Ok(()));
        world.drive(PAIR[1]).disk.set_capacity(u64::MAX);
        comes_back(&world, synced, &nodes).await;
        0
    });
    assert_eq!(outcome.failure, None);
}

/// The active node has no room: the other copy has some, and is served.
#[test]
fn an_active_node_without_room_hands_over_and_lives() {
    let mut plan = Plan::quiet();
    plan.settings.replica_timeout = Duration::from_millis(300);
    let outcome = run_script(plan, |world| async move {
        in_sync(&world).await;
        let nodes = PAIR.map(|node| world.node(node).expect("it is there"));
        let synced = world.book.lock().tally.synced;
        fill(&world, PAIR[0]);
        let mut flood = Flood::begin(&world, world.queues()[0]);
        flood.answered(&world, HEALING).await;
        assert!(clients::proves_to_serve(&world, WITNESS, world.queues()[0], HEALING).await);
        assert_eq!(world.book.lock().is_active(PAIR[1]), Ok(()));
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(world.book.lock().tally.synced, synced);
        world.drive(PAIR[0]).disk.set_capacity(u64::MAX);
        comes_back(&world, synced, &nodes).await;
        0
    });
    assert_eq!(outcome.failure, None);
}

/// There is one copy, and no room: who publishes is blocked and not refused, and who consumes goes on
/// and makes some.
#[test]
fn consumers_go_on_where_there_is_no_room() {
    let outcome = run_script(Plan::quiet(), |world| async move {
        in_sync(&world).await;
        let queue = world.queues()[0];
        world.end_node(PAIR[1], Death::Kill);
        assert!(clients::proves_to_serve(&world, WITNESS, queue, HEALING).await);
        let node = world.node(PAIR[0]).expect("it is there");
        fill(&world, PAIR[0]);
        let before = world.book.lock().tally.confirmed;
        let mut flood = Flood::begin(&world, queue);
        flood.answered(&world, Duration::from_secs(30)).await;
        assert!(!flood.open.is_empty() && node.pressure.alarms().disk);
        let mut consumer = Connection::new(world.node(WITNESS).expect("it is there"));
        let id = consumer.node.consumer();
        assert_eq!(consumer.consume(queue, id, 10).await, Some(Consumed::Done));
        let until = Instant::now() + HEALING;
        while !flood.open.is_empty() {
            assert!(Instant::now() < until, "{} wait in vain", flood.open.len());
            if let Happened::Events(events) = consumer.wait(Duration::from_millis(10)).await {
                let taken = consumer.take(&world, queue, id, events, false);
                let taken = taken.expect("it is not cancelled").into_iter();
                consumer.settle(queue, taken.map(|(one, _)| one).collect(), Outcome::Accept);
            }
            flood.answered(&world, Duration::from_millis(1)).await;
        }
        consumer.leave();
        assert_eq!(world.book.lock().tally.confirmed, before + 60, "none was refused");
        // It has been made by those who have taken what was there.
        assert!(!node.pressure.is_on());
        assert_eq!(*node.failed.borrow(), None);
        world.drive(PAIR[0]).disk.set_capacity(u64::MAX);
        world.boot(PAIR[1]);
        0
    });
    assert_eq!(outcome.failure, None);
}

/// The first message that a consumer gets.
async fn delivered(
    world: &World,
    consumer: &mut Connection,
    queue: model::id::QueueId,
    id: model::id::ConsumerId,
) -> Vec<amqp::request::Unsettled> {
    loop {
        let Happened::Events(events) = consumer.wait(HEALING).await else {
            panic!("nothing comes");
        };
        let taken = consumer.take(world, queue, id, events, false).expect("it is not cancelled");
        if !taken.is_empty() {
            return taken.into_iter().map(|(one, _)| one).collect();
        }
    }
}
