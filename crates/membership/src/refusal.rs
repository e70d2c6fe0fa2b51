//! Why something that might be wanted is not done.

use std::fmt;

use crate::observed::Label;

/// A reason not to do something, in words for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Reconciliation is switched off.
    Disabled,
    /// The list of the cluster's nodes could not be read.
    NodesUnknown,
    /// The planning node is not in the list of the cluster's nodes.
    NotInCluster,
    /// Another node leads the queue, or nobody.
    NotLeader {
        /// Who, if it is known.
        leader: Option<Label>,
    },
    /// It could not be confirmed in time who leads.
    Unconfirmed,
    /// The leader's node is in maintenance.
    Maintenance {
        /// The leader's node.
        node: Label,
    },
    /// Another change of the members is under way.
    Changing,
    /// A member dangles, and is not removed unless `auto_remove` says so.
    Dangling {
        /// Its node.
        node: Label,
    },
    /// Without this member those who run would be no majority.
    NoMajority {
        /// The member that stays.
        node: Label,
        /// Voters that would run.
        running: u64,
        /// Voters that would be left.
        left: u64,
    },
    /// The node that a member goes to is down.
    NodeDown {
        /// Which.
        node: Label,
    },
    /// The node that a member goes to is in maintenance.
    NodeDrained {
        /// Which.
        node: Label,
    },
    /// There is no node that could take another member.
    NoCandidate {
        /// Members now.
        size: u64,
        /// Members wanted.
        target: u64,
    },
    /// One more member would make an even number, and there is no second node for another.
    EvenSize {
        /// Members now.
        size: u64,
        /// Members wanted.
        target: u64,
    },
    /// A member's node is down, so none is added.
    MemberDown {
        /// Which.
        node: Label,
    },
    /// A member has no vote yet, so none is added.
    MemberWithoutVote {
        /// Which.
        node: Label,
    },
    /// A member is too far behind, so none is added.
    MemberLags {
        /// Which.
        node: Label,
        /// Entries that it is behind; `None`: nobody knows.
        behind: Option<u64>,
        /// Entries that it may be behind.
        limit: u64,
    },
    /// Too much would have to be copied.
    LogTooLarge {
        /// So many bytes: of messages and log.
        bytes: u64,
        /// The most that is copied.
        limit: u64,
    },
    /// Adding a member on the only nodes there are failed a while ago.
    Avoided {
        /// One of them.
        node: Label,
    },
}

/// The kinds of refusals, to count them by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// See [`Refusal::Disabled`].
    Disabled,
    /// See [`Refusal::NodesUnknown`].
    NodesUnknown,
    /// See [`Refusal::NotInCluster`].
    NotInCluster,
    /// See [`Refusal::NotLeader`].
    NotLeader,
    /// See [`Refusal::Unconfirmed`].
    Unconfirmed,
    /// See [`Refusal::Maintenance`].
    Maintenance,
    /// See [`Refusal::Changing`].
    Changing,
    /// See [`Refusal::Dangling`].
    Dangling,
    /// See [`Refusal::NoMajority`].
    NoMajority,
    /// See [`Refusal::NodeDown`].
    NodeDown,
    /// See [`Refusal::NodeDrained`].
    NodeDrained,
    /// See [`Refusal::NoCandidate`].
    NoCandidate,
    /// See [`Refusal::EvenSize`].
    EvenSize,
    /// See [`Refusal::MemberDown`].
    MemberDown,
    /// See [`Refusal::MemberWithoutVote`].
    MemberWithoutVote,
    /// See [`Refusal::MemberLags`].
    MemberLags,
    /// See [`Refusal::LogTooLarge`].
    LogTooLarge,
    /// See [`Refusal::Avoided`].
    Avoided,
}

impl Kind {
    /// The word for it, for metrics and machines.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::NodesUnknown => "nodes_unknown",
            Self::NotInCluster => "not_in_cluster",
            Self::NotLeader => "not_leader",
            Self::Unconfirmed => "unconfirmed",
            Self::Maintenance => "maintenance",
            Self::Changing => "changing",
            Self::Dangling => "dangling",
            Self::NoMajority => "no_majority",
            Self::NodeDown => "node_down",
            Self::NodeDrained => "node_drained",
            Self::NoCandidate => "no_candidate",
            Self::EvenSize => "even_size",
            Self::MemberDown => "member_down",
            Self::MemberWithoutVote => "member_without_vote",
            Self::MemberLags => "member_lags",
            Self::LogTooLarge => "log_too_large",
            Self::Avoided => "avoided",
        }
    }
}

impl Refusal {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Disabled => Kind::Disabled,
            Self::NodesUnknown => Kind::NodesUnknown,
            Self::NotInCluster => Kind::NotInCluster,
            Self::NotLeader { .. } => Kind::NotLeader,
            Self::Unconfirmed => Kind::Unconfirmed,
            Self::Maintenance { .. } => Kind::Maintenance,
            Self::Changing => Kind::Changing,
            Self::Dangling { .. } => Kind::Dangling,
            Self::NoMajority { .. } => Kind::NoMajority,
            Self::NodeDown { .. } => Kind::NodeDown,
            Self::NodeDrained { .. } => Kind::NodeDrained,
            Self::NoCandidate { .. } => Kind::NoCandidate,
            Self::EvenSize { .. } => Kind::EvenSize,
            Self::MemberDown { .. } => Kind::MemberDown,
            Self::MemberWithoutVote { .. } => Kind::MemberWithoutVote,
            Self::MemberLags { .. } => Kind::MemberLags,
            Self::LogTooLarge { .. } => Kind::LogTooLarge,
            Self::Avoided { .. } => Kind::Avoided,
        }
    }

    /// Whether it passes by itself, without an event that somebody would hear of: such a queue is
    /// looked at again soon.
    pub fn passes(&self) -> bool {
        match self {
            Self::NodesUnknown
            | Self::Unconfirmed
            | Self::Changing
            | Self::MemberWithoutVote { .. }
            | Self::MemberLags { .. }
            | Self::LogTooLarge { .. }
            | Self::Avoided { .. } => true,
            Self::Disabled
            | Self::NotInCluster
            | Self::NotLeader { .. }
            | Self::Maintenance { .. }
            | Self::Dangling { .. }
            | Self::NoMajority { .. }
            | Self::NodeDown { .. }
            | Self::NodeDrained { .. }
            | Self::NoCandidate { .. }
            | Self::EvenSize { .. }
            | Self::MemberDown { .. } => false,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("continuous membership reconciliation is switched off"),
            Self::NodesUnknown => f.write_str("the nodes of the cluster are not known yet"),
            Self::NotInCluster => f.write_str("this node is not in the cluster's list of nodes"),
            Self::NotLeader { leader: Some(leader) } => write!(f, "{leader} leads the queue"),
            Self::NotLeader { leader: None } => f.write_str("nobody leads the queue"),
            Self::Unconfirmed => f.write_str("it could not be confirmed in time who leads"),
            Self::Maintenance { node } => write!(f, "{node}, which leads, is in maintenance"),
            Self::Changing => f.write_str("a change of the members is under way"),
            Self::Dangling { node } => write!(
                f,
                "the member on {node} dangles: the node has left the cluster, and auto_remove is off"
            ),
            Self::NoMajority { node, running, left } => write!(
                f,
                "the member on {node} stays: without it {running} of {left} would run, no majority"
            ),
            Self::NodeDown { node } => write!(f, "waiting for {node}, which is down"),
            Self::NodeDrained { node } => write!(f, "waiting for {node}, which is in maintenance"),
            Self::NoCandidate { size, target } => {
                write!(f, "{size} of {target} members, and no node can take another one")
            }
            Self::EvenSize { size, target } => write!(
                f,
                "{size} of {target} members, and with only one more node the number would be even"
            ),
            Self::MemberDown { node } => {
                write!(f, "none is added while the member on {node} does not run")
            }
            Self::MemberWithoutVote { node } => {
                write!(f, "none is added while the member on {node} has no vote")
            }
            Self::MemberLags { node, behind: Some(behind), limit } => write!(
                f,
                "none is added while the member on {node} is {behind} entries behind, limit {limit}"
            ),
            Self::MemberLags { node, behind: None, limit: _ } => {
                write!(f, "none is added while it is not known how far the member on {node} is")
            }
            Self::LogTooLarge { bytes, limit } => {
                write!(f, "none is added: {bytes} bytes would have to be copied, limit {limit}")
            }
            Self::Avoided { node } => {
                write!(f, "adding a member on {node} failed; it is tried again later")
            }
        }
    }
}
