//! Keeping the disk small: which segments are freed, carried over, prepared.
//!
//! A sealed segment is *dead* when no live record is in it, and *free to go* when besides no
//! record of it is needed to keep an older segment's record dead: when every segment among its
//! `kills` is gone. Two ways lead there when dead segments pile up behind one that stays: carry
//! its few live records over, or, if it is dense, write the names of its dead records again
//! (*survey*), after which the older segments that said so are not needed for it.
//!
//! The aim: sealed segments stay below twice the live bytes plus one segment. With the current
//! one, the reserve and one in preparation that is below 3 x live bytes + 6 segments.

use super::{Claim, RETRY, Step, Stop, Writer};
use crate::format::{PREFIX, PUT_PREFIX, REF_PREFIX, SegmentHeader, padded, push_range};
use crate::index::{Index, SLOT_MAX, Segment, Slot, State};
use crate::keeper::{CarriedWhat, Carry, Collected, Done, Job, Surveyed};
use model::id::{Seq, StreamId};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often the segments are looked at when nothing in particular happened.
const LOOK: Duration = Duration::from_millis(10);
/// Free segments beyond this are removed.
const FREE_MAX: usize = 16;
/// Bytes of ranges in one record of a survey.
const RANGES: usize = 16 << 10;

/// What goes on beside the writing.
#[expect(clippy::struct_excessive_bools, reason = "independent conditions, each said at its field")]
#[derive(Debug, Default)]
pub(crate) struct Reclaim {
    /// Jobs that the keeper has.
    out: usize,
    preparing: bool,
    /// Segments being freed.
    retiring: usize,
    /// A collection or survey is with the keeper.
    looking: bool,
    collected: Option<Collected>,
    surveyed: Option<Surveyed>,
    /// The file system refused a segment.
    refused: bool,
    /// The file system has less free than it should.
    low: bool,
    reported_full: bool,
    /// When a refused segment is asked for again.
    retry_at: Option<Duration>,
    /// When the free space is looked at again.
    space_at: Duration,
    /// Since when no segment is made in the hope that one is freed.
    patient_since: Option<Duration>,
    changed: bool,
    planned_at: Duration,
    /// A look at the segments is due as soon as it may be.
    skipped: bool,
    /// There was no room to carry records over: not again before this.
    look_at: Duration,
}

impl Reclaim {
    pub(crate) fn changed(&mut self) {
        self.changed = true;
    }

    pub(crate) fn asked(&mut self) {
        self.out += 1;
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.out == 0 && self.collected.is_none() && self.surveyed.is_none()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.reported_full
    }

    pub(crate) fn wake_at(&self, now: Duration) -> Option<Duration> {
        let again = (self.collected.is_some() || self.surveyed.is_some() || self.changed)
            .then_some(now + Duration::from_millis(1));
        let again = again.or(self.skipped.then_some(self.planned_at + LOOK));
        let again = again.or(self.patient_since.map(|_| self.planned_at + LOOK));
        let space = (self.space_at > Duration::ZERO).then_some(self.space_at);
        [again, self.retry_at, space].into_iter().flatten().min()
    }
}

impl Writer {
    pub(super) fn on_done(&mut self, now: Duration, done: Done, step: &mut Step) -> io::Result<()> {
        self.reclaim.out -= 1;
        self.reclaim.changed = true;
        let mut index = self.index.lock();
        match done {
            Done::Failed(error) => return Err(error),
            Done::Settled => {}
            Done::Prepared { slot, bytes, file } => {
                let mut segment = Segment::absent();
                segment.state = State::Free;
                segment.bytes = bytes;
                segment.file = Some(file);
                index.segments[slot as usize] = segment;
                self.reclaim.preparing = false;
                self.reclaim.refused = false;
            }
            Done::Refused { slot } => {
                index.segments[slot as usize] = Segment::absent();
                self.reclaim.preparing = false;
                self.reclaim.refused = true;
                self.reclaim.retry_at = Some(now + RETRY);
            }
            Done::Retired { slot, removed } => {
                index.retired(slot);
                index.segments[slot as usize].unwieldy = false;
                index.segments[slot as usize].unreadable = false;
                // It may be the one that said that the journal was closed properly.
                self.clean = false;
                let segment = &mut index.segments[slot as usize];
                segment.state = State::Free;
                if removed {
                    *segment = Segment::absent();
                    // There may be room now.
                    self.reclaim.retry_at = self.reclaim.retry_at.map(|_| now);
                }
                self.reclaim.retiring -= 1;
                self.stats.lock().recycled_segments += 1;
            }
            Done::Removed { slot } => index.segments[slot as usize] = Segment::absent(),
            Done::Collected(collected) => {
                self.reclaim.looking = false;
                index.quarantined += collected.damaged.len() as u64;
                self.reclaim.collected = Some(collected);
            }
            Done::Surveyed(surveyed) => {
                self.reclaim.looking = false;
                self.reclaim.surveyed = Some(surveyed);
            }
            Done::Unreadable { slot } => {
                self.reclaim.looking = false;
                let segment = &mut index.segments[slot as usize];
                // The names in it may still be readable when a payload is not.
                segment.unreadable = segment.unwieldy;
                segment.unwieldy = true;
                index.quarantined += 1;
            }
            Done::Space { free } => {
                self.reclaim.low = free < self.options.disk_free_min;
            }
        }
        drop(index);
        self.report_full(step);
        Ok(())
    }

    fn report_full(&mut self, step: &mut Step) {
        let full = self.reclaim.refused || self.reclaim.low;
        if full != self.reclaim.reported_full {
            self.reclaim.reported_full = full;
            step.full = Some(full);
        }
    }

    /// Decides what the keeper does next.
    pub(super) fn plan(&mut self, now: Duration, step: &mut Step) {
        let index = Arc::clone(&self.index);
        let mut index = index.lock();
        let seen = std::mem::take(&mut self.reclaim.changed);
        let seen = std::mem::take(&mut index.emptied) || seen;
        let retry = self.reclaim.retry_at.is_some_and(|at| now >= at);
        if !seen && !retry && now < self.reclaim.planned_at + LOOK {
            self.reclaim.skipped = true;
            return;
        }
        self.reclaim.skipped = false;
        self.reclaim.planned_at = now;
        if self.closing {
            if self.is_waiting() || !self.backlog.is_empty() {
                self.plan_prepare(now, &mut index, step);
            }
            return;
        }
        if self.options.disk_free_min > 0 && now >= self.reclaim.space_at {
            self.reclaim.space_at = now + RETRY;
            self.ask(Job::Space, step);
        }
        if !self.visiting.load(Ordering::Acquire) {
            self.plan_retire(&mut index, step);
            self.plan_look(now, &index, step);
        }
        self.plan_prepare(now, &mut index, step);
        self.plan_trim(&mut index, step);
        let mut stats = self.stats.lock();
        let files = index.segments.iter().filter(|segment| segment.state != State::Absent);
        stats.segments = files.clone().count() as u64;
        stats.disk_bytes = files.clone().map(|segment| segment.bytes).sum();
        stats.segments_free = files.filter(|segment| segment.state == State::Free).count() as u64;
    }

    /// Whether puts wait for room.
    fn is_waiting(&self) -> bool {
        self.holding || self.parking
    }

    fn ask(&mut self, job: Job, step: &mut Step) {
        self.reclaim.out += 1;
        step.jobs.push(job);
    }

    fn header(&self, segment: &Segment) -> SegmentHeader {
        let (generation, bytes) = (segment.generation, segment.bytes);
        SegmentHeader { free: false, generation, bytes, uid: self.uid }
    }

    /// Frees what is free to go, oldest first, so that no record outlives the one that says it is
    /// dead. The keeper works in this order, so a segment may rely on those asked for before.
    fn plan_retire(&mut self, index: &mut Index, step: &mut Step) {
        let mut dead: Vec<(u64, Slot)> = (0..)
            .zip(&index.segments)
            .filter(|(_, segment)| segment.state == State::Sealed && segment.live_records == 0)
            .map(|(slot, segment)| (segment.generation, slot))
            .collect();
        dead.sort_unstable();
        for (_, slot) in dead {
            let segment = &index.segments[slot as usize];
            let is_going = |&other: &Slot| index.segments[other as usize].state == State::Retiring;
            if segment.killed_at > self.synced || !segment.kills.iter().all(is_going) {
                continue;
            }
            let nominal = self.options.segment_bytes;
            let remove = segment.bytes != nominal
                || free_count(index, nominal) > self.options.reserve_segments as usize
                    && is_too_large(index, nominal);
            let file = segment.file.clone().expect("a sealed segment has a file");
            let header = self.header(segment);
            index.segments[slot as usize].state = State::Retiring;
            self.reclaim.retiring += 1;
            self.ask(Job::Retire { slot, file, header, remove }, step);
        }
    }

    /// Chooses a segment to carry over or to survey, if the disk holds too much that is not live.
    fn plan_look(&mut self, now: Duration, index: &Index, step: &mut Step) {
        let busy = self.reclaim.looking
            || self.reclaim.collected.is_some()
            || self.reclaim.surveyed.is_some();
        let sealed = || index.segments.iter().filter(|segment| segment.state == State::Sealed);
        let sealed_bytes: u64 = sealed().map(|segment| segment.bytes).sum();
        let aim = 2 * index.live_bytes() + self.options.segment_bytes;
        if busy || now < self.reclaim.look_at || sealed_bytes <= aim && !self.is_waiting() {
            return;
        }
        let live = (0..)
            .zip(&index.segments)
            .filter(|(_, segment)| segment.state == State::Sealed && segment.live_records > 0);
        let sparse = live
            .filter(|(_, segment)| !segment.unwieldy)
            .map(|(slot, segment): (Slot, _)| (segment.live_bytes * 1000 / segment.bytes, slot))
            .min();
        let lives = |&&slot: &&Slot| {
            let segment = &index.segments[slot as usize];
            segment.state == State::Sealed && segment.live_records > 0 && !segment.unreadable
        };
        // What the oldest of the dead segments that cannot go waits for.
        let (_, blocker) = sealed()
            .filter(|segment| segment.live_records == 0 && segment.killed_at <= self.synced)
            .filter_map(|segment| {
                segment.kills.iter().find(lives).map(|&slot| (segment.generation, slot))
            })
            .min()
            .unzip();
        let most = if self.is_waiting() { 750 } else { 500 };
        let (slot, survey) = match (sparse, blocker) {
            (Some((permille, slot)), None) if permille <= most => (slot, false),
            (Some((permille, slot)), Some(_)) if permille <= 125 => (slot, false),
            (_, Some(slot)) => (slot, true),
            _ => return,
        };
        let segment = &index.segments[slot as usize];
        let file = segment.file.clone().expect("a sealed segment has a file");
        let header = self.header(segment);
        let job = if survey {
            Job::Survey { slot, file, header }
        } else {
            Job::Collect { slot, file, header }
        };
        self.reclaim.looking = true;
        self.ask(job, step);
    }

    fn plan_prepare(&mut self, now: Duration, index: &mut Index, step: &mut Step) {
        let nominal = self.options.segment_bytes;
        let vital = self.parked.first().map(|(_, op)| self.room_for(op));
        let bulk = self.held.first().map(|(_, put)| self.room_for_held(put));
        let mut waiting = [vital, bulk].into_iter().flatten().filter_map(|stop| match stop {
            Some(Stop::SegmentFull { need, .. }) if self.is_waiting() => Some(need),
            _ => None,
        });
        let waiting = waiting.next();
        let special = waiting.filter(|&need| need > nominal).filter(|&need| {
            let fits = |segment: &Segment| {
                segment.state == State::Free && segment.bytes != nominal && segment.bytes >= need
            };
            !index.segments.iter().any(fits)
        });
        let bytes = match special {
            Some(need) => need.next_multiple_of(4096),
            None if free_count(index, nominal) > self.options.reserve_segments as usize => {
                self.reclaim.refused = false;
                self.reclaim.retry_at = None;
                self.reclaim.patient_since = None;
                self.report_full(step);
                return;
            }
            None => nominal,
        };
        if self.reclaim.preparing || self.reclaim.retry_at.is_some_and(|at| now < at) {
            return;
        }
        // While something can be freed, wait for it rather than grow beyond the bound; but not
        // for long, in case it cannot.
        // What is live may be released while the segment is made: a segment's worth is left out.
        let bound = 3 * index.live_bytes().saturating_sub(nominal) + 6 * nominal;
        let dead = |segment: &Segment| segment.state == State::Sealed && segment.live_records == 0;
        let freeing = self.reclaim.retiring > 0
            || self.reclaim.looking
            || self.reclaim.collected.is_some()
            || self.reclaim.surveyed.is_some()
            || index.segments.iter().any(dead);
        if special.is_none() && freeing && disk_bytes(index) + bytes > bound {
            let since = *self.reclaim.patient_since.get_or_insert(now);
            if now < since + RETRY {
                return;
            }
        }
        self.reclaim.patient_since = None;
        let absent = |segment: &Segment| segment.state == State::Absent;
        let slot = match index.segments.iter().skip(1).position(absent) {
            Some(at) => at + 1,
            None if index.segments.len() <= SLOT_MAX as usize => {
                index.segments.push(Segment::absent());
                index.segments.len() - 1
            }
            None => return,
        };
        // Not to be given to another job meanwhile; it counts for the bound.
        let segment = &mut index.segments[slot];
        segment.state = State::Retiring;
        segment.bytes = bytes;
        self.reclaim.preparing = true;
        self.reclaim.retry_at = None;
        self.ask(Job::Prepare { slot: slot as Slot, bytes }, step);
    }

    /// Removes a free segment that is one too many.
    fn plan_trim(&mut self, index: &mut Index, step: &mut Step) {
        let nominal = self.options.segment_bytes;
        let other = |segment: &Segment| segment.state == State::Free && segment.bytes != nominal;
        let count = free_count(index, nominal);
        let spare = count > self.options.reserve_segments as usize + 1
            && (count > FREE_MAX || is_too_large(index, nominal));
        let waits = self.is_waiting();
        let free = |segment: &Segment| segment.state == State::Free && segment.bytes == nominal;
        let slot = match index.segments.iter().position(other).filter(|_| !waits) {
            Some(slot) => slot,
            None if spare => index.segments.iter().position(free).expect("there are some"),
            None => return,
        };
        index.segments[slot].state = State::Retiring;
        index.segments[slot].file = None;
        self.reclaim.changed = true;
        self.ask(Job::Remove { slot: slot as Slot }, step);
    }

    // ---- carrying over ------------------------------------------------------------------------

    /// Writes what the keeper gathered.
    pub(super) fn carry(&mut self, now: Duration, step: &mut Step) -> io::Result<()> {
        if let Some(collected) = self.reclaim.collected.take() {
            self.carry_over(now, &collected, step)?;
        }
        if let Some(surveyed) = self.reclaim.surveyed.take() {
            self.say_dead(now, &surveyed, step)?;
        }
        Ok(())
    }

    /// Makes room for a record, by writing the buffer or taking another segment. False if there
    /// is none.
    fn make_room(
        &mut self,
        now: Duration,
        need: (usize, usize),
        step: &mut Step,
        moves: &mut Vec<Move>,
    ) -> io::Result<bool> {
        loop {
            match self.room(need, Claim::Carry) {
                None => return Ok(true),
                Some(Stop::BufferFull) => self.flush_moves(now, moves)?,
                Some(Stop::SegmentFull { need, claim }) => {
                    self.flush_moves(now, moves)?;
                    if !self.roll(need, claim, step)? {
                        self.reclaim.look_at = now + 10 * LOOK;
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Writes the buffer and only then tells readers where the records are now.
    fn flush_moves(&mut self, now: Duration, moves: &mut Vec<Move>) -> io::Result<()> {
        self.flush(now)?;
        let mut index = self.index.lock();
        index.write = self.written;
        for moved in moves.drain(..) {
            match moved {
                Move::Put { name, slot, offset, length } => index.put(name, slot, offset, length),
                Move::Body { slot, offset, length } => index.body(slot, offset, length),
                Move::Ref { name, slot, body_at } => {
                    let known = index.reference(name, slot, body_at);
                    assert!(known, "a ref follows its body");
                }
                Move::Note { name, slot, offset, length } => {
                    let known = index.note(name, slot, offset, length);
                    assert!(known, "the record was there when the note was carried");
                }
            }
        }
        index.write = self.written + 1;
        Ok(())
    }

    fn carry_over(&mut self, now: Duration, from: &Collected, step: &mut Step) -> io::Result<()> {
        let mut moves = Vec::new();
        let (mut records, mut bytes) = (0, 0);
        for carry in &from.carries {
            let need = need_of(carry);
            if need.0 as u64 > self.options.segment_bytes / 2 && carry.records.len() > 1 {
                // So many refs that they are carried one by one, each with a body of its own.
                for record in &carry.records {
                    let one = Carry { records: vec![record.again()], what: carry.what };
                    if !self.make_room(now, need_of(&one), step, &mut moves)? {
                        return self.flush_moves(now, &mut moves);
                    }
                    self.carry_one(&one, &from.payloads, &mut moves);
                }
                continue;
            }
            if !self.make_room(now, need, step, &mut moves)? {
                let mut index = self.index.lock();
                index.segments[from.slot as usize].unwieldy =
                    need.0 as u64 > self.options.segment_bytes / 2;
                break;
            }
            records += carry.records.len() as u64;
            bytes += need.0 as u64;
            self.carry_one(carry, &from.payloads, &mut moves);
        }
        self.flush_moves(now, &mut moves)?;
        if from.carries.is_empty() && !from.leaves {
            // What lives in it is damaged, and so its name cannot be read.
            let segment = &mut self.index.lock().segments[from.slot as usize];
            segment.unwieldy |= segment.state == State::Sealed;
        }
        // Nobody waits for it, but the segment is not freed before.
        self.urgent = true;
        let mut stats = self.stats.lock();
        stats.carried_records += records;
        stats.carried_bytes += bytes;
        Ok(())
    }

    /// Adds the records of one carry that still lie where they were found.
    fn carry_one(&mut self, carry: &Carry, payloads: &[u8], moves: &mut Vec<Move>) {
        let index = Arc::clone(&self.index);
        let index = index.lock();
        let stays = |record: &&crate::keeper::CarriedRecord| {
            index.place(record.name.0, record.name.1) == record.place
                && index.note_place(record.name.0, record.name.1) == record.note
        };
        let stay: Vec<_> = carry.records.iter().filter(stays).collect();
        drop(index);
        if stay.is_empty() {
            return;
        }
        let slot = self.slot();
        let (start, offset) = self.begin();
        match carry.what {
            CarriedWhat::Note => {
                let record = stay[0];
                self.encoder().note(record.name, &record.head);
                self.add_entry(start, PUT_PREFIX + record.head.as_slice().len());
                let length = self.buffer.len() - start;
                moves.push(Move::Note { name: record.name, slot, offset, length });
            }
            CarriedWhat::Payload { start: from, end, shared: false, lost } => {
                let record = stay[0];
                let payload = &payloads[from..end];
                let flags = flags_of(lost);
                self.encoder()
                    .put(record.name, &record.head, flags, |out| out.extend_from_slice(payload));
                self.add_entry(start, PUT_PREFIX + record.head.as_slice().len());
                let length = self.buffer.len() - start;
                moves.push(Move::Put { name: record.name, slot, offset, length });
            }
            CarriedWhat::Payload { start: from, end, shared: true, lost } => {
                let payload = &payloads[from..end];
                self.encoder().body(|out| out.extend_from_slice(payload));
                self.add_entry(start, PREFIX);
                moves.push(Move::Body { slot, offset, length: self.buffer.len() - start });
                for record in stay {
                    let (start, _) = self.begin();
                    let length = payload.len() as u64;
                    let flags = flags_of(lost);
                    self.encoder().reference(record.name, &record.head, flags, offset, length);
                    self.add_entry(start, REF_PREFIX + record.head.as_slice().len());
                    moves.push(Move::Ref { name: record.name, slot, body_at: offset });
                }
            }
        }
    }

    /// Writes once more which records of a segment are dead.
    fn say_dead(&mut self, now: Duration, from: &Surveyed, step: &mut Step) -> io::Result<()> {
        let mut said_in: Vec<Slot> = Vec::new();
        for (stream, ranges) in &from.dead {
            let mut ranges = &ranges[..];
            while !ranges.is_empty() {
                let mut bytes = Vec::new();
                let (mut count, mut end) = (0, 0);
                while let Some((&(first, last), rest)) = ranges.split_first() {
                    if bytes.len() >= RANGES {
                        break;
                    }
                    push_range(&mut bytes, end, first, last);
                    (count, end, ranges) = (count + 1, last, rest);
                }
                let length = crate::format::RELEASE_PREFIX + bytes.len();
                if !self.make_room(now, (padded(length), length), step, &mut Vec::new())? {
                    return self.flush(now);
                }
                let (start, _) = self.begin();
                self.encoder().release(*stream, count, &bytes);
                self.add_entry(start, length);
                said_in.push(self.slot());
            }
        }
        self.flush(now)?;
        self.urgent = true;
        let mut index = self.index.lock();
        for (stream, seq) in &from.moved {
            let place = index.place(*stream, *seq);
            if place.is_none() {
                // Released since then: who guards this segment from it coming back is not known
                // here, so all who did go on.
                return Ok(());
            }
            said_in.push(place.slot());
        }
        for segment in &mut index.segments {
            if segment.generation < from.before && segment.kills.contains(&from.slot) {
                segment.kills.retain(|&slot| slot != from.slot);
                segment.killed_at = segment.killed_at.max(self.written);
            }
        }
        said_in.sort_unstable();
        said_in.dedup();
        for slot in said_in.into_iter().filter(|&slot| slot != from.slot) {
            let kills = &mut index.segments[slot as usize].kills;
            if let Err(at) = kills.binary_search(&from.slot) {
                kills.insert(at, from.slot);
            }
        }
        self.reclaim.changed = true;
        self.stats.lock().surveyed_segments += 1;
        Ok(())
    }
}

/// A record that was carried over, once it is written.
enum Move {
    Put { name: (StreamId, Seq), slot: Slot, offset: u32, length: usize },
    Body { slot: Slot, offset: u32, length: usize },
    Ref { name: (StreamId, Seq), slot: Slot, body_at: u32 },
    Note { name: (StreamId, Seq), slot: Slot, offset: u32, length: usize },
}

fn flags_of(lost: bool) -> u16 {
    if lost { crate::format::FLAG_LOST } else { 0 }
}

/// Padded length of a carry's records and length of their index entries, at most.
fn need_of(carry: &Carry) -> (usize, usize) {
    let head = crate::op::Head::MAX;
    match carry.what {
        CarriedWhat::Note => (padded(PUT_PREFIX + head), PUT_PREFIX + head),
        CarriedWhat::Payload { start, end, shared: false, .. } => {
            (padded(PUT_PREFIX + head + end - start), PUT_PREFIX + head)
        }
        CarriedWhat::Payload { start, end, shared: true, .. } => {
            let refs = carry.records.len();
            let body = padded(PREFIX + end - start);
            (body + refs * padded(REF_PREFIX + head), PREFIX + refs * (REF_PREFIX + head))
        }
    }
}

/// Free segments of the usual size.
pub(crate) fn free_count(index: &Index, nominal: u64) -> usize {
    let free = |segment: &&Segment| segment.state == State::Free && segment.bytes == nominal;
    index.segments.iter().filter(free).count()
}

fn disk_bytes(index: &Index) -> u64 {
    index.segments.iter().map(|segment| segment.bytes).sum()
}

/// Whether a free segment is one too many. Six segments in all are what a steady flow turns over;
/// with fewer it would remove and make files all the time.
fn is_too_large(index: &Index, nominal: u64) -> bool {
    disk_bytes(index) > 2 * index.live_bytes() + 6 * nominal
}
