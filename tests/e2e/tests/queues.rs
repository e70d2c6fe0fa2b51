//! Queues: declaration, time to live, expiry, length limits, priorities; cases 34 to 37, 47, 49,
//! 100.

use std::time::{Duration, Instant};

use e2e::broker::Broker;
use e2e::client::topology::{AUTO_DELETE, DURABLE, EXCLUSIVE, PASSIVE};
use e2e::client::{Client, Outcome, assert_channel_error, assert_connection_error};
use e2e::content::{Delivery, Properties};
use e2e::node::Setup;
use e2e::table;
use e2e::wait::{count, until, until_equal};
use serde_json::json;

fn with_ttl(milliseconds: u32) -> Properties {
    Properties { expiration: Some(milliseconds.to_string()), ..Properties::persistent() }
}

fn texts(messages: &[Delivery]) -> Vec<String> {
    messages.iter().map(Delivery::text).collect()
}

#[test]
fn case_034_priority_and_ttl() {
    let broker = Broker::start();
    let mut client = broker.channel();
    let arguments = table! {
        "x-max-priority" => 5,
        "x-dead-letter-exchange" => "", "x-dead-letter-routing-key" => "dead",
    };
    client.queue(1, "q", DURABLE, &arguments).unwrap();
    client.queue(1, "dead", DURABLE, &table! {}).unwrap();
    for n in 0..10 {
        client.publish(1, "", "q", &with_ttl(50), format!("low-{n}")).unwrap();
    }
    let high = Properties { priority: Some(5), ..Properties::persistent() };
    client.publish(1, "", "q", &high, "high").unwrap();
    // When the last of the low ones is past its time, only the high one is delivered.
    until_equal("the expired ones are dead", &10, || {
        // Taking the head away lets the queue look at the ones behind it.
        if let Some(message) = client.get(1, "q", false).unwrap() {
            assert_eq!(message.text(), "high");
            client.nack(1, message.tag, false, true).unwrap();
        }
        client.depth(1, "dead").unwrap().messages
    });
    let dead = client.drain_queue(1, "dead").unwrap();
    let expected: Vec<_> = (0..10).map(|n| format!("low-{n}")).collect();
    assert_eq!(texts(&dead), expected);
    assert_eq!(texts(&client.drain_queue(1, "q").unwrap()), ["high"]);
}

#[test]
fn case_034b_priorities() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! { "x-max-priority" => 10 }).unwrap();
    let send = |client: &mut Client, priority: Option<u8>, body: &str| {
        let properties = Properties { priority, ..Properties::persistent() };
        client.publish(1, "", "q", &properties, body).unwrap();
    };
    for (priority, body) in [
        (None, "none"),
        (Some(1), "one"),
        (Some(10), "ten"),
        (Some(200), "capped to ten"),
        (Some(5), "five"),
        (Some(0), "zero"),
        (Some(5), "five again"),
    ] {
        send(&mut client, priority, body);
    }
    client.sync(1).unwrap();
    let first = client.get(1, "q", false).unwrap().unwrap();
    assert_eq!(first.text(), "ten");
    client.nack(1, first.tag, false, true).unwrap();
    let order = texts(&client.drain_queue(1, "q").unwrap());
    assert_eq!(order, ["ten", "capped to ten", "five", "five again", "one", "none", "zero"]);
}

#[test]
fn case_034c_a_full_priority_queue_drops_its_least_important_head() {
    let broker = Broker::start();
    let mut client = broker.channel();
    let arguments = table! { "x-max-priority" => 5, "x-max-length" => 3 };
    client.queue(1, "q", DURABLE, &arguments).unwrap();
    for (priority, body) in [(1, "a"), (5, "b"), (1, "c"), (3, "d")] {
        let properties = Properties { priority: Some(priority), ..Properties::persistent() };
        client.publish(1, "", "q", &properties, body).unwrap();
    }
    client.sync(1).unwrap();
    until_equal("one is dropped", &3, || client.depth(1, "q").unwrap().messages);
    let kept = texts(&client.drain_queue(1, "q").unwrap());
    // 4.3 drops what it would deliver next.
    assert_eq!(kept, if broker.is_ours() { ["b", "d", "c"] } else { ["d", "a", "c"] });
}

#[test]
fn case_035_a_message_is_never_delivered_after_its_time() {
    let broker = Broker::start();
    let mut client = broker.channel();
    let arguments = table! {
        "x-dead-letter-exchange" => "", "x-dead-letter-routing-key" => "dead",
    };
    client.queue(1, "q", DURABLE, &arguments).unwrap();
    client.queue(1, "dead", DURABLE, &table! {}).unwrap();
    // A clock that the broker itself keeps: a message with the same time in a queue of its own.
    client.queue(1, "clock", DURABLE, &table! {}).unwrap();
    client.publish(1, "", "q", &with_ttl(60_000), "a").unwrap();
    client.publish(1, "", "q", &with_ttl(200), "b").unwrap();
    client.publish(1, "", "q", &with_ttl(60_000), "c").unwrap();
    client.confirm_select(1).unwrap();
    client.publish(1, "", "clock", &with_ttl(200), "tick").unwrap();
    client.confirms(1, 1).unwrap();
    until_equal("time passes", &0, || client.depth(1, "clock").unwrap().messages);
    assert_eq!(texts(&client.drain_queue(1, "q").unwrap()), ["a", "c"]);
    until_equal("b is dead", &1, || client.depth(1, "dead").unwrap().messages);
    let dead = client.get(1, "dead", true).unwrap().unwrap();
    assert_eq!(dead.text(), "b");
    assert_eq!(dead.properties.expiration, None);
    let death = dead.properties.deaths()[0].clone();
    assert_eq!(death.get("reason"), Some(&"expired".into()));
    assert_eq!(death.get("original-expiration"), Some(&"200".into()));
}

#[test]
fn case_035b_queue_ttl() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! { "x-message-ttl" => 100 }).unwrap();
    client.confirm_select(1).unwrap();
    client.put(1, "q", "m").unwrap();
    client.publish(1, "", "q", &with_ttl(60_000), "the smaller counts").unwrap();
    client.confirms(1, 2).unwrap();
    until_equal("both are gone", &0, || client.depth(1, "q").unwrap().messages);
    assert!(client.get(1, "q", true).unwrap().is_none());
    // Zero: to a consumer that takes it now, or to nobody.
    client.queue(1, "now", DURABLE, &table! { "x-message-ttl" => 0 }).unwrap();
    client.put(1, "now", "nobody").unwrap();
    client.sync(1).unwrap();
    assert_eq!(client.depth(1, "now").unwrap().messages, 0);
    client.consume(1, "now", "c").unwrap();
    client.put(1, "now", "me").unwrap();
    assert_eq!(client.delivery(1).unwrap().text(), "me");
}

#[test]
fn case_035c_bad_expiration() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    for (value, detail) in [
        ("abc", "no_integer"),
        ("", "no_integer"),
        ("-1", "{value_negative,-1}"),
        ("10s", "{leftover_string,\"s\"}"),
    ] {
        let properties = Properties { expiration: Some(value.to_owned()), ..Properties::default() };
        client.publish(1, "", "q", &properties, "m").unwrap();
        assert_channel_error(
            client.sync(1),
            406,
            &format!("PRECONDITION_FAILED - invalid expiration '{value}': {detail}"),
        );
        client.open(1).unwrap();
    }
}

#[test]
fn case_036_expires_counts_from_the_last_use() {
    let broker = Broker::start();
    let mut client = broker.channel();
    let arguments = table! { "x-expires" => 800 };
    let created = Instant::now();
    client.queue(1, "idle", DURABLE, &arguments).unwrap();
    client.queue(1, "used", DURABLE, &arguments).unwrap();
    client.queue(1, "consumed", DURABLE, &arguments).unwrap();
    client.consume(1, "consumed", "c").unwrap();
    // Asked over HTTP: a passive declare would be a use.
    let exists = |queue: &str| broker.api.get(&broker.queue_path(queue)).status == 200;
    // Declaring the same again is a use.
    until("the idle one is gone", || {
        client.queue(1, "used", DURABLE, &arguments).unwrap();
        !exists("idle")
    });
    assert!(created.elapsed() >= Duration::from_millis(800));
    assert!(exists("used"), "redeclared, so not idle");
    assert!(exists("consumed"));
    client.cancel(1, "c").unwrap();
    until("the others follow", || !exists("used") && !exists("consumed"));
    client.open(2).unwrap();
    client.queue(2, "idle", DURABLE, &table! {}).unwrap();
}

#[test]
fn case_037_length_counts_ready_messages_only() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! { "x-max-length" => 10 }).unwrap();
    client.open(2).unwrap();
    client.qos(2, 10, false).unwrap();
    client.consume(2, "q", "c").unwrap();
    for n in 0..10 {
        client.put(1, "q", format!("held-{n}")).unwrap();
    }
    let held = client.deliveries(2, 10).unwrap();
    for n in 0..15 {
        client.put(1, "q", format!("ready-{n}")).unwrap();
    }
    client.sync(1).unwrap();
    until_equal("ready is at its limit", &10, || client.depth(1, "q").unwrap().messages);
    assert!(held.iter().enumerate().all(|(n, message)| message.text() == format!("held-{n}")));
    client.ack(2, held[9].tag, true).unwrap();
    let rest = client.deliveries(2, 10).unwrap();
    assert_eq!(rest[0].text(), "ready-5", "the oldest ready ones were dropped");
    client.ack(2, rest[9].tag, true).unwrap();
    client.close_channel(2).unwrap();
    assert_eq!(client.delete_queue(1, "q").unwrap(), 0);
}

#[test]
fn case_037b_length_in_bytes() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! { "x-max-length-bytes" => 100 }).unwrap();
    for n in 0..10 {
        client.put(1, "q", [b'0' + n; 30]).unwrap();
    }
    client.sync(1).unwrap();
    let kept = client.drain_queue(1, "q").unwrap();
    assert_eq!(kept.iter().map(|message| message.body[0]).collect::<Vec<_>>(), *b"789");
}

#[test]
fn case_047_a_replaced_policy_takes_its_limit_away() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    broker.policy("p", "^q$", &json!({ "max-length": 5 }));
    let fill = |client: &mut Client| {
        client.purge(1, "q").unwrap();
        for _ in 0..10 {
            client.put(1, "q", "m").unwrap();
        }
        client.sync(1).unwrap();
        client.depth(1, "q").unwrap().messages
    };
    until_equal("the limit holds", &5, || fill(&mut client));
    broker.policy("p", "^q$", &json!({ "message-ttl": 60_000 }));
    until_equal("the limit is gone", &10, || fill(&mut client));
    let path = format!("policies/{}/p", broker.vhost_segment());
    assert_eq!(broker.api.delete(&path).status, 204);
}

#[test]
fn case_047b_an_argument_and_a_policy_the_smaller_counts() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! { "x-max-length" => 7 }).unwrap();
    let path = format!("operator-policies/{}/op", broker.vhost_segment());
    let fill = |client: &mut Client| {
        client.purge(1, "q").unwrap();
        for _ in 0..10 {
            client.put(1, "q", "m").unwrap();
        }
        client.sync(1).unwrap();
        client.depth(1, "q").unwrap().messages
    };
    broker.policy("p", "^q$", &json!({ "max-length": 9 }));
    until_equal("the argument counts", &7, || fill(&mut client));
    let body = json!({ "pattern": "^q$", "definition": { "max-length": 3 }, "apply-to": "queues" });
    assert!(broker.api.put(&path, &body).status < 300);
    until_equal("the operator's counts", &3, || fill(&mut client));
    assert_eq!(broker.api.delete(&path).status, 204);
    until_equal("the argument counts again", &7, || fill(&mut client));
}

#[test]
fn case_049_killed_sockets_leave_nothing_unacknowledged() {
    let broker = Broker::start();
    let rounds = count(40, 500);
    let total = 200;
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    client.confirm_select(1).unwrap();
    for n in 0..total {
        client.put(1, "q", format!("{n}-{}", "x".repeat(2000))).unwrap();
    }
    client.confirms(1, total).unwrap();
    for round in 0..rounds {
        let mut victim = broker.channel();
        victim.consume(1, "q", "c").unwrap();
        for _ in 0..round % 7 {
            victim.delivery(1).unwrap();
        }
        victim.stream().shutdown(std::net::Shutdown::Both).unwrap();
    }
    until_equal("all are ready again", &(total as u32), || {
        let seen = client.depth(1, "q").unwrap().messages;
        assert!(seen as usize <= total, "{seen}");
        seen
    });
    let path = broker.queue_path("q");
    until_equal("none is unacknowledged", &Some(0), || {
        broker.api.json(&path)["messages_unacknowledged"].as_i64()
    });
    let messages = client.drain_queue(1, "q").unwrap();
    let order: Vec<_> = messages
        .iter()
        .map(|m| m.text().split('-').next().unwrap().parse::<usize>().unwrap())
        .collect();
    assert_eq!(order, (0..total).collect::<Vec<_>>(), "in their old order");
}

#[test]
fn case_051_a_deleted_queue_does_not_dead_letter() {
    let broker = Broker::start();
    let mut client = broker.channel();
    let arguments = table! {
        "x-dead-letter-exchange" => "", "x-dead-letter-routing-key" => "dead",
    };
    client.queue(1, "dead", DURABLE, &table! {}).unwrap();
    client.queue(1, "q", DURABLE, &arguments).unwrap();
    client.put(1, "q", "m").unwrap();
    assert_eq!(client.delete_queue(1, "q").unwrap(), 1);
    client.queue(1, "q", DURABLE, &arguments).unwrap();
    client.put(1, "q", "m").unwrap();
    assert_eq!(client.purge(1, "q").unwrap(), 1);
    let mut owner = broker.channel();
    owner.queue(1, "mine", EXCLUSIVE, &arguments).unwrap();
    owner.put(1, "mine", "m").unwrap();
    owner.sync(1).unwrap();
    owner.close().unwrap();
    assert_eq!(client.depth(1, "dead").unwrap().messages, 0);
}

#[test]
fn case_051b_queue_refusals() {
    let broker = Broker::start();
    let vhost = broker.vhost.clone();
    let mut client = broker.channel();
    let mut refused = |call: &dyn Fn(&mut Client) -> Outcome<u32>, code: u16, text: &str| {
        assert_channel_error(call(&mut client), code, text);
        client.open(1).unwrap();
    };
    let none = table! {};
    refused(
        &|client| client.queue(1, "amq.own", DURABLE, &none).map(|queue| queue.messages),
        403,
        "ACCESS_REFUSED - queue name 'amq.own' contains reserved prefix 'amq.*'",
    );
    refused(
        &|client| client.queue(1, "missing", PASSIVE, &none).map(|queue| queue.messages),
        404,
        &format!("NOT_FOUND - no queue 'missing' in vhost '{vhost}'"),
    );
    refused(
        &|client| {
            client.queue(1, "q", DURABLE, &none)?;
            client
                .queue(1, "q", DURABLE, &table! { "x-message-ttl" => 10 })
                .map(|queue| queue.messages)
        },
        406,
        &format!(
            "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' in vhost \
             '{vhost}': received the value '10' of type 'signedint' but current is none"
        ),
    );
    refused(
        &|client| {
            client.queue(1, "ttl", DURABLE, &table! { "x-message-ttl" => 10 })?;
            client.queue(1, "ttl", DURABLE, &none).map(|queue| queue.messages)
        },
        406,
        &format!(
            "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'ttl' in vhost \
             '{vhost}': received none but current is the value '10' of type 'signedint'"
        ),
    );
    refused(
        &|client| client.queue(1, "q", DURABLE | AUTO_DELETE, &none).map(|queue| queue.messages),
        406,
        &format!(
            "PRECONDITION_FAILED - inequivalent arg 'auto_delete' for queue 'q' in vhost \
             '{vhost}': received 'true' but current is 'false'"
        ),
    );
    refused(
        &|client| {
            client.put(1, "q", "m")?;
            client.sync(1)?;
            client.delete_queue_if(1, "q", false, true)
        },
        406,
        &format!("PRECONDITION_FAILED - queue 'q' in vhost '{vhost}' not empty"),
    );
    refused(
        &|client| {
            client.consume(1, "q", "c")?;
            client.delete_queue_if(1, "q", true, false)
        },
        406,
        &format!("PRECONDITION_FAILED - queue 'q' in vhost '{vhost}' in use"),
    );
    refused(
        &|client| client.purge(1, "missing"),
        404,
        &format!("NOT_FOUND - no queue 'missing' in vhost '{vhost}'"),
    );
    for (argument, value, detail) in [
        ("x-expires", 0, "{value_zero,0}"),
        ("x-expires", -1, "{value_negative,-1}"),
        ("x-message-ttl", -1, "{value_negative,-1}"),
        ("x-max-length", -5, "{value_negative,-5}"),
        ("x-max-priority", -1, "{value_negative,-1}"),
    ] {
        refused(
            &|client| {
                client.queue(1, "bad", DURABLE, &table! { argument => value }).map(|q| q.messages)
            },
            406,
            &format!(
                "PRECONDITION_FAILED - invalid arg '{argument}' for queue 'bad' in vhost \
                 '{vhost}': {detail}"
            ),
        );
    }
    for (argument, value, detail) in [
        ("x-message-ttl", "10", "{unacceptable_type,longstr}"),
        ("x-overflow", "burst", "invalid_overflow"),
        ("x-queue-type", "unheard-of", "unsupported queue type 'unheard-of'"),
    ] {
        let text = match argument {
            "x-overflow" => format!(
                "PRECONDITION_FAILED - invalid arg 'x-overflow' for queue 'bad' in vhost \
                 '{vhost}': {detail}"
            ),
            "x-queue-type" => format!(
                "PRECONDITION_FAILED - invalid arg 'x-queue-type' for queue 'bad' in vhost \
                 '{vhost}': \"{detail}\""
            ),
            _ => format!(
                "PRECONDITION_FAILED - invalid arg '{argument}' for queue 'bad' in vhost \
                 '{vhost}': \"expected integer, got longstr\""
            ),
        };
        let _ = detail;
        refused(
            &|client| {
                client.queue(1, "bad", DURABLE, &table! { argument => value }).map(|q| q.messages)
            },
            406,
            &text,
        );
    }
}

#[test]
fn case_051c_names_of_queues() {
    let broker = Broker::start();
    let mut client = broker.channel();
    let name = client.queue(1, "", EXCLUSIVE, &table! {}).unwrap().name;
    assert!(name.starts_with("amq.gen-") && name.len() == 30, "{name}");
    // The last declared queue of the channel is meant by an empty name.
    client.put(1, &name, "m").unwrap();
    client.sync(1).unwrap();
    assert_eq!(client.get(1, "", true).unwrap().unwrap().text(), "m");
    client.bind(1, "", "amq.direct", "", &table! {}).unwrap();
    client.publish(1, "amq.direct", &name, &Properties::default(), "by name").unwrap();
    client.sync(1).unwrap();
    assert_eq!(client.get(1, "", true).unwrap().unwrap().text(), "by name");
    client.open(2).unwrap();
    assert_channel_error(client.get(2, "", true), 404, "NOT_FOUND - no previously declared queue");
    // Deleting what is not there is fine.
    assert_eq!(client.delete_queue(1, "missing").unwrap(), 0);
}

#[test]
fn case_051d_transient_queues_are_allowed() {
    let broker = Broker::start();
    if !broker.is_ours() {
        // 4.3 refuses them with 541.
        return;
    }
    let mut client = broker.channel();
    client.queue(1, "q", 0, &table! {}).unwrap();
    client.put(1, "q", "m").unwrap();
    client.sync(1).unwrap();
    assert_eq!(client.depth(1, "q").unwrap().messages, 1);
    let mut other = broker.channel();
    assert_eq!(other.get(1, "q", true).unwrap().unwrap().text(), "m");
}

#[test]
fn case_051e_auto_delete_queue_goes_with_its_last_consumer() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE | AUTO_DELETE, &table! {}).unwrap();
    client.put(1, "q", "m").unwrap();
    client.sync(1).unwrap();
    assert!(client.get(1, "q", true).unwrap().is_some(), "a get does not count");
    client.consume(1, "q", "a").unwrap();
    client.consume(1, "q", "b").unwrap();
    client.cancel(1, "a").unwrap();
    assert_eq!(client.depth(1, "q").unwrap().consumers, 1);
    client.cancel(1, "b").unwrap();
    client.open(2).unwrap();
    until("it is gone", || {
        let gone = client.depth(2, "q").is_err();
        if gone {
            client.open(2).unwrap();
        }
        gone
    });
}

#[test]
fn case_051f_message_size_limit() {
    let broker = Broker::start_with(Setup::new().set("journal.segment_size", "32MiB"));
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    let limit = 16 << 20;
    client.put(1, "q", vec![b'x'; limit]).unwrap();
    let message = client.get_soon(1, "q");
    assert_eq!(message.body.len(), limit);
    client.put(1, "q", vec![b'x'; limit + 1]).unwrap();
    assert_channel_error(
        client.sync(1),
        406,
        "PRECONDITION_FAILED - message size 16777217 is larger than configured max size 16777216",
    );
}

#[test]
fn case_051g_prefetch_size_is_540() {
    let broker = Broker::start();
    let mut client = broker.channel();
    let qos = e2e::codec::Writer::method(60, 10).u32(10).u16(0).u8(0);
    assert_connection_error(
        client.call(1, &qos, (60, 11)),
        540,
        "NOT_IMPLEMENTED - prefetch_size!=0 (10)",
    );
}

#[test]
fn case_051h_user_id_must_be_the_login() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    let as_user = |name: &str| Properties { user_id: Some(name.into()), ..Properties::default() };
    client.publish(1, "", "q", &as_user("guest"), "m").unwrap();
    assert_eq!(client.get_soon(1, "q").properties.user_id.as_deref(), Some("guest"));
    client.publish(1, "", "q", &as_user("somebody"), "m").unwrap();
    assert_channel_error(
        client.sync(1),
        406,
        "PRECONDITION_FAILED - user_id property set to 'somebody' but authenticated user was \
         'guest'",
    );
}

#[test]
fn case_051i_all_properties_are_echoed() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    let headers = table! {
        "double" => e2e::codec::Value::F64(1.5),
        "float" => e2e::codec::Value::F32(-0.25),
        "decimal" => e2e::codec::Value::Decimal(2, 31_415),
        "bytes" => e2e::codec::Value::Bytes(vec![0, 1, 255]),
        "time" => e2e::codec::Value::Time(1_700_000_000),
        "short" => e2e::codec::Value::I16(-7),
        "octet" => e2e::codec::Value::I8(-3),
        "void" => e2e::codec::Value::Void,
        "nested" => table! { "list" => vec!["a", "b"], "yes" => true },
    };
    let properties = Properties {
        content_type: Some("text/plain".into()),
        content_encoding: Some("utf-8".into()),
        headers: Some(headers),
        delivery_mode: Some(2),
        priority: Some(9),
        correlation_id: Some("correlation".into()),
        reply_to: Some("reply".into()),
        expiration: Some("600000".into()),
        message_id: Some("id".into()),
        timestamp: Some(1_700_000_001),
        kind: Some("type".into()),
        user_id: Some("guest".into()),
        app_id: Some("app".into()),
        cluster_id: Some("cluster".into()),
    };
    client.publish(1, "", "q", &properties, "").unwrap();
    let mut message = client.get_soon(1, "q");
    assert_eq!(message.body, b"");
    let sorted = |properties: &mut Properties| {
        if let Some(headers) = &mut properties.headers {
            headers.0.sort_by(|left, right| left.0.cmp(&right.0));
        }
    };
    let mut sent = properties;
    sorted(&mut sent);
    sorted(&mut message.properties);
    assert_eq!(message.properties, sent);
}
