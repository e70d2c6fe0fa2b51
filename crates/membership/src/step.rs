//! The one thing that is done next.

use std::fmt;

use model::id::NodeId;

use crate::observed::Label;

/// A change of a group's members, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What is to be done.
    pub action: Action,
    /// Why.
    pub reason: Reason,
}

/// What is to be done. Doing it again does nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A new member without a vote, which gets one as soon as it has caught up.
    Add {
        /// On which node.
        node: Label,
    },
    /// The member gets its vote as soon as it has caught up.
    Promote {
        /// On which node.
        node: Label,
    },
    /// The member is removed and its data, if there are any, are deleted.
    Remove {
        /// On which node.
        node: Label,
    },
    /// It is recorded that a member is wanted on `with`; then `lost` leaves the group, since it counts
    /// and cannot vote; then the new one gets the log, without a vote, and its vote once it has caught
    /// up. Whoever leads next finishes that if it is interrupted.
    Replace {
        /// The member that has lost its data.
        lost: Label,
        /// The node of the new one.
        with: Label,
    },
}

/// Why a step is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// There are fewer members than wanted.
    BelowTarget {
        /// Members now.
        size: u64,
        /// Members wanted.
        target: u64,
    },
    /// The queue was declared while this node was down.
    Unstarted,
    /// A member that was added has caught up, or will, and nobody gives it its vote.
    Unpromoted,
    /// Its node has left the cluster.
    Dangling,
    /// Its node was wiped, or has lost its part.
    Lost,
    /// Its node was wiped, and a new member has taken its place already.
    Superseded,
    /// Its node was wiped, and the one that took its name keeps no queues.
    Homeless,
}

/// The kinds of steps, to count them by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// See [`Action::Add`].
    Add,
    /// See [`Action::Promote`].
    Promote,
    /// See [`Action::Remove`].
    Remove,
    /// See [`Action::Replace`].
    Replace,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Add, Self::Promote, Self::Remove, Self::Replace];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Promote => "promote",
            Self::Remove => "remove",
            Self::Replace => "replace",
        }
    }
}

impl Action {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Add { .. } => Kind::Add,
            Self::Promote { .. } => Kind::Promote,
            Self::Remove { .. } => Kind::Remove,
            Self::Replace { .. } => Kind::Replace,
        }
    }

    /// The node that has to do something for it to succeed; of a removal, nobody.
    pub fn relies_on(&self) -> Option<NodeId> {
        match self {
            Self::Add { node } | Self::Promote { node } => Some(node.id),
            Self::Replace { with, .. } => Some(with.id),
            Self::Remove { .. } => None,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.action, self.reason)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add { node } => write!(f, "add a member on {node}"),
            Self::Promote { node } => write!(f, "give the member on {node} its vote"),
            Self::Remove { node } => write!(f, "remove the member on {node}"),
            Self::Replace { lost, with } => {
                write!(f, "replace the member {} of {lost} by {}", lost.id, with.id)
            }
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BelowTarget { size, target } => {
                write!(f, "the queue has {size} of {target} members")
            }
            Self::Unstarted => f.write_str("the node was down when the queue was declared"),
            Self::Unpromoted => f.write_str("it was added and has no vote yet"),
            Self::Dangling => f.write_str("the node has left the cluster"),
            Self::Lost => f.write_str("the node lost the member's data"),
            Self::Superseded => f.write_str("a new member is in its place"),
            Self::Homeless => {
                f.write_str("the node lost the member's data and keeps no queues any more")
            }
        }
    }
}
