//! Sees to it that every group has a leader: groups send no heartbeats, so a node asks the others.
//!
//! One task per host. It sleeps while all groups here are led. Something wakes it: a node was lost
//! or is back, a group was started, a leader fell silent, an election was lost, somebody asks about
//! a group that nobody leads; and every few seconds it looks by itself, which costs next to nothing.
//! Then it asks the other nodes about all leaderless groups in bulk, the most recently used first,
//! decides for each ([`plan`]), and asks again until there are none.
//!
//! A few elections at a time: each takes several syncs and messages, which those that came first
//! would otherwise share with all the others.
//!
//! A leader that has lost so many nodes that no majority is left gives its leadership up: it can
//! commit nothing, and the others may have another one.

use crate::group::GroupId;
use crate::host::{Care, Group, Shared};
use crate::rpc::{self, Request};
use crate::supervisor::plan::{Asker, Plan, Word};
use crate::types::{LogId, Types};
use futures_util::StreamExt;
use futures_util::stream::{self, FuturesUnordered};
use model::id::NodeId;
use openraft::Instant;
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::InstantOf;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;

pub(crate) mod ballot;
pub(crate) mod plan;

/// The most groups that the first question is about, so that it is answered at once, and the most
/// that others are.
const FIRST: usize = 8;
const BULK: usize = 512;
/// The most elections under way.
const ELECTIONS: usize = 64;
/// How long the others may take to answer, and how long once one of them has.
const ANSWER_WAIT: Duration = Duration::from_secs(3);
const STRAGGLER_WAIT: Duration = Duration::from_millis(300);
/// How long an election holds others up.
const ELECTION_WAIT: Duration = Duration::from_millis(500);
/// How long a member that catches up holds others up.
const CATCH_UP_WAIT: Duration = Duration::from_secs(1);
/// How often it looks at all groups by itself.
const LOOK: Duration = Duration::from_secs(10);
/// Pauses between rounds: short after something happened, longer when rounds come to nothing.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// What comes together is asked about together: for so long, or as long as the last round took, up
/// to this.
const GATHER_MIN: Duration = Duration::from_millis(2);
const GATHER_MAX: Duration = Duration::from_millis(50);

/// Wakes the supervisor.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    rung: Notify,
    suspects: Mutex<Suspects>,
}

/// Groups that may have no leader.
#[derive(Debug, Default)]
struct Suspects {
    all: bool,
    groups: BTreeSet<GroupId>,
}

impl Alarm {
    /// Any group may be leaderless.
    pub(crate) fn ring(&self) {
        self.suspects.lock().all = true;
        self.rung.notify_one();
    }

    /// This one may be.
    pub(crate) fn ring_for(&self, group: GroupId) {
        self.suspects.lock().groups.insert(group);
        self.rung.notify_one();
    }

    /// Takes the suspects: `None` are all.
    fn take(&self) -> Option<BTreeSet<GroupId>> {
        let Suspects { all, groups } = std::mem::take(&mut *self.suspects.lock());
        (!all).then_some(groups)
    }
}

/// What the supervisor remembers of a group.
#[derive(Debug, Default)]
pub(crate) struct Vigil {
    /// Since when others are let go first.
    deferred: Option<InstantOf<Types>>,
    /// What the last decision was made from.
    decided: Option<Basis>,
    /// The term in which this node leads without a majority, or did.
    pub(crate) alone: Option<u64>,
}

/// What a decision about a group is made from. The same would be decided again.
#[derive(Debug, PartialEq, Eq)]
struct Basis {
    /// This node's own.
    term: u64,
    last: Option<LogId>,
    /// Those who have lost the leader too.
    lost: BTreeSet<NodeId>,
}

/// Runs until the host is gone.
pub(crate) async fn run(shared: Weak<Shared>, alarm: Arc<Alarm>) {
    let mut pause = PAUSE_MIN;
    // Those that were asked about in vain, and those that come next.
    let (mut leaderless, mut next) = (BTreeSet::new(), BTreeSet::new());
    loop {
        if Types::timeout(LOOK, alarm.rung.notified()).await.is_err() {
            alarm.suspects.lock().all = true;
        }
        loop {
            let begin = Types::now();
            let Round { mut asked, later } = {
                let Some(shared) = shared.upgrade() else { return };
                if shared.is_closed() {
                    return;
                }
                let suspects = alarm.take();
                if suspects.is_none() {
                    leaderless.clear();
                    next.clear();
                }
                let suspects = suspects.map(|mut suspects| {
                    let others = if next.is_empty() { &mut leaderless } else { &mut next };
                    suspects.append(others);
                    suspects
                });
                round(&shared, suspects).await
            };
            let took = begin.elapsed();
            leaderless.append(&mut asked);
            next = later;
            if !next.is_empty() {
                // Meanwhile others may be wanted more.
                continue;
            }
            if leaderless.is_empty() {
                pause = PAUSE_MIN;
                break;
            }
            let woken = Types::timeout(pause, alarm.rung.notified()).await.is_ok();
            pause = if woken { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
            if woken {
                Types::sleep(took.clamp(GATHER_MIN, GATHER_MAX)).await;
            }
        }
    }
}

/// What came of a round.
struct Round {
    /// The groups that were asked about, or have an election under way.
    asked: BTreeSet<GroupId>,
    /// Those that have to be asked about next.
    later: BTreeSet<GroupId>,
}

/// Asks about leaderless groups among these, or of all, those first that were used last.
async fn round(shared: &Arc<Shared>, suspects: Option<BTreeSet<GroupId>>) -> Round {
    let mut leaderless: Vec<Arc<Group>> = match suspects {
        Some(suspects) => suspects.into_iter().filter_map(|id| shared.group(id)).collect(),
        None => shared.all(),
    };
    let alone: Vec<Arc<Group>> =
        leaderless.iter().filter(|group| shared.is_alone(group)).cloned().collect();
    stream::iter(alone).map(resign).buffer_unordered(ELECTIONS).collect::<()>().await;
    leaderless.retain(|group| {
        let is_leaderless = shared.is_leaderless(group);
        if !is_leaderless {
            let mut vigil = group.vigil.lock();
            (vigil.deferred, vigil.decided) = (None, None);
        }
        is_leaderless
    });
    let mut asked: BTreeSet<GroupId> = leaderless.iter().map(|group| group.id).collect();
    // An election under way is waited for.
    leaderless.retain(|group| !group.seat.ballot.is_busy(|node| shared.is_up(node)));
    leaderless.sort_by_key(|group| std::cmp::Reverse(group.seat.used()));
    let (first, others) = leaderless.split_at(FIRST.min(leaderless.len()));
    let (others, rest) = others.split_at(BULK.min(others.len()));
    for bulk in [first, others] {
        if !bulk.is_empty() {
            see_to(shared, bulk).await;
        }
    }
    let later: BTreeSet<GroupId> = rest.iter().map(|group| group.id).collect();
    asked.retain(|id| !later.contains(id));
    Round { asked, later }
}

/// Gives up the leadership of a group whose majority is lost.
async fn resign(group: Arc<Group>) {
    let Some(term) = group.seat.won() else { return };
    tracing::info!(group = %group.id, term, "leads no longer: too few members are connected");
    group.seat.leave();
    // An error says that it has stopped, which its member hears.
    drop(group.raise(term + 1).await);
    if group.seat.won() != Some(term) {
        group.vigil.lock().alone = None;
    }
}

async fn see_to(shared: &Arc<Shared>, groups: &[Arc<Group>]) {
    let links = shared.links.changes();
    let voters: Vec<Vec<NodeId>> = groups.iter().map(|group| group.voters()).collect();
    let heard = ask(shared, groups, &voters).await;
    let mut elections = Vec::new();
    for ((group, voters), words) in groups.iter().zip(&voters).zip(heard) {
        if let Some(above) = act(shared, group, voters, &words) {
            elections.push((Arc::clone(group), above));
        }
    }
    // Once other nodes are connected, others may be the best ones.
    let elections = stream::iter(elections)
        .take_while(|_| std::future::ready(shared.links.changes() == links))
        .map(|(group, above)| elect(shared, group, above));
    elections.buffer_unordered(ELECTIONS).collect::<()>().await;
}

/// Asks the other voters, and gives for each group what they said.
async fn ask(
    shared: &Arc<Shared>,
    groups: &[Arc<Group>],
    voters: &[Vec<NodeId>],
) -> Vec<Vec<(NodeId, Word)>> {
    let mut questions: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
    for (at, voters) in voters.iter().enumerate() {
        let others = voters.iter().filter(|voter| **voter != shared.options.me);
        for voter in others.filter(|voter| shared.is_up(**voter)) {
            questions.entry(*voter).or_default().push(at);
        }
    }
    let ask = |(node, asked): (NodeId, Vec<usize>)| {
        let asked_about = asked.iter().map(|at| &groups[*at]);
        let groups = asked_about.map(|group| (group.address.get(), group.applied())).collect();
        let request = Request::Ask { groups }.encode();
        let answer = shared.transport.request(node, request, ANSWER_WAIT);
        async move {
            let words = rpc::decode_words(answer.await.ok()?).ok()?;
            (words.len() == asked.len()).then_some((node, asked, words))
        }
    };
    let mut answers: FuturesUnordered<_> = questions.into_iter().map(ask).collect();
    let mut heard: Vec<Vec<(NodeId, Word)>> = vec![Vec::new(); groups.len()];
    let mut wait = ANSWER_WAIT;
    while let Ok(Some(answer)) = Types::timeout(wait, answers.next()).await {
        let Some((node, asked, words)) = answer else { continue };
        for (at, word) in asked.into_iter().zip(words) {
            heard[at].push((node, word));
        }
        wait = STRAGGLER_WAIT;
    }
    heard
}

/// Acts on what was heard about a group. If this node should stand, gives the term above which.
fn act(shared: &Shared, group: &Group, voters: &[NodeId], words: &[(NodeId, Word)]) -> Option<u64> {
    let term = group.log.vote().map_or(0, |vote| vote.leader_id.term);
    let deferred = group.vigil.lock().deferred;
    let waited = deferred.map_or(Duration::ZERO, |since| since.elapsed());
    let (id, me, last) = (group.id, shared.options.me, group.log.last());
    let asker = Asker { group: id, me, term, last, voters, waited };
    let plan = asker.decide(words);
    if let Plan::Follow { leader, term } = plan {
        shared.on_heard(group, leader, term, 0);
        group.seat.on_leader(term, leader);
    }
    let is_lost = |word: &&(NodeId, Word)| matches!(word.1, Word::Lost { .. });
    let lost = words.iter().filter(is_lost).map(|(node, _)| *node).collect();
    let mut vigil = group.vigil.lock();
    vigil.decided = Some(Basis { term, last, lost });
    match plan {
        Plan::Defer => _ = vigil.deferred.get_or_insert_with(Types::now),
        Plan::Elect { .. } => {}
        Plan::Follow { .. } | Plan::Wait => vigil.deferred = None,
    }
    match plan {
        Plan::Elect { above } => Some(above),
        Plan::Defer | Plan::Follow { .. } | Plan::Wait => None,
    }
}

/// Stands for election and waits for the outcome, though not for long.
async fn elect(shared: &Shared, group: Arc<Group>, above: u64) {
    // Somebody else may have appeared meanwhile.
    let is_busy = group.seat.ballot.is_busy(|node| shared.is_up(node));
    if is_busy || !shared.is_leaderless(&group) {
        return;
    }
    tracing::debug!(group = %group.id, above, "stands for election");
    if group.elect(above).await.is_err() {
        // It has stopped, which its member hears.
        return;
    }
    let settled = async {
        let is_open = || group.seat.ballot.stands() || group.seat.won() != group.seat.leading();
        while is_open() && !shared.is_closed() {
            group.seat.ballot.changed.notified().await;
        }
    };
    drop(Types::timeout(ELECTION_WAIT, settled).await);
}

/// A member asks who leads groups of this node that sleep, and lacks entries: they wake until it has
/// them, a few at a time.
async fn catch_up(groups: Vec<Arc<Group>>, member: NodeId) {
    let one = |group: Arc<Group>| async move {
        let Ok(awake) = group.wake().await else { return };
        let has_it = |metrics: &openraft::RaftMetrics<Types>| {
            let matched =
                metrics.replication.as_ref().and_then(|all| all.get(&member.0).copied()?);
            matched.is_some_and(|at| Some(at.index) >= metrics.last_log_index)
                || metrics.running_state.is_err()
        };
        // It stays awake as long as that takes, and what takes long does not hold up the others.
        let wait = awake.raft.wait(Some(CATCH_UP_WAIT));
        drop(wait.metrics(has_it, "a member has caught up").await);
    };
    stream::iter(groups).map(one).buffer_unordered(ELECTIONS).collect::<()>().await;
}

impl Shared {
    /// Whether a node is connected, or this one.
    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        node == self.options.me || self.links.number(node).is_some()
    }

    /// Whether a majority of a group's voters is connected.
    pub(crate) fn has_majority(&self, group: &Group) -> bool {
        let membership = group.membership();
        let sets = membership.membership().get_joint_config();
        sets.iter()
            .all(|set| set.iter().filter(|node| self.is_up(NodeId(**node))).count() > set.len() / 2)
    }

    /// Whether this node leads a group without a majority, or did and has not given it up yet.
    fn is_alone(&self, group: &Group) -> bool {
        if group.care != Care::Supervised {
            return false;
        }
        let won = group.seat.won();
        won.is_some() && (group.vigil.lock().alone == won || !self.has_majority(group))
    }

    /// Whether this node leads a group, as far as it can know: it has won the newest election, and a
    /// majority can hear it.
    pub(crate) fn leads(&self, group: &Group) -> bool {
        group.seat.won().is_some() && !self.is_alone(group)
    }

    /// Whether this node should see to it that somebody leads the group.
    fn is_leaderless(&self, group: &Group) -> bool {
        group.care == Care::Supervised
            && !group.seat.has_failed()
            && !self.leads(group)
            && self.heard_leader(group).is_none()
            && group.is_voter(self.options.me)
    }

    fn heard_leader(&self, group: &Group) -> Option<NodeId> {
        self.electorate(group, &[]).heard_leader(|node| self.links.number(node))
    }

    /// What this node knows of a group's leader.
    pub(crate) fn word(&self, group: &Group) -> Word {
        if group.seat.has_failed() {
            // It cannot take part until the next start.
            return Word::Unknown;
        }
        let term = group.log.vote().map_or(0, |vote| vote.leader_id.term);
        if self.leads(group) {
            return Word::Leads { term };
        }
        if let Some(leader) = self.heard_leader(group) {
            return Word::Hears { leader, term };
        }
        Word::Lost { term, last: group.log.last(), stands: group.seat.ballot.stands() }
    }

    /// Answers questions of another node. If nobody leads a group here either, this node sees to
    /// it too, unless it knew as much when it decided about it last.
    pub(crate) fn words(&self, from: NodeId, groups: &[(GroupId, Option<LogId>)]) -> Vec<Word> {
        let mut behind = Vec::new();
        let mut word = |(id, applied): &(GroupId, Option<LogId>)| {
            let Some(group) = self.at(*id) else { return Word::Unknown };
            if self.heard_leader(&group) == Some(from) {
                // A leader does not ask who leads.
                *group.heard.lock() = None;
            }
            let word = self.word(&group);
            if matches!(word, Word::Leads { .. }) && group.lacks(from, *applied) {
                behind.push(Arc::clone(&group));
            }
            if let Word::Lost { term, last, .. } = word {
                let vigil = group.vigil.lock();
                let is_known = |basis: &Basis| {
                    basis.term == term && basis.last == last && basis.lost.contains(&from)
                };
                if !vigil.decided.as_ref().is_some_and(is_known) {
                    self.alarm.ring_for(group.id);
                }
            }
            word
        };
        let words = groups.iter().map(&mut word).collect();
        if !behind.is_empty() {
            drop(Types::spawn(catch_up(behind, from)));
        }
        words
    }
}
