//! Which nodes are asked for the members that they have lost, and when.
//!
//! A node that has just started may not answer yet, or does not know yet that one of its members is
//! lost. So each is asked as soon as it is connected, again soon while it does not answer, and then
//! more and more rarely: a member may be lost at any time, and one question covers all of a node's.

use std::collections::BTreeMap;

use model::id::NodeId;
use model::time::{Millis, Timestamp};

/// How long after a question the next one comes: after the first answer, after one that did not come,
/// and at most.
const FIRST: Millis = Millis(1_000);
const SILENT: Millis = Millis(2_000);
const RARELY: Millis = Millis(300_000);

/// A start of a node.
type Start = (NodeId, u64);

/// See the module head.
#[derive(Debug, Default)]
pub(crate) struct Hearing {
    peers: BTreeMap<Start, Peer>,
}

#[derive(Debug)]
struct Peer {
    /// When it is asked next; `None`: it was asked and has not answered.
    next: Option<Timestamp>,
    /// After its next answer it is asked again after so long.
    rest: Millis,
}

impl Hearing {
    /// These are connected, and no others.
    pub(crate) fn connected(&mut self, now: Timestamp, starts: &[Start]) {
        self.peers.retain(|start, _| starts.contains(start));
        for start in starts {
            self.peers.entry(*start).or_insert(Peer { next: Some(now), rest: FIRST });
        }
    }

    /// All are asked now.
    pub(crate) fn all(&mut self, now: Timestamp) {
        for peer in self.peers.values_mut() {
            // Whoever is being asked is asked again only if it does not answer.
            peer.next = peer.next.and(Some(now));
        }
    }

    /// Those to be asked now: each comes once, until it has [`answered`](Self::answered).
    pub(crate) fn due(&mut self, now: Timestamp) -> Vec<Start> {
        let due = self.peers.iter_mut().filter(|(_, peer)| peer.next.is_some_and(|at| at <= now));
        due.map(|(start, peer)| {
            peer.next = None;
            *start
        })
        .collect()
    }

    /// Somebody who was asked has answered, or has not.
    pub(crate) fn answered(&mut self, now: Timestamp, start: Start, has: bool) {
        let Some(peer) = self.peers.get_mut(&start) else { return };
        if has {
            peer.next = Some(now + peer.rest);
            peer.rest = Millis(peer.rest.0.saturating_mul(2)).min(RARELY);
        } else {
            peer.next = Some(now + SILENT);
        }
    }

    /// When somebody is due.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.peers.values().filter_map(|peer| peer.next).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Start = (NodeId(1), 4);
    const B: Start = (NodeId(2), 1);

    /// Asks whoever is due until the end, each answering or not; gives who was asked when.
    fn run(
        hearing: &mut Hearing,
        from: u64,
        until: u64,
        answers: impl Fn(Start, u64) -> bool,
    ) -> Vec<(u64, Start)> {
        let (mut asked, mut now) = (Vec::new(), Timestamp(from));
        loop {
            for start in hearing.due(now) {
                asked.push((now.0, start));
                hearing.answered(now, start, answers(start, now.0));
            }
            match hearing.deadline() {
                Some(next) if next.0 < until => now = next,
                _ => return asked,
            }
        }
    }

    #[test]
    fn who_does_not_answer_is_asked_again() {
        let mut hearing = Hearing::default();
        hearing.connected(Timestamp(0), &[A, B]);
        let asked = run(&mut hearing, 0, 8_500, |start, now| start == A || now >= 5_000);
        let of = |wanted: Start| -> Vec<u64> {
            asked.iter().filter(|(_, start)| *start == wanted).map(|(at, _)| *at).collect()
        };
        assert_eq!(of(A), [0, 1_000, 3_000, 7_000], "it may not have known all at once");
        assert_eq!(of(B), [0, 2_000, 4_000, 6_000, 7_000]);
    }

    #[test]
    fn all_are_asked_now_and_then_and_when_somebody_wants_it() {
        let mut hearing = Hearing::default();
        hearing.connected(Timestamp(0), &[A]);
        let asked = run(&mut hearing, 0, 3_600_000, |_, _| true);
        assert!((15..25).contains(&asked.len()), "{} times in an hour", asked.len());
        let longest = asked.windows(2).map(|two| two[1].0 - two[0].0).max();
        assert_eq!(longest, Some(RARELY.0));
        hearing.all(Timestamp(3_600_001));
        assert_eq!(hearing.due(Timestamp(3_600_001)), [A]);
        // It is being asked.
        hearing.all(Timestamp(3_600_002));
        assert_eq!((hearing.due(Timestamp(9_000_000)), hearing.deadline()), (vec![], None));
    }

    #[test]
    fn a_node_that_has_started_again_is_another_one() {
        let mut hearing = Hearing::default();
        hearing.connected(Timestamp(0), &[A]);
        assert_eq!(hearing.due(Timestamp(0)), [A]);
        hearing.connected(Timestamp(5), &[(A.0, 5), B]);
        assert_eq!(hearing.due(Timestamp(5)), [(A.0, 5), B]);
        // Of what it was nobody waits for an answer.
        hearing.answered(Timestamp(6), A, true);
        hearing.connected(Timestamp(7), &[]);
        assert_eq!(hearing.deadline(), None);
    }
}
