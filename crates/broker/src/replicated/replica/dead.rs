//! Where dead messages go: the leader sends them on.
//!
//! ```text
//!  died ─► dead ─► on its way ─► its targets have it: forgotten, or if it is kept, buried by an entry
//!           ▲          │
//!           └─ later ◄─┘  if it is kept, and a target refuses it or there is none
//! ```
//!
//! A message that is kept (at-least-once) is part of the state until it is buried, so a new leader
//! sends it again; one that is not goes with its leader.

use model::id::Seq;
use model::time::Timestamp;
use queue::effect::Reason;

use super::{Leading, Replica};
use crate::replicated::order::Order;
use crate::shard::desk::Desk;
use crate::shard::profile::Profile;

/// Most dead messages on their way at once.
const IN_FLIGHT: usize = 512;
/// After so many milliseconds a message that its targets did not take is sent again.
const AGAIN: u64 = 2_000;

impl Replica {
    /// When a body is read again, or a dead message sent again.
    pub(crate) fn again_deadline(&self) -> Option<Timestamp> {
        let leading = self.leading.as_ref()?;
        let dead = leading.dead_later.first().map(|(due, _)| *due);
        self.reread.into_iter().chain(dead).chain(self.wanted.due()).min()
    }

    /// That time has come: follow with [`Replica::go_on`].
    pub(crate) fn again(&mut self, now: Timestamp) {
        if self.reread.is_some_and(|due| due <= now) {
            self.reread = None;
        }
        self.ask_again(now);
        self.retry_dead(now);
    }

    /// Sends what waits and is no longer held up.
    pub(crate) fn go_on(&mut self, desk: &mut Desk, profile: &Profile) {
        self.ask_others(desk, profile);
        self.pump(desk, profile);
        self.pump_dead(desk, profile);
    }
}

impl Leading {
    /// Sends these on, first of all what died under earlier leaders.
    pub(super) fn inherit_dead(&mut self, deaths: impl Iterator<Item = (Seq, Reason)>) {
        self.dead.extend(deaths);
    }

    /// What is to be buried, as an order.
    pub(super) fn bury(&mut self) {
        if !self.buried.is_empty() {
            let seqs = std::mem::take(&mut self.buried);
            self.own.push(Order::Bury { seqs });
        }
    }
}

impl Replica {
    /// A message has died.
    pub(super) fn died(&mut self, profile: &Profile, seq: Seq, reason: Reason) {
        if profile.dead_letter.is_some() {
            match reason {
                Reason::Rejected => self.counters.dead_rejected += 1,
                Reason::Expired => self.counters.dead_expired += 1,
                Reason::MaxLen => self.counters.dead_maxlen += 1,
                Reason::DeliveryLimit => self.counters.dead_delivery_limit += 1,
            }
        }
        if let Some(leading) = &mut self.leading {
            leading.dead.push_back((seq, reason));
        } else if !self.is_kept(seq) {
            self.release(seq, seq);
        }
    }

    /// Whether a message is dead and stays until its targets have it.
    pub(super) fn is_kept(&self, seq: Seq) -> bool {
        self.machine.queue().death(seq).is_some()
    }

    /// Sends dead messages on, a bounded number at once.
    pub(crate) fn pump_dead(&mut self, desk: &mut Desk, profile: &Profile) {
        loop {
            let Some(leading) = &mut self.leading else { return };
            if leading.dead_in_flight >= IN_FLIGHT {
                return;
            }
            let Some(&(seq, reason)) = leading.dead.front() else { return };
            let kept = self.machine.queue().death(seq).is_some();
            if kept && profile.dead_letter.is_none() {
                // There is nowhere to go any more.
                leading.dead.pop_front();
                leading.buried.push(seq);
                continue;
            }
            let Some(body) = self.bodies.get(seq) else { return self.read(desk, profile) };
            let message = body.message.clone();
            leading.dead.pop_front();
            if desk.dead_letter(profile, &message, reason, Some(seq)) {
                leading.dead_in_flight += 1;
            } else if kept {
                leading.dead_later.insert((Timestamp(desk.now.0 + AGAIN), seq));
            } else {
                self.release(seq, seq);
            }
        }
    }

    /// A dead message has been taken by its targets, or by some of them.
    pub(crate) fn dead_lettered(
        &mut self,
        desk: &mut Desk,
        profile: &Profile,
        seq: Seq,
        accepted: bool,
    ) {
        let kept = self.is_kept(seq);
        if let Some(leading) = &mut self.leading {
            leading.dead_in_flight = leading.dead_in_flight.saturating_sub(1);
            if kept && accepted {
                leading.buried.push(seq);
            } else if kept {
                leading.dead_later.insert((Timestamp(desk.now.0 + AGAIN), seq));
            }
        }
        if !kept {
            self.release(seq, seq);
        }
        self.pump_dead(desk, profile);
    }

    /// Some may have waited long enough to be sent again.
    fn retry_dead(&mut self, now: Timestamp) {
        let Some(leading) = &mut self.leading else { return };
        while let Some(&(due, seq)) = leading.dead_later.first()
            && due <= now
        {
            leading.dead_later.pop_first();
            if let Some(reason) = self.machine.queue().death(seq) {
                leading.dead.push_back((seq, reason));
            }
        }
    }

    /// Bodies of dead messages cannot be read: they are lost here, and with another leader there may
    /// be the same fault, so they do not stay.
    pub(super) fn lose_dead(&mut self, unreadable: impl Fn(Seq) -> bool) {
        let Some(leading) = &mut self.leading else { return };
        let machine = &self.machine;
        let Leading { dead, buried, .. } = leading;
        dead.retain(|(seq, _)| {
            let lost = unreadable(*seq);
            if lost && machine.queue().death(*seq).is_some() {
                buried.push(*seq);
            }
            !lost
        });
    }
}
