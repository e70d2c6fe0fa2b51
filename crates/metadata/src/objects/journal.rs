//! A named journal: classic queues that move together, on one node or on two.

use model::id::NodeId;
use serde::{Deserialize, Serialize};

use crate::objects::Name;
use crate::objects::node::home;

/// A named journal of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// Its name, unique in the cluster.
    pub name: Name,
    /// Its uid, 32 hexadecimal digits: the id of its lock and its register, and a part of the names
    /// of its folders. Never used twice.
    pub uid: Name,
    /// The node that founded it; one of the two that may have a copy.
    #[serde(with = "crate::objects::node::node_id")]
    pub node: NodeId,
    /// The other one; 0: none.
    #[serde(
        default = "home::none",
        with = "crate::objects::node::node_id",
        skip_serializing_if = "home::is_none"
    )]
    pub backup: NodeId,
    /// It has a register: it has, or had, a backup. Never taken back.
    #[serde(default)]
    pub paired: bool,
    /// Who serves it, as far as anybody has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<Served>,
    /// How often somebody has begun to serve it: the number that the last one was given.
    #[serde(default)]
    pub term: u64,
}

/// Somebody has begun to serve a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// The incarnation of the node.
    pub node: u64,
    /// Which start of it.
    pub boot: u64,
}

impl Journal {
    /// The nodes that may have a copy.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        [self.node, self.backup].into_iter().filter(|node| node.0 != 0)
    }

    /// Whether a node may have a copy.
    pub fn is_on(&self, node: NodeId) -> bool {
        self.nodes().any(|known| known == node)
    }

    /// The node that has the other copy than this one, if there is one.
    pub fn other_than(&self, node: NodeId) -> Option<NodeId> {
        self.nodes().find(|known| *known != node)
    }

    /// The node that serves it, as far as anybody has said so; else the one that founded it.
    pub fn home(&self) -> NodeId {
        self.served.map_or(self.node, |served| NodeId(served.node))
    }
}
