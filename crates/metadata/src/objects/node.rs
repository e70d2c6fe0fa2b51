//! A node of the cluster.

use model::id::NodeId;
use serde::{Deserialize, Serialize};

use crate::objects::Name;

/// A node as it has made itself known. A node that was wiped is another one under the same name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its incarnation.
    #[serde(with = "node_id")]
    pub id: NodeId,
    /// What people call it.
    pub name: Name,
    /// A short name, from 1; never given twice.
    pub number: u16,
    /// Where its peers reach it, `host:port`.
    pub address: String,
    /// What it does.
    pub role: NodeRole,
    /// Which start of it is the last one.
    pub boot: u64,
    /// What that start has drawn; 0: it has told nothing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub start: u64,
    /// What members of a quorum queue are spread over, such as a rack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Name>,
    /// Another incarnation has taken its name: it does not come back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
    /// It is in maintenance mode: it leads nothing if others can, and gets nothing new. A new start
    /// ends that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub maintenance: bool,
}

impl Node {
    /// Whether the last start that is known has overtaken this one: it is a later one, or it ran on a
    /// copy of the data directory. `starts`: see [`PutNode`](crate::command::PutNode).
    pub fn has_overtaken(&self, boot: u64, starts: &[u64]) -> bool {
        let told = self.start != 0 && !starts.is_empty();
        self.boot > boot || told && !starts.contains(&self.start)
    }

    /// Whether it can have copies of journals and members of queues.
    pub fn keeps_queues(&self) -> bool {
        self.role == NodeRole::Full && !self.lost
    }

    /// Whether queues may be put there.
    pub fn takes_queues(&self) -> bool {
        self.keeps_queues() && !self.maintenance
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What a node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NodeRole {
    /// Everything.
    #[serde(rename = "full")]
    Full,
    /// It votes on the topology and keeps no queues.
    #[serde(rename = "witness")]
    Witness,
}

impl NodeRole {
    /// The name that the configuration uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Witness => "witness",
        }
    }
}

/// Ids are plain numbers in records.
pub(crate) mod node_id {
    use model::id::NodeId;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
    pub(crate) fn serialize<S: Serializer>(id: &NodeId, to: S) -> Result<S::Ok, S::Error> {
        id.0.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<NodeId, D::Error> {
        u64::deserialize(from).map(NodeId)
    }
}

/// A node on its own has no id in records, and queues of one node have no list of members.
pub(crate) mod home {
    use model::id::NodeId;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// The node of a queue that was declared before there were clusters.
    pub(crate) fn none() -> NodeId {
        NodeId(0)
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
    pub(crate) fn is_none(id: &NodeId) -> bool {
        id.0 == 0
    }

    pub(crate) mod members {
        use super::{Deserialize, Deserializer, NodeId, Serialize, Serializer};

        pub(crate) fn serialize<S: Serializer>(ids: &[NodeId], to: S) -> Result<S::Ok, S::Error> {
            let ids: Vec<u64> = ids.iter().map(|id| id.0).collect();
            ids.serialize(to)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Vec<NodeId>, D::Error> {
            Ok(Vec::<u64>::deserialize(from)?.into_iter().map(NodeId).collect())
        }
    }
}
