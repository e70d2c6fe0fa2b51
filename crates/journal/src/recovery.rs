//! Opening: what is on disk becomes an index again.
//!
//! 1. Take the lock; see whose directory it is.
//! 2. Read each segment's header; sort those in use by generation, which is log order.
//! 3. Replay their records (names and heads, not payloads) into the index.
//! 4. Seal the last segment if the process died: cut the torn tail, sync, write its index.
//! 5. Let the owner visit what is there.

use crate::disk::{Access, Disk, File, Held, Lock};
use crate::error::OpenError;
use crate::format::{
    BLOCK, BadIdentity, Identity, SegmentHeader, TRAILER_SPACE, Trailer, VERSION, What, index_crc,
    seed,
};
use crate::index::{Index, Segment, Slot, State};
use crate::intake::Intake;
use crate::keeper::{Keeper, file_name, open_segment, slot_of};
use crate::op::Head;
use crate::options::Options;
use crate::scan::{Scanned, read_header, read_segment};
use crate::stats::Stats;
use crate::writer::{Start, Writer};
use model::id::{Seq, StreamId};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The file that says whose directory it is.
pub(crate) const IDENTITY_FILE: &str = "JOURNAL";
/// The file that is locked while a process has the journal open; holds its pid.
pub(crate) const LOCK_FILE: &str = "LOCK";

/// What recovery did, for logs and for the owner's decision about damage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whether the journal had been closed properly.
    pub clean: bool,
    /// Records that are there.
    pub records: u64,
    /// Segments that hold something.
    pub segments: u64,
    /// Segments whose records had to be read because they have no index.
    pub scanned: u64,
    /// Where the torn tail was cut, if there was one.
    pub torn: Option<Torn>,
    /// Damage before the tail.
    pub quarantined: Vec<Quarantined>,
    /// Wall time.
    pub took: Duration,
}

/// A tail that was not written completely when the process or machine died. Nothing in it had
/// been reported durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Torn {
    /// The segment file.
    pub file: String,
    /// The first byte that does not count.
    pub offset: u64,
}

/// Bytes before the tail that are not what was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Quarantined {
    /// The segment file.
    pub file: String,
    /// The first bad byte.
    pub offset: u64,
    /// How many bytes are unusable.
    pub bytes: u64,
    /// Whose record it seems to have been, if its header is readable (it may be wrong).
    pub stream: Option<u64>,
}

/// A stream that has records, or had some in segments that still exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// The stream. One that was dropped may appear, without records.
    pub stream: StreamId,
    /// Its records.
    pub records: u64,
    /// The highest position seen; new puts must be above it. There may have been higher ones
    /// whose every trace is gone: such names may safely be given again.
    pub highest: Seq,
}

/// The records of a journal that was just opened. Nothing is compacted until it is dropped.
pub struct Recovery {
    report: Report,
    known: Vec<Known>,
    sources: Vec<Source>,
    index: Arc<Mutex<Index>>,
    visiting: Arc<AtomicBool>,
    intake: Arc<Intake>,
}

impl fmt::Debug for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recovery").field("report", &self.report).finish_non_exhaustive()
    }
}

impl Drop for Recovery {
    fn drop(&mut self) {
        self.visiting.store(false, Ordering::Release);
        self.intake.nudge();
    }
}

/// A segment with records, in log order.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) slot: Slot,
    pub(crate) file: Arc<dyn File>,
    pub(crate) header: SegmentHeader,
    pub(crate) seed: u32,
}

impl Recovery {
    /// Whether the journal had been closed properly.
    pub fn clean(&self) -> bool {
        self.report.clean
    }

    /// What recovery did.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The streams, in ascending order.
    pub fn streams(&self) -> &[Known] {
        &self.known
    }

    /// Visits each record: stream, position, newest head, payload length. Positions ascend within
    /// a stream; streams are interleaved. Nothing but a few buffers is kept in memory. Records
    /// that are released meanwhile may or may not be visited.
    ///
    /// # Errors
    /// If the file system fails.
    pub fn for_each(self, mut visit: impl FnMut(StreamId, Seq, &[u8], u32)) -> io::Result<()> {
        let mut walk = Walk {
            index: &self.index,
            sources: &self.sources,
            cursors: HashMap::new(),
            tables: VecDeque::new(),
        };
        for source in &self.sources {
            let mut failure = None;
            let mut on_entry = |entry: crate::format::Entry<'_>| {
                if failure.is_none()
                    && let Err(error) = walk.on_entry(source, &entry, &mut visit)
                {
                    failure = Some(error);
                }
            };
            read_segment(&*source.file, &source.header, source.seed, false, &mut on_entry)?;
            if let Some(error) = failure {
                return Err(error);
            }
        }
        Ok(())
    }
}

/// A walk through all records in log order, with excursions to those that were carried over and
/// so lie behind their successors.
struct Walk<'a> {
    index: &'a Mutex<Index>,
    sources: &'a [Source],
    /// The next position of each stream.
    cursors: HashMap<StreamId, u64>,
    /// What the segments of the latest excursions hold.
    tables: VecDeque<(Slot, Table)>,
}

/// Live records of one segment: head and payload length, and newest notes.
#[derive(Default)]
struct Table {
    records: BTreeMap<(StreamId, Seq), (Head, u32)>,
    notes: BTreeMap<(StreamId, Seq), Head>,
}

/// How many tables are kept.
const TABLES: usize = 4;

impl Walk<'_> {
    fn on_entry(
        &mut self,
        source: &Source,
        entry: &crate::format::Entry<'_>,
        visit: &mut impl FnMut(StreamId, Seq, &[u8], u32),
    ) -> io::Result<()> {
        let (name, head, at, payload) = match entry.what {
            What::Put { stream, seq, head, payload, .. } => {
                ((stream, seq), head, entry.offset, payload)
            }
            What::Ref { stream, seq, head, body_at, payload, .. } => {
                ((stream, seq), head, body_at, payload)
            }
            _ => return Ok(()),
        };
        let cursor = self.cursors.get(&name.0).copied().unwrap_or(0);
        if name.1.0 < cursor {
            return Ok(());
        }
        let note = {
            let index = self.index.lock();
            let place = index.place(name.0, name.1);
            if (place.slot(), place.offset()) != (source.slot, at) || place.is_none() {
                return Ok(());
            }
            index.note_place(name.0, name.1)
        };
        self.excursion(name.0, cursor, name.1.0, visit)?;
        self.cursors.insert(name.0, name.1.0.saturating_add(1));
        if note.is_none() {
            visit(name.0, name.1, head, payload);
            return Ok(());
        }
        let newest = self.table(note.slot())?.and_then(|table| table.notes.get(&name).copied());
        visit(name.0, name.1, newest.as_ref().map_or(head, Head::as_slice), payload);
        Ok(())
    }

    /// Visits what a stream has from one position up to another, wherever it lies.
    fn excursion(
        &mut self,
        stream: StreamId,
        mut from: u64,
        to: u64,
        visit: &mut impl FnMut(StreamId, Seq, &[u8], u32),
    ) -> io::Result<()> {
        loop {
            let (seq, place, note) = {
                let mut index = self.index.lock();
                let Some(number) = index.find(stream) else { return Ok(()) };
                let stream = index.stream(number);
                match stream.next(from) {
                    Some((seq, place)) if seq < to => (seq, place, stream.note(seq)),
                    _ => return Ok(()),
                }
            };
            let name = (stream, Seq(seq));
            let record = self.table(place.slot())?.and_then(|table| table.records.get(&name));
            if let Some(&(head, payload)) = record {
                let mut newest = None;
                if !note.is_none() {
                    let table = self.table(note.slot())?;
                    newest = table.and_then(|table| table.notes.get(&name).copied());
                }
                visit(stream, Seq(seq), newest.unwrap_or(head).as_slice(), payload);
            }
            from = seq + 1;
        }
    }

    fn table(&mut self, slot: Slot) -> io::Result<Option<&Table>> {
        if let Some(at) = self.tables.iter().position(|&(other, _)| other == slot) {
            return Ok(Some(&self.tables[at].1));
        }
        let Some(source) = self.sources.iter().find(|source| source.slot == slot) else {
            return Ok(None);
        };
        let mut table = Table::default();
        let index = self.index;
        read_segment(&*source.file, &source.header, source.seed, false, &mut |entry| {
            let (name, head, at, payload) = match entry.what {
                What::Put { stream, seq, head, payload, .. } => {
                    ((stream, seq), head, entry.offset, payload)
                }
                What::Ref { stream, seq, head, body_at, payload, .. } => {
                    ((stream, seq), head, body_at, payload)
                }
                What::Note { stream, seq, head } => {
                    let place = index.lock().note_place(stream, seq);
                    if (place.slot(), place.offset()) == (slot, entry.offset) {
                        table.notes.insert((stream, seq), Head::new(head));
                    }
                    return;
                }
                _ => return,
            };
            let place = index.lock().place(name.0, name.1);
            if (place.slot(), place.offset()) == (slot, at) {
                table.records.insert(name, (Head::new(head), payload));
            }
        })?;
        if self.tables.len() == TABLES {
            self.tables.pop_front();
        }
        self.tables.push_back((slot, table));
        Ok(self.tables.back().map(|(_, table)| table))
    }
}

/// Everything that [`open`] makes.
pub(crate) struct Opened {
    pub(crate) writer: Writer,
    pub(crate) keeper: Keeper,
    pub(crate) recovery: Recovery,
    pub(crate) lock: Box<dyn Held>,
    pub(crate) index: Arc<Mutex<Index>>,
    pub(crate) stats: Arc<Mutex<Stats>>,
}

/// Opens or makes a journal, without threads.
pub(crate) fn open(
    options: Options,
    disk: Arc<dyn Disk>,
    intake: &Arc<Intake>,
) -> Result<Opened, OpenError> {
    let started = Instant::now();
    options.check()?;
    let at = At { disk: &*disk, dir: &options.dir };
    let (lock, uid) = at.enter()?;
    let mut replayed = at.replay(uid, Some(options.segment_bytes))?;
    if let Some(tail) = replayed.tail.take() {
        tail.seal().map_err(|source| at.io("sealing the last segment", source))?;
    }
    replayed.report.took = started.elapsed();

    let next_generation = replayed.generation.saturating_add(1);
    let mut index = replayed.index;
    index.write = 1;
    index.emptied = true;
    index.quarantined = replayed.report.quarantined.len() as u64;
    let known = known(&index);
    let clean = replayed.report.clean;
    let index = Arc::new(Mutex::new(index));
    let stats = Arc::new(Mutex::new(Stats::default()));
    let visiting = Arc::new(AtomicBool::new(true));
    let recovery = Recovery {
        report: replayed.report,
        known,
        sources: replayed.sources,
        index: Arc::clone(&index),
        visiting: Arc::clone(&visiting),
        intake: Arc::clone(intake),
    };
    let keeper = Keeper {
        disk: Arc::clone(&disk),
        dir: options.dir.clone(),
        uid,
        disk_free_min: options.disk_free_min,
        index: Arc::clone(&index),
    };
    let start = Start {
        options,
        uid,
        instance: disk.random(),
        index: Arc::clone(&index),
        stats: Arc::clone(&stats),
        visiting,
        next_generation,
        clean,
    };
    Ok(Opened { writer: Writer::new(start), keeper, recovery, lock, index, stats })
}

fn known(index: &Index) -> Vec<Known> {
    let known = |stream: &&crate::index::Stream| Known {
        stream: stream.id,
        records: stream.records,
        highest: Seq(stream.highest),
    };
    index.sorted().iter().map(known).collect()
}

/// What the segments of a directory hold.
pub(crate) struct Replayed {
    pub(crate) index: Index,
    pub(crate) report: Report,
    pub(crate) sources: Vec<Source>,
    /// What became of reading each source.
    pub(crate) scans: Vec<Scanned>,
    /// The highest generation.
    pub(crate) generation: u64,
    /// The last segment, if it was not sealed.
    pub(crate) tail: Option<UnsealedTail>,
}

/// A last segment that has no trailer yet.
pub(crate) struct UnsealedTail {
    source: Source,
    records_end: u32,
    entries: Vec<u8>,
    count: u32,
}

impl UnsealedTail {
    /// Makes what was found in it last: everything behind it never counts again.
    fn seal(self) -> io::Result<()> {
        let file = self.source.file;
        // What was read may still be in the page cache only.
        file.sync()?;
        let bytes = self.source.header.bytes;
        let end = u64::from(self.records_end) + self.entries.len() as u64;
        let fits = end + TRAILER_SPACE <= bytes && self.entries.len() as u64 <= bytes / 8;
        let entries = if fits { &self.entries[..] } else { &[] };
        let trailer = Trailer {
            generation: self.source.header.generation,
            records_end: self.records_end,
            index_bytes: entries.len() as u32,
            index_crc: index_crc(self.source.seed, entries),
            entries: self.count,
            clean: false,
        };
        if !entries.is_empty() {
            file.write_at(entries, self.records_end.into())?;
        }
        file.write_at(&trailer.encode(), bytes - TRAILER_SPACE)?;
        file.sync()
    }
}

/// A directory on a disk.
pub(crate) struct At<'a> {
    pub(crate) disk: &'a dyn Disk,
    pub(crate) dir: &'a Path,
}

impl At<'_> {
    pub(crate) fn io(&self, what: impl Into<String>, source: io::Error) -> OpenError {
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                OpenError::ReadOnly { dir: self.dir.into(), source }
            }
            _ => OpenError::Io { dir: self.dir.into(), what: what.into(), source },
        }
    }

    pub(crate) fn not_a_journal(&self, reason: impl Into<String>) -> OpenError {
        OpenError::NotAJournal { dir: self.dir.into(), reason: reason.into() }
    }

    /// Takes the lock and finds or makes the identity.
    fn enter(&self) -> Result<(Box<dyn Held>, u64), OpenError> {
        if let Err(error) = self.disk.create_dir(self.dir) {
            return Err(match error.kind() {
                io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                    self.not_a_journal("it is a file")
                }
                _ => self.io("making the directory", error),
            });
        }
        let names = self.list()?;
        let is_ours = |name: &&String| {
            name.as_str() == LOCK_FILE || has_extension(name, "new") || slot_of(name).is_some()
        };
        if !names.iter().any(|name| name == IDENTITY_FILE)
            && let Some(other) = names.iter().find(|name| !is_ours(name))
        {
            return Err(self.not_a_journal(format!("it holds {other} but no {IDENTITY_FILE}")));
        }
        let lock = match self.disk.lock(&self.dir.join(LOCK_FILE)) {
            Ok(Lock::Held(lock)) => lock,
            Ok(Lock::Busy(pid)) => return Err(OpenError::Locked { dir: self.dir.into(), pid }),
            Err(error) => return Err(self.io("locking", error)),
        };
        let uid = match self.identity()? {
            Some(uid) => uid,
            None => {
                if let Some(other) = names.iter().find(|name| slot_of(name).is_some()) {
                    let reason = format!("it holds {other} but no {IDENTITY_FILE}");
                    return Err(self.not_a_journal(reason));
                }
                self.make_identity().map_err(|error| self.io("making the identity", error))?
            }
        };
        for name in names.iter().filter(|name| has_extension(name, "new")) {
            // Left behind by a process that died; the name may still be there or not.
            match self.disk.remove(&self.dir.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(self.io(format!("removing {name}"), error));
                }
                _ => {}
            }
        }
        Ok((lock, uid))
    }

    pub(crate) fn list(&self) -> Result<Vec<String>, OpenError> {
        let mut names = match self.disk.list(self.dir) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(self.not_a_journal("it is a file"));
            }
            Err(error) => return Err(self.io("listing the directory", error)),
        };
        names.sort();
        Ok(names)
    }

    /// The uid, if there is an identity.
    pub(crate) fn identity(&self) -> Result<Option<u64>, OpenError> {
        let reading = |error| self.io(format!("reading {IDENTITY_FILE}"), error);
        let file = match self.disk.open(&self.dir.join(IDENTITY_FILE), Access::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(reading(error)),
        };
        let mut block = [0; BLOCK];
        let read = file.read_at(&mut block, 0).map_err(reading)?;
        match Identity::decode(&block[..read]) {
            Ok(identity) => Ok(Some(identity.uid)),
            Err(BadIdentity::Damaged) => {
                Err(self.not_a_journal(format!("{IDENTITY_FILE} is damaged")))
            }
            Err(BadIdentity::Version(found)) => {
                Err(OpenError::Version { dir: self.dir.into(), found, known: VERSION })
            }
        }
    }

    fn make_identity(&self) -> io::Result<u64> {
        let uid = self.disk.random();
        let draft = self.dir.join(format!("{IDENTITY_FILE}.new"));
        let file = self.disk.create(&draft)?;
        file.write_at(&Identity { uid }.encode(), 0)?;
        file.sync()?;
        self.disk.rename(&draft, &self.dir.join(IDENTITY_FILE))?;
        self.disk.sync_dir(self.dir)?;
        Ok(uid)
    }

    /// Reads all segments. With `segment_bytes`, free segments of other sizes are removed and
    /// nothing else is changed; without, nothing at all is, and files are opened for reading.
    pub(crate) fn replay(
        &self,
        uid: u64,
        segment_bytes: Option<u64>,
    ) -> Result<Replayed, OpenError> {
        let mut index = Index::new();
        index.write = 0;
        let mut report = Report::default();
        let mut sources = Vec::new();
        let mut generation = 0;
        for name in self.list()? {
            let Some(slot) = slot_of(&name) else { continue };
            let reading = |error| self.io(format!("reading {name}"), error);
            let file = match segment_bytes {
                Some(_) => open_segment(self.disk, self.dir, slot),
                None => self.disk.open(&self.dir.join(&name), Access::Read),
            };
            let file = file.map_err(reading)?;
            let length = file.length().map_err(reading)?;
            let Some(header) = read_header(&*file).map_err(reading)? else {
                report.quarantined.push(Quarantined {
                    file: name.clone(),
                    offset: 0,
                    bytes: length,
                    stream: None,
                });
                if segment_bytes.is_some() {
                    // Kept for whoever wants to look into it, out of our way.
                    let aside = self.dir.join(format!("{name}.damaged"));
                    let moved = self.disk.rename(&self.dir.join(&name), &aside);
                    moved.map_err(|error| self.io(format!("setting {name} aside"), error))?;
                }
                continue;
            };
            if header.uid != uid {
                return Err(self.not_a_journal(format!("{name} belongs to another journal")));
            }
            generation = generation.max(header.generation);
            if header.free {
                let fits = header.bytes == length && segment_bytes == Some(length);
                if segment_bytes.is_some() && !fits {
                    let removed = self.disk.remove(&self.dir.join(&name));
                    removed.map_err(|error| self.io(format!("removing {name}"), error))?;
                    continue;
                }
            }
            while index.segments.len() <= slot as usize {
                index.segments.push(Segment::absent());
            }
            let segment = &mut index.segments[slot as usize];
            segment.state = if header.free { State::Free } else { State::Sealed };
            segment.bytes = header.bytes;
            segment.generation = header.generation;
            segment.seed = seed(uid, header.generation);
            segment.file = Some(Arc::clone(&file));
            if !header.free {
                sources.push(Source { slot, file, header, seed: segment.seed });
            }
        }
        sources.sort_by_key(|source| source.header.generation);
        let mut replayed = Replayed {
            index,
            report,
            sources: Vec::new(),
            scans: Vec::new(),
            generation,
            tail: None,
        };
        replayed.report.clean = true;
        for (at, source) in sources.iter().enumerate() {
            let last = at + 1 == sources.len();
            self.replay_segment(&mut replayed, source, last)?;
        }
        replayed.sources = sources;
        replayed.report.segments = replayed.sources.len() as u64;
        replayed.report.records = replayed.index.live_records;
        Ok(replayed)
    }

    fn replay_segment(
        &self,
        replayed: &mut Replayed,
        source: &Source,
        last: bool,
    ) -> Result<(), OpenError> {
        let index = &mut replayed.index;
        let slot = source.slot;
        let mut orphans = Vec::new();
        let (mut entries, mut count) = (Vec::new(), 0);
        let mut on_entry = |entry: crate::format::Entry<'_>| {
            if last {
                entries.extend_from_slice(&entry.offset.to_le_bytes());
                entries.extend_from_slice(&entry.raw[4..]);
                count += 1;
            }
            let length = entry.length as usize;
            match entry.what {
                What::Put { stream, seq, .. } => {
                    index.put((stream, seq), slot, entry.offset, length);
                }
                What::Body { .. } => index.body(slot, entry.offset, length),
                What::Ref { stream, seq, body_at, .. } => {
                    if !index.reference((stream, seq), slot, body_at) {
                        orphans.push((entry.offset, entry.length, stream));
                    }
                }
                What::Note { stream, seq, .. } => {
                    index.note((stream, seq), slot, entry.offset, length);
                }
                What::Release { stream, ranges } => {
                    for (first, last) in ranges {
                        index.release(stream, first, last, slot);
                    }
                }
                What::Drop { stream } => {
                    index.drop_stream(stream, slot);
                }
                What::Mark { .. } => {}
            }
        };
        let scanned = read_segment(&*source.file, &source.header, source.seed, last, &mut on_entry)
            .map_err(|error| self.io(format!("reading {}", file_name(slot)), error))?;
        let file = file_name(slot);
        let report = &mut replayed.report;
        for damage in &scanned.damage {
            report.quarantined.push(Quarantined {
                file: file.clone(),
                offset: damage.offset.into(),
                bytes: damage.bytes.into(),
                stream: damage.stream.map(|stream| stream.0),
            });
        }
        for (offset, length, stream) in orphans {
            let (offset, bytes, stream) = (offset.into(), length.into(), Some(stream.0));
            report.quarantined.push(Quarantined { file: file.clone(), offset, bytes, stream });
        }
        report.scanned += u64::from(!scanned.indexed);
        if last {
            report.clean = scanned.sealed && scanned.clean;
            if scanned.torn {
                report.torn = Some(Torn { file, offset: scanned.records_end.into() });
            }
            if !scanned.sealed {
                let (source, records_end) = (source.clone(), scanned.records_end);
                replayed.tail = Some(UnsealedTail { source, records_end, entries, count });
            }
        }
        replayed.scans.push(scanned);
        Ok(())
    }
}

fn has_extension(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|found| found == extension)
}
