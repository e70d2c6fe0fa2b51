//! What becomes of messages that consumers hold: settled, taken back, timed out.

use model::id::{ConsumerId, Seq};
use model::time::Timestamp;

use super::{Queue, release};
use crate::command::Outcome;
use crate::consumers::Slot;
use crate::effect::{Effect, Reason};
use crate::message::{Message, NEVER};
use crate::settings::Style;

impl Queue {
    #[expect(clippy::too_many_arguments, reason = "they are the fields of one command")]
    pub(super) fn settle(
        &mut self,
        now: Timestamp,
        consumer: Option<ConsumerId>,
        first: Seq,
        last: Seq,
        outcome: Outcome,
        more: bool,
        effects: &mut Vec<Effect>,
    ) {
        let before = self.unsettled;
        let slot = match consumer {
            Some(id) => match self.consumers.find(id) {
                Some(slot) => Some(slot),
                None => return self.settled(now, more, effects),
            },
            None => None,
        };
        let held = match slot {
            Some(slot) => &mut self.consumers.at_mut(slot).held,
            None => &mut self.got,
        };
        if outcome == Outcome::Accept {
            let (mut messages, mut bytes) = (0, 0);
            held.take(first, last, |message| {
                messages += 1;
                bytes += u64::from(message.bytes);
                release(effects, message.seq);
            });
            self.unsettled -= messages;
            self.unsettled_bytes -= bytes;
        } else {
            let mut returning = std::mem::take(&mut self.returning);
            held.take(first, last, |message| returning.push(*message));
            let failed = matches!(outcome, Outcome::Retry | Outcome::Lost);
            for message in returning.drain(..) {
                self.no_longer_held(&message);
                if outcome == Outcome::Discard {
                    self.drop(message, Reason::Rejected, effects);
                } else {
                    self.take_back(now, message, failed, effects);
                }
            }
            self.returning = returning;
        }
        match slot {
            Some(slot) => self.relieved(now, slot, first, last, effects),
            None if self.settings.style == Style::Quorum && self.unsettled < before => {
                self.used(now);
            }
            None => {}
        }
        self.settled(now, more, effects);
    }

    /// Everything that this consumer holds comes back, as failed or not.
    pub(super) fn take_back_all(
        &mut self,
        now: Timestamp,
        slot: Slot,
        failed: bool,
        effects: &mut Vec<Effect>,
    ) {
        let mut returning = std::mem::take(&mut self.returning);
        let consumer = self.consumers.at_mut(slot);
        consumer.held.take_all(|message| returning.push(*message));
        consumer.holds_since = NEVER;
        for message in returning.drain(..) {
            self.no_longer_held(&message);
            self.take_back(now, message, failed, effects);
        }
        self.returning = returning;
    }

    /// Takes from consumers what they have held for too long; with a classic queue, everything.
    pub(super) fn time_out(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        if now < self.next_timeout {
            return;
        }
        self.next_timeout = NEVER;
        let mut timed_out = false;
        for slot in self.consumers.slots().collect::<Vec<_>>() {
            let default = self.settings.consumer_timeout;
            let consumer = self.consumers.at_mut(slot);
            let Some(timeout) = consumer.terms.timeout.or(default) else { continue };
            if consumer.held.is_empty() {
                continue;
            }
            if consumer.holds_since + timeout <= now {
                // It is only a lower bound as long as messages come and go.
                consumer.holds_since = consumer.held.oldest_since();
            }
            if consumer.holds_since + timeout > now {
                self.next_timeout = self.next_timeout.min(consumer.holds_since + timeout);
                continue;
            }
            timed_out = true;
            let late = match self.settings.style {
                Style::Classic => NEVER,
                Style::Quorum => Timestamp(now.0.saturating_sub(timeout.0)),
            };
            let late = consumer.held.held_since(late);
            if !consumer.cancelled {
                consumer.overdue.extend(&late);
            }
            let (id, returned) = (consumer.terms.consumer, late.len() as u64);
            effects.push(Effect::TimedOut { consumer: id, returned });
            self.take_back_late(now, slot, &late, effects);
            let consumer = self.consumers.at(slot);
            if !consumer.held.is_empty() {
                self.next_timeout = self.next_timeout.min(consumer.holds_since + timeout);
            }
            self.consumers.refresh(slot);
            self.forget_idle(now, slot);
        }
        if timed_out {
            self.elect(effects);
        }
    }

    /// Takes back what a consumer has held for too long.
    fn take_back_late(
        &mut self,
        now: Timestamp,
        slot: Slot,
        late: &[Seq],
        effects: &mut Vec<Effect>,
    ) {
        let failed = self.settings.style == Style::Classic;
        let mut returning = std::mem::take(&mut self.returning);
        let consumer = self.consumers.at_mut(slot);
        for seq in late {
            consumer.held.take(*seq, *seq, |message| returning.push(*message));
        }
        consumer.holds_since = consumer.held.oldest_since();
        for message in returning.drain(..) {
            self.no_longer_held(&message);
            self.take_back(now, message, failed, effects);
        }
        self.returning = returning;
    }

    /// Follows up on what a consumer settled: it may be able to take more.
    fn relieved(
        &mut self,
        now: Timestamp,
        slot: Slot,
        first: Seq,
        last: Seq,
        effects: &mut Vec<Effect>,
    ) {
        let consumer = self.consumers.at_mut(slot);
        if consumer.held.is_empty() {
            consumer.holds_since = NEVER;
            if consumer.cancelled {
                return self.forget_idle(now, slot);
            }
        }
        let mut recovered = false;
        if !consumer.overdue.is_empty() {
            consumer.settle_overdue(first, last);
            recovered = consumer.overdue.is_empty();
        }
        if recovered || self.consumers.awaits_election() {
            self.elect(effects);
        }
        self.consumers.refresh(slot);
    }

    fn settled(&mut self, now: Timestamp, more: bool, effects: &mut Vec<Effect>) {
        if more {
            self.held_back = true;
        } else if self.held_back || !self.ready.is_empty() || self.delayed.deadline() <= now {
            self.catch_up(now, effects);
        }
    }

    fn no_longer_held(&mut self, message: &Message) {
        self.unsettled -= 1;
        self.unsettled_bytes -= u64::from(message.bytes);
    }

    /// Puts a message back, at once or later, unless it `failed` more often than allowed.
    fn take_back(
        &mut self,
        now: Timestamp,
        mut message: Message,
        failed: bool,
        effects: &mut Vec<Effect>,
    ) {
        message.delivered = true;
        if failed {
            message.delivery_count = message.delivery_count.saturating_add(1);
            if let Some(limit) = self.settings.delivery_limit {
                if message.delivery_count > limit {
                    return self.drop(message, Reason::DeliveryLimit, effects);
                }
                if self.settings.style == Style::Classic {
                    effects.push(Effect::Noted { seq: message.seq });
                }
            }
        }
        let retry = self.settings.delayed_retry;
        match retry.and_then(|retry| retry.delay(failed, message.delivery_count)) {
            Some(delay) => self.delayed.push(message, now + delay),
            None => self.ready.put_back(message),
        }
    }
}
