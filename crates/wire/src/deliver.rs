//! Messages on their way to a client: `basic.deliver`, `basic.get-ok`, `basic.return`.
//!
//! ```text
//!  deliver  [60][60][consumer tag: short string][delivery tag: u64][redelivered: u8][route]
//!  get-ok   [60][71][delivery tag: u64][redelivered: u8][route][message count: u32]
//!  return   [60][50][reply code: u16][reply text: short string][route]
//! ```
//!
//! In all three the route of the publish is repeated as it stands, and so are the properties in
//! the header frame that follows.

use crate::content;
use crate::frame;
use crate::method;
use crate::output::{COPY_MAX, Output};
use crate::reader::{Malformed, Reader};
use bytes::{BufMut, BytesMut};
use model::message::Message;

/// Class and method number of `basic.deliver`.
pub const DELIVER: (u16, u16) = (60, 60);
/// Class and method number of `basic.get-ok`.
pub const GET_OK: (u16, u16) = (60, 71);
/// Class and method number of `basic.return`.
pub const RETURN: (u16, u16) = (60, 50);

/// What a delivery says besides the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deliver<'a> {
    /// At most 255 bytes.
    pub consumer_tag: &'a str,
    /// Counts from 1 on each channel.
    pub delivery_tag: u64,
    /// It was handed out before.
    pub redelivered: bool,
}

/// Writes `basic.deliver` with the message as its content. Bodies are split so that no frame
/// exceeds `frame_max`; 0 is no limit.
///
/// # Panics
/// If the consumer tag is longer than 255 bytes.
#[inline]
pub fn write_deliver(
    out: &mut Output,
    channel: u16,
    deliver: &Deliver<'_>,
    message: &Message,
    frame_max: u32,
) {
    let route = message.route();
    let tail = out.tail();
    reserve(tail, deliver.consumer_tag.len(), message);
    method::write_frame(tail, channel, DELIVER, |tail| {
        put_short_string(tail, deliver.consumer_tag);
        tail.put_u64(deliver.delivery_tag);
        tail.put_u8(u8::from(deliver.redelivered));
        tail.put_slice(route);
    });
    content::write(out, channel, message, frame_max);
}

/// Writes `basic.get-ok` with the message as its content. `message_count` is the number of ready
/// messages that remain.
#[inline]
pub fn write_get_ok(
    out: &mut Output,
    channel: u16,
    delivery_tag: u64,
    redelivered: bool,
    message_count: u32,
    message: &Message,
    frame_max: u32,
) {
    let tail = out.tail();
    reserve(tail, 0, message);
    method::write_frame(tail, channel, GET_OK, |tail| {
        tail.put_u64(delivery_tag);
        tail.put_u8(u8::from(redelivered));
        tail.put_slice(message.route());
        tail.put_u32(message_count);
    });
    content::write(out, channel, message, frame_max);
}

/// Writes `basic.return` with the message as its content.
///
/// # Panics
/// If the text is longer than 255 bytes.
pub fn write_return(
    out: &mut Output,
    channel: u16,
    reply_code: u16,
    reply_text: &str,
    message: &Message,
    frame_max: u32,
) {
    let tail = out.tail();
    reserve(tail, reply_text.len(), message);
    method::write_frame(tail, channel, RETURN, |tail| {
        tail.put_u16(reply_code);
        put_short_string(tail, reply_text);
        tail.put_slice(message.route());
    });
    content::write(out, channel, message, frame_max);
}

/// Three frames around the method's ids, tags and flags, and the fixed part of the header.
const FIXED: usize = 3 * frame::OVERHEAD + 24 + content::FIXED_LEN;

/// Makes room for the frames of one message at once.
#[inline]
fn reserve(tail: &mut BytesMut, text_len: usize, message: &Message) {
    let body = message.body().len();
    let body = if body <= COPY_MAX { body } else { 0 };
    tail.reserve(FIXED + text_len + message.route().len() + message.properties().len() + body);
}

fn put_short_string(out: &mut BytesMut, text: &str) {
    out.put_u8(u8::try_from(text.len()).expect("a short string has at most 255 bytes"));
    out.put_slice(text.as_bytes());
}

/// Reads the payload of a `basic.deliver` method frame (for clients); the second value is the
/// route. `None` if it is another method or malformed.
#[inline]
pub fn parse_deliver(payload: &[u8]) -> Option<(Deliver<'_>, &[u8])> {
    if method::ids(payload)? != DELIVER {
        return None;
    }
    read_deliver(payload.get(4..)?).ok()
}

fn read_deliver(arguments: &[u8]) -> Result<(Deliver<'_>, &[u8]), Malformed> {
    let mut reader = Reader::new(arguments);
    let consumer_tag = reader.short_string()?;
    let delivery_tag = reader.u64()?;
    let redelivered = reader.u8()? & 1 != 0;
    let route = arguments.get(arguments.len() - reader.remaining()..).ok_or(Malformed)?;
    reader.short_string()?;
    reader.short_string()?;
    if !reader.is_empty() {
        return Err(Malformed);
    }
    Ok((Deliver { consumer_tag, delivery_tag, redelivered }, route))
}

#[cfg(test)]
mod tests;
