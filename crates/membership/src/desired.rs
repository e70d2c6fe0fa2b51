//! What is wanted of a queue.

/// What the configuration, policies and the queue's arguments want.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Desired {
    /// Whether anything is done at all.
    pub enabled: bool,
    /// Whether members are removed whose node has left the cluster. A member whose node came back
    /// without its data is replaced whatever this says.
    pub auto_remove: bool,
    /// How many members there should be at least.
    pub target: Target,
    /// When a member may be added; `None`: at any time, as the first design of this feature had it.
    pub caution: Option<Caution>,
}

/// The sources of a queue's target size; 0 and `None` say nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Target {
    /// `quorum_queue.continuous_membership_reconciliation.target_group_size`.
    pub configured: u64,
    /// `target-group-size` of the policy.
    pub policy: Option<u64>,
    /// `target-group-size` of the operator policy.
    pub operator_policy: Option<u64>,
    /// `x-quorum-target-group-size`.
    pub argument: Option<u64>,
}

/// When a member may be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caution {
    /// How many entries every other member may be behind.
    pub lag: u64,
    /// How many bytes are copied to a new member at most, of log and bodies; 0: any.
    pub log_bytes: u64,
}

impl Target {
    /// The largest of all; 0: no member is added for the size's sake. A queue with more members
    /// keeps them.
    pub fn effective(&self) -> u64 {
        let Self { configured, policy, operator_policy, argument } = *self;
        [policy, operator_policy, argument].into_iter().flatten().fold(configured, u64::max)
    }
}
