//! How large published bodies are.

use std::sync::atomic::{AtomicU64, Ordering};

use management::view::counters::MESSAGE_SIZE_BOUNDS;

/// One bucket for each bound, and one for what is larger than all.
const BUCKETS: usize = MESSAGE_SIZE_BOUNDS.len() + 1;

/// What one connection has counted since it last reported.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    buckets: [u64; BUCKETS],
    any: bool,
}

impl Counting {
    pub(crate) fn count(&mut self, bytes: u64) {
        let bucket = MESSAGE_SIZE_BOUNDS.iter().position(|bound| bytes <= *bound);
        self.buckets[bucket.unwrap_or(BUCKETS - 1)] += 1;
        self.any = true;
    }
}

/// The same for the node.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    buckets: [AtomicU64; BUCKETS],
}

impl Sizes {
    pub(crate) fn add(&self, counting: &mut Counting) {
        if !std::mem::take(&mut counting.any) {
            return;
        }
        for (total, counted) in self.buckets.iter().zip(&mut counting.buckets) {
            if *counted > 0 {
                total.fetch_add(std::mem::take(counted), Ordering::Relaxed);
            }
        }
    }

    /// Messages by bucket, not cumulated.
    pub(crate) fn get(&self) -> [u64; BUCKETS] {
        std::array::from_fn(|index| self.buckets[index].load(Ordering::Relaxed))
    }
}
