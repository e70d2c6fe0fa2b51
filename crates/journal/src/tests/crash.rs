//! Random work on the simulated disk, with a crash at any step.
//!
//! After each crash: what was reported durable and not released is there, byte for byte; what was
//! released durably is gone; puts that were not reported may be there, but none without those of its
//! class before it; heads are the last durable ones or newer.
//!
//! 200 seeds by default; `SEEDS=1000` for the full count, `SEED=N SEEDS=1` for one that failed.

use crate::inline::InlineJournal;
use crate::op::{Class, Head, Op, Payload, Shared};
use crate::options::Options;
use crate::recovery::Recovery;
use crate::sim::{Dice, Fault, SimDisk};
use bytes::Bytes;
use model::id::{Seq, StreamId};
use model::message::Message;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

type Name = (StreamId, Seq);

/// What is known of a record.
#[derive(Debug, Clone)]
struct Record {
    put: u64,
    class: Class,
    payload: Bytes,
    heads: Vec<(u64, Head)>,
    released: Option<u64>,
}

/// Both watermarks.
#[derive(Debug, Default, Clone, Copy)]
struct Reached {
    durable: u64,
    vital: u64,
}

impl Reached {
    fn of(journal: &InlineJournal) -> Self {
        Self { durable: journal.durable().0, vital: journal.vital().0 }
    }

    fn class(&mut self, class: Class) -> &mut u64 {
        match class {
            Class::Bulk => &mut self.durable,
            Class::Vital => &mut self.vital,
        }
    }
}

#[derive(Debug, Default)]
struct Model {
    records: BTreeMap<Name, Record>,
}

impl Model {
    fn apply(&mut self, lsn: u64, op: &Op) {
        match op {
            Op::Put { stream, seq, class, head, payload } => {
                let payload = match payload {
                    Payload::Bytes(bytes) => bytes.clone(),
                    Payload::Message(message) => stored(message),
                    Payload::Shared(shared) => stored(shared.message()),
                };
                let heads = vec![(lsn, *head)];
                let record = Record { put: lsn, class: *class, payload, heads, released: None };
                self.records.insert((*stream, *seq), record);
            }
            Op::Note { stream, seq, bytes } => {
                if let Some(record) = self.records.get_mut(&(*stream, *seq))
                    && record.released.is_none()
                {
                    record.heads.push((lsn, *bytes));
                }
            }
            Op::Release { stream, first, last } => self.release(lsn, *stream, *first, *last),
            Op::Drop { stream } => self.release(lsn, *stream, Seq(0), Seq(u64::MAX)),
        }
    }

    fn release(&mut self, lsn: u64, stream: StreamId, first: Seq, last: Seq) {
        for (_, record) in self.records.range_mut((stream, first)..=(stream, last)) {
            record.released.get_or_insert(lsn);
        }
    }

    fn live(&self) -> Vec<Name> {
        let live = self.records.iter().filter(|(_, record)| record.released.is_none());
        live.map(|(&name, _)| name).collect()
    }

    /// Checks what a recovery found, and goes on from it.
    fn check(&mut self, reached: Reached, recovery: Recovery, journal: &InlineJournal) {
        assert!(recovery.report().quarantined.is_empty(), "{:?}", recovery.report());
        let known: BTreeMap<StreamId, Seq> =
            recovery.streams().iter().map(|known| (known.stream, known.highest)).collect();
        let mut found: BTreeMap<Name, (Head, u32)> = BTreeMap::new();
        let mut last: BTreeMap<StreamId, Seq> = BTreeMap::new();
        recovery
            .for_each(|stream, seq, head, payload| {
                let before = last.insert(stream, seq);
                assert!(before.is_none_or(|before| before < seq), "order in {stream}");
                found.insert((stream, seq), (Head::new(head), payload));
            })
            .unwrap();
        let mut last_put = reached;
        // Nothing that is in force for a record may depend on bulk puts that wait.
        let durable = reached.vital;
        for (name, (head, length)) in &found {
            let record = self.records.get(name).unwrap_or_else(|| panic!("{name:?} was never put"));
            assert!(record.released.is_none_or(|released| released > durable), "{name:?} is back");
            assert_eq!(*length as usize, record.payload.len(), "{name:?}");
            let mut out = Vec::new();
            journal.read(name.0, &[name.1], &mut out);
            assert_eq!(out[0].as_ref().unwrap(), &record.payload, "{name:?}");
            let since = record.heads.iter().rposition(|&(lsn, _)| lsn <= durable).unwrap_or(0);
            let allowed = &record.heads[since..];
            assert!(allowed.iter().any(|(_, other)| other == head), "{name:?} has an old head");
            let last_put = last_put.class(record.class);
            *last_put = record.put.max(*last_put);
            assert!(known[&name.0] >= name.1);
        }
        for (name, record) in &self.records {
            if record.put <= *last_put.class(record.class) && record.released.is_none() {
                assert!(
                    found.contains_key(name),
                    "{name:?} is lost: {:?} {}",
                    record.class,
                    record.put
                );
            }
        }
        self.records = found
            .into_iter()
            .map(|(name, (head, _))| {
                let Record { payload, class, .. } = self.records[&name].clone();
                (name, Record { put: 0, class, payload, heads: vec![(0, head)], released: None })
            })
            .collect();
    }
}

fn stored(message: &Message) -> Bytes {
    let mut bytes = Vec::new();
    message.encode_into(&mut bytes);
    bytes.into()
}

/// A journal on a simulated disk, what it should hold, and the dice.
struct World {
    disk: SimDisk,
    /// There is room for a few segments only.
    is_small: bool,
    dice: Dice,
    model: Model,
    next: BTreeMap<u64, u64>,
    next_stream: u64,
    shared: Option<Arc<Shared>>,
    now: Duration,
    torn: u64,
    resumed: u64,
    parked: u64,
    passed: bool,
}

impl World {
    fn new(seed: u64, segments: Option<u64>) -> Self {
        let next = (1..5).map(|stream| (stream, 1)).collect();
        let disk = SimDisk::new(seed);
        if let Some(segments) = segments {
            disk.set_capacity(64 + segments * (64 << 10));
        }
        Self {
            disk,
            is_small: segments.is_some(),
            dice: Dice(seed ^ 0x5eed),
            model: Model::default(),
            next,
            next_stream: 5,
            shared: None,
            now: Duration::ZERO,
            torn: 0,
            resumed: 0,
            parked: 0,
            passed: false,
        }
    }

    fn options() -> Options {
        Options { segment_bytes: 64 << 10, ..Options::new("/journal") }
    }

    fn bytes(&mut self) -> Bytes {
        let length = match self.dice.below(100) {
            0 => self.dice.below(100 << 10),
            1..6 => self.dice.below(40 << 10),
            6..30 => self.dice.below(4 << 10),
            _ => self.dice.below(200),
        };
        let mut bytes = vec![self.dice.roll() as u8; length as usize];
        for byte in bytes.iter_mut().take(16) {
            *byte = self.dice.roll() as u8;
        }
        bytes.into()
    }

    fn head(&mut self) -> Head {
        let length = self.dice.below(Head::MAX as u64 + 1) as usize;
        Head::new(&self.dice.roll().to_le_bytes().repeat(3)[..length])
    }

    fn put(&mut self, stream: u64, payload: Payload) -> Op {
        let seq = self.next.get_mut(&stream).unwrap();
        // Not always dense.
        *seq += 1 + if self.dice.one_in(20) { self.dice.below(1000) } else { 0 };
        let seq = *seq;
        let class = if self.dice.one_in(5) { Class::Vital } else { Class::Bulk };
        Op::Put { stream: StreamId(stream), seq: Seq(seq), class, head: self.head(), payload }
    }

    fn stream(&mut self) -> u64 {
        let streams: Vec<_> = self.next.keys().copied().collect();
        streams[self.dice.below(streams.len() as u64) as usize]
    }

    fn ops(&mut self) -> Vec<Op> {
        let mut ops = Vec::new();
        let live = self.model.live();
        // Long phases of growing and of shrinking.
        let shrinks = live.len() > 300 || self.now.as_millis() / 1000 % 2 == 1;
        for _ in 0..self.dice.below(12) {
            let stream = self.stream();
            let pick = |dice: &mut Dice| live[dice.below(live.len() as u64) as usize];
            match self.dice.below(if shrinks { 300 } else { 100 }) {
                0..45 => {
                    let payload = Payload::Bytes(self.bytes());
                    ops.push(self.put(stream, payload));
                }
                45..60 => {
                    if self.shared.is_none() || self.dice.one_in(3) {
                        let body = self.bytes();
                        let message = Message::from_parts("exchange", "key", &[0, 0], &body);
                        self.shared = Some(Arc::new(Shared::new(message)));
                    }
                    let shared = self.shared.clone().unwrap();
                    let streams: Vec<_> = self.next.keys().copied().collect();
                    for stream in streams {
                        if self.dice.one_in(2) {
                            ops.push(self.put(stream, Payload::Shared(Arc::clone(&shared))));
                        }
                    }
                }
                60..64 => {
                    let message = Message::from_parts("", "q", &[0, 0], &self.bytes());
                    ops.push(self.put(stream, Payload::Message(message)));
                }
                64..75 if !live.is_empty() => {
                    let (stream, seq) = pick(&mut self.dice);
                    ops.push(Op::Note { stream, seq, bytes: self.head() });
                }
                75..76 if self.dice.one_in(8) && self.next.len() > 2 => {
                    self.next.remove(&stream);
                    self.next.insert(self.next_stream, 0);
                    self.next_stream += 1;
                    ops.push(Op::Drop { stream: StreamId(stream) });
                }
                76..80 => {
                    let last = Seq(self.next[&stream].saturating_sub(self.dice.below(300)));
                    let first = Seq(last.0.saturating_sub(self.dice.below(100)));
                    ops.push(Op::Release { stream: StreamId(stream), first, last });
                }
                _ if !live.is_empty() => {
                    // The very first records stay for long.
                    let at = self.dice.below(live.len() as u64) as usize;
                    if at > 3 || self.dice.one_in(50) {
                        let (stream, seq) = live[at];
                        ops.push(Op::Release { stream, first: seq, last: seq });
                    }
                }
                _ => {}
            }
        }
        ops
    }

    /// Opens the journal, perhaps dying on the way, and checks what is there.
    fn open(&mut self, reached: Reached) -> InlineJournal {
        loop {
            if self.dice.one_in(4) {
                let step = self.disk.steps() + self.dice.below(12);
                self.disk.fail_at(step, Fault::Gone);
            }
            let disk = Arc::new(self.disk.clone());
            match InlineJournal::open(Self::options(), disk) {
                Ok((journal, recovery)) => {
                    self.disk.heal();
                    self.torn += u64::from(recovery.report().torn.is_some());
                    self.resumed += u64::from(recovery.resumed.is_some());
                    for known in recovery.streams() {
                        // Names whose every trace is gone may be given again.
                        if let Some(next) = self.next.get_mut(&known.stream.0) {
                            *next = known.highest.0;
                        }
                    }
                    self.model.check(reached, recovery, &journal);
                    return journal;
                }
                Err(error) => {
                    assert!(error.to_string().contains("gone"), "{error}");
                    self.die();
                }
            }
        }
    }

    fn die(&mut self) {
        if self.dice.one_in(3) {
            self.disk.kill();
        } else {
            self.disk.crash();
        }
    }

    /// Works until the disk goes; what was durable then.
    fn live(&mut self, journal: &mut InlineJournal, batches: u64) -> Result<(), Reached> {
        for _ in 0..batches {
            let ops = self.ops();
            let first = journal.handed().0;
            for (lsn, op) in (first + 1..).zip(&ops) {
                self.model.apply(lsn, op);
            }
            journal.submit(ops);
            if self.dice.one_in(3) {
                continue;
            }
            self.now += Duration::from_millis(self.dice.below(12));
            let hasten = self.dice.one_in(16);
            journal.step(self.now, hasten).map_err(|_| Reached::of(journal))?;
            self.parked = self.parked.max(journal.stats().parked_ops);
            self.passed |= journal.vital() > journal.durable();
            for _ in 0..self.dice.below(4) {
                journal.work();
            }
        }
        Ok(())
    }
}

/// What the runs went through, to see that they go everywhere.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    carried: u64,
    surveyed: u64,
    recycled: u64,
    held: u64,
    parked: u64,
    /// Lives in which vital puts went past bulk ones.
    passed: u64,
    torn: u64,
    resumed: u64,
    deaths: u64,
    closed: u64,
}

/// One seed: several lives on one disk.
fn run(seed: u64, segments: Option<u64>, lives: u64) -> Seen {
    let mut world = World::new(seed, segments);
    let mut reached = Reached::default();
    let mut seen = Seen::default();
    for _ in 0..lives {
        let mut journal = world.open(reached);
        let batches = if world.dice.one_in(4) {
            100
        } else {
            let step = world.disk.steps() + world.dice.below(1200);
            world.disk.fail_at(step, Fault::Gone);
            600
        };
        let outcome = world.live(&mut journal, batches);
        let stats = journal.stats();
        seen.carried += stats.carried_records;
        seen.surveyed += stats.surveyed_segments;
        seen.recycled += stats.recycled_segments;
        seen.held += stats.held_puts;
        seen.parked += std::mem::take(&mut world.parked);
        seen.passed += u64::from(std::mem::take(&mut world.passed));
        if let Err(before) = outcome {
            reached = before;
            seen.deaths += 1;
        } else {
            world.disk.heal();
            reached = Reached::of(&journal);
            if world.dice.one_in(2) {
                seen.closed += 1;
                let handed = journal.handed().0;
                match journal.close(world.now) {
                    Ok(()) => reached = Reached { durable: handed, vital: handed },
                    Err(error) => assert!(world.is_small, "{error}"),
                }
            }
        }
        world.die();
    }
    drop(world.open(reached));
    seen.torn = world.torn;
    seen.resumed = world.resumed;
    seen
}

#[test]
fn nothing_durable_is_lost_in_any_crash() {
    run_all(200, |seed| (seed % 4 == 3).then_some(10));
}

/// The same where there is hardly more room than the reserve and what replaces it.
#[test]
fn nothing_durable_is_lost_on_a_small_disk() {
    run_all(100, |seed| Some(6 + seed % 4));
}

fn run_all(seeds: u64, segments: impl Fn(u64) -> Option<u64> + std::panic::RefUnwindSafe) {
    let seeds = std::env::var("SEEDS").map_or(seeds, |seeds| seeds.parse().unwrap());
    let lives = std::env::var("LIVES").map_or(4, |lives| lives.parse().unwrap());
    let first = std::env::var("SEED").map_or(0, |seed| seed.parse().unwrap());
    let mut all = Seen::default();
    for seed in first..first + seeds {
        let result = std::panic::catch_unwind(|| run(seed, segments(seed), lives));
        let Ok(seen) = result else { panic!("failed with SEED={seed} SEEDS=1") };
        all.carried += seen.carried;
        all.surveyed += seen.surveyed;
        all.recycled += seen.recycled;
        all.held += seen.held;
        all.parked += seen.parked;
        all.passed += seen.passed;
        all.torn += seen.torn;
        all.resumed += seen.resumed;
        all.deaths += seen.deaths;
        all.closed += seen.closed;
    }
    if seeds >= 100 {
        let went = [all.carried, all.surveyed, all.recycled, all.held, all.torn, all.closed];
        let full = [all.resumed, all.parked, all.passed];
        assert!(went.into_iter().chain(full).all(|times| times > 0), "{all:?}");
        eprintln!("{all:?}");
    }
}

/// If a crash loses the header of a segment that was just begun but not its first records, the
/// next life gives the same generation again. What the lost life wrote must not count in it.
#[test]
fn records_whose_header_was_lost_never_count() {
    for seed in 0..400 {
        let disk = SimDisk::new(seed);
        let open = || InlineJournal::open(World::options(), Arc::new(disk.clone())).unwrap();
        let put = |stream, seq| {
            let payload = Payload::Bytes(Bytes::from_static(&[7; 100]));
            let (stream, seq) = (StreamId(stream), Seq(seq));
            Op::Put { stream, seq, class: Class::Bulk, head: Head::default(), payload }
        };
        let found = |recovery: Recovery| {
            let mut names = Vec::new();
            recovery.for_each(|stream, seq, _, _| names.push((stream.0, seq.0))).unwrap();
            names
        };
        let mut journal = open().0;
        let now = journal.settle(Duration::ZERO, 20).unwrap();
        journal.submit((1..=50).map(|seq| put(1, seq)).collect());
        disk.fail_at(disk.steps() + seed % 5, Fault::Gone);
        let _gone = journal.settle(now, 20).is_err();
        drop(journal);
        disk.crash();
        let (mut journal, recovery) = open();
        let mut expected = found(recovery);
        expected.push((2, 1));
        journal.submit(vec![put(2, 1)]);
        journal.settle(now, 20).unwrap();
        drop(journal);
        disk.kill();
        assert_eq!(found(open().1), expected, "seed {seed}");
    }
}
