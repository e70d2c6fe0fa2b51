//! Journals that lie in the data directory and that the topology knows nothing of: what is left when
//! all of it was lost, or when the node was taken out of a pair.

use std::io;
use std::path::{Path, PathBuf};

use activation::age::Age;
use activation::file::{self, JournalUid};
use activation::standing::{Mark, Record, Standing};
use journal::disk::Disk as _;
use journal::disk::real::RealDisk;
use journal::error::OpenError;
use journal::inspect::inspect;
use journal::whole;
use management::view::copy::LeftJournal;
use metadata::declarations::Declarations;
use metadata::state::State;

use crate::pair::folder::{DECLARATIONS, STATE};

/// A folder of a journal.
pub(crate) struct Left {
    pub(crate) name: String,
    pub(crate) uid: JournalUid,
    pub(crate) path: PathBuf,
}

/// All folders of journals in a data directory. Blocks.
///
/// # Errors
/// What the file system says.
pub(crate) fn folders(data_dir: &Path) -> io::Result<Vec<Left>> {
    let journals = data_dir.join("journals");
    let names = match RealDisk.list(&journals) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut folders = Vec::new();
    for folder in names {
        let Some((name, uid)) = folder.rsplit_once('-').filter(|(_, uid)| uid.len() == 32) else {
            continue;
        };
        if let Ok(uid) = u128::from_str_radix(uid, 16) {
            let (name, path) = (name.to_owned(), journals.join(&folder));
            folders.push(Left { name, uid: JournalUid(uid), path });
        }
    }
    folders.sort_by(|one, other| (&one.name, one.uid).cmp(&(&other.name, other.uid)));
    Ok(folders)
}

/// Those that the topology does not know. Blocks.
///
/// # Errors
/// What the file system says.
pub(crate) fn journals(data_dir: &Path, state: &State) -> io::Result<Vec<LeftJournal>> {
    let mut left = Vec::new();
    for folder in folders(data_dir)? {
        if state.journal_by_uid(&folder.uid.to_string()).is_some() {
            continue;
        }
        let record = folder.record()?;
        let declared = folder.declarations();
        left.push(LeftJournal {
            name: folder.name.clone(),
            uid: folder.uid.to_string(),
            sequence: record.as_ref().ok().and_then(|record| record.standing.age()).map(Age::get),
            standing: record.as_ref().map_or_else(String::clone, |one| one.standing.to_string()),
            queues: declared.as_ref().ok().map(|known| known.queues.len()),
            reason: declared.err(),
        });
    }
    Ok(left)
}

/// What was declared in one of them, and the highest number that its messages stand under. Blocks.
///
/// # Errors
/// If there is none of that uid, or its declarations or its messages cannot be read.
pub(crate) fn declarations(data_dir: &Path, uid: &str) -> Result<String, String> {
    let folders = folders(data_dir).map_err(|error| error.to_string())?;
    let folder = folders.into_iter().find(|folder| folder.uid.to_string() == uid);
    let folder = folder.ok_or("there is no such journal here")?;
    let declared = folder.declarations()?;
    let last_queue = folder.last_queue().map_err(|error| error.to_string())?;
    Ok(Declarations { last_queue, ..declared }.encode())
}

impl Left {
    /// What the state file says, or what is wrong with it. Blocks.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn record(&self) -> io::Result<Result<Record, String>> {
        Ok(match whole::peek(&RealDisk, &self.path, STATE)? {
            None => Ok(Record::NONE),
            Some(bytes) => file::decode(self.uid, &bytes).map_err(|error| error.to_string()),
        })
    }

    fn declarations(&self) -> Result<Declarations, String> {
        let bytes = whole::peek(&RealDisk, &self.path, DECLARATIONS);
        let bytes = bytes.map_err(|error| error.to_string())?;
        let bytes = bytes.ok_or("what was declared in it was not written down")?;
        Declarations::decode(&bytes).map_err(|error| error.to_string())
    }

    /// The highest number of a queue that it has messages of, or had. Blocks.
    fn last_queue(&self) -> Result<u64, OpenError> {
        let data = self.path.join("data");
        if !data.exists() {
            return Ok(0);
        }
        let streams = inspect(&RealDisk, &data, true)?.streams;
        Ok(streams.iter().map(|stream| stream.stream).max().unwrap_or_default())
    }

    /// Sets the copy aside: it may be an old one. Blocks.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn mark(&self) -> io::Result<()> {
        let record = self.record()?.unwrap_or(Record::NONE);
        let standing = Standing::Marked(Mark::Reincarnated, record.standing.age());
        let record = Record { standing, ..record };
        whole::replace(&RealDisk, &self.path, STATE, &file::encode(self.uid, &record))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use journal::journal::Journal;
    use journal::op::{Class, Head, Op, Payload};
    use journal::options::Options;
    use model::id::{Seq, StreamId};
    use tokio::sync::watch;

    use super::*;
    use crate::pair::ear::Ear;

    #[test]
    fn folders_of_journals_are_found_and_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(journals(dir.path(), &State::new()).unwrap(), []);
        let uid = JournalUid(7);
        let folder = dir.path().join("journals").join(format!("a-b-{uid}"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(dir.path().join("journals/other")).unwrap();
        let record = Record { standing: Standing::Valid(Age::new(5).unwrap()), incarnation: None };
        whole::replace(&RealDisk, &folder, STATE, &file::encode(uid, &record)).unwrap();
        let left = journals(dir.path(), &State::new()).unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!((&*left[0].name, left[0].sequence, left[0].queues), ("a-b", Some(5), None));
        assert!(left[0].reason.as_ref().unwrap().contains("not written down"));
        folders(dir.path()).unwrap()[0].mark().unwrap();
        let left = journals(dir.path(), &State::new()).unwrap();
        assert_eq!(left[0].sequence, None);
        assert_eq!(left[0].standing, "set aside at 5 (the data directory was restored or copied)");
        let error = declarations(dir.path(), "0").unwrap_err();
        assert!(error.contains("no such journal"), "{error}");
    }

    /// A queue that was declared a moment before all was lost is not among the declarations; its number
    /// is still taken.
    #[test]
    fn the_highest_number_on_the_disk_goes_along() {
        let dir = tempfile::tempdir().unwrap();
        let uid = JournalUid(7);
        let folder = dir.path().join("journals").join(format!("j-{uid}"));
        std::fs::create_dir_all(&folder).unwrap();
        let declared = Declarations {
            name: "j".into(),
            uid: uid.to_string().into(),
            exchanges: Vec::new(),
            queues: Vec::new(),
            bindings: Vec::new(),
            last_queue: 0,
        };
        let write = |text: &str| std::fs::write(folder.join(DECLARATIONS), text).unwrap();
        write(&declared.encode());
        let read = || {
            let text = declarations(dir.path(), &uid.to_string()).unwrap();
            Declarations::decode(text.as_bytes()).unwrap()
        };
        assert_eq!(read(), declared, "it never had any message");
        let ear = Arc::new(Ear::new("j", watch::channel(None).0, Arc::default()));
        let mut options = Options::new(folder.join("data"));
        options.segment_bytes = 1 << 20;
        let (journal, _) = Journal::open(options, Arc::new(RealDisk), ear).unwrap();
        let put = |stream| Op::Put {
            stream: StreamId(stream),
            seq: Seq(1),
            class: Class::Bulk,
            head: Head::default(),
            payload: Payload::Bytes(Bytes::from_static(b"x")),
        };
        journal.submit(vec![put(1500), put(1030)]);
        journal.close().unwrap();
        assert_eq!(read(), Declarations { last_queue: 1500, ..declared });
    }
}
