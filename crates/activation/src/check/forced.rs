//! Register data that is lost, and values that an operator forces.

use crate::check::holds::SMALL;
use crate::check::invariants::{class_on_disk, serves};
use crate::check::scenes::{
    confirm_alone, confirm_both, detach, outcomes, pair, serve, stop, walk,
};
use crate::check::search::Search;
use crate::check::steps::Step;
use crate::check::world::{Bounds, Driver, NODES_MAX, Node, World};
use crate::class::{Class, Held};
use crate::register::Register;
use crate::rules::{Rule, break_rules};

fn down(register: i64, ages: &[u64]) -> World {
    let mut nodes = [Node::BLANK; NODES_MAX];
    for (node, age) in nodes.iter_mut().zip(ages) {
        *node = Node::of(*age, 0);
    }
    World::stopped(register, &nodes)
}

fn force(world: &World, age: u64) -> World {
    world.after(Step::Force(age), Driver::Whole)
}

/// A8.8, and A7.8.5 with an empty third node: nobody serves until an operator has decided, and then
/// the newest copy does.
#[test]
fn a8_8_quorum_data_lost() {
    let world = confirm_alone(detach(confirm_both(pair(), 0, 1), 0), 0);
    let world = walk(stop(world, 0), &[Step::ReplicaEndBreaks(1), Step::Crash(1)]);
    for again in [false, true] {
        let lost = walk(world.clone(), &[Step::LoseQuorum(again)]);
        assert_eq!(outcomes(&lost).len(), 0);
        for number in [0, 1] {
            assert_eq!(class_on_disk(&lost, number), Class::Held(Held::QuorumDataLost));
        }
        let healed = force(&lost, 2);
        assert_eq!(outcomes(&healed).into_iter().collect::<Vec<_>>(), [(0, 3)]);
        assert_eq!(healed.confirmed, 0b11, "nothing is lost");
    }
}

/// While the register is lost nobody begins to serve, wherever everybody was.
#[test]
fn nobody_serves_without_a_register() {
    for (nodes, faults) in [(2, 1), (3, 0)] {
        let bounds = Bounds { nodes, faults, losses: 1, operations: 0, pauses: 1, ..SMALL };
        let mut lost = 0_u32;
        let found = Search::new(bounds).run(&confirm_both(pair(), 0, 1), |world| {
            if world.losses > 0 {
                lost += 1;
                let confirms = |node: &Node| node.can_confirm(Driver::Whole);
                assert!(!world.nodes.iter().any(confirms), "{world:?}");
            }
        });
        eprintln!("{nodes} nodes: {} states, {lost} of them without the register", found.states);
        assert!(found.violation.is_none(), "{:?}", found.violation);
        assert!(lost > 100, "only {lost}");
    }
}

/// The rule that does it: an age of another data set means nothing.
#[test]
fn another_data_set_is_recognised() {
    let mut world = down(3, &[3]);
    world.incarnation.0 += 1;
    assert_eq!(outcomes(&world).len(), 0);
    break_rules([Some(Rule::Incarnation), None]);
    let served = outcomes(&world).len();
    break_rules([None; 2]);
    assert_eq!(served, 1, "without it the copy would be served");
}

/// A8.11: a node that was pointed at another cluster finds no register there, or one of another data
/// set. It serves nothing, however young its copy is.
#[test]
fn a8_11_another_cluster() {
    for age in [0, 3] {
        for register in [None, Some(0), Some(3)] {
            let mut world = down(0, &[age]);
            world.register = register.and_then(Register::from_signed);
            world.incarnation.0 += 1;
            let lost = Class::Held(Held::QuorumDataLost);
            assert_eq!(class_on_disk(&world, 0), lost, "{age} against {register:?}");
            assert_eq!(outcomes(&world).len(), 0);
        }
    }
}

/// A8.9: who has exactly the value may start, who has less is stale, who has more is held.
#[test]
fn a8_9_forced_values() {
    let world = force(&down(7, &[6, 5, 4]), 5);
    let classes = [0, 1, 2].map(|number| class_on_disk(&world, number));
    assert_eq!(classes, [Class::Held(Held::LocalAhead), Class::InSync, Class::Stale]);
    let world = serve(world, 1);
    assert_eq!(outcomes(&world).into_iter().collect::<Vec<_>>(), [(1, 6)]);
}

/// A8.10: over an open claim too.
#[test]
fn a8_10_forced_over_a_claim() {
    let world = force(&down(-9, &[5, 4]), 5);
    assert_eq!(outcomes(&world).into_iter().collect::<Vec<_>>(), [(0, 6)]);
}

/// With forced values anywhere, the invariants hold for what the operator chose to keep, and a copy
/// that is newer than his value is never touched.
#[test]
fn forced_values_keep_the_rest() {
    for (name, world, bounds) in [
        ("a pair", pair(), Bounds { forces: 1, faults: 2, ..SMALL }),
        ("older copies", down(3, &[3, 1]), Bounds { forces: 1, faults: 1, age_max: 5, ..SMALL }),
        ("after a loss", down(2, &[2, 1]), Bounds { forces: 1, losses: 1, age_max: 4, ..SMALL }),
        (
            "three",
            down(3, &[2, 3, 1]),
            Bounds { nodes: 3, forces: 1, faults: 0, age_max: 4, operations: 0, ..SMALL },
        ),
    ] {
        let mut forced = 0_u32;
        let found = Search::new(bounds).run(&world, |world| {
            forced += u32::from(world.forces > 0 && world.nodes.iter().any(serves));
        });
        eprintln!("{name}: {} states, {forced} of them served after a force", found.states);
        assert!(found.violation.is_none(), "{name}: {:?}", found.violation);
        assert!(forced > 0);
    }
}
