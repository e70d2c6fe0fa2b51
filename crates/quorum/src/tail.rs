//! How many bytes of entries all groups of a node keep in memory.
//!
//! An entry must stay until it is durable and applied. Beyond that it is kept only for followers
//! that are a little behind, as long as there is room.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What all groups hold together.
#[derive(Debug)]
pub(crate) struct Tail {
    held: AtomicUsize,
    limit: usize,
}

/// What one group may keep beyond need.
pub(crate) const GROUP_SLACK: usize = 256 * 1024;

impl Tail {
    pub(crate) fn new(limit: usize) -> Self {
        Self { held: AtomicUsize::new(0), limit }
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// How much a group may keep beyond need just now.
    pub(crate) fn slack(&self) -> usize {
        if self.held.load(Ordering::Relaxed) > self.limit { 0 } else { GROUP_SLACK }
    }

    /// Bytes held now.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}
