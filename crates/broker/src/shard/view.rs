//! What a shard shows of its queues.

use amq_protocol_types::FieldTable;
use amqp::request::ChannelId;
use model::id::{ConnectionId, ConsumerId, NodeId, QueueId};

use crate::totals::Counters;

/// One queue, now.
#[derive(Debug, Clone)]
pub(crate) struct QueueView {
    pub(crate) id: QueueId,
    pub(crate) ready: u64,
    pub(crate) unsettled: u64,
    pub(crate) ready_bytes: u64,
    pub(crate) unsettled_bytes: u64,
    /// Of a quorum queue: messages that came back and wait, and their bytes.
    pub(crate) delayed: u64,
    pub(crate) delayed_bytes: u64,
    /// Messages that are dead and stay until their targets have them.
    pub(crate) dead: u64,
    pub(crate) dead_bytes: u64,
    /// Messages whose bodies are in memory, and the bytes of these.
    pub(crate) in_memory: u64,
    pub(crate) in_memory_bytes: u64,
    pub(crate) persistent: u64,
    pub(crate) consumers: Vec<ConsumerView>,
    pub(crate) active: Option<ConsumerId>,
    /// Of a quorum queue: the term in which this node leads it, if it does.
    pub(crate) term: Option<u64>,
    /// Of a quorum queue: its members with and without a vote.
    pub(crate) voters: Vec<NodeId>,
    pub(crate) learners: Vec<NodeId>,
    pub(crate) counters: Counters,
    /// When it last did anything, in milliseconds since the Unix epoch.
    pub(crate) used_at: u64,
}

impl QueueView {
    /// A queue that nothing is known of.
    pub(crate) fn empty(id: QueueId) -> Self {
        Self {
            id,
            ready: 0,
            unsettled: 0,
            ready_bytes: 0,
            unsettled_bytes: 0,
            delayed: 0,
            delayed_bytes: 0,
            dead: 0,
            dead_bytes: 0,
            in_memory: 0,
            in_memory_bytes: 0,
            persistent: 0,
            consumers: Vec::new(),
            active: None,
            term: None,
            voters: Vec::new(),
            learners: Vec::new(),
            counters: Counters::default(),
            used_at: 0,
        }
    }
}

/// One consumer, now.
#[derive(Debug, Clone)]
pub(crate) struct ConsumerView {
    pub(crate) id: ConsumerId,
    pub(crate) connection: ConnectionId,
    pub(crate) channel: ChannelId,
    pub(crate) tag: String,
    pub(crate) no_ack: bool,
    pub(crate) exclusive: bool,
    pub(crate) prefetch: u16,
    pub(crate) arguments: FieldTable,
    pub(crate) user: std::sync::Arc<str>,
    /// Its time-out in milliseconds, if it has one.
    pub(crate) timeout: Option<u64>,
}

/// A whole shard, now.
#[derive(Debug, Clone)]
pub(crate) struct ShardView {
    pub(crate) queues: Vec<QueueView>,
}
