//! Publishes that wait until the journal has synced them.

use std::collections::VecDeque;
use std::sync::Arc;

use amqp::request::{ChannelId, Event};
use journal::op::Lsn;

use crate::origin::{Group, Origin};
use crate::shard::visitors::Visit;

/// What one batch of one connection waits for.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    pub(crate) origin: Option<Arc<Origin>>,
    /// Bytes in flight.
    pub(crate) bytes: usize,
    pub(crate) confirms: Vec<(ChannelId, u64)>,
    pub(crate) groups: Vec<Arc<Group>>,
    /// Another node's orders.
    pub(crate) visit: Option<Visit>,
}

impl Owed {
    /// Pays: confirms, answers groups, frees the bytes in flight. Returns the number of confirms.
    fn pay(self) -> u64 {
        for group in &self.groups {
            group.answer(true);
        }
        if let Some(visit) = self.visit {
            visit.pay();
        }
        let count = self.confirms.len() as u64;
        if let Some(origin) = &self.origin {
            if !self.confirms.is_empty() {
                tracing::trace!(target: "walk", "confirm");
                let mut events: Vec<Event> = self
                    .confirms
                    .into_iter()
                    .map(|(channel, number)| Event::Confirmed { channel, number, accepted: true })
                    .collect();
                origin.outlet.post(&mut events);
            }
            if self.bytes > 0 {
                origin.in_flight.settle(self.bytes);
            }
        }
        count
    }
}

/// Batches in the order in which they were handed to the journal.
#[derive(Debug, Default)]
pub(crate) struct Confirms {
    waiting: VecDeque<(Lsn, Owed)>,
}

impl Confirms {
    /// Remembers a batch that is safe when the journal has synced `lsn`.
    pub(crate) fn push(&mut self, lsn: Lsn, owed: Owed) {
        self.waiting.push_back((lsn, owed));
    }

    /// Pays everything up to `durable`; returns the number of confirms.
    pub(crate) fn durable(&mut self, durable: Lsn) -> u64 {
        let mut count = 0;
        while self.waiting.front().is_some_and(|(lsn, _)| *lsn <= durable) {
            if let Some((_, owed)) = self.waiting.pop_front() {
                count += owed.pay();
            }
        }
        count
    }

    /// A batch that needs no disk is paid at once; but orders of another node wait for those before
    /// them, for which their answer stands too. Returns the number of confirms.
    pub(crate) fn settle(&mut self, owed: Owed) -> u64 {
        match self.waiting.back() {
            Some((lsn, _)) if owed.visit.is_some() => {
                let lsn = *lsn;
                self.waiting.push_back((lsn, owed));
                0
            }
            _ => owed.pay(),
        }
    }

    /// Pays a batch that needs no disk.
    pub(crate) fn pay_now(owed: Owed) -> u64 {
        owed.pay()
    }
}
