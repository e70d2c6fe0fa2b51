//! A queue in a list.
//!
//! Lists of ten thousand queues are asked for every few seconds by tools, so that a row becomes text
//! without a value for each of its hundred fields.

use std::borrow::Cow;

use amq_protocol_types::FieldTable;
use metadata::effective::QueuePolicies;
use metadata::objects::queue::Queue;
use metadata::state::State;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::api::{overview, stats};
use crate::census::{Census, Place};
use crate::http::table;
use crate::sampler::{Depth, Pair, Rate, Rates};
use crate::view::consumer::{ConsumerActivity, ConsumerInfo};
use crate::view::counters::MessageCounters;
use crate::view::queue::QueueStats;

/// Makes rows.
pub(super) struct Lister<'a> {
    census: Census,
    state: &'a State,
    rates: &'a Rates,
}

/// What the topology knows of a queue, and where it is.
#[derive(Serialize)]
pub(super) struct Definition<'a> {
    name: &'a str,
    vhost: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    durable: bool,
    auto_delete: bool,
    exclusive: bool,
    #[serde(serialize_with = "arguments")]
    arguments: &'a FieldTable,
    policy: Option<metadata::objects::Name>,
    operator_policy: Option<metadata::objects::Name>,
    #[serde(rename = "effective_policy_definition")]
    merged_policy: Map<String, Value>,
    #[serde(flatten)]
    place: Cow<'a, Place>,
    storage_version: u8,
    user_who_performed_action: &'a str,
}

/// The same with what its owner knows of it.
#[derive(Serialize)]
pub(super) struct Row<'a> {
    #[serde(flatten)]
    definition: Definition<'a>,
    #[serde(flatten)]
    contents: Contents<'a>,
    exclusive_consumer_tag: Option<&'a str>,
    single_active_consumer_tag: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_pid_details: Option<Owner<'a>>,
}

/// The connection that a queue belongs to.
#[derive(Serialize)]
struct Owner<'a> {
    name: &'a str,
    peer_host: &'a str,
    peer_port: u16,
}

/// What a queue holds and does.
#[derive(Serialize)]
struct Contents<'a> {
    state: &'static str,
    consumers: u64,
    consumer_capacity: f64,
    consumer_utilisation: f64,
    messages: u64,
    messages_details: Rate,
    messages_ready: u64,
    messages_ready_details: Rate,
    messages_unacknowledged: u64,
    messages_unacknowledged_details: Rate,
    messages_ram: u64,
    messages_ready_ram: u64,
    messages_unacknowledged_ram: u64,
    messages_persistent: u64,
    messages_delayed: u64,
    messages_dlx: u64,
    messages_paged_out: u64,
    message_bytes: u64,
    message_bytes_ready: u64,
    message_bytes_unacknowledged: u64,
    message_bytes_ram: u64,
    message_bytes_persistent: u64,
    message_bytes_dlx: u64,
    message_bytes_paged_out: u64,
    memory: u64,
    reductions: u64,
    reductions_details: Rate,
    head_message_timestamp: Option<u64>,
    oldest_ready_at: Option<u64>,
    oldest_unacknowledged_at: Option<u64>,
    garbage_collection: stats::NoGarbage,
    #[serde(serialize_with = "totals")]
    message_stats: (&'a MessageCounters, Pair<Totals>),
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_since: Option<String>,
}

/// What a sample has of a queue.
type Totals = (MessageCounters, Depth);

impl<'a> Lister<'a> {
    pub(super) fn of(mut census: Census, state: &'a State, rates: &'a Rates) -> Self {
        census.consumers.sort_by(|one, other| place(one).cmp(&place(other)));
        Self { census, state, rates }
    }

    /// A queue; `None` if it was declared after the others were asked.
    pub(super) fn row<'r>(&'r self, queue: &'r Queue) -> Option<Row<'r>> {
        let sight = self.census.queues.get(&queue.id)?;
        let consumers = self.consumers(queue);
        let tag = |wanted: fn(&ConsumerInfo) -> bool| {
            consumers.iter().find(|consumer| wanted(consumer)).map(|consumer| &*consumer.tag)
        };
        let owner = queue.exclusive_owner.and_then(|owner| self.census.clients.get(&owner));
        let sampled = self.rates.map(|sample| sample.queues.get(&queue.id).copied()).of_both();
        Some(Row {
            definition: Definition::of(self.state, queue, Cow::Borrowed(&sight.place)),
            contents: Contents::of(&sight.stats, sampled),
            exclusive_consumer_tag: tag(|consumer| consumer.exclusive),
            single_active_consumer_tag: tag(|consumer| {
                consumer.activity == ConsumerActivity::SingleActive
            }),
            owner_pid_details: owner.map(|owner| Owner {
                name: &owner.name,
                peer_host: &owner.peer_host,
                peer_port: owner.peer_port,
            }),
        })
    }

    fn consumers(&self, queue: &Queue) -> &[ConsumerInfo] {
        let all = &self.census.consumers;
        let wanted = (&*queue.vhost, &*queue.name);
        let from = all.partition_point(|consumer| place(consumer) < wanted);
        let count = all[from..].partition_point(|consumer| place(consumer) == wanted);
        &all[from..from + count]
    }
}

/// The queue that a consumer is at.
fn place(consumer: &ConsumerInfo) -> (&str, &str) {
    (&consumer.vhost, &consumer.queue)
}

impl<'a> Definition<'a> {
    pub(super) fn of(state: &State, queue: &'a Queue, place: Cow<'a, Place>) -> Self {
        let QueuePolicies { policy, operator_policy, definition } = state.queue_policies(queue);
        Self {
            name: &queue.name,
            vhost: &queue.vhost,
            kind: queue.kind.as_str(),
            durable: queue.durable,
            auto_delete: queue.auto_delete,
            exclusive: queue.exclusive_owner.is_some(),
            arguments: &queue.arguments,
            policy,
            operator_policy,
            merged_policy: definition,
            place,
            storage_version: 2,
            user_who_performed_action: &queue.user_who_performed_action,
        }
    }
}

impl<'a> Contents<'a> {
    fn of(stats: &'a QueueStats, sampled: Pair<Totals>) -> Self {
        let depth = |value: fn(&Depth) -> u64| Rate::new(sampled.change(|(_, depth)| value(depth)));
        let capacity = if stats.consumers == 0 { 0.0 } else { stats.consumer_capacity };
        let (messages, bytes) = (stats.messages(), stats.message_bytes());
        Self {
            state: stats.state.as_str(),
            consumers: stats.consumers,
            consumer_capacity: capacity,
            consumer_utilisation: capacity,
            messages,
            messages_details: depth(|depth| depth.ready + depth.unsettled),
            messages_ready: stats.ready,
            messages_ready_details: depth(|depth| depth.ready),
            messages_unacknowledged: stats.unsettled,
            messages_unacknowledged_details: depth(|depth| depth.unsettled),
            messages_ram: stats.in_memory,
            messages_ready_ram: stats.in_memory,
            messages_unacknowledged_ram: 0,
            messages_persistent: stats.persistent,
            messages_delayed: stats.delayed,
            messages_dlx: stats.dead,
            messages_paged_out: messages.saturating_sub(stats.in_memory),
            message_bytes: bytes,
            message_bytes_ready: stats.ready_bytes,
            message_bytes_unacknowledged: stats.unsettled_bytes,
            message_bytes_ram: stats.in_memory_bytes,
            message_bytes_persistent: stats.persistent_bytes,
            message_bytes_dlx: stats.dead_bytes,
            message_bytes_paged_out: bytes.saturating_sub(stats.in_memory_bytes),
            memory: stats.memory,
            reductions: 0,
            reductions_details: Rate::new(0.0),
            head_message_timestamp: stats.head_message_timestamp,
            oldest_ready_at: stats.oldest_ready_ms,
            oldest_unacknowledged_at: stats.oldest_unsettled_ms,
            garbage_collection: stats::NO_GARBAGE,
            message_stats: (&stats.counters, sampled),
            idle_since: stats.idle_since_ms.map(overview::date),
        }
    }
}

fn arguments<S: Serializer>(arguments: &FieldTable, to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(None)?;
    for (key, value) in arguments {
        map.serialize_entry(key.as_str(), &table::value_to_json(value))?;
    }
    map.end()
}

fn totals<S: Serializer>(
    (counters, sampled): &(&MessageCounters, Pair<Totals>),
    to: S,
) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(None)?;
    for (name, details, value) in stats::MESSAGES {
        map.serialize_entry(name, &value(counters))?;
        let rate = sampled.change(|(counters, _)| value(counters));
        map.serialize_entry(details, &Rate::new(rate.max(0.0)))?;
    }
    map.end()
}
