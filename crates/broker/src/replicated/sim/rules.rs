//! Rules that a simulation may break, to see that it notices.

use std::cell::Cell;

use model::time::Timestamp;
use quorum::sim::Broken;
use tokio::time::Instant;

/// What must always hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Nothing is reported durable before it is synced.
    SyncFirst,
    /// The state machine knows no time but the leader's stamp.
    NoClock,
    /// A node that starts again does not resume its term.
    NoRestoredLeader,
    /// A leader is deposed only by a majority that has lost it.
    MajoritysWord,
    /// What was performed before is not performed again.
    DropRepeats,
}

thread_local! {
    /// A simulation has one thread.
    static BROKEN: Cell<Option<Rule>> = const { Cell::new(None) };
    static EPOCH: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Breaks a rule on this thread, or none.
pub(super) fn break_rule(rule: Option<Rule>) {
    BROKEN.set(rule);
    EPOCH.set(None);
}

/// A clock that a state machine must not look at.
pub(crate) fn clock() -> Timestamp {
    let epoch = EPOCH.get().unwrap_or_else(|| {
        EPOCH.set(Some(Instant::now()));
        Instant::now()
    });
    Timestamp(1_000_000_000 + epoch.elapsed().as_millis() as u64)
}

/// Whether it is broken.
pub(crate) fn broken(rule: Rule) -> bool {
    BROKEN.get() == Some(rule)
}

/// The same, as the crate knows it that has the rule.
pub(super) fn of_quorum(rule: Option<Rule>) -> Broken {
    match rule {
        Some(Rule::NoRestoredLeader) => Broken::RestoredLeader,
        Some(Rule::MajoritysWord) => Broken::NoWord,
        _ => Broken::None,
    }
}
