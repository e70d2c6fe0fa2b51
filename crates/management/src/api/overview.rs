//! `/overview`.

use serde_json::{Map, Value, json};

use super::call::Call;
use super::{nodes, stats};
use crate::http::answer::Answer;
use crate::http::failure::Outcome;
use crate::http::list;
use crate::inquiry::Wanted;
use crate::node::Node;
use crate::sampler::{Depth, Rates, Sample, details};
use crate::version;
use crate::view::counters::{ChurnCounters, MessageCounters};
use crate::view::node::NodeStats;

/// A total by name.
type Churn = (&'static str, fn(&ChurnCounters) -> u64);

/// RabbitMQ's names of comings and goings.
const CHURN: [Churn; 7] = [
    ("connection_created", |churn| churn.connection_created),
    ("connection_closed", |churn| churn.connection_closed),
    ("channel_created", |churn| churn.channel_created),
    ("channel_closed", |churn| churn.channel_closed),
    ("queue_declared", |churn| churn.queue_declared),
    ("queue_created", |churn| churn.queue_created),
    ("queue_deleted", |churn| churn.queue_deleted),
];

/// `GET /overview`. Who does not see the whole node gets counts of what he sees.
pub(super) async fn get<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    let node = call.node.stats();
    let vhosts = call.vhosts(None)?;
    let census = call.node.census(Wanted::ALL).await;
    let connections = census.connections.iter().filter(|one| call.sees_client(&one.user)).count();
    let channels = census.channels.iter().filter(|one| call.sees_client(&one.user)).count();
    let consumers = census.consumers.iter().filter(|one| call.sees(&one.vhost)).count();
    let queues: usize = vhosts.iter().map(|vhost| call.state.queue_count(&vhost.name)).sum();
    let exchanges: usize =
        vhosts.iter().map(|vhost| call.state.exchanges(&vhost.name).count()).sum();
    let mut depth = Depth::default();
    let (mut messages, mut churned) = (MessageCounters::default(), ChurnCounters::default());
    for of_node in census.nodes.values() {
        messages.add(&of_node.messages);
        churned.add(&of_node.churn);
    }
    let all: Vec<&NodeStats> =
        census.nodes.values().filter_map(|of_node| of_node.stats.as_ref()).collect();
    let (listeners, contexts) = (nodes::listeners(&all), nodes::contexts(&all, true));
    for (id, queue) in census.queues {
        let queue = queue.stats;
        let Some(entry) = call.state.queue_by_id(id) else { continue };
        if call.sees(&entry.vhost) {
            depth.ready += queue.ready;
            depth.unsettled += queue.unsettled;
        }
    }
    let rates = &*call.rates;
    let mut message_stats = stats::messages(&messages, rates, |sample| Some(&sample.messages));
    let age = |key: &str| call.query.get(key).and_then(|age| age.parse::<u64>().ok());
    if let Some(age_s) = age("msg_rates_age") {
        stats::add_history(&mut message_stats, rates, age_s);
    }
    let mut item = json!({
        "management_version": version::COMPATIBLE,
        "rabbitmq_version": version::COMPATIBLE,
        "erlang_version": version::ERLANG,
        "erlang_full_version": version::ERLANG_FULL,
        "crypto_lib_version": version::CRYPTO,
        "product_name": version::PRODUCT,
        "product_version": version::OWN,
        "rates_mode": "basic",
        "sample_retention_policies": {"global": [600], "basic": [600], "detailed": [600]},
        "cluster_name": node.cluster_name,
        "cluster_tags": cluster_tags(call),
        "node_tags": {},
        "node": node.name,
        "release_series_support_status": "supported",
        "statistics_db_event_queue": 0,
        "disable_stats": false,
        "enable_queue_totals": false,
        "is_op_policy_updating_enabled": true,
        "default_queue_type": node.default_queue_type,
        "exchange_types": nodes::exchange_types(&node),
        "object_totals": {
            "connections": connections,
            "channels": channels,
            "consumers": consumers,
            "queues": queues,
            "exchanges": exchanges,
        },
        "queue_totals": queue_totals(depth, rates, age("lengths_age")),
        "message_stats": message_stats,
        "churn_rates": churn(&churned, rates),
        "listeners": [],
        "contexts": [],
    });
    if call.user.is_monitor() {
        item["listeners"] = listeners;
        item["contexts"] = contexts;
    }
    Ok(list::one(item, &call.query))
}

fn cluster_tags<N: Node>(call: &Call<'_, N>) -> Value {
    let parameter = call.state.global_parameter("cluster_tags");
    match parameter.map(|parameter| &parameter.value) {
        Some(tags @ Value::Object(_)) => tags.clone(),
        _ => json!({}),
    }
}

fn queue_totals(depth: Depth, rates: &Rates, age_s: Option<u64>) -> Value {
    type Field = (&'static str, fn(&Depth) -> u64);
    let fields: [Field; 3] = [
        ("messages", |depth| depth.ready + depth.unsettled),
        ("messages_ready", |depth| depth.ready),
        ("messages_unacknowledged", |depth| depth.unsettled),
    ];
    let mut totals = Map::new();
    for (name, value) in fields {
        let mut details = details(rates.change(|sample: &Sample| Some(value(&sample.depth))));
        if let Some(age_s) = age_s {
            stats::add_samples(&mut details, &rates.history(age_s, |_, depth| value(depth)));
        }
        totals.insert(name.to_owned(), json!(value(&depth)));
        totals.insert(format!("{name}_details"), details);
    }
    Value::Object(totals)
}

fn churn(churn: &ChurnCounters, rates: &Rates) -> Value {
    let mut object = Map::new();
    for (name, value) in CHURN {
        let rate = rates.of(|sample| Some(value(&sample.churn)));
        object.insert(name.to_owned(), json!(value(churn)));
        object.insert(format!("{name}_details"), details(rate));
    }
    Value::Object(object)
}

/// A time as RabbitMQ writes it: `2026-01-31T12:00:00.000+00:00`, always UTC.
pub(super) fn date(at_ms: u64) -> String {
    let seconds = at_ms / 1000;
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let digits = |number: u64, count: u32| {
        (0..count).rev().map(move |at| char::from(b'0' + (number / 10_u64.pow(at) % 10) as u8))
    };
    let mut text = String::with_capacity(29);
    let parts = [
        (year, 4, "-"),
        (month, 2, "-"),
        (day, 2, "T"),
        (time / 3600, 2, ":"),
        (time / 60 % 60, 2, ":"),
        (time % 60, 2, "."),
        (at_ms % 1000, 3, "+00:00"),
    ];
    for (number, count, behind) in parts {
        text.extend(digits(number, count));
        text.push_str(behind);
    }
    text
}

/// The Gregorian date of a number of days since 1970-01-01 (Howard Hinnant, "chrono-Compatible
/// Low-Level Date Algorithms"): years begin in March, so that the leap day comes last.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (year_of_era + era * 400 + carry, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_gregorian() {
        assert_eq!(date(0), "1970-01-01T00:00:00.000+00:00");
        assert_eq!(date(951_782_400_123), "2000-02-29T00:00:00.123+00:00");
        assert_eq!(date(1_767_225_599_000), "2025-12-31T23:59:59.000+00:00");
    }
}
