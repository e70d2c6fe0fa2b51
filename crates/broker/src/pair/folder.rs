//! The folder of a journal: its copy, the state file beside it, and copies that were set aside.
//!
//! ```text
//!  journals/NAME-UID/
//!    LOCK         held by the node that has a driver for it
//!    activation   the state file
//!    activation.before  what it said of the copy in data/, if it says now that this is worth nothing
//!    declarations what its queues were declared as
//!    activation.audit  what operators have done to it
//!    data/        the copy: a journal of its own
//!    saved/       copies that were replaced: SEQUENCE-NUMBER/, with their state files
//! ```

use std::io;
use std::path::{Path, PathBuf};

use activation::age::Age;
use activation::file::{self, JournalUid};
use activation::register::Incarnation;
use activation::standing::{Record, Standing};
use journal::audit;
use journal::disk::real::RealDisk;
use journal::disk::{Disk as _, Held, Lock};
use journal::whole;
use management::view::copy::SavedCopy;

/// The name of the state file.
pub(crate) const STATE: &str = "activation";
/// The name of the file that says what the queues were declared as.
pub(crate) const DECLARATIONS: &str = "declarations";
/// The name of the file that says what the copy was before the state file gave it up.
const BEFORE: &str = "activation.before";
/// What operators have done, a line each.
const AUDIT: &str = "activation.audit";

/// See the module head.
#[derive(Debug)]
pub(crate) struct Folder {
    journal: JournalUid,
    path: PathBuf,
    _lock: Box<dyn Held>,
}

/// What was found in it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) record: Record,
    /// Why the state file says nothing.
    pub(crate) damage: Option<String>,
    /// There is nothing in the copy.
    pub(crate) vacant: bool,
    /// Copies that were put aside.
    pub(crate) saved: Vec<SavedCopy>,
}

impl Folder {
    /// Opens or makes it. Blocks.
    ///
    /// # Errors
    /// What the file system says, or that another process has it.
    pub(crate) fn open(data_dir: &Path, name: &str, journal: JournalUid) -> io::Result<Self> {
        let journals = data_dir.join("journals");
        let path = journals.join(format!("{name}-{journal}"));
        RealDisk.create_dir(&path)?;
        for folder in [data_dir, &journals, &path] {
            RealDisk.sync_dir(folder)?;
        }
        match RealDisk.lock(&whole::lock_file(&path))? {
            Lock::Held(lock) => Ok(Self { journal, path, _lock: lock }),
            Lock::Busy(pid) => {
                Err(io::Error::other(format!("{} is in use by process {pid}", path.display())))
            }
        }
    }

    /// Where the copy is.
    pub(crate) fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// What there is. Blocks.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn look(&self) -> io::Result<Found> {
        let (record, damage) = match whole::open(&RealDisk, &self.path, STATE)? {
            None => (Record::NONE, None),
            Some(bytes) => match file::decode(self.journal, &bytes) {
                Ok(record) => (record, None),
                Err(error) => (Record::NONE, Some(error.to_string())),
            },
        };
        let vacant = self.is_vacant()?;
        Ok(Found { record, damage, vacant, saved: self.saved_copies()? })
    }

    /// Whether there is nothing in the copy.
    fn is_vacant(&self) -> io::Result<bool> {
        match RealDisk.list(&self.data()) {
            Ok(names) if names.is_empty() => Ok(true),
            Ok(_) => Ok(journal::inspect::inspect(&RealDisk, &self.data(), false)
                .is_ok_and(|found| found.report.records == 0)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Replaces the state file; durable when it returns. If it says from now on that the copy is being
    /// overwritten, what it has said is kept beside it until the copy is put aside. Blocks.
    ///
    /// # Errors
    /// What the file system says; nobody knows then what it holds.
    pub(crate) fn write(&self, record: &Record) -> io::Result<()> {
        if record.standing == Standing::Syncing {
            let known = match whole::peek(&RealDisk, &self.path, STATE)? {
                None => Record::NONE,
                // Nothing is known of it, and it is no less worth keeping.
                Some(bytes) => file::decode(self.journal, &bytes).unwrap_or(Record::NONE),
            };
            // Otherwise it was given up before, and what it was then counts.
            if known.standing != Standing::Syncing {
                let known = file::encode(self.journal, &known);
                whole::replace(&RealDisk, &self.path, BEFORE, &known)?;
            }
        }
        whole::replace(&RealDisk, &self.path, STATE, &file::encode(self.journal, record))
    }

    /// Sets the age of the copy, as an operator wants it; returns what was before, in words. Blocks.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn set_sequence(&self, to: Age, forced: bool) -> io::Result<String> {
        let Found { record, damage, .. } = self.look()?;
        let before = said(&record, damage.as_ref());
        let forced = if forced { " forced" } else { "" };
        self.audit(&format!("local sequence from {before} to {to}{forced}"))?;
        let incarnation = record.incarnation;
        self.write(&Record { standing: Standing::Valid(to), incarnation })?;
        Ok(before)
    }

    /// Makes the copy the one to go on with: of this age, in a life of the register that is about to
    /// begin; returns what was before, in words. Blocks.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn adopt(&self, age: Age, incarnation: Incarnation) -> io::Result<String> {
        let Found { record, damage, .. } = self.look()?;
        let before = said(&record, damage.as_ref());
        self.audit(&format!("adopted: from {before} to {age}"))?;
        let standing = Standing::Valid(age);
        self.write(&Record { standing, incarnation: Some(incarnation) })?;
        Ok(before)
    }

    /// Puts the copy aside, whatever it is; returns what it was, in words. Blocks.
    ///
    /// # Errors
    /// What the file system says. Doing it again goes on.
    pub(crate) fn discard(&self) -> io::Result<String> {
        let Found { record, damage, .. } = self.look()?;
        let before = said(&record, damage.as_ref());
        self.audit(&format!("discarded: {before}"))?;
        // First, since it is a copy of nothing from now on.
        self.write(&Record::NONE)?;
        self.set_aside(&record)?;
        Ok(before)
    }

    /// Puts a copy that was set aside in the place of what there is; returns what that was, in words.
    /// Blocks.
    ///
    /// # Errors
    /// If there is no such copy, or what the file system says. Doing it again goes on.
    pub(crate) fn restore(&self, name: &str) -> io::Result<String> {
        let is_meant = |path: &Path| path.file_name().is_some_and(|it| it == name);
        let there = self.saved()?.into_iter().find(|(_, path)| is_meant(path));
        let (_, from) = there.ok_or_else(|| {
            io::Error::other(format!("no copy of the name {name} was put aside here"))
        })?;
        let saved = match whole::peek(&RealDisk, &from, STATE)? {
            Some(bytes) => file::decode(self.journal, &bytes).map_err(io::Error::other)?,
            None => return Err(io::Error::other(format!("copy {name} has no state file"))),
        };
        let Found { record, damage, .. } = self.look()?;
        let before = said(&record, damage.as_ref());
        self.audit(&format!("restored: {name} in the place of {before}"))?;
        let nothing = Record { standing: Standing::Syncing, incarnation: None };
        if from.join("data").exists() {
            self.write(&nothing)?;
            self.set_aside(&record)?;
            RealDisk.rename(&from.join("data"), &self.data())?;
            RealDisk.sync_dir(&from)?;
            RealDisk.sync_dir(&self.path)?;
        } else if record != nothing && record != saved {
            return Err(io::Error::other(format!("copy {name} has no data")));
        }
        // Otherwise this was cut off before one of the last two steps.
        self.write(&saved)?;
        std::fs::remove_dir_all(&from)?;
        Ok(before)
    }

    /// The copies that were put aside, for operators. Blocks.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn saved_copies(&self) -> io::Result<Vec<SavedCopy>> {
        let mut copies = Vec::new();
        for (_, path) in self.saved()? {
            let record = match whole::peek(&RealDisk, &path, STATE)? {
                None => Err("there is no state file".to_owned()),
                Some(bytes) => {
                    file::decode(self.journal, &bytes).map_err(|error| error.to_string())
                }
            };
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let known = record.as_ref().ok();
            copies.push(SavedCopy {
                name,
                sequence: known.and_then(|record| record.standing.age()).map(Age::get),
                standing: record
                    .as_ref()
                    .map_or_else(String::clone, |one| one.standing.to_string()),
                incarnation: known
                    .and_then(|record| record.incarnation)
                    .map(|one| format!("{:016x}", one.0)),
                bytes: size(&path.join("data"))?,
            });
        }
        Ok(copies)
    }

    /// What the queues of the journal were declared as is this text from now on. Durable when it
    /// returns. Blocks.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn declare(&self, text: &str) -> io::Result<()> {
        whole::replace(&RealDisk, &self.path, DECLARATIONS, text.as_bytes())
    }

    /// Leaves a line about what an operator is about to do.
    fn audit(&self, what: &str) -> io::Result<()> {
        let line = format!("journal {} {what}", self.journal);
        audit::append(&RealDisk, &self.path, AUDIT, &line)
    }

    /// Puts the copy aside, with what was known of it, so that another one can take its place. Only
    /// after the state file says that there is none. What was cut off goes on when it is done again:
    /// what the copy was is forgotten only when it has moved. Blocks.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn set_aside(&self, known: &Record) -> io::Result<()> {
        let given_up = whole::peek(&RealDisk, &self.path, BEFORE)?;
        let given_up = given_up.map(|bytes| file::decode(self.journal, &bytes));
        let known = match &given_up {
            // A file that cannot be read is no reason to lose what it is about.
            Some(before) if known.standing == Standing::Syncing => before.unwrap_or(Record::NONE),
            // It was written down, and then the copy was not given up after all.
            _ => *known,
        };
        self.move_aside(&known)?;
        if given_up.is_some() {
            RealDisk.remove(&self.path.join(BEFORE))?;
            RealDisk.sync_dir(&self.path)?;
        }
        Ok(())
    }

    fn move_aside(&self, known: &Record) -> io::Result<()> {
        let data = self.data();
        if !data.exists() {
            return Ok(());
        }
        if known.standing == Standing::Syncing || self.is_vacant()? {
            // What was being copied is worth nothing, and must not push out what is.
            std::fs::remove_dir_all(&data)?;
            return RealDisk.sync_dir(&self.path);
        }
        let saved = self.path.join("saved");
        RealDisk.create_dir(&saved)?;
        let age = known.standing.age().map_or("none".to_owned(), |age| age.get().to_string());
        let number = self.saved()?.last().map_or(1, |(number, _)| number + 1);
        let target = saved.join(format!("{age}-{number}"));
        RealDisk.create_dir(&target)?;
        whole::replace(&RealDisk, &target, STATE, &file::encode(self.journal, known))?;
        RealDisk.rename(&data, &target.join("data"))?;
        for folder in [&target, &saved, &self.path] {
            RealDisk.sync_dir(folder)?;
        }
        Ok(())
    }

    /// A new copy is whole: of those that were replaced so many are kept (`None`: all), and the oldest
    /// go. Blocks.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn prune(&self, most: Option<u64>) -> io::Result<()> {
        let Some(most) = most else { return Ok(()) };
        let saved = self.saved()?;
        let surplus = saved.len().saturating_sub(usize::try_from(most).unwrap_or(usize::MAX));
        for (_, path) in &saved[..surplus] {
            std::fs::remove_dir_all(path)?;
        }
        Ok(())
    }

    /// The copies that were set aside, oldest first.
    fn saved(&self) -> io::Result<Vec<(u64, PathBuf)>> {
        let saved = self.path.join("saved");
        let names = match std::fs::read_dir(&saved) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut all = Vec::new();
        for name in names {
            let name = name?.file_name();
            let number = name.to_str().and_then(|name| name.rsplit_once('-')?.1.parse().ok());
            if let Some(number) = number {
                all.push((number, saved.join(name)));
            }
        }
        all.sort();
        Ok(all)
    }
}

/// Bytes of the files in a folder; 0 if it is not there.
fn size(folder: &Path) -> io::Result<u64> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut bytes = 0;
    for entry in entries {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}

/// What a state file says, in words.
fn said(record: &Record, damage: Option<&String>) -> String {
    damage.map_or_else(|| record.standing.to_string(), |_| "a damaged state file".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOURNAL: JournalUid = JournalUid(7);

    fn record(age: u64) -> Record {
        Record { standing: Standing::Valid(Age::new(age).unwrap()), incarnation: None }
    }

    #[test]
    fn the_state_file_comes_back_and_damage_is_no_absence() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path(), "orders", JOURNAL).unwrap();
        let found = folder.look().unwrap();
        assert_eq!((found.record, found.vacant), (Record::NONE, true));
        folder.write(&record(5)).unwrap();
        assert_eq!(folder.look().unwrap().record, record(5));
        std::fs::write(folder.path.join(STATE), b"nonsense").unwrap();
        assert!(folder.look().unwrap().damage.is_some());
        let error = Folder::open(dir.path(), "orders", JOURNAL).unwrap_err();
        assert!(error.to_string().contains("in use by process"), "{error}");
    }

    #[test]
    fn replaced_copies_are_kept_with_their_age_and_the_oldest_go() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path(), "orders", JOURNAL).unwrap();
        for age in 1..=4 {
            std::fs::create_dir(folder.data()).unwrap();
            std::fs::write(folder.data().join("segment"), age.to_string()).unwrap();
            folder.set_aside(&record(age)).unwrap();
        }
        // What was being copied pushes nothing out.
        std::fs::create_dir(folder.data()).unwrap();
        let syncing = Record { standing: Standing::Syncing, incarnation: None };
        folder.set_aside(&syncing).unwrap();
        assert_eq!(folder.saved().unwrap().len(), 4);
        for more in [None, Some(9)] {
            folder.prune(more).unwrap();
            assert_eq!(folder.saved().unwrap().len(), 4);
        }
        folder.prune(Some(2)).unwrap();
        let saved = folder.saved().unwrap();
        let kept: Vec<_> =
            saved.iter().map(|(_, path)| path.file_name().unwrap().to_owned()).collect();
        assert_eq!(kept, ["3-3", "4-4"]);
        let bytes = whole::peek(&RealDisk, &saved[1].1, STATE).unwrap().unwrap();
        assert_eq!(file::decode(JOURNAL, &bytes), Ok(record(4)));
        assert_eq!(std::fs::read(saved[1].1.join("data/segment")).unwrap(), b"4");
        folder.prune(Some(0)).unwrap();
        assert_eq!(folder.saved().unwrap(), []);
    }

    fn fill(folder: &Folder, text: &str) {
        std::fs::create_dir_all(folder.data()).unwrap();
        std::fs::write(folder.data().join("segment"), text).unwrap();
    }

    fn content(folder: &Folder) -> String {
        std::fs::read_to_string(folder.data().join("segment")).unwrap()
    }

    #[test]
    fn a_copy_that_was_put_aside_comes_back_and_puts_the_other_one_aside() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path(), "orders", JOURNAL).unwrap();
        fill(&folder, "old");
        folder.set_aside(&record(3)).unwrap();
        fill(&folder, "new");
        folder.write(&record(5)).unwrap();
        let saved = folder.saved_copies().unwrap();
        assert_eq!((saved.len(), &*saved[0].name, saved[0].sequence), (1, "3-1", Some(3)));
        assert_eq!(saved[0].bytes, 3);
        for other in ["4-1", "", "saved/3-1"] {
            let error = folder.restore(other).unwrap_err();
            assert!(error.to_string().contains("no copy of the name"), "{other}: {error}");
        }
        assert_eq!(folder.restore("3-1").unwrap(), "5");
        assert_eq!(
            (folder.look().unwrap().record, content(&folder)),
            (record(3), "old".to_owned())
        );
        let saved = folder.saved_copies().unwrap();
        assert_eq!((saved.len(), saved[0].sequence), (1, Some(5)));
        // A copy that was not whole is in nobody's way.
        let nothing = Record { standing: Standing::Syncing, incarnation: None };
        folder.write(&nothing).unwrap();
        folder.set_aside(&nothing).unwrap();
        fill(&folder, "half");
        folder.restore(&saved[0].name).unwrap();
        assert_eq!(
            (folder.look().unwrap().record, content(&folder)),
            (record(5), "new".to_owned())
        );
        let saved = folder.saved_copies().unwrap();
        assert_eq!((saved.len(), saved[0].sequence), (1, Some(3)));
        let audit = std::fs::read_to_string(folder.path.join(AUDIT)).unwrap();
        assert_eq!(audit.lines().filter(|line| line.contains(" restored: ")).count(), 2, "{audit}");
    }

    /// Cut off between any two steps it goes on when it is done again, and what was put aside is not
    /// lost.
    #[test]
    fn a_restoration_that_was_cut_off_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path(), "orders", JOURNAL).unwrap();
        fill(&folder, "old");
        folder.set_aside(&record(3)).unwrap();
        let nothing = Record { standing: Standing::Syncing, incarnation: None };
        // A copy that was not whole is what it takes the place of.
        folder.write(&nothing).unwrap();
        folder.set_aside(&nothing).unwrap();
        fill(&folder, "half");
        folder.restore("3-1").unwrap();
        assert_eq!(
            (folder.look().unwrap().record, content(&folder)),
            (record(3), "old".to_owned())
        );
        // The data has moved already.
        folder.set_aside(&record(3)).unwrap();
        folder.write(&nothing).unwrap();
        let saved = folder.path.join("saved/3-1");
        std::fs::rename(saved.join("data"), folder.data()).unwrap();
        folder.restore("3-1").unwrap();
        assert_eq!(
            (folder.look().unwrap().record, content(&folder)),
            (record(3), "old".to_owned())
        );
        assert!(!saved.exists());
        // All that is left is to forget where it was.
        folder.set_aside(&record(3)).unwrap();
        std::fs::rename(saved.join("data"), folder.data()).unwrap();
        folder.restore("3-1").unwrap();
        assert_eq!(
            (folder.look().unwrap().record, content(&folder)),
            (record(3), "old".to_owned())
        );
        assert!(!saved.exists());
        // Of another copy nothing is left.
        folder.set_aside(&record(3)).unwrap();
        std::fs::remove_dir_all(saved.join("data")).unwrap();
        folder.write(&record(5)).unwrap();
        let error = folder.restore("3-1").unwrap_err();
        assert!(error.to_string().contains("has no data"), "{error}");
    }

    /// The state file says that the copy is being overwritten, and nothing is: the session was lost, or
    /// the node. What was whole is put aside by whoever comes next, also if that happens again.
    #[test]
    fn a_copy_that_was_given_up_is_put_aside_later() {
        let dir = tempfile::tempdir().unwrap();
        let nothing = Record { standing: Standing::Syncing, incarnation: None };
        for (number, is_there) in [(1, true), (2, false)] {
            let folder = Folder::open(dir.path(), "orders", JOURNAL).unwrap();
            fill(&folder, "whole");
            if is_there {
                folder.write(&record(5)).unwrap();
            } else {
                std::fs::remove_file(folder.path.join(STATE)).unwrap();
            }
            folder.write(&nothing).unwrap();
            drop(folder);
            let folder = Folder::open(dir.path(), "orders", JOURNAL).unwrap();
            let found = folder.look().unwrap().record;
            assert_eq!(found, nothing);
            folder.write(&nothing).unwrap();
            folder.set_aside(&found).unwrap();
            let saved = folder.saved_copies().unwrap();
            assert_eq!(saved.len(), number, "{saved:?}");
            let kept = folder.path.join("saved").join(&saved[number - 1].name).join("data/segment");
            assert_eq!(std::fs::read_to_string(kept).unwrap(), "whole");
            assert_eq!(saved[number - 1].sequence, is_there.then_some(5));
            // What is copied then is worth nothing, as long as it is not whole.
            fill(&folder, "half");
            folder.write(&nothing).unwrap();
            folder.set_aside(&nothing).unwrap();
            assert_eq!(folder.saved_copies().unwrap().len(), number);
            assert!(!folder.data().exists());
        }
    }

    /// Cut off after each of its steps, putting a copy aside goes on when it is done again.
    #[test]
    fn putting_aside_that_was_cut_off_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let nothing = Record { standing: Standing::Syncing, incarnation: None };
        let folder = Folder::open(dir.path(), "orders", JOURNAL).unwrap();
        fill(&folder, "whole");
        folder.write(&record(5)).unwrap();
        // What it was is written down, and the state file is as it was: it goes on to be served.
        whole::replace(&RealDisk, &folder.path, BEFORE, &file::encode(JOURNAL, &record(5)))
            .unwrap();
        folder.write(&record(7)).unwrap();
        folder.discard().unwrap();
        let saved = folder.saved_copies().unwrap();
        assert_eq!((saved.len(), saved[0].sequence), (1, Some(7)));
        assert!(!folder.path.join(BEFORE).exists());
        folder.restore(&saved[0].name).unwrap();
        folder.write(&nothing).unwrap();
        // The data has moved, and what it was is not forgotten.
        let before = std::fs::read(folder.path.join(BEFORE)).unwrap();
        folder.set_aside(&nothing).unwrap();
        std::fs::write(folder.path.join(BEFORE), before).unwrap();
        folder.set_aside(&nothing).unwrap();
        let saved = folder.saved_copies().unwrap();
        assert_eq!((saved.len(), saved[0].sequence), (1, Some(7)));
        assert!(!folder.path.join(BEFORE).exists());
        // It has moved half: the place for it is there, with nothing in it.
        fill(&folder, "next");
        folder.write(&record(9)).unwrap();
        folder.write(&nothing).unwrap();
        std::fs::create_dir(folder.path.join("saved/9-7")).unwrap();
        folder.set_aside(&nothing).unwrap();
        assert_eq!(
            std::fs::read_to_string(folder.path.join("saved/9-8/data/segment")).unwrap(),
            "next"
        );
    }

    /// A restoration takes the place of a copy that is whole, is cut off when that is given up, and is
    /// done again.
    #[test]
    fn a_restoration_that_was_cut_off_keeps_what_it_replaces() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path(), "orders", JOURNAL).unwrap();
        fill(&folder, "old");
        folder.set_aside(&record(3)).unwrap();
        fill(&folder, "new");
        folder.write(&record(5)).unwrap();
        folder.write(&Record { standing: Standing::Syncing, incarnation: None }).unwrap();
        folder.restore("3-1").unwrap();
        assert_eq!(content(&folder), "old");
        let saved = folder.saved_copies().unwrap();
        assert_eq!((saved.len(), saved[0].sequence), (1, Some(5)));
    }

    #[test]
    fn operators_adopt_and_discard_copies() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path(), "orders", JOURNAL).unwrap();
        fill(&folder, "data");
        std::fs::write(folder.path.join(STATE), b"nonsense").unwrap();
        assert_eq!(
            folder.adopt(Age::new(6).unwrap(), Incarnation(9)).unwrap(),
            "a damaged state file"
        );
        let adopted = folder.look().unwrap().record;
        assert_eq!(adopted, Record { incarnation: Some(Incarnation(9)), ..record(6) });
        assert_eq!(folder.set_sequence(Age::new(4).unwrap(), true).unwrap(), "6");
        assert_eq!(folder.discard().unwrap(), "4");
        let found = folder.look().unwrap();
        assert_eq!((found.record, found.vacant, found.saved.len()), (Record::NONE, true, 1));
        assert_eq!(found.saved[0].sequence, Some(4));
    }
}
