//! The age of a journal: how many times somebody began to serve it alone.

use std::fmt;

/// An age, from 0 (nobody has ever served the journal) to [`Age::MAX`]. It never goes down but by
/// an operator's command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Age(u64);

impl Age {
    /// Nobody has ever served the journal.
    pub const ZERO: Self = Self(0);

    /// The highest one: the register holds signed numbers of 64 bits.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// The highest one that an operator may set: nobody gets from there to the end.
    pub const MAX_WANTED: Self = Self(Self::MAX.0 / 2);

    /// The age of this number, if an operator may set it.
    pub const fn wanted(number: u64) -> Option<Self> {
        if number <= Self::MAX_WANTED.0 { Some(Self(number)) } else { None }
    }

    /// The age of this number; `None` beyond [`Age::MAX`].
    pub const fn new(number: u64) -> Option<Self> {
        if number <= Self::MAX.0 { Some(Self(number)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The age after this one.
    ///
    /// # Panics
    /// After [`Age::MAX`], which takes a failover every millisecond for 292 million years.
    #[must_use]
    pub fn next(self) -> Self {
        assert!(self < Self::MAX, "the age of a journal has come to its end");
        Self(self.0 + 1)
    }
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
