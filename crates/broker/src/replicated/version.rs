//! Versions of a quorum queue's machine: what entries and states mean.
//!
//! ```text
//!   every node says which version it knows   2      2      1
//!   in force in a group                      1 ───────────────────────▶ 1
//!   … after the third is upgraded            2      2      2
//!   its leader commits Version(2)            1 ────────┤ 2 ───────────▶ 2
//! ```
//!
//! The version in force is part of the replicated state. It begins as [`FIRST`] and rises by an entry,
//! so that all members change what they do at the same place of the log; its leader proposes that
//! once the nodes of all members are connected and know a higher one. Entries and states begin with
//! it. A member that meets one that its node does not know (the node was put back to an older
//! release, or joined with one) cannot go on: it stops, says so, gives no state to anybody, and goes
//! on where it was once its node is a newer one.
//!
//! | version | brings |
//! |---|---|
//! | 1 | everything so far |

use crate::replicated::order::Malformed;

/// The version of a new group, and of groups from before there were others.
pub(crate) const FIRST: u8 = 1;

/// The newest version that this node knows.
pub(crate) const NEWEST: u8 = 1;

/// Why a member cannot take what was committed, or a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("it takes version {found} of the queue machine, and this node knows {known} at most")]
    Newer { found: u8, known: u8 },
}

/// Whether a node that knows `known` can read what begins with this version.
///
/// # Errors
/// If not, or if there is no such version.
pub(crate) fn check(found: u8, known: u8) -> Result<u8, Unreadable> {
    match found {
        0 => Err(Malformed("version 0").into()),
        found if found > known => Err(Unreadable::Newer { found, known }),
        found => Ok(found),
    }
}
