//! A journal without threads, for simulations and tests: the same machine, moved by hand.

use crate::disk::{Disk, Held};
use crate::error::{OpenError, ReadError};
use crate::index::Index;
use crate::intake::Intake;
use crate::keeper::{Done, Job, Keeper};
use crate::op::{Lsn, Op};
use crate::options::Options;
use crate::read;
use crate::recovery::{self, Opened, Recovery};
use crate::stats::Stats;
use crate::writer::Writer;
use bytes::Bytes;
use model::id::{Seq, StreamId};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// See the module. Time is what the caller says.
#[derive(Debug)]
pub struct InlineJournal {
    writer: Writer,
    keeper: Keeper,
    index: Arc<Mutex<Index>>,
    stats: Arc<Mutex<Stats>>,
    lists: Vec<Vec<Op>>,
    answers: Vec<Done>,
    jobs: VecDeque<Job>,
    handed: u64,
    durable: u64,
    vital: u64,
    full: bool,
    wake_at: Option<Duration>,
    idle: bool,
    _lock: Box<dyn Held>,
}

impl InlineJournal {
    /// Opens or makes the journal of `options.dir`.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(options: Options, disk: Arc<dyn Disk>) -> Result<(Self, Recovery), OpenError> {
        let intake = Arc::new(Intake::default());
        let Opened { writer, keeper, recovery, lock, index, stats } =
            recovery::open(options, disk, &intake)?;
        let journal = Self {
            writer,
            keeper,
            index,
            stats,
            lists: Vec::new(),
            answers: Vec::new(),
            jobs: VecDeque::new(),
            handed: 0,
            durable: 0,
            vital: 0,
            full: false,
            wake_at: None,
            idle: false,
            _lock: lock,
        };
        Ok((journal, recovery))
    }

    /// Hands operations over.
    pub fn submit(&mut self, ops: Vec<Op>) -> Lsn {
        self.handed += ops.len() as u64;
        if !ops.is_empty() {
            self.lists.push(ops);
        }
        Lsn(self.handed)
    }

    /// Lets the writer take what waits, at this time.
    ///
    /// # Errors
    /// If the disk fails. Final.
    pub fn step(&mut self, now: Duration, hasten: bool) -> io::Result<()> {
        let step = self.writer.step(now, &mut self.lists, &mut self.answers, hasten)?;
        if let Some(lsn) = step.durable {
            assert!(lsn.0 > self.durable && lsn.0 <= self.handed, "the watermark only grows");
            self.durable = lsn.0;
        }
        if let Some(lsn) = step.vital {
            assert!(lsn.0 > self.vital && lsn.0 <= self.handed, "the watermark only grows");
            self.vital = lsn.0;
        }
        assert!(self.vital >= self.durable, "what is durable is so for everybody");
        self.full = step.full.unwrap_or(self.full);
        self.wake_at = step.wake_at;
        self.idle = step.idle;
        self.jobs.extend(step.jobs);
        Ok(())
    }

    /// Does one of the keeper's jobs; false if there is none.
    pub fn work(&mut self) -> bool {
        let Some(job) = self.jobs.pop_front() else { return false };
        self.answers.push(self.keeper.run(job));
        true
    }

    /// Everything up to here is on disk.
    pub fn durable(&self) -> Lsn {
        Lsn(self.durable)
    }

    /// Everything up to here but bulk puts that wait for room is on disk.
    pub fn vital(&self) -> Lsn {
        Lsn(self.vital)
    }

    /// Everything handed over.
    pub fn handed(&self) -> Lsn {
        Lsn(self.handed)
    }

    /// Whether the disk is full.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// When a step is due even if nothing is handed over.
    pub fn wake_at(&self) -> Option<Duration> {
        self.wake_at
    }

    /// Whether the last step left nothing to do.
    pub fn is_idle(&self) -> bool {
        self.idle && self.lists.is_empty() && self.answers.is_empty() && self.jobs.is_empty()
    }

    /// Reads payloads, as [`crate::journal::Journal::read`].
    pub fn read(&self, stream: StreamId, seqs: &[Seq], out: &mut Vec<Result<Bytes, ReadError>>) {
        read::read(&self.index, stream, seqs, out);
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        let index = self.index.lock();
        let mut stats = *self.stats.lock();
        stats.live_bytes = index.live_bytes();
        stats.live_records = index.live_records;
        stats.quarantined = index.quarantined;
        stats.index_bytes = index.heap_bytes() as u64;
        stats
    }

    /// Steps and works until nothing is left to do, at most `times` times; the time then. Time
    /// passes as the journal asks for it.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn settle(&mut self, mut now: Duration, times: u32) -> io::Result<Duration> {
        for _ in 0..times {
            self.step(now, true)?;
            while self.work() {}
            if self.is_idle() && self.durable == self.handed {
                break;
            }
            now += Duration::from_millis(11);
        }
        Ok(now)
    }

    /// Makes everything durable and seals the journal.
    ///
    /// # Errors
    /// If the disk fails or is full.
    pub fn close(mut self, mut now: Duration) -> io::Result<()> {
        self.writer.close();
        loop {
            self.step(now, true)?;
            while self.work() {}
            if self.is_idle() {
                return self.writer.finish();
            }
            if self.writer.is_stuck() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            now += Duration::from_millis(11);
        }
    }
}
