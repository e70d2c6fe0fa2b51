//! The initial copy of a journal while it goes on: which records have still to be sent, and what of
//! the live stream the other copy can take already. Pure.
//!
//! ```text
//!  stream of a queue     1 2 3 4 5 6 7 8 9 …
//!    sent                ──────►                    releases and notes go along live
//!    being read                  ──►                they change what will be sent of it
//!    still to be looked at           ────────►      puts are not sent: they will be found there
//! ```
//!
//! Within a stream the other copy must get positions in ascending order. So a queue is copied from
//! its oldest message to its newest, in parts; what is put meanwhile is found by a later part, and
//! what is put after the last part was looked at waits until that one is sent. From then on the
//! stream is live.
//!
//! At the end of a stream the highest position that was ever given goes along, so that it is not
//! given again by whoever opens the copy.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use journal::op::{Class, Head, Op, Payload};
use model::id::{Seq, StreamId};

/// What a queue says of its stored messages, from a position on.
#[derive(Debug, Clone)]
pub(crate) struct Survey {
    /// Those that are there, ascending, with their heads.
    pub(crate) records: Vec<(Seq, Head)>,
    /// Everything up to here was looked at.
    pub(crate) reached: Seq,
    /// There is nothing behind it.
    pub(crate) ends: bool,
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct Backfill {
    /// Streams that are not live.
    todo: BTreeMap<StreamId, Progress>,
    order: VecDeque<StreamId>,
    part: Option<Part>,
}

/// How far a stream is.
#[derive(Debug, Clone, Copy)]
struct Progress {
    /// The first position that was not looked at.
    from: Seq,
    /// The last position that the other copy was given.
    sent: Seq,
}

/// What is being read.
#[derive(Debug)]
struct Part {
    stream: StreamId,
    records: BTreeMap<Seq, Head>,
    /// The last position that was looked at.
    reached: Seq,
    /// It is the last part of its stream.
    ends: bool,
    /// What came behind it since.
    behind: Vec<Op>,
}

impl Backfill {
    /// A copy of these streams. Others that come are live from their beginning.
    pub(crate) fn new(streams: impl IntoIterator<Item = StreamId>) -> Self {
        let order: VecDeque<StreamId> = streams.into_iter().collect();
        let begin = Progress { from: Seq(1), sent: Seq(0) };
        let todo = order.iter().map(|stream| (*stream, begin)).collect();
        Self { todo, order, part: None }
    }

    /// The stream to look at next, and from where on; `None`: everything was sent.
    pub(crate) fn next(&mut self) -> Option<(StreamId, Seq)> {
        while let Some(stream) = self.order.front() {
            if let Some(progress) = self.todo.get(stream) {
                return Some((*stream, progress.from));
            }
            self.order.pop_front();
        }
        None
    }

    /// A stream was looked at, in the very moment between two submissions of its queue. Returns the
    /// positions that have to be read now, with their heads. A queue that is gone has nothing, and ends.
    pub(crate) fn surveyed(&mut self, stream: StreamId, survey: Survey) -> Vec<(Seq, Head)> {
        let Some(progress) = self.todo.get_mut(&stream) else { return Vec::new() };
        progress.from = survey.reached.next();
        let wanted = survey.records.clone();
        let records: BTreeMap<Seq, Head> = survey.records.into_iter().collect();
        let (reached, ends) = (survey.reached, survey.ends);
        self.part = Some(Part { stream, records, reached, ends, behind: Vec::new() });
        wanted
    }

    /// What was asked for is read up to `upto`, or all of it; payloads of what could not be read are
    /// missing. What is behind that is looked at again. Returns the operations that stand for what was
    /// read.
    pub(crate) fn read(&mut self, payloads: Vec<(Seq, Bytes)>, upto: Option<Seq>) -> Vec<Op> {
        let Some(mut part) = self.part.take() else { return Vec::new() };
        let stream = part.stream;
        let Some(progress) = self.todo.get_mut(&stream) else { return Vec::new() };
        let mut ops = Vec::with_capacity(payloads.len() + 2);
        for (seq, payload) in payloads {
            // Released since, if it is not there.
            let Some(head) = part.records.remove(&seq) else { continue };
            ops.push(put(stream, seq, head, payload));
            progress.sent = seq;
        }
        if let Some(upto) = upto.filter(|upto| *upto < part.reached) {
            // What came behind it since is in the journal too, and is found there.
            progress.from = upto.next();
        } else if part.ends {
            if progress.sent < part.reached {
                let seq = part.reached;
                ops.push(put(stream, seq, Head::default(), Bytes::from_static(b"-")));
                ops.push(Op::Release { stream, first: seq, last: seq });
            }
            ops.append(&mut part.behind);
            self.todo.remove(&stream);
        }
        ops
    }

    /// The journal has taken these. Returns what of them goes to the other copy now.
    pub(crate) fn live(&mut self, ops: Vec<Op>) -> Vec<Op> {
        if self.todo.is_empty() {
            return ops;
        }
        ops.into_iter().filter_map(|op| self.live_one(op)).collect()
    }

    fn live_one(&mut self, op: Op) -> Option<Op> {
        let of = match &op {
            Op::Put { stream, .. }
            | Op::Note { stream, .. }
            | Op::Release { stream, .. }
            | Op::Drop { stream } => *stream,
        };
        let Some(Progress { from, .. }) = self.todo.get(&of).copied() else { return Some(op) };
        let mut part = self.part.as_mut().filter(|part| part.stream == of);
        match &op {
            Op::Put { .. } => {
                if let Some(part) = part.filter(|part| part.ends) {
                    part.behind.push(op);
                }
                None
            }
            Op::Note { seq, bytes, .. } => {
                if let Some(part) = &mut part {
                    if let Some(head) = part.records.get_mut(seq) {
                        *head = *bytes;
                        return None;
                    }
                    if part.ends && *seq > part.reached {
                        part.behind.push(op);
                        return None;
                    }
                }
                // What was not looked at is found with this head.
                (*seq < from).then_some(op)
            }
            Op::Release { first, last, .. } => {
                if let Some(part) = part {
                    let gone: Vec<Seq> =
                        part.records.range(*first..=*last).map(|(seq, _)| *seq).collect();
                    for seq in gone {
                        part.records.remove(&seq);
                    }
                    if part.ends && *last > part.reached {
                        part.behind.push(op.clone());
                    }
                }
                (*first < from).then_some(op)
            }
            Op::Drop { .. } => {
                self.todo.remove(&of);
                if part.is_some() {
                    self.part = None;
                }
                Some(op)
            }
        }
    }
}

fn put(stream: StreamId, seq: Seq, head: Head, payload: Bytes) -> Op {
    Op::Put { stream, seq, class: Class::Bulk, head, payload: Payload::Bytes(payload) }
}

#[cfg(test)]
mod tests;
