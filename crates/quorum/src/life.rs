//! Whether a group is awake: how it wakes and how it falls asleep.
//!
//! ```text
//!            a use            openraft made            idle for long          openraft gone, all synced
//!  Asleep ─────────▶ Waking ────────────────▶ Awake ───────────────▶ Falling ──────────────────────────▶ Asleep
//!                                               ▲                       │ something has come meanwhile
//!                                               └───────────────────────┘
//! ```
//!
//! What comes while a group is not awake waits: proposals here, streams of appends in the inbox,
//! everything else in [`Group::wake`]. A leader that slept goes on in its term without an election,
//! if nothing has happened to that meanwhile: it is the process that led, with everything it had on
//! the disk, and its vote is the newest that it gave. It takes proposals once a majority has
//! answered it.

use crate::founding;
use crate::host::{Group, GroupError, NotLeader};
use crate::inbox::Raft;
use crate::session::Sessions;
use crate::status::MemberStatus;
use crate::supervisor::plan::is_majority;
use crate::types::{LogId, StoredMembership, Types};
use bytes::Bytes;
use model::id::NodeId;
use openraft::RaftMetrics;
use openraft::async_runtime::WatchReceiver;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::oneshot;

mod turn;

/// Whether a group is awake. Starts asleep.
pub(crate) struct Life {
    stage: Mutex<Stage>,
}

enum Stage {
    Asleep(Summary),
    Waking(Turn, Summary),
    Awake(Arc<Awake>, Option<Gate>),
    Falling(Turn, Arc<Awake>),
    /// For good, and why; what was known of the members then.
    Stopped(String, Summary),
}

/// What waits for the end of a change.
#[derive(Default)]
struct Turn {
    /// Somebody wants the group awake.
    is_wanted: bool,
    waiting: Vec<oneshot::Sender<()>>,
    proposals: Vec<Bytes>,
    /// The leader that woke it has fallen asleep meanwhile.
    may_rest: bool,
}

/// Proposals of a leader that was woken and has not heard of a majority yet.
struct Gate {
    proposals: Vec<Bytes>,
}

/// What a sleeping group leaves behind.
#[derive(Debug, Clone, Default)]
pub(crate) struct Summary {
    /// The newest membership, committed or not.
    pub(crate) membership: Arc<StoredMembership>,
    /// Whether it is not known to be committed.
    pub(crate) is_changing: bool,
    /// The members as their leader knew them; empty if another one leads.
    pub(crate) matched: Vec<(NodeId, Option<u64>)>,
}

/// What a group has while it is awake.
pub(crate) struct Awake {
    pub(crate) raft: Raft,
    pub(crate) sessions: Arc<Sessions>,
    /// Tells one time of being awake from others.
    pub(crate) number: u64,
    /// When it was used last, in milliseconds of the host.
    used: AtomicU64,
    /// Its state machine is gone when this ends.
    over: Mutex<Option<oneshot::Receiver<Infallible>>>,
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self.stage.lock() {
            Stage::Asleep(_) => "asleep",
            Stage::Waking(..) => "waking",
            Stage::Awake(..) => "awake",
            Stage::Falling(..) => "falling asleep",
            Stage::Stopped(..) => "stopped",
        })
    }
}

impl Life {
    pub(crate) fn new(summary: Summary) -> Self {
        Self { stage: Mutex::new(Stage::Asleep(summary)) }
    }
}

impl Awake {
    fn metrics<T>(&self, look: impl FnOnce(&RaftMetrics<Types>) -> T) -> T {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        look(&metrics)
    }

    fn touch(&self, now: u64) {
        self.used.store(now, Ordering::Relaxed);
    }

    /// When it was used last.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// What it leaves behind if it sleeps now.
    fn summary(&self, group: &Group) -> Summary {
        self.metrics(|metrics| {
            let membership = Arc::clone(&metrics.membership_config);
            let replication = metrics.replication.iter().flatten();
            let matched =
                replication.map(|(node, at)| (NodeId(*node), at.map(|id| id.index))).collect();
            Summary {
                is_changing: metrics.membership_config != metrics.committed_membership_config,
                membership,
                matched: if group.seat.leading().is_some() { matched } else { Vec::new() },
            }
        })
    }
}

/// The sets of voters of a membership: each has to agree.
pub(crate) fn electors(membership: &StoredMembership) -> Vec<BTreeSet<NodeId>> {
    let sets = membership.membership().get_joint_config();
    sets.iter().map(|set| set.iter().copied().map(NodeId).collect()).collect()
}

/// The members of a group.
pub(crate) fn members(
    membership: &StoredMembership,
    matched: impl Fn(NodeId) -> Option<u64>,
) -> Vec<MemberStatus> {
    let membership = membership.membership();
    let has_vote = |node: &u64| membership.get_joint_config().iter().any(|set| set.contains(node));
    let member = |(node, ()): (&u64, &())| MemberStatus {
        node: NodeId(*node),
        is_voter: has_vote(node),
        matched: matched(NodeId(*node)),
    };
    membership.nodes().map(member).collect()
}

/// A group as it is seen from outside, awake or not.
pub(crate) struct View {
    pub(crate) is_asleep: bool,
    pub(crate) members: Vec<MemberStatus>,
    pub(crate) is_changing: bool,
    pub(crate) committed: Option<LogId>,
    pub(crate) applied: Option<LogId>,
}

impl Group {
    /// Up to where its member has its entries.
    pub(crate) fn applied(&self) -> Option<LogId> {
        self.progress.lock().applied
    }

    /// Looks at the group without waking it.
    pub(crate) fn view(&self) -> View {
        let applied = self.progress.lock().applied;
        let stage = self.life.stage.lock();
        let view = |is_asleep, summary: &Summary, committed| {
            let matched = |node| summary.matched.iter().find(|(one, _)| *one == node)?.1;
            let members = members(&summary.membership, matched);
            View { is_asleep, members, is_changing: summary.is_changing, committed, applied }
        };
        match &*stage {
            Stage::Asleep(summary) => view(true, summary, applied),
            Stage::Waking(_, summary) => view(false, summary, applied),
            Stage::Awake(awake, _) | Stage::Falling(_, awake) => {
                let committed = awake.metrics(|metrics| metrics.local_committed);
                view(false, &awake.summary(self), committed)
            }
            Stage::Stopped(_, summary) => view(false, summary, applied),
        }
    }

    /// The newest membership, committed or not.
    pub(crate) fn membership(&self) -> Arc<StoredMembership> {
        match &*self.life.stage.lock() {
            Stage::Asleep(summary) | Stage::Waking(_, summary) | Stage::Stopped(_, summary) => {
                Arc::clone(&summary.membership)
            }
            Stage::Awake(awake, _) | Stage::Falling(_, awake) => {
                awake.metrics(|metrics| Arc::clone(&metrics.membership_config))
            }
        }
    }

    /// What it has while it is awake.
    pub(crate) fn awake(&self) -> Option<Arc<Awake>> {
        match &*self.life.stage.lock() {
            Stage::Awake(awake, _) | Stage::Falling(_, awake) => Some(Arc::clone(awake)),
            Stage::Asleep(_) | Stage::Waking(..) | Stage::Stopped(..) => None,
        }
    }

    /// What it has while it is awake, if it is that time of being awake.
    pub(crate) fn is_awake_as(&self, number: u64) -> Option<Arc<Awake>> {
        match &*self.life.stage.lock() {
            Stage::Awake(awake, _) => (awake.number == number).then(|| Arc::clone(awake)),
            _ => None,
        }
    }

    /// Whether a leader that sleeps, or falls asleep, has something for a member that has applied so
    /// much: entries, or the word that they are committed.
    pub(crate) fn lacks(&self, node: NodeId, applied: Option<LogId>) -> bool {
        let last = self.log.last();
        if founding::is_new(last) {
            // Who knows the group at all knows how it began.
            return false;
        }
        let last = last.map(|id| id.index);
        let is_behind = |summary: &Summary| {
            // One that was taken out and has not heard of it gets nothing, whoever is awake.
            let mut members = summary.membership.membership().nodes();
            let is_matched = |(one, at): &(NodeId, Option<u64>)| *one != node || *at >= last;
            members.any(|(member, ())| *member == node.0)
                && (applied.map(|id| id.index) < last || !summary.matched.iter().all(is_matched))
        };
        match &*self.life.stage.lock() {
            Stage::Asleep(summary) => is_behind(summary),
            // It has told those that were there, and this one may not have been.
            Stage::Falling(_, awake) => is_behind(&awake.summary(self)),
            Stage::Waking(..) | Stage::Awake(..) | Stage::Stopped(..) => false,
        }
    }

    /// Wakes the group, and keeps it awake for as long as the answer is held.
    pub(crate) async fn wake(self: &Arc<Self>) -> Result<Arc<Awake>, GroupError> {
        loop {
            let over = {
                let mut stage = self.life.stage.lock();
                match &mut *stage {
                    Stage::Awake(awake, _) => {
                        awake.touch(self.now());
                        return Ok(Arc::clone(awake));
                    }
                    Stage::Stopped(error, _) => return Err(GroupError::Refused(error.clone())),
                    Stage::Asleep(_) => self.begin_to_wake(&mut stage, Turn::default()),
                    Stage::Waking(..) | Stage::Falling(..) => {}
                }
                let (Stage::Waking(turn, _) | Stage::Falling(turn, _)) = &mut *stage else {
                    continue;
                };
                turn.is_wanted = true;
                let (sender, over) = oneshot::channel();
                turn.waiting.push(sender);
                over
            };
            // It ends either way.
            drop(over.await);
        }
    }

    /// Proposes an entry; a leader that sleeps does so once it is awake.
    pub(crate) fn propose(self: &Arc<Self>, payload: Bytes) -> Result<(), NotLeader> {
        let mut stage = self.life.stage.lock();
        self.seat.leading().ok_or(NotLeader)?;
        match &mut *stage {
            Stage::Awake(awake, None) => {
                awake.touch(self.now());
                turn::write(awake, payload)
            }
            Stage::Awake(_, Some(gate)) => {
                gate.proposals.push(payload);
                Ok(())
            }
            Stage::Asleep(_) => {
                let turn = Turn { proposals: vec![payload], ..Turn::default() };
                self.begin_to_wake(&mut stage, turn);
                Ok(())
            }
            Stage::Waking(turn, _) | Stage::Falling(turn, _) => {
                turn.proposals.push(payload);
                Ok(())
            }
            Stage::Stopped(..) => Err(NotLeader),
        }
    }

    /// A leader's stream of appends goes on, or begins; openraft gets it as soon as it is there.
    pub(crate) fn feed(self: &Arc<Self>, feed: impl FnOnce(Option<&Raft>)) {
        let mut stage = self.life.stage.lock();
        match &mut *stage {
            Stage::Awake(awake, _) => {
                awake.touch(self.now());
                feed(Some(&awake.raft));
            }
            Stage::Asleep(_) => {
                feed(None);
                if self.inbox.is_waiting() {
                    self.begin_to_wake(&mut stage, Turn::default());
                }
            }
            Stage::Waking(turn, _) => {
                turn.may_rest = false;
                feed(None);
            }
            Stage::Falling(..) => feed(None),
            Stage::Stopped(..) => {}
        }
    }

    /// A node is lost. A sleeping leader that has no majority any more leads no longer, and need not
    /// be woken for that. Tells whether it slept.
    pub(crate) fn abdicates_in_sleep(&self, is_up: impl Fn(NodeId) -> bool) -> bool {
        // It does not wake meanwhile.
        let stage = self.life.stage.lock();
        let Stage::Asleep(summary) = &*stage else { return false };
        if self.seat.won().is_some() && !is_majority(&electors(&summary.membership), is_up) {
            self.seat.abdicate();
        }
        true
    }

    /// Its leader sleeps: so may it.
    pub(crate) fn may_rest(&self) {
        match &mut *self.life.stage.lock() {
            Stage::Awake(awake, _) | Stage::Falling(_, awake) => awake.touch(0),
            Stage::Waking(turn, _) => turn.may_rest = true,
            Stage::Asleep(_) | Stage::Stopped(..) => {}
        }
    }
}
