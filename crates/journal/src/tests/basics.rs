//! What every journal does, on the real disk and on the simulated one.

use super::support::{
    SEGMENT, apply, note, on_both, open, open_only, put, put_shared, read, read_body, release,
    shared, visited,
};
use crate::error::ReadError;
use crate::op::{Lsn, Op};
use model::id::{Seq, StreamId};
use std::time::Duration;

#[test]
fn what_was_put_is_read_and_comes_back() {
    on_both(|disk, dir| {
        let (mut journal, recovery) = open(disk, dir);
        assert!(recovery.clean());
        assert!(recovery.streams().is_empty());
        drop(recovery);
        let mut now = Duration::ZERO;
        let ops = vec![put(1, 1, b"one"), put(1, 2, b"two"), put(2, 7, b"")];
        apply(&mut journal, &mut now, ops);
        assert_eq!(read(&journal, 1, 1).unwrap(), "one");
        assert_eq!(read(&journal, 1, 2).unwrap(), "two");
        assert_eq!(read(&journal, 2, 7).unwrap(), "");
        assert!(matches!(read(&journal, 2, 8), Err(ReadError::Missing)));
        apply(&mut journal, &mut now, vec![release(1, 1, 1)]);
        assert!(matches!(read(&journal, 1, 1), Err(ReadError::Missing)));
        journal.close(now).unwrap();

        let (journal, recovery) = open(disk, dir);
        assert!(recovery.clean(), "{:?}", recovery.report());
        assert_eq!(recovery.report().records, 2);
        let known: Vec<_> =
            recovery.streams().iter().map(|k| (k.stream.0, k.records, k.highest.0)).collect();
        assert_eq!(known, [(1, 1, 2), (2, 1, 7)]);
        let all = visited(recovery);
        let head = |seq: u64| seq.to_le_bytes().to_vec();
        assert_eq!(all, [(1, 2, head(2), 3), (2, 7, head(7), 0)]);
        assert_eq!(read(&journal, 1, 2).unwrap(), "two");
    });
}

#[test]
fn an_unclean_end_is_noticed_once() {
    on_both(|disk, dir| {
        let mut journal = open_only(disk, dir);
        let mut now = Duration::ZERO;
        apply(&mut journal, &mut now, vec![put(1, 1, b"one")]);
        drop(journal);
        let (journal, recovery) = open(disk, dir);
        assert!(!recovery.clean());
        assert_eq!(recovery.report().torn, None);
        assert_eq!(visited(recovery).len(), 1);
        journal.close(now).unwrap();
        for _ in 0..3 {
            let (mut journal, recovery) = open(disk, dir);
            assert!(recovery.clean(), "{:?}", recovery.report());
            drop(recovery);
            now = journal.settle(now, 50).unwrap();
            assert_eq!(read(&journal, 1, 1).unwrap(), "one");
            journal.close(now).unwrap();
        }
    });
}

#[test]
fn the_newest_note_comes_back() {
    on_both(|disk, dir| {
        let mut now = Duration::ZERO;
        let mut journal = open_only(disk, dir);
        let ops = vec![put(1, 1, b"one"), put(1, 2, b"two"), note(1, 1, b"a"), note(1, 9, b"x")];
        apply(&mut journal, &mut now, ops);
        apply(&mut journal, &mut now, vec![note(1, 1, b"b"), note(1, 2, b"")]);
        apply(&mut journal, &mut now, vec![release(1, 2, 2), note(1, 2, b"late")]);
        drop(journal);
        let (_, recovery) = open(disk, dir);
        assert_eq!(visited(recovery), [(1, 1, b"b".to_vec(), 3)]);
    });
}

/// Notes that lie together and notes that lie all over the journal.
#[test]
fn notes_come_back_from_wherever_they_lie() {
    on_both(|disk, dir| {
        let mut now = Duration::ZERO;
        let mut journal = open_only(disk, dir);
        for stream in [1, 2] {
            apply(&mut journal, &mut now, (1..=400).map(|seq| put(stream, seq, b"x")).collect());
        }
        for round in 0..8 {
            let notes = (1..=400).filter(|seq| seq % 8 == round);
            let ops = notes.map(|seq| note(1, seq, &seq.to_be_bytes())).collect();
            apply(&mut journal, &mut now, ops);
            // The next ones lie in another segment.
            apply(&mut journal, &mut now, vec![put(3, 1 + round, &[7; 60_000])]);
        }
        let ops = (1..=400).map(|seq| note(2, seq, &seq.to_be_bytes())).collect();
        apply(&mut journal, &mut now, ops);
        drop(journal);
        let (_, recovery) = open(disk, dir);
        let all = visited(recovery);
        assert_eq!(all.len(), 808);
        for (_, seq, head, _) in all.iter().filter(|record| record.0 < 3) {
            assert_eq!(head, &seq.to_be_bytes());
        }
    });
}

#[test]
fn a_dropped_stream_is_gone() {
    on_both(|disk, dir| {
        let mut now = Duration::ZERO;
        let mut journal = open_only(disk, dir);
        apply(&mut journal, &mut now, vec![put(1, 1, b"one"), put(2, 1, b"two")]);
        apply(&mut journal, &mut now, vec![Op::Drop { stream: StreamId(1) }]);
        assert!(matches!(read(&journal, 1, 1), Err(ReadError::Missing)));
        drop(journal);
        let (_, recovery) = open(disk, dir);
        assert_eq!(recovery.streams().len(), 1);
        assert_eq!(visited(recovery).len(), 1);
    });
}

#[test]
fn a_shared_body_is_stored_once_and_outlives_its_first_owner() {
    on_both(|disk, dir| {
        let mut now = Duration::ZERO;
        let mut journal = open_only(disk, dir);
        let body = vec![9; 10_000];
        let message = shared(&body);
        let ops = (1..=10).map(|stream| put_shared(stream, 1, &message)).collect();
        apply(&mut journal, &mut now, ops);
        let live = journal.stats().live_bytes;
        assert!(live < 12_000, "{live} live bytes");
        apply(&mut journal, &mut now, vec![release(1, 1, 1)]);
        for stream in 2..=10 {
            assert_eq!(read_body(&journal, stream, 1), body);
        }
        drop(journal);
        let (mut journal, recovery) = open(disk, dir);
        let length = u32::try_from(message.message().encoded_len()).unwrap();
        let all = visited(recovery);
        assert_eq!(all.len(), 9);
        assert!(all.iter().all(|&(_, _, _, payload)| payload == length));
        assert_eq!(read_body(&journal, 10, 1), body);
        let ops = (2..=10).map(|stream| release(stream, 1, 1)).collect();
        apply(&mut journal, &mut now, ops);
        assert_eq!(journal.stats().live_bytes, 0);
    });
}

/// One old record stays while many segments flow past: the disk stays small, and the old ones
/// come back first although they lie behind younger ones by then.
#[test]
fn old_records_are_carried_over_and_keep_their_place() {
    on_both(|disk, dir| {
        let mut now = Duration::ZERO;
        let mut journal = open_only(disk, dir);
        let message = shared(b"shared and old");
        let ops = vec![
            put(1, 1, b"old"),
            put_shared(1, 2, &message),
            put_shared(2, 2, &message),
            put(1, 3, b"noted"),
        ];
        apply(&mut journal, &mut now, ops);
        let payload = vec![7; 3000];
        for round in 0..100 {
            let first = 10 + round * 10;
            let ops = (first..first + 10).map(|seq| put(1, seq, &payload)).collect();
            apply(&mut journal, &mut now, ops);
            if round == 40 {
                apply(&mut journal, &mut now, vec![note(1, 3, b"again")]);
            }
            apply(&mut journal, &mut now, vec![release(1, first, first + 9)]);
            let stats = journal.stats();
            let bound = 3 * stats.live_bytes + 6 * SEGMENT;
            assert!(stats.disk_bytes <= bound, "{} > {bound}", stats.disk_bytes);
        }
        let stats = journal.stats();
        assert!(stats.carried_records > 0 && stats.recycled_segments > 10, "{stats:?}");
        apply(&mut journal, &mut now, vec![put(1, 9000, b"young"), put(2, 3, b"young")]);
        assert_eq!(read(&journal, 1, 1).unwrap(), "old");
        assert_eq!(read_body(&journal, 2, 2), "shared and old");
        drop(journal);

        let (journal, recovery) = open(disk, dir);
        let all: Vec<_> = visited(recovery);
        let names = |stream| {
            let of = all.iter().filter(move |record| record.0 == stream);
            of.map(|record| record.1).collect::<Vec<_>>()
        };
        assert_eq!(names(1), [1, 2, 3, 9000]);
        assert_eq!(names(2), [2, 3]);
        assert!(all.contains(&(1, 3, b"again".to_vec(), 5)));
        assert_eq!(read(&journal, 1, 3).unwrap(), "noted");
    });
}

#[test]
fn a_payload_larger_than_a_segment_is_kept() {
    on_both(|disk, dir| {
        let mut now = Duration::ZERO;
        let mut journal = open_only(disk, dir);
        let large = vec![5; 5 * SEGMENT as usize];
        let ops = vec![put(1, 1, b"before"), put(1, 2, &large), put(1, 3, b"after")];
        apply(&mut journal, &mut now, ops);
        assert_eq!(read(&journal, 1, 2).unwrap(), large);
        assert_eq!(read(&journal, 1, 3).unwrap(), "after");
        journal.close(now).unwrap();
        let mut journal = open_only(disk, dir);
        assert_eq!(read(&journal, 1, 2).unwrap(), large);
        apply(&mut journal, &mut now, vec![release(1, 1, 2)]);
        journal.settle(now, 50).unwrap();
        assert_eq!(read(&journal, 1, 3).unwrap(), "after");
        assert!(journal.stats().disk_bytes <= 7 * SEGMENT, "{:?}", journal.stats());
    });
}

#[test]
fn neighbours_are_read_together() {
    on_both(|disk, dir| {
        let mut now = Duration::ZERO;
        let mut journal = open_only(disk, dir);
        let ops = (1..=300).map(|seq| put(1, seq, &[seq as u8; 100])).collect();
        apply(&mut journal, &mut now, ops);
        let seqs: Vec<_> = (0..=301).map(Seq).collect();
        let mut out = Vec::new();
        journal.read(StreamId(1), &seqs, &mut out);
        assert!(matches!(out[0], Err(ReadError::Missing)));
        assert!(matches!(out[301], Err(ReadError::Missing)));
        for (seq, bytes) in out.iter().enumerate().skip(1).take(300) {
            assert_eq!(bytes.as_ref().unwrap(), &vec![seq as u8; 100]);
        }
    });
}

/// Releases that nobody waits for are written soon and synced later, together.
#[test]
fn releases_alone_do_not_sync_each_time() {
    on_both(|disk, dir| {
        let mut now = Duration::ZERO;
        let mut journal = open_only(disk, dir);
        apply(&mut journal, &mut now, (1..=1000).map(|seq| put(1, seq, b"x")).collect());
        let before = journal.stats();
        let durable = journal.durable();
        for seq in 1..=900 {
            journal.submit(vec![release(1, seq, seq)]);
            now += Duration::from_micros(100);
            journal.step(now, false).unwrap();
            while journal.work() {}
        }
        let stats = journal.stats();
        let (syncs, writes) = (stats.syncs - before.syncs, stats.writes - before.writes);
        assert!((3..=5).contains(&syncs), "{syncs} syncs in 90 ms");
        assert!(writes >= 900, "{writes} writes");
        assert!(journal.durable() > durable && journal.durable() < journal.handed());
        // Whoever waits says so.
        journal.step(now, true).unwrap();
        assert_eq!(journal.durable(), Lsn(1900));
        // What is not there needs no record, and is durable at once.
        journal.submit(vec![release(1, 1, 900), release(7, 1, 1), note(7, 7, b"")]);
        journal.step(now, false).unwrap();
        assert_eq!(journal.durable(), Lsn(1903));
        assert_eq!(journal.stats().written_bytes, stats.written_bytes);
    });
}
