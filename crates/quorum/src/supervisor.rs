//! Sees to it that every group has a leader: groups send no heartbeats, so a node asks the others.
//!
//! One task per host. It sleeps while all groups here are led. Something wakes it: a node was lost
//! or is back, a group was started, a leader fell silent, somebody asks about a group that nobody
//! leads; and every few seconds it looks by itself, which costs next to nothing. Then it asks
//! the other nodes about all leaderless groups in bulk, the most recently used first, decides for
//! each ([`plan`]), and asks again until there are none.

use crate::group::GroupId;
use crate::host::{Care, Group, Shared};
use crate::member::Role;
use crate::rpc::{self, Request};
use crate::supervisor::plan::{Asker, Plan, Word};
use crate::types::Types;
use futures_util::future::join_all;
use model::id::NodeId;
use openraft::Instant;
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::InstantOf;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;

pub(crate) mod plan;

/// The most groups that one question is about.
const BULK: usize = 4096;
/// How long the others may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(3);
/// How long an election may take before the group counts as leaderless again.
const ELECTION_WAIT: Duration = Duration::from_millis(1500);
/// How often it looks by itself.
const LOOK: Duration = Duration::from_secs(5);
/// Pauses between rounds: short after something happened, longer when rounds come to nothing.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Wakes the supervisor.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    rung: Notify,
}

impl Alarm {
    /// There may be leaderless groups.
    pub(crate) fn ring(&self) {
        self.rung.notify_one();
    }
}

/// What the supervisor remembers of a group.
#[derive(Debug, Default)]
pub(crate) struct Vigil {
    /// Rounds that came to nothing.
    pub(crate) rounds: u32,
    /// When this node stood for election last.
    pub(crate) stood: Option<InstantOf<Types>>,
}

/// Runs until the host is gone.
pub(crate) async fn run(shared: Weak<Shared>, alarm: Arc<Alarm>) {
    let mut pause = PAUSE_MIN;
    loop {
        drop(Types::timeout(LOOK, alarm.rung.notified()).await);
        loop {
            let Some(shared) = shared.upgrade() else { return };
            let left = round(&shared).await;
            drop(shared);
            if left == 0 {
                pause = PAUSE_MIN;
                break;
            }
            let woken = Types::timeout(pause, alarm.rung.notified()).await.is_ok();
            pause = if woken { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
            if woken {
                // What comes together is asked about together.
                Types::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

/// Asks once about every leaderless group. Returns how many there still are.
async fn round(shared: &Arc<Shared>) -> usize {
    let mut leaderless: Vec<Arc<Group>> = shared.all();
    leaderless.retain(|group| {
        let is_leaderless = shared.is_leaderless(group);
        if !is_leaderless {
            group.vigil.lock().rounds = 0;
        }
        is_leaderless
    });
    let count = leaderless.len();
    // An election under way is waited for.
    leaderless.retain(|group| !group.is_standing(shared.options.me));
    leaderless.sort_by_key(|group| std::cmp::Reverse(group.seat.used()));
    for bulk in leaderless.chunks(BULK) {
        ask_about(shared, bulk).await;
    }
    count
}

async fn ask_about(shared: &Arc<Shared>, groups: &[Arc<Group>]) {
    let me = shared.options.me;
    let mut questions: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
    let voters: Vec<Vec<NodeId>> = groups.iter().map(|group| group.voters()).collect();
    for (at, voters) in voters.iter().enumerate() {
        let others = voters.iter().filter(|voter| **voter != me);
        for voter in others.filter(|voter| shared.links.number(**voter).is_some()) {
            questions.entry(*voter).or_default().push(at);
        }
    }
    let ask = |(node, asked): (NodeId, Vec<usize>)| {
        let ids: Vec<GroupId> = asked.iter().map(|at| groups[*at].id).collect();
        let request = Request::Ask { groups: ids }.encode();
        let answer = shared.transport.request(node, request, ANSWER_WAIT);
        async move {
            let words = rpc::decode_words(answer.await.ok()?).ok()?;
            (words.len() == asked.len()).then_some((node, asked, words))
        }
    };
    let mut heard: Vec<Vec<(NodeId, Word)>> = vec![Vec::new(); groups.len()];
    for (node, asked, words) in join_all(questions.into_iter().map(ask)).await.into_iter().flatten()
    {
        for (at, word) in asked.into_iter().zip(words) {
            heard[at].push((node, word));
        }
    }
    for ((group, voters), words) in groups.iter().zip(&voters).zip(heard) {
        act(shared, group, voters, &words).await;
    }
}

async fn act(shared: &Shared, group: &Group, voters: &[NodeId], words: &[(NodeId, Word)]) {
    let term = group.log.vote().map_or(0, |vote| vote.leader_id.term);
    let rounds = group.vigil.lock().rounds;
    let (id, me, last) = (group.id, shared.options.me, group.log.last());
    let asker = Asker { group: id, me, term, last, voters, rounds };
    match asker.decide(words) {
        // Somebody else's appends may have come meanwhile.
        Plan::Elect if shared.is_leaderless(group) => {
            tracing::info!(group = %id, term, rounds, "stands for election");
            group.vigil.lock().rounds += 1;
            // An error says that it has stopped, which its member hears.
            drop(group.elect().await);
        }
        Plan::Elect => {}
        Plan::Follow { leader, term } => {
            group.vigil.lock().rounds = 0;
            shared.on_heard(group, leader, term, 0);
            group.seat.on_leader(term, leader);
        }
        Plan::Defer => group.vigil.lock().rounds += 1,
        Plan::Wait => group.vigil.lock().rounds = 0,
    }
}

impl Shared {
    /// Whether this node should see to it that somebody leads the group.
    fn is_leaderless(&self, group: &Group) -> bool {
        group.care == Care::Supervised
            && !matches!(self.word(group), Word::Leads { .. } | Word::Hears { .. })
            && group.voters().contains(&self.options.me)
    }

    /// What this node knows of a group's leader.
    pub(crate) fn word(&self, group: &Group) -> Word {
        if let Role::Leader { term } = group.seat.role() {
            return Word::Leads { term };
        }
        let term = group.log.vote().map_or(0, |vote| vote.leader_id.term);
        if group.leads() {
            return Word::Leads { term };
        }
        let electorate = self.electorate(group, &[]);
        match electorate.heard_leader(|node| self.links.number(node)) {
            Some(leader) => Word::Hears { leader, term },
            None => Word::Lost { term, last: group.log.last() },
        }
    }

    /// Answers questions of another node. If nobody leads a group here either, this node sees to
    /// it too.
    pub(crate) fn words(&self, groups: &[GroupId]) -> Vec<Word> {
        let word = |id: &GroupId| match self.group(*id) {
            Some(group) => self.word(&group),
            None => Word::Unknown,
        };
        let words: Vec<Word> = groups.iter().map(word).collect();
        if words.iter().any(|word| matches!(word, Word::Lost { .. })) {
            self.alarm.ring();
        }
        words
    }
}

impl Group {
    /// Whether an election may be under way: this node stood a moment ago, or voted for somebody.
    /// The moment grows with each that came to nothing, on each node by another measure, so that
    /// nodes that stand at the same time, or are too slow, do not go on like that.
    fn is_standing(&self, me: NodeId) -> bool {
        let vigil = self.vigil.lock();
        let step = 250 + plan::weight(self.id, me) % 500;
        let wait = ELECTION_WAIT + Duration::from_millis(u64::from(vigil.rounds.min(12)) * step);
        let is_recent = |at: InstantOf<Types>| at.elapsed() < wait;
        vigil.stood.is_some_and(is_recent) || self.seat.voted().is_some_and(is_recent)
    }
}
