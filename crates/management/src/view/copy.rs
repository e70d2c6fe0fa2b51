//! A journal on one node.

use serde::{Deserialize, Serialize};

/// How the node that is asked stands to a named journal of which it may have a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalCopy {
    /// The journal's uid.
    pub uid: String,
    /// What the node does with it, such as `active, replicated`.
    pub state: String,
    /// Why it waits, if it does.
    pub reason: Option<String>,
    /// The local sequence, if the copy is whole.
    pub sequence: Option<u64>,
    /// The state file in words.
    pub standing: String,
    /// Operations that wait for their confirm; 0 unless it is active.
    pub held: u64,
    /// Bytes that the replica has not answered; 0 unless it is active.
    pub unanswered_bytes: usize,
}
