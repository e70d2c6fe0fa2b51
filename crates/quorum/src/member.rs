//! The two ends of a group that the broker gives: a member, and a transport.

use crate::records::Records;
use bytes::Bytes;
use model::id::{NodeId, Seq};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::oneshot;

/// What a node is in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It may propose. Everything of earlier terms that can ever be committed has been handed
    /// over by then.
    Leader {
        /// The term.
        term: u64,
    },
    /// It follows, or nobody leads.
    Follower {
        /// The newest term that it knows.
        term: u64,
        /// Who leads it, if somebody is known to.
        leader: Option<NodeId>,
    },
}

/// A committed entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Its index: one more than that of the entry before.
    pub index: u64,
    /// The term in which it was proposed.
    pub term: u64,
    /// Its record in the node's journal, in the group's stream; the record's payload is `payload`.
    pub position: Seq,
    /// As proposed. Empty for a leader's first entry and for changes of members.
    pub payload: Bytes,
}

/// A record that may hold bodies of messages which a checkpoint names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// The entry with this index, with everything that was proposed in it.
    Entry {
        /// The entry's index.
        index: u64,
        /// The record.
        position: Seq,
    },
    /// One body alone.
    Carried {
        /// As given to [`Records::carry`](crate::records::Records::carry), or as exported.
        name: u64,
        /// The record.
        position: Seq,
    },
}

/// Where a body lies, for bringing up another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyPlace {
    /// It is here.
    Bytes(Bytes),
    /// A part of a record of the group's stream.
    Record {
        /// The record.
        position: Seq,
        /// The first byte in the record's payload.
        offset: u32,
        /// How many bytes.
        length: u32,
    },
}

/// A group's state machine on one node.
///
/// Calls come one at a time and in order, though not from one thread. They must return at once,
/// and may not wait for anything that the host does.
pub trait Member: Send + Sync + 'static {
    /// The first call: the group is being started, and these are its records.
    fn opened(&self, records: Records);

    /// These entries are committed: apply them.
    fn committed(&self, entries: Vec<Committed>);

    /// The node's role changed. `Leader` comes only after the term's first entry was handed over
    /// by `committed`; a later `Follower` means that proposals whose entries have not come by
    /// `committed` may be lost, or may still come.
    fn role(&self, role: Role);

    /// Asks for the state after everything that was handed over so far; small, names and headers.
    /// Dropping the answer stops the group.
    fn checkpoint(&self, answer: oneshot::Sender<Bytes>);

    /// Replaces the state by what was a checkpoint after entry `index`, here or on another node.
    /// `bodies` are the records that it may name, in the order of their positions; the member
    /// releases those that it does not need, entries once `purged` allows. Dropping `done` stops
    /// the group.
    fn install(&self, index: u64, state: Bytes, bodies: Vec<Body>, done: oneshot::Sender<()>);

    /// The live bodies that a checkpoint names, under names that tell them apart.
    fn export(&self, state: &Bytes) -> Vec<(u64, BodyPlace)>;

    /// About how many bytes the bodies have that [`export`](Self::export) would give for a checkpoint
    /// taken now.
    fn body_bytes(&self) -> u64 {
        0
    }

    /// The log no longer needs the entries up to this index: their records are the member's to
    /// release, at once or later.
    fn purged(&self, upto: u64);

    /// The committed members.
    fn members(&self, voters: Vec<NodeId>, learners: Vec<NodeId>);

    /// The group has stopped for good on this node.
    fn failed(&self, error: String);
}

/// A message could not be sent: there is no connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not connected")]
pub struct NotConnected;

/// A request was not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// There is no connection, or it was lost.
    #[error("not connected")]
    NotConnected,
    /// No answer within the time given.
    #[error("no answer in time")]
    TimedOut,
    /// The other side refused it.
    #[error("{0}")]
    Refused(String),
}

/// A future whose type nobody wants to write.
pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The way to other nodes.
pub trait Transport: Send + Sync + 'static {
    /// Sends a message, in order with earlier ones to this node; never blocks. A lost connection
    /// loses what was under way, and both hosts learn of it by `on_down`.
    ///
    /// # Errors
    /// Without a connection.
    fn send(&self, to: NodeId, payload: Bytes) -> Result<(), NotConnected>;

    /// Whether little enough waits to be sent to this node that more may be.
    fn has_room(&self, to: NodeId) -> bool;

    /// Waits for that. Ends at once without a connection.
    fn room(&self, to: NodeId) -> Boxed<()>;

    /// Sends a request and waits for its answer.
    fn request(
        &self,
        to: NodeId,
        payload: Bytes,
        within: Duration,
    ) -> Boxed<Result<Bytes, RequestError>>;
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leader { term } => write!(f, "leader of term {term}"),
            Self::Follower { term, leader: Some(leader) } => {
                write!(f, "follower of {leader} in term {term}")
            }
            Self::Follower { term, leader: None } => write!(f, "leaderless in term {term}"),
        }
    }
}
