//! What one node says of what it keeps, leads and serves.
//!
//! Nodes send it each other as JSON: a node of another version leaves out what it does not have, and
//! what it has in addition is passed over.

use amq_protocol_types::FieldTable;
use model::id::{ConnectionId, NodeId, QueueId};
use serde::{Deserialize, Serialize};

use super::connection::{ChannelInfo, ConnectionInfo};
use super::counters::{ChurnCounters, ExchangeCounters, MessageCounters};
use super::node::NodeStats;
use super::queue::QueueStats;

/// See the module head.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Part {
    /// The node.
    #[serde(with = "node_id")]
    pub id: NodeId,
    /// Classic queues that it keeps, and quorum queues that it leads, ascending.
    #[serde(default)]
    pub queues: Vec<QueuePart>,
    /// Its members of quorum queues, ascending.
    #[serde(default)]
    pub members: Vec<MemberPart>,
    /// Its connections.
    #[serde(default)]
    pub connections: Vec<ConnectionInfo>,
    /// Their channels.
    #[serde(default)]
    pub channels: Vec<ChannelInfo>,
    /// Whom its connections belong to, if nothing else was asked about them.
    #[serde(default)]
    pub clients: Vec<ClientPart>,
    /// What went through exchanges on it, if that was asked about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exchanges: Vec<ExchangePart>,
    /// What happened to messages on it.
    #[serde(default)]
    pub messages: MessageCounters,
    /// Comings and goings on it.
    #[serde(default)]
    pub churn: ChurnCounters,
    /// The node itself, if that was asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeStats>,
}

/// A queue, as who keeps or leads it says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct QueuePart {
    /// Which.
    #[serde(with = "queue_id")]
    pub id: QueueId,
    /// The term that it is led in; 0: it is a classic queue.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub term: u64,
    /// What it holds and does.
    pub stats: QueueStats,
    /// Of a quorum queue: the members that vote.
    #[serde(default, with = "node_ids", skip_serializing_if = "Vec::is_empty")]
    pub voters: Vec<NodeId>,
    /// Of a quorum queue: the members that do not vote.
    #[serde(default, with = "node_ids", skip_serializing_if = "Vec::is_empty")]
    pub learners: Vec<NodeId>,
    /// Its consumers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consumers: Vec<ConsumerPart>,
}

/// A consumer, as its queue knows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ConsumerPart {
    /// Its connection.
    #[serde(with = "connection_id")]
    pub connection: ConnectionId,
    /// Its channel.
    pub channel: u16,
    /// Its tag.
    pub tag: String,
    /// Whether it settles.
    pub ack_required: bool,
    /// Whether it is the only one of its queue.
    pub exclusive: bool,
    /// Limit of unsettled deliveries; 0 is none.
    pub prefetch_count: u32,
    /// Arguments of `basic.consume`.
    #[serde(with = "metadata::arguments::text")]
    pub arguments: FieldTable,
    /// Who subscribed.
    pub user: String,
    /// Its time-out in milliseconds, if it has one.
    pub timeout_ms: Option<u64>,
    /// Whether it is the one whose turn it is.
    pub has_turn: bool,
}

/// A node's member of a quorum queue. It is sent as three numbers: there are many.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(from = "(u64, u64, u64)", into = "(u64, u64, u64)")]
pub struct MemberPart {
    /// The queue.
    pub queue: QueueId,
    /// The newest term that it knows.
    pub term: u64,
    /// Who leads, as far as it knows; 0: nobody.
    pub leader: NodeId,
}

impl From<(u64, u64, u64)> for MemberPart {
    fn from((queue, term, leader): (u64, u64, u64)) -> Self {
        Self { queue: QueueId(queue), term, leader: NodeId(leader) }
    }
}

impl From<MemberPart> for (u64, u64, u64) {
    fn from(member: MemberPart) -> Self {
        (member.queue.0, member.term, member.leader.0)
    }
}

/// An exchange that had traffic.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExchangePart {
    /// Its virtual host.
    pub vhost: String,
    /// Its name.
    pub name: String,
    /// What went through it.
    pub counters: ExchangeCounters,
}

/// Whom a connection belongs to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClientPart {
    /// The connection.
    #[serde(with = "connection_id")]
    pub id: ConnectionId,
    /// Its name.
    pub name: String,
    /// Address of the client.
    pub peer_host: String,
    /// Port of the client.
    pub peer_port: u16,
}

impl Part {
    /// A node that has nothing.
    pub fn empty(id: NodeId) -> Self {
        Self {
            id,
            queues: Vec::new(),
            members: Vec::new(),
            connections: Vec::new(),
            channels: Vec::new(),
            clients: Vec::new(),
            exchanges: Vec::new(),
            messages: MessageCounters::default(),
            churn: ChurnCounters::default(),
            node: None,
        }
    }

    /// As it is sent.
    pub fn encode(&self) -> Vec<u8> {
        // About as long as what it will have: a text of megabytes that grows is copied over and over.
        let length = 1024 + self.queues.len() * 384 + self.members.len() * 24;
        let mut text = Vec::with_capacity(length);
        serde_json::to_writer(&mut text, self).expect("all keys are texts");
        text
    }

    /// Reads what [`Part::encode`] writes.
    ///
    /// # Errors
    /// If it is something else.
    pub fn decode(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}

macro_rules! number {
    ($(#[$doc:meta])* $module:ident, $id:ident) => {
        $(#[$doc])*
        pub(crate) mod $module {
            use model::id::$id;
            use serde::{Deserialize as _, Deserializer, Serializer};

            pub(crate) fn serialize<S: Serializer>(id: &$id, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_u64(id.0)
            }

            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<$id, D::Error> {
                u64::deserialize(from).map($id)
            }
        }
    };
}

number!(
    /// A plain number.
    connection_id,
    ConnectionId
);
number!(
    /// A plain number.
    queue_id,
    QueueId
);
number!(
    /// A plain number.
    node_id,
    NodeId
);

/// Plain numbers.
mod node_ids {
    use model::id::NodeId;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(ids: &[NodeId], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(ids.iter().map(|id| id.0))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<NodeId>, D::Error> {
        Ok(Vec::<u64>::deserialize(from)?.into_iter().map(NodeId).collect())
    }
}
