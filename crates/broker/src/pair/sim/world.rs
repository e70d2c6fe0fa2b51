//! Everything that a run consists of.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use journal::journal::Journal;
use journal::listener::Deaf;
use journal::options::Options;
use journal::sim::SimDisk;
use metadata::boot::{self, DefaultUser};
use metadata::command::{Command, DeclareQueue, JournalChange, PutNode};
use metadata::objects::node::NodeRole;
use model::id::{NodeId, QueueId};
use parking_lot::Mutex;
use quorum::sim::watch;
use tokio::time::Instant;

use super::book::Book;
use super::disk::Drive;
use super::group::Group;
use super::net::Net;
use super::node::{self, Node};
use super::plan::Plan;
use super::trap::{Point, Trap};
use crate::cluster::proposal::Proposal;
use crate::cluster::proposer::Proposer;
use crate::pair::registry::Pairs;
use crate::replicated::numbered::Sender;
use crate::replicated::sim::rng::{Rng, mix};
use crate::shards::Shards;

/// The journal.
pub(super) const UID: &str = "0123456789abcdef0123456789abcdef";
/// Its name.
pub(super) const NAME: &str = "orders";

/// The two nodes of the pair, as long as none was wiped: then it is another one, of another number.
pub(super) const PAIR: [NodeId; 2] = [NodeId(1), NodeId(2)];

/// A node that was wiped has a number that is higher by so much.
const WIPED: u64 = 100;

/// How a node ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Death {
    /// Its process is killed; what it has written stays.
    Kill,
    /// Its power fails.
    Power,
}

/// A node that is down.
#[derive(Debug, Clone, Copy)]
struct Grave {
    boot: u64,
    applied: u64,
}

/// See the module head.
pub(super) struct World {
    pub(super) this: Weak<World>,
    pub(super) plan: Plan,
    pub(super) start: Instant,
    pub(super) rng: Mutex<Rng>,
    pub(super) net: Mutex<Net>,
    pub(super) book: Mutex<Book>,
    pub(super) group: Mutex<Group>,
    /// A journal for those who need one and write nothing.
    pub(super) idle: Arc<Journal>,
    drives: Mutex<BTreeMap<NodeId, Arc<Drive>>>,
    /// The pair as it is now: the node that the journal was made on, or what has become of it, first.
    pair: Mutex<[NodeId; 2]>,
    nodes: Mutex<BTreeMap<NodeId, Arc<Node>>>,
    graves: Mutex<BTreeMap<NodeId, Grave>>,
    pub(super) traps: Mutex<Vec<Trap>>,
    /// There the disk of that node begins to hang.
    pub(super) hangs_at: Mutex<Option<(NodeId, Point)>>,
    /// Nothing more goes wrong.
    pub(super) calm: AtomicBool,
    /// A node that nobody starts.
    pub(super) away: Mutex<Option<NodeId>>,
    /// Raised when something changes that others wait for.
    pub(super) changed: watch::Sender<u64>,
    trace: Mutex<u64>,
    verbose: bool,
    failure: Mutex<Option<String>>,
    pub(super) failed: watch::Sender<bool>,
}

impl World {
    pub(super) fn new(plan: Plan) -> Arc<Self> {
        let mut rng = Rng::new(plan.seed ^ 0x51);
        let net = Net::new(rng.fork(), plan.pace);
        let count = if plan.apart { 5 } else { 3 };
        let all: Vec<NodeId> = (1..=count).map(NodeId).collect();
        let idle = Journal::open(Options::new("/idle"), Arc::new(SimDisk::new(0)), Arc::new(Deaf));
        let (idle, recovery) = idle.expect("an empty disk has no faults");
        drop(recovery);
        let drives =
            all.iter().map(|node| (*node, Drive::new(*node, rng.fork(), plan.disk))).collect();
        let graves = all.iter().map(|node| (*node, Grave { boot: 1, applied: 1 })).collect();
        let nobody = Sender { node: NodeId(0), boot: 0 };
        let (shards, pairs) = (Arc::new(Shards::new(1)), Arc::<Pairs>::default());
        let proposer = Arc::new(Proposer::new(nobody));
        let idle = Arc::new(idle);
        let truth = node::topology(&idle, nobody, &shards, &pairs, &proposer).0;
        let group = Group::new(rng.fork(), truth);
        let world = Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            start: Instant::now(),
            net: Mutex::new(net),
            book: Mutex::new(Book::default()),
            group: Mutex::new(group),
            idle,
            drives: Mutex::new(drives),
            pair: Mutex::new(PAIR),
            nodes: Mutex::default(),
            graves: Mutex::new(graves),
            traps: Mutex::default(),
            hangs_at: Mutex::default(),
            calm: AtomicBool::new(false),
            away: Mutex::default(),
            changed: watch::Sender::new(0),
            trace: Mutex::new(plan.seed),
            verbose: std::env::var_os("SIM_TRACE").is_some(),
            failure: Mutex::default(),
            failed: watch::Sender::new(false),
            rng: Mutex::new(rng),
            plan,
        });
        let first = Proposal { sender: nobody, first: 1, commands: world.first_commands() };
        world.found(first.encode());
        world
    }

    /// What is so from the beginning: nodes, the journal, its queues.
    fn first_commands(&self) -> Vec<bytes::Bytes> {
        let user =
            DefaultUser { name: "guest".into(), password_hash: String::new(), tags: Vec::new() };
        let node = |node: NodeId| {
            Command::PutNode(PutNode {
                id: node.0,
                name: Self::node_name(node).into(),
                address: String::new(),
                role: NodeRole::Full,
                boot: 0,
                starts: Vec::new(),
                zone: None,
            })
        };
        let backup = if self.plan.later { 0 } else { PAIR[1].0 };
        let create = Command::ChangeJournal(JournalChange::Create {
            name: NAME.into(),
            uid: UID.into(),
            node: PAIR[0].0,
            backup,
            incarnation: 77,
        });
        let declare = |queue: u64| {
            let mut arguments = amq_protocol_types::FieldTable::default();
            let journal = amq_protocol_types::AMQPValue::LongString(NAME.into());
            arguments.insert("x-journal".into(), journal);
            Command::DeclareQueue(DeclareQueue {
                vhost: "/".into(),
                name: format!("q{queue}").into(),
                generated: false,
                durable: true,
                auto_delete: false,
                exclusive_owner: None,
                arguments,
                user: "guest".into(),
                home: PAIR[0],
                members: Vec::new(),
                away: Vec::new(),
            })
        };
        let commands = boot::commands("/", user)
            .into_iter()
            .chain(self.all().into_iter().map(node))
            .chain([create])
            .chain((0..self.plan.queues).map(declare));
        commands.map(|command| command.encode()).collect()
    }

    /// One that was wiped keeps its name.
    pub(super) fn node_name(node: NodeId) -> String {
        format!("node-{}", node.0 % WIPED)
    }

    /// The pair, as it is now.
    pub(super) fn pair(&self) -> [NodeId; 2] {
        *self.pair.lock()
    }

    /// The drive of a node.
    pub(super) fn drive(&self, node: NodeId) -> Arc<Drive> {
        Arc::clone(&self.drives.lock()[&node])
    }

    /// All of them.
    pub(super) fn drives(&self) -> Vec<Arc<Drive>> {
        self.drives.lock().values().map(Arc::clone).collect()
    }

    /// Notes that something happened; the order and time of all of it are the run's trace.
    pub(super) fn trace(&self, kind: u64, facts: &[u64]) {
        let at = self.elapsed();
        let mut trace = self.trace.lock();
        for fact in [at, kind].iter().chain(facts) {
            *trace = mix(*trace ^ fact).wrapping_add(*fact);
        }
        drop(trace);
        if self.verbose {
            println!("{at:>6} {kind} {facts:?}");
        }
    }

    pub(super) fn say(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>6} {}", self.elapsed(), what());
        }
    }

    pub(super) fn digest(&self) -> u64 {
        *self.trace.lock()
    }

    /// Milliseconds since the beginning.
    pub(super) fn elapsed(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn touch(&self) {
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Something is broken that must not be.
    pub(super) fn fail(&self, how: String) {
        self.say(|| how.clone());
        let at = self.elapsed();
        self.failure.lock().get_or_insert_with(|| format!("at {at} ms: {how}"));
        self.failed.send_replace(true);
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// The queues of the journal.
    pub(super) fn queues(&self) -> Vec<QueueId> {
        let state = self.group.lock().truth.state();
        state.queues_of_journal(NAME).map(|queue| queue.id).collect()
    }

    pub(super) fn all(&self) -> Vec<NodeId> {
        self.drives.lock().keys().copied().collect()
    }

    /// Who votes in the metadata group, and who only follows.
    pub(super) fn voters_and_others(&self) -> (Vec<NodeId>, Vec<NodeId>) {
        let pair = self.pair();
        self.all().into_iter().partition(|node| !self.plan.apart || !pair.contains(node))
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
        if *self.away.lock() == Some(id) {
            return;
        }
        let Some(Grave { boot, applied }) = self.graves.lock().remove(&id) else { return };
        self.trace(1, &[id.0, boot]);
        self.say(|| format!("node {id} starts"));
        let drive = self.drive(id);
        drive.disk.heal();
        let node = Node::start(self, Sender { node: id, boot }, drive, applied);
        self.nodes.lock().insert(id, node);
        self.touch();
    }

    /// A node ends.
    pub(super) fn end_node(&self, id: NodeId, how: Death) {
        let Some(node) = self.nodes.lock().remove(&id) else { return };
        self.trace(2, &[id.0, u64::from(how == Death::Power)]);
        self.say(|| format!("node {id} is over: {how:?}"));
        node.owner.kill();
        node.dead.send_replace(true);
        self.on_death(node.me);
        let drive = self.drive(id);
        let disk = &drive.disk;
        match how {
            Death::Kill => disk.kill(),
            Death::Power => disk.crash(),
        }
        disk.heal();
        // It may have known that more was committed than it remembers.
        let lag = self.rng.lock().below(4);
        let grave =
            Grave { boot: node.me.boot + 1, applied: node.applied().saturating_sub(lag).max(1) };
        self.graves.lock().insert(id, grave);
        self.touch();
    }

    /// A node of the pair that is down gets an empty disk, and is another node of the same name from
    /// then on. Not if nobody else has what was confirmed: then no rule helps.
    pub(super) fn wipe(self: &Arc<Self>, id: NodeId) {
        let mut graves = self.graves.lock();
        let Some(slot) = self.pair().iter().position(|node| *node == id) else { return };
        if !graves.contains_key(&id)
            || self.calm.load(Ordering::Relaxed)
            || *self.away.lock() == Some(id)
            || !self.is_spare(id)
        {
            return;
        }
        let new = NodeId(id.0 + WIPED);
        self.say(|| format!("node {id} was wiped, and is {new} now"));
        self.trace(4, &[id.0, new.0]);
        graves.remove(&id);
        graves.insert(new, Grave { boot: 1, applied: 1 });
        drop(graves);
        let (drive, mut links) = {
            let mut rng = self.rng.lock();
            (Drive::new(new, rng.fork(), self.plan.disk), rng.fork())
        };
        {
            let mut drives = self.drives.lock();
            drives.remove(&id);
            drives.insert(new, drive);
        }
        self.pair.lock()[slot] = new;
        self.book.lock().wiped(id);
        let (voters, others) = self.voters_and_others();
        for node in self.alive() {
            node.members_changed(voters.clone(), others.clone());
        }
        for other in self.all().into_iter().filter(|other| *other != new) {
            let (one, other) = (new.min(other), new.max(other));
            tokio::spawn(Arc::clone(self).keep(one, other, links.fork()));
        }
        self.boot(new);
    }

    /// Whether everything goes on without what a node has on its disk.
    fn is_spare(&self, id: NodeId) -> bool {
        let group = self.group.lock();
        // What it has asked for is done or will never be.
        let is_quiet = !group.has_pending();
        let state = group.truth.state();
        drop(group);
        let Some(journal) = state.journal(NAME) else { return false };
        let nothing_yet = journal.term == 0
            && state.coordinated(UID).register.is_some_and(|register| register.value <= 0);
        let had_nothing = !journal.paired && journal.node != id;
        is_quiet && (nothing_yet || had_nothing || self.book.lock().can_spare(id))
    }

    /// Restarts a node whose disk has failed, as its operator would.
    pub(super) async fn mind(self: Arc<Self>, node: Arc<Node>) {
        let mut failed = node.failed.subscribe();
        let mut dead = node.dead.subscribe();
        let reason = tokio::select! {
            biased;
            _ = dead.wait_for(|dead| *dead) => return,
            failed = failed.wait_for(Option::is_some) => {
                failed.ok().and_then(|failed| failed.clone()).unwrap_or_default()
            }
        };
        if reason.contains("panicked") {
            return self.fail(format!("on node {}: {reason}", node.me.node));
        }
        if !self.is_alive(node.me) {
            return;
        }
        self.say(|| format!("node {} fails: {reason}", node.me.node));
        self.end_node(node.me.node, Death::Kill);
        let time = self.rng.lock().millis(100, 2_000);
        tokio::time::sleep(time).await;
        self.boot(node.me.node);
    }

    /// Lets go of everything, so that nothing refers to itself.
    pub(super) fn end(&self) {
        let nodes = std::mem::take(&mut *self.nodes.lock());
        for node in nodes.into_values() {
            node.owner.kill();
            node.dead.send_replace(true);
        }
    }
}
