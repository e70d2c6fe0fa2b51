//! The machine of one connection: bytes in, requests out; replies and events in, bytes out.
//!
//! ```text
//!            bytes                          requests
//!   client ─────────►  next_request  ─────────────────────►  broker
//!          ◄─────────  output        ◄── on_reply, on_event ──
//!
//!   Greeting ► Starting ► Tuning ► Opening ► Running ► Closing ► Closed
//!                 └──────────┴─────────┴── Lingering ─────────────┘
//! ```
//!
//! Pure: no clock, no entropy, no I/O. The driver sets the time with [`Session::on_tick`], gives
//! what it has read to [`Session::next_request`] until that returns `None`, performs each request
//! before it asks for the next, and writes what [`Session::output`] holds.
//!
//! While an answered request is open, publishers are blocked, or the client leaves too much unread,
//! no further byte is looked at.

mod basic;
mod close;
mod connection;
mod content;
mod event;
mod malformed;
mod method;
mod reply;
mod status;
mod tick;

use crate::channel::{Channels, Slot};
use crate::config::SessionConfig;
use crate::error::code;
use crate::outbox::{Outbox, Written};
use crate::request::{ChannelId, Error, Publish, Reply, Request};
use crate::requests::Requests;
use bytes::{Buf, BytesMut};
use std::sync::Arc;
use wire::frame::{self, FrameError, Greeting, Kind};
use wire::output::Output;

pub use status::{ChannelStatus, ConsumerStatus, SessionStatus};

/// Replies, confirms and returns that may wait to be written before no more input is looked at: one
/// read may hold thousands of `basic.get`, each answered by a large message.
const UNREAD_MAX: u64 = 4 * 1024 * 1024;

/// See the module.
#[derive(Debug)]
pub struct Session {
    config: Arc<SessionConfig>,
    phase: Phase,
    /// Limit for received frames: grows with trust.
    frame_max_in: u32,
    channel_max: u16,
    client: connection::Client,
    channels: Channels,
    requests: Requests,
    waiting: Option<reply::Waiting>,
    outbox: Outbox,
    /// Channels with confirms that are not written yet.
    answering: Vec<ChannelId>,
    /// The highest number of a publish that the broker has got.
    confirm_number: u64,
    alarm: connection::Alarm,
    clock: tick::Clock,
    /// State of the generator of names.
    entropy: u64,
    frames_in: u64,
    /// Why the connection ended, for the log.
    end: Option<String>,
}

/// Where the connection is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The protocol header is expected.
    Greeting,
    /// `start` was sent.
    Starting,
    /// `tune` was sent.
    Tuning,
    /// `tune-ok` was read.
    Opening,
    /// `open-ok` was sent.
    Running,
    /// `close` was sent; `close-ok` is expected.
    Closing,
    /// A login was refused. The socket stays open for a moment, to slow down guessing.
    Lingering,
    /// To be closed once the output is written.
    Closed,
}

/// An error and the method that caused it (0, 0: none).
#[derive(Debug)]
pub(crate) struct Failure {
    channel: ChannelId,
    ids: (u16, u16),
    error: Error,
}

enum Step {
    /// Something was consumed; there may be requests.
    Done,
    /// A publish, consumed whole.
    Publish(Publish),
    /// More bytes are needed.
    Starved,
}

impl Session {
    /// A session that expects the protocol header. `seed` feeds the names that it makes, and must
    /// differ from session to session; `now_ms` is a monotonic time in milliseconds.
    pub fn new(config: Arc<SessionConfig>, seed: u64, now_ms: u64) -> Self {
        let mut outbox = Outbox::default();
        outbox.frame_max = config.initial_frame_max;
        Self {
            phase: Phase::Greeting,
            frame_max_in: config.initial_frame_max,
            channel_max: config.channel_max,
            client: connection::Client::default(),
            channels: Channels::default(),
            requests: Requests::default(),
            waiting: None,
            outbox,
            answering: Vec::new(),
            confirm_number: 0,
            alarm: connection::Alarm::default(),
            clock: tick::Clock::new(now_ms, config.handshake_timeout_ms),
            entropy: seed,
            frames_in: 0,
            end: None,
            config,
        }
    }

    /// The next request from what has been read. `None`: more bytes are needed, or a reply is
    /// awaited, or the connection takes no input for now ([`Session::takes_input`]).
    ///
    /// Consumes from `input`; what it leaves must be given again, with what follows.
    pub fn next_request(&mut self, input: &mut BytesMut) -> Option<Request> {
        loop {
            if let Some(request) = self.requests.pop() {
                return Some(request);
            }
            if self.waiting.is_some() || !self.takes_input() {
                self.requests.end_gathering();
                return self.requests.pop();
            }
            match self.step(input) {
                Step::Done => {}
                Step::Publish(publish) => {
                    if !self.requests.is_gathering() {
                        return Some(Request::Publish(publish));
                    }
                    self.requests.push(Request::Publish(publish));
                }
                Step::Starved => {
                    self.requests.end_gathering();
                    return self.requests.pop();
                }
            }
        }
    }

    /// Whether bytes should be read. `false` while an alarm blocks this publisher, while the client
    /// does not read its replies, and at the end.
    pub fn takes_input(&self) -> bool {
        !self.alarm.blocks
            && !matches!(self.phase, Phase::Lingering | Phase::Closed)
            && !self.has_unread_replies()
    }

    /// Whether so much waits to be written that no queue holds back that reading pauses.
    pub fn has_unread_replies(&self) -> bool {
        self.outbox.unmarked_len() > UNREAD_MAX
    }

    /// Whether the socket is to be closed as soon as the output is written.
    pub fn wants_close(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Whether `connection.open-ok` was sent, and no close since.
    pub fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Whether events must be handed over before the reply that is awaited. Not before that of a
    /// subscription, whose first delivery must not precede it, and not before that of a deletion:
    /// clients that delete a queue from which they consume expect delete-ok first, as RabbitMQ
    /// gives it, and the cancel after it.
    pub fn takes_events_before_reply(&self) -> bool {
        !matches!(
            self.waiting,
            Some(reply::Waiting::Channel {
                answer: reply::Answer::Consume(_) | reply::Answer::Delete { .. },
                ..
            })
        )
    }

    /// The broker refused the publish that was pulled last.
    pub fn on_publish_refused(&mut self, channel: ChannelId, error: Error) {
        self.fail(Failure { channel, ids: wire::publish::IDS, error });
    }

    /// The answer to the request that is awaited.
    ///
    /// # Panics
    /// If none is awaited: the driver is broken.
    pub fn on_reply(&mut self, reply: Reply) {
        let waiting = self.waiting.take().expect("a reply answers a request");
        self.on_answer(waiting, reply);
    }

    /// What is to be written, with all confirms grouped so far.
    pub fn output(&mut self) -> &Output {
        self.write_answers();
        self.outbox.output()
    }

    /// Whether anything is to be written.
    pub fn has_output(&self) -> bool {
        !self.outbox.is_empty() || !self.answering.is_empty()
    }

    /// `count` bytes of the output have been written. `report` is given the deliveries that have
    /// left whole.
    pub fn on_written(&mut self, count: usize, report: impl FnMut(Written)) {
        self.outbox.advance(count, report);
    }

    /// Gives back memory that a burst has left behind.
    pub fn trim(&mut self) {
        self.outbox.trim();
    }

    /// All that waits to be written, copied. For tests.
    pub fn output_bytes(&mut self) -> bytes::Bytes {
        self.write_answers();
        self.outbox.to_bytes()
    }

    /// Looks at the front of the input.
    fn step(&mut self, input: &mut BytesMut) -> Step {
        if self.phase == Phase::Greeting {
            return match frame::decode_greeting(input) {
                None => Step::Starved,
                Some(Greeting::Amqp) => {
                    self.start();
                    Step::Done
                }
                Some(Greeting::Unknown(bytes)) => {
                    self.refuse_greeting(bytes);
                    Step::Done
                }
            };
        }
        if let Some(result) = self.whole_publish(input) {
            return self.take(result);
        }
        let frame = match frame::peek(input, self.frame_max_in) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Step::Starved,
            Err(error) => {
                input.clear();
                self.fail_frame(&error);
                return Step::Done;
            }
        };
        let length = frame.len();
        if self.waits_for_body(input, frame.channel, length) {
            return Step::Starved;
        }
        self.frames_in += 1;
        let result = self.on_frame(frame.kind, frame.channel, frame.payload);
        input.advance(length);
        self.take(result)
    }

    fn take(&mut self, result: Result<Option<Publish>, Failure>) -> Step {
        match result {
            Ok(Some(publish)) => Step::Publish(publish),
            Ok(None) => Step::Done,
            Err(failure) => {
                self.fail(failure);
                Step::Done
            }
        }
    }

    fn on_frame(
        &mut self,
        kind: Kind,
        number: ChannelId,
        payload: &[u8],
    ) -> Result<Option<Publish>, Failure> {
        if number == 0 {
            self.on_connection_frame(kind, payload)?;
            return Ok(None);
        }
        match self.phase {
            Phase::Running => {}
            Phase::Closing | Phase::Lingering | Phase::Closed => return Ok(None),
            Phase::Greeting | Phase::Starting | Phase::Tuning | Phase::Opening => {
                return Err(unexpected_frame(kind, number, payload));
            }
        }
        if kind == Kind::Heartbeat {
            return Err(unexpected_frame(kind, number, payload));
        }
        match self.channels.slot(number) {
            Slot::Running(_) => self.on_channel_frame(kind, number, payload),
            Slot::Closing => {
                self.on_closing_channel_frame(kind, number, payload);
                Ok(None)
            }
            Slot::Free => self.on_free_channel_frame(kind, number, payload).map(|()| None),
        }
    }
}

/// A frame that cannot be here: 505.
fn unexpected_frame(kind: Kind, channel: ChannelId, payload: &[u8]) -> Failure {
    let text = describe(kind, channel, payload);
    let text = text.strip_suffix(": unknown_frame").unwrap_or(&text);
    Failure { channel, ids: (0, 0), error: Error::new(code::UNEXPECTED_FRAME, text) }
}

/// A frame of a known kind that is too short to be one: 501, with RabbitMQ's words.
fn unknown_frame(kind: Kind, channel: ChannelId, payload: &[u8]) -> Failure {
    let text = describe(kind, channel, payload);
    Failure { channel, ids: (0, 0), error: Error::new(code::FRAME_ERROR, text) }
}

fn describe(kind: Kind, channel: ChannelId, payload: &[u8]) -> String {
    let start = payload[..payload.len().min(16)].to_vec();
    let whole = payload.len() <= 16;
    FrameError::UnknownType { kind: kind as u8, channel, start, whole }.to_string()
}
