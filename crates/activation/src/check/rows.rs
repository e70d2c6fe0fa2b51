//! The tables of crash points, row by row. `A` is node 0, `B` node 1; ages are 5 + what the row says,
//! or those of a new journal, where a pair is at 1.

use std::cell::Cell;

use crate::check::invariants::{class_on_disk, serves};
use crate::check::scenes::{
    alone, attach, confirm_alone, confirm_both, copying, detach, outcomes, pair, register, seek,
    serve, stop, until, walk,
};
use crate::check::steps::Step;
use crate::check::world::{NODES_MAX, Node, World};
use crate::class::Class;
use crate::gate::Gate;
use crate::machine::{Passive, Phase, Step as Raising, Then};
use crate::standing::Standing;

const A: usize = 0;
const B: usize = 1;
const I: u64 = 5;

/// Both are down. Operation 1 was confirmed and is in both copies.
fn down(register: i64, a: u64, b: u64) -> World {
    let mut nodes = [Node::BLANK; NODES_MAX];
    (nodes[A], nodes[B]) = (Node::of(a, 1), Node::of(b, 1));
    World::stopped(register, &nodes)
}

/// Exactly these may come to serve, at these values of the register.
fn check(world: &World, wanted: &[(usize, i64)]) {
    assert_eq!(outcomes(world).into_iter().collect::<Vec<_>>(), wanted);
}

fn gate(world: &World, number: usize) -> Gate {
    world.nodes[number].machine.map_or(Gate::Closed, |machine| machine.gate())
}

/// The pair is losing B, and A is at a step of raising its age.
fn raising(step: Raising) -> World {
    let world = walk(confirm_both(pair(), A, B), &[Step::Operation(A), Step::ActiveEndBreaks(A)]);
    until(world, A, |node| matches!(node.phase(), Phase::Raising { step: now, .. } if now == step))
}

#[test]
fn cp_01_before_the_claim() {
    check(&down(5, I, I), &[(A, 6), (B, 6)]);
    let mut world = walk(raising(Raising::Claim), &[Step::Crash(A)]);
    // The claim may be on its way, and be carried out before the lock is given on.
    check(&world, &[(A, 2), (A, 3), (B, 2), (B, 3)]);
    world.delayed = None;
    check(&world, &[(A, 2), (B, 2)]);
}

#[test]
fn cp_02_after_the_claim() {
    check(&down(-6, I, I), &[(A, 7), (B, 7)]);
    check(&walk(raising(Raising::File), &[Step::Crash(A)]), &[(A, 3), (B, 3)]);
}

#[test]
fn cp_03_after_the_file() {
    check(&down(-6, I + 1, I), &[(A, 7), (B, 7)]);
    let world = walk(raising(Raising::Commit), &[Step::Crash(A)]);
    check(&world, &[(A, 3), (B, 3)]);
    // If B wins, A is stale.
    let world = seek(serve(world, B), A);
    assert_eq!(class_on_disk(&world, A), Class::Stale);
}

#[test]
fn cp_04_after_the_commit() {
    check(&down(6, I + 1, I), &[(A, 7)]);
}

#[test]
fn cp_05_after_confirming_alone() {
    let world = confirm_alone(detach(confirm_both(pair(), A, B), A), A);
    check(&walk(world, &[Step::Crash(A)]), &[(A, 3)]);
}

#[test]
fn cp_06_the_claim_is_refused() {
    let world = raising(Raising::Claim);
    let world = walk(world, &[Step::LeaseEnds(A), Step::Expire, Step::Swap(A), Step::Learn(A)]);
    assert_eq!(gate(&world, A), Gate::Closed);
    assert_eq!((world.confirmed, world.nodes[A].held), (1, 0), "what was held has no answer");
    assert_eq!(register(&world), 1);
}

#[test]
fn cp_07_the_file_cannot_be_written() {
    let world = walk(raising(Raising::File), &[Step::WriteFails(A)]);
    assert_eq!((world.confirmed, register(&world)), (1, -2));
    // A too, once its disk works.
    check(&world, &[(A, 3), (B, 3)]);
    assert_eq!(register(&serve(world, B)), 3);
}

#[test]
fn cp_08_the_commit_has_no_answer() {
    let asked = raising(Raising::Commit);
    let not_done = walk(asked.clone(), &[Step::Unavailable(A)]);
    let done = walk(asked, &[Step::Swap(A), Step::Unavailable(A)]);
    for world in [&not_done, &done] {
        assert_eq!(gate(world, A), Gate::Closed);
        assert_eq!(world.confirmed, 1);
    }
    check(&done, &[(A, 3)]);
    // What was asked may be done later, but not once the lock has gone to somebody else.
    let outcomes = outcomes(&not_done);
    assert!(outcomes.contains(&(A, 3)) && outcomes.contains(&(B, 3)), "{outcomes:?}");
    let world = serve(walk(not_done, &[Step::Closed(A), Step::Crash(A)]), B);
    assert_eq!(register(&walk(world, &[Step::Delayed])), 3);
}

#[test]
fn cp_09_the_repairer_dies_after_its_file() {
    check(&down(-6, I, I + 1), &[(A, 7), (B, 7)]);
}

#[test]
fn cp_10_both_have_the_claimed_age() {
    check(&down(-6, I + 1, I + 1), &[(A, 7), (B, 7)]);
}

#[test]
fn cp_11_after_the_repaired_register() {
    check(&down(6, I, I + 1), &[(B, 7)]);
}

#[test]
fn cp_12_after_the_repaired_register_both() {
    check(&down(6, I + 1, I + 1), &[(A, 7), (B, 7)]);
}

#[test]
fn cp_13_after_the_repairers_own_claim() {
    check(&down(-7, I, I + 1), &[(B, 8)]);
}

#[test]
fn cp_14_after_the_repairers_own_claim_both() {
    check(&down(-7, I + 1, I + 1), &[(A, 8), (B, 8)]);
}

#[test]
fn cp_15_after_the_repairers_second_file() {
    check(&down(-7, I, I + 2), &[(B, 8)]);
    check(&down(-7, I + 1, I + 2), &[(A, 8), (B, 8)]);
}

#[test]
fn cp_16_after_the_repairers_commit() {
    check(&down(7, I, I + 2), &[(B, 8)]);
    check(&down(7, I + 1, I + 2), &[(B, 8)]);
}

/// A new journal: A is its founder, and nobody else begins.
fn new(register: i64, a: Option<u64>, b: Option<u64>) -> World {
    let node = |age: Option<u64>| age.map_or(Node::BLANK, |age| Node::of(age, 0));
    let mut nodes = [Node::BLANK; NODES_MAX];
    (nodes[A], nodes[B]) = (node(a), node(b));
    World::stopped(register, &nodes)
}

#[test]
fn cp_17_before_the_first_file() {
    check(&new(0, None, None), &[(A, 1)]);
}

#[test]
fn cp_18_before_the_first_claim() {
    check(&new(0, Some(0), None), &[(A, 1)]);
    check(&new(0, Some(0), Some(0)), &[(A, 1)]);
}

#[test]
fn cp_19_after_the_first_claim() {
    check(&new(-1, Some(0), None), &[(A, 2)]);
    check(&new(-1, Some(0), Some(0)), &[(A, 2)]);
}

#[test]
fn cp_20_after_the_first_age() {
    check(&new(-1, Some(1), None), &[(A, 2)]);
    check(&new(-1, Some(1), Some(0)), &[(A, 2)]);
}

#[test]
fn cp_21_after_the_first_commit() {
    check(&new(1, Some(1), None), &[(A, 2)]);
    check(&new(1, Some(1), Some(0)), &[(A, 2)]);
}

/// Not in the tables: without a register nobody begins, whatever there is.
#[test]
fn an_absent_register_starts_nobody() {
    for (a, b) in [(None, None), (Some(0), None), (Some(5), Some(4))] {
        let mut world = new(0, a, b);
        world.register = None;
        check(&world, &[]);
    }
}

#[test]
fn cp_22_the_replica_dies_while_it_copies() {
    let world = walk(copying(seek(alone(), B), A, B), &[Step::Crash(B)]);
    assert_eq!(class_on_disk(&world, B), Class::Syncing);
    let world = walk(world, &[Step::ActiveEndBreaks(A)]);
    assert_eq!((register(&world), gate(&world, A)), (1, Gate::Alone), "nothing needs to be raised");
    // It begins again, from nothing.
    attach(seek(confirm_alone(world, A), B), A, B);
}

#[test]
fn cp_23_the_active_dies_while_it_sends() {
    let world = walk(copying(seek(alone(), B), A, B), &[Step::Crash(A), Step::ReplicaEndBreaks(B)]);
    check(&world, &[(A, 2)]);
}

/// The replica is told that it is whole.
fn told() -> World {
    walk(copying(seek(confirm_alone(alone(), A), B), A, B), &[Step::CopySent(A)])
}

#[test]
fn cp_24_the_replica_dies_before_it_writes_its_age() {
    let world = walk(told(), &[Step::Crash(B), Step::Operation(A)]);
    assert_eq!(gate(&world, A), Gate::Hold);
    let world = walk(world, &[Step::ActiveEndBreaks(A)]);
    assert_eq!(gate(&world, A), Gate::Hold, "A cannot know");
    let world = until(world, A, serves);
    assert_eq!((register(&world), gate(&world, A)), (2, Gate::Alone));
}

/// B has written its age, and A has not heard of it.
fn persisted() -> World {
    until(told(), B, |node| node.phase() == Phase::Passive(Passive::InSync))
}

#[test]
fn cp_25_the_answer_is_lost() {
    let world = detach(walk(persisted(), &[Step::ReplicaEndBreaks(B)]), A);
    assert_eq!(register(&world), 2);
    assert_eq!(class_on_disk(&world, B), Class::Stale);
}

#[test]
fn cp_26_the_answer_is_lost_and_the_active_dies() {
    let before = walk(persisted(), &[Step::Crash(A), Step::ReplicaEndBreaks(B)]);
    check(&before, &[(A, 2), (B, 2)]);
    let while_raising = [Step::ActiveEndBreaks(A), Step::Swap(A), Step::Crash(A)];
    let world = walk(persisted(), &while_raising);
    assert_eq!(register(&world), -2);
    check(&walk(world, &[Step::ReplicaEndBreaks(B)]), &[(A, 3), (B, 3)]);
}

#[test]
fn cp_27_the_replica_finishes_late() {
    let world = confirm_alone(detach(told(), A), A);
    let world = until(world, B, |node| node.phase() == Phase::Passive(Passive::InSync));
    assert_eq!((register(&world), class_on_disk(&world, B)), (2, Class::Stale));
    check(&walk(world, &[Step::Crash(A), Step::ReplicaEndBreaks(B)]), &[(A, 3)]);
}

/// Id and age are one file: there is nothing between them.
#[test]
fn cp_28_the_file_is_one() {
    let world = walk(told(), &[Step::SyncDone(B), Step::WriteFile(B)]);
    let lost = walk(world.clone(), &[Step::PowerCut(B), Step::Start(B)]);
    assert_eq!(lost.nodes[B].file.standing, Standing::Syncing);
    let kept = walk(world, &[Step::Crash(B), Step::Start(B)]);
    assert_eq!(class_on_disk(&kept, B), Class::InSync);
}

#[test]
fn cp_29_power_is_lost_right_after_the_age() {
    let mut world = walk(persisted(), &[Step::Crash(A)]);
    (world.nodes[B].unsynced, world.nodes[B].machine) = (0, None);
    assert_eq!(world.nodes[B].durable & world.confirmed, world.confirmed);
}

#[test]
fn cp_30_both_lose_power() {
    let mut world = confirm_both(pair(), A, B);
    for node in &mut world.nodes {
        *node = Node { file: node.file, durable: node.durable, ..Node::BLANK };
    }
    (world.links, world.lock) = ([None; NODES_MAX], None);
    check(&world, &[(A, 2), (B, 2)]);
}

#[test]
fn cp_31_the_active_stops_while_it_sends() {
    let world = stop(copying(seek(alone(), B), A, B), A);
    check(&walk(world, &[Step::ReplicaEndBreaks(B)]), &[(A, 2)]);
}

#[test]
fn cp_32_a_node_without_a_replica_stops() {
    let world = stop(detach(walk(pair(), &[Step::Crash(B)]), A), A);
    check(&world, &[(A, 3)]);
}

#[test]
fn cp_33_a_pair_is_handed_over() {
    let world = stop(confirm_both(pair(), A, B), A);
    assert_eq!(register(&world), 1, "A raises nothing");
    let world = serve(world, B);
    assert_eq!(register(&world), 2);
    seek(world, A);
}

#[test]
fn cp_34_the_active_dies_while_it_stops() {
    let world = walk(confirm_both(pair(), A, B), &[Step::Stop(A), Step::Crash(A)]);
    check(&walk(world, &[Step::ReplicaEndBreaks(B)]), &[(A, 2), (B, 2)]);
}

#[test]
fn cp_35_the_replica_stops_first() {
    let world = walk(stop(confirm_both(pair(), A, B), B), &[Step::Crash(A)]);
    check(&world, &[(A, 2), (B, 2)]);
}

#[test]
fn cp_36_the_replica_stops_and_comes_back_alone() {
    let world = stop(detach(stop(confirm_both(pair(), A, B), B), A), A);
    let world = seek(world, B);
    check(&world, &[(A, 3)]);
}

#[test]
fn cp_37_both_die() {
    let world = walk(confirm_both(pair(), A, B), &[Step::Crash(A), Step::Crash(B)]);
    check(&world, &[(A, 2), (B, 2)]);
    let world = seek(serve(world, B), A);
    attach(world, B, A);
}

/// A failback from A to B: A has begun to give way.
fn giving_way() -> World {
    walk(confirm_both(pair(), A, B), &[Step::GiveWay(A)])
}

/// A has given the lock back.
fn given() -> World {
    until(giving_way(), A, |node| matches!(node.phase(), Phase::Succeeding { .. }))
}

#[test]
fn cp_38_the_successor_is_lost_before() {
    let world = detach(walk(pair(), &[Step::Crash(B)]), A);
    assert_eq!((register(&world), gate(&world, A)), (2, Gate::Alone));
}

#[test]
fn cp_39_the_node_dies_while_it_gives_way() {
    let world = giving_way();
    let closing = Phase::Closing {
        token: world.nodes[A].machine.unwrap().token(),
        then: Then::HandOver { stay: true },
    };
    assert_eq!((world.nodes[A].phase(), gate(&world, A)), (closing, Gate::Closed));
    // The lock is free when its lease has ended.
    let world = walk(world, &[Step::Crash(A), Step::ReplicaEndBreaks(B)]);
    check(&world, &[(A, 2), (B, 2)]);
}

#[test]
fn cp_40_the_successor_dies_before_its_claim() {
    let world = walk(given(), &[Step::Crash(B), Step::Compete(A)]);
    assert_eq!(register(&serve(world.clone(), A)), 2);
    check(&world, &[(A, 2), (B, 2)]);
}

/// The successor is at a step of raising its age.
fn succeeding(step: Raising) -> World {
    until(
        given(),
        B,
        |node| matches!(node.phase(), Phase::Raising { step: now, .. } if now == step),
    )
}

#[test]
fn cp_41_the_successor_dies_after_its_claim() {
    for step in [Raising::File, Raising::Commit] {
        let world = walk(succeeding(step), &[Step::Crash(B), Step::Compete(A)]);
        assert_eq!(register(&world), -2);
        assert_eq!(register(&serve(world.clone(), A)), 3);
        check(&world, &[(A, 3), (B, 3)]);
    }
}

#[test]
fn cp_42_the_successor_dies_after_its_commit() {
    let world = walk(serve(given(), B), &[Step::Crash(B), Step::Compete(A)]);
    let world = seek(world, A);
    assert_eq!(world.nodes[A].durable, 1, "nothing is thrown away before somebody accepts");
    check(&world, &[(B, 3)]);
}

#[test]
fn cp_43_the_successor_is_slow() {
    let world = walk(given(), &[Step::Compete(A)]);
    check(&world, &[(A, 2), (B, 2)]);
}

#[test]
fn cp_44_the_quorum_is_lost_between() {
    let world = until(given(), B, |node| node.phase() == Phase::Acquiring);
    let world = walk(world, &[Step::Unavailable(B), Step::Compete(A), Step::Unavailable(A)]);
    assert_eq!((world.nodes[A].phase(), world.nodes[B].phase()), (Phase::Waiting, Phase::Waiting));
    check(&world, &[(A, 2), (B, 2)]);
}

/// CP-45 is `machine::tests::failback`: what is waited for there is not in this model.
#[test]
fn cp_45_not_announced() {
    let world = pair();
    assert_eq!(gate(&world, A), Gate::Replica, "it goes on with its replica");
}

/// A8.4: the quorum is lost at each question of a node that tries to repair and to serve. It confirms
/// nothing, and what it has changed is a row from CP-9 to CP-16: somebody can go on.
#[test]
fn a8_4_the_quorum_is_lost_while_it_tries() {
    for (register, a) in [(5, I), (-6, I), (-6, I + 1)] {
        let start = walk(down(register, a, I), &[Step::Start(A)]);
        let mut asked = 0;
        for steps in 0.. {
            let gone = Cell::new(0);
            let world = until(start.clone(), A, |_| gone.replace(gone.get() + 1) == steps);
            if serves(&world.nodes[A]) {
                break;
            }
            let node = &world.nodes[A];
            if node.request.is_none() && node.answer.is_none() {
                continue;
            }
            asked += 1;
            let cut = walk(world, &[Step::Unavailable(A)]);
            assert_eq!((gate(&cut, A), cut.confirmed), (Gate::Closed, 1));
            assert!(!outcomes(&cut).is_empty(), "{register}, after {steps} steps");
        }
        assert!(asked >= 5, "two reads, the lock, the claim, the commit: {asked}");
    }
}

/// A8.5: the quorum is lost for longer than the lease between claim and commit. The node stops
/// serving without a confirm, and once the quorum is back it repairs itself, or the other one does.
#[test]
fn a8_5_the_quorum_is_lost_between_claim_and_commit() {
    for step in [Raising::File, Raising::Commit] {
        let world = walk(raising(step), &[Step::LeaseEnds(A), Step::LearnLeaseEnd(A)]);
        assert_eq!((gate(&world, A), world.confirmed), (Gate::Closed, 1));
        let mut world = walk(world, &[Step::Expire]);
        // What was asked before may still be on its way; here it is lost.
        world.delayed = None;
        check(&walk(world, &[Step::ReplicaEndBreaks(B)]), &[(A, 3), (B, 3)]);
    }
}
