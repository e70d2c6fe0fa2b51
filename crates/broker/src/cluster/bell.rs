//! What has happened that may matter to the members of quorum queues, for the reconciler to hear.
//!
//! Those who ring do not wait, and what is heard is bounded: a flag for each kind, and a queue once.

use std::collections::BTreeMap;

use model::id::QueueId;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// See the module head.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    heard: Mutex<Heard>,
    rung: Notify,
}

/// What has happened since somebody listened.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// Queues that this node leads now, or does not lead any more.
    pub(crate) leads: BTreeMap<QueueId, bool>,
    /// A node has connected or was lost.
    pub(crate) nodes: bool,
    /// The topology may have changed.
    pub(crate) topology: bool,
    /// Everything is to be looked at now.
    pub(crate) now: bool,
}

impl Bell {
    /// This node leads a queue, or does not any more.
    pub(crate) fn leads(&self, queue: QueueId, leads: bool) {
        self.heard.lock().leads.insert(queue, leads);
        self.rung.notify_one();
    }

    /// A node has connected or was lost.
    pub(crate) fn nodes(&self) {
        self.heard.lock().nodes = true;
        self.rung.notify_one();
    }

    /// The topology may have changed.
    pub(crate) fn topology(&self) {
        self.heard.lock().topology = true;
        self.rung.notify_one();
    }

    /// Somebody wants everything to be looked at.
    pub(crate) fn now(&self) {
        self.heard.lock().now = true;
        self.rung.notify_one();
    }

    /// Takes what has happened.
    pub(crate) fn take(&self) -> Heard {
        std::mem::take(&mut *self.heard.lock())
    }

    /// Waits until something happens, or has happened since the last time.
    pub(crate) async fn rung(&self) {
        self.rung.notified().await;
    }
}
