//! What the two sides say to each other.

use activation::age::Age;
use activation::file::JournalUid;
use bytes::Bytes;

/// The number of a request within one connection, from 1, without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(pub u64);

/// From the node that wants to be the replica, and later its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upward {
    /// The first word on a connection.
    Register {
        /// Which journal.
        journal: JournalUid,
    },
    /// Everything up to this request is durable here.
    Durable(Number),
    /// The copy is whole and its age written. Follows the answer to [`Request::Whole`].
    InSync,
}

/// From the active node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Downward {
    /// The registration is accepted; requests follow.
    Accepted,
    /// It is not, since another replica is there or this node does not serve: ask again later, or
    /// somebody else. The connection ends.
    Refused,
    /// A request that is answered in its turn.
    Request(Number, Request),
    /// The active node has begun to stop. Not answered.
    StopCalled,
    /// It has stopped, and everything that it sent was the last. Not answered.
    HandedOver,
}

/// What the replica must store, or know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// A piece of the copy.
    Piece {
        /// Which file of the journal.
        file: u64,
        /// Where in it.
        offset: u64,
        /// What stands there.
        bytes: Bytes,
    },
    /// What the journal appended while the copy ran, or later: the same bytes in the same order.
    Batch {
        /// The position of the batch in the journal's order, from 1.
        position: u64,
        /// Its records.
        bytes: Bytes,
    },
    /// Everything that was there when the copy began has been sent.
    Whole {
        /// The age of the active node's copy.
        age: Age,
    },
}

impl Request {
    /// The bytes that it makes the replica store.
    pub fn size(&self) -> usize {
        match self {
            Self::Piece { bytes, .. } | Self::Batch { bytes, .. } => bytes.len(),
            Self::Whole { .. } => 0,
        }
    }
}
