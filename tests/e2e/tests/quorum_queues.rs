//! Quorum queues on three nodes, all of which live: every operation from every node.

use std::time::{Duration, Instant};

use e2e::client::confirms::Confirms;
use e2e::client::topology::{DURABLE, PASSIVE};
use e2e::client::{Client, Failure};
use e2e::cluster::{Cluster, Setup, quorum};
use e2e::content::{Delivery, Properties};
use e2e::table;
use e2e::wait::{count, until, until_equal};
use serde_json::Value;

fn clients(cluster: &Cluster) -> Vec<Client> {
    (0..3).map(|node| cluster.channel(node)).collect()
}

fn texts(messages: &[Delivery]) -> Vec<String> {
    messages.iter().map(Delivery::text).collect()
}

/// Publishes with confirms on a channel that was in confirm mode from its first publish on.
fn fill(client: &mut Client, queue: &str, bodies: impl Iterator<Item = String>) {
    client.open(9).unwrap();
    client.confirm_select(9).unwrap();
    let mut count = 0;
    for body in bodies {
        client.put(9, queue, body).unwrap();
        count += 1;
    }
    assert_eq!(client.confirms(9, count).unwrap().acked().len(), count);
    client.close_channel(9).unwrap();
}

#[test]
fn every_operation_works_through_every_node() {
    let cluster = Setup::new().start();
    let mut clients = clients(&cluster);
    for home in 0..3 {
        for via in 0..3 {
            let queue = format!("q-{home}-{via}");
            clients[home].queue(1, &queue, DURABLE, &quorum()).unwrap();
            // A channel of its own: what was on its way to an earlier one is not for this queue.
            clients[via] = cluster.channel(via);
            let client = &mut clients[via];
            // Publish, count, get, settle.
            fill(client, &queue, (0..20).map(|n| n.to_string()));
            assert_eq!(client.depth(1, &queue).unwrap().messages, 20);
            let first = client.get(1, &queue, false).unwrap().unwrap();
            assert_eq!((first.text().as_str(), first.redelivered), ("0", false));
            assert_eq!(first.remaining, 19);
            client.nack(1, first.tag, false, true).unwrap();
            let again = client.get_soon_unsettled(1, &queue);
            assert_eq!((again.text().as_str(), again.redelivered), ("0", true));
            client.ack(1, again.tag, false).unwrap();
            // Consume in order, settle, cancel.
            client.qos(1, 5, false).unwrap();
            client.consume(1, &queue, "c").unwrap();
            for n in 1..10 {
                let message = client.delivery(1).unwrap();
                let seen = (message.text(), message.redelivered);
                assert_eq!(seen, (n.to_string(), false), "{queue}");
                client.ack(1, message.tag, false).unwrap();
            }
            assert_eq!(client.depth(1, &queue).unwrap().consumers, 1);
            client.cancel(1, "c").unwrap();
            client.recover(1, true).unwrap();
            until_equal("the rest is back", &10, || client.depth(1, &queue).unwrap().messages);
            // Purge and delete.
            assert_eq!(client.purge(1, &queue).unwrap(), 10);
            assert_eq!(client.depth(1, &queue).unwrap().messages, 0);
            fill(client, &queue, std::iter::once("last".to_owned()));
            assert_eq!(client.delete_queue(1, &queue).unwrap(), 1);
            for other in &mut clients {
                match other.queue(1, &queue, PASSIVE, &table! {}) {
                    Err(Failure::Channel { code: 404, .. }) => other.open(1).unwrap(),
                    other => panic!("a deleted queue is there: {other:?}"),
                }
            }
        }
    }
}

#[test]
fn properties_and_large_bodies_cross_nodes_unchanged() {
    let cluster = Setup::new().start();
    let mut clients = clients(&cluster);
    clients[0].queue(1, "q", DURABLE, &quorum()).unwrap();
    let properties = Properties {
        content_type: Some("text/plain".into()),
        headers: Some(table! { "k" => "v", "n" => 7 }),
        message_id: Some("id".into()),
        correlation_id: Some("c".into()),
        timestamp: Some(1234),
        ..Properties::persistent()
    };
    let body: Vec<u8> =
        (0..3_000_000_u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
    for (from, to) in [(0, 1), (1, 2), (2, 0), (1, 1)] {
        clients[from].publish(1, "amq.fanout", "", &properties, "nowhere").unwrap();
        clients[from].publish(1, "", "q", &properties, &body).unwrap();
        clients[from].flush().unwrap();
        let message = clients[to].get_soon(1, "q");
        assert!(message.body == body, "{} bytes", message.body.len());
        assert_eq!(message.properties, properties);
    }
}

#[test]
fn order_holds_for_one_channel_through_any_two_nodes() {
    let cluster = Setup::new().start();
    cluster.channel(0).queue(1, "q", DURABLE, &quorum()).unwrap();
    for (from, to) in [(0, 1), (1, 0), (1, 2), (2, 2)] {
        let mut consumer = cluster.channel(to);
        consumer.qos(1, 100, false).unwrap();
        consumer.consume(1, "q", "c").unwrap();
        let mut publisher = cluster.channel(from);
        publisher.confirm_select(1).unwrap();
        for n in 0..2000 {
            publisher.put(1, "q", n.to_string()).unwrap();
        }
        publisher.flush().unwrap();
        for n in 0..2000 {
            let message = consumer.delivery(1).unwrap();
            assert_eq!((message.text(), message.redelivered), (n.to_string(), false));
            consumer.ack(1, message.tag, false).unwrap();
        }
        consumer.sync(1).unwrap();
        assert_eq!(publisher.confirms(1, 2000).unwrap().acked().len(), 2000);
    }
}

#[test]
fn consumers_on_three_nodes_share_a_queue() {
    let cluster = Setup::new().start();
    let mut clients = clients(&cluster);
    clients[1].queue(1, "q", DURABLE, &quorum()).unwrap();
    for client in &mut clients {
        client.qos(1, 10, false).unwrap();
        client.consume(1, "q", "c").unwrap();
    }
    let mut publisher = cluster.channel(0);
    fill(&mut publisher, "q", (0..30).map(|n| n.to_string()));
    let mut all = Vec::new();
    for client in &mut clients {
        all.extend(client.deliveries(1, 10).unwrap());
    }
    let mut numbers: Vec<usize> = texts(&all).iter().map(|text| text.parse().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..30).collect::<Vec<_>>());
    // What one holds when its connection ends goes to the others.
    let mut rest = clients.split_off(1);
    drop(clients);
    for client in &mut rest {
        client.ack(1, 0, true).unwrap();
    }
    let mut moved: Vec<Delivery> = Vec::new();
    until("the ten are with the other two", || {
        for client in &mut rest {
            client.drain();
            while let Some(message) = client.take_delivery(1) {
                moved.push(message);
            }
        }
        moved.len() >= 10
    });
    assert_eq!(moved.len(), 10);
    assert!(moved.iter().all(|message| message.redelivered));
}

#[test]
fn a_consumer_is_told_on_any_node_when_its_queue_goes() {
    let cluster = Setup::new().start();
    let mut clients = clients(&cluster);
    clients[0].queue(1, "q", DURABLE, &quorum()).unwrap();
    for client in &mut clients {
        client.consume(1, "q", "c").unwrap();
    }
    cluster.channel(1).delete_queue(1, "q").unwrap();
    for client in &mut clients {
        assert_eq!(client.await_cancel(1).unwrap(), "c");
        client.sync(1).unwrap();
    }
}

#[test]
fn single_active_consumer_hands_over_between_nodes() {
    let cluster = Setup::new().start();
    let mut clients = clients(&cluster);
    let arguments = table! { "x-queue-type" => "quorum", "x-single-active-consumer" => true };
    clients[0].queue(1, "q", DURABLE, &arguments).unwrap();
    for client in &mut clients {
        client.consume(1, "q", "c").unwrap();
    }
    let mut publisher = cluster.channel(2);
    fill(&mut publisher, "q", (0..5).map(|n| n.to_string()));
    assert_eq!(texts(&clients[0].deliveries(1, 5).unwrap()), ["0", "1", "2", "3", "4"]);
    drop(clients.remove(0));
    let moved = clients[0].deliveries(1, 5).unwrap();
    assert_eq!(texts(&moved), ["0", "1", "2", "3", "4"]);
    clients[1].sync(1).unwrap();
    assert_eq!(clients[1].waiting(1), []);
}

#[test]
fn a_poisonous_message_is_dropped_or_dead_lettered_at_the_limit() {
    let cluster = Setup::new().start();
    let mut client = cluster.channel(1);
    let arguments = table! {
        "x-queue-type" => "quorum", "x-delivery-limit" => 3,
        "x-dead-letter-exchange" => "", "x-dead-letter-routing-key" => "dead",
    };
    client.queue(1, "q", DURABLE, &arguments).unwrap();
    cluster.channel(2).queue(1, "dead", DURABLE, &quorum()).unwrap();
    fill(&mut client, "q", std::iter::once("poison".to_owned()));
    for delivery in 0..=3 {
        let message = client.get_soon_unsettled(1, "q");
        let count = message.properties.header("x-delivery-count").cloned();
        assert_eq!(count.is_some(), delivery > 0, "{delivery}: {message:?}");
        client.reject(1, message.tag, true).unwrap();
    }
    client.sync(1).unwrap();
    let dead = cluster.channel(0).get_soon(1, "dead");
    assert_eq!(dead.text(), "poison");
    assert_eq!(client.depth(1, "q").unwrap().messages, 0);
}

#[test]
fn a_dead_message_stays_until_its_target_takes_it_whoever_leads() {
    let mut cluster = Setup::new().start();
    let arguments = table! {
        "x-queue-type" => "quorum", "x-overflow" => "reject-publish",
        "x-dead-letter-strategy" => "at-least-once",
        "x-dead-letter-exchange" => "", "x-dead-letter-routing-key" => "dead",
    };
    let mut client = cluster.channel(0);
    cluster.channel(1).queue(1, "q", DURABLE, &arguments).unwrap();
    let narrow = table! {
        "x-queue-type" => "quorum", "x-overflow" => "reject-publish", "x-max-length" => 1,
    };
    client.queue(1, "dead", DURABLE, &narrow).unwrap();
    fill(&mut client, "q", (0..5).map(|n| n.to_string()));
    for _ in 0..5 {
        let message = client.get_soon_unsettled(1, "q");
        client.reject(1, message.tag, false).unwrap();
    }
    client.sync(1).unwrap();
    // One of them fits, and the node that sent it on is lost.
    until_equal("the target is full", &1, || client.depth(1, "dead").unwrap().messages);
    cluster.kill(1);
    let mut found = std::collections::BTreeSet::new();
    while found.len() < 5 {
        let message = client.get_soon(1, "dead");
        assert!(message.properties.header("x-death").is_some(), "{message:?}");
        found.insert(message.text());
    }
    assert!(found.into_iter().eq((0..5).map(|n| n.to_string())));
}

#[test]
fn what_came_back_waits_when_the_queue_says_so() {
    let cluster = Setup::new().start();
    let mut client = cluster.channel(1);
    let arguments = table! {
        "x-queue-type" => "quorum", "x-delayed-retry-type" => "all",
        "x-delayed-retry-min" => 1000, "x-delayed-retry-max" => 1500
    };
    client.queue(1, "q", DURABLE, &arguments).unwrap();
    fill(&mut client, "q", ["first", "second"].into_iter().map(str::to_owned));
    let counts = |cluster: &Cluster| {
        let queue = cluster.view(2, "q");
        [&queue["messages_delayed"], &queue["messages_ready"], &queue["messages"]]
            .map(Value::as_u64)
    };
    // The longer, the more often it failed, and not more than the most.
    for (attempt, wait) in [(1, 1000), (2, 1500), (3, 1500)] {
        let message = client.get_soon_unsettled(1, "q");
        assert_eq!(message.text(), "first");
        let began = Instant::now();
        client.reject(1, message.tag, true).unwrap();
        if attempt == 1 {
            // The one behind it overtakes it.
            let second = client.get_soon_unsettled(1, "q");
            assert_eq!(second.text(), "second");
            client.ack(1, second.tag, false).unwrap();
        }
        client.sync(1).unwrap();
        until_equal(&format!("it waits, {attempt}"), &[Some(1), Some(0), Some(1)], || {
            counts(&cluster)
        });
        until_equal("it is back", &[Some(0), Some(1), Some(1)], || counts(&cluster));
        assert!(began.elapsed() >= Duration::from_millis(wait), "{:?}", began.elapsed());
    }
}

#[test]
fn confirms_of_one_channel_to_queues_led_by_three_nodes() {
    let cluster = Setup::new().start();
    for (node, queue) in ["a", "b", "c"].iter().enumerate() {
        let mut client = cluster.channel(node);
        client.queue(1, queue, DURABLE, &quorum()).unwrap();
        client.bind(1, queue, "amq.fanout", "", &table! {}).unwrap();
    }
    let mut client = cluster.channel(0);
    client.confirm_select(1).unwrap();
    client.patience = Duration::from_secs(20);
    for n in 0..300 {
        let exchange = if n % 3 == 0 { "amq.fanout" } else { "" };
        client.publish(1, exchange, "b", &Properties::persistent(), n.to_string()).unwrap();
    }
    let confirms = client.confirms(1, 300).unwrap();
    assert_eq!(confirms.acked().len(), 300);
    assert_eq!((confirms.doubled.len(), confirms.covered.len()), (0, 0));
    for (queue, count) in [("a", 100), ("b", 300), ("c", 100)] {
        assert_eq!(client.depth(1, queue).unwrap().messages, count, "{queue}");
    }
}

#[test]
fn a_message_that_is_larger_than_any_frame_crosses_every_link() {
    let cluster = Setup::new().set("limits.message_size", "128MiB").start();
    let mut client = cluster.channel(1);
    client.queue(1, "shared", DURABLE, &quorum()).unwrap();
    client.queue(1, "kept", DURABLE, &table! {}).unwrap();
    let body: Vec<u8> = (0..70_u32 << 20).map(|n| (n ^ (n >> 11)).to_le_bytes()[0]).collect();
    let mut publisher = cluster.channel(0);
    publisher.confirm_select(1).unwrap();
    for queue in ["shared", "kept"] {
        publisher.put(1, queue, &body).unwrap();
        publisher.put(1, queue, "behind").unwrap();
    }
    assert_eq!(publisher.confirms(1, 4).unwrap().acked().len(), 4);
    let mut consumer = cluster.channel(2);
    for queue in ["shared", "kept"] {
        assert!(consumer.get_soon(1, queue).body == body, "{queue}");
        assert_eq!(consumer.get_soon(1, queue).text(), "behind");
    }
}

#[test]
fn a_queue_that_is_deleted_under_a_publisher_answers_all_and_is_another_one_afterwards() {
    let cluster = Setup::new().start();
    let mut publisher = cluster.channel(1);
    publisher.queue(1, "q", DURABLE, &quorum()).unwrap();
    publisher.confirm_select(1).unwrap();
    let mut answers = Confirms::default();
    let total = count(2000, 20_000);
    for number in 0..total {
        publisher.put(1, "q", number.to_string()).unwrap();
        if number == total / 2 {
            publisher.await_confirms(1, &mut answers, 100).unwrap();
            // Through another node, with many messages on their way.
            cluster.channel(2).delete_queue(1, "q").unwrap();
        }
    }
    // What came before its end was taken or refused, what came after it has no queue to go to.
    publisher.await_confirms(1, &mut answers, total).unwrap();
    assert_eq!((answers.count(), &answers.doubled[..]), (total, &[][..]));
    until("it is gone everywhere", || {
        (0..3).all(|node| cluster.api(node).get("queues/%2F/q").status == 404)
    });
    publisher.queue(1, "q", DURABLE, &quorum()).unwrap();
    publisher.put(1, "q", "new").unwrap();
    publisher.await_confirms(1, &mut answers, total + 1).unwrap();
    assert_eq!(answers.answers.last_key_value(), Some((&(total as u64 + 1), &true)));
    for node in 0..3 {
        cluster.await_depth(node, "q", 1);
    }
    assert_eq!(cluster.channel(0).get_soon(1, "q").text(), "new");
}
