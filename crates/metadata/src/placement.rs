//! Which nodes a new quorum queue is put on.
//!
//! Decided once, where it is declared, and told to all in the command: what it depends on may have
//! changed by the time at which the command is applied.

use model::id::NodeId;

use crate::arguments;
use crate::objects::node::{Node, NodeRole};
use crate::objects::queue::QueueKind;
use crate::state::State;

/// The members that a quorum queue gets unless something else is asked for.
pub const GROUP_SIZE: u64 = 3;

/// The members of a new quorum queue, the first of which is to lead it: the declaring node, unless
/// the queue's arguments or its policy want leaders spread or the node keeps no queues; then others in an order
/// that differs from queue to queue, those that are there before those that are not (`is_up`). An odd
/// number of them, at most `size` or what `x-quorum-initial-group-size` says. A node in maintenance
/// mode is not among them unless there is no other.
pub fn members(
    state: &State,
    declarer: NodeId,
    vhost: &str,
    queue: &str,
    table: &amq_protocol_types::FieldTable,
    size: u64,
    is_up: impl Fn(NodeId) -> bool,
) -> Vec<NodeId> {
    let full = || state.nodes().filter(|node| node.role == NodeRole::Full && !node.lost);
    let mut nodes: Vec<&Node> =
        full().filter(|node| node.takes_queues()).map(AsRef::as_ref).collect();
    if nodes.is_empty() {
        nodes = full().map(AsRef::as_ref).collect();
    }
    if nodes.is_empty() {
        return vec![declarer];
    }
    let balanced = is_balanced(state, vhost, queue, table);
    nodes.sort_by_key(|node| {
        (!is_up(node.id), balanced || node.id != declarer, weight(vhost, queue, node.id))
    });
    let asked = arguments::integer(table, "x-quorum-initial-group-size");
    let size = asked.and_then(|size| u64::try_from(size).ok()).unwrap_or(size).max(1);
    let size = usize::try_from(size).unwrap_or(usize::MAX).min(nodes.len());
    spread(nodes, size - usize::from(size % 2 == 0), is_up)
}

/// Whether leaders are spread: the argument says so, or without one the policy.
fn is_balanced(
    state: &State,
    vhost: &str,
    queue: &str,
    table: &amq_protocol_types::FieldTable,
) -> bool {
    if let Some(locator) = arguments::string(table, "x-queue-leader-locator") {
        return locator == "balanced";
    }
    let vhost = state.vhosts.get(vhost);
    let policy = vhost.and_then(|vhost| vhost.policy_of_new_queue(QueueKind::Quorum, queue));
    let locator = policy.and_then(|policy| policy.definition.get("queue-leader-locator"));
    locator.is_some_and(|locator| locator == "balanced")
}

/// The first `size` nodes, but one whose zone has more already than the zone of another one that is
/// there waits for that one. Nodes without a zone are a zone of their own.
fn spread(mut nodes: Vec<&Node>, size: usize, is_up: impl Fn(NodeId) -> bool) -> Vec<NodeId> {
    let mut chosen: Vec<&Node> = Vec::new();
    while chosen.len() < size && !nodes.is_empty() {
        let crowd = |node: &Node| chosen.iter().filter(|other| other.zone == node.zone).count();
        // The first of those with the least.
        let rank = |at: &usize| (!is_up(nodes[*at].id), crowd(nodes[*at]));
        let at = (0..nodes.len()).min_by_key(rank).expect("there are some");
        chosen.push(nodes.remove(at));
    }
    chosen.into_iter().map(|node| node.id).collect()
}

/// FNV-1a: the same everywhere and in every version.
fn weight(vhost: &str, queue: &str, node: NodeId) -> u64 {
    let parts = [vhost.as_bytes(), &[0], queue.as_bytes(), &[0], &node.0.to_le_bytes()];
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = parts.iter().flat_map(|part| part.iter()).fold(0xcbf2_9ce4_8422_2325, mix);
    // The last byte alone moves only few bits.
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use amq_protocol_types::FieldTable;
    use serde_json::json;

    use super::*;
    use crate::command::{Command, PutNode};
    use crate::objects::vhost::Vhost;
    use crate::scene::{integer, policy, table, text};

    fn cluster(full: u64, witnesses: u64) -> State {
        let mut state = State::new();
        for id in 1..=full + witnesses {
            let role = if id <= full { NodeRole::Full } else { NodeRole::Witness };
            let name = format!("n{id}").into();
            let put = PutNode {
                id,
                name,
                address: String::new(),
                role,
                boot: 1,
                starts: Vec::new(),
                zone: None,
            };
            state.apply(Command::PutNode(put)).unwrap();
        }
        state
    }

    fn placed(state: &State, queue: &str, arguments: &FieldTable) -> Vec<u64> {
        let members = members(state, NodeId(2), "/", queue, arguments, GROUP_SIZE, |_| true);
        members.into_iter().map(|node| node.0).collect()
    }

    #[test]
    fn the_declaring_node_leads_and_the_size_is_odd() {
        let none = FieldTable::default();
        assert_eq!(placed(&State::new(), "q", &none), [2], "a node on its own");
        for (full, expected) in [(1, 1), (2, 1), (3, 3), (4, 3), (5, 3)] {
            let placed = placed(&cluster(full, 1), "q", &none);
            assert_eq!(placed.len(), expected, "{full} nodes");
            assert!(placed.iter().all(|node| *node <= full), "no witness");
            assert!(full < 2 || placed[0] == 2);
        }
        let state = cluster(7, 0);
        for (size, expected) in [(1, 1), (2, 1), (4, 3), (5, 5), (100, 7), (0, 1)] {
            let arguments = table([("x-quorum-initial-group-size", integer(size))]);
            assert_eq!(placed(&state, "q", &arguments).len(), expected, "asked for {size}");
        }
    }

    #[test]
    fn nodes_that_are_there_come_first_and_drained_ones_do_not_come() {
        let mut state = cluster(5, 0);
        let none = FieldTable::default();
        let is_up = |node: NodeId| node.0 != 4 && node.0 != 5;
        let placed = |state: &State| {
            let members = members(state, NodeId(2), "/", "q", &none, 3, is_up);
            members.into_iter().map(|node| node.0).collect::<Vec<u64>>()
        };
        let mut found = placed(&state);
        assert_eq!(found[0], 2);
        found.sort_unstable();
        assert_eq!(found, [1, 2, 3]);
        state.apply(Command::SetMaintenance { id: 2, on: true }).unwrap();
        let found = placed(&state);
        assert!(!found.contains(&2) && found.len() == 3, "{found:?}");
        assert!([1, 3].contains(&found[0]), "who leads is there: {found:?}");
        for id in [1, 3, 4, 5] {
            state.apply(Command::SetMaintenance { id, on: true }).unwrap();
        }
        assert_eq!(placed(&state)[0], 2, "there is no other");
    }

    #[test]
    fn members_are_spread_over_zones() {
        let mut state = State::new();
        for (id, zone) in [(1, "a"), (2, "a"), (3, "a"), (4, "b"), (5, "b"), (6, "c")] {
            let (role, zone) = (NodeRole::Full, Some(zone.into()));
            let name = format!("n{id}").into();
            let put = PutNode {
                id,
                name,
                address: String::new(),
                role,
                boot: 1,
                starts: Vec::new(),
                zone,
            };
            state.apply(Command::PutNode(put)).unwrap();
        }
        let zone = |node: &u64| state.node(NodeId(*node)).unwrap().zone.clone().unwrap();
        for number in 0..100 {
            let found = placed(&state, &format!("queue-{number}"), &FieldTable::default());
            assert_eq!(found[0], 2, "the declaring node leads");
            let mut zones: Vec<_> = found.iter().map(zone).collect();
            zones.sort();
            assert_eq!(zones.iter().map(|zone| &**zone).collect::<Vec<_>>(), ["a", "b", "c"]);
        }
        let five = table([("x-quorum-initial-group-size", integer(5))]);
        let mut zones: Vec<_> = placed(&state, "q", &five).iter().map(zone).collect();
        zones.sort();
        assert_eq!(zones.iter().map(|zone| &**zone).collect::<Vec<_>>(), ["a", "a", "b", "b", "c"]);
    }

    /// The queue's argument goes before its policy; a policy that does not fit the queue says nothing.
    #[test]
    fn leaders_are_where_the_queue_or_its_policy_wants_them() {
        let mut state = cluster(5, 0);
        state.apply(Command::PutVhost(Vhost::named("/"))).unwrap();
        let led = |state: &State, arguments: &FieldTable| {
            let names = (0..50).map(|number| format!("q-{number}"));
            names.map(|name| placed(state, &name, arguments)[0]).collect::<BTreeSet<u64>>()
        };
        let argument = |locator| table([("x-queue-leader-locator", text(locator))]);
        let (none, local, balanced) =
            (FieldTable::default(), argument("client-local"), argument("balanced"));
        let here = BTreeSet::from([2]);
        let everywhere = BTreeSet::from([1, 2, 3, 4, 5]);
        assert_eq!(led(&state, &none), here);
        assert_eq!(led(&state, &balanced), everywhere);
        let put = |pattern, definition| Command::PutPolicy(policy("p", pattern, 0, definition));
        let spread = json!({"queue-leader-locator": "balanced"});
        state.apply(put("^other-", spread.clone())).unwrap();
        assert_eq!(led(&state, &none), here);
        state.apply(put("^q-", spread)).unwrap();
        assert_eq!(led(&state, &none), everywhere);
        assert_eq!(led(&state, &local), here);
        state.apply(put("^q-", json!({"queue-leader-locator": "client-local"}))).unwrap();
        assert_eq!(led(&state, &none), here);
        assert_eq!(led(&state, &balanced), everywhere);
        let of_classic = json!({"queue-leader-locator": "balanced", "queue-mode": "lazy"});
        state.apply(put("^q-", of_classic)).unwrap();
        assert_eq!(led(&state, &none), here);
        // Who is drained does not lead, wherever the queue is declared.
        state.apply(Command::SetMaintenance { id: 2, on: true }).unwrap();
        assert!(!led(&state, &local).contains(&2) && !led(&state, &balanced).contains(&2));
    }

    #[test]
    fn queues_are_spread() {
        let state = cluster(5, 0);
        let balanced = table([("x-queue-leader-locator", text("balanced"))]);
        let (mut led, mut kept) = (BTreeMap::new(), BTreeMap::new());
        for number in 0..1000 {
            let placed = placed(&state, &format!("queue-{number}"), &balanced);
            *led.entry(placed[0]).or_insert(0) += 1;
            for node in placed {
                *kept.entry(node).or_insert(0) += 1;
            }
        }
        assert!(led.values().all(|count| (140..260).contains(count)), "{led:?}");
        assert!(kept.values().all(|count| (500..700).contains(count)), "{kept:?}");
    }
}
