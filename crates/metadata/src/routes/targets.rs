//! The result of routing, reused from message to message.

use model::id::QueueId;

/// A queue that a message goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The queue.
    pub id: QueueId,
    /// Its persistent messages survive a restart.
    pub durable: bool,
}

/// The queues that a message goes to, each once. Keep one and clear it between messages: it keeps
/// its memory.
#[derive(Debug, Clone, Default)]
pub struct RouteSet {
    targets: Vec<Target>,
}

impl RouteSet {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the queues, keeps the memory.
    pub fn clear(&mut self) {
        self.targets.clear();
    }

    /// The queues, each once, in no particular order.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Whether no queue takes the message.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    pub(super) fn push(&mut self, target: Target) {
        self.targets.push(target);
    }

    /// Drops repetitions, needed when more than one list was added.
    pub(super) fn dedup(&mut self) {
        if self.targets.len() > 1 {
            self.targets.sort_unstable();
            self.targets.dedup();
        }
    }
}
