//! The consumers of one channel.

use model::id::{ConsumerId, QueueId};

/// A subscription of a channel.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "flags of the method, and states that do not exclude each other"
)]
pub(crate) struct Consumer {
    pub(crate) id: ConsumerId,
    pub(crate) queue: QueueId,
    pub(crate) queue_name: String,
    pub(crate) tag: String,
    pub(crate) no_ack: bool,
    pub(crate) exclusive: bool,
    /// Its own limit, 0 for none. Enforced by the queue, or here if `limited`.
    pub(crate) prefetch: u16,
    /// It gets only what the channel's limiter grants.
    pub(crate) limited: bool,
    /// Granted, not yet delivered or given back.
    pub(crate) granted: u32,
    /// Delivered, not settled; counted only if `limited`.
    pub(crate) unsettled: u32,
    /// Its queue has messages and no grant left.
    pub(crate) wants: bool,
}

impl Consumer {
    /// How much its own limit lets it be granted.
    pub(crate) fn room(&self) -> u32 {
        match self.prefetch {
            0 => u32::MAX,
            limit => u32::from(limit).saturating_sub(self.granted.saturating_add(self.unsettled)),
        }
    }
}

/// Sorted by id. Ids grow, so a new one goes to the end; the one found last is tried first.
#[derive(Debug, Default)]
pub(crate) struct Consumers {
    list: Vec<Consumer>,
    last: usize,
}

impl Consumers {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Consumer> {
        self.list.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Consumer> {
        self.list.iter_mut()
    }

    pub(crate) fn at(&mut self, index: usize) -> &mut Consumer {
        &mut self.list[index]
    }

    /// How many want to be granted something.
    pub(crate) fn wanting(&self) -> u32 {
        u32::try_from(self.list.iter().filter(|consumer| consumer.wants).count())
            .unwrap_or(u32::MAX)
    }

    pub(crate) fn insert(&mut self, consumer: Consumer) {
        let index = self.list.partition_point(|other| other.id < consumer.id);
        self.list.insert(index, consumer);
    }

    pub(crate) fn get(&mut self, id: ConsumerId) -> Option<&mut Consumer> {
        let index = match self.list.get(self.last) {
            Some(consumer) if consumer.id == id => self.last,
            _ => self.list.binary_search_by_key(&id, |consumer| consumer.id).ok()?,
        };
        self.last = index;
        Some(&mut self.list[index])
    }

    pub(crate) fn by_tag(&self, tag: &str) -> Option<&Consumer> {
        self.list.iter().find(|consumer| consumer.tag == tag)
    }

    pub(crate) fn remove(&mut self, id: ConsumerId) -> Option<Consumer> {
        let index = self.list.binary_search_by_key(&id, |consumer| consumer.id).ok()?;
        Some(self.list.remove(index))
    }
}
