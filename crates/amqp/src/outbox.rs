//! Bytes on their way to the client, and which deliveries are among them.
//!
//! ```text
//!   written ────┬──────────┬─────────┬────── queued       (positions in the stream of bytes)
//!               │ mark: 3 of A       │ mark: 1 of B
//!               └ reported when `written` passes its end
//! ```

use amq_protocol::protocol::AMQPClass;
use bytes::{Buf, Bytes, BytesMut};
use model::id::{ConsumerId, QueueId};
use model::message::Message;
use std::collections::VecDeque;
use wire::deliver::{self, Deliver};
use wire::output::Output;
use wire::{frame, method};

/// A mark covers at most this many bytes, so that a queue learns in time that its messages leave.
const MARK_BYTES: u64 = 64 * 1024;

/// Deliveries that have left for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Whose they are.
    pub consumer: ConsumerId,
    /// Where they came from.
    pub queue: QueueId,
    /// How many.
    pub count: u32,
    /// Bytes of their bodies.
    pub bytes: u64,
}

#[derive(Debug)]
struct Mark {
    written: Written,
    /// Bytes with all frames.
    wire_bytes: u64,
    end: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    output: Output,
    /// Negotiated; 0 is no limit.
    pub(crate) frame_max: u32,
    marks: VecDeque<Mark>,
    written: u64,
    marked_bytes: u64,
    frames: u64,
}

impl Outbox {
    /// Bytes ever queued.
    pub(crate) fn queued_total(&self) -> u64 {
        self.written + self.output.len() as u64
    }

    /// Methods ever queued; contents count as one with theirs.
    pub(crate) fn frames_total(&self) -> u64 {
        self.frames
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.output.is_empty()
    }

    /// Waiting bytes that no queue is told about: replies, returns, confirms.
    pub(crate) fn unmarked_len(&self) -> u64 {
        (self.output.len() as u64).saturating_sub(self.marked_bytes)
    }

    pub(crate) fn output(&self) -> &Output {
        &self.output
    }

    pub(crate) fn method(&mut self, channel: u16, class: &AMQPClass) {
        self.frames += 1;
        method::write_method(self.output.tail(), channel, class);
    }

    /// Bytes that are no method.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.output.tail().extend_from_slice(bytes);
    }

    pub(crate) fn settlement(&mut self, channel: u16, settlement: wire::ack::Settlement) {
        self.frames += 1;
        wire::ack::write(self.output.tail(), channel, settlement);
    }

    pub(crate) fn deliver(
        &mut self,
        channel: u16,
        deliver: &Deliver<'_>,
        consumer: ConsumerId,
        queue: QueueId,
        message: &Message,
    ) {
        self.frames += 1;
        let before = self.output.len();
        let fitted = fit(message, self.frame_max);
        let message = fitted.as_ref().unwrap_or(message);
        deliver::write_deliver(&mut self.output, channel, deliver, message, self.frame_max);
        let wire_bytes = (self.output.len() - before) as u64;
        let bytes = message.body().len() as u64;
        let end = self.queued_total();
        self.marked_bytes += wire_bytes;
        if let Some(mark) = self.marks.back_mut()
            && mark.written.consumer == consumer
            && mark.wire_bytes < MARK_BYTES
        {
            mark.written.count += 1;
            mark.written.bytes += bytes;
            mark.wire_bytes += wire_bytes;
            mark.end = end;
        } else {
            let written = Written { consumer, queue, count: 1, bytes };
            self.marks.push_back(Mark { written, wire_bytes, end });
        }
    }

    pub(crate) fn got(
        &mut self,
        channel: u16,
        tag: u64,
        redelivered: bool,
        remaining: u32,
        message: &Message,
    ) {
        self.frames += 1;
        let fitted = fit(message, self.frame_max);
        let message = fitted.as_ref().unwrap_or(message);
        deliver::write_get_ok(
            &mut self.output,
            channel,
            tag,
            redelivered,
            remaining,
            message,
            self.frame_max,
        );
    }

    pub(crate) fn returned(&mut self, channel: u16, code: u16, text: &str, message: &Message) {
        self.frames += 1;
        let fitted = fit(message, self.frame_max);
        let message = fitted.as_ref().unwrap_or(message);
        deliver::write_return(&mut self.output, channel, code, text, message, self.frame_max);
    }

    /// Copies everything that waits, for tests.
    pub(crate) fn to_bytes(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(self.output.len());
        let mut slices = vec![std::io::IoSlice::new(&[]); 1024];
        let count = self.output.chunks_vectored(&mut slices);
        for slice in &slices[..count] {
            bytes.extend_from_slice(slice);
        }
        assert_eq!(bytes.len(), self.output.len(), "more pieces than tests make");
        bytes.freeze()
    }

    /// Gives memory back, if nothing waits.
    pub(crate) fn trim(&mut self) {
        if self.output.is_empty() {
            self.output = Output::new();
        }
        self.marks.shrink_to_fit();
    }

    pub(crate) fn heartbeat(&mut self) {
        self.output.tail().extend_from_slice(&frame::HEARTBEAT);
    }

    /// `count` bytes have gone out; hands over the deliveries that are now whole.
    pub(crate) fn advance(&mut self, count: usize, mut report: impl FnMut(Written)) {
        self.output.advance(count);
        self.written += count as u64;
        while let Some(mark) = self.marks.front() {
            if mark.end > self.written {
                break;
            }
            self.marked_bytes -= mark.wire_bytes;
            report(mark.written);
            self.marks.pop_front();
        }
    }
}

/// A message whose properties do not fit one frame of this connection, cut down: first without
/// the history of dead-lettering, then without headers. `None`: it fits as it is.
///
/// A publisher with a larger `frame_max`, or `x-death`, may have made it that large.
fn fit(message: &Message, frame_max: u32) -> Option<Message> {
    let room = wire::content::piece_max(frame_max).saturating_sub(wire::content::FIXED_LEN);
    if message.properties().len() <= room {
        return None;
    }
    Some(cut(message, room))
}

#[cold]
fn cut(message: &Message, room: usize) -> Message {
    let Ok(mut properties) = wire::properties::Properties::scan(message.properties()) else {
        return message.with_properties(&[0, 0]);
    };
    let without_history =
        properties.headers.map(|headers| wire::table::without(headers, "x-death"));
    properties.headers = without_history.as_deref();
    let encoded = properties.encode();
    if encoded.len() <= room {
        return message.with_properties(&encoded);
    }
    properties.headers = None;
    message.with_properties(&properties.encode())
}
