//! The folder of a journal: its copy, the state file beside it, and copies that were set aside.
//!
//! ```text
//!  journals/NAME-UID/
//!    LOCK         held by the node that has a driver for it
//!    activation   the state file
//!    activation.audit  what operators have done to it
//!    data/        the copy: a journal of its own
//!    saved/       copies that were replaced: SEQUENCE-NUMBER/, with their state files
//! ```

use std::io;
use std::path::{Path, PathBuf};

use activation::age::Age;
use activation::file::{self, JournalUid};
use activation::standing::{Record, Standing};
use journal::audit;
use journal::disk::real::RealDisk;
use journal::disk::{Disk as _, Held, Lock};
use journal::whole;

/// The name of the state file.
pub(crate) const STATE: &str = "activation";
/// What operators have done, a line each.
const AUDIT: &str = "activation.audit";
/// How many replaced copies are kept.
const SAVED_MAX: usize = 2;

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
        let vacant = match RealDisk.list(&self.data()) {
            Ok(names) if names.is_empty() => true,
            Ok(_) => journal::inspect::inspect(&RealDisk, &self.data(), false)
                .is_ok_and(|found| found.report.records == 0),
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => return Err(error),
        };
        Ok(Found { record, damage, vacant })
    }

    /// Replaces the state file; durable when it returns. Blocks.
    ///
    /// # Errors
    /// What the file system says; nobody knows then what it holds.
    pub(crate) fn write(&self, record: &Record) -> io::Result<()> {
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

    /// Leaves a line about what an operator is about to do.
    fn audit(&self, what: &str) -> io::Result<()> {
        let line = format!("journal {} {what}", self.journal);
        audit::append(&RealDisk, &self.path, AUDIT, &line)
    }

    /// Puts the copy aside, with what was known of it, so that another one can take its place. Only
    /// after the state file says that there is none. Blocks.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn set_aside(&self, known: &Record, vacant: bool) -> io::Result<()> {
        let data = self.data();
        if !data.exists() {
            return Ok(());
        }
        if vacant || known.standing == Standing::Syncing {
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

    /// A new copy is whole: of those that were replaced, the oldest go. Blocks.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn prune(&self) -> io::Result<()> {
        let saved = self.saved()?;
        let surplus = saved.len().saturating_sub(SAVED_MAX);
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
            folder.set_aside(&record(age), false).unwrap();
        }
        // What was being copied pushes nothing out.
        std::fs::create_dir(folder.data()).unwrap();
        let syncing = Record { standing: Standing::Syncing, incarnation: None };
        folder.set_aside(&syncing, false).unwrap();
        assert_eq!(folder.saved().unwrap().len(), 4);
        folder.prune().unwrap();
        let saved = folder.saved().unwrap();
        let kept: Vec<_> =
            saved.iter().map(|(_, path)| path.file_name().unwrap().to_owned()).collect();
        assert_eq!(kept, ["3-3", "4-4"]);
        let bytes = whole::peek(&RealDisk, &saved[1].1, STATE).unwrap().unwrap();
        assert_eq!(file::decode(JOURNAL, &bytes), Ok(record(4)));
        assert_eq!(std::fs::read(saved[1].1.join("data/segment")).unwrap(), b"4");
    }
}
