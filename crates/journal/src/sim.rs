//! A disk in memory that may do what real disks do at the worst moment.
//!
//! What is written is seen by readers at once (the page cache) but survives a [`SimDisk::crash`]
//! for sure only once it is synced: of the rest each 512-byte sector is kept or lost, by seed. It
//! can fail at a chosen step, be full, be read-only, have sectors that cannot be read, and flip
//! bits. The same seed and the same calls give the same result.

use crate::disk::{Access, Disk, File, Held, Lock};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// What is written to the platter in one piece.
const SECTOR: u64 = 512;
const PAGE: u64 = 4096;
/// The pid that a held lock names.
const PID: u32 = 4711;

/// Numbers by seed (splitmix64).
#[derive(Debug, Clone, Copy)]
pub struct Dice(pub u64);

impl Dice {
    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is not zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.roll() % limit
    }

    /// True once in `times` times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// What happens at a chosen step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// This call fails with EIO.
    Broken,
    /// This call and all that follow fail, until [`SimDisk::crash`], [`SimDisk::kill`] or
    /// [`SimDisk::heal`].
    Gone,
    /// Calls from this one on that need room fail with ENOSPC, for so many of them.
    Full(u32),
}

/// The disk. Clones are the same disk.
#[derive(Debug, Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

/// Sparse bytes; pages that were never written, or with zeros only, do not exist.
#[derive(Debug, Clone, Default)]
struct Pages {
    pages: BTreeMap<u64, Arc<[u8; PAGE as usize]>>,
    length: u64,
}

impl Pages {
    fn write(&mut self, bytes: &[u8], offset: u64) {
        self.length = self.length.max(offset + bytes.len() as u64);
        let mut at = 0;
        while at < bytes.len() {
            let position = offset + at as u64;
            let within = (position % PAGE) as usize;
            let count = (PAGE as usize - within).min(bytes.len() - at);
            let piece = &bytes[at..at + count];
            let zeros = piece.iter().all(|&byte| byte == 0);
            if zeros && count == PAGE as usize {
                self.pages.remove(&(position / PAGE));
            } else if !zeros || self.pages.contains_key(&(position / PAGE)) {
                let empty = || Arc::new([0; PAGE as usize]);
                let page = self.pages.entry(position / PAGE).or_insert_with(empty);
                Arc::make_mut(page)[within..within + count].copy_from_slice(piece);
            }
            at += count;
        }
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let count = (self.length.saturating_sub(offset)).min(buffer.len() as u64) as usize;
        let mut at = 0;
        while at < count {
            let position = offset + at as u64;
            let within = (position % PAGE) as usize;
            let piece = (PAGE as usize - within).min(count - at);
            match self.pages.get(&(position / PAGE)) {
                Some(page) => {
                    buffer[at..at + piece].copy_from_slice(&page[within..within + piece]);
                }
                None => buffer[at..at + piece].fill(0),
            }
            at += piece;
        }
        count
    }
}

#[derive(Debug, Default)]
struct Node {
    /// What survives for sure.
    durable: Pages,
    /// What readers see.
    seen: Pages,
    /// Writes since the last sync: offset and length.
    pending: Vec<(u64, u64)>,
    /// Sectors that cannot be read until they are written again.
    bad_sectors: BTreeSet<u64>,
}

#[derive(Debug)]
struct State {
    dice: Dice,
    /// Calls that changed something, so far.
    steps: u64,
    fault: Option<(u64, Fault)>,
    full_left: u32,
    gone: bool,
    /// Files that were opened in an earlier life are dead.
    life: u64,
    read_only: bool,
    capacity: u64,
    dirs: BTreeSet<PathBuf>,
    names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    nodes: BTreeMap<u64, Node>,
    next_node: u64,
    locks: BTreeMap<PathBuf, Weak<()>>,
}

impl SimDisk {
    /// An empty disk without limits.
    pub fn new(seed: u64) -> Self {
        let state = State {
            dice: Dice(seed),
            steps: 0,
            fault: None,
            full_left: 0,
            gone: false,
            life: 0,
            read_only: false,
            capacity: u64::MAX,
            dirs: BTreeSet::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            nodes: BTreeMap::new(),
            next_node: 0,
            locks: BTreeMap::new(),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// How many calls that change something were made so far.
    pub fn steps(&self) -> u64 {
        self.state.lock().steps
    }

    /// Lets the call with this number (from 0) fail.
    pub fn fail_at(&self, step: u64, fault: Fault) {
        self.state.lock().fault = Some((step, fault));
    }

    /// Forgets a fault that was planned or is in force; a disk that is gone is back.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        state.gone = false;
        state.fault = None;
        state.full_left = 0;
    }

    /// How many bytes all files may have together.
    pub fn set_capacity(&self, bytes: u64) {
        self.state.lock().capacity = bytes;
    }

    /// Whether writing is forbidden.
    pub fn set_read_only(&self, read_only: bool) {
        self.state.lock().read_only = read_only;
    }

    /// The power fails: what was not synced is kept or lost by the seed. Files and locks of the
    /// old life are dead.
    pub fn crash(&self) {
        let mut state = self.state.lock();
        let state = &mut *state;
        // Some crashes lose everything, some nothing, most something.
        let mood = state.dice.below(8);
        let keeps = |dice: &mut Dice| match mood {
            0 => false,
            1 => true,
            2 => !dice.one_in(16),
            3 => dice.one_in(16),
            _ => dice.one_in(2),
        };
        for node in state.nodes.values_mut() {
            let mut sector_bytes = [0; SECTOR as usize];
            for &(offset, length) in &node.pending {
                let end = offset + length;
                let mut at = offset;
                while at < end {
                    let next = (at / SECTOR + 1) * SECTOR;
                    let piece = (next.min(end) - at) as usize;
                    if keeps(&mut state.dice) {
                        // What is seen may be newer than this write; both orders are possible.
                        node.seen.read(&mut sector_bytes[..piece], at);
                        node.durable.write(&sector_bytes[..piece], at);
                    }
                    at += piece as u64;
                }
            }
            node.durable.length = node.durable.length.max(node.seen.length);
            node.pending.clear();
            node.seen = node.durable.clone();
        }
        let touched: BTreeSet<PathBuf> =
            state.names.keys().chain(state.durable_names.keys()).cloned().collect();
        for path in touched {
            let (now, then) = (state.names.get(&path), state.durable_names.get(&path));
            if now != then && !keeps(&mut state.dice) {
                match then.copied() {
                    Some(node) => state.names.insert(path, node),
                    None => state.names.remove(&path),
                };
            }
        }
        state.durable_names = state.names.clone();
        state.reborn();
    }

    /// The process is killed: everything written stays. Files and locks of the old life are dead.
    pub fn kill(&self) {
        self.state.lock().reborn();
    }

    /// Damages one bit of a file.
    pub fn flip(&self, path: &Path, offset: u64, bit: u8) {
        let mut state = self.state.lock();
        let Some(&node) = state.names.get(path) else { return };
        let node = state.nodes.get_mut(&node).expect("names point to nodes");
        for pages in [&mut node.durable, &mut node.seen] {
            let mut byte = [0];
            if pages.read(&mut byte, offset) == 1 {
                pages.write(&[byte[0] ^ (1 << bit)], offset);
            }
        }
    }

    /// Makes the sector at an offset of a file unreadable until it is written again.
    pub fn spoil(&self, path: &Path, offset: u64) {
        let mut state = self.state.lock();
        let Some(&node) = state.names.get(path) else { return };
        let node = state.nodes.get_mut(&node).expect("names point to nodes");
        node.bad_sectors.insert(offset / SECTOR);
    }

    /// The paths of all files.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.state.lock().names.keys().cloned().collect()
    }

    /// A file's bytes as readers see them.
    pub fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state.lock();
        let node = &state.nodes[state.names.get(path)?];
        let mut bytes = vec![0; node.seen.length as usize];
        node.seen.read(&mut bytes, 0);
        Some(bytes)
    }

    /// Bytes of all files together.
    pub fn used(&self) -> u64 {
        self.state.lock().used()
    }
}

impl State {
    fn reborn(&mut self) {
        self.gone = false;
        self.fault = None;
        self.full_left = 0;
        self.life += 1;
        self.locks.clear();
    }

    fn used(&self) -> u64 {
        self.names.values().map(|node| self.nodes[node].seen.length).sum()
    }

    /// Counts a call that changes something, and lets it fail if that is planned.
    fn step(&mut self, life: Option<u64>, needs_room: bool) -> io::Result<()> {
        if self.gone || life.is_some_and(|life| life != self.life) {
            return Err(io::Error::other("the disk is gone"));
        }
        if self.read_only {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let step = self.steps;
        self.steps += 1;
        if let Some((at, fault)) = self.fault
            && at == step
        {
            self.fault = None;
            match fault {
                Fault::Broken => return Err(io::Error::other("input/output error")),
                Fault::Gone => {
                    self.gone = true;
                    return Err(io::Error::other("the disk is gone"));
                }
                Fault::Full(times) => self.full_left = times,
            }
        }
        if needs_room && self.full_left > 0 {
            self.full_left -= 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn file(&self, disk: &SimDisk, node: u64) -> Arc<dyn File> {
        Arc::new(SimFile { state: Arc::clone(&disk.state), node, life: self.life })
    }
}

impl Disk for SimDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.names.contains_key(dir) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if !state.dirs.contains(dir) {
            state.step(None, false)?;
            state.dirs.insert(dir.into());
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        if !state.dirs.contains(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let names = state.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(names.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut state = self.state.lock();
        state.step(None, true)?;
        let node = state.next_node;
        state.next_node += 1;
        state.nodes.insert(node, Node::default());
        state.names.insert(path.into(), node);
        Ok(state.file(self, node))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let state = self.state.lock();
        if state.read_only && access == Access::Write {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let node = *state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(state.file(self, node))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        // A longer directory may need it.
        state.step(None, true)?;
        let node = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.into(), node);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.step(None, false)?;
        state.names.remove(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.step(None, false)?;
        state.durable_names = state.names.clone();
        Ok(())
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        let state = self.state.lock();
        Ok(state.capacity.saturating_sub(state.used()))
    }

    fn random(&self) -> u64 {
        self.state.lock().dice.roll()
    }

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        let mut state = self.state.lock();
        if state.locks.get(path).is_some_and(|held| held.strong_count() > 0) {
            return Ok(Lock::Busy(PID));
        }
        state.step(None, false)?;
        let held = Arc::new(());
        state.locks.insert(path.into(), Arc::downgrade(&held));
        Ok(Lock::Held(Box::new(SimLock { _held: held })))
    }

    fn holder(&self, path: &Path) -> io::Result<Option<u32>> {
        let state = self.state.lock();
        let held = state.locks.get(path).is_some_and(|held| held.strong_count() > 0);
        Ok(held.then_some(PID))
    }
}

#[derive(Debug)]
struct SimLock {
    _held: Arc<()>,
}

impl Held for SimLock {}

#[derive(Debug)]
struct SimFile {
    state: Arc<Mutex<State>>,
    node: u64,
    life: u64,
}

impl File for SimFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.state.lock().nodes[&self.node].seen.length)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.state.lock();
        if state.gone || self.life != state.life {
            return Err(io::Error::other("the disk is gone"));
        }
        let node = &state.nodes[&self.node];
        let sectors = offset / SECTOR..(offset + buffer.len() as u64).div_ceil(SECTOR);
        if node.bad_sectors.range(sectors).next().is_some() {
            return Err(rustix::io::Errno::IO.into());
        }
        Ok(node.seen.read(buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let end = offset + bytes.len() as u64;
        let grows = end.saturating_sub(state.nodes[&self.node].seen.length);
        state.step(Some(self.life), grows > 0)?;
        if grows > 0 && state.used() + grows > state.capacity {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let node = state.nodes.get_mut(&self.node).expect("an open file has a node");
        node.seen.write(bytes, offset);
        let end = offset + bytes.len() as u64;
        node.bad_sectors.retain(|sector| !(offset / SECTOR..end.div_ceil(SECTOR)).contains(sector));
        node.pending.push((offset, bytes.len() as u64));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.step(Some(self.life), false)?;
        let node = state.nodes.get_mut(&self.node).expect("an open file has a node");
        node.pending.clear();
        node.durable = node.seen.clone();
        Ok(())
    }
}
