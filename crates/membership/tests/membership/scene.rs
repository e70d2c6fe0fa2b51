//! Clusters in few words.

use std::sync::Arc;

use membership::desired::{Caution, Desired, Target};
use membership::observed::{Data, Leadership, Member, Node, Observed};
use membership::plan::{Plan, plan};
use membership::step::Action;
use model::id::{NodeId, QueueId};

/// The index of the leader's last entry.
pub(crate) const LAST: u64 = 1000;

/// What is added is careful.
pub(crate) const CAUTION: Caution = Caution { lag: 10, log_bytes: 1 << 20 };

/// A queue led by the first of its members, in a cluster of `nodes` nodes that are all up.
pub(crate) fn observed(nodes: u64, members: &[u64]) -> Observed {
    let mut sorted: Vec<u64> = members.to_vec();
    sorted.sort_unstable();
    let mut observed = Observed {
        queue: QueueId(1),
        me: NodeId(members[0]),
        leadership: Leadership::Here,
        nodes: (1..=nodes).map(node).collect(),
        members: sorted.into_iter().map(member).collect(),
        unstarted: Vec::new(),
        is_changing: false,
        last: LAST,
        whole_bytes: 1000,
        avoided: Vec::new(),
    };
    count(&mut observed);
    observed
}

pub(crate) fn node(id: u64) -> Node {
    Node {
        id: NodeId(id),
        name: format!("n{id}").into(),
        is_up: true,
        is_drained: false,
        keeps_queues: true,
        zone: None,
        load: 0,
    }
}

pub(crate) fn member(id: u64) -> Member {
    Member {
        node: NodeId(id),
        name: Some(format!("n{id}").into()),
        is_voter: true,
        matched: Some(LAST),
        data: Data::Kept,
    }
}

/// The load of the nodes is what this queue makes of it.
pub(crate) fn count(observed: &mut Observed) {
    let members: Vec<NodeId> = observed.members.iter().map(|member| member.node).collect();
    edit(observed, |node| node.load = u64::from(members.contains(&node.id)));
}

/// Changes the nodes.
pub(crate) fn edit(observed: &mut Observed, mut change: impl FnMut(&mut Node)) {
    let mut nodes = observed.nodes.to_vec();
    nodes.iter_mut().for_each(&mut change);
    observed.nodes = nodes.into();
}

pub(crate) fn down(mut observed: Observed, ids: &[u64]) -> Observed {
    edit(&mut observed, |node| node.is_up &= !ids.contains(&node.id.0));
    observed
}

pub(crate) fn drained(mut observed: Observed, ids: &[u64]) -> Observed {
    edit(&mut observed, |node| node.is_drained |= ids.contains(&node.id.0));
    observed
}

/// These nodes have left the cluster.
pub(crate) fn forgotten(mut observed: Observed, ids: &[u64]) -> Observed {
    observed.nodes =
        observed.nodes.iter().filter(|node| !ids.contains(&node.id.0)).cloned().collect();
    observed
}

/// A node was wiped and is there under a new id.
pub(crate) fn wiped(mut observed: Observed, old: u64, new: u64) -> Observed {
    let mut nodes = observed.nodes.to_vec();
    for node in nodes.iter_mut().filter(|node| node.id.0 == old) {
        node.id = NodeId(new);
        node.load = 0;
    }
    observed.nodes = nodes.into();
    change(&mut observed, old, |member| member.data = Data::Lost { now: NodeId(new) });
    observed
}

/// Changes one member.
pub(crate) fn change(observed: &mut Observed, id: u64, change: impl FnOnce(&mut Member)) {
    let member = observed.members.iter_mut().find(|member| member.node.0 == id);
    change(member.expect("the member is there"));
}

pub(crate) fn desired(target: u64) -> Desired {
    let target = Target { configured: target, ..Target::default() };
    Desired { enabled: true, auto_remove: false, target, caution: Some(CAUTION) }
}

pub(crate) fn removing(target: u64) -> Desired {
    Desired { auto_remove: true, ..desired(target) }
}

/// The sizes that the queue goes through, and what is said at the end.
pub(crate) fn sizes(desired: &Desired, observed: Observed) -> (Vec<u64>, Vec<String>) {
    let plans = membership::forecast::forecast(desired, observed, 20);
    let sizes = plans.iter().map(|plan| plan.size).collect();
    let last = plans.last().expect("there is always a plan");
    assert!(last.step.is_none(), "it does not end: {plans:#?}");
    (sizes, last.refusals.iter().map(ToString::to_string).collect())
}

/// What is done next, in words.
pub(crate) fn next(desired: &Desired, observed: &Observed) -> Option<String> {
    plan(desired, observed).step.map(|step| step.to_string())
}

/// Why nothing is done, in words.
pub(crate) fn refused(desired: &Desired, observed: &Observed) -> Vec<String> {
    let plan: Plan = plan(desired, observed);
    assert_eq!(plan.step, None);
    plan.refusals.iter().map(ToString::to_string).collect()
}

/// The members of a queue as numbers.
pub(crate) fn ids(observed: &Observed) -> Vec<u64> {
    observed.members.iter().map(|member| member.node.0).collect()
}

/// The node that a step adds a member on.
pub(crate) fn added(action: &Action) -> Option<u64> {
    match action {
        Action::Add { node } => Some(node.id.0),
        Action::Promote { .. } | Action::Remove { .. } | Action::Replace { .. } => None,
    }
}

/// A zone.
pub(crate) fn zone(name: &str) -> Arc<str> {
    name.into()
}

/// Numbers from a seed; `SplitMix64`.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound
    }

    /// One of these.
    pub(crate) fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        let at = usize::try_from(self.below(choices.len() as u64)).expect("it is an index");
        choices[at].clone()
    }

    /// True in one of so many cases.
    pub(crate) fn one_in(&mut self, cases: u64) -> bool {
        self.below(cases) == 0
    }
}
