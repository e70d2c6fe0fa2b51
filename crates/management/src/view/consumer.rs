//! Subscriptions.

use amq_protocol_types::FieldTable;

/// One consumer.
#[derive(Debug, Clone)]
pub struct ConsumerInfo {
    /// Its tag.
    pub tag: String,
    /// The queue's virtual host.
    pub vhost: String,
    /// The queue's name.
    pub queue: String,
    /// Whether it settles.
    pub ack_required: bool,
    /// Whether it is the only one of its queue.
    pub exclusive: bool,
    /// Limit of unsettled deliveries; 0 is none.
    pub prefetch_count: u32,
    /// Arguments of `basic.consume`.
    pub arguments: FieldTable,
    /// What it does.
    pub activity: ConsumerActivity,
    /// `x-consumer-timeout` in force, if any.
    pub timeout_ms: Option<u64>,
    /// The node that its connection is connected to.
    pub node: String,
    /// The channel's number.
    pub channel: u16,
    /// The connection's name.
    pub connection_name: String,
    /// Address of the client.
    pub peer_host: String,
    /// Port of the client.
    pub peer_port: u16,
    /// Who logged in.
    pub user: String,
}

/// Whether a consumer gets messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsumerActivity {
    /// It gets its share.
    Up,
    /// It is the active one of a single-active-consumer queue.
    SingleActive,
    /// It waits for its turn in a single-active-consumer queue.
    Waiting,
    /// It did not settle in time.
    TimedOut,
}

impl ConsumerActivity {
    /// RabbitMQ's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::SingleActive => "single_active",
            Self::Waiting => "waiting",
            Self::TimedOut => "timeout",
        }
    }

    /// Whether it gets messages.
    pub fn is_active(self) -> bool {
        matches!(self, Self::Up | Self::SingleActive)
    }
}
