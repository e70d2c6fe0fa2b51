//! Who waits for the disk: calls that are due once the journal is durable up to some operation.
//!
//! The journal's listener drives it, on the journal's writer thread; so a call must be short.

use journal::listener::Listener;
use journal::op::Lsn;
use parking_lot::Mutex;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fmt;
use std::io;

type Call = Box<dyn FnOnce(io::Result<()>) + Send>;

/// The journal's durable watermark, with those who wait for it.
#[derive(Default)]
pub struct Watermark {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    durable: Lsn,
    /// Why nothing becomes durable any more.
    failed: Option<String>,
    waiting: BinaryHeap<Waiting>,
    /// Breaks ties, so that calls of one operation come in the order in which they were given.
    next: u64,
}

struct Waiting {
    lsn: Lsn,
    number: u64,
    call: Call,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    /// The earliest is the greatest, since the heap gives the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.lsn, other.number).cmp(&(self.lsn, self.number))
    }
}

impl fmt::Debug for Watermark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Watermark")
            .field("durable", &state.durable)
            .field("failed", &state.failed)
            .field("waiting", &state.waiting.len())
            .finish()
    }
}

impl Watermark {
    /// Everything up to here is durable.
    pub fn durable(&self) -> Lsn {
        self.state.lock().durable
    }

    /// Everything up to `lsn` is durable. Calls are made before this returns, in order.
    pub fn advance(&self, lsn: Lsn) {
        let mut due = Vec::new();
        let mut state = self.state.lock();
        state.durable = state.durable.max(lsn);
        while state.waiting.peek().is_some_and(|first| first.lsn <= lsn) {
            due.extend(state.waiting.pop());
        }
        drop(state);
        for waiting in due {
            (waiting.call)(Ok(()));
        }
    }

    /// Nothing becomes durable any more; whoever waits now or later is told so.
    pub fn fail(&self, error: &io::Error) {
        let mut state = self.state.lock();
        state.failed = Some(error.to_string());
        let waiting = std::mem::take(&mut state.waiting).into_sorted_vec();
        drop(state);
        let fail = |waiting: Waiting| (waiting.call)(Err(io::Error::other(error.to_string())));
        waiting.into_iter().rev().for_each(fail);
    }

    /// Calls once everything up to `lsn` is durable, which may be at once.
    pub(crate) fn when(&self, lsn: Lsn, call: impl FnOnce(io::Result<()>) + Send + 'static) {
        let mut state = self.state.lock();
        if lsn <= state.durable {
            drop(state);
            return call(Ok(()));
        }
        if let Some(reason) = &state.failed {
            let error = io::Error::other(reason.clone());
            drop(state);
            return call(Err(error));
        }
        let number = state.next;
        state.next += 1;
        state.waiting.push(Waiting { lsn, number, call: Box::new(call) });
    }

    /// Waits until everything up to `lsn` is durable.
    pub(crate) async fn reached(&self, lsn: Lsn) -> io::Result<()> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        // Nobody to tell: the group was stopped meanwhile.
        self.when(lsn, move |result| drop(sender.send(result)));
        receiver.await.unwrap_or_else(|_| Err(io::Error::other("the journal is gone")))
    }
}

/// For a journal whose only user is a host; others forward from their own listener.
impl Listener for Watermark {
    fn durable(&self, lsn: Lsn) {
        self.advance(lsn);
    }

    fn full(&self, _: bool) {}

    fn failed(&self, error: &io::Error) {
        self.fail(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn calls_come_in_order_once_durable() {
        let watermark = Watermark::default();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let wait = |lsn: u64, name: u32| {
            let heard = Arc::clone(&heard);
            watermark.when(Lsn(lsn), move |result| heard.lock().push((name, result.is_ok())));
        };
        wait(2, 1);
        wait(1, 2);
        wait(2, 3);
        wait(5, 4);
        watermark.advance(Lsn(2));
        assert_eq!(*heard.lock(), [(2, true), (1, true), (3, true)]);
        wait(2, 5);
        assert_eq!(heard.lock().last(), Some(&(5, true)));
        watermark.fail(&io::Error::other("broken"));
        wait(6, 6);
        wait(1, 7);
        assert_eq!(heard.lock()[4..], [(4, false), (6, false), (7, true)]);
    }
}
