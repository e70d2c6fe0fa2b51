//! `basic.publish` without an allocation: its arguments, and the whole of method, header and a
//! body of one frame as one [`Message`].
//!
//! ```text
//!  method   [60][40][reserved: u16][exchange: short string][routing key: short string][bits: u8]
//!                                  └── the message's route, 2..=512 bytes ───────┘   1 mandatory
//!                                                                                    2 immediate
//! ```

use crate::content;
use crate::frame::{self, Kind};
use crate::method::{self, MethodError, Reason};
use crate::reader::{Malformed, Reader};
use bytes::{BufMut, BytesMut};
use model::message::Message;
use std::ops::Range;

/// Class and method number.
pub const IDS: (u16, u16) = (60, 40);

/// Where the route begins in the payload of the method frame.
const ROUTE: usize = 6;

/// The arguments of `basic.publish`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish<'a> {
    /// Exchange and routing key as two short strings, both UTF-8; what
    /// [`model::message::Message::route`] holds.
    pub route: &'a [u8],
    /// The exchange; empty for the default exchange.
    pub exchange: &'a str,
    /// The routing key.
    pub routing_key: &'a str,
    /// Return it if no queue takes it.
    pub mandatory: bool,
    /// Not implemented by anybody: 540.
    pub immediate: bool,
}

/// Reads the payload of a method frame that is known to be `basic.publish` ([`method::ids`]).
///
/// # Errors
/// [`MethodError::Syntax`].
#[inline]
pub fn parse(payload: &[u8]) -> Result<Publish<'_>, MethodError> {
    let (class, method) = IDS;
    let syntax = |reason| MethodError::Syntax { class, method, reason };
    let (publish, rest) = read(payload).map_err(|_| syntax(Reason::Truncated))?;
    if rest == 0 { Ok(publish) } else { Err(syntax(Reason::Trailing)) }
}

fn read(payload: &[u8]) -> Result<(Publish<'_>, usize), Malformed> {
    let mut reader = Reader::new(payload);
    reader.take(ROUTE)?;
    let exchange = reader.short_string()?;
    let routing_key = reader.short_string()?;
    let route = &payload[ROUTE..ROUTE + 2 + exchange.len() + routing_key.len()];
    let bits = reader.u8()?;
    let (mandatory, immediate) = (bits & 1 != 0, bits & 2 != 0);
    Ok((Publish { route, exchange, routing_key, mandatory, immediate }, reader.remaining()))
}

/// A publish that was read in one go.
#[derive(Debug, Clone)]
pub struct WholePublish {
    /// The channel.
    pub channel: u16,
    /// Return it if no queue takes it.
    pub mandatory: bool,
    /// Not implemented by anybody: 540.
    pub immediate: bool,
    /// Its properties have not been looked at.
    pub message: Message,
}

/// Takes a whole publish off the front of `buffer`: a method frame, a header frame and, if the body
/// is not empty, one body frame, all of one channel. The message shares the buffer.
///
/// `None`, with the buffer left as it was, in **every** other case: another method, not all of it
/// here yet, a body in several frames, or an error. [`frame::decode`] then finds out.
///
/// The caller has made sure that this channel expects a method next.
#[inline]
pub fn decode_whole(buffer: &mut BytesMut, frame_max: u32) -> Option<WholePublish> {
    let Whole { channel, bits, route, properties, body, end } = whole(buffer, frame_max)?;
    let bytes = buffer.split_to(end).freeze();
    let message = Message::from_spans(bytes, route, properties, body)
        .expect("the spans lie in the frames, and the route was read as two short strings");
    let (mandatory, immediate) = (bits & 1 != 0, bits & 2 != 0);
    Some(WholePublish { channel, mandatory, immediate, message })
}

/// Where the parts of a whole publish lie.
struct Whole {
    channel: u16,
    bits: u8,
    route: Range<usize>,
    properties: Range<usize>,
    body: Range<usize>,
    end: usize,
}

/// Finds the parts; the same checks as those of the slow path, in one pass and without errors to
/// carry around, which makes it several times faster.
#[inline]
fn whole(bytes: &[u8], frame_max: u32) -> Option<Whole> {
    let channel = [*bytes.get(1)?, *bytes.get(2)?];
    // the payload of a frame of this channel, and where it ends
    let frame = |kind: Kind, at: usize| -> Option<(&[u8], usize)> {
        let head = bytes.get(at..)?.first_chunk::<{ frame::HEADER_LEN }>()?;
        let size = u32::from_be_bytes([head[3], head[4], head[5], head[6]]);
        if head[0] != kind as u8 || head[1..3] != channel || frame_max != 0 && size > frame_max {
            return None;
        }
        let start = at + frame::HEADER_LEN;
        let end = start.checked_add(usize::try_from(size).ok()?)?;
        (*bytes.get(end)? == frame::END).then(|| (&bytes[start..end], end))
    };
    let (method, method_end) = frame(Kind::Method, 0)?;
    let (ids, arguments) = method.split_at_checked(ROUTE)?;
    if ids[..4] != [0, 60, 0, 40] {
        return None;
    }
    let exchange_len = usize::from(*arguments.first()?);
    let key_at = 1 + exchange_len;
    let key_len = usize::from(*arguments.get(key_at)?);
    let route_len = key_at + 1 + key_len;
    // nothing but the bits may follow
    let &[bits] = arguments.get(route_len..)? else { return None };
    // names are ASCII nearly always, and one look at all of them is the cheapest
    if !arguments[..route_len].is_ascii() {
        std::str::from_utf8(&arguments[1..key_at]).ok()?;
        std::str::from_utf8(&arguments[key_at + 1..route_len]).ok()?;
    }
    let (header, header_end) = frame(Kind::Header, method_end + 1)?;
    let (fixed, properties) = header.split_first_chunk::<{ content::FIXED_LEN }>()?;
    let &[0, 60, 0, 0, size @ ..] = fixed else { return None };
    if properties.len() < 2 {
        return None;
    }
    let body_len = usize::try_from(u64::from_be_bytes(size)).ok()?;
    let (body, end) = if body_len == 0 {
        (header_end + 1..header_end + 1, header_end + 1)
    } else {
        let (body, body_end) = frame(Kind::Body, header_end + 1)?;
        if body.len() != body_len {
            return None;
        }
        (body_end - body_len..body_end, body_end + 1)
    };
    let route = frame::HEADER_LEN + ROUTE;
    Some(Whole {
        channel: u16::from_be_bytes(channel),
        bits,
        route: route..route + route_len,
        properties: header_end - properties.len()..header_end,
        body,
        end,
    })
}

/// Writes a publish with its content, the body in frames of at most `frame_max` bytes (0: one
/// frame). `properties` are flags and fields as in a content header.
///
/// # Panics
/// If `exchange` or `routing_key` is longer than 255 bytes.
#[expect(clippy::too_many_arguments, reason = "one argument per field of three frames")]
pub fn write(
    out: &mut BytesMut,
    channel: u16,
    exchange: &str,
    routing_key: &str,
    mandatory: bool,
    properties: &[u8],
    body: &[u8],
    frame_max: u32,
) {
    out.reserve(64 + exchange.len() + routing_key.len() + properties.len() + body.len());
    method::write_frame(out, channel, IDS, |out| {
        out.put_u16(0);
        for text in [exchange, routing_key] {
            out.put_u8(u8::try_from(text.len()).expect("a short string has at most 255 bytes"));
            out.put_slice(text.as_bytes());
        }
        out.put_u8(u8::from(mandatory));
    });
    content::write_header(out, channel, body.len(), properties);
    for piece in body.chunks(content::piece_max(frame_max)) {
        frame::write(out, Kind::Body, channel, piece);
    }
}

#[cfg(test)]
mod tests;
