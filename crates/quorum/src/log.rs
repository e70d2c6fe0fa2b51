//! What the groups need of a journal.

use bytes::Bytes;
use journal::error::ReadError;
use journal::journal::Journal;
use journal::op::{Lsn, Op};
use model::id::{Seq, StreamId};

/// A journal, narrowed to what groups use. What becomes durable is told to a
/// [`Watermark`](crate::watermark::Watermark) by whoever hears it from the journal.
pub trait Log: Send + Sync + 'static {
    /// Hands operations over, in order; see [`Journal::submit`]. Never blocks.
    fn submit(&self, ops: Vec<Op>) -> Lsn;

    /// Reads payloads of durable records; see [`Journal::read`]. May block on the disk.
    fn read(&self, stream: StreamId, seqs: &[Seq], out: &mut Vec<Result<Bytes, ReadError>>);
}

impl Log for Journal {
    fn submit(&self, ops: Vec<Op>) -> Lsn {
        Journal::submit(self, ops)
    }

    fn read(&self, stream: StreamId, seqs: &[Seq], out: &mut Vec<Result<Bytes, ReadError>>) {
        Journal::read(self, stream, seqs, out);
    }
}
