//! Publisher confirms and transactions.

use std::collections::BTreeMap;

use super::{Client, Outcome};
use crate::codec::{Reader, Writer};

/// What became of published messages, by their number on the channel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Confirms {
    /// The answer of each number: true for ack.
    pub answers: BTreeMap<u64, bool>,
    /// Numbers that were answered more than once.
    pub doubled: Vec<u64>,
    /// Numbers with a nack that a later group of acks covered.
    pub covered: Vec<u64>,
    floor: u64,
    forgotten: usize,
}

impl Confirms {
    /// Numbers with an ack.
    pub fn acked(&self) -> Vec<u64> {
        self.answers.iter().filter(|(_, ack)| **ack).map(|(number, _)| *number).collect()
    }

    /// Numbers with a nack.
    pub fn nacked(&self) -> Vec<u64> {
        self.answers.iter().filter(|(_, ack)| !**ack).map(|(number, _)| *number).collect()
    }

    /// Leaves out the numbers up to `number`: they were answered before.
    pub fn skip(&mut self, number: u64) {
        self.floor = number;
    }

    /// How many numbers have their answer.
    pub fn count(&self) -> usize {
        self.forgotten + self.answers.len()
    }

    /// Forgets the answers of the numbers below which all have one; they stay counted.
    pub fn forget(&mut self) {
        let rest = self.answers.split_off(&(self.floor + 1));
        self.forgotten += std::mem::replace(&mut self.answers, rest).len();
    }

    fn answer(&mut self, number: u64, multiple: bool, ack: bool) {
        if multiple {
            for number in self.floor + 1..=number {
                if ack && self.answers.get(&number) == Some(&false) {
                    self.covered.push(number);
                }
                self.answers.entry(number).or_insert(ack);
            }
        } else if number <= self.floor || self.answers.insert(number, ack).is_some() {
            self.doubled.push(number);
        }
        while self.answers.contains_key(&(self.floor + 1)) {
            self.floor += 1;
        }
    }
}

impl Client {
    /// Puts the channel into confirm mode.
    pub fn confirm_select(&mut self, channel: u16) -> Outcome<()> {
        self.call(channel, &Writer::method(85, 10).u8(0), (85, 11)).map(drop)
    }

    /// Reads confirms into `confirms` until `count` numbers have their answer.
    pub fn await_confirms(
        &mut self,
        channel: u16,
        confirms: &mut Confirms,
        count: usize,
    ) -> Outcome<()> {
        while confirms.count() < count {
            let event = self.await_event(channel, |event| matches!(event.id, (60, 80 | 120)))?;
            let mut reader = Reader(&event.arguments);
            let number = reader.u64()?;
            let multiple = reader.u8()? & 1 != 0;
            confirms.answer(number, multiple, event.id == (60, 80));
        }
        Ok(())
    }

    /// Files the confirms that are here already, without waiting for more.
    pub fn take_confirms(&mut self, channel: u16, confirms: &mut Confirms) {
        while let Some(event) = self.take_event(channel, |event| matches!(event.id, (60, 80 | 120)))
        {
            let mut reader = Reader(&event.arguments);
            let (Ok(number), Ok(bits)) = (reader.u64(), reader.u8()) else { return };
            confirms.answer(number, bits & 1 != 0, event.id == (60, 80));
        }
    }

    /// Waits until the first `count` publishes of this channel have their answers.
    pub fn confirms(&mut self, channel: u16, count: usize) -> Outcome<Confirms> {
        let mut confirms = Confirms::default();
        self.await_confirms(channel, &mut confirms, count)?;
        Ok(confirms)
    }

    /// Puts the channel into transaction mode.
    pub fn tx_select(&mut self, channel: u16) -> Outcome<()> {
        self.call(channel, &Writer::method(90, 10), (90, 11)).map(drop)
    }

    /// Commits.
    pub fn tx_commit(&mut self, channel: u16) -> Outcome<()> {
        self.call(channel, &Writer::method(90, 20), (90, 21)).map(drop)
    }

    /// Rolls back.
    pub fn tx_rollback(&mut self, channel: u16) -> Outcome<()> {
        self.call(channel, &Writer::method(90, 30), (90, 31)).map(drop)
    }
}
