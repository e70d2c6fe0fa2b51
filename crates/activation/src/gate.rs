//! What may be confirmed to clients.

/// What a node may confirm and deliver now. Beside it, unless [`crate::machine::Machine::needs_lease`]
/// says no, the node's lease must be usable at the very moment (see [`crate::lease`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gate {
    /// Nothing is confirmed, nothing delivered, nothing accepted.
    Closed,
    /// Operations are accepted and carried out; no confirm leaves.
    Hold,
    /// What is durable here, and of which the replica has said that it is durable there. While the
    /// age is raised after the loss of a replica, no new answers of it count.
    Replica,
    /// What is durable here.
    Alone,
}

impl Gate {
    /// Whether clients are served at all.
    pub fn is_open(self) -> bool {
        self != Self::Closed
    }
}
