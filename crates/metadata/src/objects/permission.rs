//! What a user may do in a vhost.

use serde::{Deserialize, Serialize};

use crate::objects::Name;

/// Three regular expressions over names of exchanges and queues; the empty one matches nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permission {
    /// Where.
    pub vhost: Name,
    /// Who.
    pub user: Name,
    /// What may be declared and deleted.
    pub configure: String,
    /// What may be published to and bound as a destination.
    pub write: String,
    /// What may be consumed from and bound as a source.
    pub read: String,
}

/// Two regular expressions over routing keys of one topic exchange, in which `{username}` and
/// `{vhost}` stand for the values, escaped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicPermission {
    /// Where.
    pub vhost: Name,
    /// Who.
    pub user: Name,
    /// Which exchange.
    pub exchange: Name,
    /// Keys that may be published with.
    pub write: String,
    /// Keys that may be bound with.
    pub read: String,
}
