//! The queue as a whole: purged, deleted, configured, idle, and when something is due.

use model::id::Seq;
use model::time::Timestamp;

use super::{Queue, release};
use crate::command::Reply;
use crate::consumers::Consumers;
use crate::dead::Dead;
use crate::delayed::Delayed;
use crate::effect::Effect;
use crate::message::NEVER;
use crate::settings::{Settings, Style};
use crate::unsettled::Unsettled;

impl Queue {
    /// When [`crate::command::Command::Tick`] is due, if at all. Cheap enough to ask after each
    /// command. It may come without anything to do.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let next = self
            .ready
            .deadline()
            .min(self.delayed.deadline())
            .min(self.next_timeout)
            .min(self.idle_deadline());
        (next != NEVER).then_some(next)
    }

    pub(super) fn purge(&mut self, effects: &mut Vec<Effect>) -> Reply {
        let count = self.ready.len() + self.delayed.len();
        if self.delayed.is_empty() {
            self.ready.clear(|seq| release(effects, seq));
        } else {
            let mut seqs: Vec<Seq> = self.delayed.seqs().collect();
            self.ready.clear(|seq| seqs.push(seq));
            self.delayed = Delayed::default();
            seqs.sort_unstable();
            for seq in seqs {
                release(effects, seq);
            }
        }
        Reply::Count(count)
    }

    pub(super) fn delete(
        &mut self,
        if_unused: bool,
        if_empty: bool,
        effects: &mut Vec<Effect>,
    ) -> Reply {
        let count = self.ready.len() + self.delayed.len();
        if if_empty && count > 0 {
            return Reply::NotEmpty;
        }
        if if_unused && self.consumers.live() > 0 {
            return Reply::InUse;
        }
        for consumer in self.consumers.iter().filter(|consumer| !consumer.cancelled) {
            effects.push(Effect::ConsumerCancelled { consumer: consumer.terms.consumer });
        }
        self.ready.clear(|_| {});
        self.delayed = Delayed::default();
        self.dead = Dead::default();
        self.consumers = Consumers::default();
        self.consumers.set_single(Self::single(&self.settings));
        self.got = Unsettled::default();
        self.unsettled = 0;
        self.unsettled_bytes = 0;
        self.next_timeout = NEVER;
        Reply::Count(count)
    }

    /// The style of a queue never changes.
    pub(super) fn configure(
        &mut self,
        now: Timestamp,
        settings: &Settings,
        effects: &mut Vec<Effect>,
    ) {
        let style = self.settings.style;
        let settings = Settings { style, ..settings.clone() }.understood();
        let before = std::mem::replace(&mut self.settings, settings);
        if before.single_active_consumer != self.settings.single_active_consumer {
            self.consumers.set_single(Self::single(&self.settings));
            self.elect(effects);
        }
        if before.consumer_timeout != self.settings.consumer_timeout {
            self.next_timeout = self
                .consumers
                .iter()
                .filter_map(|consumer| {
                    let timeout = consumer.terms.timeout.or(self.settings.consumer_timeout)?;
                    Some(consumer.holds_since + timeout)
                })
                .min()
                .unwrap_or(NEVER);
        }
        self.catch_up(now, effects);
    }

    pub(super) fn tick(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        self.time_out(now, effects);
        self.catch_up(now, effects);
        if self.idle_deadline() <= now {
            self.expired = true;
            effects.push(Effect::Expired);
        }
    }

    fn idle_deadline(&self) -> Timestamp {
        match self.settings.expires {
            Some(expires) if self.is_unused() && !self.expired => self.used_at + expires,
            _ => NEVER,
        }
    }

    /// Nobody consumes, and nobody may still settle if that matters.
    fn is_unused(&self) -> bool {
        match self.settings.style {
            Style::Classic => self.consumers.live() == 0,
            Style::Quorum => self.consumers.is_empty() && self.got.is_empty(),
        }
    }
}
