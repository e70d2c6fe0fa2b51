//! A member's hold on the records of its group: it may add bodies, read and release.

use crate::grouplog::GroupLog;
use crate::record::Head;
use journal::op::{Class, Payload};
use model::id::Seq;
use std::fmt;
use std::sync::Arc;

/// The records of a group, for its member.
#[derive(Clone)]
pub struct Records {
    pub(crate) log: Arc<GroupLog>,
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.log, f)
    }
}

impl Records {
    /// Stores bodies alone, each under a name of the member's, and tells their positions once they
    /// are durable: before that they cannot be read. Never blocks. On a full disk bodies that are
    /// carried may use its reserve. `stored` is called by whoever learns of the sync, and must be
    /// short; never, if the journal fails.
    pub fn carry(
        &self,
        bodies: Vec<(u64, Payload)>,
        stored: impl FnOnce(Vec<Seq>) + Send + 'static,
    ) {
        let head = |(name, payload)| (Head::Carried { name }, payload);
        let (positions, lsn) = self.log.carry(Class::Vital, bodies.into_iter().map(head).collect());
        self.log.when_vital(lsn, move |result| {
            if result.is_ok() {
                stored(positions);
            }
        });
    }

    /// Releases records that were handed over as entries or bodies, once the log does not need
    /// them ([`Member::purged`](crate::member::Member::purged)). Ascending positions cost least.
    pub fn release(&self, positions: &[Seq]) {
        self.log.release(positions);
    }
}
