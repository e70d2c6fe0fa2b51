//! The bodies of one queue that are in memory.
//!
//! A message that is in the journal may be dropped from here as soon as it is durable there, and is
//! read back when it is needed. One that is not (transient) stays until it is gone.

use journal::op::Lsn;
use model::id::Seq;
use model::message::Message;

use crate::slots::Slots;

/// A body with what its owner needs to know of it.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) message: Message,
    /// It is in the journal, or in the batch that is being gathered for it.
    pub(crate) journalled: bool,
}

impl Body {
    /// What it costs to keep.
    fn cost(&self) -> u64 {
        (self.message.encoded_len() + size_of::<Body>()) as u64
    }
}

/// See the module head.
#[derive(Debug, Default)]
pub(crate) struct Bodies {
    slots: Slots<Body>,
    bytes: u64,
    /// Everything up to the position is durable when the journal has synced the number.
    marks: std::collections::VecDeque<(Lsn, u64)>,
    /// Journalled bodies at or below this position may go.
    durable: u64,
}

impl Bodies {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds one.
    pub(crate) fn insert(&mut self, seq: Seq, body: Body) {
        self.bytes += body.cost();
        if let Some(old) = self.slots.insert(seq.0, body) {
            self.bytes -= old.cost();
        }
    }

    /// Looks at one.
    pub(crate) fn get(&self, seq: Seq) -> Option<&Body> {
        self.slots.get(seq.0)
    }

    /// Forgets one that is gone; returns whether the journal has to forget it too.
    pub(crate) fn remove(&mut self, seq: Seq) -> bool {
        let Some(body) = self.slots.take(seq.0) else { return true };
        self.bytes -= body.cost();
        body.journalled
    }

    /// Forgets a range; returns whether the journal has to forget any of it.
    pub(crate) fn remove_range(&mut self, first: Seq, last: Seq) -> bool {
        if first == last {
            return self.remove(first);
        }
        let Self { slots, bytes, .. } = self;
        let mut transient = 0;
        slots.take_range(first.0, last.0, |_, body| {
            *bytes -= body.cost();
            transient += u64::from(!body.journalled);
        });
        transient <= last.0 - first.0
    }

    /// Positions up to `last` were handed to the journal under `lsn`.
    pub(crate) fn handed(&mut self, lsn: Lsn, last: Seq) {
        self.marks.push_back((lsn, last.0));
    }

    /// The journal has synced up to `lsn`.
    pub(crate) fn synced(&mut self, lsn: Lsn) {
        while self.marks.front().is_some_and(|(mark, _)| *mark <= lsn) {
            if let Some((_, position)) = self.marks.pop_front() {
                self.durable = self.durable.max(position);
            }
        }
    }

    /// Everything up to `last` is durable already (after recovery).
    pub(crate) fn restored(&mut self, last: Seq) {
        self.durable = self.durable.max(last.0);
    }

    /// Drops durable journalled bodies, those that will be needed last first, until at most
    /// `keep` bytes are left or nothing more can go.
    pub(crate) fn evict(&mut self, keep: u64) {
        if self.bytes <= keep {
            return;
        }
        let mut excess = self.bytes - keep;
        let mut going = Vec::new();
        for position in self.slots.positions_down_from(self.durable) {
            if excess == 0 {
                break;
            }
            if let Some(body) = self.slots.get(position)
                && body.journalled
            {
                excess = excess.saturating_sub(body.cost());
                going.push(position);
            }
        }
        for position in going {
            self.remove(Seq(position));
        }
    }
}
