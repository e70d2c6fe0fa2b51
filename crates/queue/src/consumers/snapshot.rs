//! The consumers as bytes.
//!
//! ```text
//!  subscriptions ever · number of consumers · for each, in the order of ids:
//!      id · flags, terms · joined · unsent · held since · number held, runs · number overdue, names
//!  number of priorities · for each, highest first: number in the rotation, ids in their order
//!  active, if there is one (a flag, and whether it is draining)
//! ```
//!
//! Slots and what can be counted again are left out. Grants are left out because there are none
//! between commands.

use std::collections::BTreeSet;

use model::id::{ConsumerId, Seq};

use super::{Consumer, Consumers, Single};
use crate::command::Subscription;
use crate::malformed::Malformed;
use crate::message::NEVER;
use crate::reader::{self, Reader};
use crate::runs;
use crate::unsettled::Unsettled;

const GRANTED: u8 = 1;
const NO_ACK: u8 = 1 << 1;
const EXCLUSIVE: u8 = 1 << 2;
const CANCELLED: u8 = 1 << 3;
const DEMANDED: u8 = 1 << 4;
const TIMEOUT: u8 = 1 << 5;
const HOLDS: u8 = 1 << 6;
const KNOWN: u8 = (1 << 7) - 1;

const ACTIVE: u8 = 1;
const DRAINING: u8 = 1 << 1;

/// A window and the delivery that fills it are less.
const UNSENT_MAX: u64 = 1 << 34;

impl Consumers {
    /// Writes all.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        reader::put(out, self.joined);
        reader::put_len(out, self.by_id.len());
        for consumer in self.iter() {
            consumer.encode(out);
        }
        reader::put_len(out, self.groups.len());
        for group in &self.groups {
            reader::put_len(out, group.ring.len());
            for slot in &group.ring {
                reader::put(out, self.at(*slot).terms.consumer.0);
            }
        }
        match self.active() {
            Some(active) => {
                out.push(if self.draining { ACTIVE | DRAINING } else { ACTIVE });
                reader::put(out, active.0);
            }
            None => out.push(0),
        }
    }

    /// Reads what [`Consumers::encode`] wrote. They hold `unsettled` messages or fewer.
    pub(crate) fn decode(
        single: Option<Single>,
        mut unsettled: u64,
        reader: &mut Reader<'_>,
    ) -> Result<Self, Malformed> {
        let mut consumers = Self { single, ..Self::default() };
        let joined: u64 = reader.take()?;
        if joined > u64::from(u32::MAX) << 16 {
            return Err(Malformed::Value("there were too many subscriptions"));
        }
        let mut last = None;
        for _ in 0..reader.take()? {
            let consumer = Consumer::decode(unsettled, reader)?;
            unsettled -= consumer.held.len() as u64;
            if last >= Some(consumer.terms.consumer) || consumer.joined >= joined {
                return Err(Malformed::Value("consumers are not in order"));
            }
            last = Some(consumer.terms.consumer);
            consumers.put_back(consumer);
        }
        consumers.joined = joined;
        if reader.take()? != consumers.groups.len() as u64 {
            return Err(Malformed::Value("there are more or fewer priorities than there are"));
        }
        for place in 0..consumers.groups.len() {
            for _ in 0..reader.take()? {
                let slot = consumers.find(ConsumerId(reader.take()?));
                let slot = slot.ok_or(Malformed::Value("nobody's turn"))?;
                let priority = consumers.groups[place].priority;
                let consumer = consumers.at_mut(slot);
                if consumer.in_rotation || consumer.terms.priority != priority {
                    return Err(Malformed::Value("a consumer has two turns"));
                }
                consumer.in_rotation = true;
                consumers.groups[place].ring.push_back(slot);
            }
        }
        let flags = reader.flags(ACTIVE | DRAINING)?;
        if flags & ACTIVE != 0 {
            let slot = consumers.find(ConsumerId(reader.take()?));
            let active = slot.filter(|slot| single.is_some() && consumers.is_eligible(*slot));
            consumers.active = Some(active.ok_or(Malformed::Value("the active one may not be"))?);
            consumers.draining = flags & DRAINING != 0;
        } else if flags != 0 {
            return Err(Malformed::Flags(flags));
        }
        let turns = |slot| consumers.at(slot).in_rotation == consumers.is_able(slot);
        if !consumers.slots().all(turns) {
            return Err(Malformed::Value("turns are not with those who are able"));
        }
        Ok(consumers)
    }

    fn put_back(&mut self, consumer: Consumer) {
        let (cancelled, demanded) = (consumer.cancelled, consumer.demanded);
        let slot = self.insert(consumer.terms);
        *self.at_mut(slot) = Consumer { cancelled: false, demanded: false, ..consumer };
        if cancelled {
            self.cancel(slot);
        } else if demanded {
            self.undemanded -= 1;
        }
        self.at_mut(slot).demanded = demanded;
    }
}

impl Consumer {
    fn encode(&self, out: &mut Vec<u8>) {
        let terms = &self.terms;
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        reader::put(out, terms.consumer.0);
        out.push(
            flag(terms.granted, GRANTED)
                | flag(terms.no_ack, NO_ACK)
                | flag(terms.exclusive, EXCLUSIVE)
                | flag(self.cancelled, CANCELLED)
                | flag(self.demanded, DEMANDED)
                | flag(terms.timeout.is_some(), TIMEOUT)
                | flag(self.holds_since != NEVER, HOLDS),
        );
        reader::put(out, terms.prefetch.into());
        reader::put_signed(out, terms.priority.into());
        reader::put(out, terms.window_bytes.into());
        if let Some(timeout) = terms.timeout {
            reader::put(out, timeout.0);
        }
        reader::put(out, self.joined);
        reader::put(out, self.unsent);
        if self.holds_since != NEVER {
            reader::put(out, self.holds_since.0);
        }
        self.held.encode(out);
        reader::put_len(out, self.overdue.len());
        let mut before = 0;
        for seq in &self.overdue {
            reader::put_from(out, before, seq.0);
            before = seq.0;
        }
    }

    fn decode(unsettled: u64, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let consumer = ConsumerId(reader.take()?);
        let flags = reader.flags(KNOWN)?;
        let has = |flag| flags & flag != 0;
        let terms = Subscription {
            consumer,
            granted: has(GRANTED),
            no_ack: has(NO_ACK),
            exclusive: has(EXCLUSIVE),
            prefetch: reader.small()?,
            priority: i32::try_from(reader.signed()?)
                .map_err(|_| Malformed::Value("a priority is too large"))?,
            window_bytes: reader.small()?,
            timeout: has(TIMEOUT).then(|| reader.millis()).transpose()?,
        };
        let joined = reader.take()?;
        let unsent = reader.take()?;
        let holds_since = if has(HOLDS) { reader.timestamp()? } else { NEVER };
        let held = Unsettled::decode(unsettled, reader)?;
        let mut overdue = BTreeSet::new();
        let mut before = 0;
        for _ in 0..reader.take()? {
            before = reader.take_from(before)?;
            overdue.insert(Seq(before));
        }
        let cancelled = has(CANCELLED);
        if unsent > UNSENT_MAX {
            return Err(Malformed::Value("a consumer is sent more than its window"));
        }
        if cancelled && (held.is_empty() || !overdue.is_empty()) {
            return Err(Malformed::Value("a cancelled consumer is here without a reason"));
        }
        if has(DEMANDED) && (terms.no_ack || !terms.granted) {
            return Err(Malformed::Value("a consumer without grants is asked for some"));
        }
        Ok(Self {
            terms,
            joined,
            held,
            grant: 0,
            demanded: has(DEMANDED),
            unsent,
            cancelled,
            overdue,
            holds_since,
            in_rotation: false,
        })
    }
}

impl Unsettled {
    /// Writes all, in the order of delivery.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        reader::put_len(out, self.len());
        runs::put(out, 0, self.deliveries());
    }

    /// Reads what [`Unsettled::encode`] wrote, if it is not more than `most`.
    pub(crate) fn decode(most: u64, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = reader.take()?;
        if count > most {
            return Err(Malformed::Value("more is held than is unsettled"));
        }
        let mut held = Self::default();
        runs::take(reader, 0, count, |(message, since)| {
            if since == NEVER || held.find(message.seq).is_some() {
                return Err(Malformed::Value("a message is held twice"));
            }
            held.insert(message, since);
            Ok(())
        })?;
        Ok(held)
    }
}
