//! Publishing, consuming and settling.

use super::{Client, Event, METHOD, Outcome};
use crate::codec::{Malformed, Reader, Table, Writer};
use crate::content::{Delivery, Properties, Returned};

/// Publish: return the message if no queue takes it.
pub const MANDATORY: u8 = 1;
/// Publish: return the message if no consumer can take it at once.
pub const IMMEDIATE: u8 = 2;
/// Consume: messages are settled when they are sent.
pub const NO_ACK: u8 = 2;
/// Consume: the only consumer.
pub const EXCLUSIVE_CONSUMER: u8 = 4;

fn delivery(event: Event) -> Result<Delivery, Malformed> {
    let mut reader = Reader(&event.arguments);
    let deliver = event.id == (60, 60);
    let consumer = if deliver { reader.short()? } else { String::new() };
    let tag = reader.u64()?;
    let redelivered = reader.u8()? != 0;
    let exchange = reader.short()?;
    let routing_key = reader.short()?;
    let remaining = if deliver { 0 } else { reader.u32()? };
    let (properties, body) = event.content.ok_or(Malformed("delivery without content"))?;
    Ok(Delivery { tag, consumer, redelivered, exchange, routing_key, remaining, properties, body })
}

fn returned(event: Event) -> Result<Returned, Malformed> {
    let mut reader = Reader(&event.arguments);
    let (code, text) = (reader.u16()?, reader.short()?);
    let (exchange, routing_key) = (reader.short()?, reader.short()?);
    let (properties, body) = event.content.ok_or(Malformed("return without content"))?;
    Ok(Returned { code, text, exchange, routing_key, properties, body })
}

impl Client {
    /// Publishes; flags of [`MANDATORY`] and [`IMMEDIATE`].
    pub fn publish_with(
        &mut self,
        channel: u16,
        exchange: &str,
        key: &str,
        flags: u8,
        properties: &Properties,
        body: &[u8],
    ) -> Outcome<()> {
        let publish = Writer::method(60, 40).u16(0).short(exchange).short(key).u8(flags);
        let mut frames = publish.frame(METHOD, channel);
        self.content_frames(channel, properties, body, &mut frames);
        self.buffer(&frames)
    }

    /// Publishes without flags.
    pub fn publish(
        &mut self,
        channel: u16,
        exchange: &str,
        key: &str,
        properties: &Properties,
        body: impl AsRef<[u8]>,
    ) -> Outcome<()> {
        self.publish_with(channel, exchange, key, 0, properties, body.as_ref())
    }

    /// Publishes a persistent message through the default exchange.
    pub fn put(&mut self, channel: u16, queue: &str, body: impl AsRef<[u8]>) -> Outcome<()> {
        self.publish(channel, "", queue, &Properties::persistent(), body)
    }

    /// Waits for the next `basic.return`.
    pub fn await_return(&mut self, channel: u16) -> Outcome<Returned> {
        let event = self.await_event(channel, |event| event.id == (60, 50))?;
        Ok(returned(event)?)
    }

    /// Sets the prefetch limit.
    pub fn qos(&mut self, channel: u16, count: u16, global: bool) -> Outcome<()> {
        let qos = Writer::method(60, 10).u32(0).u16(count).u8(u8::from(global));
        self.call(channel, &qos, (60, 11)).map(drop)
    }

    /// Subscribes; the broker's tag if `tag` is empty.
    pub fn consume_with(
        &mut self,
        channel: u16,
        queue: &str,
        tag: &str,
        flags: u8,
        arguments: &Table,
    ) -> Outcome<String> {
        let consume =
            Writer::method(60, 20).u16(0).short(queue).short(tag).u8(flags).table(arguments);
        let event = self.call(channel, &consume, (60, 21))?;
        Ok(Reader(&event.arguments).short()?)
    }

    /// Subscribes with manual acknowledgement.
    pub fn consume(&mut self, channel: u16, queue: &str, tag: &str) -> Outcome<String> {
        self.consume_with(channel, queue, tag, 0, &Table::default())
    }

    /// Ends a subscription.
    pub fn cancel(&mut self, channel: u16, tag: &str) -> Outcome<()> {
        self.call(channel, &Writer::method(60, 30).short(tag).u8(0), (60, 31)).map(drop)
    }

    /// Waits until the broker cancels a consumer; its tag.
    pub fn await_cancel(&mut self, channel: u16) -> Outcome<String> {
        let event = self.await_event(channel, |event| event.id == (60, 30))?;
        Ok(Reader(&event.arguments).short()?)
    }

    /// Waits for the next delivery.
    pub fn delivery(&mut self, channel: u16) -> Outcome<Delivery> {
        let event = self.await_event(channel, |event| event.id == (60, 60))?;
        Ok(delivery(event)?)
    }

    /// Waits for `count` deliveries.
    pub fn deliveries(&mut self, channel: u16, count: usize) -> Outcome<Vec<Delivery>> {
        (0..count).map(|_| self.delivery(channel)).collect()
    }

    /// Takes a delivery that is here already.
    pub fn take_delivery(&mut self, channel: u16) -> Option<Delivery> {
        let event = self.take_event(channel, |event| event.id == (60, 60))?;
        delivery(event).ok()
    }

    /// Fetches one message.
    pub fn get(&mut self, channel: u16, queue: &str, no_ack: bool) -> Outcome<Option<Delivery>> {
        let get = Writer::method(60, 70).u16(0).short(queue).u8(u8::from(no_ack));
        self.send(channel, &get)?;
        let event = self.await_event(channel, |event| matches!(event.id, (60, 71 | 72)))?;
        if event.id == (60, 72) {
            return Ok(None);
        }
        Ok(Some(delivery(event)?))
    }

    /// Fetches and settles everything that is ready.
    pub fn drain_queue(&mut self, channel: u16, queue: &str) -> Outcome<Vec<Delivery>> {
        let mut all = Vec::new();
        while let Some(message) = self.get(channel, queue, true)? {
            all.push(message);
        }
        Ok(all)
    }

    /// Takes everything that is ready as a consumer does, which is faster for thousands.
    pub fn take_ready(&mut self, channel: u16, queue: &str) -> Outcome<Vec<Delivery>> {
        let ready = self.depth(channel, queue)?.messages as usize;
        self.consume_with(channel, queue, "take-ready", NO_ACK, &Table::default())?;
        let messages = self.deliveries(channel, ready)?;
        self.cancel(channel, "take-ready")?;
        Ok(messages)
    }

    /// Polls until a message is there, and takes it.
    pub fn get_soon(&mut self, channel: u16, queue: &str) -> Delivery {
        crate::wait::until_some(&format!("queue {queue} has a message"), || {
            self.get(channel, queue, true).expect("basic.get works")
        })
    }

    /// Polls until a message is there, and takes it unsettled.
    pub fn get_soon_unsettled(&mut self, channel: u16, queue: &str) -> Delivery {
        crate::wait::until_some(&format!("queue {queue} has a message"), || {
            self.get(channel, queue, false).expect("basic.get works")
        })
    }

    /// `basic.ack`; no answer is awaited.
    pub fn ack(&mut self, channel: u16, tag: u64, multiple: bool) -> Outcome<()> {
        self.send(channel, &Writer::method(60, 80).u64(tag).u8(u8::from(multiple)))
    }

    /// `basic.nack`; no answer is awaited.
    pub fn nack(&mut self, channel: u16, tag: u64, multiple: bool, requeue: bool) -> Outcome<()> {
        let bits = u8::from(multiple) | (u8::from(requeue) << 1);
        self.send(channel, &Writer::method(60, 120).u64(tag).u8(bits))
    }

    /// `basic.reject`; no answer is awaited.
    pub fn reject(&mut self, channel: u16, tag: u64, requeue: bool) -> Outcome<()> {
        self.send(channel, &Writer::method(60, 90).u64(tag).u8(u8::from(requeue)))
    }

    /// `basic.recover`.
    pub fn recover(&mut self, channel: u16, requeue: bool) -> Outcome<()> {
        self.call(channel, &Writer::method(60, 110).u8(u8::from(requeue)), (60, 111)).map(drop)
    }

    /// A round trip on the channel: everything sent before has been seen by it.
    pub fn sync(&mut self, channel: u16) -> Outcome<()> {
        self.exchange(channel, "amq.direct", "direct", super::topology::PASSIVE, &Table::default())
    }
}
