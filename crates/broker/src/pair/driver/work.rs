//! Work of the disk for which the lock is held: it may take long, and not for ever.
//!
//! Nothing is confirmed while it lasts, and another copy may be as good. So if the disk hangs the lock
//! is renewed no more, and goes to that one when the lease ends; by then nothing waits for the disk.

use activation::machine::{Phase, Step};
use model::time::Millis;

use crate::pair::driver::Driver;

/// How long the disk may do nothing at all while a journal is being opened. However long that takes is
/// no matter: that depends on what is in it.
const STILL: Millis = Millis(10_000);

/// What the disk has to do.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Where the machine is, if it waits for the disk there, and what the disk has done then.
    at: Option<(Phase, u64)>,
    since: Millis,
    /// Nothing comes of it.
    pub(super) hangs: bool,
}

impl Driver {
    /// Looks whether the disk does something. After every step, so that none is missed.
    pub(super) fn look_at_work(&mut self, now: Millis) {
        let phase = *self.machine.phase();
        let at = match phase {
            // Recovery tells how far it is by what it reads.
            Phase::Loading(_) => Some((phase, self.pulse.count())),
            Phase::Raising { step: Step::File | Step::RepairFile, .. }
            | Phase::Closing { token: Some(_), .. } => Some((phase, 0)),
            _ => None,
        };
        if self.work.at != at {
            self.work = Work { at, since: now, hangs: false };
            return;
        }
        let allowed = self.limits.replica_timeout;
        let most = match phase {
            Phase::Loading(_) => STILL.max(allowed),
            _ => allowed,
        };
        if at.is_none() || self.work.hangs || now.0 < self.work.since.0 + most.0 {
            return;
        }
        self.work.hangs = true;
        tracing::warn!(
            journal = %self.name, ?phase,
            "the disk does nothing; the lock is not renewed, so that another copy can be served"
        );
        if let Some(heir) = self.heir.take() {
            // It waits for a word that this node cannot say, and is in sync: its turn.
            self.line.send(heir.with, heir.end());
        }
    }
}
