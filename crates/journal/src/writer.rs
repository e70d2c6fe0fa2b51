//! The machine that writes: takes operations, appends records, syncs, and says what is durable.
//!
//! ```text
//!  submitted ─▶ backlog ─▶ records in the buffer ─▶ written ─▶ synced: durable
//!                  │              ▲
//!                  ├──▶ held ─────┤   bulk puts that wait for a segment
//!                  └──▶ parked ───┘   vital ones, with their streams
//! ```
//!
//! One call of [`Writer::step`] takes everything that waits, makes as few writes of it as the
//! buffer's size allows, and at most one sync unless a segment fills up. Production calls it from
//! a thread; tests call it inline, one step at a time. It waits for nothing but the disk: files
//! are prepared and freed by the [`crate::keeper`], whose answers are an input like operations.
//!
//! Invariants: a record is durable before `Step::durable` says so; a segment is begun only when
//! everything in the one before is synced, and its header is synced before anything else is written
//! to it; a failed write or sync ends the machine.

use crate::format::{
    Encoder, MARK, PREFIX, PUT_PREFIX, RECORDS_AT, REF_PREFIX, SegmentHeader, TRAILER_SPACE,
    padded, seed,
};
use crate::gather::Gather;
use crate::held::{Held, HeldPut};
use crate::index::{Index, Segment, Slot, State};
use crate::keeper::{Done, Job};
use crate::op::{Class, Head, Lsn, Op, Payload, Place};
use crate::options::Options;
use crate::parked::Parked;
use crate::stats::Stats;
use crate::writer::current::{Current, Resumed};
use model::id::{Seq, StreamId};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use std::vec::IntoIter;

pub(crate) mod current;

pub(crate) mod reclaim;

/// What is put together before it is written, unless one record is larger.
const BUFFER_BYTES: usize = 1 << 20;
/// A buffer that a huge record left behind is given back beyond this.
const BUFFER_KEPT: usize = 4 << 20;
/// A vital put larger than this share of a segment gets nothing of the reserve.
const VITAL_SHARE: u64 = 4;
/// While the reserve is not complete, vital puts stop where this share of a segment that was taken
/// from it is left: it is for releases, or nothing would ever make room again.
const SETTLE_SHARE: u64 = 2;
/// A step that wrote this much syncs and reports before it takes more.
const STEP_BYTES: u64 = 4 << 20;
/// How often a full disk is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What a step did, and what the caller owes.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// Tell the listener.
    pub(crate) durable: Option<Lsn>,
    /// Tell the listener, first.
    pub(crate) vital: Option<Lsn>,
    /// Tell the listener.
    pub(crate) full: Option<bool>,
    /// Have the keeper do these, in this order, and hand the answers to a later step.
    pub(crate) jobs: Vec<Job>,
    /// Call again at this time even if nothing comes; the time as given to the step.
    pub(crate) wake_at: Option<Duration>,
    /// Payload bytes that no longer wait.
    pub(crate) taken_bytes: usize,
    /// Everything handed over is durable and no job is out.
    pub(crate) idle: bool,
}

/// Who asks for a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// A bulk put: leaves the reserve alone.
    Put,
    /// A vital put: leaves the last segment for compaction, and half of a borrowed one for those
    /// below; the whole reserve if it is large.
    Vital,
    /// A release, note or drop: leaves the last segment for compaction.
    Settle,
    /// Compaction.
    Carry,
}

/// See the module.
#[expect(clippy::struct_excessive_bools, reason = "independent conditions, each said at its field")]
#[derive(Debug)]
pub(crate) struct Writer {
    options: Options,
    uid: u64,
    /// Differs with each opening.
    instance: u64,
    index: Arc<Mutex<Index>>,
    stats: Arc<Mutex<Stats>>,
    /// Set while the owner still visits what was recovered; places must not change.
    visiting: Arc<AtomicBool>,

    backlog: VecDeque<IntoIter<Op>>,
    /// Operations taken from the backlog.
    processed: u64,
    held: Held,
    /// Bulk puts go to `held` until there is a segment for them.
    holding: bool,
    parked: Parked,
    /// Vital puts go to `parked` until there is a segment for them.
    parking: bool,
    /// The reserve is not complete: bulk puts leave a borrowed segment to those that the reserve is for.
    reserve_is_short: bool,

    current: Option<Current>,
    next_generation: u64,
    buffer: Vec<u8>,
    gather: Gather,
    /// Writes done, and how many of them are synced.
    written: u64,
    synced: u64,
    /// When the oldest write that is not synced was done.
    unsynced_since: Option<Duration>,
    /// Something was written that somebody waits for.
    urgent: bool,
    durable: u64,
    vital: u64,

    reclaim: reclaim::Reclaim,
    /// Without a current segment: the last one says that the journal was closed properly.
    clean: bool,
    closing: bool,
    failed: bool,
}

/// What is given to a new writer.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) options: Options,
    pub(crate) uid: u64,
    pub(crate) instance: u64,
    pub(crate) index: Arc<Mutex<Index>>,
    pub(crate) stats: Arc<Mutex<Stats>>,
    pub(crate) visiting: Arc<AtomicBool>,
    pub(crate) next_generation: u64,
    /// Whether the last segment says that the journal was closed properly.
    pub(crate) clean: bool,
    /// The segment to go on in.
    pub(crate) resumed: Option<Resumed>,
}

/// Why records cannot be added now.
enum Stop {
    /// The buffer should be written.
    BufferFull,
    /// The segment is full: a record of so many bytes (with its index entry) needs another.
    SegmentFull { need: u64, claim: Claim },
}

impl Writer {
    pub(crate) fn new(start: Start) -> Self {
        let current = start.resumed.map(|resumed| {
            let mut index = start.index.lock();
            Current::resume(resumed, &mut index, start.uid)
        });
        Self {
            options: start.options,
            uid: start.uid,
            instance: start.instance,
            index: start.index,
            stats: start.stats,
            visiting: start.visiting,
            backlog: VecDeque::new(),
            processed: 0,
            held: Held::default(),
            holding: false,
            parked: Parked::default(),
            parking: false,
            reserve_is_short: true,
            current,
            next_generation: start.next_generation,
            buffer: Vec::new(),
            gather: Gather::default(),
            written: 0,
            synced: 0,
            unsynced_since: None,
            urgent: false,
            durable: 0,
            vital: 0,
            reclaim: reclaim::Reclaim::default(),
            clean: start.clean,
            closing: false,
            failed: false,
        }
    }

    /// Advances by everything that waits. `now` is the time since any fixed moment; `hasten` asks
    /// for a sync of whatever was written.
    ///
    /// # Errors
    /// If the disk fails. Final: further steps do nothing.
    pub(crate) fn step(
        &mut self,
        now: Duration,
        lists: &mut Vec<Vec<Op>>,
        answers: &mut Vec<Done>,
        hasten: bool,
    ) -> io::Result<Step> {
        let mut step = Step::default();
        if self.failed {
            lists.clear();
            answers.clear();
            return Ok(step);
        }
        let result = self.advance(now, lists, answers, hasten, &mut step);
        self.failed = result.is_err();
        self.publish_stats();
        result.map(|()| step)
    }

    /// From now on nothing more is handed over: no compaction is begun.
    pub(crate) fn close(&mut self) {
        self.closing = true;
    }

    fn advance(
        &mut self,
        now: Duration,
        lists: &mut Vec<Vec<Op>>,
        answers: &mut Vec<Done>,
        hasten: bool,
        step: &mut Step,
    ) -> io::Result<()> {
        if !lists.is_empty() {
            self.stats.lock().batches += 1;
        }
        self.backlog.extend(lists.drain(..).map(Vec::into_iter));
        self.urgent |= hasten;
        for answer in answers.drain(..) {
            self.on_done(now, answer, step)?;
        }
        self.write_all(now, step)?;
        self.carry(now, step)?;
        let due = self.unsynced_since.is_some_and(|since| now >= since + self.options.sync_delay);
        if self.synced < self.written && (self.urgent || due || self.closing) {
            self.sync()?;
        }
        if self.synced == self.written {
            self.urgent = false;
            self.report_durable(step);
        }
        self.plan(now, step);
        let sync_at = self.unsynced_since.map(|since| since + self.options.sync_delay);
        let wakes = [step.wake_at, sync_at, self.reclaim.wake_at(now)];
        step.wake_at = wakes.into_iter().flatten().min();
        step.idle = self.backlog.is_empty()
            && self.held.is_empty()
            && self.parked.is_empty()
            && self.synced == self.written
            && self.reclaim.is_idle();
        Ok(())
    }

    /// Moves the watermarks when everything that was written is synced: what is not written is held
    /// or parked.
    fn report_durable(&mut self, step: &mut Step) {
        let vital = self.parked.first().map_or(self.processed, |(number, _)| number - 1);
        let durable = self.held.first().map_or(vital, |(number, _)| vital.min(number - 1));
        if vital > self.vital {
            self.vital = vital;
            step.vital = Some(Lsn(vital));
        }
        if durable > self.durable {
            self.durable = durable;
            step.durable = Some(Lsn(durable));
        }
    }

    // ---- putting records together -------------------------------------------------------------

    fn write_all(&mut self, now: Duration, step: &mut Step) -> io::Result<()> {
        let mut room = STEP_BYTES;
        if self.reserve_is_short {
            self.reserve_is_short = self.is_reserve_short(&self.index.lock());
        }
        self.go_on();
        loop {
            let index = Arc::clone(&self.index);
            let mut guard = index.lock();
            let stop = self.encode(&mut guard, step);
            self.write_gathered(&mut guard);
            drop(guard);
            room = room.saturating_sub(self.buffer.len() as u64);
            self.flush(now)?;
            match stop {
                // What held the others up may just have been cancelled.
                None if self.go_on() => {}
                None => return Ok(()),
                Some(_) if room == 0 => {
                    self.urgent = true;
                    step.wake_at = Some(now);
                    return Ok(());
                }
                Some(Stop::BufferFull) => {}
                Some(Stop::SegmentFull { need, claim }) => {
                    if !self.roll(need, claim, step)? {
                        match claim {
                            Claim::Put => self.holding = true,
                            Claim::Vital => self.parking = true,
                            // Not even the reserve has room: everything waits.
                            Claim::Settle | Claim::Carry => return Ok(()),
                        }
                    }
                }
            }
        }
    }

    /// Turns operations into records until none waits or something must be done first.
    fn encode(&mut self, index: &mut Index, step: &mut Step) -> Option<Stop> {
        if !self.parking {
            while let Some((_, op)) = self.parked.first() {
                if let Some(stop) = self.room_for(op) {
                    return Some(stop);
                }
                let (number, op) = self.parked.pop().expect("there is a first");
                self.carry_out(index, number, op, step);
            }
        }
        if !self.holding {
            while let Some((_, put)) = self.held.first() {
                if self.parked.has(put.name.0) {
                    self.holding = true;
                    break;
                }
                if let Some(stop) = self.room_for_held(put) {
                    return Some(stop);
                }
                let put = self.held.pop().expect("there is a first");
                step.taken_bytes += put.payload.len();
                self.put(index, put.name, put.head, put.payload);
            }
        }
        while let Some(list) = self.backlog.front() {
            let Some(op) = list.as_slice().first() else {
                self.backlog.pop_front();
                continue;
            };
            let waits = self.waits(op);
            if !waits && let Some(stop) = self.room_for(op) {
                return Some(stop);
            }
            let op = self.backlog.front_mut().and_then(Iterator::next);
            let op = op.expect("it was just looked at");
            self.processed += 1;
            if waits {
                self.put_off(op);
            } else {
                self.carry_out(index, self.processed, op, step);
            }
        }
        None
    }

    /// Whether an operation has to wait for room.
    fn waits(&self, op: &Op) -> bool {
        match op {
            Op::Put { class: Class::Bulk, .. } if self.holding => true,
            Op::Put { class: Class::Vital, .. } if self.parking => true,
            op => !self.parked.is_empty() && self.parked.has(op.stream()),
        }
    }

    fn put_off(&mut self, op: Op) {
        match op {
            Op::Put { stream, seq, class: Class::Bulk, head, payload } => {
                // Those behind it must not pass it.
                self.holding = true;
                self.held.push(self.processed, HeldPut { name: (stream, seq), head, payload });
            }
            op => self.parked.push(self.processed, op),
        }
    }

    fn carry_out(&mut self, index: &mut Index, number: u64, op: Op, step: &mut Step) {
        match op {
            Op::Put { stream, seq, head, payload, .. } => {
                step.taken_bytes += payload.len();
                self.put(index, (stream, seq), head, payload);
            }
            Op::Note { stream, seq, bytes } => self.note(index, (stream, seq), bytes),
            Op::Release { stream, first, last } => {
                step.taken_bytes += self.held.release(number, stream, first, last);
                self.release(index, stream, first, last);
            }
            Op::Drop { stream } => {
                step.taken_bytes += self.held.release(number, stream, Seq(0), Seq(u64::MAX));
                self.drop_stream(index, stream);
            }
        }
    }

    fn room_for(&self, op: &Op) -> Option<Stop> {
        match op {
            Op::Put { class, head, payload, .. } => {
                let need = record_need(head, payload.len(), shared_of(payload));
                self.room(need, claim_of(*class))
            }
            Op::Release { .. } => self.room((Gather::ONE, Gather::ONE), Claim::Settle),
            Op::Note { bytes, .. } => {
                let length = PUT_PREFIX + bytes.as_slice().len();
                self.room((padded(length), length), Claim::Settle)
            }
            Op::Drop { .. } => self.room((PREFIX + 8, PREFIX + 8), Claim::Settle),
        }
    }

    fn room_for_held(&self, put: &HeldPut) -> Option<Stop> {
        let need = record_need(&put.head, put.payload.len(), shared_of(&put.payload));
        self.room(need, Claim::Put)
    }

    /// Whether a record fits, given its padded length and that of its index entry.
    fn room(&self, need: (usize, usize), claim: Claim) -> Option<Stop> {
        let waiting = self.buffer.len();
        if waiting > 0 && waiting + need.0 > BUFFER_BYTES || self.gather.is_large() {
            return Some(Stop::BufferFull);
        }
        let (record, entry) = (need.0 as u64, need.1 as u64);
        let full = || {
            let mark = MARK as u64;
            let around = u64::from(RECORDS_AT) + mark + TRAILER_SPACE;
            Some(Stop::SegmentFull { need: record + entry + around, claim })
        };
        let Some(current) = &self.current else { return full() };
        let is_scarce = current.is_borrowed && self.reserve_is_short;
        if is_scarce && !self.may_borrow(claim, record) {
            return full();
        }
        let gathered = self.gather.bytes_max() as u64;
        let mark = if waiting == 0 { MARK as u64 } else { 0 };
        let records = u64::from(current.end) + waiting as u64 + mark + record + gathered;
        let entries = match &current.index {
            Some(entries) => entries.len() as u64 + entry + gathered,
            None => 0,
        };
        let bytes = current.header.bytes;
        let kept = if is_scarce && claim == Claim::Vital { bytes / SETTLE_SHARE } else { 0 };
        if records + entries + TRAILER_SPACE + kept > bytes {
            return full();
        }
        None
    }

    /// Begins a record: the place where it will lie in the segment.
    fn begin(&mut self) -> (usize, u32) {
        let current = self.current.as_ref().expect("there is room in a segment");
        if self.buffer.is_empty() {
            // The mark is filled in when the length of the write is known.
            self.buffer.resize(MARK, 0);
        }
        let start = self.buffer.len();
        (start, current.end + start as u32)
    }

    fn encoder(&mut self) -> Encoder<'_> {
        let seed = self.current.as_ref().expect("there is room in a segment").seed;
        Encoder { out: &mut self.buffer, seed }
    }

    fn slot(&self) -> Slot {
        self.current.as_ref().expect("there is room in a segment").slot
    }

    /// Adds the record that begins at `start` of the buffer to the segment's index.
    fn add_entry(&mut self, start: usize, entry_length: usize) {
        let current = self.current.as_mut().expect("there is room in a segment");
        current.add_entry(&self.buffer, start, entry_length);
    }

    fn put(&mut self, index: &mut Index, name: (StreamId, Seq), head: Head, payload: Payload) {
        self.urgent = true;
        match payload {
            Payload::Message(message) => {
                self.put_plain(index, name, head, 0, |out| message.encode_into(out));
            }
            Payload::Bytes(bytes) => {
                self.put_plain(index, name, head, 0, |out| out.extend_from_slice(&bytes));
            }
            Payload::Shared(shared) => {
                let message = shared.message();
                let mut place = shared.place.lock();
                let current = self.current.as_ref().expect("there is room in a segment");
                let (instance, generation) = (self.instance, current.header.generation);
                if (place.instance, place.generation) != (instance, generation) {
                    let offset = self.put_body(index, |out| message.encode_into(out));
                    *place = Place { instance, generation, offset };
                }
                self.put_reference(index, name, head, 0, place.offset, message.encoded_len());
            }
        }
    }

    /// Writes a put; where it lies.
    fn put_plain(
        &mut self,
        index: &mut Index,
        name: (StreamId, Seq),
        head: Head,
        flags: u16,
        payload: impl FnOnce(&mut Vec<u8>),
    ) {
        let (start, offset) = self.begin();
        self.encoder().put(name, &head, flags, payload);
        let length = self.buffer.len() - start;
        self.add_entry(start, PUT_PREFIX + head.as_slice().len());
        index.put(name, self.slot(), offset, length);
    }

    fn put_body(&mut self, index: &mut Index, payload: impl FnOnce(&mut Vec<u8>)) -> u32 {
        let (start, offset) = self.begin();
        self.encoder().body(payload);
        self.add_entry(start, PREFIX);
        index.body(self.slot(), offset, self.buffer.len() - start);
        offset
    }

    fn put_reference(
        &mut self,
        index: &mut Index,
        name: (StreamId, Seq),
        head: Head,
        flags: u16,
        body_at: u32,
        body_length: usize,
    ) {
        let (start, _) = self.begin();
        self.encoder().reference(name, &head, flags, body_at, body_length as u64);
        self.add_entry(start, REF_PREFIX + head.as_slice().len());
        let known = index.reference(name, self.slot(), body_at);
        assert!(known, "a ref follows its body");
    }

    fn note(&mut self, index: &mut Index, name: (StreamId, Seq), head: Head) {
        self.held.note(name, head);
        if index.place(name.0, name.1).is_none() {
            return;
        }
        let (start, offset) = self.begin();
        self.encoder().note(name, &head);
        self.add_entry(start, PUT_PREFIX + head.as_slice().len());
        let known = index.note(name, self.slot(), offset, self.buffer.len() - start);
        assert!(known, "the record was just looked up");
    }

    fn release(&mut self, index: &mut Index, stream: StreamId, first: Seq, last: Seq) {
        let Some(number) = index.find(stream) else { return };
        let last = Seq(last.0.min(index.stream(number).highest));
        if first > last || index.release(stream, first, last, self.slot()) == 0 {
            return;
        }
        self.gather.add(index, number, first.0, last.0);
    }

    fn drop_stream(&mut self, index: &mut Index, stream: StreamId) {
        if index.find(stream).is_none() {
            return;
        }
        self.urgent = true;
        // They name streams by their number in the index, which may now go to another.
        self.write_gathered(index);
        if index.drop_stream(stream, self.slot()) > 0 {
            let (start, _) = self.begin();
            self.encoder().drop_stream(stream);
            self.add_entry(start, PREFIX + 8);
        }
    }

    fn write_gathered(&mut self, index: &mut Index) {
        if self.gather.is_empty() {
            return;
        }
        self.begin();
        let mut gather = std::mem::take(&mut self.gather);
        let current = self.current.as_mut().expect("there is room in a segment");
        let mut encoder = Encoder { out: &mut self.buffer, seed: current.seed };
        gather.write(index, &mut encoder, |buffer, start| {
            let length = crate::format::u32_at(buffer, start + 4) as usize;
            current.add_entry(buffer, start, length);
        });
        self.gather = gather;
    }

    // ---- the disk -----------------------------------------------------------------------------

    /// Writes the buffer.
    fn flush(&mut self, now: Duration) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let current = self.current.as_mut().expect("the buffer belongs to a segment");
        let end = current.end + self.buffer.len() as u32;
        let mut mark = Vec::with_capacity(MARK);
        Encoder { out: &mut mark, seed: current.seed }.mark(current.synced, end);
        self.buffer[..MARK].copy_from_slice(&mark);
        current.begin()?;
        current.file.write_at(&self.buffer, current.end.into())?;
        current.end = end;
        self.written += 1;
        self.unsynced_since.get_or_insert(now);
        let mut index = self.index.lock();
        index.write = self.written + 1;
        index.segments[current.slot as usize].written = end;
        drop(index);
        let mut stats = self.stats.lock();
        stats.writes += 1;
        stats.written_bytes += self.buffer.len() as u64;
        drop(stats);
        self.buffer.clear();
        if self.buffer.capacity() > BUFFER_KEPT {
            self.buffer.shrink_to(BUFFER_KEPT);
        }
        Ok(())
    }

    /// Makes everything that was written durable.
    fn sync(&mut self) -> io::Result<()> {
        if self.synced == self.written {
            return Ok(());
        }
        let current = self.current.as_mut().expect("what is not synced is in the current segment");
        let started = Instant::now();
        current.file.sync()?;
        current.synced = current.end;
        self.synced = self.written;
        self.unsynced_since = None;
        let mut stats = self.stats.lock();
        stats.syncs += 1;
        stats.sync_us += started.elapsed().as_micros() as u64;
        Ok(())
    }

    /// Goes on in another segment, if there is one for this claim.
    fn roll(&mut self, need: u64, claim: Claim, step: &mut Step) -> io::Result<bool> {
        let found = self.free_for(&self.index.lock(), need, claim);
        let Some(slot) = found else { return Ok(false) };
        self.index.lock().segments[slot as usize].state = State::Current;
        self.seal(false, step)?;
        let generation = self.next_generation;
        self.next_generation += 1;
        let mut index = self.index.lock();
        self.reserve_is_short = self.is_reserve_short(&index);
        let segment = &mut index.segments[slot as usize];
        segment.state = State::Current;
        segment.written = RECORDS_AT;
        segment.generation = generation;
        segment.seed = seed(self.uid, generation);
        let header = SegmentHeader { free: false, generation, bytes: segment.bytes, uid: self.uid };
        self.current = Some(Current {
            slot,
            file: segment.file.clone().expect("a free segment has a file"),
            header,
            header_written: false,
            is_borrowed: self.may_borrow(claim, need),
            seed: segment.seed,
            end: RECORDS_AT,
            synced: RECORDS_AT,
            index: Some(Vec::new()),
            entries: 0,
        });
        Ok(true)
    }

    /// Syncs and completes the current segment.
    fn seal(&mut self, clean: bool, step: &mut Step) -> io::Result<()> {
        assert!(self.buffer.is_empty(), "everything is written before a segment is sealed");
        // Everything in the segment must be on disk before its trailer says that it counts.
        self.sync()?;
        let Some(mut current) = self.current.take() else { return Ok(()) };
        current.begin()?;
        let trailer = current.seal(clean)?;
        if clean {
            current.file.sync()?;
        } else {
            step.jobs.push(Job::Settle { file: Arc::clone(&current.file) });
            self.reclaim.asked();
        }
        let mut index = self.index.lock();
        index.segments[current.slot as usize].state = State::Sealed;
        drop(index);
        let mut stats = self.stats.lock();
        stats.writes += 1;
        stats.written_bytes += u64::from(trailer.index_bytes);
        drop(stats);
        self.reclaim.changed();
        Ok(())
    }

    /// Whether puts wait for room that nobody will make while the journal closes.
    pub(crate) fn is_stuck(&self) -> bool {
        let is_done = self.held.is_empty() && self.parked.is_empty() && self.backlog.is_empty();
        !is_done && self.reclaim.is_full() && self.synced == self.written
    }

    /// Seals the journal. Everything handed over must be durable.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        if self.failed {
            return Err(io::Error::other("the journal has failed before"));
        }
        let result = self.finish_segment();
        self.failed = true;
        result
    }

    fn finish_segment(&mut self) -> io::Result<()> {
        let mut step = Step::default();
        if self.current.is_none() && !self.clean {
            // Nothing was written since the process before died: an empty segment says that all
            // is well. Without a free one the next opening finds the same state once more.
            self.roll(0, Claim::Carry, &mut step)?;
        }
        self.seal(true, &mut step)
    }

    /// Lets what waits go on if its first need not wait any more; whether any of it may.
    fn go_on(&mut self) -> bool {
        let vital = self.parking
            && self.parked.first().is_none_or(|(_, op)| self.is_met(self.room_for(op).as_ref()));
        let bulk = self.holding
            && self.held.first().is_none_or(|(_, put)| {
                !self.parked.has(put.name.0) && self.is_met(self.room_for_held(put).as_ref())
            });
        self.parking &= !vital;
        self.holding &= !bulk;
        vital || bulk
    }

    /// Whether what keeps a record from being added can be done.
    fn is_met(&self, stop: Option<&Stop>) -> bool {
        match stop {
            Some(&Stop::SegmentFull { need, claim }) => {
                self.free_for(&self.index.lock(), need, claim).is_some()
            }
            Some(Stop::BufferFull) | None => true,
        }
    }

    /// Whether the reserve is for records like this one, of so many bytes.
    fn may_borrow(&self, claim: Claim, bytes: u64) -> bool {
        match claim {
            Claim::Put => false,
            Claim::Vital => bytes <= self.options.segment_bytes / VITAL_SHARE,
            Claim::Settle | Claim::Carry => true,
        }
    }

    fn is_reserve_short(&self, index: &Index) -> bool {
        let free = reclaim::free_count(index, self.options.segment_bytes);
        free < self.options.reserve_segments as usize
    }

    /// A free segment that a claim may have.
    fn free_for(&self, index: &Index, need: u64, claim: Claim) -> Option<Slot> {
        let nominal = self.options.segment_bytes;
        let is_free = |segment: &Segment| segment.state == State::Free;
        let free = |segment: &Segment| is_free(segment) && segment.bytes == nominal;
        let count = index.segments.iter().filter(|segment| free(segment)).count();
        let kept = match claim {
            _ if !self.may_borrow(claim, need) => self.options.reserve_segments as usize,
            Claim::Carry => 0,
            _ => 1,
        };
        let found = if need <= nominal {
            if count <= kept {
                return None;
            }
            index.segments.iter().position(free)
        } else {
            // Made for it.
            let fits = |segment: &Segment| is_free(segment) && segment.bytes >= need;
            index.segments.iter().position(|segment| fits(segment) && segment.bytes != nominal)
        };
        found.map(|slot| slot as Slot)
    }

    fn publish_stats(&mut self) {
        let mut stats = self.stats.lock();
        stats.held_puts = self.held.len() as u64;
        stats.parked_ops = self.parked.len() as u64;
        stats.full = self.reclaim.is_full();
        stats.failed |= self.failed;
    }
}

fn claim_of(class: Class) -> Claim {
    match class {
        Class::Bulk => Claim::Put,
        Class::Vital => Claim::Vital,
    }
}

fn shared_of(payload: &Payload) -> bool {
    matches!(payload, Payload::Shared(_))
}

/// The padded length of a put's records and the length of their index entries.
fn record_need(head: &Head, payload: usize, shared: bool) -> (usize, usize) {
    let head = head.as_slice().len();
    if shared {
        // The body may have to be written again.
        let reference = REF_PREFIX + head;
        (padded(PREFIX + payload) + padded(reference), PREFIX + reference)
    } else {
        (padded(PUT_PREFIX + head + payload), PUT_PREFIX + head)
    }
}
