//! `basic.qos` with `global=true`: one limit for all consumers of a channel.
//!
//! The queues of such consumers deliver only what the session grants. Granted and delivered but
//! unsettled messages together never exceed the limit:
//!
//! ```text
//!   demand ──► grant n ──► n deliveries (or part comes back unused) ──► settled
//!              └─ granted ─┘└────────────── unsettled ─────────────────┘   ≤ limit
//! ```

use crate::consumers::Consumers;
use model::id::{ConsumerId, QueueId};

/// What a consumer is granted at once if nothing limits it.
const UNLIMITED_GRANT: u32 = 1000;

/// One grant to be sent to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) consumer: ConsumerId,
    pub(crate) queue: QueueId,
    pub(crate) count: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    /// 0: no limit.
    limit: u32,
    /// The channel had a limit once, so that its consumers ask for grants and are counted.
    counting: bool,
    /// Granted, not yet delivered or given back.
    granted: u32,
    /// Delivered to consumers, not settled.
    unsettled: u32,
    /// Where the next round begins, so that no consumer is served first for ever.
    turn: usize,
}

impl Limiter {
    /// The limit; 0 is none.
    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// Whether settlements have to be reported.
    pub(crate) fn is_counting(&self) -> bool {
        self.counting
    }

    /// Sets the limit. Tells whether this is the channel's first one, so that counting begins:
    /// what consumers hold by then is to be reported as delivered.
    pub(crate) fn set_limit(&mut self, limit: u16) -> bool {
        self.limit = u32::from(limit);
        let begins = limit != 0 && !self.counting;
        self.counting |= begins;
        begins
    }

    /// A consumer that acknowledges got a message.
    pub(crate) fn on_delivered(&mut self, was_granted: bool) {
        if self.counting {
            self.unsettled += 1;
            if was_granted {
                self.granted = self.granted.saturating_sub(1);
            }
        }
    }

    /// `count` messages of consumers were settled.
    pub(crate) fn on_settled(&mut self, count: u32) {
        self.unsettled = self.unsettled.saturating_sub(count);
    }

    /// Grants came back, or their consumer ended.
    pub(crate) fn on_unused(&mut self, count: u32) {
        self.granted = self.granted.saturating_sub(count);
    }

    /// Gives what is free to the consumers that want messages, in equal shares.
    pub(crate) fn grant(&mut self, consumers: &mut Consumers, mut send: impl FnMut(Grant)) {
        let mut free = match self.limit {
            0 => u32::MAX,
            limit => limit.saturating_sub(self.granted.saturating_add(self.unsettled)),
        };
        let mut wanting = consumers.wanting();
        if wanting == 0 || free == 0 {
            return;
        }
        let (first, count) = (self.turn, consumers.len());
        for offset in 0..count {
            if free == 0 || wanting == 0 {
                break;
            }
            let index = (first + offset) % count;
            let consumer = consumers.at(index);
            if !consumer.wants {
                continue;
            }
            let share = (free / wanting).clamp(1, UNLIMITED_GRANT);
            wanting -= 1;
            let share = share.min(consumer.room());
            if share == 0 {
                continue;
            }
            consumer.wants = false;
            consumer.granted += share;
            self.granted += share;
            if self.limit != 0 {
                free -= share;
            }
            self.turn = index + 1;
            send(Grant { consumer: consumer.id, queue: consumer.queue, count: share });
        }
    }
}
