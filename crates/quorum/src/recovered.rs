//! What the journal holds of a group, gathered while it is opened.
//!
//! Feed it the records of the group's stream in the order of their positions, as the journal's
//! recovery visits them; it keeps a few bytes per record.

use crate::founding::Founding;
use crate::group::GroupId;
use crate::record::{EntryKind, Head};
use crate::types::{LogId, Vote};
use model::id::{Seq, StreamId};

/// The records of one group.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The log, in order and without gaps.
    pub(crate) entries: Vec<Found>,
    /// Entries that the log no longer needs, by index: index, term and position.
    pub(crate) bodies: Vec<Found>,
    pub(crate) carried: Vec<(u64, Seq)>,
    pub(crate) arrived: Vec<(u64, Seq)>,
    pub(crate) vote: Option<(Vote, Seq)>,
    pub(crate) purged: Option<(LogId, Seq)>,
    pub(crate) committed: Option<(LogId, Seq)>,
    pub(crate) checkpoint: Option<(LogId, Seq)>,
    /// Records that later ones superseded.
    pub(crate) stale: Vec<Seq>,
    /// The highest position seen.
    pub(crate) highest: u64,
    damage: Option<String>,
    /// Where the records are, if not in the stream of the group's number.
    pub(crate) stream: Option<StreamId>,
    /// By which number the members know each other, if not by that of the group.
    pub(crate) address: Option<GroupId>,
    /// How the group begins, if the journal has no trace of it.
    pub(crate) founding: Option<Founding>,
}

/// An entry's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) id: LogId,
    pub(crate) kind: EntryKind,
    pub(crate) position: Seq,
    pub(crate) bytes: u32,
}

impl Recovered {
    /// Nothing yet. `highest` is the highest position that the journal knows the stream ever had.
    pub fn new(highest: Seq) -> Self {
        Self { highest: highest.0, ..Self::default() }
    }

    /// The same of a member whose stream is not that of the group's number.
    #[must_use]
    pub fn in_stream(self, stream: StreamId) -> Self {
        Self { stream: Some(stream), ..self }
    }

    /// The same of a group that was made anew, and whose members know each other by this number.
    #[must_use]
    pub fn at(self, address: GroupId) -> Self {
        Self { address: Some(address), ..self }
    }

    /// The same of a group that begins so, unless there is a trace of it. Without this it knows nobody
    /// and waits to be told.
    #[must_use]
    pub fn founded(self, founding: Founding) -> Self {
        Self { founding: Some(founding), ..self }
    }

    /// Whether there is no trace of the group.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.vote.is_none() && self.checkpoint.is_none()
    }

    /// Whether the member has done nothing yet in a group that begins so. Its vote may have come to the
    /// disk without the entry behind it: by a crash, or since the disk was full. Whatever else it has
    /// acknowledged would be behind that entry.
    pub(crate) fn is_as_before(&self, founding: &Founding) -> bool {
        let has_nothing = self.entries.is_empty() && self.checkpoint.is_none();
        let vote = self.vote.map(|(vote, _)| vote);
        let is_its = |founded| vote.is_none_or(|vote| vote == founded);
        has_nothing && founding.vote().is_some_and(is_its)
    }

    /// Takes note of a record: its position, its head and the length of its payload.
    pub fn note(&mut self, position: Seq, head: &[u8], bytes: u32) {
        self.highest = self.highest.max(position.0);
        match Head::decode(head) {
            Ok(head) => self.take(position, &head, bytes),
            Err(error) => self.damaged(format!("record {position}: {error}")),
        }
    }

    /// What is wrong with the records, if anything is. Such a group must not start: it may have
    /// lost what it acknowledged.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    fn damaged(&mut self, what: String) {
        self.damage.get_or_insert(what);
    }

    fn take(&mut self, position: Seq, head: &Head, bytes: u32) {
        let replace = |slot: &mut Option<(LogId, Seq)>, stale: &mut Vec<Seq>, id: LogId| {
            stale.extend(slot.replace((id, position)).map(|(_, old)| old));
        };
        match *head {
            Head::Entry { kind, id } => self.take_entry(Found { id, kind, position, bytes }),
            Head::Vote(vote) => {
                let old = self.vote.replace((vote, position));
                self.stale.extend(old.map(|(_, old)| old));
            }
            Head::Purged(id) => {
                replace(&mut self.purged, &mut self.stale, id);
                let kept = self.entries.partition_point(|entry| entry.id.index <= id.index);
                self.bodies.extend(self.entries.drain(..kept));
            }
            Head::Committed(id) => replace(&mut self.committed, &mut self.stale, id),
            Head::Checkpoint(id) => replace(&mut self.checkpoint, &mut self.stale, id),
            Head::Carried { name } => self.carried.push((name, position)),
            Head::Arrived { name } => self.arrived.push((name, position)),
        }
    }

    fn take_entry(&mut self, entry: Found) {
        while self.entries.last().is_some_and(|last| last.id.index >= entry.id.index) {
            self.stale.extend(self.entries.pop().map(|old| old.position));
        }
        self.entries.push(entry);
    }

    /// Checks what can be checked once everything was noted.
    pub(crate) fn check(&mut self) {
        if let Some((purged, _)) = self.purged
            && self.checkpoint.is_none_or(|(checkpoint, _)| checkpoint.index < purged.index)
        {
            let what = format!("there is no checkpoint, but entries are purged up to {purged}");
            self.damage.get_or_insert(what);
        }
        let mut next = self.purged.map(|(id, _)| id.index + 1);
        for entry in &self.entries {
            let index = entry.id.index;
            // A log that was never purged begins with the founding entry, or with the first that
            // a leader sent, which is the same.
            let expected = *next.get_or_insert(0);
            if index != expected {
                self.damage.get_or_insert(format!("entry {expected} is missing before {index}"));
                return;
            }
            next = Some(index + 1);
        }
    }
}
