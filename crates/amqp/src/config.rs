//! What a session is told at its birth.

use amq_protocol::types::{AMQPValue, FieldTable};

/// The smallest `frame_max` that a client may ask for.
pub const FRAME_MAX_MIN: u32 = 4096;
/// The smallest `channel_max` that a client may ask for.
pub const CHANNEL_MAX_MIN: u16 = 1;

/// The limits and the name tag that a server shows to its clients; the same for all sessions of a
/// listener.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// Bytes of a frame, at most; 0 is no limit. Default 131072.
    pub frame_max: u32,
    /// As `frame_max`, until the client has logged in. Default 8192.
    pub initial_frame_max: u32,
    /// Channels of a connection, at most; 0 is no limit but 65535. Default 2047.
    pub channel_max: u16,
    /// Proposed interval of heartbeats, in seconds; 0 is none. Default 60.
    pub heartbeat: u16,
    /// Bytes of a message's body, at most. Default 16 MiB.
    pub message_size_max: u64,
    /// Consumers of a channel, at most. Default: no limit.
    pub consumers_max: Option<usize>,
    /// Milliseconds from the accepted socket (with TLS: from the end of its handshake) to
    /// `open-ok`, at most. Default 10,000.
    pub handshake_timeout_ms: u64,
    /// Mechanisms to offer, in order. Default `PLAIN` and `AMQPLAIN`.
    pub mechanisms: Vec<Offer>,
    /// `server_properties` of `connection.start`, see [`server_properties`].
    pub server_properties: FieldTable,
}

/// A SASL mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// Name and password in one string.
    Plain,
    /// Name and password in a field table.
    Amqplain,
    /// The client's certificate.
    External,
    /// Nobody in particular.
    Anonymous,
}

impl Offer {
    /// The mechanism's name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::Amqplain => "AMQPLAIN",
            Self::External => "EXTERNAL",
            Self::Anonymous => "ANONYMOUS",
        }
    }
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            frame_max: 131_072,
            initial_frame_max: 8192,
            channel_max: 2047,
            heartbeat: 60,
            message_size_max: 16 * 1024 * 1024,
            consumers_max: None,
            handshake_timeout_ms: 10_000,
            mechanisms: vec![Offer::Plain, Offer::Amqplain],
            server_properties: server_properties("0", "4.3.0", "leveret"),
        }
    }
}

/// What `connection.start` says about the server. Clients switch features on by `capabilities`, but
/// some also by product and version, so these are RabbitMQ's (`compatible`: the version whose
/// behaviour is followed) and our own stand beside them.
pub fn server_properties(own: &str, compatible: &str, cluster_name: &str) -> FieldTable {
    let mut capabilities = FieldTable::default();
    for name in [
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "consumer_priorities",
        "authentication_failure_close",
        "per_consumer_qos",
        "direct_reply_to",
    ] {
        capabilities.insert(name.into(), AMQPValue::Boolean(true));
    }
    let mut table = FieldTable::default();
    for (name, value) in [
        ("product", "RabbitMQ"),
        ("version", compatible),
        ("platform", "Leveret"),
        ("leveret_version", own),
        ("cluster_name", cluster_name),
        ("copyright", "Copyright (c) the Leveret authors"),
        ("information", "Licensed under the Apache License 2.0"),
    ] {
        table.insert(name.into(), AMQPValue::LongString(value.into()));
    }
    table.insert("capabilities".into(), AMQPValue::FieldTable(capabilities));
    table
}
