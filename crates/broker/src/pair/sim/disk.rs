//! The disk of a node: the journal's own machine on a disk in memory, which loses what was not synced
//! when the power fails, and may refuse a write.
//!
//! ```text
//!  submit ─► waits for the writer, which takes as long as the drive is slow ─► durable, or never
//! ```

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use activation::age::Age;
use activation::file::{self, JournalUid};
use activation::register::Incarnation;
use activation::standing::{Record, Standing};
use bytes::{Bytes, BytesMut};
use journal::disk::{Disk as _, Lock};
use journal::error::ReadError;
use journal::inline::InlineJournal;
use journal::listener::Listener as _;
use journal::op::{Lsn, Op, Payload};
use journal::options::Options;
use journal::recovery::Recovery;
use journal::sim::SimDisk;
use journal::whole;
use management::view::copy::SavedCopy;
use model::id::{NodeId, Seq, StreamId};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::book::{self, Name};
use super::world::World;
use crate::pair::aside;
use crate::pair::ear::Ear;
use crate::pair::folder::{DECLARATIONS, Found, STATE};
use crate::pair::pulse::Pulse;
use crate::pair::stage::{self, Yard};
use crate::pair::works::{Opened, Shelf, Store, Unopened, Works};
use crate::replicated::sim::rng::Rng;

/// How often a journal that is closed may go on.
const STEPS: u32 = 1000;

/// A node's drive, over all its starts.
pub(super) struct Drive {
    pub(super) node: NodeId,
    pub(super) disk: SimDisk,
    pace: Mutex<(Rng, Speed)>,
}

/// A sync takes from so many milliseconds to so many.
#[derive(Debug, Clone, Copy)]
pub(super) struct Speed {
    pub(super) least: u64,
    pub(super) most: u64,
}

impl fmt::Debug for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drive").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Drive {
    pub(super) fn new(node: NodeId, mut rng: Rng, speed: Speed) -> Arc<Self> {
        let disk = SimDisk::new(rng.next());
        Arc::new(Self { node, disk, pace: Mutex::new((rng, speed)) })
    }

    pub(super) fn set_speed(&self, speed: Speed) {
        self.pace.lock().1 = speed;
    }

    fn sync_time(&self) -> Duration {
        let (rng, speed) = &mut *self.pace.lock();
        rng.millis(speed.least, speed.most)
    }
}

/// The drive as one start of the node has it.
#[derive(Debug)]
pub(super) struct Bay {
    pub(super) drive: Arc<Drive>,
    pub(super) world: Weak<World>,
}

impl Works for Bay {
    fn folder(&self, name: &str, journal: JournalUid) -> io::Result<(Arc<dyn Shelf>, Found)> {
        let disk = &self.drive.disk;
        let path = Path::new("/journals").join(name);
        disk.create_dir(&path)?;
        let Lock::Held(lock) = disk.lock(&whole::lock_file(&path))? else {
            return Err(io::Error::other("the folder has a driver already"));
        };
        let folder = Folder {
            bay: Self { drive: Arc::clone(&self.drive), world: Weak::clone(&self.world) },
            journal,
            path,
            open: Mutex::default(),
            _lock: lock,
        };
        let found = folder.look()?;
        Ok((Arc::new(folder), found))
    }
}

#[derive(Debug)]
struct Folder {
    bay: Bay,
    journal: JournalUid,
    path: PathBuf,
    /// The journal in it that was opened last.
    open: Mutex<Weak<Shared>>,
    _lock: Box<dyn journal::disk::Held>,
}

impl Folder {
    fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    fn is_vacant(&self) -> io::Result<bool> {
        let disk = &self.bay.drive.disk;
        match disk.list(&self.data()) {
            Ok(names) if names.is_empty() => Ok(true),
            Ok(_) => Ok(journal::inspect::inspect(disk, &self.data(), false)
                .is_ok_and(|found| found.report.records == 0)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Nobody may touch a copy that is open.
    fn is_free(&self, what: &str) {
        let (world, node) = (self.bay.world.upgrade(), self.bay.drive.node);
        let open = self.open.lock().upgrade();
        if open.is_some_and(|open| open.journal.lock().is_some())
            && let Some(world) = world
        {
            world.fail(format!("{what} on node {node} while it is open"));
        }
    }
}

impl Shelf for Folder {
    fn look(&self) -> io::Result<Found> {
        let disk = &self.bay.drive.disk;
        let (record, damage) = match whole::open(disk, &self.path, STATE)? {
            None => (Record::NONE, None),
            Some(bytes) => match file::decode(self.journal, &bytes) {
                Ok(record) => (record, None),
                Err(error) => (Record::NONE, Some(error.to_string())),
            },
        };
        let vacant = self.is_vacant()?;
        if let Some(world) = self.bay.world.upgrade() {
            if let Some(damage) = &damage {
                world.fail(format!("the state file of {}: {damage}", self.bay.drive.node));
            }
            world.on_record(self.bay.drive.node, &record);
        }
        Ok(Found { record, damage, vacant, saved: Vec::new() })
    }

    fn set_sequence(&self, to: Age, _: bool) -> io::Result<String> {
        let record = self.look()?.record;
        self.write(&Record { standing: Standing::Valid(to), ..record })?;
        Ok(record.standing.to_string())
    }

    fn write(&self, record: &Record) -> io::Result<()> {
        let bytes = file::encode(self.journal, record);
        whole::replace(&self.bay.drive.disk, &self.path, STATE, &bytes)?;
        if let Some(world) = self.bay.world.upgrade() {
            world.on_record(self.bay.drive.node, record);
        }
        Ok(())
    }

    fn set_aside(&self, known: &Record) -> io::Result<()> {
        self.is_free("the copy is put aside");
        if let Some(world) = self.bay.world.upgrade() {
            world.on_discard(self.bay.drive.node, known, self.is_vacant()?);
        }
        let (disk, data) = (&self.bay.drive.disk, self.data());
        let names = match disk.list(&data) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for name in names {
            disk.remove(&data.join(name))?;
        }
        disk.sync_dir(&data)
    }

    fn prune(&self, _: Option<u64>) -> io::Result<()> {
        Ok(())
    }

    fn adopt(&self, age: Age, incarnation: Incarnation) -> io::Result<String> {
        let before = self.look()?.record;
        let standing = Standing::Valid(age);
        self.write(&Record { standing, incarnation: Some(incarnation) })?;
        Ok(before.standing.to_string())
    }

    fn discard(&self) -> io::Result<String> {
        let record = self.look()?.record;
        self.write(&Record::NONE)?;
        self.set_aside(&record)?;
        Ok(record.standing.to_string())
    }

    fn restore(&self, name: &str) -> io::Result<String> {
        Err(io::Error::other(format!("no copy of the name {name} was put aside here")))
    }

    fn saved_copies(&self) -> io::Result<Vec<SavedCopy>> {
        Ok(Vec::new())
    }

    fn declare(&self, text: &str) -> io::Result<()> {
        whole::replace(&self.bay.drive.disk, &self.path, DECLARATIONS, text.as_bytes())
    }

    fn open(&self, yard: &Yard, name: &str, _: &Pulse) -> Result<Opened, Unopened> {
        self.is_free("the copy is opened");
        let ear = Arc::new(Ear::new(name, yard.failed.clone(), Arc::clone(&yard.pressure)));
        let mut options = Options::new(self.data());
        options.segment_bytes = Options::SEGMENT_BYTES_MIN;
        let (disk, drive) = (self.bay.drive.disk.clone(), Arc::clone(&self.bay.drive));
        let (journal, recovery) = InlineJournal::open(options, Arc::new(disk))
            .map_err(|error| stage::cannot_open(yard, name, &error))?;
        let names = names_of(&journal, &recovery).map_err(Unopened::because)?;
        if let Some(world) = self.bay.world.upgrade() {
            world.on_opened(drive.node, names);
        }
        let shared = Arc::new(Shared {
            world: Weak::clone(&self.bay.world),
            drive,
            journal: Mutex::new(Some(journal)),
            puts: Mutex::default(),
            told: Mutex::default(),
            work: Notify::new(),
            hasten: AtomicBool::new(false),
            over: AtomicBool::new(false),
            begin: Instant::now(),
            ear: Arc::clone(&ear),
        });
        *self.open.lock() = Arc::downgrade(&shared);
        aside::spawn(Arc::clone(&shared).run());
        Ok((Box::new(Copy { shared }), recovery, ear))
    }
}

fn names_of(journal: &InlineJournal, recovery: &Recovery) -> io::Result<BTreeSet<Name>> {
    let mut names = BTreeSet::new();
    for stream in recovery.streams() {
        let (mut seqs, mut read) = (Vec::new(), Vec::new());
        recovery.for_each_of(stream.stream, |seq, _, _| seqs.push(seq))?;
        journal.read(stream.stream, &seqs, &mut read);
        names.extend(read.iter().flatten().filter_map(|payload| book::name_in(payload)));
    }
    Ok(names)
}

/// An open journal.
#[derive(Debug)]
struct Copy {
    shared: Arc<Shared>,
}

struct Shared {
    world: Weak<World>,
    drive: Arc<Drive>,
    journal: Mutex<Option<InlineJournal>>,
    /// Messages that were handed over and are not durable.
    puts: Mutex<VecDeque<(Lsn, Name)>>,
    told: Mutex<Lsn>,
    work: Notify,
    hasten: AtomicBool,
    /// It was closed, dropped, or has failed.
    over: AtomicBool,
    begin: Instant,
    ear: Arc<Ear>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    async fn run(self: Arc<Self>) {
        loop {
            let due = self.journal.lock().as_ref().and_then(InlineJournal::wake_at);
            let due = async {
                match due {
                    Some(due) => tokio::time::sleep_until(self.begin + due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.work.notified() => {}
                () = due => {}
            }
            let time = self.drive.sync_time();
            if time > Duration::ZERO {
                tokio::time::sleep(time).await;
            }
            if self.over.load(Ordering::Acquire) {
                return;
            }
            if let Err(error) = self.step() {
                self.over.store(true, Ordering::Release);
                self.ear.failed(&error);
                return;
            }
        }
    }

    fn step(&self) -> io::Result<()> {
        let (durable, full) = {
            let mut guard = self.journal.lock();
            let Some(journal) = guard.as_mut() else { return Ok(()) };
            let now = self.begin.elapsed();
            let hasten = self.hasten.swap(false, Ordering::AcqRel);
            for _ in 0..STEPS {
                journal.step(now, hasten)?;
                let mut worked = false;
                while journal.work() {
                    worked = true;
                }
                if !worked {
                    break;
                }
            }
            (journal.durable(), journal.is_full())
        };
        self.tell(durable);
        if self.ear.is_full() != full {
            self.ear.full(full);
        }
        Ok(())
    }

    fn tell(&self, durable: Lsn) {
        {
            let mut told = self.told.lock();
            if *told >= durable {
                return;
            }
            *told = durable;
        }
        let mut names = Vec::new();
        {
            let mut puts = self.puts.lock();
            while let Some((_, name)) = puts.pop_front_if(|(at, _)| *at <= durable) {
                names.push(name);
            }
        }
        if let Some(world) = self.world.upgrade() {
            world.on_stored(self.drive.node, names);
        }
        self.ear.durable(durable);
    }
}

impl Store for Copy {
    fn submit(&self, ops: Vec<Op>) -> Lsn {
        let mut guard = self.shared.journal.lock();
        let journal = guard.as_mut().expect("it is open");
        let urgent = ops.iter().any(|op| matches!(op, Op::Put { .. } | Op::Drop { .. }));
        let before = journal.handed().0;
        {
            let mut puts = self.shared.puts.lock();
            for (at, op) in (before + 1..).zip(&ops) {
                if let Op::Put { payload, .. } = op
                    && let Some(name) = book::name_in(&bytes_of(payload))
                {
                    puts.push_back((Lsn(at), name));
                }
            }
        }
        let lsn = journal.submit(ops);
        drop(guard);
        if urgent || lsn.0 > before {
            self.shared.work.notify_one();
        }
        lsn
    }

    fn hasten(&self) {
        self.shared.hasten.store(true, Ordering::Release);
        self.shared.work.notify_one();
    }

    fn read(&self, stream: StreamId, seqs: &[Seq], out: &mut Vec<Result<Bytes, ReadError>>) {
        let guard = self.shared.journal.lock();
        guard.as_ref().expect("it is open").read(stream, seqs, out);
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        self.shared.over.store(true, Ordering::Release);
        self.shared.work.notify_one();
        let journal = self.shared.journal.lock().take();
        let Some(mut journal) = journal else { return Ok(()) };
        let now = journal.settle(self.shared.begin.elapsed(), STEPS)?;
        self.shared.tell(journal.durable());
        journal.close(now)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        self.shared.journal.lock().take();
        self.shared.work.notify_one();
    }
}

/// The bytes of a payload.
pub(super) fn bytes_of(payload: &Payload) -> Bytes {
    let message = match payload {
        Payload::Bytes(bytes) => return bytes.clone(),
        Payload::Message(message) => message,
        Payload::Shared(shared) => shared.message(),
    };
    let mut out = BytesMut::with_capacity(message.encoded_len());
    message.encode_into(&mut out);
    out.freeze()
}
