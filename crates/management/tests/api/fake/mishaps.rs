//! What befalls the nodes and members that the fake node knows.

use std::sync::atomic::Ordering;

use model::id::{NodeId, QueueId};

use super::Fake;

impl Fake {
    /// Members of queues may not be changed.
    pub(crate) fn restrict(&self) {
        self.restricted.store(true, Ordering::Relaxed);
    }

    /// A node has lost its members of these queues.
    pub(crate) fn lose(&self, queues: &[QueueId]) {
        self.inner.lock().lost = queues.iter().copied().collect();
    }

    /// Nodes may not be forgotten for this reason, or may again.
    pub(crate) fn keep_nodes(&self, why: Option<&str>) {
        self.inner.lock().keeps_nodes = why.map(str::to_owned);
    }

    /// A node does not run.
    pub(crate) fn stop(&self, node: NodeId) {
        self.inner.lock().stopped.push(node);
    }

    /// It runs again.
    pub(crate) fn runs(&self, node: NodeId) {
        self.inner.lock().stopped.retain(|one| *one != node);
    }
}
