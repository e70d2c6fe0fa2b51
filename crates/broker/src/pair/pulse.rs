//! Whether a disk still does something: what goes through here is counted when it is done.
//!
//! To open a journal takes as long as it is big. A disk that hangs is told from one that has much to do
//! by that nothing is added.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use journal::disk::{Access, Disk, File, Lock};

/// How much was done.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pulse(Arc<AtomicU64>);

impl Pulse {
    /// So much, by now.
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A disk of which each work is counted.
#[derive(Debug)]
pub(crate) struct Watched<D> {
    pub(crate) disk: D,
    pub(crate) pulse: Pulse,
}

impl<D: Disk> Watched<D> {
    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        self.pulse.beat();
        Arc::new(WatchedFile { file, pulse: self.pulse.clone() })
    }

    fn done<T>(&self, result: T) -> T {
        self.pulse.beat();
        result
    }
}

impl<D: Disk> Disk for Watched<D> {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.done(self.disk.create_dir(dir))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.done(self.disk.list(dir))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.disk.create(path).map(|file| self.file(file))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        self.disk.open(path, access).map(|file| self.file(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.done(self.disk.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.done(self.disk.remove(path))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.done(self.disk.sync_dir(dir))
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.done(self.disk.free_bytes(dir))
    }

    fn random(&self) -> u64 {
        self.disk.random()
    }

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        self.done(self.disk.lock(path))
    }

    fn holder(&self, path: &Path) -> io::Result<Option<u32>> {
        self.done(self.disk.holder(path))
    }
}

#[derive(Debug)]
struct WatchedFile {
    file: Arc<dyn File>,
    pulse: Pulse,
}

impl WatchedFile {
    fn done<T>(&self, result: T) -> T {
        self.pulse.beat();
        result
    }
}

impl File for WatchedFile {
    fn length(&self) -> io::Result<u64> {
        self.done(self.file.length())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.done(self.file.read_at(buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.done(self.file.write_at(bytes, offset))
    }

    fn sync(&self) -> io::Result<()> {
        self.done(self.file.sync())
    }
}

#[cfg(test)]
mod tests {
    use journal::journal::Journal;
    use journal::listener::Deaf;
    use journal::op::{Class, Head, Op, Payload};
    use journal::options::Options;
    use journal::sim::SimDisk;
    use model::id::{Seq, StreamId};

    use super::*;

    /// To open a journal is work that is seen, and so is to look through it.
    #[test]
    fn recovery_is_seen() {
        let (disk, pulse) = (SimDisk::new(1), Pulse::default());
        let open = || {
            let disk = Watched { disk: disk.clone(), pulse: pulse.clone() };
            Journal::open(Options::new("/data"), Arc::new(disk), Arc::new(Deaf)).unwrap()
        };
        let (journal, recovery) = open();
        drop(recovery);
        let put = |seq| {
            let payload = Payload::Bytes(bytes::Bytes::from(vec![1; 1000]));
            let (stream, class, head) = (StreamId(1), Class::Bulk, Head::default());
            Op::Put { stream, seq: Seq(seq), class, head, payload }
        };
        journal.submit((1..=100).map(put).collect());
        journal.close().unwrap();
        let closed = pulse.count();
        let (journal, recovery) = open();
        let opened = pulse.count();
        assert!(closed < opened);
        let mut seen = 0;
        recovery.for_each(|_, _, _, _| seen += 1).unwrap();
        assert!(seen == 100 && opened < pulse.count());
        journal.close().unwrap();
    }
}
