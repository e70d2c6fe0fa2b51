//! Opening: what is on disk becomes an index again.
//!
//! 1. Take the lock; see whose directory it is.
//! 2. Read each segment's header; sort those in use by generation, which is log order.
//! 3. Replay their records (names and heads, not payloads) into the index.
//! 4. Seal the last segment if the process died: cut the torn tail, sync, write its index. If
//!    free segments are scarce, go on in it instead.
//! 5. Let the owner visit what is there.

use crate::disk::{Disk, Held};
use crate::error::OpenError;
use crate::format::Entry;
use crate::index::{Index, Slot};
use crate::intake::Intake;
use crate::keeper::Keeper;
use crate::options::Options;
use crate::recovery::replay::{At, Source};
use crate::recovery::walk::Walk;
use crate::scan::read_segment;
use crate::stats::Stats;
use crate::writer::reclaim::free_count;
use crate::writer::{Start, Writer};
use model::id::{Seq, StreamId};
use parking_lot::Mutex;
use serde::Serialize;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) mod replay;

mod walk;

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
    /// The segment that is gone on in, and where that begins.
    pub(crate) resumed: Option<(Slot, u32)>,
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
    pub fn for_each(self, visit: impl FnMut(StreamId, Seq, &[u8], u32)) -> io::Result<()> {
        self.visit(visit)
    }

    /// Visits the records of one stream, as [`Recovery::for_each`] does; the others can be visited
    /// later. Costs as much as visiting all.
    ///
    /// # Errors
    /// If the file system fails.
    pub fn for_each_of(
        &self,
        stream: StreamId,
        mut visit: impl FnMut(Seq, &[u8], u32),
    ) -> io::Result<()> {
        self.visit(|of, seq, head, bytes| {
            if of == stream {
                visit(seq, head, bytes);
            }
        })
    }

    fn visit(&self, mut visit: impl FnMut(StreamId, Seq, &[u8], u32)) -> io::Result<()> {
        let mut walk = Walk::new(&self.index, &self.sources);
        for source in &self.sources {
            let mut failure = None;
            // What is put now is not visited.
            let end = self.resumed.filter(|&(slot, _)| slot == source.slot).map(|(_, end)| end);
            let mut on_entry = |entry: Entry<'_>| {
                if failure.is_none()
                    && end.is_none_or(|end| entry.offset < end)
                    && let Err(error) = walk.on_entry(source, &entry, &mut visit)
                {
                    failure = Some(error);
                }
            };
            let file = source.salvaged();
            read_segment(&file, &source.header, source.seed, false, &mut on_entry)?;
            if let Some(error) = failure {
                return Err(error);
            }
        }
        Ok(())
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
    let mut resumed = None;
    if let Some(tail) = replayed.tail.take() {
        let nominal = options.segment_bytes;
        let scarce = free_count(&replayed.index, nominal) <= options.reserve_segments as usize;
        if scarce && tail.has_room() {
            let reopened = tail.reopen();
            resumed = Some(reopened.map_err(|source| at.io("reopening the last segment", source))?);
        } else {
            tail.seal().map_err(|source| at.io("sealing the last segment", source))?;
        }
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
        resumed: resumed.as_ref().map(|resumed| (resumed.slot, resumed.records_end)),
        index: Arc::clone(&index),
        visiting: Arc::clone(&visiting),
        intake: Arc::clone(intake),
    };
    let instance = disk.random();
    let keeper = Keeper {
        failed: false,
        disk,
        dir: options.dir.clone(),
        uid,
        disk_free_min: options.disk_free_min,
        index: Arc::clone(&index),
    };
    let start = Start {
        options,
        uid,
        instance,
        index: Arc::clone(&index),
        stats: Arc::clone(&stats),
        visiting,
        next_generation,
        clean,
        resumed,
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
