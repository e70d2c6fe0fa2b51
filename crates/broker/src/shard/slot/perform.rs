//! The effects of the machine, performed in order.

use amqp::request::Event;
use model::message::Message;
use queue::effect::Effect;

use super::dead_letters::Departed;
use super::outgoing::Going;
use super::{Fresh, Slot};
use crate::shard::bodies::Body;
use crate::shard::desk::{Chore, Desk};

impl Slot {
    /// Performs the effects of one command, in order.
    pub(super) fn perform(&mut self, desk: &mut Desk, fresh: Option<Fresh<'_>>) {
        if desk.effects.is_empty() {
            if let Some(fresh) = fresh {
                self.keep(fresh);
            }
            return;
        }
        let mut effects = std::mem::take(&mut desk.effects);
        let mut keep = fresh;
        for effect in effects.drain(..) {
            match effect {
                Effect::Deliver { consumer, seq, redelivered, delivery_count } => {
                    let going = Going::Deliver { consumer, seq, redelivered, delivery_count };
                    self.deliver(desk, going, keep);
                }
                Effect::Release { first, last } => {
                    if let Some(arrived) = keep
                        && first <= arrived.seq
                        && arrived.seq <= last
                    {
                        if self.outgoing.is_held(arrived.seq) {
                            self.keep(arrived);
                        }
                        keep = None;
                    }
                    self.release(first, last);
                }
                Effect::DeadLetter { seq, reason } => {
                    if let Some(arrived) = keep
                        && arrived.seq == seq
                    {
                        self.keep(arrived);
                        keep = None;
                    }
                    self.count_death(reason);
                    self.dead.push(Departed::Stored(seq), reason);
                }
                Effect::Noted { seq } => self.notes.push(seq),
                Effect::Demand { consumer } => {
                    self.tell(desk, consumer, |channel| Event::Demand { channel, consumer });
                }
                Effect::GrantUnused { consumer, count } => self.tell(desk, consumer, |channel| {
                    Event::GrantUnused { channel, consumer, count }
                }),
                Effect::ConsumerCancelled { consumer } => self
                    .tell(desk, consumer, |channel| Event::ConsumerCancelled { channel, consumer }),
                Effect::TimedOut { consumer, returned } => {
                    self.time_out(desk, consumer, returned);
                }
                Effect::ActiveChanged { consumer } => self.active = consumer,
                Effect::Expired => {
                    desk.chore(Chore::DeleteQueue { queue: self.profile.id, why: "idle too long" });
                }
                Effect::LastConsumerGone => {
                    // Cancelled consumers that still get something come first.
                    if self.ending > 0 {
                        self.last_consumer_gone = true;
                    } else {
                        self.delete_without_consumers(desk);
                    }
                }
            }
        }
        desk.effects = effects;
        if let Some(fresh) = keep {
            self.keep(fresh);
        }
        if !self.dead.is_empty() {
            self.pump_dead(desk);
        }
    }

    /// The effects of an arrival that was refused: all it can bring is its own dead-lettering.
    pub(super) fn perform_rejected(&mut self, desk: &mut Desk, message: &Message) {
        let refused = self.next_seq;
        let mut own = None;
        desk.effects.retain(|effect| match effect {
            Effect::DeadLetter { seq, reason } if *seq == refused => {
                own = Some(*reason);
                false
            }
            _ => true,
        });
        self.perform(desk, None);
        if let Some(reason) = own {
            self.count_death(reason);
            self.dead.push(Departed::Refused(message.clone()), reason);
            self.pump_dead(desk);
        }
    }

    pub(super) fn keep(&mut self, fresh: Fresh<'_>) {
        // A message that is only here would pin the whole read buffer that it came in.
        let message = if fresh.journalled { fresh.message.clone() } else { fresh.message.detach() };
        self.bodies.insert(fresh.seq, Body { message, journalled: fresh.journalled });
    }
}
