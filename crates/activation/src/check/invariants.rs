//! The six invariants, as predicates.

use crate::check::world::{Driver, Node, World};
use crate::class::{Class, classify};
use crate::gate::Gate;
use crate::machine::Phase;
use crate::register::Register;
use crate::standing::{Own, Standing};

/// An invariant of the machine's head, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Invariant {
    OneConfirms,
    AloneUnderAnAgeOfItsOwn,
    ConfirmedIsEverywhere,
    RegisterGoesUp,
    ServedInSyncDiscardedBehind,
    ClaimHasAHolder,
}

use Invariant as Is;

impl Invariant {
    pub(super) const ALL: [Self; 6] = [
        Is::OneConfirms,
        Is::AloneUnderAnAgeOfItsOwn,
        Is::ConfirmedIsEverywhere,
        Is::RegisterGoesUp,
        Is::ServedInSyncDiscardedBehind,
        Is::ClaimHasAHolder,
    ];

    /// Whether it holds in a state, and held in the step that led to it.
    pub(super) fn holds(self, before: &World, now: &World, driver: Driver) -> bool {
        match self {
            Is::OneConfirms => one_confirms(now, driver),
            Is::AloneUnderAnAgeOfItsOwn => alone_under_an_age_of_its_own(now, driver),
            Is::ConfirmedIsEverywhere => confirmed_is_everywhere(now),
            Is::RegisterGoesUp => register_goes_up(before, now),
            Is::ServedInSyncDiscardedBehind => {
                served_in_sync(now, driver) && discarded_behind(before, now)
            }
            Is::ClaimHasAHolder => claim_has_a_holder(now),
        }
    }
}

/// The first one that a step breaks.
pub(super) fn broken(before: &World, now: &World, driver: Driver) -> Option<Invariant> {
    Invariant::ALL.into_iter().find(|invariant| !invariant.holds(before, now, driver))
}

/// INV-1: at most one node can confirm operations.
fn one_confirms(world: &World, driver: Driver) -> bool {
    world.nodes.iter().filter(|node| node.can_confirm(driver)).count() <= 1
}

/// INV-2: who can confirm alone does so under an age that is committed, and that no other copy has.
fn alone_under_an_age_of_its_own(world: &World, driver: Driver) -> bool {
    world.nodes.iter().enumerate().all(|(number, node)| {
        let alone = node.can_confirm(driver)
            && node.machine.is_some_and(|machine| machine.gate() == Gate::Alone);
        let Standing::Valid(age) = node.file.standing else { return !alone };
        let incarnation = node.file.incarnation;
        let elsewhere = world.nodes.iter().enumerate().any(|(other, node)| {
            other != number
                && node.file.standing == Standing::Valid(age)
                && node.file.incarnation == incarnation
        });
        !alone || (world.register == Some(Register::Committed(age)) && age.get() > 0 && !elsewhere)
    })
}

/// INV-3: what was confirmed is durable in every copy that may come to serve.
fn confirmed_is_everywhere(world: &World) -> bool {
    (0..world.nodes.len()).all(|number| {
        let node = &world.nodes[number];
        !class_on_disk(world, number).may_serve()
            || world.confirmed & !node.durable == 0
            || node.file.standing == Standing::Empty
    })
}

/// INV-4: the register moves `i ► -(i + 1) ► i + 1` and in no other way.
fn register_goes_up(before: &World, now: &World) -> bool {
    if before.register == now.register || before.losses != now.losses || before.forces != now.forces
    {
        return true;
    }
    match (before.register, now.register) {
        (Some(Register::Committed(from)), Some(Register::Claimed(to))) => to == from.next(),
        (Some(Register::Claimed(from)), Some(Register::Committed(to))) => to == from,
        _ => false,
    }
}

/// INV-5, first half: a node that serves has a copy that is in sync, or is on its way from one age
/// to the next.
fn served_in_sync(world: &World, driver: Driver) -> bool {
    (0..world.nodes.len()).all(|number| {
        let node = &world.nodes[number];
        !node.can_confirm(driver) || class_on_disk(world, number).may_serve()
    })
}

/// INV-5, second half: a copy goes only after a linearizable read has found it worthless.
fn discarded_behind(before: &World, now: &World) -> bool {
    before.nodes.iter().zip(&now.nodes).all(|(before, now)| {
        let marked = matches!(before.file.standing, Standing::Valid(_))
            && now.file.standing == Standing::Syncing;
        let emptied =
            before.all() & !now.all() != 0 && before.machine.is_some() && now.machine.is_some();
        !(marked || emptied) || before.found_worthless || now.found_worthless
    })
}

/// INV-6: while a claim is open, somebody has the age before it or the age itself, with everything
/// that was confirmed.
fn claim_has_a_holder(world: &World) -> bool {
    let Some(Register::Claimed(claimed)) = world.register else { return true };
    world.nodes.iter().any(|node| {
        let near =
            node.file.standing.age().is_some_and(|age| age == claimed || age.next() == claimed);
        near && world.confirmed & !node.durable == 0
    })
}

/// What a node's disk is worth, whatever its process believes.
pub(super) fn class_on_disk(world: &World, number: usize) -> Class {
    let Node { file, durable, .. } = world.nodes[number];
    let own = Own { record: file, vacant: durable == 0, founder: world.is_founder(number) };
    classify(&own, &world.view())
}

/// Whether a node serves clients.
pub(super) fn serves(node: &Node) -> bool {
    matches!(node.phase(), Phase::Active { .. })
}
