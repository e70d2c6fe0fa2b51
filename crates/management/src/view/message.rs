//! Publishing and getting over HTTP.

use model::message::Message;
use serde::{Deserialize, Serialize};

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

/// A message that waits in a quorum queue and was looked at.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PeekedMessage {
    /// Route, properties with `x-delivery-count`, and as much of the body as was asked for.
    #[serde(with = "encoded")]
    pub message: Message,
    /// The whole length of its body.
    pub payload_bytes: u64,
    /// It was handed out before.
    pub redelivered: bool,
}

/// Why a message cannot be looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum PeekError {
    /// Fewer messages wait.
    #[error("Target queue does not have a message at that position")]
    NoMessage,
    /// Nobody leads the queue, or nobody who can be reached.
    #[error("the queue has no leader")]
    NoLeader,
    /// The node that was asked does not lead the queue.
    #[error("the leader has changed")]
    NotLeader,
    /// The leader's node is silent.
    #[error("the leader's node does not answer")]
    Silent,
    /// Its body is not on the leader's disk, or not yet.
    #[error("the leader cannot read the message back now")]
    Unreadable,
}

/// Messages as texts.
mod encoded {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use model::message::Message;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        message: &Message,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::with_capacity(message.encoded_len());
        message.encode_into(&mut bytes);
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Message, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text).map_err(D::Error::custom)?;
        Message::decode(bytes.into()).map_err(|_| D::Error::custom("not a message"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inquiry::{decode, encode};

    #[test]
    fn what_was_looked_at_travels_whole() {
        let message = Message::from_parts("x", "k", &[0, 0], &[0, 0xff, b'a']);
        let peeked = PeekedMessage { message, payload_bytes: 70, redelivered: true };
        let back: PeekedMessage = decode(&encode(&peeked)).unwrap();
        assert_eq!((back.payload_bytes, back.redelivered), (70, true));
        assert_eq!((back.message.exchange(), back.message.routing_key()), ("x", "k"));
        assert_eq!(back.message.body(), [0, 0xff, b'a']);
        assert!(decode::<PeekedMessage>(br#"{"message":"AA"}"#).is_err());
    }
}
