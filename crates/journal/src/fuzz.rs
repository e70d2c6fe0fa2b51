//! Entry points for fuzzers.

use crate::disk::{Disk, File};
use crate::format::{
    Identity, Prefix, RECORDS_AT, SECOND_HEADER_AT, SegmentHeader, mend, padded, seed,
};
use crate::inline::InlineJournal;
use crate::options::Options;
use crate::sim::SimDisk;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The uid of the journal that images belong to.
const UID: u64 = 0;

/// Opens a journal with one segment file made of these bytes, visits and reads what it finds,
/// writes a little and closes it. Must neither panic nor hang, and must not allocate more than a
/// few times the input's length and a fixed amount.
pub fn recover_image(bytes: &[u8]) {
    // With its own header, as far as it has one, and with one that makes the rest count.
    run(bytes, None);
    let bytes_len = bytes.len() as u64;
    let header = SegmentHeader { free: false, generation: 1, bytes: bytes_len, uid: UID };
    run(bytes, Some(header));
    // A fuzzer does not guess checksums; with these, what records say is believed.
    let mut mended = bytes.to_vec();
    let mut at = RECORDS_AT as usize;
    while let Some(prefix) = mended.get(at..).and_then(Prefix::decode)
        && let Some(record) = mended.get_mut(at..at + prefix.length as usize)
    {
        mend(seed(UID, 1), record);
        at += padded(prefix.length as usize);
    }
    run(&mended, Some(header));
}

fn run(bytes: &[u8], header: Option<SegmentHeader>) {
    let disk = SimDisk::new(1);
    let dir = Path::new("/journal");
    let write = |name: &str, bytes: &[u8]| -> std::io::Result<Arc<dyn File>> {
        let file = disk.create(&dir.join(name))?;
        file.write_at(bytes, 0)?;
        Ok(file)
    };
    let prepared = disk
        .create_dir(dir)
        .and_then(|()| write("JOURNAL", &Identity { uid: UID }.encode()))
        .and_then(|_| write("00000001.seg", bytes));
    let file = prepared.expect("the simulated disk has room");
    if let Some(header) = header
        && bytes.len() as u64 >= SECOND_HEADER_AT
    {
        file.write_at(&header.encode(), 0).expect("the simulated disk has room");
    }
    let options = Options { segment_bytes: Options::SEGMENT_BYTES_MIN, ..Options::new(dir) };
    let Ok((journal, recovery)) = InlineJournal::open(options, Arc::new(disk.clone())) else {
        return;
    };
    let mut names = Vec::new();
    let visited = recovery.for_each(|stream, seq, _, _| {
        if names.len() < 1000 {
            names.push((stream, seq));
        }
    });
    visited.expect("the simulated disk does not fail");
    let mut out = Vec::new();
    for (stream, seq) in names {
        journal.read(stream, &[seq], &mut out);
        out.clear();
    }
    let mut journal = journal;
    journal.settle(Duration::ZERO, 50).expect("the simulated disk does not fail");
}

/// A well-formed segment image to start fuzzing from.
pub fn seed_image() -> Vec<u8> {
    use crate::op::{Class, Head, Op, Payload, Shared};
    use bytes::Bytes;
    use model::id::{Seq, StreamId};
    use model::message::Message;
    let disk = SimDisk::new(1);
    let options = Options { segment_bytes: Options::SEGMENT_BYTES_MIN, ..Options::new("/journal") };
    let identity = disk
        .create_dir(Path::new("/journal"))
        .and_then(|()| disk.create(Path::new("/journal/JOURNAL")))
        .and_then(|file| file.write_at(&Identity { uid: UID }.encode(), 0));
    identity.expect("the simulated disk has room");
    let (mut journal, recovery) =
        InlineJournal::open(options, Arc::new(disk.clone())).expect("the disk does not fail");
    drop(recovery);
    let shared = Arc::new(Shared::new(Message::from_parts("e", "k", &[0, 0], b"shared")));
    let put = |stream, seq, payload| Op::Put {
        stream: StreamId(stream),
        seq: Seq(seq),
        class: Class::Bulk,
        head: Head::new(b"head"),
        payload,
    };
    journal.submit(vec![
        put(1, 1, Payload::Bytes(Bytes::from_static(b"one"))),
        put(1, 2, Payload::Shared(Arc::clone(&shared))),
        put(2, 1, Payload::Shared(shared)),
        put(3, 1, Payload::Bytes(Bytes::from_static(b"gone"))),
    ]);
    let now = journal.settle(Duration::ZERO, 50).expect("the disk does not fail");
    journal.submit(vec![
        Op::Note { stream: StreamId(1), seq: Seq(1), bytes: Head::new(b"note") },
        Op::Release { stream: StreamId(1), first: Seq(2), last: Seq(2) },
        Op::Drop { stream: StreamId(3) },
    ]);
    let now = journal.settle(now, 50).expect("the disk does not fail");
    journal.close(now).expect("the disk does not fail");
    let used = disk
        .paths()
        .into_iter()
        .filter_map(|path| disk.bytes(&path))
        .find(|bytes| SegmentHeader::decode(bytes).is_some_and(|header| !header.free));
    used.expect("one segment was used")
}
