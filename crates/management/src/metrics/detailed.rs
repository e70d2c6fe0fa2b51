//! `/metrics/per-object` and `/metrics/detailed`: one line per queue.

use std::collections::{BTreeMap, BTreeSet};

use metadata::state::State;
use model::id::QueueId;
use regex::Regex;

use super::family::{Families, float};
use crate::view::queue::QueueStats;

/// A number of a queue by the rest of its metric's name.
pub(super) type QueueGauge = (&'static str, &'static str, fn(&QueueStats) -> u64);

/// What is asked of `/metrics/detailed`.
#[derive(Debug, Default)]
pub struct Selection {
    /// The families.
    pub families: BTreeSet<String>,
    /// Only queues of these virtual hosts; all if empty.
    pub vhosts: Vec<String>,
    /// Only queues whose name matches.
    pub queue: Option<Regex>,
}

impl Selection {
    /// Whether a queue is chosen.
    pub fn has(&self, vhost: &str, queue: &str) -> bool {
        (self.vhosts.is_empty() || self.vhosts.iter().any(|one| one == vhost))
            && self.queue.as_ref().is_none_or(|pattern| pattern.is_match(queue))
    }
}

const COARSE: [QueueGauge; 3] = [
    ("messages_ready", "Messages ready to be delivered to consumers", |queue| queue.ready),
    ("messages_unacked", "Messages delivered to consumers but not yet acknowledged", |queue| {
        queue.unsettled
    }),
    ("messages", "Sum of ready and unacknowledged messages - total queue depth", |queue| {
        queue.messages()
    }),
];

const CONSUMERS: [QueueGauge; 1] = [("consumers", "Consumers on a queue", |queue| queue.consumers)];

const FINE: [QueueGauge; 9] = [
    ("process_memory_bytes", "Memory in bytes used by the queue", |queue| queue.memory),
    ("messages_ram", "Ready and unacknowledged messages stored in memory", |queue| queue.in_memory),
    ("messages_ram_bytes", "Size of ready and unacknowledged messages stored in memory", |queue| {
        queue.in_memory_bytes
    }),
    ("messages_persistent", "Persistent messages", |queue| queue.persistent),
    ("messages_persistent_bytes", "Size in bytes of persistent messages", |queue| {
        queue.persistent_bytes
    }),
    ("messages_bytes", "Size in bytes of ready and unacknowledged messages", |queue| {
        queue.message_bytes()
    }),
    ("messages_ready_bytes", "Size in bytes of ready messages", |queue| queue.ready_bytes),
    ("messages_unacked_bytes", "Size in bytes of all unacknowledged messages", |queue| {
        queue.unsettled_bytes
    }),
    ("head_message_timestamp", "Timestamp of the first message in the queue, if any", |queue| {
        queue.head_message_timestamp.unwrap_or(0)
    }),
];

const TOTALS: [QueueGauge; 2] = [
    ("disk_reads_total", "Total number of times queue read messages from disk", |queue| {
        queue.counters.disk_reads
    }),
    ("disk_writes_total", "Total number of times queue wrote messages to disk", |queue| {
        queue.counters.disk_writes
    }),
];

pub(super) const DELIVERY: [QueueGauge; 8] = [
    (
        "get_ack_total",
        "Total number of messages fetched from a queue with basic.get in manual acknowledgement mode",
        |queue| queue.counters.get,
    ),
    (
        "get_total",
        "Total number of messages fetched from a queue with basic.get in automatic acknowledgement mode",
        |queue| queue.counters.get_no_ack,
    ),
    (
        "messages_delivered_ack_total",
        "Total number of messages delivered from a queue to consumers in manual acknowledgement mode",
        |queue| queue.counters.deliver,
    ),
    (
        "messages_delivered_total",
        "Total number of messages delivered from a queue to consumers in automatic acknowledgement mode",
        |queue| queue.counters.deliver_no_ack,
    ),
    (
        "messages_redelivered_total",
        "Total number of messages redelivered from a queue to consumers",
        |queue| queue.counters.redeliver,
    ),
    (
        "messages_acked_total",
        "Total number of messages acknowledged by consumers on a queue",
        |queue| queue.counters.ack,
    ),
    (
        "get_empty_total",
        "Total number of times basic.get operations fetched no message on a queue",
        |queue| queue.counters.get_empty,
    ),
    ("messages_published_total", "Total number of messages published into a queue", |queue| {
        queue.counters.publish
    }),
];

/// The queues that a scrape shows, with their labels.
struct Shown<'a> {
    labels: Vec<(&'a str, &'a str)>,
    stats: &'a QueueStats,
}

/// Writes the families of queues.
pub fn queues(
    families: &mut Families,
    state: &State,
    stats: &BTreeMap<QueueId, QueueStats>,
    selection: &Selection,
) {
    let shown: Vec<Shown<'_>> = state
        .all_queues()
        .filter(|queue| selection.has(&queue.vhost, &queue.name))
        .filter_map(|queue| {
            let labels = vec![("vhost", &*queue.vhost), ("queue", &*queue.name)];
            Some(Shown { labels, stats: stats.get(&queue.id)? })
        })
        .collect();
    let mut gauges = |list: &[QueueGauge]| {
        for (name, help, value) in list {
            let lines = shown.iter().map(|one| (one.labels.clone(), float(value(one.stats))));
            families.gauges(&format!("rabbitmq_queue_{name}"), help, lines);
        }
    };
    let wants = |family: &str| selection.families.contains(family);
    if wants("queue_coarse_metrics") {
        gauges(&COARSE);
    }
    if wants("queue_consumer_count") || wants("queue_metrics") {
        gauges(&CONSUMERS);
    }
    if wants("queue_metrics") {
        gauges(&FINE);
    }
    let mut counters = |list: &[QueueGauge]| {
        for (name, help, value) in list {
            let lines = shown.iter().map(|one| (one.labels.clone(), value(one.stats)));
            families.counters(&format!("rabbitmq_queue_{name}"), help, lines);
        }
    };
    if wants("queue_metrics") {
        counters(&TOTALS);
    }
    if wants("queue_delivery_metrics") {
        counters(&DELIVERY);
    }
}
