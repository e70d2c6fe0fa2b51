//! Why stored bytes cannot be read.

use std::fmt;

/// Bytes that are not what this crate writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// There are not exactly as many bytes as there must be.
    Length(usize),
    /// A newer version of this crate wrote it.
    Version(u8),
    /// Bits that mean nothing are set.
    Flags(u8),
    /// It ends too early.
    Ended,
    /// Something in it cannot be, or contradicts something else in it.
    Value(&'static str),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => write!(f, "{length} bytes are too few or too many"),
            Self::Version(version) => write!(f, "the form has the unknown version {version}"),
            Self::Flags(flags) => write!(f, "the flags {flags:#04x} mean nothing"),
            Self::Ended => write!(f, "it ends too early"),
            Self::Value(what) => write!(f, "{what}"),
        }
    }
}

impl std::error::Error for Malformed {}
