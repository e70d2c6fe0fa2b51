//! Disks that fail, fill up or lie.

use super::support::{SEGMENT, apply, note, open, options, put, read, release};
use crate::disk::Disk;
use crate::error::{OpenError, ReadError};
use crate::inline::InlineJournal;
use crate::inspect::verify;
use crate::op::Op;
use crate::sim::{Dice, Fault, SimDisk};
use model::id::{Seq, StreamId};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const DIR: &str = "/journal";

/// A fixed piece of work that begins, fills and recycles segments. Stops at the first error.
/// `durable` learns which sequence numbers were reported durable, `released` which were given up.
fn work(disk: &SimDisk, outcome: &mut Outcome) -> Result<(), String> {
    let (mut journal, recovery) =
        InlineJournal::open(options(Path::new(DIR)), Arc::new(disk.clone()))
            .map_err(|error| error.to_string())?;
    drop(recovery);
    let mut now = Duration::ZERO;
    let mut lsns: BTreeMap<u64, u64> = BTreeMap::new();
    let mut releases: Vec<(u64, std::ops::Range<u64>)> = Vec::new();
    for round in 0..30 {
        let first = 1 + round * 10;
        let ops = (first..first + 10).map(|seq| put(1, seq, &payload(seq))).collect();
        let last = journal.submit(ops).0;
        lsns.extend((first..first + 10).map(|seq| (seq, last - 9 + seq - first)));
        if round > 0 {
            // All but the first of each ten.
            outcome.released.extend(first - 9..first);
            let ops = vec![note(1, first, b"noted"), release(1, first - 9, first - 1)];
            releases.push((journal.submit(ops).0, first - 9..first));
        }
        let result = (0..6).try_for_each(|_| {
            now += Duration::from_millis(11);
            let result = journal.step(now, true);
            while journal.work() {}
            result
        });
        let durable = journal.durable().0;
        let reached = lsns.iter().filter(|&(_, &lsn)| lsn <= durable);
        outcome.durable.extend(reached.map(|(&seq, _)| seq));
        let reached = releases.iter().filter(|(lsn, _)| *lsn <= durable);
        outcome.gone.extend(reached.flat_map(|(_, seqs)| seqs.clone()));
        outcome.was_full |= journal.is_full();
        if let Err(error) = result {
            // Final: nothing more is ever reported.
            journal.submit(vec![put(1, 9999, b"late")]);
            for _ in 0..3 {
                now += Duration::from_secs(1);
                journal.step(now, true).unwrap();
                while journal.work() {}
            }
            assert_eq!(journal.durable().0, durable);
            return Err(error.to_string());
        }
    }
    now = journal.settle(now, 300).unwrap();
    assert_eq!(journal.durable(), journal.handed(), "it recovers by itself");
    outcome.durable.extend(lsns.keys());
    journal.close(now).map_err(|error| error.to_string())
}

#[derive(Debug, Default)]
struct Outcome {
    durable: std::collections::BTreeSet<u64>,
    released: std::collections::BTreeSet<u64>,
    /// Given up, and that is durable.
    gone: std::collections::BTreeSet<u64>,
    was_full: bool,
}

fn payload(seq: u64) -> Vec<u8> {
    vec![seq as u8; 1500]
}

/// What was durable and not given up is there, with its bytes; what was given up durably is not.
fn check(disk: &SimDisk, outcome: &Outcome) {
    disk.heal();
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let (journal, recovery) = open(&disk, Path::new(DIR));
    assert_eq!(recovery.report().quarantined, []);
    drop(recovery);
    for &seq in outcome.durable.difference(&outcome.released) {
        assert_eq!(read(&journal, 1, seq).unwrap(), payload(seq));
    }
    for &seq in &outcome.gone {
        assert!(matches!(read(&journal, 1, seq), Err(ReadError::Missing)), "{seq} is back");
    }
}

#[test]
fn a_failing_call_is_final_at_every_step() {
    let disk = SimDisk::new(1);
    work(&disk, &mut Outcome::default()).unwrap();
    let steps = disk.steps();
    assert!(steps > 100);
    let mut failed = 0;
    for step in 0..steps {
        let disk = SimDisk::new(1);
        disk.fail_at(step, Fault::Broken);
        let mut outcome = Outcome::default();
        if let Err(error) = work(&disk, &mut outcome) {
            assert!(error.contains("input/output error"), "{error}");
            failed += 1;
        }
        if step % 2 == 0 {
            disk.crash();
        } else {
            disk.kill();
        }
        check(&disk, &outcome);
    }
    // The last steps may be jobs whose answer nobody waits for.
    assert!(failed > steps - 5, "{failed} of {steps}");
}

#[test]
fn a_full_disk_at_every_step_only_delays() {
    let disk = SimDisk::new(1);
    work(&disk, &mut Outcome::default()).unwrap();
    let steps = disk.steps();
    let mut full = 0;
    for step in 0..steps {
        let disk = SimDisk::new(1);
        disk.fail_at(step, Fault::Full(1 + step as u32 % 3));
        let mut outcome = Outcome::default();
        // Making the very first files needs room too.
        match work(&disk, &mut outcome) {
            Ok(()) => assert_eq!(outcome.durable.len(), 300),
            Err(error) => assert!(error.contains("making the identity"), "{error}"),
        }
        full += u64::from(outcome.was_full);
        disk.crash();
        check(&disk, &outcome);
    }
    assert!(full > 5, "{full} of {steps}");
}

#[test]
fn puts_wait_on_a_full_disk_and_releases_do_not() {
    let disk = SimDisk::new(1);
    // The identity, and room for seven segments.
    disk.set_capacity(64 + 7 * SEGMENT + 100);
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let mut journal = open(&disk, Path::new(DIR)).0;
    let mut now = Duration::ZERO;
    // Twice as much as there is room for.
    for seq in 1..=600 {
        journal.submit(vec![put(1, seq, &payload(seq))]);
    }
    now = journal.settle(now, 100).unwrap();
    let stats = journal.stats();
    assert!(journal.is_full() && stats.full, "{stats:?}");
    let reached = journal.durable().0;
    assert!(reached > 100 && reached < 300, "{reached}");
    assert_eq!(stats.held_puts, 600 - reached);
    assert!(stats.segments_free >= 2, "the reserve is there: {stats:?}");
    // A release of one that waits cancels both, one that was written goes through, and the head
    // of one that waits can be changed.
    journal.submit(vec![release(1, 400, 499), release(1, 1, 1), note(1, 600, b"noted")]);
    now = journal.settle(now, 5).unwrap();
    assert!(matches!(read(&journal, 1, 1), Err(ReadError::Missing)));
    assert_eq!(journal.stats().held_puts, 500 - reached);
    assert_eq!(journal.durable().0, reached, "order is kept");
    // Consuming makes room, without more space from outside.
    let mut released = 1;
    while journal.durable() < journal.handed() {
        let reached = journal.durable().0.min(600);
        assert!(reached > released || !journal.is_full(), "stuck at {reached}");
        journal.submit(vec![release(1, released, reached)]);
        released = reached;
        now = journal.settle(now, 150).unwrap();
    }
    assert!(!journal.is_full());
    assert_eq!(read(&journal, 1, 600).unwrap(), payload(600));
    assert!(matches!(read(&journal, 1, 450), Err(ReadError::Missing)));
    journal.close(now).unwrap();
}

#[test]
fn a_minimum_of_free_space_is_kept() {
    let disk = SimDisk::new(1);
    disk.set_capacity(64 + 20 * SEGMENT);
    let options =
        crate::options::Options { disk_free_min: 10 * SEGMENT, ..options(Path::new(DIR)) };
    let (mut journal, recovery) = InlineJournal::open(options, Arc::new(disk.clone())).unwrap();
    drop(recovery);
    for seq in 1..=1000 {
        journal.submit(vec![put(1, seq, &payload(seq))]);
    }
    let now = journal.settle(Duration::ZERO, 100).unwrap();
    assert!(journal.is_full());
    assert!(disk.used() <= 64 + 10 * SEGMENT);
    // Space appears.
    disk.set_capacity(u64::MAX);
    journal.settle(now, 300).unwrap();
    assert!(!journal.is_full());
    assert_eq!(journal.durable(), journal.handed());
}

/// A journal with live and dead records in several segments, closed or not.
fn filled(seed: u64, close: bool) -> SimDisk {
    let sim = SimDisk::new(seed);
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let mut journal = open(&disk, Path::new(DIR)).0;
    let mut now = Duration::ZERO;
    for round in 0..20 {
        let first = 1 + round * 10;
        let ops = (first..first + 10).map(|seq| put(1, seq, &payload(seq))).collect();
        apply(&mut journal, &mut now, ops);
        apply(&mut journal, &mut now, vec![release(1, first, first + 2), put(2, first, b"tiny")]);
    }
    if close {
        journal.close(now).unwrap();
    }
    sim
}

#[test]
fn flipped_bits_never_give_wrong_bytes() {
    let seeds = std::env::var("SEEDS").map_or(300, |seeds| seeds.parse().unwrap());
    let mut damaged = 0;
    for seed in 0..seeds {
        let sim = filled(1, seed % 2 == 0);
        sim.kill();
        let mut dice = Dice(seed);
        for _ in 0..=dice.below(4) {
            let paths = sim.paths();
            let path = &paths[dice.below(paths.len() as u64) as usize];
            let length = sim.bytes(path).unwrap().len() as u64;
            if length > 0 {
                // Headers and the like are a small part; aim at them now and then.
                let reach = if dice.one_in(4) { length.min(1024) } else { length };
                sim.flip(path, dice.below(reach), dice.below(8) as u8);
            }
        }
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let options = options(Path::new(DIR));
        let (journal, recovery) = match InlineJournal::open(options, Arc::clone(&disk)) {
            Ok(opened) => opened,
            Err(OpenError::NotAJournal { reason, .. }) => {
                assert!(reason.contains("damaged"), "{reason}");
                continue;
            }
            Err(error) => panic!("seed {seed}: {error}"),
        };
        let mut names = Vec::new();
        recovery.for_each(|stream, seq, _, _| names.push((stream, seq))).unwrap();
        let mut out = Vec::new();
        for (stream, seq) in names {
            out.clear();
            journal.read(stream, &[seq], &mut out);
            match &out[0] {
                Ok(bytes) if stream == StreamId(1) => assert_eq!(bytes, &payload(seq.0)),
                Ok(bytes) => assert_eq!(bytes, "tiny"),
                Err(ReadError::Damaged) => damaged += 1,
                Err(error) => panic!("seed {seed}: {error}"),
            }
        }
    }
    assert!(damaged > 0);
}

#[test]
fn damage_costs_one_record_and_is_found_by_verify() {
    for close in [true, false] {
        let sim = filled(1, close);
        sim.kill();
        let found = verify(&sim, Path::new(DIR), false).unwrap();
        assert!(found.is_intact(), "{found:?}");
        // The payload of the record 4 of stream 1: it is in the first segment.
        let (path, offset) = find(&sim, &payload(4));
        sim.flip(&path, offset + 700, 3);
        let found = verify(&sim, Path::new(DIR), false).unwrap();
        assert_eq!(found.live_damaged, 1, "{found:?}");
        assert_eq!(found.damage.len(), 1);
        assert_eq!(found.damage[0].stream, Some(1));
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let (mut journal, recovery) = open(&disk, Path::new(DIR));
        drop(recovery);
        assert!(matches!(read(&journal, 1, 4), Err(ReadError::Damaged)));
        assert_eq!(journal.stats().quarantined, 1);
        assert_eq!(read(&journal, 1, 5).unwrap(), payload(5));
        // It does not stand in the way: the segment is carried over and the damage stays known.
        let mut now = Duration::ZERO;
        apply(&mut journal, &mut now, vec![release(1, 5, 3000), release(2, 0, 3000)]);
        for round in 0..20 {
            let first = 1000 + round * 10;
            let ops: Vec<Op> = (first..first + 10).map(|seq| put(3, seq, &payload(seq))).collect();
            apply(&mut journal, &mut now, ops);
            apply(&mut journal, &mut now, vec![release(3, first, first + 9)]);
        }
        assert!(journal.stats().disk_bytes <= 7 * SEGMENT, "{:?}", journal.stats());
        assert!(matches!(read(&journal, 1, 4), Err(ReadError::Damaged)));
    }
}

/// Where a piece of data stands.
fn find(sim: &SimDisk, data: &[u8]) -> (std::path::PathBuf, u64) {
    for path in sim.paths() {
        let bytes = sim.bytes(&path).unwrap();
        if let Some(at) = bytes.windows(data.len()).position(|window| window == data) {
            return (path, at as u64);
        }
    }
    panic!("it is nowhere");
}

/// In a segment that was not completed, marks tell damage from a torn tail.
#[test]
fn damage_before_the_tail_is_told_from_the_torn_tail() {
    let make = || {
        let sim = SimDisk::new(1);
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let mut journal = open(&disk, Path::new(DIR)).0;
        let mut now = Duration::ZERO;
        for seq in 1..=5 {
            apply(&mut journal, &mut now, vec![put(1, seq, &payload(seq))]);
        }
        drop(journal);
        sim.kill();
        (sim, disk)
    };
    let (sim, disk) = make();
    let (path, offset) = find(&sim, &payload(2));
    sim.flip(&path, offset, 0);
    let (journal, recovery) = open(&disk, Path::new(DIR));
    let report = recovery.report();
    assert_eq!((report.records, report.torn.is_some()), (4, false), "{report:?}");
    assert_eq!(report.quarantined.len(), 1);
    assert_eq!(report.quarantined[0].stream, Some(1));
    drop(recovery);
    assert_eq!(read(&journal, 1, 3).unwrap(), payload(3));
    assert_eq!(read(&journal, 1, 5).unwrap(), payload(5));

    let (sim, disk) = make();
    let (path, offset) = find(&sim, &payload(5));
    sim.flip(&path, offset, 0);
    let (journal, recovery) = open(&disk, Path::new(DIR));
    let report = recovery.report();
    assert_eq!((report.records, report.torn.is_some()), (4, true), "{report:?}");
    assert_eq!(report.quarantined, []);
    drop(recovery);
    assert!(matches!(read(&journal, 1, 5), Err(ReadError::Missing)));
    assert_eq!(read(&journal, 1, 4).unwrap(), payload(4));
}

#[test]
fn a_failing_read_is_reported_as_such() {
    let sim = filled(1, false);
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let (journal, recovery) = open(&disk, Path::new(DIR));
    drop(recovery);
    // The files of an earlier life are dead.
    sim.kill();
    let mut out = Vec::new();
    journal.read(StreamId(1), &[Seq(4), Seq(5)], &mut out);
    let is_io = |result: &Result<_, _>| matches!(result, Err(ReadError::Io(_)));
    assert!(out.len() == 2 && out.iter().all(is_io));
}

/// A sector that cannot be read costs what is in it. Compaction leaves its segment alone: it must
/// not end the journal, now and after each restart, nor keep others from being compacted.
#[test]
fn a_bad_sector_does_not_stop_compaction() {
    let sim = SimDisk::new(1);
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let mut journal = open(&disk, Path::new(DIR)).0;
    let mut now = Duration::ZERO;
    apply(&mut journal, &mut now, (1..=10).map(|seq| put(1, seq, &payload(seq))).collect());
    let (path, offset) = find(&sim, &payload(4));
    sim.spoil(&path, offset + 700);
    apply(&mut journal, &mut now, vec![release(1, 1, 3), release(1, 5, 9)]);
    flow(&mut journal, &mut now);
    let stats = journal.stats();
    assert!(stats.disk_bytes <= 8 * SEGMENT, "{stats:?}");
    assert!(stats.carried_records > 0 && stats.quarantined > 0, "{stats:?}");
    assert!(matches!(read(&journal, 1, 4), Err(ReadError::Io(_))));
    assert_eq!(read(&journal, 1, 10).unwrap(), payload(10));
}

/// Records of a few bytes have no index, so those that are damaged are found nowhere when their
/// segment is to be carried over.
#[test]
fn damage_without_an_index_does_not_stop_compaction() {
    let sim = SimDisk::new(1);
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let mut journal = open(&disk, Path::new(DIR)).0;
    let mut now = Duration::ZERO;
    apply(&mut journal, &mut now, (1..=2000).map(|seq| put(4, seq, b"tiny")).collect());
    let (path, offset) = find(&sim, b"tiny");
    sim.flip(&path, offset, 3);
    apply(&mut journal, &mut now, vec![release(4, 2, 2000)]);
    flow(&mut journal, &mut now);
    let stats = journal.stats();
    assert!(stats.disk_bytes <= 8 * SEGMENT, "{stats:?}");
    assert!(matches!(read(&journal, 4, 1), Err(ReadError::Damaged)));
    // Nothing is left to do.
    let steps = sim.steps();
    now = journal.settle(now, 50).unwrap();
    for _ in 0..100 {
        now += Duration::from_millis(11);
        journal.step(now, false).unwrap();
        assert!(journal.is_idle());
    }
    assert_eq!(sim.steps(), steps);
}

/// Every page that cannot be read when a journal is opened costs what is in it, and is reported.
#[test]
fn an_unreadable_page_does_not_keep_a_journal_from_opening() {
    let (mut opened, mut set_aside, mut most) = (0, 0, 0);
    for close in [true, false] {
        let good = filled(1, close);
        good.kill();
        let disk: Arc<dyn Disk> = Arc::new(good.clone());
        let expected = super::support::visited(open(&disk, Path::new(DIR)).1);
        let is_segment = |path: &std::path::PathBuf| path.extension().is_some_and(|it| it == "seg");
        for path in good.paths().into_iter().filter(is_segment) {
            for page in 0..SEGMENT / 4096 {
                let sim = filled(1, close);
                sim.kill();
                sim.spoil(&path, page * 4096 + page * 77 % 4096);
                // The second header makes up for the first and the other way round.
                if page == 0 {
                    sim.spoil(&path, 0);
                    sim.spoil(&path, 512);
                }
                let disk: Arc<dyn Disk> = Arc::new(sim.clone());
                let (mut journal, recovery) = open(&disk, Path::new(DIR));
                let report = recovery.report().clone();
                opened += 1;
                if page == 0 {
                    assert_ne!(report.quarantined, [], "{path:?}");
                    set_aside += 1;
                }
                let found = super::support::visited(recovery);
                let mut lost = 0;
                for record in &expected {
                    let is_there = found.contains(record);
                    lost += usize::from(!is_there);
                    match read(&journal, record.0, record.1) {
                        Ok(bytes) if record.0 == 1 => assert_eq!(bytes, payload(record.1)),
                        Ok(bytes) => assert_eq!(bytes, "tiny"),
                        Err(ReadError::Io(_)) => assert!(is_there, "{path:?} {page}"),
                        Err(error) => assert!(!is_there, "{path:?} {page}: {error}"),
                    }
                }
                if page > 0 {
                    let is_said = !report.quarantined.is_empty() || report.torn.is_some();
                    assert!(lost == 0 || is_said, "{path:?} {page} lost {lost}: {report:?}");
                    most = most.max(lost);
                }
                // It goes on, and the next opening finds the same.
                let mut now = Duration::ZERO;
                apply(&mut journal, &mut now, vec![put(9, 1, b"new")]);
                drop(journal);
                sim.kill();
                let (journal, recovery) = open(&disk, Path::new(DIR));
                let again = super::support::visited(recovery);
                assert!(found.iter().all(|record| again.contains(record)), "{path:?} {page}");
                assert_eq!(read(&journal, 9, 1).unwrap(), "new");
            }
        }
    }
    assert!(opened > 100 && set_aside > 5, "{opened} {set_aside}");
    // A page holds parts of four records of 1,500 bytes, and what is tiny between them.
    assert!((1..=8).contains(&most), "{most}");
}

/// A process that died just when it had made a segment leaves a name that is not durable.
#[test]
fn what_is_written_to_a_segment_does_not_go_with_its_name() {
    for at in 0..40 {
        let sim = SimDisk::new(at);
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        sim.fail_at(at, Fault::Gone);
        if let Ok((mut journal, _)) =
            InlineJournal::open(options(Path::new(DIR)), Arc::clone(&disk))
        {
            let _gone = journal.settle(Duration::ZERO, 20).is_err();
        }
        sim.kill();
        let mut journal = open(&disk, Path::new(DIR)).0;
        let mut now = Duration::ZERO;
        apply(&mut journal, &mut now, vec![put(1, 1, b"kept")]);
        drop(journal);
        sim.crash();
        let (journal, recovery) = open(&disk, Path::new(DIR));
        assert_eq!(recovery.report().quarantined, []);
        assert_eq!(read(&journal, 1, 1).unwrap(), "kept", "step {at}");
    }
}

/// A few old records stay in each of the segments that flow past.
fn flow(journal: &mut InlineJournal, now: &mut Duration) {
    for round in 0..60 {
        let first = 1000 + round * 10;
        apply(journal, now, (first..first + 10).map(|seq| put(3, seq, &payload(seq))).collect());
        apply(journal, now, vec![release(3, first, first + 8 + round % 2)]);
        if round >= 10 {
            apply(journal, now, vec![release(3, first - 100, first - 91)]);
        }
    }
}

/// What a later version has written must not be taken for damage and set aside.
#[test]
fn a_segment_of_a_later_version_is_refused() {
    let sim = SimDisk::new(1);
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let mut journal = open(&disk, Path::new(DIR)).0;
    let mut now = Duration::ZERO;
    apply(&mut journal, &mut now, vec![put(1, 1, b"x")]);
    drop(journal);
    let (path, _) = find(&sim, b"LVTSEGMT");
    let file = disk.open(&path, crate::disk::Access::Write).unwrap();
    let mut block = [0; crate::format::BLOCK];
    file.read_at(&mut block, 0).unwrap();
    block[8] = 2;
    let crc = crc32fast::hash(&block[..60]);
    block[60..].copy_from_slice(&crc.to_le_bytes());
    file.write_at(&block, 512).unwrap();
    let before = sim.paths();
    let error = InlineJournal::open(options(Path::new(DIR)), Arc::clone(&disk)).err().unwrap();
    let text = "journal /journal has format version 2; this program reads up to 1";
    assert_eq!(error.to_string(), text);
    assert_eq!(sim.paths(), before);
}

/// A file that was cut anywhere is read as far as it goes.
#[test]
fn a_file_that_was_cut_is_read_as_far_as_it_goes() {
    let image = crate::fuzz::seed_image();
    // Around the first records.
    for length in 4096 + 512 + 20..4096 + 512 + 120 {
        crate::fuzz::recover_image(&image[..length]);
    }
}

/// Of two segments that are freed one after the other, the second holds the release of the
/// first's records. If freeing the first fails, the second must stay.
#[test]
fn a_segment_is_not_freed_when_freeing_the_one_that_it_guards_failed() {
    let mut failed = 0;
    for at in 0..8 {
        let sim = SimDisk::new(1);
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let mut journal = open(&disk, Path::new(DIR)).0;
        let mut now = Duration::ZERO;
        // 38 fill a segment.
        apply(&mut journal, &mut now, (1..=40).map(|seq| put(1, seq, &payload(seq))).collect());
        apply(&mut journal, &mut now, vec![release(1, 1, 37)]);
        apply(&mut journal, &mut now, (41..=100).map(|seq| put(1, seq, &payload(seq))).collect());
        journal.submit(vec![release(1, 38, 90)]);
        now += Duration::from_millis(11);
        journal.step(now, true).unwrap();
        assert_eq!(journal.durable(), journal.handed());
        sim.fail_at(sim.steps() + at, Fault::Broken);
        while journal.work() {}
        now += Duration::from_millis(11);
        failed += u64::from(journal.step(now, true).is_err());
        drop(journal);
        sim.kill();
        let (_, recovery) = open(&disk, Path::new(DIR));
        let seqs: Vec<_> = super::support::visited(recovery).iter().map(|found| found.1).collect();
        assert_eq!(seqs, (91..=100).collect::<Vec<_>>(), "call {at} failed");
    }
    assert!(failed >= 4, "{failed}");
}
