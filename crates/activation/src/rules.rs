//! The rules that tests break, to see that each of them is needed.
//!
//! Outside of tests and simulations nothing is ever broken: `broken` is constant there.

/// A rule of the machine. What breaks without it is in the tests of `check`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Held confirms wait for the COMMIT after a replica is lost.
    GateUntilCommit,
    /// A replica that may have become in sync unheard is a breaking point.
    RaiseAfterUnheardSync,
    /// A copy that is newer than the register is held, not stale.
    AheadIsHeld,
    /// A copy is overwritten only after a linearizable read.
    ReadBeforeDiscard,
    /// A repair writes the state file before the register.
    RepairWritesFirst,
    /// The age is raised again after a repair.
    RaiseAfterRepair,
    /// The state file says so before a copy is overwritten.
    MarkSyncing,
    /// The register is read again under the lock, by a read that cannot lag.
    ReadUnderLock,
    /// That read also says that the lock is still held.
    ReadIsFenced,
    /// Serving ends with the lease.
    StopAtLeaseEnd,
    /// Ages of another data set mean nothing.
    Incarnation,
    /// The age is raised when a replica that was in sync is lost.
    RaiseAfterLoss,
    /// The next age is committed before anything is confirmed under it.
    CommitFirst,
    /// A copy that is behind is not served.
    StaleIsPassive,
}

#[cfg(not(any(test, feature = "sim")))]
pub(crate) const fn broken(_: Rule) -> bool {
    false
}

#[cfg(any(test, feature = "sim"))]
thread_local! {
    static BROKEN: std::cell::Cell<[Option<Rule>; 2]> = const { std::cell::Cell::new([None; 2]) };
}

/// Whether a test has broken the rule.
#[cfg(any(test, feature = "sim"))]
pub(crate) fn broken(rule: Rule) -> bool {
    BROKEN.get().contains(&Some(rule))
}

/// Breaks up to two rules on this thread from now on.
#[cfg(any(test, feature = "sim"))]
pub fn break_rules(rules: [Option<Rule>; 2]) {
    BROKEN.set(rules);
}
