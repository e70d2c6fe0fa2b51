//! Members of quorum queues as Raft sees them.

use model::id::QueueId;
use serde::{Deserialize, Serialize};

use super::part::queue_id;

/// A node's member of a quorum queue. Indexes are 0 where there is nothing yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaftMember {
    /// The queue.
    #[serde(with = "queue_id")]
    pub queue: QueueId,
    /// What it does.
    pub role: RaftRole,
    /// Whether it knows who leads.
    pub has_leader: bool,
    /// The newest term that it knows.
    pub term: u64,
    /// The index of its last entry.
    pub last: u64,
    /// The index up to which it knows entries to be committed.
    pub committed: u64,
    /// The index up to which they are in its state.
    pub applied: u64,
    /// The index of its last checkpoint.
    pub snapshot: u64,
    /// Bytes of its log.
    pub log_bytes: u64,
    /// Whether it hibernates: it was not used for a while, and wakes when it is.
    pub hibernated: bool,
}

/// What a member does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RaftRole {
    /// It leads.
    Leader,
    /// It has a vote.
    Follower,
    /// It gets the log, without a vote yet.
    Learner,
    /// Its data is gone: it does nothing until it is replaced.
    Lost,
    /// It cannot go on with what it has, and does nothing until its node is started again.
    Failed,
}

impl RaftRole {
    /// RabbitMQ's word for what it does.
    pub fn state(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Follower | Self::Learner => "follower",
            Self::Lost => "lost",
            Self::Failed => "failed",
        }
    }

    /// RabbitMQ's word for whether it votes.
    pub fn membership(self) -> &'static str {
        match self {
            Self::Leader | Self::Follower => "voter",
            Self::Learner => "promotable",
            Self::Lost | Self::Failed => "unknown",
        }
    }
}

/// What there is to say of one member of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberReport {
    /// Its node.
    pub node: String,
    /// The member, or why nothing is known of it: `noproc` if its node has none, `nodedown` if the
    /// node does not answer.
    pub member: Result<RaftMember, &'static str>,
}
