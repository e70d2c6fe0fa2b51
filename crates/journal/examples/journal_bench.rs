//! Measures a journal on the disk at hand.
//!
//! `journal_bench DIR CASE [COUNT] [BYTES]`, cases:
//!
//! - `flow`: puts of BYTES in batches of 100 with at most 4,000 in flight, released by tens once
//!   durable; CPU per record includes its share of the release.
//! - `fill`: COUNT puts of BYTES that stay; then the clean and the unclean recovery of them.
//! - `old`: one record stays while COUNT flow past; peak of the disk.

#![expect(clippy::cast_precision_loss, reason = "figures to look at")]

use journal::disk::real::RealDisk;
use journal::journal::Journal;
use journal::listener::Listener;
use journal::op::{Class, Head, Lsn, Op, Payload};
use journal::options::Options;
use model::id::{Seq, StreamId};
use model::message::Message;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

struct Ear(mpsc::Sender<Lsn>);

impl Listener for Ear {
    fn durable(&self, lsn: Lsn) {
        // The receiver is gone when the case is over.
        let _over = self.0.send(lsn).is_err();
    }
    fn full(&self, _: bool) {}
    fn failed(&self, _: &std::io::Error) {
        std::process::abort();
    }
}

fn say(text: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    drop(writeln!(out, "{text}"));
}

/// User and system time of the process so far.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("proc is there");
    let fields: Vec<_> = stat.rsplit(") ").next().expect("a tail").split(' ').collect();
    let ticks: u64 =
        fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime");
    Duration::from_millis(ticks * 10)
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc is there");
    let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("a line");
    line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).expect("a number")
}

fn put(seq: u64, message: &Message) -> Op {
    let head = Head::new(&[7; 20]);
    let payload = Payload::Message(message.clone());
    Op::Put { stream: StreamId(1), seq: Seq(seq), class: Class::Bulk, head, payload }
}

struct Open {
    journal: Journal,
    durable: mpsc::Receiver<Lsn>,
    records: u64,
}

fn open(dir: &PathBuf) -> Open {
    let (sender, durable) = mpsc::channel();
    let before = resident_kib();
    let started = Instant::now();
    let options = Options::new(dir);
    let (journal, recovery) =
        Journal::open(options, Arc::new(RealDisk), Arc::new(Ear(sender))).expect("it opens");
    let opened = started.elapsed();
    let clean = recovery.clean();
    let scanned = recovery.report().scanned;
    let mut records = 0;
    recovery.for_each(|_, _, _, _| records += 1).expect("it is readable");
    let visited = started.elapsed();
    if records > 0 {
        say(format_args!(
            "recovery clean={clean} scanned={scanned} records={records} open {opened:?} visited \
             {visited:?} resident {} -> {} KiB",
            before,
            resident_kib()
        ));
    }
    Open { journal, durable, records }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let usage = "journal_bench DIR flow|fill|old|recover [COUNT] [BYTES]";
    let dir = PathBuf::from(arguments.next().expect(usage));
    let case = arguments.next().expect(usage);
    let count: u64 = arguments.next().map_or(1_000_000, |text| text.parse().expect(usage));
    let bytes: usize = arguments.next().map_or(16, |text| text.parse().expect(usage));
    let body = vec![b'x'; bytes];
    let message = Message::from_parts("", "bench", &[0x10, 0, 2], &body);
    match case.as_str() {
        "flow" => flow(&dir, count, &message, false),
        "old" => flow(&dir, count, &message, true),
        "fill" => {
            fill(&dir, count, &message);
        }
        "recover" => drop(open(&dir)),
        _ => panic!("{usage}"),
    }
}

fn flow(dir: &PathBuf, count: u64, message: &Message, old: bool) {
    let Open { journal, durable, .. } = open(dir);
    let mut first = 1;
    if old {
        journal.submit(vec![put(1, message)]);
        first = 2;
    }
    let (mut next, mut released, mut reached) = (first, first, 0);
    let (mut peak, mut bound) = (0, 0);
    // Sequence numbers and operations advance side by side: which operation ended which put.
    let mut ends: std::collections::VecDeque<(u64, u64)> = std::collections::VecDeque::new();
    let (started, cpu_before) = (Instant::now(), cpu());
    while released < first + count {
        if next < first + count && next - released < 4000 {
            let ops: Vec<_> = (next..next + 100).map(|seq| put(seq, message)).collect();
            next += 100;
            ends.push_back((journal.submit(ops).0, next));
        } else {
            reached = durable.recv().expect("the journal lives").0;
        }
        while let Ok(lsn) = durable.try_recv() {
            reached = lsn.0;
        }
        let mut ops = Vec::new();
        while let Some(&(lsn, end)) = ends.front() {
            if lsn > reached {
                break;
            }
            ends.pop_front();
            while released < end {
                let last = Seq(released + 9);
                ops.push(Op::Release { stream: StreamId(1), first: Seq(released), last });
                released += 10;
            }
        }
        if !ops.is_empty() {
            journal.submit(ops);
        }
        if old && next % 10_000 < 100 {
            let stats = journal.stats();
            if stats.disk_bytes > peak {
                peak = stats.disk_bytes;
                bound = 3 * stats.live_bytes + 6 * (32 << 20);
            }
        }
    }
    let (took, used) = (started.elapsed(), cpu().saturating_sub(cpu_before));
    let stats = journal.stats();
    say(format_args!(
        "flow of {count} x {} bytes: {:.0} puts/s, {:.3} us CPU per record, {} syncs, {} writes, \
         {} batches, {:.1} MB/s written",
        message.body().len(),
        count as f64 / took.as_secs_f64(),
        used.as_secs_f64() * 1e6 / count as f64,
        stats.syncs,
        stats.writes,
        stats.batches,
        stats.written_bytes as f64 / 1e6 / took.as_secs_f64(),
    ));
    if old {
        say(format_args!("disk at most {peak} bytes (bound then {bound})"));
    }
    say(format_args!("{stats:?}"));
    journal.close().expect("it closes");
}

fn fill(dir: &PathBuf, count: u64, message: &Message) {
    let Open { journal, durable, records } = open(dir);
    assert_eq!(records, 0, "the directory should be new");
    let before = resident_kib();
    let (started, cpu_before) = (Instant::now(), cpu());
    let (mut next, mut reached) = (1, 0);
    while reached < count {
        if next <= count && next - reached < 4000 {
            let ops: Vec<_> =
                (next..(next + 100).min(count + 1)).map(|s| put(s, message)).collect();
            next += 100;
            journal.submit(ops);
        } else {
            reached = durable.recv().expect("the journal lives").0;
        }
        while let Ok(lsn) = durable.try_recv() {
            reached = lsn.0;
        }
    }
    let (took, used) = (started.elapsed(), cpu().saturating_sub(cpu_before));
    let stats = journal.stats();
    say(format_args!(
        "fill with {count} x {} bytes: {:.0} puts/s, {:.3} us CPU per record, {} syncs; index {:.2} \
         bytes per record, resident {} -> {} KiB, disk {} MB",
        message.body().len(),
        count as f64 / took.as_secs_f64(),
        used.as_secs_f64() * 1e6 / count as f64,
        stats.syncs,
        stats.index_bytes as f64 / count as f64,
        before,
        resident_kib(),
        stats.disk_bytes / 1_000_000,
    ));
    // As if killed.
    drop(journal);
    let Open { journal, .. } = open(dir);
    journal.close().expect("it closes");
    let Open { journal, .. } = open(dir);
    let seqs: Vec<_> = (1..=count.min(100_000)).map(Seq).collect();
    let started = Instant::now();
    let mut out = Vec::new();
    journal.read(StreamId(1), &seqs, &mut out);
    assert!(out.iter().all(Result::is_ok), "all are readable");
    say(format_args!(
        "read {} in {:?} with {} preads",
        seqs.len(),
        started.elapsed(),
        journal.stats().reads
    ));
    journal.close().expect("it closes");
}
