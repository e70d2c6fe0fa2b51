//! All shards of the node, as those see them who post to them.

use std::sync::Arc;

use model::id::QueueId;

use crate::inbox::Inbox;
use crate::shard::command::Batch;

/// See the module head. A queue's shard never changes.
#[derive(Debug)]
pub(crate) struct Shards {
    inboxes: Vec<Arc<Inbox>>,
}

impl Shards {
    /// So many shards, at least one.
    pub(crate) fn new(count: usize) -> Self {
        Self { inboxes: (0..count.max(1)).map(|_| Arc::default()).collect() }
    }

    pub(crate) fn len(&self) -> usize {
        self.inboxes.len()
    }

    /// Which shard owns a queue.
    pub(crate) fn index_of(&self, queue: QueueId) -> usize {
        usize::try_from(queue.0 % self.inboxes.len() as u64).unwrap_or_default()
    }

    pub(crate) fn inbox(&self, index: usize) -> &Arc<Inbox> {
        &self.inboxes[index]
    }

    /// Posts to the shard that owns a queue.
    pub(crate) fn post(&self, queue: QueueId, batch: Batch) {
        self.inboxes[self.index_of(queue)].post(batch);
    }

    /// Makes all shards look around.
    pub(crate) fn wake_all(&self) {
        for inbox in &self.inboxes {
            inbox.wake();
        }
    }
}
