//! What a node hears of its peers.

use crate::answer::Answer;
use crate::identity::Identity;
use crate::refusal::Refusal;
use bytes::Bytes;
use model::id::NodeId;
use std::fmt;

/// The node, as its links see it.
///
/// Calls that concern one peer come one after the other, in order: `up`, then what it sends, then
/// `down`. Calls that concern different peers come at the same time. Each must return at once: while
/// it runs, nothing is read from or written to that peer, and no ping is answered. They may call
/// everything of [`Links`](crate::links::Links) that does not wait.
pub trait Handler: Send + Sync + 'static {
    /// A node wants to be a peer. Asked once its proof is good: for names that were configured and
    /// for others, who come in this way.
    ///
    /// # Errors
    /// Why it may not: it is told so, and both sides log it.
    fn admit(&self, _peer: &Identity) -> Result<(), Refusal> {
        Ok(())
    }

    /// A node that this one has dialled does not want it. Told at every try, and it is tried again.
    fn refused(&self, _peer: &str, _refusal: &Refusal) {}

    /// A peer can be reached and reaches this node. Never twice without a `down` between.
    fn up(&self, peer: &Identity);

    /// It is so no longer. What was sent and not answered may have arrived or not.
    fn down(&self, peer: &Identity, why: Loss);

    /// A peer that was lost as [`Loss::Gone`] or [`Loss::Silent`] has come to its end: nothing listens
    /// at its address any more, another incarnation or a later start of it has connected, or it was
    /// removed. Told once at most, between its `down` and the next `up`.
    fn ended(&self, _peer: &Identity) {}

    /// Messages of one channel, in the order in which they were sent: all that one read has brought.
    /// The list is emptied afterwards. A payload is a slice of a read buffer (some 64 KiB): who keeps
    /// a small one for long copies it.
    fn messages(&self, from: NodeId, channel: u8, messages: &mut Vec<Bytes>);

    /// A request, in order with the messages of its channel. The answer may be sent from anywhere
    /// and at any time.
    fn request(&self, from: NodeId, channel: u8, payload: Bytes, answer: Answer);

    /// A task of the links has failed by a defect: the peer that it served is not served any more. It is in the log already.
    fn failed(&self, _error: String) {}
}

/// Why a peer is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loss {
    /// A connection broke, and nothing listens at the peer's address: its process is dead.
    Refused,
    /// A connection broke, and it could not be made again.
    Gone,
    /// Nothing was heard of it for the silence timeout.
    Silent,
    /// A connection broke and stands again, to the same process: only what was under way is lost.
    /// `up` follows at once.
    Reset,
    /// Another incarnation or a later start of it has connected. Its `up` follows.
    Restarted,
    /// It was removed from the peers.
    Removed,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "connection lost, and nothing listens there any more",
            Self::Gone => "connection lost, and it cannot be reached",
            Self::Silent => "silent",
            Self::Reset => "connection broken for a moment",
            Self::Restarted => "started anew",
            Self::Removed => "removed",
        })
    }
}
