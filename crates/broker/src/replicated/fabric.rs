//! What shards need of the cluster: ways to other nodes, and the Raft groups of this one.

use std::fmt;
use std::sync::Arc;

use activation::file::JournalUid;
use bytes::Bytes;
use metadata::objects::member::Stage;
use model::id::{NodeId, QueueId, Seq, StreamId};
use model::time::Millis;
use quorum::group::GroupId;
use quorum::member::Member;

use crate::replicated::client::Leader;
use crate::replicated::loan::Lent;
use crate::replicated::notice::Notice;
use crate::replicated::numbered::Sender;

/// See the module head. Nothing here waits.
pub(crate) trait Fabric: fmt::Debug + Send + Sync + 'static {
    /// This start of this node.
    fn me(&self) -> Sender;

    /// Which start of a node is connected; of this node itself, this one.
    fn start_of(&self, node: NodeId) -> Option<Sender>;

    /// The newest version of the queue machine that a connected node knows.
    fn knows(&self, node: NodeId) -> Option<u8>;

    /// This node's member of a queue cannot go on: its group ends here until the next start.
    fn halt(&self, _queue: QueueId) {}

    /// How long a silent node's consumers keep what they hold.
    fn patience(&self) -> Millis;

    /// Sends a batch of orders to the node that leads a queue. If it cannot be reached the batch is
    /// lost, and the shards hear that the node is.
    fn orders(&self, to: NodeId, queue: QueueId, batch: Bytes);

    /// Orders for a queue of a journal, if that is open on this node.
    fn keep(&self, _journal: JournalUid, _queue: QueueId, _batch: Bytes) {}

    /// Asks the member on a node for bodies; the answer comes as `Lent`, or never.
    fn borrow_bodies(&self, _from: NodeId, _queue: QueueId, _seqs: Vec<Seq>) {}

    /// Answers that.
    fn lend_bodies(&self, _to: NodeId, _queue: QueueId, _bodies: Vec<(Seq, Lent)>) {}

    /// Sends what a leader tells a node.
    fn notice(&self, to: NodeId, notice: &Notice);

    /// Proposes an entry; `false`: this node does not lead the group.
    fn propose(&self, queue: QueueId, entry: Bytes) -> bool;

    /// Somebody here waits for a leader of a queue.
    fn want(&self, _queue: QueueId) {}

    /// Tells all other nodes, and those that come later, that this one leads a queue.
    fn announce(&self, queue: QueueId, leader: Leader);

    /// Who was last heard to lead a queue: what was told before this node knew the queue.
    fn leader_of(&self, _queue: QueueId) -> Option<Leader> {
        None
    }

    /// Starts this node's member of a queue's group, after what was asked for this queue before.
    fn start(&self, queue: QueueId, member: Arc<dyn Member>, berth: Berth);

    /// The members know each other by another number; `alone`: and this node's has to go on as the
    /// only one.
    fn move_to(&self, queue: QueueId, group: GroupId, alone: bool);

    /// A queue is gone.
    fn forget(&self, _queue: QueueId) {}

    /// Ends this node's member for good; what the journal has in its stream is dropped.
    fn delete(&self, queue: QueueId, stream: StreamId);
}

/// How a member starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Berth {
    /// Where its records are.
    pub(crate) stream: StreamId,
    /// How far it has come: who has been a member already must not start without data.
    pub(crate) stage: Stage,
    /// By which number the members know each other.
    pub(crate) group: GroupId,
    /// If the group has never been founded, the first of them who is there does it.
    pub(crate) founders: Vec<NodeId>,
}
