//! The border between this crate and the broker: what the HTTP API asks of a node.
//!
//! Topology is read from immutable snapshots of the metadata state. Users, virtual hosts, policies
//! and other plain metadata change through [`Node::submit`]; queues, exchanges and bindings, unless
//! they are imported, through methods of their own, since the broker checks the user's rights and
//! performs these as it does for AMQP clients.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

use metadata::access::LoginRefusal;
use metadata::command::Command;
use metadata::declarations::Declarations;
use metadata::objects::user::User;
use metadata::refusal::Refusal;
use metadata::state::State;
use model::id::{NodeId, QueueId};

use crate::census::{self, Census, Names};
use crate::inquiry::{Change, Done, Wanted};
use crate::members::Drained;
use crate::view::copy::{Amendment, JournalCopy, NodeCopies, NodeLeft};
use crate::view::counters::GlobalCounters;
use crate::view::message::{
    GetRequest, GotMessage, PeekError, PeekedMessage, PublishOutcome, PublishRequest,
};
use crate::view::node::{NodeStats, OtherNode, TopologyVotes};
use crate::view::part::Part;
use crate::view::raft::{MemberReport, RaftMember};
use crate::view::reconciliation::{PlanReport, ReconciliationReport};
use crate::view::topology::{
    BindingRequest, ExchangeDeclaration, ExchangeDeletion, QueueDeclaration, QueueDeletion,
};

/// A running node. All futures may be dropped at any time; a change that was begun is then
/// completed or not, as if the connection had been lost.
pub trait Node: Send + Sync + 'static {
    /// The topology as it is now.
    fn state(&self) -> Arc<State>;

    /// Applies a metadata command without asking for anybody's permissions; true if it made
    /// something new. It is durable and in force when the answer comes, and what follows from it
    /// (machines of new queues, queues of a deleted virtual host, connections of a deleted user)
    /// is done too. Any command may come but a deletion of a queue: an import of definitions
    /// declares queues, exchanges and bindings in this way.
    ///
    /// # Errors
    /// The machine refused it; nothing changed.
    fn submit(
        &self,
        command: Command,
        by: &str,
    ) -> impl Future<Output = Result<bool, Refusal>> + Send;

    /// Whether somebody is who he says, as for an AMQP login from that address (`None`: unknown).
    ///
    /// # Errors
    /// Why not.
    fn authenticate(
        &self,
        user: &str,
        password: &[u8],
        from: Option<IpAddr>,
    ) -> Result<Arc<User>, LoginRefusal>;

    /// `queue.declare`; true if the queue is new.
    ///
    /// # Errors
    /// As AMQP's.
    fn declare_queue(
        &self,
        declaration: QueueDeclaration,
    ) -> impl Future<Output = Result<bool, Refusal>> + Send;

    /// `queue.delete`.
    ///
    /// # Errors
    /// As AMQP's, and 404 if there is no such queue.
    fn delete_queue(
        &self,
        deletion: QueueDeletion,
    ) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// `queue.purge`; the number of messages that are gone.
    ///
    /// # Errors
    /// As AMQP's.
    fn purge_queue(
        &self,
        vhost: &str,
        queue: &str,
        user: &str,
    ) -> impl Future<Output = Result<u64, Refusal>> + Send;

    /// `exchange.declare`; true if the exchange is new.
    ///
    /// # Errors
    /// As AMQP's.
    fn declare_exchange(
        &self,
        declaration: ExchangeDeclaration,
    ) -> impl Future<Output = Result<bool, Refusal>> + Send;

    /// `exchange.delete`.
    ///
    /// # Errors
    /// As AMQP's, and 404 if there is no such exchange.
    fn delete_exchange(
        &self,
        deletion: ExchangeDeletion,
    ) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// `queue.bind` or `exchange.bind`. Binding again is no error.
    ///
    /// # Errors
    /// As AMQP's.
    fn bind(&self, binding: BindingRequest) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// `queue.unbind` or `exchange.unbind`.
    ///
    /// # Errors
    /// As AMQP's.
    fn unbind(&self, binding: BindingRequest) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// `basic.publish` with `mandatory` on a confirming channel of its own.
    ///
    /// # Errors
    /// As AMQP's.
    fn publish(
        &self,
        request: PublishRequest,
    ) -> impl Future<Output = Result<PublishOutcome, Refusal>> + Send;

    /// `basic.get`, several times, then settlement.
    ///
    /// # Errors
    /// As AMQP's.
    fn get(
        &self,
        request: GetRequest,
    ) -> impl Future<Output = Result<Vec<GotMessage>, Refusal>> + Send;

    /// What the nodes of the cluster say of themselves, or this node alone, which is the first. Nodes
    /// that do not answer in time are left out.
    fn parts(&self, wanted: Wanted) -> impl Future<Output = Vec<Part>> + Send;

    /// The same, put together.
    fn census(&self, wanted: Wanted) -> impl Future<Output = Census> + Send {
        async move { census::merge(&self.state(), &self.names(), &wanted, self.parts(wanted).await) }
    }

    /// The names of all nodes.
    fn names(&self) -> Names;

    /// This node's members of quorum queues.
    fn raft_members(&self) -> Vec<RaftMember>;

    /// The quorum queues of which nodes that answer should have a member and have no data of it.
    fn lost_members(&self) -> impl Future<Output = BTreeSet<QueueId>> + Send;

    /// How often one of them has begun to hibernate since the node started.
    fn hibernations(&self) -> u64;

    /// All members of a quorum queue.
    fn quorum_status(&self, queue: QueueId) -> impl Future<Output = Vec<MemberReport>> + Send;

    /// Gives the leadership of a quorum queue to a node that is a member.
    ///
    /// # Errors
    /// If it is none, or does not take over.
    fn transfer_leadership(
        &self,
        queue: QueueId,
        to: NodeId,
    ) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// Takes the right to move leaders, which one has at a time in the whole cluster; what it is kept and
    /// given back by. It ends by itself some time after it was kept last.
    ///
    /// # Errors
    /// Somebody has it, or the topology cannot be changed.
    fn begin_rebalance(&self) -> impl Future<Output = Result<u64, Refusal>> + Send;

    /// Keeps that right for another 30 s.
    ///
    /// # Errors
    /// It has ended, or the topology cannot be changed.
    fn keep_rebalance(&self, grant: u64) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// Gives that right back.
    fn end_rebalance(&self, grant: u64) -> impl Future<Output = ()> + Send;

    /// Gives a quorum queue a member on a node, with a vote, unless it has one there.
    ///
    /// # Errors
    /// See [`MemberError`](crate::members::MemberError).
    fn add_member(&self, queue: QueueId, node: NodeId) -> impl Future<Output = Change> + Send;

    /// Takes the member on a node from a quorum queue, if it has one there; `force`: even if too few
    /// running members are left.
    ///
    /// # Errors
    /// See [`MemberError`](crate::members::MemberError).
    fn delete_member(
        &self,
        queue: QueueId,
        node: NodeId,
        force: bool,
    ) -> impl Future<Output = Change> + Send;

    /// Lets a quorum queue whose majority is gone for good go on with the member on a node alone.
    ///
    /// # Errors
    /// See [`MemberError`](crate::members::MemberError).
    fn force_shrink(&self, queue: QueueId, node: NodeId) -> impl Future<Output = Change> + Send;

    /// Takes checkpoints of all members of these quorum queues, on every node that has some; gives the
    /// queues of which a member could not, and why.
    fn checkpoint(
        &self,
        queues: Vec<QueueId>,
    ) -> impl Future<Output = BTreeMap<QueueId, String>> + Send;

    /// A message of a quorum queue that is delivered after `before` others, with at most `most` bytes of
    /// its body. Nothing happens to it.
    ///
    /// # Errors
    /// See [`PeekError`].
    fn peek(
        &self,
        queue: QueueId,
        before: u64,
        most: usize,
    ) -> impl Future<Output = Result<PeekedMessage, PeekError>> + Send;

    /// Whether members of quorum queues may be changed over HTTP.
    fn allows_replica_operations(&self) -> bool {
        true
    }

    /// The nodes that are connected and may get queues, perhaps this one.
    fn running_nodes(&self) -> Vec<NodeId>;

    /// A node enters maintenance mode: it closes its clients' connections and gives its leaders away.
    ///
    /// # Errors
    /// If it does not answer, or the topology cannot be changed.
    fn drain(&self, node: NodeId) -> impl Future<Output = Result<Drained, Refusal>> + Send;

    /// A node leaves maintenance mode.
    ///
    /// # Errors
    /// As [`Node::drain`].
    fn revive(&self, node: NodeId) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// Whether a node could be forgotten now, as the leader of the topology sees it; nothing changes.
    ///
    /// # Errors
    /// As [`Node::forget`].
    fn may_forget(&self, node: NodeId) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// A quorum queue goes whose members are all on nodes that do not come back, with all that was in
    /// it. Nobody leads it, so nobody is asked.
    ///
    /// # Errors
    /// If the topology cannot be changed.
    fn give_up(&self, queue: QueueId) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// A node that does not run is none of the cluster any more. Its members of queues have been
    /// deleted before.
    ///
    /// # Errors
    /// If it runs, is this one, or is unknown, or the topology cannot be changed.
    fn forget(&self, node: NodeId) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// Named journals that this node has, or may get, a copy of.
    fn journal_copies(&self) -> Vec<JournalCopy> {
        Vec::new()
    }

    /// What all nodes that answer have of named journals.
    fn all_journal_copies(&self) -> impl Future<Output = Vec<NodeCopies>> + Send;

    /// Changes a copy of a journal that is not in use; what it was before, in words.
    ///
    /// # Errors
    /// If the node does not answer, has no such copy, or uses it.
    fn amend_copy(
        &self,
        node: NodeId,
        uid: &str,
        amendment: Amendment,
    ) -> impl Future<Output = Result<String, Refusal>> + Send;

    /// Journals that nodes have on their disks and the topology knows nothing of, of all nodes that
    /// answer.
    fn left_journals(&self) -> impl Future<Output = Vec<NodeLeft>> + Send;

    /// What was declared in such a journal of a node.
    ///
    /// # Errors
    /// If the node does not answer, or it cannot be read.
    fn left_declarations(
        &self,
        node: NodeId,
        uid: &str,
    ) -> impl Future<Output = Result<Declarations, Refusal>> + Send;

    /// Returns when [`Node::state`] is not older than the moment at which it was called.
    ///
    /// # Errors
    /// If no majority of the cluster answers.
    fn catch_up(&self) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// How the members of quorum queues are kept as many as wanted, on this node.
    fn reconciliation_here(&self) -> ReconciliationReport;

    /// The same of all nodes that answer, by name.
    fn reconciliation(&self) -> impl Future<Output = Vec<ReconciliationReport>> + Send;

    /// Lets all connected nodes look at the queues that they lead at once; by name, how it ended.
    fn reconcile_now(&self) -> impl Future<Output = Vec<(String, Done)>> + Send;

    /// What the leader of a quorum queue would do about its members.
    ///
    /// # Errors
    /// If nobody leads it, or the leader does not answer.
    fn reconciliation_plan(
        &self,
        queue: QueueId,
    ) -> impl Future<Output = Result<PlanReport, Refusal>> + Send;

    /// Closes a connection to whatever node with 320 `CONNECTION_FORCED` and `reason`; false if
    /// there is none of that name. Returns without waiting for the client.
    fn close_connection(&self, name: &str, reason: &str) -> impl Future<Output = bool> + Send;

    /// Totals of the node.
    fn counters(&self) -> GlobalCounters;

    /// The node itself.
    fn stats(&self) -> NodeStats;

    /// The other nodes of the cluster, by name.
    fn other_nodes(&self) -> Vec<OtherNode> {
        Vec::new()
    }

    /// Who decides on the topology. Not every node: one that has just come has no vote yet.
    fn topology_votes(&self) -> TopologyVotes;
}
