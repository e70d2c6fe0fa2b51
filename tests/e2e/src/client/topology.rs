//! Exchanges, queues and bindings.

use super::{Client, Event, Outcome};
use crate::codec::{Reader, Table, Writer};

/// Check only that it exists.
pub const PASSIVE: u8 = 1;
/// Survives a restart.
pub const DURABLE: u8 = 2;
/// A queue of this connection.
pub const EXCLUSIVE: u8 = 4;
/// Goes when nobody uses it.
pub const AUTO_DELETE: u8 = 8;
/// An exchange that clients cannot publish to.
pub const INTERNAL: u8 = 16;

/// `queue.declare-ok`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// The queue's name.
    pub name: String,
    /// Ready messages.
    pub messages: u32,
    /// Consumers.
    pub consumers: u32,
}

fn count(event: &Event) -> Outcome<u32> {
    Ok(Reader(&event.arguments).u32()?)
}

impl Client {
    /// Declares a queue; `flags` of [`PASSIVE`], [`DURABLE`], [`EXCLUSIVE`], [`AUTO_DELETE`].
    pub fn queue(
        &mut self,
        channel: u16,
        name: impl AsRef<[u8]>,
        flags: u8,
        arguments: &Table,
    ) -> Outcome<Declared> {
        let declare = Writer::method(50, 10).u16(0).short(name).u8(flags).table(arguments);
        let event = self.call(channel, &declare, (50, 11))?;
        let mut reader = Reader(&event.arguments);
        Ok(Declared { name: reader.short()?, messages: reader.u32()?, consumers: reader.u32()? })
    }

    /// Declares many durable queues, at most a hundred unanswered at a time.
    pub fn durable_queues(&mut self, channel: u16, names: &[String]) -> Outcome<()> {
        for (index, name) in names.iter().enumerate() {
            let declare = Writer::method(50, 10).u16(0).short(name).u8(DURABLE);
            self.send(channel, &declare.table(&Table::default()))?;
            if index >= 100 {
                self.await_event(channel, |event| event.id == (50, 11))?;
            }
        }
        for _ in 0..names.len().min(100) {
            self.await_event(channel, |event| event.id == (50, 11))?;
        }
        Ok(())
    }

    /// Passive declare: ready messages and consumers of a queue.
    pub fn depth(&mut self, channel: u16, name: &str) -> Outcome<Declared> {
        self.queue(channel, name, PASSIVE, &Table::default())
    }

    /// Declares an exchange; `flags` of [`PASSIVE`], [`DURABLE`], [`AUTO_DELETE`], [`INTERNAL`].
    pub fn exchange(
        &mut self,
        channel: u16,
        name: &str,
        kind: &str,
        flags: u8,
        arguments: &Table,
    ) -> Outcome<()> {
        let mut bits = flags & (PASSIVE | DURABLE);
        if flags & AUTO_DELETE != 0 {
            bits |= 4;
        }
        if flags & INTERNAL != 0 {
            bits |= 8;
        }
        let declare =
            Writer::method(40, 10).u16(0).short(name).short(kind).u8(bits).table(arguments);
        self.call(channel, &declare, (40, 11)).map(drop)
    }

    /// Deletes an exchange.
    pub fn delete_exchange(&mut self, channel: u16, name: &str, if_unused: bool) -> Outcome<()> {
        let delete = Writer::method(40, 20).u16(0).short(name).u8(u8::from(if_unused));
        self.call(channel, &delete, (40, 21)).map(drop)
    }

    /// Binds a queue.
    pub fn bind(
        &mut self,
        channel: u16,
        queue: &str,
        exchange: &str,
        key: &str,
        arguments: &Table,
    ) -> Outcome<()> {
        let bind = Self::binding(50, 20, queue, exchange, key).u8(0).table(arguments);
        self.call(channel, &bind, (50, 21)).map(drop)
    }

    /// Unbinds a queue.
    pub fn unbind(
        &mut self,
        channel: u16,
        queue: &str,
        exchange: &str,
        key: &str,
        arguments: &Table,
    ) -> Outcome<()> {
        let unbind = Self::binding(50, 50, queue, exchange, key).table(arguments);
        self.call(channel, &unbind, (50, 51)).map(drop)
    }

    /// Binds `destination` to `source`, both exchanges.
    pub fn bind_exchange(
        &mut self,
        channel: u16,
        destination: &str,
        source: &str,
        key: &str,
        arguments: &Table,
    ) -> Outcome<()> {
        let bind = Self::binding(40, 30, destination, source, key).u8(0).table(arguments);
        self.call(channel, &bind, (40, 31)).map(drop)
    }

    /// Unbinds `destination` from `source`, both exchanges.
    pub fn unbind_exchange(
        &mut self,
        channel: u16,
        destination: &str,
        source: &str,
        key: &str,
        arguments: &Table,
    ) -> Outcome<()> {
        let unbind = Self::binding(40, 40, destination, source, key).u8(0).table(arguments);
        self.call(channel, &unbind, (40, 51)).map(drop)
    }

    fn binding(class: u16, method: u16, destination: &str, source: &str, key: &str) -> Writer {
        Writer::method(class, method).u16(0).short(destination).short(source).short(key)
    }

    /// Purges a queue; how many messages went.
    pub fn purge(&mut self, channel: u16, queue: &str) -> Outcome<u32> {
        let purge = Writer::method(50, 30).u16(0).short(queue).u8(0);
        count(&self.call(channel, &purge, (50, 31))?)
    }

    /// Deletes a queue; how many messages went.
    pub fn delete_queue(&mut self, channel: u16, queue: &str) -> Outcome<u32> {
        self.delete_queue_if(channel, queue, false, false)
    }

    /// Deletes a queue on conditions; how many messages went.
    pub fn delete_queue_if(
        &mut self,
        channel: u16,
        queue: &str,
        unused: bool,
        empty: bool,
    ) -> Outcome<u32> {
        let bits = u8::from(unused) | (u8::from(empty) << 1);
        let delete = Writer::method(50, 40).u16(0).short(queue).u8(bits);
        count(&self.call(channel, &delete, (50, 41))?)
    }
}
