//! When which queue is looked at, and how much is done at once.
//!
//! ```text
//!            interval, or a trigger          a slot is free
//!  waiting ──────────────────────► a pass ──────────────────► Order::Examine(queue)
//!     ▲                              │ ▲                             │ examined(plan)
//!     │  nothing left, nothing runs  │ │ next queue                  ├─ no step: next queue
//!     └──────────────────────────────┘ └─────────────────────────────┤
//!                                          finished(outcome)         ▼
//!                                        ◄──────────────── Order::Perform(queue, step)
//! ```
//!
//! A pass looks at all queues that are led here, one after the other, and waits with the next one
//! while as many steps run as may run at once. The next pass comes after the long interval; a trigger
//! brings it nearer, and triggers that do not end cannot put it off for ever. A queue for which
//! something was done, or could not be done for the moment, is looked at again soon, alone.
//!
//! What fails is tried again after a time that doubles, queue by queue; and the node on which adding
//! a member failed is passed over for that queue as long as there are others. That is forgotten when
//! the cause may be gone: the node is there again, the settings have changed, or somebody asks. What
//! could not even be begun has not failed, and is tried again soon.

use std::collections::{BTreeMap, BTreeSet};

use model::id::{NodeId, QueueId};
use model::time::{Millis, Timestamp};

use crate::plan::Plan;
use crate::step::Step;

pub mod tally;

use tally::{Counts, Tally};

/// How many trigger intervals a stream of triggers can put a pass off.
pub const PATIENCE: u64 = 10;

/// How often the scheduler acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Whether it acts at all.
    pub enabled: bool,
    /// Between passes in which there was nothing to do. At least 1 s; the caller adds jitter with
    /// each pass.
    pub interval: Millis,
    /// Between a trigger, or a pass in which something was done, and the next pass. At least 100 ms,
    /// at most `interval`.
    pub trigger_interval: Millis,
    /// Steps that may run at once, at least 1.
    pub concurrency: usize,
}

/// What happens to the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// This node leads the queue from now on.
    Led(QueueId),
    /// It does not lead it any more, or the queue is gone.
    NotLed(QueueId),
    /// Something has changed that may matter to all queues: a node is up, down, has joined, left or
    /// entered or left maintenance; policies or settings have changed.
    Trigger,
    /// Something has changed that matters to one queue.
    Touched(QueueId),
    /// A node is there again: what failed on it before says nothing any more.
    Up(NodeId),
    /// A pass over all queues is wanted now.
    Now,
    /// The settings have changed.
    Reloaded(Timing),
    /// An order to look at a queue has been followed.
    Examined(QueueId, Box<Plan>),
    /// A step has ended.
    Finished {
        /// Of which queue.
        queue: QueueId,
        /// Which.
        step: Step,
        /// How.
        outcome: Outcome,
    },
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// It failed, or nobody knows.
    Failed,
    /// It was not begun, for a reason that passes by itself and is nobody's fault: it could not be
    /// confirmed in time who leads, or another change was under way.
    NotBegun,
}

/// What the driver has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Make a plan for this queue and report [`Event::Examined`].
    Examine(QueueId),
    /// Do this and report [`Event::Finished`].
    Perform(QueueId, Step),
}

/// See the module head.
#[derive(Debug, Clone)]
pub struct Scheduler {
    timing: Timing,
    queues: BTreeMap<QueueId, Track>,
    /// Queues of the pass that have not been looked at.
    todo: BTreeSet<QueueId>,
    /// Queues that are being looked at.
    examining: BTreeSet<QueueId>,
    /// Steps that run.
    running: BTreeSet<QueueId>,
    /// Steps that were found and not ordered yet.
    ready: BTreeMap<QueueId, Step>,
    /// Queues with a time of their own.
    later: BTreeSet<(Timestamp, QueueId)>,
    /// When the next pass begins; `None`: never.
    next: Option<Timestamp>,
    /// When the first of the triggers came that the next pass waits for.
    triggered: Option<Timestamp>,
    /// When the present pass began.
    pass: Option<Timestamp>,
    /// Of a pass: thousandths by which the interval is longer or shorter, from -100 to 100.
    jitter: i16,
    tally: Tally,
}

/// A queue that is led here.
#[derive(Debug, Clone, Default)]
struct Track {
    /// Failures in a row.
    failures: u32,
    /// Not before this time, after a failure.
    not_before: Timestamp,
    /// Nodes on which adding a member failed, until when they are passed over.
    avoided: BTreeMap<NodeId, Timestamp>,
    /// In `later` under this time.
    later: Option<Timestamp>,
}

impl Track {
    /// What has failed before says nothing any more.
    fn pardon(&mut self) {
        self.failures = 0;
        self.not_before = Timestamp(0);
        self.avoided.clear();
    }
}

impl Scheduler {
    /// A scheduler that leads no queues. The first pass comes after the interval.
    pub fn new(now: Timestamp, timing: Timing, jitter: i16) -> Self {
        let mut scheduler = Self {
            timing,
            queues: BTreeMap::new(),
            todo: BTreeSet::new(),
            examining: BTreeSet::new(),
            running: BTreeSet::new(),
            ready: BTreeMap::new(),
            later: BTreeSet::new(),
            next: None,
            triggered: None,
            pass: None,
            jitter,
            tally: Tally::default(),
        };
        scheduler.rest(now);
        scheduler
    }

    /// Takes note of what has happened. `jitter`: see [`Scheduler::new`]; a fresh one with each call.
    pub fn on(&mut self, now: Timestamp, event: Event, jitter: i16) {
        self.jitter = jitter.clamp(-100, 100);
        match event {
            Event::Led(queue) => {
                self.queues.entry(queue).or_default();
                self.touch(now, queue, self.timing.trigger_interval);
            }
            Event::NotLed(queue) => self.forget(queue),
            Event::Trigger => self.trigger(now),
            Event::Touched(queue) => self.touch(now, queue, self.timing.trigger_interval),
            Event::Up(node) => {
                for (queue, track) in &mut self.queues {
                    if track.avoided.remove(&node).is_none() {
                        continue;
                    }
                    track.pardon();
                    if let Some(at) =
                        track.later.filter(|at| *at > now + self.timing.trigger_interval)
                    {
                        // It waits for what it had failed with.
                        let sooner = now + self.timing.trigger_interval;
                        self.later.remove(&(at, *queue));
                        self.later.insert((sooner, *queue));
                        track.later = Some(sooner);
                    }
                }
            }
            Event::Now => {
                if self.timing.enabled {
                    // Somebody who asks for it does not want to wait for what failed.
                    self.queues.values_mut().for_each(Track::pardon);
                    self.next = Some(now);
                }
            }
            Event::Reloaded(timing) => self.reload(now, timing),
            Event::Examined(queue, plan) => self.examined(now, queue, &plan),
            Event::Finished { queue, step, outcome } => self.finished(now, queue, &step, outcome),
        }
        self.settle(now);
    }

    /// The next thing to do, if there is one now. Ask until there is none.
    pub fn order(&mut self, now: Timestamp) -> Option<Order> {
        self.begin(now);
        if let Some((queue, step)) = self.ready.pop_first() {
            self.running.insert(queue);
            return Some(Order::Perform(queue, step));
        }
        if self.running.len() + self.examining.len() >= self.timing.concurrency.max(1) {
            return None;
        }
        while let Some(queue) = self.todo.pop_first() {
            let Some(track) = self.queues.get(&queue) else { continue };
            if self.running.contains(&queue) {
                // It is looked at when its step has ended.
                continue;
            }
            if track.not_before > now {
                let until = track.not_before;
                self.put_off(queue, until);
                continue;
            }
            self.examining.insert(queue);
            return Some(Order::Examine(queue));
        }
        self.settle(now);
        None
    }

    /// When [`Scheduler::order`] has something next, if nothing else happens.
    pub fn deadline(&self) -> Option<Timestamp> {
        let later = self.later.first().map(|(at, _)| *at);
        // A pass that has not ended begins anew when it has.
        let next = self.next.filter(|_| self.pass.is_none());
        [later, next].into_iter().flatten().min()
    }

    /// The nodes that are passed over for a queue.
    pub fn avoided(&self, now: Timestamp, queue: QueueId) -> Vec<NodeId> {
        let track = self.queues.get(&queue);
        let avoided = track.into_iter().flat_map(|track| &track.avoided);
        avoided.filter(|(_, until)| **until > now).map(|(node, _)| *node).collect()
    }

    /// Whether a queue is led here.
    pub fn leads(&self, queue: QueueId) -> bool {
        self.queues.contains_key(&queue)
    }

    /// What there is to count.
    pub fn counts(&self) -> Counts {
        Counts {
            queues: self.queues.len() as u64,
            running: self.running.len() as u64,
            waiting: self.todo.len() as u64,
            next_pass: self.next,
            ..self.tally.counts()
        }
    }

    fn trigger(&mut self, now: Timestamp) {
        if !self.timing.enabled {
            return;
        }
        let first = *self.triggered.get_or_insert(now);
        let span = self.timing.trigger_interval;
        let latest = first + Millis(span.0.saturating_mul(PATIENCE));
        let at = (now + span).min(latest);
        self.next = Some(at);
    }

    fn reload(&mut self, now: Timestamp, timing: Timing) {
        self.timing = timing;
        self.triggered = None;
        if timing.enabled {
            self.queues.values_mut().for_each(Track::pardon);
            self.next = None;
            self.trigger(now);
            return;
        }
        // Steps that run are ended by those who run them.
        self.next = None;
        self.pass = None;
        self.todo.clear();
        self.ready.clear();
        self.later.clear();
        for track in self.queues.values_mut() {
            *track = Track::default();
        }
        self.tally.disabled();
    }

    /// Looks at a queue after a while.
    fn touch(&mut self, now: Timestamp, queue: QueueId, after: Millis) {
        self.put_off(queue, now + after);
    }

    fn put_off(&mut self, queue: QueueId, until: Timestamp) {
        if !self.timing.enabled {
            return;
        }
        let Some(track) = self.queues.get_mut(&queue) else { return };
        // The earlier one stays, or a stream of triggers would put it off for ever.
        if track.later.is_some_and(|at| at <= until) {
            return;
        }
        if let Some(at) = track.later.replace(until) {
            self.later.remove(&(at, queue));
        }
        self.later.insert((until, queue));
    }

    fn forget(&mut self, queue: QueueId) {
        if let Some(at) = self.queues.remove(&queue).and_then(|track| track.later) {
            self.later.remove(&(at, queue));
        }
        self.todo.remove(&queue);
        // Who looks at it may find that it is led elsewhere by now: that is an answer, too.
        self.examining.remove(&queue);
        self.ready.remove(&queue);
        self.tally.gone(queue);
    }

    /// Begins what is due.
    fn begin(&mut self, now: Timestamp) {
        while let Some((at, queue)) = self.later.first().copied().filter(|(at, _)| *at <= now) {
            self.later.remove(&(at, queue));
            if let Some(track) = self.queues.get_mut(&queue) {
                track.later = None;
                self.todo.insert(queue);
            }
        }
        if self.pass.is_none() && self.next.is_some_and(|next| next <= now) {
            self.pass = Some(now);
            self.next = None;
            self.triggered = None;
            self.todo.extend(self.queues.keys().copied());
        }
    }

    fn examined(&mut self, now: Timestamp, queue: QueueId, plan: &Plan) {
        let was_asked = self.examining.remove(&queue);
        if !was_asked || !self.timing.enabled || !self.queues.contains_key(&queue) {
            return;
        }
        self.tally.examined(queue, plan);
        if let Some(step) = &plan.step {
            self.ready.insert(queue, step.clone());
        }
        if !plan.is_settled() {
            self.touch(now, queue, self.timing.trigger_interval);
        }
    }

    fn finished(&mut self, now: Timestamp, queue: QueueId, step: &Step, outcome: Outcome) {
        self.running.remove(&queue);
        self.tally.finished(step.action.kind(), outcome);
        let (least, most) = (self.timing.trigger_interval, self.timing.interval);
        let Some(track) = self.queues.get_mut(&queue) else { return };
        match outcome {
            Outcome::Done => {
                track.failures = 0;
                track.not_before = Timestamp(0);
                track.avoided.retain(|_, until| *until > now);
                self.touch(now, queue, least);
            }
            Outcome::NotBegun => self.touch(now, queue, least),
            Outcome::Failed => {
                let factor = 1_u64 << track.failures.min(20);
                let span = Millis(least.0.saturating_mul(factor).min(most.0));
                track.failures += 1;
                track.not_before = now + span;
                if let Some(node) = step.action.relies_on() {
                    // Longer than the queue waits, so that another node has its turn.
                    let span = Millis(span.0.saturating_mul(2).min(most.0));
                    track.avoided.insert(node, now + span);
                }
                let until = track.not_before;
                self.put_off(queue, until);
            }
        }
    }

    /// Ends the pass, if every queue was looked at. It does not wait for the last steps, which may
    /// take long.
    fn settle(&mut self, now: Timestamp) {
        if !self.todo.is_empty() || !self.examining.is_empty() || !self.ready.is_empty() {
            return;
        }
        let Some(began) = self.pass.take() else { return };
        self.tally.passed(now, began);
        // Unless a trigger came meanwhile.
        if self.next.is_none() {
            self.rest(now);
        }
    }

    /// The next pass comes after the interval, give or take the jitter.
    fn rest(&mut self, now: Timestamp) {
        if !self.timing.enabled {
            self.next = None;
            return;
        }
        let span = i128::from(self.timing.interval.0);
        let span = span + span * i128::from(self.jitter) / 1000;
        self.next = Some(now + Millis(u64::try_from(span).unwrap_or(u64::MAX)));
    }
}
