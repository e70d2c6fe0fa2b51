//! The machine. (Signatures first; the body follows.)

use model::id::Seq;
use model::time::Timestamp;

use crate::command::{Arrival, Command, Reply};
use crate::effect::Effect;
use crate::head::{Head, Malformed};
use crate::settings::Settings;

/// One queue.
#[derive(Debug, Clone)]
pub struct Queue {
    settings: Settings,
}

impl Queue {
    /// An empty queue, first used `now`.
    pub fn new(settings: Settings, _now: Timestamp) -> Self {
        Self { settings }
    }

    /// A queue that is about to be filled by [`Queue::restore_message`].
    pub fn restore(settings: Settings, now: Timestamp) -> Self {
        Self::new(settings, now)
    }

    /// Puts back a message as ready, in ascending order of `seq`. `redelivered`: it may have been
    /// handed out, whatever the head says. Nothing expires before the first command.
    ///
    /// # Errors
    /// If `head` is not the stored form of a [`Head`].
    pub fn restore_message(
        &mut self,
        _seq: Seq,
        head: &[u8],
        _redelivered: bool,
    ) -> Result<(), Malformed> {
        Head::decode(head).map(|_| ())
    }

    /// Applies one command.
    pub fn apply(
        &mut self,
        _now: Timestamp,
        _command: Command,
        _effects: &mut Vec<Effect>,
    ) -> Reply {
        Reply::Done
    }

    /// When [`Command::Tick`] is due, if at all.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        None
    }

    /// The head of an arrival, without looking it up: what to store along with it.
    pub fn arrival_head(&self, now: Timestamp, arrival: &Arrival) -> Head {
        Head {
            bytes: arrival.bytes,
            priority: self.settings.level(arrival.priority),
            expires_at: self.settings.ttl(arrival.ttl).map(|ttl| now + ttl),
            delivery_count: 0,
            delivered: false,
        }
    }

    /// The head of a message that is here, ready or unsettled.
    pub fn head(&self, _seq: Seq) -> Option<Head> {
        None
    }

    /// Messages that wait.
    pub fn ready(&self) -> u64 {
        0
    }

    /// Bytes of the bodies of messages that wait.
    pub fn ready_bytes(&self) -> u64 {
        0
    }

    /// Messages that are handed out and not settled.
    pub fn unsettled(&self) -> u64 {
        0
    }

    /// Bytes of the bodies of messages that are handed out.
    pub fn unsettled_bytes(&self) -> u64 {
        0
    }

    /// Subscriptions.
    pub fn consumers(&self) -> usize {
        0
    }

    /// The oldest message that waits.
    pub fn oldest_ready(&self) -> Option<Seq> {
        None
    }

    /// No message above this one was ever handed out since the machine was made: a mark to store
    /// at a stop, so that after a restart messages up to it are flagged as redelivered.
    pub fn highest_delivered(&self) -> Option<Seq> {
        None
    }

    /// The effective arguments.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Gives back spare memory; worth calling when the queue has been quiet for a while.
    pub fn shrink(&mut self) {}
}
