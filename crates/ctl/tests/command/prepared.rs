//! Journals on disk.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use journal::disk::real::RealDisk;
use journal::journal::Journal;
use journal::listener::Deaf;
use journal::op::{Class, Head, Op, Payload};
use journal::options::Options;
use model::id::{Seq, StreamId};

/// A journal that holds some records of one stream and was closed properly.
pub(crate) fn journal_with_records(directory: &Path, count: u64) {
    let options = Options { segment_bytes: Options::SEGMENT_BYTES_MIN, ..Options::new(directory) };
    let (journal, recovery) =
        Journal::open(options, Arc::new(RealDisk), Arc::new(Deaf)).expect("an empty directory");
    drop(recovery);
    let put = |seq| Op::Put {
        stream: StreamId(1024),
        seq: Seq(seq),
        class: Class::Bulk,
        head: Head::default(),
        payload: Payload::Bytes(Bytes::from_static(b"payload")),
    };
    journal.submit((1..=count).map(put).collect());
    journal.close().expect("a working disk");
}
