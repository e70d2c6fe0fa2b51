//! Dead-lettering: cases 38 to 45 and 48.

use e2e::broker::Broker;
use e2e::client::Client;
use e2e::client::topology::DURABLE;
use e2e::codec::{Table, Value};
use e2e::content::{Delivery, Properties};
use e2e::node::Setup;
use e2e::table;
use e2e::wait::{count, until_equal};

fn to_queue(queue: &str) -> Table {
    table! { "x-dead-letter-exchange" => "", "x-dead-letter-routing-key" => queue }
}

fn reasons(message: &Delivery) -> Vec<(String, String, i64)> {
    let text = |death: &Table, name: &str| {
        death.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    message
        .properties
        .deaths()
        .into_iter()
        .map(|death| {
            let count = death.get("count").and_then(Value::as_i64).unwrap_or_default();
            (text(death, "queue"), text(death, "reason"), count)
        })
        .collect()
}

#[test]
fn case_038_a_missing_dead_letter_exchange_drops() {
    let broker = Broker::start();
    let mut client = broker.channel();
    let arguments = table! { "x-dead-letter-exchange" => "missing" };
    client.queue(1, "q", DURABLE, &arguments).unwrap();
    client
        .publish_with(1, "", "q", e2e::client::basic::MANDATORY, &Properties::persistent(), b"m")
        .unwrap();
    let message = client.get_soon_unsettled(1, "q");
    client.reject(1, message.tag, false).unwrap();
    client.sync(1).unwrap();
    assert_eq!(client.waiting(1), [], "nothing is returned");
    assert_eq!(client.delete_queue(1, "q").unwrap(), 0);
}

#[test]
fn case_038b_a_dead_letter_key_may_be_longer_than_a_routing_key() {
    let broker = Broker::start();
    let mut client = broker.channel();
    let long = "k".repeat(300);
    let key = table! { "x-dead-letter-exchange" => "amq.topic", "x-dead-letter-routing-key" => long.as_str() };
    let exchange = table! { "x-dead-letter-exchange" => long.as_str() };
    client.queue(1, "key", DURABLE, &key).unwrap();
    client.queue(1, "exchange", DURABLE, &exchange).unwrap();
    client.queue(1, "dead", DURABLE, &table! {}).unwrap();
    client.bind(1, "dead", "amq.topic", "#", &table! {}).unwrap();
    for queue in ["exchange", "key"] {
        client.put(1, queue, "m").unwrap();
        let message = client.get_soon_unsettled(1, queue);
        client.reject(1, message.tag, false).unwrap();
    }
    if broker.is_ours() {
        // RabbitMQ cannot encode it and ends the connection.
        assert_eq!(client.get_soon_unsettled(1, "dead").routing_key, "k".repeat(255));
    }
}

#[test]
fn case_039_a_rejection_keeps_a_cycle_going() {
    let broker = Broker::start();
    let mut client = broker.channel();
    let mut retry = to_queue("work");
    retry.insert("x-message-ttl", 50);
    client.queue(1, "retry", DURABLE, &retry).unwrap();
    client.queue(1, "work", DURABLE, &to_queue("retry")).unwrap();
    for body in ["a", "b"] {
        client.put(1, "work", body).unwrap();
    }
    for round in 0..3 {
        let mut seen = Vec::new();
        for _ in 0..2 {
            let message = client.get_soon_unsettled(1, "work");
            let deaths = reasons(&message);
            if round > 0 {
                assert_eq!(
                    deaths,
                    [
                        ("retry".to_owned(), "expired".to_owned(), round),
                        ("work".to_owned(), "rejected".to_owned(), round),
                    ]
                );
            }
            seen.push(message.text());
            client.reject(1, message.tag, false).unwrap();
        }
        assert_eq!(seen, ["a", "b"], "round {round}");
    }
}

#[test]
fn case_040_an_automatic_cycle_ends() {
    let broker = Broker::start();
    let mut client = broker.channel();
    for (queue, target) in [("q1", "q2"), ("q2", "q1")] {
        let mut arguments = to_queue(target);
        arguments.insert("x-message-ttl", 20);
        client.queue(1, queue, DURABLE, &arguments).unwrap();
    }
    // And one that dead-letters to itself.
    let mut itself = to_queue("self");
    itself.insert("x-message-ttl", 20);
    client.queue(1, "self", DURABLE, &itself).unwrap();
    client.confirm_select(1).unwrap();
    client.put(1, "q1", "m").unwrap();
    client.put(1, "self", "m").unwrap();
    client.confirms(1, 2).unwrap();
    let mut empty = 0;
    e2e::wait::until("the message is gone for good", || {
        let all = ["q1", "q2", "self"]
            .map(|queue| broker.api.json(&broker.queue_path(queue))["messages"].as_i64());
        empty = if all == [Some(0); 3] { empty + 1 } else { 0 };
        empty > 20
    });
    for queue in ["q1", "q2", "self"] {
        assert_eq!(client.depth(1, queue).unwrap().messages, 0, "{queue}");
    }
}

#[test]
fn case_041_republished_headers_stay_the_clients() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "dead", DURABLE, &table! {}).unwrap();
    client.queue(1, "q", DURABLE, &to_queue("dead")).unwrap();
    client.put(1, "q", "m").unwrap();
    let message = client.get_soon_unsettled(1, "q");
    client.reject(1, message.tag, false).unwrap();
    let dead = client.get_soon(1, "dead");
    assert_eq!(reasons(&dead), [("q".to_owned(), "rejected".to_owned(), 1)]);
    // A client that publishes it again, headers and all.
    client.publish(1, "", "q", &dead.properties, "m").unwrap();
    let message = client.get_soon_unsettled(1, "q");
    assert_eq!(reasons(&message), reasons(&dead), "as the client sent it");
    client.reject(1, message.tag, false).unwrap();
    let again = client.get_soon(1, "dead");
    let newest = reasons(&again)[0].clone();
    assert_eq!((newest.0.as_str(), newest.1.as_str()), ("q", "rejected"));
    assert!(newest.2 >= 1, "{newest:?}");
}

#[test]
fn case_042_malformed_x_death_does_no_harm() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "dead", DURABLE, &table! {}).unwrap();
    client.queue(1, "q", DURABLE, &to_queue("dead")).unwrap();
    let malformed = [
        Value::Str("text".into()),
        Value::Array(Vec::new()),
        Value::Array(vec![Value::Table(Table::default())]),
        Value::Array(vec![Value::Str("text".into()), Value::Void]),
        Value::Array(vec![Value::Table(table! { "queue" => 1, "count" => "many" })]),
        Value::I64(-1),
        Value::Void,
    ];
    for value in malformed {
        let headers = table! { "x-death" => value.clone(), "x-first-death-queue" => 7 };
        client.publish(1, "", "q", &Properties::with_headers(headers), "m").unwrap();
        let message = client.get_soon_unsettled(1, "q");
        client.reject(1, message.tag, false).unwrap();
        let dead = client.get_soon(1, "dead");
        assert_eq!(dead.text(), "m", "{value:?}");
    }
}

#[test]
fn case_043_properties_survive_dead_lettering() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "dead", DURABLE, &table! {}).unwrap();
    client.exchange(1, "dlx", "fanout", DURABLE, &table! {}).unwrap();
    client.bind(1, "dead", "dlx", "", &table! {}).unwrap();
    let arguments = table! { "x-dead-letter-exchange" => "dlx" };
    client.queue(1, "q", DURABLE, &arguments).unwrap();
    let properties = Properties {
        content_type: Some("text/plain".into()),
        headers: Some(table! { "own" => "header", "n" => 7 }),
        delivery_mode: Some(2),
        priority: Some(4),
        correlation_id: Some("correlation".into()),
        expiration: Some("600000".into()),
        message_id: Some("id".into()),
        timestamp: Some(1_700_000_000),
        app_id: Some("app".into()),
        ..Properties::default()
    };
    client.publish(1, "", "q", &properties, "body").unwrap();
    let message = client.get_soon_unsettled(1, "q");
    client.nack(1, message.tag, false, false).unwrap();
    let dead = client.get_soon(1, "dead");
    assert_eq!(dead.text(), "body");
    assert_eq!((dead.exchange.as_str(), dead.routing_key.as_str()), ("dlx", "q"));
    let headers = dead.properties.headers.clone().unwrap();
    assert_eq!(headers.get("own"), Some(&"header".into()));
    assert_eq!(headers.get("n"), Some(&7.into()));
    for (name, value) in [
        ("x-first-death-queue", "q"),
        ("x-first-death-reason", "rejected"),
        ("x-first-death-exchange", ""),
        ("x-last-death-queue", "q"),
        ("x-last-death-reason", "rejected"),
        ("x-last-death-exchange", ""),
    ] {
        assert_eq!(headers.get(name), Some(&value.into()), "{name}");
    }
    let death = dead.properties.deaths()[0].clone();
    assert_eq!(death.get("reason"), Some(&"rejected".into()));
    assert_eq!(death.get("queue"), Some(&"q".into()));
    assert_eq!(death.get("exchange"), Some(&"".into()));
    assert_eq!(death.get("routing-keys"), Some(&vec!["q"].into()));
    assert_eq!(death.get("count"), Some(&Value::I64(1)));
    assert_eq!(death.get("original-expiration"), Some(&"600000".into()));
    assert!(matches!(death.get("time"), Some(Value::Time(seconds)) if *seconds > 1_700_000_000));
    let rest = Properties { headers: None, ..dead.properties };
    assert_eq!(rest, Properties { headers: None, expiration: None, ..properties });
}

#[test]
fn case_044_a_dead_letter_exchange_that_leads_back() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.exchange(1, "dlx", "fanout", DURABLE, &table! {}).unwrap();
    let arguments = table! {
        "x-dead-letter-exchange" => "dlx", "x-message-ttl" => 30,
        "x-dead-letter-strategy" => "at-least-once", "x-overflow" => "reject-publish",
    };
    // Strategies other than at-most-once are for quorum queues; a classic one ignores or refuses.
    let arguments = if client.queue(1, "probe", DURABLE, &arguments).is_ok() {
        arguments
    } else {
        client.open(1).unwrap();
        table! { "x-dead-letter-exchange" => "dlx", "x-message-ttl" => 30 }
    };
    client.queue(1, "q", DURABLE, &arguments).unwrap();
    client.queue(1, "other", DURABLE, &table! {}).unwrap();
    client.bind(1, "q", "dlx", "", &table! {}).unwrap();
    client.bind(1, "other", "dlx", "", &table! {}).unwrap();
    for _ in 0..20 {
        client.put(1, "q", "m").unwrap();
    }
    until_equal("all have expired", &20, || client.depth(1, "other").unwrap().messages);
    until_equal("nothing grows", &0, || client.depth(1, "q").unwrap().messages);
    assert_eq!(client.depth(1, "other").unwrap().messages, 20);
}

fn numbered(client: &mut Client, queue: &str, total: usize, properties: &Properties) {
    for n in 0..total {
        client.publish(1, "", queue, properties, n.to_string()).unwrap();
    }
    client.sync(1).unwrap();
}

fn in_order(client: &mut Client, queue: &str, total: usize) {
    until_equal("all are dead", &(total as u32), || client.depth(1, queue).unwrap().messages);
    let order: Vec<usize> = client
        .drain_queue(1, queue)
        .unwrap()
        .iter()
        .map(|message| message.text().parse().unwrap())
        .collect();
    assert_eq!(order, (0..total).collect::<Vec<_>>());
}

#[test]
fn case_045_dead_letters_keep_their_order() {
    let broker = Broker::start();
    let total = count(300, 1000);
    let mut client = broker.channel();
    client.queue(1, "dead", DURABLE, &table! {}).unwrap();

    let mut arguments = to_queue("dead");
    arguments.insert("x-max-length", 1);
    client.queue(1, "maxlen", DURABLE, &arguments).unwrap();
    numbered(&mut client, "maxlen", total + 1, &Properties::persistent());
    in_order(&mut client, "dead", total);

    client.queue(1, "rejected", DURABLE, &to_queue("dead")).unwrap();
    numbered(&mut client, "rejected", total, &Properties::persistent());
    client.consume(1, "rejected", "c").unwrap();
    let held = client.deliveries(1, total).unwrap();
    client.nack(1, held[total / 2].tag, true, false).unwrap();
    for message in &held[total / 2 + 1..] {
        client.reject(1, message.tag, false).unwrap();
    }
    in_order(&mut client, "dead", total);

    let mut arguments = to_queue("dead");
    arguments.insert("x-message-ttl", 50);
    client.queue(1, "expired", DURABLE, &arguments).unwrap();
    numbered(&mut client, "expired", total, &Properties::persistent());
    in_order(&mut client, "dead", total);

    if broker.is_ours() {
        // 4.3's classic queues have no delivery limit.
        let mut arguments = to_queue("dead");
        arguments.insert("x-delivery-limit", 1);
        client.queue(1, "limited", DURABLE, &arguments).unwrap();
        numbered(&mut client, "limited", total, &Properties::persistent());
        client.open(2).unwrap();
        client.consume(2, "limited", "c").unwrap();
        for _ in 0..2 {
            for message in client.deliveries(2, total).unwrap() {
                client.reject(2, message.tag, true).unwrap();
            }
        }
        in_order(&mut client, "dead", total);
    }
}

#[test]
fn case_048_the_delivery_count_survives_a_restart() {
    for crash in [false, true] {
        let Some(mut broker) = Broker::own(Setup::new()) else { return };
        let mut client = broker.channel();
        let mut arguments = to_queue("dead");
        arguments.insert("x-delivery-limit", 3);
        client.queue(1, "dead", DURABLE, &table! {}).unwrap();
        client.queue(1, "q", DURABLE, &arguments).unwrap();
        client.confirm_select(1).unwrap();
        client.put(1, "q", "m").unwrap();
        client.confirms(1, 1).unwrap();
        let reject_twice = |client: &mut Client, first: i64| {
            for n in 0..2 {
                let message = client.get_soon_unsettled(1, "q");
                let counted = message.properties.header("x-delivery-count").and_then(Value::as_i64);
                assert_eq!(counted.unwrap_or(0), first + n);
                assert_eq!(message.redelivered, first + n > 0);
                client.reject(1, message.tag, true).unwrap();
            }
            client.sync(1).unwrap();
        };
        reject_twice(&mut client, 0);
        if crash {
            // A count is promised only once a later group commit has covered it.
            client.queue(1, "barrier", DURABLE, &table! {}).unwrap();
            client.put(1, "barrier", "m").unwrap();
            client.await_event(1, |event| event.id == (60, 80)).unwrap();
            broker.node().crash();
        } else {
            broker.node().restart();
        }
        let mut client = broker.channel();
        reject_twice(&mut client, 2);
        let dead = client.get_soon(1, "dead");
        assert_eq!(reasons(&dead), [("q".to_owned(), "delivery_limit".to_owned(), 1)]);
    }
}
