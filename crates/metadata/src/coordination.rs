//! The cluster's locks and registers: what nodes ask, and how they are answered.
//!
//! ```text
//!   lock       Acquire ─► granted: a token higher than any before ─► Renew … ─► Release
//!                                                                    └─ silence ─► Expire
//!   register   Create ─► 0 ─► CompareAndSet, under the token of the lock of the same id
//! ```
//!
//! There is no time in here. A grant lasts for a lease; the *leader* counts it, on its own clock that
//! never goes back, from the moment at which it applied the last renewal or became leader,
//! whichever is later, and then commits `Expire` for the grant and the number of renewals that it
//! saw. A renewal that comes first makes that command void. The holder counts from before it sent
//! the renewal and stops a tenth early, so that it has stopped when the grant ends.
//!
//! A lock and a register of one id are independent objects; only `CompareAndSet` and `Force` look
//! at both.
//!
//! Reads that decide something must be linearizable: applied up to an index that was committed when
//! the read was asked for.

use serde::{Deserialize, Serialize};

use crate::objects::Name;

/// A change of a lock or a register.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Coordination {
    /// Take a lock if nobody has it. Repeated with the same attempt it answers the same.
    Acquire {
        /// Which lock; it comes to be with its first grant.
        id: Name,
        /// The incarnation of the node that asks.
        node: u64,
        /// Which start of it.
        boot: u64,
        /// A number that this start uses once.
        attempt: u64,
        /// How long the grant shall last after each renewal.
        lease_ms: u64,
    },
    /// The holder is there.
    Renew {
        /// Which lock.
        id: Name,
        /// Its grant.
        token: u64,
    },
    /// The holder has ended.
    Release {
        /// Which lock.
        id: Name,
        /// Its grant.
        token: u64,
    },
    /// The lease of a grant has run out; proposed by the leader alone.
    Expire {
        /// Which lock.
        id: Name,
        /// The grant.
        token: u64,
        /// The renewals that the leader had applied when it began to count.
        renewals: u64,
    },
    /// Make a register that holds 0. Repeated by the founder with the same incarnation it answers
    /// the same, as long as the register is in that life.
    Create {
        /// Its id.
        id: Name,
        /// The incarnation of its founder.
        founder: u64,
        /// Names this life; drawn at random by who asks.
        incarnation: u64,
    },
    /// Change a register if it holds what is expected, in this life, under the grant of the lock of
    /// the same id.
    CompareAndSet {
        /// Its id.
        id: Name,
        /// The life that the caller means.
        incarnation: u64,
        /// What it must hold.
        expected: i64,
        /// What it shall hold.
        new: i64,
        /// The grant.
        token: u64,
    },
    /// An operator sets a register, and begins a new life of it. Not while the lock is held, nor if it
    /// is another one by then than what was weighed up.
    Force {
        /// Its id; an absent one comes to be.
        id: Name,
        /// What it held and in which life, when the operator was told what may be lost; `None`: it was
        /// absent.
        seen: Option<(i64, u64)>,
        /// What it shall hold.
        value: i64,
        /// Names the new life.
        incarnation: u64,
        /// The life of the copies that it goes on from.
        adopts: u64,
        /// The incarnation of the founder, if the register is absent.
        founder: u64,
    },
    /// Remove a register and the lock of the same id, whatever they hold. Grants are not given twice
    /// all the same.
    Remove {
        /// Their id.
        id: Name,
    },
    /// The data set is another one from now on: it was recovered from one node. All locks are free
    /// and all registers count as absent until they are forced.
    NewDataSet {
        /// Names it.
        incarnation: u64,
    },
}

/// How a change was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The lock is the caller's, by this grant.
    Granted {
        /// The grant.
        token: u64,
    },
    /// Another node, another start or another attempt has it.
    Busy {
        /// The incarnation of the node.
        node: u64,
    },
    /// It was renewed, released or has expired.
    Done,
    /// The grant is not in force any more.
    NotHeld,
    /// A renewal came first.
    Renewed,
    /// The register holds what was asked for.
    Set {
        /// Its life.
        incarnation: u64,
    },
    /// The register was not changed.
    NotSet {
        /// What it holds; `None`: it is absent.
        found: Option<i64>,
        /// Why not.
        why: NotSet,
    },
}

/// Why a register was not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotSet {
    /// There is none, or it belongs to another data set.
    Absent,
    /// It holds something else.
    Different,
    /// It is in another life.
    OtherLife,
    /// The grant is not that of the lock.
    Fenced,
    /// The lock is held.
    Locked,
}

/// What a read answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading<'s> {
    /// The register, if it is there and of this data set.
    pub register: Option<&'s crate::objects::register::Register>,
    /// The grant by which somebody has the lock of the same id.
    pub holder: Option<u64>,
    /// The data set.
    pub data_set: u64,
}

#[cfg(test)]
mod tests;
