//! Who hears from the journal.

use crate::op::Lsn;
use std::io;

/// Called by the writer thread, in order. Calls should return quickly: the writer waits.
pub trait Listener: Send + Sync {
    /// Everything up to `lsn` was synced to disk. `lsn` only grows.
    fn durable(&self, lsn: Lsn);

    /// Everything up to `lsn` but bulk puts that wait for room was synced to disk. `lsn` only
    /// grows, and is never behind that of [`Listener::durable`], of which it is told first. Whoever
    /// hands over nothing vital need not listen.
    fn vital(&self, lsn: Lsn) {
        let _ = lsn;
    }

    /// The disk has no room for further bulk puts (`true`), or has again. Those that were handed
    /// over wait in order; vital puts, releases, notes and drops go on. The journal recovers by
    /// itself.
    fn full(&self, full: bool);

    /// Writing or syncing failed. Final: nothing is written or reported durable from now on, and
    /// what was not reported durable may or may not be there after a restart. The owner stops. That
    /// there is no room is no failure, also when the journal is closed.
    fn failed(&self, error: &io::Error);
}

/// Hears nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Deaf;

impl Listener for Deaf {
    fn durable(&self, _: Lsn) {}
    fn full(&self, _: bool) {}
    fn failed(&self, _: &io::Error) {}
}
