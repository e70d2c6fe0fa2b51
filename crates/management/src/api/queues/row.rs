//! A queue in a list.
//!
//! Lists of ten thousand queues are asked for every few seconds by tools, so that a row becomes text
//! without a value for each of its hundred fields.

use std::borrow::Cow;

use amq_protocol_types::FieldTable;
use metadata::effective::QueuePolicies;
use metadata::objects::queue::Queue;
use metadata::state::State;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::api::{overview, stats};
use crate::census::{Census, Place};
use crate::http::object::{Item, Object};
use crate::http::table;
use crate::sampler::{Depth, Pair, Rates};
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
pub(super) struct Definition<'a> {
    queue: &'a Queue,
    policies: QueuePolicies,
    place: Cow<'a, Place>,
}

/// The same with what its owner knows of it.
pub(super) struct Row<'a> {
    definition: Definition<'a>,
    stats: &'a QueueStats,
    sampled: Pair<Totals>,
    exclusive_consumer_tag: Option<&'a str>,
    single_active_consumer_tag: Option<&'a str>,
    owner: Option<Owner<'a>>,
}

/// The connection that a queue belongs to.
#[derive(Serialize)]
struct Owner<'a> {
    name: &'a str,
    peer_host: &'a str,
    peer_port: u16,
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
            stats: &sight.stats,
            sampled,
            exclusive_consumer_tag: tag(|consumer| consumer.exclusive),
            single_active_consumer_tag: tag(|consumer| {
                consumer.activity == ConsumerActivity::SingleActive
            }),
            owner: owner.map(|owner| Owner {
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
        Self { queue, policies: state.queue_policies(queue), place }
    }

    fn put(&self, to: &mut Object<'_>) {
        let Self { queue, policies, place } = self;
        to.put("name", &*queue.name);
        to.put("vhost", &*queue.vhost);
        to.put("type", queue.kind.as_str());
        to.put("durable", &queue.durable);
        to.put("auto_delete", &queue.auto_delete);
        to.put("exclusive", &queue.exclusive_owner.is_some());
        to.put("arguments", &Arguments(&queue.arguments));
        to.put("policy", &policies.policy);
        to.put("operator_policy", &policies.operator_policy);
        to.put("effective_policy_definition", &policies.definition);
        to.put("node", &place.node);
        to.put("leader", &place.leader);
        to.put("members", &place.members);
        to.put("online", &place.online);
        to.put("storage_version", &2);
        to.put("user_who_performed_action", &*queue.user_who_performed_action);
    }
}

impl Row<'_> {
    fn put_contents(&self, to: &mut Object<'_>) {
        let stats = self.stats;
        let rate = |value: fn(&Depth) -> u64| self.sampled.change(|(_, depth)| value(depth));
        let capacity = if stats.consumers == 0 { 0.0 } else { stats.consumer_capacity };
        let (messages, bytes) = (stats.messages(), stats.message_bytes());
        to.put("state", stats.state.as_str());
        to.put("consumers", &stats.consumers);
        to.put("consumer_capacity", &capacity);
        to.put("consumer_utilisation", &capacity);
        to.put("messages", &messages);
        to.rate("messages_details", rate(|depth| depth.ready + depth.unsettled));
        to.put("messages_ready", &stats.ready);
        to.rate("messages_ready_details", rate(|depth| depth.ready));
        to.put("messages_unacknowledged", &stats.unsettled);
        to.rate("messages_unacknowledged_details", rate(|depth| depth.unsettled));
        to.put("messages_ram", &stats.in_memory);
        to.put("messages_ready_ram", &stats.in_memory);
        to.put("messages_unacknowledged_ram", &0);
        to.put("messages_persistent", &stats.persistent);
        to.put("messages_delayed", &stats.delayed);
        to.put("messages_dlx", &stats.dead);
        to.put("messages_paged_out", &messages.saturating_sub(stats.in_memory));
        to.put("message_bytes", &bytes);
        to.put("message_bytes_ready", &stats.ready_bytes);
        to.put("message_bytes_unacknowledged", &stats.unsettled_bytes);
        to.put("message_bytes_ram", &stats.in_memory_bytes);
        to.put("message_bytes_persistent", &stats.persistent_bytes);
        to.put("message_bytes_dlx", &stats.dead_bytes);
        to.put("message_bytes_paged_out", &bytes.saturating_sub(stats.in_memory_bytes));
        to.put("memory", &stats.memory);
        to.put("reductions", &0);
        to.rate("reductions_details", 0.0);
        to.put("head_message_timestamp", &stats.head_message_timestamp);
        to.put("oldest_ready_at", &stats.oldest_ready_ms);
        to.put("oldest_unacknowledged_at", &stats.oldest_unsettled_ms);
        to.put("garbage_collection", &stats::NO_GARBAGE);
        put_totals(to, &stats.counters, &self.sampled);
        to.put_some("idle_since", stats.idle_since_ms.map(overview::date).as_ref());
    }
}

/// What has happened, with its rates.
fn put_totals(to: &mut Object<'_>, counters: &MessageCounters, sampled: &Pair<Totals>) {
    let mut shown = to.object("message_stats");
    for group in stats::QUEUE {
        if group.iter().all(|(_, _, value)| value(counters) == 0) {
            continue;
        }
        for (name, details, value) in group {
            shown.put(name, &value(counters));
            shown.rate(details, sampled.change(|(counters, _)| value(counters)).max(0.0));
        }
    }
    shown.end();
}

impl Item for Definition<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = Object::begin(out);
        self.put(&mut object);
        object.end();
    }

    fn value(&self) -> Value {
        parsed(self)
    }
}

impl Item for Row<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = Object::begin(out);
        self.definition.put(&mut object);
        self.put_contents(&mut object);
        object.put("exclusive_consumer_tag", &self.exclusive_consumer_tag);
        object.put("single_active_consumer_tag", &self.single_active_consumer_tag);
        object.put_some("owner_pid_details", self.owner.as_ref());
        object.end();
    }

    fn value(&self) -> Value {
        parsed(self)
    }
}

fn parsed(item: &impl Item) -> Value {
    let mut text = Vec::new();
    item.write(&mut text);
    serde_json::from_slice(&text).expect("it was just written")
}

/// Arguments as clients of the API give them.
struct Arguments<'a>(&'a FieldTable);

impl Serialize for Arguments<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(
            self.0.into_iter().map(|(key, value)| (key.as_str(), table::value_to_json(value))),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The totals that are shown, without their rates.
    fn shown(counters: MessageCounters) -> Vec<String> {
        let mut text = Vec::new();
        let mut object = Object::begin(&mut text);
        put_totals(&mut object, &counters, &Pair::default());
        object.end();
        let shown: Value = serde_json::from_slice(&text).unwrap();
        let shown = shown["message_stats"].as_object().unwrap();
        let (rates, names): (Vec<_>, Vec<_>) =
            shown.keys().cloned().partition(|name| name.ends_with("_details"));
        assert_eq!(rates.len(), names.len());
        names
    }

    #[test]
    fn totals_are_shown_in_groups_once_something_has_happened() {
        let nothing = MessageCounters::default();
        assert!(shown(nothing).is_empty());
        let published = MessageCounters { publish: 1, disk_writes: 1, ..nothing };
        assert_eq!(shown(published), ["disk_reads", "disk_writes", "publish"]);
        let names = [
            "ack",
            "deliver",
            "deliver_get",
            "deliver_no_ack",
            "get",
            "get_empty",
            "get_no_ack",
            "redeliver",
        ];
        assert_eq!(shown(MessageCounters { get_empty: 1, ..nothing }), names);
        assert_eq!(shown(MessageCounters { deliver: 1, ..nothing }), names);
    }
}
