//! Where a binding leads, as the tables keep it.

use crate::compact::Compact;
use crate::objects::Name;
use crate::routes::targets::Target;

/// The next step of a message: into a queue, or on to another exchange.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hop {
    Queue(Target),
    Exchange(Name),
}

/// A set of hops with the number of bindings behind each: bindings that differ only in their
/// arguments lead to the same place, and the place goes with the last of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hops {
    counts: Compact<Hop, u32>,
}

impl Hops {
    pub(crate) fn add(&mut self, hop: Hop) {
        *self.counts.entry(hop, || 0) += 1;
    }

    pub(crate) fn remove(&mut self, hop: &Hop) {
        if let Some(count) = self.counts.get_mut(hop) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(hop);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    pub(crate) fn for_each<'a>(&'a self, mut visit: impl FnMut(&'a Hop)) {
        self.counts.for_each(|hop, _| visit(hop));
    }
}
