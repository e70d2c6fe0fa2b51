//! The rules of the first design of this feature once more, as short as they can be said, over
//! plain numbers. It shares nothing with the crate.

/// A queue in a cluster.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    /// In the order in which they are looked at; the leader is one of them.
    pub(crate) members: Vec<u64>,
    /// Nodes of the cluster; none: they could not be read.
    pub(crate) nodes: Vec<u64>,
    pub(crate) running: Vec<u64>,
    pub(crate) drained: Vec<u64>,
    pub(crate) target: u64,
    pub(crate) auto_remove: bool,
    pub(crate) leader: u64,
}

/// What is done in one pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Nothing,
    Remove(u64),
    /// Any of these.
    AddOneOf(Vec<u64>),
}

pub(crate) fn verdict(world: &Cluster) -> Verdict {
    let Cluster { members, nodes, running, drained, target, auto_remove, leader } = world;
    if nodes.is_empty() || drained.contains(leader) {
        return Verdict::Nothing;
    }
    let dangling = members.iter().find(|member| !nodes.contains(member));
    if let (Some(dangling), true) = (dangling, auto_remove) {
        return Verdict::Remove(*dangling);
    }
    let free: Vec<u64> = running
        .iter()
        .filter(|node| !members.contains(node) && !drained.contains(node))
        .copied()
        .collect();
    let size = members.len() as u64;
    let all_run = members
        .iter()
        .all(|member| member == leader || running.contains(member) && nodes.contains(member));
    if !free.is_empty() && size < *target && (size.is_multiple_of(2) || free.len() > 1) && all_run {
        return Verdict::AddOneOf(free);
    }
    Verdict::Nothing
}

/// The sizes that a queue goes through if everything succeeds.
pub(crate) fn sizes(mut world: Cluster) -> Vec<u64> {
    let mut sizes = vec![world.members.len() as u64];
    while sizes.len() < 12 {
        match verdict(&world) {
            Verdict::Nothing => break,
            Verdict::Remove(gone) => world.members.retain(|member| *member != gone),
            Verdict::AddOneOf(free) => world.members.push(free[0]),
        }
        sizes.push(world.members.len() as u64);
    }
    sizes
}
