//! The visit of everything that was recovered.

use crate::format::{Entry, What};
use crate::index::{Index, Place, Slot};
use crate::keeper::read_note;
use crate::op::Head;
use crate::recovery::replay::Source;
use crate::scan::read_segment;
use model::id::{Seq, StreamId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::io;

/// A walk through all records in log order, with excursions to those that were carried over and
/// so lie behind their successors.
pub(super) struct Walk<'a> {
    index: &'a Mutex<Index>,
    sources: &'a [Source],
    /// The next position of each stream, by its number in the index. A number that goes to another
    /// stream meanwhile does not matter: what is put now is not visited.
    cursors: Vec<u64>,
    /// What the segments of the latest excursions hold.
    tables: VecDeque<(Slot, Table)>,
    /// Where the latest note lay, and how many lay there in a row.
    row: (Slot, u32),
}

/// Live records of one segment: head and payload length, and newest notes.
#[derive(Default)]
struct Table {
    records: BTreeMap<(StreamId, Seq), (Head, u32)>,
    notes: BTreeMap<(StreamId, Seq), Head>,
}

/// How many tables are kept.
const TABLES: usize = 4;
/// So many notes in a row in one segment make its table worth reading. Notes of records that were
/// returned at very different times lie all over the journal: each is read alone then.
const ROW: u32 = 32;

impl<'a> Walk<'a> {
    pub(super) fn new(index: &'a Mutex<Index>, sources: &'a [Source]) -> Self {
        Self { index, sources, cursors: Vec::new(), tables: VecDeque::new(), row: (0, 0) }
    }

    /// Visits the record of an entry, if it is still needed, and what must come before it.
    pub(super) fn on_entry(
        &mut self,
        source: &Source,
        entry: &Entry<'_>,
        visit: &mut impl FnMut(StreamId, Seq, &[u8], u32),
    ) -> io::Result<()> {
        let (name, head, at, payload) = match entry.what {
            What::Put { stream, seq, head, payload, .. } => {
                ((stream, seq), head, entry.offset, payload)
            }
            What::Ref { stream, seq, head, body_at, payload, .. } => {
                ((stream, seq), head, body_at, payload)
            }
            _ => return Ok(()),
        };
        let Some((number, note, cursor, is_next)) = self.find(name, (source.slot, at)) else {
            return Ok(());
        };
        if !is_next {
            self.excursion(name.0, cursor, name.1.0, visit)?;
        }
        self.cursors[number as usize] = name.1.0.saturating_add(1);
        if note.is_none() {
            visit(name.0, name.1, head, payload);
            return Ok(());
        }
        let newest = self.newest(name, note)?;
        visit(name.0, name.1, newest.as_ref().map_or(head, Head::as_slice), payload);
        Ok(())
    }

    /// If the record of this name lies here and was not visited: its stream's number, where its
    /// note lies, the stream's cursor, and whether nothing comes between that and the record.
    fn find(&mut self, name: (StreamId, Seq), at: (Slot, u32)) -> Option<(u32, Place, u64, bool)> {
        let mut index = self.index.lock();
        let number = index.find(name.0)?;
        let stream = index.stream(number);
        if self.cursors.len() <= number as usize {
            self.cursors.resize(number as usize + 1, 0);
        }
        let cursor = self.cursors[number as usize];
        let place = stream.place(name.1.0);
        if name.1.0 < cursor || place.is_none() || (place.slot(), place.offset()) != at {
            return None;
        }
        let is_next = stream.next(cursor).is_some_and(|(seq, _)| seq == name.1.0);
        Some((number, stream.note(name.1.0), cursor, is_next))
    }

    /// Visits what a stream has from one position up to another, wherever it lies.
    fn excursion(
        &mut self,
        stream: StreamId,
        mut from: u64,
        to: u64,
        visit: &mut impl FnMut(StreamId, Seq, &[u8], u32),
    ) -> io::Result<()> {
        loop {
            let (seq, place, note) = {
                let mut index = self.index.lock();
                let Some(number) = index.find(stream) else { return Ok(()) };
                let stream = index.stream(number);
                match stream.next(from) {
                    Some((seq, place)) if seq < to => (seq, place, stream.note(seq)),
                    _ => return Ok(()),
                }
            };
            let name = (stream, Seq(seq));
            let record = self.table(place.slot())?.and_then(|table| table.records.get(&name));
            if let Some(&(head, payload)) = record {
                let mut newest = None;
                if !note.is_none() {
                    newest = self.newest(name, note)?;
                }
                visit(stream, Seq(seq), newest.unwrap_or(head).as_slice(), payload);
            }
            from = seq + 1;
        }
    }

    /// The head in the note of a record; `None` if it is damaged or too new.
    fn newest(&mut self, name: (StreamId, Seq), note: Place) -> io::Result<Option<Head>> {
        let slot = note.slot();
        self.row = (slot, if self.row.0 == slot { self.row.1.saturating_add(1) } else { 1 });
        if self.row.1 > ROW || self.tables.iter().any(|&(other, _)| other == slot) {
            return Ok(self.table(slot)?.and_then(|table| table.notes.get(&name).copied()));
        }
        match self.sources.iter().find(|source| source.slot == slot) {
            Some(source) => read_note(&source.salvaged(), note.offset(), source.seed),
            None => Ok(None),
        }
    }

    fn table(&mut self, slot: Slot) -> io::Result<Option<&Table>> {
        if let Some(at) = self.tables.iter().position(|&(other, _)| other == slot) {
            return Ok(Some(&self.tables[at].1));
        }
        let Some(source) = self.sources.iter().find(|source| source.slot == slot) else {
            return Ok(None);
        };
        let mut table = Table::default();
        let index = self.index;
        read_segment(&source.salvaged(), &source.header, source.seed, false, &mut |entry| {
            let (name, head, at, payload) = match entry.what {
                What::Put { stream, seq, head, payload, .. } => {
                    ((stream, seq), head, entry.offset, payload)
                }
                What::Ref { stream, seq, head, body_at, payload, .. } => {
                    ((stream, seq), head, body_at, payload)
                }
                What::Note { stream, seq, head } => {
                    let place = index.lock().note_place(stream, seq);
                    if (place.slot(), place.offset()) == (slot, entry.offset) {
                        table.notes.insert((stream, seq), Head::new(head));
                    }
                    return;
                }
                _ => return,
            };
            let place = index.lock().place(name.0, name.1);
            if (place.slot(), place.offset()) == (slot, at) {
                table.records.insert(name, (Head::new(head), payload));
            }
        })?;
        if self.tables.len() == TABLES {
            self.tables.pop_front();
        }
        self.tables.push_back((slot, table));
        Ok(self.tables.back().map(|(_, table)| table))
    }
}
