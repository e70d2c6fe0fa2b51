//! What the groups need of a journal.

use bytes::Bytes;
use journal::error::ReadError;
use journal::journal::Journal;
use journal::op::{Lsn, Op};
use model::id::{Seq, StreamId};
use std::sync::Arc;

/// Takes what was read, on whatever thread that was.
pub type Then = Box<dyn FnOnce(Vec<Result<Bytes, ReadError>>) + Send>;

/// A journal, narrowed to what groups use. What becomes durable is told to a
/// [`Watermark`](crate::watermark::Watermark) by whoever hears it from the journal.
pub trait Log: Send + Sync + 'static {
    /// Hands operations over, in order; see [`Journal::submit`]. Never blocks.
    fn submit(&self, ops: Vec<Op>) -> Lsn;

    /// Reads payloads of durable records; see [`Journal::read`]. May block on the disk.
    fn read(&self, stream: StreamId, seqs: &[Seq], out: &mut Vec<Result<Bytes, ReadError>>);

    /// Reads where it may block. Call it within a runtime.
    fn read_later(self: Arc<Self>, stream: StreamId, seqs: Vec<Seq>, then: Then) {
        drop(tokio::task::spawn_blocking(move || {
            let mut out = Vec::with_capacity(seqs.len());
            self.read(stream, &seqs, &mut out);
            then(out);
        }));
    }
}

impl Log for Journal {
    fn submit(&self, ops: Vec<Op>) -> Lsn {
        Journal::submit(self, ops)
    }

    fn read(&self, stream: StreamId, seqs: &[Seq], out: &mut Vec<Result<Bytes, ReadError>>) {
        Journal::read(self, stream, seqs, out);
    }
}
