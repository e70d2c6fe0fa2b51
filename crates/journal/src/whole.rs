//! A small file that is replaced as a whole: at any time it has its old content or its new one.
//!
//! ```text
//!  replace:  write NAME.new ─► sync it ─► rename it to NAME ─► sync the folder ─► said to be durable
//!  open:     remove NAME.new, read NAME, sync it and the folder ─► it stays what was read
//! ```
//!
//! Between the rename and the sync of the folder a process that dies leaves a new file that the next
//! process sees and that a power cut still takes back. Whoever goes on from what it read, and tells
//! others, must not find the old content later: so [`open`] makes durable what it returns.
//!
//! What the bytes mean, and whether they are damaged, is the caller's business. Only a file that is
//! not there is `None`; whatever else is wrong is an error.

use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Access, Disk};
use crate::recovery::LOCK_FILE;

/// The largest file that is read. State files have tens of bytes, the declarations of ten thousand
/// queues a few mebibytes.
pub const BYTES_MAX: u64 = 64 << 20;

/// Reads the file at the start of a process, makes durable what it read, and removes what an
/// interrupted [`replace`] left. Blocks.
///
/// # Errors
/// If anything fails; nothing is known of the file then, and it must not be taken for absent.
pub fn open(disk: &dyn Disk, folder: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
    match disk.remove(&fresh(folder, name)) {
        Ok(()) => disk.sync_dir(folder)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let path = folder.join(name);
    let file = match disk.open(&path, Access::Write) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let bytes = read(&*file, &path)?;
    file.sync()?;
    disk.sync_dir(folder)?;
    Ok(Some(bytes))
}

/// Reads the file and changes nothing, not even by a sync: for tools beside a process that may use
/// it.
///
/// # Errors
/// If it cannot be read.
pub fn peek(disk: &dyn Disk, folder: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
    let path = folder.join(name);
    match disk.open(&path, Access::Read) {
        Ok(file) => read(&*file, &path).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces the file, or makes it. Durable when it returns. Blocks. One caller at a time.
///
/// # Errors
/// If anything fails. The file has its old content or its new one, and nobody knows which: as after
/// every failed write, the process has to stop. Only if there was no room it may be done again.
///
/// # Panics
/// If there are more than [`BYTES_MAX`] bytes.
pub fn replace(disk: &dyn Disk, folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    assert!(bytes.len() as u64 <= BYTES_MAX, "a file of {} bytes is not small", bytes.len());
    let fresh = fresh(folder, name);
    let file = disk.create(&fresh)?;
    file.write_at(bytes, 0)?;
    file.sync()?;
    disk.rename(&fresh, &folder.join(name))?;
    disk.sync_dir(folder)
}

/// The lock file of a journal's directory, held by the process that uses it.
pub fn lock_file(directory: &Path) -> PathBuf {
    directory.join(LOCK_FILE)
}

fn fresh(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.new"))
}

fn read(file: &dyn crate::disk::File, path: &Path) -> io::Result<Vec<u8>> {
    let length = file.length()?;
    if length > BYTES_MAX {
        let reason = format!("{} has {length} bytes, more than {BYTES_MAX}", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    let mut bytes = vec![0; usize::try_from(length).expect("it is small")];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::real::RealDisk;
    use crate::sim::{Fault, SimDisk};

    const NAME: &str = "state";
    const OLD: &[u8] = b"the old content";
    /// Longer than a sector, so that a torn one would show.
    const NEW: [u8; 1300] = [b'n'; 1300];
    const SEEDS: u64 = 60;

    fn folder() -> &'static Path {
        Path::new("journals/j")
    }

    /// A disk with the old content, or with no file.
    fn disk(seed: u64, has_old: bool) -> SimDisk {
        let disk = SimDisk::new(seed);
        disk.create_dir(folder()).unwrap();
        if has_old {
            replace(&disk, folder(), NAME, OLD).unwrap();
        }
        disk.sync_dir(folder()).unwrap();
        disk
    }

    fn opened(disk: &SimDisk) -> Option<Vec<u8>> {
        open(disk, folder(), NAME).unwrap()
    }

    /// Both kinds of disk keep the contract.
    fn contract(disk: &dyn Disk, folder: &Path) {
        assert_eq!(open(disk, folder, NAME).unwrap(), None);
        assert_eq!(peek(disk, folder, NAME).unwrap(), None);
        for bytes in [OLD, &NEW, b"", OLD] {
            replace(disk, folder, NAME, bytes).unwrap();
            assert_eq!(peek(disk, folder, NAME).unwrap().as_deref(), Some(bytes));
            assert_eq!(open(disk, folder, NAME).unwrap().as_deref(), Some(bytes));
        }
        assert_eq!(disk.list(folder).unwrap(), [NAME]);
    }

    #[test]
    fn a_real_disk_keeps_the_contract() {
        let folder = tempfile::tempdir().unwrap();
        contract(&RealDisk, folder.path());
        std::fs::create_dir(folder.path().join("other")).unwrap();
        let error = open(&RealDisk, folder.path(), "other").unwrap_err();
        assert_ne!(error.kind(), io::ErrorKind::NotFound, "a folder is not an absent file");
    }

    #[test]
    fn a_simulated_disk_keeps_the_contract() {
        contract(&disk(1, false), folder());
    }

    /// Whatever fails at whatever step, by whatever way the process ends: the file is whole, and it is
    /// the new one if the replacement was said to be durable.
    #[test]
    fn a_fault_at_each_step() {
        let mut faults = 0;
        for has_old in [false, true] {
            let old = has_old.then_some(OLD);
            for fault in [Fault::Broken, Fault::Gone, Fault::Full(3)] {
                for step in 0..8 {
                    for seed in 0..SEEDS {
                        let disk = disk(seed, has_old);
                        disk.fail_at(disk.steps() + step, fault);
                        let result = replace(&disk, folder(), NAME, &NEW);
                        faults += u32::from(result.is_err());
                        if seed % 2 == 0 {
                            disk.crash();
                        } else {
                            disk.kill();
                        }
                        disk.heal();
                        let found = opened(&disk);
                        let found = found.as_deref();
                        assert!(
                            found == Some(&NEW[..]) || (found == old && result.is_err()),
                            "{fault:?} at {step}, seed {seed}: {result:?}, {found:?}"
                        );
                    }
                }
            }
        }
        assert!(faults > 500, "only {faults} of them failed");
    }

    /// What a start has read stays, also if the process before it died before its sync.
    #[test]
    fn what_was_opened_survives_the_next_power_cut() {
        let mut taken_up = 0;
        for step in 0..8 {
            for seed in 0..SEEDS {
                let disk = disk(seed, true);
                disk.fail_at(disk.steps() + step, Fault::Gone);
                let durable = replace(&disk, folder(), NAME, &NEW).is_ok();
                disk.kill();
                disk.heal();
                let first = opened(&disk);
                taken_up += u32::from(!durable && first.as_deref() == Some(&NEW[..]));
                disk.crash();
                assert_eq!(opened(&disk), first, "step {step}, seed {seed}");
            }
        }
        assert!(taken_up > 0, "the case did not happen");
    }

    /// An error is never an absent file.
    #[test]
    fn what_cannot_be_read_is_an_error() {
        let spoilt = disk(1, true);
        spoilt.spoil(&folder().join(NAME), 0);
        open(&spoilt, folder(), NAME).unwrap_err();
        peek(&spoilt, folder(), NAME).unwrap_err();
        let dead = disk(1, true);
        dead.fail_at(dead.steps(), Fault::Gone);
        open(&dead, folder(), NAME).unwrap_err();
        let large = disk(1, false);
        large.create(&folder().join(NAME)).unwrap().write_at(&[0], BYTES_MAX).unwrap();
        let error = open(&large, folder(), NAME).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
