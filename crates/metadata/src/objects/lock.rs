//! A lock that one node of the cluster has at a time.

use serde::{Deserialize, Serialize};

use crate::objects::Name;

/// A lock, named as what it guards. It stays when it is released: its grants are counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// What it guards, such as the uid of a journal.
    pub id: Name,
    /// The grant in force or, if nobody has the lock, the last one.
    pub token: u64,
    /// Who has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
}

/// Who has a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The incarnation of the node.
    pub node: u64,
    /// Which start of it.
    pub boot: u64,
    /// Which of its attempts got the lock: an attempt that is repeated gets the same grant.
    pub attempt: u64,
    /// How long the grant lasts after each renewal, in milliseconds.
    pub lease_ms: u64,
    /// How often it was renewed.
    pub renewals: u64,
}
