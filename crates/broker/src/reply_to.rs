//! Direct reply-to: replies that go straight to the requester's connection, without a queue.
//!
//! A client consumes from `amq.rabbitmq.reply-to` and names it in `reply_to`; the broker replaces
//! that by a name with a token, and publishes to this name on the default exchange reach the
//! consumer.

use std::collections::HashMap;
use std::sync::Arc;

use amqp::request::{ChannelId, Delivery, Event};
use model::id::{ConsumerId, QueueId, Seq};
use model::message::Message;
use parking_lot::Mutex;

use crate::origin::Origin;

/// The name that clients use.
pub(crate) const NAME: &str = "amq.rabbitmq.reply-to";
/// What the names that the broker makes begin with.
pub(crate) const PREFIX: &str = "amq.rabbitmq.reply-to.";
/// Stands for the queue that there is not.
pub(crate) const QUEUE: QueueId = QueueId(0);

#[derive(Debug)]
struct Requester {
    origin: Arc<Origin>,
    channel: ChannelId,
    consumer: ConsumerId,
}

/// All requesters of the node, by the names that stand for them.
#[derive(Debug, Default)]
pub(crate) struct ReplyTo {
    requesters: Mutex<HashMap<String, Requester>>,
}

impl ReplyTo {
    /// Makes a name for a consumer.
    pub(crate) fn open(
        &self,
        origin: &Arc<Origin>,
        channel: ChannelId,
        consumer: ConsumerId,
    ) -> String {
        let name = format!("{PREFIX}{:032x}", rand::random::<u128>());
        let requester = Requester { origin: Arc::clone(origin), channel, consumer };
        self.requesters.lock().insert(name.clone(), requester);
        name
    }

    /// Forgets a name.
    pub(crate) fn close(&self, name: &str) {
        self.requesters.lock().remove(name);
    }

    /// Whether somebody waits under this name.
    pub(crate) fn is_open(&self, name: &str) -> bool {
        self.requesters.lock().contains_key(name)
    }

    /// Hands a reply over; `false` if nobody waits for it any more.
    pub(crate) fn deliver(&self, name: &str, message: &Message) -> bool {
        let requesters = self.requesters.lock();
        let Some(requester) = requesters.get(name) else { return false };
        requester.origin.outlet.post_one(Event::Deliver(Delivery {
            channel: requester.channel,
            consumer: Some(requester.consumer),
            queue: QUEUE,
            seq: Seq(0),
            redelivered: false,
            message: message.clone(),
        }));
        true
    }
}
