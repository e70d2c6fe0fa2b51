//! Exchanges and bindings: cases 23 to 30, 33, 99, 104.

use e2e::broker::Broker;
use e2e::client::basic::MANDATORY;
use e2e::client::topology::{AUTO_DELETE, DURABLE, EXCLUSIVE, INTERNAL};
use e2e::client::{Client, assert_channel_error};
use e2e::codec::{Table, Value};
use e2e::content::Properties;
use e2e::table;
use e2e::wait::{count, until_equal};
use serde_json::json;

/// Publishes with `mandatory` and says whether the message came back.
fn routed(client: &mut Client, exchange: &str, key: &str, properties: &Properties) -> bool {
    client.publish_with(1, exchange, key, MANDATORY, properties, b"m").unwrap();
    client.sync(1).unwrap();
    client.take_event(1, |event| event.id == (60, 50)).is_none()
}

fn ready(client: &mut Client, queue: &str) -> u32 {
    client.purge(1, queue).unwrap()
}

#[test]
fn case_023_empty_topic_keys_stay_with_their_exchange() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.exchange(1, "x", "topic", DURABLE, &table! {}).unwrap();
    client.exchange(1, "y", "topic", DURABLE, &table! {}).unwrap();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    client.bind(1, "q", "x", "", &table! {}).unwrap();
    assert!(!routed(&mut client, "y", "", &Properties::default()));
    assert!(routed(&mut client, "x", "", &Properties::default()));
    assert_eq!(ready(&mut client, "q"), 1);
    client.unbind(1, "q", "x", "", &table! {}).unwrap();
    for (key, matches) in [("a.*", false), ("*", false), ("#", true), ("", true), ("#.#", true)] {
        client.bind(1, "q", "x", key, &table! {}).unwrap();
        assert_eq!(routed(&mut client, "x", "", &Properties::default()), matches, "{key:?}");
        client.unbind(1, "q", "x", key, &table! {}).unwrap();
    }
}

#[test]
fn case_024_hash_matches_zero_words() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.exchange(1, "x", "topic", DURABLE, &table! {}).unwrap();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    let cases = [
        ("a.#.b", "a.b", true),
        ("a.#.b", "a.x.y.b", true),
        ("a.#.b", "a.b.c", false),
        ("#", "", true),
        ("#", "a.b.c", true),
        ("a.#", "a", true),
        ("a.#", "ab", false),
        ("#.a", "a", true),
        ("*.a", "a", false),
        ("*.*", "a.b", true),
        ("a.*", "a.", true),
        ("*", "", false),
        ("a..b", "a..b", true),
        ("a.*.b", "a..b", true),
    ];
    for (pattern, key, matches) in cases {
        client.bind(1, "q", "x", pattern, &table! {}).unwrap();
        let seen = routed(&mut client, "x", key, &Properties::default());
        assert_eq!(seen, matches, "{pattern:?} and {key:?}");
        client.unbind(1, "q", "x", pattern, &table! {}).unwrap();
    }
}

#[test]
fn case_025_headers_exchange() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.exchange(1, "x", "headers", DURABLE, &table! {}).unwrap();
    for queue in ["q1", "q2"] {
        client.queue(1, queue, DURABLE, &table! {}).unwrap();
    }
    client.bind(1, "q1", "x", "", &table! { "x-match" => "all", "a" => 1, "b" => "z" }).unwrap();
    client.bind(1, "q2", "x", "", &table! { "x-match" => "all", "a" => 2, "b" => "z" }).unwrap();
    let send = |client: &mut Client, headers: Table| {
        routed(client, "x", "", &Properties::with_headers(headers))
    };
    assert!(send(&mut client, table! { "a" => 1, "b" => "z", "c" => true }));
    assert_eq!((ready(&mut client, "q1"), ready(&mut client, "q2")), (1, 0));
    assert!(send(&mut client, table! { "a" => 2_i64, "b" => "z" }));
    assert_eq!((ready(&mut client, "q1"), ready(&mut client, "q2")), (0, 1));
    assert!(!send(&mut client, table! { "a" => 1 }));
    assert!(!routed(&mut client, "x", "", &Properties::default()));

    let cases: Vec<(Table, Table, bool)> = vec![
        // No x-match means all.
        (table! { "a" => 1, "b" => 2 }, table! { "a" => 1 }, false),
        (table! { "a" => 1, "b" => 2 }, table! { "a" => 1, "b" => 2 }, true),
        (table! { "x-match" => "any", "a" => 1, "b" => 2 }, table! { "a" => 1 }, true),
        (table! { "x-match" => "any", "a" => 1, "b" => 2 }, table! { "a" => 3 }, false),
        // Void: the key must exist, whatever its value.
        (table! { "a" => Value::Void }, table! { "a" => "anything" }, true),
        (table! { "a" => Value::Void }, table! { "b" => 1 }, false),
        // Keys that begin with x- count only in the with-x forms.
        (table! { "x-match" => "all", "x-a" => 1, "b" => 2 }, table! { "b" => 2 }, true),
        (table! { "x-match" => "all-with-x", "x-a" => 1, "b" => 2 }, table! { "b" => 2 }, false),
        (table! { "x-match" => "any", "x-a" => 1 }, table! { "x-a" => 1 }, false),
        (table! { "x-match" => "any-with-x", "x-a" => 1 }, table! { "x-a" => 1 }, true),
        // Nothing to match.
        (table! { "x-match" => "all" }, table! { "a" => 1 }, true),
        (table! { "x-match" => "any" }, table! { "a" => 1 }, false),
        // Types of values.
        (table! { "a" => 1 }, table! { "a" => "1" }, false),
        (table! { "a" => true }, table! { "a" => true }, true),
    ];
    client.unbind(1, "q1", "x", "", &table! { "x-match" => "all", "a" => 1, "b" => "z" }).unwrap();
    client.unbind(1, "q2", "x", "", &table! { "x-match" => "all", "a" => 2, "b" => "z" }).unwrap();
    for (criteria, headers, matches) in cases {
        client.bind(1, "q1", "x", "", &criteria).unwrap();
        let seen = send(&mut client, headers.clone());
        assert_eq!(seen, matches, "{criteria:?} and {headers:?}");
        client.unbind(1, "q1", "x", "", &criteria).unwrap();
    }
    assert_channel_error(
        client.bind(1, "q1", "x", "", &table! { "x-match" => "some" }),
        406,
        "PRECONDITION_FAILED - Invalid x-match field value <<\"some\">>; expected all, any, \
         all-with-x, or any-with-x",
    );
}

#[test]
fn case_026_deleting_an_exchange_deletes_bindings_to_it() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.exchange(1, "x", "fanout", DURABLE, &table! {}).unwrap();
    client.exchange(1, "y", "fanout", DURABLE, &table! {}).unwrap();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    client.bind_exchange(1, "y", "x", "", &table! {}).unwrap();
    client.bind(1, "q", "y", "", &table! {}).unwrap();
    assert!(routed(&mut client, "x", "", &Properties::default()));
    client.delete_exchange(1, "y", false).unwrap();
    let path = format!("{}/bindings/source", broker.exchange_path("x"));
    assert_eq!(broker.api.json(&path), json!([]));
    assert!(!routed(&mut client, "x", "", &Properties::default()));
    client.exchange(1, "y", "fanout", DURABLE, &table! {}).unwrap();
    client.bind(1, "q", "y", "", &table! {}).unwrap();
    assert!(!routed(&mut client, "x", "", &Properties::default()), "the binding is not revived");
}

#[test]
fn case_026b_cycles_and_paths_deliver_once() {
    let broker = Broker::start();
    let mut client = broker.channel();
    for exchange in ["a", "b", "c"] {
        client.exchange(1, exchange, "fanout", DURABLE, &table! {}).unwrap();
    }
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    for (destination, source) in [("b", "a"), ("c", "b"), ("a", "c"), ("c", "a")] {
        client.bind_exchange(1, destination, source, "", &table! {}).unwrap();
    }
    client.bind(1, "q", "c", "", &table! {}).unwrap();
    client.bind(1, "q", "b", "", &table! {}).unwrap();
    client.bind(1, "q", "b", "k", &table! {}).unwrap();
    assert!(routed(&mut client, "a", "k", &Properties::default()));
    assert_eq!(ready(&mut client, "q"), 1);
}

/// The consistent-hash exchange is built in here; a plugin elsewhere.
fn has_consistent_hash(broker: &Broker) -> bool {
    broker.is_ours()
}

#[test]
fn case_027_consistent_hash_follows_its_weights() {
    let broker = Broker::start();
    if !has_consistent_hash(&broker) {
        return;
    }
    let total = count(300, 1000);
    let mut client = broker.channel();
    client.exchange(1, "x", "x-consistent-hash", DURABLE, &table! {}).unwrap();
    for queue in ["q1", "q2"] {
        client.queue(1, queue, DURABLE, &table! {}).unwrap();
    }
    client.bind(1, "q1", "x", "1", &table! {}).unwrap();
    client.bind(1, "q1", "x", "3", &table! {}).unwrap();
    client.bind(1, "q2", "x", "1", &table! {}).unwrap();
    let spread = |client: &mut Client| {
        for n in 0..total {
            assert!(routed(client, "x", &format!("key-{n}"), &Properties::default()));
        }
        (ready(client, "q1") as usize, ready(client, "q2") as usize)
    };
    let (first, second) = spread(&mut client);
    assert_eq!(first + second, total, "exactly one queue each");
    assert!(first > second && second > 0, "{first} and {second} for weights 4 and 1");
    assert_eq!(spread(&mut client), (first, second), "the same keys go the same way");
    client.unbind(1, "q1", "x", "3", &table! {}).unwrap();
    client.unbind(1, "q1", "x", "1", &table! {}).unwrap();
    assert_eq!(spread(&mut client), (0, total));
    client.unbind(1, "q2", "x", "1", &table! {}).unwrap();
    assert!(!routed(&mut client, "x", "key", &Properties::default()));
}

#[test]
fn case_028_consistent_hash_weight_must_be_a_number() {
    let broker = Broker::start();
    if !has_consistent_hash(&broker) {
        return;
    }
    let mut client = broker.channel();
    client.exchange(1, "x", "x-consistent-hash", DURABLE, &table! {}).unwrap();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    for key in ["abc", "0", "-1", ""] {
        let failure = client.bind(1, "q", "x", key, &table! {}).unwrap_err();
        assert_eq!(failure.reply().unwrap().0, 406, "{key:?}");
        client.open(1).unwrap();
    }
    let path = format!("bindings/{}/e/x/q/q", broker.vhost_segment());
    let answer = broker.api.post(&path, &json!({ "routing_key": "abc", "arguments": {} }));
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert_eq!(broker.api.json(&path), json!([]));
}

#[test]
fn case_029_consistent_hash_on_a_missing_header() {
    let broker = Broker::start();
    if !has_consistent_hash(&broker) {
        return;
    }
    let mut client = broker.channel();
    let arguments = table! { "hash-header" => "id" };
    client.exchange(1, "x", "x-consistent-hash", DURABLE, &arguments).unwrap();
    for queue in ["q1", "q2", "q3"] {
        client.queue(1, queue, DURABLE, &table! {}).unwrap();
        client.bind(1, queue, "x", "1", &table! {}).unwrap();
    }
    let mut landed = Vec::new();
    for _ in 0..5 {
        assert!(routed(&mut client, "x", "any", &Properties::default()));
        landed.push(["q1", "q2", "q3"].map(|queue| ready(&mut client, queue)));
    }
    landed.dedup();
    assert_eq!(landed.len(), 1, "always the same queue");
    assert_eq!(landed[0].iter().sum::<u32>(), 1);
}

#[test]
fn case_030_bindings_are_idempotent_and_exact() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.exchange(1, "x", "direct", DURABLE, &table! {}).unwrap();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    let path = format!("bindings/{}/e/x/q/q", broker.vhost_segment());
    let bindings = || broker.api.json(&path).as_array().map_or(0, Vec::len);
    client.bind(1, "q", "x", "k", &table! {}).unwrap();
    client.bind(1, "q", "x", "k", &table! {}).unwrap();
    assert_eq!(bindings(), 1);
    client.bind(1, "q", "x", "k", &table! { "a" => 1 }).unwrap();
    assert_eq!(bindings(), 2, "other arguments are another binding");
    assert!(routed(&mut client, "x", "k", &Properties::default()));
    assert_eq!(ready(&mut client, "q"), 1);
    client.unbind(1, "q", "x", "k", &table! {}).unwrap();
    assert_eq!(bindings(), 1);
    assert!(routed(&mut client, "x", "k", &Properties::default()));
    // A binding that does not exist.
    client.unbind(1, "q", "x", "other", &table! {}).unwrap();
    // Through the API, by its properties key.
    let answer = broker.api.post(&path, &json!({ "routing_key": "a~b", "arguments": {} }));
    assert_eq!(answer.status, 201);
    assert_eq!(bindings(), 2);
    let location = answer.header("location").expect("a location").to_owned();
    let key = location.rsplit('/').next().unwrap_or_default();
    // The properties key is a%7Eb, and it is encoded once more to stand in a path.
    assert_eq!(key, "a%257Eb");
    assert_eq!(broker.api.get(&format!("{path}/{key}")).status, 200, "{location}");
    assert_eq!(broker.api.delete(&format!("{path}/{key}")).status, 204);
    assert_eq!(bindings(), 1);
    assert_eq!(broker.api.delete(&format!("{path}/{key}")).status, 404);
    // An exchange that is made again has none.
    client.delete_exchange(1, "x", false).unwrap();
    client.exchange(1, "x", "direct", DURABLE, &table! {}).unwrap();
    assert!(!routed(&mut client, "x", "k", &Properties::default()));
    client.bind(1, "q", "x", "k", &table! {}).unwrap();
    assert!(routed(&mut client, "x", "k", &Properties::default()));
}

#[test]
fn case_033_unroutable_messages() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.exchange(1, "x", "direct", DURABLE, &table! {}).unwrap();
    client.confirm_select(1).unwrap();
    client.publish(1, "x", "nobody", &Properties::default(), "m").unwrap();
    assert_eq!(client.confirms(1, 1).unwrap().acked(), [1]);
    let properties = Properties { message_id: Some("id".into()), ..Properties::default() };
    client.publish_with(1, "x", "nobody", MANDATORY, &properties, b"body").unwrap();
    client.await_event(1, |event| event.id == (60, 80)).unwrap();
    // The return came before the confirm.
    let returned = client.take_event(1, |event| event.id == (60, 50)).expect("returned first");
    assert_eq!(returned.content, Some((properties, b"body".to_vec())));
    let mut reader = e2e::codec::Reader(&returned.arguments);
    assert_eq!(reader.u16(), Ok(312));
    assert_eq!(reader.short().as_deref(), Ok("NO_ROUTE"));
    assert_eq!(reader.short().as_deref(), Ok("x"));
    assert_eq!(reader.short().as_deref(), Ok("nobody"));
    if broker.is_ours() {
        let totals = || {
            let stats = broker.api.json("overview");
            let field = |name: &str| stats["message_stats"][name].as_u64().unwrap_or_default();
            (field("drop_unroutable"), field("return_unroutable"))
        };
        until_equal("they are counted", &(1, 1), totals);
    }
}

#[test]
fn case_033b_alternate_exchange() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.exchange(1, "other", "fanout", DURABLE, &table! {}).unwrap();
    let arguments = table! { "alternate-exchange" => "other" };
    client.exchange(1, "x", "direct", DURABLE, &arguments).unwrap();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    client.queue(1, "rest", DURABLE, &table! {}).unwrap();
    client.bind(1, "q", "x", "k", &table! {}).unwrap();
    client.bind(1, "rest", "other", "", &table! {}).unwrap();
    assert!(routed(&mut client, "x", "k", &Properties::default()));
    assert_eq!((ready(&mut client, "q"), ready(&mut client, "rest")), (1, 0));
    assert!(routed(&mut client, "x", "unknown", &Properties::default()));
    assert_eq!((ready(&mut client, "q"), ready(&mut client, "rest")), (0, 1));
    // The alternate exchange of a policy.
    client.exchange(1, "by-policy", "direct", DURABLE, &table! {}).unwrap();
    broker.policy("ae", "^by-policy$", &json!({ "alternate-exchange": "other" }));
    e2e::wait::until("the policy applies", || {
        routed(&mut client, "by-policy", "unknown", &Properties::default())
    });
}

#[test]
fn case_033c_cc_and_bcc() {
    let broker = Broker::start();
    let mut client = broker.channel();
    for queue in ["to", "cc", "bcc"] {
        client.queue(1, queue, DURABLE, &table! {}).unwrap();
    }
    let headers = table! { "CC" => vec!["cc", "to"], "BCC" => vec!["bcc"] };
    client.publish(1, "", "to", &Properties::with_headers(headers), "m").unwrap();
    client.sync(1).unwrap();
    for queue in ["to", "cc", "bcc"] {
        let messages = client.drain_queue(1, queue).unwrap();
        assert_eq!(messages.len(), 1, "{queue}");
        assert_eq!(messages[0].routing_key, "to");
        assert_eq!(messages[0].properties.headers, Some(table! { "CC" => vec!["cc", "to"] }));
    }
    let headers = table! { "CC" => "no array" };
    client.publish(1, "", "to", &Properties::with_headers(headers), "m").unwrap();
    let failure = client.sync(1).unwrap_err();
    let (code, text) = failure.reply().unwrap();
    assert_eq!(code, 406);
    assert!(text.starts_with("PRECONDITION_FAILED - invalid"), "{text}");
}

#[test]
fn case_033d_exchange_refusals() {
    let broker = Broker::start();
    let vhost = broker.vhost.clone();
    let mut client = broker.channel();
    let mut refused =
        |call: &dyn Fn(&mut Client) -> e2e::client::Outcome<()>, code: u16, text: &str| {
            assert_channel_error(call(&mut client), code, text);
            client.open(1).unwrap();
        };
    let none = table! {};
    refused(
        &|client| client.exchange(1, "amq.own", "direct", 0, &none),
        403,
        "ACCESS_REFUSED - exchange name 'amq.own' contains reserved prefix 'amq.*'",
    );
    refused(
        &|client| client.exchange(1, "", "direct", 0, &none),
        403,
        "ACCESS_REFUSED - operation not permitted on the default exchange",
    );
    refused(
        &|client| client.delete_exchange(1, "amq.direct", false),
        403,
        &format!(
            "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '{vhost}' not \
             allowed"
        ),
    );
    refused(
        &|client| client.bind(1, "q", "", "k", &none),
        403,
        "ACCESS_REFUSED - operation not permitted on the default exchange",
    );
    refused(
        &|client| client.exchange(1, "x", "unheard-of", 0, &none),
        406,
        "PRECONDITION_FAILED - unknown exchange type 'unheard-of'",
    );
    refused(
        &|client| client.exchange(1, "x", "direct", e2e::client::topology::PASSIVE, &none),
        404,
        &format!("NOT_FOUND - no exchange 'x' in vhost '{vhost}'"),
    );
    refused(
        &|client| {
            client.exchange(1, "x", "direct", DURABLE, &none)?;
            client.exchange(1, "x", "fanout", DURABLE, &none)
        },
        406,
        &format!(
            "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'x' in vhost '{vhost}': \
             received 'fanout' but current is 'direct'"
        ),
    );
    refused(
        &|client| client.exchange(1, "x", "direct", 0, &none),
        406,
        &format!(
            "PRECONDITION_FAILED - inequivalent arg 'durable' for exchange 'x' in vhost \
             '{vhost}': received 'false' but current is 'true'"
        ),
    );
    refused(
        &|client| {
            client.queue(1, "q", DURABLE, &none)?;
            client.bind(1, "q", "x", "k", &none)?;
            client.delete_exchange(1, "x", true)
        },
        406,
        &format!("PRECONDITION_FAILED - exchange 'x' in vhost '{vhost}' in use"),
    );
    refused(
        &|client| {
            client.exchange(1, "in", "direct", DURABLE | INTERNAL, &none)?;
            client.publish(1, "in", "k", &Properties::default(), "m")?;
            client.sync(1)
        },
        403,
        &format!("ACCESS_REFUSED - cannot publish to internal exchange 'in' in vhost '{vhost}'"),
    );
    refused(
        &|client| {
            client.publish(1, "missing", "k", &Properties::default(), "m")?;
            client.sync(1)
        },
        404,
        &format!("NOT_FOUND - no exchange 'missing' in vhost '{vhost}'"),
    );
    refused(
        &|client| client.bind(1, "missing", "x", "k", &none),
        404,
        &format!("NOT_FOUND - no queue 'missing' in vhost '{vhost}'"),
    );
    refused(
        &|client| client.bind(1, "q", "missing", "k", &none),
        404,
        &format!("NOT_FOUND - no exchange 'missing' in vhost '{vhost}'"),
    );
}

#[test]
fn case_033e_auto_delete_exchange_goes_with_its_last_binding() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.exchange(1, "x", "fanout", DURABLE | AUTO_DELETE, &table! {}).unwrap();
    client.queue(1, "q", EXCLUSIVE, &table! {}).unwrap();
    client.bind(1, "q", "x", "a", &table! {}).unwrap();
    client.bind(1, "q", "x", "b", &table! {}).unwrap();
    client.unbind(1, "q", "x", "a", &table! {}).unwrap();
    let passive = e2e::client::topology::PASSIVE;
    client.exchange(1, "x", "fanout", passive, &table! {}).unwrap();
    client.delete_queue(1, "q").unwrap();
    let text = format!("NOT_FOUND - no exchange 'x' in vhost '{}'", broker.vhost);
    assert_channel_error(client.exchange(1, "x", "fanout", passive, &table! {}), 404, &text);
}

#[test]
fn case_099_reply_to_queue_cannot_be_bound() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.consume_with(1, "amq.rabbitmq.reply-to", "", 2, &table! {}).unwrap();
    let failure = client.bind(1, "amq.rabbitmq.reply-to", "amq.direct", "k", &table! {});
    let failure = failure.unwrap_err();
    let (code, text) = failure.reply().unwrap();
    // 4.3.6 says that there is no such queue.
    assert!([403, 404].contains(&code), "{text}");
}

#[test]
fn case_104_many_topic_bindings() {
    let Some(broker) = Broker::own(e2e::node::Setup::new()) else { return };
    let total = count(5000, 100_000);
    let mut client = broker.channel();
    client.exchange(1, "x", "topic", DURABLE, &table! {}).unwrap();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    let key = |n: usize| format!("a.{}.{}.*", n % 100, n / 100);
    let pipelined = |client: &mut Client, method: u16| {
        let begin = std::time::Instant::now();
        let answer = (50, method + 1);
        for n in 0..total {
            let mut bind =
                e2e::codec::Writer::method(50, method).u16(0).short("q").short("x").short(key(n));
            if method == 20 {
                bind = bind.u8(0);
            }
            client.send(1, &bind.table(&table! {})).unwrap();
            if n >= 500 {
                client.await_event(1, |event| event.id == answer).unwrap();
            }
        }
        for _ in 0..total.min(500) {
            client.await_event(1, |event| event.id == answer).unwrap();
        }
        begin.elapsed()
    };
    let bound = pipelined(&mut client, 20);
    assert!(routed(&mut client, "x", "a.7.1.z", &Properties::default()));
    let unbound = pipelined(&mut client, 50);
    assert!(!routed(&mut client, "x", "a.7.1.z", &Properties::default()));
    eprintln!("{total} topic bindings made in {bound:?}, deleted in {unbound:?}");
    let patience = e2e::wait::PATIENCE * 2;
    assert!(bound < patience && unbound < patience);
}
