//! The cases for quorum queues and for three nodes, by their numbers in the list of cases.
//!
//! The queue is led by `n0` and used through `n1`, so that everything crosses a link.

use std::time::{Duration, Instant};

use e2e::client::confirms::Confirms;
use e2e::client::topology::{DURABLE, PASSIVE};
use e2e::client::{Client, Failure};
use e2e::cluster::{Cluster, Setup, channel, name, quorum};
use e2e::codec::{Table, Value};
use e2e::content::{Delivery, Properties};
use e2e::node::occupied;
use e2e::numbered::Plan;
use e2e::table;
use e2e::wait::{count, until, until_equal};
use serde_json::json;

/// What a segment takes in these tests.
const SEGMENT: u64 = 4 << 20;

/// Arguments of a quorum queue with more than its type.
fn with(more: Table) -> Table {
    let mut arguments = quorum();
    arguments.0.extend(more.0);
    arguments
}

fn three() -> (Cluster, Client) {
    let cluster = Setup::new().start();
    let client = cluster.channel(1);
    (cluster, client)
}

fn declare(cluster: &Cluster, queue: &str, arguments: &Table) {
    cluster.channel(0).queue(1, queue, DURABLE, arguments).unwrap();
}

fn fill(cluster: &Cluster, queue: &str, total: usize, properties: &Properties) {
    let mut client = cluster.channel(1);
    client.confirm_select(1).unwrap();
    let mut confirms = Confirms::default();
    for n in 0..total {
        client.publish(1, "", queue, properties, n.to_string()).unwrap();
        if n % 1000 == 999 {
            client.await_confirms(1, &mut confirms, n - 500).unwrap();
        }
    }
    client.await_confirms(1, &mut confirms, total).unwrap();
    assert_eq!(confirms.acked().len(), total);
}

fn put(cluster: &Cluster, queue: &str, total: usize) {
    fill(cluster, queue, total, &Properties::persistent());
}

fn numbers(messages: &[Delivery]) -> Vec<usize> {
    messages.iter().map(|message| message.text().parse().unwrap()).collect()
}

fn journals(cluster: &Cluster) -> Vec<u64> {
    cluster.nodes.iter().map(|node| occupied(&node.directory.join("journal"))).collect()
}

fn depth(client: &mut Client, queue: &str) -> u32 {
    client.depth(1, queue).unwrap().messages
}

#[test]
fn case_003_acks_before_channel_close_count() {
    let (cluster, mut client) = three();
    declare(&cluster, "q", &quorum());
    for round in 0..count(5, 50) {
        put(&cluster, "q", 100);
        client.open(2).unwrap();
        for _ in 0..100 {
            let message = client.get(2, "q", false).unwrap().expect("a message is ready");
            client.ack(2, message.tag, false).unwrap();
        }
        client.close_channel(2).unwrap();
        assert_eq!(depth(&mut client, "q"), 0, "round {round}");
    }
    assert_eq!(client.delete_queue(1, "q").unwrap(), 0);
}

#[test]
fn case_009_cancel_while_deliveries_are_in_flight() {
    let (cluster, mut client) = three();
    let total = count(500, 5000);
    declare(&cluster, "q", &quorum());
    put(&cluster, "q", total);
    client.open(2).unwrap();
    let mut seen = Vec::new();
    let mut round = 0;
    let deadline = Instant::now() + Duration::from_secs(100);
    while seen.len() < total {
        assert!(Instant::now() < deadline, "{} of {total} after {round} rounds", seen.len());
        round += 1;
        client.qos(2, 20, false).unwrap();
        client.consume(2, "q", &format!("c{round}")).unwrap();
        client.cancel(2, &format!("c{round}")).unwrap();
        let mut last = None;
        while let Some(message) = client.take_delivery(2) {
            last = Some(message.tag);
            assert!(!message.redelivered, "nobody gave {} back", message.text());
            seen.push(message.text());
        }
        if let Some(last) = last {
            client.ack(2, last, true).unwrap();
        }
    }
    client.close_channel(2).unwrap();
    seen.sort_by_key(|text| text.parse::<usize>().unwrap());
    seen.dedup();
    assert_eq!(seen.len(), total, "no duplicates");
    assert_eq!(client.delete_queue(1, "q").unwrap(), 0);
}

#[test]
fn case_036_expires_counts_from_the_last_use() {
    // What uses them goes through other nodes than the one that leads or keeps them.
    let (cluster, mut client) = three();
    let mut third = cluster.channel(2);
    let expires = Duration::from_secs(3);
    for (kind, base) in [("quorum", quorum()), ("classic", table! {})] {
        let mut arguments = base;
        arguments.insert("x-expires", 3000);
        let created = Instant::now();
        let name = |what: &str| format!("{kind}-{what}");
        for what in ["idle", "declared", "looked-at", "got", "consumed"] {
            declare(&cluster, &name(what), &arguments);
        }
        client.consume(1, &name("consumed"), kind).unwrap();
        let api = cluster.api(2);
        let exists = |what: &str| {
            let answer = api.get(&format!("queues/%2F/{}", name(what)));
            assert!([200, 404].contains(&answer.status), "{} {}", answer.status, answer.text());
            answer.status == 200
        };
        until("the idle one is gone", || {
            client.queue(1, name("declared"), DURABLE, &arguments).unwrap();
            client.queue(1, name("looked-at"), PASSIVE, &table! {}).unwrap();
            assert!(third.get(1, &name("got"), true).unwrap().is_none());
            !exists("idle")
        });
        let elapsed = created.elapsed();
        assert!(elapsed >= expires, "{kind}: gone after {elapsed:?}");
        for what in ["declared", "looked-at", "got", "consumed"] {
            assert!(exists(what), "{} is in use", name(what));
        }
        client.cancel(1, kind).unwrap();
        until("the others follow", || {
            !["declared", "looked-at", "got", "consumed"].iter().any(|what| exists(what))
        });
    }
}

#[test]
fn case_044_a_dead_letter_exchange_that_leads_back() {
    let (cluster, mut client) = three();
    client.exchange(1, "dlx", "fanout", DURABLE, &table! {}).unwrap();
    let arguments = with(table! {
        "x-dead-letter-exchange" => "dlx", "x-message-ttl" => 30,
        "x-dead-letter-strategy" => "at-least-once", "x-overflow" => "reject-publish",
    });
    declare(&cluster, "q", &arguments);
    declare(&cluster, "other", &quorum());
    for queue in ["q", "other"] {
        client.bind(1, queue, "dlx", "", &table! {}).unwrap();
    }
    put(&cluster, "q", 20);
    until_equal("all have expired", &20, || depth(&mut client, "other"));
    until_equal("nothing grows", &0, || depth(&mut client, "q"));
    assert_eq!(depth(&mut client, "other"), 20);
}

#[test]
fn case_045_dead_letters_keep_their_order() {
    for strategy in ["at-most-once", "at-least-once"] {
        let (cluster, mut client) = three();
        let total = count(200, 1000);
        let dead = |more: Table| {
            let mut arguments = with(more);
            arguments.insert("x-dead-letter-exchange", "");
            arguments.insert("x-dead-letter-routing-key", "dead");
            if strategy == "at-least-once" {
                arguments.insert("x-dead-letter-strategy", strategy);
                arguments.insert("x-overflow", "reject-publish");
            }
            arguments
        };
        declare(&cluster, "dead", &quorum());
        let in_order = |client: &mut Client, why: &str| {
            until_equal(&format!("all are dead: {why}"), &(total as u32), || depth(client, "dead"));
            let order = numbers(&client.take_ready(1, "dead").unwrap());
            assert_eq!(order, (0..total).collect::<Vec<_>>(), "{why}, {strategy}");
            until_equal("the queue is empty", &0, || depth(client, "dead"));
        };
        if strategy == "at-most-once" {
            declare(&cluster, "maxlen", &dead(table! { "x-max-length" => 1 }));
            put(&cluster, "maxlen", total + 1);
            in_order(&mut client, "maxlen");
        }
        declare(&cluster, "rejected", &dead(table! {}));
        put(&cluster, "rejected", total);
        client.consume(1, "rejected", "c").unwrap();
        let held = client.deliveries(1, total).unwrap();
        client.nack(1, held[total / 2].tag, true, false).unwrap();
        for message in &held[total / 2 + 1..] {
            client.reject(1, message.tag, false).unwrap();
        }
        in_order(&mut client, "rejected");

        declare(&cluster, "expired", &dead(table! { "x-message-ttl" => 50 }));
        put(&cluster, "expired", total);
        in_order(&mut client, "expired");

        declare(&cluster, "limited", &dead(table! { "x-delivery-limit" => 1 }));
        put(&cluster, "limited", total);
        client.open(2).unwrap();
        client.consume(2, "limited", "c").unwrap();
        for _ in 0..2 {
            for message in client.deliveries(2, total).unwrap() {
                client.reject(2, message.tag, true).unwrap();
            }
        }
        in_order(&mut client, "limited");
    }
}

#[test]
fn case_048_the_delivery_count_survives_the_leader() {
    let (mut cluster, mut client) = three();
    let arguments = with(table! {
        "x-delivery-limit" => 3,
        "x-dead-letter-exchange" => "", "x-dead-letter-routing-key" => "dead",
    });
    declare(&cluster, "dead", &quorum());
    declare(&cluster, "q", &arguments);
    put(&cluster, "q", 1);
    let reject_twice = |client: &mut Client, first: i64| {
        for n in first..first + 2 {
            let message = client.get_soon_unsettled(1, "q");
            let counted = message.properties.header("x-delivery-count").and_then(Value::as_i64);
            assert_eq!(counted.unwrap_or(0), n);
            assert_eq!(message.redelivered, n > 0);
            client.reject(1, message.tag, true).unwrap();
        }
    };
    reject_twice(&mut client, 0);
    until_equal("it is back", &1, || depth(&mut client, "q"));
    cluster.kill(0);
    reject_twice(&mut client, 2);
    assert_eq!(client.get_soon(1, "dead").text(), "0");
}

#[test]
fn case_052_single_active_consumers_that_time_out() {
    let (cluster, _) = three();
    let arguments = table! { "x-single-active-consumer" => true, "x-consumer-timeout" => 1000 };
    declare(&cluster, "q", &with(arguments));
    put(&cluster, "q", 3);
    let mut first = cluster.channel(1);
    first.qos(1, 1, false).unwrap();
    first.consume(1, "q", "first").unwrap();
    let mut second = cluster.channel(2);
    second.qos(1, 1, false).unwrap();
    second.consume(1, "q", "second").unwrap();
    assert_eq!(first.delivery(1).unwrap().text(), "0");
    assert_eq!(first.await_cancel(1).unwrap(), "first");
    let message = second.delivery(1).unwrap();
    assert_eq!((message.text().as_str(), message.redelivered), ("0", true));
    assert_eq!(second.await_cancel(1).unwrap(), "second");
    let mut third = cluster.channel(0);
    third.consume(1, "q", "third").unwrap();
    let message = third.delivery(1).unwrap();
    assert_eq!(message.text(), "0");
    third.ack(1, message.tag, false).unwrap();
}

#[test]
fn case_056_a_returned_message_comes_next() {
    let (cluster, mut client) = three();
    declare(&cluster, "q", &quorum());
    put(&cluster, "q", 3);
    client.qos(1, 1, false).unwrap();
    client.consume(1, "q", "c").unwrap();
    for round in 0..3 {
        let message = client.delivery(1).unwrap();
        assert_eq!((message.text().as_str(), message.redelivered), ("0", round > 0));
        client.nack(1, message.tag, false, true).unwrap();
    }
    for expected in ["0", "1", "2"] {
        let message = client.delivery(1).unwrap();
        assert_eq!(message.text(), expected);
        client.ack(1, message.tag, false).unwrap();
    }
}

#[test]
fn case_058_consumer_timeout() {
    let (cluster, mut client) = three();
    declare(&cluster, "q", &with(table! { "x-consumer-timeout" => 1000 }));
    put(&cluster, "q", 1);
    let begin = Instant::now();
    client.consume(1, "q", "slow").unwrap();
    client.delivery(1).unwrap();
    assert_eq!(client.await_cancel(1).unwrap(), "slow");
    assert!(begin.elapsed() >= Duration::from_secs(1), "{:?}", begin.elapsed());
    let mut other = cluster.channel(2);
    other.consume(1, "q", "other").unwrap();
    let message = other.delivery(1).unwrap();
    assert!(message.redelivered);
    other.ack(1, message.tag, false).unwrap();
    until_equal("nothing is left", &0, || depth(&mut client, "q"));
}

#[test]
fn case_060_unsettled_messages_come_back_when_the_leader_dies() {
    let (mut cluster, _) = three();
    declare(&cluster, "q", &quorum());
    put(&cluster, "q", 1000);
    // One client on the node that dies, one on a survivor; both go.
    let mut near = cluster.channel(0);
    near.qos(1, 500, false).unwrap();
    near.consume(1, "q", "near").unwrap();
    near.deliveries(1, 500).unwrap();
    let mut far = cluster.channel(1);
    far.consume(1, "q", "far").unwrap();
    far.deliveries(1, 500).unwrap();
    cluster.kill(0);
    let mut client = cluster.channel(2);
    far.deliveries(1, 500).unwrap();
    drop((near, far));
    until_equal("all thousand are ready", &1000, || depth(&mut client, "q"));
    let mut all = client.take_ready(1, "q").unwrap();
    assert!(all.iter().all(|message| message.redelivered));
    all.sort_by_key(|message| message.text().parse::<usize>().unwrap());
    assert_eq!(numbers(&all), (0..1000).collect::<Vec<_>>());
    cluster.start(0);
    until_equal("nothing is left", &0, || depth(&mut cluster.channel(0), "q"));
    let queue = cluster.view(0, "q");
    assert_eq!(queue["messages_unacknowledged"], 0, "{queue}");
}

/// Publishes and consumes `total` messages of 1 KiB through other nodes than the leader; the largest
/// journal meanwhile.
fn flow(cluster: &Cluster, queue: &str, total: usize) -> u64 {
    let window = 1000;
    let mut consumer = cluster.channel(2);
    consumer.qos(1, 500, false).unwrap();
    consumer.consume(1, queue, "flow").unwrap();
    let mut publisher = cluster.channel(1);
    publisher.confirm_select(1).unwrap();
    let mut confirms = Confirms::default();
    let mut peak = 0;
    let body = vec![b'x'; 1024];
    for n in 1..=total {
        publisher.put(1, queue, &body).unwrap();
        if n % window == 0 {
            publisher.await_confirms(1, &mut confirms, n).unwrap();
            for _ in 0..window {
                let message = consumer.delivery(1).unwrap();
                if message.tag.is_multiple_of(100) {
                    consumer.ack(1, message.tag, true).unwrap();
                    consumer.flush().unwrap();
                }
            }
            peak = peak.max(journals(cluster).into_iter().max().unwrap_or_default());
        }
    }
    consumer.cancel(1, "flow").unwrap();
    peak
}

#[test]
fn case_064_and_114_one_old_message_does_not_pin_the_disk_not_even_after_a_restart() {
    let (mut cluster, mut client) = three();
    declare(&cluster, "q", &quorum());
    client.confirm_select(1).unwrap();
    client.put(1, "q", "old").unwrap();
    client.confirms(1, 1).unwrap();
    client.get(1, "q", false).unwrap().expect("held until the end");
    let total = count(30_000, 1_000_000);
    // 3 times what is alive (the window in flight, and the tail of the log that is kept for members
    // that lag) and six segments.
    let bound = 3 * ((2 << 20) + (8 << 20)) + 6 * SEGMENT;
    let peak = flow(&cluster, "q", total);
    eprintln!("{total} messages of 1 KiB passed; a journal took {peak} bytes at most");
    assert!(peak < bound, "{peak} bytes of journal at peak, {bound} allowed");
    for node in [0, 2] {
        cluster.node(node).stop();
        cluster.start(node);
    }
    let peak = flow(&cluster, "q", total);
    assert!(peak < bound, "{peak} bytes of journal at peak after a restart, {bound} allowed");
    drop(client);
    assert_eq!(cluster.channel(0).get_soon(1, "q").text(), "old");
}

#[test]
fn case_065_consumers_that_come_and_go_cost_no_disk() {
    let (cluster, mut client) = three();
    declare(&cluster, "q", &quorum());
    let come_and_go = |client: &mut Client, times: usize| {
        for _ in 0..times {
            client.consume(1, "q", "c").unwrap();
            client.cancel(1, "c").unwrap();
            assert!(client.get(1, "q", true).unwrap().is_none());
        }
    };
    come_and_go(&mut client, count(3000, 200_000));
    let bound = 6 * SEGMENT + (1 << 20);
    until("the disk is back to its base", || journals(&cluster).iter().all(|disk| *disk <= bound));
}

#[test]
fn case_066_an_idle_cluster_writes_nothing() {
    let (cluster, mut client) = three();
    declare(&cluster, "q", &quorum());
    put(&cluster, "q", 1);
    let definition = json!({ "pattern": "^q$", "definition": { "delivery-limit": -1 } });
    assert!(cluster.api(0).put("policies/%2F/p", &definition).status < 300);
    client.sync(1).unwrap();
    let written = || -> Vec<u64> {
        let bytes = |pid: u32| {
            let io = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
            let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap();
            line.parse::<u64>().unwrap()
        };
        cluster.nodes.iter().map(|node| bytes(node.pid())).collect()
    };
    std::thread::sleep(Duration::from_secs(3));
    let before = written();
    let time = Duration::from_secs(count(5, 600) as u64);
    std::thread::sleep(time);
    for (node, (before, after)) in before.into_iter().zip(written()).enumerate() {
        let grown = after - before;
        assert!(grown < 4 << 20, "{} wrote {grown} bytes in {time:?}", name(node));
    }
}

#[test]
fn case_067_expired_messages_give_their_disk_back() {
    let (cluster, _) = three();
    let total = count(10_000, 1_000_000);
    let arguments = with(table! {
        "x-message-ttl" => 100,
        "x-dead-letter-exchange" => "", "x-dead-letter-routing-key" => "dead",
    });
    declare(&cluster, "q", &arguments);
    declare(&cluster, "dead", &quorum());
    let mut consumer = cluster.channel(2);
    consumer.qos(1, 1000, false).unwrap();
    consumer.consume(1, "dead", "c").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| put(&cluster, "q", total));
        for n in 1..=total {
            let message = consumer.delivery(1).unwrap();
            if n % 100 == 0 || n == total {
                consumer.ack(1, message.tag, true).unwrap();
                consumer.flush().unwrap();
            }
        }
    });
    consumer.sync(1).unwrap();
    let bound = 6 * SEGMENT + (9 << 20);
    until("the disk is back to its base", || journals(&cluster).iter().all(|disk| *disk <= bound));
}

#[test]
fn case_068_queues_made_and_deleted_while_a_node_restarts() {
    let (mut cluster, _) = three();
    let (clients, each) = (count(4, 20), count(15, 250));
    let addresses = cluster.addresses();
    std::thread::scope(|scope| {
        for number in 0..clients {
            let addresses = &addresses;
            scope.spawn(move || {
                let mut turn = number;
                for n in 0..each {
                    let queue = format!("q-{number}-{n}");
                    for delete in [false, true] {
                        until("a node makes or deletes a queue", || {
                            let Ok(mut client) = channel(addresses[turn % 2]) else {
                                turn += 1;
                                return false;
                            };
                            client.patience = Duration::from_secs(10);
                            let done = if delete {
                                client.delete_queue(1, &queue).is_ok()
                            } else {
                                client.queue(1, &queue, DURABLE, &quorum()).is_ok()
                            };
                            turn += 1;
                            done
                        });
                    }
                }
            });
        }
        for _ in 0..3 {
            cluster.kill(2);
            cluster.start(2);
        }
    });
    for node in 0..3 {
        until("no queue is left", || {
            cluster.api(node).json("queues").as_array().is_some_and(Vec::is_empty)
        });
    }
    for number in 0..clients {
        let queue = format!("q-{number}-{}", each - 1);
        cluster.channel(number % 3).queue(1, &queue, DURABLE, &quorum()).unwrap();
        cluster.await_served((number + 1) % 3, &queue);
    }
}

#[test]
fn case_069_a_wiped_node_rejoins_without_a_ghost() {
    let (mut cluster, _) = three();
    declare(&cluster, "before", &quorum());
    cluster.kill(2);
    cluster.node(2).wipe();
    cluster.start(2);
    until("three nodes run, and none is there twice", || {
        let nodes = cluster.api(0).json("nodes");
        let mut names: Vec<&str> = nodes
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|node| node["name"].as_str())
            .collect();
        names.sort_unstable();
        names == ["leveret@n0", "leveret@n1", "leveret@n2"]
    });
    // New queues use it as a full member.
    declare(&cluster, "after", &quorum());
    cluster.kill(1);
    cluster.await_served(2, "after");
}

#[test]
fn case_070_rolling_restart_under_load() {
    let (mut cluster, _) = three();
    declare(&cluster, "q", &quorum());
    let all = cluster.addresses();
    let load = Plan::new("q", &[all[1], all[2], all[0]], &[all[2], all[0], all[1]]).start();
    for node in 0..3 {
        load.await_more(200);
        assert!(cluster.node(node).stop().success());
        cluster.start(node);
    }
    load.await_more(200);
    load.finish(Duration::from_secs(30)).judge();
    put(&cluster, "q", 10);
}

#[test]
fn case_071_alarms_of_two_nodes() {
    let mut cluster = Setup::new()
        .set_on(1, "disk.free_limit", "900TiB")
        .set_on(2, "disk.free_limit", "900TiB")
        .prepare();
    for node in 0..3 {
        cluster.run(node);
    }
    cluster.await_formed();
    declare(&cluster, "q", &quorum());
    let mut publisher = cluster.channel(0);
    publisher.put(1, "q", "blocked").unwrap();
    publisher.flush().unwrap();
    publisher.await_blocked().unwrap();
    let alarms = |cluster: &Cluster, check: &str| {
        let answer = cluster.api(0).get(&format!("health/checks/{check}"));
        let nodes = answer.json()["alarms"].as_array().map(|alarms| {
            let name =
                |alarm: &serde_json::Value| format!("{} {}", alarm["node"], alarm["resource"]);
            alarms.iter().map(name).collect::<Vec<_>>()
        });
        (answer.status, nodes.unwrap_or_default())
    };
    let of = |node: usize| format!("\"leveret@n{node}\" \"disk\"");
    assert_eq!(alarms(&cluster, "alarms"), (503, vec![of(1), of(2)]));
    assert_eq!(alarms(&cluster, "local-alarms"), (200, vec![]));
    for node in [1, 2] {
        publisher.drain();
        assert!(!publisher.waiting(0).contains(&(10, 61)), "{} still has its alarm", name(node));
        cluster.node(node).stop();
        cluster.node(node).set("disk.free_limit", "1MiB");
        cluster.start(node);
    }
    publisher.await_unblocked().unwrap();
    assert_eq!(alarms(&cluster, "alarms"), (200, vec![]));
    publisher.drain();
    assert!(!publisher.waiting(0).contains(&(10, 61)), "it is said once");
}

#[test]
fn case_089_a_virtual_host_whose_queues_are_quorum_by_default() {
    let (cluster, _) = three();
    let api = cluster.api(0);
    let body = json!({ "default_queue_type": "quorum" });
    assert!(api.put("vhosts/replicated", &body).status < 300);
    let everything = json!({ "configure": ".*", "write": ".*", "read": ".*" });
    assert!(api.put("permissions/replicated/guest", &everything).status < 300);
    for node in 0..3 {
        let options = e2e::client::connect::Options::new(cluster.amqp(node)).vhost("replicated");
        let mut client = options.connect().unwrap();
        client.open(1).unwrap();
        client.queue(1, "q", DURABLE, &table! {}).unwrap();
        client.queue(1, "q", DURABLE, &quorum()).unwrap();
        let exclusive = e2e::client::topology::EXCLUSIVE;
        client.queue(1, format!("own-{node}"), exclusive, &table! {}).unwrap();
    }
    let queue = cluster.api(2).json("queues/replicated/q");
    assert_eq!(queue["type"], "quorum", "{queue}");
}

#[test]
fn case_102_a_higher_priority_becomes_the_single_active_consumer() {
    let (cluster, mut low) = three();
    declare(&cluster, "q", &with(table! { "x-single-active-consumer" => true }));
    low.qos(1, 1, false).unwrap();
    low.consume_with(1, "q", "low", 0, &table! { "x-priority" => 1 }).unwrap();
    put(&cluster, "q", 1);
    let message = low.delivery(1).unwrap();
    let mut high = cluster.channel(2);
    high.consume_with(1, "q", "high", 0, &table! { "x-priority" => 5 }).unwrap();
    low.nack(1, message.tag, false, true).unwrap();
    low.flush().unwrap();
    let message = high.delivery(1).unwrap();
    assert_eq!((message.text().as_str(), message.redelivered), ("0", true));
    low.sync(1).unwrap();
    assert_eq!(low.waiting(1), []);
}

#[test]
fn case_103_declare_consume_delete_leaves_no_files_open() {
    let (mut cluster, mut client) = three();
    let files: Vec<usize> = cluster.nodes.iter().map(e2e::node::Node::descriptors).collect();
    for _ in 0..count(100, 1000) {
        client.queue(1, "q", DURABLE, &quorum()).unwrap();
        client.consume(1, "q", "c").unwrap();
        client.delete_queue(1, "q").unwrap();
        assert_eq!(client.await_cancel(1).unwrap(), "c");
    }
    for (node, before) in files.into_iter().enumerate() {
        let after = cluster.node(node).descriptors();
        assert!(after <= before + 5, "{}: {before} before, {after} after", name(node));
    }
}

#[test]
fn case_105_metrics_per_object_are_well_formed() {
    let (mut cluster, mut client) = three();
    for queue in ["one", "two", "t\"h\\ree"] {
        declare(&cluster, queue, &quorum());
        put(&cluster, queue, 10);
    }
    client.queue(1, "classic", DURABLE, &table! {}).unwrap();
    client.consume(1, "one", "c").unwrap();
    client.deliveries(1, 10).unwrap();
    for node in 0..3 {
        let metrics = e2e::http::Api::new(cluster.node(node).metrics).anonymous();
        for path in
            ["/metrics", "/metrics/per-object", "/metrics/detailed?family=queue_coarse_metrics"]
        {
            let answer = metrics.request("GET", path, None).unwrap();
            assert_eq!(answer.status, 200, "{path}");
            let families = e2e::exposition::check(&answer.text())
                .unwrap_or_else(|wrong| panic!("{}{path}: {wrong}", name(node)));
            assert!(!families.is_empty(), "{path}");
            if path == "/metrics/per-object" && node == 0 {
                assert_eq!(families.get("rabbitmq_queue_messages_ready"), Some(&3), "{families:?}");
            }
        }
    }
}

#[test]
fn case_112_a_large_backlog_survives_the_kill_of_all_nodes() {
    let (mut cluster, mut client) = three();
    let total = count(20_000, 1_000_000);
    declare(&cluster, "q", &with(table! { "x-delivery-limit" => 100 }));
    put(&cluster, "q", total);
    for n in 0..30 {
        let message = client.get(1, "q", false).unwrap().unwrap();
        assert_eq!(message.text(), n.to_string());
        match n % 3 {
            0 => client.ack(1, message.tag, false).unwrap(),
            1 => {}
            _ => client.nack(1, message.tag, false, false).unwrap(),
        }
    }
    client.sync(1).unwrap();
    until_equal("30 are gone or held", &(total as u32 - 30), || depth(&mut client, "q"));
    for node in 0..3 {
        cluster.kill(node);
    }
    for node in 0..3 {
        cluster.run(node);
    }
    cluster.await_formed();
    let left = total - 20;
    cluster.await_depth(1, "q", left as u32);
    let mut client = cluster.channel(1);
    let all = client.take_ready(1, "q").unwrap();
    let expected: Vec<usize> = (0..total).filter(|n| *n >= 30 || n % 3 == 1).collect();
    assert_eq!(numbers(&all), expected);
    assert!(all[..10].iter().all(|message| message.redelivered));
    until_equal("nothing is left", &0, || depth(&mut client, "q"));
}

#[test]
fn case_113_dead_lettering_goes_on_while_members_come_and_go() {
    let (cluster, mut client) = three();
    let (changes, round) = (count(5, 50), 500);
    let arguments = with(table! {
        "x-message-ttl" => 10, "x-overflow" => "reject-publish",
        "x-dead-letter-strategy" => "at-least-once",
        "x-dead-letter-exchange" => "", "x-dead-letter-routing-key" => "dead",
    });
    declare(&cluster, "q", &arguments);
    declare(&cluster, "dead", &quorum());
    client.qos(1, 1000, false).unwrap();
    client.consume(1, "dead", "c").unwrap();
    std::thread::scope(|scope| {
        let coming_and_going = scope.spawn(|| {
            let (api, node) = (cluster.api(2), json!({ "node": "leveret@n2" }).to_string());
            for (queue, _) in ["q", "dead"].iter().cycle().zip(0..2 * changes) {
                for (verb, what) in [("DELETE", "delete"), ("POST", "add")] {
                    let path = format!("queues/quorum/%2F/{queue}/replicas/{what}");
                    let answer = api.call(verb, &path, Some(&node));
                    assert!(answer.status < 300, "{path}: {} {}", answer.status, answer.text());
                }
            }
        });
        let mut rounds = 0;
        while !coming_and_going.is_finished() || rounds == 0 {
            put(&cluster, "q", round);
            let mut dead = std::collections::BTreeSet::new();
            while dead.len() < round {
                let message = client.delivery(1).unwrap();
                dead.insert(message.text());
                client.ack(1, message.tag, false).unwrap();
                client.flush().unwrap();
            }
            rounds += 1;
        }
        eprintln!("{rounds} times {round} messages died during {} changes", 4 * changes);
    });
    for queue in ["q", "dead"] {
        until_equal("nothing is left", &0, || depth(&mut cluster.channel(2), queue));
    }
}

#[test]
fn a_queue_that_is_deleted_is_gone_for_a_node_that_was_away() {
    let (mut cluster, mut client) = three();
    declare(&cluster, "q", &quorum());
    put(&cluster, "q", 10);
    cluster.kill(2);
    client.delete_queue(1, "q").unwrap();
    cluster.start(2);
    match cluster.channel(2).queue(1, "q", PASSIVE, &table! {}) {
        Err(Failure::Channel { code: 404, .. }) => {}
        other => panic!("a deleted queue is there: {other:?}"),
    }
    declare(&cluster, "q", &quorum());
    assert_eq!(depth(&mut cluster.channel(2), "q"), 0);
    cluster.await_served(2, "q");
}
