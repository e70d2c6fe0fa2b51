//! Frames: the unit in which AMQP bytes come and go.
//!
//! ```text
//!  0      1          3              7                 7+size
//!  ┌──────┬──────────┬──────────────┬────────────────┬──────┐
//!  │ kind │ channel  │ size         │ payload        │ 0xCE │
//!  │ u8   │ u16      │ u32          │ size bytes     │      │
//!  └──────┴──────────┴──────────────┴────────────────┴──────┘
//!    1 method   [class: u16][method: u16][arguments]
//!    2 header   [class: u16][weight: u16][body size: u64][properties]
//!    3 body     bytes
//!    8 heartbeat, empty, on channel 0
//! ```
//!
//! The negotiated `frame_max` covers the whole frame, so a sender splits bodies at
//! `frame_max - 8`. A receiver takes a payload of up to `frame_max`, as RabbitMQ does, since some
//! clients forget the eight bytes.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Bytes before the payload.
pub const HEADER_LEN: usize = 7;
/// Bytes of a frame that are not payload.
pub const OVERHEAD: usize = 8;
/// The last byte of every frame.
pub const END: u8 = 0xCE;
/// A heartbeat, whole.
pub const HEARTBEAT: [u8; 8] = [8, 0, 0, 0, 0, 0, 0, END];
/// The length of a protocol header.
pub const PROTOCOL_HEADER_LEN: usize = 8;
/// What a client sends first, and what a server answers to a header that it does not know.
pub const PROTOCOL_HEADER: [u8; PROTOCOL_HEADER_LEN] = *b"AMQP\x00\x00\x09\x01";

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A method with its arguments.
    Method = 1,
    /// The size and properties of a content.
    Header = 2,
    /// A piece of a content's body.
    Body = 3,
    /// A sign of life.
    Heartbeat = 8,
}

impl Kind {
    /// Reads the first byte of a frame.
    pub fn of(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Method),
            2 => Some(Self::Header),
            3 => Some(Self::Body),
            8 => Some(Self::Heartbeat),
            _ => None,
        }
    }
}

/// One frame; the payload shares the buffer that it was read into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What the payload is.
    pub kind: Kind,
    /// 0 for the connection itself.
    pub channel: u16,
    /// Without header and end byte.
    pub payload: Bytes,
}

/// The bytes are not a frame; the connection is to be closed with 501 `FRAME_ERROR` and this
/// error's text, which is RabbitMQ's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameError {
    /// The payload is longer than `frame_max`. Found before the payload has arrived.
    TooLarge {
        /// First byte of the frame.
        kind: u8,
        /// The frame's channel.
        channel: u16,
        /// Length of the payload.
        size: u32,
        /// The longest payload that a peer should send: `frame_max - 8`.
        max: u32,
    },
    /// The byte after the payload is not [`END`].
    BadEnd {
        /// First byte of the frame.
        kind: u8,
        /// The frame's channel.
        channel: u16,
        /// What stands in its place.
        end: u8,
        /// The first bytes of the payload, at most 16.
        start: Vec<u8>,
        /// Whether `start` is the whole payload.
        whole: bool,
    },
    /// The first byte is no [`Kind`].
    UnknownType {
        /// First byte of the frame.
        kind: u8,
        /// The frame's channel.
        channel: u16,
        /// The first bytes of the payload, at most 16.
        start: Vec<u8>,
        /// Whether `start` is the whole payload.
        whole: bool,
    },
}

impl FrameError {
    /// The channel that the bad frame names.
    pub fn channel(&self) -> u16 {
        match self {
            Self::TooLarge { channel, .. }
            | Self::BadEnd { channel, .. }
            | Self::UnknownType { channel, .. } => *channel,
        }
    }
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (kind, start, whole) = match self {
            Self::TooLarge { kind, .. } => (kind, &[][..], true),
            Self::BadEnd { kind, start, whole, .. }
            | Self::UnknownType { kind, start, whole, .. } => (kind, &start[..], *whole),
        };
        let extent = if whole { "all" } else { "first 16" };
        write!(out, "type {kind}, {extent} octets = {}: ", erlang_binary(start))?;
        match self {
            Self::TooLarge { size, max, .. } => write!(out, "{{frame_too_large,{size},{max}}}"),
            Self::BadEnd { end, .. } => write!(out, "{{invalid_frame_end_marker,{end}}}"),
            Self::UnknownType { .. } => write!(out, "unknown_frame"),
        }
    }
}

impl std::error::Error for FrameError {}

/// Writes bytes as RabbitMQ's error texts do: as text if all of them are printable.
fn erlang_binary(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "<<>>".to_owned();
    }
    let printable = |byte: &u8| matches!(byte, 0x20..=0x7e | b'\t' | b'\n' | b'\r');
    if bytes.iter().all(printable) {
        let mut text = String::from("<<\"");
        for &byte in bytes {
            match byte {
                b'"' => text.push_str("\\\""),
                b'\\' => text.push_str("\\\\"),
                b'\n' => text.push_str("\\n"),
                b'\r' => text.push_str("\\r"),
                b'\t' => text.push_str("\\t"),
                _ => text.push(char::from(byte)),
            }
        }
        text + "\">>"
    } else {
        let numbers: Vec<String> = bytes.iter().map(u8::to_string).collect();
        format!("<<{}>>", numbers.join(","))
    }
}

/// The first seven bytes of a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) kind: u8,
    pub(crate) channel: u16,
    pub(crate) size: u32,
}

/// Reads the head of the frame that begins at `bytes[0]`.
#[inline]
pub(crate) fn head(bytes: &[u8]) -> Option<Head> {
    let &[kind, c0, c1, s0, s1, s2, s3] = bytes.first_chunk::<HEADER_LEN>()?;
    Some(Head {
        kind,
        channel: u16::from_be_bytes([c0, c1]),
        size: u32::from_be_bytes([s0, s1, s2, s3]),
    })
}

/// One frame, borrowed from the bytes that it was read into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameRef<'a> {
    /// What the payload is.
    pub kind: Kind,
    /// 0 for the connection itself.
    pub channel: u16,
    /// Without header and end byte.
    pub payload: &'a [u8],
}

impl FrameRef<'_> {
    /// The length of the whole frame.
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty")]
    pub fn len(&self) -> usize {
        self.payload.len() + OVERHEAD
    }
}

/// Looks at the frame that begins at `bytes[0]`; `None` if it has not arrived whole.
///
/// `frame_max` is the negotiated value, 0 for no limit.
///
/// # Errors
/// [`FrameError`]; no further frame can be found in the bytes.
#[inline]
pub fn peek(bytes: &[u8], frame_max: u32) -> Result<Option<FrameRef<'_>>, FrameError> {
    let Some(Head { kind, channel, size }) = head(bytes) else { return Ok(None) };
    if frame_max != 0 && size > frame_max {
        let max = frame_max.saturating_sub(8);
        return Err(FrameError::TooLarge { kind, channel, size, max });
    }
    let Some(end) = usize::try_from(size).ok().and_then(|size| size.checked_add(HEADER_LEN)) else {
        return Err(FrameError::TooLarge { kind, channel, size, max: frame_max });
    };
    let Some(&last) = bytes.get(end) else { return Ok(None) };
    let payload = &bytes[HEADER_LEN..end];
    match Kind::of(kind) {
        Some(kind) if last == END => Ok(Some(FrameRef { kind, channel, payload })),
        known => {
            let start = payload[..payload.len().min(16)].to_vec();
            let whole = payload.len() <= 16;
            Err(if last == END {
                debug_assert!(known.is_none(), "known kinds were dealt with");
                FrameError::UnknownType { kind, channel, start, whole }
            } else {
                FrameError::BadEnd { kind, channel, end: last, start, whole }
            })
        }
    }
}

/// Takes one frame off the front of `buffer`; `None` if it has not arrived whole.
///
/// Never allocates.
///
/// # Errors
/// As for [`peek`]; `buffer` is left as it was.
pub fn decode(buffer: &mut BytesMut, frame_max: u32) -> Result<Option<Frame>, FrameError> {
    let Some(FrameRef { kind, channel, payload }) = peek(buffer, frame_max)? else {
        return Ok(None);
    };
    let length = payload.len();
    buffer.advance(HEADER_LEN);
    let payload = buffer.split_to(length).freeze();
    buffer.advance(1);
    Ok(Some(Frame { kind, channel, payload }))
}

/// Writes a frame whole.
///
/// # Panics
/// If the payload is 4 GiB or longer.
pub fn write(out: &mut impl BufMut, kind: Kind, channel: u16, payload: &[u8]) {
    write_head(out, kind, channel, payload.len());
    out.put_slice(payload);
    out.put_u8(END);
}

/// Writes the seven bytes before a payload of `size` bytes.
#[inline]
pub(crate) fn write_head(out: &mut impl BufMut, kind: Kind, channel: u16, size: usize) {
    let size = u32::try_from(size).expect("a frame is shorter than 4 GiB");
    let [c0, c1] = channel.to_be_bytes();
    let [s0, s1, s2, s3] = size.to_be_bytes();
    out.put_slice(&[kind as u8, c0, c1, s0, s1, s2, s3]);
}

/// What the first eight bytes of a connection say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Greeting {
    /// AMQP 0.9.1, or 0-9 in one of its two forms: go on with `connection.start`.
    Amqp,
    /// Anything else; the answer is [`PROTOCOL_HEADER`], then the end of the connection.
    Unknown([u8; PROTOCOL_HEADER_LEN]),
}

/// Takes the protocol header off the front of `buffer`; `None` if it has not arrived whole.
pub fn decode_greeting(buffer: &mut BytesMut) -> Option<Greeting> {
    let bytes = *buffer.first_chunk::<PROTOCOL_HEADER_LEN>()?;
    buffer.advance(PROTOCOL_HEADER_LEN);
    Some(match &bytes {
        b"AMQP\x00\x00\x09\x01" | b"AMQP\x01\x01\x00\x09" | b"AMQP\x01\x01\x09\x01" => {
            Greeting::Amqp
        }
        _ => Greeting::Unknown(bytes),
    })
}

#[cfg(test)]
mod tests;
