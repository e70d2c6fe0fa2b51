//! Work beside the writer: preparing, freeing and removing segment files, and gathering what
//! compaction needs. One job at a time, in the order in which they were asked for.
//!
//! A job touches no file that the writer writes to, so both may run at the same time.
//!
//! A write or sync that fails is final here too: a later job may count on an earlier one, as the
//! freeing of a segment does on the freeing of those that it guarded.

use crate::disk::{Access, Disk, File};
use crate::format::{
    self, PUT_PREFIX, REF_PREFIX, SECOND_HEADER_AT, SegmentHeader, What, is_intact, seed,
};
use crate::index::{Index, Place, Slot};
use crate::op::Head;
use crate::scan::read_segment;
use model::id::{Seq, StreamId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is written at once when a file is filled with zeros.
const ZEROS: usize = 1 << 20;
/// Payload bytes that one collection carries at most (one record may exceed it).
const CARRY_BYTES: usize = 1 << 20;
/// Records that one collection carries at most.
const CARRY_RECORDS: usize = 8192;

/// Something to do.
#[derive(Debug)]
pub(crate) enum Job {
    /// Make a segment file of so many bytes, ready for use.
    Prepare { slot: Slot, bytes: u64 },
    /// Mark a segment as free, for good; then remove it if asked.
    Retire { slot: Slot, file: Arc<dyn File>, header: SegmentHeader, remove: bool },
    /// Remove a free segment.
    Remove { slot: Slot },
    /// Sync a segment that was just sealed.
    Settle { file: Arc<dyn File> },
    /// Gather some of the live records of a sealed segment.
    Collect { slot: Slot, file: Arc<dyn File>, header: SegmentHeader },
    /// Gather the names of the dead records of a sealed segment.
    Survey { slot: Slot, file: Arc<dyn File>, header: SegmentHeader },
    /// See how much room the file system has.
    Space,
}

/// What became of a job.
#[derive(Debug)]
pub(crate) enum Done {
    Prepared {
        slot: Slot,
        bytes: u64,
        file: Arc<dyn File>,
    },
    /// The disk is full.
    Refused {
        slot: Slot,
    },
    Retired {
        slot: Slot,
        removed: bool,
    },
    Removed {
        slot: Slot,
    },
    Settled,
    Collected(Collected),
    Surveyed(Surveyed),
    /// The file system could not read a segment that was to be collected or surveyed.
    Unreadable {
        slot: Slot,
    },
    Space {
        free: u64,
    },
    /// Final.
    Failed(io::Error),
}

/// Live records of a segment, to be written again.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) slot: Slot,
    pub(crate) carries: Vec<Carry>,
    /// Where the payloads of `carries` lie.
    pub(crate) payloads: Vec<u8>,
    /// Records found damaged: stream and payload length.
    pub(crate) damaged: Vec<(StreamId, u32)>,
    /// Some were left for another time.
    pub(crate) leaves: bool,
}

/// A payload with the records that need it, or a note.
#[derive(Debug)]
pub(crate) struct Carry {
    pub(crate) records: Vec<CarriedRecord>,
    pub(crate) what: CarriedWhat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CarriedWhat {
    /// A range of the payloads; for one put or for several that share it.
    Payload { start: usize, end: usize, shared: bool, lost: bool },
    /// A note whose put lies in another segment.
    Note,
}

#[derive(Debug)]
pub(crate) struct CarriedRecord {
    pub(crate) name: (StreamId, Seq),
    pub(crate) head: Head,
    /// Where the record lay; it is carried only if it still does.
    pub(crate) place: Place,
    /// The note that went into `head` (or nowhere); likewise.
    pub(crate) note: Place,
}

impl CarriedRecord {
    pub(crate) fn again(&self) -> Self {
        Self { name: self.name, head: self.head, place: self.place, note: self.note }
    }
}

/// Names of dead records of a segment.
#[derive(Debug)]
pub(crate) struct Surveyed {
    pub(crate) slot: Slot,
    /// By stream, ascending.
    pub(crate) dead: BTreeMap<StreamId, Vec<(u64, u64)>>,
    /// Names that lay here and lie elsewhere now.
    pub(crate) moved: Vec<(StreamId, Seq)>,
    /// The generation that was current before the survey began.
    pub(crate) before: u64,
}

/// The name of a segment's file.
pub(crate) fn file_name(slot: Slot) -> String {
    format!("{slot:08}.seg")
}

/// The slot of a segment's file.
pub(crate) fn slot_of(name: &str) -> Option<Slot> {
    let digits = name.strip_suffix(".seg")?;
    let slot = digits.parse().ok().filter(|&slot| slot > 0 && slot <= crate::index::SLOT_MAX)?;
    (file_name(slot) == name).then_some(slot)
}

/// Whether an error means that there is no room, as opposed to a fault.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Writes zeros from one offset up to another. Not synced.
pub(crate) fn fill_with_zeros(file: &dyn File, from: u64, to: u64) -> io::Result<()> {
    let zeros = vec![0; ZEROS];
    let mut at = from;
    while at < to {
        let length = zeros.len().min(usize::try_from(to - at).unwrap_or(usize::MAX));
        file.write_at(&zeros[..length], at)?;
        at += length as u64;
    }
    Ok(())
}

/// Writes both copies of a segment's header. Not synced.
pub(crate) fn write_header(file: &dyn File, header: &SegmentHeader) -> io::Result<()> {
    let block = header.encode();
    let mut both = [0; SECOND_HEADER_AT as usize + format::BLOCK];
    both[..format::BLOCK].copy_from_slice(&block);
    both[SECOND_HEADER_AT as usize..].copy_from_slice(&block);
    file.write_at(&both, 0)
}

/// Does jobs.
#[derive(Debug)]
pub(crate) struct Keeper {
    /// No further job is done.
    pub(crate) failed: bool,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) uid: u64,
    /// Free bytes that a new segment must leave.
    pub(crate) disk_free_min: u64,
    pub(crate) index: Arc<Mutex<Index>>,
}

impl Keeper {
    pub(crate) fn run(&mut self, job: Job) -> Done {
        if self.failed {
            return Done::Failed(io::Error::other("the keeper has failed before"));
        }
        match self.try_run(job) {
            Ok(done) => done,
            Err(error) => {
                self.failed = true;
                Done::Failed(error)
            }
        }
    }

    fn try_run(&self, job: Job) -> io::Result<Done> {
        match job {
            Job::Prepare { slot, bytes } => self.prepare(slot, bytes),
            Job::Retire { slot, file, header, remove } => {
                write_header(&*file, &SegmentHeader { free: true, ..header })?;
                file.sync()?;
                if remove {
                    self.disk.remove(&self.path(slot))?;
                }
                Ok(Done::Retired { slot, removed: remove })
            }
            Job::Remove { slot } => {
                self.disk.remove(&self.path(slot))?;
                Ok(Done::Removed { slot })
            }
            Job::Settle { file } => {
                file.sync()?;
                Ok(Done::Settled)
            }
            // What cannot be read may be readable later; nothing that was promised depends on it.
            Job::Collect { slot, file, header } => {
                Ok(self.collect(slot, &*file, &header).unwrap_or(Done::Unreadable { slot }))
            }
            Job::Survey { slot, file, header } => {
                Ok(self.survey(slot, &*file, &header).unwrap_or(Done::Unreadable { slot }))
            }
            Job::Space => Ok(Done::Space { free: self.disk.free_bytes(&self.dir)? }),
        }
    }

    fn path(&self, slot: Slot) -> PathBuf {
        self.dir.join(file_name(slot))
    }

    fn prepare(&self, slot: Slot, bytes: u64) -> io::Result<Done> {
        let room = self.disk.free_bytes(&self.dir)?;
        if self.disk_free_min > 0 && room < self.disk_free_min.saturating_add(bytes) {
            return Ok(Done::Refused { slot });
        }
        let draft = self.dir.join(format!("{slot:08}.new"));
        // Even a name may need room.
        let named = |file| self.disk.rename(&draft, &self.path(slot)).map(|()| file);
        match self.fill(&draft, bytes).and_then(named) {
            Ok(file) => {
                self.disk.sync_dir(&self.dir)?;
                Ok(Done::Prepared { slot, bytes, file })
            }
            Err(error) if is_full(&error) => {
                // What was written so far must not use up the room of others.
                match self.disk.remove(&draft) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                    _ => Ok(Done::Refused { slot }),
                }
            }
            Err(error) => Err(error),
        }
    }

    fn fill(&self, draft: &Path, bytes: u64) -> io::Result<Arc<dyn File>> {
        let file = self.disk.create(draft)?;
        fill_with_zeros(&*file, 0, bytes)?;
        write_header(&*file, &SegmentHeader { free: true, generation: 0, bytes, uid: self.uid })?;
        file.sync()?;
        Ok(file)
    }

    fn collect(&self, slot: Slot, file: &dyn File, header: &SegmentHeader) -> io::Result<Done> {
        let seed = seed(self.uid, header.generation);
        let mut wanted: Vec<Wanted> = Vec::new();
        let mut bodies: BTreeMap<u32, usize> = BTreeMap::new();
        let mut bytes = 0;
        let mut records = 0;
        let mut leaves = false;
        read_segment(file, header, seed, false, &mut |entry| {
            // The lock is taken per record so that the writer never waits for the disk here.
            let index = self.index.lock();
            // A shared body is carried with all its refs, so these are gathered to the end.
            let open = bytes < CARRY_BYTES && records < CARRY_RECORDS;
            let length = entry.length;
            let (stream, seq, head, at) = match entry.what {
                What::Put { stream, seq, head, lost, .. } if open => {
                    let place = index.place(stream, seq);
                    if (place.slot(), place.offset()) == (slot, entry.offset) && !place.is_shared()
                    {
                        let skip = PUT_PREFIX + head.len();
                        let Some(record) = record_of(&index, (stream, seq), head, place) else {
                            leaves = true;
                            return;
                        };
                        bytes += length as usize;
                        records += 1;
                        let at = entry.offset;
                        let records = vec![record];
                        let (shared, note) = (false, false);
                        wanted.push(Wanted { records, at, length, skip, shared, lost, note });
                    }
                    return;
                }
                What::Body { .. } if open => {
                    let at = entry.offset;
                    bodies.insert(at, wanted.len());
                    let (skip, shared, lost, note) = (format::PREFIX, true, false, false);
                    wanted.push(Wanted { records: vec![], at, length, skip, shared, lost, note });
                    return;
                }
                What::Ref { stream, seq, head, body_at, lost, .. } => {
                    if let Some(&at) = bodies.get(&body_at) {
                        wanted[at].lost |= lost;
                    }
                    (stream, seq, head, body_at)
                }
                What::Note { stream, seq, head } if open => {
                    let note = index.note_place(stream, seq);
                    let place = index.place(stream, seq);
                    // If the put is in this segment too, its head takes the note in.
                    if (note.slot(), note.offset()) == (slot, entry.offset) && place.slot() != slot
                    {
                        records += 1;
                        let head = Head::new(head);
                        let records =
                            vec![CarriedRecord { name: (stream, seq), head, place, note }];
                        let (at, skip) = (entry.offset, 0);
                        let (shared, lost, note) = (false, false, true);
                        wanted.push(Wanted { records, at, length, skip, shared, lost, note });
                    }
                    return;
                }
                _ => return,
            };
            let place = index.place(stream, seq);
            if place.is_shared()
                && (place.slot(), place.offset()) == (slot, at)
                && let Some(&number) = bodies.get(&at)
            {
                let Some(record) = record_of(&index, (stream, seq), head, place) else {
                    leaves = true;
                    return;
                };
                if wanted[number].records.is_empty() {
                    bytes += wanted[number].length as usize;
                }
                // A ref that was written twice counts once.
                if wanted[number].records.iter().all(|other| other.name != record.name) {
                    wanted[number].records.push(record);
                }
                bytes += REF_PREFIX;
                records += 1;
            }
        })?;
        // The newest heads of records with notes, wherever these lie.
        let index = self.index.lock();
        let mut notes = Vec::new();
        for (at, wanted) in wanted.iter().enumerate().filter(|(_, wanted)| !wanted.note) {
            for (within, record) in wanted.records.iter().enumerate() {
                if !record.note.is_none() {
                    let segment = &index.segments[record.note.slot() as usize];
                    let file = segment.file.clone();
                    notes.push((at, within, record.note, segment.seed, file));
                }
            }
        }
        drop(index);
        for (at, within, place, seed, file) in notes {
            let file = file.expect("a note lies in a file");
            if let Some(head) = read_note(&*file, place.offset(), seed)? {
                wanted[at].records[within].head = head;
            }
        }
        let mut collected = Collected { slot, leaves, ..Collected::default() };
        for wanted in wanted {
            if !wanted.records.is_empty() {
                wanted.read(file, seed, &mut collected)?;
            }
        }
        Ok(Done::Collected(collected))
    }

    fn survey(&self, slot: Slot, file: &dyn File, header: &SegmentHeader) -> io::Result<Done> {
        let before = {
            let index = self.index.lock();
            index.segments.iter().map(|segment| segment.generation).max().unwrap_or(0)
        };
        let mut dead: BTreeMap<StreamId, Vec<(u64, u64)>> = BTreeMap::new();
        let mut moved = Vec::new();
        let seed = seed(self.uid, header.generation);
        read_segment(file, header, seed, false, &mut |entry| {
            let (stream, seq, at) = match entry.what {
                What::Put { stream, seq, .. } => (stream, seq, entry.offset),
                What::Ref { stream, seq, body_at, .. } => (stream, seq, body_at),
                _ => return,
            };
            let place = self.index.lock().place(stream, seq);
            if place.is_none() {
                let ranges = dead.entry(stream).or_default();
                match ranges.last_mut() {
                    Some((_, last)) if *last + 1 == seq.0 => *last = seq.0,
                    _ => ranges.push((seq.0, seq.0)),
                }
            } else if (place.slot(), place.offset()) != (slot, at) {
                moved.push((stream, seq));
            }
        })?;
        Ok(Done::Surveyed(Surveyed { slot, dead, moved, before }))
    }
}

/// `None` if its newest head is not in a file yet: it is left for another time.
fn record_of(
    index: &Index,
    name: (StreamId, Seq),
    head: &[u8],
    place: Place,
) -> Option<CarriedRecord> {
    let note = index.note_place(name.0, name.1);
    let is_known = note.is_none() || index.is_written(note);
    is_known.then(|| CarriedRecord { name, head: Head::new(head), place, note })
}

/// The head in a note's record; `None` if it is damaged.
pub(crate) fn read_note(file: &dyn File, offset: u32, seed: u32) -> io::Result<Option<Head>> {
    let mut bytes = [0; PUT_PREFIX + Head::MAX];
    let read = file.read_at(&mut bytes, offset.into())?;
    let Some(prefix) = format::Prefix::decode(&bytes[..read]) else { return Ok(None) };
    let Some(record) = bytes[..read].get(..prefix.length as usize) else { return Ok(None) };
    if !is_intact(seed, record) {
        return Ok(None);
    }
    match format::Entry::decode(offset, &prefix, record).map(|entry| entry.what) {
        Some(What::Note { head, .. }) => Ok(Some(Head::new(head))),
        _ => Ok(None),
    }
}

/// A live record that is to be read.
struct Wanted {
    records: Vec<CarriedRecord>,
    at: u32,
    length: u32,
    /// Bytes before the payload.
    skip: usize,
    shared: bool,
    lost: bool,
    note: bool,
}

impl Wanted {
    fn read(self, file: &dyn File, seed: u32, collected: &mut Collected) -> io::Result<()> {
        if self.note {
            collected.carries.push(Carry { records: self.records, what: CarriedWhat::Note });
            return Ok(());
        }
        let mut record = vec![0; self.length as usize];
        let read = file.read_at(&mut record, self.at.into())?;
        let intact = read == record.len() && is_intact(seed, &record);
        if !intact && !self.lost {
            let bytes = self.length - self.skip as u32;
            collected.damaged.push((self.records[0].name.0, bytes));
        }
        let lost = self.lost || !intact;
        let start = collected.payloads.len();
        if !lost {
            collected.payloads.extend_from_slice(&record[self.skip..]);
        }
        let (end, shared) = (collected.payloads.len(), self.shared);
        let what = CarriedWhat::Payload { start, end, shared, lost };
        collected.carries.push(Carry { records: self.records, what });
        Ok(())
    }
}

/// Opens a segment's file again.
pub(crate) fn open_segment(disk: &dyn Disk, dir: &Path, slot: Slot) -> io::Result<Arc<dyn File>> {
    disk.open(&dir.join(file_name(slot)), Access::Write)
}
