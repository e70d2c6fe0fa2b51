//! The machine: one queue's state and the rules that change it.
//!
//! A message is in one of two states (or delayed in between), and leaves for good by one of two effects:
//!
//! ```text
//!            Enqueue                       Deliver, Got
//!  ┄ arrival ───────► ready ──────────────────────────────────► unsettled
//!        │             │ ▲                                       │  │  │
//!        │             │ └── Return, Retry, Lost, TimedOut ──────┘  │  │
//!        │             │     (unless it failed too often; may be    │  │
//!        │             │      delayed for some time)                │  │
//!        ▼             ▼                                            │  │
//!    Rejected     expired, dropped, purged        failed too often, │  │ Accept
//!    (no room)         │                          discarded         │  │
//!                      ▼                                            ▼  ▼
//!                  Release, or DeadLetter if there is an exchange for it
//! ```
//!
//! With `no_ack` a message goes from ready to `Release` at once. A message that arrives while
//! nothing is ready and a consumer is able to take it is never stored as ready at all.
//!
//! Invariants, outside of [`Queue::apply`]:
//! - Not both: a message is ready and a consumer is able to take one (but for `more`).
//! - No message at the head of its level has expired.
//! - `DropHead`: what is ready is within the limits, or nothing is ready.
//! - Everything unsettled is held by a consumer that is known here, or by `basic.get`.

mod settle;

mod housekeeping;

mod snapshot;

use model::id::{ConsumerId, Seq};
use model::time::Timestamp;

use crate::command::{Arrival, Command, Reply, Subscription};
use crate::consumers::{Consumers, Single, Slot};
use crate::dead::Dead;
use crate::delayed::Delayed;
use crate::effect::{Effect, Reason};
use crate::head::Head;
use crate::malformed::Malformed;
use crate::message::{Message, NEVER};
use crate::settings::{Overflow, Settings, Style};
use crate::store::Ready;
use crate::unsettled::Unsettled;

/// A message that a consumer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Which.
    pub seq: Seq,
    /// It was handed out before it was to this consumer.
    pub redelivered: bool,
    /// How often it failed before.
    pub delivery_count: u32,
}

/// One queue.
#[derive(Debug, Clone)]
pub struct Queue {
    settings: Settings,
    ready: Ready,
    /// What came back and is not ready yet.
    delayed: Delayed,
    /// What is dead and stays until its targets have it.
    dead: Dead,
    consumers: Consumers,
    /// What was taken by `basic.get`.
    got: Unsettled,
    unsettled: u64,
    unsettled_bytes: u64,
    /// The last arrival, to check that names ascend.
    newest: Option<Seq>,
    highest_delivered: Option<Seq>,
    /// A settlement announced another one: what it made possible has not been done yet.
    held_back: bool,
    /// When the queue was last used, in the sense of `x-expires`.
    used_at: Timestamp,
    /// The driver was told that the queue has been idle for too long.
    expired: bool,
    /// No consumer times out before this.
    next_timeout: Timestamp,
    /// Spare room for messages on their way back.
    returning: Vec<Message>,
}

/// How what a consumer held comes back when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Back {
    /// It counts as an attempt.
    Failed,
    /// It does not.
    Unharmed,
}

impl Queue {
    /// An empty queue, first used `now`.
    pub fn new(settings: Settings, now: Timestamp) -> Self {
        let settings = settings.understood();
        let mut consumers = Consumers::default();
        consumers.set_single(Self::single(&settings));
        Self {
            ready: Ready::new(settings.style),
            delayed: Delayed::default(),
            dead: Dead::default(),
            settings,
            consumers,
            got: Unsettled::default(),
            unsettled: 0,
            unsettled_bytes: 0,
            newest: None,
            highest_delivered: None,
            held_back: false,
            used_at: now,
            expired: false,
            next_timeout: NEVER,
            returning: Vec::new(),
        }
    }

    /// A queue that is about to be filled by [`Queue::restore_message`].
    pub fn restore(settings: Settings, now: Timestamp) -> Self {
        Self::new(settings, now)
    }

    /// Puts back a message as ready, in ascending order of `seq`. `redelivered`: it may have been
    /// handed out, whatever the head says. Nothing expires or is dropped before the first command.
    ///
    /// # Errors
    /// If `head` is not the stored form of a [`Head`], or `seq` is not above all that were restored
    /// before.
    pub fn restore_message(
        &mut self,
        seq: Seq,
        head: &[u8],
        redelivered: bool,
    ) -> Result<(), Malformed> {
        let head = Head::decode(head)?;
        if !self.accepts_name(seq) {
            return Err(Malformed::Value("messages are not in ascending order"));
        }
        self.newest = Some(seq);
        let mut message = Message::from_head(seq, &head);
        message.delivered |= redelivered;
        self.ready.push(message);
        Ok(())
    }

    /// Applies one command: answers it and appends to `effects` what the driver owes, in order.
    /// Perform the reply first.
    ///
    /// `effects` is this queue's alone until it is drained, since releases are merged with earlier
    /// ones. `now` may be any time; if it runs backwards, deadlines are late, nothing else.
    pub fn apply(&mut self, now: Timestamp, command: Command, effects: &mut Vec<Effect>) -> Reply {
        let is_behind = self.held_back || self.delayed.deadline() <= now;
        if is_behind && !matches!(command, Command::Settle { .. }) {
            self.catch_up(now, effects);
        }
        match command {
            Command::Enqueue(arrival) => self.enqueue(now, &arrival, effects),
            Command::Settle { consumer, first, last, outcome, more } => {
                self.settle(now, consumer, first, last, outcome, more, effects);
                Reply::Done
            }
            Command::Sent { consumer, messages, bytes } => {
                self.sent(now, consumer, messages, bytes, effects);
                Reply::Done
            }
            Command::Limit { consumer } => {
                self.limit(now, consumer, effects);
                Reply::Done
            }
            Command::Grant { consumer, count } => {
                self.grant(now, consumer, count, effects);
                Reply::Done
            }
            Command::Get { no_ack } => self.get(now, no_ack, effects),
            Command::Consume(subscription) => self.consume(now, subscription, effects),
            Command::Cancel { consumer } => {
                self.cancel(now, consumer, None, effects);
                Reply::Done
            }
            Command::Gone { consumer } => {
                self.cancel(now, consumer, Some(Back::Failed), effects);
                Reply::Done
            }
            Command::Unreachable { consumer } => {
                self.cancel(now, consumer, Some(Back::Unharmed), effects);
                Reply::Done
            }
            Command::Bury { seq } => {
                if self.dead.remove(seq) {
                    release(effects, seq);
                }
                Reply::Done
            }
            Command::Purge => self.purge(effects),
            Command::Delete { if_unused, if_empty } => self.delete(if_unused, if_empty, effects),
            Command::Configure(settings) => {
                self.configure(now, &settings, effects);
                Reply::Done
            }
            Command::Touch => {
                self.used(now);
                Reply::Done
            }
            Command::Tick => {
                self.tick(now, effects);
                Reply::Done
            }
        }
    }

    /// The head of an arrival, without looking it up: what to store along with it.
    pub fn arrival_head(&self, now: Timestamp, arrival: &Arrival) -> Head {
        self.arrival_message(now, arrival).head()
    }

    /// The head of a message that is here, ready, unsettled or kept though it is dead. Looks through all consumers.
    pub fn head(&self, seq: Seq) -> Option<Head> {
        let held = || {
            let by_consumer = || self.consumers.iter().find_map(|one| one.held.find(seq));
            let message = self.got.find(seq).or_else(by_consumer)?;
            Some(Message { delivered: true, ..message })
        };
        let elsewhere = || self.delayed.find(seq).or_else(|| self.dead.find(seq));
        self.ready.find(seq).or_else(elsewhere).or_else(held).map(|message| message.head())
    }

    /// Messages that wait.
    pub fn ready(&self) -> u64 {
        self.ready.len()
    }

    /// Bytes of the bodies of messages that wait.
    pub fn ready_bytes(&self) -> u64 {
        self.ready.bytes()
    }

    /// Messages that came back and wait for their next attempt.
    pub fn delayed(&self) -> u64 {
        self.delayed.len()
    }

    /// Bytes of the bodies of messages that came back and wait for their next attempt.
    pub fn delayed_bytes(&self) -> u64 {
        self.delayed.bytes()
    }

    /// Messages that are dead and stay until their targets have them.
    pub fn dead(&self) -> u64 {
        self.dead.len()
    }

    /// Bytes of their bodies.
    pub fn dead_bytes(&self) -> u64 {
        self.dead.bytes()
    }

    /// Their names and why they died, ascending.
    pub fn deaths(&self) -> impl Iterator<Item = (Seq, Reason)> + '_ {
        self.dead.iter().map(|(message, reason)| (message.seq, reason))
    }

    /// Why a message died, if it is one of them.
    pub fn death(&self, seq: Seq) -> Option<Reason> {
        self.dead.death(seq)
    }

    /// Messages that are handed out and not settled.
    pub fn unsettled(&self) -> u64 {
        self.unsettled
    }

    /// Bytes of the bodies of messages that are handed out and not settled.
    pub fn unsettled_bytes(&self) -> u64 {
        self.unsettled_bytes
    }

    /// Bytes of the bodies of all messages, whatever becomes of them.
    pub fn body_bytes(&self) -> u64 {
        self.ready_bytes() + self.delayed_bytes() + self.dead_bytes() + self.unsettled_bytes()
    }

    /// Subscriptions, without those that ended and still hold messages.
    pub fn consumers(&self) -> usize {
        self.consumers.live()
    }

    /// How many messages this consumer holds; it may have been cancelled.
    pub fn held_by(&self, consumer: ConsumerId) -> usize {
        self.consumers.get(consumer).map_or(0, |consumer| consumer.held.len())
    }

    /// What this consumer holds, in the order of delivery; it may have been cancelled.
    pub fn holdings(&self, consumer: ConsumerId) -> impl Iterator<Item = Held> {
        let consumer = self.consumers.get(consumer);
        let held = consumer.into_iter().flat_map(|consumer| consumer.held.deliveries());
        held.map(|(message, _)| Held {
            seq: message.seq,
            redelivered: message.delivered,
            delivery_count: message.delivery_count,
        })
    }

    /// The single active consumer, if there is such a rule and such a consumer.
    pub fn active(&self) -> Option<ConsumerId> {
        self.consumers.active()
    }

    /// The oldest message that waits.
    pub fn oldest_ready(&self) -> Option<Seq> {
        self.ready.oldest()
    }

    /// The message that is delivered after `before` others, as things are now: its name and head.
    pub fn waiting(&self, before: u64) -> Option<(Seq, Head)> {
        self.ready.nth(before).map(|message| (message.seq, message.head()))
    }

    /// No message above this one was handed out since the machine was made: a mark to store at a
    /// stop, so that after a restart messages up to it are flagged as redelivered.
    pub fn highest_delivered(&self) -> Option<Seq> {
        self.highest_delivered
    }

    /// The effective arguments.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Gives back spare memory; worth calling when the queue has been quiet for a while.
    pub fn shrink(&mut self) {
        self.ready.shrink();
        self.consumers.shrink();
        self.got.shrink();
        self.returning = Vec::new();
    }

    fn enqueue(&mut self, now: Timestamp, arrival: &Arrival, effects: &mut Vec<Effect>) -> Reply {
        if !self.accepts_name(arrival.seq) {
            return Reply::Repeated;
        }
        let message = self.arrival_message(now, arrival);
        self.expire(now, effects);
        if self.settings.overflow != Overflow::DropHead && self.is_over(Some(&message)) {
            if self.settings.overflow == Overflow::RejectPublishDlx && self.settings.dead_letter {
                effects.push(Effect::DeadLetter { seq: arrival.seq, reason: Reason::MaxLen });
            }
            return Reply::Rejected;
        }
        self.newest = Some(arrival.seq);
        if self.ready.is_empty()
            && let Some(slot) = self.consumers.next()
        {
            self.deliver(now, slot, message, effects);
            return Reply::Enqueued;
        }
        self.ready.push(message);
        self.drop_excess(effects);
        self.expire(now, effects);
        self.demand(effects);
        Reply::Enqueued
    }

    fn get(&mut self, now: Timestamp, no_ack: bool, effects: &mut Vec<Effect>) -> Reply {
        // RabbitMQ's classic queues serve it all the same.
        if self.settings.single_active_consumer && self.settings.style == Style::Quorum {
            return Reply::SingleActive;
        }
        self.used(now);
        self.expire(now, effects);
        let Some(message) = self.ready.pop() else { return Reply::Empty };
        let (seq, redelivered) = (message.seq, message.delivered);
        self.highest_delivered = self.highest_delivered.max(Some(seq));
        if no_ack {
            release(effects, seq);
        } else {
            self.unsettled += 1;
            self.unsettled_bytes += u64::from(message.bytes);
            self.got.insert(message, now);
        }
        self.expire(now, effects);
        let remaining = self.ready.len();
        Reply::Got { seq, redelivered, delivery_count: message.delivery_count, remaining }
    }

    fn consume(
        &mut self,
        now: Timestamp,
        subscription: Subscription,
        effects: &mut Vec<Effect>,
    ) -> Reply {
        if self.consumers.contains(subscription.consumer) {
            return Reply::Done;
        }
        let single = self.settings.single_active_consumer;
        if self.consumers.in_exclusive_use()
            || (subscription.exclusive && (single || self.consumers.live() > 0))
        {
            return Reply::ExclusiveUse;
        }
        self.used(now);
        let slot = self.consumers.insert(subscription);
        self.elect(effects);
        self.consumers.refresh(slot);
        self.catch_up(now, effects);
        Reply::Done
    }

    fn cancel(
        &mut self,
        now: Timestamp,
        consumer: ConsumerId,
        back: Option<Back>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(slot) = self.consumers.find(consumer) else { return };
        let ends = !self.consumers.at(slot).cancelled;
        if ends {
            self.consumers.cancel(slot);
        }
        // Before the next one is active, which shall get it in order.
        if let Some(back) = back {
            self.take_back_all(now, slot, back == Back::Failed, effects);
        }
        if ends {
            self.elect(effects);
        }
        self.forget_idle(now, slot);
        if ends && self.consumers.live() == 0 {
            self.used(now);
            if self.settings.auto_delete {
                effects.push(Effect::LastConsumerGone);
            }
        }
        self.catch_up(now, effects);
    }

    fn limit(&mut self, now: Timestamp, consumer: ConsumerId, effects: &mut Vec<Effect>) {
        if let Some(slot) = self.consumers.find(consumer)
            && self.consumers.limit(slot)
        {
            self.catch_up(now, effects);
        }
    }

    fn grant(
        &mut self,
        now: Timestamp,
        consumer: ConsumerId,
        count: u32,
        effects: &mut Vec<Effect>,
    ) {
        let slot = self.consumers.find(consumer);
        let Some(slot) = slot.filter(|slot| !self.consumers.at(*slot).cancelled) else {
            if count > 0 {
                effects.push(Effect::GrantUnused { consumer, count });
            }
            return;
        };
        self.consumers.grant(slot, count);
        self.dispatch(now, effects);
        let unused = self.consumers.take_grant(slot);
        if unused > 0 {
            effects.push(Effect::GrantUnused { consumer, count: unused });
        }
        self.catch_up(now, effects);
    }

    fn sent(
        &mut self,
        now: Timestamp,
        consumer: ConsumerId,
        messages: u32,
        bytes: u64,
        effects: &mut Vec<Effect>,
    ) {
        let Some(slot) = self.consumers.find(consumer) else { return };
        let overhead = u64::from(messages) * u64::from(Subscription::DELIVERY_OVERHEAD);
        let consumer = self.consumers.at_mut(slot);
        consumer.unsent = consumer.unsent.saturating_sub(bytes.saturating_add(overhead));
        self.consumers.refresh(slot);
        if !self.ready.is_empty() {
            self.catch_up(now, effects);
        }
    }

    /// Hands out what is ready while somebody is able to take it.
    fn dispatch(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        while !self.ready.is_empty() {
            let Some(slot) = self.consumers.next() else { return };
            self.expire(now, effects);
            let Some(message) = self.ready.pop() else { return };
            self.deliver(now, slot, message, effects);
        }
    }

    /// Hands `message` to the consumer whose turn it is.
    #[inline]
    fn deliver(&mut self, now: Timestamp, slot: Slot, message: Message, effects: &mut Vec<Effect>) {
        self.highest_delivered = self.highest_delivered.max(Some(message.seq));
        let consumer = self.consumers.at_mut(slot);
        let delivery = Effect::Deliver {
            consumer: consumer.terms.consumer,
            seq: message.seq,
            redelivered: message.delivered,
            delivery_count: message.delivery_count,
        };
        if consumer.terms.window_bytes > 0 {
            consumer.unsent +=
                u64::from(message.bytes) + u64::from(Subscription::DELIVERY_OVERHEAD);
        }
        if consumer.terms.no_ack {
            deliver_and_release(effects, delivery, message.seq);
        } else {
            effects.push(delivery);
            if consumer.terms.granted {
                consumer.grant -= 1;
            }
            self.unsettled += 1;
            self.unsettled_bytes += u64::from(message.bytes);
            if consumer.held.is_empty() {
                consumer.holds_since = now;
                if let Some(timeout) = consumer.terms.timeout.or(self.settings.consumer_timeout) {
                    self.next_timeout = self.next_timeout.min(now + timeout);
                }
            }
            consumer.held.insert(message, now);
        }
        self.consumers.served(slot);
    }

    /// Does everything that has become due or possible.
    fn catch_up(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        self.held_back = false;
        while let Some(message) = self.delayed.pop_due(now) {
            self.ready.put_back(message);
        }
        self.expire(now, effects);
        // A classic queue that is over its limit because messages came back drops the oldest of
        // them rather than deliver them again; a quorum queue delivers first.
        if self.settings.style == Style::Classic {
            self.drop_excess(effects);
        }
        self.dispatch(now, effects);
        if self.settings.style == Style::Quorum {
            self.drop_excess(effects);
        }
        self.expire(now, effects);
        self.demand(effects);
    }

    /// Takes away what stands at the head of its level and has expired.
    #[inline]
    fn expire(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        if self.ready.has_deadlines() {
            self.expire_heads(now, effects);
        }
    }

    fn expire_heads(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        while let Some(message) = self.ready.pop_expired(now) {
            self.drop(message, Reason::Expired, effects);
        }
    }

    /// Takes away what is over the limits.
    #[inline]
    fn drop_excess(&mut self, effects: &mut Vec<Effect>) {
        if self.settings.overflow == Overflow::DropHead {
            while self.is_over(None) {
                let Some(message) = self.ready.drop_head() else { return };
                self.drop(message, Reason::MaxLen, effects);
            }
        }
    }

    /// Whether what is ready or will be, and `arrival`, is more than the limits allow.
    fn is_over(&self, arrival: Option<&Message>) -> bool {
        let (more, more_bytes) = arrival.map_or((0, 0), |message| (1, u64::from(message.bytes)));
        let mut len = self.ready.len() + self.delayed.len() + more;
        let mut bytes = self.ready.bytes() + self.delayed.bytes() + more_bytes;
        if self.settings.style == Style::Quorum {
            len += self.dead.len();
            bytes += self.dead.bytes();
        }
        self.settings.max_length.is_some_and(|max| len > max)
            || self.settings.max_length_bytes.is_some_and(|max| bytes > max)
    }

    /// A message that left the queue goes to the dead letter exchange, or for good.
    fn drop(&mut self, message: Message, reason: Reason, effects: &mut Vec<Effect>) {
        let seq = message.seq;
        if self.settings.dead_letter {
            if self.settings.keeps_dead {
                self.dead.push(message, reason);
            }
            effects.push(Effect::DeadLetter { seq, reason });
        } else {
            release(effects, seq);
        }
    }

    #[inline]
    fn demand(&mut self, effects: &mut Vec<Effect>) {
        if !self.ready.is_empty() {
            self.consumers.demand(|consumer| effects.push(Effect::Demand { consumer }));
        }
    }

    fn elect(&mut self, effects: &mut Vec<Effect>) {
        if self.consumers.elect() {
            effects.push(Effect::ActiveChanged { consumer: self.consumers.active() });
        }
    }

    /// Forgets a cancelled consumer that holds nothing more.
    fn forget_idle(&mut self, now: Timestamp, slot: Slot) {
        if self.consumers.forget_idle(slot) && self.settings.style == Style::Quorum {
            self.used(now);
        }
    }

    fn used(&mut self, now: Timestamp) {
        self.used_at = now;
        self.expired = false;
    }

    #[inline]
    fn arrival_message(&self, now: Timestamp, arrival: &Arrival) -> Message {
        Message {
            seq: arrival.seq,
            expires_at: self.settings.ttl(arrival.ttl).map_or(NEVER, |ttl| now + ttl),
            bytes: arrival.bytes,
            delivery_count: 0,
            priority: self.settings.level(arrival.priority),
            delivered: false,
        }
    }

    /// Whether a message may be called so: names ascend.
    fn accepts_name(&self, seq: Seq) -> bool {
        self.newest.is_none_or(|newest| newest < seq)
    }

    fn single(settings: &Settings) -> Option<Single> {
        settings
            .single_active_consumer
            .then_some(Single { by_priority: settings.style == Style::Quorum })
    }
}

/// Says that a message is gone for good, together with the one before it if possible.
#[inline]
fn release(effects: &mut Vec<Effect>, seq: Seq) {
    if let Some(Effect::Release { last, .. }) = effects.last_mut()
        && last.next() == seq
    {
        *last = seq;
    } else {
        effects.push(Effect::Release { first: seq, last: seq });
    }
}

/// Delivers a message that is gone with that. If it continues the release that stands last, the
/// delivery goes before the release, so that a stream of such deliveries ends in one release.
#[inline]
fn deliver_and_release(effects: &mut Vec<Effect>, delivery: Effect, seq: Seq) {
    if let Some(Effect::Release { first, last }) = effects.last().copied()
        && last.next() == seq
    {
        *effects.last_mut().expect("it was just read") = delivery;
        effects.push(Effect::Release { first, last: seq });
    } else {
        effects.push(delivery);
        effects.push(Effect::Release { first: seq, last: seq });
    }
}
