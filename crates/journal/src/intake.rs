//! What waits for the writer, and the waking of it.

use crate::keeper::Done;
use crate::op::{Lsn, Op};
use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Shared by all who hand over and the writer.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    waiting: Mutex<Waiting>,
    wake: Condvar,
}

/// Everything that the writer has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) lists: Vec<Vec<Op>>,
    pub(crate) answers: Vec<Done>,
    /// Operations handed over, ever.
    pub(crate) handed: u64,
    /// Payload bytes handed over and not written yet.
    pub(crate) bytes: usize,
    /// Something waits that should be taken at once.
    pub(crate) urgent: bool,
    /// Somebody asked for a sync.
    pub(crate) hasten: bool,
    /// When the first of what is not urgent came.
    pub(crate) lazy_since: Option<Instant>,
    pub(crate) end: End,
    /// Nothing is taken any more: the writer has failed or ended.
    pub(crate) over: bool,
}

/// Whether and how the writer should end.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    #[default]
    No,
    /// After everything is durable.
    Close,
    /// At once, as if the process had been killed.
    Abandon,
}

impl Intake {
    /// Adds operations.
    pub(crate) fn submit(&self, ops: Vec<Op>) -> Lsn {
        let (mut urgent, mut bytes) = (false, 0);
        for op in &ops {
            urgent |= op.is_urgent();
            if let Op::Put { payload, .. } = op {
                let length = payload.len();
                assert!(length < Op::PAYLOAD_MAX, "payload of {length} bytes is too large");
                bytes += length;
            }
        }
        let mut waiting = self.waiting.lock();
        waiting.handed += ops.len() as u64;
        let lsn = Lsn(waiting.handed);
        if ops.is_empty() || waiting.over {
            return lsn;
        }
        waiting.lists.push(ops);
        waiting.bytes += bytes;
        // Whoever sleeps was told what there was before; only news wakes.
        let news = if urgent {
            !std::mem::replace(&mut waiting.urgent, true)
        } else if waiting.lazy_since.is_none() {
            waiting.lazy_since = Some(Instant::now());
            true
        } else {
            false
        };
        drop(waiting);
        if news {
            self.wake.notify_one();
        }
        lsn
    }

    pub(crate) fn answer(&self, done: Done) {
        self.waiting.lock().answers.push(done);
        self.wake.notify_one();
    }

    pub(crate) fn hasten(&self) {
        let mut waiting = self.waiting.lock();
        waiting.hasten = true;
        waiting.urgent = true;
        drop(waiting);
        self.wake.notify_one();
    }

    /// Makes the writer look at once, without asking for a sync.
    pub(crate) fn nudge(&self) {
        self.waiting.lock().urgent = true;
        self.wake.notify_one();
    }

    pub(crate) fn end(&self, end: End) {
        self.waiting.lock().end = end;
        self.wake.notify_one();
    }

    /// Payload bytes and operations that wait; the latter in all, ever.
    pub(crate) fn load(&self) -> (usize, u64) {
        let waiting = self.waiting.lock();
        (waiting.bytes, waiting.handed)
    }

    pub(crate) fn taken(&self, bytes: usize) {
        self.waiting.lock().bytes -= bytes;
    }

    /// Nothing is taken from now on.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.over = true;
        waiting.lists.clear();
        waiting.answers.clear();
    }

    /// Waits for something to do, at most until `deadline`, and gives it out through `take`.
    pub(crate) fn take<T>(
        &self,
        deadline: Option<Instant>,
        write_delay: Duration,
        take: impl FnOnce(&mut Waiting) -> T,
    ) -> T {
        let mut waiting = self.waiting.lock();
        loop {
            if waiting.urgent || !waiting.answers.is_empty() || waiting.end != End::No {
                break;
            }
            let lazy = waiting.lazy_since.map(|since| since + write_delay);
            let until = [deadline, lazy].into_iter().flatten().min();
            match until {
                Some(until) if until <= Instant::now() => break,
                Some(until) => {
                    let _timed_out = self.wake.wait_until(&mut waiting, until);
                }
                None => self.wake.wait(&mut waiting),
            }
        }
        if waiting.end == End::Close && waiting.answers.is_empty() && waiting.lists.is_empty() {
            // Only the keeper's answers can come, and the time to ask again.
            let _timed_out = self.wake.wait_for(&mut waiting, Duration::from_millis(1));
        }
        waiting.urgent = false;
        waiting.lazy_since = None;
        take(&mut waiting)
    }
}
