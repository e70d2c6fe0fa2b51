//! Counters of a running journal.

/// A snapshot; counters count since the journal was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Segment files on disk, free ones included.
    pub segments: u64,
    /// Of these, empty and ready.
    pub segments_free: u64,
    /// Bytes of all segment files.
    pub disk_bytes: u64,
    /// Bytes of records that are still needed, with their headers.
    pub live_bytes: u64,
    /// Records that were put and not released.
    pub live_records: u64,
    /// Payload bytes handed over and not yet written.
    pub pending_bytes: u64,
    /// Operations handed over and not yet durable.
    pub pending_ops: u64,
    /// Bulk puts that wait because the disk is full.
    pub held_puts: u64,
    /// Vital puts that wait because not even the reserve has room, and what follows them in their
    /// streams.
    pub parked_ops: u64,
    /// fdatasync calls of the writer.
    pub syncs: u64,
    /// pwrite calls of the writer.
    pub writes: u64,
    /// Bytes written by the writer.
    pub written_bytes: u64,
    /// Times that the writer took what waited.
    pub batches: u64,
    /// pread calls.
    pub reads: u64,
    /// Bytes that readers were given.
    pub read_bytes: u64,
    /// Time spent in these fdatasync calls in microseconds.
    pub sync_us: u64,
    /// Records carried over by compaction.
    pub carried_records: u64,
    /// Bytes carried over by compaction.
    pub carried_bytes: u64,
    /// Segments whose dead records were named again, so that older segments could go.
    pub surveyed_segments: u64,
    /// Segments recycled.
    pub recycled_segments: u64,
    /// Damaged records met since the journal was opened, recovery included.
    pub quarantined: u64,
    /// Bytes of memory of the index.
    pub index_bytes: u64,
    /// Whether the disk is full.
    pub full: bool,
    /// Whether writing has failed for good.
    pub failed: bool,
}
