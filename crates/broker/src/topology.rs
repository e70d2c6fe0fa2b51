//! The owner of the metadata machine on this node.
//!
//! ```text
//!  command ─► State::apply ─► journal (stream 1) ─► store ─► shards ─► snapshot
//!             └────────── one at a time, under one lock ──────────┘      then: wait for the sync
//! ```
//!
//! Every accepted command is a record of the journal, in the order in which it was applied, so that
//! a replay gives every queue the id that it had. Who waits for the sync is decided by what the
//! command is about: a transient queue needs none. RocksDB is written without sync; what it has
//! flushed, the journal may forget.

use std::sync::Arc;

use journal::journal::Journal;
use journal::op::{Head, Lsn, Op, Payload};
use metadata::command::Command;
use metadata::objects::binding::{Binding, Destination};
use metadata::objects::queue::Queue;
use metadata::outcome::Outcome;
use metadata::refusal::Refusal;
use metadata::state::State;
use metadata::store::{self, Kv};
use model::id::{QueueId, Seq, StreamId};
use parking_lot::Mutex;
use queue::settings::{Overflow, Settings, Style};
use tokio::sync::watch;

use crate::exchange_counts::ExchangeCounts;
use crate::router::Router;
use crate::shard::command::{Batch, Command as ShardCommand};
use crate::shard::profile::{DeadLetterTarget, Profile};
use crate::shards::Shards;
use crate::totals::{Counters, Totals};

/// The stream of metadata commands.
pub(crate) const STREAM: StreamId = StreamId(1);
/// After so many commands the store is flushed, and the journal forgets them.
const COMMANDS_PER_FLUSH: u64 = 4096;

/// See the module head.
pub(crate) struct Topology {
    inner: Mutex<Inner>,
    router: Arc<Router>,
    journal: Arc<Journal>,
    shards: Arc<Shards>,
    kv: Arc<dyn Kv>,
    durable: watch::Receiver<Lsn>,
    totals: Arc<Totals>,
    exchange_counts: Arc<ExchangeCounts>,
    consumer_timeout: Option<model::time::Millis>,
}

struct Inner {
    state: State,
    applied: u64,
    /// Up to here the journal has been told to forget.
    flushed: u64,
    /// A write to the store has failed. What comes after must not be written without it, or the
    /// store would name a position whose commands it lacks; the next flush writes the whole.
    behind: bool,
}

impl std::fmt::Debug for Topology {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Topology").finish_non_exhaustive()
    }
}

/// What the parts of the node that it needs are.
pub(crate) struct Parts {
    pub(crate) router: Arc<Router>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) shards: Arc<Shards>,
    pub(crate) kv: Arc<dyn Kv>,
    pub(crate) durable: watch::Receiver<Lsn>,
    pub(crate) totals: Arc<Totals>,
    pub(crate) exchange_counts: Arc<ExchangeCounts>,
    /// For queues and consumers that say nothing themselves.
    pub(crate) consumer_timeout: Option<model::time::Millis>,
}

impl Topology {
    /// The topology as recovered: `applied` commands are in `state`, `flushed` of them in the
    /// store for good.
    pub(crate) fn new(parts: Parts, state: State, applied: u64, flushed: u64) -> Self {
        let Parts {
            router,
            journal,
            shards,
            kv,
            durable,
            totals,
            exchange_counts,
            consumer_timeout,
        } = parts;
        let inner = Mutex::new(Inner { state, applied, flushed, behind: false });
        Self {
            inner,
            router,
            journal,
            shards,
            kv,
            durable,
            totals,
            exchange_counts,
            consumer_timeout,
        }
    }

    /// Applies a command. When it returns, the change is in force and, if it is about something
    /// durable, on the disk.
    ///
    /// If the future is dropped the change still happens.
    ///
    /// # Errors
    /// The machine's refusal; nothing has changed.
    pub(crate) async fn submit(&self, command: Command) -> Result<Outcome, Refusal> {
        let (outcome, lsn) = self.apply(command)?;
        if let Some(lsn) = lsn {
            self.durable(lsn).await;
        }
        Ok(outcome)
    }

    /// Resolves when the journal has synced `lsn`, or is gone with the node.
    pub(crate) async fn durable(&self, lsn: Lsn) {
        drop(self.durable.clone().wait_for(|durable| *durable >= lsn).await);
    }

    /// Applies a command. It is in force when this returns; if there is an [`Lsn`], nobody may be
    /// told before [`Topology::durable`] of it.
    ///
    /// # Errors
    /// The machine's refusal; nothing has changed.
    pub(crate) fn apply(&self, command: Command) -> Result<(Outcome, Option<Lsn>), Refusal> {
        let encoded = command.encode();
        let mut inner = self.inner.lock();
        let durable = needs_sync(&inner.state, &command);
        // A panic in the machine ends one connection; what others go on with must be whole.
        let mut changed = inner.state.clone();
        let outcome = changed.apply(command)?;
        inner.state = changed;
        inner.applied += 1;
        let put = Op::Put {
            stream: STREAM,
            seq: Seq(inner.applied),
            head: Head::default(),
            payload: Payload::Bytes(encoded),
        };
        let lsn = self.journal.submit(vec![put]);
        if !inner.behind
            && let Err(error) = store::save(&*self.kv, &outcome, inner.applied)
        {
            // The journal has the command; what the store lacks is replayed at the next start.
            inner.behind = true;
            tracing::error!(%error, "cannot write the metadata store");
        }
        if inner.applied - inner.flushed >= COMMANDS_PER_FLUSH {
            self.flush(&mut inner);
        }
        // First the shards: who sees a new queue in the snapshot may post to it at once.
        self.act(&inner.state, &outcome);
        self.router.publish(inner.state.clone());
        for exchange in &outcome.exchanges_deleted {
            self.exchange_counts.forget(&exchange.vhost, &exchange.name);
        }
        Ok((outcome, durable.then_some(lsn)))
    }

    /// Brings the store to the disk and lets the journal forget what is in it.
    fn flush(&self, inner: &mut Inner) {
        let caught_up = if inner.behind {
            store::save_all(&*self.kv, &inner.state, inner.applied)
        } else {
            Ok(())
        };
        match caught_up.and_then(|()| self.kv.flush()) {
            Ok(()) => {
                inner.behind = false;
                let release =
                    Op::Release { stream: STREAM, first: Seq(1), last: Seq(inner.applied) };
                self.journal.submit(vec![release]);
                inner.flushed = inner.applied;
            }
            Err(error) => tracing::error!(%error, "cannot flush the metadata store"),
        }
    }

    /// The same before the node stops.
    pub(crate) fn flush_all(&self) {
        self.flush(&mut self.inner.lock());
    }

    /// Tells the shards what has changed.
    fn act(&self, state: &State, outcome: &Outcome) {
        let mut counted = Counters::default();
        for queue in &outcome.queues_created {
            counted.queues_created += 1;
            self.post(queue.id, ShardCommand::Create(Box::new(self.profile(state, queue))));
        }
        for queue in &outcome.queues_deleted {
            counted.queues_deleted += 1;
            let (answer, _) = tokio::sync::oneshot::channel();
            let delete =
                ShardCommand::Delete { queue: queue.id, if_unused: false, if_empty: false, answer };
            self.post(queue.id, delete);
        }
        for id in &outcome.queues_changed {
            if let Some(queue) = state.queue_by_id(*id) {
                let profile = Box::new(self.profile(state, queue));
                self.post(*id, ShardCommand::Configure(profile));
            }
        }
        self.totals.add(&mut counted);
    }

    fn post(&self, queue: QueueId, command: ShardCommand) {
        self.shards.post(queue, Batch::one(command));
    }

    /// What its shard needs to know of a queue.
    pub(crate) fn profile(&self, state: &State, queue: &Queue) -> Profile {
        let effective = state.effective_queue(queue);
        let dead_letter = effective.dead_letter_exchange.map(|exchange| DeadLetterTarget {
            exchange,
            routing_key: effective.dead_letter_routing_key,
        });
        Profile {
            id: queue.id,
            vhost: Arc::clone(&queue.vhost),
            name: Arc::clone(&queue.name),
            durable: queue.durable,
            settings: Settings {
                max_length: effective.max_length,
                max_length_bytes: effective.max_bytes,
                overflow: match effective.overflow {
                    metadata::effective::Overflow::DropHead => Overflow::DropHead,
                    metadata::effective::Overflow::RejectPublish => Overflow::RejectPublish,
                    metadata::effective::Overflow::RejectPublishDlx => Overflow::RejectPublishDlx,
                },
                message_ttl: effective.ttl,
                expires: effective.expires,
                dead_letter: dead_letter.is_some(),
                delivery_limit: effective
                    .delivery_limit
                    .map(|limit| u32::try_from(limit).unwrap_or(u32::MAX)),
                max_priority: effective.max_priority,
                single_active_consumer: effective.single_active_consumer,
                consumer_timeout: effective.consumer_timeout.or(self.consumer_timeout),
                auto_delete: queue.auto_delete,
                ..Settings::new(Style::Classic)
            },
            dead_letter,
            home: model::id::NodeId(0),
            quorum: None,
        }
    }
}

/// Whether a client may expect that the change outlives a power cut.
fn needs_sync(state: &State, command: &Command) -> bool {
    match command {
        Command::DeclareQueue(declare) => declare.durable && declare.exclusive_owner.is_none(),
        Command::DeclareExchange(declare) => declare.durable,
        Command::DeleteQueue { vhost, name, .. } => {
            state.queue(vhost, name).is_some_and(|queue| queue.durable)
        }
        Command::DeleteExchange { vhost, name, .. } => {
            state.exchange(vhost, name).is_some_and(|exchange| exchange.durable)
        }
        Command::Bind(binding) | Command::Unbind(binding) => is_durable(state, binding),
        Command::DeleteExclusiveQueues { .. } | Command::Restarted => false,
        _ => true,
    }
}

fn is_durable(state: &State, binding: &Binding) -> bool {
    let from = state.exchange(&binding.vhost, &binding.source).is_some_and(|source| source.durable);
    from && match &binding.destination {
        Destination::Queue(name) => {
            state.queue(&binding.vhost, name).is_some_and(|queue| queue.durable)
        }
        Destination::Exchange(name) => {
            state.exchange(&binding.vhost, name).is_some_and(|exchange| exchange.durable)
        }
    }
}
