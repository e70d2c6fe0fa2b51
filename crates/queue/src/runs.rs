//! Messages as bytes, in a given order: what follows on its forerunner takes next to no room.
//!
//! ```text
//!  flags  [number]  [seq]  bytes  [expires at]  [delivery count]  [priority]  [since]
//!   u8    \______________________________ numbers, see `reader` ____________________/
//! ```
//!
//! Consecutive messages that are equal but for their names are one run. What is in brackets is
//! only there if a flag says so; `seq`, `expires at` and `since` are told by their distance from
//! the last ones.

use model::id::Seq;
use model::time::Timestamp;

use crate::malformed::Malformed;
use crate::message::{Message, NEVER};
use crate::reader::{self, Reader};

/// There are several.
const MANY: u8 = 1;
/// The first one's name does not follow on the last one before.
const APART: u8 = 1 << 1;
const DELIVERED: u8 = 1 << 2;
const EXPIRES: u8 = 1 << 3;
const FAILED: u8 = 1 << 4;
/// It is another priority than before.
const PRIORITY: u8 = 1 << 5;
/// They are held since another time than the ones before.
const SINCE: u8 = 1 << 6;
const KNOWN: u8 = (1 << 7) - 1;

/// A message, and since when it is held if it is.
pub(crate) type Item = (Message, Timestamp);

/// What the first run differs from.
fn origin(priority: u8) -> Item {
    let message = Message {
        seq: Seq(0),
        expires_at: Timestamp(0),
        bytes: 0,
        delivery_count: 0,
        priority,
        delivered: false,
    };
    (message, Timestamp(0))
}

/// Writes messages, the number of which the reader will know.
pub(crate) fn put(out: &mut Vec<u8>, priority: u8, items: impl Iterator<Item = Item>) {
    let mut before = origin(priority);
    let mut items = items.peekable();
    while let Some(first) = items.next() {
        let mut last = first;
        let follows = |last: &Item, next: &Item| {
            let message = Message { seq: Seq(last.0.seq.0.wrapping_add(1)), ..last.0 };
            *next == (message, last.1) && next.0.seq > last.0.seq
        };
        while let Some(next) = items.next_if(|next| follows(&last, next)) {
            last = next;
        }
        put_run(out, &before, &first, last.0.seq.0 - first.0.seq.0 + 1);
        let expires_at = if first.0.expires_at == NEVER { before.0 } else { first.0 }.expires_at;
        before = (Message { expires_at, ..last.0 }, last.1);
    }
}

fn put_run(out: &mut Vec<u8>, before: &Item, (message, since): &Item, count: u64) {
    let expected = before.0.seq.0.wrapping_add(1);
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    let flags = flag(count > 1, MANY)
        | flag(message.seq.0 != expected, APART)
        | flag(message.delivered, DELIVERED)
        | flag(message.expires_at != NEVER, EXPIRES)
        | flag(message.delivery_count > 0, FAILED)
        | flag(message.priority != before.0.priority, PRIORITY)
        | flag(*since != before.1, SINCE);
    out.push(flags);
    if flags & MANY != 0 {
        reader::put(out, count);
    }
    if flags & APART != 0 {
        reader::put_from(out, expected, message.seq.0);
    }
    reader::put(out, message.bytes.into());
    if flags & EXPIRES != 0 {
        reader::put_from(out, before.0.expires_at.0, message.expires_at.0);
    }
    if flags & FAILED != 0 {
        reader::put(out, message.delivery_count.into());
    }
    if flags & PRIORITY != 0 {
        out.push(message.priority);
    }
    if flags & SINCE != 0 {
        reader::put_from(out, before.1.0, since.0);
    }
}

/// Reads `count` messages.
pub(crate) fn take(
    reader: &mut Reader<'_>,
    priority: u8,
    mut count: u64,
    mut taken: impl FnMut(Item) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let mut before = origin(priority);
    while count > 0 {
        let ((mut message, since), many) = take_run(reader, &before)?;
        count = count.checked_sub(many).ok_or(Malformed::Value("a run is too long"))?;
        let last = message.seq.0.checked_add(many - 1);
        let last = last.ok_or(Malformed::Value("names do not reach that far"))?;
        for seq in message.seq.0..=last {
            message.seq = Seq(seq);
            taken((message, since))?;
        }
        let expires_at = if message.expires_at == NEVER { before.0 } else { message }.expires_at;
        before = (Message { expires_at, ..message }, since);
    }
    Ok(())
}

fn take_run(reader: &mut Reader<'_>, before: &Item) -> Result<(Item, u64), Malformed> {
    let flags = reader.flags(KNOWN)?;
    let has = |flag| flags & flag != 0;
    let many = if has(MANY) { reader.take()?.max(1) } else { 1 };
    let expected = before.0.seq.0.wrapping_add(1);
    let message = Message {
        seq: Seq(if has(APART) { reader.take_from(expected)? } else { expected }),
        bytes: reader.small()?,
        expires_at: if has(EXPIRES) {
            Timestamp(reader.take_from(before.0.expires_at.0)?)
        } else {
            NEVER
        },
        delivery_count: if has(FAILED) { reader.small()? } else { 0 },
        priority: if has(PRIORITY) { reader.byte()? } else { before.0.priority },
        delivered: has(DELIVERED),
    };
    let since = if has(SINCE) { Timestamp(reader.take_from(before.1.0)?) } else { before.1 };
    Ok(((message, since), many))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(seq: u64) -> Message {
        Message {
            seq: Seq(seq),
            expires_at: NEVER,
            bytes: 1_000,
            delivery_count: 0,
            priority: 4,
            delivered: false,
        }
    }

    fn there_and_back(items: &[Item]) -> usize {
        let mut out = Vec::new();
        put(&mut out, 4, items.iter().copied());
        let mut back = Vec::new();
        let mut reader = Reader::new(&out);
        take(&mut reader, 4, items.len() as u64, |item| {
            back.push(item);
            Ok(())
        })
        .unwrap();
        assert_eq!(reader.end(), Ok(()));
        assert_eq!(back, items);
        out.len()
    }

    #[test]
    fn equal_messages_take_no_room() {
        let items: Vec<Item> = (7..100_007).map(|seq| (message(seq), Timestamp(0))).collect();
        assert_eq!(there_and_back(&items), 7);
    }

    #[test]
    fn messages_of_many_sizes_and_deadlines_take_little_room() {
        let item = |seq| {
            let bytes = 100 + u32::try_from(seq * 7_919 % 5_000).unwrap();
            (
                Message { bytes, expires_at: Timestamp(1_700_000_000_000 + seq), ..message(seq) },
                Timestamp(0),
            )
        };
        let items: Vec<Item> = (7..1_007).map(item).collect();
        assert!(there_and_back(&items) < 4 * items.len() + 20);
    }

    #[test]
    fn whatever_differs_comes_back() {
        let mut items = Vec::new();
        for step in 0..256_u64 {
            let bit = |bit: u64| step >> bit & 1 != 0;
            let seq = if bit(0) { step } else { u64::MAX - step };
            let message = Message {
                seq: Seq(seq),
                expires_at: if bit(1) { Timestamp(step << 50) } else { NEVER },
                bytes: if bit(2) { u32::MAX } else { 0 },
                delivery_count: if bit(3) { u32::MAX } else { 0 },
                priority: if bit(4) { u8::MAX } else { 0 },
                delivered: bit(5),
            };
            items.push((message, Timestamp(if bit(6) { step << 40 } else { 0 })));
        }
        there_and_back(&items);
        let last = (message(u64::MAX), Timestamp(0));
        there_and_back(&[last, (message(0), Timestamp(0)), last, last]);
    }

    #[test]
    fn a_run_beyond_the_end_is_refused() {
        for (bytes, count) in [(&[MANY, 3, 0][..], 2), (&[APART | MANY, 3, 3, 0][..], 3)] {
            let refused = take(&mut Reader::new(bytes), 0, count, |_| Ok(()));
            assert!(matches!(refused, Err(Malformed::Value(_))), "{refused:?}");
        }
    }
}
