//! What there is, as the planner wants to see it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use membership::desired::{Desired, Target};
use membership::observed::{Data, Leadership, Member, Node, Observed};
use metadata::objects::member::Stage;
use metadata::objects::node::NodeRole;
use metadata::state::State;
use model::id::{NodeId, QueueId};
use model::time::{Millis, Timestamp};
use quorum::member::Role;
use quorum::status::{MemberStatus, Status};

use crate::cluster::reconciler::Reconciler;
use crate::cluster::site::Site;
use crate::config::reconciliation::Reconciliation;
use crate::shard;

/// How long the numbers of members of all queues are used before they are counted again.
const LOAD_AGE: Millis = Millis(1000);

/// What is the same for many queues.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    /// Members of quorum queues, by node, as they were counted then.
    load: BTreeMap<NodeId, u64>,
    counted: Option<Timestamp>,
    /// Queues whose members nodes have lost.
    lost: BTreeMap<NodeId, BTreeSet<QueueId>>,
}

impl Observer {
    /// A node is about to get a member.
    pub(crate) fn expects(&mut self, node: NodeId) {
        *self.load.entry(node).or_insert(0) += 1;
    }

    /// A node has lost its members of these queues, and of no others. Gives those of which that was
    /// not known.
    pub(crate) fn has_lost(
        &mut self,
        node: NodeId,
        queues: BTreeSet<QueueId>,
    ) -> BTreeSet<QueueId> {
        let before = self.lost.remove(&node).unwrap_or_default();
        let new = queues.difference(&before).copied().collect();
        if !queues.is_empty() {
            self.lost.insert(node, queues);
        }
        new
    }

    /// A node has its part of a queue, if it had lost it before.
    pub(crate) fn has_found(&mut self, node: NodeId, queue: QueueId) {
        if let Some(lost) = self.lost.get_mut(&node) {
            lost.remove(&queue);
        }
    }

    fn count(&mut self, now: Timestamp, state: &State) {
        if self.counted.is_some_and(|at| at <= now && at + LOAD_AGE > now) {
            return;
        }
        self.counted = Some(now);
        self.load.clear();
        for member in state.all_queues().flat_map(|queue| &queue.members) {
            *self.load.entry(member.node).or_insert(0) += 1;
        }
    }

    /// The nodes of the cluster. Former incarnations are none.
    fn nodes(&self, state: &State, is_up: impl Fn(NodeId) -> bool) -> Vec<Node> {
        let nodes = state.nodes().filter(|node| !node.lost);
        let node = |node: &Arc<metadata::objects::node::Node>| Node {
            id: node.id,
            name: Arc::from(&*node.name),
            is_up: is_up(node.id),
            is_drained: node.maintenance,
            keeps_queues: node.role == NodeRole::Full,
            zone: node.zone.as_deref().map(Arc::from),
            load: self.load.get(&node.id).copied().unwrap_or(0),
        };
        nodes.map(node).collect()
    }

    fn member(&self, state: &State, queue: QueueId, member: &MemberStatus) -> Member {
        let known = state.node(member.node);
        // Who was replaced has lost everything; whoever bears its name now gets its members.
        let replaced_by = known.filter(|known| known.lost).and_then(|known| {
            state
                .nodes()
                .find(|other| !other.lost && other.name == known.name)
                .map(|other| other.id)
        });
        let recorded = state.queue_by_id(queue).and_then(|queue| queue.member(member.node));
        // What it has said is of the member that it was to have: another one begins without data.
        let begins =
            recorded.is_some_and(|it| matches!(it.stage, Stage::Founding | Stage::Unstarted));
        let says = !begins && self.lost.get(&member.node).is_some_and(|lost| lost.contains(&queue))
            || recorded.is_some_and(|recorded| recorded.stage == Stage::Lost);
        let now = replaced_by.or(says.then_some(member.node));
        Member {
            node: member.node,
            name: known.map(|known| Arc::from(&*known.name)),
            is_voter: member.is_voter,
            matched: member.matched,
            data: now.map_or(Data::Kept, |now| Data::Lost { now }),
        }
    }
}

/// What is not seen but known.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) now: Timestamp,
    pub(crate) settings: Reconciliation,
    /// This node changes the members, or finishes what was left half done.
    pub(crate) is_busy: bool,
    /// Nodes that are passed over.
    pub(crate) avoided: Vec<NodeId>,
}

impl Observer {
    /// A queue as this node sees it; `None` if there is none, or this node has no member.
    pub(crate) fn observe(
        &mut self,
        site: &impl Site,
        id: QueueId,
        known: Known,
    ) -> Option<(Desired, Observed)> {
        let state = site.state();
        let queue = state.queue_by_id(id)?;
        let status = site.status(id)?;
        let said = state.target_size(queue);
        let desired = known.settings.desired(Target {
            configured: 0,
            policy: said.policy,
            operator_policy: said.operator_policy,
            argument: said.argument,
        });
        self.count(known.now, &state);
        let nodes = match site.alone() {
            Some(name) => vec![alone(site.me(), name)],
            None => self.nodes(&state, |node| site.is_up(node)),
        };
        let members = status.members.iter().map(|member| self.member(&state, id, member));
        let members: Vec<Member> = members.collect();
        let unstarted = queue.members.iter().filter(|member| {
            let is_member = members.iter().any(|one| one.node == member.node);
            matches!(member.stage, Stage::Unstarted | Stage::Lost) && !is_member
        });
        let observed = Observed {
            queue: id,
            me: site.me(),
            leadership: leadership(&status),
            nodes: nodes.into(),
            unstarted: unstarted.map(|member| member.node).collect(),
            members,
            is_changing: status.is_changing || known.is_busy,
            last: status.last.unwrap_or(0),
            whole_bytes: status.whole_bytes,
            avoided: known.avoided,
        };
        Some((desired, observed))
    }
}

impl Reconciler {
    /// A queue as this node sees it; `None` if there is none, or this node has no member.
    pub(crate) fn observe(&self, id: QueueId) -> Option<(Desired, Observed)> {
        let now = shard::now();
        let known = Known {
            now,
            settings: self.settings(),
            is_busy: self.members.is_busy(id),
            avoided: self.scheduler.lock().avoided(now, id),
        };
        self.observer.lock().observe(&self.members.changer.site, id, known)
    }
}

/// The only node there is.
fn alone(id: NodeId, name: Arc<str>) -> Node {
    let (is_up, is_drained, keeps_queues) = (true, false, true);
    Node { id, name, is_up, is_drained, keeps_queues, zone: None, load: 0 }
}

fn leadership(status: &Status) -> Leadership {
    match status.role {
        Role::Leader { .. } => Leadership::Here,
        Role::Follower { leader, .. } => Leadership::Elsewhere(leader),
    }
}

#[cfg(test)]
mod tests {
    use metadata::command::{Command, PutNode};

    use super::*;

    const QUEUE: QueueId = QueueId(7);

    /// Nodes a and b, a witness, and a node c that was wiped: 3 became 4.
    fn state() -> State {
        let mut state = State::new();
        for (id, name, role, zone) in [
            (1, "a", NodeRole::Full, Some("east")),
            (2, "b", NodeRole::Full, None),
            (3, "c", NodeRole::Full, None),
            (5, "w", NodeRole::Witness, None),
            (4, "c", NodeRole::Full, None),
        ] {
            let (address, zone) = (String::new(), zone.map(Into::into));
            let put =
                PutNode { id, name: name.into(), address, role, boot: 1, starts: Vec::new(), zone };
            state.apply(Command::PutNode(put)).unwrap();
        }
        state
    }

    fn data(observer: &Observer, state: &State, node: u64) -> (Option<String>, Data) {
        let status = MemberStatus { node: NodeId(node), is_voter: true, matched: Some(3) };
        let member = observer.member(state, QUEUE, &status);
        assert_eq!((member.node, member.is_voter, member.matched), (NodeId(node), true, Some(3)));
        (member.name.map(|name| name.to_string()), member.data)
    }

    #[test]
    fn former_incarnations_are_no_nodes() {
        let (state, mut observer) = (state(), Observer::default());
        observer.count(Timestamp(1), &state);
        observer.expects(NodeId(2));
        let seen = |observer: &Observer| -> Vec<(u64, bool, bool, u64)> {
            let nodes = observer.nodes(&state, |node| node != NodeId(4));
            nodes.iter().map(|one| (one.id.0, one.is_up, one.keeps_queues, one.load)).collect()
        };
        let expected = [(1, true, true, 0), (2, true, true, 1), (4, false, true, 0)];
        let witness = (5, true, false, 0);
        assert_eq!(seen(&observer), [&expected[..], &[witness]].concat());
        assert_eq!(observer.nodes(&state, |_| true)[0].zone.as_deref(), Some("east"));
        // What was expected counts until members are counted again.
        observer.count(Timestamp(LOAD_AGE.0), &state);
        assert_eq!(seen(&observer)[1].3, 1);
        observer.count(Timestamp(LOAD_AGE.0 + 1), &state);
        assert_eq!(seen(&observer)[1].3, 0);
    }

    #[test]
    fn members_of_nodes_that_were_wiped_are_lost_to_who_bears_the_name() {
        let (mut state, mut observer) = (state(), Observer::default());
        let c = || Some("c".to_owned());
        assert_eq!(data(&observer, &state, 3), (c(), Data::Lost { now: NodeId(4) }));
        assert_eq!(data(&observer, &state, 4), (c(), Data::Kept));
        assert_eq!(data(&observer, &state, 9), (None, Data::Kept), "of nobody that is known");
        // The same node says that it has lost its part.
        observer.has_lost(NodeId(1), [QUEUE].into());
        assert_eq!(data(&observer, &state, 1).1, Data::Lost { now: NodeId(1) });
        observer.has_lost(NodeId(1), BTreeSet::new());
        assert_eq!(data(&observer, &state, 1).1, Data::Kept);
        // It has got it again, and nobody has asked it since.
        let other = QueueId(8);
        assert_eq!(observer.has_lost(NodeId(1), [QUEUE, other].into()), [QUEUE, other].into());
        observer.has_found(NodeId(1), QUEUE);
        assert_eq!(data(&observer, &state, 1).1, Data::Kept);
        assert_eq!(observer.has_lost(NodeId(1), [other].into()), BTreeSet::new(), "that was known");
        // The one that took the name is forgotten: the member dangles.
        state.apply(Command::ForgetNode { id: 4 }).unwrap();
        assert_eq!(data(&observer, &state, 3), (c(), Data::Kept));
    }
}
