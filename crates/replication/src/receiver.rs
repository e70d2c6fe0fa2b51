//! The replica's side of the stream.
//!
//! ```text
//!   Waiting ── Accepted ──► Ready ── the activation has marked the copy ──► Copying
//!                                                                             │ Whole, all durable
//!                                                                             ▼
//!   Ended ◄── closed, senseless, refused ◄── InSync ◄── age written ── Persisting
//! ```
//!
//! Requests are stored in their order and answered when they are durable, in groups: one sync
//! answers everything before it. "Whole" becomes the activation's business only when everything
//! that came before it is durable, and from then on answers count at the active node.
//!
//! Numbers without gaps and positions without gaps are checked here; a gap would be a hole in the
//! copy, and ends the connection.

use activation::age::Age;
use activation::file::JournalUid;

use crate::message::{Downward, Number, Request, Upward};

/// What the receiver wants done, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Send it.
    Send(Upward),
    /// Store it, and report the number when it is durable ([`Receiver::durable`]). A sync may cover
    /// many.
    Store(Number, Request),
    /// Tell the activation that an active node accepted.
    Accepted,
    /// Tell it that this one did not.
    NotAccepted,
    /// Tell it that the copy is whole and durable ([`activation::event::Event::SyncDone`]).
    SyncDone(Age),
    /// Tell it that the active node begins to stop.
    StopCalled,
    /// Tell it that the active node has stopped.
    HandedOver,
    /// The connection is over: close it, and tell the activation that the active node is lost. Once,
    /// and the last.
    Ended(End),
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It broke.
    Closed,
    /// The active node sent what it never sends, such as a number out of turn.
    Senseless,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Registered.
    Waiting,
    /// Accepted; requests wait until the copy may be overwritten.
    Ready,
    /// The copy is received.
    Copying,
    /// "Whole" came with this number and age; what came before it is not all durable.
    Whole(Number, Age),
    /// The activation writes the age.
    Persisting,
    /// In sync.
    InSync,
    /// Over.
    Ended,
}

/// The stream from one active node, from the registration to the end.
#[derive(Debug, Clone)]
pub struct Receiver {
    phase: Phase,
    /// The last request that came.
    received: Number,
    /// The last request that is durable.
    durable: Number,
    /// The last request that was answered.
    answered: Number,
    /// The last batch that came.
    position: Option<u64>,
    /// Requests that came before the copy may be overwritten.
    early: Vec<(Number, Request)>,
}

impl Receiver {
    /// How many requests may come before the copy may be overwritten. The active node's window for
    /// the copy is far below it.
    pub const EARLY_MAX: usize = 100_000;

    /// Registers with an active node.
    pub fn new(journal: JournalUid, out: &mut Vec<Effect>) -> Self {
        out.push(Effect::Send(Upward::Register { journal }));
        Self {
            phase: Phase::Waiting,
            received: Number(0),
            durable: Number(0),
            answered: Number(0),
            position: None,
            early: Vec::new(),
        }
    }

    /// The active node has spoken.
    pub fn heard(&mut self, message: Downward, out: &mut Vec<Effect>) {
        match (message, self.phase) {
            (_, Phase::Ended) => {}
            (Downward::Accepted, Phase::Waiting) => {
                self.phase = Phase::Ready;
                out.push(Effect::Accepted);
            }
            (Downward::Refused, Phase::Waiting) => {
                self.phase = Phase::Ended;
                out.push(Effect::NotAccepted);
            }
            (Downward::Accepted | Downward::Refused, _)
            | (
                Downward::Request(..) | Downward::StopCalled | Downward::HandedOver,
                Phase::Waiting,
            ) => {
                self.end(End::Senseless, out);
            }
            (Downward::Request(number, request), _) => self.request(number, request, out),
            (Downward::StopCalled, _) => out.push(Effect::StopCalled),
            (Downward::HandedOver, _) => {
                self.phase = Phase::Ended;
                out.push(Effect::HandedOver);
            }
        }
    }

    /// The activation has written that the copy is worth nothing
    /// ([`activation::output::Output::Copy`]): from here on it is overwritten.
    pub fn copy(&mut self, out: &mut Vec<Effect>) {
        if self.phase != Phase::Ready {
            return;
        }
        self.phase = Phase::Copying;
        for (number, request) in std::mem::take(&mut self.early) {
            self.store(number, request, out);
        }
    }

    /// Everything up to a request is durable here: data, names of files, and their folders.
    ///
    /// # Panics
    /// If it never came.
    pub fn durable(&mut self, through: Number, out: &mut Vec<Effect>) {
        assert!(through <= self.received, "{through:?} is durable, {:?} came", self.received);
        if self.phase == Phase::Ended || through <= self.durable {
            return;
        }
        self.durable = through;
        self.advance(out);
    }

    /// The activation has written the age ([`activation::output::Output::SendInSync`]).
    pub fn in_sync(&mut self, out: &mut Vec<Effect>) {
        if self.phase == Phase::Persisting {
            self.phase = Phase::InSync;
            out.push(Effect::Send(Upward::InSync));
            self.advance(out);
        }
    }

    /// The connection has ended.
    pub fn closed(&mut self, out: &mut Vec<Effect>) {
        self.end(End::Closed, out);
    }

    fn request(&mut self, number: Number, request: Request, out: &mut Vec<Effect>) {
        let in_turn = number.0 == self.received.0 + 1;
        let fits = match &request {
            Request::Piece { .. } | Request::Whole { .. } => {
                matches!(self.phase, Phase::Ready | Phase::Copying)
            }
            Request::Batch { position, .. } => {
                self.position.is_none_or(|last| *position == last + 1)
            }
        };
        if !in_turn || !fits || self.early.len() >= Self::EARLY_MAX {
            return self.end(End::Senseless, out);
        }
        self.received = number;
        if let Request::Batch { position, .. } = &request {
            self.position = Some(*position);
        }
        if self.phase == Phase::Ready {
            self.early.push((number, request));
        } else {
            self.store(number, request, out);
        }
    }

    fn store(&mut self, number: Number, request: Request, out: &mut Vec<Effect>) {
        if let Request::Whole { age } = request {
            if self.phase != Phase::Copying {
                return self.end(End::Senseless, out);
            }
            self.phase = Phase::Whole(number, age);
            // It has nothing to store, but what came before it has.
            self.advance(out);
        } else {
            out.push(Effect::Store(number, request));
        }
    }

    /// Answers what became durable, and goes on.
    fn advance(&mut self, out: &mut Vec<Effect>) {
        if let Phase::Whole(number, age) = self.phase
            && self.durable.0 + 1 >= number.0
        {
            self.durable = self.durable.max(number);
            self.phase = Phase::Persisting;
            self.answer(out);
            out.push(Effect::SyncDone(age));
            return;
        }
        self.answer(out);
    }

    fn answer(&mut self, out: &mut Vec<Effect>) {
        if self.durable > self.answered {
            self.answered = self.durable;
            out.push(Effect::Send(Upward::Durable(self.durable)));
        }
    }

    fn end(&mut self, end: End, out: &mut Vec<Effect>) {
        if self.phase != Phase::Ended {
            self.phase = Phase::Ended;
            self.early = Vec::new();
            out.push(Effect::Ended(end));
        }
    }
}

#[cfg(test)]
mod tests;
