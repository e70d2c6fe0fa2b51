//! Names of things that outlive a process.

use std::fmt;

/// A queue's life. Given once by the metadata machine and never reused: a queue that is deleted
/// and declared again under its old name has a new id, so nothing of the old one can reach it.
///
/// The same number names the queue's stream in the journal (see [`StreamId`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u64);

/// A stream of records in a journal. Never reused once deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// The position of a message in its queue: strictly increasing in the order of arrival.
///
/// In a classic queue it is the position in the queue's stream of the journal and has no gaps at
/// birth; in a quorum queue it is made of the Raft index and the ordinal within the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// The position after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A number that nobody else in the cluster gives: the number of a node in 12 bits, which start of it
/// in 16, and the giver's own counter in 36. The last bits of each count: a start 65,536 starts ago is
/// long gone.
pub fn unique(node: u16, boot: u64, counter: u64) -> u64 {
    let cut = |value: u64, bits: u32| value & ((1 << bits) - 1);
    (cut(node.into(), 12) << 52) | (cut(boot, 16) << 36) | cut(counter, 36)
}

/// A client connection: [`unique`] in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

impl ConnectionId {
    /// The connection of a node's start with this counter.
    pub fn new(node: u16, boot: u64, counter: u64) -> Self {
        Self(unique(node, boot, counter))
    }

    /// The number of the node that it is connected to.
    pub fn node(self) -> u16 {
        (self.0 >> 52) as u16
    }
}

/// A subscription to a queue: [`unique`] in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerId(pub u64);

/// A node's incarnation: drawn at random when its data directory is made, so a node that lost its
/// data is another node although it bears the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl From<QueueId> for StreamId {
    fn from(queue: QueueId) -> Self {
        Self(queue.0)
    }
}

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue#{}", self.0)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream#{}", self.0)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_and_nodes_do_not_share_numbers() {
        assert_eq!(unique(0, 0, 7), 7);
        let ids = [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, 1), (4095, 65_535, (1 << 36) - 1)];
        let mut all: Vec<u64> = ids.map(|(node, boot, counter)| unique(node, boot, counter)).into();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), ids.len());
        assert_eq!(unique(1, 65_536 + 3, 5), unique(1, 3, 5));
        assert_eq!(ConnectionId::new(4095, 9, 9).node(), 4095);
    }
}
