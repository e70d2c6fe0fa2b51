//! A journal on one node.

use activation::age::Age;
use activation::register::Incarnation;
use activation::standing::{Mark, Own, Record, Standing};
use serde::{Deserialize, Serialize};

/// How a node stands to a named journal of which it may have a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// For how long the oldest of them has not been answered, in milliseconds.
    #[serde(default)]
    pub unanswered_ms: u64,
    /// What the state file says.
    #[serde(default)]
    pub file: CopyFile,
    /// The life of the coordinated sequence that the local one is from, 16 hexadecimal digits.
    #[serde(default)]
    pub incarnation: Option<String>,
    /// There is nothing in it.
    #[serde(default)]
    pub vacant: bool,
    /// The node may serve the journal first.
    #[serde(default)]
    pub founder: bool,
    /// How long the lease of the lock lasts, in milliseconds, if this node has it.
    #[serde(default)]
    pub lease_ms: Option<u64>,
    /// What has happened since the node's start.
    #[serde(default)]
    pub counts: CopyCounts,
    /// Copies that were put aside, the oldest first.
    #[serde(default)]
    pub saved: Vec<SavedCopy>,
}

/// A copy that was put aside when another one took its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedCopy {
    /// The name of its folder: its sequence and a number that rises.
    pub name: String,
    /// Its sequence; none: it was not whole.
    pub sequence: Option<u64>,
    /// What its state file says, in words.
    pub standing: String,
    /// The life of the coordinated sequence that it is from.
    pub incarnation: Option<String>,
    /// Bytes on the disk.
    pub bytes: u64,
}

/// A journal that a node has on its disk and the topology knows nothing of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftJournal {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its sequence, if the copy is whole.
    pub sequence: Option<u64>,
    /// The state file in words.
    pub standing: String,
    /// Queues that were declared in it; `None`: what was declared cannot be read.
    pub queues: Option<usize>,
    /// Why it cannot be.
    pub reason: Option<String>,
}

/// The same with the node's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLeft {
    /// The node, as tools name it.
    pub node: String,
    /// What it has.
    pub journals: Vec<LeftJournal>,
}

/// What a state file says, without the numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyFile {
    /// There is none.
    #[default]
    None,
    /// The copy is whole.
    Valid,
    /// The copy is being overwritten.
    Copying,
    /// The copy is set aside.
    SetAside,
    /// It cannot be read.
    Damaged,
}

/// What has happened to a journal on a node since the node's start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyCounts {
    /// It began to serve it.
    pub activations: u64,
    /// It repaired a claim of its own before that.
    pub self_repairs: u64,
    /// It repaired a claim of another node before that.
    pub auto_repairs: u64,
    /// It raised the sequence since its replica was lost.
    pub detachments: u64,
    /// It lost the active node that it was in sync with, or was handed the journal.
    pub takeovers: u64,
    /// It handed the journal to its replica.
    pub hand_overs: u64,
    /// Of these, those of its own accord, to the node that is preferred.
    pub failbacks: u64,
    /// It stopped serving since the lease of its lock had ended.
    pub leases_lost: u64,
    /// It became in sync with the active node.
    pub copies: u64,
}

/// What a node has of journals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCopies {
    /// The node, as tools name it.
    pub node: String,
    /// What it has.
    pub copies: Vec<JournalCopy>,
}

/// A change of a copy that an operator orders; only while the copy is not in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Amendment {
    /// Sets its sequence.
    Sequence {
        /// The sequence.
        to: u64,
        /// Whether what may be lost was confirmed.
        forced: bool,
    },
    /// It is the one to go on with, whatever its state file says: it gets this sequence, of a life of
    /// the coordinated one that is about to begin.
    Adopt {
        /// The sequence.
        sequence: u64,
        /// The life.
        incarnation: u64,
    },
    /// It is put aside, so that another one can take its place.
    Discard,
    /// A copy that was put aside takes its place.
    Restore {
        /// The name of its folder.
        name: String,
    },
}

impl JournalCopy {
    /// Whether the node serves the journal.
    pub fn is_serving(&self) -> bool {
        self.state.starts_with("active") || self.state == "single" || self.state == "pairing"
    }

    /// What the activation needs to know of it; `None` if the state file cannot be read.
    pub fn own(&self) -> Option<Own> {
        let age = self.sequence.and_then(Age::new);
        let standing = match (self.file, age) {
            (CopyFile::None, _) => Standing::Empty,
            (CopyFile::Valid, Some(age)) => Standing::Valid(age),
            (CopyFile::Copying, _) => Standing::Syncing,
            // Which mark makes no difference here.
            (CopyFile::SetAside, age) => Standing::Marked(Mark::Operator, age),
            (CopyFile::Valid, None) | (CopyFile::Damaged, _) => return None,
        };
        let life = |text: &String| u64::from_str_radix(text, 16).ok().map(Incarnation);
        let incarnation = self.incarnation.as_ref().and_then(life);
        let record = Record { standing, incarnation };
        Some(Own { record, vacant: self.vacant, founder: self.founder })
    }
}
