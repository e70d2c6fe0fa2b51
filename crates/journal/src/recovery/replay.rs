//! A directory on a disk, and what the segments in it say.

use crate::disk::salvaged::Salvaged;
use crate::disk::{Access, Disk, File, Held, Lock};
use crate::error::OpenError;
use crate::format::{
    BLOCK, BadBlock, Entry, Identity, SegmentHeader, TRAILER_SPACE, Trailer, VERSION, What,
    index_crc, seed,
};
use crate::index::{Index, Segment, Slot, State};
use crate::keeper::{file_name, fill_with_zeros, open_segment, slot_of};
use crate::recovery::{IDENTITY_FILE, LOCK_FILE, Quarantined, Report, Torn};
use crate::scan::{Damage, Scanned, read_header, read_segment};
use crate::writer::current::Resumed;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A segment with records, in log order.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) slot: Slot,
    pub(crate) file: Arc<dyn File>,
    pub(crate) header: SegmentHeader,
    pub(crate) seed: u32,
}

impl Source {
    /// Its file, for whoever wants what can be read of it.
    pub(crate) fn salvaged(&self) -> Salvaged<'_> {
        Salvaged::new(&*self.file)
    }
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
    /// The last segment.
    pub(crate) tail: Option<Tail>,
}

/// The last segment, complete or not.
pub(crate) struct Tail {
    source: Source,
    sealed: bool,
    is_damaged: bool,
    records_end: u32,
    entries: Vec<u8>,
    count: u32,
}

impl Tail {
    /// Whether it can be gone on in: at least an eighth of it is empty and all of it is readable.
    pub(super) fn has_room(&self) -> bool {
        let bytes = self.source.header.bytes;
        let used = u64::from(self.records_end) + self.entries.len() as u64 + TRAILER_SPACE;
        let is_whole = self.source.file.length().is_ok_and(|length| length == bytes);
        is_whole && !self.is_damaged && used + bytes / 8 <= bytes
    }

    /// Makes the segment ready to be gone on in: what was found in it is synced, and zeros take
    /// the place of a torn tail, which must not come back, of the index and of the trailer.
    pub(super) fn reopen(self) -> io::Result<Resumed> {
        let Source { slot, file, header, .. } = self.source;
        file.sync()?;
        fill_with_zeros(&*file, self.records_end.into(), header.bytes)?;
        file.sync()?;
        let (records_end, entries, count) = (self.records_end, self.entries, self.count);
        Ok(Resumed { slot, records_end, entries, count })
    }

    /// Makes what was found in it last: everything behind it never counts again.
    pub(super) fn seal(self) -> io::Result<()> {
        if self.sealed {
            return Ok(());
        }
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

    fn later(&self, found: u32) -> OpenError {
        OpenError::Version { dir: self.dir.into(), found, known: VERSION }
    }

    /// Takes the lock and finds or makes the identity.
    pub(super) fn enter(&self) -> Result<(Box<dyn Held>, u64), OpenError> {
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
        let uid = if let Some(uid) = self.identity()? {
            uid
        } else {
            if let Some(other) = names.iter().find(|name| slot_of(name).is_some()) {
                let reason = format!("it holds {other} but no {IDENTITY_FILE}");
                return Err(self.not_a_journal(reason));
            }
            self.make_identity().map_err(|error| self.io("making the identity", error))?
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
        // The names that are there may not be durable: the process that made them may have died
        // just then. What is written to these files must not go with their names.
        self.disk.sync_dir(self.dir).map_err(|error| self.io("syncing the directory", error))?;
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
            Err(BadBlock::Damaged) => {
                Err(self.not_a_journal(format!("{IDENTITY_FILE} is damaged")))
            }
            Err(BadBlock::Version(found)) => Err(self.later(found)),
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
        // The directory may be as new as what is in it; whoever may not read its parent did not
        // make it there.
        match self.dir.parent().map(|parent| self.disk.sync_dir(parent)) {
            Some(Err(error)) if error.kind() != io::ErrorKind::PermissionDenied => Err(error),
            _ => Ok(uid),
        }
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
            let header = match read_header(&Salvaged::new(&*file)).map_err(reading)? {
                Ok(header) => Some(header),
                Err(BadBlock::Version(found)) => return Err(self.later(found)),
                Err(BadBlock::Damaged) => None,
            };
            let Some(header) = header else {
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
        let mut on_entry = |entry: Entry<'_>| {
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
        let salvaged = source.salvaged();
        let scanned = read_segment(&salvaged, &source.header, source.seed, last, &mut on_entry)
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
        let lost = salvaged.lost();
        for &(from, to) in &lost {
            let is_known = |damage: &Damage| {
                let damage = u64::from(damage.offset)..u64::from(damage.offset + damage.bytes);
                damage.start < to && from < damage.end
            };
            if !scanned.damage.iter().any(is_known) {
                let (file, bytes) = (file.clone(), to - from);
                report.quarantined.push(Quarantined { file, offset: from, bytes, stream: None });
            }
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
            replayed.tail = Some(Tail {
                source: source.clone(),
                sealed: scanned.sealed,
                is_damaged: !scanned.damage.is_empty() || !lost.is_empty(),
                records_end: scanned.records_end,
                entries,
                count,
            });
        }
        replayed.scans.push(scanned);
        Ok(())
    }
}

fn has_extension(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|found| found == extension)
}
