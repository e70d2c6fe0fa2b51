//! The handle that the owner holds.

use crate::disk::Disk;
use crate::error::{OpenError, ReadError};
use crate::listener::Listener;
use crate::op::{Lsn, Op};
use crate::options::Options;
use crate::recovery::Recovery;
use crate::stats::Stats;
use bytes::{Bytes, BytesMut};
use model::id::{Seq, StreamId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

/// A journal in memory only, for a start: every operation is durable at once.
pub struct Journal {
    listener: Arc<dyn Listener>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    handed: u64,
    records: BTreeMap<(StreamId, Seq), Bytes>,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}

impl Journal {
    /// Opens or makes the journal of `options.dir`.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(
        options: Options,
        disk: Arc<dyn Disk>,
        listener: Arc<dyn Listener>,
    ) -> Result<(Self, Recovery), OpenError> {
        let _ = (options, disk);
        Ok((Self { listener, inner: Mutex::default() }, Recovery::default()))
    }

    /// Hands operations over; they take effect in order. Never blocks on the disk. The result
    /// names the last of them (an empty list: the last handed over before).
    pub fn submit(&self, ops: Vec<Op>) -> Lsn {
        let mut inner = self.inner.lock();
        inner.handed += ops.len() as u64;
        let lsn = Lsn(inner.handed);
        for op in ops {
            match op {
                Op::Put { stream, seq, payload, .. } => {
                    let bytes = match payload {
                        crate::op::Payload::Bytes(bytes) => bytes,
                        crate::op::Payload::Message(message) => stored(&message),
                        crate::op::Payload::Shared(shared) => stored(shared.message()),
                    };
                    inner.records.insert((stream, seq), bytes);
                }
                Op::Note { .. } => {}
                Op::Release { stream, first, last } => {
                    inner.records.retain(|&(s, q), _| s != stream || q < first || q > last);
                }
                Op::Drop { stream } => inner.records.retain(|&(s, _), _| s != stream),
            }
        }
        drop(inner);
        self.listener.durable(lsn);
        lsn
    }

    /// Everything up to here is on disk.
    pub fn durable(&self) -> Lsn {
        Lsn(self.inner.lock().handed)
    }

    /// Asks for everything handed over so far to be synced at once, releases and notes included.
    pub fn hasten(&self) {}

    /// Reads payloads; blocks on the disk. Appends one result per position. A record can be read
    /// once its put is durable and until it is released. Neighbours come with one read, and then
    /// share one buffer of at most 256 KiB.
    pub fn read(&self, stream: StreamId, seqs: &[Seq], out: &mut Vec<Result<Bytes, ReadError>>) {
        let inner = self.inner.lock();
        for &seq in seqs {
            out.push(inner.records.get(&(stream, seq)).cloned().ok_or(ReadError::Missing));
        }
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        Stats::default()
    }

    /// Waits until everything handed over is durable, seals the journal and gives up the lock.
    ///
    /// # Errors
    /// If writing has failed, now or before.
    pub fn close(self) -> io::Result<()> {
        Ok(())
    }
}

fn stored(message: &model::message::Message) -> Bytes {
    let mut bytes = BytesMut::with_capacity(message.encoded_len());
    message.encode_into(&mut bytes);
    bytes.freeze()
}
