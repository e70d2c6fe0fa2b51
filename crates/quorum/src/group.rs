//! The name of a group.

use model::id::{QueueId, StreamId};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// By which number members of a group know each other: that of the group, until the group is made
/// anew of one member. Whoever has not heard of that speaks to a number that nobody answers to.
#[derive(Debug, Clone)]
pub(crate) struct Address(Arc<AtomicU64>);

impl Address {
    pub(crate) fn new(group: GroupId) -> Self {
        Self(Arc::new(AtomicU64::new(group.0)))
    }

    /// What it is now.
    pub(crate) fn get(&self) -> GroupId {
        GroupId(self.0.load(Ordering::Acquire))
    }

    pub(crate) fn set(&self, group: GroupId) {
        self.0.store(group.0, Ordering::Release);
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group#{}", self.0)
    }
}
