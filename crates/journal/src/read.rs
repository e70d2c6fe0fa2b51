//! Reading payloads back, several neighbours with one pread.

use crate::disk::File;
use crate::error::ReadError;
use crate::format::{Entry, Prefix, What, is_intact};
use crate::index::{Index, Place};
use bytes::Bytes;
use model::id::{Seq, StreamId};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;

/// Most bytes that one pread fetches for several records.
const TOGETHER: u64 = 256 << 10;
/// Bytes of other records between two that are read along rather than skipped.
const GAP: u64 = 4 << 10;
/// How often a record that does not check is looked up again: it may just have moved.
const TRIES: usize = 4;

/// Where a record is, as looked up.
struct Found {
    seq: Seq,
    place: Place,
    length: u64,
    seed: u32,
    file: Arc<dyn File>,
}

/// What reading took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Effort {
    pub(crate) preads: u64,
    pub(crate) bytes: u64,
}

impl Effort {
    fn add(&mut self, bytes: u64) {
        self.preads += 1;
        self.bytes += bytes;
    }
}

/// Reads payloads.
pub(crate) fn read(
    index: &Mutex<Index>,
    stream: StreamId,
    seqs: &[Seq],
    out: &mut Vec<Result<Bytes, ReadError>>,
) -> Effort {
    let base = out.len();
    let mut found: Vec<Option<Found>> = {
        let index = index.lock();
        seqs.iter().map(|&seq| find(&index, stream, seq)).collect()
    };
    let mut effort = Effort::default();
    let mut at = 0;
    while at < found.len() {
        let Some(first) = &found[at] else {
            out.push(Err(ReadError::Missing));
            at += 1;
            continue;
        };
        let start = u64::from(first.place.offset());
        let mut end = start + first.length;
        let mut next = at + 1;
        while let Some(Some(other)) = found.get(next) {
            let offset = u64::from(other.place.offset());
            let joins = other.place.slot() == first.place.slot()
                && offset >= end
                && offset <= end + GAP
                && offset + other.length <= start + TOGETHER;
            if !joins {
                break;
            }
            end = offset + other.length;
            next += 1;
        }
        effort.add(end - start);
        match fetch(&*first.file, start, end) {
            Ok(bytes) => {
                for found in &found[at..next] {
                    let found = found.as_ref().expect("only found records join");
                    let from = (u64::from(found.place.offset()) - start) as usize;
                    out.push(payload(&bytes, from, stream, found));
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                out.extend((at..next).map(|_| Err(ReadError::Io(Arc::clone(&error)))));
            }
        }
        at = next;
    }
    // A record that was carried over, or released, while it was read.
    for (at, slot) in found.iter_mut().enumerate() {
        let mut tries = 0;
        while matches!(out[base + at], Err(ReadError::Damaged)) {
            let Some(old) = slot.take() else { break };
            let mut index = index.lock();
            let Some(now) = find(&index, stream, old.seq) else {
                out[base + at] = Err(ReadError::Missing);
                break;
            };
            if (now.place, now.seed) == (old.place, old.seed) || tries == TRIES {
                index.quarantined += 1;
                break;
            }
            drop(index);
            tries += 1;
            effort.add(now.length);
            let start = u64::from(now.place.offset());
            out[base + at] = match fetch(&*now.file, start, start + now.length) {
                Ok(bytes) => payload(&bytes, 0, stream, &now),
                Err(error) => Err(ReadError::Io(Arc::new(error))),
            };
            *slot = Some(now);
        }
    }
    effort
}

fn find(index: &Index, stream: StreamId, seq: Seq) -> Option<Found> {
    let place = index.place(stream, seq);
    if place.is_none() || !index.is_written(place) {
        return None;
    }
    let segment = &index.segments[place.slot() as usize];
    let file = Arc::clone(segment.file.as_ref()?);
    Some(Found { seq, place, length: index.length_of(place), seed: segment.seed, file })
}

fn fetch(file: &dyn File, start: u64, end: u64) -> io::Result<Bytes> {
    let mut bytes = vec![0; (end - start) as usize];
    let read = file.read_at(&mut bytes, start)?;
    bytes.truncate(read);
    Ok(Bytes::from(bytes))
}

fn payload(
    bytes: &Bytes,
    from: usize,
    stream: StreamId,
    found: &Found,
) -> Result<Bytes, ReadError> {
    let tail = bytes.get(from..).unwrap_or_default();
    let prefix = Prefix::decode(tail).ok_or(ReadError::Damaged)?;
    let length = prefix.length as usize;
    let record = tail.get(..length).ok_or(ReadError::Damaged)?;
    if length as u64 > found.length || !is_intact(found.seed, record) {
        return Err(ReadError::Damaged);
    }
    let entry = Entry::decode(0, &prefix, record).ok_or(ReadError::Damaged)?;
    let right = match entry.what {
        What::Put { stream: other, seq, lost, .. } => {
            !found.place.is_shared() && (other, seq) == (stream, found.seq) && !lost
        }
        // A body that was lost is empty; no message is.
        What::Body { payload } => found.place.is_shared() && payload > 0,
        _ => false,
    };
    if !right {
        return Err(ReadError::Damaged);
    }
    Ok(bytes.slice(from + prefix.index_length()..from + length))
}
