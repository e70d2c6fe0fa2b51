//! Bytes ↔ frames.
//!
//! ```text
//!   length u32 │ kind u8 │ channel u8 │ correlation u64 │ payload
//!              └──────────────── length bytes ─────────────────┘
//! ```
//!
//! Numbers are big-endian. Messages, pings and pongs have correlation 0; pings and pongs have
//! channel 0 and no payload.
//!
//! A payload of more than 8 MiB goes in several frames: parts, and then the message, request or
//! answer with the rest. Nothing but pings and pongs comes between them.

use bytes::{Buf, BufMut, Bytes, BytesMut};

#[cfg(test)]
mod tests;

/// The most bytes that one message, request or answer can carry: what a record of the journal can. It
/// holds up everything behind it but pings, so large things that can be cut are the caller's to cut.
pub const PAYLOAD_MAX: usize = (1 << 30) - (1 << 20);

/// The most bytes of it that one frame carries: a ping waits for one frame at most, and so much is
/// put together again at the other end without a copy.
pub(crate) const PART: usize = 8 << 20;

/// Bytes of a frame beside its payload.
pub(crate) const HEADER: usize = 14;
/// Those of them that the length counts.
const COUNTED: usize = 10;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Message = 1,
    Request = 2,
    Answer = 3,
    /// There will be no answer: the one who was asked has dropped the question.
    Dropped = 4,
    Ping = 5,
    Pong = 6,
    /// The beginning of a payload whose rest follows.
    Part = 7,
}

impl Kind {
    fn from_wire(code: u8) -> Option<Self> {
        use Kind::{Answer, Dropped, Message, Part, Ping, Pong, Request};
        let all = [Message, Request, Answer, Dropped, Ping, Pong, Part];
        all.into_iter().find(|kind| *kind as u8 == code)
    }
}

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) channel: u8,
    pub(crate) correlation: u64,
    pub(crate) payload: Bytes,
}

/// Why bytes are no frame. The connection is of no use then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("frame of {bytes} bytes exceeds the maximum of {max}")]
    TooLong { bytes: usize, max: usize },
    #[error("frame of {0} bytes is too short to be one")]
    TooShort(usize),
    #[error("frame of unknown kind {0}")]
    UnknownKind(u8),
    #[error("frame of kind {0:?} with a payload")]
    UnwantedPayload(Kind),
    #[error("a payload of {0} bytes in parts exceeds the maximum of {PAYLOAD_MAX}")]
    TooManyParts(usize),
}

impl Frame {
    /// Bytes of the frame on the wire.
    pub(crate) fn len(&self) -> usize {
        HEADER + self.payload.len()
    }

    /// Writes everything but the payload.
    pub(crate) fn put_header(&self, out: &mut BytesMut) {
        debug_assert!(self.payload.len() <= PART);
        // One write of 14 bytes: frames are many and small.
        let length = u32::try_from(COUNTED + self.payload.len()).expect("payloads are bounded");
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(&length.to_be_bytes());
        header[4] = self.kind as u8;
        header[5] = self.channel;
        header[6..].copy_from_slice(&self.correlation.to_be_bytes());
        out.put_slice(&header);
    }
}

/// What stands at the front of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Front {
    /// A whole frame of this kind: [`cut`] takes it off.
    Whole(Kind),
    /// A part of one: this many bytes more are needed, at least.
    Partial(usize),
}

/// Looks at the front of `input` without taking anything off.
///
/// # Errors
/// As soon as the bytes cannot become a frame, before its payload is there.
pub(crate) fn front(input: &[u8]) -> Result<Front, FrameError> {
    let Some(length) = input.first_chunk() else { return Ok(Front::Partial(HEADER - input.len())) };
    let length = u32::from_be_bytes(*length) as usize;
    let max = COUNTED + PART;
    if length > max {
        return Err(FrameError::TooLong { bytes: length, max });
    }
    if length < COUNTED {
        return Err(FrameError::TooShort(length));
    }
    let Some(&code) = input.get(4) else { return Ok(Front::Partial(HEADER - input.len())) };
    let kind = Kind::from_wire(code).ok_or(FrameError::UnknownKind(code))?;
    match kind {
        Kind::Message | Kind::Request | Kind::Answer | Kind::Part => {}
        Kind::Dropped | Kind::Ping | Kind::Pong if length > COUNTED => {
            return Err(FrameError::UnwantedPayload(kind));
        }
        Kind::Dropped | Kind::Ping | Kind::Pong => {}
    }
    match (4 + length).checked_sub(input.len()) {
        None | Some(0) => Ok(Front::Whole(kind)),
        Some(missing) => Ok(Front::Partial(missing)),
    }
}

/// Takes the frame off the front of `input`; its payload is a slice of the same memory.
///
/// # Panics
/// Unless [`front`] said that it is whole.
pub(crate) fn cut(input: &mut BytesMut, kind: Kind) -> Frame {
    let length = input.get_u32() as usize;
    let mut frame = input.split_to(length).freeze();
    debug_assert_eq!(frame[0], kind as u8);
    let channel = frame[1];
    let correlation = u64::from_be_bytes(*frame[2..].first_chunk().expect("it is whole"));
    frame.advance(COUNTED);
    Frame { kind, channel, correlation, payload: frame }
}

/// The beginning of a payload that comes in parts.
#[derive(Debug, Default)]
pub(crate) struct Parts(BytesMut);

impl Parts {
    /// Takes a part.
    ///
    /// # Errors
    /// If it is more than a payload can be.
    pub(crate) fn push(&mut self, part: &[u8]) -> Result<(), FrameError> {
        let bytes = self.0.len() + part.len();
        if bytes > PAYLOAD_MAX {
            return Err(FrameError::TooManyParts(bytes));
        }
        self.0.extend_from_slice(part);
        Ok(())
    }

    /// The whole payload, of which this is the rest.
    ///
    /// # Errors
    /// If it is more than a payload can be.
    pub(crate) fn join(&mut self, rest: Bytes) -> Result<Bytes, FrameError> {
        if self.0.is_empty() {
            return Ok(rest);
        }
        self.push(&rest)?;
        // Not to be kept: the next large one may be long in coming.
        Ok(std::mem::take(&mut self.0).freeze())
    }
}
