//! Messages that came back and wait for their next attempt.

use std::collections::BTreeMap;

use model::id::Seq;
use model::time::Timestamp;

use crate::malformed::Malformed;
use crate::message::{Message, NEVER};
use crate::reader::{self, Reader};
use crate::runs;

/// They are due in the order of their times, those of one time in the order of their names.
#[derive(Debug, Clone)]
pub(crate) struct Delayed {
    /// When the next one is due, or [`NEVER`]; every command asks.
    next: Timestamp,
    waiting: BTreeMap<(Timestamp, Seq), Message>,
    times: BTreeMap<Seq, Timestamp>,
    bytes: u64,
}

impl Default for Delayed {
    fn default() -> Self {
        Self { next: NEVER, waiting: BTreeMap::new(), times: BTreeMap::new(), bytes: 0 }
    }
}

impl Delayed {
    pub(crate) fn len(&self) -> u64 {
        self.waiting.len() as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn push(&mut self, message: Message, due: Timestamp) {
        let before = self.times.insert(message.seq, due);
        debug_assert!(before.is_none(), "a message waits once");
        self.waiting.insert((due, message.seq), message);
        self.next = self.next.min(due);
        self.bytes += u64::from(message.bytes);
    }

    /// When the next one is due, or [`NEVER`].
    pub(crate) fn deadline(&self) -> Timestamp {
        self.next
    }

    /// Takes the next one if it is due.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<Message> {
        if self.next > now {
            return None;
        }
        let (_, message) = self.waiting.pop_first()?;
        self.next = self.waiting.first_key_value().map_or(NEVER, |((due, _), _)| *due);
        self.times.remove(&message.seq);
        self.bytes -= u64::from(message.bytes);
        Some(message)
    }

    pub(crate) fn find(&self, seq: Seq) -> Option<Message> {
        let due = *self.times.get(&seq)?;
        self.waiting.get(&(due, seq)).copied()
    }

    /// The names of all, ascending.
    pub(crate) fn seqs(&self) -> impl Iterator<Item = Seq> {
        self.times.keys().copied()
    }

    /// All, in the order in which they are due.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Message> {
        self.waiting.values()
    }

    /// Writes all.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        reader::put(out, self.len());
        runs::put(out, 0, self.waiting.iter().map(|((due, _), message)| (*message, *due)));
    }

    /// Reads what [`Delayed::encode`] wrote.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut delayed = Self::default();
        let count = reader.take()?;
        runs::take(reader, 0, count, |(message, due)| {
            if delayed.times.contains_key(&message.seq) {
                return Err(Malformed::Value("a message waits twice"));
            }
            delayed.push(message, due);
            Ok(())
        })?;
        Ok(delayed)
    }
}
