//! Classic queues in a cluster: they live on one node and are used through all.

use std::time::Duration;

use e2e::client::topology::{DURABLE, EXCLUSIVE, PASSIVE};
use e2e::client::{Failure, assert_channel_error};
use e2e::cluster::{Cluster, Setup, channel};
use e2e::content::Properties;
use e2e::table;
use e2e::wait::{until, until_equal};

const DOWN: &str =
    "NOT_FOUND - home node 'n0' of durable queue 'q' in vhost '/' is down or inaccessible";

fn fill(cluster: &Cluster, node: usize, queue: &str, bodies: std::ops::Range<usize>) {
    let mut client = cluster.channel(node);
    client.confirm_select(1).unwrap();
    let count = bodies.len();
    for n in bodies {
        client.put(1, queue, n.to_string()).unwrap();
    }
    assert_eq!(client.confirms(1, count).unwrap().acked().len(), count);
}

#[test]
fn every_operation_works_through_another_node() {
    let cluster = Setup::new().start();
    for (home, via) in [(0, 1), (1, 2), (2, 0), (0, 0)] {
        let queue = format!("q-{home}-{via}");
        cluster.channel(home).queue(1, &queue, DURABLE, &table! {}).unwrap();
        fill(&cluster, via, &queue, 0..20);
        let mut client = cluster.channel(via);
        assert_eq!(client.depth(1, &queue).unwrap().messages, 20);
        let first = client.get(1, &queue, false).unwrap().unwrap();
        assert_eq!((first.text().as_str(), first.redelivered, first.remaining), ("0", false, 19));
        client.nack(1, first.tag, false, true).unwrap();
        let again = client.get_soon_unsettled(1, &queue);
        assert_eq!((again.text().as_str(), again.redelivered), ("0", true));
        client.ack(1, again.tag, false).unwrap();
        client.qos(1, 5, false).unwrap();
        client.consume(1, &queue, "c").unwrap();
        for n in 1..10 {
            let message = client.delivery(1).unwrap();
            assert_eq!(message.text(), n.to_string());
            client.ack(1, message.tag, false).unwrap();
        }
        client.cancel(1, "c").unwrap();
        client.recover(1, true).unwrap();
        until_equal("the rest is back", &10, || client.depth(1, &queue).unwrap().messages);
        assert_eq!(client.purge(1, &queue).unwrap(), 10);
        assert_eq!(client.delete_queue(1, &queue).unwrap(), 0);
        match cluster.channel(home).queue(1, &queue, PASSIVE, &table! {}) {
            Err(Failure::Channel { code: 404, .. }) => {}
            other => panic!("a deleted queue is there: {other:?}"),
        }
    }
}

#[test]
fn many_messages_keep_their_order_through_another_node() {
    let cluster = Setup::new().start();
    cluster.channel(0).queue(1, "q", DURABLE, &table! {}).unwrap();
    let mut consumer = cluster.channel(2);
    consumer.qos(1, 100, false).unwrap();
    consumer.consume(1, "q", "c").unwrap();
    let mut publisher = cluster.channel(1);
    publisher.confirm_select(1).unwrap();
    for n in 0..5000 {
        publisher.put(1, "q", n.to_string()).unwrap();
    }
    publisher.flush().unwrap();
    for n in 0..5000 {
        let message = consumer.delivery(1).unwrap();
        assert_eq!(message.text(), n.to_string());
        consumer.ack(1, message.tag, false).unwrap();
    }
    assert_eq!(publisher.confirms(1, 5000).unwrap().acked().len(), 5000);
    let body = vec![7; 2_000_000];
    publisher.publish(1, "", "q", &Properties::persistent(), &body).unwrap();
    publisher.flush().unwrap();
    assert!(consumer.delivery(1).unwrap().body == body);
}

#[test]
fn with_the_home_node_down_declare_and_consume_say_so() {
    let mut cluster = Setup::new().start();
    cluster.channel(0).queue(1, "q", DURABLE, &table! {}).unwrap();
    fill(&cluster, 0, "q", 0..5);
    let mut consumer = cluster.channel(1);
    consumer.consume(1, "q", "c").unwrap();
    consumer.deliveries(1, 5).unwrap();
    cluster.kill(0);
    // Its consumer is told that it is none any more.
    assert_eq!(consumer.await_cancel(1).unwrap(), "c");
    cluster.await_formed();
    for node in [1, 2] {
        let mut client = cluster.channel(node);
        assert_channel_error(client.queue(1, "q", DURABLE, &table! {}), 404, DOWN);
        client.open(1).unwrap();
        assert_channel_error(client.queue(1, "q", PASSIVE, &table! {}), 404, DOWN);
        client.open(1).unwrap();
        assert_channel_error(client.consume(1, "q", "c"), 404, DOWN);
        client.open(1).unwrap();
        // What is published meanwhile is refused: no queue has it.
        client.confirm_select(1).unwrap();
        client.put(1, "q", "m").unwrap();
        assert_eq!(client.confirms(1, 1).unwrap().count(), 1);
    }
    cluster.start(0);
    until("the queue is back", || {
        channel(cluster.amqp(2))
            .is_ok_and(|mut client| client.depth(1, "q").is_ok_and(|queue| queue.messages >= 5))
    });
    let mut client = cluster.channel(2);
    for n in 0..5 {
        let message = client.get(1, "q", true).unwrap().unwrap();
        assert_eq!((message.text(), message.redelivered), (n.to_string(), true));
    }
}

#[test]
fn exclusive_queues_die_with_their_connection_and_with_its_node() {
    let mut cluster = Setup::new().start();
    let gone = |cluster: &Cluster, queue: &str| {
        channel(cluster.amqp(2)).is_ok_and(|mut client| {
            matches!(
                client.queue(1, queue, PASSIVE, &table! {}),
                Err(Failure::Channel { code: 404, .. })
            )
        })
    };
    let mut owner = cluster.channel(1);
    owner.queue(1, "mine", EXCLUSIVE, &table! {}).unwrap();
    match cluster.channel(2).queue(1, "mine", PASSIVE, &table! {}) {
        Err(Failure::Channel { code: 405, .. }) => {}
        other => panic!("an exclusive queue is of one connection: {other:?}"),
    }
    drop(owner);
    until("the queue has gone with its connection", || gone(&cluster, "mine"));
    let mut owner = cluster.channel(1);
    owner.queue(1, "mine", EXCLUSIVE, &table! {}).unwrap();
    cluster.kill(1);
    until("the queue has gone with its node", || gone(&cluster, "mine"));
    cluster.start(1);
    cluster.channel(1).queue(1, "mine", EXCLUSIVE, &table! {}).unwrap();
}

#[test]
fn a_publisher_through_another_node_gets_each_confirm_once_while_the_home_dies() {
    let mut cluster = Setup::new().start();
    cluster.channel(0).queue(1, "q", DURABLE, &table! {}).unwrap();
    let mut publisher = cluster.channel(1);
    publisher.confirm_select(1).unwrap();
    let mut confirms = e2e::client::confirms::Confirms::default();
    for n in 0..1000 {
        publisher.put(1, "q", n.to_string()).unwrap();
    }
    publisher.await_confirms(1, &mut confirms, 100).unwrap();
    cluster.kill(0);
    publisher.patience = Duration::from_secs(40);
    publisher.await_confirms(1, &mut confirms, 1000).unwrap();
    assert_eq!((confirms.doubled.len(), confirms.covered.len()), (0, 0));
    let confirmed = confirms.acked();
    cluster.start(0);
    let mut client = cluster.channel(1);
    let there: std::collections::BTreeSet<usize> = client
        .take_ready(1, "q")
        .unwrap()
        .iter()
        .map(|message| message.text().parse().unwrap())
        .collect();
    for number in confirmed {
        assert!(
            there.contains(&(number as usize - 1)),
            "message {number} was confirmed and is lost"
        );
    }
}
