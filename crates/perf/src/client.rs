//! One connection to a broker: handshake, calls, and the turn that moves bytes.
//!
//! A client lives on a thread of its own, in a single-threaded runtime. It fills
//! [`Client::output`], takes a [`Client::turn`], reads what [`Client::input`] holds, and so on.

use amq_protocol::protocol::basic::AMQPMethod as Basic;
use amq_protocol::protocol::channel::{self, AMQPMethod as Channel};
use amq_protocol::protocol::connection::{self, AMQPMethod as Connection};
use amq_protocol::protocol::{AMQPClass, basic};
use amq_protocol::types::{AMQPValue, FieldTable};
use amq_protocol::uri::{AMQPScheme, AMQPUri};
use anyhow::{Context as _, Result, anyhow, bail};
use bytes::{Buf, BytesMut};
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use wire::frame::{self, FrameRef, Kind};
use wire::method;

/// Large enough for several frames of [`FRAME_MAX`], and for what a socket buffer holds.
const INPUT_LEN: usize = 1 << 20;
/// The largest frames that we ask for.
const FRAME_MAX: u32 = 131_072;
/// How often a waiting client looks at the clock and at the flags of its run.
const TICK: Duration = Duration::from_millis(10);
/// How long connecting and each call may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The channel that every client uses.
pub const CHANNEL: u16 = 1;

/// A connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// What the next turn sends.
    pub output: BytesMut,
    /// Negotiated; never 0.
    pub frame_max: u32,
    heartbeat: Option<Duration>,
    sent_at: Instant,
    received_at: Instant,
    tick: Pin<Box<Sleep>>,
    /// Product and version, as the broker gives them.
    pub server: String,
    /// The reason, while the broker blocks publishers.
    pub blocked: Option<String>,
}

/// A method that the broker sent without being asked.
#[derive(Debug)]
pub enum Notice {
    /// `connection.blocked` or `unblocked`; [`Client::blocked`] has changed.
    Blocked,
    /// `basic.return`; its content follows.
    Returned(basic::Return),
    /// Anything else.
    Other(AMQPClass),
}

impl Client {
    /// Connects, logs in, opens the virtual host and one channel.
    ///
    /// # Errors
    /// Whatever goes wrong, for people.
    pub async fn connect(uri: &str, name: &str, heartbeat: Option<u16>) -> Result<Self> {
        let uri: AMQPUri = uri.parse().map_err(|error| anyhow!("bad URI {uri:?}: {error}"))?;
        if uri.scheme == AMQPScheme::AMQPS {
            bail!("amqps is not supported: measure without TLS");
        }
        let address = (uri.authority.host.as_str(), uri.authority.port);
        let stream = tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await;
        let stream = stream
            .map_err(anyhow::Error::from)
            .and_then(|stream| Ok(stream?))
            .with_context(|| format!("cannot connect to {}:{}", address.0, address.1))?;
        // socket buffers are left to the kernel: on Linux a fixed size ends their growing, and is
        // limited to less than they grow to
        stream.set_nodelay(true)?;
        let mut client = Self {
            stream,
            input: vec![0; INPUT_LEN],
            start: 0,
            end: 0,
            output: BytesMut::new(),
            frame_max: FRAME_MAX,
            heartbeat: None,
            sent_at: Instant::now(),
            received_at: Instant::now(),
            tick: Box::pin(tokio::time::sleep(TICK)),
            server: String::new(),
            blocked: None,
        };
        client.output.extend_from_slice(&frame::PROTOCOL_HEADER);
        client.log_in(&uri, name, heartbeat).await?;
        client.call(CHANNEL, AMQPClass::Channel(Channel::Open(channel::Open {}))).await?;
        Ok(client)
    }

    async fn log_in(&mut self, uri: &AMQPUri, name: &str, heartbeat: Option<u16>) -> Result<()> {
        let AMQPClass::Connection(Connection::Start(start)) = self.answer(0).await? else {
            bail!("the broker did not begin with connection.start");
        };
        let text = |key: &str| match start.server_properties.inner().get(key) {
            Some(AMQPValue::LongString(text)) => text.to_string(),
            _ => "?".to_owned(),
        };
        // Leveret calls itself RabbitMQ, for clients that choose features by that name.
        self.server = match text("leveret_version").as_str() {
            "?" => format!("{} {}", text("product"), text("version")),
            own => format!("Leveret {own}"),
        };
        let user = &uri.authority.userinfo;
        let start_ok = connection::StartOk {
            client_properties: client_properties(name),
            mechanism: "PLAIN".into(),
            response: format!("\0{}\0{}", user.username, user.password).into_bytes().into(),
            locale: "en_US".into(),
        };
        let answer = self.call(0, AMQPClass::Connection(Connection::StartOk(start_ok))).await?;
        let AMQPClass::Connection(Connection::Tune(tune)) = answer else {
            bail!("the broker did not go on with connection.tune");
        };
        let heartbeat = heartbeat.unwrap_or(tune.heartbeat);
        if tune.frame_max != 0 {
            self.frame_max = tune.frame_max.min(FRAME_MAX);
        }
        let tune_ok = connection::TuneOk {
            channel_max: tune.channel_max,
            frame_max: self.frame_max,
            heartbeat,
        };
        self.send(0, &AMQPClass::Connection(Connection::TuneOk(tune_ok)));
        self.heartbeat = (heartbeat > 0).then(|| Duration::from_secs(heartbeat.into()));
        let open = connection::Open { virtual_host: uri.vhost.as_str().into() };
        self.call(0, AMQPClass::Connection(Connection::Open(open))).await?;
        Ok(())
    }

    /// Appends a method to the output.
    pub fn send(&mut self, channel: u16, class: &AMQPClass) {
        method::write_method(&mut self.output, channel, class);
    }

    /// Sends a method and waits for the next one of the same channel.
    ///
    /// # Errors
    /// If the broker closes channel or connection, or does not answer.
    pub async fn call(&mut self, channel: u16, class: AMQPClass) -> Result<AMQPClass> {
        self.send(channel, &class);
        self.answer(channel).await
    }

    async fn answer(&mut self, channel: u16) -> Result<AMQPClass> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            while let Some(frame) = frame::peek(&self.input[self.start..self.end], self.frame_max)?
            {
                let (kind, from, length) = (frame.kind, frame.channel, frame.len());
                let payload = frame.payload.to_vec();
                self.start += length;
                if kind == Kind::Method
                    && let Notice::Other(class) = self.on_method(&payload)?
                    && from == channel
                {
                    return Ok(class);
                }
            }
            if Instant::now() > deadline {
                bail!("no answer from the broker within {} s", PATIENCE.as_secs());
            }
            self.turn(None).await?;
        }
    }

    /// Reads a method that is not the caller's own business.
    ///
    /// # Errors
    /// If it closes the channel or the connection, cancels the consumer, or is malformed.
    pub fn on_method(&mut self, payload: &[u8]) -> Result<Notice> {
        match method::parse(payload)? {
            AMQPClass::Connection(Connection::Close(close)) => {
                bail!("the broker closed the connection: {} {}", close.reply_code, close.reply_text)
            }
            AMQPClass::Channel(Channel::Close(close)) => {
                bail!("the broker closed the channel: {} {}", close.reply_code, close.reply_text)
            }
            AMQPClass::Basic(Basic::Cancel(cancel)) => {
                bail!("the broker cancelled consumer {}", cancel.consumer_tag)
            }
            AMQPClass::Connection(Connection::Blocked(blocked)) => {
                self.blocked = Some(blocked.reason.to_string());
                Ok(Notice::Blocked)
            }
            AMQPClass::Connection(Connection::Unblocked(_)) => {
                self.blocked = None;
                Ok(Notice::Blocked)
            }
            AMQPClass::Basic(Basic::Return(returned)) => Ok(Notice::Returned(returned)),
            other => Ok(Notice::Other(other)),
        }
    }

    /// What has arrived and not been [consumed](Client::consumed), beside the output.
    pub fn input(&mut self) -> (&[u8], &mut BytesMut) {
        (&self.input[self.start..self.end], &mut self.output)
    }

    /// The first frame that has arrived whole, copied; for frames that are not many.
    ///
    /// # Errors
    /// If the bytes are no frame.
    pub fn next_frame(&mut self) -> Result<Option<(Kind, Vec<u8>)>> {
        let Some(FrameRef { kind, payload, .. }) =
            frame::peek(&self.input[self.start..self.end], self.frame_max)?
        else {
            return Ok(None);
        };
        let payload = payload.to_vec();
        self.start += payload.len() + frame::OVERHEAD;
        Ok(Some((kind, payload)))
    }

    /// Removes `count` bytes from the front of the input.
    pub fn consumed(&mut self, count: usize) {
        self.start += count;
    }

    /// Waits until bytes were sent or received, the time `until` has come, or a tick has passed.
    ///
    /// # Errors
    /// If the connection is lost, or the broker has been silent for two heartbeats.
    pub async fn turn(&mut self, until: Option<Instant>) -> Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.input.len() {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if let Some(until) = until
            && self.tick.deadline().into_std() > until
        {
            self.tick.as_mut().reset(until.into());
        }
        let (mut sent, mut received, mut ticked) = (0, None, false);
        std::future::poll_fn(|context| {
            if !self.output.is_empty() {
                let stream = Pin::new(&mut self.stream);
                if let Poll::Ready(count) = stream.poll_write(context, &self.output) {
                    sent = count?;
                }
            }
            let mut free = ReadBuf::new(&mut self.input[self.end..]);
            if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(context, &mut free) {
                read?;
                received = Some(free.filled().len());
            }
            ticked = self.tick.as_mut().poll(context).is_ready();
            if sent == 0 && received.is_none() && !ticked {
                return Poll::Pending;
            }
            Poll::Ready(std::io::Result::Ok(()))
        })
        .await
        .context("the connection is lost")?;
        if sent > 0 {
            self.output.advance(sent);
            self.sent_at = Instant::now();
        }
        match received {
            Some(0) => bail!("the broker closed the connection without a word"),
            Some(count) => {
                self.end += count;
                self.received_at = Instant::now();
            }
            None => {}
        }
        if ticked {
            self.tick.as_mut().reset(tokio::time::Instant::now() + TICK);
            self.beat()?;
        }
        Ok(())
    }

    fn beat(&mut self) -> Result<()> {
        let Some(interval) = self.heartbeat else { return Ok(()) };
        if self.output.is_empty() && self.sent_at.elapsed() >= interval / 2 {
            self.output.extend_from_slice(&frame::HEARTBEAT);
        }
        let silence = self.received_at.elapsed();
        if silence > interval * 2 + Duration::from_secs(1) {
            bail!("the broker has been silent for {} s", silence.as_secs());
        }
        Ok(())
    }

    /// Closes the connection properly. What the broker still has to say against what was sent
    /// comes before its answer.
    ///
    /// # Errors
    /// If the broker closes channel or connection on its own; a lost connection is none.
    pub async fn close(mut self) -> Result<()> {
        let close = connection::Close {
            reply_code: 200,
            reply_text: "done".into(),
            class_id: 0,
            method_id: 0,
        };
        self.send(0, &AMQPClass::Connection(Connection::Close(close)));
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            while let Some((kind, payload)) = self.next_frame()? {
                match method::ids(&payload) {
                    Some((10, 51)) if kind == Kind::Method => return Ok(()),
                    Some((10, 50) | (20, 40)) if kind == Kind::Method => {
                        self.on_method(&payload)?;
                    }
                    _ => {}
                }
            }
            if self.turn(None).await.is_err() {
                break;
            }
        }
        Ok(())
    }
}

fn client_properties(name: &str) -> FieldTable {
    let text = |text: &str| AMQPValue::LongString(text.into());
    let mut capabilities = FieldTable::default();
    for capability in [
        "publisher_confirms",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "authentication_failure_close",
    ] {
        capabilities.insert(capability.into(), AMQPValue::Boolean(true));
    }
    let mut properties = FieldTable::default();
    properties.insert("product".into(), text("leveret-perf"));
    properties.insert("version".into(), text(env!("CARGO_PKG_VERSION")));
    properties.insert("platform".into(), text("Rust"));
    properties.insert("connection_name".into(), text(name));
    properties.insert("capabilities".into(), AMQPValue::FieldTable(capabilities));
    properties
}
