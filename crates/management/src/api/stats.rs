//! `message_stats` and other totals with their rates.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::sampler::{Pair, Rates, Sample, details};
use crate::view::counters::{ExchangeCounters, MessageCounters};

/// A total by name, the name of its rate, and where it is found.
pub(super) type Field<T> = (&'static str, &'static str, fn(&T) -> u64);

/// The totals of messages, with RabbitMQ's names.
pub(super) const MESSAGES: [Field<MessageCounters>; 14] = [
    ("publish", "publish_details", |counters| counters.publish),
    ("confirm", "confirm_details", |counters| counters.confirm),
    ("return_unroutable", "return_unroutable_details", |counters| counters.return_unroutable),
    ("drop_unroutable", "drop_unroutable_details", |counters| counters.drop_unroutable),
    ("deliver", "deliver_details", |counters| counters.deliver),
    ("deliver_no_ack", "deliver_no_ack_details", |counters| counters.deliver_no_ack),
    ("get", "get_details", |counters| counters.get),
    ("get_no_ack", "get_no_ack_details", |counters| counters.get_no_ack),
    ("get_empty", "get_empty_details", |counters| counters.get_empty),
    ("deliver_get", "deliver_get_details", MessageCounters::deliver_get),
    ("redeliver", "redeliver_details", |counters| counters.redeliver),
    ("ack", "ack_details", |counters| counters.ack),
    ("disk_reads", "disk_reads_details", |counters| counters.disk_reads),
    ("disk_writes", "disk_writes_details", |counters| counters.disk_writes),
];

/// Those of a queue, in the groups in which RabbitMQ shows them: each once something of it has happened.
pub(super) const QUEUE: [&[Field<MessageCounters>]; 3] = {
    let (_, rest) = MESSAGES.split_at(4);
    let (left, disk) = rest.split_at(8);
    let (publish, _) = MESSAGES.split_at(1);
    [publish, left, disk]
};

/// The totals of an exchange, with RabbitMQ's names.
const EXCHANGE: [Field<ExchangeCounters>; 5] = [
    ("publish_in", "publish_in_details", |counters| counters.publish_in),
    ("publish_out", "publish_out_details", |counters| counters.publish_out),
    ("confirm", "confirm_details", |counters| counters.confirm),
    ("return_unroutable", "return_unroutable_details", |counters| counters.return_unroutable),
    ("drop_unroutable", "drop_unroutable_details", |counters| counters.drop_unroutable),
];

/// `garbage_collection`: there is none, but tools require the numbers and compare them with those
/// that Erlang begins with.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct NoGarbage {
    fullsweep_after: u32,
    max_heap_size: u32,
    min_bin_vheap_size: u32,
    min_heap_size: u32,
    minor_gcs: u32,
}

/// See [`NoGarbage`].
pub(super) const NO_GARBAGE: NoGarbage = NoGarbage {
    fullsweep_after: 65_535,
    max_heap_size: 0,
    min_bin_vheap_size: 46_422,
    min_heap_size: 233,
    minor_gcs: 0,
};

/// `message_stats` of something whose totals `sampled` finds in a sample.
pub(super) fn messages(
    counters: &MessageCounters,
    rates: &Rates,
    sampled: impl Fn(&Sample) -> Option<&MessageCounters>,
) -> Value {
    fields(&MESSAGES, counters, rates, sampled)
}

/// `message_stats` of an exchange.
pub(super) fn exchange(
    counters: &ExchangeCounters,
    rates: &Rates,
    sampled: impl Fn(&Sample) -> Option<&ExchangeCounters>,
) -> Value {
    fields(&EXCHANGE, counters, rates, sampled)
}

/// `message_stats` of sums over several objects.
pub(super) fn sums<T>(
    counters: &MessageCounters,
    pair: &Pair<T>,
    summed: impl Fn(&T) -> &MessageCounters,
) -> Value {
    let mut object = Map::new();
    for (name, rated, value) in MESSAGES {
        let rate = pair.change(|sum| value(summed(sum))).max(0.0);
        object.insert(name.to_owned(), Value::from(value(counters)));
        object.insert(rated.to_owned(), details(rate));
    }
    Value::Object(object)
}

fn fields<T>(
    fields: &[Field<T>],
    counters: &T,
    rates: &Rates,
    sampled: impl Fn(&Sample) -> Option<&T>,
) -> Value {
    let mut object = Map::new();
    for (name, rated, value) in fields {
        let rate = rates.of(|sample| sampled(sample).map(value));
        object.insert((*name).to_owned(), Value::from(value(counters)));
        object.insert((*rated).to_owned(), details(rate));
    }
    Value::Object(object)
}

/// Adds samples for charts to the `message_stats` of the node, as the query asks for them.
pub(super) fn add_history(stats: &mut Value, rates: &Rates, age_s: u64) {
    for (_, rated, value) in MESSAGES {
        let samples = rates.history(age_s, |counters, _| value(counters));
        add_samples(&mut stats[rated], &samples);
    }
}

/// Adds `samples`, `avg` and `avg_rate` to a `*_details` object. Newest first.
#[expect(clippy::cast_precision_loss, reason = "rates are shown with a few digits")]
pub(super) fn add_samples(details: &mut Value, samples: &[(u64, u64)]) {
    let sum: u64 = samples.iter().map(|(_, value)| value).sum();
    let average = if samples.is_empty() { 0.0 } else { sum as f64 / samples.len() as f64 };
    let average_rate = match (samples.first(), samples.last()) {
        (Some((from, before)), Some((to, after))) if to > from => {
            (*after as f64 - *before as f64) * 1000.0 / (to - from) as f64
        }
        _ => 0.0,
    };
    details["samples"] = samples
        .iter()
        .rev()
        .map(|(timestamp, sample)| json!({"sample": sample, "timestamp": timestamp}))
        .collect();
    details["avg"] = json!(average);
    details["avg_rate"] = json!(average_rate);
}
