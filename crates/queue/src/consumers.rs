//! The consumers of a queue, and whose turn it is.
//!
//! ```text
//!              ┌─────────────── served, still able ──────────────┐
//!              ▼                                                 │
//!  consume ► in the rotation ──── served, or paused ──► out of the rotation
//!              ▲                  (prefetch full, window full,   │
//!              │                   no grant, not active,         │
//!              └── able again ──── timed out) ◄──────────────────┘
//!
//!  cancel  ► out of the rotation for good; kept while it holds messages
//! ```
//!
//! Invariant: a consumer is in the rotation exactly when it is able to take a message, so the one
//! whose turn it is is found without looking at any other.

mod snapshot;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::id::{ConsumerId, Seq};
use model::time::Timestamp;

use crate::command::Subscription;
use crate::message::NEVER;
use crate::unsettled::Unsettled;

/// The place of a consumer in [`Consumers`]; used again after it is gone.
pub(crate) type Slot = u32;

/// One consumer.
#[derive(Debug, Clone)]
pub(crate) struct Consumer {
    pub(crate) terms: Subscription,
    /// Counts subscriptions: who came first.
    joined: u64,
    pub(crate) held: Unsettled,
    /// What it may still take by its grant; 0 between commands.
    pub(crate) grant: u32,
    /// It was told that there are messages, and has granted nothing since.
    demanded: bool,
    /// The weight of deliveries that have not left yet.
    pub(crate) unsent: u64,
    /// It ended; it is here because it holds messages.
    pub(crate) cancelled: bool,
    /// What was taken away from it because it held it for too long, and it has not settled.
    pub(crate) overdue: BTreeSet<Seq>,
    /// None that it holds was delivered before this; [`NEVER`] if it holds nothing.
    pub(crate) holds_since: Timestamp,
    in_rotation: bool,
}

impl Consumer {
    /// Whether it could take a message if it were granted one.
    fn is_open(&self) -> bool {
        let window = u64::from(self.terms.window_bytes);
        !self.cancelled && self.overdue.is_empty() && (window == 0 || self.unsent < window)
    }

    fn is_able(&self) -> bool {
        self.is_open()
            && if self.terms.no_ack {
                true
            } else if self.terms.granted {
                self.grant > 0
            } else {
                let prefetch = usize::from(self.terms.prefetch);
                prefetch == 0 || self.held.len() < prefetch
            }
    }

    /// Crosses off what it has settled too late.
    pub(crate) fn settle_overdue(&mut self, first: Seq, last: Seq) {
        if first > last {
            return;
        }
        while let Some(seq) = self.overdue.range(first..=last).next().copied() {
            self.overdue.remove(&seq);
        }
    }

    fn needs_grants(&self) -> bool {
        self.terms.granted && !self.terms.no_ack
    }
}

/// Consumers of one priority that take turns.
#[derive(Debug, Clone)]
struct Group {
    priority: i32,
    /// How many consumers have this priority, able or not.
    members: usize,
    ring: VecDeque<Slot>,
}

/// Who is the single active consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Single {
    /// The priority decides before the order of subscription, and a better newcomer takes over.
    pub(crate) by_priority: bool,
}

/// All consumers of a queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct Consumers {
    slots: Vec<Option<Consumer>>,
    free: Vec<Slot>,
    by_id: BTreeMap<ConsumerId, Slot>,
    /// Where the last one was found; most queues are settled by one consumer for a while.
    recent: Slot,
    /// Highest priority first.
    groups: Vec<Group>,
    /// How many are not cancelled.
    live: usize,
    /// How many subscriptions there ever were.
    joined: u64,
    exclusive: Option<Slot>,
    single: Option<Single>,
    active: Option<Slot>,
    /// The active one gets nothing more, so that a better one can take over when it holds nothing.
    draining: bool,
    /// Live consumers that need grants and were not told that there are messages.
    undemanded: usize,
}

impl Consumers {
    /// How many consumers are subscribed.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Whether one of them wants to be the only one.
    pub(crate) fn in_exclusive_use(&self) -> bool {
        self.exclusive.is_some()
    }

    pub(crate) fn contains(&self, id: ConsumerId) -> bool {
        self.by_id.contains_key(&id)
    }

    pub(crate) fn find(&mut self, id: ConsumerId) -> Option<Slot> {
        let recent = self.slots.get(self.recent as usize).and_then(Option::as_ref);
        if recent.is_some_and(|consumer| consumer.terms.consumer == id) {
            return Some(self.recent);
        }
        self.recent = *self.by_id.get(&id)?;
        Some(self.recent)
    }

    pub(crate) fn get(&self, id: ConsumerId) -> Option<&Consumer> {
        self.by_id.get(&id).map(|slot| self.at(*slot))
    }

    pub(crate) fn at(&self, slot: Slot) -> &Consumer {
        self.slots[slot as usize].as_ref().expect("slots in use are found by id or rotation")
    }

    pub(crate) fn at_mut(&mut self, slot: Slot) -> &mut Consumer {
        self.slots[slot as usize].as_mut().expect("slots in use are found by id or rotation")
    }

    /// All, in the order of their ids.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.by_id.values().copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Consumer> {
        self.by_id.values().map(|slot| self.at(*slot))
    }

    pub(crate) fn active(&self) -> Option<ConsumerId> {
        self.active.map(|slot| self.at(slot).terms.consumer)
    }

    /// Adds a consumer; the caller has checked that it may join and lets it have its turns by
    /// [`Consumers::elect`] and [`Consumers::refresh`].
    pub(crate) fn insert(&mut self, terms: Subscription) -> Slot {
        let consumer = Consumer {
            terms,
            joined: self.joined,
            held: Unsettled::default(),
            grant: 0,
            demanded: false,
            unsent: 0,
            cancelled: false,
            overdue: BTreeSet::new(),
            holds_since: NEVER,
            in_rotation: false,
        };
        self.joined += 1;
        self.live += 1;
        self.undemanded += usize::from(consumer.needs_grants());
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Slot::try_from(self.slots.len() - 1).expect("fewer than 2^32 consumers")
        });
        self.slots[slot as usize] = Some(consumer);
        self.by_id.insert(terms.consumer, slot);
        if terms.exclusive {
            self.exclusive = Some(slot);
        }
        match self.groups.binary_search_by(|group| terms.priority.cmp(&group.priority)) {
            Ok(place) => self.groups[place].members += 1,
            Err(place) => {
                let group = Group { priority: terms.priority, members: 1, ring: VecDeque::new() };
                self.groups.insert(place, group);
            }
        }
        slot
    }

    /// Ends a consumer. It stays here while it holds messages: see [`Consumers::forget_idle`].
    pub(crate) fn cancel(&mut self, slot: Slot) {
        let consumer = self.at_mut(slot);
        debug_assert!(!consumer.cancelled, "a consumer ends once");
        consumer.cancelled = true;
        consumer.overdue.clear();
        let undemanded = consumer.needs_grants() && !consumer.demanded;
        let priority = consumer.terms.priority;
        self.live -= 1;
        self.undemanded -= usize::from(undemanded);
        if self.exclusive == Some(slot) {
            self.exclusive = None;
        }
        self.refresh(slot);
        let place = self.group(priority);
        self.groups[place].members -= 1;
        if self.groups[place].members == 0 {
            self.groups.remove(place);
        }
    }

    /// Whether there is none, not even a cancelled one that holds something.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Forgets a cancelled consumer that holds nothing more; tells whether it did.
    pub(crate) fn forget_idle(&mut self, slot: Slot) -> bool {
        let consumer = self.at(slot);
        let is_idle = consumer.cancelled && consumer.held.is_empty();
        if is_idle {
            let id = consumer.terms.consumer;
            self.by_id.remove(&id);
            self.slots[slot as usize] = None;
            self.free.push(slot);
        }
        is_idle
    }

    /// Whose turn it is.
    pub(crate) fn next(&self) -> Option<Slot> {
        self.groups.iter().find_map(|group| group.ring.front().copied())
    }

    /// The one whose turn it was, as [`Consumers::next`] said, has been served.
    pub(crate) fn served(&mut self, slot: Slot) {
        let able = self.is_able(slot);
        let group = self.groups.iter_mut().find(|group| !group.ring.is_empty());
        let ring = &mut group.expect("someone was served").ring;
        debug_assert_eq!(ring.front(), Some(&slot));
        if !able {
            ring.pop_front();
            self.at_mut(slot).in_rotation = false;
        } else if ring.len() > 1 {
            ring.rotate_left(1);
        }
    }

    /// Lets a consumer enter or leave the rotation after something about it changed.
    pub(crate) fn refresh(&mut self, slot: Slot) {
        let able = self.is_able(slot);
        let consumer = self.at_mut(slot);
        if consumer.in_rotation == able {
            return;
        }
        consumer.in_rotation = able;
        let priority = consumer.terms.priority;
        let place = self.group(priority);
        let ring = &mut self.groups[place].ring;
        if able {
            ring.push_back(slot);
        } else {
            ring.retain(|other| *other != slot);
        }
    }

    /// Turns the rule of the single active consumer on or off. Follow with [`Consumers::elect`].
    pub(crate) fn set_single(&mut self, single: Option<Single>) {
        self.single = single;
        if single.is_none() {
            self.active = None;
            self.draining = false;
        }
        for slot in self.slots().collect::<Vec<_>>() {
            self.refresh(slot);
        }
    }

    /// Whether [`Consumers::elect`] may change something after a settlement.
    pub(crate) fn awaits_election(&self) -> bool {
        self.single.is_some() && (self.draining || self.active.is_none())
    }

    /// Chooses the single active consumer anew after consumers came, went, timed out or settled;
    /// tells whether it is another one than before.
    pub(crate) fn elect(&mut self) -> bool {
        let Some(single) = self.single else { return false };
        let eligible = |slot: Slot| self.is_eligible(slot);
        let rank = |slot: Slot| {
            let consumer = self.at(slot);
            let priority = if single.by_priority { consumer.terms.priority } else { 0 };
            (std::cmp::Reverse(priority), consumer.joined)
        };
        let incumbent = self.active.filter(|slot| eligible(*slot));
        let best = match incumbent {
            Some(slot) if !single.by_priority => Some(slot),
            _ => self.slots().filter(|slot| eligible(*slot)).min_by_key(|slot| rank(*slot)),
        };
        let (next, draining) = match (incumbent, best) {
            (Some(slot), Some(best))
                if self.at(slot).terms.priority < self.at(best).terms.priority =>
            {
                if self.at(slot).held.is_empty() { (Some(best), false) } else { (Some(slot), true) }
            }
            (Some(slot), _) => (Some(slot), false),
            (None, best) => (best, false),
        };
        let before = self.active;
        self.active = next;
        self.draining = draining;
        for slot in [before, next].into_iter().flatten() {
            self.refresh(slot);
        }
        before != next
    }

    /// Makes a consumer one that needs grants; tells whether it was not one before.
    pub(crate) fn limit(&mut self, slot: Slot) -> bool {
        let consumer = self.at_mut(slot);
        if consumer.cancelled || consumer.terms.no_ack || consumer.terms.granted {
            return false;
        }
        consumer.terms.granted = true;
        self.undemanded += 1;
        self.refresh(slot);
        true
    }

    /// Adds to a consumer's grant and lets it ask again.
    pub(crate) fn grant(&mut self, slot: Slot, count: u32) {
        let consumer = self.at_mut(slot);
        consumer.grant = consumer.grant.saturating_add(count);
        if consumer.demanded {
            consumer.demanded = false;
            self.undemanded += 1;
        }
        self.refresh(slot);
    }

    /// Takes back what is left of a consumer's grant.
    pub(crate) fn take_grant(&mut self, slot: Slot) -> u32 {
        let unused = std::mem::take(&mut self.at_mut(slot).grant);
        self.refresh(slot);
        unused
    }

    /// Names each consumer that needs a grant to get what is ready, once until its next grant.
    pub(crate) fn demand(&mut self, mut tell: impl FnMut(ConsumerId)) {
        if self.undemanded == 0 {
            return;
        }
        let active = self.active.filter(|_| !self.draining);
        for slot in self.by_id.values() {
            let turn = self.single.is_none() || active == Some(*slot);
            let consumer = self.slots[*slot as usize].as_mut().expect("ids name slots in use");
            if turn && consumer.needs_grants() && !consumer.demanded && consumer.is_open() {
                consumer.demanded = true;
                self.undemanded -= 1;
                tell(consumer.terms.consumer);
            }
        }
    }

    /// Gives back spare memory.
    pub(crate) fn shrink(&mut self) {
        for consumer in self.slots.iter_mut().flatten() {
            consumer.held.shrink();
        }
        if self.by_id.is_empty() {
            self.slots = Vec::new();
            self.free = Vec::new();
        }
    }

    /// Whether it may be the single active consumer.
    fn is_eligible(&self, slot: Slot) -> bool {
        let consumer = self.at(slot);
        !consumer.cancelled && consumer.overdue.is_empty()
    }

    /// Whether the rule of the single active consumer lets it take messages.
    fn has_turn(&self, slot: Slot) -> bool {
        self.single.is_none() || (self.active == Some(slot) && !self.draining)
    }

    fn is_able(&self, slot: Slot) -> bool {
        self.at(slot).is_able() && self.has_turn(slot)
    }

    fn group(&self, priority: i32) -> usize {
        self.groups
            .iter()
            .position(|group| group.priority == priority)
            .expect("the group of a live consumer exists")
    }
}
