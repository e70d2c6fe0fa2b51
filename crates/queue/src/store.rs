//! The ready messages, in the order in which they will be delivered.
//!
//! ```text
//!  quorum style only:  [ returned ]   delivered before everything else, in the order of return
//!
//!  level 9   [ returned, by seq ] [ line: chunk chunk chunk ]
//!  level 4   [ returned, by seq ] [ line: chunk ]
//!  level 0   …
//! ```
//!
//! A line is only ever added to at its end and taken from at its front, both in the order of
//! `Seq`; so whatever was once taken from it is older than all that is still in it. That is why a
//! returned message finds its old place in the small ordered map before the line, and never within.
//!
//! A waiting message costs the 8 bytes of its slot. The first one of a chunk that has a deadline or
//! a delivery count makes the chunk carry 16 more bytes for each of its messages.

mod returned;

mod snapshot;

use std::collections::{BTreeMap, VecDeque};

use model::id::Seq;
use model::time::Timestamp;

use crate::message::{Message, NEVER};
use crate::settings::Style;
use crate::store::returned::Returned;

/// Messages per chunk: 2 KiB of slots, so that a small queue stays small and the fixed part of a
/// chunk weighs less than half a byte per message.
const CHUNK: usize = 256;

/// All ready messages of a queue.
#[derive(Debug, Clone)]
pub(crate) struct Ready {
    style: Style,
    /// Quorum style: what came back, first returned first.
    returned: Returned,
    /// Highest priority first; levels appear when they are first used.
    levels: Vec<Level>,
    len: u64,
    bytes: u64,
    /// How many of them have a deadline.
    expiring: u64,
}

impl Ready {
    pub(crate) fn new(style: Style) -> Self {
        Self {
            style,
            returned: Returned::default(),
            levels: Vec::new(),
            len: 0,
            bytes: 0,
            expiring: 0,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether any of them has a deadline.
    pub(crate) fn has_deadlines(&self) -> bool {
        self.expiring > 0
    }

    /// Adds a message that is younger than all that ever were on its level.
    pub(crate) fn push(&mut self, message: Message) {
        self.count(&message);
        self.level(message.priority).line.push(&message);
    }

    /// Adds a message that was taken before.
    pub(crate) fn put_back(&mut self, message: Message) {
        self.count(&message);
        match self.style {
            Style::Classic => {
                let level = self.level(message.priority);
                debug_assert!(level.line.front_seq().is_none_or(|front| message.seq < front));
                let before = level.returned.insert(message.seq, message);
                debug_assert!(before.is_none(), "a message cannot come back twice");
            }
            Style::Quorum => self.returned.push(message),
        }
    }

    /// Takes the one that is delivered next, whether it has expired or not.
    pub(crate) fn pop(&mut self) -> Option<Message> {
        let message = match self.returned.pop() {
            Some(message) => message,
            None => self.levels.iter_mut().find_map(Level::pop)?,
        };
        self.discount(&message);
        Some(message)
    }

    /// Takes the next one that stands at the head of its level and has expired.
    pub(crate) fn pop_expired(&mut self, now: Timestamp) -> Option<Message> {
        if self.expiring == 0 {
            return None;
        }
        let message = if self.returned.front().is_some_and(|message| message.expires_at <= now) {
            self.returned.pop()?
        } else {
            self.levels.iter_mut().find(|level| level.deadline() <= now)?.pop()?
        };
        self.discount(&message);
        Some(message)
    }

    /// Takes the one that goes when there is no room: what came back to a quorum queue, else the
    /// oldest of the lowest priority.
    pub(crate) fn drop_head(&mut self) -> Option<Message> {
        let message = match self.returned.pop() {
            Some(message) => message,
            None => self.levels.iter_mut().rev().find_map(Level::pop)?,
        };
        self.discount(&message);
        Some(message)
    }

    /// When the next head expires, or [`NEVER`].
    pub(crate) fn deadline(&self) -> Timestamp {
        if self.expiring == 0 {
            return NEVER;
        }
        let returned = self.returned.front().map_or(NEVER, |message| message.expires_at);
        self.levels.iter().map(Level::deadline).fold(returned, Timestamp::min)
    }

    /// The oldest of all.
    pub(crate) fn oldest(&self) -> Option<Seq> {
        let returned = self.returned.oldest();
        self.levels.iter().filter_map(Level::oldest).chain(returned).min()
    }

    pub(crate) fn find(&self, seq: Seq) -> Option<Message> {
        self.returned.find(seq).or_else(|| self.levels.iter().find_map(|level| level.find(seq)))
    }

    /// The one that so many will be delivered before.
    pub(crate) fn nth(&self, before: u64) -> Option<Message> {
        let mut left = usize::try_from(before).ok()?;
        if let Some(message) = self.returned.iter().nth(left) {
            return Some(*message);
        }
        left -= self.returned.len();
        for level in &self.levels {
            if let Some(message) = level.returned.values().nth(left) {
                return Some(*message);
            }
            left -= level.returned.len();
            if let Some(message) = level.line.nth(&mut left, level.priority) {
                return Some(message);
            }
        }
        None
    }

    /// Removes all, handing out their names in ascending order.
    pub(crate) fn clear(&mut self, mut gone: impl FnMut(Seq)) {
        if let [level] = &mut self.levels[..]
            && level.returned.is_empty()
            && self.returned.is_empty()
        {
            level.line.seqs().for_each(gone);
        } else {
            let mut seqs: Vec<Seq> = self.returned.seqs().collect();
            for level in &self.levels {
                seqs.extend(level.returned.keys());
                seqs.extend(level.line.seqs());
            }
            seqs.sort_unstable();
            seqs.into_iter().for_each(&mut gone);
        }
        *self = Self::new(self.style);
    }

    /// Gives back spare memory.
    pub(crate) fn shrink(&mut self) {
        self.returned.shrink();
        self.levels.retain(|level| level.oldest().is_some());
        self.levels.shrink_to_fit();
        for level in &mut self.levels {
            level.line.shrink();
        }
    }

    fn count(&mut self, message: &Message) {
        self.len += 1;
        self.bytes += u64::from(message.bytes);
        self.expiring += u64::from(message.expires_at != NEVER);
    }

    fn discount(&mut self, message: &Message) {
        self.len -= 1;
        self.bytes -= u64::from(message.bytes);
        self.expiring -= u64::from(message.expires_at != NEVER);
    }

    fn level(&mut self, priority: u8) -> &mut Level {
        let place = match &self.levels[..] {
            [only] if only.priority == priority => 0,
            levels => match levels.binary_search_by(|level| priority.cmp(&level.priority)) {
                Ok(place) => place,
                Err(place) => {
                    self.levels.insert(place, Level::new(priority));
                    place
                }
            },
        };
        &mut self.levels[place]
    }
}

/// The messages of one priority.
#[derive(Debug, Clone)]
struct Level {
    priority: u8,
    /// Classic style: what came back; all of it is older than the line.
    returned: BTreeMap<Seq, Message>,
    line: Line,
}

impl Level {
    fn new(priority: u8) -> Self {
        Self { priority, returned: BTreeMap::new(), line: Line::default() }
    }

    fn pop(&mut self) -> Option<Message> {
        if let Some((_, message)) = self.returned.pop_first() {
            return Some(message);
        }
        self.line.pop(self.priority)
    }

    /// When the head expires, or [`NEVER`].
    fn deadline(&self) -> Timestamp {
        match self.returned.first_key_value() {
            Some((_, message)) => message.expires_at,
            None => self.line.front_deadline(),
        }
    }

    fn oldest(&self) -> Option<Seq> {
        self.returned.keys().next().copied().or_else(|| self.line.front_seq())
    }

    fn find(&self, seq: Seq) -> Option<Message> {
        self.returned.get(&seq).copied().or_else(|| self.line.find(seq, self.priority))
    }
}

/// Messages in ascending order of their names, in chunks.
#[derive(Debug, Clone, Default)]
struct Line {
    /// Only a lone chunk may be empty: it is kept so that a queue that fills and drains all the
    /// time allocates nothing.
    chunks: VecDeque<Chunk>,
}

#[derive(Debug, Clone)]
struct Chunk {
    /// The name of its first message; slots count from it.
    base: u64,
    /// How many slots at the front are used up.
    taken: usize,
    slots: Vec<Slot>,
    /// As many as there are slots, or none.
    extras: Vec<Extra>,
}

/// An ordinary message: 8 bytes.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// The distance from the chunk's base, and the flag.
    offset: u32,
    bytes: u32,
}

const DELIVERED: u32 = 1 << 31;
const OFFSET_MAX: u64 = (DELIVERED - 1) as u64;
const _: () = assert!(size_of::<Slot>() == 8);

/// What only some messages have.
#[derive(Debug, Clone, Copy)]
struct Extra {
    expires_at: Timestamp,
    delivery_count: u32,
}

impl Extra {
    const NONE: Self = Self { expires_at: NEVER, delivery_count: 0 };
}

impl Line {
    fn push(&mut self, message: &Message) {
        match self.chunks.back_mut() {
            Some(chunk) if chunk.takes(message.seq) => chunk.push(message),
            Some(_) => {
                let mut chunk = Chunk::with_capacity(CHUNK);
                chunk.push(message);
                self.chunks.push_back(chunk);
            }
            None => {
                let mut chunk = Chunk::with_capacity(4);
                chunk.push(message);
                self.chunks.push_back(chunk);
            }
        }
    }

    fn pop(&mut self, priority: u8) -> Option<Message> {
        let alone = self.chunks.len() == 1;
        let chunk = self.chunks.front_mut()?;
        if chunk.taken == chunk.slots.len() {
            return None;
        }
        let message = chunk.message(chunk.taken, priority);
        chunk.taken += 1;
        if chunk.taken == chunk.slots.len() {
            if alone {
                chunk.slots.clear();
                chunk.extras.clear();
                chunk.taken = 0;
            } else {
                self.chunks.pop_front();
            }
        }
        Some(message)
    }

    fn front_seq(&self) -> Option<Seq> {
        let chunk = self.chunks.front()?;
        (chunk.taken < chunk.slots.len()).then(|| chunk.seq(chunk.taken))
    }

    fn front_deadline(&self) -> Timestamp {
        self.chunks
            .front()
            .and_then(|chunk| chunk.extras.get(chunk.taken))
            .map_or(NEVER, |extra| extra.expires_at)
    }

    fn seqs(&self) -> impl Iterator<Item = Seq> {
        self.chunks
            .iter()
            .flat_map(|chunk| (chunk.taken..chunk.slots.len()).map(|place| chunk.seq(place)))
    }

    /// The one that so many stand before; if there are fewer, takes those off `left`.
    fn nth(&self, left: &mut usize, priority: u8) -> Option<Message> {
        for chunk in &self.chunks {
            let waiting = chunk.slots.len() - chunk.taken;
            if *left < waiting {
                return Some(chunk.message(chunk.taken + *left, priority));
            }
            *left -= waiting;
        }
        None
    }

    fn find(&self, seq: Seq, priority: u8) -> Option<Message> {
        let after = self.chunks.partition_point(|chunk| chunk.base <= seq.0);
        let chunk = self.chunks.get(after.checked_sub(1)?)?;
        let left = &chunk.slots[chunk.taken..];
        let offset = seq.0 - chunk.base;
        let place = left.binary_search_by_key(&offset, |slot| slot.offset().into()).ok()?;
        Some(chunk.message(chunk.taken + place, priority))
    }

    fn shrink(&mut self) {
        self.chunks.retain(|chunk| chunk.taken < chunk.slots.len());
        self.chunks.shrink_to_fit();
        for chunk in &mut self.chunks {
            chunk.slots.shrink_to_fit();
            chunk.extras.shrink_to_fit();
        }
    }
}

impl Chunk {
    fn with_capacity(slots: usize) -> Self {
        Self { base: 0, taken: 0, slots: Vec::with_capacity(slots), extras: Vec::new() }
    }

    fn takes(&self, seq: Seq) -> bool {
        self.slots.is_empty() || (self.slots.len() < CHUNK && seq.0 - self.base <= OFFSET_MAX)
    }

    fn push(&mut self, message: &Message) {
        if self.slots.is_empty() {
            self.base = message.seq.0;
        }
        let offset = u32::try_from(message.seq.0 - self.base).expect("Chunk::takes said so");
        let flag = if message.delivered { DELIVERED } else { 0 };
        let extra =
            Extra { expires_at: message.expires_at, delivery_count: message.delivery_count };
        if !self.extras.is_empty() {
            self.extras.push(extra);
        } else if extra.expires_at != NEVER || extra.delivery_count != 0 {
            // In a full-sized chunk the others will as a rule have extras too.
            self.extras.reserve_exact(self.slots.capacity().max(self.slots.len() + 1));
            self.extras.resize(self.slots.len(), Extra::NONE);
            self.extras.push(extra);
        }
        self.slots.push(Slot { offset: offset | flag, bytes: message.bytes });
    }

    fn seq(&self, place: usize) -> Seq {
        Seq(self.base + u64::from(self.slots[place].offset()))
    }

    fn message(&self, place: usize, priority: u8) -> Message {
        let slot = self.slots[place];
        let extra = self.extras.get(place).copied().unwrap_or(Extra::NONE);
        Message {
            seq: Seq(self.base + u64::from(slot.offset())),
            expires_at: extra.expires_at,
            bytes: slot.bytes,
            delivery_count: extra.delivery_count,
            priority,
            delivered: slot.offset & DELIVERED != 0,
        }
    }
}

impl Slot {
    fn offset(self) -> u32 {
        self.offset & !DELIVERED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(seq: u64) -> Message {
        Message {
            seq: Seq(seq),
            expires_at: NEVER,
            bytes: 1,
            delivery_count: 0,
            priority: 0,
            delivered: false,
        }
    }

    #[test]
    fn everything_about_a_message_survives_in_a_line() {
        let mut line = Line::default();
        let mut all = Vec::new();
        for index in 0..2_000_u64 {
            let mut message = message(index * 3 + (index / 700) * (1 << 33));
            message.bytes = u32::try_from(index).unwrap();
            message.delivered = index % 5 == 0;
            if index % 401 == 17 {
                message.expires_at = Timestamp(index);
                message.delivery_count = 2;
            }
            line.push(&message);
            all.push(message);
        }
        for message in &all {
            assert_eq!(line.find(message.seq, 0), Some(*message));
            assert_eq!(line.find(message.seq.next(), 0), None);
        }
        assert!(line.seqs().eq(all.iter().map(|message| message.seq)));
        for (popped, message) in all.iter().enumerate() {
            assert_eq!(line.front_seq(), Some(message.seq), "after {popped}");
            assert_eq!(line.front_deadline(), message.expires_at);
            assert_eq!(line.pop(0), Some(*message));
            assert_eq!(line.find(message.seq, 0), None);
        }
        assert_eq!(line.pop(0), None);
        assert_eq!(line.front_seq(), None);
        line.push(&message(u64::MAX));
        assert_eq!(line.pop(0), Some(message(u64::MAX)));
    }

    #[test]
    fn one_that_waits_is_shown_as_it_will_be_taken() {
        for style in [Style::Classic, Style::Quorum] {
            let mut ready = Ready::new(style);
            for seq in 0..2000 {
                ready.push(Message { priority: (seq % 3) as u8, ..message(seq) });
            }
            let taken: Vec<Message> = (0..700).map_while(|_| ready.pop()).collect();
            for message in taken[40..60].iter().chain(&taken[690..]).rev() {
                ready.put_back(*message);
            }
            let shown: Vec<Message> = (0..).map_while(|before| ready.nth(before)).collect();
            assert_eq!(shown.len() as u64, ready.len());
            let mut again = ready.clone();
            assert!(shown.iter().eq(&std::iter::from_fn(|| again.pop()).collect::<Vec<_>>()));
            assert_eq!(ready.nth(ready.len()), None);
            assert_eq!(ready.nth(u64::MAX), None);
            ready.clear(|_| ());
            assert_eq!(ready.nth(0), None);
        }
    }

    #[test]
    fn clearing_names_all_in_ascending_order() {
        for style in [Style::Classic, Style::Quorum] {
            let mut ready = Ready::new(style);
            for seq in 0..10 {
                ready.push(Message { priority: (seq % 3) as u8, ..message(seq) });
            }
            let taken = [ready.pop().unwrap(), ready.pop().unwrap()];
            ready.put_back(taken[1]);
            ready.put_back(taken[0]);
            let mut seqs = Vec::new();
            ready.clear(|seq| seqs.push(seq.0));
            assert_eq!(seqs, (0..10).collect::<Vec<_>>());
            assert!(ready.is_empty() && ready.bytes() == 0 && ready.oldest().is_none());
        }
    }
}
