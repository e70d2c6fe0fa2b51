//! What there is to say about a group on this node.

use crate::group::GroupId;
use crate::host::{Group, Host, Shared};
use crate::member::Role;
use model::id::NodeId;
use std::sync::atomic::Ordering;

/// A group as this node sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// This node's role.
    pub role: Role,
    /// Who leads, as far as this node knows; itself perhaps.
    pub leader: Option<NodeId>,
    /// The newest term that it knows.
    pub term: u64,
    /// The index of its last entry.
    pub last: Option<u64>,
    /// The index up to which it knows entries to be committed.
    pub committed: Option<u64>,
    /// The index up to which its member has them.
    pub applied: Option<u64>,
    /// The index of its last checkpoint.
    pub checkpoint: Option<u64>,
    /// The index up to which its log is purged.
    pub purged: Option<u64>,
    /// Bytes of the entries in its log.
    pub log_bytes: u64,
    /// About how many bytes a new member would get: the last checkpoint, the bodies that are alive, and
    /// the log. Bodies that lie in the log count twice.
    pub whole_bytes: u64,
    /// The members of the newest membership, ascending.
    pub members: Vec<MemberStatus>,
    /// Whether a change of the members is not committed yet.
    pub is_changing: bool,
    /// Whether it has failed: until the next start it neither votes nor takes entries.
    pub has_failed: bool,
    /// Whether it sleeps: it was not used for a while, and wakes when it is.
    pub is_asleep: bool,
}

/// What lists of all groups say of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Brief {
    /// The group.
    pub group: GroupId,
    /// The newest term that this node knows.
    pub term: u64,
    /// Who leads, as far as this node knows; itself perhaps.
    pub leader: Option<NodeId>,
}

/// One member of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its node.
    pub node: NodeId,
    /// Whether it has a vote; a learner has none.
    pub is_voter: bool,
    /// The index up to which it has the leader's log; only a leader knows.
    pub matched: Option<u64>,
}

impl Host {
    /// The state of a group, if it is started here.
    pub fn status(&self, id: GroupId) -> Option<Status> {
        self.shared.group(id).map(|group| self.shared.status(&group))
    }

    /// The state of every group that is started here, ascending.
    pub fn statuses(&self) -> impl Iterator<Item = (GroupId, Status)> {
        let groups = self.shared.all().into_iter();
        groups.map(|group| (group.id, self.shared.status(&group)))
    }

    /// The same in brief, of those that have not failed.
    pub fn briefs(&self) -> Vec<Brief> {
        let groups = self.shared.all().into_iter().filter(|group| !group.seat.has_failed());
        let brief = |group: std::sync::Arc<Group>| Brief {
            group: group.id,
            term: group.log.vote().map_or(0, |vote| vote.leader_id.term),
            leader: self.shared.leader_of(group.seat.role()),
        };
        groups.map(brief).collect()
    }

    /// The groups that are started here, ascending.
    pub fn groups(&self) -> Vec<GroupId> {
        self.shared.all().iter().map(|group| group.id).collect()
    }

    /// How many groups are awake, and how often one has fallen asleep since the start. Groups that
    /// never sleep do not count.
    pub fn awake(&self) -> (usize, u64) {
        let dozed = self.shared.dozed.load(Ordering::Relaxed);
        (self.shared.awake.lock().len(), dozed)
    }

    /// Bytes of entries that all groups keep in memory.
    pub fn held_bytes(&self) -> usize {
        self.shared.disk.tail.held()
    }
}

impl Shared {
    fn leader_of(&self, role: Role) -> Option<NodeId> {
        match role {
            Role::Leader { .. } => Some(self.options.me),
            Role::Follower { leader, .. } => leader,
        }
    }

    fn status(&self, group: &Group) -> Status {
        let role = group.seat.role();
        let view = group.view();
        let log = group.log.outline();
        Status {
            role,
            leader: self.leader_of(role),
            term: log.vote.map_or(0, |vote| vote.leader_id.term),
            last: log.last.map(|id| id.index),
            committed: view.committed.map(|id| id.index),
            applied: view.applied.map(|id| id.index),
            checkpoint: log.checkpointed.map(|id| id.index),
            purged: log.purged.map(|id| id.index),
            log_bytes: log.bytes,
            whole_bytes: log.image + group.seat.body_bytes() + log.bytes,
            members: view.members,
            is_changing: view.is_changing,
            has_failed: group.seat.has_failed(),
            is_asleep: view.is_asleep,
        }
    }
}
