//! What goes wrong and what operators do during the storm, and how it is mended.

use super::*;

/// Does some harm, or an operator does something.
pub(super) fn harm(shared: &Shared) {
    let world = &mut *shared.lock();
    let nodes: Vec<NodeId> = world.machines.keys().copied().collect();
    let Some(node) = world.rng.pick(&nodes) else { return };
    let queues: Vec<QueueId> = world.groups.keys().copied().collect();
    let Some(queue) = world.rng.pick(&queues) else { return };
    let up = world.is_up(node);
    let what = world.rng.below(12);
    world.tell(|| format!("harm {what} to node {} or {queue}", node.0));
    match what {
        0..=2 if up => {
            world.count("crashes");
            world.machines.get_mut(&node).expect("it is there").boot = 0;
            later(shared, world.rng.below(6000), move |shared| start(shared, node));
        }
        3 if up => {
            world.count("cuts");
            let side = world.rng.below(2) + 1;
            world.machines.get_mut(&node).expect("it is there").side = side;
            later(shared, world.rng.below(6000), move |shared| {
                if let Some(machine) = shared.lock().machines.get_mut(&node) {
                    machine.side = 0;
                }
            });
        }
        4 | 5 if world.can_lose(node, None) => wipe(shared, world, node),
        6 if world.can_lose(node, Some(queue)) => {
            // Its part of one queue, which was recorded as started.
            let machine = world.machines.get_mut(&node).expect("it is there");
            let recorded = machine.state.queue_by_id(queue).and_then(|it| it.member(node)).copied();
            let group = world.groups.get_mut(&queue).expect("it is there");
            let has = group.replicas.get(&node).map(|replica| replica.stream);
            let stands = recorded.is_some_and(|it| it.stage == Stage::Started);
            if stands && has == recorded.map(|it| it.stream) {
                group.replicas.remove(&node);
                machine.lost.insert(queue);
                world.count("losses");
                if world.broken == Some(Rule::LostDoNotVote) {
                    world.configure(node);
                }
            }
        }
        7 if up => {
            let on = world.rng.one_in(2);
            let drain = Command::SetMaintenance { id: node.0, on };
            if world.submit(node, drain).is_ok() {
                world.count("drains");
            }
        }
        8 => {
            let size: u64 = [1, 3, 4, 5][world.rng.below(4) as usize];
            let policy = Policy {
                vhost: "/".into(),
                name: "p".into(),
                pattern: ".*".into(),
                apply_to: ApplyTo::QuorumQueues,
                definition: [("target-group-size".to_owned(), size.into())].into_iter().collect(),
                priority: 0,
            };
            let delete = Command::DeletePolicy { vhost: "/".into(), name: "p".into() };
            let set = world.rng.one_in(2);
            if world.submit(node, if set { Command::PutPolicy(policy) } else { delete }).is_ok() {
                world.count("policies");
            }
        }
        9 if up => {
            world.elect(queue, node);
        }
        10 if !up && world.machines.len() > 4 && world.can_lose(node, None) => {
            // Forgotten without its members, as one that was cut off.
            let Some(by) = nodes.iter().copied().find(|by| world.may_decide(*by)) else { return };
            let left = world.voters.len() - usize::from(world.voters.contains(&node));
            if left >= 3 && world.submit(by, Command::ForgetNode { id: node.0 }).is_ok() {
                world.count("forgets");
                world.voters.remove(&node);
                gone(world, node);
            }
        }
        11 if world.machines.len() < 6 && world.rng.one_in(2) => join(shared, world),
        _ => {}
    }
}

/// A node comes that was never there.
fn join(shared: &Shared, world: &mut World) {
    let Some(by) = world.voters.iter().copied().find(|by| world.may_decide(*by)) else { return };
    let id = NodeId(NODES + 1 + world.joined);
    let name = format!("n{}", id.0);
    if world.submit(by, put(id, &name, 1)).is_err() {
        return world.fail("a node cannot join".into());
    }
    world.count("joins");
    world.joined += 1;
    world.voters.insert(id);
    let state = world.machines.get(&by).expect("it decides").state.clone();
    let applied = world.commands.len();
    let machine = Machine { name, boot: 0, side: 0, applied, state, lost: BTreeSet::new() };
    world.machines.insert(id, machine);
    later(shared, world.rng.below(3000), move |shared| start(shared, id));
}

/// A node is gone with all that it had.
pub(super) fn gone(world: &mut World, node: NodeId) {
    world.machines.remove(&node);
    for group in world.groups.values_mut() {
        group.replicas.remove(&node);
    }
}

/// A node loses everything and comes back under its name.
pub(super) fn wipe(shared: &Shared, world: &mut World, node: NodeId) {
    let Some(machine) = world.machines.get(&node) else { return };
    let (name, fresh) = (machine.name.clone(), NodeId(node.0 + 100));
    // Who lets it in has to be there, without it.
    let decider = world.machines.keys().copied().find(|by| *by != node && world.may_decide(*by));
    let Some(by) = decider.filter(|by| world.voters.contains(by)) else { return };
    let rest = world.voters.iter().filter(|voter| **voter != node && world.reaches(by, **voter));
    if rest.count() * 2 <= world.voters.len() {
        return;
    }
    world.count("wipes");
    gone(world, node);
    if world.submit(by, put(fresh, &name, 1)).is_err() {
        return world.fail("a node cannot come back".into());
    }
    world.voters.insert(fresh);
    // Mostly its former self goes with the same word; else somebody was cut off.
    if !world.rng.one_in(3) {
        world.voters.remove(&node);
    }
    let state = world.machines.get(&by).expect("it decides").state.clone();
    let applied = world.commands.len();
    let machine = Machine { name, boot: 0, side: 0, applied, state, lost: BTreeSet::new() };
    world.machines.insert(fresh, machine);
    later(shared, world.rng.below(8000), move |shared| start(shared, fresh));
}

pub(super) fn start(shared: &Shared, node: NodeId) {
    let is_down = shared.lock().machines.get(&node).is_some_and(|machine| machine.boot == 0);
    if is_down {
        boot(shared, node);
    }
}

pub(super) fn later(shared: &Shared, after: u64, what: impl FnOnce(&Shared) + Send + 'static) {
    let world = Arc::downgrade(shared);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(after)).await;
        if let Some(world) = world.upgrade() {
            what(&world);
        }
    });
}

/// Nothing is wrong any more: all nodes are there and reach each other, and none is drained.
pub(super) fn mend(shared: &Shared) {
    let nodes: Vec<NodeId> = shared.lock().machines.keys().copied().collect();
    for machine in shared.lock().machines.values_mut() {
        machine.side = 0;
    }
    for node in &nodes {
        start(shared, *node);
    }
    for node in nodes {
        let revive = Command::SetMaintenance { id: node.0, on: false };
        let mut world = shared.lock();
        let by = world.voters.iter().copied().find(|by| world.may_decide(*by));
        if let Some(by) = by {
            drop(world.submit(by, revive));
        }
        // What dangles for want of auto_remove is an operator's to decide.
        world.settings.auto_remove = true;
    }
}
