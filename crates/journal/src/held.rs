//! Bulk puts that wait until there is room for them.
//!
//! They keep their order. A release or drop cancels them where they stand and a note changes
//! them, so nothing of a held put that is no longer wanted ever reaches the disk.

use crate::op::{Head, Payload};
use model::id::{Seq, StreamId};
use std::collections::BTreeMap;

/// A put that waits.
#[derive(Debug)]
pub(crate) struct HeldPut {
    pub(crate) name: (StreamId, Seq),
    pub(crate) head: Head,
    pub(crate) payload: Payload,
}

/// All puts that wait, by the number of their operation.
#[derive(Debug, Default)]
pub(crate) struct Held {
    puts: BTreeMap<u64, HeldPut>,
    numbers: BTreeMap<(StreamId, Seq), u64>,
}

impl Held {
    pub(crate) fn is_empty(&self) -> bool {
        self.puts.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.puts.len()
    }

    /// The first operation that waits.
    pub(crate) fn first(&self) -> Option<(u64, &HeldPut)> {
        self.puts.first_key_value().map(|(&number, put)| (number, put))
    }

    pub(crate) fn push(&mut self, number: u64, put: HeldPut) {
        self.numbers.insert(put.name, number);
        self.puts.insert(number, put);
    }

    pub(crate) fn pop(&mut self) -> Option<HeldPut> {
        let (_, put) = self.puts.pop_first()?;
        self.numbers.remove(&put.name);
        Some(put)
    }

    pub(crate) fn note(&mut self, name: (StreamId, Seq), head: Head) {
        if let Some(put) = self.numbers.get(&name).and_then(|number| self.puts.get_mut(number)) {
            put.head = head;
        }
    }

    /// Cancels what was handed over of a range of a stream before an operation; the payload bytes
    /// that were waiting.
    pub(crate) fn release(
        &mut self,
        before: u64,
        stream: StreamId,
        first: Seq,
        last: Seq,
    ) -> usize {
        if self.puts.is_empty() || first > last {
            return 0;
        }
        let range = self.numbers.range((stream, first)..=(stream, last));
        let range = range.filter(|&(_, &number)| number < before);
        let names: Vec<_> = range.map(|(&name, &number)| (name, number)).collect();
        let mut bytes = 0;
        for (name, number) in names {
            self.numbers.remove(&name);
            let put = self.puts.remove(&number).expect("both maps hold the same puts");
            bytes += put.payload.len();
        }
        bytes
    }
}
