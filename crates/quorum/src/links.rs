//! Which nodes are connected, as the transport's failure detector tells.
//!
//! Each connection has a number, so that whoever began something on one can tell that it is gone
//! even if the next is there already.

use model::id::NodeId;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(feature = "sim"))]
use tokio::sync::watch;

#[cfg(feature = "sim")]
use crate::sim::watch;

/// The connection with a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Link {
    pub(crate) up: bool,
    /// How many connections there were, this one included.
    pub(crate) number: u64,
}

/// All connections.
#[derive(Debug, Default)]
pub(crate) struct Links {
    nodes: RwLock<BTreeMap<NodeId, watch::Sender<Link>>>,
    changes: AtomicU64,
}

impl Links {
    /// Grows with each connection that is made or lost.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The number of the connection with a node, if there is one.
    pub(crate) fn number(&self, node: NodeId) -> Option<u64> {
        let nodes = self.nodes.read();
        let link = *nodes.get(&node)?.borrow();
        link.up.then_some(link.number)
    }

    pub(crate) fn watch(&self, node: NodeId) -> watch::Receiver<Link> {
        if let Some(link) = self.nodes.read().get(&node) {
            return link.subscribe();
        }
        self.nodes.write().entry(node).or_default().subscribe()
    }

    /// The nodes that are connected.
    pub(crate) fn up(&self) -> Vec<NodeId> {
        let nodes = self.nodes.read();
        nodes.iter().filter(|(_, link)| link.borrow().up).map(|(node, _)| *node).collect()
    }

    /// There is a new connection with the node.
    pub(crate) fn on_up(&self, node: NodeId) {
        let mut nodes = self.nodes.write();
        let link = nodes.entry(node).or_default();
        link.send_modify(|link| *link = Link { up: true, number: link.number + 1 });
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// The connection is lost.
    pub(crate) fn on_down(&self, node: NodeId) {
        let mut nodes = self.nodes.write();
        nodes.entry(node).or_default().send_modify(|link| link.up = false);
        self.changes.fetch_add(1, Ordering::Release);
    }
}
