//! The disk of the machine, through `std::fs`.

use crate::disk::{Access, Disk, File, Held, Lock};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// The file system that the process sees.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

#[derive(Debug)]
struct RealFile(fs::File);

/// An flock, released when the file is closed.
#[derive(Debug)]
struct RealLock {
    _file: fs::File,
}

impl Held for RealLock {}

impl Disk for RealDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        Ok(Arc::new(RealFile(options.open(path)?)))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(access == Access::Write);
        Ok(Arc::new(RealFile(options.open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        // The parent of a relative name is the empty name.
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        fs::File::open(dir)?.sync_all()
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn random(&self) -> u64 {
        // The keys of the standard hasher come from the operating system.
        std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id())
    }

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path)?;
        match file.try_lock() {
            Ok(()) => {
                // The pid is a courtesy; on a full disk there may be no room for it.
                let _written =
                    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
                Ok(Lock::Held(Box::new(RealLock { _file: file })))
            }
            Err(fs::TryLockError::WouldBlock) => Ok(Lock::Busy(pid_in(&mut file))),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    fn holder(&self, path: &Path) -> io::Result<Option<u32>> {
        let mut file = match fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(fs::TryLockError::WouldBlock) => Ok(Some(pid_in(&mut file))),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }
}

fn pid_in(file: &mut fs::File) -> u32 {
    let mut text = String::new();
    match file.read_to_string(&mut text) {
        Ok(_) => text.trim().parse().unwrap_or(0),
        Err(_) => 0,
    }
}

impl File for RealFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}
