//! Errors and ends: of a channel, of the connection.

use super::{Failure, Phase, Session};
use crate::channel::Slot;
use crate::error::{code, ends_channel_only};
use crate::request::{ChannelId, Error, Request};
use amq_protocol::protocol::{AMQPClass, channel, connection};
use wire::frame::{FrameError, Kind, PROTOCOL_HEADER};
use wire::method;

/// How long a refused login waits for the end of its connection.
const LINGER_MS: u64 = 3_000;
/// How long `close-ok` is waited for.
const CLOSING_MS: u64 = 30_000;

impl Session {
    /// Ends the channel or the connection, as the code of the error says.
    pub(super) fn fail(&mut self, failure: Failure) {
        let Failure { channel, ids, error } = failure;
        if channel != 0 && ends_channel_only(error.code) {
            self.close_channel(channel, &error, ids);
        } else {
            self.close_connection(&error, ids);
        }
    }

    pub(super) fn fail_frame(&mut self, error: &FrameError) {
        if !matches!(self.phase, Phase::Closing | Phase::Lingering | Phase::Closed) {
            self.close_connection(&Error::new(code::FRAME_ERROR, error.to_string()), (0, 0));
            // who does not write frames will hardly write `close-ok`
            self.clock.close_within(LINGER_MS);
        }
    }

    /// Sends `channel.close`, and gives back what the channel held.
    pub(super) fn close_channel(&mut self, number: ChannelId, error: &Error, ids: (u16, u16)) {
        self.write_answers();
        let Some(ended) = self.channels.take(number, Slot::Closing) else { return };
        self.requests.push(ended.end(number));
        let close = channel::Close {
            reply_code: error.code,
            reply_text: error.reply_text().into(),
            class_id: ids.0,
            method_id: ids.1,
        };
        self.outbox.method(number, &AMQPClass::Channel(channel::AMQPMethod::Close(close)));
    }

    /// Sends `connection.close`, and ends all channels.
    pub(super) fn close_connection(&mut self, error: &Error, ids: (u16, u16)) {
        match self.phase {
            Phase::Closing | Phase::Lingering | Phase::Closed => return,
            Phase::Greeting => {
                self.phase = Phase::Closed;
                return;
            }
            Phase::Starting | Phase::Tuning | Phase::Opening | Phase::Running => {}
        }
        self.end_channels();
        let text = error.reply_text();
        self.end.get_or_insert_with(|| format!("{} {text}", error.code));
        let close = connection::Close {
            reply_code: error.code,
            reply_text: text.into(),
            class_id: ids.0,
            method_id: ids.1,
        };
        self.outbox.method(0, &AMQPClass::Connection(connection::AMQPMethod::Close(close)));
        self.phase = Phase::Closing;
        // a blocked publisher's close-ok must be read
        self.alarm.blocks = false;
        self.clock.close_within(CLOSING_MS);
    }

    /// Ends without a word, after a while.
    pub(super) fn linger(&mut self, why: String) {
        self.end.get_or_insert(why);
        self.phase = Phase::Lingering;
        self.clock.close_within(LINGER_MS);
    }

    /// The time for an orderly end is over.
    pub(super) fn close_now(&mut self, why: &str) {
        self.end.get_or_insert_with(|| why.to_owned());
        self.end_channels();
        self.phase = Phase::Closed;
    }

    pub(super) fn refuse_greeting(&mut self, bytes: [u8; 8]) {
        self.end = Some(describe_greeting(bytes));
        self.outbox.raw(&PROTOCOL_HEADER);
        self.phase = Phase::Closed;
    }

    /// Gives back what all channels hold.
    pub(super) fn end_channels(&mut self) {
        self.write_answers();
        for number in self.channels.running() {
            if let Some(ended) = self.channels.take(number, Slot::Free) {
                self.requests.push(ended.end(number));
            }
        }
    }

    /// The socket is gone. [`Session::next_request`] then gives what remains to be done for the
    /// channels, and `None`.
    pub fn on_disconnected(&mut self) {
        self.waiting = None;
        match self.phase {
            Phase::Running => self.close_now("client unexpectedly closed the connection"),
            Phase::Starting | Phase::Tuning | Phase::Opening => {
                self.close_now("client closed the connection during the handshake");
            }
            // who only looked whether the port is open; or the reason is known
            Phase::Greeting | Phase::Closing | Phase::Lingering | Phase::Closed => {
                self.end_channels();
                self.phase = Phase::Closed;
            }
        }
    }

    /// Why the connection ended, for the log; `None` if the client closed it in good order.
    pub fn end_reason(&self) -> Option<&str> {
        self.end.as_deref()
    }

    /// A frame on a channel whose `close` was sent: all but the end of it is discarded.
    pub(super) fn on_closing_channel_frame(
        &mut self,
        kind: Kind,
        number: ChannelId,
        payload: &[u8],
    ) {
        if kind != Kind::Method {
            return;
        }
        match method::ids(payload) {
            Some((20, 41)) => self.channels.free(number),
            Some((20, 40)) => {
                // both sides closed at the same time: the client's close-ok is yet to come
                let ok = channel::AMQPMethod::CloseOk(channel::CloseOk {});
                self.outbox.method(number, &AMQPClass::Channel(ok));
            }
            _ => {}
        }
    }

    /// `channel.close` from the client.
    pub(super) fn on_channel_close(&mut self, number: ChannelId) {
        self.write_answers();
        let Some(ended) = self.channels.take(number, Slot::Free) else { return };
        self.requests.push(ended.end(number));
        let ok = channel::AMQPMethod::CloseOk(channel::CloseOk {});
        self.outbox.method(number, &AMQPClass::Channel(ok));
    }

    /// `connection.close` from the client.
    pub(super) fn on_connection_close(&mut self) {
        if self.phase == Phase::Running {
            self.end_channels();
            self.requests.push(Request::Closing);
            self.waiting = Some(super::reply::Waiting::Closing);
        } else {
            self.confirm_close();
        }
    }

    pub(super) fn confirm_close(&mut self) {
        let ok = connection::AMQPMethod::CloseOk(connection::CloseOk {});
        self.outbox.method(0, &AMQPClass::Connection(ok));
        self.phase = Phase::Closed;
    }
}

/// What a client that speaks something else may have meant.
fn describe_greeting(bytes: [u8; 8]) -> String {
    match &bytes {
        [b'G', b'E', b'T', b' ', ..]
        | [b'P', b'O', b'S', b'T', ..]
        | [b'P', b'U', b'T', b' ', ..]
        | [b'H', b'E', b'A', b'D', ..] => {
            "looks like an HTTP request: the HTTP API listens on another port".to_owned()
        }
        [0x16, 3, 0..=4, ..] => {
            "looks like a TLS client hello: TLS connections go to another port".to_owned()
        }
        [b'A', b'M', b'Q', b'P', id, major, minor, revision] => {
            format!("protocol version {id}.{major}.{minor}.{revision} is not supported")
        }
        _ => format!("bad protocol header '{}'", bytes.escape_ascii()),
    }
}
