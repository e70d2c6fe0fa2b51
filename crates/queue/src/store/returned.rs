//! What came back to a quorum queue: first in, first out, and found by name.

use std::collections::{BTreeMap, VecDeque};

use model::id::Seq;

use crate::message::Message;

/// Messages in the order of their return.
#[derive(Debug, Clone, Default)]
pub(super) struct Returned {
    line: VecDeque<Message>,
    /// Which return each one was.
    turns: BTreeMap<Seq, u64>,
    /// Which return the front was.
    first: u64,
}

impl Returned {
    pub(super) fn len(&self) -> usize {
        self.line.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    pub(super) fn push(&mut self, message: Message) {
        let turn = self.first + self.line.len() as u64;
        let before = self.turns.insert(message.seq, turn);
        debug_assert!(before.is_none(), "a message cannot come back twice");
        self.line.push_back(message);
    }

    pub(super) fn front(&self) -> Option<&Message> {
        self.line.front()
    }

    pub(super) fn pop(&mut self) -> Option<Message> {
        let message = self.line.pop_front()?;
        self.turns.remove(&message.seq);
        self.first += 1;
        Some(message)
    }

    pub(super) fn oldest(&self) -> Option<Seq> {
        self.turns.keys().next().copied()
    }

    pub(super) fn find(&self, seq: Seq) -> Option<Message> {
        let place = self.turns.get(&seq)? - self.first;
        self.line.get(usize::try_from(place).ok()?).copied()
    }

    /// In the order of return.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Message> {
        self.line.iter()
    }

    /// The names of all, ascending.
    pub(super) fn seqs(&self) -> impl Iterator<Item = Seq> {
        self.turns.keys().copied()
    }

    pub(super) fn shrink(&mut self) {
        self.line.shrink_to_fit();
    }
}
