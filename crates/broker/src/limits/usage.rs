//! What the process uses now.

use std::fs;
use std::io;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// One sample, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory of this process.
    pub resident: u64,
    /// Bytes that an unprivileged process may still write to the data folder's file system.
    pub disk_free: u64,
    /// Size of that file system.
    pub disk_total: u64,
}

impl Usage {
    /// Samples memory from `/proc/self/statm` and the disk by `statvfs`; some microseconds.
    ///
    /// # Errors
    /// If either cannot be read; keep what was known.
    pub fn sample(data_dir: &Path) -> io::Result<Self> {
        let disk = rustix::fs::statvfs(data_dir)?;
        Ok(Self {
            resident: resident()?,
            disk_free: disk.f_bavail.saturating_mul(disk.f_frsize),
            disk_total: disk.f_blocks.saturating_mul(disk.f_frsize),
        })
    }
}

fn resident() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .ok_or_else(|| io::Error::other("/proc/self/statm has no second number"))?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// File descriptors that are open now. Reads a folder with one entry for each, so ask seldom.
pub fn open_files() -> u64 {
    fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64)
}

/// Raises the soft limit of open files to the hard one and returns it.
///
/// Each connection and each journal segment takes one; a shell's usual 1024 would be the first limit met.
pub fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = if setrlimit(Resource::Nofile, raised).is_ok() { raised } else { limit };
    current.current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_sees_this_process_and_its_disk() {
        let sample = Usage::sample(Path::new("/proc")).expect("every process has this folder");
        assert!(sample.resident > 1 << 20);
        let sample = Usage::sample(Path::new(env!("CARGO_MANIFEST_DIR"))).expect("it is there");
        assert!(sample.disk_free <= sample.disk_total && sample.disk_total > 0);
        assert!(Usage::sample(Path::new("/no such folder")).is_err());
    }

    #[test]
    fn open_files_are_counted_and_raised() {
        assert!(raise_open_files() >= 3);
        assert!(open_files() >= 3);
    }
}
