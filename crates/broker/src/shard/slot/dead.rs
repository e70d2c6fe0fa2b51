//! Messages on their way to the dead-letter exchange.

use model::id::Seq;
use queue::effect::Reason;

use super::{DEAD_IN_FLIGHT, Slot};
use crate::shard::desk::Desk;

impl Slot {
    /// Sends dead messages on, a bounded number at once.
    pub(super) fn pump_dead(&mut self, desk: &mut Desk) {
        while self.dead_in_flight < DEAD_IN_FLIGHT {
            let Some(front) = self.dead.front_mut() else { return };
            let message = match (front.message.take(), front.seq) {
                (Some(message), _) => message,
                (None, Some(seq)) => {
                    if let Some(body) = self.bodies.get(seq) {
                        body.message.clone()
                    } else {
                        self.read(desk);
                        return;
                    }
                }
                (None, None) => {
                    self.dead.pop_front();
                    continue;
                }
            };
            let Some(dead) = self.dead.pop_front() else { return };
            let sent = desk.dead_letter(&self.profile, &message, dead.reason, dead.seq);
            match (sent, dead.seq) {
                (true, Some(_)) => self.dead_in_flight += 1,
                (false, Some(seq)) => self.release(seq, seq),
                (_, None) => {}
            }
        }
    }

    /// A dead message has been taken by its targets.
    pub(crate) fn on_dead_lettered(&mut self, desk: &mut Desk, seq: Seq) {
        self.dead_in_flight = self.dead_in_flight.saturating_sub(1);
        self.release(seq, seq);
        self.pump_dead(desk);
    }

    pub(super) fn count_death(&mut self, reason: Reason) {
        if self.profile.dead_letter.is_none() {
            return;
        }
        match reason {
            Reason::Rejected => self.counters.dead_rejected += 1,
            Reason::Expired => self.counters.dead_expired += 1,
            Reason::MaxLen => self.counters.dead_maxlen += 1,
            Reason::DeliveryLimit => self.counters.dead_delivery_limit += 1,
        }
    }
}
