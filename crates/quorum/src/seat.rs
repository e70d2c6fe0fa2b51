//! A member in its place: who calls it, in which order, and what its role is.
//!
//! The role follows from two facts. The log store says which vote was saved; the state machine
//! says what was applied. A node leads a term from the moment at which its own vote for it is
//! committed *and* an entry of that term is applied, which its blank entry is the first of.

use crate::member::{Committed, Member, Role};
use crate::types::{Membership, Types, Vote};
use model::id::NodeId;
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::InstantOf;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The member of one group on this node.
pub(crate) struct Seat {
    me: NodeId,
    member: Arc<dyn Member>,
    /// Serialises the calls of the member.
    state: Mutex<State>,
    /// The term that this node leads and may propose in, or 0: no leader has term 0.
    leading: AtomicU64,
    /// When it last took entries, by a count of such events.
    used: AtomicU64,
}

/// Counts batches of entries, over all groups.
static USES: AtomicU64 = AtomicU64::new(1);

struct State {
    /// The newest vote saved since the start; earlier ones are of another life.
    vote: Option<Vote>,
    /// When it was given to a candidate that has not won yet.
    voted: Option<InstantOf<Types>>,
    role: Role,
    /// The last term whose leadership this node gave away.
    left: u64,
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("leading", &self.leading).finish_non_exhaustive()
    }
}

impl Seat {
    /// A seat for a member whose last saved vote was in `term`, or 0.
    pub(crate) fn new(me: NodeId, member: Arc<dyn Member>, term: u64) -> Self {
        let role = Role::Follower { term, leader: None };
        let state = Mutex::new(State { vote: None, voted: None, role, left: 0 });
        Self { me, member, state, leading: AtomicU64::new(0), used: AtomicU64::new(0) }
    }

    /// What the node is.
    pub(crate) fn role(&self) -> Role {
        self.state.lock().role
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
        state.voted = (!vote.committed).then(Types::now);
        let term = vote.leader_id.term;
        let mine = vote.leader_id.voted_for == self.me.0;
        if vote.committed && mine && state.role == (Role::Leader { term }) {
            return;
        }
        let leader = (vote.committed && !mine).then_some(NodeId(vote.leader_id.voted_for));
        self.set_role(&mut state, Role::Follower { term, leader });
    }

    /// Hands entries over, and the leadership with the first of its term.
    pub(crate) fn on_committed(&self, entries: Vec<Committed>) {
        let Some(last) = entries.last() else { return };
        let term = last.term;
        self.used.store(USES.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let mut state = self.state.lock();
        self.member.committed(entries);
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
        self.member.members(voters.into_iter().collect(), learners);
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

    /// Somebody says that it leads.
    pub(crate) fn on_leader(&self, term: u64, leader: NodeId) {
        let mut state = self.state.lock();
        if state.role == (Role::Follower { term, leader: None }) {
            self.set_role(&mut state, Role::Follower { term, leader: Some(leader) });
        }
    }

    /// When this node voted for somebody who has not won yet.
    pub(crate) fn voted(&self) -> Option<InstantOf<Types>> {
        self.state.lock().voted
    }

    /// When the group was last used: the higher, the later.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Calls the member in order with everything else.
    pub(crate) fn call<T>(&self, call: impl FnOnce(&dyn Member) -> T) -> T {
        let _in_order = self.state.lock();
        call(&*self.member)
    }

    fn set_role(&self, state: &mut State, role: Role) {
        if state.role == role {
            return;
        }
        state.role = role;
        let term = if let Role::Leader { term } = role { term } else { 0 };
        self.leading.store(term, Ordering::Release);
        self.member.role(role);
    }
}
