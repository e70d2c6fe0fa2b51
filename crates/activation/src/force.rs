//! What an operator's force would do to the copies of a journal: looked at before it is done.
//!
//! ```text
//!  register forced to N, adopting a life    copies of that life     N          in sync
//!                                                                   below N    stale, copied over
//!                                                                   above N    held
//!                                           copies of other lives   any        held
//! ```

use crate::age::Age;
use crate::class::{Class, classify};
use crate::register::{Adopted, Incarnation, Register, View};
use crate::standing::{Own, Standing};

/// A value for the register of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Force {
    /// The age that copies need to be in sync.
    pub to: Age,
    /// The life of the register that these copies are from.
    pub adopts: Incarnation,
    /// Names the life that begins.
    pub incarnation: Incarnation,
}

/// What may be lost, or go wrong, by a force. Copies are named by their place in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Danger {
    /// Something may have been confirmed under a later age than the one that is forced.
    Back {
        /// The last age under which something may have been confirmed.
        confirmed: Age,
    },
    /// A copy could be served now and cannot be afterwards.
    Displaced(usize),
    /// A copy has a later age than the one that is forced.
    Newer(usize, Age),
    /// A copy was not seen: it may have more than the others.
    Unseen(usize),
    /// No copy that was seen could be served afterwards.
    Nobody,
}

impl Force {
    /// What a read of the register answers afterwards.
    pub fn view(&self) -> View {
        let adopted = Adopted { incarnation: self.adopts, age: self.to };
        View {
            register: Some(Register::Committed(self.to)),
            incarnation: self.incarnation,
            adopted: Some(adopted),
            holder: None,
        }
    }

    /// What a copy would be worth.
    pub fn class(&self, own: &Own) -> Class {
        classify(own, &self.view())
    }

    /// Everything that speaks against it; empty: nothing can be lost. `None` among the copies: the
    /// node of one does not answer, or its state file cannot be read.
    pub fn dangers(&self, before: &View, copies: &[Option<Own>]) -> Vec<Danger> {
        let mut dangers = Vec::new();
        let confirmed = before.register.map(Register::confirmed);
        if let Some(confirmed) = confirmed.filter(|confirmed| *confirmed > self.to) {
            dangers.push(Danger::Back { confirmed });
        }
        let mut may_serve = false;
        for (at, copy) in copies.iter().enumerate() {
            let Some(own) = copy else {
                dangers.push(Danger::Unseen(at));
                continue;
            };
            let will = self.class(own).may_serve();
            may_serve |= will;
            if !will && classify(own, before).may_serve() {
                dangers.push(Danger::Displaced(at));
            }
            if let Standing::Valid(age) | Standing::Marked(_, Some(age)) = own.record.standing
                && age > self.to
                // Nothing was confirmed under a claim that is open.
                && confirmed.is_none_or(|confirmed| confirmed > self.to || age > confirmed.next())
            {
                dangers.push(Danger::Newer(at, age));
            }
        }
        if !may_serve {
            dangers.push(Danger::Nobody);
        }
        dangers
    }
}

/// Whether a copy could be served although others have more, if an operator set its age. Down only
/// makes it stale.
pub fn raises(before: Standing, to: Age) -> bool {
    !matches!(before, Standing::Valid(age) if to <= age)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standing::{Mark, Record};

    const LIFE: Incarnation = Incarnation(7);

    fn age(number: u64) -> Age {
        Age::new(number).unwrap()
    }

    fn copy(standing: Standing) -> Own {
        let record = Record { standing, incarnation: Some(LIFE) };
        Own { record, vacant: false, founder: false }
    }

    /// Its age, if it can be seen.
    fn seen(age: impl Into<Option<u64>>) -> Option<Own> {
        age.into().map(|number| copy(Standing::Valid(self::age(number))))
    }

    fn view(number: Option<i64>) -> View {
        let register = number.map(|number| Register::from_signed(number).unwrap());
        View { register, incarnation: LIFE, adopted: None, holder: None }
    }

    fn dangers(before: Option<i64>, to: u64, copies: &[Option<Own>]) -> Vec<Danger> {
        let force = Force { to: age(to), adopts: LIFE, incarnation: Incarnation(8) };
        force.dangers(&view(before), copies)
    }

    #[test]
    fn the_newest_of_all_copies_is_safe() {
        // The register was lost, and every copy is known.
        assert_eq!(dangers(None, 6, &[seen(6), seen(5)]), []);
        assert_eq!(dangers(None, 6, &[seen(6), seen(6)]), []);
        // What it holds already.
        assert_eq!(dangers(Some(6), 6, &[seen(6), seen(5)]), []);
        // A claim under which nothing was confirmed, back to what was before; the one who wrote it to
        // his file is held then, and has nothing that the others lack. But he could be served.
        assert_eq!(dangers(Some(-6), 5, &[seen(5), seen(5)]), []);
        assert_eq!(dangers(Some(-6), 5, &[seen(5), seen(6)]), [Danger::Displaced(1)]);
    }

    #[test]
    fn what_may_be_lost_is_named() {
        let back = Danger::Back { confirmed: age(6) };
        let newer = Danger::Newer(1, age(6));
        let older_wins = dangers(Some(6), 5, &[seen(5), seen(6)]);
        assert_eq!(older_wins, [back, Danger::Displaced(1), newer]);
        // The newest one is away: the case that the command is for.
        assert_eq!(dangers(Some(6), 5, &[seen(5), seen(None)]), [back, Danger::Unseen(1)]);
        assert_eq!(dangers(None, 5, &[seen(5), seen(6)]), [newer]);
        // Somebody ahead of the register has another history than those who are in sync.
        assert_eq!(dangers(Some(5), 6, &[seen(5), seen(6)]), [Danger::Displaced(0)]);
        assert_eq!(dangers(None, 4, &[seen(3), Some(copy(Standing::Syncing))]), [Danger::Nobody]);
        let marked = Some(copy(Standing::Marked(Mark::Reincarnated, Some(age(9)))));
        assert_eq!(dangers(None, 5, &[seen(5), marked]), [Danger::Newer(1, age(9))]);
    }

    #[test]
    fn only_down_is_harmless_for_a_copy() {
        assert!(
            !raises(Standing::Valid(age(5)), age(5)) && !raises(Standing::Valid(age(5)), age(4))
        );
        assert!(raises(Standing::Valid(age(5)), age(6)) && raises(Standing::Syncing, age(0)));
    }
}
