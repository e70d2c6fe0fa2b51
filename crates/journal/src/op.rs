//! What the journal is asked to do: operations and what they carry.

use bytes::Bytes;
use model::id::{Seq, StreamId};
use model::message::Message;
use parking_lot::Mutex;
use std::fmt;

/// How many operations were handed over since the journal was opened; names the last of a batch.
/// A batch is durable when the watermark has reached its `Lsn`. Not kept across restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

/// Up to 24 opaque bytes that are kept beside a payload and given back at recovery, so that the
/// owner can rebuild its state without reading payloads.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    length: u8,
    bytes: [u8; Self::MAX],
}

impl Head {
    /// The most bytes that a head can hold.
    pub const MAX: usize = 24;

    /// Copies `bytes`.
    ///
    /// # Panics
    /// If there are more than [`Head::MAX`].
    pub fn new(bytes: &[u8]) -> Self {
        assert!(bytes.len() <= Self::MAX, "head of {} bytes exceeds {}", bytes.len(), Self::MAX);
        let mut head = Self { length: bytes.len() as u8, bytes: [0; Self::MAX] };
        head.bytes[..bytes.len()].copy_from_slice(bytes);
        head
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length as usize]
    }
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Head({:02x?})", self.as_slice())
    }
}

/// What a put stores.
#[derive(Debug, Clone)]
pub enum Payload {
    /// The storage form of a message (`Message::encode_into`); read back with `Message::decode`.
    Message(Message),
    /// These bytes.
    Bytes(Bytes),
    /// The storage form of a message that other puts store too. It reaches the disk once.
    Shared(std::sync::Arc<Shared>),
}

impl Payload {
    /// Bytes that a read will give back.
    pub fn len(&self) -> usize {
        match self {
            Self::Message(message) => message.encoded_len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Shared(shared) => shared.message.encoded_len(),
        }
    }

    /// Whether a read will give back nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A message that several streams store: the first put writes its body, later ones refer to it.
///
/// The writer remembers here where the body went. The memory of it is only good for the segment
/// that was current then (checked by generation), so a put that comes much later writes the body
/// again instead of tying two segments together.
#[derive(Debug)]
pub struct Shared {
    pub(crate) message: Message,
    pub(crate) place: Mutex<Place>,
}

/// The segment generation and offset of a shared body; generation 0 means not written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Which opening of which journal wrote it.
    pub(crate) instance: u64,
    pub(crate) generation: u64,
    pub(crate) offset: u32,
}

impl Shared {
    /// Wraps a message; give clones of the same `Arc` to all puts of it.
    pub fn new(message: Message) -> Self {
        Self { message, place: Mutex::new(Place::default()) }
    }

    /// The message.
    pub fn message(&self) -> &Message {
        &self.message
    }
}

/// What a put does when the disk is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// It waits until there is room, and all bulk puts behind it wait too. Everything else goes on
    /// past it, **releases of the same stream included**: who replaces a record by a bulk put
    /// releases the old one only when the new one is durable.
    Bulk,
    /// It goes into the reserve, past bulk puts that wait. For what is small and rare, and must
    /// go on so that somebody can make room: a record of more than a quarter of a segment gets
    /// nothing of the reserve, and vital puts leave half of what was taken from it to releases.
    /// Where that does not do, vital puts wait too, in order, and so does whatever follows them in
    /// their streams.
    Vital,
}

/// One operation. Operations take effect in the order in which they are handed over, but for puts
/// that wait for room; see [`Class`].
#[derive(Debug, Clone)]
pub enum Op {
    /// Stores a payload under a name that was never given before. The name's sequence number must
    /// be higher than any the stream has ever had; a payload must stay below
    /// [`Op::PAYLOAD_MAX`].
    Put {
        /// The stream; not dropped before.
        stream: StreamId,
        /// Its position.
        seq: Seq,
        /// What it does when the disk is full.
        class: Class,
        /// Given back at recovery.
        head: Head,
        /// Given back by a read.
        payload: Payload,
    },
    /// Replaces the head of a record that was put and not released; otherwise without effect.
    Note {
        /// The record's stream.
        stream: StreamId,
        /// The record's position.
        seq: Seq,
        /// The new head.
        bytes: Head,
    },
    /// Forgets all records of a stream in an inclusive range; positions without one are fine.
    Release {
        /// The stream.
        stream: StreamId,
        /// The first position.
        first: Seq,
        /// The last position, not below the first.
        last: Seq,
    },
    /// Forgets a stream for good.
    Drop {
        /// The stream.
        stream: StreamId,
    },
}

impl Op {
    /// The largest payload, 1 GiB less 1 MiB.
    pub const PAYLOAD_MAX: usize = (1 << 30) - (1 << 20);

    /// Whose records it is about.
    pub(crate) fn stream(&self) -> StreamId {
        match self {
            Self::Put { stream, .. }
            | Self::Note { stream, .. }
            | Self::Release { stream, .. }
            | Self::Drop { stream } => *stream,
        }
    }

    /// Whether somebody is thought to wait for it, so that it asks for a sync at once.
    pub(crate) fn is_urgent(&self) -> bool {
        matches!(self, Self::Put { .. } | Self::Drop { .. })
    }
}
