//! `/queues`.

use std::collections::BTreeMap;

use amq_protocol_types::AMQPValue;
use metadata::objects::queue::Queue;
use metadata::state::State;
use model::id::QueueId;
use serde_json::{Value, json};

use super::call::Call;
use super::{consumers, stats};
use crate::census::{Census, Place};
use crate::http::answer::Answer;
use crate::http::failure::{Failure, Outcome};
use crate::http::{self, list, table};
use crate::inquiry::Wanted;
use crate::node::Node;
use crate::sampler::{Depth, Rates, details};
use crate::view::consumer::{ConsumerActivity, ConsumerInfo};
use crate::view::queue::QueueStats;
use crate::view::topology::{QueueDeclaration, QueueDeletion};

/// `GET /queues`, `/queues/VHOST`.
pub(super) async fn list<N: Node>(call: &Call<'_, N>, vhost: Option<&str>) -> Outcome<Answer> {
    let vhosts = call.vhosts(vhost)?;
    let queues = vhosts.iter().flat_map(|vhost| call.state.queues(&vhost.name));
    if call.query.is_true("disable_stats") && !call.query.is_true("enable_queue_totals") {
        let names = call.node.names();
        let items =
            queues.map(|queue| definition(&call.state, queue, &Place::declared(queue, &names)));
        return list::respond(items, &call.query);
    }
    let parts = Parts::of(call.node.census(Wanted::QUEUES).await);
    let rates = &*call.rates;
    let items = queues.filter_map(|queue| parts.show(&call.state, queue, rates));
    list::respond(items, &call.query)
}

/// `GET /queues/VHOST/NAME`.
pub(super) async fn get<N: Node>(call: &Call<'_, N>, vhost: &str, name: &str) -> Outcome<Answer> {
    let queue = find(call, vhost, name)?;
    let census = call.node.census(Wanted::queue(queue.id)).await;
    let shown: Value = census.consumers.iter().map(consumers::show).collect();
    let parts = Parts::of(census);
    let mut item = parts.show(&call.state, queue, &call.rates).ok_or_else(Failure::not_found)?;
    item["consumer_details"] = shown;
    item["incoming"] = json!([]);
    item["deliveries"] = json!([]);
    Ok(list::one(item, &call.query))
}

/// `PUT /queues/VHOST/NAME`.
pub(super) async fn put<N: Node>(call: &Call<'_, N>, vhost: &str, name: &str) -> Outcome<Answer> {
    call.inside(vhost)?;
    let queue = http::name::name("queue", name.to_owned())?;
    let mut arguments = table::from_json(&call.body.object("arguments")?)?;
    // rabbitmqadmin sends the type beside the arguments.
    if call.body.get("queue_type").is_some() && !arguments.contains_key("x-queue-type") {
        let kind = AMQPValue::LongString(call.body.text("queue_type")?.into());
        arguments.insert("x-queue-type".into(), kind);
    }
    let declaration = QueueDeclaration {
        vhost: vhost.to_owned(),
        queue,
        durable: call.body.flag("durable", false)?,
        auto_delete: call.body.flag("auto_delete", false)?,
        arguments,
        user: call.by().to_owned(),
    };
    Ok(Answer::put(call.node.declare_queue(declaration).await?))
}

/// `DELETE /queues/VHOST/NAME`.
pub(super) async fn delete<N: Node>(
    call: &Call<'_, N>,
    vhost: &str,
    name: &str,
) -> Outcome<Answer> {
    call.inside(vhost)?;
    find(call, vhost, name)?;
    let deletion = QueueDeletion {
        vhost: vhost.to_owned(),
        queue: name.to_owned(),
        if_unused: call.query.is_true("if-unused"),
        if_empty: call.query.is_true("if-empty"),
        user: call.by().to_owned(),
    };
    call.node.delete_queue(deletion).await?;
    Ok(Answer::Done)
}

/// `DELETE /queues/VHOST/NAME/contents`.
pub(super) async fn purge<N: Node>(call: &Call<'_, N>, vhost: &str, name: &str) -> Outcome<Answer> {
    call.inside(vhost)?;
    find(call, vhost, name)?;
    call.node.purge_queue(vhost, name, call.by()).await?;
    Ok(Answer::Done)
}

/// `POST /queues/VHOST/NAME/actions`: those of mirrored queues, which are no more.
pub(super) fn act<N: Node>(call: &Call<'_, N>, vhost: &str, name: &str) -> Outcome<Answer> {
    call.inside(vhost)?;
    find(call, vhost, name)?;
    match call.body.text("action")?.as_str() {
        "sync" | "cancel_sync" => Ok(Answer::Done),
        other => Err(Failure::bad_request(format!("not_an_action: {other}"))),
    }
}

/// A queue that may be seen.
pub(super) fn find<'a, N: Node>(
    call: &'a Call<'_, N>,
    vhost: &str,
    name: &str,
) -> Outcome<&'a Queue> {
    call.visible(vhost)?;
    call.state.queue(vhost, name).map(AsRef::as_ref).ok_or_else(Failure::not_found)
}

/// All that is needed to show queues.
struct Parts {
    census: Census,
    consumers: BTreeMap<(String, String), Vec<ConsumerInfo>>,
}

impl Parts {
    fn of(mut census: Census) -> Self {
        let mut consumers: BTreeMap<_, Vec<ConsumerInfo>> = BTreeMap::new();
        for consumer in std::mem::take(&mut census.consumers) {
            let queue = (consumer.vhost.clone(), consumer.queue.clone());
            consumers.entry(queue).or_default().push(consumer);
        }
        Self { census, consumers }
    }

    /// A queue; `None` if it was declared after the others were asked.
    fn show(&self, state: &State, queue: &Queue, rates: &Rates) -> Option<Value> {
        let sight = self.census.queues.get(&queue.id)?;
        let mut item = definition(state, queue, &sight.place);
        add_stats(&mut item, queue.id, &sight.stats, rates);
        let key = (queue.vhost.to_string(), queue.name.to_string());
        let consumers = self.consumers.get(&key).map_or(&[][..], Vec::as_slice);
        let tag = |wanted: &dyn Fn(&ConsumerInfo) -> bool| {
            consumers.iter().find(|consumer| wanted(consumer)).map(|consumer| &consumer.tag)
        };
        item["exclusive_consumer_tag"] = json!(tag(&|consumer| consumer.exclusive));
        item["single_active_consumer_tag"] =
            json!(tag(&|consumer| consumer.activity == ConsumerActivity::SingleActive));
        let owner = queue.exclusive_owner.and_then(|owner| self.census.clients.get(&owner));
        if let Some(owner) = owner {
            item["owner_pid_details"] = json!({
                "name": owner.name, "peer_host": owner.peer_host, "peer_port": owner.peer_port,
            });
        }
        Some(item)
    }
}

/// What the topology knows of a queue, and where it is.
pub(super) fn definition(state: &State, queue: &Queue, place: &Place) -> Value {
    let settings = state.effective_queue(queue);
    json!({
        "name": &*queue.name,
        "vhost": &*queue.vhost,
        "type": queue.kind.as_str(),
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.exclusive_owner.is_some(),
        "arguments": table::to_json(&queue.arguments),
        "policy": settings.policy.as_deref(),
        "operator_policy": settings.operator_policy.as_deref(),
        "effective_policy_definition": settings.effective_policy_definition,
        "node": place.node,
        "leader": place.leader,
        "members": place.members,
        "online": place.online,
        "storage_version": 2,
        "user_who_performed_action": &*queue.user_who_performed_action,
    })
}

/// Adds what a queue's owner knows of it.
fn add_stats(item: &mut Value, id: QueueId, stats: &QueueStats, rates: &Rates) {
    let sampled = rates.map(|sample| sample.queues.get(&id).copied()).of_both();
    let depth = |value: fn(&Depth) -> u64| details(sampled.change(|(_, depth)| value(depth)));
    let capacity = if stats.consumers == 0 { 0.0 } else { stats.consumer_capacity };
    let Value::Object(item) = item else { return };
    let Value::Object(added) = json!({
        "state": stats.state.as_str(),
        "consumers": stats.consumers,
        "consumer_capacity": capacity,
        "consumer_utilisation": capacity,
        "messages": stats.messages(),
        "messages_details": depth(|depth| depth.ready + depth.unsettled),
        "messages_ready": stats.ready,
        "messages_ready_details": depth(|depth| depth.ready),
        "messages_unacknowledged": stats.unsettled,
        "messages_unacknowledged_details": depth(|depth| depth.unsettled),
        "messages_ram": stats.in_memory,
        "messages_ready_ram": stats.in_memory,
        "messages_unacknowledged_ram": 0,
        "messages_persistent": stats.persistent,
        "messages_delayed": stats.delayed,
        "messages_dlx": stats.dead,
        "messages_paged_out": stats.messages().saturating_sub(stats.in_memory),
        "message_bytes": stats.message_bytes(),
        "message_bytes_ready": stats.ready_bytes,
        "message_bytes_unacknowledged": stats.unsettled_bytes,
        "message_bytes_ram": stats.in_memory_bytes,
        "message_bytes_persistent": stats.persistent_bytes,
        "message_bytes_dlx": stats.dead_bytes,
        "message_bytes_paged_out":
            stats.message_bytes().saturating_sub(stats.in_memory_bytes),
        "memory": stats.memory,
        "reductions": 0,
        "reductions_details": details(0.0),
        "head_message_timestamp": stats.head_message_timestamp,
        "oldest_ready_at": stats.oldest_ready_ms,
        "oldest_unacknowledged_at": stats.oldest_unsettled_ms,
        "garbage_collection": stats::no_garbage(),
        "message_stats": stats::sums(&stats.counters, &sampled, |(counters, _)| counters),
    }) else {
        return;
    };
    item.extend(added);
    if let Some(idle) = stats.idle_since_ms {
        item.insert("idle_since".to_owned(), Value::from(super::overview::date(idle)));
    }
}
