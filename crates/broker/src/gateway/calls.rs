//! Requests that are answered: the table of all of them, and consuming.

use std::sync::Arc;

use amqp::request::{ChannelId, Consume, Delivery, Error, Reply, Request};
use metadata::arguments;
use model::id::{ConsumerId, QueueId};
use model::time::Millis;

use crate::gateway::{Gateway, error};
use crate::reply_to;
use crate::shard::command::{Command, Consume as Subscribe, Consumed, Got};

impl Gateway {
    /// Performs an answered request. What was staged before it is performed before it.
    pub(super) async fn answer(&mut self, request: Request) -> Reply {
        self.hand_on();
        self.refresh();
        match self.perform(request).await {
            Ok(reply) => reply,
            Err(error) => Reply::Refused(error),
        }
    }

    async fn perform(&mut self, request: Request) -> Result<Reply, Error> {
        match request {
            Request::Authenticate { mechanism, .. } => self.authenticate(mechanism),
            Request::Open { vhost } => self.open(&vhost).map(|()| Reply::Done),
            Request::UpdateSecret { .. } => self.update_secret().await.map(|()| Reply::Done),
            Request::ChannelOpen { .. } => self.channel_open().map(|()| Reply::Done),
            Request::ExchangeDeclare(declare) => {
                self.exchange_declare(declare).await.map(|()| Reply::Done)
            }
            Request::ExchangeDelete { exchange, if_unused, .. } => {
                self.exchange_delete(exchange, if_unused).await.map(|()| Reply::Done)
            }
            Request::Bind(binding) => self.bind(binding, true).await.map(|()| Reply::Done),
            Request::Unbind(binding) => self.bind(binding, false).await.map(|()| Reply::Done),
            Request::QueueDeclare(declare) => self.queue_declare(declare).await,
            Request::QueuePurge { queue, .. } => self.queue_purge(&queue).await,
            Request::QueueDelete { queue, if_unused, if_empty, .. } => {
                self.queue_delete(&queue, if_unused, if_empty).await
            }
            Request::Consume(consume) => self.consume(consume).await,
            Request::Cancel { channel, consumer, queue } => {
                self.cancel(channel, consumer, queue).await.map(|()| Reply::Done)
            }
            Request::Get { channel, queue, no_ack } => self.get(channel, &queue, no_ack).await,
            Request::Commit { publishes, settlements, .. } => {
                self.commit(publishes, settlements).await.map(|()| Reply::Done)
            }
            Request::Closing => {
                self.closing().await;
                Ok(Reply::Done)
            }
            Request::Publish(_)
            | Request::Settle { .. }
            | Request::Limit { .. }
            | Request::Grant { .. }
            | Request::ConsumerEnded { .. }
            | Request::ChannelClosed { .. } => {
                Err(Error { code: 541, text: "not an answered request".into() })
            }
        }
    }

    async fn queue_purge(&mut self, queue: &str) -> Result<Reply, Error> {
        let id = self.readable(queue)?;
        let purged = self.ask(id, |answer| Command::Purge { queue: id, answer }).await?;
        let Some(count) = purged else { return Err(self.no_queue(queue)) };
        Ok(Reply::Count(u32::try_from(count).unwrap_or(u32::MAX)))
    }

    /// The queue was deleted after the snapshot of this connection, or the node that keeps it is
    /// away.
    pub(super) fn no_queue(&self, queue: &str) -> Error {
        if let Some(place) = &self.place
            && let Some(known) = place.state.queue(&place.vhost, queue)
            && self.is_kept_elsewhere(known)
        {
            return self.is_down(known);
        }
        let vhost = self.place.as_ref().map_or("", |place| &place.vhost);
        Error { code: 404, text: format!("no queue '{queue}' in vhost '{vhost}'") }
    }

    /// The id of a queue that this user may read and this connection may use.
    fn readable(&self, queue: &str) -> Result<QueueId, Error> {
        let place = self.place()?;
        let queue = place
            .state
            .check_use_queue(&place.vhost, queue, Some(self.id()), Some(&place.access))
            .map_err(error)?;
        Ok(queue.id)
    }

    async fn get(&mut self, channel: ChannelId, queue: &str, no_ack: bool) -> Result<Reply, Error> {
        let id = self.readable(queue)?;
        let connection = self.id();
        let got =
            self.ask(id, |answer| Command::Get { queue: id, connection, no_ack, answer }).await?;
        match got {
            Got::Message { seq, redelivered, message, remaining } => {
                let delivery =
                    Delivery { channel, consumer: None, queue: id, seq, redelivered, message };
                let remaining = u32::try_from(remaining).unwrap_or(u32::MAX);
                Ok(Reply::Got(Some((delivery, remaining))))
            }
            Got::Empty => Ok(Reply::Got(None)),
            Got::NoQueue => Err(self.no_queue(queue)),
            Got::SingleActive => {
                let vhost = &self.place()?.vhost;
                Err(Error {
                    code: 405,
                    text: format!(
                        "cannot obtain access to queue '{queue}' in vhost '{vhost}'. basic.get operations are not \
                         supported by queues with single active consumer"
                    ),
                })
            }
        }
    }

    async fn consume(&mut self, consume: Consume) -> Result<Reply, Error> {
        if consume.queue == reply_to::NAME {
            return self.consume_replies(&consume);
        }
        let id = self.readable(&consume.queue)?;
        let place = self.place()?;
        let priority = match consume.arguments.inner().get("x-priority") {
            None => 0,
            Some(value) => arguments::integer_of(value).ok_or_else(|| Error {
                code: 406,
                text: format!(
                    "invalid arg 'x-priority' for queue '{}' in vhost '{}': \"expected integer, got {}\"",
                    consume.queue,
                    place.vhost,
                    arguments::type_name(value)
                ),
            })?,
        };
        let timeout = match arguments::integer(&consume.arguments, "x-consumer-timeout") {
            Some(timeout) if timeout > 0 => Some(Millis(timeout.unsigned_abs())),
            Some(_) => {
                return Err(Error {
                    code: 406,
                    text: "invalid x-consumer-timeout of a consumer: it must be above 0".into(),
                });
            }
            None => None,
        };
        let place = self.place()?;
        let (user, vhost) = (Arc::clone(&place.access.user.name), Arc::clone(&place.vhost));
        let origin = Arc::clone(&self.origin);
        let consumer = self.node.next_consumer();
        let name = consume.queue;
        let consumed = self
            .ask(id, |answer| {
                Command::Consume(Box::new(Subscribe {
                    queue: id,
                    consumer,
                    origin,
                    channel: consume.channel,
                    tag: consume.tag,
                    no_ack: consume.no_ack,
                    exclusive: consume.exclusive,
                    priority: i32::try_from(priority).unwrap_or(if priority < 0 {
                        i32::MIN
                    } else {
                        i32::MAX
                    }),
                    timeout,
                    flow: consume.flow,
                    arguments: consume.arguments,
                    user,
                    answer,
                }))
            })
            .await?;
        match consumed {
            Consumed::Done => Ok(Reply::Consuming { consumer, queue: id }),
            Consumed::ExclusiveUse => Err(Error {
                code: 403,
                text: format!("queue '{name}' in vhost '{vhost}' in exclusive use"),
            }),
            Consumed::NoQueue => Err(self.no_queue(&name)),
        }
    }

    /// A requester: no queue, one for each channel.
    fn consume_replies(&mut self, consume: &Consume) -> Result<Reply, Error> {
        if !consume.no_ack {
            return Err(Error { code: 406, text: "reply consumer cannot acknowledge".into() });
        }
        if self.replies.contains_key(&consume.channel) {
            return Err(Error { code: 406, text: "reply consumer already set".into() });
        }
        let consumer = self.node.next_consumer();
        let name = self.node.reply_to.open(&self.origin, consume.channel, consumer);
        self.replies.insert(consume.channel, (consumer, name));
        Ok(Reply::Consuming { consumer, queue: reply_to::QUEUE })
    }

    async fn cancel(
        &mut self,
        channel: ChannelId,
        consumer: ConsumerId,
        queue: QueueId,
    ) -> Result<(), Error> {
        if queue == reply_to::QUEUE {
            if let Some((_, name)) = self.replies.remove(&channel) {
                self.node.reply_to.close(&name);
            }
            return Ok(());
        }
        let last = self.ask(queue, |answer| Command::Cancel { queue, consumer, answer }).await?;
        if last {
            self.delete_unused(queue).await?;
        }
        Ok(())
    }
}
