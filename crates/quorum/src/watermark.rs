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

/// The journal's durable watermarks, with those who wait for them.
///
/// There are two, since vital puts go past bulk puts that wait for room on a full disk: up to one
/// everything is durable, up to the other everything but such bulk puts. The second is never
/// behind the first.
#[derive(Default)]
pub struct Watermark {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    durable: Line,
    vital: Line,
    /// Why nothing becomes durable any more.
    failed: Option<String>,
    /// Breaks ties, so that calls of one operation come in the order in which they were given.
    next: u64,
}

/// One watermark.
#[derive(Default)]
struct Line {
    at: Lsn,
    waiting: BinaryHeap<Waiting>,
}

impl Line {
    fn advance(&mut self, lsn: Lsn, due: &mut Vec<Waiting>) {
        self.at = self.at.max(lsn);
        while self.waiting.peek().is_some_and(|first| first.lsn <= self.at) {
            due.extend(self.waiting.pop());
        }
    }
}

/// Which watermark is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// Everything.
    Durable,
    /// Everything but bulk puts that wait for room.
    Vital,
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
            .field("durable", &state.durable.at)
            .field("vital", &state.vital.at)
            .field("failed", &state.failed)
            .finish_non_exhaustive()
    }
}

impl Watermark {
    /// Everything up to here is durable.
    pub fn durable(&self) -> Lsn {
        self.state.lock().durable.at
    }

    /// Everything up to `lsn` is durable. Calls are made before this returns, in order.
    pub fn advance(&self, lsn: Lsn) {
        let mut due = Vec::new();
        let mut state = self.state.lock();
        state.vital.advance(lsn, &mut due);
        state.durable.advance(lsn, &mut due);
        drop(state);
        for waiting in due {
            (waiting.call)(Ok(()));
        }
    }

    /// Everything up to `lsn` is durable but bulk puts that wait for room.
    pub fn advance_vital(&self, lsn: Lsn) {
        let mut due = Vec::new();
        self.state.lock().vital.advance(lsn, &mut due);
        for waiting in due {
            (waiting.call)(Ok(()));
        }
    }

    /// Nothing becomes durable any more; whoever waits now or later is told so.
    pub fn fail(&self, error: &io::Error) {
        let mut state = self.state.lock();
        state.failed = Some(error.to_string());
        let mut waiting = std::mem::take(&mut state.vital.waiting).into_vec();
        waiting.extend(std::mem::take(&mut state.durable.waiting));
        drop(state);
        for waiting in waiting {
            (waiting.call)(Err(io::Error::other(error.to_string())));
        }
    }

    /// Calls once `lsn` is reached, which may be at once.
    pub(crate) fn when(
        &self,
        until: Until,
        lsn: Lsn,
        call: impl FnOnce(io::Result<()>) + Send + 'static,
    ) {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        let failed = state.failed.clone();
        let line = match until {
            Until::Durable => &mut state.durable,
            Until::Vital => &mut state.vital,
        };
        if lsn <= line.at {
            drop(state);
            return call(Ok(()));
        }
        if let Some(reason) = failed {
            drop(state);
            return call(Err(io::Error::other(reason)));
        }
        line.waiting.push(Waiting { lsn, number, call: Box::new(call) });
    }

    /// Waits until `lsn` is reached.
    pub(crate) async fn reached(&self, until: Until, lsn: Lsn) -> io::Result<()> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        // Nobody to tell: the group was stopped meanwhile.
        self.when(until, lsn, move |result| drop(sender.send(result)));
        receiver.await.unwrap_or_else(|_| Err(io::Error::other("the journal is gone")))
    }
}

/// For a journal whose only user is a host; others forward from their own listener.
impl Listener for Watermark {
    fn durable(&self, lsn: Lsn) {
        self.advance(lsn);
    }

    fn vital(&self, lsn: Lsn) {
        self.advance_vital(lsn);
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
            watermark.when(Until::Durable, Lsn(lsn), move |result| {
                heard.lock().push((name, result.is_ok()));
            });
        };
        wait(2, 1);
        wait(1, 2);
        wait(2, 3);
        wait(5, 4);
        watermark.advance(Lsn(2));
        assert_eq!(*heard.lock(), [(2, true), (1, true), (3, true)]);
        wait(2, 5);
        assert_eq!(heard.lock().last(), Some(&(5, true)));
        let vital = Arc::clone(&heard);
        watermark.when(Until::Vital, Lsn(4), move |result| vital.lock().push((8, result.is_ok())));
        watermark.advance_vital(Lsn(6));
        assert_eq!(heard.lock().last(), Some(&(8, true)));
        watermark.fail(&io::Error::other("broken"));
        wait(6, 6);
        wait(1, 7);
        assert_eq!(heard.lock()[5..], [(4, false), (6, false), (7, true)]);
    }
}
