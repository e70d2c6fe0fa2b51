//! The ready messages as bytes.
//!
//! ```text
//!  number of all · number returned, runs · number of levels · for each level, highest first:
//!      priority · number returned, runs · number in line, runs
//! ```
//!
//! What came back is kept apart from the line as it is here, since only the line may go on where
//! it ends. Empty levels, the borders of chunks and spare room are left out.

use model::id::Seq;

use super::{Level, Line, Ready};
use crate::malformed::Malformed;
use crate::message::{Message, NEVER};
use crate::reader::{self, Reader};
use crate::runs;
use crate::settings::Style;

const TWICE: Malformed = Malformed::Value("a message is in two places");
const ORDER: Malformed = Malformed::Value("messages are not in order");

impl Ready {
    /// Writes all.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        reader::put(out, self.len);
        reader::put_len(out, self.returned.len());
        runs::put(out, 0, self.returned.iter().map(|message| (*message, NEVER)));
        let levels = self.levels.iter().filter(|level| level.oldest().is_some());
        reader::put_len(out, levels.clone().count());
        for level in levels {
            out.push(level.priority);
            reader::put_len(out, level.returned.len());
            let returned = level.returned.values();
            runs::put(out, level.priority, returned.map(|message| (*message, NEVER)));
            reader::put_len(out, level.line.messages(0).count());
            let line = level.line.messages(level.priority);
            runs::put(out, level.priority, line.map(|message| (message, NEVER)));
        }
    }

    /// Reads what [`Ready::encode`] wrote.
    pub(crate) fn decode(style: Style, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut ready = Self::new(style);
        let all = reader.take()?;
        let count = |ready: &Self, reader: &mut Reader<'_>| match reader.take()? {
            count if count <= all - ready.len => Ok(count),
            _ => Err(Malformed::Value("there are more messages than there are")),
        };
        let returned = count(&ready, reader)?;
        if returned > 0 && style != Style::Quorum {
            return Err(Malformed::Value("a classic queue keeps what came back in its place"));
        }
        runs::take(reader, 0, returned, |(message, _)| {
            if ready.returned.find(message.seq).is_some() {
                return Err(TWICE);
            }
            ready.count(&message);
            ready.returned.push(message);
            Ok(())
        })?;
        let mut above = None;
        for _ in 0..reader.take()? {
            let priority = reader.byte()?;
            if above.is_some_and(|above| above <= priority) {
                return Err(Malformed::Value("levels are not in order"));
            }
            above = Some(priority);
            let mut level = Level::new(priority);
            let returned = count(&ready, reader)?;
            if returned > 0 && style != Style::Classic {
                return Err(Malformed::Value("what comes back to a quorum queue goes first"));
            }
            runs::take(reader, priority, returned, |(message, _)| {
                if level.returned.keys().next_back().is_some_and(|last| *last >= message.seq) {
                    return Err(ORDER);
                }
                level.checks(&message)?;
                ready.count(&message);
                level.returned.insert(message.seq, message);
                Ok(())
            })?;
            let mut last = level.returned.keys().next_back().copied();
            let in_line = count(&ready, reader)?;
            runs::take(reader, priority, in_line, |(message, _)| {
                if last >= Some(message.seq) {
                    return Err(ORDER);
                }
                last = Some(message.seq);
                level.checks(&message)?;
                ready.count(&message);
                level.line.push(&message);
                Ok(())
            })?;
            ready.levels.push(level);
        }
        if ready.len != all {
            return Err(Malformed::Value("there are fewer messages than there are"));
        }
        Ok(ready)
    }

    /// Whether messages that are `elsewhere`, in ascending order, and those that are here could
    /// have come to be so: each is in one place, has come, and finds its way back.
    pub(crate) fn checks(
        &self,
        elsewhere: &[Message],
        newest: Option<Seq>,
    ) -> Result<(), Malformed> {
        if elsewhere.windows(2).any(|two| two[0].seq >= two[1].seq) {
            return Err(TWICE);
        }
        for message in elsewhere {
            let level = self.levels.iter().find(|level| level.priority == message.priority);
            let front = level.and_then(|level| level.line.front_seq());
            let is_younger = self.style == Style::Classic && front < Some(message.seq);
            if (front.is_some() && is_younger) || self.find(message.seq).is_some() {
                return Err(TWICE);
            }
        }
        let last = elsewhere.last().map(|message| message.seq);
        let last = last.max(self.returned.seqs().last());
        let last = self.levels.iter().filter_map(Level::youngest).chain(last).max();
        if last > newest {
            return Err(Malformed::Value("a message is younger than the youngest"));
        }
        self.checks_levels()
    }

    /// No message waits twice.
    fn checks_levels(&self) -> Result<(), Malformed> {
        if self
            .returned
            .iter()
            .any(|message| self.levels.iter().any(|level| level.find(message.seq).is_some()))
        {
            return Err(TWICE);
        }
        if self.levels.len() < 2 {
            return Ok(());
        }
        let mut levels: Vec<_> = self.levels.iter().map(|level| level.seqs().peekable()).collect();
        let mut last = None;
        let head =
            |(place, names): (usize, &mut std::iter::Peekable<_>)| Some((*names.peek()?, place));
        while let Some((seq, place)) = levels.iter_mut().enumerate().filter_map(head).min() {
            if last == Some(seq) {
                return Err(TWICE);
            }
            last = Some(seq);
            levels[place].next();
        }
        Ok(())
    }
}

impl Level {
    fn checks(&self, message: &Message) -> Result<(), Malformed> {
        let is_here = message.priority == self.priority;
        is_here.then_some(()).ok_or(Malformed::Value("a message is on the wrong level"))
    }

    /// All, ascending.
    fn seqs(&self) -> impl Iterator<Item = Seq> {
        self.returned.keys().copied().chain(self.line.seqs())
    }

    fn youngest(&self) -> Option<Seq> {
        self.line.youngest().or_else(|| self.returned.keys().next_back().copied())
    }
}

impl Line {
    fn messages(&self, priority: u8) -> impl Iterator<Item = Message> {
        self.chunks.iter().flat_map(move |chunk| {
            (chunk.taken..chunk.slots.len()).map(move |place| chunk.message(place, priority))
        })
    }

    fn youngest(&self) -> Option<Seq> {
        let chunk = self.chunks.back()?;
        (chunk.taken < chunk.slots.len()).then(|| chunk.seq(chunk.slots.len() - 1))
    }
}
