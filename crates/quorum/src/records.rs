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
    /// Stores bodies alone, each under a name of the member's, and tells their positions. Never
    /// blocks. What a record was carried from may be released right after: the journal keeps the
    /// order, also on a full disk, whose reserve bodies that are carried may use.
    pub fn carry(&self, bodies: Vec<(u64, Payload)>) -> Vec<Seq> {
        let head = |(name, payload)| (Head::Carried { name }, payload);
        self.log.carry(Class::Vital, bodies.into_iter().map(head).collect()).0
    }

    /// Releases records that were handed over as entries or bodies, once the log does not need
    /// them ([`Member::purged`](crate::member::Member::purged)). Ascending positions cost least.
    pub fn release(&self, positions: &[Seq]) {
        self.log.release(positions);
    }
}
