//! Moving the last messages out of records that are mostly dead, so that the journal may forget these.
//!
//! ```text
//!  purged ─► a container is mostly dead ─► its bodies are read ─► stored, each in a record of its own
//!                     ▲                          │ one cannot be read: it stays as it is
//!                     └──── the next one ◄───────┴────── durable: the container goes
//! ```

use std::collections::BTreeMap;

use journal::op::Payload;
use model::id::{QueueId, Seq};
use model::message::Message;

use super::{Leading, Replica, body_name};
use crate::replicated::containers::Place;
use crate::shard::desk::Desk;

/// Messages that move out of a container into records of their own.
#[derive(Debug)]
pub(crate) struct Carried {
    /// The container.
    first: Seq,
    /// The state that they belong to.
    installs: u64,
    messages: Vec<Seq>,
}

impl Replica {
    /// Starts to move the last messages out of a container that is mostly dead.
    pub(super) fn carry(&mut self, desk: &Desk, queue: QueueId) {
        if self.carrying.is_some() {
            return;
        }
        let containers = self.containers.lock();
        let Some(&(first, count)) = containers.wasteful(1).first() else { return };
        let places = self.survivors(first, count);
        let places: Vec<(Seq, Place)> =
            places.filter_map(|seq| containers.place(seq).map(|place| (seq, place))).collect();
        drop(containers);
        self.carrying = Some(first);
        desk.read_places(queue, self.stream, places, true);
    }

    /// Which of a container's messages are alive.
    fn survivors(&self, first: Seq, count: u32) -> impl Iterator<Item = Seq> + '_ {
        (first.0..first.0 + u64::from(count)).map(Seq).filter(|seq| self.is_alive(*seq))
    }

    pub(super) fn is_alive(&self, seq: Seq) -> bool {
        let leaves = |leading: &Leading| {
            leading.held.contains(&seq) || leading.dead.iter().any(|(dead, _)| *dead == seq)
        };
        self.machine.queue().head(seq).is_some() || self.leading.as_ref().is_some_and(leaves)
    }

    /// Bodies of a container have been read. Gives those that need a record of their own, each with
    /// the name that it is stored under, and what [`Replica::on_stored`] has to be told then.
    pub(crate) fn on_carried(
        &mut self,
        bodies: Vec<(Seq, Option<Message>)>,
    ) -> Option<(Carried, Vec<(u64, Payload)>)> {
        let first = self.carrying?;
        let mut messages: BTreeMap<Seq, Message> =
            bodies.into_iter().filter_map(|(seq, message)| Some((seq, message?))).collect();
        messages.retain(|seq, _| self.is_alive(*seq));
        let is_whole = match self.containers.lock().count(first) {
            Some(count) => self.survivors(first, count).all(|seq| messages.contains_key(&seq)),
            None => true,
        };
        if !is_whole {
            tracing::error!(%first, "a record of messages cannot be read and stays as it is");
            self.containers.lock().is_unreadable(first);
            self.carrying = None;
            return None;
        }
        let carried = Carried {
            first,
            installs: self.installs,
            messages: messages.keys().copied().collect(),
        };
        let payload = |(seq, message)| (body_name(seq, false), Payload::Message(message));
        Some((carried, messages.into_iter().map(payload).collect()))
    }

    /// Carried bodies are durable in their new records.
    pub(crate) fn on_stored(
        &mut self,
        desk: &Desk,
        queue: QueueId,
        carried: &Carried,
        positions: &[Seq],
    ) {
        let mut containers = self.containers.lock();
        if carried.installs != self.installs {
            // There is another state, which knows nothing of them.
            containers.unwanted(positions);
            return;
        }
        let survivors: Vec<(Seq, Seq)> =
            carried.messages.iter().copied().zip(positions.iter().copied()).collect();
        containers.carried(carried.first, &survivors);
        for seq in carried.messages.iter().filter(|seq| !self.is_alive(**seq)) {
            containers.release(*seq, *seq);
        }
        drop(containers);
        self.carrying = None;
        self.carry(desk, queue);
    }
}
