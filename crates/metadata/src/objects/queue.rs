//! A queue's entry in the topology.

use std::fmt;

use amq_protocol_types::FieldTable;
use model::id::{ConnectionId, NodeId, QueueId, StreamId};
use serde::{Deserialize, Serialize};

use crate::objects::Name;
use crate::objects::member::Member;
use crate::objects::node::home;

/// A queue as it was declared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    /// Never reused, not even for a queue of the same name.
    #[serde(with = "queue_id")]
    pub id: QueueId,
    /// Where.
    pub vhost: Name,
    /// The name.
    pub name: Name,
    /// Who keeps its messages.
    pub kind: QueueKind,
    /// Survives a restart; never set for an exclusive queue.
    pub durable: bool,
    /// Goes with its last consumer.
    pub auto_delete: bool,
    /// The only connection that may use it, and with which it goes.
    #[serde(default, with = "connection_id", skip_serializing_if = "Option::is_none")]
    pub exclusive_owner: Option<ConnectionId>,
    /// Such as `x-message-ttl`.
    #[serde(default, with = "crate::arguments::text")]
    pub arguments: FieldTable,
    /// Who declared it.
    pub user_who_performed_action: Name,
    /// The node that a classic queue is kept on; 0: a node on its own.
    #[serde(
        default = "home::none",
        with = "crate::objects::node::node_id",
        skip_serializing_if = "home::is_none"
    )]
    pub home: NodeId,
    /// The named journal that a classic queue is in: it is kept where that is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<Name>,
    /// The members of a quorum queue, its first leader before the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
}

impl Queue {
    /// The member on a node.
    pub fn member(&self, node: NodeId) -> Option<&Member> {
        self.members.iter().find(|member| member.node == node)
    }

    /// The nodes of its members.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members.iter().map(|member| member.node)
    }

    /// Whether one consumer at a time gets messages.
    pub fn is_single_active(&self) -> bool {
        crate::arguments::boolean(&self.arguments, "x-single-active-consumer").unwrap_or(false)
    }

    /// Its stream in the journal of a node that keeps it, or a part of it.
    pub fn stream(&self, node: NodeId) -> Option<StreamId> {
        match self.kind {
            QueueKind::Classic => Some(self.id.into()),
            QueueKind::Quorum => self.member(node).map(|member| member.stream),
        }
    }
}

/// Who keeps a queue's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum QueueKind {
    /// One node.
    #[serde(rename = "classic")]
    Classic,
    /// A Raft group.
    #[serde(rename = "quorum")]
    Quorum,
}

impl QueueKind {
    /// The name that clients use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Quorum => "quorum",
        }
    }

    /// The kind of that name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Classic, Self::Quorum].into_iter().find(|known| known.as_str() == name)
    }
}

impl fmt::Display for QueueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Ids are plain numbers in records.
pub(crate) mod queue_id {
    use model::id::QueueId;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
    pub(crate) fn serialize<S: Serializer>(id: &QueueId, to: S) -> Result<S::Ok, S::Error> {
        id.0.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<QueueId, D::Error> {
        u64::deserialize(from).map(QueueId)
    }
}

/// Ids are plain numbers in records.
pub(crate) mod connection_id {
    use model::id::ConnectionId;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "the signature is serde's")]
    pub(crate) fn serialize<S: Serializer>(
        id: &Option<ConnectionId>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        id.map(|id| id.0).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<ConnectionId>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(ConnectionId))
    }
}
