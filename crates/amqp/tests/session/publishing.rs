//! Confirms, returns, transactions, alarms.

use crate::harness::{Bench, Got, ack, confirm_select, nack};
use amq_protocol::protocol::{AMQPClass, basic, channel, connection, tx};
use amq_protocol::types::FieldTable;
use amqp::config::SessionConfig;
use amqp::request::{Error, Event, Outcome, Publish, Reply, Request};
use model::message::Message;

fn select() -> AMQPClass {
    AMQPClass::Tx(tx::AMQPMethod::Select(tx::Select {}))
}

fn commit() -> AMQPClass {
    AMQPClass::Tx(tx::AMQPMethod::Commit(tx::Commit {}))
}

fn rollback() -> AMQPClass {
    AMQPClass::Tx(tx::AMQPMethod::Rollback(tx::Rollback {}))
}

fn recover(requeue: bool) -> AMQPClass {
    AMQPClass::Basic(basic::AMQPMethod::Recover(basic::Recover { requeue }))
}

fn confirming(count: usize) -> Bench {
    let mut bench = Bench::open();
    bench.methods(1, [confirm_select(), confirm_select()]);
    for _ in 0..count {
        bench.publish(1, "", "q", b"x");
    }
    let numbers: Vec<_> = bench
        .requests
        .drain(..)
        .map(|request| match request {
            Request::Publish(publish) => publish.confirm,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(numbers, (1..=count as u64).map(Some).collect::<Vec<_>>());
    bench.take();
    bench
}

#[test]
fn case_016_a_group_never_covers_a_refused_number() {
    let mut bench = confirming(6);
    for (number, accepted) in [(2, true), (1, false), (4, true), (3, false), (6, true), (5, false)]
    {
        bench.session.on_event(Event::Confirmed { channel: 1, number, accepted });
    }
    bench.bytes(b"");
    let expected = [
        nack(1, false, true),
        ack(2, false),
        nack(3, false, true),
        ack(4, false),
        nack(5, false, true),
        ack(6, false),
    ];
    assert_eq!(bench.take(), expected.map(|method| Got::Method(1, method)));
    assert_eq!(bench.session.status().channels[0].unconfirmed, 0);
}

#[test]
fn a_batch_of_confirms_is_one_frame() {
    let mut bench = confirming(1000);
    for number in 1..=1000 {
        bench.session.on_event(Event::Confirmed { channel: 1, number, accepted: true });
    }
    bench.bytes(b"");
    assert_eq!(bench.take(), [Got::Method(1, ack(1000, true))]);
}

#[test]
fn a_late_confirm_is_not_taken_for_one_of_the_next_channel_under_the_number() {
    let mut bench = confirming(2);
    let close = channel::Close::default();
    bench.method(1, AMQPClass::Channel(channel::AMQPMethod::Close(close)));
    bench.open_channel(1);
    bench.method(1, confirm_select());
    bench.requests.clear();
    bench.publish(1, "", "q", b"new");
    let Some(Request::Publish(Publish { confirm: Some(own), .. })) = bench.requests.pop() else {
        panic!("a publish");
    };
    bench.take();
    for number in [1, 2] {
        bench.event(Event::Confirmed { channel: 1, number, accepted: true });
    }
    assert_eq!(bench.take(), []);
    bench.event(Event::Confirmed { channel: 1, number: own, accepted: true });
    assert_eq!(bench.take(), [Got::Method(1, ack(1, false))]);
}

#[test]
fn a_return_comes_before_its_confirm() {
    let mut bench = confirming(1);
    bench.session.on_event(Event::Returned {
        channel: 1,
        reply_code: 312,
        reply_text: "NO_ROUTE",
        message: Message::from_parts("x", "k", &[0, 0], b"body"),
    });
    bench.event(Event::Confirmed { channel: 1, number: 1, accepted: true });
    let frames = bench.take();
    assert!(matches!(
        &frames[0],
        Got::Method(1, AMQPClass::Basic(basic::AMQPMethod::Return(returned)))
            if returned.reply_code == 312 && returned.reply_text.as_str() == "NO_ROUTE"
                && returned.exchange.as_str() == "x" && returned.routing_key.as_str() == "k"
    ));
    assert_eq!(frames[2], Got::Body(1, b"body".to_vec()));
    assert_eq!(frames[3], Got::Method(1, ack(1, false)));
}

#[test]
fn a_refused_publish_closes_by_its_code() {
    let mut bench = Bench::open();
    bench.take();
    bench.refuse_publish = Some(Error::not_found("no exchange 'x' in vhost '/'"));
    bench.publish(1, "x", "q", b"x");
    bench.expect_channel_close(1, 404, "NOT_FOUND - no exchange 'x' in vhost '/'");
    let mut bench = Bench::open();
    bench.refuse_publish = Some(Error::new(541, "oops"));
    bench.publish(1, "x", "q", b"x");
    bench.expect_close(541, "INTERNAL_ERROR - oops");
}

#[test]
fn the_two_modes_exclude_each_other() {
    let mut bench = Bench::open();
    bench.method(1, confirm_select());
    bench.take();
    bench.method(1, select());
    bench.expect_channel_close(
        1,
        406,
        "PRECONDITION_FAILED - cannot switch from confirm to tx mode",
    );
    let mut bench = Bench::open();
    bench.method(1, select());
    bench.take();
    bench.method(1, confirm_select());
    bench.expect_channel_close(
        1,
        406,
        "PRECONDITION_FAILED - cannot switch from tx to confirm mode",
    );
    for method in [commit(), rollback()] {
        let mut bench = Bench::open();
        bench.take();
        bench.method(1, method);
        bench.expect_channel_close(1, 406, "PRECONDITION_FAILED - channel is not transactional");
    }
}

#[test]
fn a_transaction_is_handed_over_whole() {
    let mut bench = Bench::open();
    let consumer = bench.consume("c", false);
    for seq in 1..=5 {
        bench.deliver(1, consumer, seq);
    }
    bench.methods(1, [select(), select()]);
    bench.requests.clear();
    bench.publish(1, "", "q", b"one");
    bench.methods(1, [ack(1, false), ack(3, true), nack(4, false, true)]);
    bench.publish(1, "", "q", b"two");
    assert!(bench.requests.is_empty());
    let status = &bench.session.status().channels[0];
    assert_eq!((status.uncommitted, status.uncommitted_settlements, status.unsettled), (2, 4, 1));
    bench.take();
    bench.method(1, commit());
    assert_eq!(bench.take_method(1), AMQPClass::Tx(tx::AMQPMethod::CommitOk(tx::CommitOk {})));
    match &bench.requests[..] {
        [Request::Commit { channel: 1, publishes, settlements }] => {
            let bodies: Vec<_> = publishes.iter().map(|publish| publish.message.body()).collect();
            assert_eq!(bodies, [b"one", b"two"]);
            let settled: Vec<(Vec<u64>, Outcome)> = settlements
                .iter()
                .map(|(held, outcome)| (held.iter().map(|held| held.seq.0).collect(), *outcome))
                .collect();
            assert_eq!(settled, [(vec![1, 2, 3], Outcome::Accept), (vec![4], Outcome::Return)]);
        }
        other => panic!("{other:?}"),
    }
    // a second commit is empty
    bench.requests.clear();
    bench.method(1, commit());
    assert!(matches!(
        &bench.requests[..],
        [Request::Commit { publishes, settlements, .. }]
            if publishes.is_empty() && settlements.is_empty()
    ));
}

#[test]
fn a_rollback_forgets_publishes_and_holds_again() {
    let mut bench = Bench::open();
    let consumer = bench.consume("c", false);
    for seq in 1..=4 {
        bench.deliver(1, consumer, seq);
    }
    bench.method(1, select());
    bench.publish(1, "", "q", b"one");
    bench.methods(1, [ack(2, false), ack(3, true)]);
    bench.requests.clear();
    bench.take();
    bench.method(1, rollback());
    assert_eq!(bench.take_method(1), AMQPClass::Tx(tx::AMQPMethod::RollbackOk(tx::RollbackOk {})));
    assert!(bench.requests.is_empty());
    bench.methods(1, [ack(2, false), ack(0, true), commit()]);
    match &bench.requests[..] {
        [Request::Commit { publishes, settlements, .. }] => {
            assert!(publishes.is_empty());
            assert_eq!(settlements[0].0.len(), 4);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_failed_commit_closes_the_channel() {
    let mut bench = Bench::open();
    bench.method(1, select());
    bench.publish(1, "", "q", b"one");
    bench.take();
    bench.replies.push(Reply::Refused(Error::precondition_failed("partial tx completion")));
    bench.method(1, commit());
    bench.expect_channel_close(1, 406, "PRECONDITION_FAILED - partial tx completion");
}

#[test]
fn case_005_acknowledging_nothing_in_a_transaction() {
    let mut bench = Bench::open();
    bench.methods(1, [select(), ack(0, true)]);
    bench.take();
    bench.method(1, commit());
    assert_eq!(bench.take_method(1), AMQPClass::Tx(tx::AMQPMethod::CommitOk(tx::CommitOk {})));
}

#[test]
fn case_006_an_uncommitted_ack_is_not_lost() {
    for end in [rollback(), commit()] {
        let is_rollback = end == rollback();
        let mut bench = Bench::open();
        let consumer = bench.consume("c", false);
        bench.deliver(1, consumer, 1);
        bench.methods(1, [select(), ack(1, false), recover(true)]);
        bench.requests.clear();
        if is_rollback {
            bench.method(1, end);
        }
        bench.method(1, AMQPClass::Channel(channel::AMQPMethod::Close(Default::default())));
        assert!(matches!(
            &bench.requests[..],
            [Request::ChannelClosed { unsettled, .. }] if unsettled.len() == 1
        ));
    }
}

fn blocked() -> (Bench, AMQPClass) {
    let mut bench = Bench::open();
    bench.take();
    bench.event(Event::Blocked { reason: "low on memory".to_owned() });
    let blocked = connection::Blocked { reason: "low on memory".into() };
    (bench, AMQPClass::Connection(connection::AMQPMethod::Blocked(blocked)))
}

#[test]
fn an_alarm_stops_publishers_and_nobody_else() {
    let (mut bench, blocked) = blocked();
    assert_eq!(bench.take(), []);
    let consumer = bench.consume("c", false);
    bench.deliver(1, consumer, 1);
    bench.method(1, ack(1, false));
    assert_eq!(bench.settlements(), [(vec![1], Outcome::Accept)]);
    assert_eq!(bench.session.status().state, "blocking");
    bench.take();
    // the first publish passes and is told; the second is not even read
    bench.publish(1, "", "q", b"one");
    bench.publish(1, "", "q", b"two");
    assert_eq!(bench.take_method(0), blocked);
    assert_eq!(bench.session.status().state, "blocked");
    assert!(!bench.session.takes_input());
    assert!(matches!(&bench.requests[..], [Request::Publish(Publish { .. })]));
    // deliveries go on
    bench.deliver(1, consumer, 2);
    assert_eq!(bench.take().len(), 3);
    bench.event(Event::Unblocked);
    assert_eq!(
        bench.take_method(0),
        AMQPClass::Connection(connection::AMQPMethod::Unblocked(connection::Unblocked {}))
    );
    assert_eq!(bench.requests.len(), 2);
}

#[test]
fn a_client_that_does_not_understand_is_not_told() {
    let mut bench = Bench::open_with(SessionConfig::default(), &FieldTable::default());
    bench.take();
    bench.event(Event::Blocked { reason: "low on disk".to_owned() });
    bench.publish(1, "", "q", b"one");
    assert!(!bench.session.takes_input());
    bench.event(Event::Unblocked);
    assert!(bench.session.takes_input());
    assert_eq!(bench.take(), []);
}

#[test]
fn a_blocked_publisher_can_be_closed() {
    let (mut bench, _) = blocked();
    bench.publish(1, "", "q", b"one");
    bench.event(Event::Close(Error::new(320, "bye")));
    assert!(bench.session.takes_input());
    bench.method(0, AMQPClass::Connection(connection::AMQPMethod::CloseOk(connection::CloseOk {})));
    assert!(bench.session.wants_close());
}

#[test]
fn an_alarm_in_several_frames_of_a_publish() {
    // half a message takes memory as well, and each channel may have one: reading stops within it
    let (mut bench, blocked) = blocked();
    let mut bytes = bytes::BytesMut::new();
    wire::publish::write(&mut bytes, 1, "", "q", false, &[0, 0], &[1; 9000], 4096);
    bench.bytes(&bytes[..20]);
    assert_eq!(bench.take(), []);
    bench.bytes(&bytes[20..]);
    assert_eq!(bench.take_method(0), blocked);
    assert!(bench.requests.is_empty() && !bench.session.takes_input());
    bench.event(Event::Unblocked);
    assert!(matches!(
        &bench.requests[..],
        [Request::Publish(publish)] if publish.message.body() == [1; 9000]
    ));
}
