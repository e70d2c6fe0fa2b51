//! What there is: the nodes of the cluster, and a queue's group as its leader sees it.

use std::fmt;
use std::sync::Arc;

use model::id::{NodeId, QueueId};

/// A queue's group and the nodes around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// Which queue.
    pub queue: QueueId,
    /// The node that plans.
    pub me: NodeId,
    /// Whether that is the node which may.
    pub leadership: Leadership,
    /// The nodes of the cluster, as the metadata has committed them, without those that were replaced
    /// by a newer incarnation. None at all: the list could not be read.
    pub nodes: Arc<[Node]>,
    /// Raft's newest membership of the group, in the order of the nodes' ids.
    pub members: Vec<Member>,
    /// Nodes that the queue was declared on while they were down: no members yet.
    pub unstarted: Vec<NodeId>,
    /// Whether a change of the members is under way.
    pub is_changing: bool,
    /// The index of the leader's last entry.
    pub last: u64,
    /// About how many bytes a new member gets: the leader's checkpoint, the bodies that are alive, and
    /// its log.
    pub whole_bytes: u64,
    /// Nodes on which adding a member of this queue failed a while ago.
    pub avoided: Vec<NodeId>,
}

/// Who leads the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leadership {
    /// The node that plans, confirmed.
    Here,
    /// Another node, or nobody.
    Elsewhere(Option<NodeId>),
    /// It could not be confirmed in time.
    Unconfirmed,
}

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its incarnation.
    pub id: NodeId,
    /// What people call it.
    pub name: Arc<str>,
    /// Whether it is connected with the node that plans, or is that one.
    pub is_up: bool,
    /// Whether it is in maintenance: it gets no new members.
    pub is_drained: bool,
    /// Whether it keeps queues at all; a witness does not.
    pub keeps_queues: bool,
    /// What its members should be spread over, such as a rack or a data centre.
    pub zone: Option<Arc<str>>,
    /// How many members of quorum queues it has.
    pub load: u64,
}

/// A member of the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its node's incarnation.
    pub node: NodeId,
    /// The node's name, if it was ever known.
    pub name: Option<Arc<str>>,
    /// Whether it votes.
    pub is_voter: bool,
    /// Up to which entry it has the leader's log; `None`: not known.
    pub matched: Option<u64>,
    /// What is known of its data.
    pub data: Data,
}

/// What is known of a member's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// Nothing says that it lost them.
    Kept,
    /// Its node has them no more: it was wiped and this incarnation, of the same name, is there in
    /// its place; or the same incarnation says that its part is lost.
    Lost {
        /// The node that a new member goes to.
        now: NodeId,
    },
}

impl Observed {
    /// The node with this id, if it is in the cluster.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The member on this node.
    pub fn member(&self, id: NodeId) -> Option<&Member> {
        self.members.iter().find(|member| member.node == id)
    }

    /// The size of the group: all members, also those that are lost, dangle or have no vote yet.
    pub fn size(&self) -> u64 {
        self.members.len() as u64
    }

    /// Whether a member takes part: its node is in the cluster and connected, and it has its data.
    pub fn runs(&self, member: &Member) -> bool {
        member.data == Data::Kept && self.node(member.node).is_some_and(|node| node.is_up)
    }

    /// Whether a member's node has left the cluster for good.
    pub fn dangles(&self, member: &Member) -> bool {
        member.data == Data::Kept && self.node(member.node).is_none()
    }

    /// How a member's node is shown.
    pub fn label(&self, id: NodeId) -> Label {
        let of_node = self.node(id).map(|node| &node.name);
        let name = of_node.or_else(|| self.member(id).and_then(|member| member.name.as_ref()));
        Label { id, name: name.cloned() }
    }
}

/// A node in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Its incarnation.
    pub id: NodeId,
    /// Its name, if it was ever known.
    pub name: Option<Arc<str>>,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name}"),
            None => write!(f, "{}", self.id),
        }
    }
}
