//! Which messages of one publisher have arrived.

/// What one consumer saw last of one publisher: its view of the order.
#[derive(Debug, Clone, Copy, Default)]
pub struct Last {
    next: u64,
}

/// One bit per message of one publisher.
#[derive(Debug, Default)]
pub struct Ledger {
    seen: Vec<u64>,
    /// Different messages.
    pub distinct: u64,
    /// Arrived again, without being marked as redelivered.
    pub duplicated: u64,
    /// Arrived again, marked as redelivered: allowed at least once delivery.
    pub repeated: u64,
    /// Arrived after a later one at the same consumer, without being marked as redelivered.
    pub reordered: u64,
}

impl Ledger {
    /// Notes the arrival of message `number`.
    #[inline]
    pub fn note(&mut self, last: &mut Last, number: u64, redelivered: bool) {
        let word = usize::try_from(number / 64).expect("numbers have 40 bits");
        let bit = 1 << (number % 64);
        if word >= self.seen.len() {
            self.seen.resize(word + 1, 0);
        }
        if self.seen[word] & bit != 0 {
            *(if redelivered { &mut self.repeated } else { &mut self.duplicated }) += 1;
            return;
        }
        self.seen[word] |= bit;
        self.distinct += 1;
        if number >= last.next {
            last.next = number + 1;
        } else if !redelivered {
            self.reordered += 1;
        }
    }

    /// Whether message `number` has arrived.
    pub fn has(&self, number: u64) -> bool {
        let word = usize::try_from(number / 64).ok().and_then(|at| self.seen.get(at));
        word.is_some_and(|word| word & 1 << (number % 64) != 0)
    }

    /// Messages below `published` that have not arrived.
    pub fn lost(&self, published: u64) -> u64 {
        let whole = usize::try_from(published / 64).expect("numbers have 40 bits");
        let mut seen: u64 =
            self.seen.iter().take(whole).map(|word| u64::from(word.count_ones())).sum();
        if let Some(word) = self.seen.get(whole) {
            seen += u64::from((word & ((1 << (published % 64)) - 1)).count_ones());
        }
        published - seen
    }

    /// One more than the highest number seen.
    pub fn end(&self) -> u64 {
        let last = self.seen.last().map_or(0, |word| 64 - u64::from(word.leading_zeros()));
        (self.seen.len() as u64).saturating_sub(1) * 64 + last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn noted(arrivals: &[(u64, bool)]) -> Ledger {
        let (mut ledger, mut last) = (Ledger::default(), Last::default());
        for &(number, redelivered) in arrivals {
            ledger.note(&mut last, number, redelivered);
        }
        ledger
    }

    #[test]
    fn each_fault_is_told_apart() {
        let check = |arrivals: &[(u64, bool)], expected: [u64; 4]| {
            let ledger = noted(arrivals);
            let found = [ledger.lost(3), ledger.duplicated, ledger.repeated, ledger.reordered];
            assert_eq!(found, expected, "{arrivals:?}");
        };
        check(&[(0, false), (1, false), (2, false)], [0, 0, 0, 0]);
        check(&[(0, false), (2, false)], [1, 0, 0, 0]);
        check(&[(0, false), (1, false), (1, false), (2, false)], [0, 1, 0, 0]);
        check(&[(0, false), (1, false), (1, true), (2, false)], [0, 0, 1, 0]);
        check(&[(0, false), (2, false), (1, false)], [0, 0, 0, 1]);
        check(&[(0, false), (2, false), (1, true)], [0, 0, 0, 0]);
        check(&[], [3, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn counts_are_those_of_a_set(
            arrivals in prop::collection::vec((0..300_u64, any::<bool>()), 0..400),
            published in 0..400_u64,
        ) {
            let ledger = noted(&arrivals);
            let set: BTreeSet<u64> = arrivals.iter().map(|&(number, _)| number).collect();
            prop_assert_eq!(ledger.distinct, set.len() as u64);
            let again = arrivals.len() - set.len();
            prop_assert_eq!(ledger.duplicated + ledger.repeated, again as u64);
            let lost = (0..published).filter(|number| !set.contains(number)).count();
            prop_assert_eq!(ledger.lost(published), lost as u64);
            prop_assert_eq!(ledger.has(published), set.contains(&published));
            prop_assert_eq!(ledger.end(), set.last().map_or(0, |last| last + 1));
        }
    }
}
