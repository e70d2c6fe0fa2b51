//! What a queue holds and does, now.

use serde::{Deserialize, Serialize};

use super::counters::MessageCounters;
use super::part::is_zero;

/// What a queue's owner reports of it. Everything that the topology knows (name, arguments,
/// policy) is not repeated here, and what is nothing is not sent: most of ten thousand queues are
/// empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueStats {
    /// Messages that wait.
    #[serde(skip_serializing_if = "is_zero")]
    pub ready: u64,
    /// Messages that clients hold.
    #[serde(skip_serializing_if = "is_zero")]
    pub unsettled: u64,
    /// Body bytes of `ready`.
    #[serde(skip_serializing_if = "is_zero")]
    pub ready_bytes: u64,
    /// Body bytes of `unsettled`.
    #[serde(skip_serializing_if = "is_zero")]
    pub unsettled_bytes: u64,
    /// Messages that came back and wait before they are delivered again.
    #[serde(skip_serializing_if = "is_zero")]
    pub delayed: u64,
    /// Body bytes of `delayed`.
    #[serde(skip_serializing_if = "is_zero")]
    pub delayed_bytes: u64,
    /// Messages that are dead and stay until their targets have them (at-least-once dead-lettering).
    #[serde(skip_serializing_if = "is_zero")]
    pub dead: u64,
    /// Body bytes of `dead`.
    #[serde(skip_serializing_if = "is_zero")]
    pub dead_bytes: u64,
    /// Of all these, messages that a restart keeps.
    #[serde(skip_serializing_if = "is_zero")]
    pub persistent: u64,
    /// Body bytes of `persistent`.
    #[serde(skip_serializing_if = "is_zero")]
    pub persistent_bytes: u64,
    /// Of ready, messages whose body is in memory.
    #[serde(skip_serializing_if = "is_zero")]
    pub in_memory: u64,
    /// Body bytes of `in_memory`.
    #[serde(skip_serializing_if = "is_zero")]
    pub in_memory_bytes: u64,
    /// Consumers.
    #[serde(skip_serializing_if = "is_zero")]
    pub consumers: u64,
    /// The share of time, 0 to 1, in which a message could be handed out at once.
    pub consumer_capacity: f64,
    /// Memory of the queue without bodies.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory: u64,
    /// Since when nothing happens, if nothing happens now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_since_ms: Option<u64>,
    /// The `timestamp` property of the first ready message, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_message_timestamp: Option<u64>,
    /// When the oldest ready message came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_ready_ms: Option<u64>,
    /// When the oldest unsettled message was delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_unsettled_ms: Option<u64>,
    /// Whether it works.
    #[serde(skip_serializing_if = "QueueState::is_running")]
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
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
    fn is_running(&self) -> bool {
        *self == Self::Running
    }

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
