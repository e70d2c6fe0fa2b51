//! Scenarios from the suites of the original feature and from reports of what went wrong with it,
//! as far as they can be said of a plan; numbers of known faults stand before the tests.

use membership::desired::{Desired, Target};
use membership::forecast::succeed;
use membership::observed::{Data, Leadership, Observed};
use membership::plan::plan;
use model::id::NodeId;

use crate::scene::{
    change, desired, down, drained, forgotten, ids, member, next, node, observed, refused,
    removing, sizes, wiped,
};

fn joined(mut observed: Observed, id: u64) -> Observed {
    observed.nodes = observed.nodes.iter().cloned().chain([node(id)]).collect();
    observed
}

#[test]
fn a_queue_grows_as_nodes_join() {
    let one = observed(1, &[1]);
    assert_eq!(sizes(&desired(3), one.clone()).0, [1]);
    let two = joined(one, 2);
    assert_eq!(sizes(&desired(3), two.clone()).0, [1]);
    assert_eq!(sizes(&desired(3), joined(two, 3)).0, [1, 2, 3]);
}

#[test]
fn a_queue_does_not_grow_onto_a_node_in_maintenance() {
    let world = joined(joined(observed(1, &[1]), 2), 3);
    let away = drained(world.clone(), &[2]);
    assert_eq!(sizes(&desired(3), away).0, [1]);
    assert_eq!(sizes(&desired(3), world).0, [1, 2, 3]);
}

#[test]
fn a_queue_shrinks_when_a_node_is_stopped_and_forgotten() {
    let world = observed(3, &[1, 2, 3]);
    let stopped = down(world, &[3]);
    assert_eq!(sizes(&removing(3), stopped.clone()).0, [3], "it is down and may come back");
    assert_eq!(sizes(&removing(3), forgotten(stopped, &[3])).0, [3, 2]);
}

#[test]
fn a_policy_that_is_set_and_cleared_grows_and_leaves() {
    let mut world = observed(5, &[1, 2, 3]);
    let set = Desired { target: Target { policy: Some(5), ..Target::default() }, ..desired(0) };
    while let Some(step) = plan(&set, &world).step {
        succeed(&mut world, &step.action);
    }
    assert_eq!(ids(&world), [1, 2, 3, 4, 5]);
    assert_eq!(sizes(&desired(0), world).0, [5], "cleared");
}

#[test]
fn bm_18_a_lower_target_never_shrinks() {
    for target in 0..5 {
        assert_eq!(sizes(&removing(target), observed(5, &[1, 2, 3, 4, 5])).0, [5]);
    }
}

#[test]
fn bm_1_the_argument_is_a_number_among_others() {
    for nodes in [5, 10] {
        for at in 0..4 {
            let mut target = Target::default();
            match at {
                0 => target.configured = 3,
                1 => target.policy = Some(3),
                2 => target.operator_policy = Some(3),
                _ => target.argument = Some(3),
            }
            let desired = Desired { target, ..desired(0) };
            assert_eq!(sizes(&desired, observed(nodes, &[1])).0, [1, 2, 3]);
        }
        let all =
            Target { configured: 1, policy: Some(3), operator_policy: Some(2), argument: Some(0) };
        let desired = Desired { target: all, ..desired(0) };
        assert_eq!(sizes(&desired, observed(nodes, &[1])).0, [1, 2, 3]);
    }
}

#[test]
fn bm_9_a_target_of_zero_says_nothing() {
    let zero = Target { policy: Some(0), argument: Some(0), ..Target::default() };
    let desired = Desired { target: zero, ..desired(0) };
    let found = plan(&desired, &observed(5, &[1]));
    assert!(found.step.is_none() && found.refusals.is_empty() && found.is_settled());
}

#[test]
fn bm_3_an_offline_member_blocks_growth_and_is_named() {
    let world = down(observed(5, &[1, 2, 3]), &[2]);
    assert_eq!(refused(&desired(5), &world), ["none is added while the member on n2 does not run"]);
}

#[test]
fn bm_6_a_list_of_nodes_that_could_not_be_read_removes_nobody() {
    let mut world = observed(3, &[1, 2, 3]);
    world.nodes = [].into();
    assert_eq!(refused(&removing(3), &world), ["the nodes of the cluster are not known yet"]);
    // One that does not have the planning node in it is not to be trusted either.
    let world = forgotten(observed(3, &[1, 2, 3]), &[1]);
    let said = "this node is not in the cluster's list of nodes";
    assert_eq!(refused(&removing(3), &world), [said]);
}

// A14.5.2
#[test]
fn bm_5_who_does_not_lead_does_nothing_and_asks_again_if_it_is_not_sure() {
    let world = forgotten(observed(5, &[1, 2, 3]), &[3]);
    let elsewhere =
        Observed { leadership: Leadership::Elsewhere(Some(NodeId(2))), ..world.clone() };
    assert_eq!(refused(&removing(3), &elsewhere), ["n2 leads the queue"]);
    assert!(plan(&removing(3), &elsewhere).is_settled());
    let unsure = Observed { leadership: Leadership::Unconfirmed, ..world };
    assert!(!plan(&removing(3), &unsure).is_settled());
}

// A14.7: the node was stopped, wiped and joined again under its name, and not forgotten.
#[test]
fn bm_8_a_wiped_node_gets_new_members_without_auto_remove_and_without_a_target() {
    let world = wiped(observed(3, &[1, 2, 3]), 3, 30);
    let step = "replace the member 0000000000000003 of n3 by 000000000000001e: \
                the node lost the member's data";
    assert_eq!(next(&desired(0), &world).as_deref(), Some(step));
    let mut world = world;
    while let Some(step) = plan(&desired(0), &world).step {
        succeed(&mut world, &step.action);
    }
    assert_eq!(ids(&world), [1, 2, 30]);
}

// A14.7: interrupted at each point, it is finished.
#[test]
fn a_replacement_that_was_interrupted_is_finished() {
    let mut world = wiped(observed(3, &[1, 2, 3]), 3, 30);
    let mut learner = member(30);
    learner.is_voter = false;
    world.members.push(learner);
    // The new member is there: the old one goes, caught up or not.
    let step = "remove the member on n3: a new member is in its place";
    assert_eq!(next(&desired(0), &world).as_deref(), Some(step));
    world.members.retain(|member| member.node != NodeId(3));
    change(&mut world, 30, |member| member.matched = Some(1));
    let said = "none is added while the member on n3 has no vote";
    assert_eq!(plan(&desired(5), &world).refusals[1].to_string(), said);
    change(&mut world, 30, |member| member.matched = Some(crate::scene::LAST));
    let step = "give the member on n3 its vote: it was added and has no vote yet";
    assert_eq!(next(&desired(0), &world).as_deref(), Some(step));
}

#[test]
fn a_wiped_node_is_waited_for_if_it_cannot_take_a_member() {
    let world = wiped(observed(4, &[1, 2, 3]), 3, 30);
    assert_eq!(
        refused(&removing(5), &down(world.clone(), &[30])),
        ["waiting for n3, which is down"]
    );
    let away = drained(world.clone(), &[30]);
    assert_eq!(refused(&removing(5), &away), ["waiting for n3, which is in maintenance"]);
    let mut failed = world.clone();
    failed.avoided = vec![NodeId(30)];
    let said = "adding a member on n3 failed; it is tried again later";
    assert_eq!(refused(&removing(5), &failed), [said]);
    // A node that keeps no queues any more takes none; the old member is proven lost nevertheless.
    let mut witness = world.clone();
    crate::scene::edit(&mut witness, |node| node.keeps_queues &= node.id.0 != 30);
    let step =
        "remove the member on n3: the node lost the member's data and keeps no queues any more";
    assert_eq!(next(&desired(3), &witness).as_deref(), Some(step));
    // One that was wiped and then forgotten is as one that was forgotten.
    let gone = forgotten(world, &[30]);
    let said = "the member on n3 dangles: the node has left the cluster, and auto_remove is off";
    assert_eq!(refused(&desired(3), &gone), [said]);
    let step = "remove the member on n3: the node has left the cluster";
    assert_eq!(next(&removing(3), &gone).as_deref(), Some(step));
}

#[test]
fn the_same_node_can_lose_its_part() {
    let mut world = observed(3, &[1, 2, 3]);
    change(&mut world, 3, |member| member.data = Data::Lost { now: NodeId(3) });
    assert!(next(&desired(0), &world).unwrap().starts_with("replace the member"));
    assert_eq!(sizes(&desired(0), world).0, [3, 3]);
}

// Amendment 9
#[test]
fn a_member_that_could_not_be_started_is_added_when_its_node_is_there() {
    let mut world = observed(3, &[1, 2]);
    world.unstarted = vec![NodeId(3)];
    assert_eq!(refused(&desired(0), &down(world.clone(), &[3])), ["waiting for n3, which is down"]);
    let step = "add a member on n3: the node was down when the queue was declared";
    assert_eq!(next(&desired(0), &world).as_deref(), Some(step));
    assert_eq!(sizes(&desired(0), world.clone()).0, [2, 3]);
    assert_eq!(sizes(&removing(0), forgotten(world, &[3])).0, [2]);
}

#[test]
fn bm_12_a_member_without_a_vote_is_waited_for() {
    let mut world = observed(5, &[1, 2, 3]);
    change(&mut world, 3, |member| {
        member.is_voter = false;
        member.matched = Some(1);
    });
    let said = "none is added while the member on n3 has no vote";
    assert_eq!(refused(&desired(5), &world), [said]);
    assert!(!plan(&desired(5), &world).is_settled());
    assert!(plan(&desired(3), &world).is_below_target(), "it does not count yet");
}

#[test]
fn bm_14_a_removal_never_takes_the_majority() {
    // Five members, one forgotten, two down: the last two and the leader are three of five; without
    // the forgotten one three of four would be wanted, and two of them run.
    let world = forgotten(down(observed(5, &[1, 2, 3, 4, 5]), &[3, 4]), &[5]);
    assert_eq!(
        refused(&removing(3), &world),
        ["the member on n5 stays: without it 2 of 4 would run, no majority"]
    );
}

#[test]
fn bm_15_another_node_is_tried_when_one_has_failed() {
    let mut world = observed(4, &[1, 2]);
    let first = next(&desired(3), &world).unwrap();
    let (tried, other) = if first.contains("n3") { (3, 4) } else { (4, 3) };
    world.avoided = vec![NodeId(tried)];
    let step = format!("add a member on n{other}: the queue has 2 of 3 members");
    assert_eq!(next(&desired(3), &world), Some(step));
    world.avoided = vec![NodeId(3), NodeId(4)];
    let said = "adding a member on n3 failed; it is tried again later";
    assert_eq!(refused(&desired(3), &world), [said]);
}

// A14.5.7
#[test]
fn members_that_lag_and_logs_that_are_too_large_are_waited_for() {
    let mut world = observed(5, &[1, 2, 3]);
    change(&mut world, 2, |member| member.matched = Some(900));
    let said = "none is added while the member on n2 is 100 entries behind, limit 10";
    assert_eq!(refused(&desired(5), &world), [said]);
    change(&mut world, 2, |member| member.matched = None);
    let said = "none is added while it is not known how far the member on n2 is";
    assert_eq!(refused(&desired(5), &world), [said]);
    let mut world = observed(5, &[1, 2, 3]);
    world.whole_bytes = (1 << 20) + 1;
    let said = "none is added: 1048577 bytes would have to be copied, limit 1048576";
    assert_eq!(refused(&desired(5), &world), [said]);
    world.is_changing = true;
    assert_eq!(refused(&desired(5), &world), ["a change of the members is under way"]);
}

#[test]
fn nothing_is_done_when_it_is_switched_off() {
    let off = Desired { enabled: false, ..removing(5) };
    let world = wiped(forgotten(observed(5, &[1, 2, 3]), &[2]), 3, 30);
    let said = "continuous membership reconciliation is switched off";
    assert_eq!(refused(&off, &world), [said]);
}

#[test]
fn a_witness_is_no_candidate() {
    let mut world = observed(3, &[1, 2]);
    crate::scene::edit(&mut world, |node| node.keeps_queues = node.id.0 != 3);
    let said = "2 of 3 members, and no node can take another one";
    assert_eq!(refused(&desired(3), &world), [said]);
}

/// A cut: the side with the majority waits for the others, the other side leads nothing.
#[test]
fn a_partition_changes_nothing() {
    let world = observed(5, &[1, 2, 3]);
    assert_eq!(sizes(&removing(5), down(world.clone(), &[3, 4])).0, [3]);
    let minority = Observed {
        me: NodeId(3),
        leadership: Leadership::Elsewhere(None),
        ..down(world, &[1, 2, 5])
    };
    assert_eq!(refused(&removing(5), &minority), ["nobody leads the queue"]);
}
