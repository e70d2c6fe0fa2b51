//! What nodes ask each other on behalf of operators.
//!
//! Questions are JSON: a node that does not know one says nothing.

use model::id::{NodeId, QueueId};
use serde::{Deserialize, Serialize};

use crate::members::{Changed, MemberError};
use crate::view::copy::Amendment;
use crate::view::part::{node_id, queue_id};

/// A question, or an order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Inquiry {
    /// What the node keeps, leads and serves; answered by a [`Part`](crate::view::part::Part).
    Part(Wanted),
    /// The node's member of a quorum queue; answered by an optional
    /// [`RaftMember`](crate::view::raft::RaftMember).
    Member(#[serde(with = "queue_id")] QueueId),
    /// Gives the leadership of a quorum queue to a node; answered by a [`Done`].
    Transfer {
        /// The queue.
        #[serde(with = "queue_id")]
        queue: QueueId,
        /// The next leader.
        #[serde(with = "node_id")]
        to: NodeId,
    },
    /// Gives a quorum queue that the node leads a member; answered by a [`Change`].
    AddMember {
        /// The queue.
        #[serde(with = "queue_id")]
        queue: QueueId,
        /// The member's node.
        #[serde(with = "node_id")]
        node: NodeId,
    },
    /// Takes a member from a quorum queue that the node leads; answered by a [`Change`].
    DeleteMember {
        /// The queue.
        #[serde(with = "queue_id")]
        queue: QueueId,
        /// The member's node.
        #[serde(with = "node_id")]
        node: NodeId,
        /// Even if too few running members are left.
        force: bool,
    },
    /// A quorum queue whose majority is gone goes on with the node's member alone; answered by a
    /// [`Change`].
    ForceShrink(#[serde(with = "queue_id")] QueueId),
    /// Takes checkpoints of the node's members of these quorum queues; answered by the queues for which
    /// that failed, by number, and why.
    Checkpoint(Vec<u64>),
    /// A look at a message of a quorum queue that the node leads; answered by a
    /// [`PeekedMessage`](crate::view::message::PeekedMessage) or a
    /// [`PeekError`](crate::view::message::PeekError).
    Peek {
        /// The queue.
        #[serde(with = "queue_id")]
        queue: QueueId,
        /// So many messages are delivered before it.
        before: u64,
        /// At most so many bytes of its body.
        most: usize,
    },
    /// Enters maintenance mode; answered by a [`Drained`](crate::members::Drained) or why not.
    Drain,
    /// Leaves maintenance mode; answered by a [`Done`].
    Revive,
    /// The leader of the metadata group takes a node that does not run out of the cluster; answered
    /// by a [`Done`].
    Forget(#[serde(with = "node_id")] NodeId),
    /// Whether the leader of the metadata group would do that now; answered by a [`Done`].
    MayForget(#[serde(with = "node_id")] NodeId),
    /// Queues whose members the node should have and has no data of; answered by their numbers.
    LostMembers,
    /// How the node keeps groups whole; answered by a
    /// [`ReconciliationReport`](crate::view::reconciliation::ReconciliationReport).
    Reconciliation,
    /// Lets the node look at the queues that it leads at once; answered by a [`Done`].
    ReconcileNow,
    /// What the node would do about the members of a queue that it leads; answered by an optional
    /// [`PlanReport`](crate::view::reconciliation::PlanReport).
    ReconciliationPlan(#[serde(with = "queue_id")] QueueId),
    /// What the node has of named journals; answered by a
    /// [`NodeCopies`](crate::view::copy::NodeCopies).
    JournalCopies,
    /// Journals that the node has on its disk and the topology knows nothing of; answered by a
    /// [`NodeLeft`](crate::view::copy::NodeLeft).
    LeftJournals,
    /// What was declared in one of them; answered by its text, or why there is none.
    LeftDeclarations {
        /// Its uid.
        uid: String,
    },
    /// Changes the node's copy of a journal that is not in use; answered by what was before, in words,
    /// or why it was not changed.
    AmendCopy {
        /// The journal.
        uid: String,
        /// The change.
        amendment: Amendment,
    },
    /// Closes a connection; answered by a [`Done`].
    Close {
        /// Its name.
        name: String,
        /// What the client is told.
        reason: String,
    },
}

/// How an order ended: nothing, or why it was not carried out.
pub type Done = Result<(), String>;

/// How a change of members ended.
pub type Change = Result<Changed, MemberError>;

/// What is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is asked for by itself")]
pub struct Wanted {
    /// Of all nodes; else only of the one that is asked.
    #[serde(skip, default)]
    pub everywhere: bool,
    /// Queues with their consumers.
    pub queues: bool,
    /// Which of their members are there.
    #[serde(default = "asked")]
    pub members: bool,
    /// Only this queue.
    pub only: Option<u64>,
    /// Connections and channels.
    pub clients: bool,
    /// The nodes themselves.
    #[serde(default)]
    pub nodes: bool,
    /// What went through exchanges.
    #[serde(default)]
    pub exchanges: bool,
}

/// Who does not say that it does not want something does.
fn asked() -> bool {
    true
}

impl Wanted {
    /// Everything.
    pub const ALL: Self = Self {
        everywhere: true,
        queues: true,
        members: true,
        only: None,
        clients: true,
        nodes: true,
        exchanges: false,
    };
    /// Everything that is counted.
    pub const TOTALS: Self = Self { members: false, exchanges: true, ..Self::ALL };
    /// Exchanges.
    pub const EXCHANGES: Self =
        Self { queues: false, clients: false, nodes: false, ..Self::TOTALS };
    /// Queues and consumers.
    pub const QUEUES: Self = Self { clients: false, nodes: false, ..Self::ALL };
    /// Connections and channels.
    pub const CLIENTS: Self = Self { queues: false, nodes: false, ..Self::ALL };
    /// The nodes themselves.
    pub const NODES: Self = Self { queues: false, clients: false, ..Self::ALL };

    /// One queue and its consumers.
    pub fn queue(queue: QueueId) -> Self {
        Self { only: Some(queue.0), ..Self::QUEUES }
    }

    /// The same of this node alone.
    #[must_use]
    pub fn here(self) -> Self {
        Self { everywhere: false, ..self }
    }

    /// Whether a queue is among them.
    pub fn has(&self, queue: QueueId) -> bool {
        self.queues && self.only.is_none_or(|only| only == queue.0)
    }
}

impl Inquiry {
    /// As it is sent.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("all keys are texts")
    }

    /// Reads what [`Inquiry::encode`] writes.
    ///
    /// # Errors
    /// If it is something else, or of a version that this one does not know.
    pub fn decode(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

/// An answer as it is sent.
pub fn encode<T: Serialize>(answer: &T) -> Vec<u8> {
    serde_json::to_vec(answer).expect("all keys are texts")
}

/// Reads what [`encode`] writes.
///
/// # Errors
/// If it is something else.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(bytes)
}
