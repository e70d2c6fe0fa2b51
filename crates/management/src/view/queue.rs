//! What a queue holds and does, now.

use serde::{Deserialize, Serialize};

use super::counters::MessageCounters;

/// What a queue's owner reports of it. Everything that the topology knows (name, arguments,
/// policy) is not repeated here.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueStats {
    /// Messages that wait.
    pub ready: u64,
    /// Messages that clients hold.
    pub unsettled: u64,
    /// Body bytes of `ready`.
    pub ready_bytes: u64,
    /// Body bytes of `unsettled`.
    pub unsettled_bytes: u64,
    /// Messages that came back and wait before they are delivered again.
    pub delayed: u64,
    /// Body bytes of `delayed`.
    pub delayed_bytes: u64,
    /// Messages that are dead and stay until their targets have them (at-least-once dead-lettering).
    pub dead: u64,
    /// Body bytes of `dead`.
    pub dead_bytes: u64,
    /// Of all these, messages that a restart keeps.
    pub persistent: u64,
    /// Body bytes of `persistent`.
    pub persistent_bytes: u64,
    /// Of ready, messages whose body is in memory.
    pub in_memory: u64,
    /// Body bytes of `in_memory`.
    pub in_memory_bytes: u64,
    /// Consumers.
    pub consumers: u64,
    /// The share of time, 0 to 1, in which a message could be handed out at once.
    pub consumer_capacity: f64,
    /// Memory of the queue without bodies.
    pub memory: u64,
    /// Since when nothing happens, if nothing happens now.
    pub idle_since_ms: Option<u64>,
    /// The `timestamp` property of the first ready message, in seconds.
    pub head_message_timestamp: Option<u64>,
    /// When the oldest ready message came.
    pub oldest_ready_ms: Option<u64>,
    /// When the oldest unsettled message was delivered.
    pub oldest_unsettled_ms: Option<u64>,
    /// Whether it works.
    pub state: QueueState,
    /// Totals.
    #[serde(skip_serializing_if = "MessageCounters::is_nothing")]
    pub counters: MessageCounters,
}

/// Whether a queue works.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueueState {
    /// It does.
    #[default]
    Running,
    /// A quorum queue without a majority.
    Minority,
    /// Its owner stopped on an error; it is read-only.
    Crashed,
    /// Its node is not there.
    Down,
}

impl QueueStats {
    /// All messages.
    pub fn messages(&self) -> u64 {
        self.ready + self.unsettled + self.delayed + self.dead
    }

    /// Body bytes of all messages.
    pub fn message_bytes(&self) -> u64 {
        self.ready_bytes + self.unsettled_bytes + self.delayed_bytes + self.dead_bytes
    }
}

impl QueueState {
    /// RabbitMQ's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Minority => "minority",
            Self::Crashed => "crashed",
            Self::Down => "down",
        }
    }
}
