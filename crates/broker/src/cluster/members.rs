//! Giving quorum queues members and taking them away.
//!
//! Both may be called on any node; the queue's leader does it, one change at a time for each queue.
//!
//! [`Members::add`]: the member is recorded as unstarted, its node starts it, the leader tells it
//! the log, records it as started, and gives it its vote. When it returns `Ok`, the member has a
//! vote. If it fails with anything but `TimedOut`, nothing has changed. A member that is recorded and
//! has no vote yet (its node was away, or whoever added it has died) is brought in by [`keeper`].
//!
//! [`Members::delete`]: the group agrees, then the record goes, and with it what the node has of the
//! member: at once, or when the node is back. The leader's own member goes after it has handed over.
//! It refuses to take the last voter, and, unless forced, to leave a queue without a running majority.
//!
//! Both are idempotent: what is so already is `Ok` with `changed: false`. A member that is added
//! again gets a new stream, so nothing of the former one can reach it.
//!
//! [`keeper`]: crate::cluster::keeper

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use management::inquiry::{self, Change, Inquiry};
use management::members::{Changed, MemberError};
use management::view::raft::{RaftMember, RaftRole};
use metadata::command::{Command, MemberName, SerialQueueId};
use metadata::objects::member::{Member, Stage};
use metadata::objects::node::NodeRole;
use metadata::objects::queue::{Queue, QueueKind};
use metadata::refusal::Refusal;
use model::id::{NodeId, QueueId};
use parking_lot::Mutex;
use quorum::change;
use quorum::group::GroupId;
use quorum::host::GroupError;
use quorum::member::Role;
use quorum::status::Status;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cluster::{Cluster, channel};
use crate::topology::Topology;

/// How long a change of a group's members may take.
const CHANGE_WAIT: Duration = Duration::from_secs(20);
/// How long a new member may take to get the whole log, and how often the leader looks.
const CATCH_UP: Duration = Duration::from_mins(10);
const LOOK: Duration = Duration::from_millis(20);
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

/// See the module head.
#[derive(Debug)]
pub(crate) struct Members {
    pub(super) cluster: Arc<Cluster>,
    pub(super) topology: Arc<Topology>,
    /// Queues that have a change under way here.
    busy: Mutex<BTreeSet<QueueId>>,
}

/// A change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Add,
    Delete { force: bool },
}

/// The right to change a queue's members, until it is dropped.
pub(super) struct Turn<'a>(&'a Members, QueueId);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.busy.lock().remove(&self.1);
    }
}

impl Members {
    pub(crate) fn new(cluster: Arc<Cluster>, topology: Arc<Topology>) -> Self {
        Self { cluster, topology, busy: Mutex::default() }
    }

    /// Gives a queue a member on a node, with a vote.
    ///
    /// # Errors
    /// See [`MemberError`]; after all but `TimedOut` nothing has changed.
    pub(crate) async fn add(&self, queue: QueueId, node: NodeId) -> Change {
        self.by_leader(queue, node, What::Add).await
    }

    /// Takes the member on a node from a queue; `force`: even if too few running members are left.
    ///
    /// # Errors
    /// See [`MemberError`]; after all but `TimedOut` nothing has changed.
    pub(crate) async fn delete(&self, queue: QueueId, node: NodeId, force: bool) -> Change {
        self.by_leader(queue, node, What::Delete { force }).await
    }

    async fn by_leader(&self, queue: QueueId, node: NodeId, what: What) -> Change {
        let deadline = Instant::now() + LEADER_WAIT;
        let busy = Instant::now() + BUSY_WAIT;
        loop {
            self.check(queue, node, what)?;
            let ended = match self.leader(queue).await {
                Some(leader) if leader == self.cluster.me.node => {
                    self.here(queue, node, what).await
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

    /// What can be told without asking anybody.
    fn check(&self, id: QueueId, node: NodeId, what: What) -> Result<(), MemberError> {
        let state = self.topology.state();
        let queue = state.queue_by_id(id).ok_or(MemberError::NotFound)?;
        if queue.kind != QueueKind::Quorum {
            return Err(MemberError::Classic);
        }
        match (state.node(node), what) {
            (Some(known), What::Add) if known.role != NodeRole::Full => Err(MemberError::Witness),
            (None, What::Add) => Err(MemberError::UnknownNode),
            (Some(known), What::Add) if known.lost => Err(MemberError::UnknownNode),
            (Some(known), What::Add) if known.maintenance => Err(MemberError::Maintenance),
            _ => Ok(()),
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
        let leading = asked.join_all().await.into_iter().flatten().max();
        leading.map(|(_, node)| node)
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
        self.here(queue, node, What::Add).await
    }

    /// Takes a member from a queue that this node leads.
    ///
    /// # Errors
    /// See [`MemberError`].
    pub(crate) async fn delete_here(&self, queue: QueueId, node: NodeId, force: bool) -> Change {
        self.here(queue, node, What::Delete { force }).await
    }

    async fn here(&self, queue: QueueId, node: NodeId, what: What) -> Change {
        let _turn = self.turn(queue).ok_or(MemberError::ChangeUnderWay)?;
        match what {
            What::Add => self.bring_in(queue, node).await,
            What::Delete { force } => self.take_out(queue, node, force).await,
        }
    }

    pub(super) fn turn(&self, queue: QueueId) -> Option<Turn<'_>> {
        self.busy.lock().insert(queue).then_some(Turn(self, queue))
    }

    /// Whether a change is under way here.
    pub(super) fn is_busy(&self, queue: QueueId) -> bool {
        self.busy.lock().contains(&queue)
    }

    async fn bring_in(&self, id: QueueId, node: NodeId) -> Change {
        self.check(id, node, What::Add)?;
        let seen = self.look(id)?;
        if seen.votes(node) && seen.queue.member(node).is_some() && !self.is_lost(id, node).await {
            return Ok(Changed { changed: false, size: seen.queue.members.len() });
        }
        if !self.is_up(node) {
            return Err(MemberError::NodeNotRunning);
        }
        let seen = self.clear(seen, node).await?;
        self.check_majority(&seen)?;
        if seen.status.is_changing {
            return Err(MemberError::ChangeUnderWay);
        }
        let (member, is_new) = self.record(&seen, node).await?;
        let name = name(id, &member);
        match self.promote(id, name).await {
            Ok(()) => {
                let queue = self.queue(id)?;
                tracing::info!(
                    queue = %queue.name, vhost = %queue.vhost, %node,
                    members = queue.members.len(), "a quorum queue has got a member"
                );
                Ok(Changed { changed: true, size: queue.members.len() })
            }
            // What may yet happen is finished later.
            Err(MemberError::TimedOut) => Err(MemberError::TimedOut),
            Err(error) => {
                if is_new {
                    self.undo(id, name).await;
                }
                Err(error)
            }
        }
    }

    /// Takes out what a node was before it lost its data: a member of its former incarnation, or
    /// one that it found without data.
    async fn clear(&self, seen: Seen, node: NodeId) -> Result<Seen, MemberError> {
        let state = self.topology.state();
        let name = state.node(node).map(|node| &node.name);
        let is_former =
            |member: NodeId| state.node(member).is_some_and(|it| it.lost && Some(&it.name) == name);
        let id = seen.queue.id;
        let mut former: Vec<NodeId> = seen.queue.nodes().filter(|it| is_former(*it)).collect();
        if seen.votes(node) {
            former.push(node);
        }
        if former.is_empty() {
            return Ok(seen);
        }
        for member in former {
            self.take_out(id, member, false).await?;
        }
        self.look(id)
    }

    /// Whether a node says that its member is lost.
    async fn is_lost(&self, id: QueueId, node: NodeId) -> bool {
        if node == self.cluster.me.node {
            return false;
        }
        let question = Bytes::from(Inquiry::Member(id).encode());
        let answer = self.cluster.road.request(node, channel::INQUIRIES, question, QUICK).await;
        let member: Option<RaftMember> = answer.and_then(|bytes| inquiry::decode(&bytes).ok()?);
        member.is_some_and(|member| member.role == RaftRole::Lost)
    }

    /// Records a member that starts without data, unless it is recorded so.
    async fn record(&self, seen: &Seen, node: NodeId) -> Result<(Member, bool), MemberError> {
        let id = seen.queue.id;
        let is_member = seen.status.members.iter().any(|one| one.node == node);
        match seen.queue.member(node) {
            Some(member) if member.stage != Stage::Started || is_member => {
                return Ok((*member, false));
            }
            // The group has taken it out, and the record has not heard.
            Some(member) => self.unrecord(name(id, member)).await?,
            // The record has let it go, and the group has not heard.
            None if is_member => self.change(id, change::Change::Remove(node)).await?,
            None => {}
        }
        let add = Command::AddMember { queue: SerialQueueId(id), node: node.0 };
        let outcome = self.topology.submit(add).await.map_err(refused)?;
        let member = outcome.queue.as_ref().and_then(|queue| queue.member(node)).copied();
        member.map(|member| (member, true)).ok_or(MemberError::NotFound)
    }

    /// Tells a recorded member the log, records that, and gives it its vote.
    async fn promote(&self, id: QueueId, member: MemberName) -> Result<(), MemberError> {
        let node = NodeId(member.node);
        let goal = self.status(id)?.last;
        if self.status(id)?.members.iter().all(|one| one.node != node) {
            self.change(id, change::Change::AddLearner(node)).await?;
        }
        self.catch_up(id, node, goal).await?;
        // From now on it must not start without its data, since it may vote.
        let started = Command::MembersStarted(vec![member]);
        self.topology.submit(started).await.map_err(refused)?;
        self.change(id, change::Change::Promote(node)).await
    }

    async fn catch_up(
        &self,
        id: QueueId,
        node: NodeId,
        goal: Option<u64>,
    ) -> Result<(), MemberError> {
        let deadline = Instant::now() + CATCH_UP;
        loop {
            let status = self.status(id)?;
            let member = status.members.iter().find(|one| one.node == node);
            // Somebody has taken it out meanwhile.
            let member = member.ok_or(MemberError::ChangeUnderWay)?;
            if member.matched.is_some() && member.matched >= goal {
                return Ok(());
            }
            if !self.is_up(node) {
                return Err(MemberError::NodeNotRunning);
            }
            if Instant::now() > deadline {
                return Err(MemberError::TimedOut);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A member that cannot be brought in goes again.
    async fn undo(&self, id: QueueId, member: MemberName) {
        let node = NodeId(member.node);
        let is_member =
            self.status(id).is_ok_and(|status| status.members.iter().any(|one| one.node == node));
        if is_member && let Err(error) = self.change(id, change::Change::Remove(node)).await {
            // The keeper of the next leader finds a member that is recorded and not started, and
            // goes on from there.
            tracing::warn!(queue = %id, %node, %error, "a member that was not added stays");
            return;
        }
        if let Err(error) = self.unrecord(member).await {
            tracing::warn!(queue = %id, %node, %error, "the record of a member that was not added");
        }
    }

    async fn take_out(&self, id: QueueId, node: NodeId, force: bool) -> Change {
        self.check(id, node, What::Delete { force })?;
        let seen = self.look(id)?;
        let recorded = seen.queue.member(node).copied();
        let is_member = seen.status.members.iter().any(|one| one.node == node);
        if is_member {
            self.check_removal(&seen, node, force)?;
            if seen.status.is_changing {
                return Err(MemberError::ChangeUnderWay);
            }
            if node == self.cluster.me.node && seen.votes(node) {
                self.hand_over(&seen).await?;
                return Err(MemberError::NotLeader);
            }
            self.change(id, change::Change::Remove(node)).await?;
        }
        if let Some(member) = &recorded {
            // The group has agreed: if this cannot be recorded now, it is later.
            self.unrecord(name(id, member)).await.map_err(|_| MemberError::TimedOut)?;
        }
        let changed = is_member || recorded.is_some();
        let queue = self.queue(id)?;
        if changed {
            tracing::info!(
                queue = %queue.name, vhost = %queue.vhost, %node,
                members = queue.members.len(), "a quorum queue has a member less"
            );
        }
        Ok(Changed { changed, size: queue.members.len() })
    }

    /// A change needs a majority that agrees.
    fn check_majority(&self, seen: &Seen) -> Result<(), MemberError> {
        let voters = seen.voters().count();
        let running = seen.voters().filter(|voter| self.is_up(*voter)).count();
        if running * 2 > voters { Ok(()) } else { Err(MemberError::NoQuorum { running, voters }) }
    }

    fn check_removal(&self, seen: &Seen, node: NodeId, force: bool) -> Result<(), MemberError> {
        let rest: Vec<NodeId> = seen.voters().filter(|voter| *voter != node).collect();
        if rest.is_empty() {
            return Err(MemberError::LastMember);
        }
        self.check_majority(seen)?;
        let running = rest.iter().filter(|voter| self.is_up(**voter)).count();
        if seen.votes(node) && !force && running * 2 <= rest.len() {
            return Err(MemberError::WouldLoseQuorum { running, voters: rest.len() });
        }
        Ok(())
    }

    /// The running voter with the newest log leads on, if possible one that is not in maintenance
    /// mode.
    async fn hand_over(&self, seen: &Seen) -> Result<(), MemberError> {
        let state = self.topology.state();
        let (me, members) = (self.cluster.me.node, &seen.status.members);
        let fit = members.iter().filter(|one| one.is_voter && one.node != me);
        let rests = |node: NodeId| state.node(node).is_some_and(|node| node.maintenance);
        let heir = fit
            .filter(|one| self.is_up(one.node))
            .max_by_key(|one| (!rests(one.node), one.matched));
        let heir = heir.ok_or(MemberError::NotStable)?;
        let transfer = self.cluster.host.transfer(GroupId::from(seen.queue.id), heir.node);
        transfer.await.map_err(|error| MemberError::Failed(error.to_string()))
    }

    /// Hands over what this node leads, in chunks; gives the queues that have to stay, and why.
    pub(crate) async fn hand_over_all(self: &Arc<Self>) -> (usize, Vec<(QueueId, MemberError)>) {
        let (mut moved, mut stay) = (0, Vec::new());
        for some in self.cluster.led().chunks(CHUNK) {
            let mut under_way = JoinSet::new();
            for id in some.iter().copied() {
                let Ok(seen) = self.look(id) else { continue };
                let this = Arc::clone(self);
                under_way.spawn(async move { (id, this.hand_over(&seen).await) });
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

    pub(super) async fn change(
        &self,
        id: QueueId,
        change: change::Change,
    ) -> Result<(), MemberError> {
        let changed = self.cluster.host.change(GroupId::from(id), change);
        match tokio::time::timeout(CHANGE_WAIT, changed).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(GroupError::Unknown(_))) => Err(MemberError::NotLeader),
            Ok(Err(GroupError::Refused(_))) if self.status(id).is_err() => {
                Err(MemberError::NotLeader)
            }
            Ok(Err(GroupError::Refused(reason))) => Err(MemberError::Failed(reason)),
            Err(_) => Err(MemberError::TimedOut),
        }
    }

    pub(super) async fn unrecord(&self, member: MemberName) -> Result<(), MemberError> {
        let remove = Command::RemoveMember(member);
        self.topology.submit(remove).await.map(drop).map_err(refused)
    }

    /// A queue that this node leads.
    fn look(&self, id: QueueId) -> Result<Seen, MemberError> {
        Ok(Seen { queue: self.queue(id)?, status: self.status(id)? })
    }

    fn queue(&self, id: QueueId) -> Result<Arc<Queue>, MemberError> {
        self.topology.state().queue_by_id(id).map(Arc::clone).ok_or(MemberError::NotFound)
    }

    /// The group, if this node leads it.
    pub(super) fn status(&self, id: QueueId) -> Result<Status, MemberError> {
        let status = self.cluster.host.status(GroupId::from(id));
        let leads = |status: &Status| matches!(status.role, Role::Leader { .. });
        status.filter(leads).ok_or(MemberError::NotLeader)
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

    pub(super) fn is_up(&self, node: NodeId) -> bool {
        node == self.cluster.me.node || self.cluster.up.lock().contains_key(&node)
    }
}

/// A queue as its leader sees it: the record, and the group.
struct Seen {
    queue: Arc<Queue>,
    status: Status,
}

impl Seen {
    fn voters(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.status.members.iter().filter(|one| one.is_voter).map(|one| one.node)
    }

    fn votes(&self, node: NodeId) -> bool {
        self.voters().any(|voter| voter == node)
    }
}

pub(super) fn name(queue: QueueId, member: &Member) -> MemberName {
    MemberName { queue: SerialQueueId(queue), node: member.node.0, stream: member.stream.0 }
}

fn refused(refusal: Refusal) -> MemberError {
    MemberError::Unavailable(refusal.text)
}
