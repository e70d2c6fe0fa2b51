//! Full disks: what waits, what goes on, and how a journal gets out of it by itself.

use super::support::{SEGMENT, open, put, read, release};
use crate::disk::Disk;
use crate::error::ReadError;
use crate::inline::InlineJournal;
use crate::sim::SimDisk;
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
