//! What a shard knows of a queue besides its messages.

use metadata::objects::Name;
use model::id::{NodeId, QueueId};
use queue::settings::Settings;

/// A queue's declaration with its policies merged in, as far as its shard needs it.
#[derive(Debug, Clone)]
pub(crate) struct Profile {
    pub(crate) id: QueueId,
    pub(crate) vhost: Name,
    pub(crate) name: Name,
    /// Its persistent messages survive a restart.
    pub(crate) durable: bool,
    pub(crate) settings: Settings,
    pub(crate) dead_letter: Option<DeadLetterTarget>,
    /// The first members of a quorum queue.
    pub(crate) quorum: Option<Vec<NodeId>>,
}

/// Where dead messages go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeadLetterTarget {
    pub(crate) exchange: Name,
    pub(crate) routing_key: Option<Name>,
}
