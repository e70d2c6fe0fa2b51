//! What a change of a group's members needs of the node that leads it.
//!
//! The node itself is one ([`OwnSite`]); tests and simulations have others.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use management::inquiry::{self, Inquiry};
use management::view::raft::{RaftMember, RaftRole};
use metadata::command::Command;
use metadata::outcome::Outcome;
use metadata::refusal::Refusal;
use metadata::state::State;
use model::id::{NodeId, QueueId};
use quorum::change::Change;
use quorum::group::GroupId;
use quorum::host::GroupError;
use quorum::status::Status;

use crate::cluster::{Cluster, channel};
use crate::topology::Topology;

/// How long another node may take to say what it knows of a queue.
const QUICK: Duration = Duration::from_secs(3);

/// See the module head.
pub(crate) trait Site: Send + Sync + 'static {
    /// This node.
    fn me(&self) -> NodeId;

    /// What this node is called, if it is on its own: then nobody records nodes.
    fn alone(&self) -> Option<Arc<str>> {
        None
    }

    /// The topology as this node knows it.
    fn state(&self) -> Arc<State>;

    /// Whether a node is connected, or this one.
    fn is_up(&self, node: NodeId) -> bool;

    /// A queue's group as this node's member sees it.
    fn status(&self, queue: QueueId) -> Option<Status>;

    /// Wakes a queue's group, if it sleeps. If that fails, its status says so.
    fn rouse(&self, queue: QueueId) -> impl Future<Output = ()> + Send;

    /// Whether a majority of a group confirms that this node leads it.
    fn leads(&self, queue: QueueId) -> impl Future<Output = bool> + Send;

    /// Changes the members of a group that is led here; returns when that is committed.
    fn change(
        &self,
        queue: QueueId,
        change: Change,
    ) -> impl Future<Output = Result<(), GroupError>> + Send;

    /// Gives the leadership of a group away.
    fn transfer(
        &self,
        queue: QueueId,
        to: NodeId,
    ) -> impl Future<Output = Result<(), GroupError>> + Send;

    /// Changes the topology; returns when that is in force here.
    fn submit(&self, command: Command) -> impl Future<Output = Result<Outcome, Refusal>> + Send;

    /// Asks a node whether its member of a queue is lost.
    fn says_lost(&self, queue: QueueId, node: NodeId) -> impl Future<Output = bool> + Send;

    /// Asks a node whether its member of a queue is lost, or has failed until the next start: it has no
    /// vote to give.
    fn says_unable(&self, queue: QueueId, node: NodeId) -> impl Future<Output = bool> + Send;
}

/// This node.
#[derive(Debug)]
pub(crate) struct OwnSite {
    pub(super) cluster: Arc<Cluster>,
    pub(super) topology: Arc<Topology>,
}

impl Site for OwnSite {
    fn me(&self) -> NodeId {
        self.cluster.me.node
    }

    fn alone(&self) -> Option<Arc<str>> {
        self.cluster.group.is_none().then(|| Arc::from(&*self.cluster.name))
    }

    fn state(&self) -> Arc<State> {
        self.topology.state()
    }

    fn is_up(&self, node: NodeId) -> bool {
        node == self.cluster.me.node || self.cluster.up.lock().contains_key(&node)
    }

    fn status(&self, queue: QueueId) -> Option<Status> {
        self.cluster.host.status(GroupId::from(queue))
    }

    async fn rouse(&self, queue: QueueId) {
        drop(self.cluster.host.rouse(GroupId::from(queue)).await);
    }

    async fn leads(&self, queue: QueueId) -> bool {
        self.cluster.host.read_index(GroupId::from(queue)).await.is_ok()
    }

    async fn change(&self, queue: QueueId, change: Change) -> Result<(), GroupError> {
        self.cluster.host.change(GroupId::from(queue), change).await
    }

    async fn transfer(&self, queue: QueueId, to: NodeId) -> Result<(), GroupError> {
        self.cluster.host.transfer(GroupId::from(queue), to).await
    }

    async fn submit(&self, command: Command) -> Result<Outcome, Refusal> {
        self.topology.submit(command).await
    }

    async fn says_lost(&self, queue: QueueId, node: NodeId) -> bool {
        self.role_on(queue, node).await == Some(RaftRole::Lost)
    }

    async fn says_unable(&self, queue: QueueId, node: NodeId) -> bool {
        matches!(self.role_on(queue, node).await, Some(RaftRole::Lost | RaftRole::Failed))
    }
}

impl OwnSite {
    /// What another node says its member of a queue does; `None`: nothing, or this is the node.
    async fn role_on(&self, queue: QueueId, node: NodeId) -> Option<RaftRole> {
        if node == self.cluster.me.node {
            return None;
        }
        let question = Bytes::from(Inquiry::Member(queue).encode());
        let answer = self.cluster.road.request(node, channel::INQUIRIES, question, QUICK).await;
        let member: Option<RaftMember> = answer.and_then(|bytes| inquiry::decode(&bytes).ok()?);
        member.map(|member| member.role)
    }
}
