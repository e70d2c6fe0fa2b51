//! The way of this node's metadata commands into the group's log and of their outcomes back.
//!
//! ```text
//!  submit ─► Courier ─► pump ─► the leader: proposes ─► log ─► applied here ─► applied by all that
//!     ▲                   │ not the leader any more: again              │      can be reached
//!     │                   └─ from the first unanswered one              ▼
//!     └──────────────────────────── outcome ◄────────────────────── settling
//! ```
//!
//! Who declares something here and uses it through another node at once must find it there. So an
//! outcome is told only when the nodes that are connected have applied the command too, or do not say
//! so within a moment.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metadata::outcome::Outcome;
use metadata::refusal::Refusal;
use model::id::NodeId;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::cluster::proposal::Proposal;
use crate::replicated::numbered::{Courier, Sender};

/// Commands in one proposal.
const BATCH: usize = 256;
/// How long a command waits for a majority, and how often those that wait look whether it is there.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a command waits for a majority to elect a leader.
const ELECTION: Duration = Duration::from_secs(5);
/// After so many looks a command is given up although there seems to be a leader.
const LOOKS: u32 = 10;
/// After a leader has not taken a proposal.
const PAUSE: Duration = Duration::from_millis(30);
/// How long an outcome waits for the other nodes to have applied it.
const SETTLE: Duration = Duration::from_millis(250);
/// How long what a leader has taken may stay unanswered before it is sent again.
const RESEND: Duration = Duration::from_secs(3);

/// What a command came to.
pub(crate) type Answer = Result<Outcome, Refusal>;

/// How proposals travel.
pub(crate) trait Road: Send + Sync + 'static {
    /// Proposes here; `false`: this node does not lead.
    fn here(&self, proposal: Bytes) -> bool;

    /// Asks another node to propose; `false`: it does not lead, or cannot be reached.
    fn there(&self, leader: NodeId, proposal: Bytes) -> impl Future<Output = bool> + Send;
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct Proposer {
    me: Sender,
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug)]
struct Item {
    /// Empty once it was given up.
    command: Bytes,
    /// It must be carried out, however late.
    lasting: bool,
    answer: Option<oneshot::Sender<Answer>>,
}

/// An outcome that not every node has applied yet.
#[derive(Debug)]
struct Settling {
    index: u64,
    until: Instant,
    answer: oneshot::Sender<Answer>,
    outcome: Answer,
}

#[derive(Debug)]
struct State {
    courier: Courier<Item>,
    /// Term and node, even if it is down.
    leader: Option<(u64, NodeId)>,
    voters: Vec<NodeId>,
    learners: Vec<NodeId>,
    /// Connected nodes, with what they have applied as far as they have said so.
    up: BTreeMap<NodeId, u64>,
    /// Since when no majority can be reached.
    lost_since: Option<Instant>,
    /// Since when there is no leader.
    leaderless_since: Option<Instant>,
    settling: VecDeque<Settling>,
    /// When the oldest one on its way was sent.
    sent_at: Instant,
}

impl State {
    fn is_up(&self, me: NodeId, node: NodeId) -> bool {
        node == me || self.up.contains_key(&node)
    }

    fn judge(&mut self, me: NodeId) {
        let reached = self.voters.iter().filter(|voter| self.is_up(me, **voter)).count();
        let majority = reached > self.voters.len() / 2;
        let leader = self.leader.is_some_and(|(_, leader)| self.is_up(me, leader));
        since(&mut self.lost_since, !majority);
        since(&mut self.leaderless_since, !leader);
    }

    fn can_decide(&self) -> bool {
        self.lost_since.is_none() && self.leaderless_since.is_none()
    }

    /// Whether a command shall not wait any more: for a majority it may be for long, and for a
    /// leader that a majority has to elect it is only a moment.
    fn is_hopeless(&self) -> bool {
        let over = |since: Option<Instant>, patience| {
            since.is_some_and(|since: Instant| since.elapsed() >= patience)
        };
        over(self.lost_since, PATIENCE) || over(self.leaderless_since, ELECTION)
    }

    /// Tells the outcomes that every node which is connected has applied, or that waited enough.
    fn settle(&mut self) {
        let members: BTreeSet<&NodeId> = self.voters.iter().chain(&self.learners).collect();
        let applied = self.up.iter().filter(|(node, _)| members.contains(node));
        let least = applied.map(|(_, applied)| *applied).min().unwrap_or(u64::MAX);
        let now = Instant::now();
        while let Some(first) = self.settling.front()
            && (first.index <= least || first.until <= now)
            && let Some(Settling { answer, outcome, .. }) = self.settling.pop_front()
        {
            // Who does not listen any more has gone.
            drop(answer.send(outcome));
        }
    }
}

fn since(since: &mut Option<Instant>, lasts: bool) {
    if lasts {
        since.get_or_insert_with(Instant::now);
    } else {
        *since = None;
    }
}

/// What is said when a change cannot be made.
pub(crate) fn no_majority() -> Refusal {
    Refusal::unavailable("metadata: no majority of the cluster is reachable")
}

fn unknown() -> Refusal {
    Refusal::unavailable("metadata: the outcome of the change is not known")
}

impl Proposer {
    /// Nothing is under way.
    pub(crate) fn new(me: Sender) -> Self {
        let now = Instant::now();
        let state = State {
            courier: Courier::default(),
            leader: None,
            voters: Vec::new(),
            learners: Vec::new(),
            up: BTreeMap::new(),
            lost_since: Some(now),
            leaderless_since: Some(now),
            settling: VecDeque::new(),
            sent_at: now,
        };
        Self { me, state: Mutex::new(state), wake: Notify::new() }
    }

    /// Whose commands they are.
    pub(crate) fn me(&self) -> Sender {
        self.me
    }

    /// Submits a command, and returns when it is in force here and, as a rule, on every node that
    /// can be reached. `lasting`: if nobody can be asked now it is carried out later all the same.
    ///
    /// # Errors
    /// The machine's refusal; or that no leader could be reached, in which case the command may
    /// have been carried out or not.
    pub(crate) async fn submit(&self, command: Bytes, lasting: bool) -> Answer {
        let (answer, mut answered) = oneshot::channel();
        let number = {
            let mut state = self.state.lock();
            let hopeless = state.is_hopeless();
            if hopeless && !lasting {
                return Err(no_majority());
            }
            let answer = Some(answer).filter(|_| !hopeless);
            let number = state.courier.push(Item { command, lasting, answer });
            if hopeless {
                return Err(no_majority());
            }
            number
        };
        self.wake.notify_one();
        for _ in 0..LOOKS {
            match tokio::time::timeout(PATIENCE, &mut answered).await {
                Ok(Ok(answer)) => return answer,
                Ok(Err(_)) => return Err(unknown()),
                Err(_) if self.state.lock().is_hopeless() => break,
                Err(_) => {}
            }
        }
        self.give_up(number);
        // It may have been answered in this moment.
        answered.try_recv().unwrap_or_else(|_| Err(no_majority()))
    }

    /// Submits a command that nobody waits for.
    pub(crate) fn order(&self, command: Bytes) {
        self.state.lock().courier.push(Item { command, lasting: true, answer: None });
        self.wake.notify_one();
    }

    fn give_up(&self, number: u64) {
        let mut state = self.state.lock();
        let first = state.courier.next() - state.courier.len() as u64;
        let Some(at) = number.checked_sub(first).and_then(|at| usize::try_from(at).ok()) else {
            return;
        };
        if let Some(item) = state.courier.waiting_mut().nth(at) {
            item.answer = None;
            if !item.lasting {
                item.command = Bytes::new();
            }
        }
    }

    /// Somebody leads, or nobody is known to.
    pub(crate) fn led_by(&self, term: u64, leader: Option<NodeId>) {
        let mut state = self.state.lock();
        let leader = leader.map(|leader| (term, leader));
        if state.leader != leader {
            state.leader = leader;
            state.courier.rewind();
        }
        state.judge(self.me.node);
        drop(state);
        self.wake.notify_one();
    }

    /// Who leads the group, as far as this node knows.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        self.state.lock().leader.map(|(_, leader)| leader)
    }

    /// Waits until changes can be made; `false`: nothing says that this will be soon.
    pub(crate) async fn ready(&self) -> bool {
        loop {
            {
                let state = self.state.lock();
                if state.can_decide() {
                    return true;
                }
                if state.is_hopeless() {
                    return false;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Whether a node is connected.
    pub(crate) fn is_connected(&self, node: NodeId) -> bool {
        self.state.lock().up.contains_key(&node)
    }

    /// Whether somebody who can be reached leads it.
    pub(crate) fn has_leader(&self) -> bool {
        self.state.lock().leaderless_since.is_none()
    }

    /// Whether changes can be made, as far as this node knows.
    pub(crate) fn is_available(&self) -> bool {
        self.state.lock().can_decide()
    }

    /// Who votes, and who follows without a vote.
    pub(crate) fn members(&self) -> (Vec<NodeId>, Vec<NodeId>) {
        let state = self.state.lock();
        (state.voters.clone(), state.learners.clone())
    }

    /// The members of the group are these.
    pub(crate) fn members_changed(&self, voters: Vec<NodeId>, learners: Vec<NodeId>) {
        let mut state = self.state.lock();
        (state.voters, state.learners) = (voters, learners);
        state.judge(self.me.node);
        state.settle();
    }

    /// A node is connected.
    pub(crate) fn on_up(&self, node: NodeId) {
        let mut state = self.state.lock();
        state.up.insert(node, 0);
        state.judge(self.me.node);
        drop(state);
        self.wake.notify_one();
    }

    /// A node is lost.
    pub(crate) fn on_down(&self, node: NodeId) {
        let mut state = self.state.lock();
        state.up.remove(&node);
        state.judge(self.me.node);
        state.settle();
    }

    /// A node has applied the log up to this index.
    pub(crate) fn on_applied(&self, node: NodeId, index: u64) {
        let mut state = self.state.lock();
        if let Some(applied) = state.up.get_mut(&node) {
            *applied = index.max(*applied);
            state.settle();
        }
    }

    /// This node has applied its own command with this number; it stands at `index` of the log.
    pub(crate) fn applied(&self, index: u64, number: u64, outcome: Answer) {
        let mut state = self.state.lock();
        let mut outcome = Some(outcome);
        let until = Instant::now() + SETTLE;
        let answered: Vec<_> = state.courier.answered(number).collect();
        state.sent_at = Instant::now();
        for (answered, item) in answered {
            let Some(answer) = item.answer else { continue };
            let outcome = outcome.take_if(|_| answered == number).unwrap_or_else(|| Err(unknown()));
            state.settling.push_back(Settling { index, until, answer, outcome });
        }
        state.settle();
    }

    /// Commands up to this number are in a checkpoint that this node has got: what they came to is
    /// not in it.
    pub(crate) fn skipped(&self, number: u64) {
        let mut state = self.state.lock();
        for (_, item) in state.courier.answered(number) {
            if let Some(answer) = item.answer {
                drop(answer.send(Err(unknown())));
            }
        }
    }

    /// The log lacks this number of this node.
    pub(crate) fn missing(&self, number: u64) {
        self.state.lock().courier.rewind_to(number);
        self.wake.notify_one();
    }

    /// Sends what waits, for as long as the node lives.
    pub(crate) async fn pump(self: Arc<Self>, road: Arc<impl Road>) {
        loop {
            // The timeout is for what has waited long enough for the other nodes.
            drop(tokio::time::timeout(SETTLE, self.wake.notified()).await);
            self.look_around();
            while let Some((leader, first, proposal)) = self.next() {
                let taken = if leader == self.me.node {
                    road.here(proposal)
                } else {
                    road.there(leader, proposal).await
                };
                if !taken {
                    self.state.lock().courier.rewind_to(first);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn look_around(&self) {
        let mut state = self.state.lock();
        state.settle();
        if state.courier.in_flight() > 0 && state.sent_at.elapsed() >= RESEND {
            state.courier.rewind();
        }
    }

    fn next(&self) -> Option<(NodeId, u64, Bytes)> {
        let mut state = self.state.lock();
        let (_, leader) = state.leader?;
        if !state.is_up(self.me.node, leader) {
            return None;
        }
        if state.courier.in_flight() == 0 {
            state.sent_at = Instant::now();
        }
        let (first, items) = state.courier.send(BATCH)?;
        let commands = items.map(|item| item.command.clone()).collect();
        Some((leader, first, Proposal { sender: self.me, first, commands }.encode()))
    }
}

#[cfg(test)]
mod tests;
