//! Contents: a header frame, then as many body frames as the size needs.
//!
//! ```text
//!  header   [class: u16][weight: u16, 0][body size: u64][flags: u16][property]*
//! ```

use crate::frame::{self, Kind};
use crate::output::{COPY_MAX, Output};
use crate::publish::Publish;
use crate::reader::Reader;
use bytes::{BufMut, BytesMut};
use model::message::Message;

/// Bytes of a header's payload before the properties.
pub const FIXED_LEN: usize = 12;

/// The payload of a header frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentHeader<'a> {
    /// 60 for `basic`.
    pub class: u16,
    /// Must be 0.
    pub weight: u16,
    /// Length of the body in bytes, as the sender claims: nothing to be allocated for.
    pub body_size: u64,
    /// Flags and fields, not looked at; at least the two bytes of the flags.
    pub properties: &'a [u8],
}

/// A header frame's payload is too short to be one: 501 `FRAME_ERROR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderTooShort;

impl<'a> ContentHeader<'a> {
    /// Reads the payload of a header frame.
    ///
    /// # Errors
    /// [`HeaderTooShort`].
    #[inline]
    pub fn parse(payload: &'a [u8]) -> Result<Self, HeaderTooShort> {
        let mut reader = Reader::new(payload);
        let read = (|| Ok((reader.u16()?, reader.u16()?, reader.u64()?)))();
        let (class, weight, body_size) =
            read.map_err(|_: crate::reader::Malformed| HeaderTooShort)?;
        let properties = &payload[FIXED_LEN..];
        if properties.len() < 2 {
            return Err(HeaderTooShort);
        }
        Ok(Self { class, weight, body_size, properties })
    }
}

/// A published message that comes in several frames.
///
/// Memory grows with what has arrived, not with what the header claims.
#[derive(Debug)]
pub struct Assembly {
    buffer: BytesMut,
    route_end: usize,
    properties_end: usize,
    missing: u64,
}

/// More body arrived than the header announced: 501 `FRAME_ERROR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyTooLong;

impl Assembly {
    /// Begins with what the method and the header said. The caller has checked the size against
    /// its limit.
    pub fn new(publish: &Publish<'_>, header: &ContentHeader<'_>) -> Self {
        let route_end = publish.route.len();
        let properties_end = route_end + header.properties.len();
        let mut buffer = BytesMut::with_capacity(properties_end);
        buffer.extend_from_slice(publish.route);
        buffer.extend_from_slice(header.properties);
        Self { buffer, route_end, properties_end, missing: header.body_size }
    }

    /// Adds the payload of a body frame; [`Assembly::is_complete`] tells whether it was the last.
    ///
    /// # Errors
    /// [`BodyTooLong`].
    pub fn push(&mut self, piece: &[u8]) -> Result<(), BodyTooLong> {
        let missing = self.missing.checked_sub(piece.len() as u64).ok_or(BodyTooLong)?;
        if self.buffer.capacity() - self.buffer.len() < piece.len() {
            // room for what is to come, in proportion to what has come: few moves for an honest
            // sender, and no more than it takes for a body of a few frames
            let come = self.buffer.len() + piece.len();
            let whole = usize::try_from(self.missing).unwrap_or(usize::MAX);
            self.buffer.reserve(whole.min(come.saturating_mul(3)));
        }
        self.missing = missing;
        self.buffer.extend_from_slice(piece);
        Ok(())
    }

    /// Whether the whole body is here; true at once for an empty body.
    pub fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Bytes of body that have yet to come.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// The message.
    ///
    /// # Panics
    /// If it is not complete, or longer than 4 GiB.
    pub fn finish(self) -> Message {
        assert!(self.is_complete(), "{} bytes of body are missing", self.missing);
        let end = self.buffer.len();
        let properties = self.route_end..self.properties_end;
        Message::from_spans(
            self.buffer.freeze(),
            0..self.route_end,
            properties,
            self.properties_end..end,
        )
        .expect("the route was read as two short strings")
    }
}

/// The longest payload to send in one frame. 0 stands for no limit.
pub fn piece_max(frame_max: u32) -> usize {
    match frame_max as usize {
        0 => usize::MAX,
        max => max.saturating_sub(frame::OVERHEAD).max(1),
    }
}

/// Writes the header frame of a `basic` content.
#[inline]
pub fn write_header(out: &mut BytesMut, channel: u16, body_len: usize, properties: &[u8]) {
    frame::write_head(out, Kind::Header, channel, FIXED_LEN + properties.len());
    out.put_slice(&[0, 60, 0, 0]);
    out.put_u64(body_len as u64);
    out.put_slice(properties);
    out.put_u8(frame::END);
}

/// Writes header and body frames of a message; long pieces of body are shared, not copied.
#[inline]
pub(crate) fn write(out: &mut Output, channel: u16, message: &Message, frame_max: u32) {
    let body = message.body();
    write_header(out.tail(), channel, body.len(), message.properties());
    let piece_max = piece_max(frame_max);
    if body.len() <= COPY_MAX && body.len() <= piece_max {
        if !body.is_empty() {
            frame::write(out.tail(), Kind::Body, channel, body);
        }
        return;
    }
    let mut rest = message.body_bytes();
    while !rest.is_empty() {
        let piece = rest.split_to(rest.len().min(piece_max));
        frame::write_head(out.tail(), Kind::Body, channel, piece.len());
        out.push(piece);
        out.tail().put_u8(frame::END);
    }
}

#[cfg(test)]
mod tests;
