//! The narrow door to the file system. Everything that the journal asks of it goes through here,
//! so a simulated one can lose, tear and damage what a real one might.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub mod real;

pub(crate) mod salvaged;

/// A file system. Paths are used as given. Errors are those of the system; a caller tells apart
/// `StorageFull` and `QuotaExceeded` (no room: the file as it was before), `NotFound`,
/// `PermissionDenied` and `ReadOnlyFilesystem`.
#[expect(clippy::missing_errors_doc, reason = "said once above")]
pub trait Disk: Send + Sync + fmt::Debug {
    /// Makes a directory and its parents; fine if it exists.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// Names of the files in a directory, in no order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Makes an empty file, replacing any of that name. Its name is durable after
    /// [`Disk::sync_dir`].
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;
    /// Opens a file that exists.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>>;
    /// Renames a file, replacing any of the new name. Durable after [`Disk::sync_dir`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file. Durable after [`Disk::sync_dir`].
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes names durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Bytes that an ordinary user may still write.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;
    /// A number that no other journal has.
    fn random(&self) -> u64;
    /// Takes the lock file for this process, without waiting.
    fn lock(&self, path: &Path) -> io::Result<Lock>;
    /// Whether another process holds the lock file, without taking it: its pid (0 if unknown).
    fn holder(&self, path: &Path) -> io::Result<Option<u32>>;
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// For reading.
    Read,
    /// For reading and writing.
    Write,
}

/// What became of an attempt to take a lock.
#[derive(Debug)]
pub enum Lock {
    /// Taken; released when dropped.
    Held(Box<dyn Held>),
    /// Another process has it: its pid (0 if unknown).
    Busy(u32),
}

/// A lock that is held. Nothing but its life matters.
pub trait Held: Send + Sync + fmt::Debug {}

/// An open file. Positions are given with each call; calls may run in parallel. Errors are those of
/// the system; after a failed [`File::sync`] nothing is known of what was written before.
#[expect(clippy::missing_errors_doc, reason = "said once above")]
pub trait File: Send + Sync + fmt::Debug {
    /// Its length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Reads at an offset until the buffer is full or the file ends; how many bytes it read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `bytes` at an offset, growing the file if need be.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// fdatasync: what was written is on the disk when it returns.
    fn sync(&self) -> io::Result<()>;
}
