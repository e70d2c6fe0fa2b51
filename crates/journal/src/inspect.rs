//! Looking at a journal that no node has open: what is there, and is it intact. Changes nothing.

use crate::disk::Disk;
use crate::error::OpenError;
use crate::format::{VERSION, What};
use crate::index::State;
use crate::keeper::file_name;
use crate::recovery::replay::{At, Replayed};
use crate::recovery::{LOCK_FILE, Quarantined, Report};
use crate::scan::check_segment;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;

/// What a journal holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// Version of the format.
    pub version: u32,
    /// The journal's own number, in hexadecimal.
    pub uid: String,
    /// The process that has it open, if any: then the rest is a snapshot that may be torn.
    pub holder: Option<u32>,
    /// What a recovery would report.
    pub report: Report,
    /// Bytes of all segment files.
    pub disk_bytes: u64,
    /// Bytes of records that are still needed.
    pub live_bytes: u64,
    /// Free segments first, then in log order.
    pub segments: Vec<SegmentReport>,
    /// In ascending order.
    pub streams: Vec<StreamReport>,
}

/// One segment file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SegmentReport {
    /// Its name.
    pub file: String,
    /// `free`, `sealed` or `open` (not completed: the node did not stop properly).
    pub state: &'static str,
    /// Its place in log order; of a free one: its last life.
    pub generation: u64,
    /// Length of the file.
    pub bytes: u64,
    /// Records that are still needed, notes included.
    pub live_records: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// Whether recovery can use an index instead of reading the records.
    pub indexed: bool,
    /// Older segments that must be recycled before it.
    pub waits_for: Vec<String>,
}

/// One stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StreamReport {
    /// Its id.
    pub stream: u64,
    /// Records that were put and not released.
    pub records: u64,
    /// The highest position seen.
    pub highest: u64,
}

/// Whether a journal is intact.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// Records whose checksum is right, needed or not.
    pub intact: u64,
    /// Needed records (notes left out).
    pub live: u64,
    /// Needed records that are damaged: their payload is lost.
    pub live_damaged: u64,
    /// Bytes that are not what was written.
    pub damage: Vec<Quarantined>,
    /// Segments whose index is damaged; their records are read one by one instead.
    pub indexes_damaged: Vec<String>,
}

impl Verification {
    /// Whether nothing is wrong.
    pub fn is_intact(&self) -> bool {
        self.damage.is_empty() && self.indexes_damaged.is_empty() && self.live_damaged == 0
    }
}

/// Says what the journal in `dir` holds, from its indexes.
///
/// # Errors
/// As for opening it; [`OpenError::Locked`] if a process has it open, unless `even_if_locked`.
pub fn inspect(disk: &dyn Disk, dir: &Path, even_if_locked: bool) -> Result<Inspection, OpenError> {
    let (uid, holder, replayed) = look(disk, dir, even_if_locked)?;
    let index = &replayed.index;
    let mut segments: Vec<SegmentReport> = Vec::new();
    for (slot, segment) in (0..).zip(&index.segments) {
        if segment.state == State::Absent {
            continue;
        }
        let scan = replayed.sources.iter().position(|source| source.slot == slot);
        let scan = scan.map(|at| &replayed.scans[at]);
        segments.push(SegmentReport {
            file: file_name(slot),
            state: match scan {
                None => "free",
                Some(scan) if scan.sealed => "sealed",
                Some(_) => "open",
            },
            generation: segment.generation,
            bytes: segment.bytes,
            live_records: segment.live_records,
            live_bytes: segment.live_bytes,
            indexed: scan.is_some_and(|scan| scan.indexed),
            waits_for: segment.kills.iter().map(|&slot| file_name(slot)).collect(),
        });
    }
    segments.sort_by_key(|segment| (segment.state != "free", segment.generation));
    let stream = |stream: &&crate::index::Stream| StreamReport {
        stream: stream.id.0,
        records: stream.records,
        highest: stream.highest,
    };
    Ok(Inspection {
        version: VERSION,
        uid: format!("{uid:016x}"),
        holder,
        disk_bytes: segments.iter().map(|segment| segment.bytes).sum(),
        live_bytes: index.live_bytes(),
        streams: index.sorted().iter().map(stream).collect(),
        segments,
        report: replayed.report,
    })
}

/// Reads every record of the journal in `dir` and compares it with its checksum.
///
/// # Errors
/// As [`inspect`]. Damage is not an error but a result.
pub fn verify(
    disk: &dyn Disk,
    dir: &Path,
    even_if_locked: bool,
) -> Result<Verification, OpenError> {
    let (_, _, replayed) = look(disk, dir, even_if_locked)?;
    let index = &replayed.index;
    let mut result = Verification { live: index.live_records, ..Verification::default() };
    let mut live_intact = 0;
    // What has no readable header is in the report only.
    let is_whole = |found: &&Quarantined| found.offset == 0;
    result.damage.extend(replayed.report.quarantined.iter().filter(is_whole).cloned());
    for (at, source) in replayed.sources.iter().enumerate() {
        let last = at + 1 == replayed.sources.len();
        let mut bodies = BTreeSet::new();
        let mut intact = 0;
        let mut on_entry = |entry: crate::format::Entry<'_>| {
            intact += 1;
            let (stream, seq, at) = match entry.what {
                What::Put { stream, seq, .. } => (stream, seq, entry.offset),
                What::Ref { stream, seq, body_at, .. } if bodies.contains(&body_at) => {
                    (stream, seq, body_at)
                }
                What::Body { .. } => {
                    bodies.insert(entry.offset);
                    return;
                }
                _ => return,
            };
            let place = index.place(stream, seq);
            live_intact += u64::from((place.slot(), place.offset()) == (source.slot, at));
        };
        let checked =
            check_segment(&source.salvaged(), &source.header, source.seed, last, &mut on_entry);
        let file = file_name(source.slot);
        let at = At { disk, dir };
        let (scanned, index_is_intact) =
            checked.map_err(|error| at.io(format!("reading {file}"), error))?;
        result.intact += intact;
        result.damage.extend(scanned.damage.iter().map(|damage| Quarantined {
            file: file.clone(),
            offset: damage.offset.into(),
            bytes: damage.bytes.into(),
            stream: damage.stream.map(|stream| stream.0),
        }));
        if !index_is_intact {
            result.indexes_damaged.push(file);
        }
    }
    result.live_damaged = result.live.saturating_sub(live_intact);
    Ok(result)
}

fn look(
    disk: &dyn Disk,
    dir: &Path,
    even_if_locked: bool,
) -> Result<(u64, Option<u32>, Replayed), OpenError> {
    let at = At { disk, dir };
    let names = at.list()?;
    let Some(uid) = at.identity()? else {
        let reason = match names.first() {
            Some(name) => format!("it holds {name} but no {}", crate::recovery::IDENTITY_FILE),
            None => "it is empty".into(),
        };
        return Err(at.not_a_journal(reason));
    };
    let holder = disk.holder(&dir.join(LOCK_FILE)).map_err(|error| at.io("locking", error))?;
    if let Some(pid) = holder
        && !even_if_locked
    {
        return Err(OpenError::Locked { dir: dir.into(), pid });
    }
    Ok((uid, holder, at.replay(uid, None)?))
}
