//! What the machine is told.

use crate::age::Age;
use crate::register::{Incarnation, Register, Token, View};
use crate::standing::Record;

/// What happened. The driver gives events one at a time, and performs all outputs of one before it
/// gives the next.
///
/// Answers of the register service: each request supersedes the one before it, whose answer must
/// not be given any more. A request that was superseded, or whose answer was lost, may still take
/// effect at the service at any later time.
///
/// Writes of the state file are never superseded: each is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// Begin. Once, or again after [`Event::Stop`].
    Start,
    /// The node stops or the journal is taken from it: end in order. Never hangs on the quorum.
    Stop,
    /// Hand the journal to the replica, if one is in sync: an operator's order, or a drain.
    StepDown {
        /// Take part again afterwards, as a replica of the successor.
        stay: bool,
    },
    /// Give a journal that was served on its own a register and an age, while it is served.
    Pair,

    /// Answer to [`crate::output::Output::Read`].
    Read(View),
    /// Answer to [`crate::output::Output::Acquire`]: the lock is this node's.
    Acquired(Token),
    /// Answer to [`crate::output::Output::Acquire`]: somebody else has it.
    Busy,
    /// Answer to [`crate::output::Output::Swap`]: done.
    Swapped {
        /// What the register was set to.
        to: Register,
    },
    /// Answer to [`crate::output::Output::Swap`]: the register had another value, or the token is
    /// no longer the lock's. Nothing was changed.
    Refused {
        /// What the register should have been set to.
        to: Register,
        /// What it holds.
        found: Option<Register>,
    },
    /// Answer to [`crate::output::Output::CreateRegister`]: it exists, in this data set, and this
    /// node is its founder.
    Created(Incarnation),
    /// Answer to any request to the service: there is none. What was asked may have been done, or
    /// may be done later.
    Unavailable,
    /// The lock is lost or can no longer be relied upon: its lease ended by the own clock, or the
    /// service said so.
    LeaseEnded,
    /// The own disk does not finish what a replica in sync has had on its disk for a long time. The
    /// driver renews the lock no more.
    Stalled,
    /// A replica that is in sync can no longer reach the quorum.
    QuorumLost,

    /// Answer to [`crate::output::Output::Write`]: it is durable, file and folder.
    Written(Record),
    /// A write or sync on this node has failed.
    WriteFailed,
    /// The state file cannot be read, or its checksum is wrong.
    Unreadable,

    /// Answer to [`crate::output::Output::Load`].
    Loaded,
    /// Answer to [`crate::output::Output::Load`]: damage that the journal cannot tolerate.
    LoadFailed,
    /// Answer to [`crate::output::Output::Load`]: the disk has no room, and may have some later.
    NoRoom,
    /// Answer to [`crate::output::Output::Close`]: no queue of the journal is open any more, and no
    /// confirm can leave.
    Closed,

    /// Active side: a node asks to become the replica.
    Registration {
        /// It is the node that the journal prefers.
        preferred: bool,
    },
    /// Active side: all that was there has been sent; from here on only the live stream follows.
    CopySent,
    /// Active side: the replica has written its age; it answers every operation that was sent.
    ReplicaInSync,
    /// Active side: the replica's connection is gone, it is too slow, or an operator removed it.
    /// The connection is closed and none of its answers count any more.
    ReplicaLost,
    /// Active side: the replica is known to the cluster as the journal's backup.
    BackupAnnounced,

    /// Replica's side: an active node accepted the registration.
    Accepted,
    /// Replica's side: the registration was not accepted, or nobody was found.
    NotAccepted,
    /// Replica's side: the copy is whole, and **everything received is durable**.
    SyncDone {
        /// The age of the active node.
        age: Age,
    },
    /// Replica's side: the active node has begun to stop.
    StopCalled,
    /// Replica's side: the active node has stopped serving and released the lock.
    HandedOver,
    /// Replica's side: the connection to the active node is gone.
    ActiveLost,

    /// A timer that [`crate::output::Output::Arm`] started has run out.
    Timer(Timer),
}

/// The timers. Arming one again starts it anew; one that runs out when nobody waits for it is
/// ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// Until the lock, the register or a successor is asked for again.
    Retry,
    /// Until a node that found no active one looks at the register again.
    Seek,
    /// Until a held copy is looked at again.
    Recheck,
    /// Until a replica that was told of a stop takes over without another word.
    Takeover,
    /// Until a failback is given up because the replica was not announced.
    Announcement,
    /// Until a node that handed over competes again.
    Successor,
}

impl Timer {
    /// The default length in milliseconds.
    pub const fn default_ms(self) -> u64 {
        match self {
            Self::Retry => 200,
            Self::Seek => 2000,
            Self::Recheck => 3000,
            Self::Takeover | Self::Announcement => 60_000,
            Self::Successor => 4000,
        }
    }
}
