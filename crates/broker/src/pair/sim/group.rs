//! The metadata group: one log, a leader while a majority can reach each other, and for each node how
//! far it has applied. Only the consensus itself is made up; what a command comes to, who counts
//! leases, and how nodes propose and hear is the real thing.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use model::id::{NodeId, Seq};
use quorum::member::Committed;

use super::node::Node;
use super::world::World;
use crate::replicated::sim::rng::Rng;
use crate::topology::Topology;

/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(25);

/// See the module head.
pub(super) struct Group {
    pub(super) log: Vec<Committed>,
    pub(super) term: u64,
    pub(super) leader: Option<NodeId>,
    /// Proposals that the leader has taken.
    pending: Vec<Bytes>,
    /// Since when there should be another leader, in looks.
    leaderless: u64,
    patience: u64,
    rng: Rng,
    /// Everything that was committed.
    pub(super) truth: Arc<Topology>,
}

impl Group {
    pub(super) fn new(rng: Rng, truth: Arc<Topology>) -> Self {
        Self {
            log: Vec::new(),
            term: 0,
            leader: None,
            pending: Vec::new(),
            leaderless: 0,
            patience: 0,
            rng,
            truth,
        }
    }

    /// Whether something waits to be decided.
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    fn commit(&mut self, payload: Bytes) {
        let index = self.log.len() as u64 + 1;
        let entry = Committed { index, term: self.term, position: Seq(index), payload };
        self.truth.commit(std::slice::from_ref(&entry)).expect("it is ours");
        self.log.push(entry);
    }
}

impl World {
    /// Commits what is so from the beginning.
    pub(super) fn found(&self, payload: Bytes) {
        self.group.lock().commit(payload);
    }

    /// A node wants something proposed by the one that it takes for the leader; `false`: it is not.
    pub(super) async fn propose(&self, from: NodeId, leader: NodeId, proposal: Bytes) -> bool {
        tokio::time::sleep(self.delay(from, leader)).await;
        if !self.is_open(from, leader) || !self.take_proposal(leader, proposal) {
            return false;
        }
        tokio::time::sleep(self.delay(leader, from)).await;
        // A word that is lost: nobody knows what became of it.
        self.is_open(leader, from)
    }

    /// A node takes a proposal, if it leads.
    pub(super) fn take_proposal(&self, leader: NodeId, proposal: Bytes) -> bool {
        let mut group = self.group.lock();
        if group.leader != Some(leader) || !self.works(leader) {
            return false;
        }
        group.pending.push(proposal);
        drop(group);
        self.decide();
        true
    }

    /// Whether a node is there and not stopped.
    fn works(&self, node: NodeId) -> bool {
        self.node(node).is_some_and(|node| !node.owner.is_frozen())
    }

    /// Whether a voter can reach a majority, itself among it.
    fn has_majority(&self, node: NodeId) -> bool {
        let voters = self.voters_and_others().0;
        let reached = voters.iter().copied().filter(|other| {
            *other == node
                || self.works(*other) && self.is_open(node, *other) && self.is_open(*other, node)
        });
        self.works(node) && reached.count() > voters.len() / 2
    }

    /// Commits what a majority takes.
    fn decide(&self) {
        let before = {
            let mut group = self.group.lock();
            if !group.leader.is_some_and(|leader| self.has_majority(leader)) {
                return;
            }
            let pending = std::mem::take(&mut group.pending);
            if pending.is_empty() {
                return;
            }
            let before = group.log.len();
            for payload in pending {
                group.commit(payload);
                let state = group.truth.state();
                self.on_register(&state);
            }
            before
        };
        self.trace(20, &[before as u64, self.group.lock().log.len() as u64]);
        self.touch();
    }

    /// Elects leaders for as long as the run lasts.
    pub(super) async fn lead(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK).await;
            self.elect();
            self.decide();
        }
    }

    fn elect(self: &Arc<Self>) {
        let elected = {
            let mut group = self.group.lock();
            if group.leader.is_some_and(|leader| self.has_majority(leader)) {
                group.leaderless = 0;
                return;
            }
            if group.leaderless == 0 {
                group.patience = group.rng.between(2, 40);
            }
            group.leaderless += 1;
            if group.leaderless < group.patience {
                return;
            }
            let able = self.voters_and_others().0;
            let able: Vec<NodeId> =
                able.into_iter().filter(|node| self.has_majority(*node)).collect();
            let Some(leader) = group.rng.pick(&able).copied() else { return };
            group.leaderless = 0;
            group.term += 1;
            group.leader = Some(leader);
            // A part of what the leader before had taken is in the new one's log too.
            let pending = std::mem::take(&mut group.pending);
            let kept = group.rng.below(pending.len() as u64 + 1) as usize;
            for payload in pending.into_iter().take(kept) {
                group.commit(payload);
                let state = group.truth.state();
                self.on_register(&state);
            }
            (leader, group.term)
        };
        let (leader, term) = elected;
        self.trace(21, &[leader.0, term]);
        self.say(|| format!("node {leader} leads the metadata group in term {term}"));
        if let Some(node) = self.node(leader) {
            // It has everything that was committed before.
            node.apply_all(self);
        }
        self.touch();
    }

    /// Brings a node what is committed, for as long as it lives.
    pub(super) async fn follow(self: Arc<Self>, node: Arc<Node>) {
        let mut changed = self.changed.subscribe();
        let mut known = (0, None);
        loop {
            let (leader, term, length) = {
                let group = self.group.lock();
                (group.leader, group.term, group.log.len() as u64)
            };
            if node.owner.is_dead() {
                return;
            }
            let me = node.me.node;
            let hears = !node.owner.is_frozen()
                && leader.is_some_and(|leader| {
                    leader == me || self.works(leader) && self.is_open(leader, me)
                });
            if hears && known != (term, leader) {
                known = (term, leader);
                node.led_by(term, leader);
            }
            if hears && node.applied() < length {
                tokio::time::sleep(self.delay(me, me)).await;
                if node.owner.is_dead() || node.owner.is_frozen() {
                    continue;
                }
                node.apply_some(&self, length);
                continue;
            }
            if changed.changed().await.is_err() {
                return;
            }
        }
    }
}
