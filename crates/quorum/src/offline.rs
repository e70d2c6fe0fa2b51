//! A group's log while no host runs it: what it comes to, and how its one member that is left founds
//! the group anew.
//!
//! ```text
//!  checkpoint │ entries of the log, committed or not │ members: this node alone │ a first word
//!             └──────────── all of them count ───────┘ └──────── a new term ──────────────────┘
//! ```
//!
//! Which entries were committed only a majority can tell, and there is none any more. What was
//! committed with this member's help is among its entries, so none of them is left out; what the
//! others committed without it is lost. A member of the former group must never talk to the new one:
//! both could decide for themselves. Who founds anew sees to that.

use crate::checkpoint;
use crate::log::Log;
use crate::member::Committed;
use crate::record::{EntryKind, Head};
use crate::recovered::{Found, Recovered};
use crate::types::{LogId, Membership, log_id, vote};
use crate::wire::Write;
use bytes::{Bytes, BytesMut};
use journal::op::{Class, Op, Payload};
use model::id::{NodeId, Seq, StreamId};
use std::collections::{BTreeMap, BTreeSet};

/// How many entries are read at a time.
const BATCH: usize = 256;

/// The log of a group that does not run.
#[derive(Debug)]
pub struct Dormant {
    stream: StreamId,
    recovered: Recovered,
}

/// Where a log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The index of its last entry.
    pub index: u64,
    /// The term in which that was proposed.
    pub term: u64,
}

/// What the log comes to, piece by piece.
#[derive(Debug)]
pub enum Part {
    /// The state after this index; comes first, if at all.
    Checkpoint(u64, Bytes),
    /// Entries behind it, in order.
    Entries(Vec<Committed>),
}

impl Dormant {
    /// The log of what the journal has in `stream`.
    ///
    /// # Errors
    /// What is wrong with the records, or that there are none.
    pub fn new(stream: StreamId, mut recovered: Recovered) -> Result<Self, String> {
        recovered.check();
        if let Some(damage) = recovered.damage() {
            return Err(damage.to_owned());
        }
        let this = Self { stream, recovered };
        this.last().map(|_| ()).ok_or("it has no entries")?;
        Ok(this)
    }

    fn last(&self) -> Option<LogId> {
        let purged = self.recovered.purged.map(|(id, _)| id);
        self.recovered.entries.last().map(|entry| entry.id).or(purged)
    }

    /// Where it ends.
    pub fn end(&self) -> End {
        let last = self.last().expect("one without entries is refused");
        End { index: last.index, term: last.leader_id.term }
    }

    /// Gives all that the log comes to. Reads from the disk.
    ///
    /// # Errors
    /// What cannot be read, or what `take` has against it.
    pub fn replay(
        &self,
        log: &dyn Log,
        mut take: impl FnMut(Part) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut after = None;
        if let Some((id, position)) = self.recovered.checkpoint {
            let bytes = self.read(log, &[position])?.remove(0);
            let found =
                checkpoint::decode(bytes).map_err(|error| format!("checkpoint: {error}"))?;
            after = Some(id.index);
            take(Part::Checkpoint(id.index, found.state))?;
        }
        let behind = |entry: &&Found| after.is_none_or(|after| entry.id.index > after);
        let entries: Vec<&Found> = self.recovered.entries.iter().filter(behind).collect();
        for some in entries.chunks(BATCH) {
            let positions: Vec<Seq> = some.iter().map(|entry| entry.position).collect();
            let payloads = self.read(log, &positions)?;
            let entry = |(found, payload): (&&Found, Bytes)| Committed {
                index: found.id.index,
                term: found.id.leader_id.term,
                position: found.position,
                payload: match found.kind {
                    EntryKind::Normal => payload,
                    EntryKind::Blank | EntryKind::Membership => Bytes::new(),
                },
            };
            take(Part::Entries(some.iter().zip(payloads).map(entry).collect()))?;
        }
        Ok(())
    }

    fn read(&self, log: &dyn Log, positions: &[Seq]) -> Result<Vec<Bytes>, String> {
        let mut read = Vec::with_capacity(positions.len());
        log.read(self.stream, positions, &mut read);
        let one = |(position, result): (&Seq, Result<Bytes, _>)| {
            result.map_err(|error| format!("record {position}: {error}"))
        };
        positions.iter().zip(read).map(one).collect()
    }

    /// What has to be written so that `me` alone is the group from now on. `word` is an entry behind
    /// that, the first of the new group. Doing it again founds it once more.
    pub fn refound(&self, me: NodeId, word: Option<Bytes>) -> Vec<Op> {
        let End { index, term } = self.end();
        let voted = self.recovered.vote.map_or(0, |(vote, _)| vote.leader_id.term);
        // Above all that this member has ever heard of, so that no leader of before has written there.
        let term = term.max(voted) + 1;
        let members = Membership::new(vec![BTreeSet::from([me.0])], BTreeMap::from([(me.0, ())]))
            .expect("the voter is a member");
        let mut encoded = BytesMut::new();
        encoded.membership(&members);
        let kind = EntryKind::Membership;
        let mut records = vec![
            (Head::Vote(vote(term, me.0, false)), Bytes::new()),
            (Head::Entry { kind, id: log_id(term, index + 1) }, encoded.freeze()),
        ];
        if let Some(word) = word {
            let (kind, id) = (EntryKind::Normal, log_id(term, index + 2));
            records.push((Head::Entry { kind, id }, word));
        }
        let stream = self.stream;
        let positions = self.recovered.highest + 1..;
        let put = |(position, (head, payload)): (u64, (Head, Bytes))| Op::Put {
            stream,
            seq: Seq(position),
            class: Class::Vital,
            head: head.encode(),
            payload: Payload::Bytes(payload),
        };
        let mut ops: Vec<Op> = positions.zip(records).map(put).collect();
        // The vote has taken the place of this one.
        ops.extend(self.recovered.vote.map(|(_, at)| Op::Release { stream, first: at, last: at }));
        ops
    }
}
