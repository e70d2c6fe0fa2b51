//! Methods and extensions that no numbered case looks at.

use e2e::broker::Broker;
use e2e::client::basic::MANDATORY;
use e2e::client::topology::{DURABLE, PASSIVE};
use e2e::client::{Failure, assert_channel_error, assert_connection_error};
use e2e::codec::{Value, Writer};
use e2e::content::{Delivery, Properties};
use e2e::table;
use e2e::wait::{until, until_equal};
use serde_json::json;

#[test]
fn what_the_server_says_of_itself() {
    let broker = Broker::start();
    let client = broker.connect();
    let properties = &client.server_properties;
    for name in ["product", "version", "platform", "cluster_name", "copyright", "information"] {
        assert!(properties.get(name).and_then(Value::as_str).is_some(), "{name}");
    }
    let capabilities = properties.get("capabilities").and_then(Value::as_table).unwrap();
    for name in [
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "consumer_priorities",
        "authentication_failure_close",
        "per_consumer_qos",
        "direct_reply_to",
    ] {
        assert_eq!(capabilities.get(name), Some(&Value::Bool(true)), "{name}");
    }
}

#[test]
fn no_wait_methods_answer_nothing() {
    let broker = Broker::start();
    let mut client = broker.channel();
    let none = table! {};
    let queue = Writer::method(50, 10).u16(0).short("q").u8(DURABLE | 16).table(&none);
    client.send(1, &queue).unwrap();
    let exchange =
        Writer::method(40, 10).u16(0).short("x").short("fanout").u8(DURABLE | 16).table(&none);
    client.send(1, &exchange).unwrap();
    let bind = Writer::method(50, 20).u16(0).short("q").short("x").short("").u8(1).table(&none);
    client.send(1, &bind).unwrap();
    let consume = Writer::method(60, 20).u16(0).short("q").short("c").u8(8).table(&none);
    client.send(1, &consume).unwrap();
    client.send(1, &Writer::method(85, 10).u8(1)).unwrap();
    client.publish(1, "x", "", &Properties::persistent(), "m").unwrap();
    assert_eq!(client.confirms(1, 1).unwrap().acked(), [1]);
    assert_eq!(client.delivery(1).unwrap().text(), "m");
    client.send(1, &Writer::method(60, 30).short("c").u8(1)).unwrap();
    client.send(1, &Writer::method(50, 30).u16(0).short("q").u8(1)).unwrap();
    client.sync(1).unwrap();
    assert_eq!(client.waiting(1), [], "nothing was answered");
    assert_eq!(client.depth(1, "q").unwrap().consumers, 0);
    client.send(1, &Writer::method(50, 40).u16(0).short("q").u8(4)).unwrap();
    let text = format!("NOT_FOUND - no queue 'q' in vhost '{}'", broker.vhost);
    assert_channel_error(client.depth(1, "q"), 404, &text);
    // An error is told all the same.
    client.open(1).unwrap();
    let queue = Writer::method(50, 10).u16(0).short("amq.own").u8(DURABLE | 16).table(&none);
    client.send(1, &queue).unwrap();
    assert_eq!(client.sync(1).unwrap_err().reply().map(|(code, _)| code), Some(403));
}

#[test]
fn channel_flow_and_access_request() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.call(1, &Writer::method(20, 20).u8(1), (20, 21)).unwrap();
    let access = Writer::method(30, 10).short("/data").u8(0);
    client.call(1, &access, (30, 11)).unwrap();
    assert_connection_error(
        client.call(1, &Writer::method(20, 20).u8(0), (20, 21)),
        540,
        "NOT_IMPLEMENTED - active=false",
    );
}

#[test]
fn recover_async_returns_deliveries() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    client.put(1, "q", "m").unwrap();
    client.consume(1, "q", "c").unwrap();
    assert!(!client.delivery(1).unwrap().redelivered);
    client.send(1, &Writer::method(60, 100).u8(1)).unwrap();
    assert!(client.delivery(1).unwrap().redelivered);
}

#[test]
fn reject_publish_dlx_dead_letters_what_it_refuses() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "dead", DURABLE, &table! {}).unwrap();
    let arguments = table! {
        "x-max-length" => 1, "x-overflow" => "reject-publish-dlx",
        "x-dead-letter-exchange" => "", "x-dead-letter-routing-key" => "dead",
    };
    client.queue(1, "q", DURABLE, &arguments).unwrap();
    client.confirm_select(1).unwrap();
    let mut confirms = e2e::client::confirms::Confirms::default();
    for n in 1..=4 {
        client.put(1, "q", n.to_string()).unwrap();
        client.await_confirms(1, &mut confirms, n).unwrap();
    }
    let refused = confirms.nacked().len();
    assert!(refused >= 2, "{confirms:?}");
    until_equal("the refused are dead", &(refused as u32), || {
        client.depth(1, "dead").unwrap().messages
    });
    let dead = client.get(1, "dead", true).unwrap().unwrap();
    assert_eq!(dead.properties.deaths()[0].get("reason"), Some(&"maxlen".into()));
}

#[test]
fn a_random_exchange_spreads() {
    let broker = Broker::start();
    if !broker.is_ours() {
        return; // A plugin there.
    }
    let mut client = broker.channel();
    client.exchange(1, "x", "x-random", DURABLE, &table! {}).unwrap();
    for queue in ["q1", "q2"] {
        client.queue(1, queue, DURABLE, &table! {}).unwrap();
        client.bind(1, queue, "x", "any", &table! {}).unwrap();
    }
    for _ in 0..200 {
        client.publish_with(1, "x", "k", MANDATORY, &Properties::persistent(), b"m").unwrap();
    }
    client.sync(1).unwrap();
    let (one, two) = (client.purge(1, "q1").unwrap(), client.purge(1, "q2").unwrap());
    assert_eq!(one + two, 200);
    assert!(one > 50 && two > 50, "{one} and {two}");
}

#[test]
fn dead_lettering_by_policy() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "dead", DURABLE, &table! {}).unwrap();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    let definition = json!({
        "dead-letter-exchange": "", "dead-letter-routing-key": "dead", "message-ttl": 50,
    });
    broker.policy("p", "^q$", &definition);
    until("the policy applies", || {
        client.put(1, "q", "m").unwrap();
        client.sync(1).unwrap();
        client.depth(1, "dead").unwrap().messages > 0
    });
    let dead = client.get(1, "dead", true).unwrap().unwrap();
    assert_eq!(dead.properties.deaths()[0].get("reason"), Some(&"expired".into()));
}

#[test]
fn limits_of_a_user() {
    let broker = Broker::start();
    let user = "limited";
    broker.user(user, ".*", ".*", ".*");
    let options = broker.options().login(user, "secret");
    let limit = |name: &str, value: i32| {
        let answer =
            broker.api.put(&format!("user-limits/{user}/{name}"), &json!({ "value": value }));
        assert!(answer.status < 300, "{}", answer.text());
    };
    limit("max-connections", 1);
    let mut first = options.connect().unwrap();
    match options.connect() {
        Err(Failure::Connection { code: 530, text, .. }) => assert_eq!(
            text,
            format!(
                "NOT_ALLOWED - connection refused for user '{user}': user connection limit (1) is \
                 reached"
            )
        ),
        other => panic!("{other:?}"),
    }
    limit("max-channels", 2);
    first.open(1).unwrap();
    first.open(2).unwrap();
    match first.open(3) {
        Err(Failure::Connection { code: 530, text, .. }) => assert_eq!(
            text,
            format!(
                "NOT_ALLOWED - number of channels opened for user '{user}' has reached the \
                 maximum allowed user limit of 2"
            )
        ),
        other => panic!("{other:?}"),
    }
    broker.api.delete(&format!("users/{user}"));
}

#[test]
fn a_large_body_in_many_small_frames() {
    let broker = Broker::start();
    let mut options = broker.options();
    options.frame_max = Some(8192);
    let mut client = options.connect().unwrap();
    client.open(1).unwrap();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    let body: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    client.put(1, "q", &body).unwrap();
    assert_eq!(client.get_soon(1, "q").body, body);
    assert!(client.largest_frame <= 8192);
}

#[test]
fn channels_of_a_connection_do_not_disturb_each_other() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    for channel in 2..=50 {
        client.open(channel).unwrap();
        client.qos(channel, 1, false).unwrap();
        client.consume(channel, "q", &format!("c{channel}")).unwrap();
    }
    for n in 0..49 {
        client.put(1, "q", n.to_string()).unwrap();
    }
    let mut seen: Vec<String> =
        (2..=50).map(|channel| client.delivery(channel).unwrap().text()).collect();
    seen.sort_by_key(|text| text.parse::<u32>().unwrap());
    assert_eq!(seen, (0..49).map(|n| n.to_string()).collect::<Vec<_>>());
    // One channel fails; its message goes to the next one with room.
    client.ack(2, 99, false).unwrap();
    assert_channel_error(client.sync(2), 406, "PRECONDITION_FAILED - unknown delivery tag 99");
    client.ack(3, 1, false).unwrap();
    let moved: Delivery = client.delivery(3).unwrap();
    assert!(moved.redelivered);
    client.queue(4, "q", PASSIVE, &table! {}).unwrap();
}
