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
    /// The node that keeps a classic queue; 0: this one, which is on its own.
    pub(crate) home: NodeId,
    /// The members of a quorum queue, the first of which founds its group; `None`: it is classic.
    pub(crate) quorum: Option<Vec<NodeId>>,
}

impl Profile {
    /// Whether `me` reaches it through the cluster.
    pub(crate) fn is_of_cluster(&self, me: NodeId) -> bool {
        self.quorum.is_some() || (self.home != NodeId(0) && self.home != me)
    }
}

/// Where dead messages go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeadLetterTarget {
    pub(crate) exchange: Name,
    pub(crate) routing_key: Option<Name>,
}
