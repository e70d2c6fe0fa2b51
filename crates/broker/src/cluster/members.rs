//! Giving quorum queues members and taking them away.
//!
//! Both may be called on any node; the queue's leader does it, one change at a time for each queue.
//!
//! [`Members::add`]: the member is recorded as unstarted, its node starts it, the leader tells it
//! the log, records it as started, and gives it its vote. When it returns `Ok`, the member has a
//! vote. If it fails, what was begun is taken back, unless that cannot be known or done: after `TimedOut`
//! it may yet happen; after `NotLeader`, `NoLeader` and `Unavailable` the member may be recorded, and
//! then whoever leads next brings it in; and in the place of a lost member its successor is wanted for
//! good. A member that is recorded and has no vote yet
//! (its node was away, or whoever added it has died) is brought in by [`keeper`]. How each change is
//! made stands in [`changer`].
//!
//! [`Members::delete`]: the group agrees, then the record goes, and with it what the node has of the
//! member: at once, or when the node is back. The leader's own member goes after it has handed over.
//! It refuses to take the last voter, and, unless forced, to leave a queue without a running majority.
//!
//! Both are idempotent: what is so already is `Ok` with `changed: false`. A member that is added
//! again gets a new stream, so nothing of the former one can reach it.
//!
//! [`changer`]: crate::cluster::changer
//! [`keeper`]: crate::cluster::keeper

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use management::inquiry::{self, Change, Inquiry};
use management::members::MemberError;
use management::view::raft::{RaftMember, RaftRole};
use model::id::{NodeId, QueueId};
use quorum::group::GroupId;
use quorum::member::Role;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cluster::changer::{Changer, What};
use crate::cluster::site::{OwnSite, Site as _};
use crate::cluster::{Cluster, channel};
use crate::topology::Topology;

/// How long the leader may take for a change, as another node sees it.
const ORDER_WAIT: Duration = Duration::from_mins(11);
/// How long another node may take to say what it knows of a queue.
const QUICK: Duration = Duration::from_secs(3);
/// Leaders that are handed over at once.
const CHUNK: usize = 64;
/// How long a leader is looked for, how long another change is waited for, and the pause between two
/// looks.
const LEADER_WAIT: Duration = Duration::from_secs(10);
const BUSY_WAIT: Duration = Duration::from_secs(2);
const LEADER_PAUSE: Duration = Duration::from_millis(50);
/// How long others may take to say that they lead in a newer term, once somebody has said that it
/// leads. Who stands still is not waited for.
const NEWER_WAIT: Duration = Duration::from_millis(100);

/// See the module head.
#[derive(Debug)]
pub(crate) struct Members {
    pub(super) cluster: Arc<Cluster>,
    pub(super) topology: Arc<Topology>,
    /// Makes the changes of the queues that this node leads.
    pub(super) changer: Changer<OwnSite>,
}

impl Members {
    pub(crate) fn new(cluster: Arc<Cluster>, topology: Arc<Topology>) -> Self {
        let own = OwnSite { cluster: Arc::clone(&cluster), topology: Arc::clone(&topology) };
        Self { cluster, topology, changer: Changer::new(own) }
    }

    /// Gives a queue a member on a node, with a vote.
    ///
    /// # Errors
    /// See [`MemberError`], and the module head for what may have changed all the same.
    pub(crate) async fn add(&self, queue: QueueId, node: NodeId) -> Change {
        self.by_leader(queue, node, What::Add).await
    }

    /// Takes the member on a node from a queue; `force`: even if too few running members are left.
    ///
    /// # Errors
    /// See [`MemberError`]; after all but `TimedOut` nothing has changed but, perhaps, who leads.
    pub(crate) async fn delete(&self, queue: QueueId, node: NodeId, force: bool) -> Change {
        self.by_leader(queue, node, What::Delete { force }).await
    }

    /// Lets a queue whose majority is gone for good go on with the member on a node alone.
    ///
    /// # Errors
    /// See [`MemberError`].
    pub(crate) async fn force_shrink(&self, queue: QueueId, node: NodeId) -> Change {
        if node == self.cluster.me.node {
            return self.force_shrink_here(queue).await;
        }
        self.changer.check(queue, node, What::Delete { force: true })?;
        if !self.is_up(node) {
            return Err(MemberError::NodeNotRunning);
        }
        let order = Bytes::from(Inquiry::ForceShrink(queue).encode());
        match self.cluster.road.request(node, channel::INQUIRIES, order, ORDER_WAIT).await {
            Some(answer) => inquiry::decode::<Change>(&answer)
                .unwrap_or_else(|error| Err(MemberError::Failed(error.to_string()))),
            None => Err(MemberError::TimedOut),
        }
    }

    /// The same with this node's member.
    ///
    /// # Errors
    /// See [`MemberError`].
    pub(crate) async fn force_shrink_here(&self, queue: QueueId) -> Change {
        self.changer.force_shrink(queue).await
    }

    async fn by_leader(&self, queue: QueueId, node: NodeId, what: What) -> Change {
        let deadline = Instant::now() + LEADER_WAIT;
        let busy = Instant::now() + BUSY_WAIT;
        loop {
            self.changer.check(queue, node, what)?;
            let ended = match self.leader(queue).await {
                Some(leader) if leader == self.cluster.me.node => {
                    self.changer.here(queue, node, what).await
                }
                Some(leader) => self.there(leader, queue, node, what).await,
                None => Err(MemberError::NoLeader),
            };
            match ended {
                Err(MemberError::NotLeader | MemberError::NoLeader)
                    if Instant::now() < deadline =>
                {
                    tokio::time::sleep(LEADER_PAUSE).await;
                }
                // Rarely for long: a new leader has to commit something first, or the keeper is at it.
                Err(MemberError::ChangeUnderWay) if Instant::now() < busy => {
                    tokio::time::sleep(LEADER_PAUSE).await;
                }
                Err(MemberError::NotLeader) => return Err(MemberError::NoLeader),
                ended => return ended,
            }
        }
    }

    /// Who leads a queue, as far as anybody who can be reached knows.
    pub(crate) async fn leader(&self, queue: QueueId) -> Option<NodeId> {
        let me = self.cluster.me.node;
        match self.cluster.host.role(GroupId::from(queue)) {
            Some(Role::Leader { .. }) => return Some(me),
            Some(Role::Follower { leader: Some(leader), .. })
                if leader != me && self.is_up(leader) =>
            {
                return Some(leader);
            }
            Some(Role::Follower { .. }) | None => {}
        }
        let mut asked = JoinSet::new();
        for peer in self.cluster.connected() {
            let question = Bytes::from(Inquiry::Member(queue).encode());
            let road = self.cluster.road.clone();
            asked.spawn(async move {
                let answer = road.request(peer.id, channel::INQUIRIES, question, QUICK).await?;
                let member: Option<RaftMember> = inquiry::decode(&answer).ok()?;
                let leads = member.filter(|member| member.role == RaftRole::Leader)?;
                Some((leads.term, peer.id))
            });
        }
        newest(asked).await
    }

    async fn there(&self, leader: NodeId, queue: QueueId, node: NodeId, what: What) -> Change {
        let order = match what {
            What::Add => Inquiry::AddMember { queue, node },
            What::Delete { force } => Inquiry::DeleteMember { queue, node, force },
        };
        let order = Bytes::from(order.encode());
        let road = &self.cluster.road;
        match road.request(leader, channel::INQUIRIES, order, ORDER_WAIT).await {
            Some(answer) => inquiry::decode::<Change>(&answer)
                .unwrap_or_else(|error| Err(MemberError::Failed(error.to_string()))),
            // It may have done it before it fell.
            None => Err(MemberError::TimedOut),
        }
    }

    /// Gives a queue that this node leads a member.
    ///
    /// # Errors
    /// See [`MemberError`].
    pub(crate) async fn add_here(&self, queue: QueueId, node: NodeId) -> Change {
        self.changer.here(queue, node, What::Add).await
    }

    /// Takes a member from a queue that this node leads.
    ///
    /// # Errors
    /// See [`MemberError`].
    pub(crate) async fn delete_here(&self, queue: QueueId, node: NodeId, force: bool) -> Change {
        self.changer.here(queue, node, What::Delete { force }).await
    }

    /// Hands over what this node leads, in chunks; gives the queues that have to stay, and why.
    pub(crate) async fn hand_over_all(self: &Arc<Self>) -> (usize, Vec<(QueueId, MemberError)>) {
        let (mut moved, mut stay) = (0, Vec::new());
        for some in self.cluster.led().chunks(CHUNK) {
            let mut under_way = JoinSet::new();
            for id in some.iter().copied() {
                let Ok(seen) = self.changer.look(id) else { continue };
                let this = Arc::clone(self);
                under_way.spawn(async move { (id, this.changer.hand_over(&seen).await) });
            }
            for (id, ended) in under_way.join_all().await {
                match ended {
                    Ok(()) => moved += 1,
                    Err(error) => stay.push((id, error)),
                }
            }
        }
        (moved, stay)
    }

    /// The nodes that are connected and may get queues, perhaps this one.
    pub(crate) fn running(&self) -> Vec<NodeId> {
        let state = self.topology.state();
        let fit = state.nodes().filter(|node| node.takes_queues());
        let mut running: Vec<NodeId> =
            fit.map(|node| node.id).filter(|node| self.is_up(*node)).collect();
        if state.nodes().next().is_none() {
            running.push(self.cluster.me.node);
        }
        running
    }

    /// Whether a node runs, as far as this one knows.
    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        self.changer.site.is_up(node)
    }

    /// Whether a change of a queue is under way here.
    pub(super) fn is_busy(&self, queue: QueueId) -> bool {
        self.changer.is_busy(queue)
    }
}

/// Who leads in the newest term, of all that say in time that they lead, with that term.
async fn newest(mut asked: JoinSet<Option<(u64, NodeId)>>) -> Option<NodeId> {
    let mut newest: Option<(u64, NodeId)> = None;
    let mut last = None;
    loop {
        let answer = match last {
            None => asked.join_next().await,
            Some(last) => tokio::time::timeout_at(last, asked.join_next()).await.ok().flatten(),
        };
        let Some(answer) = answer else { return newest.map(|(_, node)| node) };
        let Ok(Some(leads)) = answer else { continue };
        last.get_or_insert_with(|| Instant::now() + NEWER_WAIT);
        newest = newest.max(Some(leads));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who answers after how long, and in which term it leads then.
    async fn asked(of: &[(u64, u64, Option<u64>)]) -> (Option<u64>, Duration) {
        let mut asked = JoinSet::new();
        for (node, after, term) in of.iter().copied() {
            asked.spawn(async move {
                tokio::time::sleep(Duration::from_millis(after)).await;
                Some((term?, NodeId(node)))
            });
        }
        let begin = Instant::now();
        let leader = newest(asked).await;
        (leader.map(|node| node.0), begin.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_is_found_while_another_node_stands_still() {
        let (leader, took) = asked(&[(1, 3000, None), (2, 5, Some(4)), (3, 1, None)]).await;
        assert_eq!(leader, Some(2));
        assert!(took <= Duration::from_millis(110), "{took:?}");
        // Nobody else is left to ask.
        let (leader, took) = asked(&[(2, 5, Some(4)), (3, 1, None)]).await;
        assert_eq!(leader, Some(2));
        assert!(took < NEWER_WAIT, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_that_lead_the_newer_one_counts() {
        for (first, second) in [(4, 9), (9, 4)] {
            let (leader, _) = asked(&[(1, 5, Some(first)), (2, 60, Some(second))]).await;
            assert_eq!(leader, Some(if first > second { 1 } else { 2 }));
        }
        // Who leads is not known before everybody who might has answered or failed to.
        let (leader, took) = asked(&[(1, 5, None), (2, 2500, Some(3))]).await;
        assert_eq!(leader, Some(2));
        assert!(took >= Duration::from_millis(2500));
        assert_eq!(asked(&[(1, 5, None), (2, 3000, None)]).await.0, None);
        assert_eq!(asked(&[]).await.0, None);
    }
}
