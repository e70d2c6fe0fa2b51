//! What shards need of the cluster: ways to other nodes, and the Raft groups of this one.

use std::fmt;
use std::sync::Arc;

use activation::file::JournalUid;
use bytes::Bytes;
use metadata::objects::member::Stage;
use model::id::{NodeId, QueueId, Seq, StreamId};
use model::time::Millis;
use quorum::founding::Founding;
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

    /// Whether a node says that its disk has no room.
    fn has_no_room(&self, _node: NodeId) -> bool {
        false
    }

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

impl Berth {
    /// How the group begins, if the journal has no trace of it; `start_of` tells which start of a node
    /// is connected, or is this one.
    pub(crate) fn founding(&self, start_of: impl Fn(NodeId) -> Option<Sender>) -> Founding {
        let first = self.founders.first();
        let leads = |by: &Sender| first == Some(&by.node) && start_of(by.node) == Some(*by);
        Founding { members: self.founders.clone(), is_led: self.led_by.as_ref().is_some_and(leads) }
    }
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
    /// The members with which the group begins, if the journal has no trace of it.
    pub(crate) founders: Vec<NodeId>,
    /// Which start of a node leads it from the beginning, if it begins now.
    pub(crate) led_by: Option<Sender>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Sender = Sender { node: NodeId(1), boot: 4 };

    fn is_led(led_by: Option<Sender>, there: Option<Sender>) -> bool {
        let (stream, group, stage) = (StreamId(9), GroupId(9), Stage::Founding);
        let founders = vec![NodeId(1), NodeId(2)];
        let berth = Berth { stream, stage, group, founders, led_by };
        let founding = berth.founding(|node| there.filter(|start| start.node == node));
        assert_eq!(founding.members, [NodeId(1), NodeId(2)]);
        founding.is_led
    }

    #[test]
    fn only_the_start_that_was_there_leads_from_the_beginning() {
        assert!(is_led(Some(FIRST), Some(FIRST)));
        assert!(!is_led(Some(FIRST), Some(Sender { boot: 5, ..FIRST })), "a later one");
        assert!(!is_led(Some(FIRST), None), "it is not connected");
        assert!(!is_led(None, Some(FIRST)), "it was declared some time ago");
        let second = Sender { node: NodeId(2), ..FIRST };
        assert!(!is_led(Some(second), Some(second)), "another one is the first");
    }
}
