//! Random clusters: the plan against the oracle.

use std::collections::BTreeMap;

use membership::desired::{Desired, Target};
use membership::observed::{Leadership, Observed};
use membership::plan::plan;
use membership::refusal::{Kind, Refusal};
use membership::step::Action;
use model::id::NodeId;

use crate::oracle::{Cluster, Verdict, verdict};
use crate::scene::{CAUTION, Dice, LAST, added, change, count, edit, observed};

const CLUSTERS: u64 = 10_000;

/// A cluster of up to nine nodes, some down, some in maintenance, with members on some of them and
/// on some that have left.
fn cluster(dice: &mut Dice) -> Cluster {
    let nodes = 1 + dice.below(9);
    let mut cluster: Vec<u64> = (1..=nodes).collect();
    let mut members: Vec<u64> = cluster.iter().copied().filter(|_| dice.one_in(2)).collect();
    if members.is_empty() {
        members.push(1 + dice.below(nodes));
    }
    let leader = dice.pick(&members);
    if dice.one_in(3) {
        cluster.retain(|_| !dice.one_in(4));
    }
    if dice.one_in(50) {
        cluster.clear();
    }
    let calm = dice.one_in(2);
    let running = cluster.iter().copied().filter(|id| *id == leader || calm || !dice.one_in(4));
    Cluster {
        running: running.collect(),
        drained: cluster.iter().copied().filter(|_| dice.one_in(8)).collect(),
        target: dice.below(8),
        auto_remove: dice.one_in(2),
        members,
        nodes: cluster,
        leader,
    }
}

fn as_observed(world: &Cluster) -> Observed {
    let leader = world.leader;
    let mut members = vec![leader];
    members.extend(world.members.iter().filter(|member| **member != leader));
    let mut observed = observed(9, &members);
    observed.nodes =
        observed.nodes.iter().filter(|node| world.nodes.contains(&node.id.0)).cloned().collect();
    edit(&mut observed, |node| {
        node.is_up = world.running.contains(&node.id.0);
        node.is_drained = world.drained.contains(&node.id.0);
    });
    count(&mut observed);
    observed
}

/// The target, from any of the four places that can say it; the others say less, or nothing.
fn as_desired(world: &Cluster, dice: &mut Dice) -> Desired {
    let mut less = || dice.below(world.target + 1);
    let mut target = Target {
        configured: less(),
        policy: Some(less()),
        operator_policy: Some(less()),
        argument: Some(less()),
    };
    match dice.below(4) {
        0 => target.configured = world.target,
        1 => target.policy = Some(world.target),
        2 => target.operator_policy = Some(world.target),
        _ => target.argument = Some(world.target),
    }
    Desired { enabled: true, auto_remove: world.auto_remove, target, caution: None }
}

/// Whether a step is what the oracle wants.
fn agrees(verdict: &Verdict, action: Option<&Action>) -> bool {
    match (verdict, action) {
        (Verdict::Nothing, None) => true,
        (Verdict::Remove(gone), Some(Action::Remove { node })) => node.id == NodeId(*gone),
        (Verdict::AddOneOf(free), Some(action)) => {
            added(action).is_some_and(|node| free.contains(&node))
        }
        _ => false,
    }
}

#[test]
fn without_caution_there_is_no_difference() {
    let mut dice = Dice(8218);
    let mut seen = [0; 3];
    for number in 0..CLUSTERS {
        let world = cluster(&mut dice);
        let wanted = verdict(&world);
        let found = plan(&as_desired(&world, &mut dice), &as_observed(&world));
        let action = found.step.as_ref().map(|step| &step.action);
        assert!(agrees(&wanted, action), "cluster {number}: {world:?}\n{wanted:?}\n{found:#?}");
        seen[match wanted {
            Verdict::Nothing => 0,
            Verdict::Remove(_) => 1,
            Verdict::AddOneOf(_) => 2,
        }] += 1;
    }
    // Each verdict comes often, or the comparison says little.
    assert!(seen.iter().all(|count| *count > 300), "{seen:?}");
}

/// What upstream does not look at.
fn disturb(observed: &mut Observed, dice: &mut Dice) {
    let me = observed.me.0;
    for id in crate::scene::ids(observed).into_iter().filter(|id| *id != me) {
        if dice.one_in(12) {
            change(observed, id, |member| member.is_voter = false);
        }
        if dice.one_in(12) {
            change(observed, id, |member| member.matched = None);
        }
        if dice.one_in(12) {
            change(observed, id, |member| member.matched = Some(LAST - CAUTION.lag - 1));
        }
    }
    observed.is_changing = dice.one_in(16);
    if dice.one_in(8) {
        observed.whole_bytes = CAUTION.log_bytes + 1;
    }
    if dice.one_in(4) {
        observed.avoided =
            observed.nodes.iter().map(|node| node.id).filter(|_| !dice.one_in(4)).collect();
    }
}

/// With caution the plan differs from the oracle by a refusal whose name says which rule of ours it
/// is, or by the promotion of a member which upstream's Raft would do by itself.
#[test]
fn with_caution_each_difference_is_a_refusal_with_a_name() {
    let mut dice = Dice(33);
    let mut named: BTreeMap<&str, u64> = BTreeMap::new();
    for number in 0..CLUSTERS {
        let world = cluster(&mut dice);
        let wanted = verdict(&world);
        let mut observed = as_observed(&world);
        disturb(&mut observed, &mut dice);
        let desired = Desired { caution: Some(CAUTION), ..as_desired(&world, &mut dice) };
        let found = plan(&desired, &observed);
        let action = found.step.as_ref().map(|step| &step.action);
        if agrees(&wanted, action) {
            continue;
        }
        let shown = || format!("cluster {number}: {world:?}\n{observed:?}\n{wanted:?}\n{found:#?}");
        if let Some(Action::Promote { node }) = action {
            let member = observed.member(node.id).expect("the member is there");
            assert!(!member.is_voter && !matches!(wanted, Verdict::Remove(_)), "{}", shown());
            *named.entry("promote").or_default() += 1;
            continue;
        }
        // A dangling member that must not go yet leaves the turn to the next one.
        if let (Verdict::Remove(first), Some(Action::Remove { node })) = (&wanted, action) {
            assert_ne!(node.id.0, *first);
            assert!(found.refusals.iter().any(|one| one.kind() == Kind::NoMajority), "{}", shown());
            *named.entry("next").or_default() += 1;
            continue;
        }
        assert_eq!(action, None, "{}", shown());
        let ours = found.refusals.iter().map(Refusal::kind).find(|kind| {
            use Kind::{
                Avoided, Changing, LogTooLarge, MemberLags, MemberWithoutVote, NoMajority,
                NotInCluster,
            };
            let added = [
                Avoided,
                Changing,
                LogTooLarge,
                MemberLags,
                MemberWithoutVote,
                NoMajority,
                NotInCluster,
            ];
            added.contains(kind)
        });
        let ours = ours.unwrap_or_else(|| panic!("no rule of ours: {}", shown()));
        *named.entry(ours.as_str()).or_default() += 1;
    }
    for rule in [
        "avoided",
        "changing",
        "log_too_large",
        "member_lags",
        "member_without_vote",
        "no_majority",
        "not_in_cluster",
        "promote",
    ] {
        assert!(named.get(rule).is_some_and(|count| *count > 10), "{rule}: {named:?}");
    }
}

#[test]
fn others_who_lead_change_nothing() {
    let mut dice = Dice(9);
    for _ in 0..CLUSTERS / 10 {
        let world = cluster(&mut dice);
        let desired = as_desired(&world, &mut dice);
        for leadership in [
            Leadership::Unconfirmed,
            Leadership::Elsewhere(None),
            Leadership::Elsewhere(Some(NodeId(3))),
        ] {
            let observed = Observed { leadership, ..as_observed(&world) };
            assert_eq!(plan(&desired, &observed).step, None);
        }
    }
}
