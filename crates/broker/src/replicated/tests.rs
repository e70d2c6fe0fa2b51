//! Quorum queues on three nodes in one process: real shards, journals and Raft groups, and a network
//! that hands things over at once or not at all.

mod net;

use std::collections::BTreeSet;
use std::time::Duration;

use amqp::request::{Event, Flow, Outcome, Unsettled};
use metadata::objects::member::{Member, Stage};
use model::id::{ConsumerId, NodeId, QueueId, Seq, StreamId};
use quorum::change::Change;
use quorum::group::GroupId;

use crate::replicated::order::{self, OWN, Order};
use crate::replicated::version::NEWEST;
use crate::shard::command::{Consumed, Deleted, Got, Settlement};
use net::{Net, Node, until};

const QUEUE: QueueId = QueueId(100);

fn texts(events: &[Event]) -> Vec<String> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Deliver(delivery) => {
                Some(String::from_utf8_lossy(delivery.message.body()).into_owned())
            }
            _ => None,
        })
        .collect()
}

fn numbers(range: std::ops::Range<u64>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// Publishes one after the other without waiting, then waits for all confirms.
async fn publish(node: &Node, range: std::ops::Range<u64>) {
    let client = node.client();
    for number in range.clone() {
        client.publish(QUEUE, number, number.to_string().as_bytes());
    }
    client.confirmed(range.count()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_node_publishes_and_any_node_consumes() {
    let net = Net::new(3);
    net.declare(QUEUE).await;
    for (index, node) in net.nodes().iter().enumerate() {
        let first = index as u64 * 10;
        publish(node, first..first + 10).await;
    }
    for node in net.nodes() {
        let client = node.client();
        let consumer = ConsumerId(node.me.node.0 * 10);
        assert_eq!(client.consume(QUEUE, consumer, Flow::Prefetch(10)).await, Consumed::Done);
        let events = client.events(10).await;
        assert_eq!(texts(&events).len(), 10);
        client.cancel(QUEUE, consumer).await;
        client.settle(QUEUE, unsettled(&events), Settlement::Client(Outcome::Accept));
    }
    assert!(matches!(net.nodes()[1].client().get(QUEUE).await, Got::Empty));
}

fn unsettled(events: &[Event]) -> Vec<Unsettled> {
    let held = events.iter().filter_map(|event| match event {
        Event::Deliver(it) => Some(Unsettled { queue: QUEUE, seq: it.seq, consumer: it.consumer }),
        _ => None,
    });
    held.collect()
}

/// What the settling makes room for is delivered before the end, in the same entry of the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_settles_and_cancels_in_one_go_leaves_nothing_behind() {
    let net = Net::new(3);
    net.declare(QUEUE).await;
    publish(&net.nodes()[0], 0..40).await;
    let mut left: BTreeSet<u64> = (0..40).collect();
    for (index, node) in net.nodes().iter().enumerate() {
        let (client, consumer) = (node.client(), ConsumerId(index as u64 + 1));
        assert_eq!(client.consume(QUEUE, consumer, Flow::Prefetch(10)).await, Consumed::Done);
        let events = client.events(10).await;
        let outcome = Settlement::Client([Outcome::Accept, Outcome::Return][index % 2]);
        if index % 2 == 0 {
            for text in texts(&events) {
                assert!(left.remove(&text.parse().unwrap()), "{text} comes twice");
            }
        }
        client.settle_and_cancel(QUEUE, unsettled(&events), outcome, consumer).await;
        // Its session has what came before the end, and gives it back when the channel closes.
        let held = unsettled(&client.left().await);
        client.settle(QUEUE, held, Settlement::Client(Outcome::Return));
    }
    let client = net.nodes()[1].client();
    let mut found = BTreeSet::new();
    while let Got::Message { message, .. } = client.get(QUEUE).await {
        found.insert(String::from_utf8_lossy(message.body()).parse::<u64>().unwrap());
    }
    assert_eq!(found, left);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_are_answered_from_everywhere() {
    let net = Net::new(3);
    net.declare(QUEUE).await;
    let (a, c) = (net.nodes()[0].client(), net.nodes()[2].client());
    publish(&net.nodes()[1], 0..5).await;
    let Got::Message { seq, message, remaining, .. } = c.get(QUEUE).await else {
        panic!("there are messages");
    };
    assert_eq!((message.body(), remaining), (&b"0"[..], 4));
    c.settle(
        QUEUE,
        vec![Unsettled { queue: QUEUE, seq, consumer: None }],
        Settlement::Client(Outcome::Accept),
    );
    assert_eq!(a.consume(QUEUE, ConsumerId(1), Flow::Prefetch(1)).await, Consumed::Done);
    assert_eq!(texts(&a.events(1).await), ["1"]);
    assert_eq!(c.delete(QUEUE, true, false).await, Deleted::InUse);
    a.cancel(QUEUE, ConsumerId(1)).await;
    assert_eq!(c.purge(QUEUE).await, Some(3));
    assert_eq!(c.delete(QUEUE, true, true).await, Deleted::Done(0));
}

/// What waits is copied to a new member, wherever it lies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_knows_how_much_a_new_member_gets() {
    let net = Net::new(3);
    net.declare(QUEUE).await;
    let client = net.nodes()[0].client();
    for number in 0..20 {
        client.publish(QUEUE, number, &[7; 5_000]);
    }
    client.confirmed(20).await;
    let (leader, group) = (net.leader(QUEUE).await, GroupId::from(QUEUE));
    leader.host().checkpoint(group).await.expect("it runs");
    let besides_the_log = || {
        let status = leader.host().status(group).expect("it runs");
        status.whole_bytes - status.log_bytes
    };
    until(|| (100_000..110_000).contains(&besides_the_log())).await;
    assert_eq!(client.purge(QUEUE).await, Some(20));
    until(|| besides_the_log() < 10_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_is_lost_and_nothing_confirmed_is() {
    let net = Net::new(3);
    net.declare(QUEUE).await;
    let leader = net.leader(QUEUE).await;
    let others: Vec<&Node> = net.nodes().iter().filter(|node| node.me != leader.me).collect();
    let (publisher, consuming) = (others[0].client(), others[1].client());
    publish(others[0], 0..100).await;
    let consumer = ConsumerId(7);
    assert_eq!(consuming.consume(QUEUE, consumer, Flow::Prefetch(10)).await, Consumed::Done);
    assert_eq!(texts(&consuming.events(10).await), numbers(0..10));
    for number in 100..200 {
        publisher.publish(QUEUE, number, number.to_string().as_bytes());
    }
    net.kill(leader.me.node).await;
    publisher.confirmed(100).await;
    // What the consumer holds stays with it, and it goes on from there.
    let first =
        (1..=5).map(|seq| Unsettled { queue: QUEUE, seq: Seq(seq), consumer: Some(consumer) });
    consuming.settle(QUEUE, first.collect(), Settlement::Client(Outcome::Accept));
    assert_eq!(texts(&consuming.new_events(Seq(10), 5).await), numbers(10..15));
}

/// A body that is found on a disk by its beginning.
fn large(number: u64) -> Vec<u8> {
    let mut body = format!("the body with the number {number:08} of this very test").into_bytes();
    body.resize(300_000, b'.');
    body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_leaders_disk_does_not_give_back_another_member_has() {
    let net = Net::new(3);
    net.declare(QUEUE).await;
    let leader = net.leader(QUEUE).await;
    let others: Vec<&Node> = net.nodes().iter().filter(|node| node.me != leader.me).collect();
    // More than is kept in memory.
    let client = leader.client();
    for number in 0..12 {
        client.publish(QUEUE, number, &large(number));
    }
    client.confirmed(12).await;
    for node in &others {
        net.caught_up(QUEUE, node.me.node).await;
    }
    for number in 0..12 {
        let beginning = &large(number)[..40];
        for node in [leader, others[0]] {
            assert!(net.damage(node.me.node, beginning) > 0, "{number} on {:?}", node.me);
        }
    }
    // What is asked through has nothing either.
    let client = others[0].client();
    for number in 0..12 {
        let Got::Message { message, .. } = client.get(QUEUE).await else {
            panic!("message {number} is lost");
        };
        assert!(message.body() == large(number), "{number}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_publishes_wait_and_then_are_refused() {
    let net = Net::new(3);
    net.declare(QUEUE).await;
    publish(&net.nodes()[0], 0..5).await;
    net.kill(net.nodes()[1].me.node).await;
    net.kill(net.nodes()[2].me.node).await;
    let client = net.nodes()[0].client();
    client.publish(QUEUE, 5, b"5");
    let events = client.events(1).await;
    assert!(matches!(events[..], [Event::Confirmed { number: 5, accepted: false, .. }]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_comes_back_with_its_journal() {
    let mut net = Net::new(3);
    net.declare(QUEUE).await;
    publish(&net.nodes()[0], 0..50).await;
    for index in [0, 1, 2] {
        net.restart(index).await;
        let first = 50 + 10 * index as u64;
        tokio::time::timeout(
            Duration::from_secs(20),
            publish(&net.nodes()[index], first..first + 10),
        )
        .await
        .expect("the queue serves again");
    }
    let client = net.nodes()[1].client();
    assert_eq!(client.consume(QUEUE, ConsumerId(3), Flow::Prefetch(0)).await, Consumed::Done);
    assert_eq!(texts(&client.events(80).await), numbers(0..80));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_classic_queue_serves_the_other_nodes() {
    let net = Net::new(3);
    net.declare_classic(QUEUE).await;
    for (index, node) in net.nodes().iter().enumerate() {
        let first = index as u64 * 10;
        publish(node, first..first + 10).await;
    }
    let (b, c) = (net.nodes()[1].client(), net.nodes()[2].client());
    let consumer = ConsumerId(3);
    assert_eq!(c.consume(QUEUE, consumer, Flow::Prefetch(25)).await, Consumed::Done);
    let events = c.events(25).await;
    assert_eq!(texts(&events), numbers(0..25));
    assert!(matches!(b.get(QUEUE).await, Got::Message { remaining: 4, .. }));
    let unsettled = events[..20].iter().filter_map(|event| match event {
        Event::Deliver(it) => Some(Unsettled { queue: QUEUE, seq: it.seq, consumer: it.consumer }),
        _ => None,
    });
    c.settle(QUEUE, unsettled.collect(), Settlement::Client(Outcome::Accept));
    assert_eq!(texts(&c.events(4).await), numbers(26..30));
    c.cancel(QUEUE, consumer).await;
    assert_eq!(b.purge(QUEUE).await, Some(0));
    assert_eq!(b.delete(QUEUE, true, true).await, Deleted::Done(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_lost_node_held_of_a_classic_queue_comes_back() {
    let net = Net::new(3);
    net.declare_classic(QUEUE).await;
    publish(&net.nodes()[0], 0..5).await;
    let (b, c) = (net.nodes()[1].client(), net.nodes()[2].client());
    assert_eq!(c.consume(QUEUE, ConsumerId(3), Flow::Prefetch(5)).await, Consumed::Done);
    assert_eq!(texts(&c.events(5).await), numbers(0..5));
    net.kill(net.nodes()[2].me.node).await;
    assert_eq!(b.consume(QUEUE, ConsumerId(2), Flow::Prefetch(5)).await, Consumed::Done);
    let events = b.events(5).await;
    assert_eq!(texts(&events), numbers(0..5));
    assert!(events.iter().all(|event| matches!(event, Event::Deliver(it) if it.redelivered)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_keeper_a_classic_queue_refuses() {
    let net = Net::new(3);
    net.declare_classic(QUEUE).await;
    let b = net.nodes()[1].client();
    assert_eq!(b.consume(QUEUE, ConsumerId(3), Flow::Prefetch(5)).await, Consumed::Done);
    net.kill(net.nodes()[0].me.node).await;
    assert!(matches!(b.events(1).await[..], [Event::ConsumerCancelled { .. }]));
    assert_eq!(b.consume(QUEUE, ConsumerId(4), Flow::Prefetch(5)).await, Consumed::NoQueue);
    b.publish(QUEUE, 1, b"1");
    assert!(matches!(b.events(1).await[..], [Event::Confirmed { number: 1, accepted: false, .. }]));
}

/// Members that have started, on the nodes with these numbers, in the streams beside them.
fn started(members: &[(u64, u64)]) -> Vec<Member> {
    let member = |(node, stream): &(u64, u64)| Member {
        node: NodeId(*node),
        stream: StreamId(*stream),
        stage: Stage::Started,
        group: 0,
    };
    members.iter().map(member).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_goes_and_comes_again_as_another_one() {
    let mut net = Net::new(3);
    net.declare(QUEUE).await;
    let leader = net.leader(QUEUE).await.me.node;
    let index = net.nodes().iter().position(|node| node.me.node != leader).unwrap();
    let gone = net.nodes()[index].me.node;
    publish(&net.nodes()[index], 0..50).await;
    net.caught_up(QUEUE, gone).await;
    let own = QUEUE.0;
    net.change(QUEUE, Change::Remove(gone)).await;
    let rest: Vec<(u64, u64)> =
        (1..=3).filter(|node| *node != gone.0).map(|node| (node, own)).collect();
    net.record(QUEUE, &started(&rest));
    net.nodes()[index].has_member(QUEUE, false).await;
    net.nodes()[index].has_stream(StreamId(own), false).await;
    // It is still a node from which the queue is used.
    publish(&net.nodes()[index], 50..60).await;

    let stream = StreamId(500);
    let mut members = started(&rest);
    members.push(Member::unstarted(stream, gone));
    net.record(QUEUE, &members);
    net.change(QUEUE, Change::AddLearner(gone)).await;
    net.caught_up(QUEUE, gone).await;
    net.record(QUEUE, &started(&[&rest[..], &[(gone.0, 500)]].concat()));
    net.change(QUEUE, Change::Promote(gone)).await;
    net.nodes()[index].has_stream(stream, true).await;
    // It comes back from its own stream, and its vote counts.
    net.restart(index).await;
    let other = rest.iter().map(|(node, _)| NodeId(*node)).find(|node| *node != leader).unwrap();
    net.kill(other).await;
    publish(&net.nodes()[index], 60..70).await;
    net.kill(leader).await;
    net.nodes()[index].has_member(QUEUE, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_whose_data_is_gone_does_not_start_and_is_replaced() {
    let mut net = Net::new(3);
    net.declare(QUEUE).await;
    publish(&net.nodes()[0], 0..20).await;
    let leader = net.leader(QUEUE).await.me.node;
    let index = net.nodes().iter().position(|node| node.me.node != leader).unwrap();
    let wiped = net.nodes()[index].me.node;
    let own = QUEUE.0;
    net.record(QUEUE, &started(&[(1, own), (2, own), (3, own)]));
    net.wipe(index).await;
    net.nodes()[index].has_lost(QUEUE).await;
    publish(&net.nodes()[index], 20..30).await;

    net.change(QUEUE, Change::Remove(wiped)).await;
    let rest: Vec<(u64, u64)> =
        (1..=3).filter(|node| *node != wiped.0).map(|node| (node, own)).collect();
    let mut members = started(&rest);
    members.push(Member::unstarted(StreamId(500), wiped));
    net.record(QUEUE, &members);
    net.change(QUEUE, Change::AddLearner(wiped)).await;
    net.caught_up(QUEUE, wiped).await;
    net.change(QUEUE, Change::Promote(wiped)).await;
    net.nodes()[index].has_member(QUEUE, true).await;
    let client = net.nodes()[index].client();
    assert_eq!(client.consume(QUEUE, ConsumerId(3), Flow::Prefetch(0)).await, Consumed::Done);
    assert_eq!(texts(&client.events(30).await), numbers(0..30));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_goes_on_with_one_member_is_not_joined_by_those_that_come_back() {
    let mut net = Net::new(3);
    net.declare(QUEUE).await;
    publish(&net.nodes()[0], 0..20).await;
    let first = net.leader(QUEUE).await.me.node;
    let index = net.nodes().iter().position(|node| node.me.node != first).unwrap();
    let sole = net.nodes()[index].me.node;
    net.caught_up(QUEUE, sole).await;
    let own = QUEUE.0;
    let all = started(&[(1, own), (2, own), (3, own)]);
    net.record(QUEUE, &all);
    let gone: Vec<NodeId> = (1..=3).map(NodeId).filter(|node| *node != sole).collect();
    for node in &gone {
        net.kill(*node).await;
    }
    let with = |stage| Member { node: sole, stream: StreamId(own), stage, group: 700 };
    net.record(QUEUE, &[with(Stage::Sole)]);
    net.nodes()[index].leads(QUEUE, &[sole]).await;
    publish(&net.nodes()[index], 20..30).await;

    // The others come back, a majority of what they know, and have not heard of it.
    net.stale(QUEUE, &all);
    for node in &gone {
        let at = net.nodes().iter().position(|one| one.me.node == *node).unwrap();
        net.restart(at).await;
    }
    net.nodes()[index].leads(QUEUE, &[sole]).await;
    publish(&net.nodes()[index], 30..40).await;
    net.nodes()[index].leads(QUEUE, &[sole]).await;

    // It starts again, by a record that is older than what it did, and then hears of that.
    net.restart(index).await;
    net.nodes()[index].leads(QUEUE, &[sole]).await;
    net.record(QUEUE, &[with(Stage::Started)]);
    net.nodes()[index].leads(QUEUE, &[sole]).await;
    for node in &gone {
        let at = net.nodes().iter().position(|one| one.me.node == *node).unwrap();
        net.nodes()[at].has_member(QUEUE, false).await;
        net.nodes()[at].has_stream(StreamId(own), false).await;
    }
    // One of them comes in anew.
    let fresh = Member { group: 700, ..Member::unstarted(StreamId(701), gone[0]) };
    net.record(QUEUE, &[with(Stage::Started), fresh]);
    net.change(QUEUE, Change::AddLearner(gone[0])).await;
    net.caught_up(QUEUE, gone[0]).await;
    net.change(QUEUE, Change::Promote(gone[0])).await;
    let client = net.nodes()[index].client();
    assert_eq!(client.consume(QUEUE, ConsumerId(3), Flow::Prefetch(0)).await, Consumed::Done);
    assert_eq!(texts(&client.events(40).await), numbers(0..40));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_nobody_knows_stops_the_queue_and_loses_nothing() {
    let net = Net::new(3);
    net.declare(QUEUE).await;
    let leader = net.leader(QUEUE).await;
    publish(leader, 0..10).await;
    // Whom the leader has not reached yet would hear of nothing when it has ended.
    for node in net.nodes() {
        net.caught_up(QUEUE, node.me.node).await;
    }
    let mut entry = bytes::BytesMut::new();
    order::begin_entry(&mut entry, NEWEST, model::time::Timestamp(1));
    order::write_batch(&mut entry, OWN, 0, [Order::Version(NEWEST + 1)].iter());
    leader.host().propose(QUEUE.into(), entry.freeze()).expect("it leads");
    for node in net.nodes() {
        // Its state would be taken for one after an entry that is not in it.
        let ended = async {
            while node.host().checkpoint(QUEUE.into()).await.is_ok() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ended).await.expect("it ends");
        assert!(node.host().elect(QUEUE.into()).await.is_err(), "it votes for nobody");
    }
}
