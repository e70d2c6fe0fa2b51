//! Changes of the members of quorum queues: how they end.

use serde::{Deserialize, Serialize};

/// A change that was made, or was not needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// It was not as it should be before.
    pub changed: bool,
    /// How many members the queue has now.
    pub size: usize,
}

/// Why the members of a queue were not changed. Unless it says otherwise, nothing has changed, or what
/// was begun was taken back; but if a lost member was to be replaced, its successor is wanted for good.
///
/// Shown as RabbitMQ names it, where it has a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum MemberError {
    /// There is no such queue.
    #[error("not_found")]
    NotFound,
    /// Only quorum queues have members.
    #[error("classic_queue_not_supported")]
    Classic,
    /// The node is none of the cluster, or was replaced by another one with its name.
    #[error("node_not_found")]
    UnknownNode,
    /// The node votes on the topology and keeps no queues.
    #[error("the node is a witness and keeps no queues")]
    Witness,
    /// The node is not connected with the queue's leader.
    #[error("node_not_running")]
    NodeNotRunning,
    /// The node is in maintenance mode.
    #[error("the node is in maintenance mode")]
    Maintenance,
    /// Nobody would be left who has a vote.
    #[error("last_node")]
    LastMember,
    /// Of the voters that would be left too few are running.
    #[error(
        "{running} of the {voters} members that would be left are running, which is no majority; \
         use force to remove the member all the same"
    )]
    WouldLoseQuorum {
        /// How many would be running.
        running: usize,
        /// How many there would be.
        voters: usize,
    },
    /// Too few members are running for any change.
    #[error("{running} of {voters} members are running, which is no majority")]
    NoQuorum {
        /// How many are running.
        running: usize,
        /// How many there are.
        voters: usize,
    },
    /// Nobody leads the queue, or nobody who can be reached. A member that was to be added may be
    /// recorded: then whoever leads next brings it in.
    #[error("the queue has no leader")]
    NoLeader,
    /// The node that was asked does not lead the queue, or not any more; see `NoLeader`.
    #[error("the leader has changed")]
    NotLeader,
    /// The node has no member of the queue that could go on.
    #[error("no_local_member")]
    NoLocalMember,
    /// Nothing has to be forced: the queue can change its members as usual.
    #[error(
        "{running} of {voters} members are running, which is a majority: remove the others one by one"
    )]
    HasQuorum {
        /// How many are running.
        running: usize,
        /// How many there are.
        voters: usize,
    },
    /// Another change of the queue's members is under way.
    #[error("cluster_change_not_permitted")]
    ChangeUnderWay,
    /// Some member is not running, or has not caught up.
    #[error("non_stable_members")]
    NotStable,
    /// The change was begun and may yet be made.
    #[error("timeout")]
    TimedOut,
    /// The topology cannot be changed now. A member that was to be added may be recorded already; see
    /// `NoLeader`.
    #[error("{0}")]
    Unavailable(String),
    /// The group refused.
    #[error("{0}")]
    Failed(String),
}

impl MemberError {
    /// Whether the change may have been made, or may yet be made.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::TimedOut)
    }
}

/// What a node did when it entered maintenance mode.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// Connections that it closed.
    pub connections: usize,
    /// Leaders of quorum queues that moved.
    pub moved: usize,
    /// Those that stay: virtual host, name, and why.
    pub stayed: Vec<(String, String, String)>,
    /// Journals that were handed over.
    #[serde(default)]
    pub journals_moved: usize,
    /// Those that it still serves: name, and why.
    #[serde(default)]
    pub journals_stayed: Vec<(String, String)>,
}
