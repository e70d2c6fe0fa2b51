//! The right to answer a request, once.

use crate::outbox::Outbox;
use bytes::Bytes;
use std::sync::Arc;

/// Answers one request. Dropping it answers that there will be no answer.
#[derive(Debug)]
pub struct Answer {
    outbox: Arc<Outbox>,
    correlation: u64,
    sent: bool,
}

impl Answer {
    pub(crate) fn new(outbox: Arc<Outbox>, correlation: u64) -> Self {
        Self { outbox, correlation, sent: false }
    }

    /// Sends the answer; never blocks. If the connection is lost, so is the answer. At most
    /// [`PAYLOAD_MAX`](crate::frame::PAYLOAD_MAX) bytes; a longer one counts as dropped.
    pub fn send(mut self, payload: Bytes) {
        self.sent = true;
        self.outbox.answer(self.correlation, Some(payload));
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.sent {
            self.outbox.answer(self.correlation, None);
        }
    }
}
