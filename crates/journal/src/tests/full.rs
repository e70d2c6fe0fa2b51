//! Full disks: what waits, what goes on, and how a journal gets out of it by itself.

use super::support::{SEGMENT, open, put, read, release, visited, vital};
use crate::disk::Disk;
use crate::error::ReadError;
use crate::inline::InlineJournal;
use crate::op::Op;
use crate::sim::SimDisk;
use model::id::StreamId;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const DIR: &str = "/journal";
const PAYLOAD: [u8; 1500] = [7; 1500];

/// A journal on a disk with room for seven segments, and twice as many puts as fit. The highest
/// sequence number that is durable.
fn fill(sim: &SimDisk, now: &mut Duration) -> (InlineJournal, u64) {
    // The identity besides.
    sim.set_capacity(64 + 7 * SEGMENT + 100);
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let mut journal = open(&disk, Path::new(DIR)).0;
    for seq in 1..=600 {
        journal.submit(vec![put(1, seq, &PAYLOAD)]);
    }
    *now = journal.settle(*now, 100).unwrap();
    assert!(journal.is_full());
    let reached = journal.durable().0;
    assert!(reached > 100 && reached < 300, "{reached}");
    (journal, reached)
}

/// The puts that wait must not use up the segment that a release took from the reserve, or the
/// next release would find no room, and nothing would ever be freed.
#[test]
fn releases_go_through_one_by_one_while_puts_wait() {
    let mut now = Duration::ZERO;
    let (mut journal, reached) = fill(&SimDisk::new(1), &mut now);
    for seq in 1..=reached {
        journal.submit(vec![release(1, seq, seq)]);
        now = journal.settle(now, 5).unwrap();
        let gone = matches!(read(&journal, 1, seq), Err(ReadError::Missing));
        assert!(gone, "{seq} of {reached}: {:?}", journal.stats());
    }
    let mut released = 0;
    while journal.durable() < journal.handed() {
        let reached = journal.durable().0.min(600);
        assert!(reached > released, "stuck at {reached}: {:?}", journal.stats());
        journal.submit(vec![release(1, released, reached)]);
        released = reached;
        now = journal.settle(now, 150).unwrap();
    }
    assert!(!journal.is_full());
}

/// Each restart begins with a put, as a node's does, and each may die.
#[test]
fn restarts_do_not_use_up_the_reserve() {
    for close in [true, false] {
        let mut now = Duration::ZERO;
        let sim = SimDisk::new(1);
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let (journal, reached) = fill(&sim, &mut now);
        drop(journal);
        sim.kill();
        for life in 1..=8 {
            let (mut journal, recovery) = open(&disk, Path::new(DIR));
            assert!(recovery.report().records >= reached - life, "{:?}", recovery.report());
            assert_eq!(recovery.report().quarantined, []);
            drop(recovery);
            journal.submit(vec![put(2, life, b"begun")]);
            journal.submit(vec![release(1, life, life)]);
            now = journal.settle(now, 20).unwrap();
            let gone = matches!(read(&journal, 1, life), Err(ReadError::Missing));
            assert!(gone, "life {life}: {:?}", journal.stats());
            if close {
                // The put may wait.
                let _full = journal.close(now).is_err();
            } else {
                drop(journal);
            }
            sim.kill();
        }
        let mut journal = open(&disk, Path::new(DIR)).0;
        for seq in 9..=reached {
            assert_eq!(read(&journal, 1, seq).unwrap(), &PAYLOAD[..]);
        }
        journal.submit(vec![release(1, 1, reached)]);
        journal.submit((1000..1100).map(|seq| put(3, seq, &PAYLOAD)).collect());
        journal.settle(now, 300).unwrap();
        assert_eq!(journal.durable(), journal.handed(), "{:?}", journal.stats());
        assert!(!journal.is_full());
    }
}

/// Deleting a queue is a vital put and a drop. It must not wait for publishers.
#[test]
fn vital_puts_and_drops_go_past_puts_that_wait() {
    for crash in [true, false] {
        let mut now = Duration::ZERO;
        let sim = SimDisk::new(1);
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let (mut journal, reached) = fill(&sim, &mut now);
        let lsn = journal.submit(vec![vital(2, 1, b"delete 3")]);
        now = journal.settle(now, 5).unwrap();
        assert_eq!((journal.durable().0, journal.vital()), (reached, lsn));
        assert!(journal.is_full());
        assert_eq!(read(&journal, 2, 1).unwrap(), "delete 3");
        // A later put of the stream whose earlier ones wait.
        let lsn = journal.submit(vec![vital(1, 700, b"past them")]);
        now = journal.settle(now, 5).unwrap();
        assert_eq!((journal.durable().0, journal.vital()), (reached, lsn));
        if crash {
            sim.crash();
            drop(journal);
            let (_, recovery) = open(&disk, Path::new(DIR));
            assert_eq!(recovery.report().quarantined, []);
            let seqs = |of| {
                let all = visited(open(&disk, Path::new(DIR)).1);
                all.iter().filter(|one| one.0 == of).map(|one| one.1).collect::<Vec<_>>()
            };
            drop(recovery);
            assert_eq!(seqs(2), [1]);
            assert_eq!(seqs(1), (1..=reached).chain([700]).collect::<Vec<_>>());
            continue;
        }
        // The drop cancels what waits, and everything else is durable then.
        journal.submit(vec![Op::Drop { stream: StreamId(1) }, put(4, 1, &PAYLOAD)]);
        now = journal.settle(now, 300).unwrap();
        assert_eq!(journal.durable(), journal.handed(), "{:?}", journal.stats());
        assert_eq!(journal.stats().live_records, 2);
        journal.close(now).unwrap();
    }
}

/// Half of what is taken from the reserve is left to releases, or a flood of declarations would
/// keep a full disk full for ever.
#[test]
fn vital_puts_do_not_use_up_the_room_of_releases() {
    let mut now = Duration::ZERO;
    let (mut journal, reached) = fill(&SimDisk::new(1), &mut now);
    for seq in 1..=1000 {
        journal.submit(vec![vital(2, seq, &[1; 200])]);
    }
    now = journal.settle(now, 5).unwrap();
    let stats = journal.stats();
    assert!(stats.parked_ops > 500 && stats.parked_ops < 950, "{stats:?}");
    assert_eq!(journal.vital().0, 600 + 1000 - stats.parked_ops);
    for seq in 1..=reached {
        journal.submit(vec![release(1, seq, seq)]);
        now = journal.settle(now, 5).unwrap();
        let gone = matches!(read(&journal, 1, seq), Err(ReadError::Missing));
        assert!(gone, "{seq} of {reached}: {:?}", journal.stats());
    }
    now = journal.settle(now, 100).unwrap();
    assert_eq!(journal.stats().parked_ops, 0, "{:?}", journal.stats());
    assert_eq!(read(&journal, 2, 1000).unwrap(), &[1; 200][..]);
    journal.submit(vec![release(1, 1, 600), release(2, 1, 990)]);
    journal.settle(now, 100).unwrap();
    assert_eq!(journal.durable(), journal.handed(), "{:?}", journal.stats());
    assert!(!journal.is_full());
}

/// A record is replaced by a vital put and a release of the old one: never neither of them.
#[test]
fn nothing_of_its_stream_passes_a_vital_put_that_waits() {
    let mut now = Duration::ZERO;
    let sim = SimDisk::new(1);
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let (mut journal, reached) = fill(&sim, &mut now);
    let mut newest = 0;
    while journal.stats().parked_ops == 0 {
        newest += 1;
        let mut ops = vec![vital(2, newest, &[1; 2000])];
        ops.extend((newest > 1).then(|| release(2, newest - 1, newest - 1)));
        journal.submit(ops);
        now = journal.settle(now, 5).unwrap();
    }
    let before = journal.vital();
    journal.submit(vec![release(1, 1, 1)]);
    now = journal.settle(now, 5).unwrap();
    assert!(matches!(read(&journal, 1, 1), Err(ReadError::Missing)), "others go on");
    assert_eq!(journal.vital(), before);
    assert_eq!(read(&journal, 2, newest - 1).unwrap(), &[1; 2000][..]);
    sim.crash();
    drop(journal);
    let (mut journal, recovery) = open(&disk, Path::new(DIR));
    let seqs: Vec<_> = visited(recovery).iter().filter(|one| one.0 == 2).map(|one| one.1).collect();
    assert_eq!(seqs, [newest - 1]);
    // A whole flood in one stream, then room: order is kept.
    journal.submit((newest..newest + 50).map(|seq| vital(2, seq, &[1; 2000])).collect());
    journal.submit(vec![release(2, 1, newest + 48), release(1, 1, reached)]);
    journal.settle(now, 300).unwrap();
    assert_eq!(journal.durable(), journal.handed(), "{:?}", journal.stats());
    assert_eq!(journal.stats().live_records, 1);
}

/// The reserve is for small records.
#[test]
fn a_large_vital_put_waits() {
    let mut now = Duration::ZERO;
    let sim = SimDisk::new(1);
    let (mut journal, reached) = fill(&sim, &mut now);
    for bytes in [SEGMENT / 3, 2 * SEGMENT] {
        let seq = bytes;
        let before = journal.vital();
        journal.submit(vec![vital(2, seq, &vec![1; bytes as usize]), vital(3, seq, b"small")]);
        now = journal.settle(now, 5).unwrap();
        let stats = journal.stats();
        assert_eq!((stats.parked_ops, stats.segments_free), (2, 2), "{stats:?}");
        assert_eq!(journal.vital(), before);
        sim.set_capacity(u64::MAX);
        now = journal.settle(now, 300).unwrap();
        assert_eq!(journal.vital(), journal.handed(), "{:?}", journal.stats());
        assert_eq!(read(&journal, 2, seq).unwrap().len() as u64, bytes);
        assert_eq!(read(&journal, 3, seq).unwrap(), "small");
        let _ = reached;
        // Full again.
        sim.set_capacity(sim.used());
        journal.submit((1..=200).map(|at| put(4, seq + at, &PAYLOAD)).collect());
        now = journal.settle(now, 100).unwrap();
        assert!(journal.is_full());
    }
}

/// A put that follows a release in a stream is not forgotten with what came before.
#[test]
fn a_release_that_waits_does_not_reach_what_follows() {
    let mut now = Duration::ZERO;
    let (mut journal, reached) = fill(&SimDisk::new(1), &mut now);
    journal.submit((1..=1000).map(|seq| vital(2, seq, &[1; 200])).collect());
    journal.submit(vec![release(2, 0, u64::MAX), put(2, 1001, b"bulk"), vital(2, 1002, b"vital")]);
    journal.submit(vec![put(3, 1, b"behind it")]);
    now = journal.settle(now, 5).unwrap();
    assert!(journal.stats().parked_ops > 500, "{:?}", journal.stats());
    journal.submit(vec![release(1, 1, reached)]);
    now = journal.settle(now, 100).unwrap();
    journal.submit(vec![release(1, 1, 600)]);
    journal.settle(now, 100).unwrap();
    assert_eq!(journal.durable(), journal.handed(), "{:?}", journal.stats());
    assert_eq!(journal.stats().live_records, 3);
    assert_eq!(read(&journal, 2, 1001).unwrap(), "bulk");
    assert_eq!(read(&journal, 2, 1002).unwrap(), "vital");
}
