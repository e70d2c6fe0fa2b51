//! The active node's side of the stream.
//!
//! ```text
//!   Copying ── all pieces sent and answered, little of the stream unanswered, or for long ──► copy_sent
//!      │                                                   (confirms are held from here)
//!      │                                                  Whole sent ──► Whole answered
//!      │                                                      │               │ InSync
//!      └──── too slow, closed, senseless ──► Lost ◄───────────┴──── InSync ◄──┘
//! ```
//!
//! Requests are numbered and answered in order. The age of the oldest unanswered one decides
//! whether the replica is too slow; a replica without requests owes nothing.
//!
//! The copy is a list of files that were complete when it began; from that moment on every batch
//! that the journal appends goes into the stream too, behind the pieces that were sent before it.
//! "Whole" is said when what is unanswered is little, so that confirms are held for one exchange and
//! not for a copy. Under steady load it may never be little: then it is said all the same after a
//! time, and the writers, who get no confirms from then on, let it run dry. How long that takes is
//! bounded by the backlog, above which writers have waited before.

use std::collections::VecDeque;

use activation::age::Age;
use bytes::Bytes;
use model::time::Millis;

use crate::message::{Downward, Number, Request, Upward};

/// The bounds of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How long the oldest request may wait for its answer (`journal.replica_timeout`, default 3 s).
    pub replica_timeout: Millis,
    /// Bytes of the copy that may be unanswered (default 4 MiB).
    pub copy_window: usize,
    /// Bytes that may be unanswered when the replica is told that it is whole (default 256 KiB).
    pub whole_below: usize,
    /// When it is told so all the same, after the last piece was answered (default 500 ms).
    pub whole_after: Millis,
    /// Unanswered bytes of the live stream above which writers wait (default 8 MiB), until half of it
    /// is answered. The copy does not count: its window bounds it.
    pub backlog: usize,
}

impl Limits {
    /// The defaults.
    pub const DEFAULT: Self = Self {
        replica_timeout: Millis(3000),
        copy_window: 4 << 20,
        whole_below: 256 << 10,
        whole_after: Millis(500),
        backlog: 8 << 20,
    };
}

/// What the sender wants done, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Send it.
    Send(Downward),
    /// Read the next piece of the copy, and give it to [`Sender::piece`].
    ReadPiece,
    /// Writers wait, or go on.
    Throttle(bool),
    /// Tell the activation that the copy was sent ([`activation::event::Event::CopySent`]).
    CopySent,
    /// Tell it that the replica is in sync.
    InSync,
    /// Every batch up to this position is durable at the replica.
    Answered(u64),
    /// The replica is lost: close the connection, and tell the activation. Once, and the last.
    Lost(Loss),
}

/// Why a replica is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The connection ended.
    Closed,
    /// A request waited too long for its answer.
    TooSlow,
    /// It answered what was not asked, or out of order.
    Senseless,
    /// What should be copied cannot be read here.
    Unreadable,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Pieces are sent; `true`: the last one was.
    Copying { all_sent: bool, reading: bool },
    /// The activation was told; "whole" follows from it.
    Sent,
    /// "Whole" was sent with this number.
    Whole(Number),
    /// "Whole" was answered, "in sync" was not said yet.
    Persisting,
    /// In sync.
    InSync,
    /// Over.
    Lost,
}

/// A request without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unanswered {
    number: Number,
    sent_at: Millis,
    bytes: usize,
    is_piece: bool,
    /// Of a batch.
    position: Option<u64>,
}

/// The stream to one replica, from its acceptance to its loss. Times are milliseconds of a clock that
/// never goes back.
#[derive(Debug, Clone)]
pub struct Sender {
    limits: Limits,
    phase: Phase,
    last: Number,
    unanswered: VecDeque<Unanswered>,
    unanswered_bytes: usize,
    unanswered_pieces: usize,
    throttled: bool,
    /// Since when all pieces are answered.
    copied_since: Option<Millis>,
    /// The last batch that was answered.
    answered_position: Option<u64>,
}

impl Sender {
    /// Begins the stream of an accepted replica. The driver has listed the complete files of the
    /// journal in the same moment; later batches are given to [`Sender::batch`].
    pub fn new(limits: Limits, out: &mut Vec<Effect>) -> Self {
        let mut sender = Self {
            limits,
            phase: Phase::Copying { all_sent: false, reading: false },
            last: Number(0),
            unanswered: VecDeque::new(),
            unanswered_bytes: 0,
            unanswered_pieces: 0,
            throttled: false,
            copied_since: None,
            answered_position: None,
        };
        out.push(Effect::Send(Downward::Accepted));
        sender.proceed(out);
        sender
    }

    /// The answer to [`Effect::ReadPiece`]; `None`: there are no more.
    ///
    /// # Panics
    /// If none was asked for.
    pub fn piece(&mut self, now: Millis, piece: Option<(u64, u64, Bytes)>, out: &mut Vec<Effect>) {
        match &mut self.phase {
            Phase::Lost => return,
            Phase::Copying { all_sent, reading } => {
                assert!(*reading, "no piece was asked for");
                (*reading, *all_sent) = (false, piece.is_none());
            }
            Phase::Sent | Phase::Whole(_) | Phase::Persisting | Phase::InSync => {
                panic!("no piece was asked for")
            }
        }
        if let Some((file, offset, bytes)) = piece {
            self.request(now, Request::Piece { file, offset, bytes }, out);
        }
        self.proceed(out);
    }

    /// The journal has appended a batch. In the order of the journal, after it was accepted there: a
    /// batch that the local journal refuses must not be at the replica.
    pub fn batch(&mut self, now: Millis, position: u64, bytes: Bytes, out: &mut Vec<Effect>) {
        if self.phase != Phase::Lost {
            self.request(now, Request::Batch { position, bytes }, out);
        }
    }

    /// The activation has closed the gate for confirms and says so
    /// ([`activation::output::Output::SendSyncDone`]).
    ///
    /// # Panics
    /// If it was not told that the copy was sent.
    pub fn whole(&mut self, now: Millis, age: Age, out: &mut Vec<Effect>) {
        if self.phase == Phase::Lost {
            return;
        }
        assert_eq!(self.phase, Phase::Sent, "the activation was not told");
        let number = self.request(now, Request::Whole { age }, out);
        self.phase = Phase::Whole(number);
    }

    /// The active node begins to stop.
    pub fn stop_called(&mut self, out: &mut Vec<Effect>) {
        if self.phase != Phase::Lost {
            out.push(Effect::Send(Downward::StopCalled));
        }
    }

    /// It has stopped: this is the last word, and no loss.
    pub fn hand_over(&mut self, out: &mut Vec<Effect>) {
        if self.phase != Phase::Lost {
            out.push(Effect::Send(Downward::HandedOver));
            self.phase = Phase::Lost;
        }
    }

    /// The replica has spoken.
    pub fn heard(&mut self, message: &Upward, out: &mut Vec<Effect>) {
        match message {
            _ if self.phase == Phase::Lost => {}
            Upward::Durable(number) => self.durable(*number, out),
            Upward::InSync if self.phase == Phase::Persisting => {
                self.phase = Phase::InSync;
                out.push(Effect::InSync);
                // What it answered meanwhile counts from here on.
                out.extend(self.answered_position.map(Effect::Answered));
            }
            Upward::InSync | Upward::Register { .. } => self.lose(Loss::Senseless, out),
        }
    }

    /// The connection has ended.
    pub fn closed(&mut self, out: &mut Vec<Effect>) {
        self.lose(Loss::Closed, out);
    }

    /// The piece that was asked for cannot be read.
    pub fn unreadable(&mut self, out: &mut Vec<Effect>) {
        self.lose(Loss::Unreadable, out);
    }

    /// Looks at the clock. To be called at [`Sender::deadline`], and often.
    pub fn tick(&mut self, now: Millis, out: &mut Vec<Effect>) {
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            return self.lose(Loss::TooSlow, out);
        }
        if matches!(self.phase, Phase::Copying { all_sent: true, .. })
            && self.unanswered_pieces == 0
        {
            let since = *self.copied_since.get_or_insert(now);
            if since.0 + self.limits.whole_after.0 <= now.0 {
                self.phase = Phase::Sent;
                out.push(Effect::CopySent);
            }
        }
    }

    /// From now on the oldest request may wait for so long.
    pub fn set_replica_timeout(&mut self, timeout: Millis) {
        self.limits.replica_timeout = timeout;
    }

    /// When the replica will be too slow, if it says nothing.
    pub fn deadline(&self) -> Option<Millis> {
        let oldest = self.unanswered.front().filter(|_| self.phase != Phase::Lost)?;
        Some(Millis(oldest.sent_at.0.saturating_add(self.limits.replica_timeout.0)))
    }

    /// Since when the oldest request has not been answered.
    pub fn unanswered_since(&self) -> Option<Millis> {
        self.unanswered.front().map(|oldest| oldest.sent_at)
    }

    /// Bytes that the replica has not answered.
    pub fn unanswered_bytes(&self) -> usize {
        self.unanswered_bytes
    }

    fn unanswered_live(&self) -> usize {
        self.unanswered_bytes - self.unanswered_pieces
    }

    fn request(&mut self, now: Millis, request: Request, out: &mut Vec<Effect>) -> Number {
        self.last = Number(self.last.0 + 1);
        let bytes = request.size();
        let (is_piece, position) = match &request {
            Request::Piece { .. } => (true, None),
            Request::Batch { position, .. } => (false, Some(*position)),
            Request::Whole { .. } => (false, None),
        };
        let number = self.last;
        self.unanswered.push_back(Unanswered { number, sent_at: now, bytes, is_piece, position });
        self.unanswered_bytes += bytes;
        self.unanswered_pieces += if is_piece { bytes } else { 0 };
        out.push(Effect::Send(Downward::Request(number, request)));
        if !self.throttled && self.unanswered_live() > self.limits.backlog {
            self.throttled = true;
            out.push(Effect::Throttle(true));
        }
        number
    }

    fn durable(&mut self, through: Number, out: &mut Vec<Effect>) {
        let is_asked = self.unanswered.front().is_some_and(|oldest| oldest.number <= through);
        if !is_asked || through > self.last {
            return self.lose(Loss::Senseless, out);
        }
        while let Some(oldest) = self.unanswered.pop_front_if(|oldest| oldest.number <= through) {
            self.unanswered_bytes -= oldest.bytes;
            self.unanswered_pieces -= if oldest.is_piece { oldest.bytes } else { 0 };
            self.answered_position = oldest.position.or(self.answered_position);
            if self.phase == Phase::Whole(oldest.number) {
                self.phase = Phase::Persisting;
            }
        }
        if self.throttled && self.unanswered_live() <= self.limits.backlog / 2 {
            self.throttled = false;
            out.push(Effect::Throttle(false));
        }
        if self.phase == Phase::InSync {
            out.extend(self.answered_position.map(Effect::Answered));
        }
        self.proceed(out);
    }

    /// Goes on with the copy as far as the window allows.
    fn proceed(&mut self, out: &mut Vec<Effect>) {
        let Phase::Copying { all_sent, reading } = &mut self.phase else { return };
        if !*all_sent && !*reading && self.unanswered_pieces < self.limits.copy_window {
            *reading = true;
            out.push(Effect::ReadPiece);
        } else if *all_sent
            && self.unanswered_pieces == 0
            && self.unanswered_bytes <= self.limits.whole_below
        {
            self.phase = Phase::Sent;
            out.push(Effect::CopySent);
        }
    }

    fn lose(&mut self, loss: Loss, out: &mut Vec<Effect>) {
        if self.phase == Phase::Lost {
            return;
        }
        self.phase = Phase::Lost;
        if std::mem::take(&mut self.throttled) {
            out.push(Effect::Throttle(false));
        }
        out.push(Effect::Lost(loss));
    }
}

#[cfg(test)]
mod tests;
