//! One start of one node: a shard over a simulated disk, a host, and what a node does with both when
//! others come and go.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use model::id::{ConsumerId, NodeId, QueueId, StreamId};
use model::time::Millis;
use parking_lot::Mutex;
use queue::settings::{DelayedRetry, Overflow, Retried, Settings, Style};
use quorum::group::GroupId;
use quorum::host::{Care, Host, Options};
use quorum::member::{Body, BodyPlace, Committed, Member, Role};
use quorum::records::Records;
use quorum::recovered::Recovered;
use quorum::rest::Rest;
use quorum::sim::watch;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::disk::{Disk, Platter};
use super::net::{Cable, Parcel};
use super::world::World;
use crate::replicated::client::Leader;
use crate::replicated::fabric::{Berth, Fabric};
use crate::replicated::notice::Notice;
use crate::replicated::numbered::Sender;
use crate::replicated::version;
use crate::router::Router;
use crate::shard::Shard;
use crate::shard::bodies::Weight;
use crate::shard::command::{Batch, Command};
use crate::shard::desk::Desk;
use crate::shard::ground::Ground;
use crate::shard::outboxes::Outboxes;
use crate::shard::profile::{DeadLetterTarget, Profile};
use crate::shards::Shards;
use crate::totals::{Counters, Totals};

/// How long a silent node's consumers keep what they hold.
const PATIENCE: Duration = Duration::from_secs(6);

/// Why a node was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// Its process is gone.
    Refused,
    /// The session broke, and the next one follows.
    Reset,
    /// Nothing was heard of it.
    Silent,
}

/// See the module head.
pub(super) struct Node {
    pub(super) me: Sender,
    pub(super) shards: Arc<Shards>,
    pub(super) host: Host,
    pub(super) disk: Arc<Disk>,
    /// Whether it has died.
    pub(super) dead: watch::Sender<bool>,
    world: Weak<World>,
    shard: Mutex<Option<tokio::task::JoinHandle<()>>>,
    leads: Mutex<BTreeMap<QueueId, Leader>>,
    up: Mutex<BTreeMap<NodeId, Sender>>,
    lost: Mutex<BTreeMap<NodeId, Instant>>,
    recovered: Mutex<BTreeMap<GroupId, Recovered>>,
    last_name: AtomicU64,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("me", &self.me).finish_non_exhaustive()
    }
}

impl Node {
    /// Starts it on what its disk has.
    pub(super) fn start(world: &Arc<World>, me: Sender, platter: Platter) -> Arc<Self> {
        let plan = &world.plan;
        let shards = Arc::new(Shards::new(1));
        let (rng, ahead) = {
            let mut rng = world.rng.lock();
            (rng.fork(), rng.below(plan.skew + 1))
        };
        let disk = Disk::new(platter, Arc::clone(&shards), rng, world.start, ahead);
        disk.set_speed(plan.disk);
        let recovered = disk.recovered();
        let cable = Cable { me, world: Arc::downgrade(world) };
        let options = Options {
            tail_bytes: plan.tail_bytes,
            checkpoint_entries: plan.checkpoint_entries,
            keep_entries: plan.keep_entries,
            rest: Rest {
                after: (plan.sleeps > 0).then(|| Duration::from_millis(plan.sleeps)),
                awake_max: plan.awake,
            },
            ..Options::new(me.node)
        };
        let log = Arc::clone(&disk) as Arc<dyn quorum::log::Log>;
        let host = Host::new(options, log, disk.watermark(), Arc::new(cable));
        let node = Arc::new(Self {
            me,
            shards: Arc::clone(&shards),
            host,
            disk: Arc::clone(&disk),
            dead: watch::Sender::new(false),
            world: Arc::downgrade(world),
            shard: Mutex::default(),
            leads: Mutex::default(),
            up: Mutex::default(),
            lost: Mutex::default(),
            recovered: Mutex::new(recovered),
            last_name: AtomicU64::new(0),
        });
        let ground = disk as Arc<dyn Ground>;
        let (chores, _) = mpsc::unbounded_channel();
        let desk = Desk {
            now: ground.now(),
            outboxes: Outboxes::default(),
            ops: Vec::new(),
            effects: Vec::new(),
            counted: Counters::default(),
            weight: Weight::default(),
            budget: Weight { cached: plan.cache, only: 1 << 20 },
            attached: std::collections::VecDeque::new(),
            consumer_window: plan.window,
            journal: ground,
            inbox: Arc::clone(shards.inbox(0)),
            shards,
            router: Arc::new(Router::new(world.topology.clone())),
            fabric: Arc::new(Seat(Arc::clone(&node))),
            publish_timeout: Millis(plan.publish_timeout),
            chores,
            consumers: Arc::default(),
        };
        let shard = Shard::new(desk, Arc::new(Totals::default()), Vec::new());
        *node.shard.lock() = Some(tokio::spawn(shard.run()));
        node
    }

    /// Its machine dies; nothing that it does from now on has any effect.
    pub(super) fn die(&self) -> Platter {
        self.dead.send_replace(true);
        let platter = self.disk.crash();
        if let Some(shard) = self.shard.lock().take() {
            shard.abort();
        }
        let host = self.host.clone();
        if let Some(world) = self.world.upgrade() {
            world.book.lock().tally.slept += host.awake().1;
        }
        tokio::spawn(async move {
            for group in host.groups() {
                host.stop(group).await;
            }
        });
        platter
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

    pub(super) fn profile(queue: QueueId, world: &World) -> Box<Profile> {
        let plan = &world.plan;
        let heir = world.heir(queue);
        let (min, max) = (Millis(plan.delay), Millis(plan.delay * 4));
        let settings = Settings {
            delivery_limit: (plan.limit > 0).then_some(plan.limit),
            // So that the reason of a death is seen, also if nobody takes what is dead.
            dead_letter: plan.limit > 0 || heir.is_some(),
            keeps_dead: heir.is_some(),
            overflow: Overflow::RejectPublish,
            delayed_retry: (plan.delay > 0).then_some(DelayedRetry {
                which: Retried::All,
                min,
                max,
            }),
            ..Settings::new(Style::Quorum)
        };
        Box::new(Profile {
            id: queue,
            vhost: "/".into(),
            name: World::name(queue).into(),
            durable: true,
            home: NodeId(0),
            journal: None,
            settings,
            dead_letter: heir.map(|heir| DeadLetterTarget {
                exchange: "".into(),
                routing_key: Some(World::name(heir).into()),
            }),
            quorum: Some(
                world
                    .members(queue)
                    .iter()
                    .map(|node| metadata::objects::member::Member::founding(queue, *node))
                    .collect(),
            ),
            led_by: plan.begins_led.then(|| Sender { node: world.members(queue)[0], boot: 1 }),
        })
    }

    pub(super) fn on_up(&self, peer: Sender) {
        self.up.lock().insert(peer.node, peer);
        self.lost.lock().remove(&peer.node);
        self.host.on_up(peer.node);
        self.post(Command::Up { node: peer });
        let Some(world) = self.world.upgrade() else { return };
        let leads = self.leads.lock().clone();
        for (queue, leader) in leads {
            world.send(self.me, peer.node, Parcel::Leads { queue, leader });
        }
    }

    pub(super) fn on_down(&self, node: NodeId, why: Loss) {
        self.up.lock().remove(&node);
        self.host.on_down(node);
        self.post(Command::Lost { node });
        match why {
            Loss::Refused => self.post(Command::LostForLong { node }),
            Loss::Reset => {}
            Loss::Silent => {
                let since = Instant::now();
                self.lost.lock().insert(node, since);
                let (world, me) = (self.world.clone(), self.me);
                tokio::spawn(async move {
                    tokio::time::sleep(PATIENCE).await;
                    let Some(this) = world.upgrade().and_then(|world| world.node(me.node)) else {
                        return;
                    };
                    let mut lost = this.lost.lock();
                    if this.me == me && lost.get(&node) == Some(&since) {
                        lost.remove(&node);
                        drop(lost);
                        this.post(Command::LostForLong { node });
                    }
                });
            }
        }
    }

    /// Another node says that it leads.
    pub(super) fn on_announcement(&self, queue: QueueId, leader: Leader) {
        let mut leads = self.leads.lock();
        if leads.get(&queue).is_some_and(|mine| mine.term < leader.term) {
            leads.remove(&queue);
        }
    }
}

/// The cluster, as the shard sees it.
#[derive(Debug)]
struct Seat(Arc<Node>);

impl Fabric for Seat {
    fn me(&self) -> Sender {
        self.0.me
    }

    fn start_of(&self, node: NodeId) -> Option<Sender> {
        if node == self.0.me.node { Some(self.0.me) } else { self.0.up.lock().get(&node).copied() }
    }

    fn knows(&self, node: NodeId) -> Option<u8> {
        self.start_of(node).map(|_| version::NEWEST)
    }

    fn patience(&self) -> Millis {
        Millis(PATIENCE.as_millis() as u64)
    }

    fn orders(&self, to: NodeId, queue: QueueId, batch: Bytes) {
        if let Some(world) = self.0.world.upgrade() {
            world.send(self.0.me, to, Parcel::Orders { queue, batch });
        }
    }

    fn notice(&self, to: NodeId, notice: &Notice) {
        if let Some(world) = self.0.world.upgrade() {
            world.send(self.0.me, to, Parcel::Notice(notice.encode()));
        }
    }

    fn want(&self, queue: QueueId) {
        self.0.host.want(GroupId::from(queue));
    }

    fn propose(&self, queue: QueueId, entry: Bytes) -> bool {
        self.0.host.propose(GroupId::from(queue), entry).is_ok()
    }

    fn announce(&self, queue: QueueId, leader: Leader) {
        self.0.leads.lock().insert(queue, leader);
        let Some(world) = self.0.world.upgrade() else { return };
        let peers: Vec<NodeId> = self.0.up.lock().keys().copied().collect();
        for peer in peers {
            world.send(self.0.me, peer, Parcel::Leads { queue, leader });
        }
    }

    fn start(&self, queue: QueueId, member: Arc<dyn Member>, berth: Berth) {
        let (host, me) = (self.0.host.clone(), self.0.me);
        let founding = berth.founding(|node| self.start_of(node));
        let recovered = self.0.recovered.lock().remove(&queue.into()).unwrap_or_default();
        let recovered = recovered.founded(founding);
        let world = self.0.world.clone();
        let member = Arc::new(Tee { me, queue, member, world: world.clone() });
        tokio::spawn(async move {
            let started = host.start(queue.into(), Care::Supervised, member, recovered).await;
            let Some(world) = world.upgrade().filter(|world| world.is_alive(me)) else { return };
            if let Err(error) = started {
                world.fail(format!("node {} cannot start {queue}: {error}", me.node));
            }
        });
    }

    fn move_to(&self, queue: QueueId, group: GroupId, alone: bool) {
        let host = self.0.host.clone();
        tokio::spawn(async move {
            if alone {
                drop(host.reform(queue.into(), group).await);
            } else {
                drop(host.move_to(queue.into(), group));
            }
        });
    }

    fn delete(&self, queue: QueueId, _: StreamId) {
        let host = self.0.host.clone();
        tokio::spawn(async move { host.delete(queue.into()).await });
    }
}

/// A member whose calls are noted in the book.
struct Tee {
    me: Sender,
    queue: QueueId,
    member: Arc<dyn Member>,
    world: Weak<World>,
}

impl Tee {
    /// The world, unless this node is dead.
    fn world(&self) -> Option<Arc<World>> {
        self.world.upgrade().filter(|world| world.is_alive(self.me))
    }
}

impl Member for Tee {
    fn opened(&self, records: Records) {
        self.member.opened(records);
    }

    fn committed(&self, entries: Vec<Committed>) {
        if let Some(world) = self.world() {
            world.committed(self.queue, self.me, &entries);
            self.member.committed(entries);
        }
    }

    fn role(&self, role: Role) {
        if let Some(world) = self.world() {
            world.role(self.queue, self.me, role);
            self.member.role(role);
        }
    }

    fn checkpoint(&self, answer: oneshot::Sender<Bytes>) {
        self.member.checkpoint(answer);
    }

    fn install(&self, index: u64, state: Bytes, bodies: Vec<Body>, done: oneshot::Sender<()>) {
        if let Some(world) = self.world() {
            world.installed(self.queue, self.me, index, &state);
            self.member.install(index, state, bodies, done);
        }
    }

    fn export(&self, state: &Bytes) -> Vec<(u64, BodyPlace)> {
        self.member.export(state)
    }

    fn purged(&self, upto: u64) {
        self.member.purged(upto);
    }

    fn members(&self, voters: Vec<NodeId>, learners: Vec<NodeId>) {
        self.member.members(voters, learners);
    }

    fn failed(&self, error: String) {
        if let Some(world) = self.world() {
            world.fail(format!(
                "the member of {} on node {} failed: {error}",
                self.queue, self.me.node
            ));
        }
        self.member.failed(error);
    }
}
