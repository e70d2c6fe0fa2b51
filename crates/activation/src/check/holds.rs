//! The invariants hold in every state that can be reached, and somebody can always come to serve.
//!
//! The numbers of states are pinned: a change of the rules that makes some of them unreachable, or
//! others reachable, is seen.

use crate::check::invariants::{Invariant, serves};
use crate::check::search::Search;
use crate::check::world::{Bounds, World};

pub(super) const SMALL: Bounds = Bounds {
    nodes: 2,
    faults: 1,
    pauses: 0,
    operations: 1,
    age_max: 3,
    power: false,
    lag: false,
    delay: false,
    orders: false,
    losses: 0,
    forces: 0,
    wipes: 0,
    lone: false,
};

fn check(name: &str, bounds: Bounds, wanted: usize) {
    let found = Search::new(bounds).run(&World::new(), |_| {});
    eprintln!("{name}: {} states", found.states);
    assert!(found.violation.is_none(), "{name}: {:?}", found.violation);
    assert_eq!(found.states, wanted, "{name}");
}

#[test]
fn with_crashes_between_all_steps() {
    check("two crashes", Bounds { faults: 2, ..SMALL }, 211_594);
    check("two operations", Bounds { operations: 2, ..SMALL }, 105_610);
}

#[test]
fn with_power_cuts_ended_leases_lagging_reads_and_orders() {
    let bounds = Bounds { power: true, pauses: 1, lag: true, orders: true, ..SMALL };
    check("power cuts, a pause, lag, orders", bounds, 811_870);
}

#[test]
fn with_lost_answers_and_late_commands() {
    check("late commands", Bounds { delay: true, power: true, ..SMALL }, 589_684);
}

#[test]
fn with_three_nodes() {
    check("three nodes", Bounds { nodes: 3, faults: 0, ..SMALL }, 339_951);
}

/// A node that was wiped counts as having nothing: as long as somebody else has what was confirmed all
/// goes on, and if nobody has, what is old or empty is not served in its place.
#[test]
fn with_nodes_that_are_wiped() {
    let bounds = Bounds { wipes: 1, power: true, pauses: 1, lag: true, ..SMALL };
    check("a wiped node", bounds, 926_235);
    let lone = Bounds { lone: true, ..bounds };
    // Then a claim may have no holder any more.
    for only in Invariant::ALL.into_iter().filter(|one| *one != Invariant::ClaimHasAHolder) {
        let search = Search { only: Some(only), ..Search::new(lone) };
        let found = search.run(&World::new(), |_| {});
        assert!(found.violation.is_none(), "{only:?}: {:?}", found.violation);
        assert_eq!(found.states, 966_510, "{only:?}");
    }
}

/// More of everything: `make activation-check`. How many states there are at least is known from
/// searches before registers had lives, which only added some.
#[test]
#[ignore = "minutes: fifteen million states"]
fn with_more_of_everything() {
    let all = Bounds { power: true, pauses: 1, lag: true, delay: true, orders: true, ..SMALL };
    for (name, bounds, at_least) in [
        ("all at once", all, 4_880_576),
        ("two pauses", Bounds { pauses: 2, ..SMALL }, 2_455_327),
        ("three nodes, a crash", Bounds { nodes: 3, ..SMALL }, 4_372_042),
        ("three crashes", Bounds { faults: 3, age_max: 4, ..SMALL }, 211_594),
    ] {
        let found = Search::new(bounds).run(&World::new(), |_| {});
        eprintln!("{name}: {} states", found.states);
        assert!(found.violation.is_none(), "{name}: {:?}", found.violation);
        assert!(found.states >= at_least, "{name}: only {} states", found.states);
    }
}

/// From every state some node can come to serve without an operator, if nothing more fails.
#[test]
fn somebody_can_always_serve() {
    let goal = |world: &World| world.nodes.iter().any(serves);
    for (name, bounds) in [
        ("power, orders", Bounds { power: true, orders: true, age_max: 4, ..SMALL }),
        ("late commands", Bounds { delay: true, operations: 0, age_max: 4, ..SMALL }),
        ("a pause", Bounds { pauses: 1, operations: 0, faults: 0, age_max: 4, ..SMALL }),
        ("a wiped node", Bounds { wipes: 1, age_max: 4, ..SMALL }),
    ] {
        let search = Search { goal: Some(&goal), ..Search::new(bounds) };
        let found = search.run(&World::new(), |_| {});
        eprintln!("{name}: {} states, {} stuck", found.states, found.stuck());
        assert_eq!(found.stuck(), 0, "{name}");
    }
}
