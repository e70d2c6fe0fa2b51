//! Why a node does not talk to another.

use std::fmt;

/// The reasons. Their numbers go over the wire and are never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// The other speaks a version of the protocol that this node does not.
    WrongVersion = 1,
    /// The other belongs to a cluster with another name.
    OtherCluster = 2,
    /// The other does not know the secret.
    WrongSecret = 3,
    /// The dialler took this node for one with another name.
    WrongName = 4,
    /// A node with that name and another [`NodeId`](model::id::NodeId) is connected.
    NameTaken = 5,
    /// The same node is connected from elsewhere: a copy of its data directory is in use.
    DuplicateIdentity = 6,
    /// A later connection of the same start of the node is there.
    Stale = 7,
    /// The node has dialled itself.
    Oneself = 8,
    /// The upper layers do not want it; the detail says why.
    NotAdmitted = 9,
    /// A later start of the same node is connected or known: this one has been overtaken by it.
    LaterStart = 10,
    /// The node was taken out of the cluster, or another one has its place: it is of no cluster any
    /// more.
    Removed = 11,
    /// A reason that this version does not know.
    Unknown = 255,
}

impl Reason {
    pub(crate) fn from_wire(code: u8) -> Self {
        use Reason::{
            DuplicateIdentity, LaterStart, NameTaken, NotAdmitted, Oneself, OtherCluster, Removed,
            Stale, Unknown, WrongName, WrongSecret, WrongVersion,
        };
        [
            WrongVersion,
            OtherCluster,
            WrongSecret,
            WrongName,
            NameTaken,
            DuplicateIdentity,
            Stale,
            Oneself,
            NotAdmitted,
            LaterStart,
            Removed,
        ]
        .into_iter()
        .find(|reason| *reason as u8 == code)
        .unwrap_or(Unknown)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WrongVersion => "wrong version",
            Self::OtherCluster => "other cluster",
            Self::WrongSecret => "wrong secret",
            Self::WrongName => "wrong name",
            Self::NameTaken => "name already connected with another node id",
            Self::DuplicateIdentity => "duplicate identity",
            Self::Stale => "overtaken by a later connection",
            Self::Oneself => "dialled oneself",
            Self::NotAdmitted => "not admitted",
            Self::LaterStart => "a later start of the node is known",
            Self::Removed => "removed from the cluster",
            Self::Unknown => "unknown reason",
        })
    }
}

/// A refusal: the reason and what stands behind it in this case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// For programs.
    pub reason: Reason,
    /// For people; may be empty.
    pub detail: String,
}

impl Refusal {
    /// A refusal with what is to be told of it.
    pub fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, ": {}", self.detail) }
    }
}
