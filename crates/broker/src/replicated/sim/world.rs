//! Everything that a run consists of.

use std::collections::BTreeMap;
use std::sync::Arc;

use metadata::boot::{self, DefaultUser};
use metadata::command::{Command as Declared, DeclareQueue};
use metadata::state::State;
use model::id::{NodeId, QueueId};
use parking_lot::Mutex;
use quorum::sim::watch;
use tokio::time::Instant;

use super::book::Book;
use super::disk::Platter;
use super::net::Net;
use super::node::Node;
use super::plan::Plan;
use super::rng::{Rng, mix};
use crate::replicated::numbered::Sender;
use crate::shard::command::Command;

/// The first queue.
const FIRST: u64 = State::FIRST_QUEUE.0;

/// See the module head.
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) start: Instant,
    pub(super) rng: Mutex<Rng>,
    pub(super) net: Mutex<Net>,
    pub(super) book: Mutex<Book>,
    /// By which nodes route dead letters.
    pub(super) topology: State,
    nodes: Mutex<BTreeMap<NodeId, Arc<Node>>>,
    /// Disks of nodes that are down, with the number of their next start.
    graves: Mutex<BTreeMap<NodeId, (u64, Platter)>>,
    /// Raised when something between nodes changes.
    pub(super) changed: watch::Sender<u64>,
    trace: Mutex<u64>,
    verbose: bool,
    failure: Mutex<Option<String>>,
    pub(super) failed: watch::Sender<bool>,
}

/// A virtual host with all queues.
fn topology(queues: u64) -> State {
    let mut state = State::new();
    let user = DefaultUser { name: "guest".into(), password_hash: String::new(), tags: Vec::new() };
    let declare = |queue| {
        Declared::DeclareQueue(DeclareQueue {
            vhost: "/".into(),
            name: World::name(QueueId(FIRST + queue)).into(),
            generated: false,
            durable: true,
            auto_delete: false,
            exclusive_owner: None,
            arguments: amq_protocol_types::FieldTable::default(),
            user: "guest".into(),
            home: NodeId(0),
            members: Vec::new(),
            away: Vec::new(),
        })
    };
    for command in boot::commands("/", user).into_iter().chain((0..queues).map(declare)) {
        state.apply(command).expect("it can be declared");
    }
    state
}

impl World {
    pub(super) fn new(plan: Plan) -> Arc<Self> {
        let mut rng = Rng::new(plan.seed ^ 0x51);
        let net = Net::new(rng.fork(), plan.pace);
        let graves = (1..=plan.nodes).map(|node| (NodeId(node), (1, Platter::default())));
        Arc::new(Self {
            start: Instant::now(),
            net: Mutex::new(net),
            book: Mutex::new(Book::new(&plan)),
            topology: topology(plan.queues),
            nodes: Mutex::default(),
            graves: Mutex::new(graves.collect()),
            changed: watch::Sender::new(0),
            trace: Mutex::new(plan.seed),
            verbose: std::env::var_os("SIM_TRACE").is_some(),
            failure: Mutex::default(),
            failed: watch::Sender::new(false),
            rng: Mutex::new(rng),
            plan,
        })
    }

    /// Notes that something happened; the order and time of all of it are the run's trace.
    pub(super) fn trace(&self, kind: u64, facts: &[u64]) {
        let at = self.elapsed();
        let mut trace = self.trace.lock();
        for fact in [at, kind].iter().chain(facts) {
            *trace = mix(trace.wrapping_mul(31).wrapping_add(*fact));
        }
        if self.verbose {
            println!("{at:>7} {kind} {facts:?}");
        }
    }

    /// Says something to who follows a run.
    pub(super) fn say(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>7} -- {}", self.elapsed(), what());
        }
    }

    pub(super) fn digest(&self) -> u64 {
        *self.trace.lock()
    }

    /// Milliseconds since the start.
    pub(super) fn elapsed(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Something is wrong. The first such thing ends the run.
    pub(super) fn fail(&self, what: String) {
        self.say(|| format!("FAILED: {what}"));
        let mut failure = self.failure.lock();
        if failure.is_none() {
            *failure = Some(format!("at {} ms: {what}", self.elapsed()));
        }
        drop(failure);
        self.failed.send_replace(true);
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    pub(super) fn queues(&self) -> Vec<QueueId> {
        (0..self.plan.queues).map(|queue| QueueId(FIRST + queue)).collect()
    }

    /// Its name.
    pub(super) fn name(queue: QueueId) -> String {
        format!("q{}", queue.0 - FIRST)
    }

    /// Where a queue's dead messages go, if they are kept until they are there.
    pub(super) fn heir(&self, queue: QueueId) -> Option<QueueId> {
        let next = QueueId(queue.0 + 1);
        (self.plan.keeps && next.0 < FIRST + self.plan.queues).then_some(next)
    }

    /// The members of a queue, the founder first.
    pub(super) fn members(&self, queue: QueueId) -> Vec<NodeId> {
        let nodes = self.plan.nodes;
        (0..self.plan.members).map(|at| NodeId((queue.0 + at) % nodes + 1)).collect()
    }

    pub(super) fn all(&self) -> Vec<NodeId> {
        (1..=self.plan.nodes).map(NodeId).collect()
    }

    /// Nodes that are there, in order.
    pub(super) fn alive(&self) -> Vec<Arc<Node>> {
        self.nodes.lock().values().cloned().collect()
    }

    pub(super) fn node(&self, id: NodeId) -> Option<Arc<Node>> {
        self.nodes.lock().get(&id).cloned()
    }

    pub(super) fn is_alive(&self, me: Sender) -> bool {
        self.nodes.lock().get(&me.node).is_some_and(|node| node.me == me)
    }

    /// Starts a node that is down.
    pub(super) fn boot(self: &Arc<Self>, id: NodeId) {
        let Some((boot, platter)) = self.graves.lock().remove(&id) else { return };
        self.trace(1, &[id.0, boot]);
        self.book.lock().started(id);
        let me = Sender { node: id, boot };
        let node = Node::start(self, me, platter);
        self.nodes.lock().insert(id, Arc::clone(&node));
        for queue in self.queues() {
            let profile = Node::profile(queue, self);
            node.post(if boot == 1 { Command::Create(profile) } else { Command::Open(profile) });
        }
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// The power of a node fails.
    pub(super) fn crash(&self, id: NodeId) {
        let Some(node) = self.nodes.lock().remove(&id) else { return };
        self.trace(2, &[id.0]);
        let platter = node.die();
        self.graves.lock().insert(id, (node.me.boot + 1, platter));
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Lets go of everything, so that nothing refers to itself.
    pub(super) fn end(&self) {
        let nodes = std::mem::take(&mut *self.nodes.lock());
        for node in nodes.into_values() {
            drop(node.die());
        }
    }
}
