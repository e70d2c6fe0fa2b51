//! What a node does in the elections of a group: it stands, or has given its vote to somebody.
//!
//! An election of its own is over as soon as its outcome is sure, and the supervisor hears of that
//! at once: it is won, somebody else leads, or so many refuse that no majority is left. Only if
//! nobody says anything does time decide. Votes saved and answers of other nodes drive it.

use crate::group::GroupId;
use crate::supervisor::Alarm;
use crate::supervisor::plan::can_win;
use crate::types::{Types, Vote};
use model::id::NodeId;
use openraft::Instant;
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::InstantOf;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How long an election may go without an outcome before this node stands, or lets somebody stand,
/// once more. It doubles each time up to eight times as long: if disks take longer than that, it
/// must not be begun again for ever.
const ELECTION_WAIT: Duration = Duration::from_millis(1500);
const DOUBLINGS_MAX: u32 = 3;
/// So many elections may be lost before a node pauses. The first is lost if the others' logs were
/// longer than they said, the second if two stood at the same time.
const LOSSES_FREE: u32 = 3;
/// The first pause, which doubles with each loss, and the longest.
const REST_MIN: Duration = Duration::from_millis(50);
const REST_MAX: Duration = Duration::from_secs(2);

/// See the module head.
#[derive(Debug)]
pub(crate) struct Ballot {
    state: Mutex<State>,
    group: GroupId,
    alarm: Arc<Alarm>,
    /// Something about the election, or about who leads, has changed.
    pub(crate) changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    own: Option<Own>,
    /// To whom the vote was given, who has not won yet, and when.
    given: Option<(NodeId, InstantOf<Types>)>,
    /// How many elections in a row were lost.
    losses: u32,
    /// How many in a row had no outcome in time.
    overdue: u32,
    /// This node does not stand before.
    rest: Option<InstantOf<Types>>,
}

/// An election in which this node stands.
#[derive(Debug)]
struct Own {
    /// 0 until the vote is cast.
    term: u64,
    since: InstantOf<Types>,
    /// The sets of voters of which each has to agree by a majority. None: not known.
    voters: Vec<BTreeSet<NodeId>>,
    refused: BTreeSet<NodeId>,
}

impl Ballot {
    /// One that rings when an election is lost.
    pub(crate) fn new(group: GroupId, alarm: Arc<Alarm>) -> Self {
        let (state, changed) = Default::default();
        Self { state, group, alarm, changed }
    }

    /// This node is about to stand.
    pub(crate) fn open(&self, voters: Vec<BTreeSet<NodeId>>) {
        let mut state = self.state.lock();
        if state.own.is_some() {
            state.overdue += 1;
        }
        let refused = BTreeSet::new();
        state.own = Some(Own { term: 0, since: Types::now(), voters, refused });
    }

    /// A vote of this node is being saved.
    pub(crate) fn on_vote(&self, me: NodeId, vote: &Vote) {
        let mut state = self.state.lock();
        let (term, node) = (vote.leader_id.term, NodeId(vote.leader_id.voted_for));
        state.given = None;
        if vote.committed {
            *state = State::default();
        } else if node != me {
            state.own = None;
            state.given = Some((node, Types::now()));
        } else if let Some(own) = state.own.as_mut().filter(|own| own.term == 0) {
            own.term = term;
        } else {
            let (voters, refused) = (Vec::new(), BTreeSet::new());
            state.own = Some(Own { term, since: Types::now(), voters, refused });
        }
        drop(state);
        self.changed.notify_one();
    }

    /// A node does not give its vote in a term, or cannot be asked.
    pub(crate) fn on_refused(&self, term: u64, node: NodeId) {
        let mut state = self.state.lock();
        let Some(own) = state.own.as_mut().filter(|own| own.term == term) else { return };
        own.refused.insert(node);
        if can_win(&own.voters, &own.refused) {
            return;
        }
        state.own = None;
        state.losses += 1;
        if let Some(more) = state.losses.checked_sub(LOSSES_FREE) {
            let rest = REST_MIN.saturating_mul(1 << more.min(16)).min(REST_MAX);
            state.rest = Some(Types::now() + rest);
        }
        drop(state);
        self.changed.notify_one();
        self.alarm.ring_for(self.group);
    }

    /// Whether this node stands, and may still win.
    pub(crate) fn stands(&self) -> bool {
        self.state.lock().own.is_some()
    }

    /// Whether an election has to be waited for, or its loss be digested. `is_up` tells whether a
    /// node is connected: a candidate that is not wins nothing.
    pub(crate) fn is_busy(&self, is_up: impl Fn(NodeId) -> bool) -> bool {
        let state = self.state.lock();
        let wait = ELECTION_WAIT * (1 << state.overdue.min(DOUBLINGS_MAX));
        let own = state.own.as_ref().is_some_and(|own| own.since.elapsed() < wait);
        let given = state.given.is_some_and(|(node, at)| is_up(node) && at.elapsed() < wait);
        own || given || state.rest.is_some_and(|until| Types::now() < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::vote;

    const ME: NodeId = NodeId(1);

    fn voters() -> Vec<BTreeSet<NodeId>> {
        vec![(1..=3).map(NodeId).collect()]
    }

    fn busy(ballot: &Ballot) -> bool {
        ballot.is_busy(|_| true)
    }

    /// A ballot in which this node stands in a term.
    fn standing(term: u64) -> Ballot {
        let ballot = Ballot::new(GroupId(1), Arc::default());
        stand(&ballot, term);
        ballot
    }

    fn stand(ballot: &Ballot, term: u64) {
        ballot.open(voters());
        ballot.on_vote(ME, &vote(term, ME.0, false));
    }

    #[tokio::test(start_paused = true)]
    async fn an_election_is_over_when_no_majority_is_left() {
        let ballot = standing(5);
        assert!(ballot.stands() && busy(&ballot));
        ballot.on_refused(5, NodeId(2));
        assert!(ballot.stands(), "the third may agree");
        ballot.on_refused(4, NodeId(3));
        assert!(ballot.stands(), "that was about another election");
        ballot.on_refused(5, NodeId(3));
        assert!(!ballot.stands() && !busy(&ballot));
    }

    #[tokio::test(start_paused = true)]
    async fn who_loses_again_and_again_rests() {
        let ballot = Ballot::new(GroupId(1), Arc::default());
        for term in 1..=3 {
            stand(&ballot, term);
            ballot.on_refused(term, NodeId(2));
            ballot.on_refused(term, NodeId(3));
            assert_eq!(busy(&ballot), term == 3);
        }
        tokio::time::advance(REST_MIN).await;
        assert!(!busy(&ballot));
        ballot.on_vote(ME, &vote(9, 2, true));
        stand(&ballot, 10);
        ballot.on_refused(10, NodeId(2));
        ballot.on_refused(10, NodeId(3));
        assert!(!busy(&ballot), "somebody led meanwhile");
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_answer_time_decides_and_each_time_takes_longer() {
        let ballot = standing(5);
        for factor in [2, 4, 8, 16, 16] {
            tokio::time::advance(ELECTION_WAIT * factor / 4).await;
            assert!(busy(&ballot));
            tokio::time::advance(ELECTION_WAIT * factor / 4).await;
            assert!(!busy(&ballot));
            stand(&ballot, 5);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_vote_binds_while_its_candidate_lives() {
        let ballot = standing(5);
        ballot.on_vote(ME, &vote(6, 2, false));
        assert!(!ballot.stands() && busy(&ballot));
        assert!(!ballot.is_busy(|node| node != NodeId(2)));
        tokio::time::advance(ELECTION_WAIT).await;
        assert!(!busy(&ballot));
        ballot.on_vote(ME, &vote(7, 2, false));
        ballot.on_vote(ME, &vote(7, 2, true));
        assert!(!busy(&ballot), "it has won");
    }
}
