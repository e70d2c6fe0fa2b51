//! Words between the two nodes of a pair.
//!
//! ```text
//!  [journal u128][session u64][message of crate replication; none: the session is over]
//! ```
//!
//! A session is one attempt of a node to be the replica of another one, from its registration on. It
//! ends with the link, or when one side says so; nothing is ever sent again on another one.

use std::fmt;

use activation::file::JournalUid;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use model::id::NodeId;
use replication::message::{Downward, Upward};
use replication::wire;

/// The way to other nodes.
pub(crate) trait Line: fmt::Debug + Send + Sync + 'static {
    /// Sends a word behind all before it; `false`: it cannot be sent, and what follows cannot either.
    fn send(&self, to: NodeId, word: Bytes) -> bool;

    /// Whether a node is connected.
    fn is_up(&self, node: NodeId) -> bool;

    /// Whether changes of the metadata can be made, as far as this node knows.
    fn has_quorum(&self) -> bool;
}

/// Names a session on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) journal: JournalUid,
    /// The other node.
    pub(crate) with: NodeId,
    /// Drawn at random by the node that wants to be the replica.
    pub(crate) id: u64,
}

const HEAD: usize = 24;

impl Session {
    /// What the active node says.
    pub(crate) fn downward(self, message: &Downward) -> Bytes {
        let payload = match message {
            Downward::Request(_, request) => request.size(),
            _ => 0,
        };
        let mut out = self.head(payload + 32);
        wire::encode_downward(message, &mut out);
        out.freeze()
    }

    /// What the replica says.
    pub(crate) fn upward(self, message: &Upward) -> Bytes {
        let mut out = self.head(32);
        wire::encode_upward(message, &mut out);
        out.freeze()
    }

    /// That it is over.
    pub(crate) fn end(self) -> Bytes {
        self.head(0).freeze()
    }

    fn head(self, more: usize) -> BytesMut {
        let mut out = BytesMut::with_capacity(HEAD + more);
        out.put_u128_le(self.journal.0);
        out.put_u64_le(self.id);
        out
    }

    /// Which session a word belongs to, and the message.
    pub(crate) fn read(from: NodeId, mut word: Bytes) -> Option<(Self, Bytes)> {
        let journal = JournalUid(word.try_get_u128_le().ok()?);
        let id = word.try_get_u64_le().ok()?;
        Some((Self { journal, with: from, id }, word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back() {
        let session = Session { journal: JournalUid(7), with: NodeId(2), id: 9 };
        let (known, message) = Session::read(NodeId(2), session.upward(&Upward::InSync)).unwrap();
        assert_eq!(known, session);
        assert_eq!(wire::decode_upward(message), Ok(Upward::InSync));
        let (_, message) = Session::read(NodeId(2), session.end()).unwrap();
        assert!(message.is_empty());
        assert!(Session::read(NodeId(2), Bytes::from_static(b"short")).is_none());
    }
}
