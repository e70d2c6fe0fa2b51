//! What operators are told, and when.

use std::fmt;

use crate::age::Age;
use crate::class::{Class, Held};
use crate::register::Register;

/// Something that an operator may want to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Notice {
    /// The copy may be served, and why.
    Candidate(Class, Register),
    /// The copy may not be served: this node becomes passive.
    NotCandidate(Class, Option<Register>),
    /// The copy is held.
    Held(Held, Option<Register>),
    /// The age was raised, and this node serves alone under it.
    Raised(Age, Cause),
    /// A claim, repair or commit was refused: the register held this.
    SwapRefused(Register, Option<Register>),
    /// No answer to a claim, repair or commit: it may have happened.
    SwapUnknown(Register),
    /// The state file could not be written: this node stops, and another one may repair the claim.
    WriteFailed(Age),
    /// The lock's lease has ended.
    LeaseEnded,
    /// The own disk finishes nothing, and that of the replica does.
    Stalled,
    /// The quorum is out of reach, and this node waits for it.
    WaitingForQuorum,
    /// The replica is in sync.
    ReplicaInSync(Age),
    /// The replica is lost; the age is being raised.
    ReplicaLost(Age),
    /// This node is in sync with the active one.
    InSync(Age),
    /// The active node is gone, or has handed over.
    TakingOver(Age),
    /// The preferred node is in sync, and `allow_failback` is off.
    FailbackNotAllowed,
    /// The preferred node was not announced in time: this node goes on.
    FailbackGivenUp,
    /// There is no replica in sync to hand over to.
    CannotStepDown,
    /// The queues could not be loaded.
    LoadFailed,
}

/// What raised the age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The node became active.
    Activation,
    /// A replica was lost, or may have been.
    ReplicaLost,
    /// The journal was given its first age.
    Pairing,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let register = |register: &Option<Register>| {
            register.map_or_else(|| "absent".to_owned(), |register| register.to_string())
        };
        match self {
            Self::Candidate(class, value) => {
                write!(f, "this copy is {class} (coordinated {value}) and may be served")
            }
            Self::NotCandidate(class, value) => {
                write!(
                    f,
                    "this copy is {class} (coordinated {}), so it is not served",
                    register(value)
                )
            }
            Self::Held(held, value) => write!(
                f,
                "this copy is held: {held} (coordinated {}); nothing is done with it until an operator decides",
                register(value)
            ),
            Self::Raised(age, cause) => {
                let cause = match cause {
                    Cause::Activation => "it becomes active",
                    Cause::ReplicaLost => "its replica was lost",
                    Cause::Pairing => "the journal was paired",
                };
                write!(f, "serving alone at sequence {age}: {cause}")
            }
            Self::SwapRefused(to, found) => {
                write!(
                    f,
                    "the coordinated sequence could not become {to}: it is {}",
                    register(found)
                )
            }
            Self::SwapUnknown(to) => {
                write!(f, "nobody answered whether the coordinated sequence has become {to}")
            }
            Self::WriteFailed(age) => write!(
                f,
                "sequence {age} could not be written on this node, which stops; another node in \
                 sync may repair the claim, otherwise an operator must"
            ),
            Self::LeaseEnded => f.write_str("the lock is lost: nothing more is confirmed"),
            Self::Stalled => f.write_str(
                "this node's disk finishes nothing that its replica has finished; the lock goes to that",
            ),
            Self::WaitingForQuorum => f.write_str("waiting for a majority of the cluster"),
            Self::ReplicaInSync(age) => write!(f, "the replica is in sync at sequence {age}"),
            Self::ReplicaLost(age) => {
                write!(f, "the replica is lost at sequence {age}; confirms wait for the next one")
            }
            Self::InSync(age) => write!(f, "in sync with the active node at sequence {age}"),
            Self::TakingOver(age) => {
                write!(f, "the active node is gone; trying to serve sequence {age}")
            }
            Self::FailbackNotAllowed => {
                f.write_str("the preferred node is in sync, and failback is not allowed")
            }
            Self::FailbackGivenUp => {
                f.write_str("the preferred node was not announced in time; it stays the replica")
            }
            Self::CannotStepDown => f.write_str("there is no replica in sync to hand over to"),
            Self::LoadFailed => f.write_str("the queues cannot be loaded; the lock was given back"),
        }
    }
}
