//! What a journal is told when it is opened.

use crate::error::OpenError;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of one journal.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory that the journal owns. Created when missing; its parent must exist or be
    /// creatable.
    pub dir: PathBuf,
    /// Bytes of one segment file. Default 32 MiB, at least 1 MiB, at most 1 GiB. It may differ
    /// from run to run; existing segments keep their size until they are recycled.
    pub segment_bytes: u64,
    /// Empty segments that puts may not touch, kept for releases, notes, drops and compaction
    /// while the disk is full. Default 2, at least 2, at most 64.
    pub reserve_segments: u32,
    /// Free bytes of the file system below which the journal makes no new segment and reports
    /// itself full. Default 0: only a file system that refuses counts.
    pub disk_free_min: u64,
    /// The longest time that releases and notes wait for an fdatasync when no put asks for one
    /// sooner. Default 20 ms, at most 1 s.
    pub sync_delay: Duration,
    /// The longest time that releases and notes wait to be written (into the page cache, which
    /// survives a killed process) when no put is written sooner. Default 2 ms, at most
    /// `sync_delay`.
    pub write_delay: Duration,
}

impl Options {
    /// The smallest segment, 1 MiB.
    pub const SEGMENT_BYTES_MIN: u64 = 1 << 20;
    /// The largest segment, 1 GiB.
    pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;
    /// The segment size when nothing is said, 32 MiB.
    pub const SEGMENT_BYTES_DEFAULT: u64 = 32 << 20;

    /// The defaults for a directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            segment_bytes: Self::SEGMENT_BYTES_DEFAULT,
            reserve_segments: 2,
            disk_free_min: 0,
            sync_delay: Duration::from_millis(20),
            write_delay: Duration::from_millis(2),
        }
    }

    /// Checks the bounds that the fields' documentation states.
    ///
    /// # Errors
    /// [`OpenError::Bounds`] for the first that is out of bounds.
    pub fn check(&self) -> Result<(), OpenError> {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        // Simulations fill many segments in little time.
        let min = if cfg!(test) { 64 << 10 } else { Self::SEGMENT_BYTES_MIN };
        let max = Self::SEGMENT_BYTES_MAX;
        bound("segment_bytes", self.segment_bytes, min, max)?;
        bound("reserve_segments", self.reserve_segments.into(), 2, 64)?;
        bound("sync_delay (ms)", millis(self.sync_delay), 0, 1000)?;
        bound("write_delay (ms)", millis(self.write_delay), 0, millis(self.sync_delay))
    }
}

fn bound(key: &'static str, value: u64, min: u64, max: u64) -> Result<(), OpenError> {
    if value < min || value > max {
        return Err(OpenError::Bounds { key, value, min, max });
    }
    Ok(())
}
