//! Consumers, settlements, limits.

use crate::harness::{Bench, Got, ack, consume, delivery, nack};
use amq_protocol::protocol::{AMQPClass, basic, tx};
use amq_protocol::types::FieldTable;
use amqp::config::SessionConfig;
use amqp::request::{Error, Event, Flow, Outcome, Reply, Request};
use model::id::ConsumerId;

fn recover(requeue: bool) -> AMQPClass {
    AMQPClass::Basic(basic::AMQPMethod::Recover(basic::Recover { requeue }))
}

fn reject(tag: u64, requeue: bool) -> AMQPClass {
    AMQPClass::Basic(basic::AMQPMethod::Reject(basic::Reject { delivery_tag: tag, requeue }))
}

fn cancel(tag: &str) -> AMQPClass {
    AMQPClass::Basic(basic::AMQPMethod::Cancel(basic::Cancel {
        consumer_tag: tag.into(),
        nowait: false,
    }))
}

fn qos(count: u16, global: bool) -> AMQPClass {
    AMQPClass::Basic(basic::AMQPMethod::Qos(basic::Qos { prefetch_count: count, global }))
}

fn holding(count: u64) -> (Bench, ConsumerId) {
    let mut bench = Bench::open();
    let consumer = bench.consume("c", false);
    for seq in 1..=count {
        bench.deliver(1, consumer, seq);
    }
    bench.requests.clear();
    bench.take();
    (bench, consumer)
}

#[test]
fn a_tag_is_made_for_who_gives_none() {
    let mut bench = Bench::open();
    bench.take();
    bench.methods(1, [consume("q", "", false), consume("q", "", false)]);
    let tags: Vec<String> = bench
        .take()
        .into_iter()
        .map(|got| match got {
            Got::Method(1, AMQPClass::Basic(basic::AMQPMethod::ConsumeOk(ok))) => {
                ok.consumer_tag.into()
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(tags[0].starts_with("amq.ctag-") && tags[0].len() == 31, "{}", tags[0]);
    assert_ne!(tags[0], tags[1]);
}

#[test]
fn a_tag_is_used_once_on_a_channel() {
    let mut bench = Bench::open();
    bench.consume("c", false);
    bench.open_channel(2);
    bench.method(2, consume("q", "c", false));
    bench.take();
    bench.method(1, consume("q", "c", false));
    bench.expect_close(530, "NOT_ALLOWED - attempt to reuse consumer tag 'c'");
}

#[test]
fn consumers_may_be_limited() {
    let config = SessionConfig { consumers_max: Some(1), ..SessionConfig::default() };
    let mut bench = Bench::open_with(config, &FieldTable::default());
    bench.consume("c", false);
    bench.method(1, consume("q", "d", false));
    bench.expect_close(530, "NOT_ALLOWED - reached maximum (1) of consumers per channel");
}

#[test]
fn case_061_one_reply_consumer_without_acks() {
    let mut bench = Bench::open();
    bench.take();
    bench.method(1, consume("amq.rabbitmq.reply-to", "c", false));
    bench.expect_channel_close(1, 406, "PRECONDITION_FAILED - reply consumer cannot acknowledge");
    let mut bench = Bench::open();
    bench.method(1, consume("amq.rabbitmq.reply-to", "c", true));
    bench.take();
    bench.method(1, consume("amq.rabbitmq.reply-to", "d", true));
    bench.expect_channel_close(1, 406, "PRECONDITION_FAILED - reply consumer already set");
}

#[test]
fn settlements_are_gathered_without_being_reordered() {
    let (mut bench, _) = holding(10);
    bench.methods(
        1,
        [
            ack(1, false),
            ack(3, true),
            nack(4, false, true),
            reject(5, true),
            reject(6, false),
            nack(7, false, false),
            ack(8, false),
            ack(0, true),
        ],
    );
    assert_eq!(
        bench.settlements(),
        [
            (vec![1, 2, 3], Outcome::Accept),
            (vec![4], Outcome::Return),
            (vec![5], Outcome::Retry),
            (vec![6, 7], Outcome::Discard),
            (vec![8, 9, 10], Outcome::Accept),
        ]
    );
    let mut bytes = bytes::BytesMut::new();
    let (mut bench, _) = holding(2);
    wire::method::write_method(&mut bytes, 1, &ack(1, false));
    wire::publish::write(&mut bytes, 1, "", "q", false, &[0, 0], b"x", 0);
    wire::method::write_method(&mut bytes, 1, &ack(2, false));
    bench.bytes(&bytes);
    assert!(matches!(
        &bench.requests[..],
        [Request::Settle { .. }, Request::Publish(_), Request::Settle { .. }]
    ));
}

#[test]
fn acks_in_any_order() {
    let (mut bench, _) = holding(5);
    bench.methods(1, [ack(4, false), ack(2, false), ack(5, true)]);
    assert_eq!(bench.settlements(), [(vec![4, 2, 1, 3, 5], Outcome::Accept)]);
}

#[test]
fn unknown_tags_close_the_channel() {
    for (methods, tag) in [
        (vec![ack(6, false)], 6),
        (vec![ack(6, true)], 6),
        (vec![ack(0, false)], 0),
        (vec![ack(1, false), ack(1, false)], 1),
        (vec![ack(3, true), ack(2, true)], 2),
        (vec![ack(3, false), ack(3, true)], 3),
        (vec![nack(9, false, true)], 9),
        (vec![reject(9, true)], 9),
        (vec![ack(u64::MAX, false)], u64::MAX),
    ] {
        let (mut bench, _) = holding(5);
        bench.methods(1, methods);
        bench.expect_channel_close(
            1,
            406,
            &format!("PRECONDITION_FAILED - unknown delivery tag {tag}"),
        );
    }
}

#[test]
fn acknowledging_all_of_nothing_is_fine() {
    let mut bench = Bench::open();
    bench.take();
    bench.methods(1, [ack(0, true), nack(0, true, true)]);
    assert_eq!(bench.take(), []);
    assert!(bench.requests.is_empty());
}

#[test]
fn case_004_everything_returned_then_acknowledged() {
    let (mut bench, _) = holding(5);
    bench.method(1, nack(0, true, true));
    assert_eq!(bench.settlements(), [(vec![1, 2, 3, 4, 5], Outcome::Return)]);
    bench.method(1, ack(1, false));
    bench.expect_channel_close(1, 406, "PRECONDITION_FAILED - unknown delivery tag 1");
}

#[test]
fn case_007_recover() {
    let (mut bench, _) = holding(2);
    bench.method(1, recover(true));
    assert_eq!(
        bench.take_method(1),
        AMQPClass::Basic(basic::AMQPMethod::RecoverOk(basic::RecoverOk {}))
    );
    assert_eq!(bench.settlements(), [(vec![1, 2], Outcome::Return)]);
    // nothing left: still answered
    bench.method(1, recover(true));
    bench.take_method(1);
    assert!(bench.requests.is_empty());
    bench.method(1, recover(false));
    bench.expect_close(540, "NOT_IMPLEMENTED - requeue=false");
    let (mut bench, _) = holding(2);
    bench.method(
        1,
        AMQPClass::Basic(basic::AMQPMethod::RecoverAsync(basic::RecoverAsync { requeue: true })),
    );
    assert_eq!(bench.take(), []);
    assert_eq!(bench.settlements(), [(vec![1, 2], Outcome::Return)]);
}

#[test]
fn case_008_a_cancelled_consumer_still_holds() {
    let (mut bench, consumer) = holding(3);
    bench.method(1, cancel("c"));
    assert_eq!(
        bench.take_method(1),
        AMQPClass::Basic(basic::AMQPMethod::CancelOk(basic::CancelOk { consumer_tag: "c".into() }))
    );
    assert!(matches!(
        &bench.requests[..],
        [Request::Cancel { consumer: cancelled, .. }] if *cancelled == consumer
    ));
    bench.deliver(1, consumer, 4);
    assert_eq!(bench.take(), []);
    bench.method(1, ack(3, true));
    assert_eq!(bench.settlements(), [(vec![1, 2, 3], Outcome::Accept)]);
    // and its tag is free again
    bench.consume("c", false);
}

#[test]
fn cancelling_nobody_is_answered() {
    let mut bench = Bench::open();
    bench.take();
    bench.method(1, cancel("nobody"));
    assert!(matches!(
        bench.take_method(1),
        AMQPClass::Basic(basic::AMQPMethod::CancelOk(ok)) if ok.consumer_tag.as_str() == "nobody"
    ));
    assert!(bench.requests.is_empty());
}

#[test]
fn case_009_deliveries_before_cancel_ok_are_delivered() {
    let mut bench = Bench::open();
    let consumer = bench.consume("c", false);
    let mut input = bytes::BytesMut::new();
    wire::method::write_method(&mut input, 1, &cancel("c"));
    assert!(matches!(bench.session.next_request(&mut input), Some(Request::Cancel { .. })));
    assert!(bench.session.takes_events_before_reply());
    bench.session.on_event(Event::Deliver(delivery(1, Some(consumer), 1, b"x")));
    bench.session.on_reply(Reply::Done);
    bench.bytes(b"");
    let frames = bench.take();
    assert!(matches!(&frames[0], Got::Method(1, AMQPClass::Basic(basic::AMQPMethod::Deliver(_)))));
    assert!(matches!(&frames[3], Got::Method(1, AMQPClass::Basic(basic::AMQPMethod::CancelOk(_)))));
    bench.requests.clear();
    bench.method(1, ack(1, false));
    assert_eq!(bench.settlements(), [(vec![1], Outcome::Accept)]);
}

#[test]
fn consume_ok_comes_before_deliveries() {
    let mut bench = Bench::open();
    let mut input = bytes::BytesMut::new();
    wire::method::write_method(&mut input, 1, &consume("q", "c", false));
    assert!(matches!(bench.session.next_request(&mut input), Some(Request::Consume(_))));
    assert!(!bench.session.takes_events_before_reply());
}

#[test]
fn case_022_cancel_notification_for_those_who_understand() {
    let (mut bench, consumer) = holding(1);
    bench.event(Event::ConsumerCancelled { channel: 1, consumer });
    bench.event(Event::ConsumerCancelled { channel: 1, consumer });
    assert_eq!(
        bench.take_method(1),
        AMQPClass::Basic(basic::AMQPMethod::Cancel(basic::Cancel {
            consumer_tag: "c".into(),
            nowait: true
        }))
    );
    bench.method(1, ack(1, false));
    assert_eq!(bench.settlements().len(), 1);
    let mut bench = Bench::open_with(SessionConfig::default(), &FieldTable::default());
    let consumer = bench.consume("c", false);
    bench.event(Event::ConsumerCancelled { channel: 1, consumer });
    assert_eq!(bench.take(), []);
    // the answer to a notification that came anyway is no error
    assert!(bench.session.is_running());
}

#[test]
fn deliveries_without_ack_have_tags_and_are_not_held() {
    let mut bench = Bench::open();
    let free = bench.consume("free", true);
    let held = bench.consume("held", false);
    bench.deliver(1, free, 1);
    bench.deliver(1, held, 2);
    bench.deliver(1, free, 3);
    bench.deliver(1, held, 4);
    bench.requests.clear();
    bench.take();
    bench.method(1, ack(4, true));
    assert_eq!(bench.settlements(), [(vec![2, 4], Outcome::Accept)]);
    bench.method(1, ack(3, false));
    bench.expect_channel_close(1, 406, "PRECONDITION_FAILED - unknown delivery tag 3");
}

#[test]
fn get() {
    let mut bench = Bench::open();
    bench.take();
    let get =
        |no_ack| AMQPClass::Basic(basic::AMQPMethod::Get(basic::Get { queue: "q".into(), no_ack }));
    bench.method(1, get(false));
    assert_eq!(
        bench.take_method(1),
        AMQPClass::Basic(basic::AMQPMethod::GetEmpty(basic::GetEmpty {}))
    );
    for (no_ack, seq) in [(true, 1), (false, 2)] {
        bench.replies.push(Reply::Got(Some((delivery(1, None, seq, b"body"), 7))));
        bench.method(1, get(no_ack));
        let frames = bench.take();
        assert!(matches!(
            &frames[0],
            Got::Method(1, AMQPClass::Basic(basic::AMQPMethod::GetOk(ok)))
                if ok.delivery_tag == seq && ok.message_count == 7 && !ok.redelivered
        ));
        assert_eq!(frames[2], Got::Body(1, b"body".to_vec()));
    }
    bench.requests.clear();
    bench.method(1, ack(0, true));
    assert_eq!(bench.settlements(), [(vec![2], Outcome::Accept)]);
}

#[test]
fn large_answers_that_nobody_reads_stop_the_reading() {
    let mut bench = Bench::open();
    bench.take();
    let get = basic::Get { queue: "q".into(), no_ack: true };
    let get = AMQPClass::Basic(basic::AMQPMethod::Get(get));
    let body = vec![7; 1 << 20];
    for seq in 1..=20 {
        bench.replies.push(Reply::Got(Some((delivery(1, None, seq, &body), 20 - seq as u32))));
    }
    // all in one read; what the session has to say leaves only after it has taken what it wants
    bench.methods(1, vec![get; 20]);
    assert_eq!(bench.requests.len(), 4);
    let mut answered = 0;
    for rounds in 1.. {
        answered += bench.take().len();
        if bench.session.takes_input() && bench.replies.is_empty() {
            assert_eq!(rounds, 5);
            break;
        }
        bench.bytes(b"");
    }
    // a method, a header and nine frames of body for each
    assert_eq!(answered, 20 * 11);
}

#[test]
fn a_size_limit_is_not_implemented() {
    let mut bench = Bench::open();
    bench.bytes(&[1, 0, 1, 0, 0, 0, 11, 0, 60, 0, 10, 0, 0, 1, 0, 0, 5, 0, 0xce]);
    bench.expect_close(540, "NOT_IMPLEMENTED - prefetch_size!=0 (256)");
}

#[test]
fn a_prefetch_is_for_consumers_to_come() {
    let mut bench = Bench::open();
    bench.methods(
        1,
        [
            consume("q", "a", false),
            qos(5, false),
            consume("q", "b", false),
            consume("q", "c", true),
            qos(0, false),
            consume("q", "d", false),
        ],
    );
    let flows: Vec<_> = bench
        .requests
        .iter()
        .map(|request| match request {
            Request::Consume(consume) => consume.flow,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(flows, [Flow::Prefetch(0), Flow::Prefetch(5), Flow::Prefetch(0), Flow::Prefetch(0)]);
}

/// A queue with endless messages behind consumers with a common limit.
fn demand(bench: &mut Bench, consumer: ConsumerId, seq: &mut u64) -> u32 {
    bench.requests.clear();
    bench.event(Event::Demand { channel: 1, consumer });
    serve(bench, seq)
}

fn serve(bench: &mut Bench, seq: &mut u64) -> u32 {
    let mut delivered = 0;
    while let Some(position) =
        bench.requests.iter().position(|request| matches!(request, Request::Grant { .. }))
    {
        let Request::Grant { consumer, count, .. } = bench.requests.remove(position) else {
            unreachable!()
        };
        for _ in 0..count {
            *seq += 1;
            delivered += 1;
            bench.deliver(1, consumer, *seq);
        }
        bench.event(Event::Demand { channel: 1, consumer });
    }
    delivered
}

#[test]
fn case_057_a_limit_for_all_consumers_of_a_channel() {
    let mut bench = Bench::open();
    let mut seq = 0;
    bench.method(1, qos(4, true));
    let a = bench.consume("a", false);
    let b = bench.consume("b", false);
    assert!(bench.requests.iter().all(
        |request| !matches!(request, Request::Consume(consume) if consume.flow != Flow::Granted)
    ));
    assert_eq!(demand(&mut bench, a, &mut seq), 4);
    assert_eq!(demand(&mut bench, b, &mut seq), 0);
    // one settled: one more
    bench.method(1, ack(1, false));
    assert_eq!(serve(&mut bench, &mut seq), 1);
    // reduced below what is held: nothing until enough is settled
    bench.method(1, qos(2, true));
    bench.methods(1, [ack(2, false), ack(3, false)]);
    assert_eq!(serve(&mut bench, &mut seq), 0);
    bench.method(1, ack(4, false));
    assert_eq!(serve(&mut bench, &mut seq), 1);
    // raised: at once
    bench.method(1, qos(10, true));
    assert_eq!(serve(&mut bench, &mut seq), 8);
    assert_eq!(bench.session.status().channels[0].unsettled, 10);
    bench.method(1, ack(0, true));
    assert_eq!(serve(&mut bench, &mut seq), 10);
}

#[test]
fn a_common_limit_is_for_consumers_that_are_here_too() {
    let mut bench = Bench::open();
    let mut seq = 0;
    let a = bench.consume("a", false);
    bench.method(1, qos(2, false));
    let b = bench.consume("b", false);
    bench.consume("no acks", true);
    bench.deliver(1, a, 101);
    bench.deliver(1, b, 102);
    bench.requests.clear();
    bench.method(1, qos(4, true));
    let limited: Vec<_> = bench
        .requests
        .iter()
        .map(|request| match request {
            Request::Limit { consumer, .. } => *consumer,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(limited, [a, b]);
    // two are held; b's own limit leaves room for one
    assert_eq!(demand(&mut bench, b, &mut seq), 1);
    assert_eq!(demand(&mut bench, a, &mut seq), 1);
    // what was on its way counts when it comes
    bench.deliver(1, a, 103);
    bench.method(1, ack(1, false));
    assert_eq!(serve(&mut bench, &mut seq), 0);
    bench.method(1, ack(4, false));
    assert_eq!(serve(&mut bench, &mut seq), 1);
    // another limit changes nothing about that
    bench.method(1, qos(5, true));
    assert!(!bench.requests.iter().any(|request| matches!(request, Request::Limit { .. })));
    assert_eq!(serve(&mut bench, &mut seq), 1);
}

#[test]
fn a_common_limit_counts_what_a_transaction_has_settled() {
    let (mut bench, consumer) = holding(2);
    let mut seq = 2;
    bench.method(1, AMQPClass::Tx(tx::AMQPMethod::Select(tx::Select {})));
    bench.methods(1, [ack(2, true), qos(3, true)]);
    assert_eq!(demand(&mut bench, consumer, &mut seq), 1);
    bench.method(1, AMQPClass::Tx(tx::AMQPMethod::Commit(tx::Commit {})));
    assert_eq!(serve(&mut bench, &mut seq), 2);
}

#[test]
fn a_common_limit_is_shared_fairly() {
    let mut bench = Bench::open();
    bench.method(1, qos(10, true));
    let a = bench.consume("a", false);
    let b = bench.consume("b", false);
    bench.requests.clear();
    let grants = |bench: &mut Bench| -> Vec<(ConsumerId, u32)> {
        bench
            .requests
            .drain(..)
            .filter_map(|request| match request {
                Request::Grant { consumer, count, .. } => Some((consumer, count)),
                _ => None,
            })
            .collect()
    };
    bench.event(Event::Demand { channel: 1, consumer: a });
    assert_eq!(grants(&mut bench), [(a, 10)]);
    bench.event(Event::Demand { channel: 1, consumer: b });
    assert_eq!(grants(&mut bench), []);
    // what a's queue cannot use goes to b
    bench.event(Event::GrantUnused { channel: 1, consumer: a, count: 7 });
    assert_eq!(grants(&mut bench), [(b, 7)]);
    for seq in 1..=3 {
        bench.deliver(1, a, seq);
    }
    bench.event(Event::Demand { channel: 1, consumer: a });
    assert_eq!(grants(&mut bench), []);
    bench.method(1, ack(2, true));
    assert_eq!(grants(&mut bench), [(a, 2)]);
    // what a cancelled consumer was granted is free again
    bench.event(Event::Demand { channel: 1, consumer: a });
    bench.method(1, cancel("b"));
    assert_eq!(grants(&mut bench), [(a, 7)]);
}

#[test]
fn a_common_limit_passes_nobody_over() {
    let mut bench = Bench::open();
    bench.method(1, qos(5, true));
    let consumers = ["a", "b", "c", "d", "e"].map(|tag| bench.consume(tag, false));
    bench.requests.clear();
    bench.event(Event::Demand { channel: 1, consumer: consumers[0] });
    for seq in 1..=5 {
        bench.deliver(1, consumers[0], seq);
    }
    for consumer in consumers {
        bench.event(Event::Demand { channel: 1, consumer });
    }
    bench.requests.clear();
    // five places become free, and five want one
    bench.method(1, ack(5, true));
    let mut granted: Vec<(ConsumerId, u32)> = bench
        .requests
        .iter()
        .filter_map(|request| match request {
            Request::Grant { consumer, count, .. } => Some((*consumer, *count)),
            _ => None,
        })
        .collect();
    granted.sort_unstable();
    assert_eq!(granted, consumers.map(|consumer| (consumer, 1)));
}

#[test]
fn both_limits_hold() {
    let mut bench = Bench::open();
    let mut seq = 0;
    bench.methods(1, [qos(10, true), qos(3, false)]);
    let a = bench.consume("a", false);
    let b = bench.consume("b", false);
    assert_eq!(demand(&mut bench, a, &mut seq), 3);
    assert_eq!(demand(&mut bench, b, &mut seq), 3);
    bench.method(1, ack(1, false));
    assert_eq!(serve(&mut bench, &mut seq), 1);
}

#[test]
fn a_common_limit_can_be_lifted() {
    let mut bench = Bench::open();
    bench.method(1, qos(1, true));
    let a = bench.consume("a", false);
    bench.method(1, qos(0, true));
    bench.requests.clear();
    bench.event(Event::Demand { channel: 1, consumer: a });
    assert!(matches!(&bench.requests[..], [Request::Grant { count: 1000, .. }]));
}

#[test]
fn what_is_fetched_does_not_count() {
    let mut bench = Bench::open();
    let mut seq = 0;
    bench.method(1, qos(1, true));
    let a = bench.consume("a", false);
    bench.replies.push(Reply::Got(Some((delivery(1, None, 100, b""), 0))));
    bench.method(
        1,
        AMQPClass::Basic(basic::AMQPMethod::Get(basic::Get { queue: "q".into(), no_ack: false })),
    );
    assert_eq!(demand(&mut bench, a, &mut seq), 1);
    bench.method(1, ack(1, false));
    assert_eq!(serve(&mut bench, &mut seq), 0);
}

#[test]
fn heartbeats_go_both_ways() {
    let mut bench = Bench::open();
    bench.take();
    // negotiated: 60 s
    assert_eq!(bench.session.deadline(), 30_000);
    bench.tick(30_000);
    assert_eq!(bench.take(), [], "the handshake was traffic");
    bench.tick(60_000);
    assert_eq!(bench.take(), [Got::Heartbeat]);
    bench.method(1, qos(1, false));
    bench.take();
    bench.tick(90_000);
    assert_eq!(bench.take(), [], "the answer to qos was traffic");
    for now in [120_000, 150_000, 180_000] {
        bench.tick(now);
        assert_eq!(bench.take(), [Got::Heartbeat]);
    }
    assert!(bench.session.is_running());
    bench.tick(210_000);
    assert!(bench.session.wants_close());
    assert_eq!(bench.session.end_reason(), Some("missed heartbeats from client, timeout: 60s"));
}

#[test]
fn silence_is_no_fault_of_a_client_that_is_not_read() {
    let mut bench = Bench::open();
    bench.event(Event::Blocked { reason: String::new() });
    bench.publish(1, "", "q", b"x");
    for now in 1..20 {
        bench.tick(now * 30_000);
    }
    assert!(bench.session.is_running());
}

#[test]
fn refused_subscriptions_leave_no_consumer() {
    let mut bench = Bench::open();
    bench.take();
    let text = "queue 'q' in vhost '/' in exclusive use";
    bench.replies.push(Reply::Refused(Error::new(403, text)));
    bench.method(1, consume("q", "c", false));
    bench.expect_channel_close(1, 403, &format!("ACCESS_REFUSED - {text}"));
}
