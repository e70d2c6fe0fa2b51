//! Releases of one write, gathered by stream, so that thousands of single acknowledgements become
//! a few records of a few bytes per range.
//!
//! They are written behind the puts of the same write, which is the safe order: a torn write
//! undoes releases before it undoes puts.

use crate::format::{Encoder, RANGE_MAX, RELEASE_PREFIX, padded, push_range};
use crate::index::Index;
use model::id::StreamId;

/// What one record may take at most, so that damage costs little.
const RECORD_MAX: usize = 16 << 10;

/// The releases of one stream.
#[derive(Debug)]
struct Gathered {
    stream: StreamId,
    /// The stream's number in the index.
    number: u32,
    count: u32,
    /// The end of the last range in `ranges`.
    end: u64,
    /// The range that may still grow.
    open: (u64, u64),
    ranges: Vec<u8>,
}

/// The releases that are not written yet.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    streams: Vec<Gathered>,
    /// How many of `streams` are in use; the others keep their buffers.
    used: usize,
    bytes: usize,
}

impl Gather {
    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// What the records will take at most.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes
    }

    /// What one more range may add to [`Gather::bytes_max`].
    pub(crate) const ONE: usize = padded(RELEASE_PREFIX + 2 * RANGE_MAX + 8);

    /// Whether the records should be written before more is added.
    pub(crate) fn is_large(&self) -> bool {
        self.bytes > 256 << 10
    }

    /// Adds a range of the stream with this number in the index.
    pub(crate) fn add(&mut self, index: &mut Index, number: u32, first: u64, last: u64) {
        let stream = index.stream_mut(number);
        if stream.gathered > 0 {
            let gathered = &mut self.streams[stream.gathered as usize - 1];
            if gathered.open.1.checked_add(1) == Some(first) {
                gathered.open.1 = last;
                return;
            }
            if gathered.ranges.len() < RECORD_MAX {
                let before = gathered.ranges.len();
                gathered.close();
                gathered.open = (first, last);
                // The range that is open now takes the place that was kept for the last one.
                self.bytes += gathered.ranges.len() - before;
                return;
            }
        }
        let id = stream.id;
        if self.used == self.streams.len() {
            let open = (0, 0);
            let ranges = Vec::new();
            self.streams.push(Gathered { stream: id, number, count: 0, end: 0, open, ranges });
        }
        let gathered = &mut self.streams[self.used];
        gathered.stream = id;
        gathered.number = number;
        gathered.count = 0;
        gathered.end = 0;
        gathered.open = (first, last);
        gathered.ranges.clear();
        self.used += 1;
        stream.gathered = u32::try_from(self.used).expect("few streams in one write");
        self.bytes += padded(RELEASE_PREFIX + RANGE_MAX + 8);
    }

    /// Writes the records; `written` hears of each where it begins.
    pub(crate) fn write(
        &mut self,
        index: &mut Index,
        encoder: &mut Encoder<'_>,
        mut written: impl FnMut(&mut Vec<u8>, usize),
    ) {
        for gathered in &mut self.streams[..self.used] {
            gathered.close();
            index.stream_mut(gathered.number).gathered = 0;
            let start = encoder.out.len();
            encoder.release(gathered.stream, gathered.count, &gathered.ranges);
            written(encoder.out, start);
        }
        self.used = 0;
        self.bytes = 0;
    }
}

impl Gathered {
    fn close(&mut self) {
        push_range(&mut self.ranges, self.end, self.open.0, self.open.1);
        self.end = self.open.1;
        self.count += 1;
    }
}
