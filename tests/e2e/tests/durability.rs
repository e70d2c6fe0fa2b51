//! What survives: cases 62, 63, 65 to 67, 72, 73, 75, 112, 116, 117, and confirmed messages.

use std::fs::{self, File};
use std::time::{Duration, Instant};

use e2e::broker::Broker;
use e2e::client::topology::{DURABLE, EXCLUSIVE};
use e2e::client::{Client, Failure};
use e2e::content::Properties;
use e2e::load::Round;
use e2e::node::{Setup, occupied};
use e2e::table;
use e2e::wait::{count, until};
use serde_json::json;

#[test]
fn a_confirmed_message_survives_a_restart_and_a_crash() {
    let Some(mut broker) = Broker::own(Setup::new()) else { return };
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! { "x-max-priority" => 3 }).unwrap();
    client.exchange(1, "x", "topic", DURABLE, &table! {}).unwrap();
    client.bind(1, "q", "x", "a.#", &table! {}).unwrap();
    client.confirm_select(1).unwrap();
    let properties = Properties {
        headers: Some(table! { "k" => "v" }),
        priority: Some(2),
        message_id: Some("id".into()),
        ..Properties::persistent()
    };
    client.publish(1, "x", "a.b", &properties, "persistent").unwrap();
    client.publish(1, "x", "a.b", &Properties::default(), "transient").unwrap();
    client.confirms(1, 2).unwrap();
    for crash in [false, true, false] {
        if crash {
            broker.node().crash();
        } else {
            broker.node().restart();
        }
        let mut client = broker.channel();
        assert_eq!(client.depth(1, "q").unwrap().messages, 1, "the transient one is gone");
        let message = client.get(1, "q", false).unwrap().unwrap();
        assert_eq!(message.text(), "persistent");
        assert_eq!(message.properties, properties);
        assert_eq!((message.exchange.as_str(), message.routing_key.as_str()), ("x", "a.b"));
        client.nack(1, message.tag, false, true).unwrap();
        client.sync(1).unwrap();
    }
    let mut client = broker.channel();
    client.publish(1, "x", "a.c", &Properties::persistent(), "routed as before").unwrap();
    client.sync(1).unwrap();
    assert_eq!(client.depth(1, "q").unwrap().messages, 2);
}

#[test]
fn topology_survives_a_crash() {
    let Some(mut broker) = Broker::own(Setup::new()) else { return };
    let mut client = broker.channel();
    client.queue(1, "durable", DURABLE, &table! { "x-max-length" => 7 }).unwrap();
    client.queue(1, "transient", 0, &table! {}).unwrap();
    client.queue(1, "exclusive", EXCLUSIVE, &table! {}).unwrap();
    client.exchange(1, "x", "direct", DURABLE, &table! {}).unwrap();
    client.exchange(1, "gone", "direct", 0, &table! {}).unwrap();
    client.bind(1, "durable", "x", "k", &table! {}).unwrap();
    client.bind(1, "transient", "x", "k", &table! {}).unwrap();
    broker.user("somebody", ".*", ".*", ".*");
    broker.policy("p", "^durable$", &json!({ "message-ttl": 60_000 }));
    broker.node().crash();
    let mut names: Vec<String> = broker
        .api
        .json("queues")
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|queue| queue["name"].as_str().map(str::to_owned))
        .collect();
    names.sort();
    assert_eq!(names, ["durable"]);
    let queue = broker.api.json(&broker.queue_path("durable"));
    assert_eq!(queue["arguments"]["x-max-length"], 7);
    assert_eq!(queue["policy"], "p");
    assert_eq!(broker.api.get(&broker.exchange_path("gone")).status, 404);
    let bindings = broker.api.json(&format!("{}/bindings/source", broker.exchange_path("x")));
    assert_eq!(bindings.as_array().map(Vec::len), Some(1));
    let mut client = broker.options().login("somebody", "secret").connect().unwrap();
    client.open(1).unwrap();
    client.queue(1, "durable", DURABLE, &table! { "x-max-length" => 7 }).unwrap();
}

#[test]
fn case_062_killed_under_load() {
    if std::env::var_os("E2E_BROKER_URI").is_some() {
        return;
    }
    for fanout in [false, true] {
        let mut node = Setup::new().start();
        let mut report = Round::new(7, fanout);
        for _ in 0..count(4, 100) {
            report.run(&mut node);
        }
        eprintln!("{report}");
        report.judge();
    }
}

/// Files of the journal that end in something else than zeros, with the length of their content.
fn contents(directory: &std::path::Path) -> Vec<(std::path::PathBuf, u64)> {
    let mut found = Vec::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(bytes) = fs::read(&path)
                && let Some(last) = bytes.iter().rposition(|byte| *byte != 0)
            {
                found.push((path, last as u64 + 1));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn case_063_a_damaged_tail_costs_only_itself() {
    let cuts: &[u64] = if e2e::wait::full() { &[1, 7, 64, 513, 4096] } else { &[1, 300] };
    for cut in cuts {
        for zero in [false, true] {
            let Some(mut broker) = Broker::own(Setup::new()) else { return };
            let mut client = broker.channel();
            client.queue(1, "q", DURABLE, &table! {}).unwrap();
            client.confirm_select(1).unwrap();
            for n in 0..100 {
                client.put(1, "q", format!("{n}-{}", "x".repeat(500))).unwrap();
            }
            client.confirms(1, 100).unwrap();
            broker.node().kill();
            let journal = broker.node().directory.join("journal");
            let (path, length) = contents(&journal)
                .into_iter()
                .filter(|(path, _)| fs::metadata(path).is_ok_and(|m| m.len() >= 1 << 20))
                .max_by_key(|(_, length)| *length)
                .expect("the journal has a segment with content");
            let size = fs::metadata(&path).unwrap().len();
            let file = File::options().write(true).open(&path).unwrap();
            file.set_len(length.saturating_sub(*cut)).unwrap();
            if zero {
                file.set_len(size).unwrap();
            }
            drop(file);
            broker.node().start_again();
            let mut client = broker.channel();
            let rest: Vec<usize> = client
                .take_ready(1, "q")
                .unwrap()
                .iter()
                .map(|message| message.text().split('-').next().unwrap().parse().unwrap())
                .collect();
            assert!(rest.len() >= 80, "cut {cut}, zero {zero}: {} of 100 left", rest.len());
            assert_eq!(rest, (0..rest.len()).collect::<Vec<_>>(), "a prefix, in order");
            client.put(1, "q", "new").unwrap();
            assert_eq!(client.get_soon(1, "q").text(), "new");
        }
    }
}

#[test]
fn case_064_one_old_message_does_not_pin_the_disk() {
    let Some(mut broker) = Broker::own(Setup::new()) else { return };
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    client.confirm_select(1).unwrap();
    client.put(1, "q", "old").unwrap();
    client.confirms(1, 1).unwrap();
    client.get(1, "q", false).unwrap().expect("held until the end");
    let total = count(30_000, 2_000_000);
    let peak = flow(&mut broker, "q", total);
    // Segments of 4 MiB here: 3 times what is alive (the window in flight) and six segments.
    let bound = 3 * (2 << 20) + 6 * (4 << 20);
    assert!(peak < bound, "{peak} bytes of journal at peak, {bound} allowed");
    eprintln!("{total} messages of 1 KiB passed; the journal took {peak} bytes at most");
}

/// Publishes and consumes `total` messages of 1 KiB; the journal's largest size meanwhile.
fn flow(broker: &mut Broker, queue: &str, total: usize) -> u64 {
    let window = 1000;
    let mut consumer = broker.channel();
    consumer.qos(1, 500, false).unwrap();
    consumer.consume(1, queue, "c").unwrap();
    let mut publisher = broker.channel();
    publisher.confirm_select(1).unwrap();
    let mut confirms = e2e::client::confirms::Confirms::default();
    let journal = broker.node().directory.join("journal");
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
            peak = peak.max(occupied(&journal));
        }
    }
    peak
}

#[test]
fn case_065_consumers_that_come_and_go_cost_no_disk() {
    let Some(mut broker) = Broker::own(Setup::new()) else { return };
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    let come_and_go = |client: &mut Client, times: usize| {
        for _ in 0..times {
            client.consume(1, "q", "c").unwrap();
            client.cancel(1, "c").unwrap();
            assert!(client.get(1, "q", true).unwrap().is_none());
        }
    };
    // The journal is still laying out its first segments; that ends, or this does not.
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut before = 0;
    while before != broker.node().disk() {
        assert!(Instant::now() < deadline, "the disk never comes to rest: {before} bytes");
        before = broker.node().disk();
        come_and_go(&mut client, 500);
    }
    come_and_go(&mut client, count(2000, 200_000));
    let after = broker.node().disk();
    assert!(after <= before + (1 << 20), "{before} bytes before, {after} after");
}

#[test]
fn case_067_expired_messages_give_their_disk_back() {
    let Some(mut broker) = Broker::own(Setup::new()) else { return };
    let total = count(20_000, 1_000_000);
    let mut client = broker.channel();
    let arguments = table! {
        "x-message-ttl" => 100,
        "x-dead-letter-exchange" => "", "x-dead-letter-routing-key" => "dead",
    };
    client.queue(1, "q", DURABLE, &arguments).unwrap();
    client.queue(1, "dead", DURABLE, &table! {}).unwrap();
    let mut consumer = broker.channel();
    consumer.qos(1, 1000, false).unwrap();
    consumer.consume(1, "dead", "c").unwrap();
    client.confirm_select(1).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut confirms = e2e::client::confirms::Confirms::default();
            for n in 1..=total {
                client.put(1, "q", vec![b'x'; 500]).unwrap();
                if n % 1000 == 0 {
                    client.await_confirms(1, &mut confirms, n).unwrap();
                }
            }
            client.await_confirms(1, &mut confirms, total).unwrap();
        });
        for n in 1..=total {
            let message = consumer.delivery(1).unwrap();
            if n % 100 == 0 || n == total {
                consumer.ack(1, message.tag, true).unwrap();
                consumer.flush().unwrap();
            }
        }
    });
    consumer.sync(1).unwrap();
    let bound = 6 * (4 << 20) + (1 << 20);
    let node = broker.node();
    until("the disk is back to its base", || occupied(&node.directory.join("journal")) <= bound);
}

#[test]
fn case_072_nothing_half_made_while_the_disk_is_low() {
    // The alarm is on from the start: no disk has this much room.
    let Some(broker) = Broker::own(Setup::new().set("disk.free_limit", "900TiB")) else { return };
    let mut client = broker.connect();
    let declared = client.open(1).and_then(|()| client.queue(1, "q", DURABLE, &table! {}));
    let exists = broker.api.get(&broker.queue_path("q")).status == 200;
    assert_eq!(declared.is_ok(), exists, "{declared:?}");
}

#[test]
fn case_073_alarms_block_publishers_only() {
    let Some(mut broker) = Broker::own(Setup::new()) else { return };
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    client.confirm_select(1).unwrap();
    for n in 0..10 {
        client.put(1, "q", n.to_string()).unwrap();
    }
    client.confirms(1, 10).unwrap();
    broker.node().stop();
    broker.node().set("disk.free_limit", "900TiB");
    broker.node().run();
    until("AMQP serves", || broker.node.as_ref().is_some_and(e2e::node::Node::serves_amqp));
    let mut publisher = broker.channel();
    publisher.put(1, "q", "blocked").unwrap();
    let reason = publisher.await_blocked().unwrap();
    assert_eq!(reason, "low on disk");
    // Consumers go on.
    let mut consumer = broker.channel();
    consumer.consume(1, "q", "c").unwrap();
    for n in 0..10 {
        let message = consumer.delivery(1).unwrap();
        assert_eq!(message.text(), n.to_string());
        consumer.ack(1, message.tag, false).unwrap();
    }
    consumer.sync(1).unwrap();
    // What made the broker say so was taken; nothing after it is.
    publisher.put(1, "q", "waits in the socket").unwrap();
    publisher.flush().unwrap();
    assert!(consumer.depth(1, "q").unwrap().messages <= 1);
    // Publishing over HTTP is refused, not taken.
    let path = format!("{}/publish", broker.exchange_path("amq.default"));
    let body = json!({
        "routing_key": "q", "properties": {}, "payload": "m", "payload_encoding": "string",
    });
    let answer = broker.api.post(&path, &body);
    assert!(answer.status >= 400, "{} {}", answer.status, answer.text());
    let answer = broker.api.get("health/checks/local-alarms");
    assert_eq!(answer.status, 503, "{}", answer.text());
    let node = broker.api.json("nodes")[0].clone();
    assert_eq!(node["disk_free_alarm"], true);
    assert_eq!(node["mem_alarm"], false);
}

#[test]
fn case_073b_a_memory_limit_of_zero_blocks() {
    let Some(broker) = Broker::own(Setup::new().set("memory.limit", "0")) else { return };
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    client.put(1, "q", "blocked").unwrap();
    assert_eq!(client.await_blocked().unwrap(), "low on memory");
    // What made the broker say so was taken; nothing after it is read.
    client.put(1, "q", "waits in the socket").unwrap();
    client.flush().unwrap();
    let mut other = broker.channel();
    assert!(other.depth(1, "q").unwrap().messages <= 1);
}

#[test]
fn case_075_many_queues_start_quickly() {
    let Some(mut broker) = Broker::own(Setup::new()) else { return };
    let queues = count(500, 10_000);
    let each = count(10, 100);
    let mut client = broker.channel();
    let names: Vec<String> = (0..queues).map(|n| format!("q-{n}")).collect();
    client.durable_queues(1, &names).unwrap();
    client.confirm_select(1).unwrap();
    let mut confirms = e2e::client::confirms::Confirms::default();
    let mut published = 0;
    for _ in 0..each {
        for name in &names {
            client.put(1, name, "message").unwrap();
            published += 1;
            if published % 500 == 0 {
                client.await_confirms(1, &mut confirms, published).unwrap();
                confirms.forget();
            }
        }
    }
    client.await_confirms(1, &mut confirms, published).unwrap();
    let stopped = broker.node().restart();
    let killed = broker.node().crash();
    eprintln!("{queues} queues serve {stopped:?} after a stop, {killed:?} after a kill");
    assert!(stopped < Duration::from_secs(30) && killed < Duration::from_secs(30));
    let mut client = broker.channel();
    for n in [0, queues / 2, queues - 1] {
        assert_eq!(client.depth(1, &format!("q-{n}")).unwrap().messages as usize, each);
    }
}

#[test]
fn case_112_a_large_backlog_survives_a_kill_whole() {
    let Some(mut broker) = Broker::own(Setup::new()) else { return };
    let total = count(20_000, 1_000_000);
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! { "x-delivery-limit" => 100 }).unwrap();
    client.confirm_select(1).unwrap();
    let mut confirms = e2e::client::confirms::Confirms::default();
    for n in 1..=total {
        client.put(1, "q", n.to_string()).unwrap();
        if n % 5000 == 0 || n == total {
            client.await_confirms(1, &mut confirms, n).unwrap();
        }
    }
    // Some are acknowledged, some rejected, some held.
    client.open(2).unwrap();
    for n in 1..=30 {
        let message = client.get(2, "q", false).unwrap().unwrap();
        assert_eq!(message.text(), n.to_string());
        match n % 3 {
            0 => client.ack(2, message.tag, false).unwrap(),
            1 => {}
            _ => client.nack(2, message.tag, false, false).unwrap(),
        }
    }
    client.sync(2).unwrap();
    // The acks are part of a group commit once a later publish is confirmed.
    client.put(1, "q", (total + 1).to_string()).unwrap();
    client.await_confirms(1, &mut confirms, total + 1).unwrap();
    broker.node().crash();
    let mut client = broker.channel();
    assert_eq!(client.depth(1, "q").unwrap().messages as usize, total + 1 - 20);
    let first = client.get(1, "q", true).unwrap().unwrap();
    assert_eq!((first.text().as_str(), first.redelivered), ("1", true));
    let all = client.take_ready(1, "q").unwrap();
    let numbers: Vec<usize> = all.iter().map(|message| message.text().parse().unwrap()).collect();
    let expected: Vec<usize> = (2..=total + 1).filter(|n| *n > 30 || n % 3 == 1).collect();
    assert_eq!(numbers, expected);
}

#[test]
fn case_116_one_message_in_ten_queues() {
    let Some(mut broker) = Broker::own(Setup::new()) else { return };
    let total = count(1000, 20_000);
    let mut client = broker.channel();
    client.exchange(1, "x", "fanout", DURABLE, &table! {}).unwrap();
    let queues: Vec<String> = (0..10).map(|n| format!("q{n}")).collect();
    for queue in &queues {
        client.queue(1, queue, DURABLE, &table! {}).unwrap();
        client.bind(1, queue, "x", "", &table! {}).unwrap();
    }
    client.confirm_select(1).unwrap();
    let body = vec![b'x'; 2000];
    for _ in 0..total {
        client.publish(1, "x", "", &Properties::persistent(), &body).unwrap();
    }
    client.confirms(1, total).unwrap();
    let stored = occupied(&broker.node().directory.join("journal"));
    assert!(
        stored < (total as u64 * 2000) * 3 + (24 << 20),
        "ten queues share one copy: {stored} bytes for {total} messages"
    );
    // Each queue is emptied at a time of its own while new messages make the journal compact.
    client.queue(1, "filler", DURABLE, &table! {}).unwrap();
    for (index, queue) in queues.iter().enumerate() {
        if index == 9 {
            broker.node().crash();
            client = broker.channel();
        }
        let messages = client.take_ready(1, queue).unwrap();
        assert_eq!(messages.len(), total, "{queue}");
        assert!(messages.iter().all(|message| message.body == body));
        if index < 8 {
            flow(&mut broker, "filler", 3000);
        }
    }
}

#[test]
fn case_117_many_restarts() {
    let Some(mut broker) = Broker::own(Setup::new()) else { return };
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    client.confirm_select(1).unwrap();
    client.put(1, "q", "m").unwrap();
    client.confirms(1, 1).unwrap();
    drop(client);
    let files = |directory: &std::path::Path| {
        let mut seen = 0_usize;
        let mut folders = vec![directory.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                seen += 1;
                if entry.path().is_dir() {
                    folders.push(entry.path());
                }
            }
        }
        seen
    };
    let rounds = count(10, 300);
    let mut times = Vec::new();
    let mut paths = Vec::new();
    for round in 0..rounds {
        times.push(if round % 2 == 0 { broker.node().restart() } else { broker.node().crash() });
        paths.push((files(&broker.node().directory), broker.node().disk()));
    }
    let (first, last) = (times.iter().take(rounds / 2), times.iter().skip(rounds / 2));
    let (first, last): (Duration, Duration) = (first.sum(), last.sum());
    eprintln!("{rounds} restarts: {first:?} for the first half, {last:?} for the second");
    eprintln!("files and bytes: {:?} at first, {:?} at last", paths[1], paths[rounds - 1]);
    assert!(last < first * 2 + Duration::from_secs(2));
    assert!(paths[rounds - 1].0 <= paths[1].0 + 10, "{paths:?}");
    assert!(paths[rounds - 1].1 <= paths[1].1 + (8 << 20), "{paths:?}");
    let mut client = broker.channel();
    assert_eq!(client.take_ready(1, "q").unwrap().len(), 1);
}

#[test]
fn acks_survive_a_clean_stop() {
    let Some(mut broker) = Broker::own(Setup::new()) else { return };
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    client.confirm_select(1).unwrap();
    for n in 0..1000 {
        client.put(1, "q", n.to_string()).unwrap();
    }
    client.confirms(1, 1000).unwrap();
    client.consume(1, "q", "c").unwrap();
    let held = client.deliveries(1, 1000).unwrap();
    for message in held.iter().step_by(2) {
        client.ack(1, message.tag, false).unwrap();
    }
    client.sync(1).unwrap();
    broker.node().restart();
    let mut client = broker.channel();
    let rest = client.take_ready(1, "q").unwrap();
    let numbers: Vec<usize> = rest.iter().map(|message| message.text().parse().unwrap()).collect();
    assert_eq!(numbers, (0..1000).filter(|n| n % 2 == 1).collect::<Vec<_>>());
    assert!(rest.iter().all(|message| message.redelivered));
}

#[test]
fn transient_and_exclusive_queues_start_empty() {
    let Some(mut broker) = Broker::own(Setup::new()) else { return };
    let mut client = broker.channel();
    client.queue(1, "q", 0, &table! {}).unwrap();
    client.put(1, "q", "m").unwrap();
    client.sync(1).unwrap();
    broker.node().crash();
    let mut client = broker.channel();
    match client.depth(1, "q") {
        Err(Failure::Channel { code: 404, .. }) => {}
        other => panic!("{other:?}"),
    }
    client.open(1).unwrap();
    client.queue(1, "q", 0, &table! {}).unwrap();
    assert_eq!(client.depth(1, "q").unwrap().messages, 0);
}

#[test]
fn case_066_an_idle_node_writes_nothing() {
    let Some(mut broker) = Broker::own(Setup::new()) else { return };
    let directory = broker.node().directory.clone();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    client.put(1, "q", "m").unwrap();
    broker.policy("p", "^q$", &json!({ "delivery-limit": -1 }));
    client.sync(1).unwrap();
    let pid = broker.node().pid();
    let written = || {
        let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
        let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap();
        line.parse::<u64>().unwrap()
    };
    // An exclusive queue that expires is the clock: nobody has to sleep, and nothing is stored.
    let mut pass = |milliseconds: usize| {
        let milliseconds = i32::try_from(milliseconds).unwrap();
        client.queue(1, "clock", EXCLUSIVE, &table! { "x-expires" => milliseconds }).unwrap();
        let clock = broker.queue_path("clock");
        e2e::wait::until_some_for(Duration::from_secs(700), "the clock strikes", || {
            (broker.api.get(&clock).status == 404).then_some(())
        });
    };
    // The node may still prepare files after its start.
    pass(2000);
    let (disk, before) = (occupied(&directory), written());
    pass(count(3000, 600_000));
    let grown = written() - before;
    // Files are filled in larger pieces than what is stored, so the bound is one for any time.
    assert!(grown < 4 << 20, "{grown} bytes written while idle");
    assert!(occupied(&directory) <= disk + (256 << 10));
}
