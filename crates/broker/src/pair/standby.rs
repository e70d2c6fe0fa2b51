//! The replica's side of a pair: it stores what the active node sends, and answers.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use journal::op::Lsn;
use replication::message::{Number, Request};
use replication::receiver::{Effect, Receiver};
use replication::wire;

use crate::pair::line::{Line, Session};
use crate::pair::ops;
use crate::pair::works::Store;

/// See the module head. One session, from its registration on.
#[derive(Debug)]
pub(crate) struct Standby {
    session: Session,
    receiver: Receiver,
    journal: Option<Box<dyn Store>>,
    /// What the journal has taken, with the requests that brought it.
    stored: VecDeque<(Lsn, Number)>,
    durable: Lsn,
    line: Arc<dyn Line>,
}

impl Standby {
    /// Registers with the node of a session.
    pub(crate) fn register(session: Session, line: Arc<dyn Line>, out: &mut Vec<Effect>) -> Self {
        let receiver = Receiver::new(session.journal, out);
        Self { session, receiver, journal: None, stored: VecDeque::new(), durable: Lsn(0), line }
    }

    /// Its session.
    pub(crate) fn session(&self) -> Session {
        self.session
    }

    /// The active node has spoken; nothing: it has ended the session.
    pub(crate) fn heard(&mut self, message: Bytes, out: &mut Vec<Effect>) {
        if message.is_empty() {
            return self.receiver.closed(out);
        }
        match wire::decode_downward(message) {
            Ok(message) => self.receiver.heard(message, out),
            Err(error) => {
                tracing::error!(journal = %self.session.journal, ?error, "a word of the active node");
                self.receiver.closed(out);
            }
        }
    }

    /// The link is lost.
    pub(crate) fn closed(&mut self, out: &mut Vec<Effect>) {
        self.receiver.closed(out);
    }

    /// An empty journal is open: from here on what comes is stored in it.
    pub(crate) fn copy(&mut self, journal: Box<dyn Store>, out: &mut Vec<Effect>) {
        self.journal = Some(journal);
        self.receiver.copy(out);
    }

    /// The age is written.
    pub(crate) fn in_sync(&mut self, out: &mut Vec<Effect>) {
        self.receiver.in_sync(out);
    }

    /// Everything up to here is durable.
    pub(crate) fn durable(&mut self, lsn: Lsn, out: &mut Vec<Effect>) {
        self.durable = lsn.max(self.durable);
        let lsn = self.durable;
        let mut through = None;
        while let Some((_, number)) = self.stored.pop_front_if(|(at, _)| *at <= lsn) {
            through = Some(number);
        }
        if let Some(number) = through {
            self.receiver.durable(number, out);
        }
    }

    /// Sends and stores; returns what is for the activation.
    pub(crate) fn perform(&mut self, effects: Vec<Effect>) -> Vec<Effect> {
        let mut rest = Vec::new();
        let mut effects = VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            let mut more = Vec::new();
            match effect {
                Effect::Send(message) => {
                    if !self.line.send(self.session.with, self.session.upward(&message)) {
                        self.receiver.closed(&mut more);
                    }
                }
                Effect::Store(number, request) => {
                    if self.store(number, request) {
                        // What brought nothing may be durable already, and nothing more is heard then.
                        self.durable(self.durable, &mut more);
                    } else {
                        self.receiver.closed(&mut more);
                    }
                }
                other => rest.push(other),
            }
            effects.extend(more);
        }
        rest
    }

    fn store(&mut self, number: Number, request: Request) -> bool {
        let (Request::Piece { bytes, .. } | Request::Batch { bytes, .. }) = request else {
            return true;
        };
        let Some(journal) = &self.journal else { return false };
        match ops::decode(bytes) {
            Ok(ops) => {
                let lsn = journal.submit(ops);
                #[cfg(test)]
                if crate::pair::sim::rules::broken(crate::pair::sim::rules::Rule::DurableAnswers) {
                    self.durable = lsn;
                }
                self.stored.push_back((lsn, number));
                // Somebody waits for the answer, whatever it is about.
                journal.hasten();
                true
            }
            Err(error) => {
                tracing::error!(journal = %self.session.journal, %error, "a request of the active node");
                false
            }
        }
    }

    /// Ends the session; the journal, if there is one, has to be closed.
    pub(crate) fn end(self) -> Option<Box<dyn Store>> {
        self.line.send(self.session.with, self.session.end());
        self.journal
    }
}
