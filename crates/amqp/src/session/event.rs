//! What the broker tells without being asked.

use super::{Phase, Session};
use crate::confirms::Answer;
use crate::request::{ChannelId, Delivery, Event, Request, Unsettled};
use amq_protocol::protocol::{AMQPClass, basic};
use model::id::ConsumerId;
use wire::ack::Settlement;
use wire::deliver::Deliver;

impl Session {
    /// Takes one event. May make requests, so [`Session::next_request`] is to be called after.
    pub fn on_event(&mut self, event: Event) {
        match event {
            Event::Deliver(delivery) => self.on_delivery(&delivery),
            Event::Confirmed { channel, number, accepted } => {
                self.on_confirmed(channel, number, accepted);
            }
            Event::Returned { channel, reply_code, reply_text, message } => {
                if self.channels.get(channel).is_some() {
                    self.outbox.returned(channel, reply_code, reply_text, &message);
                }
            }
            Event::ConsumerCancelled { channel, consumer } => self.cancel(channel, consumer),
            Event::ConsumerTimedOut { channel, consumer, error } => {
                if !self.client.takes_cancel {
                    self.close_channel(channel, &error, (0, 0));
                    return;
                }
                let Some(running) = self.channels.get(channel) else { return };
                let Some(timed_out) = running.consumers.get(consumer) else { return };
                let queue = timed_out.queue;
                self.cancel(channel, consumer);
                self.requests.push(Request::ConsumerEnded { consumer, queue });
            }
            Event::Demand { channel, consumer } => {
                let Some(running) = self.channels.get(channel) else { return };
                let Some(consumer) = running.consumers.get(consumer) else { return };
                consumer.wants = true;
                self.grant(channel);
            }
            Event::GrantUnused { channel, consumer, count } => {
                let Some(running) = self.channels.get(channel) else { return };
                let Some(consumer) = running.consumers.get(consumer) else { return };
                let count = count.min(consumer.granted);
                consumer.granted -= count;
                running.limiter.on_unused(count);
                self.grant(channel);
            }
            Event::Blocked { reason } => self.on_alarm(reason),
            Event::Unblocked => self.on_alarm_ended(),
            Event::CloseChannel { channel, error } => self.close_channel(channel, &error, (0, 0)),
            Event::Close(error) => {
                // before the login there is nobody to tell
                if matches!(self.phase, Phase::Greeting | Phase::Starting) {
                    self.close_now(&error.text);
                } else {
                    self.close_connection(&error, (0, 0));
                }
            }
        }
    }

    /// The broker ends a consumer; the client hears of it if it can.
    fn cancel(&mut self, channel: ChannelId, consumer: ConsumerId) {
        let Some(ended) = self.end_consumer(channel, consumer) else { return };
        if self.client.takes_cancel {
            let cancel = basic::Cancel { consumer_tag: ended.tag.into(), nowait: true };
            let method = AMQPClass::Basic(basic::AMQPMethod::Cancel(cancel));
            self.outbox.method(channel, &method);
        }
    }

    /// A delivery for a consumer that ended is ignored: its queue took the message back then.
    #[inline]
    fn on_delivery(&mut self, delivery: &Delivery) {
        let Some(id) = delivery.consumer else { return };
        let Some(channel) = self.channels.get(delivery.channel) else { return };
        let Some(consumer) = channel.consumers.get(id) else { return };
        channel.tag += 1;
        let tag = channel.tag;
        if !consumer.no_ack {
            let message =
                Unsettled { queue: delivery.queue, seq: delivery.seq, consumer: Some(id) };
            channel.held.push(tag, message);
            if channel.limiter.is_counting() {
                let was_granted = consumer.granted > 0;
                if consumer.limited {
                    consumer.granted = consumer.granted.saturating_sub(1);
                    consumer.unsettled += 1;
                }
                channel.limiter.on_delivered(was_granted);
            }
        }
        let deliver = Deliver {
            consumer_tag: &consumer.tag,
            delivery_tag: tag,
            redelivered: delivery.redelivered,
        };
        self.outbox.deliver(delivery.channel, &deliver, id, delivery.queue, &delivery.message);
    }

    #[inline]
    fn on_confirmed(&mut self, number: ChannelId, confirm: u64, accepted: bool) {
        let Some(channel) = self.channels.get(number) else { return };
        let Some(confirms) = &mut channel.confirms else { return };
        confirms.decide(confirm, accepted);
        if !channel.has_answers {
            channel.has_answers = true;
            self.answering.push(number);
        }
    }

    /// Writes the confirms that were gathered.
    pub(super) fn write_answers(&mut self) {
        for number in self.answering.drain(..) {
            // the channel may have been closed, and another opened under its number
            let Some(channel) = self.channels.get(number) else { continue };
            channel.has_answers = false;
            let Some(confirms) = &mut channel.confirms else { continue };
            let outbox = &mut self.outbox;
            confirms.flush(|Answer { number: tag, multiple, accepted }| {
                let settlement = if accepted {
                    Settlement::Ack { delivery_tag: tag, multiple }
                } else {
                    // the flag means nothing here; RabbitMQ sets it
                    Settlement::Nack { delivery_tag: tag, multiple, requeue: true }
                };
                outbox.settlement(number, settlement);
            });
        }
    }
}
