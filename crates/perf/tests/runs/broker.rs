//! A broker with queues of one consumer and no memory: whatever is published is delivered at once.

use amq_protocol::protocol::channel::{self, AMQPMethod as Channel};
use amq_protocol::protocol::confirm::{AMQPMethod as Confirm, SelectOk};
use amq_protocol::protocol::connection::{self, AMQPMethod as Connection};
use amq_protocol::protocol::queue::{self, AMQPMethod as Queue};
use amq_protocol::protocol::{AMQPClass, basic};
use amq_protocol::types::{AMQPValue, FieldTable};
use basic::AMQPMethod as Basic;
use bytes::{Buf as _, BytesMut};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use wire::ack::{self, Settlement};
use wire::deliver::{self, Deliver};
use wire::frame::{self, Kind};
use wire::output::Output;
use wire::publish::{self, WholePublish};
use wire::{content, method};

/// What the broker does wrong, with the hundredth message of each publisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    Lose,
    Double,
    /// Delivers it after the next one.
    Swap,
    /// Neither delivers nor confirms it.
    NoConfirm,
    Close,
    WrongConfirm,
    /// Reads nothing any more once a message has come.
    Deaf,
}

pub(crate) struct Broker {
    port: u16,
}

#[derive(Default)]
struct Consumers {
    queues: BTreeMap<String, (TcpStream, u64)>,
}

impl Broker {
    pub(crate) fn start(fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let consumers = Arc::new(Mutex::new(Consumers::default()));
        // ends with the process: the listener has no other way to be told
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), consumers) = (stream, Arc::clone(&consumers)) else { return };
                std::thread::spawn(move || {
                    // a client that goes away is not this thread's business
                    drop(Session { fault, stream, consumers, confirms: false, count: 0 }.serve());
                });
            }
        });
        Self { port }
    }

    pub(crate) fn uri(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2f", self.port)
    }
}

struct Session {
    fault: Fault,
    stream: TcpStream,
    consumers: Arc<Mutex<Consumers>>,
    confirms: bool,
    count: u64,
}

impl Session {
    fn serve(mut self) -> std::io::Result<()> {
        let mut greeting = [0; frame::PROTOCOL_HEADER_LEN];
        self.stream.read_exact(&mut greeting)?;
        let mut properties = FieldTable::default();
        properties.insert("product".into(), AMQPValue::LongString("fake".into()));
        properties.insert("version".into(), AMQPValue::LongString("1".into()));
        let start = connection::Start {
            version_major: 0,
            version_minor: 9,
            server_properties: properties,
            mechanisms: "PLAIN".into(),
            locales: "en_US".into(),
        };
        self.answer(0, &AMQPClass::Connection(Connection::Start(start)))?;
        let mut buffer = BytesMut::new();
        let mut bytes = vec![0; 256 * 1024];
        let mut held: Vec<WholePublish> = Vec::new();
        let mut large: Option<content::Assembly> = None;
        let mut begun: Option<Vec<u8>> = None;
        loop {
            let length = self.stream.read(&mut bytes)?;
            if length == 0 {
                return Ok(());
            }
            buffer.extend_from_slice(&bytes[..length]);
            let mut publishes = std::mem::take(&mut held);
            let confirmed = publishes.len() as u64;
            loop {
                if begun.is_none()
                    && let Some(whole) = publish::decode_whole(&mut buffer, 0)
                {
                    publishes.push(whole);
                    continue;
                }
                let Some(frame) = frame::decode(&mut buffer, 0).unwrap() else { break };
                match frame.kind {
                    Kind::Method if method::ids(&frame.payload) == Some(publish::IDS) => {
                        begun = Some(frame.payload.to_vec());
                    }
                    Kind::Method => {
                        if ack::parse(&frame.payload).is_none() {
                            self.on_method(frame.channel, &frame.payload)?;
                        }
                    }
                    Kind::Header => {
                        let method = publish::parse(begun.as_deref().unwrap()).unwrap();
                        let header = content::ContentHeader::parse(&frame.payload).unwrap();
                        large = Some(content::Assembly::new(&method, &header));
                    }
                    Kind::Body => {
                        let mut assembly = large.take().unwrap();
                        assembly.push(&frame.payload).unwrap();
                        if assembly.is_complete() {
                            begun = None;
                            publishes.push(WholePublish {
                                channel: 1,
                                mandatory: false,
                                immediate: false,
                                message: assembly.finish(),
                            });
                        } else {
                            large = Some(assembly);
                        }
                    }
                    Kind::Heartbeat => {}
                }
            }
            if !publishes.is_empty() {
                held = self.on_publishes(publishes, confirmed)?;
            }
        }
    }

    /// Delivers and confirms; gives back what is held until the next message comes.
    fn on_publishes(
        &mut self,
        mut publishes: Vec<WholePublish>,
        held: u64,
    ) -> std::io::Result<Vec<WholePublish>> {
        let first = self.count + 1 - held;
        self.count = first - 1 + publishes.len() as u64;
        let mut confirms = BytesMut::new();
        let mut confirm = |delivery_tag, multiple| {
            ack::write(&mut confirms, 1, Settlement::Ack { delivery_tag, multiple });
        };
        let at =
            usize::try_from(100_u64.wrapping_sub(first)).ok().filter(|at| *at < publishes.len());
        let mut back = Vec::new();
        match (self.fault, at) {
            (Fault::Close, Some(_)) => {
                let close = connection::Close {
                    reply_code: 541,
                    reply_text: "INTERNAL_ERROR - fake".into(),
                    class_id: 0,
                    method_id: 0,
                };
                self.answer(0, &AMQPClass::Connection(Connection::Close(close)))?;
            }
            (Fault::WrongConfirm, _) => confirm(9999, false),
            (Fault::Deaf, _) => loop {
                std::thread::park();
            },
            (Fault::NoConfirm, Some(at)) => {
                (first..100).for_each(|tag| confirm(tag, false));
                (101..=self.count).for_each(|tag| confirm(tag, false));
                publishes.remove(at);
            }
            (Fault::NoConfirm, None) => (first..=self.count).for_each(|tag| confirm(tag, false)),
            (Fault::Lose, Some(at)) => {
                publishes.remove(at);
            }
            (Fault::Double, Some(at)) => publishes.insert(at, publishes[at].clone()),
            (Fault::Swap, Some(at)) if at + 1 < publishes.len() => publishes.swap(at, at + 1),
            (Fault::Swap, Some(at)) => back = publishes.split_off(at),
            _ => confirm(self.count, true),
        }
        if self.confirms {
            self.stream.write_all(&confirms)?;
        }
        let mut consumers = self.consumers.lock().unwrap();
        let mut outputs: BTreeMap<String, Output> = BTreeMap::new();
        for whole in &publishes {
            let queue = whole.message.routing_key();
            let Some((_, tag)) = consumers.queues.get_mut(queue) else { continue };
            *tag += 1;
            let deliver = Deliver { consumer_tag: "perf", delivery_tag: *tag, redelivered: false };
            let output = outputs.entry(queue.to_owned()).or_default();
            deliver::write_deliver(output, 1, &deliver, &whole.message, 131_072);
        }
        for (queue, mut output) in outputs {
            let (stream, _) = consumers.queues.get_mut(&queue).unwrap();
            while output.has_remaining() {
                let length = output.chunk().len();
                stream.write_all(output.chunk())?;
                output.advance(length);
            }
        }
        Ok(back)
    }

    fn on_method(&mut self, channel: u16, payload: &[u8]) -> std::io::Result<()> {
        let answer = match method::parse(payload).unwrap() {
            AMQPClass::Connection(Connection::StartOk(_)) => {
                let (channel_max, frame_max, heartbeat) = (2047, 131_072, 60);
                let tune = connection::Tune { channel_max, frame_max, heartbeat };
                AMQPClass::Connection(Connection::Tune(tune))
            }
            AMQPClass::Connection(Connection::Open(_)) => {
                AMQPClass::Connection(Connection::OpenOk(connection::OpenOk {}))
            }
            AMQPClass::Connection(Connection::Close(_)) => {
                AMQPClass::Connection(Connection::CloseOk(connection::CloseOk {}))
            }
            AMQPClass::Channel(Channel::Open(_)) => {
                AMQPClass::Channel(Channel::OpenOk(channel::OpenOk {}))
            }
            AMQPClass::Confirm(Confirm::Select(_)) => {
                self.confirms = true;
                AMQPClass::Confirm(Confirm::SelectOk(SelectOk {}))
            }
            AMQPClass::Queue(Queue::Declare(declare)) => {
                AMQPClass::Queue(Queue::DeclareOk(queue::DeclareOk {
                    queue: declare.queue,
                    message_count: 0,
                    consumer_count: 0,
                }))
            }
            AMQPClass::Queue(Queue::Purge(_)) => {
                AMQPClass::Queue(Queue::PurgeOk(queue::PurgeOk { message_count: 0 }))
            }
            AMQPClass::Queue(Queue::Delete(_)) => {
                AMQPClass::Queue(Queue::DeleteOk(queue::DeleteOk { message_count: 0 }))
            }
            AMQPClass::Basic(Basic::Qos(_)) => AMQPClass::Basic(Basic::QosOk(basic::QosOk {})),
            AMQPClass::Basic(Basic::Consume(consume)) => {
                let stream = self.stream.try_clone()?;
                let mut consumers = self.consumers.lock().unwrap();
                consumers.queues.insert(consume.queue.to_string(), (stream, 0));
                let consumer_tag = consume.consumer_tag;
                AMQPClass::Basic(Basic::ConsumeOk(basic::ConsumeOk { consumer_tag }))
            }
            _ => return Ok(()),
        };
        self.answer(channel, &answer)
    }

    fn answer(&mut self, channel: u16, class: &AMQPClass) -> std::io::Result<()> {
        let mut out = BytesMut::new();
        method::write_method(&mut out, channel, class);
        self.stream.write_all(&out)
    }
}
