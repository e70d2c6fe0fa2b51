//! Who should lead a group that nobody leads: the decision, pure.
//!
//! A node stands for election only if a majority of the voters, itself included, says that it has
//! lost the leader itself, and if it is the best of those: the one with the highest last entry;
//! among equals one that stands already; else a hash of group and node decides, which spreads the
//! groups over the survivors. All survivors ask, and come to the same result, so they do not stand
//! at the same time. It stands above every term that any of them knows: nobody has voted there.
//! If the best does not win for a while, the next one stands too.

use crate::group::GroupId;
use crate::types::LogId;
use model::id::NodeId;
use std::collections::BTreeSet;
use std::time::Duration;

/// What a node says about a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// It has no such group.
    Unknown,
    /// It leads it, in this term.
    Leads { term: u64 },
    /// It hears this leader, in this term.
    Hears { leader: NodeId, term: u64 },
    /// It hears no leader. The newest term that it knows, its last entry, and whether it stands for
    /// election.
    Lost { term: u64, last: Option<LogId>, stands: bool },
}

/// What to do about a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Stand for election, in a term above this one.
    Elect { above: u64 },
    /// Somebody leads it.
    Follow { leader: NodeId, term: u64 },
    /// Another one should stand.
    Defer,
    /// Too few have lost the leader. Ask again later.
    Wait,
}

/// How long the best one has before the next one stands, and that one before the third.
const PATIENCE: Duration = Duration::from_secs(3);

/// A node that asks about a group that it believes leaderless.
#[derive(Debug, Clone)]
pub(crate) struct Asker<'a> {
    pub(crate) group: GroupId,
    pub(crate) me: NodeId,
    pub(crate) term: u64,
    pub(crate) last: Option<LogId>,
    pub(crate) voters: &'a [NodeId],
    /// How long others have been let go first.
    pub(crate) waited: Duration,
}

impl Asker<'_> {
    /// Decides by the words of other voters; those who did not answer are missing.
    pub(crate) fn decide(&self, words: &[(NodeId, Word)]) -> Plan {
        #[cfg(feature = "sim")]
        if crate::sim::breaks(crate::sim::Broken::NoWord) {
            return Plan::Elect { above: 0 };
        }
        let mut above = self.term;
        let mut lost = vec![(self.last, false, weight(self.group, self.me), self.me)];
        for &(node, word) in words.iter().filter(|(node, _)| self.voters.contains(node)) {
            match word {
                Word::Leads { term } if term >= self.term => {
                    return Plan::Follow { leader: node, term };
                }
                // A leader of an older term does not know yet that it is none.
                Word::Leads { .. } | Word::Unknown => {}
                Word::Hears { term, .. } => above = above.max(term),
                Word::Lost { term, last, stands } => {
                    above = above.max(term);
                    lost.push((last, stands, weight(self.group, node), node));
                }
            }
        }
        if lost.len() <= self.voters.len() / 2 {
            return Plan::Wait;
        }
        lost.sort_unstable_by(|one, other| other.cmp(one));
        let rank = lost.iter().position(|(_, _, _, node)| *node == self.me);
        let rank = u32::try_from(rank.expect("it is among them")).unwrap_or(u32::MAX);
        if self.waited >= PATIENCE.saturating_mul(rank) {
            Plan::Elect { above }
        } else {
            Plan::Defer
        }
    }
}

/// Whether a candidate can still win, given who has refused: each set of voters has to agree by a
/// majority. Of no sets nothing is known.
pub(crate) fn can_win(voters: &[BTreeSet<NodeId>], refused: &BTreeSet<NodeId>) -> bool {
    is_majority(voters, |node| !refused.contains(&node))
}

/// Whether a majority of each set of voters is so.
pub(crate) fn is_majority(voters: &[BTreeSet<NodeId>], is_so: impl Fn(NodeId) -> bool) -> bool {
    voters.iter().all(|set| set.iter().filter(|node| is_so(**node)).count() > set.len() / 2)
}

/// Spreads groups over nodes, the same on each.
pub(crate) fn weight(group: GroupId, node: NodeId) -> u64 {
    let mut mixed = group.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ node.0;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::log_id;
    use proptest::prelude::*;

    const VOTERS: &[NodeId] = &[NodeId(1), NodeId(2), NodeId(3)];
    const ELECT: Plan = Plan::Elect { above: 4 };

    fn asker(me: u64, last: (u64, u64)) -> Asker<'static> {
        let last = Some(log_id(last.0, last.1));
        let waited = Duration::ZERO;
        Asker { group: GroupId(9), me: NodeId(me), term: 4, last, voters: VOTERS, waited }
    }

    fn lost(node: u64, last: (u64, u64)) -> (NodeId, Word) {
        let last = Some(log_id(last.0, last.1));
        (NodeId(node), Word::Lost { term: 4, last, stands: false })
    }

    #[test]
    fn a_majority_must_have_lost_the_leader() {
        let hears = Word::Hears { leader: NodeId(3), term: 4 };
        assert_eq!(asker(1, (4, 9)).decide(&[]), Plan::Wait);
        assert_eq!(asker(1, (4, 9)).decide(&[(NodeId(2), hears)]), Plan::Wait);
        assert_eq!(asker(1, (4, 9)).decide(&[lost(2, (4, 8))]), ELECT);
        // A stranger's word does not count.
        assert_eq!(asker(1, (4, 9)).decide(&[lost(7, (4, 8))]), Plan::Wait);
    }

    #[test]
    fn the_longer_log_leads_and_a_newer_term_beats_length() {
        assert_eq!(asker(1, (4, 9)).decide(&[lost(2, (4, 10))]), Plan::Defer);
        assert_eq!(asker(1, (4, 9)).decide(&[lost(2, (3, 100))]), ELECT);
    }

    #[test]
    fn a_leader_that_is_found_is_followed_unless_it_is_of_the_past() {
        let leads = |term| (NodeId(3), Word::Leads { term });
        let follow = Plan::Follow { leader: NodeId(3), term: 4 };
        assert_eq!(asker(1, (4, 9)).decide(&[lost(2, (4, 9)), leads(4)]), follow);
        assert_eq!(asker(1, (4, 9)).decide(&[lost(2, (4, 8)), leads(3)]), ELECT);
    }

    #[test]
    fn the_next_best_stands_when_the_best_does_not_win() {
        let mut second = asker(1, (4, 9));
        second.waited = PATIENCE;
        assert_eq!(second.decide(&[lost(2, (4, 10))]), ELECT);
        assert_eq!(second.decide(&[lost(2, (4, 10)), lost(3, (4, 11))]), Plan::Defer);
    }

    #[test]
    fn of_equals_the_one_that_stands_goes_on_and_a_longer_log_does_not_wait_for_it() {
        let stands = |node, index| {
            let last = Some(log_id(4, index));
            (NodeId(node), Word::Lost { term: 5, last, stands: true })
        };
        for (me, other) in [(1, 2), (2, 1)] {
            assert_eq!(asker(me, (4, 9)).decide(&[stands(other, 9)]), Plan::Defer);
            let elect = Plan::Elect { above: 5 };
            assert_eq!(asker(me, (4, 9)).decide(&[stands(other, 8)]), elect);
        }
    }

    #[test]
    fn terms_in_which_somebody_has_voted_are_left_behind() {
        let hears = (NodeId(3), Word::Hears { leader: NodeId(2), term: 7 });
        let plan = asker(1, (4, 9)).decide(&[lost(2, (4, 8)), hears]);
        assert_eq!(plan, Plan::Elect { above: 7 });
    }

    #[test]
    fn joint_voters_need_two_majorities() {
        let set = |nodes: &[u64]| nodes.iter().copied().map(NodeId).collect::<BTreeSet<_>>();
        let joint = [set(&[1, 2, 3]), set(&[1, 4, 5])];
        assert!(can_win(&joint, &set(&[2, 4])));
        assert!(!can_win(&joint, &set(&[4, 5])));
        assert!(can_win(&[], &set(&[1, 2, 3])), "nothing is known");
    }

    proptest! {
        #[test]
        fn exactly_one_of_those_who_hear_each_other_stands(
            group: u64,
            lasts in proptest::collection::vec((0_u64..3, 0_u64..3), 3),
        ) {
            let last = |node: usize| Some(log_id(lasts[node].0, lasts[node].1));
            let standing = (0..3).filter(|me| {
                let asker = Asker {
                    group: GroupId(group), me: VOTERS[*me], term: 4, last: last(*me),
                    voters: VOTERS, waited: Duration::ZERO,
                };
                let others = (0..3).filter(|other| other != me);
                let word = |other| Word::Lost { term: 4, last: last(other), stands: false };
                let words: Vec<_> = others.map(|other| (VOTERS[other], word(other))).collect();
                matches!(asker.decide(&words), Plan::Elect { .. })
            });
            prop_assert_eq!(standing.count(), 1);
        }
    }
}
