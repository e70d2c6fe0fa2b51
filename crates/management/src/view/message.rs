//! Publishing and getting over HTTP.

use model::message::Message;

/// `POST /exchanges/VHOST/NAME/publish`. It is to be treated as mandatory and to be confirmed.
#[derive(Debug)]
pub struct PublishRequest {
    /// The virtual host.
    pub vhost: String,
    /// Exchange, routing key, properties (the encoding of a content header) and body. The default
    /// exchange is the empty name.
    pub message: Message,
    /// Who publishes: permissions are checked as for AMQP.
    pub user: String,
}

/// What became of a published message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishOutcome {
    /// At least one queue took it, durably if it is persistent.
    Routed,
    /// No queue took it.
    Unroutable,
    /// A queue refused it (`basic.nack`): full, with `reject-publish`.
    Rejected,
    /// The confirm did not come in time.
    TimedOut,
    /// An alarm is on: publishers are blocked.
    Blocked,
}

/// `POST /queues/VHOST/NAME/get`: take up to `count` messages, then settle every one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetRequest {
    /// The virtual host.
    pub vhost: String,
    /// The queue.
    pub queue: String,
    /// At most so many.
    pub count: u32,
    /// No more once properties and bodies of those taken have so many bytes.
    pub bytes_max: usize,
    /// What becomes of them.
    pub mode: GetMode,
    /// Who reads: permissions are checked as for AMQP.
    pub user: String,
}

/// What becomes of messages that were got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GetMode {
    /// `ack_requeue_true`: back to the queue, `basic.nack` with requeue.
    NackRequeue,
    /// `ack_requeue_false`: gone, `no_ack`.
    Ack,
    /// `reject_requeue_true`: back to the queue, `basic.reject`.
    RejectRequeue,
    /// `reject_requeue_false`: dead-lettered or dropped.
    Reject,
}

/// A message that was got.
#[derive(Debug, Clone)]
pub struct GotMessage {
    /// Route, properties, body.
    pub message: Message,
    /// It was handed out before.
    pub redelivered: bool,
    /// Ready messages that remained behind it.
    pub message_count: u64,
}
