//! A policy: settings for all objects whose name matches.

use serde::{Deserialize, Serialize};

use crate::objects::Name;
use crate::objects::queue::QueueKind;

/// Settings for objects by name. Operator policies have the same shape and live in a list of
/// their own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Where.
    pub vhost: Name,
    /// The name.
    pub name: Name,
    /// A regular expression over names.
    pub pattern: String,
    /// Which objects.
    #[serde(rename = "apply-to")]
    pub apply_to: ApplyTo,
    /// Such as `{"max-length": 10}`.
    pub definition: serde_json::Map<String, serde_json::Value>,
    /// The highest one that matches wins alone.
    pub priority: i64,
}

/// What a policy applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ApplyTo {
    /// Exchanges and queues.
    #[default]
    #[serde(rename = "all")]
    All,
    /// Exchanges.
    #[serde(rename = "exchanges")]
    Exchanges,
    /// Queues of every type.
    #[serde(rename = "queues")]
    Queues,
    /// Queues of one node.
    #[serde(rename = "classic_queues")]
    ClassicQueues,
    /// Replicated queues.
    #[serde(rename = "quorum_queues")]
    QuorumQueues,
    /// Streams; there are none yet.
    #[serde(rename = "streams")]
    Streams,
}

impl ApplyTo {
    /// Every value, in the order in which RabbitMQ lists them.
    pub const ALL: [Self; 6] = [
        Self::All,
        Self::Exchanges,
        Self::Queues,
        Self::ClassicQueues,
        Self::QuorumQueues,
        Self::Streams,
    ];

    /// The name over HTTP.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Exchanges => "exchanges",
            Self::Queues => "queues",
            Self::ClassicQueues => "classic_queues",
            Self::QuorumQueues => "quorum_queues",
            Self::Streams => "streams",
        }
    }

    /// The value of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == name)
    }

    /// Whether queues of this kind are meant.
    pub fn covers_queue(self, kind: QueueKind) -> bool {
        match self {
            Self::All | Self::Queues => true,
            Self::ClassicQueues => kind == QueueKind::Classic,
            Self::QuorumQueues => kind == QueueKind::Quorum,
            Self::Exchanges | Self::Streams => false,
        }
    }

    /// Whether exchanges are meant.
    pub fn covers_exchanges(self) -> bool {
        matches!(self, Self::All | Self::Exchanges)
    }
}
