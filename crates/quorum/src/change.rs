//! What is rare: changes of the members, of the leader, and reads that must not be stale.

use crate::group::GroupId;
use crate::host::{Group, GroupError, Host, Shared};
use crate::member::Role;
use crate::types::Types;
use model::id::NodeId;
use openraft::ChangeMembers;
use openraft::ReadPolicy;
use openraft::errors::{ClientWriteError, RaftError};
use openraft::raft::linearizable_read::LinearizerOption;
use openraft::type_config::TypeConfigExt;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long a new leader may take to show.
const TRANSFER_WAIT: Duration = Duration::from_secs(3);
/// How long a majority may take to confirm that this node leads.
const READ_WAIT: Duration = Duration::from_secs(5);

/// A change of a group's members, one node at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The node gets the log, without a vote.
    AddLearner(NodeId),
    /// A learner gets a vote. Wait until it has caught up ([`Host::status`]).
    Promote(NodeId),
    /// A voter or learner is no longer a member.
    Remove(NodeId),
}

/// Leaves the place of a leader to another voter.
async fn hand_over(shared: &Shared, group: &Arc<Group>, to: NodeId) -> Result<(), GroupError> {
    let awake = group.wake().await?;
    let Some(term) = group.seat.leave() else {
        return Err(GroupError::Refused("this node does not lead".into()));
    };
    let stopped = |error: openraft::errors::Fatal<Types>| GroupError::Refused(error.to_string());
    awake.raft.trigger().transfer_leader(to.0).await.map_err(stopped)?;
    let is_over = move |metrics: &openraft::RaftMetrics<Types>| {
        metrics.current_term > term && metrics.current_leader.is_some()
    };
    let waited = awake.raft.wait(Some(TRANSFER_WAIT)).metrics(is_over, "a new leader").await;
    if waited.is_ok() {
        return Ok(());
    }
    group.give_up(term).await?;
    shared.alarm.ring_for(group.id);
    Err(GroupError::Refused(format!("{to} did not take over")))
}

impl Host {
    /// Changes the members of a group; returns once that is committed. The group must be led
    /// here, and have no other change under way.
    ///
    /// # Errors
    /// If this node does not lead, or openraft refuses. [`GroupError::Interrupted`] if it led at the
    /// beginning: who has the entry is not known then.
    pub async fn change(&self, id: GroupId, change: Change) -> Result<(), GroupError> {
        let group = self.group(id)?;
        let awake = group.wake_to_lead(READ_WAIT).await?;
        // What is true of a group that has just begun is committed first.
        let has_begun = |metrics: &openraft::RaftMetrics<Types>| {
            metrics.committed_membership_config.log_id().is_some()
                || metrics.current_leader != Some(metrics.id)
                || metrics.running_state.is_err()
        };
        let begun = awake.raft.wait(Some(READ_WAIT)).metrics(has_begun, "a beginning").await;
        begun.map_err(|error| GroupError::Refused(error.to_string()))?;
        let led = matches!(group.seat.role(), Role::Leader { .. });
        let refused = |error: &RaftError<Types, ClientWriteError<Types>>| {
            if led && error.forward_to_leader().is_some() {
                return GroupError::Interrupted;
            }
            GroupError::Refused(error.to_string())
        };
        let changes = match change {
            Change::AddLearner(node) => {
                let added = awake.raft.add_learner(node.0, (), false).await;
                return added.map(drop).map_err(|error| refused(&error));
            }
            Change::Promote(node) => ChangeMembers::AddVoterIds(BTreeSet::from([node.0])),
            Change::Remove(node) if group.voters().contains(&node) => {
                ChangeMembers::RemoveVoters(BTreeSet::from([node.0]))
            }
            Change::Remove(node) => ChangeMembers::RemoveNodes(BTreeSet::from([node.0])),
        };
        let changed = awake.raft.change_membership(changes, false).await;
        changed.map(drop).map_err(|error| refused(&error))
    }

    /// Gives the leadership to another voter. Proposals stop at once: the member hears that it
    /// does not lead any more. If the other one does not take over, a new term begins, and the best
    /// one leads it; that may be this node.
    ///
    /// # Errors
    /// If this node does not lead, or the other one did not take over.
    pub async fn transfer(&self, id: GroupId, to: NodeId) -> Result<(), GroupError> {
        let group = self.group(id)?;
        if !group.voters().contains(&to) {
            return Err(GroupError::Refused(format!("{to} is not a voter")));
        }
        // Once it is begun it ends, whether somebody waits for that or not: nobody else would give up a
        // place that was left and not taken.
        let shared = Arc::clone(&self.shared);
        let task = Types::spawn(async move { hand_over(&shared, &group, to).await });
        task.await.unwrap_or_else(|error| Err(GroupError::Refused(error.to_string())))
    }

    /// Confirms with a majority that this node leads, and waits until its member has everything
    /// that was committed when it was asked; gives the index.
    ///
    /// # Errors
    /// If this node does not lead, or cannot reach a majority.
    pub async fn read_index(&self, id: GroupId) -> Result<u64, GroupError> {
        let awake = self.group(id)?.wake().await?;
        // The leases of groups without heartbeats never expire, so they prove nothing: an answer
        // to a message that was sent after the question is needed.
        let option = LinearizerOption::from(ReadPolicy::ReadIndex).with_wait_timeout(READ_WAIT);
        let read = Types::timeout(READ_WAIT, awake.raft.ensure_linearizable(option)).await;
        match read {
            Ok(Ok(read)) => Ok(read.log_id().index),
            Ok(Err(error)) => Err(GroupError::Refused(error.to_string())),
            Err(_) => Err(GroupError::Refused("no majority answered in time".into())),
        }
    }

    /// Takes a checkpoint of a group's member now, and purges what the log no longer needs.
    ///
    /// # Errors
    /// If the group is not started here, or has stopped.
    pub async fn checkpoint(&self, id: GroupId) -> Result<(), GroupError> {
        self.group(id)?.checkpoint().await
    }

    /// Asks a group's member for its state now. One that cannot go on gives none, which ends the
    /// group on this node until the next start: it leads nothing and votes for nobody any more, and
    /// its log stays as it is.
    pub async fn challenge(&self, id: GroupId) {
        let Ok(group) = self.group(id) else { return };
        if let Ok(awake) = group.wake().await {
            // An error says that it has ended already.
            drop(awake.raft.trigger().snapshot().await);
        }
    }
}

impl Group {
    /// Leaves a term in which openraft refuses proposals for good, after a transfer that failed.
    async fn give_up(self: &Arc<Self>, term: u64) -> Result<(), GroupError> {
        let current = self.log.vote().map(|vote| (vote.leader_id.term, vote.committed));
        if current != Some((term, true)) {
            return Ok(());
        }
        self.raise(term + 1).await
    }
}
