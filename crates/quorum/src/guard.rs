//! Who may be voted for: the rule that stands in for leases, since groups send no heartbeats.
//!
//! An ordinary vote would let any node depose a leader that everybody else still hears. So a node
//! gives its vote only if it has itself lost the leader's node, or the leader ordered the change.
//! With a majority needed to win, a leader that a majority hears cannot be deposed.

use crate::types::{Vote, VoteRequest};
use model::id::NodeId;

/// What a node knows when it is asked for a vote.
#[derive(Debug, Clone)]
pub(crate) struct Electorate<'a> {
    pub(crate) me: NodeId,
    /// Its newest vote.
    pub(crate) vote: Option<Vote>,
    /// Whether it leads now.
    pub(crate) leads: bool,
    /// The voters of its newest membership; empty in a group that knows nothing yet.
    pub(crate) voters: &'a [NodeId],
    /// The leader that spoke last as such, its term, and the connection on which it did. A node
    /// that was lost and is back leads nothing until it says so.
    pub(crate) heard: Option<Heard>,
}

/// A leader has spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) leader: NodeId,
    pub(crate) term: u64,
    /// The number of the connection.
    pub(crate) link: u64,
    /// The stream of appends; 0 if the leader answered a question.
    pub(crate) session: u64,
}

/// Why a vote is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The candidate is no voter.
    Stranger,
    /// The leader is connected, or is this node.
    LeaderHeard,
}

impl Electorate<'_> {
    /// Whether openraft may see the vote request of `candidate`. `link` tells the number of the
    /// connection with a node, if there is one.
    pub(crate) fn admits(
        &self,
        candidate: NodeId,
        request: &VoteRequest,
        link: impl Fn(NodeId) -> Option<u64>,
    ) -> Result<(), Refusal> {
        #[cfg(feature = "sim")]
        if crate::sim::breaks(crate::sim::Broken::NoWord) {
            return Ok(());
        }
        // A member that was just made knows nobody; who asks it was named with the group.
        if !self.voters.is_empty() && !self.voters.contains(&candidate) {
            return Err(Refusal::Stranger);
        }
        // The leader named its heir, which openraft says in the request; other elections do not.
        let next = self.vote.map_or(1, |vote| vote.leader_id.term + 1);
        if request.leadership_transfer && request.vote.leader_id.term == next {
            return Ok(());
        }
        if self.leads {
            return Err(Refusal::LeaderHeard);
        }
        // A leader that asks for a new term has stopped to lead itself.
        match self.heard_leader(link) {
            Some(leader) if leader != candidate => Err(Refusal::LeaderHeard),
            Some(_) | None => Ok(()),
        }
    }

    /// The leader that this follower hears.
    pub(crate) fn heard_leader(&self, link: impl Fn(NodeId) -> Option<u64>) -> Option<NodeId> {
        let vote = self.vote.filter(|vote| vote.committed)?;
        let (leader, term) = (NodeId(vote.leader_id.voted_for), vote.leader_id.term);
        // This node's own vote of an earlier life leads nobody.
        let link = link(leader).filter(|_| leader != self.me)?;
        let is_heard =
            |heard: Heard| (heard.leader, heard.term, heard.link) == (leader, term, link);
        self.heard.is_some_and(is_heard).then_some(leader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::vote;

    const ME: NodeId = NodeId(1);
    const LEADER: NodeId = NodeId(2);
    const CANDIDATE: NodeId = NodeId(3);
    const VOTERS: &[NodeId] = &[ME, LEADER, CANDIDATE];

    fn follower() -> Electorate<'static> {
        let vote = Some(vote(5, LEADER.0, true));
        let heard = Some(Heard { leader: LEADER, term: 5, link: 7, session: 1 });
        Electorate { me: ME, vote, leads: false, voters: VOTERS, heard }
    }

    fn ask() -> VoteRequest {
        VoteRequest {
            vote: vote(6, CANDIDATE.0, false),
            last_log_id: None,
            leadership_transfer: false,
        }
    }

    fn check(electorate: &Electorate<'_>, up: &[NodeId], expected: Result<(), Refusal>) {
        let link = |node| up.contains(&node).then_some(7);
        assert_eq!(electorate.admits(CANDIDATE, &ask(), link), expected);
    }

    #[test]
    fn a_leader_that_is_heard_is_not_deposed() {
        check(&follower(), &[LEADER, CANDIDATE], Err(Refusal::LeaderHeard));
        check(&follower(), &[CANDIDATE], Ok(()));
        let leader = Electorate { leads: true, vote: Some(vote(5, ME.0, true)), ..follower() };
        check(&leader, &[CANDIDATE], Err(Refusal::LeaderHeard));
    }

    #[test]
    fn the_leader_may_name_its_heir_for_the_next_term_only() {
        let up = |node| [LEADER, CANDIDATE].contains(&node).then_some(7);
        let mut request = ask();
        request.leadership_transfer = true;
        assert_eq!(follower().admits(CANDIDATE, &request, up), Ok(()));
        request.vote = vote(7, CANDIDATE.0, false);
        assert_eq!(follower().admits(CANDIDATE, &request, up), Err(Refusal::LeaderHeard));
    }

    #[test]
    fn a_leader_that_was_away_must_speak_first() {
        let stale = Some(Heard { leader: LEADER, term: 5, link: 6, session: 1 });
        check(&Electorate { heard: stale, ..follower() }, &[LEADER, CANDIDATE], Ok(()));
        check(&Electorate { heard: None, ..follower() }, &[LEADER, CANDIDATE], Ok(()));
    }

    #[test]
    fn strangers_get_no_vote() {
        let electorate = Electorate { voters: &[ME, LEADER], ..follower() };
        check(&electorate, &[CANDIDATE], Err(Refusal::Stranger));
        let fresh = Electorate { voters: &[], vote: None, ..follower() };
        check(&fresh, &[CANDIDATE], Ok(()));
    }

    #[test]
    fn a_vote_without_a_leader_binds_nobody() {
        let candidate = Electorate { vote: Some(vote(6, LEADER.0, false)), ..follower() };
        check(&candidate, &[LEADER, CANDIDATE], Ok(()));
        let restarted = Electorate { vote: Some(vote(5, ME.0, true)), ..follower() };
        check(&restarted, &[LEADER, CANDIDATE], Ok(()));
        let returned = Electorate { vote: Some(vote(5, CANDIDATE.0, true)), ..follower() };
        check(&returned, &[CANDIDATE], Ok(()));
    }
}
