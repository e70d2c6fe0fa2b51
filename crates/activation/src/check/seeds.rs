//! The scenarios for which the sequence was made, and those by which its first makers tested it.

use crate::check::holds::SMALL;
use crate::check::invariants::{class_on_disk, serves};
use crate::check::scenes::{
    alone, attach, confirm_alone, confirm_both, detach, outcomes, pair, register, seek, serve,
    stop, until, walk,
};
use crate::check::search::Search;
use crate::check::steps::Step;
use crate::check::world::{Bounds, NODES_MAX, Node, World};
use crate::class::Class;
use crate::gate::Gate;
use crate::machine::{Passive, Phase};

/// A7.8.1, A12.1: the scenario of the first text. The node that stopped first has an old copy, and
/// must not serve it although nobody else is there.
#[test]
fn a7_8_1_ordered_transition() {
    let world = confirm_both(pair(), 0, 1);
    assert_eq!(register(&world), 1);
    let world = confirm_alone(serve(stop(world, 0), 1), 1);
    assert_eq!(register(&world), 2);
    let world = seek(stop(world, 1), 0);
    assert_eq!(outcomes(&world).into_iter().collect::<Vec<_>>(), [(1, 3)]);
    let world = serve(world, 1);
    assert_eq!(register(&world), 3);
    let world = attach(world, 1, 0);
    assert_eq!(world.nodes[0].durable & world.confirmed, 0b11, "every message is there");
    let world = serve(stop(world, 1), 0);
    assert_eq!(register(&world), 4);
}

/// A7.8.2: the pair is cut, both reach the quorum. B tries and finds the lock busy; A raises the age
/// and dies; B sees the newer value and stops trying.
#[test]
fn a7_8_2_partition_with_a_quorum() {
    let world = walk(confirm_both(pair(), 0, 1), &[Step::ReplicaEndBreaks(1)]);
    let world = until(world, 1, |node| node.phase() == Phase::Pausing);
    let world = until(walk(world, &[Step::Timer(1)]), 1, |node| node.phase() == Phase::Pausing);
    let world = confirm_alone(detach(world, 0), 0);
    let world = seek(walk(world, &[Step::Crash(0), Step::Expire]), 1);
    assert_eq!(outcomes(&world).into_iter().collect::<Vec<_>>(), [(0, 3)]);
}

/// A7.8.3, the scenario of the second text: a claim is left open, the other node repairs
/// it and serves, and the one that claimed comes back and is stale.
#[test]
fn a7_8_3_auto_repair() {
    let world = walk(
        confirm_both(pair(), 0, 1),
        &[Step::ActiveEndBreaks(0), Step::Swap(0), Step::Crash(0)],
    );
    assert_eq!(register(&world), -2);
    let world = confirm_alone(serve(walk(world, &[Step::ReplicaEndBreaks(1)]), 1), 1);
    assert_eq!(register(&world), 3);
    let world = seek(world, 0);
    assert_eq!(class_on_disk(&world, 0), Class::Stale);
    attach(world, 1, 0);
}

/// A7.8.4: whoever left the claim open comes back while the other one is away. Its copy has the age
/// that it claimed, and must not be served; nor may it be when the claim was repaired and no more.
#[test]
fn a7_8_4_the_claimant_comes_back_after_the_repair() {
    let age = |node: &Node| node.file.standing.age().map(crate::age::Age::get);
    for own in [1, 2] {
        let world = walk(confirm_both(pair(), 0, 1), &[Step::ActiveEndBreaks(0), Step::Swap(0)]);
        let world = until(world, 0, |node| age(node) == Some(own));
        let world = walk(world, &[Step::Crash(0)]);
        assert_eq!((register(&world), age(&world.nodes[0])), (-2, Some(own)));
        let world = confirm_alone(serve(walk(world, &[Step::ReplicaEndBreaks(1)]), 1), 1);
        assert_eq!(register(&world), 3);
        let world = stop(world, 1);
        assert_eq!(class_on_disk(&world, 0), Class::Stale);
        assert_eq!(outcomes(&world).into_iter().collect::<Vec<_>>(), [(1, 4)]);
    }
}

/// A7.4: the last one that was active comes back; nobody else may.
#[test]
fn a7_4_the_last_active_starts_again() {
    let alone = confirm_alone(detach(confirm_both(pair(), 0, 1), 0), 0);
    let value = register(&alone);
    let world = walk(alone, &[Step::ReplicaEndBreaks(1), Step::Crash(0)]);
    assert_eq!(outcomes(&world).into_iter().collect::<Vec<_>>(), [(0, value + 1)]);
    for (register, own, ends) in [(-6, 5, 7), (-6, 6, 7)] {
        let world = down(register, own, 1);
        assert_eq!(outcomes(&world).into_iter().collect::<Vec<_>>(), [(0, ends)]);
    }
}

/// A8.1: an active node that loses the quorum stops serving, and waits for it.
#[test]
fn a8_1_the_quorum_is_lost_while_active() {
    let world = walk(confirm_both(pair(), 0, 1), &[Step::LeaseEnds(0), Step::LearnLeaseEnd(0)]);
    let world = walk(world, &[Step::Closed(0), Step::Unavailable(0)]);
    assert_eq!(world.nodes[0].phase(), Phase::Waiting);
    assert_eq!(world.nodes[0].machine.map(|machine| machine.gate()), Some(Gate::Closed));
}

/// A12.2: failover and failback, seen by the values: 1, 2, 3, 3, 4.
#[test]
fn a12_2_failover_and_failback() {
    let world = serve(stop(confirm_both(pair(), 0, 1), 0), 1);
    assert_eq!(register(&world), 2);
    let world = attach(seek(world, 0), 1, 0);
    let world = until(walk(world, &[Step::GiveWay(1)]), 1, |node| {
        matches!(node.phase(), Phase::Succeeding { .. })
    });
    let world = serve(world, 0);
    assert_eq!(register(&world), 3);
    let world = attach(seek(walk(world, &[Step::Compete(1)]), 1), 0, 1);
    assert_eq!(register(&world), 3);
    let world = detach(stop(world, 1), 0);
    assert_eq!(register(&world), 4);
}

#[test]
fn a12_3_losing_the_backup() {
    assert_eq!(register(&detach(walk(pair(), &[Step::Crash(1)]), 0)), 2);
}

#[test]
fn a12_4_the_backup_starts_first() {
    let world = seek(World::new(), 1);
    attach(serve(world, 0), 0, 1);
}

#[test]
fn a12_5_out_of_sequence_gives_the_lock_back() {
    let mut world = down(1, 1, 1);
    world = until(world, 1, |node| node.phase() == Phase::Acquiring);
    world.register = crate::register::Register::from_signed(2);
    let world = seek(world, 1);
    assert_eq!(world.lock, None);
}

#[test]
fn a12_6_out_of_sequence_does_not_wait() {
    let world = serve(down(2, 2, 1), 0);
    assert!(world.lock.is_some());
    let world = walk(world, &[Step::Start(1)]);
    let value = register(&world);
    let world = walk(world, &[Step::Read(1, Some(value))]);
    assert_eq!(world.nodes[1].phase(), Phase::Passive(Passive::Seeking), "one read decides");
}

#[test]
fn a12_7_self_repair() {
    assert_eq!(register(&serve(down(-2, 2, 1), 0)), 3);
}

/// Two peers: neither is configured to be the first, and all messages are there in each phase.
#[test]
fn a12_8_peers() {
    a7_8_1_ordered_transition();
}

/// The quorum fails between file and commit: the node closes, waits, and repairs itself.
#[test]
fn a12_9_quorum_lost_before_the_commit() {
    let world = until(walk(pair(), &[Step::Crash(1), Step::ActiveEndBreaks(0)]), 0, |node| {
        node.to_write.is_none() && node.file.standing.age().is_some_and(|age| age.get() == 2)
    });
    let world = walk(world, &[Step::Unavailable(0), Step::Closed(0), Step::Unavailable(0)]);
    assert_eq!((world.nodes[0].phase(), register(&world)), (Phase::Waiting, -2));
    assert_eq!(register(&serve(world, 0)), 3);
}

#[test]
fn a12_10_both_compete_for_a_repair() {
    let world = down(-2, 1, 1);
    assert_eq!(outcomes(&world).into_iter().collect::<Vec<_>>(), [(0, 3), (1, 3)]);
    attach(seek(serve(world, 1), 0), 1, 0);
}

/// A8.1 and A8.6: an active node that loses the quorum stops by its own clock, before anybody tells
/// it, and before the lock can go to somebody else.
#[test]
fn a8_6_the_lease_ends_first() {
    let world = walk(pair(), &[Step::LeaseEnds(0)]);
    assert!(serves(&world.nodes[0]));
    let driver = crate::check::world::Driver::Whole;
    assert!(!world.nodes[0].can_confirm(driver));
    let world = walk(world, &[Step::LearnLeaseEnd(0)]);
    assert_eq!(world.nodes[0].machine.map(|machine| machine.gate()), Some(Gate::Closed));
}

/// A8.2: a whole quorum outage heals without an operator.
#[test]
fn a8_2_in_sync_over_an_outage() {
    let world = walk(confirm_both(pair(), 0, 1), &[Step::LeaseEnds(0), Step::LearnLeaseEnd(0)]);
    let world = walk(world, &[Step::ReplicaEndBreaks(1), Step::Unavailable(1), Step::Expire]);
    assert_eq!(world.nodes[1].phase(), Phase::Waiting);
    assert_eq!(outcomes(&world).into_iter().collect::<Vec<_>>(), [(0, 2), (1, 2)]);
}

/// A8.3: a copy that was begun stays worthless.
#[test]
fn a8_3_syncing_over_an_outage() {
    let world = crate::check::scenes::copying(seek(alone(), 1), 0, 1);
    let world =
        walk(world, &[Step::LeaseEnds(0), Step::LearnLeaseEnd(0), Step::ReplicaEndBreaks(1)]);
    assert_eq!(outcomes(&world).into_iter().collect::<Vec<_>>(), [(0, 2)]);
}

/// A8.7: paused beyond its lease, with a replica. On resuming it cannot raise its age, confirms
/// nothing, and comes back as the other's replica with everything.
#[test]
fn a8_7_a_long_pause() {
    let world = walk(confirm_both(pair(), 0, 1), &[Step::Operation(0), Step::Sync(0)]);
    let world = walk(world, &[Step::LeaseEnds(0), Step::ReplicaEndBreaks(1), Step::Expire]);
    let world = confirm_alone(serve(world, 1), 1);
    // It wakes up, finds its replica gone, and tries to raise the age.
    let world = walk(world, &[Step::ActiveEndBreaks(0), Step::Swap(0), Step::Learn(0)]);
    assert_eq!(world.nodes[0].machine.map(|machine| machine.gate()), Some(Gate::Closed));
    let world = attach(seek(world, 0), 1, 0);
    assert_eq!(world.nodes[0].durable & world.confirmed, world.confirmed);
}

/// Three peers in rotation: only the last one that was alone may start.
#[test]
fn a12_three_peers_in_rotation() {
    let world = attach(seek(serve(World::new(), 0), 1), 0, 1);
    let world = confirm_alone(serve(stop(world, 0), 1), 1);
    let world = attach(seek(world, 2), 1, 2);
    let world = confirm_alone(serve(stop(world, 1), 2), 2);
    let world = stop(world, 2);
    let world = seek(seek(world, 0), 1);
    let world = serve(world, 2);
    assert_eq!(register(&world), 4);
    let world = attach(world, 2, 0);
    assert_eq!(world.nodes[0].durable & world.confirmed, world.confirmed);
}

/// The same with everything that can go wrong in between, once.
#[test]
fn three_copies_of_three_ages() {
    let mut nodes = [Node::BLANK; NODES_MAX];
    nodes = [Node::of(1, 0), Node::of(2, 0), nodes[2]];
    for register in [2, -2, -3] {
        let world = World::stopped(register, &nodes);
        let bounds = Bounds { nodes: 3, faults: 1, operations: 0, age_max: 4, ..SMALL };
        let found = Search::new(bounds).run(&world, |_| {});
        eprintln!("register {register}: {} states", found.states);
        assert!(found.violation.is_none(), "{:?}", found.violation);
    }
}

fn down(register: i64, first: u64, second: u64) -> World {
    let mut nodes = [Node::BLANK; NODES_MAX];
    (nodes[0], nodes[1]) = (Node::of(first, 0), Node::of(second, 0));
    World::stopped(register, &nodes)
}
