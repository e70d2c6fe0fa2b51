//! Places to begin at, and ways to get somewhere.

use std::collections::BTreeSet;

use crate::check::holds::SMALL;
use crate::check::invariants::{broken, serves};
use crate::check::search::Search;
use crate::check::steps::Step;
use crate::check::world::{Bounds, Driver, NODES_MAX, Node, World};
use crate::machine::{Mode, Passive, Phase};

/// Everything may happen.
pub(super) const ALL: Bounds = Bounds {
    nodes: NODES_MAX,
    faults: u8::MAX,
    pauses: u8::MAX,
    operations: 8,
    age_max: u64::MAX,
    power: true,
    lag: true,
    delay: true,
    orders: true,
    losses: u8::MAX,
    forces: u8::MAX,
    wipes: 0,
    lone: false,
};

/// Goes some steps, each of which must be possible and keep the invariants.
pub(super) fn walk(mut world: World, steps: &[Step]) -> World {
    for step in steps {
        let mut possible = Vec::new();
        world.steps(&ALL, Driver::Whole, &mut possible);
        assert!(possible.contains(step), "{step:?} is not among {possible:?}");
        let next = world.after(*step, Driver::Whole);
        assert_eq!(broken(&world, &next, Driver::Whole), None, "{step:?}");
        world = next;
    }
    world
}

/// Lets one node go on by itself, without faults, until something is so.
pub(super) fn until(mut world: World, number: usize, goal: impl Fn(&Node) -> bool) -> World {
    for _ in 0..200 {
        if goal(&world.nodes[number]) {
            return world;
        }
        let value = world.register.map(crate::register::Register::signed);
        let order = [
            Step::Start(number),
            Step::WriteFile(number),
            Step::SyncFile(number),
            Step::Learn(number),
            Step::Swap(number),
            Step::Read(number, value),
            Step::Acquire(number),
            Step::Loaded(number),
            Step::Closed(number),
            Step::LearnLeaseEnd(number),
            Step::SyncDone(number),
            Step::Expire,
            Step::Timer(number),
            Step::ReplicaEndBreaks(number),
        ];
        let mut possible = Vec::new();
        world.steps(&ALL, Driver::Whole, &mut possible);
        let step = order.into_iter().find(|step| possible.contains(step));
        let step = step.unwrap_or_else(|| panic!("nothing goes on: {:?}", world.nodes[number]));
        world = walk(world, &[step]);
    }
    panic!("not within 200 steps: {:?}", world.nodes[number])
}

/// Lets a node begin to serve.
pub(super) fn serve(world: World, number: usize) -> World {
    until(world, number, serves)
}

/// Lets a node become passive, and makes sure that it does not serve.
pub(super) fn seek(world: World, number: usize) -> World {
    until(world, number, |node| node.phase() == Phase::Passive(Passive::Seeking))
}

/// Ends a node in order.
pub(super) fn stop(world: World, number: usize) -> World {
    until(walk(world, &[Step::Stop(number)]), number, |node| node.machine.is_none())
}

/// A passive node copies from an active one, up to the moment at which all is sent.
pub(super) fn copying(world: World, active: usize, replica: usize) -> World {
    let world = walk(world, &[Step::Register(active, replica)]);
    until(world, replica, |node| node.phase() == Phase::Passive(Passive::Copying))
}

/// A passive node copies from an active one, and both know that it is in sync.
pub(super) fn attach(world: World, active: usize, replica: usize) -> World {
    let world = walk(copying(world, active, replica), &[Step::CopySent(active)]);
    let world = until(world, replica, |node| node.phase() == Phase::Passive(Passive::InSync));
    walk(world, &[Step::InSync(active)])
}

/// The active node does not wait for a replica any more, until it serves alone.
pub(super) fn detach(world: World, active: usize) -> World {
    let world = walk(world, &[Step::ActiveEndBreaks(active)]);
    until(world, active, |node| {
        matches!(node.phase(), Phase::Active { mode: Mode::Unreplicated, .. })
    })
}

/// The first node serves a new journal alone, at 1.
pub(super) fn alone() -> World {
    serve(World::new(), 0)
}

/// The first two nodes are a pair, at 1.
pub(super) fn pair() -> World {
    attach(seek(alone(), 1), 0, 1)
}

/// A client's operation, confirmed by a node that serves alone.
pub(super) fn confirm_alone(world: World, number: usize) -> World {
    walk(world, &[Step::Operation(number), Step::Sync(number), Step::Confirm(number)])
}

/// A client's operation, confirmed by a pair.
pub(super) fn confirm_both(world: World, active: usize, replica: usize) -> World {
    let steps = [
        Step::Operation(active),
        Step::Sync(active),
        Step::Receive(replica),
        Step::Sync(replica),
        Step::Answer(replica),
        Step::Confirm(active),
    ];
    walk(world, &steps)
}

/// The signed value of the register.
pub(super) fn register(world: &World) -> i64 {
    world.register.expect("it is there").signed()
}

/// Who may come to serve first, and what the register says then, if nothing more fails.
pub(super) fn outcomes(world: &World) -> BTreeSet<(usize, i64)> {
    let bounds = Bounds { nodes: 2, operations: world.operations, age_max: 20, ..SMALL };
    let bounds = Bounds { faults: 0, ..bounds };
    let end = |world: &World| world.nodes.iter().any(serves);
    let search = Search { end: Some(&end), ..Search::new(bounds) };
    let mut outcomes = BTreeSet::new();
    let found = search.run(world, |world| {
        let serving = (0..NODES_MAX).filter(|number| serves(&world.nodes[*number]));
        outcomes.extend(serving.map(|number| (number, register(world))));
    });
    assert_eq!(found.violation.map(|(invariant, _)| invariant), None);
    outcomes
}
