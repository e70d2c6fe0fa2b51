//! Reading what a segment holds: through its index when it has one, record by record otherwise.
//!
//! Where a scan meets bytes that are no record, it asks whether they had ever been synced. Each
//! write begins with a mark that says how far the segment was synced by then; a mark behind the
//! bad place that vouches for it makes it *damage* (skipped, the rest is kept), otherwise it is
//! the *torn tail* (cut, nothing behind it counts). In a sealed segment everything was synced.

use crate::disk::File;
use crate::format::{
    BLOCK, BadBlock, Entry, Kind, MARK, PREFIX, Prefix, RECORDS_AT, SECOND_HEADER_AT,
    SegmentHeader, TRAILER_SPACE, Trailer, What, index_crc, is_intact, padded,
};
use crate::options::Options;
use model::id::StreamId;
use std::io;

/// What is read at once.
const WINDOW: usize = 1 << 20;

/// Bytes that are not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Damage {
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
    pub(crate) stream: Option<StreamId>,
}

/// What became of reading a segment.
#[expect(clippy::struct_excessive_bools, reason = "four independent findings")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// Where the records end.
    pub(crate) records_end: u32,
    /// It has a trailer of this generation.
    pub(crate) sealed: bool,
    /// The trailer says that the journal was closed properly.
    pub(crate) clean: bool,
    /// It was read through its index.
    pub(crate) indexed: bool,
    /// There was more behind `records_end`, which does not count.
    pub(crate) torn: bool,
    pub(crate) damage: Vec<Damage>,
}

/// Reads the header of a segment file.
pub(crate) fn read_header(file: &dyn File) -> io::Result<Result<SegmentHeader, BadBlock>> {
    let mut block = [0; SECOND_HEADER_AT as usize + BLOCK];
    let read = file.read_at(&mut block, 0)?;
    if read < block.len() {
        return Ok(Err(BadBlock::Damaged));
    }
    Ok(SegmentHeader::newest(&block, &block[SECOND_HEADER_AT as usize..]))
}

/// A sliding view of a file.
struct Window<'a> {
    file: &'a dyn File,
    bytes: Vec<u8>,
    start: u64,
    /// Nothing is read at or behind this offset.
    end: u64,
}

impl Window<'_> {
    /// `length` bytes at `offset`; fewer if the end is nearer.
    fn get(&mut self, offset: u64, length: usize) -> io::Result<&[u8]> {
        let length = length.min(usize::try_from(self.end.saturating_sub(offset)).unwrap_or(0));
        let inside =
            offset >= self.start && offset + length as u64 <= self.start + self.bytes.len() as u64;
        if !inside {
            // A last record may be padded beyond the end of a file that was cut.
            let want = length.max(WINDOW).min(self.end.saturating_sub(offset) as usize);
            self.bytes.resize(want, 0);
            let read = self.file.read_at(&mut self.bytes, offset)?;
            self.bytes.truncate(read);
            self.start = offset;
        }
        let from = ((offset - self.start) as usize).min(self.bytes.len());
        let to = (from + length).min(self.bytes.len());
        Ok(&self.bytes[from..to])
    }
}

/// Visits the records of a segment in log order, marks left out.
///
/// `last` says that no segment was begun after this one, so that its tail may be torn.
///
/// # Errors
/// If the file system fails. Damage is no error.
pub(crate) fn read_segment(
    file: &dyn File,
    header: &SegmentHeader,
    seed: u32,
    last: bool,
    visit: &mut dyn FnMut(Entry<'_>),
) -> io::Result<Scanned> {
    read(file, header, seed, last, true, visit)
}

/// Visits the records of a segment in log order, each read and checksummed, whether it has an
/// index or not; and whether the index, if there is one, is intact.
///
/// # Errors
/// If the file system fails. Damage is no error.
pub(crate) fn check_segment(
    file: &dyn File,
    header: &SegmentHeader,
    seed: u32,
    last: bool,
    visit: &mut dyn FnMut(Entry<'_>),
) -> io::Result<(Scanned, bool)> {
    let mut index_is_intact = true;
    if let Some(trailer) = read_trailer(file, header)?
        && trailer.index_bytes > 0
    {
        let mut bytes = vec![0; trailer.index_bytes as usize];
        let read = file.read_at(&mut bytes, u64::from(trailer.records_end))?;
        index_is_intact = read == bytes.len() && index_crc(seed, &bytes) == trailer.index_crc;
    }
    Ok((read(file, header, seed, last, false, visit)?, index_is_intact))
}

fn read(
    file: &dyn File,
    header: &SegmentHeader,
    seed: u32,
    last: bool,
    use_index: bool,
    visit: &mut dyn FnMut(Entry<'_>),
) -> io::Result<Scanned> {
    let trailer = read_trailer(file, header)?;
    if let Some(trailer) = trailer {
        let mut scanned = Scanned {
            records_end: trailer.records_end,
            sealed: true,
            clean: trailer.clean,
            ..Scanned::default()
        };
        let has_index = use_index && trailer.index_bytes > 0;
        if has_index && read_index(file, seed, &trailer, &mut scanned, visit)? {
            return Ok(scanned);
        }
        let tail = Tail::Synced;
        scan(file, u64::from(trailer.records_end), seed, tail, &mut scanned, visit)?;
        scanned.records_end = trailer.records_end;
        return Ok(scanned);
    }
    let mut scanned = Scanned::default();
    let tail = if last { Tail::Unknown } else { Tail::Synced };
    // Nothing is believed beyond what the file has, nor beyond what offsets can name.
    let end = header.bytes.min(file.length()?).min(Options::SEGMENT_BYTES_MAX);
    scan(file, end.saturating_sub(TRAILER_SPACE), seed, tail, &mut scanned, visit)?;
    Ok(scanned)
}

/// The trailer, if the segment was sealed in this generation and its figures make sense.
fn read_trailer(file: &dyn File, header: &SegmentHeader) -> io::Result<Option<Trailer>> {
    let Some(at) = header.bytes.checked_sub(TRAILER_SPACE) else { return Ok(None) };
    if header.bytes > Options::SEGMENT_BYTES_MAX {
        return Ok(None);
    }
    let mut block = [0; BLOCK];
    if file.read_at(&mut block, at)? < BLOCK {
        return Ok(None);
    }
    let sensible = |trailer: &Trailer| {
        trailer.generation == header.generation
            && trailer.records_end >= RECORDS_AT
            && u64::from(trailer.records_end) + u64::from(trailer.index_bytes) <= at
    };
    Ok(Trailer::decode(&block).filter(sensible))
}

/// Visits the index. False, with nothing visited, if it is not what was written.
fn read_index(
    file: &dyn File,
    seed: u32,
    trailer: &Trailer,
    scanned: &mut Scanned,
    visit: &mut dyn FnMut(Entry<'_>),
) -> io::Result<bool> {
    let mut bytes = vec![0; trailer.index_bytes as usize];
    let read = file.read_at(&mut bytes, u64::from(trailer.records_end))?;
    if read < bytes.len() || index_crc(seed, &bytes) != trailer.index_crc {
        return Ok(false);
    }
    scanned.indexed = true;
    let mut rest = &bytes[..];
    let mut at = RECORDS_AT;
    while !rest.is_empty() {
        let entry = Prefix::decode(rest).and_then(|prefix| {
            let offset = prefix.crc_or_offset;
            let end = u64::from(offset) + u64::from(prefix.length);
            let inside = offset >= at && offset % 8 == 0 && end <= trailer.records_end.into();
            let entry = Entry::decode(offset, &prefix, rest).filter(|_| inside)?;
            Some((entry, prefix.index_length()))
        });
        let Some((entry, length)) = entry else {
            // Its checksum is right, so this was written by a faulty program.
            let bytes = trailer.records_end - at.min(trailer.records_end);
            scanned.damage.push(Damage { offset: at, bytes, stream: None });
            break;
        };
        at = entry.offset + PREFIX as u32;
        visit(entry);
        rest = &rest[length..];
    }
    Ok(true)
}

/// What is known of a segment's tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tail {
    /// Everything up to the end of the scan was synced.
    Synced,
    /// Only marks can tell.
    Unknown,
}

fn scan(
    file: &dyn File,
    end: u64,
    seed: u32,
    tail: Tail,
    scanned: &mut Scanned,
    visit: &mut dyn FnMut(Entry<'_>),
) -> io::Result<()> {
    let mut window = Window { file, bytes: Vec::new(), start: 0, end };
    let mut at = RECORDS_AT;
    // Everything before was synced; the write that is being read ends there.
    let mut vouched = if tail == Tail::Synced { None } else { Some(0) };
    let mut write_end = 0;
    // A search tries at most this many bytes of false records, so that hostile contents of a
    // damaged segment cost time in proportion to its size.
    let mut budget = 4 * end;
    scanned.records_end = RECORDS_AT;
    loop {
        let mut enough = u64::MAX;
        if let Some(length) = intact_at(&mut window, at, seed, &mut enough)? {
            let bytes = window.get(at.into(), length as usize)?;
            let prefix = Prefix::decode(bytes).expect("an intact record has a prefix");
            if let Some(entry) = Entry::decode(at, &prefix, bytes) {
                match entry.what {
                    What::Mark { end, .. } => write_end = end,
                    _ => visit(entry),
                }
            }
            at += padded(length as usize) as u32;
            scanned.records_end = at;
            continue;
        }
        // The end, a torn tail or damage.
        if vouched.is_some_and(|vouched| vouched <= at) {
            let (synced, marks) = marks_behind(&mut window, at, seed)?;
            if synced <= at {
                scanned.torn = marks || write_end > at;
                return Ok(());
            }
            vouched = Some(synced);
        }
        let limit = vouched.map_or(end, |vouched| end.min(vouched.into()));
        if u64::from(at) >= limit {
            return Ok(());
        }
        // In a segment that lost its trailer the rest is empty more often than damaged.
        let next = next_intact(&mut window, at, seed, &mut budget)?;
        let Some(next) = next else {
            let had_trailer = scanned.sealed || vouched.is_some();
            if had_trailer || write_end > at {
                let to = if had_trailer { limit } else { write_end.into() };
                push_damage(&mut window, scanned, at, to as u32)?;
                scanned.records_end = to as u32;
            }
            return Ok(());
        };
        // What lies between the last sync and an intact record behind it may be torn.
        let next = if tail == Tail::Unknown { u64::from(next).min(limit) as u32 } else { next };
        push_damage(&mut window, scanned, at, next)?;
        at = next;
    }
}

fn push_damage(
    window: &mut Window<'_>,
    scanned: &mut Scanned,
    from: u32,
    to: u32,
) -> io::Result<()> {
    let bytes = window.get(from.into(), 64)?;
    let stream =
        Prefix::decode(bytes).and_then(|prefix| match Entry::decode(from, &prefix, bytes)?.what {
            What::Put { stream, .. }
            | What::Ref { stream, .. }
            | What::Note { stream, .. }
            | What::Release { stream, .. }
            | What::Drop { stream } => Some(stream),
            What::Body { .. } | What::Mark { .. } => None,
        });
    scanned.damage.push(Damage { offset: from, bytes: to.saturating_sub(from), stream });
    Ok(())
}

/// The length of the record at `at` if it is intact. Takes what it had to checksum in vain from
/// `budget`, and does not look at records that exceed it.
fn intact_at(
    window: &mut Window<'_>,
    at: u32,
    seed: u32,
    budget: &mut u64,
) -> io::Result<Option<u32>> {
    let end = window.end;
    let Some(prefix) = Prefix::decode(window.get(at.into(), PREFIX)?) else { return Ok(None) };
    if u64::from(at) + u64::from(prefix.length) > end || u64::from(prefix.length) > *budget {
        return Ok(None);
    }
    let bytes = window.get(at.into(), prefix.length as usize)?;
    if bytes.len() == prefix.length as usize && is_intact(seed, bytes) {
        return Ok(Some(prefix.length));
    }
    *budget -= u64::from(prefix.length);
    Ok(None)
}

/// Where the next intact record stands behind a bad one.
fn next_intact(
    window: &mut Window<'_>,
    at: u32,
    seed: u32,
    budget: &mut u64,
) -> io::Result<Option<u32>> {
    // The likeliest damage leaves the length alone.
    if let Some(prefix) = Prefix::decode(window.get(at.into(), PREFIX)?) {
        let next = u64::from(at) + padded(prefix.length as usize) as u64;
        if next < window.end && intact_at(window, next as u32, seed, budget)?.is_some() {
            return Ok(Some(next as u32));
        }
    }
    let mut candidate = u64::from(at) + 8;
    while candidate + PREFIX as u64 <= window.end {
        let bytes = window.get(candidate, PREFIX)?;
        let is_mark = Prefix::decode(bytes).is_some_and(|prefix| prefix.kind == Kind::Mark);
        let mut enough = u64::MAX;
        let budget = if is_mark { &mut enough } else { &mut *budget };
        if intact_at(window, candidate as u32, seed, budget)?.is_some() {
            return Ok(Some(candidate as u32));
        }
        candidate += 8;
    }
    Ok(None)
}

/// How far the marks behind `at` vouch that the segment was synced, and whether there are any.
fn marks_behind(window: &mut Window<'_>, at: u32, seed: u32) -> io::Result<(u32, bool)> {
    let mut synced = 0;
    let mut any = false;
    let mut candidate = u64::from(at) + 8;
    while candidate + MARK as u64 <= window.end {
        let bytes = window.get(candidate, MARK)?;
        if bytes.len() < MARK {
            break;
        }
        if let Some(prefix) = Prefix::decode(bytes)
            && prefix.kind == Kind::Mark
            && is_intact(seed, bytes)
        {
            any = true;
            if u64::from(prefix.extra) <= candidate && prefix.extra % 8 == 0 {
                synced = synced.max(prefix.extra);
            }
        }
        candidate += 8;
    }
    Ok((synced, any))
}
