//! Events on their way to connections, gathered during one turn of the shard.

use std::collections::HashMap;
use std::sync::Arc;

use amqp::request::Event;
use model::id::{ConnectionId, QueueId};

use crate::origin::Origin;
use crate::outlet::Outlet;

/// Names an outbox; valid as long as one of its users is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutboxId(usize);

#[derive(Debug)]
struct Outbox {
    origin: Arc<Origin>,
    users: usize,
    events: Vec<Event>,
}

/// One outbox for each connection that consumes from this shard.
#[derive(Debug, Default)]
pub(crate) struct Outboxes {
    /// A connection of another node has one for each queue.
    by_connection: HashMap<(ConnectionId, Option<QueueId>), OutboxId>,
    slots: Vec<Option<Outbox>>,
    free: Vec<usize>,
    filled: Vec<usize>,
}

impl Outboxes {
    /// Registers one more user of a connection's outbox.
    pub(crate) fn join(&mut self, origin: &Arc<Origin>) -> OutboxId {
        if let Some(&id) = self.by_connection.get(&key(origin)) {
            if let Some(outbox) = &mut self.slots[id.0] {
                outbox.users += 1;
            }
            return id;
        }
        let outbox = Outbox { origin: Arc::clone(origin), users: 1, events: Vec::new() };
        let index = if let Some(index) = self.free.pop() {
            self.slots[index] = Some(outbox);
            index
        } else {
            self.slots.push(Some(outbox));
            self.slots.len() - 1
        };
        self.by_connection.insert(key(origin), OutboxId(index));
        OutboxId(index)
    }

    /// Ends what [`Outboxes::join`] began. What has been gathered is still sent.
    pub(crate) fn leave(&mut self, id: OutboxId) {
        let Some(outbox) = &mut self.slots[id.0] else { return };
        outbox.users -= 1;
        if outbox.users == 0 {
            if !outbox.events.is_empty() {
                outbox.origin.outlet.post(&mut outbox.events);
            }
            self.by_connection.remove(&key(&outbox.origin));
            self.slots[id.0] = None;
            self.free.push(id.0);
        }
    }

    /// Adds an event.
    pub(crate) fn push(&mut self, id: OutboxId, event: Event) {
        if let Some(outbox) = &mut self.slots[id.0] {
            if outbox.events.is_empty() {
                self.filled.push(id.0);
            }
            outbox.events.push(event);
        }
    }

    /// Sends what has been gathered.
    pub(crate) fn flush(&mut self) {
        for index in self.filled.drain(..) {
            if let Some(outbox) = &mut self.slots[index]
                && !outbox.events.is_empty()
            {
                outbox.origin.outlet.post(&mut outbox.events);
            }
        }
    }
}

fn key(origin: &Origin) -> (ConnectionId, Option<QueueId>) {
    let queue = match &origin.outlet {
        Outlet::Mailbox(_) => None,
        Outlet::Away(way) => Some(way.queue),
    };
    (origin.id, queue)
}
