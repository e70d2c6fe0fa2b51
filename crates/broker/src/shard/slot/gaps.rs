//! Stretches of positions that were never given, so that nobody looks through them: the queues of a
//! journal go on behind one with each node that comes to serve them.

use model::id::Seq;

/// What is less than this is looked through like positions of messages that are gone.
const LEAST: u64 = 1 << 32;

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// The last position that is known to be used.
    last: u64,
    /// First and last of each, ascending.
    all: Vec<(u64, u64)>,
}

impl Gaps {
    /// A position is used; it is higher than all before.
    pub(super) fn used(&mut self, position: Seq) {
        if position.0 > self.last && position.0 - self.last > LEAST {
            self.all.push((self.last + 1, position.0 - 1));
        }
        self.last = self.last.max(position.0);
    }

    /// The first position behind the gap that this one is in, if it is in one.
    pub(super) fn behind(&self, position: u64) -> Option<u64> {
        let at = self.all.partition_point(|(_, last)| *last < position);
        let (first, last) = self.all.get(at)?;
        (*first <= position).then_some(last + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_given_is_passed_over() {
        let mut gaps = Gaps::default();
        let (second, third) = (2 << 40, 3 << 40);
        for position in [1, 2, 900, second + 1, second + 7, third] {
            gaps.used(Seq(position));
        }
        for position in [1, 3, 900, second + 1, second + 3, second + 7, third, third + 1] {
            assert_eq!(gaps.behind(position), None, "{position}");
        }
        assert_eq!(gaps.behind(901), Some(second + 1));
        assert_eq!(gaps.behind(second), Some(second + 1));
        assert_eq!(gaps.behind(second + 8), Some(third));
    }
}
