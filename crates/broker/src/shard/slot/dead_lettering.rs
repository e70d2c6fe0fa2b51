//! How dead messages leave for the dead-letter exchange.
//!
//! They stay in the journal until their targets have them, and a restart brings back what does not
//! get there, in its old place. A queue whose journal may have another copy has the machine keep
//! their heads until then, so that a copy that is made meanwhile gets them too.

use model::id::Seq;
use queue::command::Command as QueueCommand;
use queue::effect::Reason;

use super::Slot;
use super::dead_letters::Next;
use crate::shard::desk::Desk;

impl Slot {
    /// Sends dead messages on, a bounded number at once.
    pub(super) fn pump_dead(&mut self, desk: &mut Desk) {
        let mut without_target = Vec::new();
        loop {
            match self.dead.next(&self.bodies) {
                Next::Ready { message, reason, seq } => {
                    let sent = desk.dead_letter(&self.profile, &message, reason, seq);
                    match (sent, seq) {
                        (true, Some(_)) => self.dead.on_sent(),
                        (false, Some(seq)) => without_target.push(seq),
                        (_, None) => {}
                    }
                }
                Next::Missing => {
                    self.read(desk);
                    break;
                }
                Next::Nothing => break,
            }
        }
        self.bury(desk, &without_target);
    }

    /// Dead messages need not stay any longer.
    pub(super) fn bury(&mut self, desk: &mut Desk, seqs: &[Seq]) {
        for &seq in seqs {
            if self.machine.death(seq).is_some() {
                self.machine.apply(desk.now, QueueCommand::Bury { seq }, &mut desk.effects);
            } else {
                self.release(seq, seq);
            }
        }
        if !desk.effects.is_empty() {
            self.perform(desk, None);
        }
    }

    /// A dead message has been taken by its targets.
    pub(crate) fn on_dead_lettered(&mut self, desk: &mut Desk, seq: Seq) {
        self.dead.on_done();
        self.bury(desk, &[seq]);
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
