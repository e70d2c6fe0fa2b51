//! Client connections and their channels.

use amq_protocol_types::FieldTable;
use model::id::ConnectionId;
use serde::{Deserialize, Serialize};

use super::counters::MessageCounters;

/// One client connection that has passed `connection.open`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ConnectionInfo {
    /// Names it in the cluster.
    #[serde(with = "super::part::connection_id")]
    pub id: ConnectionId,
    /// The node that it is connected to.
    pub node: String,
    /// `PEER_HOST:PEER_PORT -> HOST:PORT`.
    pub name: String,
    /// Its virtual host.
    pub vhost: String,
    /// Who logged in.
    pub user: String,
    /// Address of our end.
    pub host: String,
    /// Port of our end.
    pub port: u16,
    /// Address of the client.
    pub peer_host: String,
    /// Port of the client.
    pub peer_port: u16,
    /// Present if the connection is encrypted.
    pub tls: Option<TlsInfo>,
    /// SASL mechanism, such as `PLAIN`.
    pub auth_mechanism: String,
    /// What it does.
    pub state: ConnectionState,
    /// Open channels.
    pub channels: u32,
    /// Negotiated.
    pub channel_max: u16,
    /// Negotiated, bytes.
    pub frame_max: u32,
    /// Negotiated heartbeat, seconds; 0 is none.
    pub heartbeat_s: u16,
    /// When it was opened.
    pub connected_at_ms: u64,
    /// What the client said of itself.
    #[serde(with = "metadata::arguments::text")]
    pub client_properties: FieldTable,
    /// Bytes received.
    pub received_bytes: u64,
    /// Reads from the socket.
    pub received_count: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Writes to the socket.
    pub sent_count: u64,
    /// Bytes that wait to be sent.
    pub send_pending: u64,
}

/// What a connection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConnectionState {
    /// Normal.
    Running,
    /// It has published while an alarm is on and is not read.
    Blocked,
    /// An alarm is on; it has not published since.
    Blocking,
    /// Not read for a moment, since a queue is slower than it.
    Flow,
    /// Saying goodbye.
    Closing,
}

impl ConnectionState {
    /// RabbitMQ's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Blocked => "blocked",
            Self::Blocking => "blocking",
            Self::Flow => "flow",
            Self::Closing => "closing",
        }
    }
}

/// The encryption of a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TlsInfo {
    /// Such as `tlsv1.3`.
    pub protocol: String,
    /// The cipher suite.
    pub cipher: String,
    /// Subject of the client's certificate, if it gave one.
    pub peer_subject: Option<String>,
    /// Issuer of the client's certificate.
    pub peer_issuer: Option<String>,
    /// Validity of the client's certificate, as text.
    pub peer_validity: Option<String>,
}

/// One channel.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChannelInfo {
    /// The node that its connection is connected to.
    pub node: String,
    /// Its connection.
    #[serde(with = "super::part::connection_id")]
    pub connection: ConnectionId,
    /// The connection's name.
    pub connection_name: String,
    /// Address of the client.
    pub peer_host: String,
    /// Port of the client.
    pub peer_port: u16,
    /// Its number.
    pub number: u16,
    /// Who logged in.
    pub user: String,
    /// Its virtual host.
    pub vhost: String,
    /// Whether publishes are confirmed.
    pub confirm: bool,
    /// Whether it is transactional.
    pub transactional: bool,
    /// Held back by flow control.
    pub in_flow: bool,
    /// Consumers on it.
    pub consumers: u32,
    /// Limit for each new consumer; 0 is none.
    pub prefetch_count: u32,
    /// Limit for the channel; 0 is none.
    pub global_prefetch_count: u32,
    /// Deliveries that it has not settled.
    pub unacknowledged: u64,
    /// Publishes that are not confirmed yet.
    pub unconfirmed: u64,
    /// Publishes of a transaction that is not committed.
    pub uncommitted: u64,
    /// Settlements of a transaction that is not committed.
    pub acks_uncommitted: u64,
    /// Since when nothing happens, if nothing happens now.
    pub idle_since_ms: Option<u64>,
    /// Totals.
    #[serde(default, skip_serializing_if = "MessageCounters::is_nothing")]
    pub counters: MessageCounters,
}

impl ChannelInfo {
    /// The channel's name: the connection's with the number behind it.
    pub fn name(&self) -> String {
        format!("{} ({})", self.connection_name, self.number)
    }
}
