//! Exchanges, queues and bindings: names, and the absence of answers.

use crate::harness::{Bench, Got};
use amq_protocol::protocol::{AMQPClass, basic, channel, exchange, queue};
use amqp::request::{Error, Reply, Request};

fn declare(name: &str, passive: bool, nowait: bool) -> AMQPClass {
    AMQPClass::Queue(queue::AMQPMethod::Declare(queue::Declare {
        queue: name.into(),
        passive,
        nowait,
        ..queue::Declare::default()
    }))
}

fn bind(queue: &str, key: &str) -> AMQPClass {
    AMQPClass::Queue(queue::AMQPMethod::Bind(queue::Bind {
        queue: queue.into(),
        exchange: "x".into(),
        routing_key: key.into(),
        ..queue::Bind::default()
    }))
}

fn purge(queue: &str) -> AMQPClass {
    AMQPClass::Queue(queue::AMQPMethod::Purge(queue::Purge { queue: queue.into(), nowait: false }))
}

#[test]
fn an_empty_name_means_the_last_declared_queue() {
    let mut bench = Bench::open();
    bench.methods(
        1,
        [
            declare("", false, false),
            bind("", ""),
            bind("", "key"),
            bind("other", ""),
            purge(""),
            crate::harness::consume("", "c", true),
            AMQPClass::Basic(basic::AMQPMethod::Get(basic::Get::default())),
            AMQPClass::Queue(queue::AMQPMethod::Delete(queue::Delete::default())),
        ],
    );
    let names: Vec<String> = bench
        .requests
        .iter()
        .map(|request| match request {
            Request::QueueDeclare(declare) => format!("declare {}", declare.queue),
            Request::Bind(bind) => format!("bind {} {}", bind.destination, bind.routing_key),
            Request::QueuePurge { queue, .. } => format!("purge {queue}"),
            Request::Consume(consume) => format!("consume {}", consume.queue),
            Request::Get { queue, .. } => format!("get {queue}"),
            Request::QueueDelete { queue, .. } => format!("delete {queue}"),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        names,
        [
            "declare ",
            "bind amq.gen-1 amq.gen-1",
            "bind amq.gen-1 key",
            "bind other ",
            "purge amq.gen-1",
            "consume amq.gen-1",
            "get amq.gen-1",
            "delete amq.gen-1"
        ]
    );
}

#[test]
fn without_a_declared_queue_an_empty_name_means_nothing() {
    for method in [
        bind("", ""),
        bind("", "key"),
        purge(""),
        crate::harness::consume("", "c", true),
        AMQPClass::Basic(basic::AMQPMethod::Get(basic::Get::default())),
        AMQPClass::Queue(queue::AMQPMethod::Unbind(queue::Unbind::default())),
        AMQPClass::Queue(queue::AMQPMethod::Delete(queue::Delete::default())),
    ] {
        let mut bench = Bench::open();
        bench.method(1, method);
        bench.expect_channel_close(1, 404, "NOT_FOUND - no previously declared queue");
    }
}

#[test]
fn the_last_queue_belongs_to_its_channel() {
    let mut bench = Bench::open();
    bench.method(1, declare("q", true, true));
    bench.open_channel(2);
    bench.method(2, purge(""));
    bench.expect_channel_close(2, 404, "NOT_FOUND - no previously declared queue");
    bench.method(1, purge(""));
    assert!(matches!(
        bench.take_method(1),
        AMQPClass::Queue(queue::AMQPMethod::PurgeOk(queue::PurgeOk { message_count: 3 }))
    ));
}

#[test]
fn line_ends_are_stripped_from_names() {
    let mut bench = Bench::open();
    bench.methods(
        1,
        [
            declare("a\r\nb", false, false),
            AMQPClass::Exchange(exchange::AMQPMethod::Declare(exchange::Declare {
                exchange: "\nx\r".into(),
                kind: "direct".into(),
                ..exchange::Declare::default()
            })),
        ],
    );
    assert!(matches!(&bench.requests[0], Request::QueueDeclare(declare) if declare.queue == "ab"));
    assert!(
        matches!(&bench.requests[1], Request::ExchangeDeclare(declare) if declare.exchange == "x")
    );
}

#[test]
fn no_wait_means_no_answer() {
    let mut bench = Bench::open();
    bench.take();
    let exchange = |method| AMQPClass::Exchange(method);
    bench.methods(
        1,
        [
            declare("q", false, true),
            AMQPClass::Queue(queue::AMQPMethod::Bind(queue::Bind {
                nowait: true,
                ..queue::Bind::default()
            })),
            AMQPClass::Queue(queue::AMQPMethod::Purge(queue::Purge {
                queue: "q".into(),
                nowait: true,
            })),
            AMQPClass::Queue(queue::AMQPMethod::Delete(queue::Delete {
                queue: "q".into(),
                nowait: true,
                ..queue::Delete::default()
            })),
            exchange(exchange::AMQPMethod::Declare(exchange::Declare {
                nowait: true,
                ..exchange::Declare::default()
            })),
            exchange(exchange::AMQPMethod::Bind(exchange::Bind {
                nowait: true,
                ..exchange::Bind::default()
            })),
            exchange(exchange::AMQPMethod::Unbind(exchange::Unbind {
                nowait: true,
                ..exchange::Unbind::default()
            })),
            exchange(exchange::AMQPMethod::Delete(exchange::Delete {
                nowait: true,
                ..exchange::Delete::default()
            })),
            AMQPClass::Basic(basic::AMQPMethod::Consume(basic::Consume {
                queue: "q".into(),
                consumer_tag: "c".into(),
                nowait: true,
                ..basic::Consume::default()
            })),
            AMQPClass::Basic(basic::AMQPMethod::Cancel(basic::Cancel {
                consumer_tag: "c".into(),
                nowait: true,
            })),
            AMQPClass::Basic(basic::AMQPMethod::Cancel(basic::Cancel {
                consumer_tag: "unknown".into(),
                nowait: true,
            })),
            AMQPClass::Confirm(amq_protocol::protocol::confirm::AMQPMethod::Select(
                amq_protocol::protocol::confirm::Select { nowait: true },
            )),
        ],
    );
    assert_eq!(bench.take(), []);
    assert_eq!(bench.requests.len(), 10);
}

#[test]
fn every_method_has_its_answer() {
    let mut bench = Bench::open();
    bench.take();
    bench.methods(
        1,
        [
            declare("q", false, false),
            bind("q", ""),
            AMQPClass::Queue(queue::AMQPMethod::Unbind(queue::Unbind {
                queue: "q".into(),
                ..queue::Unbind::default()
            })),
            purge("q"),
            AMQPClass::Queue(queue::AMQPMethod::Delete(queue::Delete {
                queue: "q".into(),
                ..queue::Delete::default()
            })),
            AMQPClass::Exchange(exchange::AMQPMethod::Declare(exchange::Declare::default())),
            AMQPClass::Exchange(exchange::AMQPMethod::Bind(exchange::Bind::default())),
            AMQPClass::Exchange(exchange::AMQPMethod::Unbind(exchange::Unbind::default())),
            AMQPClass::Exchange(exchange::AMQPMethod::Delete(exchange::Delete::default())),
        ],
    );
    let ids: Vec<(u16, u16)> = bench
        .take()
        .into_iter()
        .map(|got| match got {
            Got::Method(1, class) => (class.get_amqp_class_id(), class.get_amqp_method_id()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        ids,
        [(50, 11), (50, 21), (50, 51), (50, 31), (50, 41), (40, 11), (40, 31), (40, 51), (40, 21)]
    );
}

#[test]
fn case_010_errors_close_channel_or_connection_by_their_code() {
    let locked = "cannot obtain exclusive access to locked queue 'q' in vhost '/'. It could be originally declared on another connection or the exclusive property value does not match that of the original declaration.";
    let mut bench = Bench::open();
    bench.take();
    bench.replies.push(Reply::Refused(Error::new(405, locked)));
    bench.method(1, declare("q", false, false));
    bench.expect_channel_close(1, 405, &format!("RESOURCE_LOCKED - {locked}"));
    let mut bench = Bench::open();
    bench.replies.push(Reply::Refused(Error::not_found("no queue 'q' in vhost '/'")));
    bench.take();
    bench.method(1, declare("q", true, false));
    bench.expect_channel_close(1, 404, "NOT_FOUND - no queue 'q' in vhost '/'");
    let mut bench = Bench::open();
    bench.replies.push(Reply::Refused(Error::new(503, "unknown exchange type 'x'")));
    bench.method(
        1,
        AMQPClass::Exchange(exchange::AMQPMethod::Declare(exchange::Declare::default())),
    );
    bench.expect_close(503, "COMMAND_INVALID - unknown exchange type 'x'");
}

#[test]
fn methods_after_an_error_in_the_same_read_are_discarded() {
    let mut bench = Bench::open();
    bench.take();
    bench.replies.push(Reply::Refused(Error::not_found("x")));
    bench.methods(1, [declare("q", true, false), declare("r", false, false), bind("r", "")]);
    assert!(matches!(bench.take_method(1), AMQPClass::Channel(channel::AMQPMethod::Close(_))));
    assert_eq!(bench.requests.len(), 2);
}
