//! Where every waiting record lies: streams of positions, and segments with what lives in them.
//!
//! ```text
//! stream ── chunk (64 positions) ── place: u64 ─┬─ slot of the segment     24 bits
//!                                               ├─ offset / 8              27 bits
//!                                               ├─ padded length / 8       12 bits, all ones: look
//!                                               │                          it up in the segment
//!                                               └─ shared                   1 bit
//! ```
//!
//! A record costs 8 bytes and its share of the chunk (0.75 bytes). Positions need not be dense:
//! chunks without records do not exist.
//!
//! Invariant: a segment's `live_records` and `live_bytes` are sums over the places that point into
//! it, and a segment whose records killed a record of segment S has S among its `kills` until S
//! is recycled.

use crate::disk::File;
use crate::format::padded;
use model::id::{Seq, StreamId};
use std::collections::{HashMap, VecDeque};
use std::mem::size_of;
use std::sync::Arc;

/// Positions per chunk.
const CHUNK: u64 = 64;
/// What a ref counts for, since its own length is not kept.
const REF_BYTES: u64 = 64;
const UNITS_UNKNOWN: u64 = 0xfff;

/// Number of a segment file; from 1 on.
pub(crate) type Slot = u32;
/// The highest slot in use: 32 TiB of segments of the usual size. A place could name 16 times more.
pub(crate) const SLOT_MAX: Slot = (1 << 20) - 1;

/// Where a record lies; see the module's drawing. Zero is nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Place(u64);

impl Place {
    pub(crate) const NONE: Self = Self(0);

    fn new(slot: Slot, offset: u32, length: u64, shared: bool) -> Self {
        let units = (length / 8).min(UNITS_UNKNOWN);
        Self(u64::from(slot) << 40 | u64::from(offset / 8) << 13 | units << 1 | u64::from(shared))
    }

    pub(crate) fn slot(self) -> Slot {
        (self.0 >> 40) as Slot
    }

    pub(crate) fn offset(self) -> u32 {
        ((self.0 >> 13) as u32 & 0x7ff_ffff) * 8
    }

    /// Whether it is a body that several positions share.
    pub(crate) fn is_shared(self) -> bool {
        self.0 & 1 != 0
    }

    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }

    fn units(self) -> u64 {
        self.0 >> 1 & UNITS_UNKNOWN
    }
}

/// What a segment file is at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// No such file.
    Absent,
    /// Prepared, holds nothing.
    Free,
    /// Records are appended to it.
    Current,
    /// Complete.
    Sealed,
    /// Being freed: nothing in it is needed.
    Retiring,
}

/// One segment file.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) state: State,
    pub(crate) file: Option<Arc<dyn File>>,
    /// Length of the file.
    pub(crate) bytes: u64,
    pub(crate) generation: u64,
    pub(crate) seed: u32,
    /// Records from here on are not in the file yet.
    pub(crate) written: u32,
    /// It holds a record that is too large for the segments of this run, damaged or unreadable, so
    /// it is not carried over.
    pub(crate) unwieldy: bool,
    /// Not even the names in it can be read, so it is not surveyed.
    pub(crate) unreadable: bool,
    pub(crate) live_records: u64,
    pub(crate) live_bytes: u64,
    /// Write number of the last operation that made something in it superfluous.
    pub(crate) killed_at: u64,
    /// Other segments that hold records which a record of this one declares dead; ascending.
    pub(crate) kills: Vec<Slot>,
    /// Records of 32 KiB and more: offset and padded length, ascending.
    large: Vec<(u32, u32)>,
    /// Shared bodies, ascending.
    shared: Vec<Body>,
}

/// A body that several positions share.
#[derive(Debug, Clone, Copy)]
struct Body {
    offset: u32,
    length: u32,
    count: u32,
}

impl Segment {
    pub(crate) fn absent() -> Self {
        Self {
            state: State::Absent,
            file: None,
            bytes: 0,
            generation: 0,
            seed: 0,
            written: u32::MAX,
            unwieldy: false,
            unreadable: false,
            live_records: 0,
            live_bytes: 0,
            killed_at: 0,
            kills: Vec::new(),
            large: Vec::new(),
            shared: Vec::new(),
        }
    }

    fn body(&mut self, offset: u32) -> Option<&mut Body> {
        let at = self.shared.binary_search_by_key(&offset, |body| body.offset).ok()?;
        Some(&mut self.shared[at])
    }

    fn length_of(&self, place: Place) -> u64 {
        if place.units() < UNITS_UNKNOWN {
            return place.units() * 8;
        }
        let offset = place.offset();
        let found = if place.is_shared() {
            self.shared
                .binary_search_by_key(&offset, |body| body.offset)
                .map(|at| self.shared[at].length)
        } else {
            self.large
                .binary_search_by_key(&offset, |&(offset, _)| offset)
                .map(|at| self.large[at].1)
        };
        u64::from(found.expect("a place without a length has an entry in its segment"))
    }

    fn add(&mut self, place: Place, length: u64) {
        self.live_records += 1;
        let offset = place.offset();
        if place.is_shared() {
            let body = self.body(offset).expect("a body is known before its refs");
            body.count += 1;
            let first = body.count == 1;
            self.live_bytes += REF_BYTES + if first { length } else { 0 };
            return;
        }
        self.live_bytes += length;
        if place.units() == UNITS_UNKNOWN {
            let length = u32::try_from(length).expect("records stay below 1 GiB");
            if let Err(at) = self.large.binary_search_by_key(&offset, |&(offset, _)| offset) {
                self.large.insert(at, (offset, length));
            }
        }
    }

    fn remove(&mut self, place: Place) {
        self.live_records -= 1;
        if place.is_shared() {
            let body = self.body(place.offset()).expect("a place's body is known");
            body.count -= 1;
            let gone = if body.count == 0 { u64::from(body.length) } else { 0 };
            self.live_bytes -= REF_BYTES + gone;
        } else {
            self.live_bytes -= self.length_of(place);
        }
    }

    fn heap_bytes(&self) -> usize {
        self.kills.capacity() * size_of::<Slot>()
            + self.large.capacity() * size_of::<(u32, u32)>()
            + self.shared.capacity() * size_of::<Body>()
    }
}

#[derive(Debug)]
struct Chunk {
    /// First position divided by [`CHUNK`].
    number: u64,
    places: Box<[Place; CHUNK as usize]>,
    /// Where the newest notes of these records lie.
    notes: Option<Box<[Place; CHUNK as usize]>>,
    records: u32,
}

/// One stream's records.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    /// The highest position ever seen.
    pub(crate) highest: u64,
    pub(crate) records: u64,
    /// Ascending by number; none is empty.
    chunks: VecDeque<Chunk>,
    /// For the writer: its number among the releases that are being gathered, plus one.
    pub(crate) gathered: u32,
}

impl Stream {
    fn new(id: StreamId) -> Self {
        Self { id, highest: 0, records: 0, chunks: VecDeque::new(), gathered: 0 }
    }

    /// Which chunk holds `number`, or where it would stand.
    fn find(&self, number: u64) -> Result<usize, usize> {
        let (Some(front), Some(back)) = (self.chunks.front(), self.chunks.back()) else {
            return Err(0);
        };
        if back.number == number {
            return Ok(self.chunks.len() - 1);
        }
        if back.number < number {
            return Err(self.chunks.len());
        }
        if number < front.number {
            return Err(0);
        }
        // Where it stands if the stream has no gaps, and a search if it has.
        let guess = usize::try_from(number - front.number).unwrap_or(usize::MAX);
        if self.chunks.get(guess).is_some_and(|chunk| chunk.number == number) {
            return Ok(guess);
        }
        self.chunks.binary_search_by_key(&number, |chunk| chunk.number)
    }

    fn slot_of(&mut self, seq: u64) -> (&mut Chunk, usize) {
        let number = seq / CHUNK;
        let at = match self.find(number) {
            Ok(at) => at,
            Err(at) => {
                let places = Box::new([Place::NONE; CHUNK as usize]);
                self.chunks.insert(at, Chunk { number, places, notes: None, records: 0 });
                at
            }
        };
        (&mut self.chunks[at], (seq % CHUNK) as usize)
    }

    pub(crate) fn place(&self, seq: u64) -> Place {
        match self.find(seq / CHUNK) {
            Ok(at) => self.chunks[at].places[(seq % CHUNK) as usize],
            Err(_) => Place::NONE,
        }
    }

    pub(crate) fn note(&self, seq: u64) -> Place {
        match self.find(seq / CHUNK) {
            Ok(at) => {
                let notes = self.chunks[at].notes.as_ref();
                notes.map_or(Place::NONE, |notes| notes[(seq % CHUNK) as usize])
            }
            Err(_) => Place::NONE,
        }
    }

    /// The first record at or after a position.
    pub(crate) fn next(&self, from: u64) -> Option<(u64, Place)> {
        let (Ok(mut at) | Err(mut at)) = self.find(from / CHUNK);
        let mut within =
            if self.chunks.get(at)?.number == from / CHUNK { (from % CHUNK) as usize } else { 0 };
        loop {
            let chunk = self.chunks.get(at)?;
            for (index, &place) in chunk.places.iter().enumerate().skip(within) {
                if !place.is_none() {
                    return Some((chunk.number * CHUNK + index as u64, place));
                }
            }
            at += 1;
            within = 0;
        }
    }

    fn heap_bytes(&self) -> usize {
        let notes = self.chunks.iter().filter(|chunk| chunk.notes.is_some()).count();
        self.chunks.capacity() * size_of::<Chunk>()
            + (self.chunks.len() + notes) * (CHUNK as usize * size_of::<Place>() + 16)
    }
}

/// All streams and segments of a journal.
#[derive(Debug)]
pub(crate) struct Index {
    streams: Vec<Stream>,
    by_id: HashMap<StreamId, u32>,
    vacant: Vec<u32>,
    last: (StreamId, u32),
    /// By slot; number 0 is never used.
    pub(crate) segments: Vec<Segment>,
    /// The number of the write that is being put together.
    pub(crate) write: u64,
    pub(crate) live_records: u64,
    /// Set when a segment lost its last record.
    pub(crate) emptied: bool,
    /// Damaged records met so far.
    pub(crate) quarantined: u64,
}

/// No stream has this number: a name that was never looked up.
const NOWHERE: u32 = u32::MAX;

impl Index {
    pub(crate) fn new() -> Self {
        Self {
            streams: Vec::new(),
            by_id: HashMap::new(),
            vacant: Vec::new(),
            last: (StreamId(0), NOWHERE),
            segments: vec![Segment::absent()],
            write: 1,
            live_records: 0,
            emptied: false,
            quarantined: 0,
        }
    }

    /// The number of a stream that is known.
    pub(crate) fn find(&mut self, id: StreamId) -> Option<u32> {
        if self.last == (id, self.last.1) && self.last.1 != NOWHERE {
            return Some(self.last.1);
        }
        let number = *self.by_id.get(&id)?;
        self.last = (id, number);
        Some(number)
    }

    fn find_or_add(&mut self, id: StreamId) -> u32 {
        if let Some(number) = self.find(id) {
            return number;
        }
        let number = if let Some(number) = self.vacant.pop() {
            self.streams[number as usize] = Stream::new(id);
            number
        } else {
            self.streams.push(Stream::new(id));
            u32::try_from(self.streams.len() - 1).expect("fewer than four billion streams")
        };
        self.by_id.insert(id, number);
        self.last = (id, number);
        number
    }

    pub(crate) fn stream(&self, number: u32) -> &Stream {
        &self.streams[number as usize]
    }

    pub(crate) fn stream_mut(&mut self, number: u32) -> &mut Stream {
        &mut self.streams[number as usize]
    }

    /// Streams in the order of their ids.
    pub(crate) fn sorted(&self) -> Vec<&Stream> {
        let mut streams: Vec<_> = (0..)
            .zip(&self.streams)
            .filter(|(number, stream)| self.by_id.get(&stream.id) == Some(number))
            .map(|(_, stream)| stream)
            .collect();
        streams.sort_by_key(|stream| stream.id);
        streams
    }

    pub(crate) fn place(&self, stream: StreamId, seq: Seq) -> Place {
        match self.by_id.get(&stream) {
            Some(&number) => self.streams[number as usize].place(seq.0),
            None => Place::NONE,
        }
    }

    pub(crate) fn note_place(&self, stream: StreamId, seq: Seq) -> Place {
        match self.by_id.get(&stream) {
            Some(&number) => self.streams[number as usize].note(seq.0),
            None => Place::NONE,
        }
    }

    /// Whether the record at a place is in its file already.
    pub(crate) fn is_written(&self, place: Place) -> bool {
        place.offset() < self.segments[place.slot() as usize].written
    }

    /// The padded length of the record at a place.
    pub(crate) fn length_of(&self, place: Place) -> u64 {
        self.segments[place.slot() as usize].length_of(place)
    }

    /// A record at `place` is no longer needed, because of one that `by` holds.
    ///
    /// A note needs nobody who says that it is old, so its own segment is given for `by`: replayed
    /// again it either finds no record, or comes before whatever replaced it.
    fn kill(segments: &mut [Segment], emptied: &mut bool, write: u64, by: Slot, place: Place) {
        let slot = place.slot();
        let segment = &mut segments[slot as usize];
        segment.remove(place);
        segment.killed_at = write;
        *emptied |= segment.live_records == 0;
        if slot != by {
            let kills = &mut segments[by as usize].kills;
            if let Err(at) = kills.binary_search(&slot) {
                kills.insert(at, slot);
            }
        }
    }

    fn set(&mut self, name: (StreamId, Seq), place: Place, length: u64) {
        self.segments[place.slot() as usize].add(place, length);
        let number = self.find_or_add(name.0);
        let stream = &mut self.streams[number as usize];
        stream.highest = stream.highest.max(name.1.0);
        let (chunk, within) = stream.slot_of(name.1.0);
        let old = std::mem::replace(&mut chunk.places[within], place);
        if old.is_none() {
            chunk.records += 1;
            stream.records += 1;
            self.live_records += 1;
            return;
        }
        let note = match &mut chunk.notes {
            Some(notes) => std::mem::take(&mut notes[within]),
            None => Place::NONE,
        };
        Self::kill(&mut self.segments, &mut self.emptied, self.write, place.slot(), old);
        if !note.is_none() {
            Self::kill(&mut self.segments, &mut self.emptied, self.write, note.slot(), note);
        }
    }

    /// A put of `length` bytes (any padding included or not) lies at `offset`. Replaces an older
    /// record of the name together with its note.
    pub(crate) fn put(&mut self, name: (StreamId, Seq), slot: Slot, offset: u32, length: usize) {
        let length = padded(length) as u64;
        self.set(name, Place::new(slot, offset, length, false), length);
    }

    /// A body that refs may name lies at `offset`.
    pub(crate) fn body(&mut self, slot: Slot, offset: u32, length: usize) {
        let length = u32::try_from(padded(length)).expect("records stay below 1 GiB");
        let shared = &mut self.segments[slot as usize].shared;
        if let Err(at) = shared.binary_search_by_key(&offset, |body| body.offset) {
            shared.insert(at, Body { offset, length, count: 0 });
        }
    }

    /// A ref to the body at `body_at`; false if there is no such body.
    pub(crate) fn reference(&mut self, name: (StreamId, Seq), slot: Slot, body_at: u32) -> bool {
        let Some(body) = self.segments[slot as usize].body(body_at) else { return false };
        let length = u64::from(body.length);
        self.set(name, Place::new(slot, body_at, length, true), length);
        true
    }

    /// A note lies at `offset`; false (and nothing is changed) if its record is not there.
    pub(crate) fn note(
        &mut self,
        name: (StreamId, Seq),
        slot: Slot,
        offset: u32,
        length: usize,
    ) -> bool {
        let Some(number) = self.find(name.0) else { return false };
        let stream = &mut self.streams[number as usize];
        let Ok(at) = stream.find(name.1.0 / CHUNK) else { return false };
        let chunk = &mut stream.chunks[at];
        let within = (name.1.0 % CHUNK) as usize;
        if chunk.places[within].is_none() {
            return false;
        }
        let length = padded(length) as u64;
        let place = Place::new(slot, offset, length, false);
        let notes = chunk.notes.get_or_insert_with(|| Box::new([Place::NONE; CHUNK as usize]));
        let old = std::mem::replace(&mut notes[within], place);
        self.segments[slot as usize].add(place, length);
        if !old.is_none() {
            Self::kill(&mut self.segments, &mut self.emptied, self.write, old.slot(), old);
        }
        true
    }

    /// Forgets a range of a stream because of a record in `by`. How many records there were.
    pub(crate) fn release(&mut self, stream: StreamId, first: Seq, last: Seq, by: Slot) -> u64 {
        let Some(number) = self.find(stream) else { return 0 };
        let stream = &mut self.streams[number as usize];
        let mut released = 0;
        let (Ok(mut at) | Err(mut at)) = stream.find(first.0 / CHUNK);
        while let Some(chunk) = stream.chunks.get_mut(at) {
            let start = chunk.number * CHUNK;
            if start > last.0 {
                break;
            }
            let from = first.0.saturating_sub(start) as usize;
            let to = (last.0 - start).min(CHUNK - 1) as usize;
            for within in from..=to {
                let place = std::mem::take(&mut chunk.places[within]);
                if place.is_none() {
                    continue;
                }
                Self::kill(&mut self.segments, &mut self.emptied, self.write, by, place);
                if let Some(notes) = &mut chunk.notes {
                    let note = std::mem::take(&mut notes[within]);
                    if !note.is_none() {
                        Self::kill(
                            &mut self.segments,
                            &mut self.emptied,
                            self.write,
                            note.slot(),
                            note,
                        );
                    }
                }
                chunk.records -= 1;
                released += 1;
            }
            if chunk.records == 0 {
                stream.chunks.remove(at);
            } else {
                at += 1;
            }
        }
        if stream.chunks.is_empty() && stream.chunks.capacity() > 64 {
            stream.chunks = VecDeque::new();
        }
        stream.records -= released;
        self.live_records -= released;
        released
    }

    /// Forgets a stream. How many records it had.
    pub(crate) fn drop_stream(&mut self, id: StreamId, by: Slot) -> u64 {
        let released = self.release(id, Seq(0), Seq(u64::MAX), by);
        if let Some(number) = self.find(id) {
            self.by_id.remove(&id);
            self.streams[number as usize] = Stream::new(id);
            self.vacant.push(number);
            self.last = (StreamId(0), NOWHERE);
        }
        released
    }

    /// Takes a segment out of the books once its file was freed.
    pub(crate) fn retired(&mut self, slot: Slot) {
        for segment in &mut self.segments {
            segment.kills.retain(|&other| other != slot);
        }
        let segment = &mut self.segments[slot as usize];
        assert_eq!(segment.live_records, 0, "a segment with live records was freed");
        segment.kills = Vec::new();
        segment.large = Vec::new();
        segment.shared = Vec::new();
        segment.killed_at = 0;
        segment.live_bytes = 0;
    }

    pub(crate) fn live_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.live_bytes).sum()
    }

    /// Memory of the index.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.streams.iter().map(Stream::heap_bytes).sum::<usize>()
            + self.streams.capacity() * size_of::<Stream>()
            + self.by_id.capacity() * 24
            + self.segments.iter().map(Segment::heap_bytes).sum::<usize>()
            + self.segments.capacity() * size_of::<Segment>()
    }
}
