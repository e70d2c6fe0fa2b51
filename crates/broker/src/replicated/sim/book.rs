//! What must be true: kept by one who sees every committed entry and everything that clients see.
//!
//! ```text
//!  members' calls ─► one log and one machine per queue: every member must agree with them
//!  clients' views ─► the fate of every message: what was promised must come true
//! ```

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use model::id::{ConsumerId, NodeId, QueueId, Seq};
use model::message::Message;
use quorum::member::{Committed, Role};

use super::plan::Plan;
use super::rng::digest;
use super::world::World;
use crate::replicated::machine::{Machine, Output};
use crate::replicated::numbered::Sender;
use crate::replicated::order;
use crate::replicated::version::NEWEST;
use model::time::Timestamp;
use queue::effect::{Effect, Reason};

/// A message: who published it, and which of theirs it is.
pub(super) type Name = (u64, u64);

/// What is known of a message.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Fate {
    queue: u64,
    sent_at: u64,
    /// `Some(true)`: confirmed. `Some(false)`: refused, which says nothing.
    answer: Option<bool>,
    /// A client has accepted or discarded it, whether or not that has reached the queue.
    settled: bool,
    /// A client got it without having to settle it, or after the storm.
    taken: bool,
    /// A client has discarded it, in a queue that keeps it until the next one has it.
    discarded: bool,
}

/// One queue's log and state, as all members must have them.
#[derive(Debug)]
struct Ledger {
    /// By index: the term, and a digest of the entry.
    entries: BTreeMap<u64, (u64, u64)>,
    machine: Machine,
    /// The last index that anybody has applied; `None`: nothing.
    last: Option<u64>,
    /// Digests of the state after each index.
    states: BTreeMap<u64, u64>,
    by_seq: BTreeMap<Seq, Name>,
    stored: BTreeMap<Name, Seq>,
    gone: BTreeSet<Seq>,
    /// Dead messages that are kept.
    dying: BTreeSet<Seq>,
    /// Messages that came when they were dead.
    foreign: BTreeSet<Seq>,
    /// The last message of each publisher: stored, and delivered for the first time.
    last_stored: BTreeMap<u64, u64>,
    last_delivered: BTreeMap<u64, u64>,
    assigned: BTreeSet<(ConsumerId, Seq)>,
    /// How often each message was handed out, and when last.
    handed: BTreeMap<Seq, (u32, Timestamp)>,
    /// The time of the last entry, by the log.
    stamp: Timestamp,
    /// What clients have got without the mark that somebody had it before.
    unmarked: BTreeSet<Seq>,
    leaders: BTreeMap<u64, Sender>,
    /// How far each node is.
    applied: BTreeMap<NodeId, u64>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            machine: Machine::new(NEWEST),
            last: None,
            states: BTreeMap::new(),
            by_seq: BTreeMap::new(),
            stored: BTreeMap::new(),
            gone: BTreeSet::new(),
            dying: BTreeSet::new(),
            foreign: BTreeSet::new(),
            last_stored: BTreeMap::new(),
            last_delivered: BTreeMap::new(),
            assigned: BTreeSet::new(),
            handed: BTreeMap::new(),
            stamp: Timestamp(0),
            unmarked: BTreeSet::new(),
            leaders: BTreeMap::new(),
            applied: BTreeMap::new(),
        }
    }
}

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Book {
    queues: BTreeMap<QueueId, Ledger>,
    fates: BTreeMap<Name, Fate>,
    publishers: u64,
    /// Consumers that settle nothing.
    careless: BTreeSet<ConsumerId>,
    /// So often may a message fail; 0: there is no limit.
    limit: u32,
    /// What comes back waits at least so long, in milliseconds.
    delay: u64,
    /// Each queue keeps what is dead until the next one has it.
    keeps: bool,
    /// Purges: of which queue, and until when they may have taken something.
    purges: Vec<(QueueId, u64)>,
    pub(super) tally: Tally,
}

/// What there was of everything.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) published: u64,
    pub(super) confirmed: u64,
    pub(super) refused: u64,
    pub(super) delivered: u64,
    pub(super) redelivered: u64,
    pub(super) entries: u64,
    pub(super) leaders: u64,
    pub(super) installs: u64,
    pub(super) checks: u64,
    /// Messages that failed too often.
    pub(super) dead: u64,
    /// Dead messages that came to the next queue.
    pub(super) inherited: u64,
    /// How often a group fell asleep.
    pub(super) slept: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Self) {
        self.published += other.published;
        self.confirmed += other.confirmed;
        self.refused += other.refused;
        self.delivered += other.delivered;
        self.redelivered += other.redelivered;
        self.entries += other.entries;
        self.leaders += other.leaders;
        self.installs += other.installs;
        self.checks += other.checks;
        self.dead += other.dead;
        self.inherited += other.inherited;
        self.slept += other.slept;
    }
}

/// A message's bytes: its name, and a filling that follows from it.
pub(super) fn body(name: Name, length: u64) -> Vec<u8> {
    let mut body = Vec::with_capacity(16 + length as usize);
    body.extend(name.0.to_le_bytes());
    body.extend(name.1.to_le_bytes());
    body.extend((0..length).map(|at| (name.0 ^ name.1 ^ at) as u8));
    body
}

fn name(message: &Message) -> Option<Name> {
    let bytes: &[u8] = message.body();
    let publisher = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    let number = u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
    let name = (publisher, number);
    (body(name, bytes.len() as u64 - 16) == bytes).then_some(name)
}

impl Book {
    pub(super) fn new(plan: &Plan) -> Self {
        Self { limit: plan.limit, delay: plan.delay, keeps: plan.keeps, ..Self::default() }
    }

    /// A node starts: it knows nothing yet.
    pub(super) fn started(&mut self, node: NodeId) {
        for ledger in self.queues.values_mut() {
            ledger.applied.remove(&node);
        }
    }

    pub(super) fn publisher(&mut self) -> u64 {
        self.publishers += 1;
        self.publishers
    }

    pub(super) fn published(&mut self, name: Name, queue: QueueId, at: u64) {
        self.tally.published += 1;
        self.fates.insert(name, Fate { queue: queue.0, sent_at: at, ..Fate::default() });
    }

    /// A purge that was asked for may take what was published before `until`.
    pub(super) fn purged(&mut self, queue: QueueId, until: u64) {
        self.purges.push((queue, until));
    }

    /// A consumer that settles nothing: what is handed to it is gone, whether or not it gets it.
    pub(super) fn careless(&mut self, consumer: ConsumerId) {
        self.careless.insert(consumer);
    }

    pub(super) fn settled(&mut self, name: Name) {
        if let Some(fate) = self.fates.get_mut(&name) {
            fate.settled = true;
        }
    }

    pub(super) fn discarded(&mut self, name: Name) {
        if let Some(fate) = self.fates.get_mut(&name) {
            fate.discarded = true;
        }
    }

    /// Whether a message was published to another queue: it came here when it was dead, which may
    /// happen more than once and in any order.
    fn is_foreign(&self, name: Name, queue: QueueId) -> bool {
        self.fates.get(&name).is_some_and(|fate| fate.queue != queue.0)
    }

    /// Whether the next queue has, or had, what is dead in this one.
    fn is_inherited(&self, name: Name, queue: QueueId) -> bool {
        let next = self.queues.get(&QueueId(queue.0 + 1));
        self.keeps && next.is_some_and(|ledger| ledger.stored.contains_key(&name))
    }

    pub(super) fn taken(&mut self, name: Name) {
        if let Some(fate) = self.fates.get_mut(&name) {
            fate.taken = true;
        }
    }

    fn may_be_purged(&self, name: Name) -> bool {
        self.fates.get(&name).is_some_and(|fate| {
            let hits =
                |(queue, until): &(QueueId, u64)| queue.0 == fate.queue && fate.sent_at <= *until;
            self.purges.iter().any(hits)
        })
    }

    fn may_be_gone(&self, name: Name) -> bool {
        let known = |fate: &Fate| fate.settled || fate.taken;
        self.fates.get(&name).is_some_and(known) || self.may_be_purged(name)
    }

    /// Messages of a queue that are there, by the log.
    pub(super) fn left(&self, queue: QueueId) -> u64 {
        self.queues.get(&queue).map_or(0, |ledger| {
            let queue = ledger.machine.queue();
            queue.ready() + queue.unsettled() + queue.delayed() + queue.dead()
        })
    }

    pub(super) fn describe(&self, queue: QueueId) -> String {
        let Some(ledger) = self.queues.get(&queue) else { return "nothing was committed".into() };
        let state = ledger.machine.queue();
        format!(
            "{} ready, {} dead, {} unsettled, consumers {:?}, holders {:?}, index {:?}, applied {:?}, leader {:?}",
            state.ready(),
            state.dead(),
            state.unsettled(),
            ledger
                .machine
                .subscribed()
                .values()
                .map(|one| (one.consumer.0, one.at, state.held_by(one.consumer)))
                .collect::<Vec<_>>(),
            ledger.machine.holders().collect::<Vec<_>>(),
            ledger.last,
            ledger.applied,
            ledger.leaders.iter().next_back(),
        )
    }

    pub(super) fn applied(&self, queue: QueueId, node: NodeId) -> Option<u64> {
        self.queues.get(&queue)?.applied.get(&node).copied()
    }

    /// What a replica's state must be after an index.
    pub(super) fn state_after(&mut self, queue: QueueId, index: u64) -> Option<u64> {
        self.tally.checks += 1;
        self.queues.get(&queue)?.states.get(&index).copied()
    }

    /// The last index of a queue that anybody has.
    pub(super) fn last(&self, queue: QueueId) -> Option<u64> {
        self.queues.get(&queue)?.last
    }

    /// At the end: what was confirmed and is nowhere.
    pub(super) fn lost(&self) -> Vec<(Name, Fate)> {
        let confirmed = self.fates.iter().filter(|(_, fate)| fate.answer == Some(true));
        confirmed
            .filter(|(name, _)| !self.may_be_gone(**name))
            .map(|(name, fate)| (*name, *fate))
            .collect()
    }

    /// Applies an entry that nobody has applied before.
    fn apply(&mut self, id: QueueId, index: u64, payload: &Bytes) -> Result<(), String> {
        let mut outputs = Vec::new();
        let ledger = self.queues.entry(id).or_default();
        if !payload.is_empty() {
            if let Ok((stamp, _)) = order::read_entry(payload.clone(), NEWEST) {
                ledger.stamp = ledger.stamp.max(stamp);
            }
            let applied = ledger.machine.apply(payload.clone(), &mut outputs);
            applied.map_err(|error| format!("entry {index}: {error}"))?;
        }
        ledger.last = Some(index);
        ledger.states.insert(index, digest(&ledger.machine.encode()));
        self.tally.entries += 1;
        for output in outputs {
            self.output(id, output)?;
        }
        Ok(())
    }

    fn output(&mut self, id: QueueId, output: Output) -> Result<(), String> {
        let (delay, foreign) = (self.delay, |name| self.is_foreign(name, id));
        let foreign_stored = match &output {
            Output::Stored { published, .. } => name(&published.message).is_some_and(foreign),
            _ => false,
        };
        let ledger = self.queues.entry(id).or_default();
        match output {
            Output::Stored { seq, published } => {
                let name = name(&published.message).ok_or("a body is not what was published")?;
                if foreign_stored {
                    self.tally.inherited += 1;
                    ledger.stored.insert(name, seq);
                    ledger.by_seq.insert(seq, name);
                    ledger.foreign.insert(seq);
                    return Ok(());
                }
                if let Some(first) = ledger.stored.insert(name, seq) {
                    return Err(format!("{name:?} is stored twice, as {first} and {seq}"));
                }
                ledger.by_seq.insert(seq, name);
                if ledger.last_stored.insert(name.0, name.1).is_some_and(|last| last >= name.1) {
                    return Err(format!("{name:?} is stored out of order"));
                }
            }
            Output::Effect(Effect::Deliver { consumer, seq, redelivered, .. }) => {
                ledger.assigned.insert((consumer, seq));
                Self::delivers(ledger, seq, redelivered, delay)?;
                if self.careless.contains(&consumer)
                    && let Some(name) = ledger.by_seq.get(&seq).copied()
                {
                    self.taken(name);
                }
            }
            Output::Got(got) if !ledger.gone.contains(&got.seq) => {
                // The answer may be one that was given before.
                Self::delivers(ledger, got.seq, true, 0)?;
            }
            Output::Effect(Effect::Release { first, last }) => {
                for seq in (first.0..=last.0).map(Seq) {
                    let ledger = self.queues.entry(id).or_default();
                    if !ledger.gone.insert(seq) {
                        return Err(format!("{seq} is released twice"));
                    }
                    let Some(name) = ledger.by_seq.get(&seq).copied() else {
                        return Err(format!("{seq} is released and was never stored"));
                    };
                    if self.queues.entry(id).or_default().dying.remove(&seq) {
                        if !self.is_inherited(name, id) {
                            return Err(format!("{name:?} is buried, and the next has it not"));
                        }
                        continue;
                    }
                    if !self.may_be_gone(name) {
                        return Err(format!("{name:?} is dropped, and no client has settled it"));
                    }
                }
            }
            Output::Effect(Effect::DeadLetter { seq, reason }) => {
                let handed = ledger.handed.get(&seq).map_or(0, |(times, _)| *times);
                let Some(name) = ledger.by_seq.get(&seq).copied() else {
                    return Err(format!("{seq} is dead and was never stored"));
                };
                let stays = ledger.machine.queue().settings().keeps_dead;
                let is_first =
                    if stays { ledger.dying.insert(seq) } else { ledger.gone.insert(seq) };
                if !is_first || (stays && ledger.gone.contains(&seq)) {
                    return Err(format!("{seq} dies twice"));
                }
                let discarded = self.fates.get(&name).is_some_and(|fate| fate.discarded);
                match reason {
                    Reason::Rejected if stays && discarded => {}
                    Reason::Rejected if self.may_be_gone(name) => {}
                    Reason::DeliveryLimit if self.limit > 0 && handed > self.limit => {
                        self.tally.dead += 1;
                        if !stays {
                            self.taken(name);
                        }
                    }
                    _ => {
                        return Err(format!(
                            "{name:?}, handed out {handed} times, dies: {reason:?}"
                        ));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn delivers(
        ledger: &mut Ledger,
        seq: Seq,
        redelivered: bool,
        delay: u64,
    ) -> Result<(), String> {
        let now = ledger.stamp;
        let handed = ledger.handed.entry(seq).or_default();
        if handed.0 > 0 && now.0 < handed.1.0 + delay {
            return Err(format!("{seq} comes back after {} ms", now.0 - handed.1.0));
        }
        *handed = (handed.0 + 1, now);
        if ledger.gone.contains(&seq) {
            return Err(format!("{seq} is delivered after it was settled"));
        }
        let Some(name) = ledger.by_seq.get(&seq).copied() else {
            return Err(format!("{seq} is delivered and was never stored"));
        };
        if !redelivered && !ledger.foreign.contains(&seq) {
            let last = ledger.last_delivered.insert(name.0, name.1);
            if last.is_some_and(|last| last >= name.1) {
                return Err(format!("{name:?} is delivered after {last:?} of its publisher"));
            }
        }
        Ok(())
    }

    fn committed(&mut self, id: QueueId, at: Sender, entry: &Committed) -> Result<(), String> {
        let ledger = self.queues.entry(id).or_default();
        let expected = ledger.applied.get(&at.node).map_or(0, |last| last + 1);
        if entry.index != expected {
            return Err(format!("entry {} instead of {expected}", entry.index));
        }
        ledger.applied.insert(at.node, entry.index);
        let seen = (entry.term, digest(&entry.payload));
        let next = ledger.last.map_or(0, |last| last + 1);
        if entry.index < next {
            let known = ledger.entries.get(&entry.index);
            if known != Some(&seen) {
                return Err(format!(
                    "entry {} differs: {seen:?} instead of {known:?}",
                    entry.index
                ));
            }
            return Ok(());
        }
        ledger.entries.insert(entry.index, seen);
        self.apply(id, entry.index, &entry.payload)
    }

    fn role(&mut self, id: QueueId, at: Sender, term: u64) -> Result<(), String> {
        let ledger = self.queues.entry(id).or_default();
        if let Some(other) = ledger.leaders.insert(term, at) {
            return Err(format!("{at:?} and {other:?} both lead term {term}"));
        }
        self.tally.leaders += 1;
        Ok(())
    }

    fn installed(
        &mut self,
        id: QueueId,
        at: Sender,
        index: u64,
        state: &Bytes,
    ) -> Result<(), String> {
        self.tally.installs += 1;
        let found = machine_of(state).ok_or("a checkpoint cannot be read")?;
        let ledger = self.queues.entry(id).or_default();
        ledger.applied.insert(at.node, index);
        match ledger.states.get(&index) {
            Some(known) if *known == found => Ok(()),
            Some(_) => Err(format!("the checkpoint after {index} differs from others' state")),
            None => Err(format!("a checkpoint after {index}, which nobody has applied")),
        }
    }

    /// A client got a confirm or a refusal.
    fn answered(&mut self, name: Name, accepted: bool) -> Result<(), String> {
        let Some(fate) = self.fates.get_mut(&name) else {
            return Err(format!("{name:?} is confirmed and was never published"));
        };
        if let Some(first) = fate.answer.replace(accepted) {
            return Err(format!("{name:?} is answered twice: {first}, then {accepted}"));
        }
        if !accepted {
            self.tally.refused += 1;
            return Ok(());
        }
        self.tally.confirmed += 1;
        let queue = QueueId(fate.queue);
        if !self.queues.get(&queue).is_some_and(|ledger| ledger.stored.contains_key(&name)) {
            return Err(format!("{name:?} is confirmed before it is committed"));
        }
        Ok(())
    }

    /// Whether a message came to a queue when it was dead.
    pub(super) fn is_inherited_by(&self, queue: QueueId, seq: Seq) -> bool {
        self.queues.get(&queue).is_some_and(|ledger| ledger.foreign.contains(&seq))
    }

    /// A client got a message.
    fn delivered(
        &mut self,
        id: QueueId,
        consumer: Option<ConsumerId>,
        seq: Seq,
        message: &Message,
        redelivered: bool,
    ) -> Result<Name, String> {
        let name = name(message).ok_or_else(|| format!("{seq}: the body is damaged"))?;
        self.tally.delivered += 1;
        self.tally.redelivered += u64::from(redelivered);
        let ledger = self.queues.entry(id).or_default();
        let known = ledger.by_seq.get(&seq);
        if known != Some(&name) {
            return Err(format!("{seq} is {known:?}, and {name:?} was delivered under its name"));
        }
        if !redelivered && !ledger.unmarked.insert(seq) {
            return Err(format!("{name:?} is delivered twice without a mark"));
        }
        if let Some(consumer) = consumer
            && !ledger.assigned.contains(&(consumer, seq))
        {
            return Err(format!("{seq} is delivered to {consumer:?}, which it was not meant for"));
        }
        Ok(name)
    }
}

/// A digest of the machine's part of a checkpoint.
pub(super) fn machine_of(state: &Bytes) -> Option<u64> {
    let mut state = state.clone();
    order::u8_of(&mut state).ok()?;
    order::take_bytes(&mut state).ok().map(|machine| digest(&machine))
}

impl World {
    fn check<T>(&self, what: impl FnOnce() -> String, result: Result<T, String>) -> Option<T> {
        result.map_err(|error| self.fail(format!("{}: {error}", what()))).ok()
    }

    pub(super) fn committed(&self, queue: QueueId, at: Sender, entries: &[Committed]) {
        for entry in entries {
            self.trace(20, &[queue.0, at.node.0, entry.index, entry.term, digest(&entry.payload)]);
            let result = self.book.lock().committed(queue, at, entry);
            self.check(|| format!("queue {queue}, node {}", at.node), result);
        }
    }

    pub(super) fn role(&self, queue: QueueId, at: Sender, role: Role) {
        if let Role::Leader { term } = role {
            self.trace(21, &[queue.0, at.node.0, term]);
            let result = self.book.lock().role(queue, at, term);
            self.check(|| format!("queue {queue}"), result);
        }
    }

    pub(super) fn installed(&self, queue: QueueId, at: Sender, index: u64, state: &Bytes) {
        self.trace(22, &[queue.0, at.node.0, index]);
        let result = self.book.lock().installed(queue, at, index, state);
        self.check(|| format!("queue {queue}, node {}", at.node), result);
    }

    pub(super) fn answered(&self, name: Name, accepted: bool) {
        self.trace(23, &[name.0, name.1, accepted.into()]);
        let result = self.book.lock().answered(name, accepted);
        self.check(|| "a confirm".into(), result);
    }

    pub(super) fn delivered(
        &self,
        queue: QueueId,
        consumer: Option<ConsumerId>,
        seq: Seq,
        message: &Message,
        redelivered: bool,
    ) -> Option<Name> {
        let to = consumer.map_or(0, |consumer| consumer.0);
        self.trace(24, &[queue.0, to, seq.0, redelivered.into()]);
        let result = self.book.lock().delivered(queue, consumer, seq, message, redelivered);
        self.check(|| format!("queue {queue}"), result)
    }
}
