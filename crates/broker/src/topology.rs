//! The owner of the metadata machine on this node.
//!
//! ```text
//!  alone    command ─► State::apply ─► journal (stream 1) ─► store ─► shards ─► snapshot
//!                      └────────── one at a time, under one lock ──────────┘   then: wait for the sync
//!  cluster  command ─► proposer ─► log of the metadata group ─► State::apply ─► shards ─► snapshot
//! ```
//!
//! In a cluster the state is what the last checkpoint of the group and the log after it come to; the
//! store is not used then. A node on its own: every accepted command is a record of the journal, in
//! the order in which it was applied, so that a replay gives every queue the id that it had. Who
//! waits for the sync is decided by what the command is about: a transient queue needs none. RocksDB
//! is written without sync; what it has flushed, the journal may forget.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use journal::journal::Journal;
use journal::op::{Class, Head, Lsn, Op, Payload};
use metadata::command::Command;
use metadata::leases::Leases;
use metadata::objects::Name;
use metadata::objects::binding::{Binding, Destination};
use metadata::objects::queue::{Queue, QueueKind};
use metadata::outcome::Outcome;
use metadata::placement;
use metadata::refusal::Refusal;
use metadata::state::State;
use metadata::store::{self, Kv, dump};
use model::id::{NodeId, QueueId, Seq, StreamId};
use model::time::Millis;
use parking_lot::Mutex;
use queue::settings::{DelayedRetry, Overflow, Retried, Settings, Style};
use quorum::member::Committed;
use tokio::sync::{mpsc, watch};

use crate::cluster::proposal::Proposal;
use crate::cluster::proposer::{Answer, Proposer};
use crate::exchange_counts::ExchangeCounts;
use crate::pair::clock;
use crate::pair::registry::{self, Pairs};
use crate::replicated::numbered::{Ledger, Sender, Verdict};
use crate::router::Router;
use crate::shard::command::{Batch, Command as ShardCommand};
use crate::shard::profile::{DeadLetterTarget, Profile, Seat};
use crate::shards::Shards;
use crate::totals::{Counters, Totals};

/// The stream of metadata commands.
pub(crate) const STREAM: StreamId = StreamId(1);
/// After so many commands the store is flushed, and the journal forgets them.
const COMMANDS_PER_FLUSH: u64 = 4096;
/// The version of checkpoints of the metadata group.
const CHECKPOINT: u8 = 1;

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
    consumer_timeout: Option<Millis>,
    pairs: Arc<Pairs>,
    place: Place,
}

/// Where this node stands among others.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// This start of this node.
    pub(crate) me: Sender,
    /// Members of a quorum queue that does not say how many it wants.
    pub(crate) group_size: u64,
    /// The way into the group's log; `None`: the node is on its own.
    pub(crate) proposer: Option<Arc<Proposer>>,
    /// Where it is told whose connections have to be closed, in a cluster.
    pub(crate) gone: mpsc::UnboundedSender<Gone>,
}

/// Something whose connections have to be closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Gone {
    Vhost(Name),
    User(Name),
}

/// What became of a command that stood in the group's log.
#[derive(Debug)]
pub(crate) enum Fate {
    /// It was carried out or refused, at this index.
    Done { sender: Sender, number: u64, index: u64, answer: Box<Answer> },
    /// The log lacks this number of the sender, and what follows it was left out.
    Missing { sender: Sender, number: u64 },
}

struct Inner {
    state: State,
    /// Commands of the journal, or the index in the group's log.
    applied: u64,
    /// Numbers of commands in the group's log.
    ledger: Ledger,
    /// The node is starting: shards get what there is from the state, not change by change.
    starting: bool,
    /// Up to here the journal has been told to forget.
    flushed: u64,
    /// A write to the store has failed. What comes after must not be written without it, or the
    /// store would name a position whose commands it lacks; the next flush writes the whole.
    behind: bool,
    /// Of locks, counted while this node leads the metadata group.
    leases: Leases,
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
    pub(crate) consumer_timeout: Option<Millis>,
    /// Journals that are on this node.
    pub(crate) pairs: Arc<Pairs>,
    pub(crate) place: Place,
}

impl Topology {
    /// The topology as recovered: `applied` commands are in `state`, `flushed` of them in the
    /// store for good. Shards hear of nothing before [`Topology::begin`].
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
            pairs,
            place,
        } = parts;
        let inner = Mutex::new(Inner {
            state,
            applied,
            ledger: Ledger::default(),
            starting: true,
            flushed,
            behind: false,
            leases: Leases::new(),
        });
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
            pairs,
            place,
        }
    }

    /// Shows the state in a moment in which nothing changes, and the shards have heard of everything
    /// that is in it.
    pub(crate) fn enroll<T>(&self, look: impl FnOnce(&Self, &State) -> T) -> T {
        let inner = self.inner.lock();
        look(self, &inner.state)
    }

    /// This node leads the metadata group from now on, or does not any more: then it does not count
    /// the leases of locks.
    pub(crate) fn counts_leases(&self, leads: bool) {
        let mut inner = self.inner.lock();
        if leads {
            inner.leases.lead(clock::now());
        } else {
            inner.leases.follow();
        }
    }

    /// Proposes the end of the grants whose leases are over, if this node counts them. Gives how long
    /// it is until the next one may be; `None`: nobody has a lock, or another node counts.
    pub(crate) fn end_leases(&self) -> Option<Duration> {
        let (over, next) = {
            let inner = self.inner.lock();
            let now = clock::now();
            let until = |end: Millis| Duration::from_millis(end.0.saturating_sub(now.0));
            let next = inner.leases.deadline(&inner.state).map(until);
            (inner.leases.over(&inner.state, now), next)
        };
        for expire in over {
            self.order(Command::Coordinate(expire));
        }
        next
    }

    /// The snapshot of now.
    pub(crate) fn state(&self) -> Arc<State> {
        self.router.state()
    }

    /// This node.
    pub(crate) fn me(&self) -> NodeId {
        self.place.me.node
    }

    /// What the shards have to begin with. From now on they are told of every change.
    pub(crate) fn begin(&self) -> State {
        let mut inner = self.inner.lock();
        inner.starting = false;
        inner.state.clone()
    }

    /// Waits until changes can be made, as far as this node knows; `false`: that is not soon.
    pub(crate) async fn ready(&self) -> bool {
        match &self.place.proposer {
            Some(proposer) => proposer.ready().await,
            None => true,
        }
    }

    /// Makes a change. When it returns, the change is in force and, if it is about something
    /// durable, on the disk: of this node, or of a majority.
    ///
    /// If the future is dropped the change still happens.
    ///
    /// # Errors
    /// The machine's refusal; nothing has changed. In a cluster also that no majority can be
    /// reached; then the change may still happen if it was under way.
    pub(crate) async fn submit(&self, command: Command) -> Result<Outcome, Refusal> {
        let (outcome, lsn) = self.change(command).await?;
        if let Some(lsn) = lsn {
            self.durable(lsn).await;
        }
        Ok(outcome)
    }

    /// Resolves when the journal has synced `lsn`, or is gone with the node.
    pub(crate) async fn durable(&self, lsn: Lsn) {
        drop(self.durable.clone().wait_for(|durable| *durable >= lsn).await);
    }

    /// Makes a change. It is in force when this returns; if there is an [`Lsn`], nobody may be told
    /// before [`Topology::durable`] of it.
    ///
    /// # Errors
    /// Those of [`Topology::submit`].
    pub(crate) async fn change(&self, command: Command) -> Result<(Outcome, Option<Lsn>), Refusal> {
        let command = self.placed(command);
        let Some(proposer) = &self.place.proposer else { return self.apply(command) };
        let outcome = proposer.submit(command.encode(), is_lasting(&command)).await?;
        Ok((outcome, None))
    }

    /// Makes a change that nobody waits for.
    pub(crate) fn order(&self, command: Command) {
        match &self.place.proposer {
            Some(proposer) => proposer.order(command.encode()),
            None => {
                if let Err(refusal) = self.apply(command) {
                    tracing::error!(%refusal, "cannot change the topology");
                }
            }
        }
    }

    /// Says where a queue that is declared here shall be.
    fn placed(&self, mut command: Command) -> Command {
        if let Command::DeclareQueue(declare) = &mut command {
            let Place { me: Sender { node: me, .. }, group_size, proposer, .. } = &self.place;
            let state = self.router.state();
            if state.kind_of_new_queue(declare) == QueueKind::Quorum {
                let (vhost, name) = (&declare.vhost, &declare.name);
                let here = |node: NodeId| {
                    node == *me || proposer.as_ref().is_some_and(|it| it.is_connected(node))
                };
                let arguments = &declare.arguments;
                let members =
                    placement::members(&state, *me, vhost, name, arguments, *group_size, here);
                declare.members = members;
                declare.away =
                    declare.members.iter().copied().filter(|node| !here(*node)).collect();
            }
            if proposer.is_some() {
                declare.home = *me;
            }
        }
        command
    }

    /// Applies a command of a node on its own.
    fn apply(&self, command: Command) -> Result<(Outcome, Option<Lsn>), Refusal> {
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
            class: Class::Vital,
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
        self.act(&inner.state, &outcome, true);
        self.router.publish(inner.state.clone());
        self.pairs.tell_changes();
        self.tell_gone(&inner.state, &outcome);
        Ok((outcome, durable.then_some(lsn)))
    }

    /// Applies entries of the group's log.
    ///
    /// # Errors
    /// An entry is not what this version writes: to go on without it would make this node differ
    /// from the others.
    pub(crate) fn commit(&self, entries: &[Committed]) -> Result<Vec<Fate>, String> {
        let mut fates = Vec::new();
        let mut inner = self.inner.lock();
        for entry in entries {
            inner.applied = entry.index;
            if entry.payload.is_empty() {
                continue;
            }
            let unreadable = |error: &dyn std::fmt::Display| {
                format!("entry {} of the metadata group cannot be applied: {error}", entry.index)
            };
            let proposal =
                Proposal::decode(entry.payload.clone()).map_err(|error| unreadable(&error))?;
            let Proposal { sender, first, commands } = proposal;
            for (number, bytes) in (first..).zip(commands) {
                match inner.ledger.take(sender, number) {
                    Verdict::Repeat => continue,
                    Verdict::Gap { expected } => {
                        fates.push(Fate::Missing { sender, number: expected });
                        break;
                    }
                    Verdict::New => {}
                }
                let answer = if bytes.is_empty() {
                    Ok(Outcome::default())
                } else {
                    let command =
                        Command::decode(&bytes).map_err(|error| unreadable(&error.reason))?;
                    self.perform(&mut inner, command)
                };
                let answer = Box::new(answer);
                fates.push(Fate::Done { sender, number, index: entry.index, answer });
            }
        }
        let Inner { state, leases, .. } = &mut *inner;
        leases.applied(state, clock::now());
        // Once for all of them: who waits for an outcome hears it after this.
        self.router.publish(inner.state.clone());
        self.pairs.tell_changes();
        Ok(fates)
    }

    fn perform(&self, inner: &mut Inner, command: Command) -> Answer {
        if let Command::PutNode(put) = &command {
            inner.ledger.forget_before(Sender { node: NodeId(put.id), boot: put.boot });
        }
        let mut changed = inner.state.clone();
        // A defect meets every node alike; none of them may fall because of it.
        let performed = std::panic::catch_unwind(AssertUnwindSafe(|| changed.apply(command)));
        let outcome = performed.unwrap_or_else(|_| {
            Err(Refusal::unavailable("metadata: the change has met a defect of the broker"))
        })?;
        inner.state = changed;
        if !inner.starting {
            self.act(&inner.state, &outcome, true);
            self.tell_gone(&inner.state, &outcome);
        }
        Ok(outcome)
    }

    fn tell_gone(&self, state: &State, outcome: &Outcome) {
        let user = outcome.user_changed.iter().filter(|user| state.user(user).is_none());
        let gone = user.map(|user| Gone::User(Name::clone(user)));
        for gone in
            gone.chain(outcome.vhost_deleted.iter().map(|vhost| Gone::Vhost(Name::clone(vhost))))
        {
            // Nobody listens any more when the node stops.
            drop(self.place.gone.send(gone));
        }
    }

    /// How many commands of the journal, or entries of the group's log, are in the state.
    #[cfg(test)]
    pub(crate) fn applied(&self) -> u64 {
        self.inner.lock().applied
    }

    /// The state after everything that was committed, for the group's checkpoint.
    pub(crate) fn checkpoint(&self) -> Bytes {
        let inner = self.inner.lock();
        let (state, ledger) = (inner.state.clone(), inner.ledger.clone());
        drop(inner);
        let mut out = BytesMut::new();
        out.put_u8(CHECKPOINT);
        let entries = ledger.entries();
        out.put_u32_le(u32::try_from(entries.len()).expect("nodes are few"));
        for (sender, last) in entries {
            for number in [sender.node.0, sender.boot, last] {
                out.put_u64_le(number);
            }
        }
        dump::write(&state, &mut out);
        out.freeze()
    }

    /// Goes on with a checkpoint, of this node or of another one.
    ///
    /// # Errors
    /// It is not what this version writes.
    pub(crate) fn install(&self, index: u64, mut checkpoint: Bytes) -> Result<Ledger, String> {
        let cut = |_| "a checkpoint of the metadata group is cut off".to_owned();
        match checkpoint.try_get_u8().map_err(cut)? {
            CHECKPOINT => {}
            other => {
                return Err(format!(
                    "a checkpoint of version {other}; this node knows {CHECKPOINT}"
                ));
            }
        }
        let mut entries = Vec::new();
        for _ in 0..checkpoint.try_get_u32_le().map_err(cut)? {
            let mut number = || checkpoint.try_get_u64_le().map_err(cut);
            let sender = Sender { node: NodeId(number()?), boot: number()? };
            entries.push((sender, number()?));
        }
        let ledger = Ledger::restore(entries);
        let state = dump::read(&checkpoint).map_err(|failure| failure.reason)?;
        let mut inner = self.inner.lock();
        let outcome = difference(&inner.state, &state);
        (inner.state, inner.ledger, inner.applied) = (state, ledger.clone(), index);
        {
            let Inner { state, leases, .. } = &mut *inner;
            leases.applied(state, clock::now());
        }
        if !inner.starting {
            self.act(&inner.state, &outcome, false);
        }
        self.router.publish(inner.state.clone());
        self.pairs.tell_changes();
        Ok(ledger)
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
        if self.place.proposer.is_none() {
            self.flush(&mut self.inner.lock());
        }
    }

    /// Tells the shards what has changed; `now`: by a command that is applied in this moment, and not
    /// by all that a checkpoint comes to.
    fn act(&self, state: &State, outcome: &Outcome, now: bool) {
        let mut counted = Counters::default();
        for queue in &outcome.queues_created {
            counted.queues_created += 1;
            let mut profile = Box::new(self.profile(state, queue));
            profile.led_by = profile
                .founders()
                .first()
                .filter(|_| now)
                .and_then(|first| self.start_of(state, *first));
            if let Some(seat) = &profile.journal {
                self.pairs.post(seat.journal, || ShardCommand::Keep(profile.clone()));
            }
            self.post(queue.id, ShardCommand::Create(profile));
        }
        for queue in &outcome.queues_deleted {
            counted.queues_deleted += 1;
            let delete = || {
                let (answer, _) = tokio::sync::oneshot::channel();
                let (if_unused, if_empty) = (false, false);
                ShardCommand::Delete { queue: queue.id, if_unused, if_empty, answer }
            };
            if let Some(seat) = seat_of(state, queue) {
                self.pairs.post(seat.journal, delete);
            }
            if self.is_of_cluster(queue) {
                self.post(queue.id, ShardCommand::Remove { queue: queue.id });
                continue;
            }
            self.post(queue.id, delete());
        }
        for id in &outcome.queues_changed {
            if let Some(queue) = state.queue_by_id(*id) {
                let profile = Box::new(self.profile(state, queue));
                if let Some(seat) = &profile.journal {
                    self.pairs.post(seat.journal, || ShardCommand::Configure(profile.clone()));
                }
                self.post(*id, ShardCommand::Configure(profile));
            }
        }
        self.totals.add(&mut counted);
        if !outcome.journals_changed.is_empty() {
            self.pairs.mark_changed();
        }
        let declared = !outcome.queues_created.is_empty()
            || !outcome.queues_deleted.is_empty()
            || !outcome.bindings_created.is_empty()
            || !outcome.bindings_deleted.is_empty();
        if declared && state.journals().next().is_some() {
            self.pairs.mark_redeclared();
        }
        for exchange in &outcome.exchanges_deleted {
            self.exchange_counts.forget(&exchange.vhost, &exchange.name);
        }
    }

    /// Which start of a node the topology knows last. If that still runs, it has never met a command
    /// before that is applied now.
    fn start_of(&self, state: &State, node: NodeId) -> Option<Sender> {
        match &self.place.proposer {
            Some(_) => state.node(node).map(|known| Sender { node, boot: known.boot }),
            None => (node == self.place.me.node).then_some(self.place.me),
        }
    }

    fn post(&self, queue: QueueId, command: ShardCommand) {
        self.shards.post(queue, Batch::one(command));
    }

    /// Whether this node reaches a queue through the cluster: it is replicated, or kept elsewhere.
    pub(crate) fn is_of_cluster(&self, queue: &Queue) -> bool {
        queue.kind == QueueKind::Quorum
            || queue.journal.is_some()
            || (queue.home != NodeId(0) && queue.home != self.place.me.node)
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
            home: queue.home,
            journal: seat_of(state, queue),
            quorum: (queue.kind == QueueKind::Quorum).then(|| queue.members.clone()),
            led_by: None,
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
                // A copy of its journal must have what is still on its way.
                keeps_dead: effective.dead_letters_at_least_once
                    || (queue.kind == QueueKind::Classic && queue.journal.is_some()),
                delivery_limit: effective
                    .delivery_limit
                    .map(|limit| u32::try_from(limit).unwrap_or(u32::MAX)),
                delayed_retry: effective.delayed_retry.map(delayed_retry),
                max_priority: effective.max_priority,
                single_active_consumer: effective.single_active_consumer,
                consumer_timeout: effective.consumer_timeout.or(self.consumer_timeout),
                auto_delete: queue.auto_delete,
                ..Settings::new(match queue.kind {
                    QueueKind::Classic => Style::Classic,
                    QueueKind::Quorum => Style::Quorum,
                })
            },
            dead_letter,
        }
    }
}

/// The journal of a queue, and who serves it.
fn seat_of(state: &State, queue: &Queue) -> Option<Seat> {
    let journal = state.journal(queue.journal.as_deref()?)?;
    let served =
        journal.served.map(|served| Sender { node: NodeId(served.node), boot: served.boot });
    Some(Seat { journal: registry::uid(&journal.uid)?, served, term: journal.term })
}

fn delayed_retry(retry: metadata::effective::DelayedRetry) -> DelayedRetry {
    let which = match retry.which {
        metadata::effective::Retried::Failed => Retried::Failed,
        metadata::effective::Retried::Returned => Retried::Returned,
        metadata::effective::Retried::All => Retried::All,
    };
    DelayedRetry { which, min: retry.min, max: retry.max }
}

/// Whether a change must happen even if it is late: the queues' shards have done their part, or
/// nobody is left who could ask again.
fn is_lasting(command: &Command) -> bool {
    matches!(
        command,
        Command::DeleteQueue { id: Some(_), .. } | Command::DeleteExclusiveQueues { .. }
    )
}

/// What shards have to hear when one state takes the place of another.
fn difference(before: &State, after: &State) -> Outcome {
    let known: BTreeSet<QueueId> = before.all_queues().map(|queue| queue.id).collect();
    let mut outcome = Outcome::default();
    for queue in after.all_queues() {
        if known.contains(&queue.id) {
            outcome.queues_changed.push(queue.id);
        } else {
            outcome.queues_created.push(Arc::clone(queue));
        }
    }
    let gone = before.all_queues().filter(|queue| after.queue_by_id(queue.id).is_none());
    outcome.queues_deleted.extend(gone.map(Arc::clone));
    outcome.journals_changed.extend(after.journals().map(|journal| Name::clone(&journal.name)));
    outcome
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
