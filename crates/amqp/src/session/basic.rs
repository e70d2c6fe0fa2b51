//! Consumers and settlements.

use super::Session;
use super::reply::{Answer, Consuming};
use crate::request::{ChannelId, Consume, Error, Flow, Outcome, Request};
use amq_protocol::protocol::{AMQPClass, basic};
use wire::ack::Settlement;

/// The pseudo queue of direct reply-to.
const REPLY_TO: &str = "amq.rabbitmq.reply-to";

impl Session {
    pub(super) fn on_qos(&mut self, number: ChannelId, qos: &basic::Qos) {
        let Some(channel) = self.channels.get(number) else { return };
        if qos.global {
            let requests = &mut self.requests;
            channel.set_limit(qos.prefetch_count, |consumer, queue| {
                requests.push(Request::Limit { consumer, queue });
            });
        } else {
            channel.prefetch = qos.prefetch_count;
        }
        let ok = basic::AMQPMethod::QosOk(basic::QosOk {});
        self.outbox.method(number, &AMQPClass::Basic(ok));
        self.grant(number);
    }

    pub(super) fn on_consume(
        &mut self,
        number: ChannelId,
        ids: (u16, u16),
        consume: basic::Consume,
    ) -> Result<(), Error> {
        let queue = self.queue_name(number, consume.queue.into())?;
        let mut tag = String::from(consume.consumer_tag);
        if tag.is_empty() {
            tag = self.make_tag();
        }
        let consumers_max = self.config.consumers_max;
        let Some(channel) = self.channels.get(number) else { return Ok(()) };
        if queue == REPLY_TO {
            if !consume.no_ack {
                return Err(Error::precondition_failed("reply consumer cannot acknowledge"));
            }
            if channel.consumers.iter().any(|consumer| consumer.queue_name == REPLY_TO) {
                return Err(Error::precondition_failed("reply consumer already set"));
            }
        }
        if channel.consumers.by_tag(&tag).is_some() {
            return Err(Error::not_allowed(format!("attempt to reuse consumer tag '{tag}'")));
        }
        if let Some(max) = consumers_max
            && channel.consumers.len() >= max
        {
            return Err(Error::not_allowed(format!(
                "reached maximum ({max}) of consumers per channel"
            )));
        }
        let limited = channel.limiter.is_counting() && !consume.no_ack;
        let prefetch = if consume.no_ack { 0 } else { channel.prefetch };
        let request = Request::Consume(Consume {
            channel: number,
            queue: queue.clone(),
            tag: tag.clone(),
            no_ack: consume.no_ack,
            exclusive: consume.exclusive,
            arguments: consume.arguments,
            flow: if limited { Flow::Granted } else { Flow::Prefetch(prefetch) },
        });
        let consuming = Consuming {
            queue_name: queue,
            tag,
            no_ack: consume.no_ack,
            exclusive: consume.exclusive,
            prefetch,
            limited,
            no_wait: consume.nowait,
        };
        self.ask(number, ids, request, Answer::Consume(consuming));
        Ok(())
    }

    pub(super) fn on_cancel(&mut self, number: ChannelId, ids: (u16, u16), cancel: basic::Cancel) {
        let Some(channel) = self.channels.get(number) else { return };
        let tag = String::from(cancel.consumer_tag);
        let no_wait = cancel.nowait;
        if let Some(consumer) = channel.consumers.by_tag(&tag) {
            let (consumer, queue) = (consumer.id, consumer.queue);
            let request = Request::Cancel { channel: number, consumer, queue };
            self.ask(number, ids, request, Answer::Cancel { consumer, tag, no_wait });
        } else if !no_wait {
            let ok = basic::CancelOk { consumer_tag: tag.into() };
            self.outbox.method(number, &AMQPClass::Basic(basic::AMQPMethod::CancelOk(ok)));
        }
    }

    /// `basic.ack`, `basic.nack`, `basic.reject`.
    pub(super) fn on_settlement(
        &mut self,
        number: ChannelId,
        settlement: Settlement,
    ) -> Result<(), Error> {
        let (tag, multiple, outcome) = match settlement {
            Settlement::Ack { delivery_tag, multiple } => (delivery_tag, multiple, Outcome::Accept),
            Settlement::Nack { delivery_tag, multiple, requeue: true } => {
                (delivery_tag, multiple, Outcome::Return)
            }
            Settlement::Nack { delivery_tag, multiple, requeue: false } => {
                (delivery_tag, multiple, Outcome::Discard)
            }
            Settlement::Reject { delivery_tag, requeue: true } => {
                (delivery_tag, false, Outcome::Retry)
            }
            Settlement::Reject { delivery_tag, requeue: false } => {
                (delivery_tag, false, Outcome::Discard)
            }
        };
        let Some(channel) = self.channels.get(number) else { return Ok(()) };
        let unknown = |_| Error::precondition_failed(format!("unknown delivery tag {tag}"));
        if let Some(transaction) = &mut channel.transaction {
            if !multiple {
                let message = channel.held.take(tag).map_err(unknown)?;
                transaction.settle(outcome).push(crate::unsettled::Tagged { tag, message });
            } else if channel.held.len() > 0 || tag != 0 {
                let settled = transaction.settle(outcome);
                channel.held.take_through(tag, |tagged| settled.push(tagged)).map_err(unknown)?;
            }
            return Ok(());
        }
        if !multiple {
            let message = channel.held.take(tag).map_err(unknown)?;
            self.requests.settle(number, outcome).push(message);
            if channel.limiter.is_counting() {
                channel.count_settled(&[message]);
                self.grant(number);
            }
            return Ok(());
        }
        if channel.held.len() == 0 && tag == 0 {
            return Ok(());
        }
        let gathered = self.requests.settle(number, outcome);
        let before = gathered.len();
        channel.held.take_through(tag, |tagged| gathered.push(tagged.message)).map_err(unknown)?;
        if channel.limiter.is_counting() {
            channel.count_settled(&gathered[before..]);
            self.grant(number);
        }
        Ok(())
    }

    /// Everything unsettled goes back to its queue; what a transaction settled stays settled.
    pub(super) fn on_recover(&mut self, number: ChannelId, requeue: bool) -> Result<(), Error> {
        if !requeue {
            return Err(Error::not_implemented("requeue=false"));
        }
        let Some(channel) = self.channels.get(number) else { return Ok(()) };
        let gathered = self.requests.settle(number, Outcome::Return);
        let before = gathered.len();
        channel.held.take_all(|tagged| gathered.push(tagged.message));
        channel.count_settled(&gathered[before..]);
        self.grant(number);
        Ok(())
    }

    /// `amq.ctag-` and 22 characters.
    fn make_tag(&mut self) -> String {
        const ALPHABET: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut tag = String::from("amq.ctag-");
        for _ in 0..2 {
            let mut bits = self.next_random();
            for _ in 0..11 {
                // 11 × 6 bits: the last character of each half has only 4
                tag.push(char::from(ALPHABET[(bits & 63) as usize]));
                bits >>= 6;
            }
        }
        tag
    }

    /// `SplitMix64`: names must be different, not secret.
    fn next_random(&mut self) -> u64 {
        self.entropy = self.entropy.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.entropy;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}
