//! The types that openraft is made of here. Nothing outside this crate sees them.

use bytes::Bytes;
use openraft::type_config::alias;
use std::fmt;

#[cfg(feature = "sim")]
type Runtime = crate::sim::runtime::Runtime;
#[cfg(not(feature = "sim"))]
type Runtime = openraft_rt_tokio::TokioRuntime;

openraft::declare_raft_types!(
    /// What every group is made of. The runtime stands here alone: tasks, sleeps and channels go
    /// through it.
    pub(crate) Types:
        D = Data,
        R = (),
        NodeId = u64,
        Node = (),
        Term = u64,
        LeaderId = openraft::impls::leader_id_std::LeaderId<u64, u64>,
        AsyncRuntime = Runtime,
);

/// The payload of a proposal, as the proposer gave it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Data(pub(crate) Bytes);

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

pub(crate) type LogId = alias::LogIdOf<Types>;
pub(crate) type Vote = alias::VoteOf<Types>;
pub(crate) type Entry = alias::EntryOf<Types>;
pub(crate) type Payload = alias::PayloadOf<Types>;
pub(crate) type Membership = openraft::Membership<u64, ()>;
pub(crate) type StoredMembership = alias::StoredMembershipOf<Types>;
pub(crate) type SnapshotMeta = alias::SnapshotMetaOf<Types>;
pub(crate) type Snapshot = alias::SnapshotOf<Types, crate::checkpoint::Image>;
pub(crate) type Flushed = openraft::storage::IOFlushed<Types>;
pub(crate) type AppendRequest = openraft::raft::AppendEntriesRequest<Types>;
pub(crate) type AppendResult = openraft::raft::StreamAppendResult<Types>;
pub(crate) type VoteRequest = openraft::raft::VoteRequest<Types>;
pub(crate) type VoteResponse = openraft::raft::VoteResponse<Types>;
pub(crate) type TransferRequest = openraft::raft::TransferLeaderRequest<Types>;

/// The log id of an index in a term.
pub(crate) fn log_id(term: u64, index: u64) -> LogId {
    LogId::new_term_index(term, index)
}

/// The vote of a term for a node.
pub(crate) fn vote(term: u64, node: u64, committed: bool) -> Vote {
    if committed { Vote::new_committed(term, node) } else { Vote::new(term, node) }
}
