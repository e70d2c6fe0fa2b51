//! A shard: one task that owns some of the node's queues.
//!
//! ```text
//!  inbox ─► [turn]  commands in order ─► deadlines ─► one batch for the journal ─► confirms that
//!                   are due ─► outboxes
//! ```
//!
//! A turn takes everything that waits, so that under load its costs (a lock, a wake-up, a journal
//! batch, a mailbox post for each connection) are shared by many messages. It never waits inside.

pub(crate) mod command;
pub(crate) mod profile;
pub(crate) mod view;

pub(crate) mod slot;

pub(crate) mod bodies;
pub(crate) mod confirms;
pub(crate) mod desk;
pub(crate) mod ground;
pub(crate) mod outboxes;
pub(crate) mod spilled;
pub(crate) mod visitors;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use amqp::request::Event;
use journal::op::Lsn;
use model::id::{ConnectionId, NodeId, QueueId, Seq};
use model::time::Timestamp;
use tokio::sync::oneshot;

use crate::pair::backfill::Survey;
use crate::replicated::order::Order;
use crate::replicated::queue::ClusterQueue;
use crate::replicated::replica::peek::Unseen;
use crate::shard::command::{Batch, Command, Consumed, Counts, Deleted, Done, Got, Surveyed};
use crate::shard::confirms::{Confirms, Owed};
use crate::shard::desk::Desk;
use crate::shard::profile::Profile;
use crate::shard::slot::Slot;
use crate::shard::slot::subscriptions::Ending;
use crate::shard::view::ShardView;
use crate::shard::visitors::Visitors;
use crate::totals::Totals;

/// The time, for stamping.
pub(crate) fn now() -> Timestamp {
    #[cfg(test)]
    if let Some(now) = crate::pair::sim::time() {
        return Timestamp(now.0);
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct Shard {
    slots: HashMap<QueueId, Box<Slot>>,
    /// Deleted queues whose dead messages are not all where they go yet.
    leaving: HashMap<QueueId, Box<Slot>>,
    cluster: HashMap<QueueId, Box<ClusterQueue>>,
    desk: Desk,
    deadlines: BTreeSet<(Timestamp, QueueId)>,
    touched: Vec<QueueId>,
    /// Those of `cluster` that this turn has touched.
    busy: Vec<QueueId>,
    /// Batches of this turn.
    owed: Vec<(Owed, bool)>,
    confirms: Confirms,
    durable: Lsn,
    /// Bodies were read back in this turn.
    read: bool,
    totals: Arc<Totals>,
    visitors: Visitors,
    /// It has the queues of a journal that may move: what it does not know it does not answer for.
    of_journal: bool,
    /// Looks that wait for the end of the turn.
    surveys: Vec<(QueueId, Seq, usize, Surveyed)>,
    stopping: Option<oneshot::Sender<Vec<(QueueId, Seq)>>>,
}

impl Shard {
    /// A shard with the queues that were restored.
    pub(crate) fn new(desk: Desk, totals: Arc<Totals>, restored: Vec<Slot>) -> Self {
        let touched = restored.iter().map(|slot| slot.profile.id).collect();
        let slots = restored.into_iter().map(|slot| (slot.profile.id, Box::new(slot))).collect();
        Self {
            slots,
            leaving: HashMap::new(),
            cluster: HashMap::new(),
            desk,
            deadlines: BTreeSet::new(),
            touched,
            busy: Vec::new(),
            owed: Vec::new(),
            confirms: Confirms::default(),
            durable: Lsn::default(),
            read: false,
            totals,
            visitors: Visitors::default(),
            of_journal: false,
            surveys: Vec::new(),
            stopping: None,
        }
    }

    /// The shard of a journal that is served here.
    pub(crate) fn of_journal(desk: Desk, totals: Arc<Totals>, restored: Vec<Slot>) -> Self {
        Self { of_journal: true, ..Self::new(desk, totals, restored) }
    }

    /// Turns until it is told to stop.
    pub(crate) async fn run(mut self) {
        let mut batches = Vec::new();
        let inbox = Arc::clone(&self.desk.inbox);
        loop {
            inbox.take(&mut batches);
            self.turn(&mut batches);
            if let Some(answer) = self.stopping.take() {
                let handed_out = self.slots.values().filter_map(|slot| slot.handed_out()).collect();
                inbox.close();
                command::answer(answer, handed_out);
                return;
            }
            // Keeps a busy shard from holding the thread on which a connection waits.
            tokio::task::consume_budget().await;
            match self.deadlines.first() {
                None => inbox.woken().await,
                Some((deadline, _)) => {
                    let wait =
                        Duration::from_millis(deadline.0.saturating_sub(self.desk.journal.now().0));
                    // Whichever comes first; the turn looks at both.
                    drop(tokio::time::timeout(wait, inbox.woken()).await);
                }
            }
        }
    }

    fn turn(&mut self, batches: &mut Vec<Batch>) {
        self.desk.now = self.desk.journal.now();
        for batch in batches.drain(..) {
            self.perform(batch);
        }
        self.tick();
        self.hand_over_cluster();
        self.hand_over();
        for (queue, from, most, then) in std::mem::take(&mut self.surveys) {
            let gone = || Survey { records: Vec::new(), reached: Seq(from.0 - 1), ends: true };
            (then.0)(self.slots.get(&queue).map_or_else(gone, |slot| slot.survey(from, most)));
        }
        self.pay();
        self.desk.outboxes.flush();
        self.totals.add(&mut self.desk.counted);
    }

    fn perform(&mut self, batch: Batch) {
        let Batch { origin, bytes, commands } = batch;
        let mut owed = Owed { origin, bytes, ..Owed::default() };
        let mut needs_disk = false;
        let mut now_events = Vec::new();
        for command in commands {
            match command {
                Command::Publish(arrival) if self.cluster.contains_key(&arrival.queue) => {
                    let weight = if bytes > 0 { arrival.weight() } else { 0 };
                    owed.bytes -= weight;
                    let from = owed.origin.as_ref();
                    if let Some(queue) = busy(&mut self.cluster, &mut self.busy, arrival.queue) {
                        queue.publish(self.desk.now, from, weight, arrival);
                    }
                }
                Command::Publish(arrival) => {
                    let (accepted, durable) = match self.slots.get_mut(&arrival.queue) {
                        Some(slot) => {
                            touch(&mut self.touched, slot);
                            slot.publish(&mut self.desk, &arrival)
                        }
                        // Deleted meanwhile: as if it had been deleted just after.
                        None => (true, false),
                    };
                    match (arrival.done, accepted) {
                        (Done::Nothing, _) => {}
                        (Done::Confirm { channel, number }, true) => {
                            owed.confirms.push((channel, number));
                        }
                        (Done::Confirm { channel, number }, false) => {
                            now_events.push(Event::Confirmed { channel, number, accepted: false });
                        }
                        (Done::Group(group), true) => owed.groups.push(group),
                        (Done::Group(group), false) => group.answer(false),
                    }
                    needs_disk |= durable;
                }
                other => self.route(other),
            }
        }
        if let Some(origin) = &owed.origin
            && !now_events.is_empty()
        {
            origin.outlet.post(&mut now_events);
        }
        if owed.bytes > 0 || !owed.confirms.is_empty() || !owed.groups.is_empty() {
            self.owed.push((owed, needs_disk));
        }
    }

    /// To a queue that is reached through the cluster, if that is what it is for.
    fn route(&mut self, command: Command) {
        let queue = command.queue().filter(|queue| self.cluster.contains_key(queue));
        match queue {
            Some(queue) => self.cluster_command(queue, command),
            None => self.command(command),
        }
    }

    fn cluster_command(&mut self, id: QueueId, command: Command) {
        let Some(queue) = busy(&mut self.cluster, &mut self.busy, id) else { return };
        let desk = &mut self.desk;
        let now = desk.now;
        match command {
            Command::Settle { unsettled, outcome, .. } => queue.settle(now, &unsettled, outcome),
            Command::Sent { consumer, messages, bytes, .. } => {
                queue.cast(now, Order::Sent { consumer, messages, bytes });
            }
            Command::Limit { consumer, .. } => queue.cast(now, Order::Limit { consumer }),
            Command::Grant { consumer, count, .. } => {
                queue.cast(now, Order::Grant { consumer, count });
            }
            Command::End { consumer, .. } => queue.cast(now, Order::End { consumer }),
            Command::Gone { consumer, .. } => queue.gone(desk, consumer),
            Command::Consume(consume) => queue.consume(desk, *consume),
            Command::Cancel { consumer, answer, .. } => queue.cancel(now, consumer, answer),
            Command::Revoke { consumer, .. } => queue.revoke(desk, consumer),
            Command::Get { connection, no_ack, answer, .. } => {
                queue.get(now, connection, no_ack, answer);
            }
            Command::Purge { answer, .. } => queue.purge(now, answer),
            Command::Configure(profile) => queue.configure(desk, *profile),
            Command::Delete { if_unused, if_empty, answer, .. } => {
                queue.delete(now, if_unused, if_empty, answer);
            }
            Command::Remove { .. } => {
                if let Some(gone) = self.cluster.remove(&id) {
                    if let Some(deadline) = gone.deadline {
                        self.deadlines.remove(&(deadline, id));
                    }
                    gone.end(&mut self.desk);
                }
                self.desk.fabric.forget(id);
                self.busy.retain(|busy| *busy != id);
            }
            Command::Count { answer, .. } => queue.count(now, answer),
            Command::Bodies { stream, bodies, carry, .. } => {
                queue.on_bodies(desk, stream, bodies, carry);
            }
            Command::Lend { to, seqs, .. } => queue.lend(desk, to, seqs),
            Command::Lent { from, bodies, .. } => queue.lent(desk, from, bodies),
            Command::Raft { stream, input, .. } => {
                if let Some(leader) = queue.input(desk, stream, input) {
                    desk.fabric.announce(id, leader);
                }
            }
            Command::Orders { batch, .. } => queue.orders(desk, batch),
            Command::Notice(notice) => queue.notice(desk, *notice),
            Command::Leads { leader, .. } => queue.leads(now, leader),
            Command::DeadLettered { seq, accepted, .. } => queue.dead_lettered(desk, seq, accepted),
            Command::View { answer, .. } => command::answer(answer, Some(queue.view())),
            Command::Peek { peek, .. } => queue.peek(desk, peek),
            Command::Touch { .. } => queue.touch(now),
            Command::Publish(_)
            | Command::Keep(_)
            | Command::Survey { .. }
            | Command::Create(_)
            | Command::Open(_)
            | Command::Read { .. }
            | Command::ViewAll { .. }
            | Command::ConnectionGone { .. }
            | Command::Up { .. }
            | Command::Lost { .. }
            | Command::LostForLong { .. }
            | Command::Stop { .. } => {}
        }
    }

    /// Something happens to every queue that is reached through the cluster.
    fn all_cluster(&mut self, work: impl Fn(&mut ClusterQueue, &mut Desk)) {
        let mut queues: Vec<QueueId> = self.cluster.keys().copied().collect();
        queues.sort_unstable();
        for id in queues {
            if let Some(queue) = busy(&mut self.cluster, &mut self.busy, id) {
                work(queue, &mut self.desk);
            }
        }
    }

    fn open_cluster(&mut self, profile: Profile) {
        let id = profile.id;
        let queue = ClusterQueue::open(profile, &self.desk, self.desk.now);
        self.cluster.insert(id, Box::new(queue));
        busy(&mut self.cluster, &mut self.busy, id);
    }

    fn lost(&mut self, node: NodeId) {
        self.all_cluster(|queue, desk| queue.lost(desk, node));
        self.visitors_lost(node);
    }

    fn command(&mut self, command: Command) {
        match command {
            // Handled by the caller, who collects what is owed for it.
            Command::Publish(_) => {}
            Command::Settle { queue, unsettled, outcome } => {
                self.with(queue, |slot, desk| slot.settle(desk, &unsettled, outcome));
            }
            Command::Sent { queue, consumer, messages, bytes } => {
                self.with(queue, |slot, desk| slot.sent(desk, consumer, messages, bytes));
            }
            Command::Limit { queue, consumer } => {
                self.with(queue, |slot, desk| slot.limit(desk, consumer));
            }
            Command::Grant { queue, consumer, count } => {
                self.with(queue, |slot, desk| slot.grant(desk, consumer, count));
            }
            Command::End { queue, consumer } => {
                self.with(queue, |slot, desk| slot.end(desk, consumer));
            }
            Command::Gone { queue, consumer } => {
                self.with(queue, |slot, desk| slot.gone(desk, consumer));
            }
            Command::ConnectionGone { connection } => self.connection_gone(connection),
            Command::Consume(consume) => match self.slots.get_mut(&consume.queue) {
                Some(slot) => {
                    touch(&mut self.touched, slot);
                    slot.consume(&mut self.desk, *consume);
                }
                None => command::answer(consume.answer, Consumed::NoQueue),
            },
            Command::Cancel { queue, consumer, answer } => match self.slots.get_mut(&queue) {
                Some(slot) => {
                    touch(&mut self.touched, slot);
                    slot.cancel(&mut self.desk, consumer, Ending::Asked(answer));
                }
                None => command::answer(answer, false),
            },
            Command::Revoke { queue, consumer } => {
                self.with(queue, |slot, desk| slot.cancel(desk, consumer, Ending::Revoked));
            }
            Command::Get { queue, connection, no_ack, answer } => {
                match self.slots.get_mut(&queue) {
                    Some(slot) => {
                        touch(&mut self.touched, slot);
                        slot.get(&mut self.desk, connection, no_ack, answer);
                    }
                    None => command::answer(answer, Got::NoQueue),
                }
            }
            Command::Purge { queue, answer } => {
                command::answer(answer, self.with(queue, Slot::purge));
            }
            Command::Create(profile) if profile.is_of_cluster(self.desk.fabric.me().node) => {
                self.open_cluster(*profile);
            }
            Command::Open(profile) => self.open_cluster(*profile),
            Command::Create(profile) => {
                let id = profile.id;
                let slot = Box::new(Slot::new(*profile, self.desk.now));
                self.slots.insert(id, slot);
                self.with(id, |_, _| ());
            }
            Command::Keep(profile) => {
                let (id, now) = (profile.id, self.desk.now);
                self.slots.entry(id).or_insert_with(|| Box::new(Slot::new(*profile, now)));
                self.with(id, |_, _| ());
            }
            Command::Survey { queue, from, most, then } => {
                self.surveys.push((queue, from, most, then));
            }
            Command::Configure(profile) => {
                self.with(profile.id, |slot, desk| slot.configure(desk, *profile));
            }
            Command::Delete { queue, if_unused, if_empty, answer } => {
                let deleted = self.with(queue, |slot, desk| slot.delete(desk, if_unused, if_empty));
                if let Some(Deleted::Done(_)) = deleted {
                    if let Some(mut gone) = self.slots.remove(&queue) {
                        if let Some(deadline) = gone.deadline {
                            self.deadlines.remove(&(deadline, queue));
                        }
                        if !gone.leave(&mut self.desk) {
                            self.leaving.insert(queue, gone);
                        }
                    }
                    self.touched.retain(|touched| *touched != queue);
                }
                command::answer(answer, deleted.unwrap_or(Deleted::NoQueue));
            }
            Command::Touch { queue } => {
                self.with(queue, Slot::touch);
            }
            Command::Count { queue, answer } => {
                let counts = self
                    .slots
                    .get(&queue)
                    .map(|slot| Counts { ready: slot.ready(), consumers: slot.consumer_count() });
                command::answer(answer, counts);
            }
            Command::Read { queue, bodies } => {
                self.read = true;
                self.follow_up(queue, |slot, desk| slot.on_read(desk, bodies));
            }
            Command::DeadLettered { queue, seq, .. } => {
                self.follow_up(queue, |slot, desk| slot.on_dead_lettered(desk, seq));
            }
            Command::View { queue, answer } => {
                command::answer(answer, self.slots.get(&queue).map(|slot| slot.view()));
            }
            // The queue is gone, or is no quorum queue.
            Command::Peek { peek, .. } => peek.answer(Err(Unseen::NotLeader)),
            // The queue is gone.
            Command::Remove { .. }
            | Command::Bodies { .. }
            | Command::Lend { .. }
            | Command::Lent { .. }
            | Command::Raft { .. }
            | Command::Notice(_)
            | Command::Leads { .. } => {}
            Command::Orders { queue, batch } => self.visit(queue, batch),
            Command::Up { node } => self.all_cluster(|queue, desk| queue.up(desk, node)),
            Command::Lost { node } => self.lost(node),
            Command::LostForLong { node } => self.all_cluster(|queue, _| queue.lost_for_long(node)),
            Command::ViewAll { copies, answer } => {
                let shown = |queue: &ClusterQueue| copies || queue.led_in().is_some();
                let cluster = self.cluster.iter().filter(|(_, queue)| shown(queue));
                let ids = self.slots.keys().chain(cluster.map(|(id, _)| id));
                // Views are large: the numbers are sorted.
                let mut ids: Vec<QueueId> = ids.copied().collect();
                ids.sort_unstable();
                let cluster = |id| self.cluster.get(id).map(|queue| queue.view());
                let view = |id| self.slots.get(id).map(|slot| slot.view()).or_else(|| cluster(id));
                let queues = ids.iter().filter_map(view).collect();
                command::answer(answer, ShardView { queues });
            }
            Command::Stop { answer } => self.stopping = Some(answer),
        }
    }

    /// Looks through all queues, which is rare: connections that end in order say themselves what
    /// they held.
    fn connection_gone(&mut self, connection: ConnectionId) {
        let mut queues: Vec<QueueId> = self
            .slots
            .values()
            .filter(|slot| slot.serves(connection))
            .map(|slot| slot.profile.id)
            .collect();
        queues.sort_unstable();
        for queue in queues {
            self.with(queue, |slot, desk| slot.connection_gone(desk, connection));
        }
        self.all_cluster(|queue, desk| queue.connection_gone(desk, connection));
    }

    /// Goes on with what a queue began, also if it was deleted meanwhile.
    fn follow_up(&mut self, queue: QueueId, work: impl FnOnce(&mut Slot, &mut Desk)) {
        let Some(slot) = self.leaving.get_mut(&queue) else {
            self.with(queue, work);
            return;
        };
        work(slot, &mut self.desk);
        if slot.leave(&mut self.desk) {
            self.leaving.remove(&queue);
        }
    }

    /// Works on a queue, if it is there.
    fn with<T>(
        &mut self,
        queue: QueueId,
        work: impl FnOnce(&mut Slot, &mut Desk) -> T,
    ) -> Option<T> {
        let slot = self.slots.get_mut(&queue)?;
        touch(&mut self.touched, slot);
        Some(work(slot, &mut self.desk))
    }

    /// Queues whose time has come.
    fn tick(&mut self) {
        while let Some(&(deadline, queue)) = self.deadlines.first() {
            if deadline > self.desk.now {
                return;
            }
            self.deadlines.remove(&(deadline, queue));
            if let Some(slot) = self.slots.get_mut(&queue) {
                slot.deadline = None;
                touch(&mut self.touched, slot);
                slot.tick(&mut self.desk);
            } else if let Some(known) = busy(&mut self.cluster, &mut self.busy, queue) {
                known.deadline = None;
                known.tick(&self.desk);
            }
        }
    }

    /// Queues that are reached through the cluster send, propose and tell what they have gathered.
    fn hand_over_cluster(&mut self) {
        for id in std::mem::take(&mut self.busy) {
            let Some(queue) = self.cluster.get_mut(&id) else { continue };
            queue.touched = false;
            queue.hand_over(&mut self.desk);
            let deadline = queue.next_deadline();
            if deadline != queue.deadline {
                if let Some(old) = queue.deadline {
                    self.deadlines.remove(&(old, id));
                }
                if let Some(new) = deadline {
                    self.deadlines.insert((new, id));
                }
                queue.deadline = deadline;
            }
        }
    }

    /// One batch for the journal, and what the touched queues have to report.
    fn hand_over(&mut self) {
        let mut ops = std::mem::take(&mut self.desk.ops);
        let mut puts = false;
        for queue in &self.touched {
            if let Some(slot) = self.slots.get_mut(queue) {
                puts |= slot.hand_over(&mut ops);
            }
        }
        let mut lsn = Lsn::default();
        if !ops.is_empty() {
            tracing::trace!(target: "walk", "journal");
            let next = Vec::with_capacity(ops.len().min(1024));
            lsn = self.desk.journal.submit(std::mem::replace(&mut ops, next));
        }
        self.desk.ops = ops;
        for queue in self.touched.drain(..) {
            let Some(slot) = self.slots.get_mut(&queue) else { continue };
            slot.touched = false;
            slot.handed(lsn, self.durable);
            slot.report(&mut self.desk);
            let deadline = slot.next_deadline();
            if deadline != slot.deadline {
                if let Some(old) = slot.deadline {
                    self.deadlines.remove(&(old, queue));
                }
                if let Some(new) = deadline {
                    self.deadlines.insert((new, queue));
                }
                slot.deadline = deadline;
            }
        }
        while let Some(queue) = self.desk.must_detach() {
            if let Some(slot) = self.slots.get_mut(&queue) {
                slot.detach_oldest();
            }
        }
        for (owed, needs_disk) in self.owed.drain(..) {
            if needs_disk && puts {
                self.confirms.push(lsn, owed);
            } else {
                self.desk.counted.confirmed += self.confirms.settle(owed);
            }
        }
    }

    /// Confirms what the journal has synced, and drops bodies that it now holds.
    fn pay(&mut self) {
        let durable = self.desk.journal.durable();
        let moved = durable != self.durable;
        if moved {
            self.durable = durable;
            self.desk.counted.confirmed += self.confirms.durable(durable);
        }
        if (moved || std::mem::take(&mut self.read)) && self.desk.must_evict() {
            self.evict();
        }
    }

    /// Brings the cache under its budget, and a little further, so that not every turn has to look
    /// at all queues.
    fn evict(&mut self) {
        let budget = self.desk.budget.cached;
        let goal = budget - budget / 8;
        let queues = (self.slots.len() + self.cluster.len()).max(1) as u64;
        // A few busy queues may have more than their share, unless all together have too much.
        for shares in [queues.min(16), queues] {
            if self.desk.weight.cached <= goal {
                return;
            }
            #[expect(
                clippy::iter_over_hash_type,
                reason = "each queue drops its own, in any order"
            )]
            for slot in self.slots.values_mut() {
                slot.synced(self.durable, goal / shares);
                slot.report(&mut self.desk);
            }
            #[expect(
                clippy::iter_over_hash_type,
                reason = "each queue drops its own, in any order"
            )]
            for queue in self.cluster.values_mut() {
                queue.synced(&mut self.desk, self.durable, goal / shares);
            }
        }
    }
}

fn touch(touched: &mut Vec<QueueId>, slot: &mut Slot) {
    if !slot.touched {
        slot.touched = true;
        touched.push(slot.profile.id);
    }
}

/// A queue of the cluster, to be looked at again at the end of the turn.
fn busy<'a>(
    queues: &'a mut HashMap<QueueId, Box<ClusterQueue>>,
    list: &mut Vec<QueueId>,
    id: QueueId,
) -> Option<&'a mut ClusterQueue> {
    let queue = queues.get_mut(&id)?;
    if !queue.touched {
        queue.touched = true;
        list.push(id);
    }
    Some(queue)
}
