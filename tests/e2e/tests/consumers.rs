//! Consumers: cases 53 to 59, 61, 100 to 102.

use std::time::{Duration, Instant};

use e2e::broker::Broker;
use e2e::client::basic::{EXCLUSIVE_CONSUMER, MANDATORY, NO_ACK};
use e2e::client::topology::{DURABLE, PASSIVE};
use e2e::client::{Client, Failure, assert_channel_error, assert_connection_error};
use e2e::codec::Value;
use e2e::content::{Delivery, Properties};
use e2e::node::Setup;
use e2e::table;
use e2e::wait::{count, until, until_equal};

fn fill(client: &mut Client, queue: &str, total: usize) {
    for n in 0..total {
        client.put(1, queue, n.to_string()).unwrap();
    }
    client.sync(1).unwrap();
    until_equal("all are there", &(total as u32), || client.depth(1, queue).unwrap().messages);
}

#[test]
fn case_053_single_active_consumer_hands_over() {
    let broker = Broker::start();
    let mut first = broker.channel();
    let arguments = table! { "x-single-active-consumer" => true };
    first.queue(1, "q", DURABLE, &arguments).unwrap();
    first.consume(1, "q", "first").unwrap();
    let mut second = broker.channel();
    second.consume(1, "q", "second").unwrap();
    let mut publisher = broker.channel();
    for n in 0..5 {
        publisher.put(1, "q", n.to_string()).unwrap();
    }
    publisher.sync(1).unwrap();
    assert_eq!(first.deliveries(1, 5).unwrap().len(), 5);
    second.sync(1).unwrap();
    assert_eq!(second.waiting(1), [], "only one is active");
    // Fetching is refused, or finds nothing, as in 4.3's classic queues.
    match publisher.get(1, "q", true) {
        Ok(None) => {}
        Err(Failure::Channel { code: 405, .. }) => publisher.open(1).unwrap(),
        other => panic!("{other:?}"),
    }
    first.stream().shutdown(std::net::Shutdown::Both).unwrap();
    publisher.put(1, "q", "5").unwrap();
    publisher.sync(1).unwrap();
    let moved = second.deliveries(1, 6).unwrap();
    let texts: Vec<_> = moved.iter().map(Delivery::text).collect();
    assert_eq!(texts, ["0", "1", "2", "3", "4", "5"]);
    assert!(moved[..5].iter().all(|message| message.redelivered));
}

#[test]
fn case_054_round_robin_is_fair() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    let mut consumers: Vec<Client> = (0..3).map(|_| broker.channel()).collect();
    for consumer in &mut consumers {
        consumer.qos(1, 10, false).unwrap();
        consumer.consume(1, "q", "c").unwrap();
    }
    let mut counts = [0_usize; 3];
    for n in 0..300 {
        client.put(1, "q", n.to_string()).unwrap();
        client.flush().unwrap();
        if n % 30 == 29 {
            // All three are empty-handed again before the next thirty.
            for (consumer, seen) in consumers.iter_mut().zip(&mut counts) {
                for message in consumer.deliveries(1, 10).unwrap() {
                    *seen += 1;
                    consumer.ack(1, message.tag, false).unwrap();
                }
                consumer.sync(1).unwrap();
            }
        }
    }
    assert_eq!(counts, [100; 3]);
}

#[test]
fn case_055_priority_of_consumers() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    let mut consumers: Vec<Client> = (0..3).map(|_| broker.channel()).collect();
    for (priority, consumer) in (0_i32..).zip(&mut consumers) {
        consumer.qos(1, 4, false).unwrap();
        let arguments = table! { "x-priority" => priority };
        consumer.consume_with(1, "q", "c", 0, &arguments).unwrap();
    }
    for n in 0..10 {
        client.put(1, "q", n.to_string()).unwrap();
    }
    client.flush().unwrap();
    let texts =
        |messages: Vec<Delivery>| -> Vec<String> { messages.iter().map(Delivery::text).collect() };
    assert_eq!(texts(consumers[2].deliveries(1, 4).unwrap()), ["0", "1", "2", "3"]);
    assert_eq!(texts(consumers[1].deliveries(1, 4).unwrap()), ["4", "5", "6", "7"]);
    assert_eq!(texts(consumers[0].deliveries(1, 2).unwrap()), ["8", "9"]);
    // Room at the top is used first.
    consumers[2].ack(1, 1, false).unwrap();
    consumers[2].sync(1).unwrap();
    client.put(1, "q", "10").unwrap();
    client.flush().unwrap();
    assert_eq!(consumers[2].delivery(1).unwrap().text(), "10");
}

#[test]
fn case_056_a_returned_message_comes_next() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    fill(&mut client, "q", 3);
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
fn case_056b_returned_messages_find_their_old_places() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    fill(&mut client, "q", 10);
    client.open(2).unwrap();
    let held: Vec<_> = (0..6).map(|_| client.get(2, "q", false).unwrap().unwrap()).collect();
    for index in [4, 1, 3] {
        client.nack(2, held[index].tag, false, true).unwrap();
    }
    client.sync(2).unwrap();
    client.close_channel(2).unwrap();
    let all = client.drain_queue(1, "q").unwrap();
    let texts: Vec<_> = all.iter().map(Delivery::text).collect();
    assert_eq!(texts, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    let redelivered: Vec<_> = all.iter().map(|message| message.redelivered).collect();
    assert_eq!(redelivered, [true, true, true, true, true, true, false, false, false, false]);
}

#[test]
fn case_057_prefetch_of_a_channel_may_shrink() {
    let broker = Broker::start();
    if !broker.is_ours() {
        // 4.3 treats global as per consumer.
        return;
    }
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    fill(&mut client, "q", 20);
    client.qos(1, 10, true).unwrap();
    client.consume(1, "q", "a").unwrap();
    client.consume(1, "q", "b").unwrap();
    let held = client.deliveries(1, 10).unwrap();
    client.sync(1).unwrap();
    assert_eq!(client.depth(1, "q").unwrap().messages, 10, "one limit for both");
    client.qos(1, 3, true).unwrap();
    for message in &held[..7] {
        client.ack(1, message.tag, false).unwrap();
    }
    client.sync(1).unwrap();
    assert_eq!(client.depth(1, "q").unwrap().messages, 10, "still at the limit");
    assert_eq!(client.take_delivery(1), None);
    client.ack(1, held[7].tag, false).unwrap();
    assert_eq!(client.delivery(1).unwrap().text(), "10");
    client.qos(1, 0, true).unwrap();
    client.deliveries(1, 9).unwrap();
}

#[test]
fn case_057b_prefetch_of_a_consumer() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    fill(&mut client, "q", 20);
    client.qos(1, 2, false).unwrap();
    client.consume(1, "q", "two").unwrap();
    client.deliveries(1, 2).unwrap();
    client.qos(1, 5, false).unwrap();
    client.consume(1, "q", "five").unwrap();
    let five = client.deliveries(1, 5).unwrap();
    assert!(five.iter().all(|message| message.consumer == "five"), "applies to later consumers");
    assert_eq!(client.depth(1, "q").unwrap().messages, 13);
    client.ack(1, 2, true).unwrap();
    let next = client.deliveries(1, 2).unwrap();
    assert!(next.iter().all(|message| message.consumer == "two"));
}

#[test]
fn case_052_single_active_consumers_that_time_out() {
    let Some(broker) = Broker::own(Setup::new()) else { return };
    let mut client = broker.channel();
    let arguments = table! { "x-single-active-consumer" => true, "x-consumer-timeout" => 500 };
    client.queue(1, "q", DURABLE, &arguments).unwrap();
    fill(&mut client, "q", 3);
    let mut first = broker.channel();
    first.qos(1, 1, false).unwrap();
    first.consume(1, "q", "first").unwrap();
    let mut second = broker.channel();
    second.qos(1, 1, false).unwrap();
    second.consume(1, "q", "second").unwrap();
    assert_eq!(first.delivery(1).unwrap().text(), "0");
    assert_eq!(first.await_cancel(1).unwrap(), "first");
    let message = second.delivery(1).unwrap();
    assert_eq!((message.text().as_str(), message.redelivered), ("0", true));
    assert_eq!(second.await_cancel(1).unwrap(), "second");
    // Somebody who works is served again.
    let mut third = broker.channel();
    third.consume(1, "q", "third").unwrap();
    let message = third.delivery(1).unwrap();
    assert_eq!(message.text(), "0");
    third.ack(1, message.tag, false).unwrap();
}

#[test]
fn case_058_consumer_timeout() {
    let Some(broker) = Broker::own(Setup::new()) else { return };
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! { "x-consumer-timeout" => 1000 }).unwrap();
    fill(&mut client, "q", 1);
    let begin = Instant::now();
    client.consume(1, "q", "slow").unwrap();
    client.delivery(1).unwrap();
    assert_eq!(client.await_cancel(1).unwrap(), "slow");
    assert!(begin.elapsed() >= Duration::from_secs(1), "{:?}", begin.elapsed());
    let mut other = broker.channel();
    other.consume(1, "q", "other").unwrap();
    let message = other.delivery(1).unwrap();
    assert!(message.redelivered);
    // A client that cannot be told by cancel loses its channel.
    other.nack(1, message.tag, false, true).unwrap();
    other.cancel(1, "other").unwrap();
    let mut unable = broker.options().incapable().connect().unwrap();
    unable.open(3).unwrap();
    unable.consume(3, "q", "slow").unwrap();
    unable.delivery(3).unwrap();
    match unable.await_failure(3) {
        Failure::Channel { code: 406, text, .. } => assert!(
            text.starts_with(
                "PRECONDITION_FAILED - delivery acknowledgement on channel 3 timed out. Timeout \
                 value used: 1000 ms."
            ),
            "{text}"
        ),
        failure => panic!("{failure:?}"),
    }
    until_equal("the message is back", &1, || client.depth(1, "q").unwrap().messages);
}

#[test]
fn case_059_one_message_past_the_timeout_is_enough() {
    let Some(broker) = Broker::own(Setup::new()) else { return };
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! { "x-consumer-timeout" => 800 }).unwrap();
    client.consume(1, "q", "c").unwrap();
    client.put(1, "q", "held").unwrap();
    client.delivery(1).unwrap();
    let mut publisher = broker.channel();
    until("the consumer is cancelled although it works", || {
        publisher.put(1, "q", "done").unwrap();
        publisher.flush().unwrap();
        client.drain();
        while let Some(message) = client.take_delivery(1) {
            client.ack(1, message.tag, false).unwrap();
        }
        client.take_event(1, |event| event.id == (60, 30)).is_some()
    });
}

const REPLY: &str = "amq.rabbitmq.reply-to";

#[test]
fn case_061_direct_reply_to() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "requests", DURABLE, &table! {}).unwrap();
    let request = Properties { reply_to: Some(REPLY.into()), ..Properties::default() };

    // The rules of the requester.
    assert_channel_error(
        client.consume_with(1, REPLY, "", 0, &table! {}),
        406,
        "PRECONDITION_FAILED - reply consumer cannot acknowledge",
    );
    client.open(1).unwrap();
    client.publish(1, "", "requests", &request, "m").unwrap();
    assert_channel_error(
        client.sync(1),
        406,
        "PRECONDITION_FAILED - fast reply consumer does not exist",
    );
    client.open(1).unwrap();
    client.consume_with(1, REPLY, "", NO_ACK, &table! {}).unwrap();
    assert_channel_error(
        client.consume_with(1, REPLY, "", NO_ACK, &table! {}),
        406,
        "PRECONDITION_FAILED - reply consumer already set",
    );
    client.open(1).unwrap();

    // Question and answer.
    client.consume_with(1, REPLY, "me", NO_ACK, &table! {}).unwrap();
    client.publish(1, "", "requests", &request, "question").unwrap();
    client.flush().unwrap();
    let mut server = broker.channel();
    let question = server.get_soon(1, "requests");
    let address = question.properties.reply_to.expect("rewritten");
    assert!(address.starts_with("amq.rabbitmq.reply-to."), "{address}");
    let answer = Properties { correlation_id: Some("7".into()), ..Properties::default() };
    server.publish_with(1, "", &address, MANDATORY, &answer, b"answer").unwrap();
    server.sync(1).unwrap();
    assert_eq!(server.waiting(1), [], "it was routed");
    let reply = client.delivery(1).unwrap();
    assert_eq!((reply.text().as_str(), reply.consumer.as_str()), ("answer", "me"));
    assert_eq!(reply.properties, answer);
    assert_eq!(server.queue(1, &address, PASSIVE, &table! {}).unwrap().consumers, 1);

    // Two ways to the same consumer: one copy.
    let mut twice = Properties::with_headers(table! { "CC" => vec![address.as_str()] });
    twice.correlation_id = Some("8".into());
    server.publish(1, "", &address, &twice, "once").unwrap();
    server.publish(1, "", &address, &answer, "last").unwrap();
    server.flush().unwrap();
    assert_eq!(client.delivery(1).unwrap().text(), "once");
    assert_eq!(client.delivery(1).unwrap().text(), "last");

    // The requester is gone.
    client.close().unwrap();
    if broker.is_ours() {
        // 4.3.6 drops them in silence.
        until("the answer comes back", || {
            server.publish_with(1, "", &address, MANDATORY, &answer, b"late").unwrap();
            server.sync(1).unwrap();
            server.take_event(1, |event| event.id == (60, 50)).is_some()
        });
    }
    server.publish(1, "", &address, &answer, "dropped").unwrap();
    server.sync(1).unwrap();
    let missing = server.queue(1, &address, PASSIVE, &table! {}).unwrap_err();
    assert_eq!(missing.reply().map(|(code, _)| code), Some(404));
}

#[test]
fn case_101_the_api_shows_who_is_active() {
    let broker = Broker::start();
    let mut client = broker.channel();
    let arguments = table! { "x-single-active-consumer" => true };
    client.queue(1, "q", DURABLE, &arguments).unwrap();
    client.consume(1, "q", "first").unwrap();
    client.consume(1, "q", "second").unwrap();
    let path = format!("consumers/{}", broker.vhost_segment());
    let shown = || {
        let mut all: Vec<_> = broker
            .api
            .json(&path)
            .as_array()
            .into_iter()
            .flatten()
            .map(|consumer| {
                (
                    consumer["consumer_tag"].as_str().unwrap_or_default().to_owned(),
                    consumer["activity_status"].as_str().unwrap_or_default().to_owned(),
                    consumer["active"].as_bool().unwrap_or_default(),
                )
            })
            .collect();
        all.sort();
        all
    };
    let row = |tag: &str, status: &str, active| (tag.to_owned(), status.to_owned(), active);
    until_equal(
        "the first is active",
        &vec![row("first", "single_active", true), row("second", "waiting", false)],
        shown,
    );
    client.cancel(1, "first").unwrap();
    until_equal("the second is active", &vec![row("second", "single_active", true)], shown);
}

#[test]
fn case_102_single_active_consumer_with_priorities() {
    let broker = Broker::start();
    if !broker.is_ours() {
        // In 4.3 only quorum queues let a higher priority take over.
        return;
    }
    let mut low = broker.channel();
    let arguments = table! { "x-single-active-consumer" => true };
    low.queue(1, "q", DURABLE, &arguments).unwrap();
    low.qos(1, 1, false).unwrap();
    low.consume_with(1, "q", "low", 0, &table! { "x-priority" => 1 }).unwrap();
    low.put(1, "q", "m").unwrap();
    let message = low.delivery(1).unwrap();
    let mut high = broker.channel();
    high.consume_with(1, "q", "high", 0, &table! { "x-priority" => 5 }).unwrap();
    low.nack(1, message.tag, false, true).unwrap();
    low.flush().unwrap();
    // Whoever is active gets it; nothing is stuck.
    until("one of them has it again", || {
        low.drain();
        high.drain();
        low.take_delivery(1).is_some() || high.take_delivery(1).is_some()
    });
}

#[test]
fn case_102b_exclusive_consumers() {
    let broker = Broker::start();
    let text = format!("ACCESS_REFUSED - queue 'q' in vhost '{}' in exclusive use", broker.vhost);
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    client.consume_with(1, "q", "only", EXCLUSIVE_CONSUMER, &table! {}).unwrap();
    let mut other = broker.channel();
    assert_channel_error(other.consume(1, "q", "c"), 403, &text);
    client.cancel(1, "only").unwrap();
    other.open(1).unwrap();
    other.consume(1, "q", "c").unwrap();
    assert_channel_error(
        client.consume_with(1, "q", "only", EXCLUSIVE_CONSUMER, &table! {}),
        403,
        &text,
    );
}

#[test]
fn case_102c_tags_of_consumers() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    let tag = client.consume(1, "q", "").unwrap();
    assert!(tag.starts_with("amq.ctag-"), "{tag}");
    client.cancel(1, "unheard-of").unwrap();
    client.consume(1, "q", "c").unwrap();
    assert_connection_error(
        client.consume(1, "q", "c"),
        530,
        "NOT_ALLOWED - attempt to reuse consumer tag 'c'",
    );
}

#[test]
fn case_102d_recover_and_redelivery() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    fill(&mut client, "q", 3);
    client.consume(1, "q", "c").unwrap();
    client.deliveries(1, 3).unwrap();
    client.recover(1, true).unwrap();
    let again = client.deliveries(1, 3).unwrap();
    let texts: Vec<_> = again.iter().map(Delivery::text).collect();
    assert_eq!(texts, ["0", "1", "2"]);
    assert!(again.iter().all(|message| message.redelivered));
    // Connection loss, too.
    client.stream().shutdown(std::net::Shutdown::Both).unwrap();
    let mut client = broker.channel();
    until_equal("they are back", &3, || client.depth(1, "q").unwrap().messages);
    let all = client.drain_queue(1, "q").unwrap();
    assert!(all.iter().all(|message| message.redelivered));
}

#[test]
fn case_102e_many_messages_without_acks() {
    let broker = Broker::start();
    let total = count(20_000, 500_000);
    let mut consumer = broker.channel();
    consumer.queue(1, "q", DURABLE, &table! {}).unwrap();
    consumer.consume_with(1, "q", "c", NO_ACK, &table! {}).unwrap();
    let mut publisher = broker.channel();
    let properties = Properties::with_headers(table! { "n" => Value::I64(1) });
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for n in 0..total {
                publisher.publish(1, "", "q", &properties, n.to_string()).unwrap();
            }
            publisher.sync(1).unwrap();
        });
        for n in 0..total {
            assert_eq!(consumer.delivery(1).unwrap().text(), n.to_string());
        }
    });
}
