//! Short words for the tests.

use crate::disk::Disk;
use crate::disk::real::RealDisk;
use crate::error::ReadError;
use crate::inline::InlineJournal;
use crate::op::{Class, Head, Op, Payload, Shared};
use crate::options::Options;
use crate::recovery::Recovery;
use crate::sim::SimDisk;
use bytes::Bytes;
use model::id::{Seq, StreamId};
use model::message::Message;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub(super) const SEGMENT: u64 = 64 << 10;

/// Runs one case on both disks.
pub(super) fn on_both(case: impl Fn(&Arc<dyn Disk>, &Path)) {
    let dir = tempfile::tempdir().unwrap();
    let real: Arc<dyn Disk> = Arc::new(RealDisk);
    case(&real, &dir.path().join("journal"));
    let sim: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    case(&sim, &PathBuf::from("/journal"));
}

pub(super) fn options(dir: &Path) -> Options {
    Options { segment_bytes: SEGMENT, ..Options::new(dir) }
}

pub(super) fn open(disk: &Arc<dyn Disk>, dir: &Path) -> (InlineJournal, Recovery) {
    InlineJournal::open(options(dir), Arc::clone(disk)).unwrap()
}

/// Opens without looking at what was recovered.
pub(super) fn open_only(disk: &Arc<dyn Disk>, dir: &Path) -> InlineJournal {
    open(disk, dir).0
}

pub(super) fn put(stream: u64, seq: u64, payload: &[u8]) -> Op {
    Op::Put {
        stream: StreamId(stream),
        seq: Seq(seq),
        class: Class::Bulk,
        head: Head::new(&seq.to_le_bytes()),
        payload: Payload::Bytes(Bytes::copy_from_slice(payload)),
    }
}

pub(super) fn vital(stream: u64, seq: u64, payload: &[u8]) -> Op {
    let Op::Put { stream, seq, head, payload, .. } = put(stream, seq, payload) else {
        panic!("a put is a put");
    };
    Op::Put { stream, seq, class: Class::Vital, head, payload }
}

pub(super) fn put_shared(stream: u64, seq: u64, shared: &Arc<Shared>) -> Op {
    Op::Put {
        stream: StreamId(stream),
        seq: Seq(seq),
        class: Class::Bulk,
        head: Head::new(&seq.to_le_bytes()),
        payload: Payload::Shared(Arc::clone(shared)),
    }
}

pub(super) fn shared(body: &[u8]) -> Arc<Shared> {
    Arc::new(Shared::new(Message::from_parts("exchange", "key", &[0, 0], body)))
}

pub(super) fn note(stream: u64, seq: u64, head: &[u8]) -> Op {
    Op::Note { stream: StreamId(stream), seq: Seq(seq), bytes: Head::new(head) }
}

pub(super) fn release(stream: u64, first: u64, last: u64) -> Op {
    Op::Release { stream: StreamId(stream), first: Seq(first), last: Seq(last) }
}

pub(super) fn read(journal: &InlineJournal, stream: u64, seq: u64) -> Result<Bytes, ReadError> {
    let mut out = Vec::new();
    journal.read(StreamId(stream), &[Seq(seq)], &mut out);
    out.pop().unwrap()
}

/// The body of a message that was stored.
pub(super) fn read_body(journal: &InlineJournal, stream: u64, seq: u64) -> Bytes {
    Message::decode(read(journal, stream, seq).unwrap()).unwrap().body_bytes()
}

pub(super) fn visited(recovery: Recovery) -> Vec<(u64, u64, Vec<u8>, u32)> {
    let mut all = Vec::new();
    recovery
        .for_each(|stream, seq, head, payload| all.push((stream.0, seq.0, head.to_vec(), payload)))
        .unwrap();
    all
}

/// Hands over and lets everything settle.
pub(super) fn apply(journal: &mut InlineJournal, now: &mut Duration, ops: Vec<Op>) {
    let lsn = journal.submit(ops);
    *now = journal.settle(*now, 200).unwrap();
    assert!(journal.durable() >= lsn, "{:?}", journal.stats());
}
