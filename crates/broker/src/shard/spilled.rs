//! Which messages of a queue are in the journal only for want of memory, so that a restart drops
//! them.

use std::collections::BTreeMap;

use model::id::Seq;

const BITS: u64 = u64::BITS as u64;

/// See the module head. One bit for each, in words of 64 positions that are kept while one is set:
/// there may be millions, and they lie close together.
#[derive(Debug, Default)]
pub(crate) struct Spilled {
    words: BTreeMap<u64, u64>,
}

/// The bit of a position in its word.
fn bit(position: u64) -> u64 {
    1 << (position % BITS)
}

impl Spilled {
    pub(crate) fn insert(&mut self, seq: Seq) {
        *self.words.entry(seq.0 / BITS).or_default() |= bit(seq.0);
    }

    pub(crate) fn contains(&self, seq: Seq) -> bool {
        self.words.get(&(seq.0 / BITS)).is_some_and(|word| word & bit(seq.0) != 0)
    }

    /// Forgets an inclusive range.
    pub(crate) fn remove(&mut self, first: Seq, last: Seq) {
        let (low, high) = (first.0 / BITS, last.0 / BITS);
        if self.words.is_empty() {
            return;
        }
        let mut empty = Vec::new();
        for (&number, word) in self.words.range_mut(low..=high) {
            // Bits at and above the first position, and at and below the last.
            let from = if number == low { u64::MAX << (first.0 % BITS) } else { u64::MAX };
            let to = if number == high { u64::MAX >> (BITS - 1 - last.0 % BITS) } else { u64::MAX };
            *word &= !(from & to);
            if *word == 0 {
                empty.push(number);
            }
        }
        for number in empty {
            self.words.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_forgotten_to_the_bit() {
        let mut spilled = Spilled::default();
        for position in 0..300 {
            spilled.insert(Seq(position));
        }
        spilled.remove(Seq(10), Seq(10));
        spilled.remove(Seq(63), Seq(64));
        spilled.remove(Seq(70), Seq(255));
        let left: Vec<u64> = (0..400).filter(|position| spilled.contains(Seq(*position))).collect();
        let expected: Vec<u64> = (0..10).chain(11..63).chain(65..70).chain(256..300).collect();
        assert_eq!(left, expected);
        spilled.remove(Seq(0), Seq(u64::MAX));
        assert!(spilled.words.is_empty());
    }
}
