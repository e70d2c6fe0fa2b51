//! Vital puts for which not even the reserve has room, and whatever was handed over behind them
//! for the same streams.
//!
//! Unlike a held put nothing of its own stream passes a vital one: who replaces a record hands over
//! the new one and the release of the old one together, and must never be left without both.

use crate::op::Op;
use model::id::StreamId;
use std::collections::{BTreeMap, VecDeque};

/// Operations that wait, in order.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    ops: VecDeque<(u64, Op)>,
    /// How many operations of a stream wait.
    streams: BTreeMap<StreamId, usize>,
}

impl Parked {
    pub(crate) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether something of this stream waits.
    pub(crate) fn has(&self, stream: StreamId) -> bool {
        !self.ops.is_empty() && self.streams.contains_key(&stream)
    }

    /// The first operation that waits, and its number.
    pub(crate) fn first(&self) -> Option<(u64, &Op)> {
        self.ops.front().map(|(number, op)| (*number, op))
    }

    pub(crate) fn push(&mut self, number: u64, op: Op) {
        *self.streams.entry(op.stream()).or_insert(0) += 1;
        self.ops.push_back((number, op));
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, Op)> {
        let (number, op) = self.ops.pop_front()?;
        let stream = op.stream();
        match self.streams.get_mut(&stream) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.streams.remove(&stream)),
        }
        Some((number, op))
    }
}
