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
                    self.drop(message.seq, Reason::Rejected, effects);
                } else {
                    self.take_back(message, failed, effects);
                }
            }
            self.returning = returning;
        }
        if let Some(slot) = slot {
            self.relieved(slot, first, last, effects);
        }
        self.settled(now, more, effects);
    }

    /// Everything that this consumer holds comes back, as failed or not.
    pub(super) fn take_back_all(&mut self, slot: Slot, failed: bool, effects: &mut Vec<Effect>) {
        let mut returning = std::mem::take(&mut self.returning);
        let consumer = self.consumers.at_mut(slot);
        consumer.held.take_all(|message| returning.push(*message));
        consumer.holds_since = NEVER;
        for message in returning.drain(..) {
            self.no_longer_held(&message);
            self.take_back(message, failed, effects);
        }
        self.returning = returning;
    }

    /// Takes everything from consumers that have held something for too long.
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
            let id = consumer.terms.consumer;
            let returned = consumer.held.len() as u64;
            if !consumer.cancelled {
                consumer.overdue = consumer.held.seqs().collect();
            }
            effects.push(Effect::TimedOut { consumer: id, returned });
            self.take_back_all(slot, self.settings.style == Style::Classic, effects);
            self.consumers.refresh(slot);
            self.consumers.forget_idle(slot);
        }
        if timed_out {
            self.elect(effects);
        }
    }

    /// Follows up on what a consumer settled: it may be able to take more.
    fn relieved(&mut self, slot: Slot, first: Seq, last: Seq, effects: &mut Vec<Effect>) {
        let consumer = self.consumers.at_mut(slot);
        if consumer.held.is_empty() {
            consumer.holds_since = NEVER;
            if consumer.cancelled {
                return self.consumers.forget_idle(slot);
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
        } else if self.held_back || !self.ready.is_empty() {
            self.catch_up(now, effects);
        }
    }

    fn no_longer_held(&mut self, message: &Message) {
        self.unsettled -= 1;
        self.unsettled_bytes -= u64::from(message.bytes);
    }

    /// Puts a message back, unless it `failed` more often than allowed.
    fn take_back(&mut self, mut message: Message, failed: bool, effects: &mut Vec<Effect>) {
        message.delivered = true;
        if failed {
            message.delivery_count = message.delivery_count.saturating_add(1);
            if let Some(limit) = self.settings.delivery_limit {
                if message.delivery_count > limit {
                    return self.drop(message.seq, Reason::DeliveryLimit, effects);
                }
                if self.settings.style == Style::Classic {
                    effects.push(Effect::Noted { seq: message.seq });
                }
            }
        }
        self.ready.put_back(message);
    }
}
