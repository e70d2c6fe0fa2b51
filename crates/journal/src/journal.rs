//! The handle that the owner holds, and the two threads behind it.

use crate::disk::{Disk, Held};
use crate::error::{OpenError, ReadError};
use crate::index::Index;
use crate::intake::{End, Intake};
use crate::keeper::{Done, Job, Keeper};
use crate::listener::Listener;
use crate::op::{Lsn, Op};
use crate::options::Options;
use crate::read;
use crate::recovery::{self, Opened, Recovery};
use crate::stats::Stats;
use crate::writer::{Step, Writer};
use bytes::Bytes;
use model::id::{Seq, StreamId};
use parking_lot::Mutex;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

/// A journal that is open: one writer thread and one thread that keeps the files.
///
/// Dropping it without [`Journal::close`] is like killing the process: what was not durable may
/// be lost, and the next opening has to scan the last segment.
pub struct Journal {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<io::Result<()>>>,
    keeper: Option<JoinHandle<()>>,
    /// Given up last.
    _lock: Box<dyn Held>,
}

/// What the threads and the handle share.
struct Shared {
    intake: Arc<Intake>,
    durable: AtomicU64,
    vital: AtomicU64,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    index: Arc<Mutex<Index>>,
    stats: Arc<Mutex<Stats>>,
    listener: Arc<dyn Listener>,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("durable", &self.durable()).finish_non_exhaustive()
    }
}

impl Journal {
    /// Opens or makes the journal of `options.dir`. Blocks while it reads the segments' indexes
    /// and the tail.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(
        options: Options,
        disk: Arc<dyn Disk>,
        listener: Arc<dyn Listener>,
    ) -> Result<(Self, Recovery), OpenError> {
        let write_delay = options.write_delay;
        let intake = Arc::new(Intake::default());
        let Opened { writer, keeper, recovery, lock, index, stats } =
            recovery::open(options, disk, &intake)?;
        let shared = Arc::new(Shared {
            intake,
            durable: AtomicU64::new(0),
            vital: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            index,
            stats,
            listener,
        });
        let (jobs, job_queue) = mpsc::channel();
        let keeper = {
            let shared = Arc::clone(&shared);
            spawn("journal-keeper", move || keep(&shared, keeper, &job_queue))
        };
        let writer = {
            let shared = Arc::clone(&shared);
            spawn("journal-writer", move || write(&shared, writer, &jobs, write_delay))
        };
        let journal = Self { shared, writer: Some(writer), keeper: Some(keeper), _lock: lock };
        Ok((journal, recovery))
    }

    /// Hands operations over; they take effect in order. Never blocks on the disk. The result
    /// names the last of them (an empty list: the last handed over before).
    ///
    /// Puts and drops are written and synced at once, together with whatever else waits by then.
    /// Releases and notes alone wait a little for company ([`Options::write_delay`],
    /// [`Options::sync_delay`]), unless [`Journal::hasten`] is called.
    ///
    /// # Panics
    /// If a payload is not smaller than [`Op::PAYLOAD_MAX`].
    pub fn submit(&self, ops: Vec<Op>) -> Lsn {
        self.shared.intake.submit(ops)
    }

    /// Everything up to here is on disk.
    pub fn durable(&self) -> Lsn {
        Lsn(self.shared.durable.load(Ordering::Acquire))
    }

    /// Everything up to here but bulk puts that wait for room is on disk. Never behind
    /// [`Journal::durable`].
    pub fn vital(&self) -> Lsn {
        Lsn(self.shared.vital.load(Ordering::Acquire))
    }

    /// Asks for everything handed over so far to be synced at once, releases and notes included.
    pub fn hasten(&self) {
        self.shared.intake.hasten();
    }

    /// Reads payloads; blocks on the disk. Appends one result per position. A record can be read
    /// once its put is durable and until it is released. Neighbours come with one read, and then
    /// share one buffer of at most 256 KiB.
    pub fn read(&self, stream: StreamId, seqs: &[Seq], out: &mut Vec<Result<Bytes, ReadError>>) {
        let effort = read::read(&self.shared.index, stream, seqs, out);
        self.shared.reads.fetch_add(effort.preads, Ordering::Relaxed);
        self.shared.read_bytes.fetch_add(effort.bytes, Ordering::Relaxed);
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        let (bytes, handed) = self.shared.intake.load();
        let index = self.shared.index.lock();
        let mut stats = *self.shared.stats.lock();
        stats.live_bytes = index.live_bytes();
        stats.live_records = index.live_records;
        stats.index_bytes = index.heap_bytes() as u64;
        stats.quarantined = index.quarantined;
        drop(index);
        stats.pending_bytes = bytes as u64;
        stats.pending_ops = handed - self.durable().0.min(handed);
        stats.reads = self.shared.reads.load(Ordering::Relaxed);
        stats.read_bytes = self.shared.read_bytes.load(Ordering::Relaxed);
        stats
    }

    /// Waits until everything handed over is durable, seals the journal and gives up the lock.
    ///
    /// # Errors
    /// If writing has failed, now or before, or puts wait because the disk is full: `StorageFull`
    /// then, everything else is durable, and nobody is told of a failure.
    pub fn close(mut self) -> io::Result<()> {
        self.end(End::Close)
    }

    fn end(&mut self, end: End) -> io::Result<()> {
        self.shared.intake.end(end);
        let mut result = Ok(());
        if let Some(writer) = self.writer.take() {
            result = writer.join().unwrap_or_else(|_| Err(panicked("writer")));
        }
        if let Some(keeper) = self.keeper.take()
            && keeper.join().is_err()
        {
            result = Err(panicked("keeper"));
        }
        result
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // After a close there is nothing left to end, and nobody to tell of a failure otherwise.
        drop(self.end(End::Abandon));
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    std::thread::Builder::new().name(name.into()).spawn(body).expect("a thread can be started")
}

fn panicked(who: &str) -> io::Error {
    io::Error::other(format!("the journal's {who} panicked"))
}

fn keep(shared: &Shared, mut keeper: Keeper, jobs: &mpsc::Receiver<Job>) {
    while let Ok(job) = jobs.recv() {
        // A fault of ours must end the journal aloud, not leave it waiting for an answer.
        let done = catch_unwind(AssertUnwindSafe(|| keeper.run(job)));
        let done = done.unwrap_or_else(|_| {
            keeper.failed = true;
            Done::Failed(panicked("keeper"))
        });
        shared.intake.answer(done);
    }
}

fn write(
    shared: &Shared,
    mut writer: Writer,
    jobs: &mpsc::Sender<Job>,
    write_delay: std::time::Duration,
) -> io::Result<()> {
    let body = AssertUnwindSafe(|| write_until_end(shared, &mut writer, jobs, write_delay));
    let result = catch_unwind(body).unwrap_or_else(|_| Err(panicked("writer")));
    shared.intake.close();
    match result {
        Ok(Ended::InOrder) => Ok(()),
        // Whoever closes it learns so. Nothing has failed, and everybody else's disk is as good as before.
        Ok(Ended::WithoutRoom) => {
            Err(io::Error::new(io::ErrorKind::StorageFull, "puts wait for room on disk"))
        }
        Err(error) => {
            shared.stats.lock().failed = true;
            shared.listener.failed(&error);
            Err(error)
        }
    }
}

/// How the writer has ended, if nothing has failed.
enum Ended {
    /// Sealed, or given up.
    InOrder,
    /// Puts were handed over for which there was no room; they are gone.
    WithoutRoom,
}

fn write_until_end(
    shared: &Shared,
    writer: &mut Writer,
    jobs: &mpsc::Sender<Job>,
    write_delay: std::time::Duration,
) -> io::Result<Ended> {
    let origin = Instant::now();
    let (mut lists, mut answers) = (Vec::new(), Vec::new());
    let mut deadline = Some(origin);
    loop {
        let (hasten, end) = shared.intake.take(deadline, write_delay, |waiting| {
            std::mem::swap(&mut waiting.lists, &mut lists);
            std::mem::swap(&mut waiting.answers, &mut answers);
            (std::mem::take(&mut waiting.hasten), waiting.end)
        });
        match end {
            End::No => {}
            End::Close => writer.close(),
            End::Abandon => return Ok(Ended::InOrder),
        }
        let step = writer.step(origin.elapsed(), &mut lists, &mut answers, hasten)?;
        deadline = step.wake_at.map(|at| origin + at);
        let is_over = end == End::Close && step.idle;
        let is_stuck = end == End::Close && writer.is_stuck();
        perform(shared, step, jobs);
        if is_stuck {
            return Ok(Ended::WithoutRoom);
        }
        if is_over {
            return writer.finish().map(|()| Ended::InOrder);
        }
    }
}

fn perform(shared: &Shared, step: Step, jobs: &mpsc::Sender<Job>) {
    if step.taken_bytes > 0 {
        shared.intake.taken(step.taken_bytes);
    }
    for job in step.jobs {
        // The keeper ends after the writer; if it panicked, closing reports it.
        if jobs.send(job).is_err() {
            break;
        }
    }
    if let Some(lsn) = step.vital {
        shared.vital.store(lsn.0, Ordering::Release);
        shared.listener.vital(lsn);
    }
    if let Some(lsn) = step.durable {
        shared.durable.store(lsn.0, Ordering::Release);
        shared.listener.durable(lsn);
    }
    if let Some(full) = step.full {
        shared.listener.full(full);
    }
}
