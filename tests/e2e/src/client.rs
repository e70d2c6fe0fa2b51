//! A blocking AMQP client that hides nothing.
//!
//! It reads frames only while a call waits. What is not awaited stays in the inbox of its channel,
//! in order, so a test may look at answers, deliveries and confirms in the order it likes.

pub mod basic;
pub mod confirms;
pub mod connect;
pub mod topology;

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::codec::{Reader, Writer, frame};
use crate::content::Properties;
use crate::wait::PATIENCE;

/// A method frame.
pub const METHOD: u8 = 1;
/// A content header frame.
pub const HEADER: u8 = 2;
/// A content body frame.
pub const BODY: u8 = 3;
/// A heartbeat frame.
pub const HEARTBEAT: u8 = 8;

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// `channel.close`, as received.
    Channel {
        /// Reply code.
        code: u16,
        /// Reply text.
        text: String,
        /// Class and method that caused it.
        cause: (u16, u16),
    },
    /// `connection.close`, as received.
    Connection {
        /// Reply code.
        code: u16,
        /// Reply text.
        text: String,
        /// Class and method that caused it.
        cause: (u16, u16),
    },
    /// The socket was closed without a word.
    Disconnected,
    /// Nothing of the kind came in time.
    Timeout,
    /// Bytes that are no frames.
    Malformed(String),
}

impl Failure {
    /// Reply code and text, if there are any.
    pub fn reply(&self) -> Option<(u16, &str)> {
        match self {
            Self::Channel { code, text, .. } | Self::Connection { code, text, .. } => {
                Some((*code, text))
            }
            Self::Disconnected | Self::Timeout | Self::Malformed(_) => None,
        }
    }
}

impl From<crate::codec::Malformed> for Failure {
    fn from(malformed: crate::codec::Malformed) -> Self {
        Self::Malformed(malformed.to_string())
    }
}

/// Result of a call.
pub type Outcome<T> = Result<T, Failure>;

/// A method that came in, with its content if it has any.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Class and method number.
    pub id: (u16, u16),
    /// The arguments after the two numbers.
    pub arguments: Vec<u8>,
    /// Properties and body.
    pub content: Option<(Properties, Vec<u8>)>,
}

/// A frame as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// 1 method, 2 header, 3 body, 8 heartbeat.
    pub kind: u8,
    /// Channel number.
    pub channel: u16,
    /// Without header and end octet.
    pub payload: Vec<u8>,
}

/// A connection to the broker.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    input: Vec<u8>,
    consumed: usize,
    output: Vec<u8>,
    inbox: BTreeMap<u16, VecDeque<Event>>,
    partial: BTreeMap<u16, (Event, u64)>,
    channel_failures: BTreeMap<u16, Failure>,
    failure: Option<Failure>,
    /// How long a call waits for its answer.
    pub patience: Duration,
    /// Whether `close` methods of the broker are answered at once (they are by default).
    pub answers_close: bool,
    /// The frame size agreed on.
    pub frame_max: u32,
    /// The largest frame that came in, header and end octet included.
    pub largest_frame: usize,
    /// `server_properties` of `connection.start`.
    pub server_properties: crate::codec::Table,
    /// Heartbeat frames that came in.
    pub heartbeats: usize,
}

impl Client {
    fn over(stream: TcpStream) -> Self {
        Self {
            stream,
            input: Vec::new(),
            consumed: 0,
            output: Vec::new(),
            inbox: BTreeMap::new(),
            partial: BTreeMap::new(),
            channel_failures: BTreeMap::new(),
            failure: None,
            patience: PATIENCE,
            answers_close: true,
            frame_max: 8192,
            largest_frame: 0,
            server_properties: crate::codec::Table::default(),
            heartbeats: 0,
        }
    }

    /// The socket, for tests that break it.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Writes bytes now, whatever they are.
    pub fn write(&mut self, bytes: &[u8]) -> Outcome<()> {
        self.output.extend_from_slice(bytes);
        self.flush()
    }

    /// Writes what is buffered.
    pub fn flush(&mut self) -> Outcome<()> {
        let output = std::mem::take(&mut self.output);
        if output.is_empty() {
            return Ok(());
        }
        let error = match self.stream.write_all(&output) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) {
            // A part of it is gone, so nothing that follows would be understood.
            self.failure = Some(Failure::Timeout);
            return Err(Failure::Timeout);
        }
        // The broker may have said why before it closed; the next read will tell.
        if let Some(failure) = &self.failure { Err(failure.clone()) } else { Ok(()) }
    }

    /// Buffers bytes; they leave with the next call that waits, or when there are many.
    pub fn buffer(&mut self, bytes: &[u8]) -> Outcome<()> {
        self.output.extend_from_slice(bytes);
        if self.output.len() >= 64 * 1024 { self.flush() } else { Ok(()) }
    }

    /// Sends a method without waiting for anything.
    pub fn send(&mut self, channel: u16, method: &Writer) -> Outcome<()> {
        self.buffer(&method.frame(METHOD, channel))
    }

    /// Sends a method and waits for the answer `wanted`.
    pub fn call(&mut self, channel: u16, method: &Writer, wanted: (u16, u16)) -> Outcome<Event> {
        self.send(channel, method)?;
        self.await_event(channel, |event| event.id == wanted)
    }

    /// Waits for the first event of the channel that `wanted` accepts; others stay.
    pub fn await_event(&mut self, channel: u16, wanted: impl Fn(&Event) -> bool) -> Outcome<Event> {
        let deadline = Instant::now() + self.patience;
        self.flush()?;
        let mut seen = 0;
        loop {
            let inbox = self.inbox.entry(channel).or_default();
            if let Some(index) = inbox.iter().skip(seen).position(&wanted) {
                return Ok(inbox.remove(seen + index).expect("position found it"));
            }
            seen = inbox.len();
            if let Some(failure) = self.channel_failures.remove(&channel) {
                return Err(failure);
            }
            if let Some(failure) = &self.failure {
                return Err(failure.clone());
            }
            self.step(deadline)?;
        }
    }

    /// Takes from the inbox without reading more.
    pub fn take_event(&mut self, channel: u16, wanted: impl Fn(&Event) -> bool) -> Option<Event> {
        let inbox = self.inbox.entry(channel).or_default();
        let index = inbox.iter().position(wanted)?;
        inbox.remove(index)
    }

    /// The ids of the events that wait for channel, in order.
    pub fn waiting(&self, channel: u16) -> Vec<(u16, u16)> {
        self.inbox.get(&channel).map(|q| q.iter().map(|e| e.id).collect()).unwrap_or_default()
    }

    /// Reads until the broker closes the connection or the channel, and says how.
    pub fn await_failure(&mut self, channel: u16) -> Failure {
        match self.await_event(channel, |_| false) {
            Err(failure) => failure,
            Ok(event) => unreachable!("no event is accepted, got {event:?}"),
        }
    }

    /// How the broker closed this channel, if it did; does not read.
    pub fn channel_failure(&mut self, channel: u16) -> Option<Failure> {
        self.channel_failures.remove(&channel)
    }

    /// Reads for as long as bytes come at once; for tests that must not wait.
    pub fn drain(&mut self) {
        self.flush().ok();
        let soon = || Instant::now() + Duration::from_millis(1);
        while self.failure.is_none() && self.step(soon()).is_ok() {}
    }

    /// Reads one frame and files it.
    fn step(&mut self, deadline: Instant) -> Outcome<()> {
        let frame = match self.read_frame(deadline) {
            Ok(frame) => frame,
            Err(Failure::Timeout) => return Err(Failure::Timeout),
            Err(failure) => {
                self.failure = Some(failure.clone());
                return Err(failure);
            }
        };
        if let Err(malformed) = self.file(&frame) {
            let failure = Failure::from(malformed);
            self.failure = Some(failure.clone());
            return Err(failure);
        }
        Ok(())
    }

    fn file(&mut self, frame: &Frame) -> Result<(), crate::codec::Malformed> {
        let channel = frame.channel;
        match frame.kind {
            METHOD => {
                let mut reader = Reader(&frame.payload);
                let id = (reader.u16()?, reader.u16()?);
                let event = Event { id, arguments: reader.0.to_vec(), content: None };
                match id {
                    (10, 50) => {
                        self.failure = Some(closed(&event.arguments, true)?);
                        if self.answers_close {
                            self.write(&Writer::method(10, 51).frame(METHOD, 0)).ok();
                        }
                    }
                    (20, 40) => {
                        self.channel_failures.insert(channel, closed(&event.arguments, false)?);
                        if self.answers_close {
                            self.write(&Writer::method(20, 41).frame(METHOD, channel)).ok();
                        }
                    }
                    (60, 50 | 60 | 71) => {
                        self.partial.insert(channel, (event, 0));
                    }
                    _ => self.inbox.entry(channel).or_default().push_back(event),
                }
            }
            HEADER => {
                let mut reader = Reader(&frame.payload);
                reader.raw(4)?;
                let size = reader.u64()?;
                let properties = Properties::decode(&mut reader)?;
                let (event, missing) = self
                    .partial
                    .get_mut(&channel)
                    .ok_or(crate::codec::Malformed("stray header"))?;
                event.content = Some((properties, Vec::new()));
                *missing = size;
                self.finish(channel);
            }
            BODY => {
                let (event, missing) =
                    self.partial.get_mut(&channel).ok_or(crate::codec::Malformed("stray body"))?;
                let (_, body) =
                    event.content.as_mut().ok_or(crate::codec::Malformed("body before header"))?;
                body.extend_from_slice(&frame.payload);
                *missing = missing
                    .checked_sub(frame.payload.len() as u64)
                    .ok_or(crate::codec::Malformed("body longer than its header says"))?;
                self.finish(channel);
            }
            HEARTBEAT => self.heartbeats += 1,
            _ => return Err(crate::codec::Malformed("unknown frame type")),
        }
        Ok(())
    }

    fn finish(&mut self, channel: u16) {
        if self.partial.get(&channel).is_some_and(|(_, missing)| *missing == 0)
            && let Some((event, _)) = self.partial.remove(&channel)
        {
            self.inbox.entry(channel).or_default().push_back(event);
        }
    }

    /// Reads one frame, past everything this client usually does with it.
    pub fn read_frame(&mut self, deadline: Instant) -> Outcome<Frame> {
        self.fill(7, deadline)?;
        let head = self.input.get(self.consumed..self.consumed + 7).expect("filled");
        let mut reader = Reader(head);
        let kind = reader.u8()?;
        let channel = reader.u16()?;
        let size = reader.u32()? as usize;
        self.fill(size + 8, deadline)?;
        let start = self.consumed + 7;
        let payload = self.input.get(start..start + size).expect("filled").to_vec();
        if self.input.get(start + size) != Some(&0xCE) {
            return Err(Failure::Malformed("frame end octet is missing".into()));
        }
        self.consumed += size + 8;
        self.largest_frame = self.largest_frame.max(size + 8);
        Ok(Frame { kind, channel, payload })
    }

    /// Reads raw bytes, for what comes before frames or instead of them.
    pub fn read_bytes(&mut self, count: usize) -> Outcome<Vec<u8>> {
        self.flush()?;
        self.fill(count, Instant::now() + self.patience)?;
        let bytes = self.input.get(self.consumed..self.consumed + count).expect("filled").to_vec();
        self.consumed += count;
        Ok(bytes)
    }

    /// Makes `count` unread bytes available.
    fn fill(&mut self, count: usize, deadline: Instant) -> Outcome<()> {
        if self.consumed > 256 * 1024 {
            self.input.drain(..self.consumed);
            self.consumed = 0;
        }
        while self.input.len() - self.consumed < count {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Failure::Timeout);
            }
            self.stream.set_read_timeout(Some(left)).map_err(|_| Failure::Disconnected)?;
            let mut buffer = [0; 16 * 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(Failure::Disconnected),
                Ok(read) => self.input.extend_from_slice(buffer.get(..read).expect("within")),
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                Err(_) => return Err(Failure::Disconnected),
            }
        }
        Ok(())
    }

    /// A content of one message as frames: header, then bodies of at most `frame_max`.
    pub fn content_frames(
        &self,
        channel: u16,
        properties: &Properties,
        body: &[u8],
        out: &mut Vec<u8>,
    ) {
        let header =
            Writer::default().u16(60).u16(0).u64(body.len() as u64).raw(&properties.encode());
        out.extend(header.frame(HEADER, channel));
        for piece in body.chunks(self.frame_max as usize - 8) {
            out.extend(frame(BODY, channel, piece));
        }
    }
}

fn closed(arguments: &[u8], connection: bool) -> Result<Failure, crate::codec::Malformed> {
    let mut reader = Reader(arguments);
    let (code, text) = (reader.u16()?, reader.short()?);
    let cause = (reader.u16()?, reader.u16()?);
    Ok(if connection {
        Failure::Connection { code, text, cause }
    } else {
        Failure::Channel { code, text, cause }
    })
}

/// A reply text as it arrives: a short string of at most 255 bytes, its end cut off with dots.
pub fn reply_text(text: &str) -> String {
    if text.len() <= 255 {
        text.to_owned()
    } else {
        format!("{}...", text.get(..252).unwrap_or(text))
    }
}

/// Asserts that the call was refused with `channel.close`, this code and this text.
#[track_caller]
pub fn assert_channel_error<T: std::fmt::Debug>(outcome: Outcome<T>, code: u16, text: &str) {
    match outcome {
        Err(Failure::Channel { code: seen_code, text: seen, .. }) => {
            assert_eq!((seen_code, seen.as_str()), (code, text));
        }
        other => panic!("expected channel error {code} {text:?}, got {other:?}"),
    }
}

/// Asserts that the call was refused with `connection.close`, this code and this text.
#[track_caller]
pub fn assert_connection_error<T: std::fmt::Debug>(outcome: Outcome<T>, code: u16, text: &str) {
    match outcome {
        Err(Failure::Connection { code: seen_code, text: seen, .. }) => {
            assert_eq!((seen_code, seen.as_str()), (code, text));
        }
        other => panic!("expected connection error {code} {text:?}, got {other:?}"),
    }
}
