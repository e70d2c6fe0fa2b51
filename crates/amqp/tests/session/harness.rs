//! A client that feeds bytes and reads bytes, and a broker that answers by script.

use amq_protocol::protocol::{AMQPClass, basic, channel, connection};
use amq_protocol::types::{AMQPValue, FieldTable};
use amqp::config::SessionConfig;
use amqp::request::{Delivery, Error, Event, Publish, Reply, Request};
use amqp::session::Session;
use bytes::BytesMut;
use model::id::{ConsumerId, QueueId, Seq};
use model::message::Message;
use std::sync::Arc;
use wire::content::ContentHeader;
use wire::frame::{self, Frame, Kind};
use wire::method;

/// A session in the hands of a test.
pub(crate) struct Bench {
    pub(crate) session: Session,
    input: BytesMut,
    output: BytesMut,
    /// What the session asked of the broker.
    pub(crate) requests: Vec<Request>,
    /// Answers to come, in order; without one the broker does as it is asked.
    pub(crate) replies: Vec<Reply>,
    /// Publishes that are refused, by the text of the error.
    pub(crate) refuse_publish: Option<Error>,
    next_consumer: u64,
    read: u64,
}

/// A frame from the session.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Got {
    Method(u16, AMQPClass),
    Header(u16, u64, Vec<u8>),
    Body(u16, Vec<u8>),
    Heartbeat,
}

impl Bench {
    /// A session that has seen nothing yet.
    pub(crate) fn fresh(config: SessionConfig) -> Self {
        Self {
            session: Session::new(Arc::new(config), 7, 0),
            input: BytesMut::new(),
            output: BytesMut::new(),
            requests: Vec::new(),
            replies: Vec::new(),
            refuse_publish: None,
            next_consumer: 1,
            read: 0,
        }
    }

    /// A session after the handshake, with all capabilities and channel 1 open.
    pub(crate) fn open() -> Self {
        Self::open_with(SessionConfig::default(), &capabilities())
    }

    pub(crate) fn open_with(config: SessionConfig, properties: &FieldTable) -> Self {
        let frame_max = config.frame_max;
        let mut bench = Self::fresh(config);
        bench.bytes(b"AMQP\x00\x00\x09\x01");
        bench.method(0, start_ok(properties));
        bench.method(0, tune_ok(2047, frame_max, 60));
        bench.method(0, open("/"));
        bench.open_channel(1);
        bench.requests.clear();
        bench
    }

    pub(crate) fn open_channel(&mut self, number: u16) {
        self.take();
        self.method(number, AMQPClass::Channel(channel::AMQPMethod::Open(channel::Open {})));
        assert_eq!(
            self.take(),
            [Got::Method(
                number,
                AMQPClass::Channel(channel::AMQPMethod::OpenOk(channel::OpenOk {}))
            )]
        );
    }

    /// Feeds bytes, and serves all requests that they make.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.read += bytes.len() as u64;
        self.serve();
    }

    pub(crate) fn method(&mut self, channel: u16, class: AMQPClass) {
        self.methods(channel, [class]);
    }

    /// Several methods in one read.
    pub(crate) fn methods(&mut self, channel: u16, classes: impl IntoIterator<Item = AMQPClass>) {
        let mut bytes = BytesMut::new();
        for class in classes {
            method::write_method(&mut bytes, channel, &class);
        }
        self.bytes(&bytes);
    }

    pub(crate) fn publish(&mut self, channel: u16, exchange: &str, key: &str, body: &[u8]) {
        let mut bytes = BytesMut::new();
        wire::publish::write(&mut bytes, channel, exchange, key, false, &[0, 0], body, 131_072);
        self.bytes(&bytes);
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.session.on_event(event);
        self.serve();
    }

    /// A delivery of message `seq` of queue 1.
    pub(crate) fn deliver(&mut self, channel: u16, consumer: ConsumerId, seq: u64) {
        self.event(Event::Deliver(delivery(channel, Some(consumer), seq, b"hello")));
    }

    pub(crate) fn tick(&mut self, now: u64) {
        self.session.on_tick(now, self.read, true);
        self.serve();
    }

    fn serve(&mut self) {
        while let Some(request) = self.session.next_request(&mut self.input) {
            if let Request::Publish(Publish { channel, .. }) = &request {
                let channel = *channel;
                self.requests.push(request);
                if let Some(error) = self.refuse_publish.clone() {
                    self.session.on_publish_refused(channel, error);
                }
                continue;
            }
            if !request.is_answered() {
                self.requests.push(request);
                continue;
            }
            let reply =
                if self.replies.is_empty() { self.obey(&request) } else { self.replies.remove(0) };
            self.requests.push(request);
            self.session.on_reply(reply);
        }
        let bytes = self.session.output_bytes();
        self.session.on_written(bytes.len(), |_| {});
        self.output.extend_from_slice(&bytes);
    }

    fn obey(&mut self, request: &Request) -> Reply {
        match request {
            Request::Authenticate { .. } => Reply::Authenticated { user: "guest".to_owned() },
            Request::QueueDeclare(declare) => Reply::QueueDeclared {
                queue: match declare.queue.as_str() {
                    "" => "amq.gen-1".to_owned(),
                    name => name.to_owned(),
                },
                messages: 0,
                consumers: 0,
            },
            Request::QueuePurge { .. } | Request::QueueDelete { .. } => Reply::Count(3),
            Request::Consume(_) => {
                self.next_consumer += 1;
                Reply::Consuming { consumer: ConsumerId(self.next_consumer - 1), queue: QueueId(1) }
            }
            Request::Get { .. } => Reply::Got(None),
            _ => Reply::Done,
        }
    }

    /// What the client has received since it looked last.
    pub(crate) fn take(&mut self) -> Vec<Got> {
        let mut frames = Vec::new();
        while let Some(Frame { kind, channel, payload }) =
            frame::decode(&mut self.output, 0).expect("the session writes frames")
        {
            frames.push(match kind {
                Kind::Method => Got::Method(
                    channel,
                    method::parse(&payload).expect("the session writes methods"),
                ),
                Kind::Header => {
                    let header = ContentHeader::parse(&payload).unwrap();
                    Got::Header(channel, header.body_size, header.properties.to_vec())
                }
                Kind::Body => Got::Body(channel, payload.to_vec()),
                Kind::Heartbeat => Got::Heartbeat,
            });
        }
        assert!(self.output.is_empty(), "half a frame was written");
        frames
    }

    /// Raw bytes instead.
    pub(crate) fn take_bytes(&mut self) -> Vec<u8> {
        self.output.split().to_vec()
    }

    /// The one method that has come, and nothing else.
    pub(crate) fn take_method(&mut self, channel: u16) -> AMQPClass {
        let frames = self.take();
        match <[Got; 1]>::try_from(frames) {
            Ok([Got::Method(number, method)]) if number == channel => method,
            Ok([frame]) => panic!("not a method on channel {channel}: {frame:?}"),
            Err(frames) => panic!("not one frame: {frames:?}"),
        }
    }

    /// Expects that the channel was closed.
    #[track_caller]
    pub(crate) fn expect_channel_close(&mut self, channel: u16, code: u16, text: &str) {
        match self.take_method(channel) {
            AMQPClass::Channel(channel::AMQPMethod::Close(close)) => {
                assert_eq!((close.reply_code, close.reply_text.as_str()), (code, text));
            }
            other => panic!("not closed: {other:?}"),
        }
    }

    /// Expects that the connection was closed, last.
    #[track_caller]
    pub(crate) fn expect_close(&mut self, code: u16, text: &str) {
        match self.take().pop() {
            Some(Got::Method(0, AMQPClass::Connection(connection::AMQPMethod::Close(close)))) => {
                assert_eq!((close.reply_code, close.reply_text.as_str()), (code, text));
            }
            other => panic!("not closed: {other:?}"),
        }
    }

    /// Subscribes on channel 1 to `q`; the consumer's id.
    pub(crate) fn consume(&mut self, tag: &str, no_ack: bool) -> ConsumerId {
        self.take();
        self.method(1, consume("q", tag, no_ack));
        let got = self.take_method(1);
        assert!(
            matches!(got, AMQPClass::Basic(basic::AMQPMethod::ConsumeOk(_))),
            "not subscribed: {got:?}"
        );
        ConsumerId(self.next_consumer - 1)
    }

    /// The settlements that were asked for, as (tags' seqs, outcome).
    pub(crate) fn settlements(&mut self) -> Vec<(Vec<u64>, amqp::request::Outcome)> {
        self.requests
            .drain(..)
            .filter_map(|request| match request {
                Request::Settle { unsettled, outcome, .. } => {
                    Some((unsettled.iter().map(|held| held.seq.0).collect(), outcome))
                }
                _ => None,
            })
            .collect()
    }
}

pub(crate) fn delivery(
    channel: u16,
    consumer: Option<ConsumerId>,
    seq: u64,
    body: &[u8],
) -> Delivery {
    Delivery {
        channel,
        consumer,
        queue: QueueId(1),
        seq: Seq(seq),
        redelivered: false,
        message: Message::from_parts("x", "k", &[0, 0], body),
    }
}

pub(crate) fn capabilities() -> FieldTable {
    let mut capabilities = FieldTable::default();
    for name in ["consumer_cancel_notify", "connection.blocked", "authentication_failure_close"] {
        capabilities.insert(name.into(), AMQPValue::Boolean(true));
    }
    let mut table = FieldTable::default();
    table.insert("capabilities".into(), AMQPValue::FieldTable(capabilities));
    table
}

pub(crate) fn start_ok(properties: &FieldTable) -> AMQPClass {
    AMQPClass::Connection(connection::AMQPMethod::StartOk(connection::StartOk {
        client_properties: properties.clone(),
        mechanism: "PLAIN".into(),
        response: "\0guest\0guest".into(),
        locale: "en_US".into(),
    }))
}

pub(crate) fn tune_ok(channel_max: u16, frame_max: u32, heartbeat: u16) -> AMQPClass {
    AMQPClass::Connection(connection::AMQPMethod::TuneOk(connection::TuneOk {
        channel_max,
        frame_max,
        heartbeat,
    }))
}

pub(crate) fn open(vhost: &str) -> AMQPClass {
    AMQPClass::Connection(connection::AMQPMethod::Open(connection::Open {
        virtual_host: vhost.into(),
    }))
}

pub(crate) fn consume(queue: &str, tag: &str, no_ack: bool) -> AMQPClass {
    AMQPClass::Basic(basic::AMQPMethod::Consume(basic::Consume {
        queue: queue.into(),
        consumer_tag: tag.into(),
        no_ack,
        ..basic::Consume::default()
    }))
}

pub(crate) fn ack(tag: u64, multiple: bool) -> AMQPClass {
    AMQPClass::Basic(basic::AMQPMethod::Ack(basic::Ack { delivery_tag: tag, multiple }))
}

pub(crate) fn nack(tag: u64, multiple: bool, requeue: bool) -> AMQPClass {
    AMQPClass::Basic(basic::AMQPMethod::Nack(basic::Nack { delivery_tag: tag, multiple, requeue }))
}

pub(crate) fn close_ok() -> AMQPClass {
    AMQPClass::Channel(channel::AMQPMethod::CloseOk(channel::CloseOk {}))
}

pub(crate) fn confirm_select() -> AMQPClass {
    use amq_protocol::protocol::confirm;
    AMQPClass::Confirm(confirm::AMQPMethod::Select(confirm::Select { nowait: false }))
}
