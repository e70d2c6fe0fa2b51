//! Gives numbers that nobody else in the cluster gives (see [`model::id::unique`]).

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

/// Numbers for one kind of thing on one start of a node.
#[derive(Debug, Default)]
pub(crate) struct Unique {
    node: AtomicU16,
    boot: AtomicU64,
    last: AtomicU64,
}

impl Unique {
    /// From now on numbers are of this start of this node. A node on its own has number 0.
    pub(crate) fn belong_to(&self, node: u16, boot: u64) {
        self.boot.store(boot, Ordering::Release);
        self.node.store(node, Ordering::Release);
    }

    /// The next number; never 0.
    pub(crate) fn next(&self) -> u64 {
        let counter = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (node, boot) = (self.node.load(Ordering::Acquire), self.boot.load(Ordering::Acquire));
        model::id::unique(node, boot, counter)
    }
}
