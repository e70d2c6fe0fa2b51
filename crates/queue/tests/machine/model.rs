//! The queue again, as plainly as possible: one list of messages, one list of consumers, and every
//! question answered by looking at all of them.
//!
//! It follows the words of `features.md` rather than the machine's data structures, and says
//! nothing about speed. What it leaves out: merging of releases.

use model::id::{ConsumerId, Seq};
use model::time::{Millis, Timestamp};
use queue::command::{Arrival, Command, Outcome, Reply, Subscription};
use queue::effect::{Effect, Reason};
use queue::head::Head;
use queue::settings::{Overflow, Retried, Settings, Style};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Ready,
    /// Ready in a quorum queue, having come back: how many came back before it.
    Returned(u64),
    /// Back in a quorum queue, and ready then.
    Delayed(Timestamp),
    /// Handed out, to whom and when.
    Held(Option<ConsumerId>, Timestamp),
}

#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) seq: Seq,
    pub(crate) head: Head,
    pub(crate) place: Place,
    /// Which delivery it was when it was last handed out, and whether not its first.
    pub(crate) delivery: (u64, bool),
}

#[derive(Debug, Clone)]
pub(crate) struct Consumer {
    pub(crate) terms: Subscription,
    joined: u64,
    grant: u32,
    demanded: bool,
    unsent: u64,
    pub(crate) cancelled: bool,
    overdue: Vec<Seq>,
    /// When it last began to be able, or was served: the lowest is next.
    turn: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) settings: Settings,
    pub(crate) messages: Vec<Message>,
    /// What is dead and kept.
    pub(crate) dead: Vec<Message>,
    pub(crate) consumers: Vec<Consumer>,
    pub(crate) active: Option<ConsumerId>,
    draining: bool,
    pub(crate) held_back: bool,
    used_at: Timestamp,
    expired: bool,
    counter: u64,
    now: Timestamp,
    pub(crate) effects: Vec<Effect>,
}

impl Model {
    pub(crate) fn new(settings: Settings, now: Timestamp) -> Self {
        let settings = Self::understood(settings);
        Self {
            settings,
            messages: Vec::new(),
            dead: Vec::new(),
            consumers: Vec::new(),
            active: None,
            draining: false,
            held_back: false,
            used_at: now,
            expired: false,
            counter: 0,
            now,
            effects: Vec::new(),
        }
    }

    /// Quorum queues do not know `reject-publish-dlx`, classic ones no delayed retry. Dead messages
    /// are kept if there is an exchange for them, by quorum queues only with `reject-publish`.
    fn understood(mut settings: Settings) -> Settings {
        if settings.style == Style::Classic {
            settings.delayed_retry = None;
        }
        if settings.style == Style::Quorum && settings.overflow == Overflow::RejectPublishDlx {
            settings.overflow = Overflow::DropHead;
        }
        let refuses = settings.overflow == Overflow::RejectPublish;
        if (settings.style == Style::Quorum && !refuses) || !settings.dead_letter {
            settings.keeps_dead = false;
        }
        settings
    }

    pub(crate) fn ready(&self) -> impl Iterator<Item = &Message> {
        let is_ready = |place| matches!(place, Place::Ready | Place::Returned(_));
        self.messages.iter().filter(move |message| is_ready(message.place))
    }

    pub(crate) fn delayed(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter().filter(|message| matches!(message.place, Place::Delayed(_)))
    }

    pub(crate) fn held(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter().filter(|message| matches!(message.place, Place::Held(..)))
    }

    pub(crate) fn held_by(&self, holder: Option<ConsumerId>) -> impl Iterator<Item = &Message> {
        let holds = move |place| matches!(place, Place::Held(by, _) if by == holder);
        self.messages.iter().filter(move |message| holds(message.place))
    }

    pub(crate) fn live(&self) -> usize {
        self.consumers.iter().filter(|consumer| !consumer.cancelled).count()
    }

    fn find(&self, id: ConsumerId) -> Option<usize> {
        self.consumers.iter().position(|consumer| consumer.terms.consumer == id)
    }

    /// The heads of the levels, best first; what came back to a quorum queue is a level of its own.
    fn heads(&self) -> Vec<Seq> {
        let mut heads = Vec::new();
        let returned = |message: &&Message| matches!(message.place, Place::Returned(_));
        let order = |message: &&Message| match message.place {
            Place::Returned(order) => order,
            _ => unreachable!(),
        };
        heads.extend(self.ready().filter(returned).min_by_key(order).map(|message| message.seq));
        for priority in (0..=255).rev() {
            let level = self.ready().filter(|message| !returned(message));
            let level = level.filter(|message| message.head.priority == priority);
            heads.extend(level.map(|message| message.seq).min());
        }
        heads
    }

    fn message(&mut self, seq: Seq) -> &mut Message {
        self.messages.iter_mut().find(|message| message.seq == seq).unwrap()
    }

    fn remove(&mut self, seq: Seq) -> Message {
        let place = self.messages.iter().position(|message| message.seq == seq).unwrap();
        self.messages.remove(place)
    }

    fn drop(&mut self, seq: Seq, reason: Reason) {
        let message = self.remove(seq);
        if self.settings.keeps_dead {
            self.dead.push(message);
        }
        self.effects.push(if self.settings.dead_letter {
            Effect::DeadLetter { seq, reason }
        } else {
            Effect::Release { first: seq, last: seq }
        });
    }

    fn expire(&mut self) {
        loop {
            let now = self.now;
            let heads = self.heads();
            let expired = heads.into_iter().find(|seq| {
                self.message(*seq).head.expires_at.is_some_and(|expires_at| expires_at <= now)
            });
            match expired {
                Some(seq) => self.drop(seq, Reason::Expired),
                None => return,
            }
        }
    }

    fn over(&self, more: u64, more_bytes: u64) -> bool {
        let dead = self.dead.iter().filter(|_| self.settings.style == Style::Quorum);
        let counted: Vec<_> = self.ready().chain(self.delayed()).chain(dead).collect();
        let count = counted.len() as u64 + more;
        let bytes = counted.iter().map(|message| u64::from(message.head.bytes)).sum::<u64>();
        self.settings.max_length.is_some_and(|max| count > max)
            || self.settings.max_length_bytes.is_some_and(|max| bytes + more_bytes > max)
    }

    fn drop_excess(&mut self) {
        while self.settings.overflow == Overflow::DropHead && self.over(0, 0) {
            let heads = self.heads();
            if heads.is_empty() {
                return;
            }
            let came_back = matches!(self.message(heads[0]).place, Place::Returned(_));
            let head = if came_back { heads[0] } else { *heads.last().unwrap() };
            self.drop(head, Reason::MaxLen);
        }
    }

    fn is_open(&self, consumer: &Consumer) -> bool {
        let single = self.settings.single_active_consumer;
        let window = u64::from(consumer.terms.window_bytes);
        !consumer.cancelled
            && consumer.overdue.is_empty()
            && (window == 0 || consumer.unsent < window)
            && (!single || (self.active == Some(consumer.terms.consumer) && !self.draining))
    }

    fn is_able(&self, consumer: &Consumer) -> bool {
        let terms = consumer.terms;
        let holds = self.held_by(Some(terms.consumer)).count();
        let room = match terms {
            Subscription { no_ack: true, .. } => true,
            Subscription { granted: true, .. } => consumer.grant > 0,
            _ => terms.prefetch == 0 || holds < usize::from(terms.prefetch),
        };
        room && self.is_open(consumer)
    }

    /// Lets consumers join or leave the turns, in the order of their ids.
    fn refresh(&mut self) {
        let mut order: Vec<usize> = (0..self.consumers.len()).collect();
        order.sort_by_key(|place| self.consumers[*place].terms.consumer);
        for place in order {
            let able = self.is_able(&self.consumers[place]);
            if !able {
                self.consumers[place].turn = None;
            } else if self.consumers[place].turn.is_none() {
                self.counter += 1;
                self.consumers[place].turn = Some(self.counter);
            }
        }
    }

    fn next(&self) -> Option<usize> {
        (0..self.consumers.len()).filter(|place| self.consumers[*place].turn.is_some()).min_by_key(
            |place| {
                let consumer = &self.consumers[*place];
                (-i64::from(consumer.terms.priority), consumer.turn)
            },
        )
    }

    fn deliver(&mut self, place: usize, seq: Seq) {
        let now = self.now;
        let terms = self.consumers[place].terms;
        let consumer = terms.consumer;
        let head = self.message(seq).head;
        self.effects.push(Effect::Deliver {
            consumer,
            seq,
            redelivered: head.delivered,
            delivery_count: head.delivery_count,
        });
        if terms.window_bytes > 0 {
            self.consumers[place].unsent += u64::from(head.bytes) + 64;
        }
        if terms.no_ack {
            self.remove(seq);
            self.effects.push(Effect::Release { first: seq, last: seq });
        } else {
            let delivery = (self.counter, head.delivered);
            let message = self.message(seq);
            message.delivery = delivery;
            message.head.delivered = true;
            message.place = Place::Held(Some(consumer), now);
            if terms.granted {
                self.consumers[place].grant -= 1;
            }
        }
        self.counter += 1;
        self.consumers[place].turn = Some(self.counter);
        self.refresh();
    }

    fn dispatch(&mut self) {
        while let Some(place) = self.next() {
            self.expire();
            let Some(seq) = self.heads().first().copied() else { return };
            self.deliver(place, seq);
        }
    }

    fn demand(&mut self) {
        if self.ready().next().is_none() {
            return;
        }
        let mut order: Vec<usize> = (0..self.consumers.len()).collect();
        order.sort_by_key(|place| self.consumers[*place].terms.consumer);
        for place in order {
            let consumer = &self.consumers[place];
            let granted = consumer.terms.granted && !consumer.terms.no_ack;
            if granted && !consumer.demanded && self.is_open(consumer) {
                self.effects.push(Effect::Demand { consumer: consumer.terms.consumer });
                self.consumers[place].demanded = true;
            }
        }
    }

    fn catch_up(&mut self) {
        self.held_back = false;
        let mut due: Vec<(Timestamp, Seq)> = self
            .delayed()
            .filter_map(|message| match message.place {
                Place::Delayed(due) if due <= self.now => Some((due, message.seq)),
                _ => None,
            })
            .collect();
        due.sort_unstable();
        for (_, seq) in due {
            self.counter += 1;
            self.message(seq).place = Place::Returned(self.counter);
        }
        self.expire();
        if self.settings.style == Style::Classic {
            self.drop_excess();
        }
        self.dispatch();
        if self.settings.style == Style::Quorum {
            self.drop_excess();
        }
        self.expire();
        self.demand();
    }

    fn elect(&mut self) {
        if !self.settings.single_active_consumer {
            self.active = None;
            self.draining = false;
            return self.refresh();
        }
        let quorum = self.settings.style == Style::Quorum;
        let able: Vec<&Consumer> = self
            .consumers
            .iter()
            .filter(|consumer| !consumer.cancelled && consumer.overdue.is_empty())
            .collect();
        let rank = |consumer: &&Consumer| {
            let priority = if quorum { -i64::from(consumer.terms.priority) } else { 0 };
            (priority, consumer.joined)
        };
        let best = able.iter().copied().min_by_key(rank);
        let incumbent =
            able.iter().copied().find(|consumer| Some(consumer.terms.consumer) == self.active);
        let (next, draining) = match (incumbent, best) {
            (Some(incumbent), Some(best))
                if quorum && best.terms.priority > incumbent.terms.priority =>
            {
                match self.held_by(Some(incumbent.terms.consumer)).count() {
                    0 => (Some(best), false),
                    _ => (Some(incumbent), true),
                }
            }
            (Some(incumbent), _) => (Some(incumbent), false),
            (None, best) => (best, false),
        };
        let next = next.map(|consumer| consumer.terms.consumer);
        if next != self.active {
            self.effects.push(Effect::ActiveChanged { consumer: next });
        }
        self.active = next;
        self.draining = draining;
        self.refresh();
    }

    fn take_back(&mut self, seq: Seq, failed: bool) {
        let limit = self.settings.delivery_limit;
        let message = self.message(seq);
        if failed {
            message.head.delivery_count += 1;
            if limit.is_some_and(|limit| message.head.delivery_count > limit) {
                return self.drop(seq, Reason::DeliveryLimit);
            }
            if limit.is_some() && self.settings.style == Style::Classic {
                self.effects.push(Effect::Noted { seq });
            }
        }
        self.counter += 1;
        let order = self.counter;
        let quorum = self.settings.style == Style::Quorum;
        if let Some(retry) = self.settings.delayed_retry {
            let waits = match retry.which {
                Retried::Failed => failed,
                Retried::Returned => !failed,
                Retried::All => true,
            };
            if waits {
                let times = u64::from(self.message(seq).head.delivery_count).max(1);
                let delay = retry.max.0.min(retry.min.0 * times);
                self.message(seq).place = Place::Delayed(self.now + Millis(delay));
                return;
            }
        }
        self.message(seq).place = if quorum { Place::Returned(order) } else { Place::Ready };
    }

    fn forget_idle(&mut self) {
        let before = self.consumers.len();
        let holders: Vec<_> = self.held().map(|message| message.place).collect();
        self.consumers.retain(|consumer| {
            let holds = |place: &Place| matches!(place, Place::Held(by, _) if *by == Some(consumer.terms.consumer));
            !consumer.cancelled || holders.iter().any(holds)
        });
        if self.consumers.len() < before && self.settings.style == Style::Quorum {
            self.used();
        }
    }

    /// Nobody consumes; with a quorum queue, nobody holds anything either.
    fn is_unused(&self) -> bool {
        let quorum = self.settings.style == Style::Quorum;
        self.live() == 0 && !(quorum && self.held().next().is_some())
    }

    fn used(&mut self) {
        self.used_at = self.now;
        self.expired = false;
    }

    /// When something is due at the latest.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        let heads = self.heads();
        let heads = self.messages.iter().filter(|message| heads.contains(&message.seq));
        let expiry = heads.filter_map(|message| message.head.expires_at);
        let timeouts = self.held().filter_map(|message| match message.place {
            Place::Held(Some(consumer), since) => Some(since + self.timeout(consumer)?),
            _ => None,
        });
        let idle = self.settings.expires.filter(|_| self.is_unused() && !self.expired);
        let delayed = self.messages.iter().filter_map(|message| match message.place {
            Place::Delayed(due) => Some(due),
            _ => None,
        });
        expiry
            .chain(delayed)
            .chain(timeouts)
            .chain(idle.map(|expires| self.used_at + expires))
            .min()
    }

    fn timeout(&self, consumer: ConsumerId) -> Option<Millis> {
        let consumer = &self.consumers[self.find(consumer)?];
        consumer.terms.timeout.or(self.settings.consumer_timeout)
    }

    /// A restart: everything is ready in the order of arrival, nobody consumes.
    pub(crate) fn restart(&mut self, now: Timestamp) {
        let fresh = Self::new(self.settings.clone(), now);
        let before = std::mem::replace(self, fresh);
        let mut messages = before.messages;
        messages.extend(before.dead);
        messages.sort_unstable_by_key(|message| message.seq);
        for message in &mut messages {
            message.place = Place::Ready;
        }
        self.messages = messages;
    }

    pub(crate) fn apply(&mut self, now: Timestamp, command: Command) -> Reply {
        self.now = now;
        self.effects.clear();
        let due = |message: &Message| matches!(message.place, Place::Delayed(due) if due <= now);
        let is_behind = self.held_back || self.delayed().any(due);
        if is_behind && !matches!(command, Command::Settle { .. }) {
            self.catch_up();
        }
        match command {
            Command::Enqueue(arrival) => self.enqueue(arrival),
            Command::Consume(terms) => self.consume(terms),
            Command::Cancel { consumer } => self.cancel(consumer, None),
            Command::Gone { consumer } => self.cancel(consumer, Some(true)),
            Command::Unreachable { consumer } => self.cancel(consumer, Some(false)),
            Command::Limit { consumer } => {
                let place = self.find(consumer).filter(|place| {
                    let Consumer { terms, cancelled, .. } = &self.consumers[*place];
                    !cancelled && !terms.no_ack && !terms.granted
                });
                if let Some(place) = place {
                    self.consumers[place].terms.granted = true;
                    self.refresh();
                    self.catch_up();
                }
                Reply::Done
            }
            Command::Grant { consumer, count } => self.grant(consumer, count),
            Command::Sent { consumer, messages, bytes } => {
                if let Some(place) = self.find(consumer) {
                    let weight = bytes + u64::from(messages) * 64;
                    let consumer = &mut self.consumers[place];
                    consumer.unsent = consumer.unsent.saturating_sub(weight);
                    self.refresh();
                    self.catch_up();
                }
                Reply::Done
            }
            Command::Get { no_ack } => self.get(no_ack),
            Command::Settle { consumer, first, last, outcome, more } => {
                self.settle(consumer, first, last, outcome, more)
            }
            Command::Bury { seq } => {
                if let Some(place) = self.dead.iter().position(|dead| dead.seq == seq) {
                    self.dead.remove(place);
                    self.effects.push(Effect::Release { first: seq, last: seq });
                }
                Reply::Done
            }
            Command::Purge => {
                let waiting = self.ready().chain(self.delayed());
                let mut seqs: Vec<Seq> = waiting.map(|message| message.seq).collect();
                seqs.sort_unstable();
                for seq in &seqs {
                    self.remove(*seq);
                    self.effects.push(Effect::Release { first: *seq, last: *seq });
                }
                Reply::Count(seqs.len() as u64)
            }
            Command::Delete { if_unused, if_empty } => self.delete(if_unused, if_empty),
            Command::Configure(settings) => {
                let style = self.settings.style;
                self.settings = Self::understood(Settings { style, ..settings });
                self.elect();
                self.catch_up();
                Reply::Done
            }
            Command::Touch => {
                self.used();
                Reply::Done
            }
            Command::Tick => self.tick(),
        }
    }

    fn enqueue(&mut self, arrival: Arrival) -> Reply {
        self.expire();
        if self.settings.overflow != Overflow::DropHead && self.over(1, arrival.bytes.into()) {
            if self.settings.overflow == Overflow::RejectPublishDlx && self.settings.dead_letter {
                self.effects.push(Effect::DeadLetter { seq: arrival.seq, reason: Reason::MaxLen });
            }
            return Reply::Rejected;
        }
        let head = Head {
            bytes: arrival.bytes,
            priority: self.settings.level(arrival.priority),
            expires_at: self.settings.ttl(arrival.ttl).map(|ttl| self.now + ttl),
            delivery_count: 0,
            delivered: false,
        };
        let alone = self.ready().next().is_none();
        self.messages.push(Message {
            seq: arrival.seq,
            head,
            place: Place::Ready,
            delivery: (0, false),
        });
        if alone && let Some(place) = self.next() {
            self.deliver(place, arrival.seq);
            return Reply::Enqueued;
        }
        self.drop_excess();
        self.expire();
        self.demand();
        Reply::Enqueued
    }

    fn consume(&mut self, terms: Subscription) -> Reply {
        if self.find(terms.consumer).is_some() {
            return Reply::Done;
        }
        let mut live = self.consumers.iter().filter(|consumer| !consumer.cancelled);
        let single = self.settings.single_active_consumer;
        if live.clone().any(|consumer| consumer.terms.exclusive)
            || (terms.exclusive && (single || live.next().is_some()))
        {
            return Reply::ExclusiveUse;
        }
        self.used();
        self.counter += 1;
        self.consumers.push(Consumer {
            terms,
            joined: self.counter,
            grant: 0,
            demanded: false,
            unsent: 0,
            cancelled: false,
            overdue: Vec::new(),
            turn: None,
        });
        self.elect();
        self.catch_up();
        Reply::Done
    }

    /// What it holds comes back if that has failed or not.
    fn cancel(&mut self, id: ConsumerId, failed: Option<bool>) -> Reply {
        let Some(place) = self.find(id) else { return Reply::Done };
        let ends = !std::mem::replace(&mut self.consumers[place].cancelled, true);
        self.consumers[place].overdue.clear();
        if let Some(failed) = failed {
            let mut seqs: Vec<Seq> = self.held_by(Some(id)).map(|message| message.seq).collect();
            seqs.sort_unstable();
            for seq in seqs {
                self.take_back(seq, failed);
            }
        }
        self.elect();
        self.forget_idle();
        if ends && self.live() == 0 {
            self.used();
            if self.settings.auto_delete {
                self.effects.push(Effect::LastConsumerGone);
            }
        }
        self.catch_up();
        Reply::Done
    }

    fn grant(&mut self, id: ConsumerId, count: u32) -> Reply {
        let place = self.find(id).filter(|place| !self.consumers[*place].cancelled);
        let Some(place) = place else {
            if count > 0 {
                self.effects.push(Effect::GrantUnused { consumer: id, count });
            }
            return Reply::Done;
        };
        self.consumers[place].grant += count;
        self.consumers[place].demanded = false;
        self.refresh();
        self.dispatch();
        let unused = std::mem::take(&mut self.consumers[place].grant);
        if unused > 0 {
            self.effects.push(Effect::GrantUnused { consumer: id, count: unused });
        }
        self.refresh();
        self.catch_up();
        Reply::Done
    }

    fn get(&mut self, no_ack: bool) -> Reply {
        if self.settings.single_active_consumer && self.settings.style == Style::Quorum {
            return Reply::SingleActive;
        }
        self.used();
        self.expire();
        let Some(seq) = self.heads().first().copied() else { return Reply::Empty };
        let Head { delivered: redelivered, delivery_count, .. } = self.message(seq).head;
        if no_ack {
            self.remove(seq);
            self.effects.push(Effect::Release { first: seq, last: seq });
        } else {
            let now = self.now;
            let message = self.message(seq);
            message.head.delivered = true;
            message.place = Place::Held(None, now);
        }
        self.expire();
        let remaining = self.ready().count() as u64;
        Reply::Got { seq, redelivered, delivery_count, remaining }
    }

    fn settle(
        &mut self,
        id: Option<ConsumerId>,
        first: Seq,
        last: Seq,
        outcome: Outcome,
        more: bool,
    ) -> Reply {
        let held = self.held_by(id).map(|message| message.seq);
        let mut seqs: Vec<Seq> = held.filter(|seq| *seq >= first && *seq <= last).collect();
        seqs.sort_unstable();
        if id.is_none() && !seqs.is_empty() && self.settings.style == Style::Quorum {
            self.used();
        }
        for seq in seqs {
            match outcome {
                Outcome::Accept => {
                    self.remove(seq);
                    self.effects.push(Effect::Release { first: seq, last: seq });
                }
                Outcome::Return => self.take_back(seq, false),
                Outcome::Retry | Outcome::Lost => self.take_back(seq, true),
                Outcome::Discard => self.drop(seq, Reason::Rejected),
            }
        }
        if let Some(place) = id.and_then(|id| self.find(id)) {
            self.consumers[place].overdue.retain(|seq| *seq < first || *seq > last);
        }
        self.forget_idle();
        self.elect();
        if more {
            self.held_back = true;
        } else {
            self.catch_up();
        }
        Reply::Done
    }

    fn delete(&mut self, if_unused: bool, if_empty: bool) -> Reply {
        let count = (self.ready().count() + self.delayed().count()) as u64;
        if if_empty && count > 0 {
            return Reply::NotEmpty;
        }
        if if_unused && self.live() > 0 {
            return Reply::InUse;
        }
        let live = self.consumers.iter().filter(|consumer| !consumer.cancelled);
        let mut live: Vec<ConsumerId> = live.map(|consumer| consumer.terms.consumer).collect();
        live.sort_unstable();
        let cancelled = |consumer| Effect::ConsumerCancelled { consumer };
        self.effects.extend(live.into_iter().map(cancelled));
        self.messages.clear();
        self.dead.clear();
        self.consumers.clear();
        self.active = None;
        self.draining = false;
        Reply::Count(count)
    }

    fn tick(&mut self) -> Reply {
        let mut ids: Vec<ConsumerId> =
            self.consumers.iter().map(|consumer| consumer.terms.consumer).collect();
        ids.sort_unstable();
        let mut timed_out = false;
        for id in ids {
            let Some(timeout) = self.timeout(id) else { continue };
            let now = self.now;
            let late = |message: &Message| matches!(message.place, Place::Held(_, since) if since + timeout <= now);
            if !self.held_by(Some(id)).any(late) {
                continue;
            }
            timed_out = true;
            let classic = self.settings.style == Style::Classic;
            let taken = self.held_by(Some(id)).filter(|message| classic || late(message));
            let mut seqs: Vec<Seq> = taken.map(|message| message.seq).collect();
            seqs.sort_unstable();
            self.effects.push(Effect::TimedOut { consumer: id, returned: seqs.len() as u64 });
            let place = self.find(id).unwrap();
            if !self.consumers[place].cancelled {
                self.consumers[place].overdue.extend(&seqs);
            }
            for seq in seqs {
                self.take_back(seq, classic);
            }
        }
        if timed_out {
            self.forget_idle();
            self.elect();
        }
        self.catch_up();
        let idle = self.settings.expires.filter(|_| self.is_unused() && !self.expired);
        if idle.is_some_and(|expires| self.used_at + expires <= self.now) {
            self.expired = true;
            self.effects.push(Effect::Expired);
        }
        Reply::Done
    }
}
