//! Nodes that join, start anew, are replaced and are forgotten.

use std::sync::Arc;

use model::id::NodeId;

use crate::command::PutNode;
use crate::machine::parts::not_found;
use crate::objects::node::Node;
use crate::objects::queue::{Queue, QueueKind};
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::state::State;
use crate::store::record::{self, Record};

impl State {
    /// The most nodes that can ever join: the numbers that fit into what connections are called.
    pub const NODES_MAX: u16 = 4095;

    pub(super) fn put_node(&mut self, put: PutNode, out: &mut Outcome) -> Result<(), Refusal> {
        let PutNode { id, name, address, role, boot, starts, zone } = put;
        let id = NodeId(id);
        if self.was_forgotten(id) {
            return Err(Refusal::not_allowed(format!("node {id} was forgotten")));
        }
        let number = match self.node(id).map(Arc::clone) {
            Some(known) if known.lost => {
                return Err(Refusal::not_allowed(format!(
                    "node {id} was replaced by another one with the name '{}'",
                    known.name
                )));
            }
            Some(known) if known.has_overtaken(boot, &starts) => {
                return Err(Refusal::not_allowed(format!(
                    "another start of node {id} is known: number {}, and this is number {boot}",
                    known.boot
                )));
            }
            Some(known) => {
                if known.boot < boot {
                    self.drop_transients_of(&known, out);
                    self.release_locks_of_earlier_boots(id.0, boot, out);
                }
                known.number
            }
            None => {
                if self.last_node >= Self::NODES_MAX {
                    return Err(Refusal::not_allowed(format!(
                        "{} nodes have joined this cluster, and no more can",
                        Self::NODES_MAX
                    )));
                }
                self.last_node += 1;
                out.records.push(record::put(&Record::LastNode(self.last_node)));
                out.created = true;
                self.last_node
            }
        };
        let replaced: Vec<Arc<Node>> = self
            .nodes()
            .filter(|node| node.name == name && node.id != id)
            .map(Arc::clone)
            .collect();
        for old in replaced.into_iter().filter(|node| !node.lost) {
            self.drop_transients_of(&old, out);
            self.insert_node(Node { lost: true, ..Node::clone(&old) }, out);
        }
        let same_start = self.node(id).filter(|known| known.boot == boot);
        let maintenance = same_start.is_some_and(|known| known.maintenance);
        let lost = false;
        // Who does not tell takes nothing back.
        let told = same_start.map_or(0, |known| known.start);
        let start = starts.last().copied().unwrap_or(told);
        let node = Node { id, name, number, address, role, boot, start, zone, lost, maintenance };
        let (keeps, name) = (node.keeps_queues(), Arc::clone(&node.name));
        self.insert_node(node, out);
        if keeps {
            self.replace_copies(&name, id, out);
        }
        Ok(())
    }

    /// A node that was wiped has nothing of the journals that it had copies of, and is copied anew.
    fn replace_copies(&mut self, name: &str, id: NodeId, out: &mut Outcome) {
        let wiped: Vec<NodeId> = self
            .nodes()
            .filter(|node| node.lost && *node.name == *name)
            .map(|node| node.id)
            .collect();
        for old in wiped {
            self.replace_copies_of(old, id, out);
        }
    }

    pub(super) fn set_maintenance(
        &mut self,
        id: NodeId,
        on: bool,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        let node = self.node(id).map(Arc::clone);
        let node = node.ok_or_else(|| not_found("node", &id.to_string().into()))?;
        if node.maintenance != on {
            self.insert_node(Node { maintenance: on, ..Node::clone(&node) }, out);
        }
        Ok(())
    }

    pub(super) fn node_ended(&mut self, id: NodeId, boot: u64, out: &mut Outcome) {
        // Of a later start everything is alive.
        if let Some(node) = self.node(id).filter(|node| node.boot <= boot).map(Arc::clone) {
            self.drop_transients_of(&node, out);
        }
    }

    pub(super) fn forget_node(&mut self, id: NodeId, out: &mut Outcome) -> Result<(), Refusal> {
        let node = self
            .node(id)
            .map(Arc::clone)
            .ok_or_else(|| not_found("node", &id.to_string().into()))?;
        self.drop_transients_of(&node, out);
        // What it kept alone is gone with it.
        self.drop_queues(
            |queue| queue.kind == QueueKind::Classic && queue.home == id && queue.journal.is_none(),
            out,
        );
        self.forget_copies(id, out);
        self.nodes.remove(&id.0);
        out.records.push(record::delete(&Record::Node(&node)));
        self.forgotten.insert(id.0);
        out.records.push(record::put(&Record::Forgotten(id)));
        out.deleted = true;
        Ok(())
    }

    fn insert_node(&mut self, node: Node, out: &mut Outcome) {
        let node = Arc::new(node);
        out.records.push(record::put(&Record::Node(&node)));
        self.nodes.insert(node.id.0, node);
    }

    /// Drops what does not outlive a start of a node: the exclusive queues of its connections, and
    /// queues at home there that are not durable.
    fn drop_transients_of(&mut self, node: &Node, out: &mut Outcome) {
        self.drop_queues(|queue| is_transient_of(queue, node), out);
    }

    /// Whether a node has anything that does not outlive it.
    pub fn has_transients(&self, node: &Node) -> bool {
        self.all_queues().any(|queue| is_transient_of(queue, node))
    }

    fn drop_queues(&mut self, which: impl Fn(&Queue) -> bool, out: &mut Outcome) {
        let doomed: Vec<_> =
            self.all_queues().filter(|queue| which(queue)).map(Arc::clone).collect();
        for queue in doomed {
            self.drop_queue(&queue, out);
        }
    }
}

fn is_transient_of(queue: &Queue, node: &Node) -> bool {
    match queue.exclusive_owner {
        Some(owner) => owner.node() == node.number,
        None => !queue.durable && queue.home == node.id,
    }
}

#[cfg(test)]
mod tests {
    use model::id::ConnectionId;

    use super::*;
    use crate::command::{Command, DeclareQueue};
    use crate::objects::node::NodeRole;
    use crate::scene::{Act, exclusive, queue, state};

    fn put(id: u64, name: &str, boot: u64) -> Command {
        Command::PutNode(PutNode {
            id,
            name: name.into(),
            address: format!("{name}:25672"),
            role: NodeRole::Full,
            boot,
            starts: Vec::new(),
            zone: None,
        })
    }

    #[test]
    fn of_two_copies_of_a_data_directory_one_is_taken_note_of() {
        let start = |boot, starts: &[u64]| match put(7, "a", boot) {
            Command::PutNode(put) => Command::PutNode(PutNode { starts: starts.to_vec(), ..put }),
            other => other,
        };
        let mut state = state();
        state.apply(start(1, &[11])).unwrap();
        state.apply(start(1, &[11])).unwrap();
        // Both were made from the directory of the first start.
        state.apply(start(2, &[11, 22])).unwrap();
        for copy in [start(2, &[11, 12]), start(3, &[11, 12, 13])] {
            let refusal = state.refused(copy);
            assert!(refusal.text.contains("another start"), "{refusal}");
        }
        // A start that was taken note of, and whose directory does not know it.
        state.apply(start(5, &[22, 24, 25])).unwrap();
        state.apply(start(6, &[22, 24, 25, 26])).unwrap();
        assert_eq!(state.node(NodeId(7)).unwrap().start, 26);
        // Records of before tell nothing.
        state.apply(put(7, "a", 7)).unwrap();
        state.apply(start(8, &[88])).unwrap();
    }

    #[test]
    fn numbers_are_given_once() {
        let mut state = state();
        assert!(state.apply(put(7, "a", 1)).unwrap().created);
        assert!(state.apply(put(5, "b", 1)).unwrap().created);
        let again = state.apply(put(7, "a", 2)).unwrap();
        assert!(!again.created);
        let numbers: Vec<_> =
            state.nodes().map(|node| (node.id.0, node.number, node.boot)).collect();
        assert_eq!(numbers, [(5, 2, 1), (7, 1, 2)]);
        let refusal = state.refused(put(7, "a", 1));
        assert!(refusal.text.contains("number 2, and this is number 1"), "{refusal}");
        state.apply(Command::ForgetNode { id: 5 }).unwrap();
        state.apply(put(9, "c", 1)).unwrap();
        assert_eq!(state.node(NodeId(9)).unwrap().number, 3);
        state.refused(Command::ForgetNode { id: 5 });
    }

    #[test]
    fn who_was_forgotten_does_not_come_back() {
        let mut state = state();
        state.apply(put(7, "a", 1)).unwrap();
        state.apply(put(5, "b", 1)).unwrap();
        assert!(!state.was_forgotten(NodeId(5)));
        state.apply(Command::ForgetNode { id: 5 }).unwrap();
        assert!(state.was_forgotten(NodeId(5)) && !state.was_forgotten(NodeId(7)));
        assert_eq!(state.refused(put(5, "b", 2)).text, "node 0000000000000005 was forgotten");
        state.apply(put(6, "b", 1)).unwrap();
    }

    #[test]
    fn a_wiped_node_replaces_its_old_self() {
        let mut state = state();
        state.apply(put(7, "a", 4)).unwrap();
        let outcome = state.apply(put(8, "a", 1)).unwrap();
        assert!(outcome.created);
        assert!(state.node(NodeId(7)).unwrap().lost);
        let new = state.node(NodeId(8)).unwrap();
        assert!(!new.lost && new.number == 2);
        assert!(state.refused(put(7, "a", 5)).text.contains("was replaced"));
        assert_eq!(state.node_named("a").unwrap().id, NodeId(8));
    }

    #[test]
    fn maintenance_lasts_as_long_as_the_start() {
        let mut state = state();
        state.apply(put(7, "a", 1)).unwrap();
        let set = |id, on| Command::SetMaintenance { id, on };
        let is_on = |state: &State| state.node(NodeId(7)).unwrap().maintenance;
        state.apply(set(7, true)).unwrap();
        state.apply(put(7, "a", 1)).unwrap();
        assert!(is_on(&state) && !state.node(NodeId(7)).unwrap().takes_queues());
        state.apply(put(7, "a", 2)).unwrap();
        assert!(!is_on(&state));
        state.apply(set(7, true)).unwrap();
        state.apply(set(7, false)).unwrap();
        assert!(!is_on(&state) && state.node(NodeId(7)).unwrap().takes_queues());
        state.refused(set(8, true));
    }

    #[test]
    fn a_new_start_ends_what_was_transient_there_and_nothing_else() {
        let mut state = state();
        state.apply(put(7, "a", 1)).unwrap();
        state.apply(put(8, "b", 1)).unwrap();
        for (name, node, home) in [("mine", 1, 7), ("other", 2, 8)] {
            let owner = ConnectionId::new(node, 1, 3);
            let declare = DeclareQueue { home: NodeId(home), ..exclusive(name, owner.0) };
            state.apply(Command::DeclareQueue(declare)).unwrap();
            for durable in [true, false] {
                let name = format!("{name}-{durable}");
                let declare = DeclareQueue { durable, home: NodeId(home), ..queue(&name) };
                state.apply(Command::DeclareQueue(declare)).unwrap();
            }
        }
        // The same start again, with another address.
        assert!(state.apply(put(7, "a", 1)).unwrap().queues_deleted.is_empty());
        let outcome = state.apply(put(7, "a", 2)).unwrap();
        let gone: Vec<_> = outcome.queues_deleted.iter().map(|queue| &*queue.name).collect();
        assert_eq!(gone, ["mine", "mine-false"]);
        // The end of a start that is known to be followed by another one is no news.
        let ended = Command::NodeEnded { id: 7, boot: 1 };
        assert!(state.apply(ended).unwrap().queues_deleted.is_empty());
        assert!(state.has_transients(state.node(NodeId(8)).unwrap()));
        let mut copy = state.clone();
        let outcome = copy.apply(Command::NodeEnded { id: 8, boot: 1 }).unwrap();
        let gone: Vec<_> = outcome.queues_deleted.iter().map(|queue| &*queue.name).collect();
        assert_eq!(gone, ["other", "other-false"]);
        let outcome = state.apply(Command::ForgetNode { id: 8 }).unwrap();
        let gone: Vec<_> = outcome.queues_deleted.iter().map(|queue| &*queue.name).collect();
        assert_eq!(gone, ["other", "other-false", "other-true"]);
        assert!(state.queue("/", "mine-true").is_some());
    }
}
