//! At-least-once dead-lettering: what is dead stays until its targets have it.

use model::id::Seq;
use model::time::Timestamp;
use queue::command::{Command, Outcome, Reply};
use queue::effect::{Effect, Reason};
use queue::queue::Queue;
use queue::settings::{Overflow, Settings};

use crate::rig::{Rig, classic, dead, deliver, quorum, release};

fn keeping() -> Settings {
    Settings {
        dead_letter: true,
        keeps_dead: true,
        overflow: Overflow::RejectPublish,
        max_length: Some(2),
        delivery_limit: Some(0),
        ..quorum()
    }
}

fn bury(rig: &mut Rig, seq: u64) -> Vec<Effect> {
    rig.apply(Command::Bury { seq: Seq(seq) })
}

#[test]
fn what_is_dead_stays_and_counts_until_it_is_buried() {
    let mut rig = Rig::new(keeping());
    rig.publish_many(2);
    rig.consume_prefetch(1, 2);
    assert_eq!(rig.settle(1, 1, Outcome::Discard), [dead(1, Reason::Rejected)]);
    assert_eq!(rig.settle(1, 2, Outcome::Retry), [dead(2, Reason::DeliveryLimit)]);
    assert_eq!((rig.counts(), rig.queue.dead()), ((0, 0), 2));
    let deaths: Vec<_> = rig.queue.deaths().collect();
    assert_eq!(deaths, [(Seq(1), Reason::Rejected), (Seq(2), Reason::DeliveryLimit)]);
    assert_eq!(rig.queue.death(Seq(2)), Some(Reason::DeliveryLimit));
    assert!(rig.queue.head(Seq(1)).is_some(), "its body is needed");
    rig.publish();
    assert_eq!(rig.reply, Reply::Rejected, "there is no room for another one");
    assert_eq!(bury(&mut rig, 1), [release(1, 1)]);
    assert_eq!(rig.publish(), [deliver(1, 4)]);
    assert_eq!(bury(&mut rig, 1), [], "it is gone");
    assert_eq!(bury(&mut rig, 4), [], "it lives");
    assert_eq!(bury(&mut rig, 2), [release(2, 2)]);
    assert_eq!(rig.queue.dead(), 0);
}

#[test]
fn the_dead_are_in_the_snapshot() {
    let mut rig = Rig::new(keeping());
    rig.publish_many(2);
    rig.consume_prefetch(1, 2);
    rig.settle(1, 2, Outcome::Discard);
    rig.settle(1, 1, Outcome::Retry);
    let mut bytes = Vec::new();
    rig.queue.encode(&mut bytes);
    let read = Queue::decode(&bytes).unwrap();
    assert!(read.deaths().eq(rig.queue.deaths()));
    let mut again = Vec::new();
    read.encode(&mut again);
    assert_eq!(again, bytes);
    for length in 0..bytes.len() {
        assert!(Queue::decode(&bytes[..length]).is_err());
    }
}

#[test]
fn a_purge_leaves_them_and_a_deletion_does_not() {
    let mut rig = Rig::new(keeping());
    rig.publish_many(2);
    rig.consume_prefetch(1, 1);
    rig.settle(1, 1, Outcome::Discard);
    rig.gone(1);
    assert_eq!(rig.queue.dead(), 2);
    assert_eq!(rig.apply(Command::Purge), []);
    assert_eq!(rig.queue.dead(), 2);
    rig.apply(Command::Delete { if_unused: true, if_empty: true });
    assert_eq!((rig.reply, rig.queue.dead()), (Reply::Count(0), 0));
}

#[test]
fn others_keep_no_dead() {
    let without_exchange = Settings { dead_letter: false, ..keeping() };
    let dropping = Settings { overflow: Overflow::DropHead, ..keeping() };
    for settings in [without_exchange, dropping] {
        let mut rig = Rig::new(settings);
        rig.publish();
        rig.consume_prefetch(1, 1);
        rig.settle(1, 1, Outcome::Discard);
        assert_eq!((rig.queue.dead(), rig.queue.head(Seq(1))), (0, None));
    }
}

#[test]
fn in_a_classic_queue_they_do_not_count_and_a_restart_brings_them_back_in_order() {
    let dropping = Settings { overflow: Overflow::DropHead, ..keeping() };
    let settings = Settings { style: classic().style, ..dropping };
    let mut rig = Rig::new(settings.clone());
    rig.publish_many(3);
    rig.consume_prefetch(1, 1);
    rig.settle(1, 2, Outcome::Discard);
    let deaths = [(Seq(1), Reason::MaxLen), (Seq(2), Reason::Rejected)];
    assert!(rig.queue.deaths().eq(deaths));
    assert_eq!(rig.publish(), [], "there is room");
    let mut restored = Queue::restore(settings, Timestamp(rig.now));
    for seq in 1..=4 {
        let head = rig.queue.head(Seq(seq)).expect("it is here").encode();
        restored.restore_message(Seq(seq), &head, false).unwrap();
    }
    let mut effects = Vec::new();
    restored.apply(Timestamp(rig.now), Command::Tick, &mut effects);
    assert_eq!(effects, [dead(1, Reason::MaxLen), dead(2, Reason::MaxLen)]);
    assert_eq!(bury(&mut rig, 2), [release(2, 2)]);
    assert_eq!(rig.queue.head(Seq(2)), None);
}
