//! What a node's copy of a journal is worth, by its own state file.

use std::fmt;

use crate::age::Age;
use crate::register::Incarnation;

/// What the state file says of the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// There is no state file: nothing was ever copied here, or nothing is known of what was.
    Empty,
    /// The copy is whole and of this age. 0 only before anybody has served the journal.
    Valid(Age),
    /// The copy is being overwritten; it is worth nothing until that has ended.
    Syncing,
    /// The copy is set aside by a mark that only an operator removes.
    Marked(Mark, Option<Age>),
}

/// Why a copy is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    /// The data directory was restored or copied, and its node has got another identity since.
    Reincarnated,
    /// The journal had damage before its tail.
    Damaged,
    /// An operator has set it aside.
    Operator,
}

/// The content of the state file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Record {
    /// What the copy is worth.
    pub standing: Standing,
    /// The data set of registers that its age belongs to; `None` if it never met one.
    pub incarnation: Option<Incarnation>,
}

/// Everything that a node knows of its copy without asking anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Own {
    /// The state file.
    pub record: Record,
    /// The journal holds no records.
    pub vacant: bool,
    /// This is the node, in this incarnation, that may serve the journal first.
    pub founder: bool,
}

impl Record {
    /// The record of a node without a state file.
    pub const NONE: Self = Self { standing: Standing::Empty, incarnation: None };
}

impl Standing {
    /// The age, if the copy is whole.
    pub fn age(self) -> Option<Age> {
        match self {
            Self::Valid(age) => Some(age),
            Self::Empty | Self::Syncing | Self::Marked(..) => None,
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("none"),
            Self::Valid(age) => write!(f, "{age}"),
            Self::Syncing => f.write_str("being copied"),
            Self::Marked(mark, None) => write!(f, "set aside ({mark})"),
            Self::Marked(mark, Some(age)) => write!(f, "set aside at {age} ({mark})"),
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reincarnated => "the data directory was restored or copied",
            Self::Damaged => "the journal is damaged",
            Self::Operator => "by an operator",
        })
    }
}
