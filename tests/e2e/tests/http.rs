//! The management API: cases 76 to 78, 80, 81, 83 to 85, 88, 89, 92, 93, 95, 107, 109, 111.

use std::time::{Duration, Instant};

use e2e::broker::Broker;
use e2e::client::Client;
use e2e::client::topology::{DURABLE, EXCLUSIVE};
use e2e::client::{Failure, assert_channel_error};
use e2e::http::Api;
use e2e::node::Setup;
use e2e::table;
use e2e::wait::{count, until, until_equal};
use serde_json::{Value, json};

#[test]
fn case_076_a_page_is_always_a_page() {
    let broker = Broker::start();
    let base = format!("queues/{}", broker.vhost_segment());
    let page = |query: &str, items: usize, total: u64| {
        let page = broker.api.json(&format!("{base}?{query}"));
        assert_eq!(page["items"].as_array().map(Vec::len), Some(items), "{query}: {page}");
        assert_eq!(page["page"], 1, "{query}");
        assert_eq!(page["total_count"], total, "{query}");
        assert_eq!(page["filtered_count"], items as u64, "{query}");
        assert_eq!(page["item_count"], items as u64, "{query}");
    };
    page("page=1&page_size=100", 0, 0);
    assert_eq!(broker.api.json(&base), json!([]));
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    page("page=1&page_size=100", 1, 1);
    page("page=1&page_size=100&name=nothing", 0, 1);
    page("page=1&page_size=100&name=%5Eq%24&use_regex=true", 1, 1);
    assert_eq!(broker.api.json(&base).as_array().map(Vec::len), Some(1));
    let answer = broker.api.get(&format!("{base}?page=7&page_size=100"));
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["error"], "page_out_of_range");
    let answer = broker.api.get(&format!("{base}?page=1&page_size=100&name=%5B&use_regex=true"));
    assert!(answer.status == 400 || !broker.is_ours(), "{}", answer.status);
}

/// Arguments without the queue type, which 4.3 adds to all queues.
fn own_arguments(queue: &Value) -> Value {
    let mut arguments = queue["arguments"].clone();
    if let Some(fields) = arguments.as_object_mut() {
        fields.remove("x-queue-type");
    }
    arguments
}

#[test]
fn case_077_a_new_queue_has_its_numbers() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    let queue = broker.api.json(&broker.queue_path("q"));
    if !broker.is_ours() {
        return; // 4.3 fills some of them in later.
    }
    for key in ["messages", "messages_ready", "messages_unacknowledged", "consumers"] {
        assert_eq!(queue[key], 0, "{key}: {queue}");
    }
    for key in ["consumer_details", "incoming", "deliveries"] {
        assert!(queue[key].is_array(), "{key}: {queue}");
    }
    assert_eq!(queue["state"], "running");
    assert_eq!(queue["type"], "classic");
    assert_eq!(queue["durable"], true);
    assert_eq!(queue["auto_delete"], false);
    assert_eq!(queue["exclusive"], false);
}

#[test]
fn case_078_empty_objects_are_objects() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    for queue in [
        broker.api.json(&broker.queue_path("q")),
        broker.api.json(&format!("queues/{}", broker.vhost_segment()))[0].clone(),
    ] {
        assert_eq!(own_arguments(&queue), json!({}));
        if broker.is_ours() {
            assert_eq!(queue["effective_policy_definition"], json!({}));
        }
        assert!(queue.get("message_stats").is_none_or(Value::is_object));
    }
    let exchange = broker.api.json(&broker.exchange_path("amq.direct"));
    assert_eq!(exchange["arguments"], json!({}));
    broker.policy("p", "^q$", &json!({ "max-length": 5 }));
    until_equal("the policy is shown", &json!({ "max-length": 5 }), || {
        broker.api.json(&broker.queue_path("q"))["effective_policy_definition"].clone()
    });
    assert_eq!(broker.api.json(&broker.queue_path("q"))["policy"], "p");
}

#[test]
fn case_080_publishing_to_a_full_queue_is_400() {
    let broker = Broker::start();
    let mut client = broker.channel();
    let arguments = table! { "x-max-length" => 1, "x-overflow" => "reject-publish" };
    client.queue(1, "q", DURABLE, &arguments).unwrap();
    let path = format!("{}/publish", broker.exchange_path("amq.default"));
    let body = json!({
        "routing_key": "q", "properties": { "delivery_mode": 2, "headers": { "a": 1 } },
        "payload": "hello", "payload_encoding": "string",
    });
    let answer = broker.api.post(&path, &body);
    assert_eq!((answer.status, answer.json()), (200, json!({ "routed": true })));
    until("the queue is full", || {
        let answer = broker.api.post(&path, &body);
        if answer.status == 200 {
            return false;
        }
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(answer.reason().contains("Unable to publish message. Check queue limits."));
        true
    });
    let mut unroutable = body;
    unroutable["routing_key"] = json!("nobody");
    assert_eq!(broker.api.post(&path, &unroutable).json(), json!({ "routed": false }));
    let get = json!({ "count": 5, "ackmode": "ack_requeue_false", "encoding": "auto" });
    let messages = broker.api.post(&format!("{}/get", broker.queue_path("q")), &get).json();
    let first = &messages[0];
    assert_eq!(first["payload"], "hello");
    assert_eq!(first["payload_bytes"], 5);
    assert_eq!(first["payload_encoding"], "string");
    assert_eq!(first["routing_key"], "q");
    assert_eq!(first["exchange"], "");
    assert_eq!(first["redelivered"], false);
    assert_eq!(first["properties"]["headers"], json!({ "a": 1 }));
    assert_eq!(first["properties"]["delivery_mode"], 2);
    let missing = format!("{}/publish", broker.exchange_path("missing"));
    assert_eq!(broker.api.post(&missing, &unroutable).status, 404);
}

#[test]
fn case_080b_publishing_too_large_a_message_is_400() {
    let Some(broker) = Broker::own(Setup::new().set("limits.message_size", "1KiB")) else { return };
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    let path = format!("{}/publish", broker.exchange_path("amq.default"));
    let publish = |size: usize| {
        let body = json!({
            "routing_key": "q", "properties": {}, "payload": "x".repeat(size),
            "payload_encoding": "string",
        });
        broker.api.post(&path, &body)
    };
    assert_eq!(publish(1024).json(), json!({ "routed": true }));
    let answer = publish(1025);
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert_eq!(
        answer.reason(),
        "406 PRECONDITION_FAILED - message size 1025 is larger than configured max size 1024"
    );
}

#[test]
fn case_081_users_without_a_password_cannot_log_in() {
    let broker = Broker::start();
    for (user, body) in [
        ("u081-hash", json!({ "password_hash": "", "tags": "management" })),
        ("u081-neither", json!({ "tags": "management" })),
    ] {
        let answer = broker.api.put(&format!("users/{user}"), &body);
        assert!(answer.status < 300, "{user}: {}", answer.text());
        broker.permit(user, ".*", ".*", ".*");
        for password in ["", "guest", "secret"] {
            let failure = broker.options().login(user, password).connect().unwrap_err();
            assert_eq!(failure.reply().map(|(code, _)| code), Some(403), "{failure:?}");
            let answer = broker.api.login(user, password).get("whoami");
            assert_eq!(answer.status, 401, "{user} {password:?}");
        }
        broker.api.delete(&format!("users/{user}"));
    }
    let answer = broker.api.put("users/u081", &json!({ "password": "secret" }));
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("tags"), "{}", answer.text());
}

fn every_number_is_finite(value: &Value, path: &str) {
    match value {
        Value::Null => panic!("{path} is null"),
        Value::Number(number) => {
            assert!(number.as_f64().is_some_and(f64::is_finite), "{path}: {number}");
        }
        Value::Array(items) => {
            for item in items {
                every_number_is_finite(item, path);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                every_number_is_finite(field, &format!("{path}.{name}"));
            }
        }
        Value::Bool(_) | Value::String(_) => {}
    }
}

#[test]
fn case_083_rates_are_numbers() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    for _ in 0..20 {
        client.put(1, "q", "m").unwrap();
        client.flush().unwrap();
        for path in ["overview".to_owned(), broker.queue_path("q")] {
            let shown = broker.api.json(&path);
            for name in ["message_stats", "queue_totals", "churn_rates"] {
                if let Some(part) = shown.get(name) {
                    every_number_is_finite(part, name);
                }
            }
        }
    }
}

#[test]
fn case_084_rates_are_not_larger_than_what_happened() {
    let broker = Broker::start();
    if !broker.is_ours() {
        return; // Its overview counts what other cases do.
    }
    let total = count(2000, 100_000);
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    let begin = Instant::now();
    for _ in 0..total {
        client.put(1, "q", "m").unwrap();
    }
    client.sync(1).unwrap();
    until("the messages are counted", || {
        let stats = &broker.api.json("overview")["message_stats"];
        let rate = stats["publish_details"]["rate"].as_f64().unwrap_or_default();
        // Sampled at least a second apart, if at all.
        assert!(rate <= total as f64, "{rate} after {:?}", begin.elapsed());
        stats["publish"].as_u64() == Some(total as u64)
    });
}

#[test]
fn case_085_disabled_statistics_leave_definitions() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! { "x-max-length" => 5 }).unwrap();
    let list = broker.api.json(&format!("queues/{}?disable_stats=true", broker.vhost_segment()));
    let queue = &list[0];
    for (key, value) in [
        ("name", json!("q")),
        ("vhost", json!(broker.vhost)),
        ("durable", json!(true)),
        ("auto_delete", json!(false)),
        ("exclusive", json!(false)),
    ] {
        assert_eq!(queue[key], value, "{key}: {queue}");
    }
    assert_eq!(own_arguments(queue), json!({ "x-max-length": 5 }));
}

#[test]
fn case_088_queue_limit_of_a_vhost() {
    let broker = Broker::start();
    let path = format!("vhost-limits/{}/max-queues", broker.vhost_segment());
    assert!(broker.api.put(&path, &json!({ "value": 2 })).status < 300);
    let mut client = broker.channel();
    client.queue(1, "q1", DURABLE, &table! {}).unwrap();
    client.queue(1, "q2", DURABLE, &table! {}).unwrap();
    assert_channel_error(
        client.queue(1, "q3", DURABLE, &table! {}),
        406,
        &format!(
            "PRECONDITION_FAILED - cannot declare queue 'q3': queue limit in vhost '{0}' (2) is \
             reached",
            broker.vhost
        ),
    );
    client.open(1).unwrap();
    client.queue(1, "q1", DURABLE, &table! {}).unwrap();
    client.delete_queue(1, "q1").unwrap();
    client.queue(1, "q3", DURABLE, &table! {}).unwrap();
    assert_eq!(broker.api.delete(&path).status, 204);
    client.queue(1, "q4", DURABLE, &table! {}).unwrap();
}

#[test]
fn case_089_an_absent_queue_type_is_never_inequivalent() {
    let broker = Broker::start();
    let mut client = broker.channel();
    let typed = table! { "x-queue-type" => "classic" };
    client.queue(1, "absent", DURABLE, &table! {}).unwrap();
    client.queue(1, "absent", DURABLE, &typed).unwrap();
    client.queue(1, "typed", DURABLE, &typed).unwrap();
    client.queue(1, "typed", DURABLE, &table! {}).unwrap();
    let answer =
        broker.api.put(&broker.queue_path("absent"), &json!({ "durable": true, "arguments": {} }));
    assert_eq!(answer.status, 204, "{}", answer.text());
    let answer = broker.api.put(
        &broker.queue_path("absent"),
        &json!({ "durable": true, "arguments": { "x-max-length": 5 } }),
    );
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(answer.reason().contains("inequivalent arg 'x-max-length'"), "{}", answer.text());
}

#[test]
fn case_092_totals_agree() {
    let Some(mut broker) = Broker::own(Setup::new()) else { return };
    let total = 100_u64;
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    client.confirm_select(1).unwrap();
    for _ in 0..total {
        client.put(1, "q", "m").unwrap();
    }
    client.confirms(1, total as usize).unwrap();
    for _ in 0..30 {
        let message = client.get(1, "q", false).unwrap().unwrap();
        client.ack(1, message.tag, false).unwrap();
    }
    for _ in 0..20 {
        client.get(1, "q", true).unwrap().unwrap();
    }
    let returned = client.get(1, "q", false).unwrap().unwrap();
    client.nack(1, returned.tag, false, true).unwrap();
    client.sync(1).unwrap();
    client.open(2).unwrap();
    client.qos(2, 10, false).unwrap();
    client.consume(2, "q", "c").unwrap();
    for message in client.deliveries(2, 10).unwrap() {
        client.ack(2, message.tag, false).unwrap();
    }
    client.deliveries(2, 10).unwrap();
    client.sync(2).unwrap();
    let field = |stats: &Value, name: &str| stats[name].as_u64().unwrap_or_default();
    let names =
        ["publish", "confirm", "get", "get_no_ack", "deliver", "ack", "redeliver", "deliver_get"];
    let expected = [100, 100, 31, 20, 20, 40, 1, 71];
    let api = &broker.api;
    until_equal("the overview's totals", &expected, || {
        let stats = api.json("overview")["message_stats"].clone();
        names.map(|name| field(&stats, name))
    });
    let counts = |value: &Value| {
        ["messages", "messages_ready", "messages_unacknowledged"].map(|name| field(value, name))
    };
    until_equal("the overview's depth", &[40, 30, 10], || {
        counts(&api.json("overview")["queue_totals"])
    });
    let path = broker.queue_path("q");
    until_equal("the queue's depth", &[40, 30, 10], || counts(&api.json(&path)));
    let stats = api.json(&path)["message_stats"].clone();
    for (name, wanted) in names.into_iter().zip(expected) {
        if name != "confirm" {
            assert_eq!(field(&stats, name), wanted, "{name} of the queue: {stats}");
        }
    }
    let metrics = Api::new(broker.node().metrics);
    let text = metrics.request("GET", "/metrics", None).unwrap().text();
    let value = |name: &str| -> u64 {
        text.lines()
            .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum::<f64>() as u64
    };
    assert_eq!(value("rabbitmq_queue_messages_ready"), 30);
    assert_eq!(value("rabbitmq_queue_messages_unacked"), 10);
    assert_eq!(value("rabbitmq_global_messages_received_total"), 100);
    assert_eq!(value("rabbitmq_global_messages_confirmed_total"), 100);
    assert_eq!(value("rabbitmq_global_messages_acknowledged_total"), 40);
    assert_eq!(value("rabbitmq_global_messages_redelivered_total"), 1);
}

#[test]
fn case_093_listing_while_queues_come_and_go() {
    let broker = Broker::start();
    broker.policy("p", "^churn", &json!({ "max-length": 5 }));
    let rounds = count(100, 2000);
    let path = format!("queues/{}", broker.vhost_segment());
    std::thread::scope(|scope| {
        let churn = scope.spawn(|| {
            let mut client = broker.channel();
            for n in 0..rounds {
                let name = format!("churn-{}", n % 7);
                client.queue(1, &name, DURABLE, &table! {}).unwrap();
                client.put(1, &name, "m").unwrap();
                client.delete_queue(1, &name).unwrap();
            }
        });
        while !churn.is_finished() {
            let answer = broker.api.get(&path);
            assert_eq!(answer.status, 200, "{}", answer.text());
            let paged = broker.api.get(&format!("{path}?page=1&page_size=10"));
            assert_eq!(paged.status, 200, "{}", paged.text());
        }
    });
}

#[test]
fn case_095_metrics_with_many_queues() {
    let Some(mut broker) = Broker::own(Setup::new()) else { return };
    let total = count(500, 10_000);
    let mut client = broker.channel();
    let names: Vec<String> = (0..total).map(|n| format!("q-{n}")).collect();
    client.durable_queues(1, &names).unwrap();
    let metrics = Api::new(broker.node().metrics);
    let begin = Instant::now();
    let answer = metrics.request("GET", "/metrics", None).unwrap();
    let took = begin.elapsed();
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains(&format!("rabbitmq_queues {total}")));
    assert!(took < Duration::from_secs(30), "{took:?}");
    let begin = Instant::now();
    let page = broker.api.json("queues?page=2&page_size=100");
    assert_eq!(page["items"].as_array().map(Vec::len), Some(100));
    eprintln!("{total} queues: /metrics took {took:?}, a page of 100 {:?}", begin.elapsed());
}

#[test]
fn case_107_half_open_connections_do_no_harm() {
    let broker = Broker::start();
    let _silent = Client::raw(broker.amqp).unwrap();
    let mut half = Client::raw(broker.amqp).unwrap();
    half.write(e2e::client::connect::PROTOCOL_HEADER).unwrap();
    half.await_event(0, |event| event.id == (10, 10)).unwrap();
    let _tuning = Client::until_tune(&broker.options()).unwrap();
    let _whole = broker.channel();
    let answer = broker.api.get("connections");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let path = format!("vhosts/{}/connections", broker.vhost_segment());
    until_equal("the whole one is listed", &Some(1), || {
        broker.api.json(&path).as_array().map(Vec::len)
    });
    assert_eq!(broker.api.get("channels").status, 200);
    assert_eq!(broker.api.get("consumers").status, 200);
}

#[test]
fn case_107b_an_operator_closes_a_connection() {
    let broker = Broker::start();
    let mut client = broker.channel();
    let path = format!("vhosts/{}/connections", broker.vhost_segment());
    let name = e2e::wait::until_some("the connection is listed", || {
        broker.api.json(&path)[0]["name"].as_str().map(str::to_owned)
    });
    let answer = broker.api.delete(&format!("connections/{}", e2e::http::segment(&name)));
    assert_eq!(answer.status, 204, "{}", answer.text());
    match client.await_end() {
        Failure::Connection { code: 320, text, .. } => {
            assert_eq!(text, "CONNECTION_FORCED - Closed via management plugin");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn case_109_unknown_names_and_fields() {
    let broker = Broker::start();
    assert_eq!(broker.api.get("nodes/unheard@of").status, 404);
    for path in ["queues/%2F/unheard-of", "exchanges/%2F/unheard-of", "vhosts/unheard-of"] {
        let answer = broker.api.get(path);
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.json()["error"].is_string(), "{path}: {}", answer.text());
    }
    let answer = broker.api.put(
        &broker.queue_path("q"),
        &json!({ "durable": true, "unheard_of": { "a": [1, 2] }, "name": "q", "arguments": {} }),
    );
    assert_eq!(answer.status, 201, "{}", answer.text());
    for body in ["{", "[]", "\"text\"", "{\"durable\": {}}", "{\"arguments\": 7}"] {
        let answer = broker.api.call("PUT", &broker.queue_path("bad"), Some(body));
        if broker.is_ours() {
            assert_eq!(answer.status, 400, "{body}: {}", answer.text());
        }
    }
    let answer = broker.api.delete(&broker.queue_path("unheard-of"));
    assert_eq!(answer.status, 404);
    assert_eq!(broker.api.delete(&broker.queue_path("q")).status, 204);
}

#[test]
fn case_109b_credentials_over_http() {
    let broker = Broker::start();
    let answer = broker.api.anonymous().get("overview");
    assert_eq!(answer.status, 401);
    assert!(answer.header("www-authenticate").is_some_and(|value| value.starts_with("Basic")));
    assert_eq!(broker.api.login("guest", "wrong").get("overview").status, 401);
    let user = "u109";
    let made = broker.api.put(&format!("users/{user}"), &json!({ "password": "p", "tags": "" }));
    assert_eq!(made.status, 201);
    let answer = broker.api.login(user, "p").get("overview");
    assert_eq!(answer.status, 401);
    let body = json!({ "password": "p", "tags": "management" });
    assert_eq!(broker.api.put(&format!("users/{user}"), &body).status, 204);
    assert_eq!(broker.api.login(user, "p").get("overview").status, 200);
    assert_eq!(broker.api.login(user, "p").json("whoami")["name"], user);
    let answer = broker.api.login(user, "p").put("users/another", &body);
    assert_eq!(answer.status, 401, "{}", answer.text());
    assert_eq!(broker.api.delete(&format!("users/{user}")).status, 204);
}

#[test]
fn case_111_short_lived_exclusive_queues_while_polling() {
    let broker = Broker::start();
    let rounds = count(50, 1000);
    std::thread::scope(|scope| {
        let churn = scope.spawn(|| {
            for _ in 0..rounds {
                let mut client = broker.channel();
                let queue = client.queue(1, "", EXCLUSIVE, &table! {}).unwrap().name;
                client.consume(1, &queue, "c").unwrap();
                client.close().unwrap();
            }
        });
        while !churn.is_finished() {
            for path in ["queues", "consumers", "channels", "connections", "overview"] {
                let answer = broker.api.get(path);
                assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            }
        }
    });
    if let Some(node) = &broker.node {
        let log = node.log();
        assert!(!log.contains("ERROR") && !log.contains("panic"), "{log}");
    }
}
