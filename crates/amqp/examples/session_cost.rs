//! Nanoseconds of session code per publish, delivery, acknowledgement and confirm.
//!
//! `cargo run --release -p amqp --example session_cost`

#![expect(clippy::print_stdout, reason = "its purpose")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use amqp::config::SessionConfig;
use amqp::request::{Delivery, Event, Reply, Request};
use amqp::session::Session;
use bytes::BytesMut;
use model::id::{ConsumerId, QueueId, Seq};
use model::message::Message;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const COUNT: u64 = 2_000_000;
const BATCH: u64 = 1000;

fn main() {
    publishes(16, false);
    publishes(16, true);
    publishes(1024, false);
    publishes(1024, true);
    for size in [16, 1024, 4096, 16384] {
        deliveries(size);
    }
    acks(1);
    acks(10);
}

fn session() -> Session {
    use amq_protocol::protocol::{AMQPClass, basic, channel, connection};
    use wire::method::write_method;
    let mut session = Session::new(Arc::new(SessionConfig::default()), 1, 0);
    let mut input = BytesMut::from(&b"AMQP\x00\x00\x09\x01"[..]);
    let start_ok = connection::StartOk {
        mechanism: "PLAIN".into(),
        response: "\0a\0b".into(),
        ..connection::StartOk::default()
    };
    let tune_ok = connection::TuneOk { channel_max: 10, frame_max: 131_072, heartbeat: 0 };
    for method in [
        connection::AMQPMethod::StartOk(start_ok),
        connection::AMQPMethod::TuneOk(tune_ok),
        connection::AMQPMethod::Open(connection::Open::default()),
    ] {
        write_method(&mut input, 0, &AMQPClass::Connection(method));
    }
    let open = channel::AMQPMethod::Open(channel::Open {});
    write_method(&mut input, 1, &AMQPClass::Channel(open));
    let consume = basic::Consume {
        queue: "q".into(),
        consumer_tag: "ctag1.0123456789abcdef".into(),
        ..basic::Consume::default()
    };
    write_method(&mut input, 1, &AMQPClass::Basic(basic::AMQPMethod::Consume(consume)));
    while let Some(request) = session.next_request(&mut input) {
        session.on_reply(match request {
            Request::Authenticate { .. } => Reply::Authenticated { user: String::new() },
            Request::Consume(_) => Reply::Consuming { consumer: ConsumerId(1), queue: QueueId(1) },
            _ => Reply::Done,
        });
    }
    drain(&mut session);
    session
}

fn drain(session: &mut Session) -> usize {
    use bytes::Buf;
    let length = session.output().remaining();
    session.on_written(length, |written| {
        black_box(written);
    });
    length
}

fn publishes(size: usize, confirms: bool) {
    let mut session = session();
    if confirms {
        let mut input = BytesMut::new();
        let select = amq_protocol::protocol::confirm::AMQPMethod::Select(
            amq_protocol::protocol::confirm::Select::default(),
        );
        wire::method::write_method(
            &mut input,
            1,
            &amq_protocol::protocol::AMQPClass::Confirm(select),
        );
        assert!(session.next_request(&mut input).is_none());
    }
    let mut batch = BytesMut::new();
    let per_batch = (65536 / (size as u64 + 70)).max(1);
    for _ in 0..per_batch {
        wire::publish::write(
            &mut batch,
            1,
            "",
            "queue-1",
            false,
            &[0x10, 0, 2],
            &vec![7; size],
            131_072,
        );
    }
    let mut count = 0;
    let mut confirmed = 0;
    let mut spent = std::time::Duration::ZERO;
    while count < COUNT {
        let mut input = BytesMut::with_capacity(batch.len());
        input.extend_from_slice(&batch);
        let began = Instant::now();
        while let Some(request) = session.next_request(&mut input) {
            black_box(&request);
            count += 1;
        }
        if confirms {
            while confirmed < count {
                confirmed += 1;
                session.on_event(Event::Confirmed {
                    channel: 1,
                    number: confirmed,
                    accepted: true,
                });
            }
            drain(&mut session);
        }
        spent += began.elapsed();
    }
    let ns = spent.as_nanos() as f64 / count as f64;
    println!("publish {size} B{}: {ns:.0} ns", if confirms { " with confirm" } else { "" });
}

fn deliveries(size: usize) {
    let mut session = session();
    let message = Message::from_parts("", "queue-1", &[0x10, 0, 2], &vec![7; size]);
    let count = COUNT / (1 + size as u64 / 1024);
    let began = Instant::now();
    for seq in 1..=count {
        session.on_event(deliver(seq, &message));
        if seq % BATCH == 0 {
            drain(&mut session);
            // settles all, so that the list stays short
            let mut input = BytesMut::new();
            let all = wire::ack::Settlement::Ack { delivery_tag: seq, multiple: true };
            wire::ack::write(&mut input, 1, all);
            black_box(session.next_request(&mut input));
        }
    }
    println!("delivery {size} B: {:.0} ns", began.elapsed().as_nanos() as f64 / count as f64);
}

fn acks(every: u64) {
    let mut session = session();
    let message = Message::from_parts("", "queue-1", &[0x10, 0, 2], &[7; 16]);
    let mut spent = std::time::Duration::ZERO;
    for batch in 0..COUNT / BATCH {
        let mut input = BytesMut::new();
        for seq in batch * BATCH + 1..=(batch + 1) * BATCH {
            session.on_event(deliver(seq, &message));
            if seq % every == 0 {
                let ack = wire::ack::Settlement::Ack { delivery_tag: seq, multiple: every > 1 };
                wire::ack::write(&mut input, 1, ack);
            }
        }
        drain(&mut session);
        let began = Instant::now();
        while let Some(request) = session.next_request(&mut input) {
            black_box(&request);
        }
        spent += began.elapsed();
    }
    println!("ack of every {every}: {:.0} ns per message", spent.as_nanos() as f64 / COUNT as f64);
}

fn deliver(seq: u64, message: &Message) -> Event {
    Event::Deliver(Delivery {
        channel: 1,
        consumer: Some(ConsumerId(1)),
        queue: QueueId(1),
        seq: Seq(seq),
        redelivered: false,
        message: message.clone(),
    })
}
