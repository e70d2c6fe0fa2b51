//! Limits of vhosts and users.

use serde::{Deserialize, Serialize};

/// What can be limited in a vhost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum VhostLimit {
    /// Open connections.
    #[serde(rename = "max-connections")]
    MaxConnections,
    /// Queues.
    #[serde(rename = "max-queues")]
    MaxQueues,
}

impl VhostLimit {
    /// The name over HTTP.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MaxConnections => "max-connections",
            Self::MaxQueues => "max-queues",
        }
    }

    /// The limit of that name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::MaxConnections, Self::MaxQueues].into_iter().find(|known| known.as_str() == name)
    }
}

/// What can be limited for a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum UserLimit {
    /// Open connections.
    #[serde(rename = "max-connections")]
    MaxConnections,
    /// Open channels.
    #[serde(rename = "max-channels")]
    MaxChannels,
}

impl UserLimit {
    /// The name over HTTP.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MaxConnections => "max-connections",
            Self::MaxChannels => "max-channels",
        }
    }

    /// The limit of that name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::MaxConnections, Self::MaxChannels].into_iter().find(|known| known.as_str() == name)
    }
}
