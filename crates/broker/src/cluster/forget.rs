//! Taking a node that does not come back out of the cluster.
//!
//! The order is: whoever decides is asked whether it may be, its members of quorum queues go (whoever
//! asks does both first), queues that are only there, its vote on the topology, its record. Cut
//! anywhere, doing it again goes on; what is left of members whose node is not recorded any more is
//! found as dangling.

use metadata::command::Command;
use metadata::refusal::Refusal;
use model::id::NodeId;
use quorum::change::Change;

use crate::cluster::GROUP;
use crate::cluster::members::Members;
use crate::cluster::proposer::no_majority;

impl Members {
    /// On the leader of the metadata group: whether a node may be forgotten now. Nothing changes.
    ///
    /// # Errors
    /// If the node runs or is not known, or there is no majority for it.
    pub(crate) async fn may_forget(&self, node: NodeId) -> Result<(), Refusal> {
        let state = self.topology.state();
        let known = state.node(node);
        let Some(known) = known else {
            return Err(Refusal::not_found(format!("no node '{node}'")));
        };
        if self.is_up(node) {
            return Err(Refusal::precondition(format!(
                "node '{}' is running; it must be stopped before it can be forgotten",
                known.name
            )));
        }
        let Some(group) = &self.cluster.group else {
            return Err(Refusal::not_allowed("this node is on its own"));
        };
        if group.proposer.leader() != Some(self.cluster.me.node) {
            return Err(no_majority());
        }
        // A command that changes nothing: a majority agrees that this node decides.
        self.topology.submit(Command::MembersStarted(Vec::new())).await.map(drop)
    }

    /// On the leader of the metadata group: does that with a node whose members are gone.
    ///
    /// # Errors
    /// As [`may_forget`](Self::may_forget).
    pub(crate) async fn forget(&self, node: NodeId) -> Result<(), Refusal> {
        self.may_forget(node).await?;
        let Some(group) = &self.cluster.group else { return Err(no_majority()) };
        let (voters, learners) = group.proposer.members();
        if voters.contains(&node) || learners.contains(&node) {
            self.cluster
                .host
                .change(GROUP, Change::Remove(node))
                .await
                .map_err(|error| Refusal::unavailable(error.to_string()))?;
        }
        let state = self.topology.state();
        let name = state.node(node).map(|known| &*known.name).unwrap_or_default();
        tracing::warn!(node = name, id = %node, "a node is forgotten");
        self.topology.submit(Command::ForgetNode { id: node.0 }).await.map(drop)
    }
}
