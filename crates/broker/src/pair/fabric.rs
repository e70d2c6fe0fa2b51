//! The cluster as the shard of a pair sees it: it is the leader of its journal's queues, in the term
//! that the metadata has given it, and says nothing any more when its lease has ended.

use std::sync::Arc;

use bytes::Bytes;
use model::id::{NodeId, QueueId, StreamId};
use model::time::Millis;
use quorum::group::GroupId;
use quorum::member::Member;

use crate::pair::clock;
use crate::pair::hold::Hold;
use crate::replicated::client::Leader;
use crate::replicated::fabric::{Berth, Fabric};
use crate::replicated::notice::Notice;
use crate::replicated::numbered::Sender;
use crate::shard::command::{Batch, Command};
use crate::shards::Shards;

/// See the module head.
#[derive(Debug)]
pub(crate) struct PairFabric {
    pub(crate) fabric: Arc<dyn Fabric>,
    pub(crate) shards: Arc<Shards>,
    pub(crate) hold: Arc<Hold>,
    /// Notices carry it in the place of a start of the node.
    pub(crate) term: u64,
}

impl Fabric for PairFabric {
    fn me(&self) -> Sender {
        Sender { boot: self.term, ..self.fabric.me() }
    }

    fn start_of(&self, node: NodeId) -> Option<Sender> {
        self.fabric.start_of(node)
    }

    fn knows(&self, node: NodeId) -> Option<u8> {
        self.fabric.knows(node)
    }

    fn has_no_room(&self, node: NodeId) -> bool {
        self.fabric.has_no_room(node)
    }

    fn patience(&self) -> Millis {
        self.fabric.patience()
    }

    fn orders(&self, to: NodeId, queue: QueueId, batch: Bytes) {
        self.fabric.orders(to, queue, batch);
    }

    /// Confirms and deliveries leave here, so this is where the lease is looked at.
    fn notice(&self, to: NodeId, notice: &Notice) {
        if !self.hold.is_usable(clock::now()) {
            return;
        }
        #[cfg(test)]
        crate::pair::sim::eye::spoke();
        if to == self.fabric.me().node {
            let command = Command::Notice(Box::new(notice.clone()));
            self.shards.post(notice.queue, Batch::one(command));
        } else {
            self.fabric.notice(to, notice);
        }
    }

    fn propose(&self, queue: QueueId, entry: Bytes) -> bool {
        self.fabric.propose(queue, entry)
    }

    fn announce(&self, queue: QueueId, leader: Leader) {
        self.fabric.announce(queue, leader);
    }

    fn start(&self, queue: QueueId, member: Arc<dyn Member>, berth: Berth) {
        self.fabric.start(queue, member, berth);
    }

    fn move_to(&self, queue: QueueId, group: GroupId, alone: bool) {
        self.fabric.move_to(queue, group, alone);
    }

    fn delete(&self, queue: QueueId, stream: StreamId) {
        self.fabric.delete(queue, stream);
    }
}
