//! The log of one group: an index in memory over records in the node's journal.
//!
//! ```text
//!  purged   first                         applied            next index
//!    |        |                              |                   |
//!    | gone   |  slots: term, position       |  + the entry      |
//!             |  (the entry, while there is room for it)         |
//! ```
//!
//! Positions are given and operations handed over under one lock, so they reach the journal in
//! the order of their positions. The journal is first in, first out, but for entries of queues
//! that wait for room on a full disk while what is vital goes past them.

use crate::checkpoint::{self, Checkpoint};
use crate::founding::Founding;
use crate::log::Log;
use crate::member::Body;
use crate::record::{EntryKind, Head};
use crate::recovered::{Found, Recovered};
use crate::seat::Seat;
use crate::tail::Tail;
use crate::types::{
    Data, Entry, Flushed, LogId, Payload, SnapshotMeta, StoredMembership, Vote, log_id,
};
use crate::watermark::{Until, Watermark};
use crate::wire::{Reader, Write};
use bytes::{Bytes, BytesMut};
use journal::op::{self, Class, Lsn, Op};
use model::id::{Seq, StreamId};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) mod storage;

/// What the logs of a node share.
#[derive(Clone)]
pub(crate) struct Disk {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) watermark: Arc<Watermark>,
    pub(crate) tail: Arc<Tail>,
    pub(crate) limits: Limits,
}

/// When a group takes a checkpoint, and what its log keeps before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) checkpoint_entries: u64,
    pub(crate) checkpoint_bytes: u64,
    pub(crate) keep_entries: u64,
    pub(crate) keep_bytes: u64,
}

/// The log of one group.
pub(crate) struct GroupLog {
    stream: StreamId,
    /// What entries do when the disk is full.
    class: Class,
    disk: Disk,
    seat: Arc<Seat>,
    state: Mutex<State>,
    /// The last operation that was handed over.
    submitted: AtomicU64,
}

struct State {
    /// The next position to give.
    next: u64,
    vote: Option<(Vote, Seq)>,
    purged: Option<(LogId, Seq)>,
    committed: Option<(LogId, Seq)>,
    checkpoint: Option<(LogId, Seq)>,
    /// Bytes of the last checkpoint that this start has stored.
    image: u64,
    /// See [`GroupLog::arrived`].
    arrived: Option<LogId>,
    /// The index of the first slot.
    first: u64,
    slots: VecDeque<Slot>,
    /// Slots before this one hold no entry in memory.
    held_from: u64,
    held_bytes: usize,
    /// Bytes of all entries.
    bytes: u64,
    /// The index at which a checkpoint was last asked for, and the bytes since.
    asked: u64,
    grown: u64,
    /// Whether the stream is dropped: nothing may be put into it any more.
    deleted: bool,
    /// How the group began, until it is handed over with whatever comes next.
    unwritten: Vec<Op>,
    /// What the journal held of checkpointed bodies at the start, until the member takes it.
    bodies: Vec<Body>,
}

/// A log at a glance.
#[derive(Debug)]
pub(crate) struct Outline {
    pub(crate) vote: Option<Vote>,
    pub(crate) last: Option<LogId>,
    pub(crate) purged: Option<LogId>,
    pub(crate) checkpointed: Option<LogId>,
    /// Of all entries, and of the last checkpoint that this start has stored.
    pub(crate) bytes: u64,
    pub(crate) image: u64,
}

/// One entry of the log.
struct Slot {
    term: u64,
    position: Seq,
    /// When it is durable.
    lsn: Lsn,
    kind: EntryKind,
    bytes: u32,
    held: Option<Payload>,
}

/// An entry that has to be read from its record, and where it belongs among those asked for.
struct Missing {
    at: usize,
    id: LogId,
    kind: EntryKind,
    position: Seq,
}

/// The position of a new record, and of the one whose place it takes.
#[derive(Clone, Copy)]
struct Replaced {
    position: Seq,
    old: Option<Seq>,
}

/// How many bytes of entries a group keeps in its sleep.
const RESTING_BYTES: usize = 1024;

/// What takes the place of an entry in memory, for counting.
const SLOT_BYTES: usize = size_of::<Slot>();

impl fmt::Debug for GroupLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupLog").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl Slot {
    fn id(&self, index: u64) -> LogId {
        log_id(self.term, index)
    }
}

impl State {
    fn next_index(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// The last entry, or what was purged last.
    fn last(&self) -> Option<LogId> {
        let last = self.slots.back().map(|slot| slot.id(self.next_index() - 1));
        last.or(self.purged.map(|(id, _)| id))
    }

    fn slot(&self, index: u64) -> Option<&Slot> {
        let at = index.checked_sub(self.first)?;
        self.slots.get(usize::try_from(at).ok()?)
    }

    fn take_position(&mut self) -> Seq {
        let position = Seq(self.next);
        self.next += 1;
        position
    }

    /// Drops an entry's payload from memory.
    fn let_go(&mut self, at: usize, tail: &Tail) {
        if self.slots[at].held.take().is_some() {
            let bytes = self.slots[at].bytes as usize + SLOT_BYTES;
            self.held_bytes -= bytes;
            tail.sub(bytes);
        }
    }
}

impl GroupLog {
    /// The log of what was recovered, or a new one.
    pub(crate) fn new(
        stream: StreamId,
        class: Class,
        disk: Disk,
        seat: Arc<Seat>,
        mut recovered: Recovered,
    ) -> Self {
        let checkpoint = recovered.checkpoint;
        let bodies = bodies(&recovered);
        let orphans = recovered.arrived.iter().map(|(_, position)| *position);
        let orphans: Vec<Seq> =
            orphans.filter(|at| checkpoint.is_none_or(|(_, upto)| *at > upto)).collect();
        let mut stale = std::mem::take(&mut recovered.stale);
        stale.extend(orphans);
        let first = recovered.purged.map_or(0, |(id, _)| id.index + 1);
        let slot = |found: &Found| Slot {
            term: found.id.leader_id.term,
            position: found.position,
            lsn: Lsn(0),
            kind: found.kind,
            bytes: found.bytes,
            held: None,
        };
        let slots: VecDeque<Slot> = recovered.entries.iter().map(slot).collect();
        let bytes = slots.iter().map(|slot| u64::from(slot.bytes)).sum();
        let asked = checkpoint.map_or(0, |(id, _)| id.index);
        let since = recovered.entries.iter().filter(|found| found.id.index > asked);
        let grown = since.map(|found| u64::from(found.bytes)).sum();
        let last = recovered.entries.last().map(|found| found.id);
        let last = last.or(recovered.purged.map(|(id, _)| id));
        // The hint may have gone past entries that waited for room on a full disk.
        let committed = recovered.committed.filter(|(id, _)| Some(*id) <= last);
        stale.extend(recovered.committed.filter(|_| committed.is_none()).map(|(_, at)| at));
        let state = State {
            next: recovered.highest + 1,
            vote: recovered.vote,
            purged: recovered.purged,
            committed,
            checkpoint,
            image: 0,
            arrived: None,
            first,
            held_from: first + slots.len() as u64,
            slots,
            held_bytes: 0,
            bytes,
            asked,
            grown,
            deleted: false,
            unwritten: Vec::new(),
            bodies,
        };
        let log = Self {
            stream,
            class,
            disk,
            seat,
            state: Mutex::new(state),
            submitted: AtomicU64::new(0),
        };
        log.release(&stale);
        log
    }

    /// Begins an empty log as a group begins. The journal gets that with what comes next, or by
    /// [`GroupLog::write_down`].
    pub(crate) fn begin(&self, founding: &Founding) {
        let Some(vote) = founding.vote() else { return };
        let mut state = self.state.lock();
        let position = state.take_position();
        let old = state.vote.replace((vote, position));
        let voted = self.put(position, &Head::Vote(vote), Bytes::new());
        let payload = Payload::Membership(founding.membership());
        let (kind, bytes) = stored(&payload);
        let (id, position) = (Founding::id(), state.take_position());
        let founded = self.put(position, &Head::Entry { kind, id }, bytes.clone());
        (state.first, state.held_from) = (id.index, id.index);
        state.bytes += bytes.len() as u64;
        state.held_bytes += bytes.len() + SLOT_BYTES;
        self.disk.tail.add(bytes.len() + SLOT_BYTES);
        state.slots.push_back(Slot {
            term: id.leader_id.term,
            position,
            lsn: Lsn(0),
            kind,
            bytes: u32::try_from(bytes.len()).expect("members are few"),
            held: Some(payload),
        });
        let old = old.map(|(_, at)| Op::Release { stream: self.stream, first: at, last: at });
        state.unwritten = [voted, founded].into_iter().chain(old).collect();
    }

    /// Hands over how the group began, if that has not been done.
    pub(crate) fn write_down(&self) {
        let mut state = self.state.lock();
        if !state.unwritten.is_empty() {
            self.submit(&mut state, Vec::new());
        }
    }

    /// Hands operations over, while the state is locked.
    fn submit(&self, state: &mut State, mut ops: Vec<Op>) -> Lsn {
        if state.deleted {
            // Whoever waits is the last to do so.
            return Lsn(0);
        }
        let begins = !state.unwritten.is_empty();
        if begins {
            let behind = std::mem::replace(&mut ops, std::mem::take(&mut state.unwritten));
            ops.extend(behind);
        }
        let lsn = self.disk.log.submit(ops);
        if begins && let Some(slot) = state.slots.front_mut() {
            slot.lsn = lsn;
        }
        self.submitted.fetch_max(lsn.0, Ordering::AcqRel);
        lsn
    }

    /// Whether all that was handed over is synced.
    pub(crate) fn is_durable(&self) -> bool {
        self.disk.watermark.durable().0 >= self.submitted.load(Ordering::Acquire)
    }

    /// Waits for that.
    pub(crate) async fn synced(&self) -> io::Result<()> {
        let lsn = Lsn(self.submitted.load(Ordering::Acquire));
        self.disk.watermark.reached(Until::Durable, lsn).await
    }

    /// Keeps only a little in memory of what is on the disk, so that a short log need not be read
    /// when the group wakes. Everything must be synced.
    pub(crate) fn rest(&self) {
        let mut state = self.state.lock();
        let mut kept = 0;
        for at in 0..state.slots.len() {
            kept += state.slots[at].bytes as usize;
            if kept > RESTING_BYTES {
                state.let_go(at, &self.disk.tail);
            }
        }
        // What is kept stays until the log is longer.
        state.held_from = state.first;
        state.slots.shrink_to_fit();
        state.bodies.shrink_to_fit();
    }

    /// The memberships in entries after this one, oldest first.
    pub(crate) async fn memberships_after(
        &self,
        index: Option<u64>,
    ) -> io::Result<Vec<StoredMembership>> {
        let found: Vec<u64> = {
            let state = self.state.lock();
            let from = index.map_or(state.first, |index| (index + 1).max(state.first));
            let is_one = |index: &u64| {
                state.slot(*index).is_some_and(|slot| slot.kind == EntryKind::Membership)
            };
            (from..state.next_index()).filter(is_one).collect()
        };
        let mut memberships = Vec::new();
        for index in found {
            let entries = self.read(index..index + 1, u64::MAX).await?;
            memberships.extend(entries.into_iter().filter_map(|entry| match entry.payload {
                Payload::Membership(membership) => {
                    Some(StoredMembership::new(Some(entry.log_id), membership))
                }
                Payload::Blank | Payload::Normal(_) => None,
            }));
        }
        Ok(memberships)
    }

    /// The vote that was saved last.
    pub(crate) fn vote(&self) -> Option<Vote> {
        self.state.lock().vote.map(|(vote, _)| vote)
    }

    /// The last entry, or what was purged last.
    pub(crate) fn last(&self) -> Option<LogId> {
        self.state.lock().last()
    }

    /// The last entry of each term in a range of indexes.
    fn key_ids(&self, first: u64, last: u64) -> Vec<LogId> {
        let state = self.state.lock();
        let mut keys: Vec<LogId> = Vec::new();
        for id in (first..=last).filter_map(|index| Some(state.slot(index)?.id(index))) {
            match keys.last_mut() {
                Some(key) if key.leader_id == id.leader_id => *key = id,
                Some(_) | None => keys.push(id),
            }
        }
        keys
    }

    pub(crate) fn purged(&self) -> Option<LogId> {
        self.state.lock().purged.map(|(id, _)| id)
    }

    pub(crate) fn committed(&self) -> Option<LogId> {
        self.state.lock().committed.map(|(id, _)| id)
    }

    pub(crate) fn checkpointed(&self) -> Option<LogId> {
        self.state.lock().checkpoint.map(|(id, _)| id)
    }

    /// What there is to say about it.
    pub(crate) fn outline(&self) -> Outline {
        let state = self.state.lock();
        Outline {
            vote: state.vote.map(|(vote, _)| vote),
            last: state.last(),
            purged: state.purged.map(|(id, _)| id),
            checkpointed: state.checkpoint.map(|(id, _)| id),
            bytes: state.bytes,
            image: state.image,
        }
    }

    /// Up to where entries may be purged: they are in the checkpoint, and not among the last
    /// before it that are kept.
    pub(crate) fn purgeable(&self) -> Option<u64> {
        let limits = &self.disk.limits;
        let state = self.state.lock();
        let (checkpoint, _) = state.checkpoint?;
        let mut upto = checkpoint.index;
        let (mut entries, mut bytes) = (0, 0);
        while let Some(slot) = state.slot(upto) {
            entries += 1;
            bytes += u64::from(slot.bytes);
            if entries > limits.keep_entries || bytes > limits.keep_bytes {
                return Some(upto);
            }
            upto = upto.checked_sub(1)?;
        }
        None
    }

    /// Appends entries; `flushed` is called once they are durable.
    fn append(&self, entries: impl IntoIterator<Item = Entry>, flushed: Flushed) {
        let mut state = self.state.lock();
        let mut ops = Vec::new();
        let mut added = 0;
        let before = state.slots.len();
        for entry in entries {
            let (id, payload) = (entry.log_id, entry.payload);
            if state.slots.is_empty() && state.purged.is_none() {
                state.first = id.index;
                state.held_from = id.index;
            }
            assert_eq!(id.index, state.next_index(), "entries follow each other");
            let position = state.take_position();
            let (kind, bytes) = stored(&payload);
            added += bytes.len() + SLOT_BYTES;
            state.bytes += bytes.len() as u64;
            state.grown += bytes.len() as u64;
            let slot = Slot {
                term: id.leader_id.term,
                position,
                lsn: Lsn(0),
                kind,
                bytes: u32::try_from(bytes.len()).expect("a proposal is smaller than 1 GiB"),
                held: Some(payload),
            };
            state.slots.push_back(slot);
            ops.push(self.put(position, &Head::Entry { kind, id }, bytes));
        }
        let lsn = self.submit(&mut state, ops);
        state.slots.range_mut(before..).for_each(|slot| slot.lsn = lsn);
        state.held_bytes += added;
        self.disk.tail.add(added);
        drop(state);
        let watermark = &self.disk.watermark;
        watermark.when(self.until(), lsn, move |result| flushed.io_completed(result));
    }

    /// Forgets all entries after this one.
    fn truncate(&self, last: Option<LogId>) {
        let keep = last.map_or(0, |id| id.index + 1);
        let mut state = self.state.lock();
        let mut gone = Vec::new();
        while state.next_index() > keep && !state.slots.is_empty() {
            let at = state.slots.len() - 1;
            state.let_go(at, &self.disk.tail);
            if let Some(slot) = state.slots.pop_back() {
                state.bytes -= u64::from(slot.bytes);
                gone.push(slot.position);
            }
        }
        let end = state.next_index();
        state.held_from = state.held_from.min(end);
        gone.reverse();
        let ops = releases(self.stream, &gone);
        if !ops.is_empty() {
            self.submit(&mut state, ops);
        }
    }

    /// Forgets all entries up to this one; their records become the member's.
    pub(crate) fn purge(&self, upto: LogId) {
        let mut state = self.state.lock();
        let state = &mut *state;
        while state.first <= upto.index && !state.slots.is_empty() {
            state.let_go(0, &self.disk.tail);
            if let Some(slot) = state.slots.pop_front() {
                state.bytes -= u64::from(slot.bytes);
            }
            state.first += 1;
        }
        state.first = state.first.max(upto.index + 1);
        state.held_from = state.held_from.max(state.first);
        let position = state.take_position();
        let old = state.purged.replace((upto, position)).map(|(_, at)| at);
        self.replace(state, &Head::Purged(upto), Bytes::new(), Replaced { position, old });
    }

    /// What is waited for until an entry counts as durable.
    fn until(&self) -> Until {
        match self.class {
            Class::Vital => Until::Vital,
            Class::Bulk => Until::Durable,
        }
    }

    /// Puts a record and releases the one that it replaces. It is vital, so the order holds even
    /// on a full disk. Call it with the state locked.
    fn replace(&self, state: &mut State, head: &Head, payload: Bytes, replaced: Replaced) -> Lsn {
        let Replaced { position, old } = replaced;
        let mut ops = vec![self.put(position, head, payload)];
        ops.extend(old.map(|at| Op::Release { stream: self.stream, first: at, last: at }));
        self.submit(state, ops)
    }

    async fn save_vote(&self, vote: Vote) -> io::Result<()> {
        let (entries, lsn) = {
            let mut state = self.state.lock();
            let position = state.take_position();
            let old = state.vote.replace((vote, position)).map(|(_, at)| at);
            let replaced = Replaced { position, old };
            let lsn = self.replace(&mut state, &Head::Vote(vote), Bytes::new(), replaced);
            (state.slots.back().map_or(Lsn(0), |slot| slot.lsn), lsn)
        };
        self.seat.on_vote(vote);
        self.disk.watermark.reached(Until::Vital, lsn).await?;
        // openraft takes what it asked for before as done too, and tells the next leader so: entries
        // that wait for room on a full disk hold up a vote behind them.
        self.disk.watermark.reached(self.until(), entries).await
    }

    /// Renews the hint of what is committed. It costs no sync.
    fn save_committed(&self, id: LogId) {
        let mut state = self.state.lock();
        let head = Head::Committed(id);
        if let Some((old, position)) = &mut state.committed {
            *old = id;
            let note = Op::Note { stream: self.stream, seq: *position, bytes: head.encode() };
            self.submit(&mut state, vec![note]);
        } else {
            let position = state.take_position();
            state.committed = Some((id, position));
            self.replace(&mut state, &head, Bytes::new(), Replaced { position, old: None });
        }
    }

    /// The positions of entries that are in the log.
    pub(crate) fn positions(&self, indexes: Range<u64>) -> Vec<Seq> {
        let state = self.state.lock();
        let position = |index| state.slot(index).expect("what is applied is in the log").position;
        indexes.map(position).collect()
    }

    /// Entries up to this one were applied: those that are durable too need not stay in memory.
    /// Tells whether it is time for a checkpoint.
    pub(crate) fn applied(&self, index: u64) -> bool {
        let durable = self.disk.watermark.durable();
        let slack = self.disk.tail.slack();
        let mut state = self.state.lock();
        while state.held_from <= index && state.held_bytes > slack {
            let Some(at) = state.held_from.checked_sub(state.first) else { break };
            let at = usize::try_from(at).expect("slots are in memory");
            if state.slots.get(at).is_none_or(|slot| slot.lsn > durable) {
                break;
            }
            state.let_go(at, &self.disk.tail);
            state.held_from += 1;
        }
        let limits = &self.disk.limits;
        let is_due = index.saturating_sub(state.asked) >= limits.checkpoint_entries
            // A large state is not written more often than as much again has come in.
            || state.grown >= limits.checkpoint_bytes.max(state.image);
        if is_due {
            (state.asked, state.grown) = (index, 0);
        }
        is_due
    }

    /// Entries of a range, as far as the log has them; stops after `bytes_max`, but not before the
    /// first.
    pub(crate) async fn read(&self, range: Range<u64>, bytes_max: u64) -> io::Result<Vec<Entry>> {
        // Entries may be truncated or purged while their records are read; then what was read
        // does not count. That cannot go on for ever.
        loop {
            let (mut entries, missing) = self.collect(range.clone(), bytes_max);
            if missing.is_empty() {
                return Ok(entries.into_iter().flatten().collect());
            }
            let positions = missing.iter().map(|missing| missing.position).collect();
            let payloads = self.read_payloads(positions).await?;
            let mut failure = None;
            for (missing, payload) in missing.iter().zip(payloads) {
                match payload.and_then(|bytes| loaded(missing.kind, bytes)) {
                    Ok(payload) => {
                        entries[missing.at] = Some(Entry { log_id: missing.id, payload });
                    }
                    Err(error) => failure = Some(error),
                }
            }
            let Some(error) = failure else {
                return Ok(entries.into_iter().flatten().collect());
            };
            let state = self.state.lock();
            let stands = |missing: &Missing| {
                let slot = state.slot(missing.id.index);
                slot.is_some_and(|slot| slot.position == missing.position)
            };
            if missing.iter().all(stands) {
                return Err(error);
            }
        }
    }

    /// What is in memory of a range, and what is not.
    fn collect(&self, range: Range<u64>, bytes_max: u64) -> (Vec<Option<Entry>>, Vec<Missing>) {
        let state = self.state.lock();
        let range = range.start.max(state.first)..range.end.min(state.next_index());
        let (mut entries, mut missing, mut bytes) = (Vec::new(), Vec::new(), 0);
        for index in range {
            let Some(slot) = state.slot(index) else { break };
            bytes += u64::from(slot.bytes);
            if bytes > bytes_max && !entries.is_empty() {
                break;
            }
            let (id, kind, position) = (slot.id(index), slot.kind, slot.position);
            if slot.held.is_none() {
                missing.push(Missing { at: entries.len(), id, kind, position });
            }
            entries.push(slot.held.clone().map(|payload| Entry { log_id: id, payload }));
        }
        (entries, missing)
    }

    /// Reads payloads of records, on a thread that may block.
    pub(crate) async fn read_payloads(
        &self,
        positions: Vec<Seq>,
    ) -> io::Result<Vec<io::Result<Bytes>>> {
        let (answer, read) = tokio::sync::oneshot::channel();
        let then = Box::new(move |payloads| drop(answer.send(payloads)));
        Arc::clone(&self.disk.log).read_later(self.stream, positions, then);
        let payloads: Vec<_> = read.await.map_err(|_| io::Error::other("nothing was read"))?;
        Ok(payloads.into_iter().map(|result| result.map_err(io::Error::other)).collect())
    }

    /// Stores bodies alone, in new records.
    pub(crate) fn carry(&self, class: Class, heads: Vec<(Head, op::Payload)>) -> (Vec<Seq>, Lsn) {
        let mut state = self.state.lock();
        let mut positions = Vec::with_capacity(heads.len());
        let put = |(head, payload): (Head, op::Payload)| {
            let seq = state.take_position();
            positions.push(seq);
            Op::Put { stream: self.stream, seq, class, head: head.encode(), payload }
        };
        let ops = heads.into_iter().map(put).collect();
        let lsn = self.submit(&mut state, ops);
        (positions, lsn)
    }

    /// Calls once everything vital up to there is durable.
    pub(crate) fn when_vital(&self, lsn: Lsn, call: impl FnOnce(io::Result<()>) + Send + 'static) {
        self.disk.watermark.when(Until::Vital, lsn, call);
    }

    /// Releases records; ascending positions are released in ranges.
    pub(crate) fn release(&self, positions: &[Seq]) {
        let ops = releases(self.stream, positions);
        let mut state = self.state.lock();
        if !ops.is_empty() {
            self.submit(&mut state, ops);
        }
    }

    /// Waits until what was handed over is on the disk.
    pub(crate) async fn reached(&self, lsn: Lsn) -> io::Result<()> {
        self.disk.watermark.reached(Until::Durable, lsn).await
    }

    /// The checkpoint that has come from another node last, since the start.
    pub(crate) fn arrived(&self) -> Option<LogId> {
        self.state.lock().arrived
    }

    /// Stores a checkpoint in place of the last one; durable when it returns.
    pub(crate) async fn save_checkpoint(
        &self,
        meta: &SnapshotMeta,
        state: &Bytes,
    ) -> io::Result<()> {
        let Some(id) = meta.last_log_id else { return Ok(()) };
        let payload = checkpoint::encode(meta, state);
        let image = payload.len() as u64;
        // It names bodies in entries, which may wait for room while it does not.
        let entries = self.state.lock().slot(id.index).map_or(Lsn(0), |slot| slot.lsn);
        self.disk.watermark.reached(Until::Durable, entries).await?;
        let (position, lsn) = {
            let mut state = self.state.lock();
            let position = state.take_position();
            let ops = vec![self.put(position, &Head::Checkpoint(id), payload)];
            (position, self.submit(&mut state, ops))
        };
        // It waits for room like any put of its size, and what is vital goes past it.
        self.disk.watermark.reached(Until::Durable, lsn).await?;
        // Only now can it be read. One that came from another node meanwhile is newer.
        let old = {
            let mut state = self.state.lock();
            state.image = image;
            match state.checkpoint {
                Some((newer, _)) if newer > id => position,
                _ => match state.checkpoint.replace((id, position)) {
                    Some((_, old)) => old,
                    None => return Ok(()),
                },
            }
        };
        self.release(&[old]);
        Ok(())
    }

    /// Stores a checkpoint that came from another node, whose bodies lie in records from `first`
    /// on, the last put by `stored`; durable when it returns. Then it forgets every record before
    /// `first`: what is released goes past a checkpoint that waits for room on a full disk.
    pub(crate) async fn save_arrived(
        &self,
        meta: &SnapshotMeta,
        image: &Bytes,
        first: Option<Seq>,
        stored: Lsn,
    ) -> io::Result<()> {
        let Some(id) = meta.last_log_id else { return Ok(()) };
        // The bodies may wait for room while the checkpoint does not.
        self.disk.watermark.reached(Until::Durable, stored).await?;
        let payload = checkpoint::encode(meta, image);
        let (before, position, lsn) = {
            let mut state = self.state.lock();
            let state = &mut *state;
            let mut ops = Vec::new();
            let before = first.map_or(state.next, |first| first.0);
            let position = state.take_position();
            ops.push(self.put(position, &Head::Checkpoint(id), payload));
            // The few records that still count move behind, so that one range releases the rest.
            if let Some((vote, at)) = &mut state.vote {
                *at = Seq(state.next);
                ops.push(self.put(*at, &Head::Vote(*vote), Bytes::new()));
                state.next += 1;
            }
            if let Some((committed, at)) = &mut state.committed {
                *at = Seq(state.next);
                ops.push(self.put(*at, &Head::Committed(*committed), Bytes::new()));
                state.next += 1;
            }
            if let Some((purged, at)) = &mut state.purged {
                *at = Seq(state.next);
                ops.push(self.put(*at, &Head::Purged(*purged), Bytes::new()));
                state.next += 1;
            }
            (before, position, self.submit(state, ops))
        };
        self.disk.watermark.reached(Until::Durable, lsn).await?;
        let mut state = self.state.lock();
        let state = &mut *state;
        state.image = image.len() as u64;
        (state.asked, state.grown, state.arrived) = (id.index, 0, Some(id));
        let old = state.checkpoint.replace((id, position)).map(|(_, at)| at);
        let mut ops: Vec<Op> = Vec::new();
        ops.extend(old.map(|at| Op::Release { stream: self.stream, first: at, last: at }));
        // Entries after the checkpoint, if the log has any, stay where they are.
        let kept = state.slots.partition_point(|slot| slot.position.0 < before);
        let kept_from = state.slots.iter().take(kept);
        let beyond = kept_from.zip(state.first..).find(|(_, index)| *index > id.index);
        let end = beyond.map_or(before, |(slot, _)| slot.position.0);
        if end > 1 {
            ops.push(Op::Release { stream: self.stream, first: Seq(1), last: Seq(end - 1) });
        }
        if !ops.is_empty() {
            self.submit(state, ops);
        }
        Ok(())
    }

    fn put(&self, seq: Seq, head: &Head, payload: Bytes) -> Op {
        let (class, payload) = (self.class_of(head), op::Payload::Bytes(payload));
        Op::Put { stream: self.stream, seq, class, head: head.encode(), payload }
    }

    /// What is small and must go on when the disk is full is vital.
    fn class_of(&self, head: &Head) -> Class {
        match head {
            Head::Vote(_) | Head::Purged(_) | Head::Committed(_) => Class::Vital,
            // What is waited for has to be what was asked for, see `until`.
            Head::Entry { .. } => self.class,
            Head::Checkpoint(_) | Head::Carried { .. } | Head::Arrived { .. } => Class::Bulk,
        }
    }

    /// The last checkpoint, read from the journal.
    pub(crate) async fn read_checkpoint(&self) -> io::Result<Option<Checkpoint>> {
        loop {
            let Some((_, position)) = self.state.lock().checkpoint else { return Ok(None) };
            let payload = self.read_payloads(vec![position]).await?.pop();
            let payload = payload.unwrap_or_else(|| Err(io::Error::other("nothing was read")));
            match payload {
                Ok(payload) => {
                    return checkpoint::decode(payload).map(Some).map_err(io::Error::other);
                }
                // A newer one replaced it meanwhile.
                Err(_) if self.state.lock().checkpoint.is_some_and(|(_, at)| at != position) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The records of bodies that were there at the start, once.
    pub(crate) fn take_bodies(&self) -> Vec<Body> {
        std::mem::take(&mut self.state.lock().bodies)
    }

    /// Forgets the group in the journal.
    pub(crate) fn delete(&self) -> Lsn {
        let mut state = self.state.lock();
        state.unwritten.clear();
        let lsn = self.submit(&mut state, vec![Op::Drop { stream: self.stream }]);
        state.deleted = true;
        lsn
    }
}

impl Drop for GroupLog {
    fn drop(&mut self) {
        self.disk.tail.sub(self.state.lock().held_bytes);
    }
}

/// The records that the checkpoint may name: all entries up to it, and what lies alone.
fn bodies(recovered: &Recovered) -> Vec<Body> {
    let Some((checkpoint, at)) = recovered.checkpoint else { return Vec::new() };
    let entries = recovered.bodies.iter().chain(&recovered.entries);
    let entries = entries.filter(|entry| entry.id.index <= checkpoint.index);
    let entries =
        entries.map(|entry| Body::Entry { index: entry.id.index, position: entry.position });
    let arrived = recovered.arrived.iter().filter(|(_, position)| *position < at);
    let alone = recovered.carried.iter().chain(arrived);
    let alone = alone.map(|&(name, position)| Body::Carried { name, position });
    let mut bodies: Vec<Body> = entries.chain(alone).collect();
    bodies.sort_by_key(|body| match body {
        Body::Entry { position, .. } | Body::Carried { position, .. } => *position,
    });
    bodies
}

/// What an entry's record holds.
fn stored(payload: &Payload) -> (EntryKind, Bytes) {
    match payload {
        Payload::Blank => (EntryKind::Blank, Bytes::new()),
        Payload::Normal(data) => (EntryKind::Normal, data.0.clone()),
        Payload::Membership(membership) => {
            let mut bytes = BytesMut::new();
            bytes.membership(membership);
            (EntryKind::Membership, bytes.freeze())
        }
    }
}

/// An entry from its record.
fn loaded(kind: EntryKind, bytes: Bytes) -> io::Result<Payload> {
    Ok(match kind {
        EntryKind::Blank => Payload::Blank,
        EntryKind::Normal => Payload::Normal(Data(bytes)),
        EntryKind::Membership => {
            let mut reader = Reader::new(bytes);
            let membership = reader.membership().map_err(io::Error::other)?;
            reader.end().map_err(io::Error::other)?;
            Payload::Membership(membership)
        }
    })
}

/// Releases of positions, neighbours together.
fn releases(stream: StreamId, positions: &[Seq]) -> Vec<Op> {
    let mut ops: Vec<Op> = Vec::new();
    for &position in positions {
        if let Some(Op::Release { last, .. }) = ops.last_mut()
            && last.next() == position
        {
            *last = position;
        } else {
            ops.push(Op::Release { stream, first: position, last: position });
        }
    }
    ops
}
