//! A small ordered key-value store, in RocksDB or in memory, and the records of the topology in it.
//!
//! This is the one file that touches RocksDB. Nothing here is synced: the journal holds the
//! commands, and after a crash those after [`applied`] are applied again. A batch is written
//! whole or not at all, so that the records are always those of one moment.

use std::collections::BTreeMap;
use std::path::Path;

use crate::outcome::Outcome;
use crate::state::State;

pub mod dump;
mod load;
pub(crate) mod record;

/// Why the store failed.
#[derive(Debug)]
pub struct Failure {
    /// What was done, and what the store says.
    pub reason: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Failure {}

/// A write that is part of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Puts a value under a key.
    Put(Vec<u8>, Vec<u8>),
    /// Removes a key; nothing if it is not there.
    Delete(Vec<u8>),
}

/// What [`Kv::scan`] calls for each pair; `false` ends the scan.
pub type Visit<'v> = dyn FnMut(&[u8], &[u8]) -> bool + 'v;

/// An ordered key-value store.
pub trait Kv: Send + Sync {
    /// The value under a key.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure>;

    /// Writes all or nothing. Survives the end of the process, but not of the machine before
    /// [`Kv::flush`].
    ///
    /// # Errors
    /// If the store cannot be written.
    fn write(&self, batch: Vec<Write>) -> Result<(), Failure>;

    /// Visits the pairs whose keys begin with `prefix`, in the order of keys.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn scan(&self, prefix: &[u8], visit: &mut Visit<'_>) -> Result<(), Failure>;

    /// Blocks until everything written is on the disk.
    ///
    /// # Errors
    /// If the store cannot be written.
    fn flush(&self) -> Result<(), Failure>;

    /// Puts one value.
    ///
    /// # Errors
    /// If the store cannot be written.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.write(vec![Write::Put(key.to_vec(), value.to_vec())])
    }

    /// Removes one key.
    ///
    /// # Errors
    /// If the store cannot be written.
    fn delete(&self, key: &[u8]) -> Result<(), Failure> {
        self.write(vec![Write::Delete(key.to_vec())])
    }
}

/// Writes what a command changed, together with `applied`, the position of the command in the
/// journal. Also for a command that was refused (with an empty outcome), if the position shall
/// move. After a failure nothing more may be saved but the whole ([`save_all`]): the position would
/// say that what was not written is there.
///
/// Objects that are not durable are written too, so that a replay from here finds exactly what was
/// there and decides the same; `Command::Restarted`, applied after the replay, drops them.
///
/// # Errors
/// If the store cannot be written.
pub fn save(kv: &dyn Kv, outcome: &Outcome, applied: u64) -> Result<(), Failure> {
    load::save(kv, outcome, applied)
}

/// Writes the whole state and drops whatever else was there.
///
/// # Errors
/// If the store cannot be written.
pub fn save_all(kv: &dyn Kv, state: &State, applied: u64) -> Result<(), Failure> {
    load::save_all(kv, state, applied)
}

/// Reads the state and the position of the last command in it; `None` from an empty store.
///
/// # Errors
/// If the store cannot be read or holds what this version does not understand.
pub fn load(kv: &dyn Kv) -> Result<Option<(State, u64)>, Failure> {
    load::load(kv)
}

/// The position of the last command whose change is in the store.
///
/// # Errors
/// If the store cannot be read.
pub fn applied(kv: &dyn Kv) -> Result<Option<u64>, Failure> {
    load::applied(kv)
}

/// A store in memory, for tests and simulations.
#[derive(Debug, Default)]
pub struct Memory {
    pairs: std::sync::RwLock<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<Vec<u8>, Vec<u8>>> {
        self.pairs.read().expect("nobody panics while holding the lock")
    }
}

impl Kv for Memory {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.read().get(key).cloned())
    }

    fn write(&self, batch: Vec<Write>) -> Result<(), Failure> {
        let mut pairs = self.pairs.write().expect("nobody panics while holding the lock");
        for write in batch {
            match write {
                Write::Put(key, value) => drop(pairs.insert(key, value)),
                Write::Delete(key) => drop(pairs.remove(&key)),
            }
        }
        Ok(())
    }

    fn scan(&self, prefix: &[u8], visit: &mut Visit<'_>) -> Result<(), Failure> {
        for (key, value) in self.read().range(prefix.to_vec()..) {
            if !key.starts_with(prefix) || !visit(key, value) {
                break;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), Failure> {
        Ok(())
    }
}

/// A store in RocksDB. Its own write-ahead log is written without sync: it makes a batch whole and
/// survives the end of the process; what a power cut takes is applied again from the journal.
pub struct Rocks {
    db: rocksdb::DB,
}

impl std::fmt::Debug for Rocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rocks").field("path", &self.db.path()).finish()
    }
}

impl Rocks {
    /// Opens the store in a directory of its own, making it if need be. Blocks. Takes RocksDB's
    /// lock on the directory, so that no two processes have it open.
    ///
    /// # Errors
    /// If the directory cannot be used, is in use, or holds damaged files.
    pub fn open(directory: &Path) -> Result<Self, Failure> {
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        options.set_compression_type(rocksdb::DBCompressionType::None);
        // The topology is small: ten thousand queues are a few megabytes.
        options.set_write_buffer_size(4 << 20);
        options.set_max_write_buffer_number(2);
        options.set_max_open_files(64);
        options.set_max_background_jobs(2);
        options.set_max_total_wal_size(16 << 20);
        // All of it is in memory once it was read, so that caching blocks would only cost.
        let mut blocks = rocksdb::BlockBasedOptions::default();
        blocks.set_block_cache(&rocksdb::Cache::new_lru_cache(1 << 20));
        options.set_block_based_table_factory(&blocks);
        options.set_stats_dump_period_sec(0);
        options.set_keep_log_file_num(2);
        options.set_recycle_log_file_num(0);
        options.set_wal_recovery_mode(rocksdb::DBRecoveryMode::TolerateCorruptedTailRecords);
        let db = rocksdb::DB::open(&options, directory)
            .map_err(failure(&format!("cannot open the store {}", directory.display())))?;
        Ok(Self { db })
    }
}

impl Kv for Rocks {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        self.db.get(key).map_err(failure("cannot read the store"))
    }

    fn write(&self, batch: Vec<Write>) -> Result<(), Failure> {
        let mut writes = rocksdb::WriteBatch::default();
        for write in batch {
            match write {
                Write::Put(key, value) => writes.put(key, value),
                Write::Delete(key) => writes.delete(key),
            }
        }
        let mut options = rocksdb::WriteOptions::default();
        options.set_sync(false);
        self.db.write_opt(writes, &options).map_err(failure("cannot write the store"))
    }

    fn scan(&self, prefix: &[u8], visit: &mut Visit<'_>) -> Result<(), Failure> {
        let from = rocksdb::IteratorMode::From(prefix, rocksdb::Direction::Forward);
        for pair in self.db.iterator(from) {
            let (key, value) = pair.map_err(failure("cannot read the store"))?;
            if !key.starts_with(prefix) || !visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), Failure> {
        self.db.flush_wal(true).map_err(failure("cannot flush the store"))?;
        self.db.flush().map_err(failure("cannot flush the store"))
    }
}

fn failure(what: &str) -> impl FnOnce(rocksdb::Error) -> Failure {
    let what = what.to_owned();
    move |error| Failure { reason: format!("{what}: {error}") }
}

#[cfg(test)]
mod tests;
