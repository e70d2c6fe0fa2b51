//! A member in its place: who calls it, in which order, and what its role is.
//!
//! The role follows from two facts. The log store says which vote was saved; the state machine
//! says what was applied. A node leads a term from the moment at which its own vote for it is
//! committed *and* an entry of that term is applied, which its blank entry is the first of.

use crate::member::{Committed, Member, Role};
use crate::supervisor::ballot::Ballot;
use crate::types::{Membership, Vote, vote};
use model::id::NodeId;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The member of one group on this node.
pub(crate) struct Seat {
    me: NodeId,
    /// Serialises the calls of the member.
    state: Mutex<State>,
    /// The term that this node leads and may propose in, or 0: no leader has term 0.
    leading: AtomicU64,
    /// When it last took entries, by a count of such events.
    used: AtomicU64,
    pub(crate) ballot: Ballot,
}

/// Counts batches of entries, over all groups.
static USES: AtomicU64 = AtomicU64::new(1);

struct State {
    /// `None` once the group has stopped. The member holds the log, which holds the seat.
    member: Option<Arc<dyn Member>>,
    /// The newest vote saved since the start; earlier ones are of another life.
    vote: Option<Vote>,
    role: Role,
    /// The last term whose leadership this node gave away.
    left: u64,
    /// The group has ended by itself.
    failed: bool,
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("leading", &self.leading).finish_non_exhaustive()
    }
}

impl Seat {
    /// A seat for a member whose last saved vote was in `term`, or 0.
    pub(crate) fn new(me: NodeId, member: Arc<dyn Member>, term: u64, ballot: Ballot) -> Self {
        let role = Role::Follower { term, leader: None };
        let state =
            Mutex::new(State { member: Some(member), vote: None, role, left: 0, failed: false });
        let (leading, used) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { me, state, leading, used, ballot }
    }

    /// What the node is.
    pub(crate) fn role(&self) -> Role {
        self.state.lock().role
    }

    /// See [`Member::body_bytes`].
    pub(crate) fn body_bytes(&self) -> u64 {
        let member = self.state.lock().member.clone();
        member.map_or(0, |member| member.body_bytes())
    }

    /// The term in which this node may propose.
    pub(crate) fn leading(&self) -> Option<u64> {
        let term = self.leading.load(Ordering::Acquire);
        (term != 0).then_some(term)
    }

    /// A vote is about to be saved: this node votes, wins, or follows.
    pub(crate) fn on_vote(&self, vote: Vote) {
        let mut state = self.state.lock();
        state.vote = Some(vote);
        self.ballot.on_vote(self.me, &vote);
        let term = vote.leader_id.term;
        let mine = vote.leader_id.voted_for == self.me.0;
        if vote.committed && mine && state.role == (Role::Leader { term }) {
            return;
        }
        let leader = (vote.committed && !mine).then_some(NodeId(vote.leader_id.voted_for));
        self.set_role(&mut state, Role::Follower { term, leader });
    }

    /// This node leads from the beginning, in a term that nobody else can win and before which there
    /// was nothing.
    pub(crate) fn begin_to_lead(&self, term: u64) {
        let mut state = self.state.lock();
        state.vote = Some(vote(term, self.me.0, true));
        self.set_role(&mut state, Role::Leader { term });
    }

    /// Hands entries over, and the leadership with the first of its term.
    pub(crate) fn on_committed(&self, entries: Vec<Committed>) {
        let Some(last) = entries.last() else { return };
        let term = last.term;
        self.used.store(USES.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let mut state = self.state.lock();
        state.call(|member| member.committed(entries));
        let won = |vote: Vote| {
            vote.committed
                && vote.leader_id.voted_for == self.me.0
                && vote.leader_id.term == term
                // Term 0 is the founding entry's, which no leader proposed.
                && term != 0
        };
        if state.vote.is_some_and(won) && state.left != term {
            self.set_role(&mut state, Role::Leader { term });
        }
    }

    /// The members changed. A leader that is no longer one of them stops to lead.
    pub(crate) fn on_members(&self, membership: &Membership) {
        let voters: BTreeSet<NodeId> = membership.voter_ids().map(NodeId).collect();
        let learners = membership.learner_ids().map(NodeId).collect();
        let mut state = self.state.lock();
        let is_voter = voters.contains(&self.me);
        state.call(|member| member.members(voters.into_iter().collect(), learners));
        if let Role::Leader { term } = state.role
            && !is_voter
        {
            self.set_role(&mut state, Role::Follower { term, leader: None });
        }
    }

    /// Stops to propose in the term that this node leads, for good: the leadership is being given
    /// away. Tells the term, if it led.
    pub(crate) fn leave(&self) -> Option<u64> {
        let mut state = self.state.lock();
        let Role::Leader { term } = state.role else { return None };
        state.left = term;
        self.set_role(&mut state, Role::Follower { term, leader: None });
        Some(term)
    }

    /// A leader that sleeps has lost its majority, and leads no longer.
    pub(crate) fn abdicate(&self) {
        let mut state = self.state.lock();
        let Some(vote) = state.vote.take() else { return };
        let term = vote.leader_id.term;
        self.set_role(&mut state, Role::Follower { term, leader: None });
    }

    /// Somebody says that it leads.
    pub(crate) fn on_leader(&self, term: u64, leader: NodeId) {
        let mut state = self.state.lock();
        if state.role == (Role::Follower { term, leader: None }) {
            self.set_role(&mut state, Role::Follower { term, leader: Some(leader) });
        }
    }

    /// The connection with a node is lost. If that was the leader, nobody is known to lead.
    pub(crate) fn on_lost(&self, node: NodeId) {
        let mut state = self.state.lock();
        if let Role::Follower { term, leader: Some(leader) } = state.role
            && leader == node
        {
            self.set_role(&mut state, Role::Follower { term, leader: None });
        }
    }

    /// The term whose election this node has won, if that is the newest one that it knows. It may
    /// not propose yet.
    pub(crate) fn won(&self) -> Option<u64> {
        let vote = self.state.lock().vote.filter(|vote| vote.committed)?;
        let term = vote.leader_id.term;
        // Term 0 is the founding entry's.
        (vote.leader_id.voted_for == self.me.0 && term != 0).then_some(term)
    }

    /// Somebody wants to use the group.
    pub(crate) fn on_wanted(&self) {
        self.used.store(USES.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// When the group was last used: the higher, the later.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Calls the member in order with everything else; one that is gone does nothing.
    pub(crate) fn call<T: Default>(&self, call: impl FnOnce(&dyn Member) -> T) -> T {
        self.state.lock().call(call)
    }

    /// The group has failed here: it leads no longer, whatever it has won, so that others may.
    pub(crate) fn fail(&self, error: String) {
        let mut state = self.state.lock();
        state.failed = true;
        state.call(|member| member.failed(error));
        let term = state.vote.take().map_or(0, |vote| vote.leader_id.term);
        if matches!(state.role, Role::Leader { .. }) {
            self.set_role(&mut state, Role::Follower { term, leader: None });
        }
        drop(state);
        self.ballot.changed.notify_one();
    }

    /// Whether it has.
    pub(crate) fn has_failed(&self) -> bool {
        self.state.lock().failed
    }

    /// The group has stopped: lets go of its member.
    pub(crate) fn close(&self) {
        let member = self.state.lock().member.take();
        drop(member);
        self.leading.store(0, Ordering::Release);
        self.ballot.changed.notify_one();
    }

    fn set_role(&self, state: &mut State, role: Role) {
        if state.role == role {
            return;
        }
        state.role = role;
        let term = if let Role::Leader { term } = role { term } else { 0 };
        self.leading.store(term, Ordering::Release);
        state.call(|member| member.role(role));
        self.ballot.changed.notify_one();
    }
}

impl State {
    fn call<T: Default>(&self, call: impl FnOnce(&dyn Member) -> T) -> T {
        self.member.as_deref().map(call).unwrap_or_default()
    }
}
