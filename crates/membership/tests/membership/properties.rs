//! What holds of every plan, in random clusters whose steps are carried out one after the other.

use membership::desired::Desired;
use membership::forecast::succeed;
use membership::observed::{Data, Member, Observed};
use membership::plan::plan;
use membership::step::Action;
use model::id::NodeId;

use crate::scene::{
    CAUTION, Dice, LAST, change, desired, down, drained, forgotten, ids, observed, removing, wiped,
    zone,
};

/// A queue in a cluster to which much has happened.
fn world(dice: &mut Dice) -> (Desired, Observed) {
    let nodes = 1 + dice.below(9);
    let mut members: Vec<u64> = (1..=nodes).filter(|_| dice.one_in(2)).collect();
    if members.is_empty() {
        members.push(1);
    }
    let leader = dice.pick(&members);
    members.sort_by_key(|member| *member != leader);
    let mut observed = observed(nodes, &members);
    crate::scene::edit(&mut observed, |node| {
        node.zone = dice.pick(&[None, Some(zone("east")), Some(zone("west"))]);
        node.load += dice.below(4);
    });
    let me = observed.me.0;
    for id in (1..=nodes).filter(|id| *id != me) {
        let is_member = members.contains(&id);
        match dice.below(12) {
            0 => observed = forgotten(observed, &[id]),
            1 => observed = down(observed, &[id]),
            2 => observed = drained(observed, &[id]),
            3 if is_member => observed = wiped(observed, id, id + 100),
            4 if is_member => {
                change(&mut observed, id, |one| one.data = Data::Lost { now: NodeId(id) });
            }
            5 if is_member => change(&mut observed, id, |one| one.is_voter = false),
            6 if is_member => change(&mut observed, id, |one| one.matched = Some(LAST - 100)),
            7 => crate::scene::edit(&mut observed, |node| node.keeps_queues &= node.id.0 != id),
            8 if !is_member => observed.unstarted.push(NodeId(id)),
            _ => {}
        }
    }
    if dice.one_in(10) {
        observed.whole_bytes = CAUTION.log_bytes + 1;
    }
    let target = dice.below(8);
    (if dice.one_in(2) { desired(target) } else { removing(target) }, observed)
}

fn voters(observed: &Observed) -> impl Iterator<Item = &Member> {
    observed.members.iter().filter(|member| member.is_voter)
}

fn has_quorum(observed: &Observed) -> bool {
    let running = voters(observed).filter(|member| observed.runs(member)).count();
    running * 2 > voters(observed).count()
}

/// The largest size that a queue of `size` members can get to when `free` nodes have none.
fn reachable(size: u64, free: u64, target: u64) -> u64 {
    let reach = target.min(size + free);
    let is_dead_end = reach.is_multiple_of(2) && reach == size + free && reach > size;
    (reach - u64::from(is_dead_end)).max(size)
}

/// Whether a member's log is near enough, and it votes.
fn is_well(observed: &Observed, member: &Member) -> bool {
    let near = member.matched.is_some_and(|matched| observed.last - matched <= CAUTION.lag);
    member.node == observed.me || near && member.is_voter && observed.runs(member)
}

#[test]
fn plans_are_safe_and_end_at_the_largest_size_that_is_allowed() {
    let mut dice = Dice(18);
    let (mut whole, mut grown, mut shrunk) = (0, 0, 0);
    for number in 0..20_000 {
        let (desired, mut observed) = world(&mut dice);
        let shown = format!("cluster {number}: {desired:?}\n{observed:#?}");
        let first = observed.size();
        let mut steps = 0;
        loop {
            let found = plan(&desired, &observed);
            let Some(step) = found.step else { break };
            steps += 1;
            assert!(steps <= 20, "it does not end: {shown}");
            let before = has_quorum(&observed);
            let size = observed.size();
            if let Action::Remove { node } | Action::Replace { lost: node, .. } = &step.action {
                assert_ne!(node.id, observed.me, "the leader: {shown}");
                let member = observed.member(node.id).expect("it is a member");
                assert!(!observed.runs(member), "a member that is well: {shown}");
            }
            succeed(&mut observed, &step.action);
            assert!(!before || has_quorum(&observed), "{step} loses the quorum: {shown}");
            let change = observed.size().abs_diff(size);
            assert!(change <= 1, "{step} is more than one: {shown}");
            let mut unique = ids(&observed);
            unique.dedup();
            assert_eq!(unique, ids(&observed), "a member twice: {shown}");
        }
        // What is left is what the rules do not allow.
        let stays: Vec<&Member> = observed
            .members
            .iter()
            .filter(|member| match member.data {
                Data::Kept => observed.node(member.node).is_none(),
                Data::Lost { .. } => true,
            })
            .collect();
        for member in &stays {
            let has_reason = !plan(&desired, &observed).refusals.is_empty();
            assert!(has_reason, "{} stays without a reason: {shown}", member.node);
        }
        let free = observed.nodes.iter().filter(|node| {
            let is_free = node.is_up && !node.is_drained && node.keeps_queues;
            is_free && observed.member(node.id).is_none()
        });
        let calm = observed.members.iter().all(|member| is_well(&observed, member));
        let can_copy = observed.whole_bytes <= CAUTION.log_bytes;
        let waits = observed.unstarted.iter().any(|id| {
            let node = observed.node(*id);
            let ready =
                node.is_some_and(|node| node.is_up && !node.is_drained && node.keeps_queues);
            ready && observed.member(*id).is_none()
        });
        if calm && can_copy && stays.is_empty() {
            assert!(!waits, "an unstarted member was left out: {shown}");
            let most = reachable(observed.size(), free.count() as u64, desired.target.effective());
            assert_eq!(observed.size(), most, "it could be larger: {shown}");
            whole += 1;
        }
        grown += u64::from(observed.size() > first);
        shrunk += u64::from(observed.size() < first);
    }
    assert!(whole > 5_000 && grown > 2_000 && shrunk > 200, "{whole} {grown} {shrunk}");
}

#[test]
fn zones_are_spread_then_load_then_a_hash() {
    let mut world = observed(6, &[1]);
    let zones = ["a", "a", "a", "b", "b", "c"];
    crate::scene::edit(&mut world, |node| {
        node.zone = Some(zone(zones[usize::try_from(node.id.0 - 1).unwrap()]));
        node.load = [0, 0, 0, 5, 4, 9][usize::try_from(node.id.0 - 1).unwrap()];
    });
    let mut order = Vec::new();
    while let Some(step) = plan(&desired(5), &world).step {
        order.push(crate::scene::added(&step.action).expect("only growth"));
        succeed(&mut world, &step.action);
    }
    // The other zones first, in each the least loaded node; then each zone has one, and the least
    // loaded of all follows; then the zones that have fewer again.
    assert_eq!((order[..2].to_vec(), order[3]), (vec![5, 6], 4), "{order:?}");
    assert!([2, 3].contains(&order[2]), "{order:?}");
    let mut chosen = [0_u64; 6];
    for queue in 0..600 {
        let mut world = observed(7, &[7]);
        world.queue = model::id::QueueId(queue);
        crate::scene::edit(&mut world, |node| node.load = 0);
        let step = plan(&desired(3), &world).step.expect("it grows");
        let node = crate::scene::added(&step.action).expect("only growth");
        assert_eq!(plan(&desired(3), &world).step, Some(step), "the same each time");
        chosen[usize::try_from(node - 1).unwrap()] += 1;
    }
    assert!(chosen.iter().all(|count| (60..160).contains(count)), "{chosen:?}");
}
