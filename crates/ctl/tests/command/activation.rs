//! The ages of copies, offline on a data directory.

use std::fs;
use std::path::Path;

use ::activation::age::Age;
use ::activation::file::{self, JournalUid};
use ::activation::register::Incarnation;
use ::activation::standing::{Mark, Record, Standing};
use ctl::exit::Exit;
use journal::disk::real::RealDisk;
use journal::disk::{Disk as _, Lock};
use journal::whole;
use tempfile::TempDir;

use crate::check;

const UID: &str = "0123456789abcdef0011223344556677";

struct Data(TempDir);

impl Data {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder can be made"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn folder(&self, name: &str) -> std::path::PathBuf {
        self.path().join("journals").join(format!("{name}-{UID}"))
    }

    fn with(self, name: &str, standing: Standing) -> Self {
        let folder = self.folder(name);
        fs::create_dir_all(&folder).expect("it can be made");
        let uid = JournalUid(u128::from_str_radix(UID, 16).expect("a number"));
        let record = Record { standing, incarnation: Some(Incarnation(0xab)) };
        whole::replace(&RealDisk, &folder, "activation", &file::encode(uid, &record))
            .expect("it is written");
        self
    }

    fn run(&self, command: &str, line: &[&str]) -> (Exit, String, String) {
        let directory = self.path().to_str().expect("a text");
        let line: Vec<&str> =
            ["activation", command, directory].into_iter().chain(line.iter().copied()).collect();
        let (exit, out, err, asked) = check(&line, &[]);
        assert!(asked.is_empty(), "no node is asked");
        (exit, out, err)
    }

    fn list(&self, line: &[&str]) -> String {
        let (exit, out, err) = self.run("list", &[&["-s"], line].concat());
        assert_eq!((exit, err.as_str()), (Exit::Done, ""));
        out.replace(UID, "UID")
    }

    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let mut files = Vec::new();
        let mut folders = vec![self.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("it is there") {
                let path = entry.expect("it is there").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push((path.display().to_string(), fs::read(&path).expect("it is there")));
                }
            }
        }
        files.sort();
        files
    }
}

fn valid(age: u64) -> Standing {
    Standing::Valid(Age::new(age).expect("an age"))
}

#[test]
fn copies_are_listed_with_what_they_are_worth() {
    let data = Data::new()
        .with("a-b", valid(5))
        .with("c", Standing::Syncing)
        .with("d", Standing::Marked(Mark::Reincarnated, Age::new(7)));
    fs::create_dir_all(data.folder("empty")).unwrap();
    fs::create_dir_all(data.path().join("journals/other")).unwrap();
    let before = data.files();
    assert_eq!(
        data.list(&[]),
        "a-b\tUID\t5\tvalid\t00000000000000ab\t\t\n\
         c\tUID\t\tbeing copied\t00000000000000ab\t\t\n\
         d\tUID\t\tset aside at 7 (the data directory was restored or copied)\t00000000000000ab\t\t\n\
         empty\tUID\t\tnone\t\t\t\n"
    );
    // A claim is negative.
    for (coordinated, class) in [
        ("5", "in sync"),
        ("-5", "in sync, a claim of its own is open"),
        ("-6", "in sync, a claim of another node is open"),
        ("6", "stale"),
        ("-7", "stale"),
        ("4", "held: the copy is newer than the coordinated sequence"),
    ] {
        let out = data.list(&["--coordinated", coordinated, "--journal", "a-b"]);
        assert_eq!(out, format!("a-b\tUID\t5\tvalid\t00000000000000ab\t\t{class}\n"));
    }
    let out = data.list(&["--coordinated", "3", "--journal", "c"]);
    assert!(out.ends_with("\tincomplete\n"), "{out}");
    assert_eq!(data.files(), before, "nothing was written, no lock file either");
    // Nothing to list is nothing wrong; a journal that is not there is.
    assert_eq!(Data::new().list(&[]), "");
    let (exit, _, err) = data.run("list", &["--journal", "x"]);
    assert_eq!(exit, Exit::Data);
    assert!(err.contains("there is no copy of journal 'x' in "), "{err}");
}

#[test]
fn a_damaged_file_is_shown_and_never_none() {
    let data = Data::new().with("j", valid(5));
    let path = data.folder("j").join("activation");
    let mut bytes = fs::read(&path).unwrap();
    bytes[31] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert_eq!(
        data.list(&["--coordinated", "5"]),
        "j\tUID\t\tdamaged: the checksum of the state file is wrong\t\t\t\
         held: the state file is damaged\n"
    );
    let (exit, _, err) = data.run("set", &["--journal", "j", "--to", "5"]);
    assert_eq!(exit, Exit::Data);
    assert!(err.contains("from a damaged state file to 5"), "{err}");
    let (exit, out, _) =
        data.run("set", &["--journal", "j", "--to", "5", "--force", "--confirm", "j"]);
    assert_eq!(exit, Exit::Done);
    assert_eq!(out, "journal 'j' local sequence from a damaged state file to 5\n");
    assert!(data.list(&[]).starts_with("j\tUID\t5\tvalid\t"));
}

#[test]
fn down_is_free_and_up_is_confirmed() {
    let data = Data::new().with("j", valid(5));
    let (exit, out, _) = data.run("set", &["--journal", "j", "--to", "4"]);
    assert_eq!((exit, out.as_str()), (Exit::Done, "journal 'j' local sequence from 5 to 4\n"));
    let before = data.files();
    for line in [&["--force"][..], &["--confirm", "j"], &["--force", "--confirm", "J"], &[]] {
        let (exit, out, err) = data.run("set", &[&["--journal", "j", "--to", "6"], line].concat());
        assert_eq!((exit, out.as_str()), (Exit::Data, ""), "{line:?}");
        assert!(err.contains("every message is lost that was confirmed without it"), "{err}");
        assert!(err.contains("repeat with --force --confirm j"), "{err}");
    }
    let line = ["--journal", "j", "--to", "6", "--dry_run"];
    let (exit, out, _) = data.run("set", &line);
    assert_eq!((exit, out.as_str()), (Exit::Done, "journal 'j' local sequence from 4 to 6\n"));
    assert_eq!(data.files(), before, "nothing was changed");
    let line = ["--journal", "j", "--to", "6", "--force", "--confirm", "j"];
    assert_eq!(data.run("set", &line).0, Exit::Done);
    // The incarnation stays.
    assert_eq!(data.list(&[]), "j\tUID\t6\tvalid\t00000000000000ab\t\t\n");
    let audit = fs::read_to_string(data.folder("j").join("activation.audit")).unwrap();
    let lines: Vec<&str> =
        audit.lines().map(|line| line.split_once(' ').expect("a time").1).collect();
    assert_eq!(
        lines,
        [
            format!("journal 'j' {UID} local sequence from 5 to 4"),
            format!("journal 'j' {UID} local sequence from 4 to 6 forced"),
        ]
    );
    let (exit, _, err) = data.run("set", &["--journal", "j", "--to", "9223372036854775807"]);
    assert_eq!(exit, Exit::Usage);
    assert!(err.contains("is above the highest sequence"), "{err}");
}

/// What is being copied over or set aside becomes whole only by force.
#[test]
fn incomplete_copies_need_force() {
    for standing in [Standing::Syncing, Standing::Marked(Mark::Operator, Age::new(9))] {
        let data = Data::new().with("j", standing);
        let (exit, ..) = data.run("set", &["--journal", "j", "--to", "1"]);
        assert_eq!(exit, Exit::Data);
    }
}

#[test]
fn a_directory_in_use_is_not_changed() {
    let data = Data::new().with("j", valid(5));
    let node = data.path().join("journal");
    fs::create_dir_all(&node).unwrap();
    for directory in [node, data.folder("j")] {
        let lock = RealDisk.lock(&whole::lock_file(&directory)).unwrap();
        assert!(matches!(lock, Lock::Held(_)));
        let (exit, _, err) = data.run("set", &["--journal", "j", "--to", "4"]);
        assert_eq!(exit, Exit::Unavailable);
        let pid = std::process::id();
        assert!(err.contains(&format!("is in use by process {pid}")), "{err}");
        assert!(data.list(&[]).starts_with("j\tUID\t5\tvalid\t"), "listing works");
        drop(lock);
    }
    assert_eq!(data.run("set", &["--journal", "j", "--to", "4"]).0, Exit::Done);
}
