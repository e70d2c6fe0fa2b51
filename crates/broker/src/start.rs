//! From a data directory to a running node, and back.
//!
//! ```text
//!  identity ─► journal ─► store ─┬─ alone: commands that the store lacks ─► first boot? ─┐
//!                                └─ cluster: the metadata group, as far as it is known ──┴─► queues,
//!  from their streams ─► shards ─► listeners                      stop: the same backwards
//! ```

mod alone;
pub(crate) mod joined;
pub(crate) mod recover;
pub(crate) mod reincarnate;
mod together;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use journal::disk::real::RealDisk;
use journal::journal::Journal;
use journal::listener::Listener;
use journal::op::{Lsn, Op};
use journal::recovery::Recovery;
use metadata::command::Command;
use metadata::objects::queue::QueueKind;
use metadata::state::State;
use metadata::store::{Kv, Rocks};
use model::id::{QueueId, Seq, StreamId};
use model::time::Millis;
use quorum::recovered::Recovered;
use quorum::rest::Rest;
use quorum::watermark::Watermark;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::cluster::identity::Raised;
use crate::cluster::members::Members;
use crate::cluster::reconciler::Reconciler;
use crate::cluster::{Cluster, GROUP, identity, keeper};
use crate::config::Config;
use crate::exchange_counts::ExchangeCounts;
use crate::limits::Budget;
use crate::limits::usage::Usage;
use crate::node::{Limits, Listening, Node};
use crate::pair;
use crate::pair::registry::Pairs;
use crate::pair::stage::Yard;
use crate::pressure::Pressure;
use crate::replicated::fabric::Fabric;
use crate::replicated::numbered::Sender;
use crate::router::Router;
use crate::shard::bodies::Weight;
use crate::shard::command::{Batch, Command as ShardCommand};
use crate::shard::desk::Desk;
use crate::shard::ground::Ground;
use crate::shard::outboxes::Outboxes;
use crate::shard::slot::Slot;
use crate::shard::{self, Shard};
use crate::shards::Shards;
use crate::start::alone::Metadata;
use crate::topology::{Gone, Parts, Place, Topology};
use crate::totals::{Counters, Totals};
use crate::vital;

/// Bodies that are nowhere but in memory (transient messages that wait) may take this part of the
/// memory limit; more of them are spilled to the journal.
const TRANSIENT_SHARE: u64 = 8;
/// How long the journal is waited for at a stop, when everybody else who had it has been told to end.
const LAST_WAIT: Duration = Duration::from_secs(2);
/// How often leases are looked at: when one is about to end, and when there is none.
const LEASES_TICK: Duration = Duration::from_millis(50);
const LEASES_REST: Duration = Duration::from_millis(250);
/// Where the marks of a clean stop are kept in the store: which messages were handed out.
const HANDED_OUT: &[u8] = b"~handed-out";

/// Why a node cannot start: one sentence for the operator.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct StartError(String);

/// A node with its tasks.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) node: Arc<Node>,
    kv: Arc<Rocks>,
    shard_tasks: Vec<JoinHandle<()>>,
    janitor: JoinHandle<()>,
    tasks: Vec<JoinHandle<()>>,
    pairs: JoinHandle<()>,
    stop_pairs: oneshot::Sender<oneshot::Sender<()>>,
    /// Resolves with the reason when the journal has failed for good.
    pub(crate) failed: watch::Receiver<Option<String>>,
}

/// What the journal's thread tells the node.
#[derive(Debug)]
struct Ear {
    shards: Arc<Shards>,
    /// For the topology, which does not wait for messages that have no room.
    vital: watch::Sender<Lsn>,
    watermark: Arc<Watermark>,
    pressure: Arc<Pressure>,
    failed: watch::Sender<Option<String>>,
}

impl Listener for Ear {
    fn durable(&self, lsn: Lsn) {
        tracing::trace!(target: "walk", "sync");
        self.watermark.advance(lsn);
        self.shards.wake_all();
    }

    fn vital(&self, lsn: Lsn) {
        self.vital.send_replace(lsn);
        self.watermark.advance_vital(lsn);
    }

    fn full(&self, full: bool) {
        if full {
            tracing::warn!("the journal has no room for more messages; publishers are blocked");
        } else {
            tracing::info!("the journal has room again");
        }
        self.pressure.journal_full(full);
    }

    fn failed(&self, error: &io::Error) {
        tracing::error!(%error, "the journal has failed; the node stops, since it can no longer keep what it confirms");
        self.watermark.fail(error);
        self.failed.send_replace(Some(error.to_string()));
    }
}

/// What a node has before it knows its topology.
struct Opened {
    config: Config,
    config_file: Option<PathBuf>,
    budget: Budget,
    me: Sender,
    /// What this start and those before it have drawn.
    starts: Vec<u64>,
    /// The data set of the cluster's topology, if the journal has to have a part of one.
    data_set: Option<u64>,
    /// A recovery of the topology was cut off.
    recovering: bool,
    shards: Arc<Shards>,
    pressure: Arc<Pressure>,
    durable: watch::Receiver<Lsn>,
    watermark: Arc<Watermark>,
    failed_sender: watch::Sender<Option<String>>,
    failed: watch::Receiver<Option<String>>,
    journal: Arc<Journal>,
    recovery: Recovery,
    kv: Arc<Rocks>,
    handed_out: Option<HashMap<QueueId, Seq>>,
    totals: Arc<Totals>,
    exchange_counts: Arc<ExchangeCounts>,
    pairs: Arc<Pairs>,
}

/// What it is then given to go on with.
struct Ready {
    router: Arc<Router>,
    topology: Arc<Topology>,
    cluster: Arc<Cluster>,
    /// The node's number; none as long as the cluster does not know it.
    number: watch::Receiver<Option<u16>>,
    gone: mpsc::UnboundedReceiver<Gone>,
    tasks: Vec<JoinHandle<()>>,
}

/// Opens the data directory and starts everything but listeners.
///
/// # Errors
/// What is wrong with the data directory, the store, the journal, or the address for other nodes.
pub(crate) async fn start_any(
    mut config: Config,
    config_file: Option<PathBuf>,
) -> Result<Started, StartError> {
    joined::add(&mut config)?;
    if config.cluster.peers.is_empty() {
        return start(config, config_file);
    }
    let opened = Opened::open(config, config_file)?.if_whole()?;
    let ready = together::join(&opened).await?;
    opened.go_on(ready)
}

/// The same for a node on its own.
///
/// # Errors
/// What is wrong with the data directory, the store or the journal.
pub(crate) fn start(config: Config, config_file: Option<PathBuf>) -> Result<Started, StartError> {
    let opened = Opened::open(config, config_file)?.if_whole()?;
    if opened.has_stream(GROUP.stream()) {
        return Err(StartError(format!(
            "data_dir {} belongs to a node of a cluster; cluster.peers must name the others",
            opened.config.data_dir.display()
        )));
    }
    let mut metadata = Metadata::load(&*opened.kv, &opened.journal, &opened.recovery)?;
    if metadata.state.vhosts().next().is_none() {
        for command in alone::first(&opened.config) {
            metadata.run(command)?;
        }
        tracing::info!(vhost = %opened.config.first_start.vhost, "first start on an empty data directory");
    }
    if metadata.state.global_parameter(alone::CLUSTER_ID).is_none() {
        metadata.run(alone::cluster_id())?;
    }
    metadata.run(Command::Restarted)?;
    let Metadata { state, applied, .. } = metadata;
    let router = Arc::new(Router::new(state.clone()));
    let (place, gone) = opened.place(None);
    let topology = Topology::new(opened.parts(&router, place), state, applied, 0);
    let cluster = Cluster::alone(opened.me, &opened.config.node.name, opened.host_parts());
    let (_, number) = watch::channel(Some(0));
    opened.go_on(Ready {
        router,
        topology: Arc::new(topology),
        cluster: Arc::new(cluster),
        number,
        gone,
        tasks: Vec::new(),
    })
}

impl Opened {
    fn open(config: Config, config_file: Option<PathBuf>) -> Result<Self, StartError> {
        let budget = Budget::detect(&config);
        tracing::info!("{budget}");
        std::fs::create_dir_all(&config.data_dir).map_err(|error| {
            StartError(format!("data_dir {}: {error}", config.data_dir.display()))
        })?;
        let is_new = !identity::exists(&config.data_dir);
        let Raised { me, starts, formed, data_set, recovering } =
            identity::raise(&config.data_dir).map_err(StartError)?;

        let shard_count =
            if config.node.shards == 0 { budget.processors } else { config.node.shards };
        let shards = Arc::new(Shards::new(shard_count));
        let pressure = Arc::new(Pressure::new());
        let watermark = Arc::new(Watermark::default());
        let (durable_sender, durable) = watch::channel(Lsn::default());
        let (failed_sender, failed) = watch::channel(None);
        let ear = Arc::new(Ear {
            shards: Arc::clone(&shards),
            vital: durable_sender,
            watermark: Arc::clone(&watermark),
            pressure: Arc::clone(&pressure),
            failed: failed_sender.clone(),
        });

        let mut options = journal::options::Options::new(config.data_dir.join("journal"));
        options.segment_bytes = config.journal.segment_size;
        options.reserve_segments = config.journal.reserve_segments;
        options.sync_delay = config.journal.sync_delay;
        options.write_delay = config.journal.write_delay;
        let (journal, recovery) = Journal::open(options, Arc::new(RealDisk), ear)
            .map_err(|error| StartError(error.to_string()))?;
        log_recovery(&recovery);

        let kv: Arc<Rocks> = Arc::new(
            Rocks::open(&config.data_dir.join("metadata"))
                .map_err(|error| StartError(error.to_string()))?,
        );
        // Taken out first: it is no object of the metadata.
        let handed_out = take_handed_out(&*kv);
        let opened = Self {
            config,
            config_file,
            budget,
            me,
            starts,
            data_set: formed.then_some(data_set),
            recovering,
            shards,
            pressure,
            durable,
            watermark,
            failed_sender,
            failed,
            journal: Arc::new(journal),
            recovery,
            kv,
            handed_out,
            totals: Arc::default(),
            exchange_counts: Arc::default(),
            pairs: Arc::default(),
        };
        if is_new && opened.has_stream(GROUP.stream()) {
            // Under a new identity it would vote again on what it has voted on.
            return Err(StartError(format!(
                "data_dir {} has lost its identity file; restore it, or start with an empty \
                 directory and let the node join again",
                opened.config.data_dir.display()
            )));
        }
        if formed && !opened.has_stream(GROUP.stream()) {
            return Err(StartError(format!(
                "data_dir {} has lost its journal, and what this node has agreed to is not known any \
                 more; start with an empty directory and let the node join again",
                opened.config.data_dir.display()
            )));
        }
        Ok(opened)
    }

    /// Refuses what a recovery has left half done.
    fn if_whole(self) -> Result<Self, StartError> {
        if self.recovering {
            return Err(StartError(format!(
                "the recovery of the topology in data_dir {} was cut off; run `leveret \
                 recover-metadata` again",
                self.config.data_dir.display()
            )));
        }
        Ok(self)
    }

    fn has_stream(&self, stream: StreamId) -> bool {
        self.recovery.streams().iter().any(|known| known.stream == stream && known.records > 0)
    }

    fn place(
        &self,
        proposer: Option<Arc<crate::cluster::proposer::Proposer>>,
    ) -> (Place, mpsc::UnboundedReceiver<Gone>) {
        let (gone, to_close) = mpsc::unbounded_channel();
        let group_size = self.config.quorum_queues.initial_group_size;
        (Place { me: self.me, group_size, proposer, gone }, to_close)
    }

    fn parts(&self, router: &Arc<Router>, place: Place) -> Parts {
        Parts {
            router: Arc::clone(router),
            journal: Arc::clone(&self.journal),
            shards: Arc::clone(&self.shards),
            kv: Arc::clone(&self.kv) as Arc<dyn Kv>,
            durable: self.durable.clone(),
            totals: Arc::clone(&self.totals),
            exchange_counts: Arc::clone(&self.exchange_counts),
            consumer_timeout: self.config.consumer_timeout.map(millis),
            pairs: Arc::clone(&self.pairs),
            place,
        }
    }

    fn host_parts(&self) -> crate::cluster::HostParts {
        crate::cluster::HostParts {
            journal: Arc::clone(&self.journal),
            watermark: Arc::clone(&self.watermark),
            shards: Arc::clone(&self.shards),
            pairs: Arc::clone(&self.pairs),
            patience: self.config.quorum_queues.consumer_disconnected_timeout,
            rest: Rest {
                after: self.config.quorum_queues.hibernate_after,
                awake_max: usize::try_from(self.config.quorum_queues.awake_max)
                    .unwrap_or(usize::MAX),
            },
            pressure: Arc::clone(&self.pressure),
            starts: self.starts.clone(),
            data_set: self.data_set,
        }
    }

    /// Fills the queues and starts the shards.
    fn go_on(self, ready: Ready) -> Result<Started, StartError> {
        let Self {
            config,
            config_file,
            budget,
            me,
            shards,
            pressure,
            failed_sender,
            failed,
            journal,
            recovery,
            kv,
            handed_out,
            totals,
            exchange_counts,
            pairs,
            ..
        } = self;
        let Ready { router, topology, cluster, number, gone, tasks: more_tasks } = ready;
        let state = topology.begin();
        let Restored { shards: restored, groups, strays } =
            restore(&topology, &state, &journal, recovery, handed_out.as_ref(), &shards)?;
        cluster.berths.recovered(groups);
        for queue in state.all_queues().filter(|queue| topology.is_of_cluster(queue)) {
            let open = ShardCommand::Open(Box::new(topology.profile(&state, queue)));
            shards.post(queue.id, Batch::one(open));
        }
        cluster.found_strays(strays);

        let (usage_sender, usage) = watch::channel(Usage::default());
        let (alarms_sender, alarms) = watch::channel(crate::limits::alarms::Alarms::default());
        let limits = Limits {
            in_flight: usize::try_from(config.limits.publish_window).unwrap_or(usize::MAX),
            connections: config.limits.connections,
            channels: config.limits.channels,
            queues: config.limits.queues,
            loopback_users: config.auth.loopback_users.clone(),
            anonymous_user: config.auth.anonymous_user.clone(),
        };
        let data_dir = config.data_dir.clone();
        pressure.sampled(crate::limits::first_alarms(&budget, &data_dir));
        let members = Arc::new(Members::new(Arc::clone(&cluster), Arc::clone(&topology)));
        let reconciler = Arc::new(Reconciler::new(
            Arc::clone(&cluster),
            Arc::clone(&topology),
            Arc::clone(&members),
            config.quorum_queues.reconciliation,
        ));
        let node = Arc::new(Node {
            members: Arc::clone(&members),
            reconciler: Arc::clone(&reconciler),
            limits,
            config_file,
            budget: budget.clone(),
            started_at_ms: shard::now().0,
            shards: Arc::clone(&shards),
            router,
            topology,
            cluster,
            number: number.clone(),
            journal: Arc::clone(&journal),
            totals: Arc::clone(&totals),
            accounts: crate::accounts::Accounts::default(),
            connections: crate::connections::Connections::default(),
            reply_to: crate::reply_to::ReplyTo::default(),
            exchange_counts,
            sizes: crate::sizes::Sizes::default(),
            publishers: AtomicU64::new(0),
            consumers: Arc::default(),
            pressure: Arc::clone(&pressure),
            usage,
            listening: parking_lot::Mutex::default(),
            stopping: AtomicBool::new(false),
            maintenance: watch::channel(false).0,
            consumer_ids: crate::cluster::unique::Unique::default(),
            config,
        });
        if let Some(links) = node.cluster.road.links() {
            let address = links.local_addr();
            node.listening.lock().push(Listening { protocol: "clustering", address });
        }
        crate::operator::inquiries::open(&node);
        let named = Arc::clone(&node).take_number(number, me.boot);
        let close = Arc::clone(&node).close_gone(gone);

        let (chores, chores_to_do) = mpsc::unbounded_channel();
        let bodies = Weight {
            cached: budget.message_cache / shards.len() as u64,
            only: budget.memory_limit / TRANSIENT_SHARE / shards.len() as u64,
        };
        let mut shard_tasks = Vec::new();
        for (index, slots) in restored.into_iter().enumerate() {
            let desk = Desk {
                now: shard::now(),
                outboxes: Outboxes::default(),
                ops: Vec::new(),
                effects: Vec::new(),
                counted: Counters::default(),
                weight: Weight::default(),
                budget: bodies,
                attached: std::collections::VecDeque::new(),
                consumer_window: node.config.limits.consumer_window,
                journal: Arc::clone(&journal) as Arc<dyn Ground>,
                inbox: Arc::clone(shards.inbox(index)),
                shards: Arc::clone(&shards),
                router: Arc::clone(&node.router),
                fabric: Arc::clone(&node.cluster) as Arc<dyn Fabric>,
                publish_timeout: millis(node.config.quorum_queues.publish_timeout),
                chores: chores.clone(),
                consumers: Arc::clone(&node.consumers),
            };
            let shard = Shard::new(desk, Arc::clone(&totals), slots).run();
            shard_tasks.push(vital::spawn("a shard", &failed_sender, shard));
        }
        let yard = Yard {
            me: node.cluster.me,
            line: Arc::clone(&node.cluster) as _,
            fabric: Arc::clone(&node.cluster) as _,
            works: Arc::new(pair::works::DataDir(data_dir.clone())),
            topology: Arc::clone(&node.topology),
            router: Arc::clone(&node.router),
            shards: Arc::clone(&shards),
            pairs,
            totals: Arc::clone(&totals),
            consumers: Arc::clone(&node.consumers),
            chores,
            failed: failed_sender.clone(),
            pressure: Arc::clone(&pressure),
            bodies,
            consumer_window: node.config.limits.consumer_window,
            publish_timeout: millis(node.config.quorum_queues.publish_timeout),
            settings: node.config.journal,
        };
        let (stop_pairs, pairs_stop) = oneshot::channel();
        let janitor = Arc::clone(&node).do_chores(chores_to_do);
        let watch = crate::limits::watch(budget, data_dir, alarms_sender, usage_sender);
        let mut tasks = vec![
            vital::spawn("the node's number", &failed_sender, named),
            vital::spawn("what closes connections", &failed_sender, close),
            vital::spawn("the alarms", &failed_sender, Arc::clone(&node).spread_alarms()),
            vital::spawn(
                "the alarms for other nodes",
                &failed_sender,
                Arc::clone(&node.cluster).spread_alarms(),
            ),
            vital::spawn("the watch of memory and disk", &failed_sender, watch),
            vital::spawn("the keeper of members", &failed_sender, keeper::run(members)),
            vital::spawn("what keeps groups whole", &failed_sender, reconciler.run()),
            vital::spawn("the watch's follower", &failed_sender, follow(alarms, pressure)),
            vital::spawn(
                "the count of leases",
                &failed_sender,
                count_leases(Arc::clone(&node.topology)),
            ),
        ];
        tasks.extend(more_tasks);
        let janitor = vital::spawn("the janitor", &failed_sender, janitor);
        let keeper = pair::keeper::run(yard, pairs_stop);
        let pairs = vital::spawn("the keeper of journals", &failed_sender, keeper);
        Ok(Started { node, kv, shard_tasks, janitor, tasks, pairs, stop_pairs, failed })
    }
}

/// Looks for leases of locks that are over, on whichever node leads the metadata group.
async fn count_leases(topology: Arc<Topology>) {
    loop {
        let next = topology.end_leases().unwrap_or(LEASES_REST);
        tokio::time::sleep(next.clamp(LEASES_TICK, LEASES_REST)).await;
    }
}

fn millis(span: Duration) -> Millis {
    Millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

async fn follow(
    mut alarms: watch::Receiver<crate::limits::alarms::Alarms>,
    pressure: Arc<Pressure>,
) {
    while alarms.changed().await.is_ok() {
        pressure.sampled(*alarms.borrow_and_update());
    }
}

fn log_recovery(recovery: &Recovery) {
    let report = recovery.report();
    tracing::info!(
        clean = report.clean,
        records = report.records,
        segments = report.segments,
        scanned = report.scanned,
        took_ms = report.took.as_millis(),
        "journal opened"
    );
    if let Some(torn) = &report.torn {
        tracing::warn!(file = %torn.file, offset = torn.offset, "cut the torn tail of the journal; nothing in it was confirmed");
    }
    for damage in &report.quarantined {
        tracing::error!(
            file = %damage.file, offset = damage.offset, bytes = damage.bytes, stream = ?damage.stream,
            "a part of the journal is damaged and was quarantined; the rest is served"
        );
    }
}

/// What the journal had of queues.
struct Restored {
    /// The queues of each shard.
    shards: Vec<Vec<Slot>>,
    /// The records of members of quorum queues, which are their Raft groups'.
    groups: BTreeMap<StreamId, Recovered>,
    /// Streams of no queue.
    strays: Vec<StreamId>,
}

/// Fills the durable queues from their streams.
fn restore(
    topology: &Topology,
    state: &State,
    journal: &Journal,
    recovery: Recovery,
    handed_out: Option<&HashMap<QueueId, Seq>>,
    shards: &Shards,
) -> Result<Restored, StartError> {
    let now = shard::now();
    // Without the marks of a clean stop any message may have been handed out.
    let marks = handed_out.filter(|_| recovery.clean());
    let mut slots: HashMap<StreamId, Slot> = HashMap::new();
    let mut ops = Vec::new();
    let mut used: BTreeSet<StreamId> = BTreeSet::new();
    let mut groups: BTreeMap<StreamId, Recovered> = BTreeMap::new();
    let highest: HashMap<StreamId, Seq> =
        recovery.streams().iter().map(|known| (known.stream, known.highest)).collect();
    for queue in state.all_queues() {
        // Of other nodes' queues there may be nothing here, and what there is of queues that this
        // node was a member of is nobody's any more.
        let Some(stream) = queue.stream(topology.me()) else { continue };
        used.insert(stream);
        if queue.kind == QueueKind::Quorum {
            let highest = highest.get(&stream).copied().unwrap_or(Seq(0));
            groups.insert(stream, Recovered::new(highest));
        }
        if topology.is_of_cluster(queue) {
            continue;
        }
        let profile = topology.profile(state, queue);
        let next = highest.get(&stream).map_or(Seq(1), |highest| highest.next());
        let mark = marks.map(|marks| marks.get(&queue.id).copied().unwrap_or(Seq(0)));
        slots.insert(stream, Slot::restored(profile, next, mark, now));
    }
    let mut strays = Vec::new();
    for known in recovery.streams() {
        if known.stream.0 >= State::FIRST_QUEUE.0 && !used.contains(&known.stream) {
            strays.push(known.stream);
            // The topology may be behind: it may yet turn out to be a member's.
            groups.insert(known.stream, Recovered::new(known.highest));
        }
    }
    let mut last: Option<(StreamId, Slot)> = None;
    recovery
        .for_each(|stream, seq, head, bytes| {
            if let Some(group) = groups.get_mut(&stream) {
                return group.note(seq, head, bytes);
            }
            if last.as_ref().is_none_or(|(current, _)| *current != stream) {
                if let Some((current, slot)) = last.take() {
                    slots.insert(current, slot);
                }
                last = slots.remove(&stream).map(|slot| (stream, slot));
            }
            if let Some((_, slot)) = &mut last
                && !slot.restore(seq, head)
            {
                ops.push(Op::Release { stream, first: seq, last: seq });
            }
        })
        .map_err(|error| StartError(format!("journal: {error}")))?;
    if let Some((current, slot)) = last {
        slots.insert(current, slot);
    }
    if !ops.is_empty() {
        journal.submit(ops);
    }
    let mut by_shard: Vec<Vec<Slot>> = (0..shards.len()).map(|_| Vec::new()).collect();
    let messages: u64 = slots.values().map(Slot::ready).sum();
    tracing::info!(queues = slots.len(), messages, "queues restored");
    for slot in slots.into_values() {
        by_shard[shards.index_of(slot.profile.id)].push(slot);
    }
    Ok(Restored { shards: by_shard, groups, strays })
}

/// Reads and forgets the marks of the last stop; `None` if it left none.
fn take_handed_out(kv: &dyn Kv) -> Option<HashMap<QueueId, Seq>> {
    let bytes = kv.get(HANDED_OUT).ok()??;
    if let Err(error) = kv.delete(HANDED_OUT) {
        tracing::error!(%error, "cannot write the metadata store");
        return None;
    }
    let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
    Some(
        bytes
            .chunks_exact(16)
            .map(|pair| (QueueId(number(&pair[..8])), Seq(number(&pair[8..]))))
            .collect(),
    )
}

impl Started {
    /// Ends the node in good order: clients were told and are gone; what is left is brought to the
    /// disk.
    pub(crate) async fn stop(self, patience: Duration) {
        let Self { node, kv, shard_tasks, janitor, tasks, pairs, stop_pairs, .. } = self;
        node.stopping.store(true, Ordering::Release);
        node.connections.close("broker forced connection closure with reason 'shutdown'", |_| true);
        let gone = async {
            while node.connections.count() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(patience, gone).await.is_err() {
            tracing::warn!(
                connections = node.connections.count(),
                "connections did not end in time"
            );
        }
        // While the others can still be told.
        let (answer, answered) = oneshot::channel();
        drop(stop_pairs.send(answer));
        if tokio::time::timeout(patience, answered).await.is_err() {
            tracing::warn!("journals on two nodes did not end in time");
            pairs.abort();
        }
        drop(pairs.await);
        let mut handed_out = Vec::new();
        for index in 0..node.shards.len() {
            let (answer, answered) = oneshot::channel();
            node.shards.inbox(index).post(Batch::one(ShardCommand::Stop { answer }));
            for (queue, seq) in answered.await.unwrap_or_default() {
                handed_out.extend_from_slice(&queue.0.to_le_bytes());
                handed_out.extend_from_slice(&seq.0.to_le_bytes());
            }
        }
        for task in shard_tasks {
            drop(task.await);
        }
        // It ends by itself, since nobody is left who could give it something to do.
        if tokio::time::timeout(patience, janitor).await.is_err() {
            tracing::warn!("deletions of queues did not end in time");
        }
        node.cluster.stop().await;
        node.topology.flush_all();
        if let Err(error) = kv.put(HANDED_OUT, &handed_out).and_then(|()| kv.flush()) {
            tracing::error!(%error, "cannot write the metadata store");
        }
        for task in tasks {
            task.abort();
            drop(task.await);
        }
        let journal = Arc::clone(&node.journal);
        drop(node);
        // What the Raft groups had running ends on its own, a moment after them.
        let last = async {
            while Arc::strong_count(&journal) > 1 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        drop(tokio::time::timeout(LAST_WAIT, last).await);
        match Arc::into_inner(journal).map(Journal::close) {
            Some(Ok(())) => tracing::info!("stopped"),
            Some(Err(error)) => {
                tracing::error!(%error, "the journal could not be closed in good order");
            }
            None => tracing::warn!(
                "stopped while a client was still served; the next start takes a little longer"
            ),
        }
    }
}
