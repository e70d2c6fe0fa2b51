//! Publishes that wait for their confirm.

use std::collections::VecDeque;
use wire::ack::Settlement;

/// The unconfirmed publishes of one channel, oldest first.
///
/// ```text
///  tag    base            base + len
///         ├ sent ┼ 0 ┼ sent ┼ sent ┤        0: confirmed out of turn
/// ```
#[derive(Debug)]
pub struct Confirms {
    base: u64,
    sent: VecDeque<u64>,
    open: usize,
    /// Confirmed so far.
    pub acked: u64,
    /// Refused so far (`basic.nack`).
    pub nacked: u64,
}

impl Default for Confirms {
    fn default() -> Self {
        Self { base: 1, sent: VecDeque::new(), open: 0, acked: 0, nacked: 0 }
    }
}

impl Confirms {
    /// Publishes that wait.
    pub fn open(&self) -> usize {
        self.open
    }

    /// The delivery tags that wait.
    pub fn open_tags(&self) -> impl Iterator<Item = u64> {
        (self.base..).zip(&self.sent).filter(|(_, sent)| **sent != 0).map(|(tag, _)| tag)
    }

    /// Notes a publish, sent at a time that is not 0.
    #[inline]
    pub fn publish(&mut self, now: u64) {
        self.sent.push_back(now);
        self.open += 1;
    }

    /// Notes a confirm; `on_confirmed` gets the time when each message was sent.
    ///
    /// # Errors
    /// If the tag was never published, or confirmed before: a fault of the broker.
    pub fn settle(
        &mut self,
        settlement: Settlement,
        mut on_confirmed: impl FnMut(u64),
    ) -> Result<(), String> {
        let (tag, multiple, accepted) = match settlement {
            Settlement::Ack { delivery_tag, multiple } => (delivery_tag, multiple, true),
            Settlement::Nack { delivery_tag, multiple, .. } => (delivery_tag, multiple, false),
            Settlement::Reject { .. } => return Err("the broker sent basic.reject".to_owned()),
        };
        let end = self.base + self.sent.len() as u64;
        // 0 with `multiple`: all of them
        let tag = if tag == 0 && multiple { end - 1 } else { tag };
        if tag >= end {
            return Err(format!("the broker confirmed {tag}, but only {} were sent", end - 1));
        }
        let mut count = 0;
        let mut confirm = |sent: &mut u64| {
            if *sent != 0 {
                on_confirmed(std::mem::take(sent));
                count += 1;
            }
        };
        if multiple {
            // what was covered before does no harm
            let covered = (tag + 1).saturating_sub(self.base);
            let covered = usize::try_from(covered).expect("no more than were sent");
            self.sent.drain(..covered).for_each(|mut sent| confirm(&mut sent));
            self.base += covered as u64;
        } else if let Some(sent) = tag
            .checked_sub(self.base)
            .and_then(|at| self.sent.get_mut(usize::try_from(at).ok()?))
            .filter(|sent| **sent != 0)
        {
            confirm(sent);
        } else {
            return Err(format!("the broker confirmed {tag} twice"));
        }
        while self.sent.front() == Some(&0) {
            self.sent.pop_front();
            self.base += 1;
        }
        self.open -= count;
        *(if accepted { &mut self.acked } else { &mut self.nacked }) += count as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn ack(delivery_tag: u64, multiple: bool) -> Settlement {
        Settlement::Ack { delivery_tag, multiple }
    }

    #[test]
    fn faults_of_the_broker_are_found() {
        let mut confirms = Confirms::default();
        (0..3).for_each(|_| confirms.publish(1));
        let mut settle = |settlement| confirms.settle(settlement, |_| ());
        assert_eq!(
            settle(ack(4, false)).unwrap_err(),
            "the broker confirmed 4, but only 3 were sent"
        );
        assert_eq!(settle(ack(2, false)), Ok(()));
        assert_eq!(settle(ack(2, false)).unwrap_err(), "the broker confirmed 2 twice");
        assert_eq!(settle(ack(0, true)), Ok(()));
        assert_eq!((confirms.open(), confirms.acked), (0, 3));
    }

    proptest! {
        #[test]
        fn open_is_what_a_set_says(
            steps in prop::collection::vec((0..3_u8, any::<prop::sample::Index>(), any::<bool>()), 0..200),
        ) {
            let (mut confirms, mut open, mut next) = (Confirms::default(), BTreeSet::new(), 1_u64);
            for (what, which, accepted) in steps {
                if what == 0 || open.is_empty() {
                    confirms.publish(1000 + next);
                    open.insert(next);
                    next += 1;
                    continue;
                }
                let multiple = what == 1;
                let tags: Vec<u64> = open.iter().copied().collect();
                let tag = tags[which.index(tags.len())];
                let settlement = if accepted {
                    ack(tag, multiple)
                } else {
                    Settlement::Nack { delivery_tag: tag, multiple, requeue: false }
                };
                let expected: Vec<u64> = tags
                    .iter()
                    .copied()
                    .filter(|other| if multiple { *other <= tag } else { *other == tag })
                    .collect();
                let mut found = Vec::new();
                confirms.settle(settlement, |sent| found.push(sent - 1000)).unwrap();
                prop_assert_eq!(&found, &expected);
                open.retain(|other| !expected.contains(other));
                prop_assert_eq!(confirms.open(), open.len());
                prop_assert!(confirms.open_tags().eq(open.iter().copied()));
            }
            prop_assert_eq!(confirms.acked + confirms.nacked + open.len() as u64, next - 1);
        }
    }
}
