//! Every change of the topology, and its encoding.
//!
//! ```text
//!  [version: u8 = 1][the command as JSON]
//! ```
//!
//! Field tables stand in it in AMQP's own encoding, base64, so that floats, decimals and bytes
//! that are no UTF-8 come back exactly.

use amq_protocol_types::FieldTable;
use bytes::Bytes;
use model::id::{ConnectionId, NodeId, QueueId};
use serde::{Deserialize, Serialize};

use crate::coordination::Coordination;
use crate::objects::Name;
use crate::objects::binding::Binding;
use crate::objects::limit::{UserLimit, VhostLimit};
use crate::objects::node::{NodeRole, home};
use crate::objects::parameter::{GlobalParameter, Parameter};
use crate::objects::permission::{Permission, TopicPermission};
use crate::objects::policy::Policy;
use crate::objects::queue::{Queue, connection_id, queue_id};
use crate::objects::user::User;
use crate::objects::vhost::Vhost;

/// A change. "Put" makes the object or replaces the one of its name; deleting what is not there
/// is refused as not found where the HTTP API needs that, and is nothing for exchanges, queues and
/// bindings, as AMQP wants it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// A new vhost gets its predeclared exchanges; of an existing one the fields change.
    PutVhost(Vhost),
    /// With all that is in it.
    DeleteVhost {
        /// Its name.
        name: Name,
    },
    /// Turns message tracing of a vhost on or off.
    SetTracing {
        /// Which vhost.
        vhost: Name,
        /// On or off.
        on: bool,
    },
    /// A user.
    PutUser(User),
    /// With its permissions and limits.
    DeleteUser {
        /// Its name.
        name: Name,
    },
    /// The permission of one user in one vhost.
    PutPermission(Permission),
    /// The permission of one user in one vhost.
    DeletePermission {
        /// Where.
        vhost: Name,
        /// Who.
        user: Name,
    },
    /// The permission of one user on one topic exchange.
    PutTopicPermission(TopicPermission),
    /// The permission of one user on one topic exchange, or on all of the vhost.
    DeleteTopicPermission {
        /// Where.
        vhost: Name,
        /// Who.
        user: Name,
        /// Which; `None`: all.
        exchange: Option<Name>,
    },
    /// `exchange.declare` that is not passive.
    DeclareExchange(DeclareExchange),
    /// `exchange.delete`, with the bindings from and to it.
    DeleteExchange {
        /// Where.
        vhost: Name,
        /// Its name.
        name: Name,
        /// Refuse if it has bindings as a source.
        if_unused: bool,
    },
    /// `queue.declare` that is not passive.
    DeclareQueue(DeclareQueue),
    /// `queue.delete`, queue expiry, auto-delete; with the bindings to it. Whether it is unused
    /// or empty is known to the caller alone.
    DeleteQueue {
        /// Where.
        vhost: Name,
        /// Its name.
        name: Name,
        /// Only if it is still this one: what ends an old queue must not reach a new one of the
        /// same name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<SerialQueueId>,
    },
    /// All exclusive queues of a connection that is gone.
    DeleteExclusiveQueues {
        /// The connection.
        #[serde(with = "plain_connection_id")]
        owner: ConnectionId,
    },
    /// `queue.bind`, `exchange.bind`. Nothing if the same binding exists.
    Bind(Binding),
    /// `queue.unbind`, `exchange.unbind`. Nothing if there is no such binding.
    Unbind(Binding),
    /// A policy.
    PutPolicy(Policy),
    /// A policy.
    DeletePolicy {
        /// Where.
        vhost: Name,
        /// Its name.
        name: Name,
    },
    /// An operator policy.
    PutOperatorPolicy(Policy),
    /// An operator policy.
    DeleteOperatorPolicy {
        /// Where.
        vhost: Name,
        /// Its name.
        name: Name,
    },
    /// A limit of a vhost.
    PutVhostLimit {
        /// Where.
        vhost: Name,
        /// Which limit.
        limit: VhostLimit,
        /// Negative: none.
        value: i64,
    },
    /// A limit of a vhost, or all.
    DeleteVhostLimit {
        /// Where.
        vhost: Name,
        /// Which limit; `None`: all.
        limit: Option<VhostLimit>,
    },
    /// A limit of a user.
    PutUserLimit {
        /// Who.
        user: Name,
        /// Which limit.
        limit: UserLimit,
        /// Negative: none.
        value: i64,
    },
    /// A limit of a user, or all.
    DeleteUserLimit {
        /// Who.
        user: Name,
        /// Which limit; `None`: all.
        limit: Option<UserLimit>,
    },
    /// A runtime parameter.
    PutParameter(Parameter),
    /// A runtime parameter.
    DeleteParameter {
        /// Whose.
        component: Name,
        /// Where.
        vhost: Name,
        /// Its name.
        name: Name,
    },
    /// A parameter of the cluster.
    PutGlobalParameter(GlobalParameter),
    /// A parameter of the cluster.
    DeleteGlobalParameter {
        /// Its name.
        name: Name,
    },
    /// The node has restarted: objects that are not durable go, and exclusive queues with them.
    /// Only for a node on its own.
    Restarted,
    /// A node of a cluster has started, or has changed.
    PutNode(PutNode),
    /// A start of a node is over, although no later one has made itself known yet: what lived with it
    /// is gone.
    NodeEnded {
        /// Its incarnation.
        id: u64,
        /// Which start.
        boot: u64,
    },
    /// A node does not come back: what it alone kept is gone.
    ForgetNode {
        /// Its incarnation.
        id: u64,
    },
    /// A node enters or leaves maintenance mode.
    SetMaintenance {
        /// Its incarnation.
        id: u64,
        /// Enters it.
        on: bool,
    },
    /// A quorum queue gets a member, which has not started: in the place of a lost one, if that is on
    /// this node. Nothing if it has another one there.
    AddMember {
        /// The queue.
        queue: SerialQueueId,
        /// The incarnation of a node that keeps queues.
        node: u64,
    },
    /// These have been told their groups' logs; nothing for those that are members no more.
    MembersStarted(Vec<MemberName>),
    /// A member that had started has lost its data; it gets a successor on its node. Nothing if it is
    /// none.
    MemberLost(MemberName),
    /// The majority of a quorum queue's members is gone for good: its group goes on with this one
    /// alone, under another number; the others delete what they have.
    Reform(MemberName),
    /// Somebody is not a member of a quorum queue's group any more: its node deletes what it has.
    /// Nothing if it is none, or another one is there by now.
    RemoveMember(MemberName),
    /// The same, if it has not started: one that was told its group's log meanwhile may vote, so it
    /// stays.
    WithdrawMember(MemberName),
    /// A lock or a register changes.
    Coordinate(Coordination),
    /// A named journal changes.
    ChangeJournal(JournalChange),
}

/// A change of a named journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum JournalChange {
    /// A new one. With a backup it is paired from the beginning.
    Create {
        /// Its name.
        name: Name,
        /// Its uid, drawn at random.
        uid: Name,
        /// The incarnation of the node that has it first.
        node: u64,
        /// The incarnation of the backup; 0: none.
        backup: u64,
        /// Names the life of its register.
        incarnation: u64,
    },
    /// One that is on one node gets a backup.
    SetBackup {
        /// Its name.
        name: Name,
        /// The incarnation of the node.
        node: u64,
    },
    /// The node that does not serve it leaves the pair, with its copy.
    RemoveBackup {
        /// Its name.
        name: Name,
    },
    /// The node that serves it gives it a register. Repeated it answers the same.
    Pair {
        /// Its uid.
        uid: Name,
        /// The incarnation of the node.
        founder: u64,
        /// Names the life of the register; drawn at random.
        incarnation: u64,
    },
    /// A node has begun to serve it.
    Serve {
        /// Its uid.
        uid: Name,
        /// The incarnation of the node.
        node: u64,
        /// Which start of it.
        boot: u64,
        /// Its grant of the journal's lock; of no account for a journal without a register.
        token: u64,
    },
    /// One that a node has on its disk and the topology knows nothing of comes back, without a backup
    /// and without a register, with all that was declared in it or with none of it.
    Adopt {
        /// Its name.
        name: Name,
        /// Its uid, which its folder has.
        uid: Name,
        /// The incarnation of the node.
        node: u64,
        /// Exchanges that its queues are bound to; those that are there stay as they are.
        exchanges: Vec<DeclareExchange>,
        /// Its queues as they were declared. They keep their numbers, which its messages stand under.
        queues: Vec<Queue>,
        /// Bindings to its queues.
        bindings: Vec<Binding>,
        /// The highest number that any of its messages stands under: no other queue may get one of
        /// these.
        last_queue: u64,
    },
    /// One without queues goes, with its lock and its register.
    Delete {
        /// Its name.
        name: Name,
    },
}

/// A node that makes itself known. A new incarnation takes the place of an older one with its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutNode {
    /// Its incarnation.
    pub id: u64,
    /// Its name.
    pub name: Name,
    /// Where its peers reach it.
    pub address: String,
    /// What it does.
    pub role: NodeRole,
    /// Which start of it this is; never lower than one that is known.
    pub boot: u64,
    /// What starts on its data directory have drawn, from the last one that the cluster took note of,
    /// as far as the directory knows, to this one. If the last one that is known here is none of them,
    /// it ran on a copy of the directory. Empty: not told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<u64>,
    /// What members of a quorum queue are spread over, such as a rack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Name>,
}

/// What `exchange.declare` asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeclareExchange {
    /// Where.
    pub vhost: Name,
    /// The name; the session has taken line breaks out of it.
    pub name: Name,
    /// The type as the client wrote it.
    pub kind: Name,
    /// Survives a restart.
    pub durable: bool,
    /// Goes with its last binding as a source.
    pub auto_delete: bool,
    /// Clients cannot publish to it.
    pub internal: bool,
    /// Such as `alternate-exchange`.
    #[serde(default, with = "crate::arguments::text")]
    pub arguments: FieldTable,
    /// Who asks.
    pub user: Name,
}

/// What `queue.declare` asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeclareQueue {
    /// Where.
    pub vhost: Name,
    /// The name; the session has taken line breaks out of it, and the caller has replaced an empty
    /// one by `amq.gen-…` and set `generated`.
    pub name: Name,
    /// The name was made by the broker, so that the reserved prefix is right.
    #[serde(default)]
    pub generated: bool,
    /// Survives a restart; ignored for an exclusive queue.
    pub durable: bool,
    /// Goes with its last consumer.
    pub auto_delete: bool,
    /// The asking connection, for an exclusive queue.
    #[serde(default, with = "connection_id", skip_serializing_if = "Option::is_none")]
    pub exclusive_owner: Option<ConnectionId>,
    /// Such as `x-message-ttl`.
    #[serde(default, with = "crate::arguments::text")]
    pub arguments: FieldTable,
    /// Who asks.
    pub user: Name,
    /// The node that asks, where a classic queue is kept; 0: a node on its own.
    #[serde(
        default = "home::none",
        with = "crate::objects::node::node_id",
        skip_serializing_if = "home::is_none"
    )]
    pub home: NodeId,
    /// The nodes that a quorum queue is put on, the first of which leads it (see
    /// [`crate::placement`]).
    #[serde(default, with = "home::members", skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<NodeId>,
    /// Those of them that are away: they do not found its group, and start when they are back.
    #[serde(default, with = "home::members", skip_serializing_if = "Vec::is_empty")]
    pub away: Vec<NodeId>,
}

/// A member of a quorum queue, by all that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MemberName {
    /// Of which queue.
    pub queue: SerialQueueId,
    /// On which node.
    pub node: u64,
    /// Its stream there.
    pub stream: u64,
}

/// A [`QueueId`] that can stand in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SerialQueueId(#[serde(with = "queue_id")] pub QueueId);

/// Why bytes are not a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotACommand {
    /// What is wrong with them.
    pub reason: String,
}

impl Command {
    /// The version that [`Command::encode`] writes.
    pub const VERSION: u8 = 1;

    /// The bytes of the command, for the journal.
    pub fn encode(&self) -> Bytes {
        let mut out = vec![Self::VERSION];
        serde_json::to_writer(&mut out, self).expect("a command has no keys that JSON cannot hold");
        Bytes::from(out)
    }

    /// Reads what [`Command::encode`] of this or an earlier version wrote.
    ///
    /// # Errors
    /// If the version is unknown or the bytes are damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, NotACommand> {
        match bytes.split_first() {
            Some((&Self::VERSION, json)) => serde_json::from_slice(json)
                .map_err(|error| NotACommand { reason: error.to_string() }),
            Some((version, _)) => Err(NotACommand {
                reason: format!("version {version}, and this node knows {}", Self::VERSION),
            }),
            None => Err(NotACommand { reason: "no bytes".into() }),
        }
    }
}

/// Ids are plain numbers in records.
mod plain_connection_id {
    use model::id::ConnectionId;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
    pub(super) fn serialize<S: Serializer>(id: &ConnectionId, to: S) -> Result<S::Ok, S::Error> {
        id.0.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<ConnectionId, D::Error> {
        u64::deserialize(from).map(ConnectionId)
    }
}
