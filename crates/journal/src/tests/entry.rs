//! Opening what should not be opened, and looking from outside.

use super::support::{SEGMENT, apply, on_both, open, open_only, options, put, release};
use crate::disk::Disk;
use crate::error::OpenError;
use crate::inline::InlineJournal;
use crate::inspect::{inspect, verify};
use crate::options::Options;
use crate::sim::SimDisk;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn refusal(disk: &Arc<dyn Disk>, options: Options) -> OpenError {
    match InlineJournal::open(options, Arc::clone(disk)) {
        Ok(_) => panic!("it was opened"),
        Err(error) => error,
    }
}

#[test]
fn two_nodes_cannot_have_the_same_journal() {
    on_both(|disk, dir| {
        let journal = open_only(disk, dir);
        let error = refusal(disk, options(dir));
        let OpenError::Locked { pid, .. } = &error else { panic!("{error}") };
        assert!(*pid == std::process::id() || *pid == 4711);
        let text = format!("journal {} is in use by process {pid}", dir.display());
        assert_eq!(error.to_string(), text);
        assert!(matches!(inspect(&**disk, dir, false), Err(OpenError::Locked { .. })));
        assert_eq!(inspect(&**disk, dir, true).unwrap().holder, Some(*pid));
        drop(journal);
        drop(open_only(disk, dir));
        assert_eq!(inspect(&**disk, dir, false).unwrap().holder, None);
    });
}

#[test]
fn other_directories_are_left_alone() {
    on_both(|disk, dir| {
        disk.create_dir(dir).unwrap();
        disk.create(&dir.join("holiday.jpg")).unwrap();
        let error = refusal(disk, options(dir));
        let text =
            format!("{} is not a journal: it holds holiday.jpg but no JOURNAL", dir.display());
        assert_eq!(error.to_string(), text);
        assert_eq!(disk.list(dir).unwrap(), ["holiday.jpg"]);
        let error = refusal(disk, options(&dir.join("holiday.jpg")));
        assert!(error.to_string().ends_with("is not a journal: it is a file"), "{error}");
        let error = inspect(&**disk, dir, false).unwrap_err();
        assert_eq!(error.to_string(), text);
    });
}

#[test]
fn a_later_format_is_refused() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let dir = Path::new("/journal");
    drop(open_only(&disk, dir));
    let file = disk.open(&dir.join("JOURNAL"), crate::disk::Access::Write).unwrap();
    let mut block = [0; crate::format::BLOCK];
    file.read_at(&mut block, 0).unwrap();
    block[8] = 2;
    let crc = crc32fast::hash(&block[..60]);
    block[60..].copy_from_slice(&crc.to_le_bytes());
    file.write_at(&block, 0).unwrap();
    let error = refusal(&disk, options(dir));
    let text = "journal /journal has format version 2; this program reads up to 1";
    assert_eq!(error.to_string(), text);
    file.write_at(&[1], 20).unwrap();
    let error = refusal(&disk, options(dir));
    assert_eq!(error.to_string(), "/journal is not a journal: JOURNAL is damaged");
}

#[test]
fn a_read_only_directory_is_named() {
    let sim = SimDisk::new(1);
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    drop(open_only(&disk, Path::new("/journal")));
    sim.set_read_only(true);
    let error = refusal(&disk, options(Path::new("/journal")));
    assert_eq!(error.to_string(), "journal /journal cannot be written: permission denied");
}

#[test]
fn settings_out_of_bounds_are_named() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let mut wrong = options(Path::new("/journal"));
    wrong.segment_bytes = 2 << 30;
    let text = "segment_bytes 2147483648 is out of bounds: allowed is 65536 to 1073741824";
    assert_eq!(refusal(&disk, wrong).to_string(), text);
    let mut wrong = options(Path::new("/journal"));
    wrong.reserve_segments = 1;
    let text = "reserve_segments 1 is out of bounds: allowed is 2 to 64";
    assert_eq!(refusal(&disk, wrong).to_string(), text);
}

#[test]
fn a_segment_of_another_journal_is_refused() {
    let sim = SimDisk::new(1);
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    for dir in ["/a", "/b"] {
        let mut journal = open_only(&disk, Path::new(dir));
        apply(&mut journal, &mut Duration::from_millis(0), vec![put(1, 1, b"x")]);
    }
    let bytes = sim.bytes(Path::new("/b/00000001.seg")).unwrap();
    let file = disk.create(Path::new("/a/00000009.seg")).unwrap();
    file.write_at(&bytes, 0).unwrap();
    let error = refusal(&disk, options(Path::new("/a")));
    let text = "/a is not a journal: 00000009.seg belongs to another journal";
    assert_eq!(error.to_string(), text);
}

#[test]
fn the_segment_size_may_change() {
    on_both(|disk, dir| {
        let mut now = Duration::ZERO;
        let mut journal = open_only(disk, dir);
        apply(&mut journal, &mut now, (1..100).map(|seq| put(1, seq, &[1; 2000])).collect());
        journal.close(now).unwrap();
        let larger = Options { segment_bytes: 2 * SEGMENT, ..options(dir) };
        let (mut journal, recovery) = InlineJournal::open(larger, Arc::clone(disk)).unwrap();
        assert_eq!(recovery.report().records, 99);
        drop(recovery);
        apply(&mut journal, &mut now, (100..200).map(|seq| put(1, seq, &[1; 2000])).collect());
        apply(&mut journal, &mut now, vec![release(1, 1, 150)]);
        journal.settle(now, 100).unwrap();
        journal.close(now).unwrap();
        let (_, recovery) = open(disk, dir);
        assert_eq!(recovery.report().records, 49);
    });
}

#[test]
fn inspection_says_what_is_there() {
    on_both(|disk, dir| {
        let mut now = Duration::ZERO;
        let mut journal = open_only(disk, dir);
        apply(&mut journal, &mut now, (1..=100).map(|seq| put(3, seq, &[1; 1000])).collect());
        apply(&mut journal, &mut now, vec![release(3, 1, 30), put(4, 1, b"x")]);
        journal.close(now).unwrap();
        let found = inspect(&**disk, dir, false).unwrap();
        assert_eq!((found.version, found.report.clean, found.report.records), (1, true, 71));
        let streams: Vec<_> =
            found.streams.iter().map(|s| (s.stream, s.records, s.highest)).collect();
        assert_eq!(streams, [(3, 70, 100), (4, 1, 1)]);
        let states: Vec<_> = found.segments.iter().map(|segment| segment.state).collect();
        assert_eq!(states, ["free", "free", "free", "sealed", "sealed"]);
        assert_eq!(found.segments[4].waits_for, [found.segments[3].file.clone()]);
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!(json["segments"][3]["indexed"], true);
        let verified = verify(&**disk, dir, false).unwrap();
        assert!(verified.is_intact());
        assert_eq!((verified.live, verified.intact), (71, 102));
    });
}

#[test]
fn fuzzed_images_neither_panic_nor_hang() {
    let image = crate::fuzz::seed_image();
    crate::fuzz::recover_image(&image);
    crate::fuzz::recover_image(&[]);
    crate::fuzz::recover_image(&image[..5000]);
    let mut dice = crate::sim::Dice(7);
    let rounds = std::env::var("ROUNDS").map_or(200, |rounds| rounds.parse().unwrap());
    for _ in 0..rounds {
        let mut image = image.clone();
        for _ in 0..=dice.below(7) {
            // Where records, index and trailer stand.
            let at = match dice.below(4) {
                0 => dice.below(1024),
                1 => image.len() as u64 - 512 + dice.below(64),
                _ => 4096 + dice.below(1200),
            };
            let byte = [0, 1, 0x7f, 0xff, dice.roll() as u8][dice.below(5) as usize];
            image[at as usize] = byte;
        }
        crate::fuzz::recover_image(&image);
    }
}
