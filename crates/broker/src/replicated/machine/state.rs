//! The replicated state as bytes, for checkpoints and new members.

use bytes::{BufMut, Bytes, BytesMut};
use model::id::{ConnectionId, ConsumerId, NodeId, Seq};
use model::time::Timestamp;
use queue::queue::Queue;

use super::{Got, Machine};
use crate::replicated::numbered::{Ledger, Sender};
use crate::replicated::order::{self, Malformed, Subscribed};
use crate::replicated::version::{self, Unreadable};

impl Machine {
    /// Writes the state. Members that applied the same entries write the same bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = BytesMut::new();
        out.put_u8(self.version);
        out.put_u64_le(self.last.0);
        out.put_u64_le(self.stamp.0);
        out.put_u8(u8::from(self.is_new));
        let entries = self.ledger.entries();
        out.put_u32_le(u32::try_from(entries.len()).expect("a cluster has few nodes"));
        for (sender, last) in entries {
            put_sender(&mut out, sender);
            out.put_u64_le(last);
        }
        out.put_u32_le(u32::try_from(self.subscribed.len()).expect("consumers are limited"));
        for subscribed in self.subscribed.values() {
            subscribed.encode(&mut out);
        }
        out.put_u32_le(u32::try_from(self.parted.len()).expect("consumers are limited"));
        for (consumer, (at, connection)) in &self.parted {
            out.put_u64_le(consumer.0);
            put_sender(&mut out, *at);
            out.put_u64_le(connection.0);
        }
        out.put_u32_le(u32::try_from(self.gets.len()).expect("what is held is limited"));
        for got in self.gets.values() {
            put_sender(&mut out, got.sender);
            out.put_u64_le(got.number);
            out.put_u64_le(got.connection.0);
            out.put_u64_le(got.seq.0);
            out.put_u8(u8::from(got.redelivered));
            out.put_u32_le(got.delivery_count);
            out.put_u64_le(got.remaining);
        }
        let mut out = out.to_vec();
        self.queue.encode(&mut out);
        out
    }

    /// Reads what [`Machine::encode`] writes, where versions up to `known` are known.
    ///
    /// # Errors
    /// If it is something else, or of a newer version.
    pub(crate) fn decode(mut bytes: Bytes, known: u8) -> Result<Self, Unreadable> {
        let bytes = &mut bytes;
        let version = version::check(order::u8_of(bytes)?, known)?;
        let last = Seq(order::u64_of(bytes)?);
        let stamp = Timestamp(order::u64_of(bytes)?);
        let is_new = order::u8_of(bytes)? != 0;
        let mut entries = Vec::new();
        for _ in 0..order::u32_of(bytes)? {
            entries.push((take_sender(bytes)?, order::u64_of(bytes)?));
        }
        let mut machine = Self {
            version,
            last,
            stamp,
            is_new,
            ledger: Ledger::restore(entries),
            ..Self::new(known)
        };
        for _ in 0..order::u32_of(bytes)? {
            let subscribed = Subscribed::decode(bytes)?;
            machine.subscribed.insert(subscribed.consumer, subscribed);
        }
        for _ in 0..order::u32_of(bytes)? {
            let consumer = ConsumerId(order::u64_of(bytes)?);
            let of = (take_sender(bytes)?, ConnectionId(order::u64_of(bytes)?));
            machine.parted.insert(consumer, of);
        }
        for _ in 0..order::u32_of(bytes)? {
            let got = Got {
                sender: take_sender(bytes)?,
                number: order::u64_of(bytes)?,
                connection: ConnectionId(order::u64_of(bytes)?),
                seq: Seq(order::u64_of(bytes)?),
                redelivered: order::u8_of(bytes)? != 0,
                delivery_count: order::u32_of(bytes)?,
                remaining: order::u64_of(bytes)?,
                no_ack: false,
            };
            machine.gets.insert(got.seq, got);
        }
        machine.queue = Queue::decode(bytes).map_err(|_| Malformed("a queue's state"))?;
        Ok(machine)
    }
}

fn put_sender(out: &mut BytesMut, sender: Sender) {
    out.put_u64_le(sender.node.0);
    out.put_u64_le(sender.boot);
}

fn take_sender(bytes: &mut Bytes) -> Result<Sender, Malformed> {
    Ok(Sender { node: NodeId(order::u64_of(bytes)?), boot: order::u64_of(bytes)? })
}
