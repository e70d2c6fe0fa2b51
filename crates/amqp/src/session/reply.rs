//! Answers of the broker, and what they answer.

use super::{Failure, Phase, Session};
use crate::consumers::Consumer;
use crate::error::code;
use crate::request::{ChannelId, Error, Reply, Request, Unsettled};
use amq_protocol::protocol::{AMQPClass, basic, channel, connection, queue};

/// The request that is open, and what its answer needs.
#[derive(Debug)]
pub(super) enum Waiting {
    Authenticate,
    Open,
    UpdateSecret,
    Closing,
    ChannelOpen {
        channel: ChannelId,
    },
    Channel {
        channel: ChannelId,
        ids: (u16, u16),
        answer: Answer,
    },
    /// A consumer of a channel that ended meanwhile is cancelled.
    Forgotten,
}

/// What is sent to the client when its request was granted. `no_wait`: nothing.
#[derive(Debug)]
pub(super) enum Answer {
    Method { method: AMQPClass, no_wait: bool },
    QueueDeclare { no_wait: bool },
    Purge { no_wait: bool },
    Delete { no_wait: bool },
    Consume(Consuming),
    Cancel { consumer: model::id::ConsumerId, tag: String, no_wait: bool },
    Get { no_ack: bool },
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "these are flags of the method")]
pub(super) struct Consuming {
    pub(super) queue_name: String,
    pub(super) tag: String,
    pub(super) no_ack: bool,
    pub(super) exclusive: bool,
    pub(super) prefetch: u16,
    pub(super) limited: bool,
    pub(super) no_wait: bool,
}

impl Session {
    pub(super) fn on_answer(&mut self, waiting: Waiting, reply: Reply) {
        // closed by an event while the request was open
        if matches!(self.phase, Phase::Closing | Phase::Lingering | Phase::Closed)
            && !matches!(waiting, Waiting::Closing)
        {
            if let Waiting::Channel { channel, .. } = waiting {
                self.forget(channel, reply);
            }
            return;
        }
        if let Reply::Refused(error) = reply {
            self.on_refused(&waiting, error);
            return;
        }
        match (waiting, reply) {
            (Waiting::Authenticate, Reply::Authenticated { user }) => self.on_authenticated(user),
            (Waiting::Open, Reply::Done) => self.on_opened(),
            (Waiting::UpdateSecret, Reply::Done) => {
                self.send(connection::AMQPMethod::UpdateSecretOk(connection::UpdateSecretOk {}));
            }
            (Waiting::Closing, Reply::Done) => self.confirm_close(),
            (Waiting::ChannelOpen { channel: number }, Reply::Done) => {
                self.channels.open(number);
                let ok = channel::AMQPMethod::OpenOk(channel::OpenOk {});
                self.outbox.method(number, &AMQPClass::Channel(ok));
            }
            (Waiting::Forgotten, _) => {}
            (Waiting::Channel { channel, ids, answer }, reply) => {
                if let Err(reply) = self.on_channel_answer(channel, answer, reply) {
                    self.on_wrong_reply(channel, ids, &reply);
                }
            }
            (
                Waiting::Authenticate
                | Waiting::Open
                | Waiting::UpdateSecret
                | Waiting::Closing
                | Waiting::ChannelOpen { .. },
                reply,
            ) => self.on_wrong_reply(0, (0, 0), &reply),
        }
    }

    fn on_refused(&mut self, waiting: &Waiting, error: Error) {
        match waiting {
            Waiting::Authenticate if error.code == code::ACCESS_REFUSED => {
                self.refuse_login(&error.text);
            }
            Waiting::Authenticate => self.close_connection(&error, (10, 11)),
            Waiting::Open => self.close_connection(&error, (10, 40)),
            Waiting::UpdateSecret => self.close_connection(&error, (10, 70)),
            // the client leaves anyway
            Waiting::Closing => self.confirm_close(),
            &Waiting::ChannelOpen { channel } => {
                self.fail(Failure { channel, ids: (20, 10), error });
            }
            &Waiting::Channel { channel, ids, .. } => self.fail(Failure { channel, ids, error }),
            Waiting::Forgotten => {}
        }
    }

    fn on_wrong_reply(&mut self, channel: ChannelId, ids: (u16, u16), reply: &Reply) {
        debug_assert!(false, "reply {reply:?} does not answer method {ids:?}");
        let error = Error::new(code::INTERNAL_ERROR, "internal error");
        self.fail(Failure { channel, ids, error });
    }

    /// # Errors
    /// The reply, if it is not one for this request.
    fn on_channel_answer(
        &mut self,
        number: ChannelId,
        answer: Answer,
        reply: Reply,
    ) -> Result<(), Reply> {
        // the channel may have been closed by an event meanwhile
        let Some(running) = self.channels.get(number) else {
            self.forget(number, reply);
            return Ok(());
        };
        let (method, no_wait) = match (answer, reply) {
            (Answer::Method { method, no_wait }, Reply::Done) => (method, no_wait),
            (
                Answer::QueueDeclare { no_wait },
                Reply::QueueDeclared { queue, messages, consumers },
            ) => {
                running.last_queue.clone_from(&queue);
                let ok = queue::DeclareOk {
                    queue: queue.into(),
                    message_count: messages,
                    consumer_count: consumers,
                };
                (AMQPClass::Queue(queue::AMQPMethod::DeclareOk(ok)), no_wait)
            }
            (Answer::Purge { no_wait }, Reply::Count(message_count)) => {
                let ok = queue::PurgeOk { message_count };
                (AMQPClass::Queue(queue::AMQPMethod::PurgeOk(ok)), no_wait)
            }
            (Answer::Delete { no_wait }, Reply::Count(message_count)) => {
                let ok = queue::DeleteOk { message_count };
                (AMQPClass::Queue(queue::AMQPMethod::DeleteOk(ok)), no_wait)
            }
            (Answer::Consume(consuming), Reply::Consuming { consumer, queue }) => {
                let no_wait = consuming.no_wait;
                let ok = basic::ConsumeOk { consumer_tag: consuming.tag.clone().into() };
                running.consumers.insert(Consumer {
                    id: consumer,
                    queue,
                    queue_name: consuming.queue_name,
                    tag: consuming.tag,
                    no_ack: consuming.no_ack,
                    exclusive: consuming.exclusive,
                    prefetch: consuming.prefetch,
                    limited: consuming.limited,
                    granted: 0,
                    unsettled: 0,
                    wants: false,
                });
                (AMQPClass::Basic(basic::AMQPMethod::ConsumeOk(ok)), no_wait)
            }
            (Answer::Cancel { consumer, tag, no_wait }, Reply::Done) => {
                self.end_consumer(number, consumer);
                let ok = basic::CancelOk { consumer_tag: tag.into() };
                (AMQPClass::Basic(basic::AMQPMethod::CancelOk(ok)), no_wait)
            }
            (Answer::Get { .. }, Reply::Got(None)) => {
                (AMQPClass::Basic(basic::AMQPMethod::GetEmpty(basic::GetEmpty {})), false)
            }
            (Answer::Get { no_ack }, Reply::Got(Some((delivery, remaining)))) => {
                let tag = running.next_tag();
                if !no_ack {
                    let message =
                        Unsettled { queue: delivery.queue, seq: delivery.seq, consumer: None };
                    running.held.push(tag, message);
                }
                self.outbox.got(number, tag, delivery.redelivered, remaining, &delivery.message);
                return Ok(());
            }
            (_, reply) => return Err(reply),
        };
        if !no_wait {
            self.outbox.method(number, &method);
        }
        Ok(())
    }

    /// A reply for a channel that is no more: what it gave must go back.
    fn forget(&mut self, channel: ChannelId, reply: Reply) {
        match reply {
            Reply::Consuming { consumer, queue } => {
                self.requests.push(Request::Cancel { channel, consumer, queue });
                self.waiting = Some(Waiting::Forgotten);
            }
            Reply::Got(Some((delivery, _))) => {
                self.requests.settle(channel, crate::request::Outcome::Return).push(Unsettled {
                    queue: delivery.queue,
                    seq: delivery.seq,
                    consumer: None,
                });
            }
            Reply::Done
            | Reply::Authenticated { .. }
            | Reply::QueueDeclared { .. }
            | Reply::Count(_)
            | Reply::Got(None)
            | Reply::Refused(_) => {}
        }
    }

    /// Forgets a consumer; what it holds stays with the channel.
    pub(super) fn end_consumer(
        &mut self,
        number: ChannelId,
        consumer: model::id::ConsumerId,
    ) -> Option<Consumer> {
        let running = self.channels.get(number)?;
        let ended = running.consumers.remove(consumer)?;
        running.limiter.on_unused(ended.granted);
        self.grant(number);
        Some(ended)
    }

    /// Hands free places of the channel's limit to its consumers.
    pub(super) fn grant(&mut self, number: ChannelId) {
        let Some(running) = self.channels.get(number) else { return };
        if !running.limiter.is_counting() {
            return;
        }
        let requests = &mut self.requests;
        running.limiter.grant(&mut running.consumers, |grant| {
            requests.push(Request::Grant {
                consumer: grant.consumer,
                queue: grant.queue,
                count: grant.count,
            });
        });
    }
}
