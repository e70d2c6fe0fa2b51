//! Lines about what operators have done, behind each other in a file that only grows.

use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::disk::{Access, Disk};

/// Appends a line, with the seconds since 1970 before it; durable when it returns. Blocks.
///
/// # Errors
/// If it cannot be written. What shall be recorded must not be done then.
pub fn append(disk: &dyn Disk, folder: &Path, name: &str, line: &str) -> io::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let path = folder.join(name);
    let file = match disk.open(&path, Access::Write) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => disk.create(&path)?,
        opened => opened?,
    };
    file.write_at(format!("{now} {line}\n").as_bytes(), file.length()?)?;
    file.sync()?;
    disk.sync_dir(folder)
}
