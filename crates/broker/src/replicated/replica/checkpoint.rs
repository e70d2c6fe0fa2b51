//! A replica's state as bytes, and back: what the machine knows, and which records hold bodies.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{BufMut, Bytes, BytesMut};
use model::id::Seq;
use quorum::member::Body;

use super::{Replica, named_body};
use crate::replicated::containers::Record;
use crate::replicated::machine::Machine;
use crate::replicated::order::{self, Malformed};
use crate::replicated::version::{self, Unreadable};
use crate::shard::bodies::Bodies;
use crate::shard::desk::Desk;

/// The first messages of the records that a checkpoint names. None of one that cannot be read,
/// which its receiver refuses.
pub(crate) fn named_records(state: &Bytes) -> BTreeSet<Seq> {
    let mut state = state.clone();
    let mut read = || -> Result<BTreeSet<Seq>, Malformed> {
        order::u8_of(&mut state)?;
        order::take_bytes(&mut state)?;
        let mut named = BTreeSet::new();
        for _ in 0..order::u32_of(&mut state)? {
            named.insert(Seq(order::u64_of(&mut state)?));
            order::u64_of(&mut state)?;
            order::u32_of(&mut state)?;
        }
        Ok(named)
    };
    read().unwrap_or_default()
}

impl Replica {
    /// The state, small: names and headers. `None` once it has stopped: what was committed since is
    /// not in it, and whoever took it for the newest would lose that.
    pub(crate) fn checkpoint(&self) -> Option<Bytes> {
        if self.stopped.is_some() {
            return None;
        }
        let mut out = BytesMut::new();
        out.put_u8(self.machine.version());
        let machine = self.machine.encode();
        order::put_bytes(&mut out, &machine);
        let containers = self.containers.lock();
        let records: Vec<(Seq, Record)> = containers.records().collect();
        out.put_u32_le(u32::try_from(records.len()).expect("a queue has fewer records"));
        for (first, record) in records {
            out.put_u64_le(first.0);
            out.put_u64_le(record.index);
            out.put_u32_le(record.count);
        }
        Some(out.freeze())
    }

    /// Takes another state, of a checkpoint, and the records that its bodies are in.
    ///
    /// # Errors
    /// If the bytes are no checkpoint, or one of a newer version.
    pub(crate) fn install(
        &mut self,
        desk: &mut Desk,
        mut state: Bytes,
        records: Vec<Body>,
    ) -> Result<(), Unreadable> {
        self.step_down();
        let known = self.machine.known();
        version::check(order::u8_of(&mut state)?, known)?;
        let machine = Machine::decode(order::take_bytes(&mut state)?, known)?;
        let (mut by_index, mut counts) = (BTreeMap::new(), BTreeMap::new());
        for _ in 0..order::u32_of(&mut state)? {
            let (first, index) = (Seq(order::u64_of(&mut state)?), order::u64_of(&mut state)?);
            counts.insert(first, order::u32_of(&mut state)?);
            if index > 0 {
                by_index.insert(index, first);
            }
        }
        let is_alive = |seq: Seq| machine.queue().head(seq).is_some();
        let live = |first: Seq, count: u32| {
            let alive = (first.0..first.0 + u64::from(count)).filter(|seq| is_alive(Seq(*seq)));
            u32::try_from(alive.count()).unwrap_or(u32::MAX)
        };
        let mut containers = self.containers.lock();
        containers.clear();
        for body in records {
            let (first, index, position) = match body {
                // The founding entry has no messages, and the log needs it like any other.
                Body::Entry { index: 0, position } => {
                    containers.entry(0, position, Seq(0), 0);
                    continue;
                }
                Body::Entry { index, position } => (by_index.get(&index).copied(), index, position),
                Body::Carried { name, position } => match named_body(name) {
                    (seq, false) if is_alive(seq) => {
                        containers.alone(seq, position);
                        continue;
                    }
                    (_, false) => (None, 0, position),
                    (first, true) => (Some(first), 0, position),
                },
            };
            let known = first.and_then(|first| counts.get(&first).map(|count| (first, *count)));
            let count = known.map_or(0, |(_, count)| count);
            let alive = known.map_or(0, |(first, count)| live(first, count));
            let record = Record { position, index, count };
            containers.known(known.map(|(first, _)| first), record, alive);
        }
        drop(containers);
        self.machine = machine;
        self.installs += 1;
        self.carrying = None;
        self.bodies = Bodies::default();
        self.report(desk);
        self.stopped = None;
        Ok(())
    }
}
