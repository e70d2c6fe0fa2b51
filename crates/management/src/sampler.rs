//! Rates: what a total grew by, per second, between the last two samples.
//!
//! ```text
//!   total   0 ───── 50 ───── 50 ───── 150
//!   time    0 s     5 s      10 s     15 s
//!   rate        10       0        20          (finite, never negative)
//! ```
//!
//! The driver takes a sample of everything every [`INTERVAL`] or more rarely, if that takes long (of a
//! cluster, while somebody looks);
//! readers see the last two. An object
//! that was not there at the last sample but one has rates of 0.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::id::{ConnectionId, QueueId};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::census::{self, Names, NodeSight};
use crate::clock::now_ms;
use crate::view::counters::{ChurnCounters, ExchangeCounters, MessageCounters};
use crate::view::part::{Part, QueuePart};

/// Time between two samples.
pub const INTERVAL: Duration = Duration::from_secs(5);

/// A sample of ten thousand queues takes all nodes a while: then samples are as rare as it takes for
/// them to take no more than one part of so many, of the time.
const SHARE: u32 = 1500;

/// But not rarer than this.
const INTERVAL_MAX: Duration = Duration::from_mins(1);

/// How long after the last look at rates samples of a cluster are still taken.
const WATCHED: Duration = Duration::from_mins(5);

/// Samples of the whole that are kept for charts: ten minutes.
const HISTORY: usize = 120;

/// How long after the beginning of a sample that took so long the next one begins.
pub fn interval(took: Duration) -> Duration {
    took.saturating_mul(SHARE).clamp(INTERVAL, INTERVAL_MAX)
}

/// All totals at one moment.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// When.
    pub at_ms: u64,
    /// Each node of the cluster, by name.
    pub nodes: BTreeMap<String, NodeSight>,
    /// The cluster's messages: the sum of them, made when the sample is taken in.
    pub messages: MessageCounters,
    /// The cluster's comings and goings, in the same way.
    pub churn: ChurnCounters,
    /// All queues together: ready and unsettled.
    pub depth: Depth,
    /// Queues.
    pub queues: BTreeMap<QueueId, (MessageCounters, Depth)>,
    /// Exchanges by virtual host and name.
    pub exchanges: BTreeMap<(String, String), ExchangeCounters>,
    /// Connections: bytes received and sent.
    pub connections: BTreeMap<ConnectionId, (u64, u64)>,
    /// Channels.
    pub channels: BTreeMap<(ConnectionId, u16), MessageCounters>,
}

impl Sample {
    /// What nodes said. If two say that they lead a queue, the higher term is right.
    pub fn of(at_ms: u64, parts: Vec<Part>, names: &Names) -> Self {
        let exchanges = census::exchanges(&parts);
        let mut sample = Self { at_ms, exchanges, ..Self::default() };
        let mut claims = Vec::new();
        for part in parts {
            claims.extend(part.queues.iter().map(|QueuePart { id, term, stats, .. }| {
                let depth = Depth { ready: stats.ready, unsettled: stats.unsettled };
                ((*id, *term), (stats.counters, depth))
            }));
            let connections = part.connections.iter();
            sample
                .connections
                .extend(connections.map(|one| (one.id, (one.received_bytes, one.sent_bytes))));
            let channels = part.channels.iter();
            sample
                .channels
                .extend(channels.map(|one| ((one.connection, one.number), one.counters)));
            let (messages, churn, stats) = (part.messages, part.churn, part.node);
            sample.nodes.insert(names.of(part.id).to_owned(), NodeSight { messages, churn, stats });
        }
        claims.sort_unstable_by_key(|(claim, _)| *claim);
        // Of equal keys the last one stays.
        sample.queues = claims.into_iter().map(|((id, _), totals)| (id, totals)).collect();
        for (_, depth) in sample.queues.values() {
            sample.depth.ready += depth.ready;
            sample.depth.unsettled += depth.unsettled;
        }
        sample
    }
}

/// How many messages there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depth {
    /// Waiting.
    pub ready: u64,
    /// Held by clients.
    pub unsettled: u64,
}

/// The totals at one moment, for charts.
#[derive(Debug, Clone, Copy)]
struct Point {
    at_ms: u64,
    messages: MessageCounters,
    depth: Depth,
}

/// Where the newest rates are found. Readers keep what they have read while the sampler goes on.
#[derive(Debug, Default)]
pub struct Board {
    rates: Mutex<Arc<Rates>>,
    /// When somebody looked last, in milliseconds since the Unix epoch.
    looked: AtomicU64,
}

impl Board {
    /// The rates as of the last sample.
    pub fn read(&self) -> Arc<Rates> {
        Arc::clone(&self.rates.lock())
    }

    /// The same, for somebody who may want to see more of them.
    pub fn look(&self) -> Arc<Rates> {
        self.looked.store(now_ms(), Ordering::Relaxed);
        self.read()
    }

    /// Whether somebody has looked lately: samples of a whole cluster cost all of its nodes
    /// something, and nothing while nobody looks.
    pub fn is_watched(&self) -> bool {
        let looked = Duration::from_millis(self.looked.load(Ordering::Relaxed));
        Duration::from_millis(now_ms()).saturating_sub(looked) <= WATCHED
    }

    /// Takes a sample.
    pub fn push(&self, sample: Sample) {
        let mut rates = Rates::clone(&self.read());
        rates.push(sample);
        *self.rates.lock() = Arc::new(rates);
    }
}

/// The last two samples, and a history of the node's totals.
#[derive(Debug, Clone, Default)]
pub struct Rates {
    previous: Arc<Sample>,
    latest: Arc<Sample>,
    history: VecDeque<Point>,
}

impl Rates {
    /// Takes a sample. One that is not later than the last one is dropped.
    pub fn push(&mut self, mut sample: Sample) {
        if sample.at_ms <= self.latest.at_ms {
            return;
        }
        // A node that has not answered this time has not lost what it did.
        for (name, node) in &self.latest.nodes {
            sample.nodes.entry(name.clone()).or_insert_with(|| node.clone());
        }
        for node in sample.nodes.values() {
            sample.messages.add(&node.messages);
            sample.churn.add(&node.churn);
        }
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(Point {
            at_ms: sample.at_ms,
            messages: sample.messages,
            depth: sample.depth,
        });
        self.previous = std::mem::replace(&mut self.latest, Arc::new(sample));
    }

    /// Growth per second of something between the two samples; 0 where it cannot be known.
    pub fn of(&self, total: impl Fn(&Sample) -> Option<u64>) -> f64 {
        self.change(total).max(0.0)
    }

    /// As [`Rates::of`], for numbers that may fall.
    pub fn change(&self, total: impl Fn(&Sample) -> Option<u64>) -> f64 {
        if self.previous.at_ms == 0 {
            return 0.0;
        }
        let elapsed_ms = self.latest.at_ms.saturating_sub(self.previous.at_ms);
        let (Some(before), Some(after)) = (total(&self.previous), total(&self.latest)) else {
            return 0.0;
        };
        rate(before, after, elapsed_ms)
    }

    /// Something made of each of the two samples.
    pub fn map<T>(&self, make: impl Fn(&Sample) -> T) -> Pair<T> {
        let elapsed_ms = match self.previous.at_ms {
            0 => 0,
            before => self.latest.at_ms.saturating_sub(before),
        };
        Pair { before: make(&self.previous), after: make(&self.latest), elapsed_ms }
    }

    /// Samples of the node's totals of the last `age_s` seconds, oldest first.
    pub fn history(
        &self,
        age_s: u64,
        value: impl Fn(&MessageCounters, &Depth) -> u64,
    ) -> Vec<(u64, u64)> {
        let from = self.latest.at_ms.saturating_sub(age_s.saturating_mul(1000));
        let points = self.history.iter().filter(|point| point.at_ms >= from);
        points.map(|point| (point.at_ms, value(&point.messages, &point.depth))).collect()
    }
}

/// Something made of two samples, and the time between them.
#[derive(Debug, Clone, Default)]
pub struct Pair<T> {
    before: T,
    after: T,
    elapsed_ms: u64,
}

impl<T> Pair<T> {
    /// Growth or fall per second; 0 if there are no two samples yet.
    pub fn change(&self, total: impl Fn(&T) -> u64) -> f64 {
        rate(total(&self.before), total(&self.after), self.elapsed_ms)
    }
}

impl<T: Default> Pair<Option<T>> {
    /// What both samples have; otherwise nothing that changes.
    pub fn of_both(self) -> Pair<T> {
        match (self.before, self.after) {
            (Some(before), Some(after)) => Pair { before, after, elapsed_ms: self.elapsed_ms },
            _ => Pair::default(),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates are shown with a few digits")]
fn rate(before: u64, after: u64, elapsed_ms: u64) -> f64 {
    if elapsed_ms == 0 {
        return 0.0;
    }
    let grown = after as f64 - before as f64;
    grown * 1000.0 / elapsed_ms as f64
}

/// The `*_details` object of a rate.
pub fn details(rate: f64) -> Value {
    json!({ "rate": rate })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::queue::QueueStats;
    use model::id::NodeId;

    fn published(publish: u64) -> NodeSight {
        let messages = MessageCounters { publish, ..MessageCounters::default() };
        NodeSight { messages, ..NodeSight::default() }
    }

    fn sample(at_ms: u64, publish: u64) -> Sample {
        Sample {
            at_ms,
            nodes: BTreeMap::from([("a".to_owned(), published(publish))]),
            ..Sample::default()
        }
    }

    #[test]
    fn the_leader_of_the_higher_term_is_right() {
        let part = |node, term, ready| Part {
            queues: vec![QueuePart {
                id: QueueId(7),
                term,
                stats: QueueStats { ready, ..QueueStats::default() },
                voters: Vec::new(),
                learners: Vec::new(),
                consumers: Vec::new(),
            }],
            ..Part::empty(NodeId(node))
        };
        let names = Names::new("a".into(), BTreeMap::from([(NodeId(1), "a".into())]));
        let parts = vec![part(1, 2, 10), part(2, 4, 30), part(3, 3, 20)];
        let sample = Sample::of(1, parts, &names);
        assert_eq!(sample.queues[&QueueId(7)].1.ready, 30);
        assert_eq!(sample.depth.ready, 30);
    }

    #[test]
    fn rates_are_growth_per_second() {
        let mut rates = Rates::default();
        let publish = |sample: &Sample| Some(sample.messages.publish);
        assert!(rates.of(publish) == 0.0);
        rates.push(sample(1_000, 50));
        assert!(rates.of(publish) == 0.0, "one sample gives no rate");
        rates.push(sample(6_000, 100));
        assert!((rates.of(publish) - 10.0).abs() < 1e-9);
        assert_eq!(rates.history(60, |messages, _| messages.publish), [(1_000, 50), (6_000, 100)]);
    }

    #[test]
    fn a_node_that_misses_a_sample_makes_no_rate() {
        let mut rates = Rates::default();
        let publish = |sample: &Sample| Some(sample.messages.publish);
        let with = |at_ms, b: Option<u64>| {
            let mut sample = sample(at_ms, 100);
            sample.nodes.extend(b.map(|b| ("b".to_owned(), published(b))));
            sample
        };
        rates.push(with(1_000, Some(5_000)));
        rates.push(with(2_000, None));
        assert!(rates.change(publish) == 0.0);
        rates.push(with(3_000, Some(5_010)));
        assert!((rates.change(publish) - 10.0).abs() < 1e-9);
    }

    #[test]
    fn rates_are_finite_and_never_negative() {
        let mut rates = Rates::default();
        let publish = |sample: &Sample| Some(sample.messages.publish);
        rates.push(sample(1_000, 50));
        rates.push(sample(1_000, 90));
        rates.push(sample(2_000, 20));
        assert!(rates.of(publish) == 0.0);
        assert!(rates.change(publish) < 0.0);
        assert!(rates.of(|_| None) == 0.0);
    }

    #[test]
    fn samples_that_take_long_are_rare() {
        assert_eq!(interval(Duration::from_millis(3)), INTERVAL);
        assert_eq!(interval(Duration::from_millis(10)), Duration::from_secs(15));
        assert_eq!(interval(Duration::from_hours(1)), INTERVAL_MAX);
    }

    #[test]
    fn what_one_sample_lacks_does_not_change() {
        let pair = |before, after| Pair { before, after, elapsed_ms: 1000 };
        assert_eq!(pair(None, Some(5)).of_both().change(|it: &u64| *it).to_bits(), 0);
        assert_eq!(pair(Some(5), None).of_both().change(|it: &u64| *it).to_bits(), 0);
        assert_eq!(pair(Some(2), Some(5)).of_both().change(|it| *it).to_bits(), 3.0_f64.to_bits());
    }
}
