//! A shard's inbox: what connections, timers and other shards want of the queues that it owns.
//!
//! Posting never waits. What bounds it is that every poster bounds itself: a connection by the
//! bytes that it has in flight ([`crate::origin::InFlight`]), a consumer by its window, a caller by
//! the answer that it waits for.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::shard::command::Batch;

/// See the module head.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    waiting: Mutex<Waiting>,
    woken: AtomicBool,
    notify: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    batches: Vec<Batch>,
    /// The shard has stopped.
    closed: bool,
}

impl Inbox {
    /// Adds a batch. Once the shard has stopped it is dropped, and who waits for an answer hears
    /// that there is none.
    pub(crate) fn post(&self, batch: Batch) {
        let first = {
            let mut waiting = self.waiting.lock().expect("no poster panics");
            if waiting.closed {
                drop(waiting);
                return;
            }
            waiting.batches.push(batch);
            waiting.batches.len() == 1
        };
        if first {
            self.wake();
        }
    }

    /// Makes the shard look around: something that it watches has changed.
    pub(crate) fn wake(&self) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.notify.notify_one();
        }
    }

    /// Waits until there may be something to do.
    pub(crate) async fn woken(&self) {
        self.notify.notified().await;
    }

    /// Takes everything that waits.
    pub(crate) fn take(&self, into: &mut Vec<Batch>) {
        self.woken.store(false, Ordering::Release);
        let mut waiting = self.waiting.lock().expect("no poster panics");
        std::mem::swap(&mut waiting.batches, into);
    }

    /// Drops what waits, and from now on what is posted.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting.lock().expect("no poster panics");
        waiting.closed = true;
        let rest = std::mem::take(&mut waiting.batches);
        drop(waiting);
        drop(rest);
    }
}
