//! Changing the members of quorum queues, on the node that leads them.
//!
//! ```text
//!  add      record it (unstarted) ─► learner ─► has the log ─► recorded as started ─► vote
//!  replace  the node was wiped:  record the new one ─► the old one out of the group, its record goes
//!             ─► learner ─► …
//!           the same node lost its part:  recorded as lost ─► out of the group
//!             ─► recorded anew (unstarted, another stream) ─► learner ─► …
//!  delete   out of the group ─► its record goes
//! ```
//!
//! Cut off anywhere, the record or the group says what is left to do, and the [`keeper`] of whoever
//! leads next does it: a lost member is never taken out before it is recorded that another one is
//! wanted in its place. A member does not start while the group counts a former one of its node.
//!
//! [`keeper`]: crate::cluster::keeper

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use management::inquiry::Change;
use management::members::{Changed, MemberError};
use metadata::command::{Command, MemberName, SerialQueueId};
use metadata::objects::member::{Member, Stage};
use metadata::objects::node::NodeRole;
use metadata::objects::queue::{Queue, QueueKind};
use metadata::refusal::Refusal;
use model::id::{NodeId, QueueId};
use parking_lot::Mutex;
use quorum::change;
use quorum::host::GroupError;
use quorum::member::Role;
use quorum::status::Status;
use tokio::time::Instant;

use crate::cluster::site::Site;

/// How long a change of a group's members may take.
const CHANGE_WAIT: Duration = Duration::from_secs(20);
/// How long a new member may take to get the whole log, and how often the leader looks.
const CATCH_UP: Duration = Duration::from_mins(10);
const LOOK: Duration = Duration::from_millis(20);
/// How long a node may take to say that it has lost its part. One that has lost it and runs is quick;
/// who is silent may have it.
const CONFESS: Duration = Duration::from_millis(500);

/// See the module head.
#[derive(Debug)]
pub(crate) struct Changer<S> {
    pub(crate) site: S,
    /// Queues that have a change under way here.
    busy: Mutex<BTreeSet<QueueId>>,
}

/// A change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Add,
    Delete { force: bool },
}

/// The right to change a queue's members, until it is dropped.
pub(crate) struct Turn<'a>(&'a Mutex<BTreeSet<QueueId>>, QueueId);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().remove(&self.1);
    }
}

impl<S: Site> Changer<S> {
    pub(crate) fn new(site: S) -> Self {
        Self { site, busy: Mutex::default() }
    }

    /// What can be told without asking anybody.
    pub(crate) fn check(&self, id: QueueId, node: NodeId, what: What) -> Result<(), MemberError> {
        let state = self.site.state();
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

    /// Makes a change of a queue that this node leads.
    ///
    /// # Errors
    /// See [`MemberError`].
    pub(crate) async fn here(&self, queue: QueueId, node: NodeId, what: What) -> Change {
        let _turn = self.turn(queue).ok_or(MemberError::ChangeUnderWay)?;
        let record = self.queue(queue)?;
        if record.members.iter().any(|member| member.stage == Stage::Sole) {
            return Err(MemberError::ChangeUnderWay);
        }
        match what {
            What::Add => self.bring_in(queue, node).await,
            What::Delete { force } => self.take_out(queue, node, force).await,
        }
    }

    pub(crate) fn turn(&self, queue: QueueId) -> Option<Turn<'_>> {
        let is_free = self.busy.lock().insert(queue);
        // Made only if it is free: a turn that is dropped gives the queue free.
        is_free.then(|| Turn(&self.busy, queue))
    }

    /// Whether a change is under way here.
    pub(crate) fn is_busy(&self, queue: QueueId) -> bool {
        self.busy.lock().contains(&queue)
    }

    /// Lets a queue whose majority is gone for good go on with this node's member alone. The record
    /// says so first, with a number for the group that nobody has heard of: what the other members
    /// were is no member any more, whenever they come back.
    ///
    /// # Errors
    /// See [`MemberError`].
    pub(crate) async fn force_shrink(&self, id: QueueId) -> Change {
        let me = self.site.me();
        self.check(id, me, What::Delete { force: true })?;
        let _turn = self.turn(id).ok_or(MemberError::ChangeUnderWay)?;
        let queue = self.queue(id)?;
        // Of a queue that nobody has used there is the beginning, which all its members have.
        let may =
            |one: &&Member| matches!(one.stage, Stage::Founding | Stage::Started | Stage::Sole);
        let member = queue.member(me).filter(may).copied();
        let status = self.site.status(id);
        let (Some(member), Some(status)) = (member, status) else {
            return Err(MemberError::NoLocalMember);
        };
        let seen = Seen { queue, status };
        let voters: BTreeSet<NodeId> = seen.voters().collect();
        if !voters.contains(&me) {
            return Err(MemberError::NoLocalMember);
        }
        if voters.len() == 1 && seen.queue.members.len() == 1 {
            return Ok(Changed { changed: false, size: 1 });
        }
        let running = self.with_data(&seen, &voters).await;
        if running * 2 > voters.len() {
            return Err(MemberError::HasQuorum { running, voters: voters.len() });
        }
        let Seen { queue, status } = &seen;
        tracing::warn!(
            queue = %queue.name, vhost = %queue.vhost, last = status.last, committed = status.committed,
            voters = voters.len(), running,
            "a quorum queue is forced to go on with the member of this node alone"
        );
        self.site.submit(Command::Reform(name(id, &member))).await.map_err(refused)?;
        let deadline = Instant::now() + CHANGE_WAIT;
        loop {
            let is_done = self.status(id).is_ok_and(|status| status.members.len() == 1);
            if is_done {
                return Ok(Changed { changed: true, size: 1 });
            }
            if Instant::now() > deadline {
                return Err(MemberError::TimedOut);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn bring_in(&self, id: QueueId, node: NodeId) -> Change {
        self.check(id, node, What::Add)?;
        let seen = self.look(id)?;
        let lost = self.lost(&seen, node).await;
        let is_recorded = seen.queue.member(node).is_some();
        if seen.votes(node) && is_recorded && lost.is_none() {
            return Ok(Changed { changed: false, size: seen.queue.members.len() });
        }
        if !self.site.is_up(node) {
            return Err(MemberError::NodeNotRunning);
        }
        self.check_majority(&seen)?;
        if seen.status.is_changing {
            return Err(MemberError::ChangeUnderWay);
        }
        let former = self.former(&seen, node);
        for gone in former.iter().copied().chain(lost.map(|_| node)) {
            self.check_removal(&seen, gone, false).await?;
        }
        let replaces = !former.is_empty() || lost.is_some();
        if let Some(lost) = lost {
            // Whoever leads next finds in the record that somebody is wanted there.
            let lost = Command::MemberLost(name(id, &lost));
            self.site.submit(lost).await.map_err(refused)?;
        }
        let (member, is_new) = self.record(&seen, node).await?;
        let ended = match self.clear(id, &former).await {
            Ok(()) => self.promote(id, &member).await,
            Err(error) => Err(error),
        };
        match ended {
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
                // Who comes in the place of a lost member is wanted, whatever happened.
                if is_new && !replaces {
                    self.undo(id, &member).await;
                }
                Err(error)
            }
        }
    }

    /// The member on a node, if it has started and has lost its data.
    async fn lost(&self, seen: &Seen, node: NodeId) -> Option<Member> {
        let member = seen.queue.member(node).copied()?;
        match member.stage {
            Stage::Lost => Some(member),
            Stage::Started if seen.has(node) => {
                self.site.says_lost(seen.queue.id, node).await.then_some(member)
            }
            Stage::Started | Stage::Founding | Stage::Unstarted | Stage::Sole => None,
        }
    }

    /// Members that a node was before it lost its data and came back under its name.
    fn former(&self, seen: &Seen, node: NodeId) -> Vec<NodeId> {
        let state = self.site.state();
        let name = state.node(node).map(|node| &node.name);
        let is_former = |member: &NodeId| {
            state.node(*member).is_some_and(|it| it.lost && Some(&it.name) == name)
        };
        seen.queue.nodes().filter(is_former).collect()
    }

    async fn clear(&self, id: QueueId, former: &[NodeId]) -> Result<(), MemberError> {
        for member in former {
            self.take_out(id, *member, false).await?;
        }
        Ok(())
    }

    /// Records a member that starts without data, unless it is recorded so.
    async fn record(&self, seen: &Seen, node: NodeId) -> Result<(Member, bool), MemberError> {
        let id = seen.queue.id;
        // It may have been recorded as lost a moment ago.
        let queue = self.queue(id)?;
        match queue.member(node) {
            // A new one must not start while the group counts the former one of this node.
            Some(member) if member.stage == Stage::Lost && seen.has(node) => {
                self.remove(id, node, false).await?;
            }
            Some(member) if member.stage == Stage::Lost => {}
            Some(member) if member.stage != Stage::Started || seen.has(node) => {
                return Ok((*member, false));
            }
            // The group has taken it out, and the record has not heard.
            Some(member) => self.unrecord(id, member).await?,
            // The record has let it go, and the group has not heard.
            None if seen.has(node) => self.remove(id, node, false).await?,
            None => {}
        }
        let add = Command::AddMember { queue: SerialQueueId(id), node: node.0 };
        let outcome = self.site.submit(add).await.map_err(refused)?;
        let member = outcome.queue.as_ref().and_then(|queue| queue.member(node)).copied();
        member.map(|member| (member, true)).ok_or(MemberError::NotFound)
    }

    /// Tells a recorded member the log, records that, and gives it its vote.
    async fn promote(&self, id: QueueId, member: &Member) -> Result<(), MemberError> {
        let node = member.node;
        let goal = self.status(id)?.last;
        if self.status(id)?.members.iter().all(|one| one.node != node) {
            self.change(id, change::Change::AddLearner(node)).await?;
        }
        self.catch_up(id, node, goal).await?;
        // From now on it must not start without its data, since it may vote.
        let started = Command::MembersStarted(vec![name(id, member)]);
        self.site.submit(started).await.map_err(refused)?;
        let is_it = |one: &Member| one.stream == member.stream && one.stage == Stage::Started;
        if !self.queue(id)?.member(node).is_some_and(is_it) {
            // Somebody has taken it out meanwhile: its node deletes what it was told.
            return Err(MemberError::ChangeUnderWay);
        }
        // That took its time, and a vote that nobody can give makes the majority larger.
        if !self.site.is_up(node) {
            return Err(MemberError::NodeNotRunning);
        }
        let seen = self.look(id)?;
        let voters: BTreeSet<NodeId> = seen.voters().chain([node]).collect();
        let running = self.with_data(&seen, &voters).await;
        if running * 2 <= voters.len() {
            return Err(MemberError::NoQuorum { running, voters: voters.len() });
        }
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
            if !self.site.is_up(node) {
                return Err(MemberError::NodeNotRunning);
            }
            if Instant::now() > deadline {
                return Err(MemberError::TimedOut);
            }
            if status.is_asleep {
                // Who follows without a vote does not ask who leads, and a leader that sleeps tells
                // nobody anything.
                self.site.rouse(id).await;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A member that cannot be brought in goes again, unless another leader may be at it by now: that
    /// one's keeper finds a member that is recorded and not started, and goes on from there.
    async fn undo(&self, id: QueueId, member: &Member) {
        let node = member.node;
        let Ok(status) = self.status(id) else { return };
        let is_member = status.members.iter().any(|one| one.node == node);
        if is_member && let Err(error) = self.remove(id, node, false).await {
            tracing::warn!(queue = %id, %node, %error, "a member that was not added stays");
            return;
        }
        if let Err(error) = self.unrecord(id, member).await {
            tracing::warn!(queue = %id, %node, %error, "the record of a member that was not added");
        }
    }

    async fn take_out(&self, id: QueueId, node: NodeId, force: bool) -> Change {
        self.check(id, node, What::Delete { force })?;
        let seen = self.look(id)?;
        let recorded = seen.queue.member(node).copied();
        let is_member = seen.has(node);
        if is_member {
            self.check_removal(&seen, node, force).await?;
            if seen.status.is_changing {
                return Err(MemberError::ChangeUnderWay);
            }
            if node == self.site.me() && seen.votes(node) {
                self.hand_over(&seen).await?;
                return Err(MemberError::NotLeader);
            }
            self.change(id, change::Change::Remove(node)).await?;
        }
        if let Some(member) = &recorded {
            // The group has agreed: if this cannot be recorded now, it is later.
            self.unrecord(id, member).await.map_err(|_| MemberError::TimedOut)?;
        }
        let changed = is_member || recorded.is_some();
        let queue = self.queue(id)?;
        let is_it = |now: &Member| recorded.is_some_and(|member| member.stream == now.stream);
        if queue.member(node).is_some_and(is_it) {
            return Err(MemberError::TimedOut);
        }
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
        let running = seen.voters().filter(|voter| self.site.is_up(*voter)).count();
        if running * 2 > voters { Ok(()) } else { Err(MemberError::NoQuorum { running, voters }) }
    }

    /// Whether the others can go on without the member on a node.
    async fn check_removal(
        &self,
        seen: &Seen,
        node: NodeId,
        force: bool,
    ) -> Result<(), MemberError> {
        let rest: BTreeSet<NodeId> = seen.voters().filter(|voter| *voter != node).collect();
        if rest.is_empty() {
            return Err(MemberError::LastMember);
        }
        self.check_majority(seen)?;
        if !seen.votes(node) || force {
            return Ok(());
        }
        let running = self.with_data(seen, &rest).await;
        if running * 2 <= rest.len() {
            return Err(MemberError::WouldLoseQuorum { running, voters: rest.len() });
        }
        Ok(())
    }

    /// How many of these run and have their part of the queue: a node that runs and has lost it has
    /// no vote to give.
    async fn with_data(&self, seen: &Seen, voters: &BTreeSet<NodeId>) -> usize {
        let id = seen.queue.id;
        let is_recorded = |node: NodeId| {
            let member = seen.queue.member(node);
            member.is_some_and(|member| member.stage == Stage::Lost)
        };
        let up = voters.iter().copied().filter(|node| self.site.is_up(*node));
        let asked = up
            .filter(|node| !is_recorded(*node))
            .map(|node| tokio::time::timeout(CONFESS, self.site.says_unable(id, node)));
        let lost = futures_util::future::join_all(asked).await;
        lost.into_iter().filter(|lost| !matches!(lost, Ok(true))).count()
    }

    /// Takes a member out of the group, if the others can go on without it.
    pub(crate) async fn remove(
        &self,
        id: QueueId,
        node: NodeId,
        force: bool,
    ) -> Result<(), MemberError> {
        let seen = self.look(id)?;
        self.check_removal(&seen, node, force).await?;
        self.change(id, change::Change::Remove(node)).await
    }

    /// The running voter with the newest log leads on, if possible one that is not in maintenance
    /// mode.
    pub(crate) async fn hand_over(&self, seen: &Seen) -> Result<(), MemberError> {
        let state = self.site.state();
        let (me, members) = (self.site.me(), &seen.status.members);
        let fit = members.iter().filter(|one| one.is_voter && one.node != me);
        let rests = |node: NodeId| state.node(node).is_some_and(|node| node.maintenance);
        let heir = fit
            .filter(|one| self.site.is_up(one.node))
            .max_by_key(|one| (!rests(one.node), one.matched));
        let heir = heir.ok_or(MemberError::NotStable)?;
        let transfer = self.site.transfer(seen.queue.id, heir.node);
        transfer.await.map_err(|error| MemberError::Failed(error.to_string()))
    }

    pub(crate) async fn change(
        &self,
        id: QueueId,
        change: change::Change,
    ) -> Result<(), MemberError> {
        let changed = self.site.change(id, change);
        match tokio::time::timeout(CHANGE_WAIT, changed).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(GroupError::Unknown(_))) => Err(MemberError::NotLeader),
            Ok(Err(GroupError::Interrupted)) => Err(MemberError::TimedOut),
            Ok(Err(GroupError::Refused(_))) if self.status(id).is_err() => {
                Err(MemberError::NotLeader)
            }
            Ok(Err(GroupError::Refused(reason))) => Err(MemberError::Failed(reason)),
            Err(_) => Err(MemberError::TimedOut),
        }
    }

    /// The record goes of a member that the group does not have, and with it what its node has.
    ///
    /// This node may have been overtaken without knowing it. Who was recorded as not started may have
    /// been given its vote by another leader since: the record goes only while it has not started. Who
    /// was recorded as started may be in the group as another leader has it: so this node makes sure
    /// that there is no other.
    pub(crate) async fn unrecord(&self, id: QueueId, member: &Member) -> Result<(), MemberError> {
        let member_name = name(id, member);
        let remove = match member.stage {
            Stage::Founding | Stage::Unstarted => Command::WithdrawMember(member_name),
            Stage::Lost | Stage::Sole => Command::RemoveMember(member_name),
            Stage::Started => {
                if !self.site.leads(id).await {
                    return Err(MemberError::NotLeader);
                }
                if self.status(id)?.members.iter().any(|one| one.node == member.node) {
                    return Err(MemberError::ChangeUnderWay);
                }
                Command::RemoveMember(member_name)
            }
        };
        self.site.submit(remove).await.map(drop).map_err(refused)
    }

    /// A queue that this node leads.
    pub(crate) fn look(&self, id: QueueId) -> Result<Seen, MemberError> {
        Ok(Seen { queue: self.queue(id)?, status: self.status(id)? })
    }

    fn queue(&self, id: QueueId) -> Result<Arc<Queue>, MemberError> {
        self.site.state().queue_by_id(id).map(Arc::clone).ok_or(MemberError::NotFound)
    }

    /// The group, if this node leads it.
    pub(crate) fn status(&self, id: QueueId) -> Result<Status, MemberError> {
        let status = self.site.status(id);
        let leads = |status: &Status| matches!(status.role, Role::Leader { .. });
        status.filter(leads).ok_or(MemberError::NotLeader)
    }
}

/// A queue as its leader sees it: the record, and the group.
pub(crate) struct Seen {
    queue: Arc<Queue>,
    status: Status,
}

impl Seen {
    fn voters(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.status.members.iter().filter(|one| one.is_voter).map(|one| one.node)
    }

    /// Whether a node has a member, with a vote or without.
    fn has(&self, node: NodeId) -> bool {
        self.status.members.iter().any(|one| one.node == node)
    }

    fn votes(&self, node: NodeId) -> bool {
        self.voters().any(|voter| voter == node)
    }
}

pub(crate) fn name(queue: QueueId, member: &Member) -> MemberName {
    MemberName { queue: SerialQueueId(queue), node: member.node.0, stream: member.stream.0 }
}

fn refused(refusal: Refusal) -> MemberError {
    MemberError::Unavailable(refusal.text)
}

#[cfg(test)]
mod raft;
#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "a simulation of small numbers, and what it prints is for who watches it"
)]
mod sim;
#[cfg(test)]
mod tests;
