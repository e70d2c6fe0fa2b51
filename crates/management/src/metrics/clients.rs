//! What clients' connections and channels do: one line for each, or sums over all of the node.

use super::family::{Families, float};
use crate::view::connection::{ChannelInfo, ConnectionInfo};
use crate::view::counters::MessageCounters;

/// A number by the rest of its metric's name.
type Number<T> = (&'static str, &'static str, fn(&T) -> u64);

const CONNECTION_TOTALS: [Number<ConnectionInfo>; 4] = [
    ("incoming_bytes_total", "Total number of bytes received on a connection", |one| {
        one.received_bytes
    }),
    ("outgoing_bytes_total", "Total number of bytes sent on a connection", |one| one.sent_bytes),
    ("incoming_packets_total", "Total number of packets received on a connection", |one| {
        one.received_count
    }),
    ("outgoing_packets_total", "Total number of packets sent on a connection", |one| {
        one.sent_count
    }),
];

const CONNECTION_GAUGES: [Number<ConnectionInfo>; 2] = [
    ("channels", "Channels on a connection", |one| u64::from(one.channels)),
    ("pending_packets", "Number of packets waiting to be sent on a connection", |one| {
        one.send_pending
    }),
];

const CHANNEL_GAUGES: [Number<ChannelInfo>; 6] = [
    ("consumers", "Consumers on a channel", |one| u64::from(one.consumers)),
    ("messages_unacked", "Delivered but not yet acknowledged messages", |one| one.unacknowledged),
    ("messages_unconfirmed", "Published but not yet confirmed messages", |one| one.unconfirmed),
    ("messages_uncommitted", "Messages received in a transaction but not yet committed", |one| {
        one.uncommitted
    }),
    ("acks_uncommitted", "Message acknowledgements in a transaction not yet committed", |one| {
        one.acks_uncommitted
    }),
    ("prefetch", "Total limit of unacknowledged messages for all consumers on a channel", |one| {
        u64::from(one.global_prefetch_count)
    }),
];

/// Of a channel, or of all that there were.
const CHANNEL_TOTALS: [Number<MessageCounters>; 11] = [
    ("messages_published_total", "Total number of messages published on a channel", |one| {
        one.publish
    }),
    (
        "messages_confirmed_total",
        "Total number of messages published on a channel and confirmed",
        |one| one.confirm,
    ),
    (
        "messages_unroutable_returned_total",
        "Total number of messages published as mandatory and returned as unroutable",
        |one| one.return_unroutable,
    ),
    (
        "messages_unroutable_dropped_total",
        "Total number of messages published as non-mandatory and dropped as unroutable",
        |one| one.drop_unroutable,
    ),
    (
        "get_ack_total",
        "Total number of messages fetched with basic.get in manual acknowledgement mode",
        |one| one.get,
    ),
    (
        "get_total",
        "Total number of messages fetched with basic.get in automatic acknowledgement mode",
        |one| one.get_no_ack,
    ),
    ("get_empty_total", "Total number of times basic.get operations fetched no message", |one| {
        one.get_empty
    }),
    (
        "messages_delivered_ack_total",
        "Total number of messages delivered to consumers in manual acknowledgement mode",
        |one| one.deliver,
    ),
    (
        "messages_delivered_total",
        "Total number of messages delivered to consumers in automatic acknowledgement mode",
        |one| one.deliver_no_ack,
    ),
    ("messages_redelivered_total", "Total number of messages redelivered to consumers", |one| {
        one.redeliver
    }),
    ("messages_acked_total", "Total number of messages acknowledged by consumers", |one| one.ack),
];

/// Writes a line for each connection.
pub fn connections(families: &mut Families, connections: &[ConnectionInfo]) {
    for (name, help, value) in CONNECTION_TOTALS {
        let lines = connections.iter().map(|one| (vec![("connection", &*one.name)], value(one)));
        families.counters(&format!("rabbitmq_connection_{name}"), help, lines);
    }
    for (name, help, value) in CONNECTION_GAUGES {
        let lines =
            connections.iter().map(|one| (vec![("connection", &*one.name)], float(value(one))));
        families.gauges(&format!("rabbitmq_connection_{name}"), help, lines);
    }
}

/// Writes a line for each channel.
pub fn channels(families: &mut Families, channels: &[ChannelInfo]) {
    let names: Vec<String> = channels.iter().map(ChannelInfo::name).collect();
    let labelled = || channels.iter().zip(&names);
    for (name, help, value) in CHANNEL_GAUGES {
        let lines = labelled().map(|(one, name)| (vec![("channel", &**name)], float(value(one))));
        families.gauges(&format!("rabbitmq_channel_{name}"), help, lines);
    }
    for (name, help, value) in CHANNEL_TOTALS {
        let lines =
            labelled().map(|(one, name)| (vec![("channel", &**name)], value(&one.counters)));
        families.counters(&format!("rabbitmq_channel_{name}"), help, lines);
    }
}

/// Writes the sums of the connections and channels that there are; totals of messages also of those
/// that are gone (`messages`), so that they never fall.
pub fn sums(
    families: &mut Families,
    connections: &[ConnectionInfo],
    channels: &[ChannelInfo],
    messages: &MessageCounters,
) {
    for (name, help, value) in CONNECTION_TOTALS {
        let sum = connections.iter().map(value).sum();
        families.counter(&format!("rabbitmq_connection_{name}"), help, sum);
    }
    for (name, help, value) in CONNECTION_GAUGES {
        let sum = connections.iter().map(value).sum();
        families.gauge(&format!("rabbitmq_connection_{name}"), help, float(sum));
    }
    for (name, help, value) in CHANNEL_GAUGES {
        let sum = channels.iter().map(value).sum();
        families.gauge(&format!("rabbitmq_channel_{name}"), help, float(sum));
    }
    for (name, help, value) in CHANNEL_TOTALS {
        families.counter(&format!("rabbitmq_channel_{name}"), help, value(messages));
    }
    // Every publish goes to an exchange.
    for (name, help, value) in CHANNEL_TOTALS.iter().take(4) {
        let help = help.replace("on a channel", "into an exchange");
        families.counter(&format!("rabbitmq_exchange_{name}"), &help, value(messages));
    }
}
