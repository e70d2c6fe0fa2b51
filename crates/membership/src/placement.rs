//! Which node gets a new member.
//!
//! The zone that has the fewest members of the queue, then the node that has the fewest members of
//! all queues, then what a hash of both says: every node that plans comes to the same answer, and
//! queues that grow at the same time do not all go to one node.

use model::id::{NodeId, QueueId};

use crate::observed::{Data, Node, Observed};

/// The best of the candidates; `None` if there are none.
pub fn choose(candidates: &[&Node], observed: &Observed) -> Option<NodeId> {
    let best = candidates.iter().min_by_key(|node| {
        (crowd(node, observed), node.load, weight(observed.queue, node.id), node.id)
    });
    best.map(|node| node.id)
}

/// The members in a node's zone. Nodes without a zone are a zone of their own.
fn crowd(node: &Node, observed: &Observed) -> usize {
    let kept = observed.members.iter().filter(|member| member.data == Data::Kept);
    let zones = kept.filter_map(|member| observed.node(member.node)).map(|node| &node.zone);
    zones.filter(|zone| **zone == node.zone).count()
}

/// FNV-1a: the same everywhere and in every version.
fn weight(queue: QueueId, node: NodeId) -> u64 {
    let bytes = queue.0.to_le_bytes().into_iter().chain(node.0.to_le_bytes());
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, mix);
    // The last byte alone moves only few bits.
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
