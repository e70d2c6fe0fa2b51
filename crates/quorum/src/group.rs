//! The name of a group.

use model::id::{QueueId, StreamId};
use std::fmt;

/// A Raft group. The same number names its stream in every member's journal, and its queue if it
/// is a queue's. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

impl GroupId {
    /// Its stream in the journal.
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
