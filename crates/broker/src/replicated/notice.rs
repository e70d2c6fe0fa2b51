//! What a queue's leader tells a node: answers to its orders, and deliveries to its consumers.
//!
//! ```text
//! notice = queue u64 · term u64 · boot u64 · upto u64 · expected u64 · item*
//! item = length of the rest u32 · kind u8 · fields
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};
use model::id::{ConsumerId, QueueId, Seq};
use model::message::Message;

use crate::replicated::order::put_bytes;
use crate::replicated::order::{Malformed, take_bytes, text, u8_of, u16_of, u32_of, u64_of};
use crate::shard::command::{Consumed, Counts, Deleted};

/// See the module head.
#[derive(Debug, Clone)]
pub(crate) struct Notice {
    pub(crate) queue: QueueId,
    /// The leader's term: notices of older terms are void.
    pub(crate) term: u64,
    /// Which start of the node it is meant for.
    pub(crate) boot: u64,
    /// Orders up to this number have been performed.
    pub(crate) upto: u64,
    /// A number is missing: send again from this one; 0: none is.
    pub(crate) expected: u64,
    pub(crate) items: Vec<Item>,
}

/// One thing to tell.
#[derive(Debug, Clone)]
pub(crate) enum Item {
    /// The publish with this number was refused.
    Refused { number: u64 },
    /// The answer to a question.
    Reply { number: u64, reply: Reply },
    /// A message for a consumer. `again`: it may have got it already, from another leader.
    Deliver { consumer: ConsumerId, seq: Seq, redelivered: bool, again: bool, message: Message },
    /// From here on deliveries are complete and in order for who sent the order with this number:
    /// first what the sender's consumers hold, then what is new.
    Attaching { number: u64 },
    /// Everything that consumers hold has been delivered again, as the order with this number asked.
    Attached { number: u64 },
    /// The queue ended a consumer.
    Cancelled { consumer: ConsumerId },
    /// A consumer held a message for too long; the code and text of the error for its client.
    TimedOut { consumer: ConsumerId, code: u16, text: String },
    /// Messages wait for a consumer that may take none.
    Demand { consumer: ConsumerId },
    /// A grant was not used.
    GrantUnused { consumer: ConsumerId, count: u32 },
}

/// The answer to an order that somebody waits for.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Consumed(Consumed),
    /// Whether the queue has to be deleted now, with its last consumer.
    Cancelled(bool),
    Counted(Counts),
    Got {
        seq: Seq,
        redelivered: bool,
        message: Message,
        remaining: u64,
    },
    Empty,
    SingleActive,
    Purged(u64),
    Deleted(Deleted),
}

mod kind {
    pub(super) const REFUSED: u8 = 1;
    pub(super) const DELIVER: u8 = 2;
    pub(super) const ATTACHED: u8 = 3;
    pub(super) const CANCELLED_CONSUMER: u8 = 4;
    pub(super) const TIMED_OUT: u8 = 5;
    pub(super) const DEMAND: u8 = 6;
    pub(super) const GRANT_UNUSED: u8 = 7;
    pub(super) const ATTACHING: u8 = 8;
    pub(super) const CONSUMED: u8 = 16;
    pub(super) const CANCELLED: u8 = 17;
    pub(super) const GOT: u8 = 18;
    pub(super) const EMPTY: u8 = 19;
    pub(super) const SINGLE_ACTIVE: u8 = 20;
    pub(super) const PURGED: u8 = 21;
    pub(super) const DELETED: u8 = 22;
    pub(super) const COUNTED: u8 = 23;
}

impl Notice {
    /// About what its items weigh when they are encoded, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.items.iter().map(Item::weight).sum()
    }

    /// The same as several notices in this order, none with more items than one that exceeds
    /// `most` bytes. What it says of orders is in the first, with everything that this concerns.
    pub(crate) fn parts(&self, most: usize) -> Vec<Self> {
        let (concerned, rest): (Vec<Item>, Vec<Item>) =
            self.items.iter().cloned().partition(|item| matches!(item, Item::Refused { .. }));
        let Self { queue, term, boot, upto, expected, .. } = *self;
        let mut parts = vec![Self { queue, term, boot, upto, expected, items: concerned }];
        let mut weight = most;
        for item in rest {
            weight += item.weight();
            match parts.last_mut() {
                Some(part) if weight <= most => part.items.push(item),
                _ => {
                    weight = item.weight();
                    let items = vec![item];
                    parts.push(Self { queue, term, boot, upto: 0, expected: 0, items });
                }
            }
        }
        parts
    }

    /// Writes it.
    pub(crate) fn encode(&self) -> Bytes {
        let weight = self.weight();
        let mut out = BytesMut::with_capacity(40 + weight);
        for number in [self.queue.0, self.term, self.boot, self.upto, self.expected] {
            out.put_u64_le(number);
        }
        for item in &self.items {
            let start = out.len();
            out.put_u32_le(0);
            item.encode(&mut out);
            let length = u32::try_from(out.len() - start - 4).expect("messages are below 4 GiB");
            out[start..start + 4].copy_from_slice(&length.to_le_bytes());
        }
        out.freeze()
    }

    /// Reads what [`Notice::encode`] writes.
    ///
    /// # Errors
    /// If it is something else.
    pub(crate) fn decode(mut bytes: Bytes) -> Result<Self, Malformed> {
        let mut notice = Self {
            queue: QueueId(u64_of(&mut bytes)?),
            term: u64_of(&mut bytes)?,
            boot: u64_of(&mut bytes)?,
            upto: u64_of(&mut bytes)?,
            expected: u64_of(&mut bytes)?,
            items: Vec::new(),
        };
        while bytes.has_remaining() {
            let item = take_bytes(&mut bytes)?;
            notice.items.push(Item::decode(item)?);
        }
        Ok(notice)
    }
}

impl Item {
    /// About what it weighs when it is encoded, in bytes.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Deliver { message, .. }
            | Self::Reply { reply: Reply::Got { message, .. }, .. } => message.encoded_len() + 40,
            _ => 40,
        }
    }

    fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Refused { number } => put(out, kind::REFUSED, *number),
            Self::Deliver { consumer, seq, redelivered, again, message } => {
                put(out, kind::DELIVER, consumer.0);
                out.put_u64_le(seq.0);
                out.put_u8(u8::from(*redelivered) | (u8::from(*again) << 1));
                message.encode_into(out);
            }
            Self::Attaching { number } => put(out, kind::ATTACHING, *number),
            Self::Attached { number } => put(out, kind::ATTACHED, *number),
            Self::Cancelled { consumer } => put(out, kind::CANCELLED_CONSUMER, consumer.0),
            Self::TimedOut { consumer, code, text } => {
                put(out, kind::TIMED_OUT, consumer.0);
                out.put_u16_le(*code);
                put_bytes(out, text.as_bytes());
            }
            Self::Demand { consumer } => put(out, kind::DEMAND, consumer.0),
            Self::GrantUnused { consumer, count } => {
                put(out, kind::GRANT_UNUSED, consumer.0);
                out.put_u32_le(*count);
            }
            Self::Reply { number, reply } => match reply {
                Reply::Consumed(consumed) => {
                    put(out, kind::CONSUMED, *number);
                    out.put_u8(match consumed {
                        Consumed::Done => 0,
                        Consumed::ExclusiveUse => 1,
                        Consumed::NoQueue => 2,
                    });
                }
                Reply::Cancelled(last) => {
                    put(out, kind::CANCELLED, *number);
                    out.put_u8(u8::from(*last));
                }
                Reply::Counted(counts) => {
                    put(out, kind::COUNTED, *number);
                    out.put_u64_le(counts.ready);
                    out.put_u64_le(counts.consumers);
                }
                Reply::Got { seq, redelivered, message, remaining } => {
                    put(out, kind::GOT, *number);
                    out.put_u64_le(seq.0);
                    out.put_u8(u8::from(*redelivered));
                    out.put_u64_le(*remaining);
                    message.encode_into(out);
                }
                Reply::Empty => put(out, kind::EMPTY, *number),
                Reply::SingleActive => put(out, kind::SINGLE_ACTIVE, *number),
                Reply::Purged(count) => {
                    put(out, kind::PURGED, *number);
                    out.put_u64_le(*count);
                }
                Reply::Deleted(deleted) => {
                    put(out, kind::DELETED, *number);
                    let (what, count) = match deleted {
                        Deleted::Done(count) => (0, *count),
                        Deleted::InUse => (1, 0),
                        Deleted::NotEmpty => (2, 0),
                        Deleted::NoQueue => (3, 0),
                    };
                    out.put_u8(what);
                    out.put_u64_le(count);
                }
            },
        }
    }

    fn decode(mut bytes: Bytes) -> Result<Self, Malformed> {
        let kind = u8_of(&mut bytes)?;
        let number = u64_of(&mut bytes)?;
        let consumer = ConsumerId(number);
        let reply = |reply| Self::Reply { number, reply };
        Ok(match kind {
            kind::REFUSED => Self::Refused { number },
            kind::DELIVER => {
                let seq = Seq(u64_of(&mut bytes)?);
                let flags = u8_of(&mut bytes)?;
                let (redelivered, again) = (flags & 1 != 0, flags & 2 != 0);
                Self::Deliver { consumer, seq, redelivered, again, message: message(bytes)? }
            }
            kind::ATTACHING => Self::Attaching { number },
            kind::ATTACHED => Self::Attached { number },
            kind::CANCELLED_CONSUMER => Self::Cancelled { consumer },
            kind::TIMED_OUT => {
                Self::TimedOut { consumer, code: u16_of(&mut bytes)?, text: text(&mut bytes)? }
            }
            kind::DEMAND => Self::Demand { consumer },
            kind::GRANT_UNUSED => Self::GrantUnused { consumer, count: u32_of(&mut bytes)? },
            kind::CONSUMED => reply(Reply::Consumed(match u8_of(&mut bytes)? {
                0 => Consumed::Done,
                1 => Consumed::ExclusiveUse,
                _ => Consumed::NoQueue,
            })),
            kind::CANCELLED => reply(Reply::Cancelled(u8_of(&mut bytes)? != 0)),
            kind::COUNTED => reply(Reply::Counted(Counts {
                ready: u64_of(&mut bytes)?,
                consumers: u64_of(&mut bytes)?,
            })),
            kind::GOT => {
                let seq = Seq(u64_of(&mut bytes)?);
                let redelivered = u8_of(&mut bytes)? != 0;
                let remaining = u64_of(&mut bytes)?;
                reply(Reply::Got { seq, redelivered, message: message(bytes)?, remaining })
            }
            kind::EMPTY => reply(Reply::Empty),
            kind::SINGLE_ACTIVE => reply(Reply::SingleActive),
            kind::PURGED => reply(Reply::Purged(u64_of(&mut bytes)?)),
            kind::DELETED => {
                let (what, count) = (u8_of(&mut bytes)?, u64_of(&mut bytes)?);
                reply(Reply::Deleted(match what {
                    0 => Deleted::Done(count),
                    1 => Deleted::InUse,
                    2 => Deleted::NotEmpty,
                    _ => Deleted::NoQueue,
                }))
            }
            _ => return Err(Malformed("an unknown notice")),
        })
    }
}

fn put(out: &mut BytesMut, kind: u8, number: u64) {
    out.put_u8(kind);
    out.put_u64_le(number);
}

fn message(bytes: Bytes) -> Result<Message, Malformed> {
    Message::decode(bytes).map_err(|_| Malformed("a message"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_notice_is_sent_in_parts_that_mean_the_same() {
        let deliver = |seq: u64, bytes: usize| Item::Deliver {
            consumer: ConsumerId(9),
            seq: Seq(seq),
            redelivered: false,
            again: false,
            message: Message::from_parts("", "key", &[0, 0], &vec![0; bytes]),
        };
        let items = vec![
            deliver(1, 400),
            Item::Refused { number: 76 },
            deliver(2, 400),
            deliver(3, 5000),
            Item::Attached { number: 8 },
            Item::Refused { number: 77 },
        ];
        let notice = Notice { queue: QueueId(16), term: 2, boot: 5, upto: 77, expected: 78, items };
        let parts = notice.parts(1000);
        let heads: Vec<_> = parts.iter().map(|part| (part.upto, part.expected)).collect();
        assert_eq!(heads, [(77, 78), (0, 0), (0, 0), (0, 0)]);
        let bytes = |notice: &Notice| notice.encode();
        assert!(
            parts.iter().all(|part| (part.queue, part.term, part.boot)
                == (notice.queue, notice.term, notice.boot))
        );
        assert!(parts.iter().all(|part| part.weight() <= 1000 || part.items.len() == 1));
        // All refusals first, the rest in order.
        let ordered = [1, 5, 0, 2, 3, 4].map(|at: usize| notice.items[at].clone()).to_vec();
        let ordered = bytes(&Notice { items: ordered, ..notice });
        let items = parts.into_iter().flat_map(|part| part.items).collect();
        assert_eq!(bytes(&Notice { items, ..notice }), ordered);
    }

    #[test]
    fn what_is_written_is_read() {
        let message = Message::from_parts("", "key", &[0, 0], b"body");
        let consumer = ConsumerId(9);
        let reply = |reply| Item::Reply { number: 3, reply };
        let notice = Notice {
            queue: QueueId(16),
            term: 2,
            boot: 5,
            upto: 77,
            expected: 0,
            items: vec![
                Item::Refused { number: 76 },
                Item::Deliver {
                    consumer,
                    seq: Seq(4),
                    redelivered: true,
                    again: false,
                    message: message.clone(),
                },
                Item::Attaching { number: 8 },
                Item::Attached { number: 8 },
                Item::Cancelled { consumer },
                Item::TimedOut { consumer, code: 406, text: "late".into() },
                Item::Demand { consumer },
                Item::GrantUnused { consumer, count: 8 },
                reply(Reply::Consumed(Consumed::ExclusiveUse)),
                reply(Reply::Cancelled(true)),
                reply(Reply::Counted(Counts { ready: 5, consumers: 6 })),
                reply(Reply::Got { seq: Seq(1), redelivered: false, message, remaining: 12 }),
                reply(Reply::Empty),
                reply(Reply::SingleActive),
                reply(Reply::Purged(7)),
                reply(Reply::Deleted(Deleted::Done(7))),
                reply(Reply::Deleted(Deleted::InUse)),
            ],
        };
        let bytes = notice.encode();
        let read = Notice::decode(bytes.clone()).expect("it is well-formed");
        assert_eq!((read.items.len(), read.encode()), (notice.items.len(), bytes.clone()));
        for length in 0..bytes.len() {
            let cut = Notice::decode(bytes.slice(..length));
            assert!(cut.map_or(true, |cut| cut.items.len() < notice.items.len()));
        }
    }
}
