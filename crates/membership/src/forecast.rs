//! Where a plan leads, if every step succeeds and nothing else happens: what an operator wants to
//! see before it is done.

use std::sync::Arc;

use model::id::NodeId;

use crate::desired::Desired;
use crate::observed::{Data, Member, Observed};
use crate::plan::{Plan, plan};
use crate::step::Action;

/// The plans one after the other; the last one has no step. At most `limit` of them.
pub fn forecast(desired: &Desired, mut observed: Observed, limit: usize) -> Vec<Plan> {
    let mut plans = Vec::new();
    while plans.len() < limit {
        let next = plan(desired, &observed);
        let action = next.step.as_ref().map(|step| step.action.clone());
        plans.push(next);
        match action {
            Some(action) => succeed(&mut observed, &action),
            None => break,
        }
    }
    plans
}

/// What there is after a step that succeeded.
pub fn succeed(observed: &mut Observed, action: &Action) {
    match action {
        Action::Add { node } => add(observed, node.id),
        Action::Promote { node } => add(observed, node.id),
        Action::Remove { node } => remove(observed, node.id),
        Action::Replace { lost, with } => {
            remove(observed, lost.id);
            add(observed, with.id);
        }
    }
}

/// Adds a member with a vote, or gives one its vote.
fn add(observed: &mut Observed, node: NodeId) {
    let last = observed.last;
    if let Some(member) = observed.members.iter_mut().find(|member| member.node == node) {
        member.is_voter = true;
        member.matched = Some(last);
        return;
    }
    observed.members.push(Member {
        node,
        name: observed.node(node).map(|node| Arc::clone(&node.name)),
        is_voter: true,
        matched: Some(last),
        data: Data::Kept,
    });
    observed.members.sort_unstable_by_key(|member| member.node);
    load(observed, node, 1);
}

fn remove(observed: &mut Observed, node: NodeId) {
    observed.members.retain(|member| member.node != node);
    load(observed, node, -1);
}

fn load(observed: &mut Observed, node: NodeId, change: i64) {
    let mut nodes = observed.nodes.to_vec();
    for one in nodes.iter_mut().filter(|one| one.id == node) {
        one.load = one.load.saturating_add_signed(change);
    }
    observed.nodes = nodes.into();
}
