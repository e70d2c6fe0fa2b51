//! What waits to be written on one connection, and who waits for an answer from it.

use crate::frame::{Frame, Kind, PART, PAYLOAD_MAX};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tokio::sync::{Notify, oneshot};

#[cfg(test)]
mod tests;

/// Why something was not taken to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// The peer is not up.
    #[error("not connected")]
    NotConnected,
    /// As much waits already as may: wait for [`room`](crate::links::Links::room).
    #[error("the queue to the peer is full")]
    Full,
    /// It is longer than [`PAYLOAD_MAX`].
    #[error("payload of {0} bytes exceeds the maximum of {PAYLOAD_MAX}")]
    TooLarge(usize),
}

/// The answer to a request, or that there will be none.
pub(crate) type Outcome = Result<Bytes, Unanswered>;

/// The other side has dropped the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unanswered;

/// Filled from anywhere, emptied by the task that owns the connection. Once closed it takes nothing
/// and holds nothing.
#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    /// Wakes the task that writes.
    wake: Arc<Notify>,
    /// Wakes those who wait for room.
    room: Notify,
    bytes_max: usize,
}

#[derive(Debug)]
struct State {
    open: bool,
    frames: VecDeque<Frame>,
    /// Bytes of frames that are not on their way yet, also of those that were taken to be written.
    bytes: usize,
    /// The writer was woken and has not looked yet.
    woken: bool,
    waiting: BTreeMap<u64, oneshot::Sender<Outcome>>,
    correlation: u64,
}

impl Outbox {
    /// `bytes_max`: it takes messages and requests while less than that waits.
    pub(crate) fn new(wake: Arc<Notify>, bytes_max: usize) -> Self {
        let state = State {
            open: true,
            frames: VecDeque::new(),
            bytes: 0,
            woken: false,
            waiting: BTreeMap::new(),
            correlation: 0,
        };
        Self { state: Mutex::new(state), wake, room: Notify::new(), bytes_max }
    }

    /// Takes a message.
    pub(crate) fn message(&self, channel: u8, payload: Bytes) -> Result<(), NotSent> {
        let mut state = self.state.lock();
        self.admits(&state, &payload)?;
        self.push(&mut state, Frame { kind: Kind::Message, channel, correlation: 0, payload });
        Ok(())
    }

    /// Takes a message, however much waits: whoever has it sent bounds that.
    pub(crate) fn bounded_message(&self, channel: u8, payload: Bytes) -> Result<(), NotSent> {
        let mut state = self.state.lock();
        match self.admits(&state, &payload) {
            Ok(()) | Err(NotSent::Full) => {}
            Err(other) => return Err(other),
        }
        self.push(&mut state, Frame { kind: Kind::Message, channel, correlation: 0, payload });
        Ok(())
    }

    /// Takes a request. The receiver hears the answer; it errs once the connection is lost.
    pub(crate) fn request(
        &self,
        channel: u8,
        payload: Bytes,
    ) -> Result<(u64, oneshot::Receiver<Outcome>), NotSent> {
        let mut state = self.state.lock();
        self.admits(&state, &payload)?;
        state.correlation += 1;
        let correlation = state.correlation;
        let (sender, receiver) = oneshot::channel();
        state.waiting.insert(correlation, sender);
        self.push(&mut state, Frame { kind: Kind::Request, channel, correlation, payload });
        Ok((correlation, receiver))
    }

    /// Nobody waits any more for the answer to this request.
    pub(crate) fn forget(&self, correlation: u64) {
        self.state.lock().waiting.remove(&correlation);
    }

    /// An answer has come.
    pub(crate) fn answered(&self, correlation: u64, outcome: Outcome) {
        let waiting = self.state.lock().waiting.remove(&correlation);
        if let Some(waiting) = waiting {
            // Who does not listen any more has given up in this moment.
            let _gone = waiting.send(outcome).is_err();
        }
    }

    /// Takes an answer, however much waits: it was asked for. When too much waits, the requests of
    /// the other are no longer read (see [`is_full`](Self::is_full)).
    pub(crate) fn answer(&self, correlation: u64, answer: Option<Bytes>) {
        let (kind, payload) = match answer {
            Some(payload) if payload.len() <= PAYLOAD_MAX => (Kind::Answer, payload),
            Some(payload) => {
                tracing::error!(bytes = payload.len(), "an answer is too large to be sent");
                (Kind::Dropped, Bytes::new())
            }
            None => (Kind::Dropped, Bytes::new()),
        };
        let mut state = self.state.lock();
        if state.open {
            self.push(&mut state, Frame { kind, channel: 0, correlation, payload });
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.state.lock().bytes >= self.bytes_max
    }

    /// Moves all that waits behind what is in `into`.
    pub(crate) fn take(&self, into: &mut VecDeque<Frame>) {
        let mut state = self.state.lock();
        state.woken = false;
        if into.is_empty() {
            std::mem::swap(into, &mut state.frames);
        } else {
            into.append(&mut state.frames);
        }
    }

    /// Frames of that many bytes have been written.
    pub(crate) fn written(&self, bytes: usize) {
        let mut state = self.state.lock();
        let was_full = state.bytes >= self.bytes_max;
        state.bytes = state.bytes.saturating_sub(bytes);
        if was_full && state.bytes < self.bytes_max {
            drop(state);
            self.room.notify_waiters();
        }
    }

    /// Waits until there is room, or it is closed.
    pub(crate) async fn room(&self) {
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            // Registered before looking, so that room made in between is not missed.
            room.as_mut().enable();
            {
                let state = self.state.lock();
                if !state.open || state.bytes < self.bytes_max {
                    return;
                }
            }
            room.await;
        }
    }

    /// The connection is lost: whoever waits hears it now.
    pub(crate) fn close(&self) {
        let (frames, waiting);
        {
            let mut state = self.state.lock();
            state.open = false;
            state.bytes = 0;
            frames = std::mem::take(&mut state.frames);
            waiting = std::mem::take(&mut state.waiting);
        }
        drop((frames, waiting));
        self.room.notify_waiters();
    }

    fn admits(&self, state: &State, payload: &Bytes) -> Result<(), NotSent> {
        if !state.open {
            Err(NotSent::NotConnected)
        } else if payload.len() > PAYLOAD_MAX {
            Err(NotSent::TooLarge(payload.len()))
        } else if state.bytes >= self.bytes_max {
            Err(NotSent::Full)
        } else {
            Ok(())
        }
    }

    /// Puts a frame behind all that waits, its payload in parts if it is large.
    fn push(&self, state: &mut State, mut frame: Frame) {
        while frame.payload.len() > PART {
            let payload = frame.payload.split_to(PART);
            let part = Frame { kind: Kind::Part, payload, ..frame.clone() };
            state.bytes += part.len();
            state.frames.push_back(part);
        }
        state.bytes += frame.len();
        state.frames.push_back(frame);
        if !state.woken {
            state.woken = true;
            self.wake.notify_one();
        }
    }
}
