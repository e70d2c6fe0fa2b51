//! The whole state as bytes.
//!
//! ```text
//!  version · flags · settings · newest, highest delivered, if there are · used at · next timeout
//!  number unsettled · ready messages · delayed ones · consumers · what was taken by `basic.get`
//!  dead messages that are kept, if there are
//! ```
//!
//! It is exact: a machine that is read goes on just as the one that was written, and writes the
//! same bytes. What machines with the same history may differ in (where things are in memory, spare
//! room) is left out, so theirs are equal too.

use model::id::Seq;

use super::Queue;
use crate::consumers::Consumers;
use crate::dead::Dead;
use crate::delayed::Delayed;
use crate::malformed::Malformed;
use crate::message::{Message, NEVER};
use crate::reader::{self, Reader};
use crate::settings::{Settings, Style};
use crate::store::Ready;
use crate::unsettled::Unsettled;

const VERSION: u8 = 1;

const NEWEST: u8 = 1;
const HIGHEST_DELIVERED: u8 = 1 << 1;
const HELD_BACK: u8 = 1 << 2;
const EXPIRED: u8 = 1 << 3;
const TIMEOUT: u8 = 1 << 4;
const DEAD: u8 = 1 << 5;
const KNOWN: u8 = (1 << 6) - 1;

impl Queue {
    /// Appends the state to `out`. Machines with the same history write the same bytes, and after
    /// the same commands so does one that was read from them by [`Queue::decode`].
    ///
    /// A message of a long backlog takes about three bytes, or next to none if it is like the one
    /// before; one with a deadline or a failed delivery takes some more.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        out.push(VERSION);
        out.push(
            flag(self.newest.is_some(), NEWEST)
                | flag(self.highest_delivered.is_some(), HIGHEST_DELIVERED)
                | flag(self.held_back, HELD_BACK)
                | flag(self.expired, EXPIRED)
                | flag(self.next_timeout != NEVER, TIMEOUT)
                | flag(!self.dead.is_empty(), DEAD),
        );
        let settings = self.settings.encode();
        reader::put_len(out, settings.len());
        out.extend(settings);
        for seq in [self.newest, self.highest_delivered].into_iter().flatten() {
            reader::put(out, seq.0);
        }
        reader::put(out, self.used_at.0);
        if self.next_timeout != NEVER {
            reader::put(out, self.next_timeout.0);
        }
        reader::put(out, self.unsettled);
        self.ready.encode(out);
        self.delayed.encode(out);
        self.consumers.encode(out);
        self.got.encode(out);
        if !self.dead.is_empty() {
            self.dead.encode(out);
        }
    }

    /// Reads what [`Queue::encode`] wrote.
    ///
    /// # Errors
    /// If `bytes` are anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let reader = &mut Reader::new(bytes);
        let version = reader.byte()?;
        if version != VERSION {
            return Err(Malformed::Version(version));
        }
        let flags = reader.flags(KNOWN)?;
        let has = |flag| flags & flag != 0;
        let settings_len = reader.small()?;
        let settings = Settings::decode(reader.bytes(settings_len)?)?;
        if settings != settings.clone().understood() {
            return Err(Malformed::Value("settings that the style does not know"));
        }
        let newest = has(NEWEST).then(|| reader.take()).transpose()?.map(Seq);
        if newest == Some(Seq(u64::MAX)) {
            return Err(Malformed::Value("there is no name for another message"));
        }
        let highest_delivered = has(HIGHEST_DELIVERED).then(|| reader.take()).transpose()?.map(Seq);
        let used_at = reader.timestamp()?;
        let next_timeout = if has(TIMEOUT) { reader.timestamp()? } else { NEVER };
        let unsettled = reader.take()?;
        let ready = Ready::decode(settings.style, reader)?;
        let delayed = Delayed::decode(reader)?;
        let consumers = Consumers::decode(Self::single(&settings), unsettled, reader)?;
        let got = Unsettled::decode(unsettled, reader)?;
        let dead = if has(DEAD) { Dead::decode(reader)? } else { Dead::default() };
        if has(DEAD) && dead.is_empty() {
            return Err(Malformed::Value("no message is dead"));
        }
        reader.end()?;
        let mut queue = Self {
            newest,
            highest_delivered,
            held_back: has(HELD_BACK),
            expired: has(EXPIRED),
            next_timeout,
            ready,
            delayed,
            dead,
            consumers,
            got,
            unsettled,
            ..Self::new(settings, used_at)
        };
        let held = queue.held();
        if held.len() as u64 != unsettled {
            return Err(Malformed::Value("more is unsettled than is held"));
        }
        queue.unsettled_bytes = held.iter().map(|message| u64::from(message.bytes)).sum();
        if queue.settings.style == Style::Classic && !queue.delayed.is_empty() {
            return Err(Malformed::Value("a classic queue delays nothing"));
        }
        let mut elsewhere = held;
        elsewhere.extend(queue.delayed.iter());
        elsewhere.extend(queue.dead.iter().map(|(message, _)| message));
        elsewhere.sort_unstable_by_key(|message| message.seq);
        queue.ready.checks(&elsewhere, newest)?;
        Ok(queue)
    }

    /// All that is unsettled.
    fn held(&self) -> Vec<Message> {
        let holders = self.consumers.iter().map(|consumer| &consumer.held).chain([&self.got]);
        holders.flat_map(Unsettled::deliveries).map(|(message, _)| message).collect()
    }
}
