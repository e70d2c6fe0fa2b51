//! The name of a group.

use model::id::{QueueId, StreamId};
use std::fmt;

/// A Raft group. The same number names its queue if it is a queue's, and the stream of its first
/// members in their journals. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

impl GroupId {
    /// The stream of its first members in the journal; later ones have others.
    pub fn stream(self) -> StreamId {
        StreamId(self.0)
    }
}

impl From<QueueId> for GroupId {
    fn from(queue: QueueId) -> Self {
        Self(queue.0)
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group#{}", self.0)
    }
}
