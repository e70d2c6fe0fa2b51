//! Journals written by the first version of the format stay readable.
//!
//! `testdata/v1-closed` was closed, `testdata/v1-killed` was not. They are never written again;
//! `write_golden` made them and shows what is in them.

use super::support::{
    apply, note, open, open_only, put, put_shared, read, read_body, release, shared, visited,
};
use crate::disk::Disk;
use crate::disk::real::RealDisk;
use crate::op::Op;
use model::id::StreamId;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

fn real() -> Arc<dyn Disk> {
    Arc::new(RealDisk)
}

/// Everything that the format has: puts, a shared body, notes, releases, a drop, two segments.
fn write(dir: &Path, close: bool) {
    let disk = real();
    let mut journal = open_only(&disk, dir);
    let mut now = Duration::ZERO;
    let message = shared(b"shared body");
    let ops = vec![
        put(1, 1, b"first"),
        put(1, 2, b"second"),
        put(1, 300, &[3; 40_000]),
        put_shared(1, 301, &message),
        put_shared(2, 1, &message),
        put(3, 1, b"dropped"),
        put(4, 1, b""),
    ];
    apply(&mut journal, &mut now, ops);
    let ops = vec![
        note(1, 1, b"noted"),
        release(1, 2, 2),
        Op::Drop { stream: StreamId(3) },
        put(4, 2, &[4; 30_000]),
        note(4, 1, b""),
        release(2, 1, 1),
    ];
    apply(&mut journal, &mut now, ops);
    if close {
        journal.close(now).unwrap();
    }
}

#[test]
#[ignore = "writes the files that the other test reads; for a new version of the format only"]
fn write_golden() {
    for (name, close) in [("v1-closed", true), ("v1-killed", false)] {
        write(&testdata(name), close);
        RealDisk.remove(&testdata(name).join("LOCK")).unwrap();
    }
}

#[test]
fn journals_of_version_1_are_readable() {
    for (name, clean) in [("v1-closed", true), ("v1-killed", false)] {
        let scratch = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(testdata(name)).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), scratch.path().join(entry.file_name())).unwrap();
        }
        let disk = real();
        let found = crate::inspect::verify(&*disk, scratch.path(), false).unwrap();
        assert!(found.is_intact(), "{found:?}");
        let (journal, recovery) = open(&disk, scratch.path());
        assert_eq!(recovery.clean(), clean);
        assert_eq!(recovery.report().quarantined, []);
        let head = |seq: u64| seq.to_le_bytes().to_vec();
        let mut all = visited(recovery);
        all.sort();
        let expected = [
            (1, 1, b"noted".to_vec(), 5),
            (1, 300, head(300), 40_000),
            (1, 301, head(301), 32),
            (4, 1, vec![], 0),
            (4, 2, head(2), 30_000),
        ];
        assert_eq!(all, expected);
        assert_eq!(read(&journal, 1, 1).unwrap(), "first");
        assert_eq!(read(&journal, 1, 300).unwrap(), vec![3; 40_000]);
        assert_eq!(read_body(&journal, 1, 301), "shared body");
        assert_eq!(read(&journal, 4, 2).unwrap(), vec![4; 30_000]);
    }
}
