//! Rules that a run may break, to see that it notices.

use std::cell::Cell;

/// What must always hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// With a replica in sync a confirm waits for its answer.
    AnswerFirst,
    /// Nothing is confirmed when the lease has ended, and serving ends with it.
    Lease,
    /// A stale copy is not served.
    StaleIsPassive,
    /// The age is raised when a replica is lost.
    RaiseAfterLoss,
    /// Confirms that were held wait for the commit of the next age.
    GateUntilCommit,
    /// The next age is committed before it is served under.
    Commit,
    /// A replica answers what is on its disk.
    DurableAnswers,
}

thread_local! {
    static BROKEN: Cell<Option<Rule>> = const { Cell::new(None) };
}

/// Breaks a rule on this thread, or none.
pub(super) fn break_rule(rule: Option<Rule>) {
    use activation::rules::{Rule as Pure, break_rules};
    BROKEN.set(rule);
    break_rules(match rule {
        Some(Rule::Lease) => [Some(Pure::StopAtLeaseEnd), None],
        Some(Rule::StaleIsPassive) => [Some(Pure::StaleIsPassive), None],
        Some(Rule::RaiseAfterLoss) => [Some(Pure::RaiseAfterLoss), None],
        Some(Rule::GateUntilCommit) => [Some(Pure::GateUntilCommit), None],
        Some(Rule::Commit) => [Some(Pure::CommitFirst), None],
        Some(Rule::AnswerFirst | Rule::DurableAnswers) | None => [None, None],
    });
}

/// Whether it is broken.
pub(crate) fn broken(rule: Rule) -> bool {
    BROKEN.get() == Some(rule)
}
