//! One start of one node: its part of the metadata group, a shard that reaches queues of journals,
//! and the drivers of its journals, all of them the real ones.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use journal::error::ReadError;
use journal::journal::Journal;
use journal::listener::Deaf;
use journal::op::{Lsn, Op};
use journal::options::Options;
use journal::sim::SimDisk;
use metadata::command::{Command as Change, PutNode};
use metadata::objects::node::NodeRole;
use metadata::state::State;
use metadata::store::Memory;
use model::id::{ConsumerId, NodeId, QueueId, Seq, StreamId};
use model::time::Millis;
use parking_lot::Mutex;
use quorum::group::GroupId;
use quorum::log::Log;
use quorum::member::Member;
use quorum::sim::watch as dead;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::disk::{Bay, Drive};
use super::net::Parcel;
use super::owner::Owner;
use super::world::World;
use crate::cluster::proposer::{Proposer, Road};
use crate::pair::keeper;
use crate::pair::line::Line;
use crate::pair::registry::Pairs;
use crate::pair::stage::Yard;
use crate::pair::works::Works;
use crate::pressure::Pressure;
use crate::replicated::client::Leader;
use crate::replicated::fabric::{Berth, Fabric};
use crate::replicated::notice::Notice;
use crate::replicated::numbered::Sender;
use crate::router::Router;
use crate::shard::Shard;
use crate::shard::bodies::Weight;
use crate::shard::command::{Batch, Command};
use crate::shard::desk::Desk;
use crate::shard::ground::Ground;
use crate::shard::outboxes::Outboxes;
use crate::shards::Shards;
use crate::topology::{Fate, Parts, Place, Topology};
use crate::totals::{Counters, Totals};

/// How long a silent node's consumers keep what they hold.
const PATIENCE: Duration = Duration::from_secs(6);
/// How often leases are counted.
const LEASES: Duration = Duration::from_millis(50);
/// How long a publish may wait for whoever serves the journal.
const PUBLISH_TIMEOUT: Millis = Millis(10_000);

/// See the module head.
pub(super) struct Node {
    pub(super) me: Sender,
    pub(super) owner: Arc<Owner>,
    pub(super) shards: Arc<Shards>,
    pub(super) pairs: Arc<Pairs>,
    pub(super) topology: Arc<Topology>,
    /// Whether it has died.
    pub(super) dead: dead::Sender<bool>,
    pub(super) failed: watch::Sender<Option<String>>,
    pub(super) pressure: Arc<Pressure>,
    proposer: Arc<Proposer>,
    world: Weak<World>,
    applied: AtomicU64,
    up: Mutex<BTreeMap<NodeId, Sender>>,
    lost: Mutex<BTreeMap<NodeId, Instant>>,
    frozen_since: Mutex<Option<Instant>>,
    stop: Mutex<Option<oneshot::Sender<oneshot::Sender<()>>>>,
    last_name: AtomicU64,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("me", &self.me).finish_non_exhaustive()
    }
}

/// A topology without anybody who listens.
pub(super) fn topology(
    idle: &Arc<Journal>,
    me: Sender,
    shards: &Arc<Shards>,
    pairs: &Arc<Pairs>,
    proposer: &Arc<Proposer>,
) -> (Arc<Topology>, Arc<Router>) {
    let router = Arc::new(Router::new(State::new()));
    let (gone, _) = mpsc::unbounded_channel();
    let place = Place { me, group_size: 3, proposer: Some(Arc::clone(proposer)), gone };
    let parts = Parts {
        router: Arc::clone(&router),
        journal: Arc::clone(idle),
        shards: Arc::clone(shards),
        kv: Arc::new(Memory::new()),
        durable: watch::channel(Lsn(0)).1,
        totals: Arc::default(),
        exchange_counts: Arc::default(),
        consumer_timeout: None,
        pairs: Arc::clone(pairs),
        place,
    };
    (Arc::new(Topology::new(parts, State::new(), 0, 0)), router)
}

/// What a driver or a shard of a journal needs of a node that is nothing else: nobody answers it.
pub(crate) fn bare_yard(me: Sender, works: Arc<dyn Works>, line: Arc<dyn Line>) -> Yard {
    let disk = Arc::new(SimDisk::new(0));
    let idle = Journal::open(Options::new("/idle"), disk, Arc::new(Deaf));
    let (idle, recovery) = idle.expect("an empty disk has no faults");
    drop(recovery);
    let (shards, pairs) = (Arc::new(Shards::new(1)), Arc::<Pairs>::default());
    let proposer = Arc::new(Proposer::new(me));
    let (topology, router) = topology(&Arc::new(idle), me, &shards, &pairs, &proposer);
    Yard {
        me,
        line,
        fabric: Arc::new(Seat(Weak::new(), me)),
        works,
        topology,
        router,
        shards,
        pairs,
        totals: Arc::default(),
        consumers: Arc::default(),
        chores: mpsc::unbounded_channel().0,
        failed: watch::channel(None).0,
        pressure: Arc::default(),
        bodies: Weight { cached: 1 << 20, only: 1 << 20 },
        consumer_window: 1 << 20,
        publish_timeout: PUBLISH_TIMEOUT,
        settings: super::plan::Plan::quiet().settings,
    }
}

impl Node {
    /// Starts it on what its drive has, with so much of the group's log.
    pub(super) fn start(
        world: &Arc<World>,
        me: Sender,
        drive: Arc<Drive>,
        applied: u64,
    ) -> Arc<Self> {
        let plan = &world.plan;
        let owner = Owner::new(me, world.rng.lock().fork(), plan.slow);
        let (shards, pairs) = (Arc::new(Shards::new(1)), Arc::<Pairs>::default());
        let proposer = Arc::new(Proposer::new(me));
        let (topology, router) = topology(&world.idle, me, &shards, &pairs, &proposer);
        let (voters, learners) = world.voters_and_others();
        proposer.members_changed(voters, learners);
        let (failed, _) = watch::channel(None);
        let (stop, stopped) = oneshot::channel();
        let node = Arc::new(Self {
            me,
            owner,
            shards,
            pairs,
            topology,
            dead: dead::Sender::new(false),
            failed,
            pressure: Arc::default(),
            proposer,
            world: Arc::downgrade(world),
            applied: AtomicU64::new(0),
            up: Mutex::default(),
            lost: Mutex::default(),
            frozen_since: Mutex::default(),
            stop: Mutex::new(Some(stop)),
            last_name: AtomicU64::new(0),
        });
        node.apply_some(world, applied);
        let state = node.topology.begin();
        for queue in state.all_queues() {
            node.post(Command::Open(Box::new(node.topology.profile(&state, queue))));
        }
        node.topology.order(Change::PutNode(PutNode {
            id: me.node.0,
            name: World::node_name(me.node).into(),
            address: String::new(),
            role: NodeRole::Full,
            boot: me.boot,
            starts: Vec::new(),
            zone: None,
        }));
        node.owner.within(|| node.run(world, router, drive, stopped));
        node
    }

    fn run(
        self: &Arc<Self>,
        world: &Arc<World>,
        router: Arc<Router>,
        drive: Arc<Drive>,
        stopped: oneshot::Receiver<oneshot::Sender<()>>,
    ) {
        let plan = &world.plan;
        let (chores, _) = mpsc::unbounded_channel();
        let seat = Arc::new(Seat(Arc::downgrade(self), self.me));
        let bodies = Weight { cached: plan.cache, only: 1 << 20 };
        let desk = Desk {
            now: crate::shard::now(),
            outboxes: Outboxes::default(),
            ops: Vec::new(),
            effects: Vec::new(),
            counted: Counters::default(),
            weight: Weight::default(),
            budget: bodies,
            attached: VecDeque::new(),
            consumer_window: plan.window,
            journal: Arc::new(Bare),
            inbox: Arc::clone(self.shards.inbox(0)),
            shards: Arc::clone(&self.shards),
            router: Arc::clone(&router),
            fabric: Arc::clone(&seat) as Arc<dyn Fabric>,
            publish_timeout: PUBLISH_TIMEOUT,
            chores: chores.clone(),
            consumers: Arc::default(),
        };
        let yard = Yard {
            me: self.me,
            line: Arc::clone(&seat) as Arc<dyn Line>,
            fabric: seat as Arc<dyn Fabric>,
            works: Arc::new(Bay { drive, world: Weak::clone(&self.world) }),
            topology: Arc::clone(&self.topology),
            router,
            shards: Arc::clone(&self.shards),
            pairs: Arc::clone(&self.pairs),
            totals: Arc::default(),
            consumers: Arc::default(),
            chores,
            failed: self.failed.clone(),
            pressure: Arc::clone(&self.pressure),
            bodies,
            consumer_window: plan.window,
            publish_timeout: PUBLISH_TIMEOUT,
            settings: plan.settings,
        };
        let shard = Shard::new(desk, Arc::new(Totals::default()), Vec::new());
        self.owner.spawn(shard.run());
        let road = Arc::new(ToLeader(Arc::downgrade(self)));
        self.owner.spawn(Arc::clone(&self.proposer).pump(road));
        let topology = Arc::clone(&self.topology);
        self.owner.spawn(async move {
            loop {
                tokio::time::sleep(LEASES).await;
                let _ = topology.end_leases();
            }
        });
        self.owner.spawn(keeper::run(yard, stopped));
        tokio::spawn(Arc::clone(world).follow(Arc::clone(self)));
        tokio::spawn(Arc::clone(world).mind(Arc::clone(self)));
    }

    /// The metadata group has other members.
    pub(super) fn members_changed(&self, voters: Vec<NodeId>, learners: Vec<NodeId>) {
        self.proposer.members_changed(voters, learners);
    }

    /// How far it has applied the group's log.
    pub(super) fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    /// Applies everything that is committed.
    pub(super) fn apply_all(&self, world: &Arc<World>) {
        let length = world.group.lock().log.len() as u64;
        self.apply_some(world, length);
    }

    /// Applies the log up to an index.
    pub(super) fn apply_some(&self, world: &Arc<World>, upto: u64) {
        let from = self.applied();
        if from >= upto {
            return;
        }
        let entries = world.group.lock().log[from as usize..upto as usize].to_vec();
        let fates = self.topology.commit(&entries).expect("they are ours");
        self.applied.store(upto, Ordering::Release);
        let mut others = Vec::new();
        for fate in fates {
            match fate {
                Fate::Done { sender, number, index, answer } => {
                    if sender == self.me {
                        self.proposer.applied(index, number, *answer);
                    } else {
                        others.push(sender);
                    }
                }
                Fate::Missing { sender, number } if sender == self.me => {
                    self.proposer.missing(number);
                }
                Fate::Missing { .. } => {}
            }
        }
        others.dedup();
        for other in others {
            let (world, me) = (Arc::clone(world), self.me.node);
            tokio::spawn(async move {
                tokio::time::sleep(world.delay(me, other.node)).await;
                if let Some(node) = world.node(other.node)
                    && node.me == other
                    && world.is_open(me, other.node)
                {
                    node.proposer.on_applied(me, upto);
                }
            });
        }
    }

    /// It hears who leads the group.
    pub(super) fn led_by(&self, term: u64, leader: Option<NodeId>) {
        self.topology.counts_leases(leader == Some(self.me.node));
        self.proposer.led_by(term, leader);
    }

    pub(super) fn frozen_since(&self) -> Option<Instant> {
        *self.frozen_since.lock()
    }

    /// Stops it for a while.
    pub(super) fn freeze(&self) {
        self.frozen_since.lock().get_or_insert_with(Instant::now);
        self.owner.freeze();
    }

    /// Lets it go on.
    pub(super) fn thaw(&self) {
        *self.frozen_since.lock() = None;
        self.owner.thaw();
    }

    /// Ends it in good order: when that is answered its journals are closed.
    pub(super) fn stop(&self) -> Option<oneshot::Receiver<()>> {
        let (answer, answered) = oneshot::channel();
        self.stop.lock().take()?.send(answer).ok()?;
        Some(answered)
    }

    /// A number that nobody of this start has had, of this node alone.
    pub(super) fn name(&self) -> u64 {
        let number = self.last_name.fetch_add(1, Ordering::Relaxed) + 1;
        (self.me.node.0 << 40) | (self.me.boot << 24) | number
    }

    pub(super) fn consumer(&self) -> ConsumerId {
        ConsumerId(self.name())
    }

    pub(super) fn post(&self, command: Command) {
        self.shards.inbox(0).post(Batch::one(command));
    }

    /// What the cluster tells all shards.
    fn tell(&self, command: impl Fn() -> Command) {
        self.pairs.post_all(&command);
        self.post(command());
    }

    pub(super) fn on_up(&self, peer: Sender) {
        self.up.lock().insert(peer.node, peer);
        self.lost.lock().remove(&peer.node);
        self.tell(|| Command::Up { node: peer });
        self.pairs.node(peer.node, true);
        self.proposer.on_up(peer.node);
    }

    /// `is_over`: that start of it is dead.
    pub(super) fn on_down(self: &Arc<Self>, node: NodeId, is_over: bool) {
        self.up.lock().remove(&node);
        self.tell(|| Command::Lost { node });
        self.pairs.node(node, false);
        self.proposer.on_down(node);
        if is_over {
            return self.tell(|| Command::LostForLong { node });
        }
        let since = Instant::now();
        self.lost.lock().insert(node, since);
        let this = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(PATIENCE).await;
            let Some(this) = this.upgrade().filter(|this| !this.owner.is_dead()) else { return };
            let lost = this.lost.lock().get(&node) == Some(&since);
            if lost {
                this.lost.lock().remove(&node);
                this.tell(|| Command::LostForLong { node });
            }
        });
    }

    pub(super) fn on_orders(&self, queue: QueueId, batch: Bytes) {
        self.post(Command::Orders { queue, batch });
    }

    pub(super) fn on_notice(&self, notice: Notice) {
        self.post(Command::Notice(Box::new(notice)));
    }
}

/// The way to whoever leads the group.
struct ToLeader(Weak<Node>);

impl Road for ToLeader {
    fn here(&self, proposal: Bytes) -> bool {
        let Some(node) = self.0.upgrade() else { return false };
        let Some(world) = node.world.upgrade() else { return false };
        world.take_proposal(node.me.node, proposal)
    }

    async fn there(&self, leader: NodeId, proposal: Bytes) -> bool {
        let Some(node) = self.0.upgrade() else { return false };
        let Some(world) = node.world.upgrade() else { return false };
        world.propose(node.me.node, leader, proposal).await
    }
}

/// The cluster, as shards and drivers see it.
#[derive(Debug)]
struct Seat(Weak<Node>, Sender);

impl Seat {
    fn send(&self, to: NodeId, parcel: Parcel) -> bool {
        let world = self.0.upgrade().and_then(|node| node.world.upgrade());
        world.is_some_and(|world| world.send(self.1, to, parcel))
    }
}

impl Line for Seat {
    fn send(&self, to: NodeId, word: Bytes) -> bool {
        Seat::send(self, to, Parcel::Word(word))
    }

    fn is_up(&self, node: NodeId) -> bool {
        self.0.upgrade().is_some_and(|this| this.up.lock().contains_key(&node))
    }

    fn has_quorum(&self) -> bool {
        self.0.upgrade().is_some_and(|this| this.proposer.is_available())
    }
}

impl Fabric for Seat {
    fn me(&self) -> Sender {
        self.1
    }

    fn start_of(&self, node: NodeId) -> Option<Sender> {
        if node == self.1.node {
            return Some(self.1);
        }
        self.0.upgrade()?.up.lock().get(&node).copied()
    }

    fn knows(&self, _: NodeId) -> Option<u8> {
        None
    }

    /// Nodes hear of each other's alarms at once.
    fn has_no_room(&self, node: NodeId) -> bool {
        let world = self.0.upgrade().and_then(|this| this.world.upgrade());
        let node = world.and_then(|world| world.node(node));
        node.is_some_and(|node| node.pressure.alarms().disk)
    }

    fn patience(&self) -> Millis {
        Millis(PATIENCE.as_millis() as u64)
    }

    fn orders(&self, to: NodeId, queue: QueueId, batch: Bytes) {
        if to == self.1.node {
            if let Some(node) = self.0.upgrade() {
                node.on_orders(queue, batch);
            }
        } else {
            self.send(to, Parcel::Orders { queue, batch });
        }
    }

    fn keep(&self, journal: activation::file::JournalUid, queue: QueueId, batch: Bytes) {
        if let Some(node) = self.0.upgrade() {
            node.pairs.orders(journal, queue, batch);
        }
    }

    fn notice(&self, to: NodeId, notice: &Notice) {
        self.send(to, Parcel::Notice(notice.encode()));
    }

    fn propose(&self, _: QueueId, _: Bytes) -> bool {
        unreachable!("there are no quorum queues")
    }

    fn announce(&self, _: QueueId, _: Leader) {}

    fn start(&self, _: QueueId, _: Arc<dyn Member>, _: Berth) {
        unreachable!("there are no quorum queues")
    }

    fn move_to(&self, _: QueueId, _: GroupId, _: bool) {}

    fn delete(&self, _: QueueId, _: StreamId) {}
}

/// What the shard stands on that has no queues of its own.
#[derive(Debug)]
struct Bare;

impl Log for Bare {
    fn submit(&self, ops: Vec<Op>) -> Lsn {
        assert!(ops.is_empty(), "every queue is of a journal: {ops:?}");
        Lsn(0)
    }

    fn read(&self, _: StreamId, seqs: &[Seq], out: &mut Vec<Result<Bytes, ReadError>>) {
        out.extend(seqs.iter().map(|_| Err(ReadError::Missing)));
    }
}

impl Ground for Bare {
    fn durable(&self) -> Lsn {
        Lsn(0)
    }
}
