//! What every journal does, on the real disk and on the simulated one.

use crate::disk::Disk;
use crate::disk::real::RealDisk;
use crate::error::ReadError;
use crate::inline::InlineJournal;
use crate::op::{Head, Op, Payload};
use crate::options::Options;
use crate::recovery::Recovery;
use crate::sim::SimDisk;
use bytes::Bytes;
use model::id::{Seq, StreamId};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Runs one case on both disks.
fn on_both(case: impl Fn(&Arc<dyn Disk>, &Path)) {
    let dir = tempfile::tempdir().unwrap();
    let real: Arc<dyn Disk> = Arc::new(RealDisk);
    case(&real, &dir.path().join("journal"));
    let sim: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    case(&sim, &PathBuf::from("/journal"));
}

fn options(dir: &Path) -> Options {
    Options { segment_bytes: 1 << 20, ..Options::new(dir) }
}

fn open(disk: &Arc<dyn Disk>, dir: &Path) -> (InlineJournal, Recovery) {
    InlineJournal::open(options(dir), Arc::clone(disk)).unwrap()
}

fn put(stream: u64, seq: u64, payload: &[u8]) -> Op {
    Op::Put {
        stream: StreamId(stream),
        seq: Seq(seq),
        head: Head::new(&seq.to_le_bytes()),
        payload: Payload::Bytes(Bytes::copy_from_slice(payload)),
    }
}

fn release(stream: u64, first: u64, last: u64) -> Op {
    Op::Release { stream: StreamId(stream), first: Seq(first), last: Seq(last) }
}

fn read(journal: &InlineJournal, stream: u64, seq: u64) -> Result<Bytes, ReadError> {
    let mut out = Vec::new();
    journal.read(StreamId(stream), &[Seq(seq)], &mut out);
    out.pop().unwrap()
}

fn visited(recovery: Recovery) -> Vec<(u64, u64, Vec<u8>, u32)> {
    let mut all = Vec::new();
    recovery
        .for_each(|stream, seq, head, payload| all.push((stream.0, seq.0, head.to_vec(), payload)))
        .unwrap();
    all
}

#[test]
fn what_was_put_is_read_and_comes_back() {
    on_both(|disk, dir| {
        let (mut journal, recovery) = open(disk, dir);
        assert!(recovery.clean());
        assert!(recovery.streams().is_empty());
        drop(recovery);
        journal.submit(vec![put(1, 1, b"one"), put(1, 2, b"two"), put(2, 7, b"")]);
        let now = journal.settle(Duration::ZERO, 20).unwrap();
        assert_eq!(journal.durable(), journal.handed());
        assert_eq!(read(&journal, 1, 1).unwrap(), "one");
        assert_eq!(read(&journal, 1, 2).unwrap(), "two");
        assert_eq!(read(&journal, 2, 7).unwrap(), "");
        assert!(matches!(read(&journal, 2, 8), Err(ReadError::Missing)));
        journal.submit(vec![release(1, 1, 1)]);
        journal.settle(now, 20).unwrap();
        assert!(matches!(read(&journal, 1, 1), Err(ReadError::Missing)));
        journal.close(now).unwrap();

        let (journal, recovery) = open(disk, dir);
        assert!(recovery.clean(), "{:?}", recovery.report());
        assert_eq!(recovery.report().records, 2);
        let all = visited(recovery);
        let head = |seq: u64| seq.to_le_bytes().to_vec();
        assert_eq!(all, [(1, 2, head(2), 3), (2, 7, head(7), 0)]);
        assert_eq!(read(&journal, 1, 2).unwrap(), "two");
    });
}
