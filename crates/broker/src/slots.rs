//! A sparse map from positions to values, for positions that lie close together.
//!
//! Chunks of 64 slots, kept only while one of them is taken. Insert and take cost one look-up in a
//! map of chunks, which is small because what is in memory is the head and the tail of a queue.

use std::collections::BTreeMap;

const SLOTS: usize = 64;
const CHUNK: u64 = SLOTS as u64;

/// The slot of a position in its chunk.
fn slot_of(position: u64) -> usize {
    usize::try_from(position % CHUNK).unwrap_or_default()
}

#[derive(Debug)]
struct Chunk<T> {
    taken: u32,
    slots: [Option<T>; SLOTS],
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    chunks: BTreeMap<u64, Box<Chunk<T>>>,
    len: usize,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { chunks: BTreeMap::new(), len: 0 }
    }
}

impl<T> Slots<T> {
    /// How many values there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Puts a value; gives back the one that stood there.
    pub(crate) fn insert(&mut self, position: u64, value: T) -> Option<T> {
        let chunk = self
            .chunks
            .entry(position / CHUNK)
            .or_insert_with(|| Box::new(Chunk { taken: 0, slots: std::array::from_fn(|_| None) }));
        let old = chunk.slots[slot_of(position)].replace(value);
        if old.is_none() {
            chunk.taken += 1;
            self.len += 1;
        }
        old
    }

    /// Looks at a value.
    pub(crate) fn get(&self, position: u64) -> Option<&T> {
        self.chunks.get(&(position / CHUNK))?.slots[slot_of(position)].as_ref()
    }

    /// Takes a value out.
    pub(crate) fn take(&mut self, position: u64) -> Option<T> {
        let number = position / CHUNK;
        let chunk = self.chunks.get_mut(&number)?;
        let value = chunk.slots[slot_of(position)].take()?;
        chunk.taken -= 1;
        self.len -= 1;
        if chunk.taken == 0 {
            self.chunks.remove(&number);
        }
        Some(value)
    }

    /// Takes every value of an inclusive range out, in order.
    pub(crate) fn take_range(&mut self, first: u64, last: u64, mut each: impl FnMut(u64, T)) {
        let mut next = first;
        while next <= last {
            let Some((&number, _)) = self.chunks.range(next / CHUNK..=last / CHUNK).next() else {
                return;
            };
            let end = number * CHUNK + (CHUNK - 1);
            for position in next.max(number * CHUNK)..=last.min(end) {
                if let Some(value) = self.take(position) {
                    each(position, value);
                }
            }
            let Some(behind) = end.checked_add(1) else { return };
            next = behind;
        }
    }

    /// Shows every value of an inclusive range, in order.
    pub(crate) fn each_mut(&mut self, first: u64, last: u64, mut each: impl FnMut(&mut T)) {
        for (&number, chunk) in self.chunks.range_mut(first / CHUNK..=last / CHUNK) {
            for (index, slot) in (0..CHUNK).zip(&mut chunk.slots) {
                if let Some(value) = slot
                    && (first..=last).contains(&(number * CHUNK + index))
                {
                    each(value);
                }
            }
        }
    }

    /// The positions above `floor` and up to `last` that are taken, last first.
    pub(crate) fn positions_between(
        &self,
        floor: u64,
        last: u64,
    ) -> impl Iterator<Item = u64> + '_ {
        let numbers = floor / CHUNK..=(last / CHUNK).max(floor / CHUNK);
        self.chunks.range(numbers).rev().flat_map(move |(&number, chunk)| {
            (0..CHUNK).rev().filter_map(move |index| {
                let position = number * CHUNK + index;
                let inside = floor < position && position <= last;
                (inside && chunk.slots[slot_of(index)].is_some()).then_some(position)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_take_what_is_there_and_nothing_else() {
        let mut slots = Slots::default();
        for position in [1, 63, 64, 65, 200, 1000] {
            assert!(slots.insert(position, position).is_none());
        }
        let mut taken = Vec::new();
        slots.take_range(63, 999, |position, value| {
            assert_eq!(position, value);
            taken.push(value);
        });
        assert_eq!(taken, [63, 64, 65, 200]);
        assert_eq!(slots.len(), 2);
        slots.each_mut(1, 999, |value| *value += 1);
        assert_eq!((slots.get(1), slots.get(1000)), (Some(&2), Some(&1000)));
        assert_eq!(slots.positions_between(0, 999).collect::<Vec<_>>(), [1]);
        assert_eq!(slots.positions_between(1, 1000).collect::<Vec<_>>(), [1000]);
        assert_eq!(slots.take(1000), Some(1000));
        assert_eq!(slots.take(1000), None);
        assert!(slots.get(1).is_some());
    }
}
