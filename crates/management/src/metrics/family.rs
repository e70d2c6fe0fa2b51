//! Metric families as they are written: name, help, type, then one line per object.

use std::fmt::Write as _;

use prometheus::TextEncoder;
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

use crate::view::counters::{MESSAGE_SIZE_BOUNDS, MessageSizes};

/// How the bounds of message sizes are spelled in the label `le`, which dashboards match literally.
const SIZE_LABELS: [&str; 9] =
    ["100.0", "1000.0", "10000.0", "100000.0", "1e+06", "1e+07", "5e+07", "1e+08", "+Inf"];

const _: () = assert!(MESSAGE_SIZE_BOUNDS.len() + 1 == SIZE_LABELS.len());

/// Names and values of labels.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// A scrape in the making. Each family is named once.
#[derive(Debug, Default)]
pub struct Families {
    written: Vec<MetricFamily>,
    text: String,
    /// What stands for `rabbitmq_` before the names of families to come.
    prefix: Option<&'static str>,
}

impl Families {
    /// Lets the names of families to come begin with this instead of `rabbitmq_`.
    pub fn set_prefix(&mut self, prefix: &'static str) {
        self.prefix = Some(prefix);
    }

    /// Adds a gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.gauges(name, help, [(vec![], value)]);
    }

    /// Adds a counter without labels.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.counters(name, help, [(vec![], value)]);
    }

    /// Adds a counter without labels that counts in parts.
    pub fn counter_of(&mut self, name: &str, help: &str, value: f64) {
        let mut counter = Counter::default();
        counter.set_value(value);
        let mut metric = Metric::default();
        metric.set_counter(counter);
        self.push(name, help, MetricType::COUNTER, vec![metric]);
    }

    /// Adds a gauge with one line per item.
    pub fn gauges<'a>(
        &mut self,
        name: &str,
        help: &str,
        lines: impl IntoIterator<Item = (Vec<(&'a str, &'a str)>, f64)>,
    ) {
        let metrics = lines.into_iter().map(|(labels, value)| {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            let mut metric = Metric::from_label(pairs(&labels));
            metric.set_gauge(gauge);
            metric
        });
        self.push(name, help, MetricType::GAUGE, metrics.collect());
    }

    /// Adds a counter with one line per item.
    pub fn counters<'a>(
        &mut self,
        name: &str,
        help: &str,
        lines: impl IntoIterator<Item = (Vec<(&'a str, &'a str)>, u64)>,
    ) {
        let metrics = lines.into_iter().map(|(labels, value)| {
            let mut counter = Counter::default();
            counter.set_value(float(value));
            let mut metric = Metric::from_label(pairs(&labels));
            metric.set_counter(counter);
            metric
        });
        self.push(name, help, MetricType::COUNTER, metrics.collect());
    }

    /// Adds the histogram of message sizes. Written by hand, since `le` has to be spelled as
    /// RabbitMQ does.
    pub fn message_sizes(&mut self, labels: Labels<'_>, sizes: &MessageSizes) {
        const NAME: &str = "rabbitmq_message_size_bytes";
        let mut own = String::new();
        for (name, value) in labels {
            let _ = write!(own, "{name}=\"{value}\",");
        }
        let labels = own;
        let mut text = format!(
            "# HELP {NAME} Size of messages received from publishers\n# TYPE {NAME} histogram\n"
        );
        let mut count = 0;
        for (bucket, bound) in sizes.buckets.iter().zip(SIZE_LABELS) {
            count += bucket;
            let _ = writeln!(text, "{NAME}_bucket{{{labels}le=\"{bound}\"}} {count}");
        }
        let labels = labels.trim_end_matches(',');
        let _ = writeln!(text, "{NAME}_count{{{labels}}} {count}");
        let _ = writeln!(text, "{NAME}_sum{{{labels}}} {}", sizes.sum);
        self.text.push_str(&text);
    }

    /// The text format, version 0.0.4.
    pub fn encode(self) -> String {
        let mut text = String::new();
        TextEncoder::new()
            .encode_utf8(&self.written, &mut text)
            .expect("families have names and lines");
        text + &self.text
    }

    fn push(&mut self, name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) {
        if metrics.is_empty() {
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(match (self.prefix, name.strip_prefix("rabbitmq_")) {
            (Some(prefix), Some(rest)) => format!("{prefix}{rest}"),
            _ => name.to_owned(),
        });
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.written.push(family);
    }
}

fn pairs(labels: Labels<'_>) -> Vec<LabelPair> {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    };
    labels.iter().map(pair).collect()
}

/// A total as Prometheus has it.
#[expect(clippy::cast_precision_loss, reason = "totals above 2^53 are not met")]
pub fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_written_once() {
        let mut families = Families::default();
        families.gauge("rabbitmq_queues", "Queues available", 3.0);
        families.counters("a_total", "A", [(vec![("protocol", "amqp091")], 7)]);
        families.gauges("none", "Nothing to say", []);
        let text = families.encode();
        assert_eq!(
            text,
            "# HELP rabbitmq_queues Queues available\n# TYPE rabbitmq_queues gauge\n\
             rabbitmq_queues 3\n# HELP a_total A\n# TYPE a_total counter\n\
             a_total{protocol=\"amqp091\"} 7\n"
        );
    }

    #[test]
    fn sizes_are_cumulative() {
        let mut families = Families::default();
        let sizes = MessageSizes { buckets: [1, 2, 0, 0, 0, 0, 0, 0, 4], sum: 900 };
        families.message_sizes(&[("protocol", "amqp091")], &sizes);
        let text = families.encode();
        assert!(text.contains("_bucket{protocol=\"amqp091\",le=\"100.0\"} 1\n"));
        assert!(text.contains("_bucket{protocol=\"amqp091\",le=\"1e+08\"} 3\n"));
        assert!(text.contains("_bucket{protocol=\"amqp091\",le=\"+Inf\"} 7\n"));
        assert!(text.contains("_count{protocol=\"amqp091\"} 7\n"));
        assert!(text.contains("_sum{protocol=\"amqp091\"} 900\n"));
    }
}
