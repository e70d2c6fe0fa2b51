//! A number of 64 bits that is changed by compare-and-set.

use serde::{Deserialize, Serialize};

use crate::objects::Name;

/// A register. One that is absent is not the same as one that holds 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// What it is about, such as the uid of a journal.
    pub id: Name,
    /// What it holds.
    pub value: i64,
    /// Names this life of it: another one after it was lost and made again, or forced.
    pub incarnation: u64,
    /// What it went on from when its value was forced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted: Option<Adopted>,
    /// The incarnation of the node that asked for it first.
    pub founder: u64,
    /// The data set in which it was made.
    pub data_set: u64,
}

/// The life and the value that a forced register went on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopted {
    /// The life before.
    pub incarnation: u64,
    /// The value that was forced.
    pub value: i64,
}
