//! What a shard knows of a queue besides its messages.

use activation::file::JournalUid;
use metadata::objects::Name;
use metadata::objects::member::{self, Member};
use model::id::{NodeId, QueueId};
use queue::settings::Settings;

use crate::replicated::numbered::Sender;

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
    /// The journal that it is in; `None`: that of its home.
    pub(crate) journal: Option<Seat>,
    /// The members of a quorum queue; `None`: it is classic.
    pub(crate) quorum: Option<Vec<Member>>,
    /// It was declared a moment ago, and this start of a node leads it from the beginning, if it is
    /// still there.
    pub(crate) led_by: Option<Sender>,
}

impl Profile {
    /// Whether `me` reaches it through the cluster.
    pub(crate) fn is_of_cluster(&self, me: NodeId) -> bool {
        self.quorum.is_some()
            || self.journal.is_some()
            || (self.home != NodeId(0) && self.home != me)
    }

    /// This node's member of a quorum queue, if it has one.
    pub(crate) fn member(&self, me: NodeId) -> Option<Member> {
        self.quorum.iter().flatten().find(|member| member.node == me).copied()
    }

    /// The nodes that may found its group.
    pub(crate) fn founders(&self) -> Vec<NodeId> {
        member::founders(self.quorum.as_deref().unwrap_or_default())
    }
}

/// A journal, and who serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) journal: JournalUid,
    /// The start of a node that said so last.
    pub(crate) served: Option<Sender>,
    /// The number that it was given.
    pub(crate) term: u64,
}

/// Where dead messages go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeadLetterTarget {
    pub(crate) exchange: Name,
    pub(crate) routing_key: Option<Name>,
}
