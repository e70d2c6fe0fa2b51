//! What can go wrong, where somebody branches on it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;

/// Why a journal could not be opened. Nothing was changed on disk, except where noted.
#[derive(Debug, Error)]
pub enum OpenError {
    /// A setting is out of bounds.
    #[error("{key} {value} is out of bounds: allowed is {min} to {max}")]
    Bounds {
        /// The field of `Options`.
        key: &'static str,
        /// What was given.
        value: u64,
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// Another process has it open.
    #[error("journal {} is in use by process {pid}", dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// The other process, 0 if it could not be read.
        pid: u32,
    },
    /// The directory (or a file in it) cannot be written.
    #[error("journal {} cannot be written: {source}", dir.display())]
    ReadOnly {
        /// The directory.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is something else at the place.
    #[error("{} is not a journal: {reason}", dir.display())]
    NotAJournal {
        /// The directory.
        dir: PathBuf,
        /// Why not.
        reason: String,
    },
    /// It was written by a later version.
    #[error("journal {} has format version {found}; this program reads up to {known}", dir.display())]
    Version {
        /// The directory.
        dir: PathBuf,
        /// Its version.
        found: u32,
        /// The newest readable.
        known: u32,
    },
    /// The file system failed.
    #[error("journal {}: {what}: {source}", dir.display())]
    Io {
        /// The directory.
        dir: PathBuf,
        /// What was being done.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Why a payload could not be read.
#[derive(Debug, Clone, Error)]
pub enum ReadError {
    /// No such record: never put, not yet written, or released.
    #[error("no such record")]
    Missing,
    /// The bytes on disk are not those that were written. The record stays quarantined; the owner
    /// should report it and release it.
    #[error("the record is damaged on disk")]
    Damaged,
    /// The file system failed.
    #[error("reading failed: {0}")]
    Io(Arc<io::Error>),
}
