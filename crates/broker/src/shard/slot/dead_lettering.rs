//! How dead messages leave for the dead-letter exchange.

use model::id::Seq;
use queue::effect::Reason;

use super::Slot;
use super::dead_letters::Next;
use crate::shard::desk::Desk;

impl Slot {
    /// Sends dead messages on, a bounded number at once.
    pub(super) fn pump_dead(&mut self, desk: &mut Desk) {
        loop {
            match self.dead.next(&self.bodies) {
                Next::Ready { message, reason, seq } => {
                    let sent = desk.dead_letter(&self.profile, &message, reason, seq);
                    match (sent, seq) {
                        (true, Some(_)) => self.dead.on_sent(),
                        (false, Some(seq)) => self.release(seq, seq),
                        (_, None) => {}
                    }
                }
                Next::Missing => return self.read(desk),
                Next::Nothing => return,
            }
        }
    }

    /// A dead message has been taken by its targets.
    pub(crate) fn on_dead_lettered(&mut self, desk: &mut Desk, seq: Seq) {
        self.dead.on_done();
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
