//! What can happen to a queue, and the answer.

use model::id::{ConsumerId, Seq};
use model::time::Millis;

use crate::settings::Settings;

/// One input of the machine.
///
/// Every command may also expire messages, deliver to consumers and so on: whatever becomes due or
/// possible by it is in its effects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A message arrives. Answered by [`Reply::Enqueued`], [`Reply::Rejected`] or
    /// [`Reply::Repeated`].
    ///
    /// `Enqueued` does not mean that it is still here: the same effects may deliver, expire or
    /// drop it.
    Enqueue(Arrival),
    /// A consumer subscribes. Answered by [`Reply::Done`] or [`Reply::ExclusiveUse`]. An id that
    /// is already known changes nothing.
    Consume(Subscription),
    /// A consumer ends. What it holds stays unsettled and can still be settled in its name.
    /// Answered by [`Reply::Done`], also if it is unknown.
    Cancel {
        /// The consumer.
        consumer: ConsumerId,
    },
    /// A consumer ends and nobody will settle what it holds: that comes back as
    /// [`Outcome::Lost`]. Answered by [`Reply::Done`], also if it is unknown.
    Gone {
        /// The consumer.
        consumer: ConsumerId,
    },
    /// The same of a consumer that nobody can hear, which may live: what it holds comes back as
    /// [`Outcome::Return`].
    Unreachable {
        /// The consumer.
        consumer: ConsumerId,
    },
    /// From now on a consumer gets only what [`Command::Grant`] allows, whatever its terms were;
    /// what it holds stays with it. Answered by [`Reply::Done`], also if it is unknown.
    Limit {
        /// The consumer.
        consumer: ConsumerId,
    },
    /// A granted consumer may take `count` messages, now. What it cannot use now comes back by
    /// `Effect::GrantUnused`. Answered by [`Reply::Done`].
    Grant {
        /// The consumer.
        consumer: ConsumerId,
        /// How many.
        count: u32,
    },
    /// Deliveries of this consumer have left for the client's socket, so that their room in its
    /// window is free again. Answered by [`Reply::Done`], also if it is unknown.
    Sent {
        /// The consumer.
        consumer: ConsumerId,
        /// How many deliveries.
        messages: u32,
        /// The bytes of their bodies.
        bytes: u64,
    },
    /// `basic.get`. Answered by [`Reply::Got`], [`Reply::Empty`] or [`Reply::SingleActive`].
    /// Unless `no_ack`, the message is then held by nobody: it is settled with `consumer: None`.
    Get {
        /// The message is gone when it is sent: its `Effect::Release` comes along, so read the
        /// body before performing the effects.
        no_ack: bool,
    },
    /// Messages are settled. Answered by [`Reply::Done`]; messages that this holder does not hold
    /// are passed over, since sessions check delivery tags themselves.
    Settle {
        /// Who holds them; `None`: they came from [`Command::Get`].
        consumer: Option<ConsumerId>,
        /// The first message of the run.
        first: Seq,
        /// The last message of the run, `first` for a single one. Everything that the holder holds
        /// from `first` to `last` is settled, in this order: join only what is consecutive.
        last: Seq,
        /// What becomes of them.
        outcome: Outcome,
        /// Another settlement of the same client action follows directly. Deliveries, expiry and
        /// limits wait for the last one, so that what is returned in several runs goes out again
        /// in order.
        more: bool,
    },
    /// The targets of a message that is dead and was kept have it: it is gone. Answered by
    /// [`Reply::Done`], also if it is unknown.
    Bury {
        /// Which message.
        seq: Seq,
    },
    /// Removes what is ready or delayed; what is unsettled, or dead and kept, stays. Answered by [`Reply::Count`].
    Purge,
    /// Ends the queue. Answered by [`Reply::Count`] (ready messages), [`Reply::NotEmpty`] or
    /// [`Reply::InUse`], checked in this order. When it is done the machine is empty and without
    /// consumers, and the driver forgets both it and its stream: nothing is released one by one.
    Delete {
        /// Refuse if there are consumers.
        if_unused: bool,
        /// Refuse if there are ready or delayed messages.
        if_empty: bool,
    },
    /// The effective arguments have changed. Answered by [`Reply::Done`].
    Configure(Settings),
    /// The queue was declared again, which counts as use. Answered by [`Reply::Done`].
    Touch,
    /// `Queue::next_deadline` has come. Answered by [`Reply::Done`].
    Tick,
}

/// A message that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Its name: above every one before it in this queue.
    pub seq: Seq,
    /// The length of its body.
    pub bytes: u32,
    /// Its `priority` property.
    pub priority: Option<u8>,
    /// Its `expiration` property.
    pub ttl: Option<Millis>,
}

/// A consumer and its terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscription {
    /// Its name, never used again.
    pub consumer: ConsumerId,
    /// Most messages that it may hold unsettled; 0: no limit. Ignored with `no_ack` or `granted`.
    pub prefetch: u16,
    /// It gets only what [`Command::Grant`] allows (see also [`Command::Limit`]). Ignored with
    /// `no_ack`.
    pub granted: bool,
    /// Its messages are settled when they are delivered.
    pub no_ack: bool,
    /// It must be, and stay, the only consumer.
    pub exclusive: bool,
    /// Consumers of a higher priority are served first while they can take messages.
    pub priority: i32,
    /// How long it may hold a message (`x-consumer-timeout`). `None`: what the queue says.
    pub timeout: Option<Millis>,
    /// While deliveries that have not been [`Command::Sent`] weigh this many bytes or more it gets
    /// nothing. A delivery weighs its body and [`Subscription::DELIVERY_OVERHEAD`]. 0: no limit.
    pub window_bytes: u32,
}

impl Subscription {
    /// What a delivery weighs in the window beyond its body, so that empty bodies are limited too.
    pub const DELIVERY_OVERHEAD: u32 = 64;

    /// A plain consumer of priority 0 with manual settlement and no limits.
    #[must_use]
    pub fn new(consumer: ConsumerId) -> Self {
        Self {
            consumer,
            prefetch: 0,
            granted: false,
            no_ack: false,
            exclusive: false,
            priority: 0,
            timeout: None,
            window_bytes: 0,
        }
    }
}

/// What becomes of a settled message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Done with.
    Accept,
    /// Back to the queue, not counted as a failure.
    Return,
    /// Back to the queue, counted as a failure.
    Retry,
    /// Dropped or dead-lettered as rejected.
    Discard,
    /// Back to the queue because channel or connection was lost; counted as a failure.
    Lost,
}

/// The answer to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// It is done.
    Done,
    /// The message was taken.
    Enqueued,
    /// There is no room: the publisher is nacked. The queue never had the message, so no
    /// `Effect::Release` follows; with `reject-publish-dlx` there is an `Effect::DeadLetter`.
    Rejected,
    /// The arrival's name is not above all before it: the queue has, or had, it or one that came
    /// after it. Nothing changed.
    Repeated,
    /// The subscription is refused: someone has, or asks for, exclusive use.
    ExclusiveUse,
    /// A message for `basic.get`.
    Got {
        /// Which.
        seq: Seq,
        /// It was handed out before.
        redelivered: bool,
        /// How often it failed before.
        delivery_count: u32,
        /// How many messages are ready now, without it.
        remaining: u64,
    },
    /// Nothing is ready.
    Empty,
    /// `basic.get` is refused because the queue, a quorum queue, has a single active consumer.
    SingleActive,
    /// How many messages were purged, or were ready or delayed when the queue was deleted.
    Count(u64),
    /// Not deleted: it has consumers.
    InUse,
    /// Not deleted: it has ready messages.
    NotEmpty,
}
