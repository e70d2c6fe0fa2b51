//! How a group begins: by a record, without a message between its members.
//!
//! Whoever makes a group records, where all members read it, which of them it begins with. Each of
//! them starts with what a founding and a first election would have left, had they been held:
//!
//! ```text
//!  log    entry 0: the membership     as openraft founds groups, before any term
//!  vote   term 1: for the first       so nobody else can ever win that term
//! ```
//!
//! The first of them leads term 1 from the beginning if it is *the process that was there when that
//! was recorded*: then it has never led before, and has nothing to lose. A later process of that
//! node must not, since the one before may have sent entries that its own disk lost; for it, as for
//! everybody who does not hear the first one lead, term 1 is a term of the past.
//!
//! Nothing of this has to be on a disk before somebody relies on it. A member whose journal has no
//! trace of the group begins in the same way again: it has neither voted nor taken an entry, for both
//! would be in the journal, behind this.

use crate::life::Summary;
use crate::types::{LogId, Membership, StoredMembership, Vote, log_id, vote};
use model::id::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The term that the first member leads.
pub(crate) const TERM: u64 = 1;

/// What is recorded of a group's beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Founding {
    /// The voters that it begins with, at least one; all of them name the same in the same order.
    pub members: Vec<NodeId>,
    /// The first of them is connected, or is this node, and it is the process that was there when
    /// the group was recorded.
    pub is_led: bool,
}

impl Founding {
    /// Who leads the first term.
    pub(crate) fn first(&self) -> Option<NodeId> {
        self.members.first().copied()
    }

    /// The vote that every member has given.
    pub(crate) fn vote(&self) -> Option<Vote> {
        self.first().map(|first| vote(TERM, first.0, true))
    }

    /// The place of the membership in the log.
    pub(crate) fn id() -> LogId {
        log_id(0, 0)
    }

    /// The membership.
    pub(crate) fn membership(&self) -> Membership {
        let voters: BTreeSet<u64> = self.members.iter().map(|node| node.0).collect();
        let nodes: BTreeMap<u64, ()> = voters.iter().map(|node| (*node, ())).collect();
        Membership::new(vec![voters], nodes).expect("each voter is a node")
    }

    /// What a member that sleeps knows of the group. `leads`: this one leads it.
    pub(crate) fn summary(&self, leads: bool) -> Summary {
        let membership = StoredMembership::new(Some(Self::id()), self.membership());
        let matched = if leads { self.members.as_slice() } else { &[] };
        Summary {
            membership: Arc::new(membership),
            is_changing: false,
            matched: matched.iter().map(|node| (*node, None)).collect(),
        }
    }
}

/// Whether a log has nothing but the beginning.
pub(crate) fn is_new(last: Option<LogId>) -> bool {
    last == Some(Founding::id())
}
