//! What there is to count.

use std::collections::{BTreeMap, BTreeSet};

use model::id::QueueId;
use model::time::{Millis, Timestamp};

use crate::plan::Plan;
use crate::refusal;
use crate::scheduler::Outcome;
use crate::step;

/// How reconciliation is getting on, on this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Queues that are led here.
    pub queues: u64,
    /// Of these, with fewer voters than wanted when they were last looked at.
    pub below_target: u64,
    /// Of these, with something in the way of a step, by what is in the way.
    pub blocked: BTreeMap<refusal::Kind, u64>,
    /// Steps that were done since the node started.
    pub done: BTreeMap<step::Kind, u64>,
    /// Steps that failed since the node started.
    pub failed: BTreeMap<step::Kind, u64>,
    /// Steps that run.
    pub running: u64,
    /// Queues that are still to be looked at.
    pub waiting: u64,
    /// Queues that were looked at since the node started.
    pub examined: u64,
    /// Passes over all queues since the node started.
    pub passes: u64,
    /// When the last one ended.
    pub last_pass: Option<Timestamp>,
    /// How long it took.
    pub last_duration: Option<Millis>,
    /// When the next one begins; `None`: never, or as soon as the present one has ended.
    pub next_pass: Option<Timestamp>,
}

/// Counts as it goes.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    counts: Counts,
    below_target: BTreeSet<QueueId>,
    blocked: BTreeMap<QueueId, Vec<refusal::Kind>>,
}

impl Tally {
    pub(super) fn counts(&self) -> Counts {
        let mut blocked = BTreeMap::new();
        for kind in self.blocked.values().flatten() {
            *blocked.entry(*kind).or_insert(0) += 1;
        }
        Counts { below_target: self.below_target.len() as u64, blocked, ..self.counts.clone() }
    }

    pub(super) fn examined(&mut self, queue: QueueId, plan: &Plan) {
        self.counts.examined += 1;
        if plan.is_below_target() {
            self.below_target.insert(queue);
        } else {
            self.below_target.remove(&queue);
        }
        let mut kinds: Vec<_> = plan.refusals.iter().map(refusal::Refusal::kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        if kinds.is_empty() {
            self.blocked.remove(&queue);
        } else {
            self.blocked.insert(queue, kinds);
        }
    }

    pub(super) fn finished(&mut self, kind: step::Kind, outcome: Outcome) {
        let counts = match outcome {
            Outcome::Done => &mut self.counts.done,
            Outcome::Failed => &mut self.counts.failed,
            Outcome::NotBegun => return,
        };
        *counts.entry(kind).or_insert(0) += 1;
    }

    pub(super) fn passed(&mut self, now: Timestamp, began: Timestamp) {
        self.counts.passes += 1;
        self.counts.last_pass = Some(now);
        self.counts.last_duration = Some(Millis(now.0.saturating_sub(began.0)));
    }

    pub(super) fn gone(&mut self, queue: QueueId) {
        self.below_target.remove(&queue);
        self.blocked.remove(&queue);
    }

    /// Nothing is wanted any more.
    pub(super) fn disabled(&mut self) {
        self.below_target.clear();
        self.blocked.clear();
    }
}
