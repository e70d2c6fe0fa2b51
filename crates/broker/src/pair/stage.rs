//! A journal that is open on its active node: its ground, its queues, and the shard that has them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use activation::file::JournalUid;
use journal::disk::real::RealDisk;
use journal::error::OpenError;
use journal::journal::Journal;
use journal::op::Op;
use journal::recovery::Recovery;
use metadata::objects::Name;
use model::id::{Seq, StreamId};
use model::time::Millis;
use replication::sender::Limits;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::config;
use crate::inbox::Inbox;
use crate::pair::aside;
use crate::pair::driver::Input;
use crate::pair::ear::Ear;
use crate::pair::fabric::PairFabric;
use crate::pair::ground::Ground;
use crate::pair::hold::Hold;
use crate::pair::line::{Line, Session};
use crate::pair::pulse::{Pulse, Watched};
use crate::pair::registry::Pairs;
use crate::pair::works::{self, Shelf, Store, Unopened, Works};
use crate::pressure::Pressure;
use crate::replicated::fabric::Fabric;
use crate::replicated::numbered::Sender;
use crate::router::Router;
use crate::shard::bodies::Weight;
use crate::shard::command::{Batch, Command};
use crate::shard::desk::{Chore, Desk};
use crate::shard::outboxes::Outboxes;
use crate::shard::slot::Slot;
use crate::shard::{self, Shard};
use crate::shards::Shards;
use crate::topology::Topology;
use crate::totals::{Counters, Totals};
use crate::vital;

/// Positions of one term: what a consumer was given before it was stored, and what was lost then, must
/// not have its position again, or a late acknowledgement would settle another message.
const TERM_BITS: u32 = 40;

/// How often it is looked whether the last user of a ground has gone.
const LAST_USER: Duration = Duration::from_millis(2);

/// What shards of journals need of the node.
#[derive(Debug, Clone)]
pub(crate) struct Yard {
    pub(crate) me: Sender,
    pub(crate) line: Arc<dyn Line>,
    pub(crate) fabric: Arc<dyn Fabric>,
    pub(crate) works: Arc<dyn Works>,
    pub(crate) topology: Arc<Topology>,
    pub(crate) router: Arc<Router>,
    pub(crate) shards: Arc<Shards>,
    pub(crate) pairs: Arc<Pairs>,
    pub(crate) totals: Arc<Totals>,
    pub(crate) consumers: Arc<AtomicU64>,
    pub(crate) chores: UnboundedSender<Chore>,
    pub(crate) failed: watch::Sender<Option<String>>,
    pub(crate) pressure: Arc<Pressure>,
    pub(crate) bodies: Weight,
    pub(crate) consumer_window: u32,
    pub(crate) publish_timeout: Millis,
    pub(crate) settings: config::Journal,
}

/// Opens the journal of a folder. Blocks.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn open_journal(
    yard: &Yard,
    name: &str,
    data: PathBuf,
    pulse: &Pulse,
) -> Result<(Journal, Recovery, Arc<Ear>), Unopened> {
    let ear = Arc::new(Ear::new(name, yard.failed.clone(), Arc::clone(&yard.pressure)));
    let mut options = journal::options::Options::new(data);
    options.segment_bytes = yard.settings.segment_size;
    options.reserve_segments = yard.settings.reserve_segments;
    options.sync_delay = yard.settings.sync_delay;
    options.write_delay = yard.settings.write_delay;
    let disk = Arc::new(Watched { disk: RealDisk, pulse: pulse.clone() });
    let (journal, recovery) = Journal::open(options, disk, Arc::clone(&ear) as _)
        .map_err(|error| cannot_open(yard, name, &error))?;
    Ok((journal, recovery, ear))
}

/// A journal could not be opened. What the disk does not do this time it may do the next time: a copy
/// that is whole must not wait for an operator because of it. So the node stops, as after every write
/// that has failed; but for want of room, which others have too.
pub(crate) fn cannot_open(yard: &Yard, name: &str, error: &OpenError) -> Unopened {
    let reason = error.to_string();
    let OpenError::Io { source, .. } = error else { return Unopened::because(reason) };
    let unopened = Unopened::io(source, reason);
    if !unopened.no_room {
        let reason = &unopened.reason;
        tracing::error!(journal = name, %reason, "a journal cannot be opened; the node stops");
        yard.failed.send_replace(Some(reason.clone()));
    }
    unopened
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct Stage {
    uid: JournalUid,
    pub(crate) ground: Arc<Ground>,
    inbox: Arc<Inbox>,
    /// The queues, until they are served.
    slots: Vec<Slot>,
    task: Option<JoinHandle<()>>,
}

impl Stage {
    /// Recovers the journal and fills its queues, without serving them. Blocks.
    ///
    /// # Errors
    /// What is wrong with the journal.
    pub(crate) fn open(
        yard: &Yard,
        uid: JournalUid,
        name: &Name,
        (folder, pulse): (&dyn Shelf, &Pulse),
        hold: &Arc<Hold>,
        line: Arc<dyn Line>,
        driver: UnboundedSender<Input>,
    ) -> Result<Self, Unopened> {
        let (journal, recovery, ear) = folder.open(yard, name, pulse)?;
        let report = recovery.report();
        if !report.quarantined.is_empty() {
            // A copy that lacks something is not what the age says that it is.
            let count = report.quarantined.len();
            return Err(Unopened::because(format_args!("{count} parts of it are damaged")));
        }
        let inbox = Arc::<Inbox>::default();
        // From this moment on its queues' changes wait in the inbox.
        let profiles = yard.topology.enroll(|topology, state| {
            yard.pairs.open(uid, Arc::clone(&inbox));
            let queues = state.queues_of_journal(name);
            queues.map(|queue| topology.profile(state, queue)).collect::<Vec<_>>()
        });
        let now = shard::now();
        let highest: BTreeMap<StreamId, Seq> =
            recovery.streams().iter().map(|known| (known.stream, known.highest)).collect();
        let mut slots: BTreeMap<StreamId, Slot> = profiles
            .into_iter()
            .map(|profile| {
                let stream = StreamId::from(profile.id);
                let next = highest.get(&stream).map_or(Seq(1), |highest| highest.next());
                (stream, Slot::restored(profile, next, None, now))
            })
            .collect();
        let (mut spilled, mut strays) = (Vec::new(), BTreeSet::new());
        recovery
            .for_each(|stream, seq, head, _| match slots.get_mut(&stream) {
                Some(slot) => {
                    if !slot.restore(seq, head) {
                        spilled.push(Op::Release { stream, first: seq, last: seq });
                    }
                }
                None => {
                    strays.insert(stream);
                }
            })
            .map_err(Unopened::because)?;
        if !strays.is_empty() {
            tracing::warn!(
                journal = %name, streams = strays.len(),
                "the journal has messages of queues that are not known; they are kept"
            );
        }
        if !spilled.is_empty() {
            journal.submit(spilled);
        }
        let slots: Vec<Slot> = slots.into_values().collect();
        let messages: u64 = slots.iter().map(Slot::ready).sum();
        tracing::info!(journal = %name, queues = slots.len(), messages, "queues of a journal restored");
        let ground =
            Ground::new(journal, ear.watch(), Arc::clone(hold), Arc::clone(&inbox), line, driver);
        let ground = Arc::new(ground);
        ear.tell(Arc::downgrade(&ground));
        Ok(Self { uid, ground, inbox, slots, task: None })
    }

    /// Begins to copy it to a replica that was accepted.
    pub(crate) fn attach(&self, yard: &Yard, name: &Name, session: Session, limits: Limits) {
        // Whoever can submit something for a queue is known here by then.
        self.ground.attach(session, limits, || {
            yard.topology.enroll(|_, state| {
                let queues = state.queues_of_journal(name);
                queues.map(|queue| StreamId::from(queue.id)).collect::<Vec<_>>()
            })
        });
    }

    /// Opens the queues to clients, in the term that the metadata has given.
    pub(crate) fn serve(&mut self, yard: &Yard, hold: &Arc<Hold>, term: u64) {
        let fabric = PairFabric {
            fabric: Arc::clone(&yard.fabric),
            shards: Arc::clone(&yard.shards),
            hold: Arc::clone(hold),
            term,
        };
        let desk = Desk {
            now: shard::now(),
            outboxes: Outboxes::default(),
            ops: Vec::new(),
            effects: Vec::new(),
            counted: Counters::default(),
            weight: Weight::default(),
            budget: yard.bodies,
            attached: std::collections::VecDeque::new(),
            consumer_window: yard.consumer_window,
            journal: Arc::clone(&self.ground) as _,
            inbox: Arc::clone(&self.inbox),
            shards: Arc::clone(&yard.shards),
            router: Arc::clone(&yard.router),
            fabric: Arc::new(fabric),
            publish_timeout: yard.publish_timeout,
            chores: yard.chores.clone(),
            consumers: Arc::clone(&yard.consumers),
        };
        let mut slots = std::mem::take(&mut self.slots);
        for slot in &mut slots {
            slot.begin_behind(Seq(term << TERM_BITS));
        }
        let shard = Shard::of_journal(desk, Arc::clone(&yard.totals), slots);
        self.task = Some(vital::spawn("the shard of a journal", &yard.failed, shard.run()));
    }

    /// Ends the shard and closes the journal in good order. Everybody else who has the ground ends
    /// soon by himself.
    pub(crate) async fn close(self, pairs: &Pairs) {
        let Self { uid, ground, inbox, task, .. } = self;
        pairs.close(uid);
        if let Some(task) = task {
            let (answer, answered) = oneshot::channel();
            inbox.post(Batch::one(Command::Stop { answer }));
            drop(answered.await);
            drop(task.await);
        }
        inbox.close();
        let mut ground = ground;
        let journal = loop {
            match Arc::try_unwrap(ground) {
                Ok(ground) => break ground.into_journal(),
                Err(still_used) => {
                    ground = still_used;
                    tokio::time::sleep(LAST_USER).await;
                }
            }
        };
        close_journal(journal).await;
    }
}

/// Closes a journal where it may block.
pub(crate) async fn close_journal(journal: Box<dyn Store>) {
    let closed = aside::blocking(move || journal.close()).await;
    match closed {
        Ok(Ok(())) => {}
        // Nobody was told that they are kept: what waits for room was not confirmed.
        Ok(Err(error)) if works::wants_room(&error) => {
            tracing::warn!(%error, "a journal was closed without what it has no room for");
        }
        Ok(Err(error)) => tracing::error!(%error, "a journal could not be closed in good order"),
        Err(error) => tracing::error!(%error, "a journal could not be closed"),
    }
}
