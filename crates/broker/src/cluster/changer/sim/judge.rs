//! What is not as it should be in the end.

use super::*;

/// What is not as it should be in the end, if anything is.
pub(super) fn complaint(world: &mut World) -> Option<String> {
    let nodes: Vec<NodeId> = world.machines.keys().copied().collect();
    for node in &nodes {
        world.catch_up(*node);
    }
    let voters: BTreeSet<NodeId> = nodes.iter().copied().collect();
    if world.voters != voters {
        return Some(format!("{:?} vote on the topology, and {voters:?} are there", world.voters));
    }
    let queues: Vec<QueueId> = world.groups.keys().copied().collect();
    for queue in queues {
        let group = world.groups.get(&queue)?;
        let leader = group.leader(|node| world.is_up(node));
        let Some(leader) = leader else { return Some(format!("{queue} has no leader")) };
        let (config, at) = group.replicas.get(&leader)?.config();
        if at > group.replicas.get(&leader)?.committed || !config.learners.is_empty() {
            return Some(format!("{queue} still changes: {config:?}"));
        }
        let state = world.machines.get(&leader)?.state.clone();
        let record = state.queue_by_id(queue)?;
        let recorded: BTreeSet<NodeId> = record.nodes().collect();
        if recorded != config.voters {
            return Some(format!("{queue} is recorded on {recorded:?} and is on {config:?}"));
        }
        if record.members.iter().any(|one| one.stage != Stage::Started) {
            return Some(format!("{queue}: {:?}", record.members));
        }
        let messages = group.truth.iter().filter_map(|(_, what)| match what {
            Entry::Message(message) => Some(*message),
            Entry::Blank | Entry::Members(_) => None,
        });
        let kept: BTreeSet<u64> = messages.collect();
        let confirmed = world.confirmed.get(&queue).cloned().unwrap_or_default();
        if let Some(lost) = confirmed.difference(&kept).next() {
            return Some(format!("{queue}: message {lost} was confirmed and is lost"));
        }
        let shorter = config.voters.iter().find(|voter| {
            group.replicas.get(voter).is_none_or(|it| it.log.len() < group.truth.len())
        });
        if let Some(shorter) = shorter {
            return Some(format!("{queue}: the member on {shorter} has not all of it"));
        }
    }
    None
}

/// Why a queue is smaller than it should be, if it is and nothing names the reason.
pub(super) fn too_small(shared: &Shared) -> Option<String> {
    let (leaders, settings) = {
        let world = shared.lock();
        let leader =
            |(id, group): (&QueueId, &Group)| Some((*id, group.leader(|node| world.is_up(node))?));
        (world.groups.iter().filter_map(leader).collect::<Vec<_>>(), world.settings)
    };
    for (queue, leader) in leaders {
        let boot = shared.lock().machines.get(&leader)?.boot;
        let site = Own { world: Arc::downgrade(shared), me: leader, boot };
        let known = Known { now: Timestamp(0), settings, is_busy: false, avoided: Vec::new() };
        let (desired, observed) = Observer::default().observe(&site, queue, known)?;
        let plan = plan(&desired, &observed);
        let allowed = [Kind::EvenSize, Kind::NoCandidate];
        let is_named = plan.refusals.iter().all(|one| allowed.contains(&one.kind()));
        if plan.step.is_some() || !is_named {
            return Some(format!("{queue} is not as large as it may be: {plan:?}"));
        }
        let up = observed.nodes.iter().filter(|node| node.is_up && !node.is_drained).count() as u64;
        let target = desired.target.effective();
        let free = up.saturating_sub(observed.size());
        if observed.size() < target && free > 1 {
            return Some(format!("{queue} has {} of {target} members on {up}", observed.size()));
        }
    }
    None
}

/// Everything as it is, for who reads a trace.
pub(super) fn scene(world: &World) -> String {
    let mut lines = vec![format!("{:?} vote on the topology", world.voters)];
    for (node, machine) in &world.machines {
        let Machine { name, boot, side, applied, lost, .. } = machine;
        let rests = machine.state.node(*node).is_some_and(|known| known.maintenance);
        lines.push(format!(
            "node {} {name}: boot {boot}, side {side}, applied {applied}, rests {rests}, lost {lost:?}",
            node.0
        ));
    }
    for (queue, group) in &world.groups {
        lines.push(format!("{queue}: {} committed", group.truth.len()));
        for (node, replica) in &group.replicas {
            let (config, at) = replica.config();
            lines.push(format!(
                "  on {}: term {}, leads {}, log {}, committed {}, {config:?} at {at}",
                node.0,
                replica.term,
                replica.leads,
                replica.log.len(),
                replica.committed,
            ));
        }
        let states = world.machines.values().map(|machine| &machine.state);
        let newest =
            states.max_by_key(|state| state.queue_by_id(*queue).map(|it| it.members.len()));
        let record = newest.and_then(|state| state.queue_by_id(*queue));
        lines.push(format!("  recorded: {:?}", record.map(|it| &it.members)));
    }
    lines.join("\n")
}
