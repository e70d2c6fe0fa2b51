//! The active node's side, alone and together with a replica.

use std::collections::{BTreeMap, BTreeSet};

use activation::file::JournalUid;
use activation::gate::Gate;
use proptest::prelude::*;

use super::*;
use crate::confirms::Confirms;
use crate::receiver::{self, Receiver};

const SMALL: Limits = Limits {
    replica_timeout: Millis(3000),
    copy_window: 20,
    whole_below: 12,
    whole_after: Millis(500),
    backlog: 60,
};

fn age() -> Age {
    Age::new(3).unwrap()
}

fn piece(number: u64) -> (u64, u64, Bytes) {
    (1, number * 10, Bytes::from(vec![b'p'; 10]))
}

fn bytes() -> Bytes {
    Bytes::from_static(b"batch")
}

fn durable(sender: &mut Sender, number: u64) -> Vec<Effect> {
    let mut out = Vec::new();
    sender.heard(&Upward::Durable(Number(number)), &mut out);
    out
}

fn begin() -> Sender {
    let mut out = Vec::new();
    let sender = Sender::new(SMALL, &mut out);
    assert_eq!(out, [Effect::Send(Downward::Accepted), Effect::ReadPiece]);
    sender
}

/// A sender that has sent all and told the activation.
fn sent() -> Sender {
    let mut sender = begin();
    let mut out = Vec::new();
    sender.piece(Millis(0), None, &mut out);
    assert_eq!(out, [Effect::CopySent]);
    sender
}

#[test]
fn the_window_bounds_the_copy() {
    let mut sender = begin();
    let mut out = Vec::new();
    sender.piece(Millis(0), Some(piece(0)), &mut out);
    assert_eq!(out.pop(), Some(Effect::ReadPiece));
    sender.piece(Millis(0), Some(piece(1)), &mut out);
    assert!(!out.contains(&Effect::ReadPiece), "20 bytes are under way");
    // The live stream is not bounded by it.
    out.clear();
    sender.batch(Millis(0), 1, bytes(), &mut out);
    assert_eq!(out.len(), 1);
    assert_eq!(durable(&mut sender, 1), [Effect::ReadPiece]);
}

/// "Whole" is said when little is unanswered, so that confirms are held for one exchange.
#[test]
fn whole_waits_for_answers() {
    let mut sender = begin();
    let mut out = Vec::new();
    sender.piece(Millis(0), Some(piece(0)), &mut out);
    for position in 1..=3 {
        sender.batch(Millis(0), position, bytes(), &mut out);
    }
    out.clear();
    sender.piece(Millis(0), None, &mut out);
    assert_eq!(out, [], "the piece is not answered");
    assert_eq!(durable(&mut sender, 1), [], "15 bytes of the stream are not");
    assert_eq!(durable(&mut sender, 2), [Effect::CopySent]);
    let mut out = Vec::new();
    sender.whole(Millis(0), age(), &mut out);
    let whole = Downward::Request(Number(5), Request::Whole { age: age() });
    assert_eq!(out, [Effect::Send(whole)]);
    // Answers count once the age is written, and all of them.
    assert_eq!(durable(&mut sender, 5), []);
    let mut out = Vec::new();
    sender.batch(Millis(0), 4, bytes(), &mut out);
    out.clear();
    sender.heard(&Upward::InSync, &mut out);
    assert_eq!(out, [Effect::InSync, Effect::Answered(3)]);
    assert_eq!(durable(&mut sender, 6), [Effect::Answered(4)]);
}

/// Under steady load there is always more unanswered than that: it is said all the same, in time.
#[test]
fn whole_does_not_wait_for_ever() {
    let mut out = Vec::new();
    let mut sender = Sender::new(Limits::DEFAULT, &mut out);
    out.clear();
    sender.piece(Millis(0), Some(piece(0)), &mut out);
    sender.piece(Millis(0), None, &mut out);
    let batch = Bytes::from(vec![b'b'; 300 << 10]);
    sender.batch(Millis(0), 1, batch.clone(), &mut out);
    for now in (10..=3_000).step_by(10) {
        // Before the one is answered the next one is there.
        let position = now / 10;
        sender.batch(Millis(now), position + 1, batch.clone(), &mut out);
        sender.heard(&Upward::Durable(Number(position)), &mut out);
        sender.tick(Millis(now), &mut out);
        if out.contains(&Effect::CopySent) {
            assert!((500..=520).contains(&now), "at {now} ms");
            return;
        }
    }
    panic!("it is never told");
}

/// As long as a piece is not answered nothing is told, however long that takes.
#[test]
fn whole_waits_for_pieces() {
    let mut sender = begin();
    let mut out = Vec::new();
    sender.piece(Millis(0), Some(piece(0)), &mut out);
    sender.piece(Millis(0), None, &mut out);
    for now in [0, 1_000, 2_900] {
        sender.tick(Millis(now), &mut out);
    }
    assert!(!out.contains(&Effect::CopySent));
    assert_eq!(durable(&mut sender, 1), [Effect::CopySent]);
    let mut out = Vec::new();
    sender.tick(Millis(9_000), &mut out);
    assert_eq!(out, [], "once");
}

/// What cannot be read here cannot be copied: the replica is not told that it is whole.
#[test]
fn what_is_unreadable_ends_it() {
    let mut sender = begin();
    let mut out = Vec::new();
    sender.unreadable(&mut out);
    assert_eq!(out, [Effect::Lost(Loss::Unreadable)]);
    out.clear();
    sender.piece(Millis(0), None, &mut out);
    assert_eq!(out, []);
}

/// BR-3, and `journal.replica_timeout`: the oldest request counts, the connection is closed, and the
/// activation told, once.
#[test]
fn a_slow_replica_is_lost() {
    let mut sender = sent();
    assert_eq!(sender.deadline(), None, "it owes nothing");
    let mut out = Vec::new();
    sender.batch(Millis(1000), 1, bytes(), &mut out);
    sender.batch(Millis(2000), 2, bytes(), &mut out);
    out.clear();
    assert_eq!(sender.deadline(), Some(Millis(4000)));
    sender.tick(Millis(3999), &mut out);
    assert_eq!(out, []);
    durable(&mut sender, 1);
    assert_eq!(sender.deadline(), Some(Millis(5000)));
    sender.tick(Millis(5000), &mut out);
    sender.tick(Millis(9000), &mut out);
    sender.closed(&mut out);
    assert_eq!(out, [Effect::Lost(Loss::TooSlow)]);
    // What it says now counts for nothing.
    assert_eq!(durable(&mut sender, 2), []);
    sender.batch(Millis(9000), 3, bytes(), &mut out);
    assert_eq!(out.len(), 1);
}

/// A time-out that is set while a request waits counts for it.
#[test]
fn the_time_out_can_change() {
    let mut sender = sent();
    sender.batch(Millis(1000), 1, bytes(), &mut Vec::new());
    sender.set_replica_timeout(Millis(500));
    assert_eq!(sender.deadline(), Some(Millis(1500)));
    let mut out = Vec::new();
    sender.tick(Millis(1500), &mut out);
    assert_eq!(out, [Effect::Lost(Loss::TooSlow)]);
}

#[test]
fn senseless_answers_end_it() {
    let lost = [Effect::Lost(Loss::Senseless)];
    assert_eq!(durable(&mut sent(), 1), lost, "nothing was asked");
    let mut sender = sent();
    sender.batch(Millis(0), 1, bytes(), &mut Vec::new());
    assert_eq!(durable(&mut sender, 2), lost, "that was not asked yet");
    let mut out = Vec::new();
    sent().heard(&Upward::InSync, &mut out);
    assert_eq!(out, lost, "it was not told that it is whole");
}

/// Writers wait when too much is unanswered, and go on when the replica is lost.
#[test]
fn writers_are_throttled() {
    let mut sender = sent();
    let mut out = Vec::new();
    for position in 1..=13 {
        sender.batch(Millis(0), position, bytes(), &mut out);
    }
    assert_eq!(out.iter().filter(|effect| **effect == Effect::Throttle(true)).count(), 1);
    assert_eq!(durable(&mut sender, 6), []);
    assert_eq!(durable(&mut sender, 7), [Effect::Throttle(false)]);
    for position in 14..=20 {
        sender.batch(Millis(0), position, bytes(), &mut out);
    }
    out.clear();
    sender.closed(&mut out);
    assert_eq!(out, [Effect::Throttle(false), Effect::Lost(Loss::Closed)]);
}

/// The copy bounds itself: long pieces are no reason for writers to wait.
#[test]
fn pieces_throttle_nobody() {
    let mut sender = begin();
    let mut out = Vec::new();
    sender.piece(Millis(0), Some((1, 0, Bytes::from(vec![b'p'; 1000]))), &mut out);
    for position in 1..=12 {
        sender.batch(Millis(0), position, bytes(), &mut out);
    }
    assert!(!out.contains(&Effect::Throttle(true)), "60 bytes of the stream are unanswered");
    sender.batch(Millis(0), 13, bytes(), &mut out);
    assert_eq!(out.pop(), Some(Effect::Throttle(true)));
    // The piece is the first that is answered.
    assert_eq!(durable(&mut sender, 1), [Effect::ReadPiece]);
    let mut out = Vec::new();
    sender.piece(Millis(0), Some((1, 0, Bytes::from(vec![b'p'; 1000]))), &mut out);
    assert_eq!(durable(&mut sender, 8), [Effect::Throttle(false)]);
}

/// Two nodes and a connection that may be cut at any time.
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
struct Pair {
    sender: Sender,
    receiver: Receiver,
    confirms: Confirms,
    /// What the journal held when the copy began, not sent yet.
    pieces: u64,
    /// A piece is to be read.
    reading: bool,
    down: VecDeque<Downward>,
    up: VecDeque<Upward>,
    /// On the replica's disk, written and not synced.
    written: BTreeMap<Number, Request>,
    /// On the replica's disk for good: pieces and positions.
    pieces_durable: BTreeSet<u64>,
    batches_durable: BTreeSet<u64>,
    /// The replica's state file says that the copy is whole, with the age.
    age_written: bool,
    to_write_age: bool,
    /// Appended after the copy began.
    first_batch: u64,
    confirmed: BTreeSet<u64>,
    /// The age has been raised since the replica was lost.
    raised: bool,
    lost: bool,
}

impl Pair {
    const PIECES: u64 = 5;

    fn new() -> Self {
        let mut out = Vec::new();
        let receiver = Receiver::new(JournalUid(7), &mut out);
        let mut out = Vec::new();
        let sender = Sender::new(SMALL, &mut out);
        let mut confirms = Confirms::new(100);
        confirms.set_gate(Gate::Alone);
        let mut pair = Self {
            sender,
            receiver,
            confirms,
            pieces: Self::PIECES,
            reading: false,
            down: VecDeque::new(),
            up: VecDeque::new(),
            written: BTreeMap::new(),
            pieces_durable: BTreeSet::new(),
            batches_durable: BTreeSet::new(),
            age_written: false,
            to_write_age: false,
            first_batch: 101,
            confirmed: BTreeSet::new(),
            raised: false,
            lost: false,
        };
        pair.of_sender(out);
        pair
    }

    fn of_sender(&mut self, effects: Vec<Effect>) {
        let mut more = Vec::new();
        for effect in effects {
            match effect {
                Effect::Send(message) => self.down.push_back(message),
                Effect::ReadPiece => self.reading = true,
                Effect::Throttle(_) => {}
                // As the activation does: hold first, then say it.
                Effect::CopySent => {
                    self.confirms.set_gate(Gate::Hold);
                    self.sender.whole(Millis(0), age(), &mut more);
                }
                Effect::InSync => {
                    let confirmed = self.confirms.last() - self.confirms.held();
                    self.confirms.attached(confirmed);
                    self.confirms.set_gate(Gate::Replica);
                }
                Effect::Answered(position) => self.confirms.answered(position),
                Effect::Lost(_) => self.lost = true,
            }
        }
        if !more.is_empty() {
            self.of_sender(more);
        }
    }

    fn of_receiver(&mut self, effects: Vec<receiver::Effect>) {
        let mut more = Vec::new();
        for effect in effects {
            match effect {
                receiver::Effect::Send(message) => self.up.push_back(message),
                receiver::Effect::Store(number, request) => {
                    self.written.insert(number, request);
                }
                receiver::Effect::Accepted => self.receiver.copy(&mut more),
                receiver::Effect::SyncDone(_) => self.to_write_age = true,
                receiver::Effect::Ended(_) => {}
                other => panic!("{other:?}"),
            }
        }
        if !more.is_empty() {
            self.of_receiver(more);
        }
    }

    fn step(&mut self, choice: u8) {
        let mut out = Vec::new();
        let mut of_receiver = Vec::new();
        match choice {
            0 if std::mem::take(&mut self.reading) => {
                self.pieces = self.pieces.saturating_sub(1);
                let next = (self.pieces > 0).then(|| (1, self.pieces, Bytes::from(vec![0; 10])));
                self.sender.piece(Millis(0), next, &mut out);
            }
            1 | 2 => {
                let position = self.confirms.appended();
                if !self.lost {
                    self.sender.batch(Millis(0), position, bytes(), &mut out);
                }
            }
            3 => self.confirms.durable(self.confirms.last()),
            4 | 5 => {
                if let Some(message) = self.down.pop_front() {
                    self.receiver.heard(message, &mut of_receiver);
                }
            }
            6 => {
                // One sync for all that was written.
                if let Some(last) = self.written.keys().last().copied() {
                    for request in std::mem::take(&mut self.written).into_values() {
                        match request {
                            Request::Piece { offset, .. } => self.pieces_durable.insert(offset),
                            Request::Batch { position, .. } => {
                                self.batches_durable.insert(position)
                            }
                            Request::Whole { .. } => unreachable!("it is not stored"),
                        };
                    }
                    self.receiver.durable(last, &mut of_receiver);
                }
            }
            7 if std::mem::take(&mut self.to_write_age) => {
                self.age_written = true;
                self.receiver.in_sync(&mut of_receiver);
            }
            8 | 9 => {
                if let Some(message) = self.up.pop_front() {
                    self.sender.heard(&message, &mut out);
                }
            }
            10 => {
                if let Some(released) = self.confirms.release(true) {
                    self.confirmed.extend(released.from..=released.through);
                }
            }
            _ => {}
        }
        self.of_sender(out);
        self.of_receiver(of_receiver);
        self.check();
    }

    /// Both ends find out; what is under way is gone.
    fn cut(&mut self) {
        let mut out = Vec::new();
        self.sender.closed(&mut out);
        self.of_sender(out);
        let mut out = Vec::new();
        self.receiver.closed(&mut out);
        self.of_receiver(out);
        self.down.clear();
        self.up.clear();
        self.check();
    }

    /// INV-3: as long as the age was not raised, a replica that has written it has everything that
    /// was confirmed.
    fn check(&self) {
        if self.age_written && !self.raised {
            let pieces: BTreeSet<u64> = (1..Self::PIECES).collect();
            assert!(self.pieces_durable.is_superset(&pieces), "{:?}", self.pieces_durable);
            let lacks: Vec<_> = self
                .confirmed
                .iter()
                .filter(|position| **position >= self.first_batch)
                .filter(|position| !self.batches_durable.contains(position))
                .collect();
            assert!(lacks.is_empty(), "confirmed and not at the replica: {lacks:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    /// In every order of reads, appends, syncs, messages and confirms, and cut at every time: a
    /// replica that may be served has everything that was confirmed.
    #[test]
    fn a_replica_in_sync_has_what_was_confirmed(
        steps in proptest::collection::vec(0..12_u8, 0..250),
        cut in any::<prop::sample::Index>(),
        is_cut: bool,
    ) {
        let mut pair = Pair::new();
        let cut_at = cut.index(steps.len().max(1));
        for (number, step) in steps.into_iter().enumerate() {
            if is_cut && number == cut_at {
                pair.cut();
            }
            pair.step(step);
        }
        if !is_cut {
            prop_assert!(!pair.lost);
        }
    }

    /// Left alone, the copy comes to its end whatever happened before, and everything is confirmed.
    #[test]
    fn every_copy_ends(steps in proptest::collection::vec(0..12_u8, 0..120)) {
        let mut pair = Pair::new();
        for step in steps {
            pair.step(step);
        }
        for _ in 0..200 {
            for step in [0, 3, 4, 6, 7, 8, 10] {
                pair.step(step);
            }
        }
        prop_assert!(pair.age_written);
        prop_assert_eq!(pair.confirms.held(), 0);
        prop_assert_eq!(pair.sender.unanswered_bytes(), 0);
    }
}
