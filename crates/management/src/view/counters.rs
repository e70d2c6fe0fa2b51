//! Totals, in RabbitMQ's families.

use serde::{Deserialize, Serialize};

use super::part::is_zero;

/// What happened to messages on a channel, in a queue, in a virtual host or on the whole node.
///
/// A queue has no `confirm`, `return_unroutable` and `drop_unroutable`: they stay 0. What is nothing is
/// not sent between nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MessageCounters {
    /// Published by clients (a queue: routed into it).
    #[serde(skip_serializing_if = "is_zero")]
    pub publish: u64,
    /// Of these, confirmed to their publishers.
    #[serde(skip_serializing_if = "is_zero")]
    pub confirm: u64,
    /// Of these, returned since no queue took them (`mandatory`).
    #[serde(skip_serializing_if = "is_zero")]
    pub return_unroutable: u64,
    /// Of these, dropped since no queue took them.
    #[serde(skip_serializing_if = "is_zero")]
    pub drop_unroutable: u64,
    /// Delivered to consumers that settle.
    #[serde(skip_serializing_if = "is_zero")]
    pub deliver: u64,
    /// Delivered to consumers that do not settle.
    #[serde(skip_serializing_if = "is_zero")]
    pub deliver_no_ack: u64,
    /// Taken by `basic.get` and to be settled.
    #[serde(skip_serializing_if = "is_zero")]
    pub get: u64,
    /// Taken by `basic.get` without settlement.
    #[serde(skip_serializing_if = "is_zero")]
    pub get_no_ack: u64,
    /// `basic.get` that found nothing.
    #[serde(skip_serializing_if = "is_zero")]
    pub get_empty: u64,
    /// Of the deliveries, those with the `redelivered` flag.
    #[serde(skip_serializing_if = "is_zero")]
    pub redeliver: u64,
    /// Settled by consumers as accepted.
    #[serde(skip_serializing_if = "is_zero")]
    pub ack: u64,
    /// Bodies read back from disk.
    #[serde(skip_serializing_if = "is_zero")]
    pub disk_reads: u64,
    /// Messages written to disk.
    #[serde(skip_serializing_if = "is_zero")]
    pub disk_writes: u64,
}

impl MessageCounters {
    /// Whether nothing has happened.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Adds those of another channel, queue or node.
    pub fn add(&mut self, other: &Self) {
        self.publish += other.publish;
        self.confirm += other.confirm;
        self.return_unroutable += other.return_unroutable;
        self.drop_unroutable += other.drop_unroutable;
        self.deliver += other.deliver;
        self.deliver_no_ack += other.deliver_no_ack;
        self.get += other.get;
        self.get_no_ack += other.get_no_ack;
        self.get_empty += other.get_empty;
        self.redeliver += other.redeliver;
        self.ack += other.ack;
        self.disk_reads += other.disk_reads;
        self.disk_writes += other.disk_writes;
    }

    /// Everything that left a queue for a client.
    pub fn deliver_get(&self) -> u64 {
        self.deliver + self.deliver_no_ack + self.get + self.get_no_ack
    }
}

/// Messages through one exchange.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExchangeCounters {
    /// Published to it, directly or through another exchange.
    pub publish_in: u64,
    /// Routed by it to queues, counted once per queue.
    pub publish_out: u64,
    /// Published to it and confirmed.
    pub confirm: u64,
    /// Published to it and returned.
    pub return_unroutable: u64,
    /// Published to it and dropped since no queue took them.
    pub drop_unroutable: u64,
}

impl ExchangeCounters {
    /// Adds those of another node.
    pub fn add(&mut self, other: &Self) {
        self.publish_in += other.publish_in;
        self.publish_out += other.publish_out;
        self.confirm += other.confirm;
        self.return_unroutable += other.return_unroutable;
        self.drop_unroutable += other.drop_unroutable;
    }
}

/// Comings and goings on this node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChurnCounters {
    /// Connections opened (after `connection.open`).
    pub connection_created: u64,
    /// Connections closed.
    pub connection_closed: u64,
    /// Channels opened.
    pub channel_created: u64,
    /// Channels closed.
    pub channel_closed: u64,
    /// `queue.declare` that succeeded, passive ones left out.
    pub queue_declared: u64,
    /// Of these, those that made a queue.
    pub queue_created: u64,
    /// Queues that are gone, for whatever reason.
    pub queue_deleted: u64,
}

impl ChurnCounters {
    /// Adds those of another node.
    pub fn add(&mut self, other: &Self) {
        self.connection_created += other.connection_created;
        self.connection_closed += other.connection_closed;
        self.channel_created += other.channel_created;
        self.channel_closed += other.channel_closed;
        self.queue_declared += other.queue_declared;
        self.queue_created += other.queue_created;
        self.queue_deleted += other.queue_deleted;
    }
}

/// Dead-lettered messages by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeadLetterCounters {
    /// `x-delivery-limit` reached.
    pub delivery_limit: u64,
    /// Time to live over.
    pub expired: u64,
    /// Length limit reached.
    pub maxlen: u64,
    /// Rejected by a consumer without requeue.
    pub rejected: u64,
}

/// Attempts to log in, over any protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AuthCounters {
    /// Right credentials.
    pub succeeded: u64,
    /// Anything else.
    pub failed: u64,
}

/// Upper bounds of [`MessageSizes::buckets`], the last bucket has none.
pub const MESSAGE_SIZE_BOUNDS: [u64; 8] =
    [100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 50_000_000, 100_000_000];

/// How large published bodies are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MessageSizes {
    /// Messages per size class (not cumulative): up to each bound of [`MESSAGE_SIZE_BOUNDS`], then
    /// the rest.
    pub buckets: [u64; 9],
    /// Bytes of all bodies.
    pub sum: u64,
}

/// The totals of the node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GlobalCounters {
    /// Messages. `publish` includes those of confirming channels.
    pub messages: MessageCounters,
    /// Of `messages.publish`, those on channels in confirm mode.
    pub received_confirm: u64,
    /// Of `messages.publish`, those that at least one queue took.
    pub routed: u64,
    /// Dead-lettered messages.
    pub dead_lettered: DeadLetterCounters,
    /// Comings and goings.
    pub churn: ChurnCounters,
    /// Logins.
    pub auth: AuthCounters,
    /// Sizes of published bodies.
    pub sizes: MessageSizes,
    /// Channels that have published, now.
    pub publishers: u64,
    /// Consumers, now.
    pub consumers: u64,
}
