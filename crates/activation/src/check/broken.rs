//! Every rule is needed: broken, it breaks an invariant that holds with it. The traces are shortest
//! ones, and printed.

use crate::check::holds::SMALL;
use crate::check::invariants::Invariant;
use crate::check::scenes::{confirm_both, pair, seek, serve, stop};
use crate::check::search::Search;
use crate::check::world::{Bounds, Driver, NODES_MAX, Node, World};
use crate::rules::{Rule, break_rules};

struct Case {
    name: &'static str,
    rules: [Option<Rule>; 2],
    driver: Driver,
    /// What is broken when nothing is: what breaks must be due to the rest.
    before: Driver,
    bounds: Bounds,
    from: World,
    wanted: Invariant,
}

impl Case {
    fn rule(name: &'static str, rule: Rule, from: World, wanted: Invariant) -> Self {
        let (rules, driver) = ([Some(rule), None], Driver::Whole);
        Self { name, rules, driver, before: driver, bounds: SMALL, from, wanted }
    }

    fn driver(name: &'static str, driver: Driver, from: World, wanted: Invariant) -> Self {
        let before = Driver::Whole;
        Self { name, rules: [None; 2], driver, before, bounds: SMALL, from, wanted }
    }

    fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Unbroken nothing is found from the same place; broken, the invariant is.
    fn check(&self) {
        let search =
            |driver| Search { driver, only: Some(self.wanted), ..Search::new(self.bounds) };
        break_rules(self.rules);
        let found = search(self.driver).run(&self.from, |_| {});
        break_rules([None; 2]);
        let (invariant, trace) =
            found.violation.unwrap_or_else(|| panic!("{}: nobody notices", self.name));
        assert_eq!(invariant, self.wanted);
        eprintln!(
            "{}: {invariant:?} after {} steps, {} states",
            self.name,
            trace.len(),
            found.states
        );
        eprintln!("    {trace:?}");
        let found = search(self.before).run(&self.from, |_| {});
        assert!(found.violation.is_none(), "{}: {:?}", self.name, found.violation);
    }
}

const POWER: Bounds = Bounds { power: true, faults: 2, ..SMALL };
const PAUSE: Bounds = Bounds { pauses: 1, ..SMALL };

fn stopped(register: i64, first: u64, second: u64) -> World {
    let mut nodes = [Node::BLANK; NODES_MAX];
    (nodes[0], nodes[1]) = (Node::of(first, 0), Node::of(second, 0));
    World::stopped(register, &nodes)
}

#[test]
fn inv_1_one_confirms() {
    let wanted = Invariant::OneConfirms;
    Case::driver("the lock is given on early", Driver::EarlyExpiry, pair(), wanted).check();
    Case::driver("no look at the lease", Driver::NoLeaseCheck, pair(), wanted)
        .bounds(PAUSE)
        .check();
}

#[test]
fn inv_2_alone_under_an_age_of_its_own() {
    let wanted = Invariant::AloneUnderAnAgeOfItsOwn;
    let rule = Rule::RaiseAfterUnheardSync;
    Case::rule("BA-3: a sync that was not heard raises nothing", rule, pair_begins(), wanted)
        .check();
    Case::rule("no second raise after a repair", Rule::RaiseAfterRepair, stopped(-2, 2, 2), wanted)
        .check();
    let rule = Rule::ReadIsFenced;
    Case::rule("the read under the lock does not say whose it is", rule, stopped(1, 1, 1), wanted)
        .bounds(PAUSE)
        .check();
    // Fencing alone is enough, and so is the lease alone as long as every clock is right.
    let unfenced = Driver::NoFencingNorLeaseCheck;
    let case = Case::driver("BA-2: no fencing", unfenced, pair(), wanted);
    Case { before: Driver::NoLeaseCheck, ..case }
        .bounds(Bounds { delay: true, pauses: 1, faults: 0, ..SMALL })
        .check();
    Case::driver("the state file is answered unsynced", Driver::UnsyncedFile, World::new(), wanted)
        .bounds(POWER)
        .check();
}

#[test]
fn inv_3_confirmed_is_everywhere() {
    let wanted = Invariant::ConfirmedIsEverywhere;
    let rule = Rule::GateUntilCommit;
    Case::rule("BA-1: confirmed before the age is raised", rule, pair(), wanted).check();
    let rule = Rule::RaiseAfterUnheardSync;
    Case::rule("BA-3: and so it loses what was confirmed", rule, pair_begins(), wanted).check();
    Case::driver("BR-1: answers before it is durable", Driver::UnsyncedAnswers, pair(), wanted)
        .bounds(POWER)
        .check();
    let from = confirm_alone_then_pair();
    Case::driver("the copy is not durable", Driver::UnsyncedCopy, from, wanted)
        .bounds(POWER)
        .check();
    let wiped = "a wiped node counts as what it was";
    Case::driver(wiped, Driver::WipedCounts, pair(), wanted)
        .bounds(Bounds { wipes: 1, ..SMALL })
        .check();
    let rule = Rule::Incarnation;
    Case::rule("ADR 0032: ages of another life count", rule, two_ages(), wanted)
        .bounds(Bounds { forces: 1, faults: 0, age_max: 4, operations: 2, ..SMALL })
        .check();
    Case::driver("confirmed before it is durable here", Driver::UnsyncedConfirms, pair(), wanted)
        .bounds(POWER)
        .check();
}

#[test]
fn inv_4_register_goes_up() {
    Case::driver("BA-2: read, then write", Driver::BlindWrites, pair(), Invariant::RegisterGoesUp)
        .bounds(Bounds { delay: true, faults: 0, ..SMALL })
        .check();
}

#[test]
fn inv_5_served_in_sync_discarded_behind() {
    let wanted = Invariant::ServedInSyncDiscardedBehind;
    let rule = Rule::ReadBeforeDiscard;
    Case::rule("discarded after a read that may lag", rule, stale(), wanted).check();
    // BA-5, after an operator forced a value that is too low.
    Case::rule("BA-5: ahead is stale", Rule::AheadIsHeld, stopped(3, 3, 1), wanted)
        .bounds(Bounds { forces: 1, ..SMALL })
        .check();
    // BA-4. Here nothing is thrown away before an active node has accepted, and whoever serves
    // without a replica has the only copy of its age: so the second look is the last of three guards.
    let both = [Some(Rule::AheadIsHeld), Some(Rule::ReadBeforeDiscard)];
    let case = Case::rule("BA-4: an old value", Rule::AheadIsHeld, pair(), wanted);
    Case { rules: both, ..case }.bounds(Bounds { lag: true, ..SMALL }).check();
}

#[test]
fn inv_6_claim_has_a_holder() {
    let wanted = Invariant::ClaimHasAHolder;
    let rule = Rule::RepairWritesFirst;
    Case::rule("the register is repaired before the file", rule, stopped(-2, 1, 1), wanted).check();
}

/// The replica is about to be told that it is whole.
fn pair_begins() -> World {
    crate::check::scenes::copying(seek(crate::check::scenes::alone(), 1), 0, 1)
}

/// The newer copy has an operation that the older one lacks.
fn two_ages() -> World {
    let mut world = stopped(2, 2, 1);
    (world.nodes[0].durable, world.confirmed, world.operations) = (1, 1, 1);
    world
}

fn confirm_alone_then_pair() -> World {
    let world = crate::check::scenes::confirm_alone(crate::check::scenes::alone(), 0);
    crate::check::scenes::copying(seek(world, 1), 0, 1)
}

/// The second node serves, and the first has an older copy and is down.
fn stale() -> World {
    let world = confirm_both(pair(), 0, 1);
    serve(stop(world, 0), 1)
}
