//! Keeps the groups of the quorum queues that this node leads as large as wanted, and of members that
//! are there.
//!
//! ```text
//!  bell ───► events ──► scheduler ──► Examine ──► observer + membership::plan ──► plan
//!  (nodes, leaders,       ▲   │
//!   topology, orders)     │   └─────► Perform ──► Members: add, delete ──► outcome
//!                         └──────────────────────────────────────────────────┘
//! ```
//!
//! What to do is decided in crate `membership`; this is the driver. To look at a queue costs no
//! message: everything is known on the node that leads it. Before a step it makes sure that it leads.

mod drive;
pub(crate) mod hearing;
pub(crate) mod observer;
pub(crate) mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use management::inquiry::{self, Inquiry};
use management::members::MemberError;
use membership::observed::Observed;
use membership::plan::{Plan, plan};
use membership::refusal::Refusal;
use membership::scheduler::tally::Counts;
use membership::scheduler::{Event, Order, Outcome, Scheduler};
use membership::step::{Action, Step};
use metadata::objects::node::Node;
use metadata::objects::policy::Policy;
use metadata::state::State;
use model::id::{NodeId, QueueId};
use model::time::Timestamp;
use parking_lot::Mutex;
use quorum::group::GroupId;
use quorum::member::Role;
use rand::Rng as _;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cluster::members::Members;
use crate::cluster::reconciler::drive::{Wheel, drive};
use crate::cluster::reconciler::hearing::Hearing;
use crate::cluster::reconciler::observer::Observer;
use crate::cluster::{Cluster, channel};
use crate::config::reconciliation::Reconciliation;
use crate::shard;
use crate::topology::Topology;

/// How long a majority may take to confirm that this node leads.
const CONFIRM: Duration = Duration::from_millis(500);
/// How long another node may take to say which members it has lost.
const QUICK: Duration = Duration::from_secs(3);
/// Queues that are looked at before others of the runtime have their turn.
const STRETCH: u32 = 32;

/// See the module head.
#[derive(Debug)]
pub(crate) struct Reconciler {
    cluster: Arc<Cluster>,
    topology: Arc<Topology>,
    members: Arc<Members>,
    settings: Mutex<Reconciliation>,
    scheduler: Mutex<Scheduler>,
    observer: Mutex<Observer>,
    /// Why the last step for a queue failed.
    failures: Mutex<BTreeMap<QueueId, String>>,
    hearing: Mutex<Hearing>,
    /// Somebody else may have to be asked.
    ask: Notify,
    /// What policies and nodes were when they were last looked at.
    seen: Mutex<Seen>,
}

/// What policies and nodes were when they were last looked at.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    nodes: Vec<Arc<Node>>,
    policies: Vec<Policy>,
    /// Starts of nodes that were connected.
    up: BTreeSet<(NodeId, u64)>,
}

/// A step that has ended; whether it changed anything.
type Ended = (QueueId, Step, Result<bool, Failure>);

/// Why a step was not done.
#[derive(Debug)]
enum Failure {
    /// It was not begun, and that is nobody's fault.
    NotBegun(String),
    /// It failed, or nobody knows.
    Failed(String),
}

impl Reconciler {
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        topology: Arc<Topology>,
        members: Arc<Members>,
        settings: Reconciliation,
    ) -> Self {
        let scheduler = Scheduler::new(shard::now(), settings.timing(), jitter());
        Self {
            cluster,
            topology,
            members,
            settings: Mutex::new(settings),
            scheduler: Mutex::new(scheduler),
            observer: Mutex::default(),
            failures: Mutex::default(),
            hearing: Mutex::default(),
            ask: Notify::new(),
            seen: Mutex::default(),
        }
    }

    /// Goes on with other settings.
    pub(crate) fn reload(&self, settings: Reconciliation) {
        let before = std::mem::replace(&mut *self.settings.lock(), settings);
        if before != settings {
            tracing::info!(
                ?settings,
                "the members of quorum queues are looked after in another way"
            );
            self.on(Event::Reloaded(settings.timing()));
            self.cluster.bell.topology();
        }
    }

    /// The settings in force.
    pub(crate) fn settings(&self) -> Reconciliation {
        *self.settings.lock()
    }

    /// What there is to count.
    pub(crate) fn counts(&self) -> Counts {
        self.scheduler.lock().counts()
    }

    /// Runs for as long as the node lives.
    pub(crate) async fn run(self: Arc<Self>) {
        if self.cluster.group.is_none() {
            return;
        }
        let wheel = Turning(self);
        tokio::join!(drive(&wheel), wheel.0.ask_for_lost());
    }

    /// Turns what has happened into events.
    fn listen(&self) {
        let heard = self.cluster.bell.take();
        for (queue, leads) in heard.leads {
            if leads {
                self.on(Event::Led(queue));
            } else {
                self.not_led(queue);
            }
        }
        let mut seen = self.seen.lock();
        if heard.topology {
            let now = Seen { up: std::mem::take(&mut seen.up), ..Seen::of(&self.topology.state()) };
            if !now.is_as(&seen) {
                self.on(Event::Trigger);
            }
            *seen = now;
        }
        if heard.nodes {
            self.on(Event::Trigger);
            let up: Vec<(NodeId, u64)> =
                self.cluster.connected().iter().map(|peer| (peer.id, peer.boot)).collect();
            for start in up.iter().filter(|start| !seen.up.contains(start)) {
                self.on(Event::Up(start.0));
            }
            self.hearing.lock().connected(shard::now(), &up);
            self.ask.notify_one();
            seen.up = up.into_iter().collect();
        }
        if heard.now {
            self.on(Event::Now);
            self.hearing.lock().all(shard::now());
            self.ask.notify_one();
        }
    }

    fn not_led(&self, queue: QueueId) {
        self.failures.lock().remove(&queue);
        self.on(Event::NotLed(queue));
    }

    fn on(&self, event: Event) {
        self.scheduler.lock().on(shard::now(), event, jitter());
    }

    /// Does what the scheduler wants, until it wants nothing now.
    async fn follow_orders(self: &Arc<Self>, steps: &mut JoinSet<Ended>) {
        for turn in 1_u32.. {
            let order = self.scheduler.lock().order(shard::now());
            match order {
                None => return,
                Some(Order::Examine(queue)) => match self.examine(queue) {
                    Some(plan) => self.on(Event::Examined(queue, Box::new(plan))),
                    None => self.not_led(queue),
                },
                Some(Order::Perform(queue, step)) => {
                    if let Some(node) = step.action.relies_on() {
                        self.observer.lock().expects(node);
                    }
                    let this = Arc::clone(self);
                    steps.spawn(async move {
                        let wanted = step.clone();
                        let work = async move { this.perform(queue, &wanted).await };
                        // A defect there must not keep the place of this queue for ever.
                        let ended = tokio::spawn(work).await;
                        let cut_off =
                            |error: tokio::task::JoinError| Err(Failure::Failed(error.to_string()));
                        (queue, step, ended.unwrap_or_else(cut_off))
                    });
                }
            }
            if turn.is_multiple_of(STRETCH) {
                tokio::task::yield_now().await;
            }
        }
    }

    /// The plan for a queue; `None` if it is not led here, or is gone.
    fn examine(&self, queue: QueueId) -> Option<Plan> {
        match self.cluster.host.role(GroupId::from(queue))? {
            Role::Leader { .. } => {}
            Role::Follower { .. } => return None,
        }
        let (desired, observed) = self.observe(queue)?;
        let plan = plan(&desired, &observed);
        self.log(&observed, &plan);
        Some(plan)
    }

    fn log(&self, observed: &Observed, plan: &Plan) {
        // What dangles does not go away by itself, and nobody else tells.
        for refusal in &plan.refusals {
            let name =
                self.topology.state().queue_by_id(observed.queue).map(|one| one.name.clone());
            let name = name.as_deref().unwrap_or_default();
            if matches!(refusal, Refusal::Dangling { .. } | Refusal::NoMajority { .. }) {
                tracing::warn!(queue = name, reason = %refusal, "members stay as they are");
            } else {
                tracing::debug!(queue = name, reason = %refusal, "members stay as they are");
            }
        }
    }

    /// Carries out a step; whether it changed anything.
    async fn perform(&self, queue: QueueId, step: &Step) -> Result<bool, Failure> {
        let leads = self.cluster.host.read_index(GroupId::from(queue));
        match tokio::time::timeout(CONFIRM, leads).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(Failure::NotBegun(error.to_string())),
            Err(_) => return Err(Failure::NotBegun(Refusal::Unconfirmed.to_string())),
        }
        let changed = match &step.action {
            Action::Add { node } | Action::Promote { node } => {
                self.members.add_here(queue, node.id).await
            }
            // What the node was before goes first, and is known from the record.
            Action::Replace { with, .. } => self.members.add_here(queue, with.id).await,
            Action::Remove { node } => self.members.delete_here(queue, node.id, false).await,
        };
        changed.map(|changed| changed.changed).map_err(Failure::from)
    }

    fn ended(&self, (queue, step, ended): Ended) {
        let state = self.topology.state();
        let name = state.queue_by_id(queue).map(|queue| queue.name.clone());
        let name = name.as_deref().unwrap_or_default();
        let outcome = match ended {
            Ok(changed) => {
                self.failures.lock().remove(&queue);
                if let Some(node) = step.action.relies_on() {
                    // If it had lost its part, it has got it again.
                    self.observer.lock().has_found(node, queue);
                }
                if changed {
                    tracing::info!(queue = name, step = %step.action, reason = %step.reason, "done");
                }
                Outcome::Done
            }
            Err(Failure::NotBegun(why)) => {
                tracing::info!(queue = name, step = %step.action, reason = %step.reason, why, "not begun");
                Outcome::NotBegun
            }
            Err(Failure::Failed(error)) => {
                tracing::warn!(queue = name, step = %step.action, reason = %step.reason, error, "failed");
                // Of one that is led elsewhere by now others have to know.
                if self.scheduler.lock().leads(queue) {
                    self.failures.lock().insert(queue, format!("{}: {error}", step.action));
                }
                Outcome::Failed
            }
        };
        self.on(Event::Finished { queue, step, outcome });
    }

    /// Asks the connected nodes which members they have lost although they are what they were.
    async fn ask_for_lost(self: &Arc<Self>) {
        let question = Bytes::from(Inquiry::LostMembers.encode());
        let mut asked = JoinSet::new();
        loop {
            let (due, deadline) = {
                let mut hearing = self.hearing.lock();
                (hearing.due(shard::now()), hearing.deadline())
            };
            for start in due {
                let (road, question) = (self.cluster.road.clone(), question.clone());
                asked.spawn(async move {
                    let answer = road.request(start.0, channel::INQUIRIES, question, QUICK).await;
                    (start, answer)
                });
            }
            tokio::select! {
                () = self.ask.notified() => {}
                () = until(deadline) => {}
                Some(answer) = asked.join_next(), if !asked.is_empty() => match answer {
                    Ok((start, answer)) => self.has_answered(start, answer.as_deref()),
                    Err(error) => tracing::error!(%error, "a question was cut off"),
                },
            }
        }
    }

    fn has_answered(&self, start: (NodeId, u64), answer: Option<&[u8]>) {
        let node = start.0;
        let lost = answer.map(inquiry::decode::<Vec<u64>>);
        self.hearing.lock().answered(shard::now(), start, matches!(lost, Some(Ok(_))));
        match lost {
            Some(Ok(lost)) => self.has_lost(node, lost.into_iter().map(QueueId).collect()),
            Some(Err(error)) => tracing::warn!(%node, %error, "an answer about lost members"),
            None => {}
        }
    }

    fn has_lost(&self, node: NodeId, lost: BTreeSet<QueueId>) {
        let new = self.observer.lock().has_lost(node, lost);
        for queue in &new {
            self.on(Event::Touched(*queue));
        }
        if !new.is_empty() {
            // There is an earlier time to wait for.
            self.cluster.bell.topology();
        }
    }
}

/// The reconciler, as it is turned.
struct Turning(Arc<Reconciler>);

impl Wheel for Turning {
    type Ended = Ended;

    async fn rung(&self) {
        self.0.cluster.bell.rung().await;
    }

    fn listen(&self) {
        self.0.listen();
    }

    async fn work(&self, steps: &mut JoinSet<Ended>) {
        self.0.follow_orders(steps).await;
    }

    fn deadline(&self) -> Option<Instant> {
        self.0.scheduler.lock().deadline().map(from_now)
    }

    fn ended(&self, step: Ended) {
        self.0.ended(step);
    }
}

impl From<MemberError> for Failure {
    fn from(error: MemberError) -> Self {
        match error {
            MemberError::ChangeUnderWay
            | MemberError::NotLeader
            | MemberError::NoLeader
            | MemberError::Unavailable(_) => Self::NotBegun(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl Seen {
    pub(crate) fn of(state: &State) -> Self {
        let policies = state.vhosts().flat_map(|vhost| {
            state.policies(&vhost.name).chain(state.operator_policies(&vhost.name)).cloned()
        });
        let up = BTreeSet::new();
        Self { nodes: state.nodes().cloned().collect(), policies: policies.collect(), up }
    }

    pub(crate) fn is_as(&self, other: &Self) -> bool {
        self.nodes == other.nodes && self.policies == other.policies
    }
}

/// Thousandths of the interval, a tenth at most.
fn jitter() -> i16 {
    rand::rng().random_range(-100..=100)
}

async fn until(deadline: Option<Timestamp>) {
    match deadline {
        None => std::future::pending().await,
        Some(deadline) => tokio::time::sleep_until(from_now(deadline)).await,
    }
}

fn from_now(at: Timestamp) -> Instant {
    Instant::now() + Duration::from_millis(at.0.saturating_sub(shard::now().0))
}
