//! Where the broker puts events for a connection.
//!
//! Posting never waits: the bound is kept by the senders, since a queue has only so many messages
//! on the way to a consumer, and a publish gets one answer.

use crate::request::Event;
use crate::server::ConnectionStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::sync::oneshot;

/// A handle; clones are the same mailbox.
#[derive(Debug, Clone, Default)]
pub struct Mailbox(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    events: Vec<Event>,
    questions: Vec<oneshot::Sender<ConnectionStatus>>,
    waker: Option<Waker>,
    /// The connection has ended: what is posted is dropped.
    closed: bool,
}

impl Mailbox {
    /// An empty mailbox.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds events, in order, and leaves `events` empty. Wakes the connection.
    pub fn post(&self, events: &mut Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let mut inner = self.lock();
        if inner.closed {
            events.clear();
        } else if inner.events.is_empty() {
            // the emptied list of the mailbox goes back to the sender, so both keep their room
            std::mem::swap(&mut inner.events, events);
        } else {
            inner.events.append(events);
        }
        Self::wake(inner);
    }

    /// Adds one event, and wakes the connection.
    pub fn post_one(&self, event: Event) {
        let mut inner = self.lock();
        if !inner.closed {
            inner.events.push(event);
        }
        Self::wake(inner);
    }

    /// Asks the connection for a snapshot of itself. An error comes back if it ends before.
    pub fn ask_status(&self) -> oneshot::Receiver<ConnectionStatus> {
        let (sender, receiver) = oneshot::channel();
        let mut inner = self.lock();
        if !inner.closed {
            inner.questions.push(sender);
        }
        Self::wake(inner);
        receiver
    }

    /// Waits for events and takes all that are there.
    pub async fn next(&self) -> Vec<Event> {
        let (mut events, mut questions) = (Vec::new(), Vec::new());
        std::future::poll_fn(|context| self.poll_take(context, &mut events, &mut questions)).await;
        events
    }

    /// Swaps what is there into the emptied `events` and `questions`; if there is nothing,
    /// registers for waking.
    pub(crate) fn poll_take(
        &self,
        context: &mut Context<'_>,
        events: &mut Vec<Event>,
        questions: &mut Vec<oneshot::Sender<ConnectionStatus>>,
    ) -> Poll<()> {
        debug_assert!(events.is_empty() && questions.is_empty(), "taken before all was done");
        let mut inner = self.lock();
        if inner.events.is_empty() && inner.questions.is_empty() {
            match &mut inner.waker {
                Some(waker) => waker.clone_from(context.waker()),
                None => inner.waker = Some(context.waker().clone()),
            }
            return Poll::Pending;
        }
        std::mem::swap(&mut inner.events, events);
        std::mem::swap(&mut inner.questions, questions);
        Poll::Ready(())
    }

    /// As `poll_take` of the events, without waiting.
    pub(crate) fn take_events(&self, events: &mut Vec<Event>) {
        debug_assert!(events.is_empty(), "taken before all was done");
        std::mem::swap(&mut self.lock().events, events);
    }

    /// From now on, what is posted is dropped.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        inner.events = Vec::new();
        inner.questions = Vec::new();
        inner.waker = None;
    }

    fn wake(mut inner: MutexGuard<'_, Inner>) {
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // nothing panics while it is held
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
