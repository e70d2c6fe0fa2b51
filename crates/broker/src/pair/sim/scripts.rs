//! Runs of which every step is given: what storms have found, at its shortest.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use amqp::request::Outcome;
use model::id::NodeId;
use tokio::time::Instant;

use super::clients::{self, Connection, Happened};
use super::disk::Speed;
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
