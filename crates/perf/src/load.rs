//! What the threads of one run share.

use crate::ledger::Ledger;
use crate::options::Options;
use amq_protocol::types::FieldTable;
use anyhow::Result;
use hdrhistogram::Histogram;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Options and counters of a run. Counters are updated once per batch of messages.
#[derive(Debug)]
pub struct Load {
    /// As given.
    pub options: Options,
    /// Names of the queues.
    pub queues: Vec<String>,
    /// Arguments of the queues.
    pub arguments: FieldTable,
    /// Marks this run's messages.
    pub run: u16,
    /// Threads that are set up and wait for [`Load::go`].
    pub ready: AtomicUsize,
    /// Publishers may begin.
    pub go: AtomicBool,
    /// Publishers are to end.
    pub stop_publishing: AtomicBool,
    /// Consumers are to end.
    pub stop_consuming: AtomicBool,
    /// Publishers that have ended.
    pub publishers_done: AtomicUsize,
    /// Messages written.
    pub published: AtomicU64,
    /// Messages confirmed.
    pub confirmed: AtomicU64,
    /// Messages that the broker refused or returned: nobody waits for them.
    pub refused: AtomicU64,
    /// Deliveries.
    pub consumed: AtomicU64,
    /// Different messages, with `--verify`.
    pub distinct: AtomicU64,
    /// One for each publisher, with `--verify`.
    pub ledgers: Vec<Mutex<Ledger>>,
    /// The first thing that went wrong.
    failure: Mutex<Option<String>>,
    failed: AtomicBool,
}

impl Load {
    /// A run that has not begun.
    pub fn new(options: Options, arguments: FieldTable, run: u16) -> Self {
        // without publishers of our own, those of another run are verified
        let publishers = if options.publishers == 0 { 4096 } else { options.publishers };
        let publishers = if options.verify { publishers } else { 0 };
        Self {
            queues: options.queue_names(),
            options,
            arguments,
            run,
            ready: AtomicUsize::new(0),
            go: AtomicBool::new(false),
            stop_publishing: AtomicBool::new(false),
            stop_consuming: AtomicBool::new(false),
            publishers_done: AtomicUsize::new(0),
            published: AtomicU64::new(0),
            confirmed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            consumed: AtomicU64::new(0),
            distinct: AtomicU64::new(0),
            ledgers: (0..publishers).map(|_| Mutex::new(Ledger::default())).collect(),
            failure: Mutex::new(None),
            failed: AtomicBool::new(false),
        }
    }

    /// The queue of a publisher or consumer.
    pub fn queue_of(&self, index: u16) -> &str {
        &self.queues[usize::from(index) % self.queues.len()]
    }

    /// The share of `--messages` of a publisher.
    pub fn share_of(&self, index: u16) -> Option<u64> {
        let messages = self.options.messages?;
        let publishers = u64::from(self.options.publishers);
        Some(messages / publishers + u64::from(u64::from(index) < messages % publishers))
    }

    /// Notes that a thread failed; only the first failure is kept.
    pub fn fail(&self, error: String) {
        let mut failure = self.failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        failure.get_or_insert(error);
        self.failed.store(true, Ordering::Release);
        self.stop();
    }

    /// What went wrong first.
    pub fn failure(&self) -> Option<String> {
        if !self.failed.load(Ordering::Acquire) {
            return None;
        }
        self.failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Ends every thread.
    pub fn stop(&self) {
        self.stop_publishing.store(true, Ordering::Release);
        self.stop_consuming.store(true, Ordering::Release);
    }
}

/// Times in nanoseconds, to three digits, up to ten minutes.
///
/// # Errors
/// Never with these bounds.
pub fn histogram() -> Result<Histogram<u64>> {
    let mut histogram = Histogram::new_with_bounds(1_000, 600_000_000_000, 3)?;
    histogram.auto(true);
    Ok(histogram)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::CommandLine;
    use clap::Parser;

    #[test]
    fn messages_and_queues_are_dealt_out() {
        let line = "p --publishers 3 --messages 8 --queues 2 --queue q";
        let options = CommandLine::parse_from(line.split(' ')).options;
        let load = Load::new(options, FieldTable::default(), 0);
        let shares: Vec<_> = (0..3).map(|index| load.share_of(index).unwrap()).collect();
        assert_eq!(shares, [3, 3, 2]);
        let queues: Vec<_> = (0..3).map(|index| load.queue_of(index)).collect();
        assert_eq!(queues, ["q-1", "q-2", "q-1"]);
    }
}
