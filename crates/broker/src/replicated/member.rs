//! A shard's queue as its Raft group's host sees it: whatever comes is posted to the shard.

use std::sync::Arc;

use bytes::Bytes;
use model::id::{NodeId, QueueId, Seq, StreamId};
use parking_lot::Mutex;
use quorum::member::{Body, BodyPlace, Committed, Member, Role};
use quorum::records::Records;
use tokio::sync::oneshot;

use crate::replicated::containers::Containers;
use crate::replicated::queue::Input;
use crate::replicated::replica::body_name;
use crate::replicated::replica::checkpoint::named_records;
use crate::shard::command::{Batch, Command};
use crate::shards::Shards;

/// See the module head.
#[derive(Debug)]
pub(crate) struct QueueMember {
    queue: QueueId,
    /// Tells it from other members that the node has had.
    stream: StreamId,
    shards: Arc<Shards>,
    /// Shared with the replica in the shard.
    containers: Arc<Mutex<Containers>>,
}

impl QueueMember {
    /// The member of a queue.
    pub(crate) fn new(
        queue: QueueId,
        stream: StreamId,
        shards: Arc<Shards>,
        containers: Arc<Mutex<Containers>>,
    ) -> Self {
        Self { queue, stream, shards, containers }
    }

    fn post(&self, input: Input) {
        let (queue, stream) = (self.queue, self.stream);
        self.shards.post(queue, Batch::one(Command::Raft { queue, stream, input }));
    }
}

impl Member for QueueMember {
    fn opened(&self, records: Records) {
        self.post(Input::Started(records));
    }

    fn committed(&self, entries: Vec<Committed>) {
        self.post(Input::Committed(entries));
    }

    fn role(&self, role: Role) {
        self.post(Input::Role(role));
    }

    fn checkpoint(&self, answer: oneshot::Sender<Bytes>) {
        self.post(Input::Checkpoint(answer));
    }

    fn install(&self, _index: u64, state: Bytes, bodies: Vec<Body>, done: oneshot::Sender<()>) {
        self.post(Input::Install { state, records: bodies, done });
    }

    fn body_bytes(&self) -> u64 {
        self.containers.lock().body_bytes()
    }

    fn export(&self, state: &Bytes) -> Vec<(u64, BodyPlace)> {
        // All that is alive now: what died since the checkpoint is settled by entries behind it, and
        // what came since comes with them.
        let named = named_records(state);
        let containers = self.containers.lock();
        let is_named = |first: &Seq| named.contains(first);
        let records = containers.records().filter(|(first, _)| is_named(first));
        let whole = records.map(|(first, record)| {
            (
                body_name(first, true),
                BodyPlace::Record { position: record.position, offset: 0, length: u32::MAX },
            )
        });
        let alone = containers.loners().map(|(seq, position)| {
            (body_name(seq, false), BodyPlace::Record { position, offset: 0, length: u32::MAX })
        });
        whole.chain(alone).collect()
    }

    fn purged(&self, upto: u64) {
        self.post(Input::Purged(upto));
    }

    fn members(&self, voters: Vec<NodeId>, learners: Vec<NodeId>) {
        self.post(Input::Members { voters, learners });
    }

    fn failed(&self, error: String) {
        self.post(Input::Failed(error));
    }
}
