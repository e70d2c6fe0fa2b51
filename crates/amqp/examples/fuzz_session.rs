//! Feeds sessions with damaged conversations: `fuzz_session [SECONDS] [SEED]`.
//!
//! Each round takes a conversation of valid frames, damages it, cuts it into reads, and plays it
//! to a session whose broker answers at random, with events in between. A session must not panic,
//! take long, write what is not a frame, or keep more memory than the input explains.

#![expect(clippy::print_stdout, reason = "its purpose")]

use amq_protocol::protocol::{AMQPClass, basic, channel, confirm, connection, exchange, queue, tx};
use amq_protocol::types::{AMQPValue, FieldTable};
use amqp::config::SessionConfig;
use amqp::request::{Delivery, Error, Event, Reply, Request};
use amqp::session::Session;
use bytes::BytesMut;
use model::id::{ConsumerId, QueueId, Seq};
use model::message::Message;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::frame;
use wire::method::write_method;

/// The longest that one conversation may take.
const ROUND_MAX: Duration = Duration::from_secs(2);
/// Memory at the end; conversations are small, so any leak shows.
const RESIDENT_MAX_KIB: u64 = 256 * 1024;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % (bound.max(1) as u64)).unwrap_or(0)
    }

    fn once_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(10);
    let seed = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1_u64);
    let began = Instant::now();
    let mut rounds = 0_u64;
    let mut tally = Tally::default();
    while began.elapsed() < Duration::from_secs(seconds) {
        let round_seed = (seed << 32) + rounds;
        let round = Instant::now();
        let Ok(one) = std::panic::catch_unwind(|| converse(round_seed)) else {
            println!("round {rounds} of seed {seed} panicked");
            std::process::exit(1);
        };
        tally.add(&one);
        assert!(round.elapsed() < ROUND_MAX, "round {rounds} of seed {seed} took too long");
        rounds += 1;
    }
    println!("{rounds} conversations: {tally:?}");
    if let Some(kib) = resident_kib() {
        println!("peak resident: {kib} KiB");
        assert!(kib < RESIDENT_MAX_KIB, "memory grew to {kib} KiB");
    }
}

/// What was reached, to see that the fuzzing gets somewhere.
#[derive(Debug, Default)]
struct Tally {
    requests: u64,
    publishes: u64,
    settles: u64,
    frames_out: u64,
    opened: u64,
    closed: u64,
}

impl Tally {
    fn add(&mut self, one: &Self) {
        self.requests += one.requests;
        self.publishes += one.publishes;
        self.settles += one.settles;
        self.frames_out += one.frames_out;
        self.opened += one.opened;
        self.closed += one.closed;
    }
}

fn converse(seed: u64) -> Tally {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let frame_max = if random.once_in(3) { 4096 } else { 131_072 };
    let config = SessionConfig {
        frame_max,
        message_size_max: 20_000,
        consumers_max: random.once_in(4).then_some(2),
        ..SessionConfig::default()
    };
    let script = damage(&mut random, conversation_of(seed, frame_max));
    let mut session = Session::new(Arc::new(config), seed, 0);
    let mut tally = Tally::default();
    let mut input = BytesMut::new();
    let mut broker = Broker { random, consumers: Vec::new(), seq: 0, confirms: Vec::new() };
    let mut rest = &script[..];
    let mut read = 0;
    let mut now = 0;
    while !rest.is_empty() && !session.wants_close() {
        let (bytes, after) = rest.split_at(1 + broker.random.below(rest.len().min(3000)));
        rest = after;
        input.extend_from_slice(bytes);
        read += bytes.len() as u64;
        if broker.random.once_in(8) {
            now += broker.random.next() % 40_000;
            session.on_tick(now, read, true);
        }
        broker.serve(&mut session, &mut input, &mut tally);
        for _ in 0..broker.random.below(4) {
            let event = broker.event();
            session.on_event(event);
        }
        broker.serve(&mut session, &mut input, &mut tally);
        check_output(&mut session, &mut broker.random, frame_max, &mut tally);
        tally.opened += u64::from(session.is_running());
    }
    tally.closed += u64::from(session.wants_close());
    drop(session.status());
    session.on_disconnected();
    broker.serve(&mut session, &mut input, &mut tally);
    assert!(session.wants_close());
    tally
}

/// All output must be frames within the limit.
fn check_output(session: &mut Session, random: &mut Random, frame_max: u32, tally: &mut Tally) {
    let bytes = session.output_bytes();
    let mut left = BytesMut::from(&bytes[..]);
    if left.starts_with(b"AMQP") {
        assert_eq!(left.len(), 8, "nothing follows a refusal of the header");
        left.clear();
    }
    while let Some(_frame) = frame::decode(&mut left, frame_max).expect("output is frames") {
        tally.frames_out += 1;
    }
    assert!(left.is_empty(), "half a frame was written");
    // the socket takes it in pieces
    let mut length = bytes.len();
    while length > 0 {
        let piece = 1 + random.below(length);
        session.on_written(piece, |written| assert!(written.count > 0));
        length -= piece;
    }
    assert!(!session.has_output());
}

struct Broker {
    random: Random,
    consumers: Vec<(u16, ConsumerId)>,
    seq: u64,
    confirms: Vec<(u16, u64)>,
}

impl Broker {
    fn serve(&mut self, session: &mut Session, input: &mut BytesMut, tally: &mut Tally) {
        while let Some(request) = session.next_request(input) {
            tally.requests += 1;
            match &request {
                Request::Publish(publish) => {
                    tally.publishes += 1;
                    if let Some(number) = publish.confirm {
                        self.confirms.push((publish.channel, number));
                    }
                    if self.random.once_in(30) {
                        session.on_publish_refused(publish.channel, Error::not_found("no"));
                    }
                    continue;
                }
                Request::Settle { unsettled, .. } => {
                    tally.settles += unsettled.len() as u64;
                    continue;
                }
                _ if !request.is_answered() => continue,
                _ => {}
            }
            if self.random.once_in(10) && session.takes_events_before_reply() {
                let event = self.event();
                session.on_event(event);
            }
            let reply = self.reply(&request);
            session.on_reply(reply);
        }
    }

    fn reply(&mut self, request: &Request) -> Reply {
        if self.random.once_in(25) {
            let code = [403, 404, 405, 406, 503, 530, 540, 541][self.random.below(8)];
            return Reply::Refused(Error::new(code, "no"));
        }
        match request {
            Request::Authenticate { .. } => Reply::Authenticated { user: "u".to_owned() },
            Request::QueueDeclare(declare) => Reply::QueueDeclared {
                queue: declare.queue.clone() + "x",
                messages: 1,
                consumers: 2,
            },
            Request::QueuePurge { .. } | Request::QueueDelete { .. } => Reply::Count(1),
            Request::Consume(consume) => {
                self.seq += 1;
                let consumer = ConsumerId(self.seq);
                self.consumers.push((consume.channel, consumer));
                Reply::Consuming { consumer, queue: QueueId(1) }
            }
            Request::Get { channel, .. } if self.random.once_in(2) => {
                let delivery = self.delivery(*channel, None);
                Reply::Got(Some((delivery, 3)))
            }
            Request::Get { .. } => Reply::Got(None),
            _ => Reply::Done,
        }
    }

    fn delivery(&mut self, channel: u16, consumer: Option<ConsumerId>) -> Delivery {
        self.seq += 1;
        let size = if self.random.once_in(5) { self.random.below(30_000) } else { 10 };
        let properties = if self.random.once_in(10) {
            let mut table = FieldTable::default();
            let long = vec![7; self.random.below(9000)];
            table.insert("x-death".into(), AMQPValue::LongString(long.into()));
            let table = wire::table::encode(&table);
            let headers = Some(&table[4..]);
            wire::properties::Properties { headers, ..Default::default() }.encode()
        } else {
            vec![0, 0]
        };
        Delivery {
            channel,
            consumer,
            queue: QueueId(1),
            seq: Seq(self.seq),
            redelivered: self.random.once_in(2),
            message: Message::from_parts("x", "k", &properties, &vec![1; size]),
        }
    }

    fn event(&mut self) -> Event {
        let (channel, consumer) = match self.consumers.len() {
            0 => (1, ConsumerId(1)),
            count => self.consumers[self.random.below(count)],
        };
        match self.random.below(20) {
            0 => Event::ConsumerCancelled { channel, consumer },
            1 | 2 => Event::Demand { channel, consumer },
            3 => {
                let count = u32::try_from(self.random.below(5)).unwrap_or(0);
                Event::GrantUnused { channel, consumer, count }
            }
            4 => Event::Blocked { reason: "memory".repeat(self.random.below(60)) },
            5 | 6 => Event::Unblocked,
            7 if self.random.once_in(5) => {
                Event::CloseChannel { channel, error: Error::precondition_failed("late") }
            }
            8 if self.random.once_in(20) => Event::Close(Error::new(320, "bye")),
            9 => Event::Returned {
                channel,
                reply_code: 312,
                reply_text: "NO_ROUTE",
                message: Message::from_parts("x", "k", &[0, 0], b"returned"),
            },
            10..=13 if !self.confirms.is_empty() => {
                let index = self.random.below(self.confirms.len());
                let (channel, number) = self.confirms.swap_remove(index);
                Event::Confirmed { channel, number, accepted: !self.random.once_in(5) }
            }
            _ => Event::Deliver(self.delivery(channel, Some(consumer))),
        }
    }
}

/// A conversation as a client would have it, with some nonsense.
fn conversation_of(seed: u64, frame_max: u32) -> Vec<Vec<u8>> {
    let mut random = Random(seed.wrapping_mul(0xd134_2543_de82_ef95) | 1);
    let mut frames = vec![b"AMQP\x00\x00\x09\x01".to_vec()];
    let mut capabilities = FieldTable::default();
    for name in ["consumer_cancel_notify", "connection.blocked", "authentication_failure_close"] {
        capabilities.insert(name.into(), AMQPValue::Boolean(!random.once_in(4)));
    }
    let mut properties = FieldTable::default();
    properties.insert("capabilities".into(), AMQPValue::FieldTable(capabilities));
    let start_ok = connection::StartOk {
        client_properties: properties,
        mechanism: "PLAIN".into(),
        response: "\0u\0p".into(),
        locale: "en_US".into(),
    };
    let tune_ok = connection::TuneOk { channel_max: 20, frame_max, heartbeat: 10 };
    for method in [
        connection::AMQPMethod::StartOk(start_ok),
        connection::AMQPMethod::TuneOk(tune_ok),
        connection::AMQPMethod::Open(connection::Open { virtual_host: "/".into() }),
    ] {
        frames.push(method_frame(0, &AMQPClass::Connection(method)));
    }
    let channels = 1 + u16::try_from(random.below(3)).unwrap_or(0);
    for number in 1..=channels {
        let open = channel::AMQPMethod::Open(channel::Open {});
        frames.push(method_frame(number, &AMQPClass::Channel(open)));
    }
    if random.once_in(2) {
        let consume = basic::Consume {
            queue: "q".into(),
            consumer_tag: "first".into(),
            ..basic::Consume::default()
        };
        frames.push(method_frame(1, &AMQPClass::Basic(basic::AMQPMethod::Consume(consume))));
    }
    for _ in 0..random.below(60) {
        let number = 1 + u16::try_from(random.below(channels.into())).unwrap_or(0);
        frames.push(client_frame(&mut random, number));
    }
    frames
}

fn method_frame(number: u16, class: &AMQPClass) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    write_method(&mut bytes, number, class);
    bytes.to_vec()
}

fn client_frame(random: &mut Random, number: u16) -> Vec<u8> {
    let bound = [3, 12][random.below(2)];
    let tag = random.next() % bound;
    let flag = random.once_in(2);
    let name = ["", "q", "c", "q\n", "amq.rabbitmq.reply-to"][random.below(5)];
    let count = u16::try_from(random.below(6)).unwrap_or(0);
    let basic = AMQPClass::Basic;
    let class = match random.below(26) {
        0..=5 => {
            let mut bytes = BytesMut::new();
            let bound = [20, 200, 9000, 25_000][random.below(4)];
            let body = vec![3; random.below(bound)];
            wire::publish::write(&mut bytes, number, "x", name, flag, &[0, 0], &body, 4096);
            return bytes.to_vec();
        }
        6..=8 => basic(basic::AMQPMethod::Ack(basic::Ack { delivery_tag: tag, multiple: flag })),
        9 => basic(basic::AMQPMethod::Nack(basic::Nack {
            delivery_tag: tag,
            multiple: flag,
            requeue: tag.is_multiple_of(2),
        })),
        10 => basic(basic::AMQPMethod::Reject(basic::Reject { delivery_tag: tag, requeue: flag })),
        11 | 12 => basic(basic::AMQPMethod::Consume(basic::Consume {
            queue: name.into(),
            consumer_tag: ["", "a", "b"][random.below(3)].into(),
            no_ack: random.once_in(3),
            nowait: flag,
            ..basic::Consume::default()
        })),
        13 => basic(basic::AMQPMethod::Cancel(basic::Cancel {
            consumer_tag: ["a", "b"][random.below(2)].into(),
            nowait: flag,
        })),
        14 | 15 => {
            basic(basic::AMQPMethod::Qos(basic::Qos { prefetch_count: count, global: flag }))
        }
        16 => basic(basic::AMQPMethod::Get(basic::Get { queue: name.into(), no_ack: flag })),
        17 => basic(basic::AMQPMethod::Recover(basic::Recover { requeue: true })),
        18 => AMQPClass::Queue(queue::AMQPMethod::Declare(queue::Declare {
            queue: name.into(),
            nowait: flag,
            ..queue::Declare::default()
        })),
        19 => AMQPClass::Queue(queue::AMQPMethod::Bind(queue::Bind {
            queue: name.into(),
            ..queue::Bind::default()
        })),
        20 => AMQPClass::Exchange(exchange::AMQPMethod::Declare(exchange::Declare {
            exchange: name.into(),
            kind: "topic".into(),
            ..exchange::Declare::default()
        })),
        21 => AMQPClass::Tx(match random.below(3) {
            0 => tx::AMQPMethod::Select(tx::Select {}),
            1 => tx::AMQPMethod::Commit(tx::Commit {}),
            _ => tx::AMQPMethod::Rollback(tx::Rollback {}),
        }),
        22 => AMQPClass::Confirm(confirm::AMQPMethod::Select(confirm::Select { nowait: flag })),
        23 => AMQPClass::Channel(channel::AMQPMethod::Close(channel::Close::default())),
        24 => AMQPClass::Channel(channel::AMQPMethod::CloseOk(channel::CloseOk {})),
        _ => AMQPClass::Channel(channel::AMQPMethod::Open(channel::Open {})),
    };
    method_frame(number, &class)
}

/// Drops, doubles, swaps and splices frames, and flips bytes; most conversations get little of it.
fn damage(random: &mut Random, mut frames: Vec<Vec<u8>>) -> Vec<u8> {
    for _ in 0..random.below(4) {
        let from = random.below(frames.len());
        let to = random.below(frames.len());
        match random.below(6) {
            0 => drop(frames.remove(from)),
            1 => frames.insert(to, frames[from].clone()),
            2 => frames.swap(from, to),
            3 => {
                let cut = random.below(frames[from].len());
                frames[from].truncate(cut);
            }
            _ => {
                let length = frames[from].len();
                let at = random.below(length);
                if let Some(byte) = frames[from].get_mut(at) {
                    *byte = [0, 1, 0xff, 0xce, *byte ^ 0x10][random.below(5)];
                }
            }
        }
        if frames.is_empty() {
            break;
        }
    }
    frames.concat()
}

fn resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
