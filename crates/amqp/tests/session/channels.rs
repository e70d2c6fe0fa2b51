//! Opening, closing, flow, and what a closed channel gives back.

use crate::harness::{Bench, Got, ack, capabilities, close_ok, consume};
use amq_protocol::protocol::{AMQPClass, access, basic, channel};
use amqp::config::SessionConfig;
use amqp::request::{Error, Event, Outcome, Reply, Request};
use model::id::ConsumerId;

fn open() -> AMQPClass {
    AMQPClass::Channel(channel::AMQPMethod::Open(channel::Open {}))
}

fn close() -> AMQPClass {
    AMQPClass::Channel(channel::AMQPMethod::Close(channel::Close::default()))
}

fn flow(active: bool) -> AMQPClass {
    AMQPClass::Channel(channel::AMQPMethod::Flow(channel::Flow { active }))
}

#[test]
fn a_channel_is_opened_once() {
    let mut bench = Bench::open();
    bench.method(1, open());
    bench.expect_close(504, "CHANNEL_ERROR - second 'channel.open' seen");
}

#[test]
fn methods_need_an_open_channel() {
    for method in [consume("q", "", false), close(), close_ok(), ack(1, false)] {
        let mut bench = Bench::open();
        bench.method(2, method);
        bench.expect_close(504, "CHANNEL_ERROR - expected 'channel.open'");
    }
    let mut bench = Bench::open();
    bench.publish(2, "", "q", b"x");
    bench.expect_close(504, "CHANNEL_ERROR - expected 'channel.open'");
}

#[test]
fn channels_are_limited() {
    let config = SessionConfig { channel_max: 3, ..SessionConfig::default() };
    let mut bench = Bench::fresh(config);
    bench.bytes(b"AMQP\x00\x00\x09\x01");
    bench.method(0, crate::harness::start_ok(&capabilities()));
    bench.method(0, crate::harness::tune_ok(3, 131_072, 0));
    bench.method(0, crate::harness::open("/"));
    for number in 1..=3 {
        bench.open_channel(number);
    }
    bench.method(4, open());
    bench.expect_close(
        530,
        "NOT_ALLOWED - number of channels opened (3) has reached the negotiated channel_max (3)",
    );
}

#[test]
fn a_refused_channel_closes_the_connection() {
    let mut bench = Bench::open();
    let text = "number of channels opened for user 'guest' has reached the maximum allowed user limit of (1)";
    bench.replies.push(Reply::Refused(Error::not_allowed(text)));
    bench.method(2, open());
    bench.expect_close(530, &format!("NOT_ALLOWED - {text}"));
}

#[test]
fn flow_can_only_be_on() {
    let mut bench = Bench::open();
    bench.take();
    bench.method(1, flow(true));
    assert_eq!(
        bench.take_method(1),
        AMQPClass::Channel(channel::AMQPMethod::FlowOk(channel::FlowOk { active: true }))
    );
    bench.method(1, flow(false));
    bench.expect_close(540, "NOT_IMPLEMENTED - active=false");
}

#[test]
fn access_is_always_given() {
    let mut bench = Bench::open();
    bench.take();
    bench.method(1, AMQPClass::Access(access::AMQPMethod::Request(Default::default())));
    assert_eq!(bench.take_bytes(), [1, 0, 1, 0, 0, 0, 6, 0, 30, 0, 11, 0, 1, 0xce]);
}

#[test]
fn case_002_everything_is_discarded_until_close_ok() {
    let mut bench = Bench::open();
    bench.open_channel(2);
    bench.requests.clear();
    bench.method(1, ack(99, false));
    bench.expect_channel_close(1, 406, "PRECONDITION_FAILED - unknown delivery tag 99");
    assert!(matches!(bench.requests.remove(0), Request::ChannelClosed { channel: 1, .. }));
    bench.methods(1, [ack(1, false), ack(2, true), consume("q", "", false)]);
    bench.publish(1, "", "q", b"lost");
    // parts of a content, too
    bench.bytes(&[2, 0, 1, 0, 0, 0, 1, 0, 0xce]);
    assert!(bench.requests.is_empty());
    assert_eq!(bench.take(), []);
    // the other channel lives
    bench.publish(2, "", "q", b"kept");
    assert_eq!(bench.requests.len(), 1);
    bench.method(1, close_ok());
    assert_eq!(bench.take(), []);
    bench.open_channel(1);
    bench.publish(1, "", "q", b"kept");
    assert_eq!(bench.requests.len(), 3);
}

#[test]
fn both_sides_may_close_at_once() {
    let mut bench = Bench::open();
    bench.method(1, ack(99, false));
    bench.take();
    bench.method(1, close());
    assert_eq!(bench.take_method(1), close_ok());
    bench.method(1, close_ok());
    bench.open_channel(1);
}

#[test]
fn the_close_names_the_method_at_fault() {
    let mut bench = Bench::open();
    bench.take();
    bench.replies.push(Reply::Refused(Error::not_found("no queue 'q' in vhost '/'")));
    bench.method(1, consume("q", "", false));
    match bench.take_method(1) {
        AMQPClass::Channel(channel::AMQPMethod::Close(close)) => {
            assert_eq!(close.reply_text.as_str(), "NOT_FOUND - no queue 'q' in vhost '/'");
            assert_eq!((close.class_id, close.method_id), (60, 20));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn case_003_settlements_come_before_the_close() {
    let mut bench = Bench::open();
    let consumer = bench.consume("c", false);
    for seq in 1..=4 {
        bench.deliver(1, consumer, seq);
    }
    bench.requests.clear();
    bench.methods(1, [ack(1, false), ack(2, false), close()]);
    assert!(matches!(
        &bench.requests[..],
        [
            Request::Settle { outcome: Outcome::Accept, unsettled, .. },
            Request::ChannelClosed { channel: 1, consumers, unsettled: rest },
        ] if unsettled.len() == 2
            && consumers[0].0 == consumer
            && rest.iter().map(|held| held.seq.0).eq([3, 4])
    ));
}

#[test]
fn confirms_are_written_before_close_ok() {
    let mut bench = Bench::open();
    bench.method(1, crate::harness::confirm_select());
    bench.publish(1, "", "q", b"x");
    bench.take();
    bench.session.on_event(Event::Confirmed { channel: 1, number: 1, accepted: true });
    bench.method(1, close());
    assert_eq!(bench.take(), [Got::Method(1, ack(1, false)), Got::Method(1, close_ok())]);
}

#[test]
fn deliveries_for_what_is_gone_are_ignored() {
    let mut bench = Bench::open();
    let consumer = bench.consume("c", false);
    bench.deliver(1, ConsumerId(77), 1);
    bench.deliver(9, consumer, 1);
    bench.method(1, close());
    bench.take();
    bench.deliver(1, consumer, 1);
    bench.event(Event::ConsumerCancelled { channel: 1, consumer });
    bench.event(Event::Confirmed { channel: 1, number: 1, accepted: true });
    assert_eq!(bench.take(), []);
}

#[test]
fn the_broker_may_close_a_channel() {
    let mut bench = Bench::open();
    bench.take();
    let error = Error::precondition_failed("delivery acknowledgement on channel 1 timed out");
    bench.event(Event::CloseChannel { channel: 1, error });
    bench.expect_channel_close(
        1,
        406,
        "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out",
    );
}

#[test]
fn the_broker_may_close_the_connection() {
    let mut bench = Bench::open();
    let consumer = bench.consume("c", false);
    bench.deliver(1, consumer, 1);
    bench.requests.clear();
    bench.event(Event::Close(Error::new(
        320,
        "broker forced connection closure with reason 'shutdown'",
    )));
    bench.expect_close(
        320,
        "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'",
    );
    assert!(matches!(
        &bench.requests[..],
        [Request::ChannelClosed { unsettled, .. }] if unsettled.len() == 1
    ));
}

#[test]
fn a_lost_connection_gives_back_what_it_held() {
    let mut bench = Bench::open();
    let consumer = bench.consume("c", false);
    bench.deliver(1, consumer, 1);
    bench.requests.clear();
    bench.session.on_disconnected();
    bench.bytes(b"");
    assert!(matches!(
        &bench.requests[..],
        [Request::ChannelClosed { unsettled, .. }] if unsettled.len() == 1
    ));
    assert_eq!(bench.session.end_reason(), Some("client unexpectedly closed the connection"));
}

#[test]
fn a_get_for_a_channel_that_ends_meanwhile_goes_back() {
    let mut bench = Bench::open();
    bench.take();
    let mut input = bytes::BytesMut::new();
    let get = basic::Get { queue: "q".into(), no_ack: false };
    wire::method::write_method(&mut input, 1, &AMQPClass::Basic(basic::AMQPMethod::Get(get)));
    assert!(matches!(bench.session.next_request(&mut input), Some(Request::Get { .. })));
    bench.session.on_event(Event::CloseChannel { channel: 1, error: Error::not_found("x") });
    let delivery = crate::harness::delivery(1, None, 5, b"");
    bench.session.on_reply(Reply::Got(Some((delivery, 0))));
    bench.bytes(b"");
    assert_eq!(bench.settlements(), [(vec![5], Outcome::Return)]);
}
