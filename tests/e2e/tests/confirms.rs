//! Publisher confirms: cases 16 to 19 and 50.

use e2e::broker::Broker;
use e2e::client::confirms::Confirms;
use e2e::client::topology::{AUTO_DELETE, DURABLE};
use e2e::client::{assert_channel_error, assert_connection_error};
use e2e::content::Properties;
use e2e::table;
use e2e::wait::{count, until_equal};

#[test]
fn case_016_a_group_of_acks_never_covers_a_nack() {
    let broker = Broker::start();
    let pairs = count(500, 5000);
    let mut client = broker.channel();
    let arguments = table! { "x-max-length" => 1, "x-overflow" => "reject-publish" };
    client.queue(1, "a", DURABLE, &arguments).unwrap();
    client.queue(1, "b", DURABLE, &table! {}).unwrap();
    client.confirm_select(1).unwrap();
    for _ in 0..pairs {
        client.put(1, "a", "m").unwrap();
        client.put(1, "b", "m").unwrap();
    }
    let confirms = client.confirms(1, pairs * 2).unwrap();
    client.sync(1).unwrap();
    assert_eq!(client.waiting(1), [], "no number is answered twice");
    assert_eq!(confirms.doubled, [] as [u64; 0]);
    if broker.is_ours() {
        assert_eq!(confirms.covered, [] as [u64; 0], "nacked, then covered by a group");
    }
    // All of b, and as many of a as the queue kept.
    let nacked = confirms.nacked();
    assert!(nacked.iter().all(|number| number % 2 == 1), "only tags of a");
    let kept = client.depth(1, "a").unwrap().messages as usize;
    if broker.is_ours() {
        assert_eq!(kept, 1);
    }
    assert_eq!(nacked.len(), pairs - kept);
    assert_eq!(client.depth(1, "b").unwrap().messages as usize, pairs);
}

#[test]
fn case_017_confirms_survive_a_purge() {
    let broker = Broker::start();
    let total = count(1000, 10_000);
    let mut client = broker.channel();
    let mut other = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    client.confirm_select(1).unwrap();
    for n in 0..total {
        client.put(1, "q", "m").unwrap();
        if n % 100 == 99 {
            client.flush().unwrap();
            other.purge(1, "q").unwrap();
        }
    }
    assert_eq!(client.confirms(1, total).unwrap().acked().len(), total);
}

#[test]
fn case_018_confirms_survive_a_deletion() {
    let broker = Broker::start();
    let total = count(1000, 10_000);
    let mut client = broker.channel();
    let mut other = broker.channel();
    client.confirm_select(1).unwrap();
    let mut confirms = Confirms::default();
    for n in 0..total {
        if n % 100 == 0 {
            other.queue(1, "q", DURABLE, &table! {}).unwrap();
        }
        client.put(1, "q", "m").unwrap();
        if n % 100 == 50 {
            client.flush().unwrap();
            other.delete_queue(1, "q").unwrap();
        }
    }
    client.await_confirms(1, &mut confirms, total).unwrap();
    client.sync(1).unwrap();
    client.take_confirms(1, &mut confirms);
    assert_eq!(confirms.doubled, [] as [u64; 0]);
    assert_eq!(confirms.answers.len(), total);
    assert_eq!(confirms.nacked(), [] as [u64; 0], "a deletion is no refusal");
}

#[test]
fn case_019_reject_publish_nacks_and_is_counted() {
    let broker = Broker::start();
    let mut client = broker.channel();
    let arguments = table! { "x-max-length" => 2, "x-overflow" => "reject-publish" };
    client.queue(1, "full", DURABLE, &arguments).unwrap();
    client.queue(1, "free", DURABLE, &table! {}).unwrap();
    client.exchange(1, "x", "fanout", DURABLE, &table! {}).unwrap();
    client.bind(1, "full", "x", "", &table! {}).unwrap();
    client.bind(1, "free", "x", "", &table! {}).unwrap();
    client.confirm_select(1).unwrap();
    let mut confirms = Confirms::default();
    for n in 1..=5 {
        client.publish(1, "x", "", &Properties::persistent(), "m").unwrap();
        client.await_confirms(1, &mut confirms, n).unwrap();
    }
    let refused = confirms.nacked();
    let kept = client.depth(1, "full").unwrap().messages;
    assert_eq!(refused.len(), 5 - kept as usize);
    if broker.is_ours() {
        assert_eq!(refused, [3, 4, 5]);
    }
    assert_eq!(client.depth(1, "free").unwrap().messages, 5, "the other queue keeps them");
    if broker.is_ours() {
        let confirmed = || broker.api.json("overview")["message_stats"]["confirm"].as_u64();
        until_equal("only acks count as confirms", &Some(2), confirmed);
    }
    // Without confirms: dropped in silence.
    client.open(2).unwrap();
    client.put(2, "full", "m").unwrap();
    client.sync(2).unwrap();
    assert_eq!(client.depth(1, "full").unwrap().messages, kept);
}

#[test]
fn case_050_confirms_on_a_vanishing_auto_delete_queue() {
    let broker = Broker::start();
    let rounds = count(50, 1000);
    let mut client = broker.channel();
    let mut consumer = broker.channel();
    client.confirm_select(1).unwrap();
    let mut confirms = Confirms::default();
    for round in 0..rounds {
        consumer.queue(1, "q", DURABLE | AUTO_DELETE, &table! {}).unwrap();
        consumer.consume(1, "q", "c").unwrap();
        for _ in 0..10 {
            client.put(1, "q", "m").unwrap();
        }
        client.flush().unwrap();
        consumer.cancel(1, "c").unwrap();
        client.await_confirms(1, &mut confirms, (round + 1) * 10).unwrap();
    }
    assert_eq!(confirms.nacked(), [] as [u64; 0]);
}

#[test]
fn case_050b_modes_exclude_each_other() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.confirm_select(1).unwrap();
    client.confirm_select(1).unwrap();
    assert_channel_error(
        client.tx_select(1),
        406,
        "PRECONDITION_FAILED - cannot switch from confirm to tx mode",
    );
    client.open(1).unwrap();
    client.tx_select(1).unwrap();
    client.tx_select(1).unwrap();
    assert_channel_error(
        client.confirm_select(1),
        406,
        "PRECONDITION_FAILED - cannot switch from tx to confirm mode",
    );
    client.open(1).unwrap();
    assert_channel_error(
        client.tx_commit(1),
        406,
        "PRECONDITION_FAILED - channel is not transactional",
    );
    client.open(1).unwrap();
    assert_channel_error(
        client.tx_rollback(1),
        406,
        "PRECONDITION_FAILED - channel is not transactional",
    );
}

#[test]
fn case_050c_transactions_hold_publishes_and_acks_until_commit() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    client.open(2).unwrap();
    client.tx_select(2).unwrap();
    client.put(2, "q", "1").unwrap();
    client.put(2, "q", "2").unwrap();
    client.sync(2).unwrap();
    assert_eq!(client.depth(1, "q").unwrap().messages, 0);
    client.tx_commit(2).unwrap();
    assert_eq!(client.depth(1, "q").unwrap().messages, 2);
    client.put(2, "q", "3").unwrap();
    client.tx_rollback(2).unwrap();
    client.tx_commit(2).unwrap();
    assert_eq!(client.depth(1, "q").unwrap().messages, 2);
    let message = client.get(2, "q", false).unwrap().unwrap();
    client.ack(2, message.tag, false).unwrap();
    client.tx_rollback(2).unwrap();
    // Still unacknowledged, not requeued.
    assert_eq!(client.depth(1, "q").unwrap().messages, 1);
    client.ack(2, message.tag, false).unwrap();
    client.tx_commit(2).unwrap();
    client.close_channel(2).unwrap();
    assert_eq!(client.drain_queue(1, "q").unwrap().len(), 1);
}

#[test]
fn case_050d_immediate_is_540() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client
        .publish_with(1, "", "q", e2e::client::basic::IMMEDIATE, &Properties::default(), b"m")
        .unwrap();
    assert_connection_error(client.sync(1), 540, "NOT_IMPLEMENTED - immediate=true");
}
