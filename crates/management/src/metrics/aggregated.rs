//! `/metrics`: one line per family and node, whatever the number of queues.

use super::detailed::DELIVERY;
use super::family::{Families, float};
use crate::view::counters::GlobalCounters;
use crate::view::node::NodeStats;
use crate::view::queue::QueueStats;

/// The label of the only protocol.
const PROTOCOL: (&str, &str) = ("protocol", "amqp091");

/// How many objects there are.
#[derive(Debug, Clone, Copy, Default)]
pub struct ObjectCounts {
    /// Client connections.
    pub connections: u64,
    /// Channels.
    pub channels: u64,
    /// Consumers.
    pub consumers: u64,
    /// Queues.
    pub queues: u64,
    /// Exchanges.
    pub exchanges: u64,
}

/// All queues of one type together.
#[derive(Debug, Clone, Default)]
pub struct QueueSums {
    /// Their sum; times and states mean nothing here.
    pub sum: QueueStats,
    /// When the oldest ready message of all came.
    pub oldest_ready_ms: Option<u64>,
    /// When the oldest unsettled message of all was delivered.
    pub oldest_unsettled_ms: Option<u64>,
}

impl QueueSums {
    /// Adds a queue.
    pub fn add(&mut self, queue: &QueueStats) {
        let sum = &mut self.sum;
        sum.ready += queue.ready;
        sum.unsettled += queue.unsettled;
        sum.ready_bytes += queue.ready_bytes;
        sum.unsettled_bytes += queue.unsettled_bytes;
        sum.delayed += queue.delayed;
        sum.delayed_bytes += queue.delayed_bytes;
        sum.dead += queue.dead;
        sum.dead_bytes += queue.dead_bytes;
        sum.persistent += queue.persistent;
        sum.persistent_bytes += queue.persistent_bytes;
        sum.in_memory += queue.in_memory;
        sum.in_memory_bytes += queue.in_memory_bytes;
        sum.consumers += queue.consumers;
        sum.memory += queue.memory;
        sum.counters.add(&queue.counters);
        let oldest = |a: Option<u64>, b: Option<u64>| [a, b].into_iter().flatten().min();
        self.oldest_ready_ms = oldest(self.oldest_ready_ms, queue.oldest_ready_ms);
        self.oldest_unsettled_ms = oldest(self.oldest_unsettled_ms, queue.oldest_unsettled_ms);
    }
}

/// Numbers of objects.
pub fn objects(families: &mut Families, counts: &ObjectCounts) {
    families.gauge("rabbitmq_connections", "Connections currently open", float(counts.connections));
    families.gauge("rabbitmq_channels", "Channels currently open", float(counts.channels));
    families.gauge("rabbitmq_consumers", "Consumers currently connected", float(counts.consumers));
    families.gauge("rabbitmq_queues", "Queues available", float(counts.queues));
    families.gauge("rabbitmq_exchanges", "Exchanges available", float(counts.exchanges));
}

/// The node: memory, disk, descriptors, alarms, time.
pub fn node(families: &mut Families, node: &NodeStats, now_ms: u64) {
    let flag = |on: bool| if on { 1.0 } else { 0.0 };
    let uptime_ms = now_ms.saturating_sub(node.started_at_ms);
    families.gauge("rabbitmq_erlang_uptime_seconds", "Node uptime", float(uptime_ms) / 1000.0);
    families.gauge(
        "process_start_time_seconds",
        "Start time of the process since unix epoch in seconds",
        float(node.started_at_ms) / 1000.0,
    );
    families.gauge(
        "rabbitmq_process_resident_memory_bytes",
        "Memory used in bytes",
        float(node.memory_used),
    );
    families.gauge(
        "rabbitmq_resident_memory_limit_bytes",
        "Memory high watermark in bytes",
        float(node.memory_limit),
    );
    families.gauge(
        "rabbitmq_disk_space_available_bytes",
        "Disk space available in bytes",
        float(node.disk_free),
    );
    families.gauge(
        "rabbitmq_disk_space_available_limit_bytes",
        "Free disk space low watermark in bytes",
        float(node.disk_free_limit),
    );
    families.gauge("rabbitmq_process_open_fds", "Open file descriptors", float(node.fd_used));
    families.gauge("rabbitmq_process_max_fds", "Open file descriptors limit", float(node.fd_total));
    families.gauge(
        "rabbitmq_process_open_tcp_sockets",
        "Open TCP sockets",
        float(node.sockets_used),
    );
    families.gauge(
        "rabbitmq_alarms_memory_used_watermark",
        "is 1 if VM memory watermark alarm is in effect",
        flag(node.memory_alarm),
    );
    families.gauge(
        "rabbitmq_alarms_free_disk_space_watermark",
        "is 1 if free disk space watermark alarm is in effect",
        flag(node.disk_alarm),
    );
    families.gauge(
        "rabbitmq_alarms_file_descriptor_limit",
        "is 1 if file descriptor limit alarm is in effect",
        0.0,
    );
    families.gauge(
        "leveret_node_serving",
        "is 1 once recovery is complete and clients are served",
        flag(node.serving),
    );
}

/// The journal.
pub fn journal(families: &mut Families, node: &NodeStats) {
    let journal = &node.journal;
    families.counter(
        "rabbitmq_io_write_bytes_total",
        "Total number of I/O bytes written",
        journal.written_bytes,
    );
    families.counter(
        "rabbitmq_io_write_ops_total",
        "Total number of I/O write operations",
        journal.writes,
    );
    families.counter(
        "rabbitmq_io_read_bytes_total",
        "Total number of I/O bytes read",
        journal.read_bytes,
    );
    families.counter(
        "rabbitmq_io_read_ops_total",
        "Total number of I/O read operations",
        journal.reads,
    );
    families.counter(
        "rabbitmq_io_sync_ops_total",
        "Total number of I/O sync operations",
        journal.syncs,
    );
    families.counter_of(
        "rabbitmq_io_sync_time_seconds_total",
        "Total I/O sync time",
        float(journal.sync_micros) / 1e6,
    );
    families.gauge(
        "leveret_journal_live_records",
        "Records still needed",
        float(journal.live_records),
    );
    families.gauge(
        "leveret_journal_segments",
        "Segment files of the journal",
        float(journal.segments),
    );
    families.gauge(
        "leveret_journal_disk_bytes",
        "Bytes of the journal on disk",
        float(journal.disk_bytes),
    );
    families.gauge(
        "leveret_journal_live_bytes",
        "Bytes of records still needed",
        float(journal.live_bytes),
    );
}

/// Sums over queues.
pub fn queues(families: &mut Families, sums: &QueueSums, now_ms: u64) {
    let sum = &sums.sum;
    let gauges = [
        ("messages", "Sum of ready and unacknowledged messages", sum.messages()),
        ("messages_ready", "Messages ready to be delivered to consumers", sum.ready),
        (
            "messages_unacked",
            "Messages delivered to consumers but not yet acknowledged",
            sum.unsettled,
        ),
        ("messages_persistent", "Persistent messages", sum.persistent),
        ("messages_ram", "Ready and unacknowledged messages stored in memory", sum.in_memory),
        (
            "messages_bytes",
            "Size in bytes of ready and unacknowledged messages",
            sum.message_bytes(),
        ),
        ("messages_ready_bytes", "Size in bytes of ready messages", sum.ready_bytes),
        (
            "messages_unacked_bytes",
            "Size in bytes of all unacknowledged messages",
            sum.unsettled_bytes,
        ),
        ("messages_persistent_bytes", "Size in bytes of persistent messages", sum.persistent_bytes),
        (
            "messages_ram_bytes",
            "Size of ready and unacknowledged messages stored in memory",
            sum.in_memory_bytes,
        ),
        ("consumers", "Consumers on a queue", sum.consumers),
        ("process_memory_bytes", "Memory used by queues in bytes", sum.memory),
    ];
    for (name, help, value) in gauges {
        families.gauge(&format!("rabbitmq_queue_{name}"), help, float(value));
    }
    for (name, help, value) in DELIVERY {
        families.counter(&format!("rabbitmq_queue_{name}"), help, value(sum));
    }
    families.counter(
        "rabbitmq_queue_disk_reads_total",
        "Total number of times queues read messages from disk",
        sum.counters.disk_reads,
    );
    families.counter(
        "rabbitmq_queue_disk_writes_total",
        "Total number of times queues wrote messages to disk",
        sum.counters.disk_writes,
    );
    let age = |since: Option<u64>| {
        since.map_or(0.0, |since| float(now_ms.saturating_sub(since)) / 1000.0)
    };
    families.gauge(
        "leveret_queue_oldest_ready_age_seconds",
        "Age of the oldest message that waits in any queue",
        age(sums.oldest_ready_ms),
    );
    families.gauge(
        "leveret_queue_oldest_unacked_age_seconds",
        "Time since the delivery of the oldest message that is not acknowledged",
        age(sums.oldest_unsettled_ms),
    );
}

/// Totals of the node.
pub fn globals(families: &mut Families, counters: &GlobalCounters) {
    let messages = &counters.messages;
    let by_protocol = [
        (
            "messages_received_total",
            "Total number of messages received from publishers",
            messages.publish,
        ),
        (
            "messages_received_confirm_total",
            "Total number of messages received from publishers expecting confirmations",
            counters.received_confirm,
        ),
        (
            "messages_routed_total",
            "Total number of messages routed to queues or streams",
            counters.routed,
        ),
        (
            "messages_confirmed_total",
            "Total number of messages confirmed to publishers",
            messages.confirm,
        ),
        (
            "messages_unroutable_dropped_total",
            "Total number of messages published as non-mandatory into an exchange and dropped as unroutable",
            messages.drop_unroutable,
        ),
        (
            "messages_unroutable_returned_total",
            "Total number of messages published as mandatory into an exchange and returned to the publisher as unroutable",
            messages.return_unroutable,
        ),
    ];
    for (name, help, value) in by_protocol {
        families.counters(&format!("rabbitmq_global_{name}"), help, [(vec![PROTOCOL], value)]);
    }
    families.gauges(
        "rabbitmq_global_publishers",
        "Publishers currently connected",
        [(vec![PROTOCOL], float(counters.publishers))],
    );
    families.gauges(
        "rabbitmq_global_consumers",
        "Consumers currently connected",
        [(vec![PROTOCOL], float(counters.consumers))],
    );
    let delivered = messages.deliver_get();
    let by_queue_type = [
        ("messages_delivered_total", "Total number of messages delivered to consumers", delivered),
        (
            "messages_delivered_consume_manual_ack_total",
            "Total number of messages delivered to consumers using basic.consume with manual acknowledgment",
            messages.deliver,
        ),
        (
            "messages_delivered_consume_auto_ack_total",
            "Total number of messages delivered to consumers using basic.consume with automatic acknowledgment",
            messages.deliver_no_ack,
        ),
        (
            "messages_delivered_get_manual_ack_total",
            "Total number of messages delivered to consumers using basic.get with manual acknowledgment",
            messages.get,
        ),
        (
            "messages_delivered_get_auto_ack_total",
            "Total number of messages delivered to consumers using basic.get with automatic acknowledgment",
            messages.get_no_ack,
        ),
        (
            "messages_get_empty_total",
            "Total number of times basic.get operations fetched no message",
            messages.get_empty,
        ),
        (
            "messages_redelivered_total",
            "Total number of messages redelivered to consumers",
            messages.redeliver,
        ),
        (
            "messages_acknowledged_total",
            "Total number of message acknowledgements received from consumers",
            messages.ack,
        ),
    ];
    let queue_type = ("queue_type", "rabbit_classic_queue");
    for (name, help, value) in by_queue_type {
        families.counters(
            &format!("rabbitmq_global_{name}"),
            help,
            [(vec![PROTOCOL, queue_type], value)],
        );
    }
    let dead = &counters.dead_lettered;
    let reasons = [
        ("confirmed", "Total number of messages dead-lettered and confirmed by target queues", 0),
        (
            "delivery_limit",
            "Total number of messages dead-lettered due to delivery-limit exceeded",
            dead.delivery_limit,
        ),
        (
            "expired",
            "Total number of messages dead-lettered due to message TTL exceeded",
            dead.expired,
        ),
        (
            "maxlen",
            "Total number of messages dead-lettered due to overflow drop-head or reject-publish-dlx",
            dead.maxlen,
        ),
        (
            "rejected",
            "Total number of messages dead-lettered due to basic.reject or basic.nack",
            dead.rejected,
        ),
    ];
    for (reason, help, value) in reasons {
        families.counters(
            &format!("rabbitmq_global_messages_dead_lettered_{reason}_total"),
            help,
            [(vec![queue_type, ("dead_letter_strategy", "at_most_once")], value)],
        );
    }
    families.message_sizes(&[PROTOCOL], &counters.sizes);
}

/// Comings and goings.
pub fn churn(families: &mut Families, counters: &GlobalCounters) {
    let churn = &counters.churn;
    let churn = [
        ("connections_opened", "connections opened", churn.connection_created),
        ("connections_closed", "connections closed or terminated", churn.connection_closed),
        ("channels_opened", "channels opened", churn.channel_created),
        ("channels_closed", "channels closed", churn.channel_closed),
        ("queues_declared", "queues declared", churn.queue_declared),
        ("queues_created", "queues created", churn.queue_created),
        ("queues_deleted", "queues deleted", churn.queue_deleted),
    ];
    for (name, what, value) in churn {
        families.counter(
            &format!("rabbitmq_{name}_total"),
            &format!("Total number of {what}"),
            value,
        );
    }
}

/// Logins.
pub fn auth(families: &mut Families, counters: &GlobalCounters) {
    let auth = &counters.auth;
    let totals = [
        ("", "Total number of authorization attempts", auth.succeeded + auth.failed),
        ("_succeeded", "Total number of successful authentication attempts", auth.succeeded),
        ("_failed", "Total number of failed authentication attempts", auth.failed),
    ];
    for (name, help, value) in totals {
        let name = format!("rabbitmq_auth_attempts{name}_total");
        families.counters(&name, help, [(vec![PROTOCOL], value)]);
    }
}
