//! The journal with its threads, on the real disk.

use crate::disk::real::RealDisk;
use crate::journal::Journal;
use crate::listener::Listener;
use crate::op::{Class, Head, Lsn, Op, Payload};
use crate::options::Options;
use crate::sim::SimDisk;
use bytes::Bytes;
use model::id::{Seq, StreamId};
use std::sync::Arc;
use std::sync::mpsc;

/// Passes the watermark on to the test.
struct Ear(mpsc::Sender<Lsn>);

impl Listener for Ear {
    fn durable(&self, lsn: Lsn) {
        self.0.send(lsn).unwrap();
    }
    fn full(&self, _: bool) {}
    fn failed(&self, error: &std::io::Error) {
        panic!("{error}");
    }
}

#[test]
fn puts_become_durable_and_survive_close_and_drop() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { segment_bytes: 1 << 20, ..Options::new(dir.path().join("j")) };
    let count = 20_000;
    for round in 0..4 {
        let (sender, receiver) = mpsc::channel();
        let (journal, recovery) =
            Journal::open(options.clone(), Arc::new(RealDisk), Arc::new(Ear(sender))).unwrap();
        assert_eq!(recovery.report().records, round * count);
        assert_eq!(recovery.clean(), round % 2 == 0, "round {round}");
        let mut seen = 0;
        recovery
            .for_each(|stream, seq, head, payload| {
                seen += 1;
                assert_eq!((stream, seq), (StreamId(9), Seq(seen)));
                assert_eq!((head, payload), (&seq.0.to_be_bytes()[..], 100));
            })
            .unwrap();
        assert_eq!(seen, round * count);
        let mut last = Lsn(0);
        for batch in 0..count / 100 {
            let ops = (1..=100).map(|at| {
                let seq = round * count + batch * 100 + at;
                Op::Put {
                    stream: StreamId(9),
                    seq: Seq(seq),
                    class: Class::Bulk,
                    head: Head::new(&seq.to_be_bytes()),
                    payload: Payload::Bytes(Bytes::from(vec![seq as u8; 100])),
                }
            });
            last = journal.submit(ops.collect());
        }
        assert_eq!(last, Lsn(count));
        while receiver.recv().unwrap() < last {}
        let seqs: Vec<_> = (1..=(round + 1) * count).map(Seq).collect();
        let mut out = Vec::new();
        journal.read(StreamId(9), &seqs, &mut out);
        for (seq, bytes) in seqs.iter().zip(out) {
            assert_eq!(bytes.unwrap(), vec![seq.0 as u8; 100]);
        }
        let stats = journal.stats();
        assert_eq!(stats.live_records, (round + 1) * count);
        assert_eq!((stats.pending_ops, stats.pending_bytes), (0, 0));
        if round % 2 == 0 {
            drop(journal);
        } else {
            journal.close().unwrap();
        }
    }
}

/// Tells of room, and of failures.
struct Fullness(mpsc::Sender<Result<bool, String>>);

impl Listener for Fullness {
    fn durable(&self, _: Lsn) {}
    fn full(&self, full: bool) {
        self.0.send(Ok(full)).unwrap();
    }
    fn failed(&self, error: &std::io::Error) {
        self.0.send(Err(error.to_string())).unwrap();
    }
}

/// Puts wait for room when it is closed: that is said to who closes it, and is no failure, for which a
/// node would stop.
#[test]
fn want_of_room_at_the_end_is_no_failure() {
    let disk = SimDisk::new(1);
    disk.set_capacity(64 + 7 * (1 << 20) + 100);
    let options = Options { segment_bytes: 1 << 20, ..Options::new("/journal") };
    let (told, heard) = mpsc::channel();
    let ear = Arc::new(Fullness(told));
    let (journal, _) = Journal::open(options.clone(), Arc::new(disk.clone()), ear).unwrap();
    let ops = (1..=12).map(|seq| Op::Put {
        stream: StreamId(9),
        seq: Seq(seq),
        class: Class::Bulk,
        head: Head::new(&[]),
        payload: Payload::Bytes(Bytes::from(vec![7; 700 << 10])),
    });
    let last = journal.submit(ops.collect());
    assert_eq!(heard.recv().unwrap(), Ok(true));
    let durable = journal.durable();
    assert!(durable < last);
    let error = journal.close().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    let more: Vec<_> = heard.iter().collect();
    assert_eq!(more, [], "nothing has failed");
    // What was durable is there.
    let (_, recovery) =
        Journal::open(options, Arc::new(disk), Arc::new(crate::listener::Deaf)).unwrap();
    assert_eq!(recovery.report().quarantined, []);
    assert!(recovery.report().records >= durable.0);
}
