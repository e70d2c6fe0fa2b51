//! The main road: open, declare, publish with confirms, consume, acknowledge, close.

use crate::harness::{Bench, Got, ack, capabilities, confirm_select, open, start_ok, tune_ok};
use amq_protocol::protocol::{AMQPClass, basic, connection, queue};
use amqp::config::SessionConfig;
use amqp::request::{Event, Outcome, Request};

#[test]
fn the_main_road() {
    let mut bench = Bench::fresh(SessionConfig::default());
    bench.bytes(b"AMQP\x00\x00\x09\x01");
    assert!(matches!(
        bench.take_method(0),
        AMQPClass::Connection(connection::AMQPMethod::Start(start))
            if start.mechanisms.as_bytes() == b"PLAIN AMQPLAIN" && start.version_minor == 9
    ));
    bench.method(0, start_ok(&capabilities()));
    assert!(matches!(
        bench.take_method(0),
        AMQPClass::Connection(connection::AMQPMethod::Tune(connection::Tune {
            channel_max: 2047,
            frame_max: 131_072,
            heartbeat: 60
        }))
    ));
    bench.method(0, tune_ok(100, 65536, 10));
    bench.method(0, open("/"));
    assert!(matches!(
        bench.take_method(0),
        AMQPClass::Connection(connection::AMQPMethod::OpenOk(_))
    ));
    bench.open_channel(1);
    bench.method(
        1,
        AMQPClass::Queue(queue::AMQPMethod::Declare(queue::Declare {
            queue: "q".into(),
            durable: true,
            ..queue::Declare::default()
        })),
    );
    assert!(matches!(
        bench.take_method(1),
        AMQPClass::Queue(queue::AMQPMethod::DeclareOk(ok)) if ok.queue.as_str() == "q"
    ));
    bench.method(1, confirm_select());
    bench.take();
    bench.requests.clear();
    bench.publish(1, "", "q", b"one");
    bench.publish(1, "", "q", b"two");
    let published: Vec<_> = bench
        .requests
        .drain(..)
        .map(|request| match request {
            Request::Publish(publish) => (
                publish.confirm,
                publish.message.routing_key().to_owned(),
                publish.message.body().to_vec(),
            ),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        published,
        [(Some(1), "q".to_owned(), b"one".to_vec()), (Some(2), "q".to_owned(), b"two".to_vec())]
    );
    bench.session.on_event(Event::Confirmed { channel: 1, number: 1, accepted: true });
    bench.event(Event::Confirmed { channel: 1, number: 2, accepted: true });
    assert_eq!(bench.take(), [Got::Method(1, ack(2, true))]);
    let consumer = bench.consume("c", false);
    bench.deliver(1, consumer, 1);
    bench.deliver(1, consumer, 2);
    let frames = bench.take();
    assert_eq!(frames.len(), 6);
    assert!(matches!(
        &frames[3],
        Got::Method(1, AMQPClass::Basic(basic::AMQPMethod::Deliver(deliver)))
            if deliver.delivery_tag == 2 && deliver.consumer_tag.as_str() == "c"
                && deliver.exchange.as_str() == "x" && deliver.routing_key.as_str() == "k"
    ));
    assert_eq!(frames[5], Got::Body(1, b"hello".to_vec()));
    bench.methods(1, [ack(1, false), ack(2, false)]);
    assert_eq!(bench.settlements(), [(vec![1, 2], Outcome::Accept)]);
    bench.method(
        0,
        AMQPClass::Connection(connection::AMQPMethod::Close(connection::Close::default())),
    );
    assert!(matches!(
        bench.take_method(0),
        AMQPClass::Connection(connection::AMQPMethod::CloseOk(_))
    ));
    assert!(bench.session.wants_close());
    assert_eq!(bench.session.end_reason(), None);
}
