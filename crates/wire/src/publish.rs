//! `basic.publish` without an allocation: its arguments, and the whole of method, header and a
//! body of one frame as one [`Message`].
//!
//! ```text
//!  method   [60][40][reserved: u16][exchange: short string][routing key: short string][bits: u8]
//!                                  └── the message's route, 2..=512 bytes ───────┘   1 mandatory
//!                                                                                    2 immediate
//! ```

use crate::content::{self, ContentHeader};
use crate::frame::{self, FrameRef, Kind};
use crate::method::{self, MethodError, Reason};
use crate::reader::{Malformed, Reader};
use bytes::{BufMut, BytesMut};
use model::message::Message;

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
pub fn decode_whole(buffer: &mut BytesMut, frame_max: u32) -> Option<WholePublish> {
    // the cheap test first, since most buffers of consumers hold something else
    if *buffer.first()? != Kind::Method as u8
        || buffer.get(frame::HEADER_LEN..frame::HEADER_LEN + 4)? != [0, 60, 0, 40]
    {
        return None;
    }
    let next = |at: usize| frame::peek(buffer.get(at..)?, frame_max).ok()?;
    let method: FrameRef<'_> = next(0)?;
    let publish = parse(method.payload).ok()?;
    let header: FrameRef<'_> = next(method.len())?;
    if header.kind != Kind::Header || header.channel != method.channel {
        return None;
    }
    let content = ContentHeader::parse(header.payload).ok()?;
    if content.class != IDS.0 || content.weight != 0 {
        return None;
    }
    let header_end = method.len() + header.len();
    let body_len = usize::try_from(content.body_size).ok()?;
    let (body, end) = if body_len == 0 {
        (header_end..header_end, header_end)
    } else {
        let body: FrameRef<'_> = next(header_end)?;
        if body.kind != Kind::Body
            || body.channel != method.channel
            || body.payload.len() != body_len
        {
            return None;
        }
        let start = header_end + frame::HEADER_LEN;
        (start..start + body_len, header_end + body.len())
    };
    let route = frame::HEADER_LEN + ROUTE;
    let route = route..route + publish.route.len();
    let properties = method.len() + frame::HEADER_LEN + content::FIXED_LEN;
    let properties = properties..properties + content.properties.len();
    let (channel, mandatory, immediate) = (method.channel, publish.mandatory, publish.immediate);
    let bytes = buffer.split_to(end).freeze();
    let message = Message::from_spans(bytes, route, properties, body)
        .expect("the spans lie in the frames, and the route was read as two short strings");
    Some(WholePublish { channel, mandatory, immediate, message })
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
