//! What drivers of journals need of the node's disk.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;

use activation::age::Age;
use activation::file::JournalUid;
use activation::register::Incarnation;
use activation::standing::Record;
use bytes::Bytes;
use journal::error::ReadError;
use journal::journal::Journal;
use journal::op::{Lsn, Op};
use journal::recovery::Recovery;
use management::view::copy::SavedCopy;
use model::id::{Seq, StreamId};

use crate::pair::ear::Ear;
use crate::pair::folder::{Folder, Found};
use crate::pair::pulse::Pulse;
use crate::pair::stage::{self, Yard};

/// Where the folders of journals are.
pub(crate) trait Works: fmt::Debug + Send + Sync + 'static {
    /// Opens or makes the folder of a journal, and looks what is in it. Blocks.
    ///
    /// # Errors
    /// What the file system says, or that another process has it.
    fn folder(&self, name: &str, journal: JournalUid) -> io::Result<(Arc<dyn Shelf>, Found)>;
}

/// The folder of a journal. Everything blocks.
pub(crate) trait Shelf: fmt::Debug + Send + Sync + 'static {
    /// What there is.
    ///
    /// # Errors
    /// What the file system says.
    fn look(&self) -> io::Result<Found>;

    /// Sets the age of the copy, as an operator wants it; returns what was before, in words.
    ///
    /// # Errors
    /// What the file system says.
    fn set_sequence(&self, to: Age, forced: bool) -> io::Result<String>;

    /// Replaces the state file; durable when it returns. What it has said of a copy that is being
    /// overwritten from now on is kept until that is put aside.
    ///
    /// # Errors
    /// What the file system says; nobody knows then what it holds. If there was no room, doing it again
    /// goes on.
    fn write(&self, record: &Record) -> io::Result<()>;

    /// Puts the copy aside, unless there is nothing in it, with what was known of it, so that another
    /// one can take its place. Only after the state file says that there is none.
    ///
    /// # Errors
    /// What the file system says.
    fn set_aside(&self, known: &Record) -> io::Result<()>;

    /// A new copy is whole: of those that were replaced so many are kept (`None`: all), and the oldest
    /// go.
    ///
    /// # Errors
    /// What the file system says.
    fn prune(&self, most: Option<u64>) -> io::Result<()>;

    /// Makes the copy the one to go on with, of this age in this life of the register; returns what was
    /// before, in words.
    ///
    /// # Errors
    /// What the file system says.
    fn adopt(&self, age: Age, incarnation: Incarnation) -> io::Result<String>;

    /// Puts the copy aside, whatever it is; returns what it was, in words.
    ///
    /// # Errors
    /// What the file system says.
    fn discard(&self) -> io::Result<String>;

    /// Puts a copy that was set aside in the place of what there is; returns what that was, in words.
    ///
    /// # Errors
    /// If there is no such copy, or what the file system says.
    fn restore(&self, name: &str) -> io::Result<String>;

    /// The copies that were put aside.
    ///
    /// # Errors
    /// What the file system says.
    fn saved_copies(&self) -> io::Result<Vec<SavedCopy>>;

    /// What the queues of the journal were declared as is this text from now on.
    ///
    /// # Errors
    /// What the file system says.
    fn declare(&self, text: &str) -> io::Result<()>;

    /// Opens the journal in it, or makes one. What the disk does meanwhile is counted.
    ///
    /// # Errors
    /// What is wrong with it.
    fn open(&self, yard: &Yard, name: &str, pulse: &Pulse) -> Result<Opened, Unopened>;
}

/// Whether something has failed for want of room alone: others have no less of it, and there may be
/// some later.
pub(crate) fn wants_room(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Why a journal is not open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unopened {
    pub(crate) reason: String,
    /// The disk has no room, and may have some later.
    pub(crate) no_room: bool,
}

impl Unopened {
    /// For what the file system says.
    pub(crate) fn io(error: &io::Error, reason: String) -> Self {
        Self { reason, no_room: wants_room(error) }
    }

    /// For another reason.
    pub(crate) fn because(reason: impl fmt::Display) -> Self {
        Self { reason: reason.to_string(), no_room: false }
    }
}

/// A journal that was opened.
pub(crate) type Opened = (Box<dyn Store>, Recovery, Arc<Ear>);

/// A journal that is open; see [`Journal`].
pub(crate) trait Store: fmt::Debug + Send + Sync + 'static {
    /// Hands operations over, in order. Never blocks.
    fn submit(&self, ops: Vec<Op>) -> Lsn;

    /// Asks for everything handed over so far to be synced at once.
    fn hasten(&self);

    /// Reads payloads. Blocks.
    fn read(&self, stream: StreamId, seqs: &[Seq], out: &mut Vec<Result<Bytes, ReadError>>);

    /// Makes everything durable and ends. Blocks.
    ///
    /// # Errors
    /// What the file system says.
    fn close(self: Box<Self>) -> io::Result<()>;
}

impl Store for Journal {
    fn submit(&self, ops: Vec<Op>) -> Lsn {
        Journal::submit(self, ops)
    }

    fn hasten(&self) {
        Journal::hasten(self);
    }

    fn read(&self, stream: StreamId, seqs: &[Seq], out: &mut Vec<Result<Bytes, ReadError>>) {
        Journal::read(self, stream, seqs, out);
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        Journal::close(*self)
    }
}

/// The folders in the data directory of this node.
#[derive(Debug)]
pub(crate) struct DataDir(pub(crate) PathBuf);

impl Works for DataDir {
    fn folder(&self, name: &str, journal: JournalUid) -> io::Result<(Arc<dyn Shelf>, Found)> {
        let folder = Folder::open(&self.0, name, journal)?;
        let found = folder.look()?;
        Ok((Arc::new(folder), found))
    }
}

impl Shelf for Folder {
    fn look(&self) -> io::Result<Found> {
        Folder::look(self)
    }

    fn set_sequence(&self, to: Age, forced: bool) -> io::Result<String> {
        Folder::set_sequence(self, to, forced)
    }

    fn write(&self, record: &Record) -> io::Result<()> {
        Folder::write(self, record)
    }

    fn set_aside(&self, known: &Record) -> io::Result<()> {
        Folder::set_aside(self, known)
    }

    fn prune(&self, most: Option<u64>) -> io::Result<()> {
        Folder::prune(self, most)
    }

    fn adopt(&self, age: Age, incarnation: Incarnation) -> io::Result<String> {
        Folder::adopt(self, age, incarnation)
    }

    fn discard(&self) -> io::Result<String> {
        Folder::discard(self)
    }

    fn restore(&self, name: &str) -> io::Result<String> {
        Folder::restore(self, name)
    }

    fn saved_copies(&self) -> io::Result<Vec<SavedCopy>> {
        Folder::saved_copies(self)
    }

    fn declare(&self, text: &str) -> io::Result<()> {
        Folder::declare(self, text)
    }

    fn open(&self, yard: &Yard, name: &str, pulse: &Pulse) -> Result<Opened, Unopened> {
        let (journal, recovery, ear) = stage::open_journal(yard, name, self.data(), pulse)?;
        Ok((Box::new(journal), recovery, ear))
    }
}
