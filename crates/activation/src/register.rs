//! The coordinated age, as the cluster's register holds it.

use std::fmt;

use crate::age::Age;

/// The register of a journal. Operators see it signed: a claim is negative.
///
/// It takes two steps for every age: `Committed(i)`, `Claimed(i + 1)`, `Committed(i + 1)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Register {
    /// Copies of this age have everything that was ever confirmed.
    Committed(Age),
    /// Somebody is about to serve alone under this age, and has confirmed nothing under it yet.
    /// Never zero.
    Claimed(Age),
}

/// How far a successor is, asked by the node that handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Succession {
    /// Nobody has claimed the next age.
    NotBegun,
    /// The next age is claimed and not committed.
    Pending,
    /// A later age than the own one was committed, also if another claim follows already.
    Done,
}

/// What a read of the register answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct View {
    /// `None`: there is no such register, which is not the same as 0.
    pub register: Option<Register>,
    /// Of the register that answered.
    pub incarnation: Incarnation,
    /// The register began with a value that an operator forced.
    pub adopted: Option<Adopted>,
    /// The grant by which somebody had the lock at the moment of the read.
    pub holder: Option<Token>,
}

/// What an operator chose to go on from: the copies of this age, under an incarnation that is over.
/// Older ones are stale, newer ones stay set aside for good (ADR 0032).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Adopted {
    /// Of the register that their ages are from.
    pub incarnation: Incarnation,
    /// The value that was forced.
    pub age: Age,
}

/// Names one life of a register: drawn at random when it is created and when a value is forced, so
/// that one that was lost and made again is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// Names one grant of the lock. Strictly increasing: what carries an older one is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl Register {
    /// Reads the signed form; `None` for the one number that has no counterpart.
    pub fn from_signed(number: i64) -> Option<Self> {
        let age = Age::new(number.unsigned_abs())?;
        Some(if number < 0 { Self::Claimed(age) } else { Self::Committed(age) })
    }

    /// The signed form: a claim is negative.
    pub fn signed(self) -> i64 {
        let number = i64::try_from(self.age().get()).expect("ages fit by their type");
        match self {
            Self::Committed(_) => number,
            Self::Claimed(_) => -number,
        }
    }

    /// The age, claimed or committed.
    pub fn age(self) -> Age {
        match self {
            Self::Committed(age) | Self::Claimed(age) => age,
        }
    }

    /// The last age under which something may have been confirmed: nothing is under a claim.
    pub fn confirmed(self) -> Age {
        match self {
            Self::Committed(age) => age,
            Self::Claimed(age) => {
                Age::new(age.get() - 1).expect("it is below one that is in range")
            }
        }
    }

    /// Whether somebody has taken over from a node of this age. May be asked of a read that lags.
    pub fn succession(self, own: Age) -> Succession {
        match self {
            Self::Committed(age) if age > own => Succession::Done,
            Self::Claimed(age) if age > own.next() => Succession::Done,
            Self::Claimed(age) if age > own => Succession::Pending,
            Self::Committed(_) | Self::Claimed(_) => Succession::NotBegun,
        }
    }
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.signed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn age(number: u64) -> Age {
        Age::new(number).unwrap()
    }

    #[test]
    fn claims_are_negative() {
        for number in [0, 1, -1, 5, -5, i64::MAX, -i64::MAX] {
            assert_eq!(Register::from_signed(number).unwrap().signed(), number);
        }
        assert_eq!(Register::from_signed(i64::MIN), None);
        assert_eq!(Register::from_signed(0), Some(Register::Committed(Age::ZERO)));
        assert_eq!(Register::Claimed(age(3)).to_string(), "-3");
    }

    #[test]
    fn a_claim_of_the_next_age_is_in_progress() {
        let own = age(4);
        for (number, wanted) in [
            (4, Succession::NotBegun),
            (-4, Succession::NotBegun),
            (3, Succession::NotBegun),
            (-5, Succession::Pending),
            (5, Succession::Done),
            (-6, Succession::Done),
            (9, Succession::Done),
        ] {
            assert_eq!(Register::from_signed(number).unwrap().succession(own), wanted, "{number}");
        }
    }
}
