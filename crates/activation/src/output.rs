//! What the machine wants done.

use crate::age::Age;
use crate::event::Timer;
use crate::gate::Gate;
use crate::notice::Notice;
use crate::register::{Incarnation, Register, Token};
use crate::standing::Record;

/// What the driver owes, in the order in which it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Output {
    /// Read the register. Answered by [`crate::event::Event::Read`] or `Unavailable`.
    Read {
        /// It must not be older than the moment at which the request was made.
        linearizable: bool,
    },
    /// Try once to take the lock, without waiting for it; renew it from then on until it is
    /// released or lost. Answered by `Acquired`, `Busy` or `Unavailable`.
    Acquire,
    /// Give the lock back. Not answered; a failure does no harm, the lease ends by itself.
    Release(Token),
    /// Compare and set the register under the lock's token, in one step of the service. Answered
    /// by `Swapped`, `Refused` or `Unavailable`. Never sent again by the driver.
    Swap {
        /// What it must hold.
        from: Register,
        /// What it shall hold.
        to: Register,
        /// The life of the register that is meant.
        incarnation: Incarnation,
        /// The grant that allows it.
        token: Token,
    },
    /// Create the register at 0 with this node as its founder; nothing if that is so already.
    /// Answered by `Created` or `Unavailable`.
    CreateRegister,
    /// Replace the state file: durable, file and folder, before it is answered by `Written`.
    Write(Record),
    /// Recover the journal and load its queues, without serving them. Answered by `Loaded`,
    /// `LoadFailed` or `NoRoom`.
    Load,
    /// Close the queues, or give up loading them; forget held confirms without an answer. Answered
    /// by `Closed`.
    Close,
    /// What may be confirmed changes (see [`crate::machine::Machine::gate`]).
    Gate(Gate),
    /// The queues are open to clients.
    Serve,

    /// Active side: accept the node that asked, and begin to send the copy and the live stream.
    Accept,
    /// Active side: answer the node that asked that this is not the time.
    Decline,
    /// Active side: tell the replica that its copy is whole, with the age.
    SendSyncDone(Age),
    /// Active side: close the replica's connection.
    DropReplica,
    /// Active side: tell the replica that this node has begun to stop.
    SendStopCalled,
    /// Active side: tell the replica that nothing follows and that the lock is being released.
    SendHandOver,

    /// Replica's side: look for an active node and register with it. Answered by `Accepted` or
    /// `NotAccepted`.
    Seek,
    /// Replica's side: put the old copy aside and receive the new one.
    Copy,
    /// Replica's side: tell the active node that the age is durable here.
    SendInSync,
    /// Replica's side: close the connection to the active node, or stop looking for one.
    Leave,

    /// Start a timer.
    Arm(Timer),
    /// Say it: log, metrics, health.
    Tell(Notice),
    /// A write on this node has failed: the node stops, as after every failed write.
    Fail,
}
