//! The table of what the feature is expected to do, row by row: by the oracle, by the plan without
//! caution, and by the plan as it is used.

use membership::desired::Desired;
use membership::observed::Observed;

use crate::oracle::{self, Cluster};
use crate::scene::{desired, down, drained, forgotten, observed, removing, sizes};

/// `observed` goes through these sizes, whoever is asked; at the end somebody says this.
fn check(desired: &Desired, observed: Observed, expected: &[u64], said: &[&str]) {
    let select = |which: fn(&membership::observed::Node) -> bool| {
        observed.nodes.iter().filter(|node| which(node)).map(|node| node.id.0).collect()
    };
    let world = Cluster {
        members: crate::scene::ids(&observed),
        nodes: select(|_| true),
        running: select(|node| node.is_up),
        drained: select(|node| node.is_drained),
        target: desired.target.effective(),
        auto_remove: desired.auto_remove,
        leader: observed.me.0,
    };
    assert_eq!(oracle::sizes(world), expected, "the oracle");
    let bold = Desired { caution: None, ..*desired };
    assert_eq!(sizes(&bold, observed.clone()).0, expected, "the plan without caution");
    let (found, reasons) = sizes(desired, observed);
    assert_eq!(found, expected, "the plan");
    assert_eq!(reasons, said);
}

#[test]
fn one_node_size_1_target_3_stays() {
    let said = "1 of 3 members, and no node can take another one";
    check(&desired(3), observed(1, &[1]), &[1], &[said]);
}

#[test]
fn two_nodes_size_1_target_3_stays() {
    let said = "1 of 3 members, and with only one more node the number would be even";
    check(&desired(3), observed(2, &[1]), &[1], &[said]);
}

#[test]
fn three_nodes_size_1_target_3_grows_twice() {
    check(&desired(3), observed(3, &[1]), &[1, 2, 3], &[]);
}

#[test]
fn three_nodes_size_2_target_3_grows() {
    check(&desired(3), observed(3, &[1, 2]), &[2, 3], &[]);
}

#[test]
fn three_nodes_one_drained_size_1_target_3_stays_until_it_is_back() {
    let said = "1 of 3 members, and with only one more node the number would be even";
    check(&desired(3), drained(observed(3, &[1]), &[2]), &[1], &[said]);
    check(&desired(3), observed(3, &[1]), &[1, 2, 3], &[]);
}

#[test]
fn four_nodes_size_3_target_4_stays() {
    let said = "3 of 4 members, and with only one more node the number would be even";
    check(&desired(4), observed(4, &[1, 2, 3]), &[3], &[said]);
}

#[test]
fn five_nodes_size_3_target_4_becomes_4() {
    check(&desired(4), observed(5, &[1, 2, 3]), &[3, 4], &[]);
}

#[test]
fn five_nodes_size_3_target_5_grows_twice() {
    check(&desired(5), observed(5, &[1, 2, 3]), &[3, 4, 5], &[]);
}

#[test]
fn three_nodes_size_1_target_5_goes_as_far_as_it_can() {
    let said = "3 of 5 members, and no node can take another one";
    check(&desired(5), observed(3, &[1]), &[1, 2, 3], &[said]);
}

#[test]
fn five_nodes_size_5_target_3_stays() {
    check(&desired(3), observed(5, &[1, 2, 3, 4, 5]), &[5], &[]);
}

#[test]
fn a_member_that_is_down_stops_growth_until_it_is_back_or_forgotten() {
    let said = "none is added while the member on n3 does not run";
    let world = observed(5, &[1, 2, 3]);
    check(&desired(5), down(world.clone(), &[3]), &[3], &[said]);
    check(&desired(5), world.clone(), &[3, 4, 5], &[]);
    // Forgotten, it goes; then there is one node too few for five.
    let said = "3 of 5 members, and with only one more node the number would be even";
    check(&removing(5), forgotten(world, &[3]), &[3, 2, 3], &[said]);
}

#[test]
fn a_forgotten_node_is_removed_with_auto_remove() {
    let said = "2 of 3 members, and no node can take another one";
    let world = forgotten(observed(3, &[1, 2, 3]), &[3]);
    check(&removing(3), world, &[3, 2], &[said]);
    let world = forgotten(observed(4, &[1, 2, 3]), &[3]);
    check(&removing(3), world, &[3, 2, 3], &[]);
}

#[test]
fn bm_13_a_forgotten_node_stops_growth_without_auto_remove() {
    let said = "the member on n3 dangles: the node has left the cluster, and auto_remove is off";
    let world = forgotten(observed(5, &[1, 2, 3]), &[3]);
    check(&desired(3), world.clone(), &[3], &[said]);
    check(&desired(5), world, &[3], &[said]);
}

#[test]
fn two_dangling_of_five_go_one_after_the_other() {
    let world = forgotten(observed(5, &[1, 2, 3, 4, 5]), &[4, 5]);
    check(&removing(3), world, &[5, 4, 3], &[]);
}

#[test]
fn a_leader_in_maintenance_does_nothing_and_a_new_one_does() {
    let world = drained(observed(5, &[1, 2, 3]), &[1]);
    let said = "n1, which leads, is in maintenance";
    check(&desired(5), world.clone(), &[3], &[said]);
    let world = Observed { me: model::id::NodeId(2), ..world };
    check(&desired(5), world, &[3, 4, 5], &[]);
}
