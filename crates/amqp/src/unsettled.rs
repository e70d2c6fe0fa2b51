//! The messages that a channel holds unsettled, by delivery tag.
//!
//! ```text
//!   tags   7   8   9       12  13  14        (10 and 11 went to a consumer without acks)
//!          ■   ·   ■       ■   ■   ■          ■ held, · settled
//!          └ front is always held
//! ```
//!
//! Tags only grow, so the list is sorted, and as a rule dense: a tag is found at its distance from
//! the front, else by binary search. Settling in order costs O(1) for each message. Settled
//! places in the middle are removed once they outnumber the held ones, so that a message that is
//! never settled does not make the list grow.

use crate::request::Unsettled;
use std::collections::VecDeque;

/// A message and the tag under which the client knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tagged {
    pub(crate) tag: u64,
    pub(crate) message: Unsettled,
}

#[derive(Debug)]
struct Place {
    tag: u64,
    message: Option<Unsettled>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Held {
    places: VecDeque<Place>,
    held: usize,
}

/// No message is held under this tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnknownTag;

impl Held {
    pub(crate) fn len(&self) -> usize {
        self.held
    }

    /// Adds a message under a tag higher than all before.
    pub(crate) fn push(&mut self, tag: u64, message: Unsettled) {
        debug_assert!(self.places.back().is_none_or(|last| last.tag < tag), "tags only grow");
        self.places.push_back(Place { tag, message: Some(message) });
        self.held += 1;
    }

    /// Takes out the message of one tag.
    pub(crate) fn take(&mut self, tag: u64) -> Result<Unsettled, UnknownTag> {
        let index = self.find(tag).ok_or(UnknownTag)?;
        let message = self.places[index].message.take().ok_or(UnknownTag)?;
        self.held -= 1;
        if index == 0 {
            self.drop_settled_front();
        } else if self.places.len() > 64 && self.places.len() > 2 * self.held {
            self.places.retain(|place| place.message.is_some());
        }
        Ok(message)
    }

    /// Takes out all messages up to a tag, in order; the tag itself must be held. Tag 0 means all
    /// there are.
    pub(crate) fn take_through(
        &mut self,
        tag: u64,
        mut take: impl FnMut(Tagged),
    ) -> Result<(), UnknownTag> {
        if tag == 0 {
            self.take_all(take);
            return Ok(());
        }
        let index = self.find(tag).ok_or(UnknownTag)?;
        if self.places[index].message.is_none() {
            return Err(UnknownTag);
        }
        for place in self.places.drain(..=index) {
            if let Some(message) = place.message {
                self.held -= 1;
                take(Tagged { tag: place.tag, message });
            }
        }
        self.drop_settled_front();
        Ok(())
    }

    /// Takes out everything, in order.
    pub(crate) fn take_all(&mut self, mut take: impl FnMut(Tagged)) {
        self.held = 0;
        for Place { tag, message } in self.places.drain(..) {
            if let Some(message) = message {
                take(Tagged { tag, message });
            }
        }
    }

    /// Puts messages back that were taken out (`tx.rollback`).
    pub(crate) fn restore(&mut self, messages: impl IntoIterator<Item = Tagged>) {
        let mut all: Vec<Place> = self.places.drain(..).collect();
        all.retain(|place| place.message.is_some());
        all.extend(
            messages
                .into_iter()
                .map(|tagged| Place { tag: tagged.tag, message: Some(tagged.message) }),
        );
        all.sort_unstable_by_key(|place| place.tag);
        self.held = all.len();
        self.places = all.into();
    }

    /// What is held, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Unsettled> + '_ {
        self.places.iter().filter_map(|place| place.message)
    }

    fn find(&self, tag: u64) -> Option<usize> {
        let front = self.places.front()?.tag;
        let guess = usize::try_from(tag.checked_sub(front)?).ok()?;
        if self.places.get(guess).is_some_and(|place| place.tag == tag) {
            return Some(guess);
        }
        self.places.binary_search_by_key(&tag, |place| place.tag).ok()
    }

    fn drop_settled_front(&mut self) {
        while self.places.front().is_some_and(|place| place.message.is_none()) {
            self.places.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::{QueueId, Seq};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn message(tag: u64) -> Unsettled {
        Unsettled { queue: QueueId(1), seq: Seq(tag), consumer: None }
    }

    #[test]
    fn a_message_that_is_never_settled_does_not_make_the_list_grow() {
        let mut held = Held::default();
        held.push(1, message(1));
        for tag in 2..100_000 {
            held.push(tag, message(tag));
            held.take(tag).unwrap();
        }
        assert_eq!(held.len(), 1);
        assert!(held.places.len() <= 65, "{}", held.places.len());
    }

    proptest! {
        #[test]
        fn agrees_with_a_map(steps in prop::collection::vec((0..5_u8, 0..40_u64), 0..200)) {
            let mut held = Held::default();
            let mut model = BTreeMap::new();
            let mut next = 1;
            for (kind, tag) in steps {
                match kind {
                    0 | 1 => {
                        next += u64::from(kind) * (tag % 3); // gaps, as consumers without acks make
                        held.push(next, message(next));
                        model.insert(next, message(next));
                        next += 1;
                    }
                    2 | 3 => {
                        prop_assert_eq!(held.take(tag).ok(), model.remove(&tag));
                    }
                    _ => {
                        let mut taken = Vec::new();
                        let result = held.take_through(tag, |tagged| taken.push(tagged.tag));
                        if tag == 0 || model.contains_key(&tag) {
                            let rest = if tag == 0 { BTreeMap::new() } else { model.split_off(&(tag + 1)) };
                            let expected: Vec<u64> = model.into_keys().collect();
                            model = rest;
                            prop_assert_eq!(taken, expected);
                            prop_assert_eq!(result, Ok(()));
                        } else {
                            prop_assert_eq!(result, Err(UnknownTag));
                            prop_assert!(taken.is_empty());
                        }
                    }
                }
                prop_assert_eq!(held.len(), model.len());
                prop_assert_eq!(held.iter().collect::<Vec<_>>(), model.values().copied().collect::<Vec<_>>());
            }
        }
    }
}
