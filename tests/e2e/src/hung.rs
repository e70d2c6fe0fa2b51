//! A disk that hangs: a small file system of its own, which takes no write while it is frozen. Reads go
//! on, and what had begun to write waits, without an error.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Bytes that it seems to have; the image is sparse.
const SIZE: u64 = 2 << 30;

/// See the module head. It never stays frozen: what drops it lets it go on first.
#[derive(Debug)]
pub struct HangingDisk {
    scratch: TempDir,
}

impl HangingDisk {
    /// Makes and mounts one.
    ///
    /// # Errors
    /// Why that cannot be done here: it takes root, and a loop device.
    pub fn new() -> Result<Self, String> {
        let scratch = TempDir::new().map_err(|error| error.to_string())?;
        let disk = Self { scratch };
        let image = disk.scratch.path().join("image");
        let made = File::create(&image).and_then(|file| file.set_len(SIZE));
        made.and_then(|()| fs::create_dir(disk.mount())).map_err(|error| error.to_string())?;
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(disk.mount()))?;
        Ok(disk)
    }

    /// A folder on it.
    pub fn folder(&self) -> PathBuf {
        self.mount().join("data")
    }

    /// It takes no write from now on.
    ///
    /// # Panics
    /// If it cannot be frozen.
    pub fn freeze(&self) {
        run(Command::new("fsfreeze").arg("-f").arg(self.mount())).expect("it can be frozen");
    }

    /// It goes on.
    ///
    /// # Panics
    /// If it cannot.
    pub fn thaw(&self) {
        run(Command::new("fsfreeze").arg("-u").arg(self.mount())).expect("it is frozen");
    }

    fn mount(&self) -> PathBuf {
        self.scratch.path().join("mount")
    }
}

impl Drop for HangingDisk {
    fn drop(&mut self) {
        // Both fail if it is not frozen, or was never mounted. Processes may still use it.
        let _not_frozen = run(Command::new("fsfreeze").arg("-u").arg(self.mount()));
        let _not_mounted = run(Command::new("umount").arg("-l").arg(self.mount()));
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let name = Path::new(command.get_program()).display().to_string();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}
