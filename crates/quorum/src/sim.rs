//! What a simulation has in place of a part of the runtime, so that one seed is one run: a source of
//! chance that it seeds, and channels that wake who waits in the order of waiting. Both of tokio's
//! draw from a generator that nobody can seed.
//!
//! And rules of this crate that it may break, to see that it notices.

pub mod watch;

pub(crate) mod runtime;

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

thread_local! {
    /// `None`: no simulation runs here, though the feature is there, as in a build of everything.
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
    static BROKEN: Cell<Broken> = const { Cell::new(Broken::None) };
}

/// Which rule this thread's groups break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Broken {
    /// None.
    #[default]
    None,
    /// A node that starts again resumes the term that it led.
    RestoredLeader,
    /// Votes and elections need no word of those who hear the leader.
    NoWord,
}

/// Begins a run on this thread.
pub fn begin(seed: u64, broken: Broken) {
    SEED.set(Some(seed));
    BROKEN.set(broken);
}

/// Whether this thread's groups break a rule.
pub(crate) fn breaks(rule: Broken) -> bool {
    BROKEN.get() == rule
}

/// The next seed of this thread's run.
fn next() -> u64 {
    let Some(seed) = SEED.get() else { return RandomState::new().hash_one(0) };
    let seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    SEED.set(Some(seed));
    seed
}
