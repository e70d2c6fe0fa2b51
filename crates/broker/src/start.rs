//! From a data directory to a running node, and back.
//!
//! ```text
//!  store ─► journal ─► commands that the store lacks ─► first boot? ─► queues, from their streams
//!        ─► shards ─► listeners                         stop: the same backwards
//! ```

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use journal::disk::real::RealDisk;
use journal::journal::Journal;
use journal::listener::Listener;
use journal::op::{Head, Lsn, Op, Payload};
use journal::recovery::Recovery;
use metadata::access::password;
use metadata::boot::{self, DefaultUser};
use metadata::command::Command;
use metadata::objects::parameter::GlobalParameter;
use metadata::objects::user::HashingAlgorithm;
use metadata::outcome::Outcome;
use metadata::state::State;
use metadata::store::{self, Kv, Rocks};
use model::id::{QueueId, Seq, StreamId};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::exchange_counts::ExchangeCounts;
use crate::limits::Budget;
use crate::limits::usage::Usage;
use crate::node::{Limits, Node};
use crate::pressure::Pressure;
use crate::router::Router;
use crate::shard::bodies::Weight;
use crate::shard::command::{Batch, Command as ShardCommand};
use crate::shard::desk::Desk;
use crate::shard::outboxes::Outboxes;
use crate::shard::slot::Slot;
use crate::shard::{self, Shard};
use crate::shards::Shards;
use crate::topology::{Parts, STREAM, Topology};
use crate::totals::{Counters, Totals};
use crate::vital;

/// Bodies that are nowhere but in memory (transient messages that wait) may take this part of the
/// memory limit; more of them are spilled to the journal.
const TRANSIENT_SHARE: u64 = 8;
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
    /// Resolves with the reason when the journal has failed for good.
    pub(crate) failed: watch::Receiver<Option<String>>,
}

/// What the journal's thread tells the node.
#[derive(Debug)]
struct Ear {
    shards: Arc<Shards>,
    durable: watch::Sender<Lsn>,
    pressure: Arc<Pressure>,
    failed: watch::Sender<Option<String>>,
}

impl Listener for Ear {
    fn durable(&self, lsn: Lsn) {
        tracing::trace!(target: "walk", "sync");
        self.durable.send_replace(lsn);
        self.shards.wake_all();
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
        self.failed.send_replace(Some(error.to_string()));
    }
}

/// Opens the data directory and starts everything but listeners.
///
/// # Errors
/// What is wrong with the data directory, the store or the journal.
pub(crate) fn start(config: Config, config_file: Option<PathBuf>) -> Result<Started, StartError> {
    let budget = Budget::detect(&config);
    tracing::info!("{budget}");
    std::fs::create_dir_all(&config.data_dir)
        .map_err(|error| StartError(format!("data_dir {}: {error}", config.data_dir.display())))?;

    let shard_count = if config.node.shards == 0 { budget.processors } else { config.node.shards };
    let shards = Arc::new(Shards::new(shard_count));
    let pressure = Arc::new(Pressure::new());
    let (durable_sender, durable) = watch::channel(Lsn::default());
    let (failed_sender, failed) = watch::channel(None);
    let ear = Arc::new(Ear {
        shards: Arc::clone(&shards),
        durable: durable_sender,
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
    let journal = Arc::new(journal);
    log_recovery(&recovery);

    let kv: Arc<Rocks> = Arc::new(
        Rocks::open(&config.data_dir.join("metadata"))
            .map_err(|error| StartError(error.to_string()))?,
    );
    // Taken out first: it is no object of the metadata.
    let handed_out = take_handed_out(&*kv);
    let mut metadata = Metadata::load(&*kv, &journal, &recovery)?;
    if metadata.state.vhosts().next().is_none() {
        metadata.first_boot(&config)?;
    }
    metadata.name_cluster()?;
    metadata.run(Command::Restarted)?;

    let Metadata { state, applied, .. } = metadata;
    let totals = Arc::new(Totals::default());
    let exchange_counts = Arc::new(ExchangeCounts::default());
    let router = Arc::new(Router::new(state.clone()));
    let topology = Topology::new(
        Parts {
            router: Arc::clone(&router),
            journal: Arc::clone(&journal),
            shards: Arc::clone(&shards),
            kv: Arc::clone(&kv) as Arc<dyn Kv>,
            durable,
            totals: Arc::clone(&totals),
            exchange_counts: Arc::clone(&exchange_counts),
            consumer_timeout: config.consumer_timeout.map(|timeout| {
                model::time::Millis(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX))
            }),
        },
        state.clone(),
        applied,
        0,
    );
    let restored = restore(&topology, &state, &journal, recovery, handed_out.as_ref(), &shards)?;

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
    let node = Arc::new(Node {
        limits,
        config_file,
        budget: budget.clone(),
        started_at_ms: shard::now().0,
        shards: Arc::clone(&shards),
        router,
        topology,
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
        last_consumer: AtomicU64::new(0),
        config,
    });

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
            journal: Arc::clone(&journal),
            inbox: Arc::clone(shards.inbox(index)),
            shards: Arc::clone(&shards),
            router: Arc::clone(&node.router),
            fabric: Arc::new(crate::replicated::fabric::Nowhere),
            publish_timeout: model::time::Millis(10_000),
            chores: chores.clone(),
            consumers: Arc::clone(&node.consumers),
        };
        let shard = Shard::new(desk, Arc::clone(&totals), slots).run();
        shard_tasks.push(vital::spawn("a shard", &failed_sender, shard));
    }
    let janitor = Arc::clone(&node).do_chores(chores_to_do);
    let watch = crate::limits::watch(budget, data_dir, alarms_sender, usage_sender);
    let tasks = vec![
        vital::spawn("the alarms", &failed_sender, Arc::clone(&node).spread_alarms()),
        vital::spawn("the watch of memory and disk", &failed_sender, watch),
        vital::spawn("the watch's follower", &failed_sender, follow(alarms, pressure)),
    ];
    let janitor = vital::spawn("the janitor", &failed_sender, janitor);
    Ok(Started { node, kv, shard_tasks, janitor, tasks, failed })
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

/// The metadata machine before anybody else uses it.
struct Metadata<'a> {
    kv: &'a dyn Kv,
    journal: &'a Journal,
    state: State,
    applied: u64,
}

impl<'a> Metadata<'a> {
    /// What the store has, and the commands of the journal that it lacks.
    fn load(kv: &'a dyn Kv, journal: &'a Journal, recovery: &Recovery) -> Result<Self, StartError> {
        let failed = |error: store::Failure| StartError(error.to_string());
        let (state, applied) = store::load(kv).map_err(failed)?.unwrap_or((State::new(), 0));
        let mut metadata = Self { kv, journal, state, applied };
        let highest = recovery
            .streams()
            .iter()
            .find(|known| known.stream == STREAM)
            .map_or(0, |known| known.highest.0);
        if applied > highest {
            // A power cut took records that the store had already seen. The commands to come will
            // follow a gap, so what fills it must not be lost with the next power cut.
            kv.flush().map_err(failed)?;
        }
        let seqs: Vec<Seq> = (applied + 1..=highest).map(Seq).collect();
        let mut read = Vec::with_capacity(seqs.len());
        journal.read(STREAM, &seqs, &mut read);
        for (seq, bytes) in seqs.into_iter().zip(read) {
            let bytes = bytes.map_err(|error| {
                StartError(format!(
                    "metadata command {seq} cannot be read from the journal: {error}; \
                     restore the data directory from a backup"
                ))
            })?;
            let command = Command::decode(&bytes)
                .map_err(|error| StartError(format!("metadata command {seq}: {}", error.reason)))?;
            // It was accepted when it was written.
            let outcome = metadata.state.apply(command).unwrap_or_default();
            metadata.applied = seq.0;
            metadata.save(&outcome)?;
        }
        Ok(metadata)
    }

    fn save(&self, outcome: &Outcome) -> Result<(), StartError> {
        store::save(self.kv, outcome, self.applied).map_err(|error| StartError(error.to_string()))
    }

    fn run(&mut self, command: Command) -> Result<(), StartError> {
        let payload = Payload::Bytes(command.encode());
        let outcome =
            self.state.apply(command).map_err(|refusal| StartError(refusal.to_string()))?;
        self.applied += 1;
        let put =
            Op::Put { stream: STREAM, seq: Seq(self.applied), head: Head::default(), payload };
        self.journal.submit(vec![put]);
        self.save(&outcome)
    }

    /// Gives the node a name that stays, by which monitoring tells one cluster from another.
    fn name_cluster(&mut self) -> Result<(), StartError> {
        const NAME: &str = "internal_cluster_id";
        if self.state.global_parameter(NAME).is_some() {
            return Ok(());
        }
        let value = format!("leveret-cluster-id-{:032x}", rand::random::<u128>());
        let parameter = GlobalParameter { name: NAME.into(), value: value.into() };
        self.run(Command::PutGlobalParameter(parameter))
    }

    fn first_boot(&mut self, config: &Config) -> Result<(), StartError> {
        let first = &config.first_start;
        let (name, password) = match &first.user {
            Some(user) => (user.as_str(), first.password.as_bytes()),
            None => ("", &b""[..]),
        };
        let salt: [u8; password::SALT_LEN] = rand::random();
        let user = DefaultUser {
            name: name.into(),
            password_hash: password::hash(HashingAlgorithm::Sha256, salt, password),
            tags: vec!["administrator".to_owned()],
        };
        for command in boot::commands(&first.vhost, user) {
            let about_user = matches!(command, Command::PutUser(_) | Command::PutPermission(_));
            if !about_user || first.user.is_some() {
                self.run(command)?;
            }
        }
        tracing::info!(vhost = %first.vhost, user = name, "first start on an empty data directory");
        Ok(())
    }
}

/// Fills the durable queues from their streams; streams without a queue are dropped.
fn restore(
    topology: &Topology,
    state: &State,
    journal: &Journal,
    recovery: Recovery,
    handed_out: Option<&HashMap<QueueId, Seq>>,
    shards: &Shards,
) -> Result<Vec<Vec<Slot>>, StartError> {
    let now = shard::now();
    // Without the marks of a clean stop any message may have been handed out.
    let marks = handed_out.filter(|_| recovery.clean());
    let mut slots: HashMap<StreamId, Slot> = HashMap::new();
    let mut ops = Vec::new();
    for known in recovery.streams() {
        if known.stream.0 >= State::FIRST_QUEUE.0
            && state.queue_by_id(QueueId(known.stream.0)).is_none()
        {
            ops.push(Op::Drop { stream: known.stream });
        }
    }
    let highest: HashMap<StreamId, Seq> =
        recovery.streams().iter().map(|known| (known.stream, known.highest)).collect();
    for queue in state.all_queues() {
        let stream = StreamId::from(queue.id);
        let profile = topology.profile(state, queue);
        let next = highest.get(&stream).map_or(Seq(1), |highest| highest.next());
        let mark = marks.map(|marks| marks.get(&queue.id).copied().unwrap_or(Seq(0)));
        slots.insert(stream, Slot::restored(profile, next, mark, now));
    }
    let mut last: Option<(StreamId, Slot)> = None;
    recovery
        .for_each(|stream, seq, head, _| {
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
    Ok(by_shard)
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
        let Self { node, kv, shard_tasks, janitor, tasks, .. } = self;
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
