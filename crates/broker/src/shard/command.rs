//! What a shard can be asked for.

use std::sync::Arc;

use amqp::request::{ChannelId, Flow, Outcome, Unsettled};
use bytes::Bytes;
use model::id::{ConnectionId, ConsumerId, NodeId, QueueId, Seq, StreamId};
use model::message::Message;
use model::time::Millis;
use tokio::sync::oneshot;

use crate::origin::{Group, Origin};
use crate::pair::backfill::Survey;
use crate::replicated::client::Leader;
use crate::replicated::loan::Lent;
use crate::replicated::notice::Notice;
use crate::replicated::numbered::Sender;
use crate::replicated::queue::Input;
use crate::replicated::replica::peek::Peek;
use crate::shard::profile::Profile;
use crate::shard::view::{QueueView, ShardView};

/// What somebody posts at once. The shard performs it in order.
#[derive(Debug)]
pub(crate) struct Batch {
    /// The connection, if it is one; publishes without a group are confirmed to it.
    pub(crate) origin: Option<Arc<Origin>>,
    /// Bytes of publishes, counted in flight at the origin until they are safe.
    pub(crate) bytes: usize,
    pub(crate) commands: Vec<Command>,
}

impl Batch {
    /// A batch of one command that nobody counts.
    pub(crate) fn one(command: Command) -> Self {
        Self { origin: None, bytes: 0, commands: vec![command] }
    }
}

/// See the module head.
#[derive(Debug)]
pub(crate) enum Command {
    /// A message for one queue.
    Publish(Arrival),
    /// Messages that a session held. All of one queue, in the order of their delivery.
    Settle { queue: QueueId, unsettled: Vec<Unsettled>, outcome: Settlement },
    /// Deliveries to a consumer have reached its socket.
    Sent { queue: QueueId, consumer: ConsumerId, messages: u32, bytes: u64 },
    /// A consumer gets only what is granted from now on (one limit for its whole channel).
    Limit { queue: QueueId, consumer: ConsumerId },
    /// A consumer may take more (one limit for its whole channel).
    Grant { queue: QueueId, consumer: ConsumerId, count: u32 },
    /// A consumer's channel is closing: it gets nothing more.
    End { queue: QueueId, consumer: ConsumerId },
    /// A consumer is gone with its channel; what it held comes back.
    Gone { queue: QueueId, consumer: ConsumerId },
    /// A connection has ended without a word: its consumers end, and what it held comes back. Goes
    /// to every shard.
    ConnectionGone { connection: ConnectionId },
    /// A subscription.
    Consume(Box<Consume>),
    /// The end of one; answered by whether the queue has to be deleted now with its last consumer.
    Cancel { queue: QueueId, consumer: ConsumerId, answer: oneshot::Sender<bool> },
    /// The end of one that its client has not asked for: it may no longer read the queue.
    Revoke { queue: QueueId, consumer: ConsumerId },
    /// `basic.get`.
    Get { queue: QueueId, connection: ConnectionId, no_ack: bool, answer: oneshot::Sender<Got> },
    /// Removes ready messages.
    Purge { queue: QueueId, answer: oneshot::Sender<Option<u64>> },
    /// A new queue.
    Create(Box<Profile>),
    /// A quorum queue that is known from before the start.
    Open(Box<Profile>),
    /// Its policies or its dead-letter target changed.
    Configure(Box<Profile>),
    /// Asks whether the queue may be deleted, and if so stops it: from then on it takes nothing.
    Delete { queue: QueueId, if_unused: bool, if_empty: bool, answer: oneshot::Sender<Deleted> },
    /// The queue is gone from the topology: forget it. (Quorum queues; a classic one is deleted.)
    Remove { queue: QueueId },
    /// It was declared again: it is not idle.
    Touch { queue: QueueId },
    /// Counts for declare-ok.
    Count { queue: QueueId, answer: oneshot::Sender<Option<Counts>> },
    /// Bodies that were read back.
    Read { queue: QueueId, bodies: Vec<(Seq, Option<Bytes>)> },
    /// Bodies of a quorum queue that were read back; `carry`: to get records of their own.
    Bodies { queue: QueueId, stream: StreamId, bodies: Vec<(Seq, Option<Message>)>, carry: bool },
    /// The leader of a quorum queue wants bodies of this node's member.
    Lend { queue: QueueId, to: NodeId, seqs: Vec<Seq> },
    /// A member of a quorum queue has answered that.
    Lent { queue: QueueId, from: NodeId, bodies: Vec<(Seq, Lent)> },
    /// The host of a quorum queue's group has something for its member here, the one with that
    /// stream.
    Raft { queue: QueueId, stream: StreamId, input: Input },
    /// Another node's orders for a queue that this node leads or keeps.
    Orders { queue: QueueId, batch: Bytes },
    /// The leader or keeper of a queue tells something.
    Notice(Box<Notice>),
    /// A node says that it leads a quorum queue.
    Leads { queue: QueueId, leader: Leader },
    /// A node is connected. Goes to every shard.
    Up { node: Sender },
    /// A node is lost: what it led has no leader. Goes to every shard.
    Lost { node: NodeId },
    /// A node is lost for too long: its consumers are gone. Goes to every shard.
    LostForLong { node: NodeId },
    /// A dead-lettered message has reached its targets, or was refused by some of them.
    DeadLettered { queue: QueueId, seq: Seq, accepted: bool },
    /// A queue of a journal that is served here, new or known already.
    Keep(Box<Profile>),
    /// A look at the stored messages of a queue from a position on, at the end of a turn.
    Survey { queue: QueueId, from: Seq, most: usize, then: Surveyed },
    /// A look at one message of a quorum queue that this node leads.
    Peek { queue: QueueId, peek: Peek },
    /// A look at one queue.
    View { queue: QueueId, answer: oneshot::Sender<Option<QueueView>> },
    /// A look at everything, `copies` of queues that others lead included if wanted.
    ViewAll { copies: bool, answer: oneshot::Sender<ShardView> },
    /// Stop after this; everything that was handed to the journal stays handed.
    /// The answer: up to which message each queue may have handed out.
    Stop { answer: oneshot::Sender<Vec<(QueueId, Seq)>> },
}

/// Takes what a look at a queue has found, within the turn of its shard.
pub(crate) struct Surveyed(pub(crate) Box<dyn FnOnce(Survey) + Send>);

impl std::fmt::Debug for Surveyed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Surveyed")
    }
}

impl Command {
    /// The one queue that it is for, if it is for one.
    pub(crate) fn queue(&self) -> Option<QueueId> {
        match self {
            Self::Publish(arrival) => Some(arrival.queue),
            Self::Consume(consume) => Some(consume.queue),
            Self::Create(profile)
            | Self::Open(profile)
            | Self::Keep(profile)
            | Self::Configure(profile) => Some(profile.id),
            Self::Notice(notice) => Some(notice.queue),
            Self::Settle { queue, .. }
            | Self::Sent { queue, .. }
            | Self::Limit { queue, .. }
            | Self::Grant { queue, .. }
            | Self::End { queue, .. }
            | Self::Gone { queue, .. }
            | Self::Cancel { queue, .. }
            | Self::Revoke { queue, .. }
            | Self::Get { queue, .. }
            | Self::Purge { queue, .. }
            | Self::Delete { queue, .. }
            | Self::Remove { queue }
            | Self::Touch { queue }
            | Self::Count { queue, .. }
            | Self::Read { queue, .. }
            | Self::Bodies { queue, .. }
            | Self::Lend { queue, .. }
            | Self::Lent { queue, .. }
            | Self::Raft { queue, .. }
            | Self::Orders { queue, .. }
            | Self::Leads { queue, .. }
            | Self::Survey { queue, .. }
            | Self::DeadLettered { queue, .. }
            | Self::Peek { queue, .. }
            | Self::View { queue, .. } => Some(*queue),
            Self::ConnectionGone { .. }
            | Self::Up { .. }
            | Self::Lost { .. }
            | Self::LostForLong { .. }
            | Self::ViewAll { .. }
            | Self::Stop { .. } => None,
        }
    }
}

/// Answers somebody who may be gone.
pub(crate) fn answer<T>(to: oneshot::Sender<T>, value: T) {
    let _gone = to.send(value);
}

/// A message on its way into one queue.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) queue: QueueId,
    pub(crate) content: Content,
    /// `delivery_mode` 2.
    pub(crate) persistent: bool,
    pub(crate) priority: Option<u8>,
    /// From the `expiration` property.
    pub(crate) ttl: Option<Millis>,
    pub(crate) done: Done,
}

impl Arrival {
    /// What it counts among its connection's bytes in flight.
    pub(crate) fn weight(&self) -> usize {
        self.content.message().encoded_len() + Self::OVERHEAD
    }

    /// What a message costs in flight beyond its bytes.
    pub(crate) const OVERHEAD: usize = 256;
}

/// A message, alone or on its way to several queues.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    Own(Message),
    /// Stored once for all queues that it goes to.
    Shared(Arc<journal::op::Shared>),
}

impl Content {
    /// A message for so many queues.
    pub(crate) fn for_targets(message: Message, count: usize) -> Self {
        if count > 1 {
            Self::Shared(Arc::new(journal::op::Shared::new(message)))
        } else {
            Self::Own(message)
        }
    }

    pub(crate) fn message(&self) -> &Message {
        match self {
            Content::Own(message) => message,
            Content::Shared(shared) => shared.message(),
        }
    }
}

/// Whom to tell when the queue has it.
#[derive(Debug)]
pub(crate) enum Done {
    /// Nobody.
    Nothing,
    /// The batch's origin.
    Confirm { channel: ChannelId, number: u64 },
    /// One answer of several.
    Group(Arc<Group>),
}

/// What becomes of a message that a session held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settlement {
    /// The client said so.
    Client(Outcome),
    /// Its channel or connection is gone.
    Lost,
}

/// A subscription.
#[derive(Debug)]
pub(crate) struct Consume {
    pub(crate) queue: QueueId,
    pub(crate) consumer: ConsumerId,
    pub(crate) origin: Arc<Origin>,
    pub(crate) channel: ChannelId,
    pub(crate) tag: String,
    pub(crate) no_ack: bool,
    pub(crate) exclusive: bool,
    pub(crate) priority: i32,
    pub(crate) timeout: Option<Millis>,
    pub(crate) flow: Flow,
    pub(crate) arguments: amq_protocol_types::FieldTable,
    pub(crate) user: Arc<str>,
    pub(crate) answer: oneshot::Sender<Consumed>,
}

/// The answer to a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consumed {
    Done,
    /// Somebody has it exclusively, or it has consumers and this one wants it exclusively.
    ExclusiveUse,
    /// The queue is gone.
    NoQueue,
}

/// The answer to `basic.get`.
#[derive(Debug)]
pub(crate) enum Got {
    Message {
        seq: Seq,
        redelivered: bool,
        message: Message,
        remaining: u64,
    },
    Empty,
    /// Queues with a single active consumer do not serve `basic.get`.
    SingleActive,
    NoQueue,
}

/// The answer to a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deleted {
    /// It is stopped; so many messages were ready.
    Done(u64),
    InUse,
    NotEmpty,
    NoQueue,
}

/// What declare-ok tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) ready: u64,
    pub(crate) consumers: u64,
}
