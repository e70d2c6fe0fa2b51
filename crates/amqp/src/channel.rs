//! One channel, and the table of all channels of a connection.
//!
//! ```text
//!            open                 error (close sent)
//!   Free ───────────► Running ───────────────────────► Closing
//!    ▲                   │ close (close-ok sent)          │ close-ok
//!    └───────────────────┴────────────────────────────────┘
//! ```

use crate::confirms::Confirms;
use crate::consumers::Consumers;
use crate::limiter::Limiter;
use crate::request::{ChannelId, Request, Unsettled};
use crate::transaction::Transaction;
use crate::unsettled::Held;
use model::id::{ConsumerId, QueueId};
use wire::content::Assembly;

/// How far a published content has come.
#[derive(Debug, Default)]
pub(crate) enum Content {
    /// A method is expected.
    #[default]
    Idle,
    /// `basic.publish` was read; its header is expected.
    Header { method: Vec<u8> },
    /// More of the body is expected.
    Body { mandatory: bool, assembly: Assembly },
}

/// A running channel.
#[derive(Debug, Default)]
pub(crate) struct Channel {
    pub(crate) content: Content,
    /// The last delivery tag.
    pub(crate) tag: u64,
    pub(crate) held: Held,
    pub(crate) consumers: Consumers,
    /// Present in confirm mode.
    pub(crate) confirms: Option<Box<Confirms>>,
    /// The channel stands in the list of those with answers to write.
    pub(crate) has_answers: bool,
    /// Present in tx mode.
    pub(crate) transaction: Option<Box<Transaction>>,
    /// For consumers to come; 0 is no limit.
    pub(crate) prefetch: u16,
    pub(crate) limiter: Limiter,
    /// What an empty queue name means.
    pub(crate) last_queue: String,
}

impl Channel {
    /// The next delivery tag.
    pub(crate) fn next_tag(&mut self) -> u64 {
        self.tag += 1;
        self.tag
    }

    /// Sets the limit that all consumers share. With the first one, consumers that are here come
    /// under it too: `tell` their queues.
    pub(crate) fn set_limit(&mut self, limit: u16, mut tell: impl FnMut(ConsumerId, QueueId)) {
        if !self.limiter.set_limit(limit) {
            return;
        }
        for consumer in self.consumers.iter_mut().filter(|consumer| !consumer.no_ack) {
            consumer.limited = true;
            tell(consumer.id, consumer.queue);
        }
        // What a transaction has settled counts until it is committed.
        let withheld = self.transaction.iter().flat_map(|transaction| transaction.settled());
        for id in self.held.iter().chain(withheld).filter_map(|message| message.consumer) {
            self.limiter.on_delivered(false);
            if let Some(consumer) = self.consumers.get(id) {
                consumer.unsettled += 1;
            }
        }
    }

    /// Counts settled messages for the limits that the session itself keeps.
    pub(crate) fn count_settled(&mut self, unsettled: &[Unsettled]) {
        if !self.limiter.is_counting() {
            return;
        }
        let mut count = 0;
        for id in unsettled.iter().filter_map(|message| message.consumer) {
            count += 1;
            if let Some(consumer) = self.consumers.get(id) {
                consumer.unsettled = consumer.unsettled.saturating_sub(1);
            }
        }
        self.limiter.on_settled(count);
    }

    /// What the broker must know when the channel ends.
    pub(crate) fn end(mut self, channel: ChannelId) -> Request {
        if let Some(transaction) = &mut self.transaction {
            let settled = transaction.take_settled();
            self.held.restore(settled);
        }
        Request::ChannelClosed {
            channel,
            consumers: self
                .consumers
                .iter()
                .map(|consumer| (consumer.id, consumer.queue))
                .collect(),
            unsettled: self.held.iter().collect(),
        }
    }
}

/// The state of a channel number.
#[derive(Debug, Default)]
pub(crate) enum Slot {
    #[default]
    Free,
    Running(Box<Channel>),
    Closing,
}

/// All channel numbers. Only as long as the highest one used.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    slots: Vec<Slot>,
    /// Running or closing.
    used: usize,
}

impl Channels {
    /// How many are running or closing.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    pub(crate) fn slot(&self, number: ChannelId) -> &Slot {
        self.slots.get(usize::from(number)).unwrap_or(&Slot::Free)
    }

    pub(crate) fn get(&mut self, number: ChannelId) -> Option<&mut Channel> {
        match self.slots.get_mut(usize::from(number)) {
            Some(Slot::Running(channel)) => Some(channel),
            Some(Slot::Free | Slot::Closing) | None => None,
        }
    }

    pub(crate) fn open(&mut self, number: ChannelId) {
        let index = usize::from(number);
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, Slot::default);
        }
        self.slots[index] = Slot::Running(Box::default());
        self.used += 1;
    }

    /// Takes a running channel out and leaves its number closing or free.
    pub(crate) fn take(&mut self, number: ChannelId, leave: Slot) -> Option<Channel> {
        let slot = self.slots.get_mut(usize::from(number))?;
        if !matches!(slot, Slot::Running(_)) {
            return None;
        }
        if matches!(leave, Slot::Free) {
            self.used -= 1;
        }
        match std::mem::replace(slot, leave) {
            Slot::Running(channel) => Some(*channel),
            Slot::Free | Slot::Closing => None,
        }
    }

    /// The client confirmed the end of a channel.
    pub(crate) fn free(&mut self, number: ChannelId) {
        if let Some(slot) = self.slots.get_mut(usize::from(number))
            && matches!(slot, Slot::Closing)
        {
            *slot = Slot::Free;
            self.used -= 1;
        }
    }

    /// The numbers of all running channels.
    pub(crate) fn running(&self) -> Vec<ChannelId> {
        self.iter().map(|(number, _)| number).collect()
    }

    /// All running channels.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ChannelId, &Channel)> {
        (0..=ChannelId::MAX).zip(&self.slots).filter_map(|(number, slot)| match slot {
            Slot::Running(channel) => Some((number, &**channel)),
            Slot::Free | Slot::Closing => None,
        })
    }
}
