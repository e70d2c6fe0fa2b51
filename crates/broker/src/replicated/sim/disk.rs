//! A node's journal: records in memory that become durable after a while, or never.
//!
//! ```text
//!  submit ─► waiting, in order ─► [a sync takes all that waits when it begins] ─► durable
//!                │                 on a full disk: all but bulk puts
//!                └── a crash keeps a part of it from the front, or nothing
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use journal::error::ReadError;
use journal::op::{Class, Lsn, Op, Payload};
use model::id::{Seq, StreamId};
use model::time::Timestamp;
use parking_lot::Mutex;
use quorum::group::GroupId;
use quorum::log::{Log, Then};
use quorum::recovered::Recovered;
use quorum::watermark::Watermark;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::rng::Rng;
use super::rules::{self, Rule};
use crate::shard::ground::Ground;
use crate::shards::Shards;

/// What is on a disk.
#[derive(Debug, Clone, Default)]
pub(super) struct Platter {
    records: BTreeMap<(StreamId, Seq), (Vec<u8>, Bytes)>,
    highest: BTreeMap<StreamId, Seq>,
}

/// How fast a disk is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Speed {
    /// A sync takes from so many milliseconds …
    pub(super) least: u64,
    /// … to so many.
    pub(super) most: u64,
}

/// See the module head.
pub(super) struct Disk {
    state: Mutex<State>,
    work: Notify,
    watermark: Arc<Watermark>,
    shards: Arc<Shards>,
    start: Instant,
    /// How far this node's clock is ahead of the others', in milliseconds.
    ahead: u64,
}

struct State {
    platter: Platter,
    waiting: Vec<(Lsn, Op)>,
    /// Positions that are released by what waits.
    leaving: Vec<(StreamId, Seq, Seq)>,
    next: u64,
    durable: Lsn,
    speed: Speed,
    /// Bulk puts wait for room, and what is vital goes past them.
    full: bool,
    rng: Rng,
    dead: bool,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").finish_non_exhaustive()
    }
}

impl Disk {
    pub(super) fn new(
        platter: Platter,
        shards: Arc<Shards>,
        rng: Rng,
        start: Instant,
        ahead: u64,
    ) -> Arc<Self> {
        let state = State {
            platter,
            waiting: Vec::new(),
            leaving: Vec::new(),
            next: 0,
            durable: Lsn(0),
            speed: Speed { least: 0, most: 2 },
            full: false,
            rng,
            dead: false,
        };
        let (state, work) = (Mutex::new(state), Notify::new());
        let disk = Arc::new(Self { state, work, watermark: Arc::default(), shards, start, ahead });
        tokio::spawn(Arc::clone(&disk).sync());
        disk
    }

    pub(super) fn watermark(&self) -> Arc<Watermark> {
        Arc::clone(&self.watermark)
    }

    pub(super) fn set_speed(&self, speed: Speed) {
        self.state.lock().speed = speed;
    }

    /// There is no room, or there is again.
    pub(super) fn set_full(&self, full: bool) {
        self.state.lock().full = full;
        self.work.notify_one();
    }

    /// What the disk has of a group.
    pub(super) fn recovered(&self) -> BTreeMap<GroupId, Recovered> {
        let state = self.state.lock();
        let Platter { records, highest } = &state.platter;
        let mut found: BTreeMap<GroupId, Recovered> = highest
            .iter()
            .map(|(stream, highest)| (GroupId(stream.0), Recovered::new(*highest)))
            .collect();
        for ((stream, seq), (head, payload)) in records {
            if let Some(group) = found.get_mut(&GroupId(stream.0)) {
                group.note(*seq, head, u32::try_from(payload.len()).expect("it is small"));
            }
        }
        found
    }

    /// The power fails. What is left on the disk: everything that was synced, and of the rest a part
    /// from the front.
    pub(super) fn crash(&self) -> Platter {
        let mut state = self.state.lock();
        state.dead = true;
        let mut waiting = std::mem::take(&mut state.waiting);
        if state.full {
            waiting.retain(|(_, op)| !is_bulk(op));
        }
        let all = waiting.len() as u64;
        let kept = match state.rng.below(4) {
            0 => all,
            1 => state.rng.below(all + 1),
            _ => 0,
        };
        let mut platter = state.platter.clone();
        drop(state);
        self.work.notify_one();
        for (_, op) in waiting.into_iter().take(kept as usize) {
            platter.apply(op);
        }
        self.watermark.fail(&io::Error::other("the power failed"));
        platter
    }

    /// Syncs for as long as the power is on.
    async fn sync(self: Arc<Self>) {
        loop {
            self.work.notified().await;
            loop {
                let (upto, delay) = {
                    let mut state = self.state.lock();
                    if state.dead {
                        return;
                    }
                    let is_due = |op: &Op| is_urgent(op) && !(state.full && is_bulk(op));
                    if !state.waiting.iter().any(|(_, op)| is_due(op)) {
                        break;
                    }
                    let Speed { least, most } = state.speed;
                    (Lsn(state.next), state.rng.millis(least, most))
                };
                tokio::time::sleep(delay).await;
                let durable = {
                    let mut state = self.state.lock();
                    if state.dead {
                        return;
                    }
                    state.synced(upto);
                    state.durable
                };
                self.watermark.advance_vital(upto);
                self.watermark.advance(durable);
                self.shards.wake_all();
            }
        }
    }

    fn read_now(&self, stream: StreamId, seqs: &[Seq]) -> Vec<Result<Bytes, ReadError>> {
        let state = self.state.lock();
        let read = |seq: &Seq| {
            let leaves = |(of, first, last): &(StreamId, Seq, Seq)| {
                *of == stream && (*first..=*last).contains(seq)
            };
            if state.leaving.iter().any(leaves) {
                return Err(ReadError::Missing);
            }
            let record = state.platter.records.get(&(stream, *seq));
            record.map(|(_, payload)| payload.clone()).ok_or(ReadError::Missing)
        };
        seqs.iter().map(read).collect()
    }
}

/// Whether it waits for room on a full disk.
fn is_bulk(op: &Op) -> bool {
    matches!(op, Op::Put { class: Class::Bulk, .. })
}

/// Whether somebody waits for it; the rest goes with the next that is.
fn is_urgent(op: &Op) -> bool {
    matches!(op, Op::Put { .. } | Op::Drop { .. })
}

impl State {
    fn synced(&mut self, upto: Lsn) {
        let count = self.waiting.partition_point(|(lsn, _)| *lsn <= upto);
        let mut left: Vec<(Lsn, Op)> = Vec::new();
        for (lsn, op) in self.waiting.drain(..count) {
            if self.full && is_bulk(&op) {
                left.push((lsn, op));
                continue;
            }
            if let Op::Release { stream, first, last } = &op {
                let released = |it: &Op| {
                    matches!(it, Op::Put { stream: of, seq, .. }
                        if of == stream && (first..=last).contains(&seq))
                };
                left.retain(|(_, it)| !released(it));
            }
            self.platter.apply(op);
        }
        self.durable = left.first().map_or(upto, |(lsn, _)| Lsn(lsn.0 - 1));
        self.waiting.splice(..0, left);
        let releases = self.waiting.iter().filter_map(|(_, op)| match op {
            Op::Release { stream, first, last } => Some((*stream, *first, *last)),
            _ => None,
        });
        self.leaving = releases.collect();
    }
}

impl Platter {
    fn apply(&mut self, op: Op) {
        match op {
            Op::Put { stream, seq, class, head, payload } => {
                let highest = self.highest.entry(stream).or_insert(Seq(0));
                let late = *highest >= seq;
                assert!(!late || class == Class::Bulk, "positions ascend: {seq} after {highest}");
                *highest = seq.max(*highest);
                self.records.insert((stream, seq), (head.as_slice().to_vec(), bytes(payload)));
            }
            Op::Note { stream, seq, bytes } => {
                if let Some((head, _)) = self.records.get_mut(&(stream, seq)) {
                    *head = bytes.as_slice().to_vec();
                }
            }
            Op::Release { stream, first, last } => {
                let range = (stream, first)..=(stream, last);
                let gone: Vec<_> = self.records.range(range).map(|(key, _)| *key).collect();
                for key in gone {
                    self.records.remove(&key);
                }
            }
            Op::Drop { stream } => self.records.retain(|(other, _), _| *other != stream),
        }
    }
}

fn bytes(payload: Payload) -> Bytes {
    let message = match &payload {
        Payload::Bytes(bytes) => return bytes.clone(),
        Payload::Message(message) => message,
        Payload::Shared(shared) => shared.message(),
    };
    let mut out = BytesMut::with_capacity(message.encoded_len());
    message.encode_into(&mut out);
    out.freeze()
}

impl Log for Disk {
    fn submit(&self, ops: Vec<Op>) -> Lsn {
        let mut state = self.state.lock();
        let urgent = ops.iter().any(is_urgent);
        for op in ops {
            state.next += 1;
            let lsn = Lsn(state.next);
            if let Op::Release { stream, first, last } = op {
                state.leaving.push((stream, first, last));
            }
            if !state.dead {
                state.waiting.push((lsn, op));
            }
        }
        let (lsn, dead) = (Lsn(state.next), state.dead);
        drop(state);
        if urgent {
            self.work.notify_one();
        }
        if rules::broken(Rule::SyncFirst) && !dead {
            self.watermark.advance(lsn);
        }
        lsn
    }

    fn read(&self, stream: StreamId, seqs: &[Seq], out: &mut Vec<Result<Bytes, ReadError>>) {
        out.extend(self.read_now(stream, seqs));
    }

    fn read_later(self: Arc<Self>, stream: StreamId, seqs: Vec<Seq>, then: Then) {
        let delay = {
            let mut state = self.state.lock();
            let most = state.speed.most;
            state.rng.millis(0, most / 2)
        };
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            if !self.state.lock().dead {
                then(self.read_now(stream, &seqs));
            }
        });
    }
}

impl Ground for Disk {
    fn durable(&self) -> Lsn {
        self.state.lock().durable
    }

    fn now(&self) -> Timestamp {
        let since = Instant::now().duration_since(self.start) + Duration::from_secs(1_000_000);
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX) + self.ahead)
    }
}
