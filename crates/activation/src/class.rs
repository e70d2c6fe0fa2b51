//! Classification: what a copy is worth against the register.
//!
//! Total: every pair of a state file and a register has exactly one class.
//!
//! ```text
//!  register      state file    more                           class
//!  ─────────────────────────────────────────────────────────────────────────
//!  any           set aside                                    held: marked
//!  absent        any                                          held: quorum data lost
//!  present       being copied                                 syncing
//!  of another life than the file, and not adopted from it     held: quorum data lost
//!  adopted at i  above i, of the life before                  held: local ahead
//!  present       none          journal not vacant             held: needs adoption
//!  0             none          vacant, founder                in sync
//!  present       none          vacant, otherwise              blank
//!  0, -1         0             not the founder, vacant        blank
//!  0, -1         0             not the founder, not vacant    held: needs adoption
//!  i             i                                            in sync
//!  i             below i                                      stale
//!  i             above i                                      held: local ahead
//!  -i            i                                            self-repair
//!  -i            i - 1                                        maybe in sync
//!  -i            below i - 1                                  stale
//!  -i            above i                                      held: local ahead
//! ```

use std::fmt;

use crate::age::Age;
use crate::register::{Incarnation, Register, View};
use crate::rules::{self, Rule};
use crate::standing::{Mark, Own, Standing};

/// What a copy is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// It has everything that was ever confirmed.
    InSync,
    /// The same, and an age that was claimed and never committed is written in its state file.
    SelfRepair,
    /// The same: somebody claimed the next age and confirmed nothing under it.
    MaybeInSync,
    /// Somebody has served alone since; only good to be copied over.
    Stale,
    /// There is nothing here yet, or nothing that counts.
    Blank,
    /// A copy was begun and not ended.
    Syncing,
    /// Nothing is done with it until an operator has decided, or it falls into another class.
    Held(Held),
}

impl Class {
    /// Whether the copy may be served once the lock is held: it has everything that was confirmed.
    pub fn may_serve(self) -> bool {
        matches!(self, Self::InSync | Self::SelfRepair | Self::MaybeInSync)
    }
}

/// Why a copy is held: neither served nor copied over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Held {
    /// It is older than the register says a copy can be: register data was lost, or a value was
    /// forced.
    LocalAhead,
    /// The register does not exist, or belongs to another data set than the copy's age.
    QuorumDataLost,
    /// It has data and no state file.
    NeedsAdoption,
    /// Its state file sets it aside.
    Marked(Mark),
    /// Its state file cannot be read.
    Unreadable,
    /// Its queues could not be loaded.
    Unloadable,
    /// The disk had no room for its queues to be loaded.
    NoRoom,
    /// The active node sent what it never sends.
    Refused,
}

/// Classifies a copy.
pub fn classify(own: &Own, view: &View) -> Class {
    if let Standing::Marked(mark, _) = own.record.standing {
        return Class::Held(Held::Marked(mark));
    }
    let Some(register) = view.register else { return Class::Held(Held::QuorumDataLost) };
    if let Standing::Valid(age) = own.record.standing
        && let Some(held) = lineage(age, own.record.incarnation, view)
        && !rules::broken(Rule::Incarnation)
    {
        return Class::Held(held);
    }
    match own.record.standing {
        Standing::Marked(mark, _) => Class::Held(Held::Marked(mark)),
        Standing::Syncing => Class::Syncing,
        Standing::Empty if !own.vacant => Class::Held(Held::NeedsAdoption),
        Standing::Empty if own.founder && register == Register::Committed(Age::ZERO) => {
            Class::InSync
        }
        Standing::Empty => Class::Blank,
        Standing::Valid(Age::ZERO) if register.age().get() <= 1 && !own.founder => {
            match register {
                // Somebody has served, and not this node.
                Register::Committed(age) if age > Age::ZERO => Class::Stale,
                _ if own.vacant => Class::Blank,
                _ => Class::Held(Held::NeedsAdoption),
            }
        }
        Standing::Valid(age) => compare(age, register),
    }
}

/// Whether an age can be compared with the register at all.
fn lineage(age: Age, incarnation: Option<Incarnation>, view: &View) -> Option<Held> {
    // 0 says nothing, and is written before there is a register.
    let Some(incarnation) = incarnation else {
        return (age > Age::ZERO).then_some(Held::QuorumDataLost);
    };
    if incarnation == view.incarnation {
        return None;
    }
    match view.adopted {
        Some(adopted) if adopted.incarnation == incarnation && age <= adopted.age => None,
        Some(adopted) if adopted.incarnation == incarnation => {
            (!rules::broken(Rule::AheadIsHeld)).then_some(Held::LocalAhead)
        }
        Some(_) | None => Some(Held::QuorumDataLost),
    }
}

fn compare(own: Age, register: Register) -> Class {
    match register {
        Register::Committed(age) if own == age => Class::InSync,
        Register::Committed(age) if own < age => Class::Stale,
        Register::Claimed(age) if own == age => Class::SelfRepair,
        Register::Claimed(age) if own < age && own.next() == age => Class::MaybeInSync,
        Register::Claimed(age) if own < age => Class::Stale,
        Register::Committed(_) | Register::Claimed(_) if rules::broken(Rule::AheadIsHeld) => {
            Class::Stale
        }
        Register::Committed(_) | Register::Claimed(_) => Class::Held(Held::LocalAhead),
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InSync => f.write_str("in sync"),
            Self::SelfRepair => f.write_str("in sync, a claim of its own is open"),
            Self::MaybeInSync => f.write_str("in sync, a claim of another node is open"),
            Self::Stale => f.write_str("stale"),
            Self::Blank => f.write_str("blank"),
            Self::Syncing => f.write_str("incomplete"),
            Self::Held(held) => write!(f, "held: {held}"),
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LocalAhead => f.write_str("the copy is newer than the coordinated sequence"),
            Self::QuorumDataLost => f.write_str("the coordinated sequence was lost"),
            Self::NeedsAdoption => f.write_str("there is data without a state file"),
            Self::Marked(mark) => write!(f, "the copy was set aside: {mark}"),
            Self::Unreadable => f.write_str("the state file is damaged"),
            Self::Unloadable => f.write_str("the queues cannot be loaded"),
            Self::NoRoom => f.write_str("the disk has no room to load the queues"),
            Self::Refused => f.write_str("the active node sent what none sends"),
        }
    }
}

#[cfg(test)]
mod tests;
