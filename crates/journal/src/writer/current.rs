//! The segment that is being filled.

use crate::disk::File;
use crate::format::{SegmentHeader, TRAILER_SPACE, Trailer, index_crc};
use crate::index::{Index, Slot, State};
use crate::keeper::write_header;
use std::io;
use std::sync::Arc;

/// An index larger than this share of the segment is not worth writing: with such small records
/// it is as quick to read the records.
const INDEX_SHARE: u64 = 8;

/// See the module.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) slot: Slot,
    pub(super) file: Arc<dyn File>,
    pub(super) header: SegmentHeader,
    pub(super) header_written: bool,
    /// It may have been part of the reserve.
    pub(super) is_borrowed: bool,
    pub(super) seed: u32,
    /// Where the buffer will be written.
    pub(super) end: u32,
    /// Everything before is synced.
    pub(super) synced: u32,
    /// Index entries; `None` once they are too many to be worth it.
    pub(super) index: Option<Vec<u8>>,
    pub(super) entries: u32,
}

/// A segment of the process before in which this one goes on. Behind its records are zeros.
#[derive(Debug)]
pub(crate) struct Resumed {
    pub(crate) slot: Slot,
    pub(crate) records_end: u32,
    /// Its index.
    pub(crate) entries: Vec<u8>,
    pub(crate) count: u32,
}

impl Current {
    pub(super) fn resume(resumed: Resumed, index: &mut Index, uid: u64) -> Self {
        let Resumed { slot, records_end, entries, count } = resumed;
        let segment = &mut index.segments[slot as usize];
        segment.state = State::Current;
        segment.written = records_end;
        let (generation, bytes) = (segment.generation, segment.bytes);
        let worth_it = entries.len() as u64 <= bytes / INDEX_SHARE;
        Self {
            slot,
            file: segment.file.clone().expect("a segment with records has a file"),
            header: SegmentHeader { free: false, generation, bytes, uid },
            header_written: true,
            is_borrowed: true,
            seed: segment.seed,
            end: records_end,
            synced: records_end,
            index: worth_it.then_some(entries),
            entries: count,
        }
    }

    /// Makes the header durable before anything of this generation is written. Were it lost, the
    /// next process would give the generation again, and what was written would count in it.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        if !self.header_written {
            write_header(&*self.file, &self.header)?;
            self.file.sync()?;
            self.header_written = true;
        }
        Ok(())
    }

    pub(super) fn add_entry(&mut self, buffer: &[u8], start: usize, length: usize) {
        let Some(entries) = &mut self.index else { return };
        if (entries.len() + length) as u64 > self.header.bytes / INDEX_SHARE {
            self.index = None;
            return;
        }
        let offset = self.end + start as u32;
        entries.extend_from_slice(&offset.to_le_bytes());
        entries.extend_from_slice(&buffer[start + 4..start + length]);
        self.entries += 1;
    }

    /// Writes index and trailer. Not synced.
    pub(super) fn seal(&self, clean: bool) -> io::Result<Trailer> {
        let entries = self.index.as_deref().unwrap_or_default();
        let trailer = Trailer {
            generation: self.header.generation,
            records_end: self.end,
            index_bytes: entries.len() as u32,
            index_crc: index_crc(self.seed, entries),
            entries: self.entries,
            clean,
        };
        if !entries.is_empty() {
            self.file.write_at(entries, self.end.into())?;
        }
        self.file.write_at(&trailer.encode(), self.header.bytes - TRAILER_SPACE)?;
        Ok(trailer)
    }
}
