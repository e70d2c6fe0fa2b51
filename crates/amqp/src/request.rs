//! What a session asks of the broker, and what the broker tells a session.
//!
//! A session is fed with bytes and *pulled*: the driver takes one [`Request`] after the other,
//! performs it, and answers those that have an answer before it takes the next. A request that has
//! an answer therefore never overtakes, nor is overtaken by, another one of its connection.

use amq_protocol::types::FieldTable;
use model::id::{ConsumerId, QueueId, Seq};
use model::message::Message;

/// A channel number, 1 to the negotiated maximum.
pub type ChannelId = u16;

/// One thing that a client wants.
///
/// "Answered" requests are followed by exactly one call of `Session::on_reply`; the others are
/// fire and forget. Names are as the client sent them, except that an empty queue name that means
/// "the last declared queue of this channel" has been replaced by that name.
#[derive(Debug)]
pub enum Request {
    /// SASL response. Answered by [`Reply::Authenticated`] or an error.
    Authenticate {
        /// `PLAIN`, `AMQPLAIN`, `EXTERNAL` or `ANONYMOUS`; only mechanisms that were offered.
        mechanism: Mechanism,
        /// `client_properties` of `start-ok`, to be shown by the management API.
        client_properties: FieldTable,
    },
    /// `connection.open`. Answered by [`Reply::Done`] or an error.
    Open {
        /// The virtual host.
        vhost: String,
    },
    /// `connection.update-secret`. Answered by [`Reply::Done`] or an error.
    UpdateSecret {
        /// What the client gave, for logins that expire.
        secret: Vec<u8>,
    },
    /// `channel.open`. Answered by [`Reply::Done`] or a connection error (per-user limits).
    ChannelOpen {
        /// The new channel.
        channel: ChannelId,
    },
    /// The channel is gone, for whatever reason. Its consumers end now, and what was on its way
    /// to them and is not in `unsettled` returns as well, as if it had never been handed out.
    /// Confirms for its publishes may still follow, and are passed over. Not answered.
    ChannelClosed {
        /// The channel.
        channel: ChannelId,
        /// Consumers that were still subscribed.
        consumers: Vec<(ConsumerId, QueueId)>,
        /// What it held unsettled: to be returned to the queues, in order.
        unsettled: Vec<Unsettled>,
    },
    /// Answered by [`Reply::Done`] or an error.
    ExchangeDeclare(ExchangeDeclare),
    /// Answered by [`Reply::Done`] or an error.
    ExchangeDelete {
        /// Whose request it is.
        channel: ChannelId,
        /// The exchange.
        exchange: String,
        /// Refuse if it has bindings as a source.
        if_unused: bool,
    },
    /// `queue.bind`, `exchange.bind`. Answered by [`Reply::Done`] or an error.
    Bind(Binding),
    /// `queue.unbind`, `exchange.unbind`. Answered by [`Reply::Done`] or an error.
    Unbind(Binding),
    /// Answered by [`Reply::QueueDeclared`] or an error.
    QueueDeclare(QueueDeclare),
    /// Answered by [`Reply::Count`] or an error.
    QueuePurge {
        /// Whose request it is.
        channel: ChannelId,
        /// The queue.
        queue: String,
    },
    /// Answered by [`Reply::Count`] or an error.
    QueueDelete {
        /// Whose request it is.
        channel: ChannelId,
        /// The queue.
        queue: String,
        /// Refuse if it has consumers.
        if_unused: bool,
        /// Refuse if it has ready messages.
        if_empty: bool,
    },
    /// Answered by [`Reply::Consuming`] or an error.
    Consume(Consume),
    /// A consumer of this session ends; what it holds stays unsettled. Answered by
    /// [`Reply::Done`], after which no delivery for it comes any more.
    Cancel {
        /// Whose request it is.
        channel: ChannelId,
        /// The consumer.
        consumer: ConsumerId,
        /// Its queue.
        queue: QueueId,
    },
    /// Answered by [`Reply::Got`] or an error.
    Get {
        /// Whose request it is.
        channel: ChannelId,
        /// The queue.
        queue: String,
        /// The message is gone when it is sent.
        no_ack: bool,
    },
    /// A message. Answered **at once** (by the return value of the driver's publish function, not
    /// by `on_reply`): an error closes the channel or the connection.
    Publish(Publish),
    /// Settlement of messages that this session holds. Not answered.
    Settle {
        /// The channel that held them.
        channel: ChannelId,
        /// The messages, in the order of their delivery tags.
        unsettled: Vec<Unsettled>,
        /// What becomes of them.
        outcome: Outcome,
    },
    /// `tx.commit`: all publishes, then all settlements. Answered by [`Reply::Done`] when every
    /// queue has taken its part durably, or by an error.
    Commit {
        /// Whose transaction it is.
        channel: ChannelId,
        /// In the order in which the client sent them.
        publishes: Vec<Publish>,
        /// In the order in which the client sent them.
        settlements: Vec<(Vec<Unsettled>, Outcome)>,
    },
    /// A consumer that had timed out has been cancelled: its queue forgets it. Not answered.
    ConsumerEnded {
        /// The consumer.
        consumer: ConsumerId,
        /// Its queue.
        queue: QueueId,
    },
    /// The consumer's flow is [`Flow::Granted`] from now on, since its channel got a limit for all
    /// consumers after it had subscribed. Not answered.
    Limit {
        /// The consumer.
        consumer: ConsumerId,
        /// Its queue.
        queue: QueueId,
    },
    /// The consumer may take `count` more messages. Sent only for consumers with
    /// [`Flow::Granted`]. Not answered.
    Grant {
        /// The consumer.
        consumer: ConsumerId,
        /// Its queue.
        queue: QueueId,
        /// How many more; what the queue cannot use comes back in [`Event::GrantUnused`].
        count: u32,
    },
    /// The client closed the connection properly (close-ok has yet to be sent): everything that is
    /// exclusive to it must be gone when [`Reply::Done`] answers.
    Closing,
}

impl Request {
    /// Whether one reply must follow before the session goes on.
    pub fn is_answered(&self) -> bool {
        match self {
            Self::Publish(_)
            | Self::Settle { .. }
            | Self::Limit { .. }
            | Self::Grant { .. }
            | Self::ConsumerEnded { .. }
            | Self::ChannelClosed { .. } => false,
            Self::Authenticate { .. }
            | Self::Open { .. }
            | Self::UpdateSecret { .. }
            | Self::ChannelOpen { .. }
            | Self::ExchangeDeclare(_)
            | Self::ExchangeDelete { .. }
            | Self::Bind(_)
            | Self::Unbind(_)
            | Self::QueueDeclare(_)
            | Self::QueuePurge { .. }
            | Self::QueueDelete { .. }
            | Self::Consume(_)
            | Self::Cancel { .. }
            | Self::Get { .. }
            | Self::Commit { .. }
            | Self::Closing => true,
        }
    }
}

/// How a client says who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mechanism {
    /// `PLAIN` or `AMQPLAIN`.
    Password {
        /// The mechanism's name, for the error text.
        name: &'static str,
        /// The login.
        user: String,
        /// The password.
        password: Vec<u8>,
    },
    /// `EXTERNAL`: the user comes from the client certificate that the server verified.
    External,
    /// `ANONYMOUS`: the user is the configured one.
    Anonymous,
}

/// `exchange.declare`.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "these are the flags of the method")]
pub struct ExchangeDeclare {
    /// Whose request it is.
    pub channel: ChannelId,
    /// The exchange.
    pub exchange: String,
    /// Its type, such as `topic`.
    pub kind: String,
    /// Check only that it exists.
    pub passive: bool,
    /// Survives a restart.
    pub durable: bool,
    /// Goes with its last binding.
    pub auto_delete: bool,
    /// Clients cannot publish to it.
    pub internal: bool,
    /// Such as `alternate-exchange`.
    pub arguments: FieldTable,
}

/// `queue.declare`.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "these are the flags of the method")]
pub struct QueueDeclare {
    /// Whose request it is.
    pub channel: ChannelId,
    /// Empty: the broker makes a name.
    pub queue: String,
    /// Check only that it exists.
    pub passive: bool,
    /// Survives a restart.
    pub durable: bool,
    /// Belongs to this connection.
    pub exclusive: bool,
    /// Goes with its last consumer.
    pub auto_delete: bool,
    /// Such as `x-message-ttl`.
    pub arguments: FieldTable,
}

/// `queue.bind`, `queue.unbind`, `exchange.bind`, `exchange.unbind`.
#[derive(Debug)]
pub struct Binding {
    /// Whose request it is.
    pub channel: ChannelId,
    /// The exchange that messages come from.
    pub source: String,
    /// The queue or exchange that they go to.
    pub destination: String,
    /// Whether the destination is a queue.
    pub to_queue: bool,
    /// The binding key.
    pub routing_key: String,
    /// Such as `x-match`.
    pub arguments: FieldTable,
}

/// `basic.consume`, checked for what a session alone can know (tag reuse).
#[derive(Debug)]
pub struct Consume {
    /// Whose request it is.
    pub channel: ChannelId,
    /// The queue.
    pub queue: String,
    /// Never empty: the session makes one if the client gave none.
    pub tag: String,
    /// Messages are settled when they are sent.
    pub no_ack: bool,
    /// The only consumer of its queue.
    pub exclusive: bool,
    /// Such as `x-priority`.
    pub arguments: FieldTable,
    /// How deliveries are limited.
    pub flow: Flow,
}

/// What limits the unsettled deliveries of a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// At most this many unsettled; 0 is no limit. (`basic.qos` with `global=false`)
    Prefetch(u16),
    /// Only what the session grants (`basic.qos` with `global=true`: one limit for the channel).
    Granted,
}

/// `basic.publish` with its content.
#[derive(Debug)]
pub struct Publish {
    /// The channel.
    pub channel: ChannelId,
    /// The confirm number, if the channel is in confirm mode. Never given twice for a channel
    /// number of this connection.
    pub confirm: Option<u64>,
    /// Return it if no queue takes it.
    pub mandatory: bool,
    /// The content.
    pub message: Message,
}

/// A message that a session holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsettled {
    /// Where it came from.
    pub queue: QueueId,
    /// Which message of that queue.
    pub seq: Seq,
    /// Who took it; `None` for `basic.get`.
    pub consumer: Option<ConsumerId>,
}

/// What becomes of a settled message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Done with (`basic.ack`).
    Accept,
    /// Back to the queue and not counted as a failure (`basic.nack` requeue, `basic.recover`).
    Return,
    /// Back to the queue, counted as a failure (`basic.reject` with requeue).
    Retry,
    /// Dropped or dead-lettered (`basic.nack` and `basic.reject` without requeue).
    Discard,
}

/// The answer to an answered request.
#[derive(Debug)]
pub enum Reply {
    /// It is done.
    Done,
    /// The client is who it says.
    Authenticated {
        /// The login name.
        user: String,
    },
    /// The queue exists.
    QueueDeclared {
        /// Its name.
        queue: String,
        /// Ready messages.
        messages: u32,
        /// Consumers.
        consumers: u32,
    },
    /// Messages purged or deleted.
    Count(u32),
    /// The subscription stands; deliveries follow.
    Consuming {
        /// Names it from now on.
        consumer: ConsumerId,
        /// Its queue.
        queue: QueueId,
    },
    /// `basic.get`: a message and the number that remain ready, or nothing.
    Got(Option<(Delivery, u32)>),
    /// It is refused.
    Refused(Error),
}

/// A message on its way to the client.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The channel.
    pub channel: ChannelId,
    /// Who gets it; `None` answers `basic.get`.
    pub consumer: Option<ConsumerId>,
    /// Where it came from.
    pub queue: QueueId,
    /// Which message of that queue.
    pub seq: Seq,
    /// It was handed out before.
    pub redelivered: bool,
    /// The content.
    pub message: Message,
}

/// What the broker tells a session without being asked.
#[derive(Debug)]
pub enum Event {
    /// A message for a consumer.
    Deliver(Delivery),
    /// A mandatory message that no queue took; comes before its confirm.
    Returned {
        /// The channel that published it.
        channel: ChannelId,
        /// 312 `NO_ROUTE` or 313 `NO_CONSUMERS`.
        reply_code: u16,
        /// Its text.
        reply_text: &'static str,
        /// The content.
        message: Message,
    },
    /// The broker has taken responsibility for a publish, or refuses it. Numbers may come in any
    /// order; the session groups them, never covering a refused one.
    Confirmed {
        /// The channel that published it.
        channel: ChannelId,
        /// The confirm number.
        number: u64,
        /// `false`: `basic.nack`.
        accepted: bool,
    },
    /// The queue ended this consumer (deleted, timed out, no longer permitted).
    ConsumerCancelled {
        /// The channel.
        channel: ChannelId,
        /// The consumer.
        consumer: ConsumerId,
    },
    /// This consumer held a message for too long, and all that it held is back in its queue. It is
    /// cancelled if the client can take that, else the channel is closed.
    ConsumerTimedOut {
        /// The channel.
        channel: ChannelId,
        /// The consumer.
        consumer: ConsumerId,
        /// What a client is told that cannot take a cancel.
        error: Error,
    },
    /// A queue has messages for a consumer with [`Flow::Granted`] that may take none.
    Demand {
        /// The channel.
        channel: ChannelId,
        /// The consumer.
        consumer: ConsumerId,
    },
    /// The queue gave back a grant that it could not use.
    GrantUnused {
        /// The channel.
        channel: ChannelId,
        /// The consumer.
        consumer: ConsumerId,
        /// How many.
        count: u32,
    },
    /// An alarm began; the reason, such as `low on memory`.
    Blocked {
        /// The text for `connection.blocked`.
        reason: String,
    },
    /// The last alarm ended.
    Unblocked,
    /// The broker closes a channel (consumer timeout of a client without cancel notify).
    CloseChannel {
        /// The channel.
        channel: ChannelId,
        /// Why.
        error: Error,
    },
    /// The broker closes the connection (operator, shutdown).
    Close(Error),
}

/// An AMQP error as the client sees it.
///
/// Whether it ends the channel or the connection follows from the code: 311, 312, 313, 403, 404,
/// 405 and 406 end the channel, all others the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The reply code.
    pub code: u16,
    /// The text after `NAME - `; the session puts the name of the code before it.
    pub text: String,
}
