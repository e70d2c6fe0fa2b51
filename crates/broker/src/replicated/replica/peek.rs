//! A look at one message that waits, without touching it.

use std::sync::Arc;

use model::id::QueueId;
use model::message::Message;
use queue::head::Head;
use tokio::sync::oneshot;

use crate::replicated::containers::Place;
use crate::replicated::replica::Replica;
use crate::shard::command::{self, Batch, Command};
use crate::shard::desk::Desk;

/// A message that was looked at.
#[derive(Debug)]
pub(crate) struct Peeked {
    pub(crate) message: Message,
    pub(crate) head: Head,
}

/// Why there is nothing to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unseen {
    /// This node does not lead the queue.
    NotLeader,
    /// Fewer messages wait.
    NoMessage,
    /// The body cannot be read back, or not yet.
    Unreadable,
}

/// Which message is wanted, and by whom.
#[derive(Debug)]
pub(crate) struct Peek {
    /// So many messages are delivered before it.
    before: u64,
    /// Where it was not found.
    tried: Option<Place>,
    answer: oneshot::Sender<Result<Peeked, Unseen>>,
}

impl Peek {
    pub(crate) fn new(before: u64, answer: oneshot::Sender<Result<Peeked, Unseen>>) -> Self {
        Self { before, tried: None, answer }
    }

    pub(crate) fn answer(self, seen: Result<Peeked, Unseen>) {
        command::answer(self.answer, seen);
    }
}

impl Replica {
    /// Shows a message that waits, as the leader knows it.
    pub(crate) fn peek(&self, desk: &Desk, queue: QueueId, peek: Peek) {
        if self.leading.is_none() {
            return peek.answer(Err(Unseen::NotLeader));
        }
        let Some((seq, head)) = self.machine.queue().waiting(peek.before) else {
            return peek.answer(Err(Unseen::NoMessage));
        };
        if let Some(body) = self.bodies.get(seq) {
            return peek.answer(Ok(Peeked { message: body.message.clone(), head }));
        }
        let place = self.containers.lock().place(seq);
        // It may have been carried elsewhere while it was read: then it is read there.
        let Some(place) = place.filter(|place| peek.tried != Some(*place)) else {
            return peek.answer(Err(Unseen::Unreadable));
        };
        let inbox = Arc::clone(&desk.inbox);
        desk.read_place(queue, self.stream, (seq, place), move |message| {
            if let Some(message) = message {
                return peek.answer(Ok(Peeked { message, head }));
            }
            let peek = Peek { tried: Some(place), ..peek };
            inbox.post(Batch::one(Command::Peek { queue, peek }));
        });
    }
}
