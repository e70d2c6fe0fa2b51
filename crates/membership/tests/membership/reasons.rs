//! Several reasons at once are all said.

use membership::plan::plan;
use membership::refusal::Kind;

use crate::scene::{desired, down, forgotten, observed, refused};

#[test]
fn all_that_stands_in_the_way_is_said_once() {
    let world = forgotten(down(observed(4, &[1, 2, 3]), &[2]), &[3]);
    assert_eq!(
        refused(&desired(5), &world),
        [
            "the member on n3 dangles: the node has left the cluster, and auto_remove is off",
            "3 of 5 members, and with only one more node the number would be even",
            "none is added while the member on n2 does not run",
        ]
    );
    let kinds: Vec<&str> = plan(&desired(5), &world)
        .refusals
        .iter()
        .map(|refusal| Kind::as_str(refusal.kind()))
        .collect();
    assert_eq!(kinds, ["dangling", "even_size", "member_down"]);
}

#[test]
fn a_node_whose_name_nobody_knows_is_shown_by_its_id() {
    let mut world = forgotten(observed(3, &[1, 2, 3]), &[3]);
    crate::scene::change(&mut world, 3, |member| member.name = None);
    let said = "the member on 0000000000000003 dangles: the node has left the cluster, \
                and auto_remove is off";
    assert_eq!(refused(&desired(3), &world), [said]);
}
