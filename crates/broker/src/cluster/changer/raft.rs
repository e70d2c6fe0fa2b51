//! Raft in few words, for the simulation of members: whatever happens in a group happens in one step,
//! among those who reach each other.
//!
//! What it keeps of the real one: a log per member, terms and votes that are never given twice, the
//! election of a newest log by a majority, memberships that count from when they are in the log, one
//! change at a time, and none before the leader's own first entry is committed.

use std::collections::{BTreeMap, BTreeSet};

use model::id::{NodeId, StreamId};
use quorum::change::Change;

/// Who votes, and who gets the log without a vote.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Config {
    pub(super) voters: BTreeSet<NodeId>,
    pub(super) learners: BTreeSet<NodeId>,
}

impl Config {
    pub(super) fn has(&self, node: NodeId) -> bool {
        self.voters.contains(&node) || self.learners.contains(&node)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.voters.iter().chain(&self.learners).copied()
    }

    /// The same with one change made, if there is anything to change.
    pub(super) fn after(&self, change: Change) -> Self {
        let mut config = self.clone();
        match change {
            Change::AddLearner(node) if !config.has(node) => {
                config.learners.insert(node);
            }
            Change::Promote(node) if config.learners.remove(&node) => {
                config.voters.insert(node);
            }
            Change::Remove(node) => {
                config.voters.remove(&node);
                config.learners.remove(&node);
            }
            Change::AddLearner(_) | Change::Promote(_) => {}
        }
        config
    }

    pub(super) fn is_majority(&self, count: usize) -> bool {
        count * 2 > self.voters.len()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    Blank,
    Message(u64),
    Members(Config),
}

/// The term in which it was proposed, and what it is.
pub(super) type Entry = (u64, What);

/// A member with its data.
#[derive(Debug, Clone)]
pub(super) struct Replica {
    pub(super) stream: StreamId,
    pub(super) term: u64,
    pub(super) voted_for: Option<NodeId>,
    pub(super) leads: bool,
    pub(super) log: Vec<Entry>,
    /// Entries that it knows to be committed.
    pub(super) committed: usize,
}

impl Replica {
    /// One that knows nothing.
    pub(super) fn empty(stream: StreamId) -> Self {
        Self { stream, term: 0, voted_for: None, leads: false, log: Vec::new(), committed: 0 }
    }

    /// The newest membership in its log, committed or not, and where that is.
    pub(super) fn config(&self) -> (Config, usize) {
        let found = self.log.iter().enumerate().rev().find_map(|(at, (_, what))| match what {
            What::Members(config) => Some((config.clone(), at + 1)),
            What::Blank | What::Message(_) => None,
        });
        found.unwrap_or_default()
    }

    fn last(&self) -> (u64, usize) {
        (self.log.last().map_or(0, |(term, _)| *term), self.log.len())
    }

    /// How much of another log it has.
    pub(super) fn shared(&self, other: &Self) -> usize {
        self.log.iter().zip(&other.log).take_while(|(mine, theirs)| mine == theirs).count()
    }
}

/// A group: its members by node. What a group has committed is kept apart, to be compared.
#[derive(Debug, Clone, Default)]
pub(super) struct Group {
    pub(super) replicas: BTreeMap<NodeId, Replica>,
    pub(super) truth: Vec<Entry>,
    /// Votes that were given: by whom, of which life, in which term, for whom.
    votes: BTreeMap<(NodeId, StreamId, u64), NodeId>,
    leaders: BTreeMap<u64, NodeId>,
}

impl Group {
    /// One with these members, in which nothing has happened yet.
    pub(super) fn of(replicas: BTreeMap<NodeId, Replica>) -> Self {
        Self { replicas, ..Self::default() }
    }

    /// Who leads, as those know who can be reached.
    pub(super) fn leader(&self, is_up: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let leads = self.replicas.iter().filter(|(node, one)| one.leads && is_up(**node));
        leads.max_by_key(|(_, one)| one.term).map(|(node, _)| *node)
    }

    /// A member stands for election; whether it leads then.
    pub(super) fn elect(
        &mut self,
        node: NodeId,
        reaches: impl Fn(NodeId) -> bool,
    ) -> Result<bool, String> {
        let Some(candidate) = self.replicas.get(&node) else { return Ok(false) };
        let (config, _) = candidate.config();
        if !config.voters.contains(&node) {
            return Ok(false);
        }
        let known = |voter: &&NodeId| reaches(**voter) && self.replicas.contains_key(voter);
        let voters: Vec<NodeId> = config.voters.iter().filter(known).copied().collect();
        let terms = voters.iter().filter_map(|voter| Some(self.replicas.get(voter)?.term));
        let (term, last) = (terms.max().unwrap_or(0) + 1, candidate.last());
        let mut votes = 0;
        for voter in voters {
            let replica = self.replicas.get_mut(&voter).expect("it is one of them");
            if replica.last() > last {
                continue;
            }
            let life = (voter, replica.stream, term);
            if *self.votes.entry(life).or_insert(node) != node {
                return Err(format!("{voter} votes twice in term {term}"));
            }
            (replica.term, replica.voted_for, replica.leads) = (term, Some(node), false);
            votes += 1;
        }
        if !config.is_majority(votes) {
            return Ok(false);
        }
        if *self.leaders.entry(term).or_insert(node) != node {
            return Err(format!("two lead in term {term}"));
        }
        let leader = self.replicas.get_mut(&node).expect("it stands");
        leader.leads = true;
        leader.log.push((term, What::Blank));
        self.replicate(node, reaches)?;
        Ok(true)
    }

    /// A leader puts something into its log; whether that is committed at once.
    pub(super) fn append(
        &mut self,
        node: NodeId,
        what: What,
        reaches: impl Fn(NodeId) -> bool,
    ) -> Result<bool, String> {
        let Some(leader) = self.replicas.get_mut(&node).filter(|one| one.leads) else {
            return Ok(false);
        };
        leader.log.push((leader.term, what));
        let end = leader.log.len();
        self.replicate(node, reaches)?;
        Ok(self.replicas.get(&node).is_some_and(|leader| leader.leads && leader.committed >= end))
    }

    /// A leader sends what it has to those it reaches, and commits what a majority has.
    pub(super) fn replicate(
        &mut self,
        node: NodeId,
        reaches: impl Fn(NodeId) -> bool,
    ) -> Result<(), String> {
        let Some(leader) = self.replicas.get(&node).filter(|one| one.leads).cloned() else {
            return Ok(());
        };
        let (config, _) = leader.config();
        let mut have = 0;
        for member in config.all().filter(|member| *member != node) {
            let Some(replica) = self.replicas.get_mut(&member).filter(|_| reaches(member)) else {
                continue;
            };
            if replica.term > leader.term {
                self.replicas.get_mut(&node).expect("it is there").leads = false;
                return Ok(());
            }
            if replica.shared(&leader) < replica.committed {
                return Err(format!("{member} has committed what its leader {node} lacks"));
            }
            (replica.term, replica.leads) = (leader.term, false);
            replica.log.clone_from(&leader.log);
            replica.committed = replica.committed.max(leader.committed);
            have += usize::from(config.voters.contains(&member));
        }
        have += usize::from(config.voters.contains(&node));
        let is_own = leader.log.last().is_some_and(|(term, _)| *term == leader.term);
        if config.is_majority(have) && is_own {
            self.commit(node, leader.log)?;
        }
        Ok(())
    }

    fn commit(&mut self, node: NodeId, log: Vec<Entry>) -> Result<(), String> {
        let agreed =
            self.truth.iter().zip(&log).take_while(|(mine, theirs)| mine == theirs).count();
        if agreed < self.truth.len() {
            let lost = &self.truth[agreed];
            return Err(format!("{lost:?} was committed and its leader {node} lacks it"));
        }
        self.truth = log;
        let end = self.truth.len();
        let leader = self.replicas.get_mut(&node).expect("it leads");
        leader.committed = end;
        let (config, _) = leader.config();
        // One that is no voter any more stops to lead when that is agreed on.
        if !config.voters.contains(&node) {
            leader.leads = false;
        }
        Ok(())
    }
}
