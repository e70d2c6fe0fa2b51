//! Time as the pure cores know it: a number that somebody gives them.

use std::ops::Add;

/// Milliseconds since the Unix epoch. Stamped by drivers, never read by cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub u64);

/// A span of milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Millis(pub u64);

impl Add<Millis> for Timestamp {
    type Output = Timestamp;

    /// Saturates at the end of time, which is how "never" is reached by very long spans.
    fn add(self, span: Millis) -> Timestamp {
        Timestamp(self.0.saturating_add(span.0))
    }
}
