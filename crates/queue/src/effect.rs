//! What the driver has to do.

use model::id::{ConsumerId, Seq};

/// One thing that the driver owes, in the order in which they stand.
///
/// The buffer belongs to **one** queue until it is drained: releases are merged with those that
/// earlier commands left in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Send this message to this consumer. Unless the consumer is `no_ack` it holds the message
    /// from now on; if it is, a [`Effect::Release`] follows.
    Deliver {
        /// To whom.
        consumer: ConsumerId,
        /// Which message.
        seq: Seq,
        /// It was handed out before.
        redelivered: bool,
        /// How often it failed before (`x-delivery-count`, left out when 0).
        delivery_count: u32,
    },
    /// The messages from `first` to `last` are gone for good: accepted, purged, or dropped without
    /// a dead letter exchange. Every position in the range is gone; ranges never overlap.
    Release {
        /// The first message.
        first: Seq,
        /// The last message.
        last: Seq,
    },
    /// Publish this message to the dead letter exchange and release it then. It has left the
    /// queue, unless dead messages are kept: then say `Command::Bury` once its targets have it, and
    /// release nothing before. They come in the order of the queue.
    DeadLetter {
        /// Which message. After `Reply::Rejected` it is the arrival, which was never stored.
        seq: Seq,
        /// Why.
        reason: Reason,
    },
    /// The persistent part of a message changed (its delivery count, which only matters and is
    /// only noted if there is a delivery limit): record `Queue::head` of it before the next
    /// command is applied. If there is none the message has left the queue meanwhile. Only classic
    /// queues say so: what a quorum queue remembers is its log and its snapshots.
    Noted {
        /// Which message.
        seq: Seq,
    },
    /// Messages wait for this granted consumer, which may take none. Comes once until the next
    /// grant.
    Demand {
        /// The consumer.
        consumer: ConsumerId,
    },
    /// A grant, or the rest of it, could not be used.
    GrantUnused {
        /// The consumer.
        consumer: ConsumerId,
        /// How much is given back.
        count: u32,
    },
    /// The queue was deleted under this consumer.
    ConsumerCancelled {
        /// The consumer.
        consumer: ConsumerId,
    },
    /// This consumer held a message for too long. That, or with a classic queue everything that it
    /// held, has come back to the queue, and it gets nothing more before it has settled all of that
    /// (which then means nothing) or is cancelled. Tell its client: cancel it, or close its
    /// channel. It may come again for what else a consumer of a quorum queue holds.
    TimedOut {
        /// The consumer.
        consumer: ConsumerId,
        /// How many messages came back.
        returned: u64,
    },
    /// With a single active consumer: another one, or none, is active now.
    ActiveChanged {
        /// The active one.
        consumer: Option<ConsumerId>,
    },
    /// The queue has been idle for too long: delete it. Comes once per idle period.
    Expired,
    /// The last consumer of an auto-delete queue is gone: delete it.
    LastConsumerGone,
}

/// Why a message is dead-lettered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A consumer discarded it.
    Rejected,
    /// It waited for too long.
    Expired,
    /// A length limit was reached.
    MaxLen,
    /// It failed more often than allowed.
    DeliveryLimit,
}

impl Reason {
    /// The word in the `x-death` header.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::MaxLen => "maxlen",
            Self::DeliveryLimit => "delivery_limit",
        }
    }
}
