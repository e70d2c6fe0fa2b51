//! What a quorum queue can be asked for, as it travels to the leader and stands in the Raft log.
//!
//! ```text
//! entry = version in force u8 · stamp u64 · batch*
//! batch = node u64 · boot u64 · number of the first u64 · count u32 · order*
//! order = length of the rest u32 · kind u8 · fields
//! ```
//!
//! Numbers are little-endian. A batch of node 0 is the leader's own: it has no numbers. The stamp
//! is the leader's clock in milliseconds, so that every member applies the entry at the same time.

use amqp::request::{ChannelId, Flow, Outcome, Unsettled};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use model::id::{ConnectionId, ConsumerId, NodeId, QueueId, Seq};
use model::message::Message;
use model::time::{Millis, Timestamp};

use crate::replicated::numbered::Sender;
use crate::replicated::version::{self, Unreadable};
use crate::shard::command::Settlement;

/// Bytes before the first batch of an entry.
pub(crate) const ENTRY_HEAD: usize = 9;

/// The leader's own orders.
pub(crate) const OWN: Sender = Sender { node: NodeId(0), boot: 0 };

/// See the module head.
#[derive(Debug, Clone)]
pub(crate) enum Order {
    /// A message.
    Publish(Published),
    /// Messages are settled, in this order.
    Settle { runs: Vec<Run>, outcome: Settlement },
    /// Deliveries have reached the socket.
    Sent { consumer: ConsumerId, messages: u32, bytes: u64 },
    /// A consumer gets only what is granted from now on.
    Limit { consumer: ConsumerId },
    /// A consumer may take more.
    Grant { consumer: ConsumerId, count: u32 },
    /// A consumer gets nothing more.
    End { consumer: ConsumerId },
    /// A consumer is gone; what it held comes back.
    Gone { consumer: ConsumerId },
    /// A subscription.
    Consume(Box<Subscribed>),
    /// The end of one, whose messages stay with it.
    Cancel { consumer: ConsumerId },
    /// `basic.get`.
    Get { connection: ConnectionId, no_ack: bool },
    /// A connection has ended without a word: its consumers are gone, what it got comes back.
    Left { connection: ConnectionId },
    /// How much there is.
    Count,
    /// Removes ready messages.
    Purge,
    /// The queue was declared again.
    Touch,
    /// Ends the queue.
    Delete { if_unused: bool, if_empty: bool },
    /// The sender's node has a new start: what earlier ones held comes back, and their consumers
    /// are gone. The first order of every start.
    Hello,
    /// The sender follows a new leader: it wants what these consumers of it hold once more.
    Attach { consumers: Vec<ConsumerId> },
    /// Stands for a publish that was given up.
    Nothing,
    /// The leader's own: the effective arguments have changed (`queue`'s encoding).
    Configure(Bytes),
    /// The leader's own: a deadline has come.
    Tick,
    /// The leader's own: a node is back with this start; what earlier ones held comes back.
    Restarted { start: Sender },
    /// The leader's own: a node has been away for too long; its consumers are gone.
    Lost { node: NodeId },
    /// The leader's own: dead messages that were kept are where they go.
    Bury { seqs: Vec<Seq> },
    /// The leader's own: another version is in force from the next entry on.
    Version(u8),
}

/// Messages with consecutive names that one holder settles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// `None`: they were got by [`Order::Get`].
    pub(crate) holder: Option<ConsumerId>,
    pub(crate) first: Seq,
    pub(crate) last: Seq,
}

/// A message for a queue.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    /// It outlives a restart of a classic queue's node; a quorum queue keeps everything.
    pub(crate) persistent: bool,
    pub(crate) priority: Option<u8>,
    pub(crate) ttl: Option<Millis>,
    pub(crate) message: Message,
}

/// A subscription as every member keeps it, so that any of them can lead.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Subscribed {
    /// The start of the node that its connection is on.
    pub(crate) at: Sender,
    pub(crate) connection: ConnectionId,
    pub(crate) channel: ChannelId,
    pub(crate) consumer: ConsumerId,
    pub(crate) tag: String,
    pub(crate) no_ack: bool,
    pub(crate) exclusive: bool,
    pub(crate) priority: i32,
    pub(crate) timeout: Option<Millis>,
    pub(crate) flow: Flow,
    /// Bytes that may be on their way to its socket.
    pub(crate) window: u32,
    pub(crate) arguments: amq_protocol_types::FieldTable,
    pub(crate) user: String,
}

/// Bytes that are not what this module writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed order of a quorum queue: {0}")]
pub(crate) struct Malformed(pub(crate) &'static str);

/// One batch of a sender, still encoded.
#[derive(Debug, Clone)]
pub(crate) struct Orders {
    pub(crate) sender: Sender,
    /// The number of the first.
    pub(crate) first: u64,
    pub(crate) count: u32,
    rest: Bytes,
}

impl Orders {
    /// Whether its sender has let go of everything before it.
    pub(crate) fn begins_anew(&self) -> bool {
        let first = frame(&mut self.rest.clone());
        first.is_ok_and(|body| matches!(body.first(), Some(&kind::HELLO | &kind::ATTACH)))
    }

    /// The next order.
    ///
    /// # Errors
    /// If it is malformed; nothing behind it can be read either.
    pub(crate) fn take(&mut self) -> Option<Result<Order, Malformed>> {
        if self.count == 0 {
            return None;
        }
        self.count -= 1;
        let order = frame(&mut self.rest).and_then(Order::decode);
        self.first += 1;
        Some(order)
    }
}

/// Starts an entry, with the version that is in force.
pub(crate) fn begin_entry(out: &mut BytesMut, version: u8, stamp: Timestamp) {
    out.put_u8(version);
    out.put_u64_le(stamp.0);
}

/// Reads an entry where versions up to `known` are known: its stamp and its batches.
///
/// # Errors
/// If the version is not known or it is malformed.
pub(crate) fn read_entry(
    mut bytes: Bytes,
    known: u8,
) -> Result<(Timestamp, Vec<Orders>), Unreadable> {
    if bytes.len() < ENTRY_HEAD {
        return Err(Malformed("an entry without a head").into());
    }
    version::check(bytes.get_u8(), known)?;
    let stamp = Timestamp(bytes.get_u64_le());
    Ok((stamp, read_batches(bytes)?))
}

/// Reads batches that follow each other.
///
/// # Errors
/// If they are malformed.
pub(crate) fn read_batches(mut bytes: Bytes) -> Result<Vec<Orders>, Malformed> {
    let mut batches = Vec::new();
    while bytes.has_remaining() {
        if bytes.len() < 28 {
            return Err(Malformed("a batch without a head"));
        }
        let sender = Sender { node: NodeId(bytes.get_u64_le()), boot: bytes.get_u64_le() };
        let (first, count) = (bytes.get_u64_le(), bytes.get_u32_le());
        let mut behind = bytes.clone();
        for _ in 0..count {
            frame(&mut behind)?;
        }
        let length = bytes.len() - behind.len();
        batches.push(Orders { sender, first, count, rest: bytes.split_to(length) });
    }
    Ok(batches)
}

/// Writes a batch.
pub(crate) fn write_batch<'a>(
    out: &mut BytesMut,
    sender: Sender,
    first: u64,
    orders: impl ExactSizeIterator<Item = &'a Order>,
) {
    out.put_u64_le(sender.node.0);
    out.put_u64_le(sender.boot);
    out.put_u64_le(first);
    out.put_u32_le(u32::try_from(orders.len()).expect("a batch is small"));
    for order in orders {
        order.encode(out);
    }
}

/// Whether batches of a node can stand in an entry: every order is of a kind that is known, and none
/// is for the leader alone to give. An entry that nobody can read would end the queue on all members.
/// The fields are not looked at.
///
/// # Errors
/// What is wrong.
pub(crate) fn check_batches(mut bytes: &[u8]) -> Result<(), Malformed> {
    while !bytes.is_empty() {
        let head = bytes.split_off(..28).ok_or(Malformed("a batch without a head"))?;
        if head[..16] == [0; 16] {
            return Err(Malformed("a batch of nobody"));
        }
        let count = u32::from_le_bytes([head[24], head[25], head[26], head[27]]);
        for _ in 0..count {
            let length = bytes.split_off(..4).ok_or(Malformed("an order without a length"))?;
            let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]);
            let order =
                bytes.split_off(..length as usize).ok_or(Malformed("an order is cut off"))?;
            match order.first() {
                Some(&(1..=kind::ATTACH | kind::NOTHING..=kind::COUNT | kind::TOUCH)) => {}
                _ => return Err(Malformed("an order that no node may give")),
            }
        }
    }
    Ok(())
}

/// The message with this ordinal among the publishes of an entry.
///
/// # Errors
/// If the entry is malformed or has no such message.
pub(crate) fn message_at(entry: Bytes, ordinals: &[u32]) -> Result<Vec<Message>, Unreadable> {
    let mut found = Vec::with_capacity(ordinals.len());
    let mut wanted = ordinals.iter().copied().peekable();
    let mut ordinal = 0;
    for mut batch in read_entry(entry, version::NEWEST)?.1 {
        while batch.count > 0 && wanted.peek().is_some() {
            batch.count -= 1;
            let body = frame(&mut batch.rest)?;
            if body.first() != Some(&kind::PUBLISH) {
                continue;
            }
            if wanted.next_if_eq(&ordinal).is_some() {
                match Order::decode(body)? {
                    Order::Publish(published) => found.push(published.message),
                    _ => return Err(Malformed("not a publish").into()),
                }
            }
            ordinal += 1;
        }
    }
    if wanted.peek().is_some() {
        return Err(Malformed("an entry lacks a message").into());
    }
    Ok(found)
}

fn frame(bytes: &mut Bytes) -> Result<Bytes, Malformed> {
    if bytes.len() < 4 {
        return Err(Malformed("an order without a length"));
    }
    let length = bytes.get_u32_le() as usize;
    if length == 0 || bytes.len() < length {
        return Err(Malformed("an order is cut off"));
    }
    Ok(bytes.split_to(length))
}

mod kind {
    pub(super) const PUBLISH: u8 = 1;
    pub(super) const SETTLE: u8 = 2;
    pub(super) const SENT: u8 = 3;
    pub(super) const GRANT: u8 = 4;
    pub(super) const END: u8 = 5;
    pub(super) const GONE: u8 = 6;
    pub(super) const CONSUME: u8 = 7;
    pub(super) const CANCEL: u8 = 8;
    pub(super) const GET: u8 = 9;
    pub(super) const PURGE: u8 = 10;
    pub(super) const DELETE: u8 = 11;
    pub(super) const HELLO: u8 = 12;
    pub(super) const ATTACH: u8 = 13;
    pub(super) const CONFIGURE: u8 = 14;
    pub(super) const TICK: u8 = 15;
    pub(super) const LOST: u8 = 16;
    pub(super) const NOTHING: u8 = 17;
    pub(super) const LIMIT: u8 = 18;
    pub(super) const LEFT: u8 = 19;
    pub(super) const COUNT: u8 = 20;
    pub(super) const RESTARTED: u8 = 21;
    pub(super) const TOUCH: u8 = 22;
    pub(super) const BURY: u8 = 23;
    pub(super) const VERSION: u8 = 24;
}

impl Order {
    /// Whether it is a message.
    pub(crate) fn is_publish(&self) -> bool {
        matches!(self, Self::Publish(_))
    }

    /// About what it weighs when it is encoded, in bytes.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Publish(published) => published.message.encoded_len() + 32,
            Self::Settle { runs, .. } => 32 + runs.len() * 24,
            Self::Attach { consumers } => 32 + consumers.len() * 8,
            _ => 64,
        }
    }

    /// Writes it with its length.
    pub(crate) fn encode(&self, out: &mut BytesMut) {
        let start = out.len();
        out.put_u32_le(0);
        self.encode_body(out);
        let length = u32::try_from(out.len() - start - 4).expect("messages are below 4 GiB");
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    fn encode_body(&self, out: &mut BytesMut) {
        match self {
            Self::Publish(Published { persistent, priority, ttl, message }) => {
                out.put_u8(kind::PUBLISH);
                out.put_u8(
                    u8::from(priority.is_some())
                        | (u8::from(ttl.is_some()) << 1)
                        | (u8::from(*persistent) << 2),
                );
                if let Some(priority) = priority {
                    out.put_u8(*priority);
                }
                if let Some(ttl) = ttl {
                    out.put_u64_le(ttl.0);
                }
                message.encode_into(out);
            }
            Self::Settle { runs, outcome } => {
                out.put_u8(kind::SETTLE);
                out.put_u8(match outcome {
                    Settlement::Client(Outcome::Accept) => 0,
                    Settlement::Client(Outcome::Return) => 1,
                    Settlement::Client(Outcome::Retry) => 2,
                    Settlement::Client(Outcome::Discard) => 3,
                    Settlement::Lost => 4,
                });
                for run in runs {
                    out.put_u64_le(run.holder.map_or(0, |holder| holder.0));
                    out.put_u64_le(run.first.0);
                    out.put_u64_le(run.last.0);
                }
            }
            Self::Sent { consumer, messages, bytes } => {
                out.put_u8(kind::SENT);
                out.put_u64_le(consumer.0);
                out.put_u32_le(*messages);
                out.put_u64_le(*bytes);
            }
            Self::Grant { consumer, count } => {
                out.put_u8(kind::GRANT);
                out.put_u64_le(consumer.0);
                out.put_u32_le(*count);
            }
            Self::End { consumer } => put_consumer(out, kind::END, *consumer),
            Self::Gone { consumer } => put_consumer(out, kind::GONE, *consumer),
            Self::Cancel { consumer } => put_consumer(out, kind::CANCEL, *consumer),
            Self::Consume(subscribed) => {
                out.put_u8(kind::CONSUME);
                subscribed.encode(out);
            }
            Self::Limit { consumer } => put_consumer(out, kind::LIMIT, *consumer),
            Self::Left { connection } => {
                out.put_u8(kind::LEFT);
                out.put_u64_le(connection.0);
            }
            Self::Get { connection, no_ack } => {
                out.put_u8(kind::GET);
                out.put_u64_le(connection.0);
                out.put_u8(u8::from(*no_ack));
            }
            Self::Count => out.put_u8(kind::COUNT),
            Self::Purge => out.put_u8(kind::PURGE),
            Self::Touch => out.put_u8(kind::TOUCH),
            Self::Delete { if_unused, if_empty } => {
                out.put_u8(kind::DELETE);
                out.put_u8(u8::from(*if_unused) | (u8::from(*if_empty) << 1));
            }
            Self::Hello => out.put_u8(kind::HELLO),
            Self::Attach { consumers } => {
                out.put_u8(kind::ATTACH);
                for consumer in consumers {
                    out.put_u64_le(consumer.0);
                }
            }
            Self::Nothing => out.put_u8(kind::NOTHING),
            Self::Configure(settings) => {
                out.put_u8(kind::CONFIGURE);
                out.put_slice(settings);
            }
            Self::Tick => out.put_u8(kind::TICK),
            Self::Restarted { start } => {
                out.put_u8(kind::RESTARTED);
                out.put_u64_le(start.node.0);
                out.put_u64_le(start.boot);
            }
            Self::Lost { node } => {
                out.put_u8(kind::LOST);
                out.put_u64_le(node.0);
            }
            Self::Bury { seqs } => {
                out.put_u8(kind::BURY);
                for seq in seqs {
                    out.put_u64_le(seq.0);
                }
            }
            Self::Version(version) => {
                out.put_u8(kind::VERSION);
                out.put_u8(*version);
            }
        }
    }

    /// Reads what stands behind the length.
    ///
    /// # Errors
    /// If it is not what [`Order::encode`] writes.
    pub(crate) fn decode(mut bytes: Bytes) -> Result<Self, Malformed> {
        let kind = u8_of(&mut bytes)?;
        let order = match kind {
            kind::PUBLISH => {
                let flags = u8_of(&mut bytes)?;
                let priority = (flags & 1 != 0).then(|| u8_of(&mut bytes)).transpose()?;
                let ttl = (flags & 2 != 0).then(|| u64_of(&mut bytes)).transpose()?.map(Millis);
                let message = Message::decode(bytes).map_err(|_| Malformed("a message"))?;
                let persistent = flags & 4 != 0;
                return Ok(Self::Publish(Published { persistent, priority, ttl, message }));
            }
            kind::SETTLE => {
                let outcome = match u8_of(&mut bytes)? {
                    0 => Settlement::Client(Outcome::Accept),
                    1 => Settlement::Client(Outcome::Return),
                    2 => Settlement::Client(Outcome::Retry),
                    3 => Settlement::Client(Outcome::Discard),
                    4 => Settlement::Lost,
                    _ => return Err(Malformed("an outcome")),
                };
                let mut runs = Vec::with_capacity(bytes.len() / 24);
                while bytes.has_remaining() {
                    let holder = u64_of(&mut bytes)?;
                    runs.push(Run {
                        holder: (holder != 0).then_some(ConsumerId(holder)),
                        first: Seq(u64_of(&mut bytes)?),
                        last: Seq(u64_of(&mut bytes)?),
                    });
                }
                Self::Settle { runs, outcome }
            }
            kind::SENT => Self::Sent {
                consumer: ConsumerId(u64_of(&mut bytes)?),
                messages: u32_of(&mut bytes)?,
                bytes: u64_of(&mut bytes)?,
            },
            kind::GRANT => Self::Grant {
                consumer: ConsumerId(u64_of(&mut bytes)?),
                count: u32_of(&mut bytes)?,
            },
            kind::END => Self::End { consumer: ConsumerId(u64_of(&mut bytes)?) },
            kind::GONE => Self::Gone { consumer: ConsumerId(u64_of(&mut bytes)?) },
            kind::CANCEL => Self::Cancel { consumer: ConsumerId(u64_of(&mut bytes)?) },
            kind::CONSUME => Self::Consume(Box::new(Subscribed::decode(&mut bytes)?)),
            kind::LIMIT => Self::Limit { consumer: ConsumerId(u64_of(&mut bytes)?) },
            kind::LEFT => Self::Left { connection: ConnectionId(u64_of(&mut bytes)?) },
            kind::GET => Self::Get {
                connection: ConnectionId(u64_of(&mut bytes)?),
                no_ack: u8_of(&mut bytes)? != 0,
            },
            kind::COUNT => Self::Count,
            kind::PURGE => Self::Purge,
            kind::TOUCH => Self::Touch,
            kind::DELETE => {
                let flags = u8_of(&mut bytes)?;
                Self::Delete { if_unused: flags & 1 != 0, if_empty: flags & 2 != 0 }
            }
            kind::HELLO => Self::Hello,
            kind::ATTACH => {
                let mut consumers = Vec::with_capacity(bytes.len() / 8);
                while bytes.has_remaining() {
                    consumers.push(ConsumerId(u64_of(&mut bytes)?));
                }
                Self::Attach { consumers }
            }
            kind::NOTHING => Self::Nothing,
            kind::CONFIGURE => Self::Configure(std::mem::take(&mut bytes)),
            kind::TICK => Self::Tick,
            kind::RESTARTED => {
                let node = NodeId(u64_of(&mut bytes)?);
                Self::Restarted { start: Sender { node, boot: u64_of(&mut bytes)? } }
            }
            kind::LOST => Self::Lost { node: NodeId(u64_of(&mut bytes)?) },
            kind::BURY => {
                let mut seqs = Vec::with_capacity(bytes.len() / 8);
                while bytes.has_remaining() {
                    seqs.push(Seq(u64_of(&mut bytes)?));
                }
                Self::Bury { seqs }
            }
            kind::VERSION => Self::Version(u8_of(&mut bytes)?),
            _ => return Err(Malformed("an unknown kind")),
        };
        if bytes.has_remaining() {
            return Err(Malformed("more bytes than fields"));
        }
        Ok(order)
    }
}

impl Subscribed {
    /// Writes it.
    pub(crate) fn encode(&self, out: &mut BytesMut) {
        out.put_u64_le(self.at.node.0);
        out.put_u64_le(self.at.boot);
        out.put_u64_le(self.connection.0);
        out.put_u16_le(self.channel);
        out.put_u64_le(self.consumer.0);
        out.put_u8(
            u8::from(self.no_ack)
                | (u8::from(self.exclusive) << 1)
                | (u8::from(self.flow == Flow::Granted) << 2)
                | (u8::from(self.timeout.is_some()) << 3),
        );
        out.put_i32_le(self.priority);
        out.put_u64_le(self.timeout.map_or(0, |timeout| timeout.0));
        out.put_u16_le(match self.flow {
            Flow::Prefetch(count) => count,
            Flow::Granted => 0,
        });
        out.put_u32_le(self.window);
        put_bytes(out, self.tag.as_bytes());
        put_bytes(out, self.user.as_bytes());
        // It begins with its length, in the network's order.
        put_bytes(out, &wire::table::encode(&self.arguments)[4..]);
    }

    /// Reads what [`Subscribed::encode`] writes.
    ///
    /// # Errors
    /// If it is something else.
    pub(crate) fn decode(bytes: &mut Bytes) -> Result<Self, Malformed> {
        let at = Sender { node: NodeId(u64_of(bytes)?), boot: u64_of(bytes)? };
        let connection = ConnectionId(u64_of(bytes)?);
        let channel = u16_of(bytes)?;
        let consumer = ConsumerId(u64_of(bytes)?);
        let flags = u8_of(bytes)?;
        let priority = u32_of(bytes)?.cast_signed();
        let timeout = u64_of(bytes)?;
        let prefetch = u16_of(bytes)?;
        let window = u32_of(bytes)?;
        let (tag, user, table) = (text(bytes)?, text(bytes)?, take_bytes(bytes)?);
        let arguments =
            wire::table::parse(&table).map_err(|_| Malformed("a consumer's arguments"))?;
        Ok(Self {
            at,
            connection,
            channel,
            consumer,
            tag,
            no_ack: flags & 1 != 0,
            exclusive: flags & 2 != 0,
            priority,
            timeout: (flags & 8 != 0).then_some(Millis(timeout)),
            flow: if flags & 4 != 0 { Flow::Granted } else { Flow::Prefetch(prefetch) },
            window,
            arguments,
            user,
        })
    }
}

/// Settled messages of one queue as runs, keeping their order.
pub(crate) fn runs(unsettled: &[Unsettled]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for one in unsettled {
        match runs.last_mut() {
            Some(run) if run.holder == one.consumer && run.last.next() == one.seq => {
                run.last = one.seq;
            }
            _ => runs.push(Run { holder: one.consumer, first: one.seq, last: one.seq }),
        }
    }
    runs
}

/// The same backwards.
pub(crate) fn unsettled(queue: QueueId, runs: &[Run]) -> Vec<Unsettled> {
    let each = runs
        .iter()
        .flat_map(|run| (run.first.0..=run.last.0).map(move |seq| (Seq(seq), run.holder)));
    each.map(|(seq, consumer)| Unsettled { queue, seq, consumer }).collect()
}

fn put_consumer(out: &mut BytesMut, kind: u8, consumer: ConsumerId) {
    out.put_u8(kind);
    out.put_u64_le(consumer.0);
}

/// Writes bytes with their length.
pub(crate) fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u32_le(u32::try_from(bytes.len()).expect("names and tables are small"));
    out.put_slice(bytes);
}

/// Reads what [`put_bytes`] writes.
///
/// # Errors
/// If it is cut off.
pub(crate) fn take_bytes(bytes: &mut Bytes) -> Result<Bytes, Malformed> {
    let length = u32_of(bytes)? as usize;
    if bytes.len() < length {
        return Err(Malformed("bytes are cut off"));
    }
    Ok(bytes.split_to(length))
}

/// Reads a text.
///
/// # Errors
/// If it is cut off or no text.
pub(crate) fn text(bytes: &mut Bytes) -> Result<String, Malformed> {
    String::from_utf8(take_bytes(bytes)?.to_vec()).map_err(|_| Malformed("a text"))
}

macro_rules! number {
    ($name:ident, $type:ty, $get:ident) => {
        /// Reads a number.
        ///
        /// # Errors
        /// If it is cut off.
        pub(crate) fn $name(bytes: &mut Bytes) -> Result<$type, Malformed> {
            if bytes.len() < size_of::<$type>() {
                return Err(Malformed("a number is cut off"));
            }
            Ok(bytes.$get())
        }
    };
}

number!(u8_of, u8, get_u8);
number!(u16_of, u16, get_u16_le);
number!(u32_of, u32, get_u32_le);
number!(u64_of, u64, get_u64_le);

#[cfg(test)]
mod tests;
