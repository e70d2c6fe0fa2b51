//! How nodes keep the groups of quorum queues whole, and what they are about to do.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How reconciliation is getting on, on one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReconciliationReport {
    /// The node's name.
    pub node: String,
    /// The node's clock, in milliseconds since the epoch: the times below are its own.
    pub now: u64,
    /// Whether it is switched on there.
    pub enabled: bool,
    /// Whether members are removed whose node was forgotten.
    pub auto_remove: bool,
    /// The size that the node's configuration asks for; 0: none.
    pub target_group_size: u64,
    /// Quorum queues that the node leads.
    pub queues: u64,
    /// Of these, with fewer voters than wanted when they were last looked at.
    pub below_target: u64,
    /// Of these, with something in the way, by what it is.
    pub blocked: BTreeMap<String, u64>,
    /// Steps that were done since the node started, by kind.
    pub done: BTreeMap<String, u64>,
    /// Steps that failed since the node started, by kind.
    pub failed: BTreeMap<String, u64>,
    /// Steps that run.
    pub running: u64,
    /// Queues that are still to be looked at in this pass.
    pub waiting: u64,
    /// How often a queue was looked at since the node started.
    pub examined: u64,
    /// Passes over all queues since the node started.
    pub passes: u64,
    /// When the last one ended, in milliseconds since the epoch.
    pub last_pass: Option<u64>,
    /// How long it took, in milliseconds.
    pub last_duration: Option<u64>,
    /// When the next one begins, in milliseconds since the epoch.
    pub next_pass: Option<u64>,
}

/// What the leader of a quorum queue would do about its members.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanReport {
    /// The node that leads the queue.
    pub leader: String,
    /// How many members there should be at least; 0: no matter.
    pub target: u64,
    /// Members now.
    pub members: Vec<PlannedMember>,
    /// What is done next, and what would follow if each step succeeded.
    pub steps: Vec<PlannedStep>,
    /// Why there is nothing more to be done now; empty if nothing is wanted.
    pub refusals: Vec<PlannedRefusal>,
    /// The same once all steps are done.
    pub afterwards: Vec<PlannedRefusal>,
    /// Members once all steps are done.
    pub size_afterwards: u64,
    /// The last step and why it failed, if it did.
    pub last_failure: Option<String>,
}

/// A member of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedMember {
    /// Its node.
    pub node: String,
    /// `voter`, `learner`, `lost`, `dangling` or `unstarted`.
    pub state: String,
    /// Whether its node is connected.
    pub running: bool,
    /// Entries that it is behind; unknown of some.
    pub behind: Option<u64>,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedStep {
    /// `add`, `promote`, `remove` or `replace`.
    pub kind: String,
    /// In words.
    pub step: String,
    /// Why.
    pub reason: String,
}

/// What stands in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedRefusal {
    /// A word for machines.
    pub kind: String,
    /// In words.
    pub reason: String,
}
