//! Nodes that this node dials although its configuration does not list them: the topology knows them
//! and their addresses.
//!
//! So a new node needs to list one that is there, and nobody else's list has to change.

use std::collections::BTreeMap;
use std::net::IpAddr;

use metadata::objects::Name;
use metadata::state::State;
use model::id::NodeId;
use peer::links::Links;

/// Names and addresses of other nodes.
pub(crate) type Directory = BTreeMap<Name, String>;

/// The nodes of the topology besides `me`, under the addresses that they gave. Those that are lost,
/// and those that gave no address that means anything elsewhere, are left out.
pub(crate) fn directory(state: &State, me: NodeId) -> Directory {
    let others = state.nodes().filter(|node| node.id != me && !node.lost);
    let dialable = others.filter(|node| is_dialable(&node.address));
    dialable.map(|node| (node.name.clone(), node.address.clone())).collect()
}

/// Whether `host:port` is somewhere: a listener on all addresses says nothing of where it is.
pub(crate) fn is_dialable(address: &str) -> bool {
    let Some((host, _)) = address.rsplit_once(':') else { return false };
    let ip: Option<IpAddr> = host.trim_start_matches('[').trim_end_matches(']').parse().ok();
    !host.is_empty() && !ip.is_some_and(|ip| ip.is_unspecified())
}

/// Those that were met this way.
#[derive(Debug, Default)]
pub(crate) struct Acquaintances {
    known: Directory,
}

impl Acquaintances {
    /// Dials those that are new or have moved. `listed`: what the configuration says counts, and is
    /// left alone.
    pub(crate) fn meet(&mut self, links: &Links, listed: &[String], others: Directory) {
        for (name, address) in others {
            let is_listed = listed.iter().any(|listed| **listed == *name);
            if !is_listed && self.known.get(&name) != Some(&address) {
                links.add_peer(&name, &address);
                self.known.insert(name, address);
            }
        }
    }

    /// Forgets those that are no longer among `others`.
    pub(crate) fn part(&mut self, links: &Links, others: &Directory) {
        self.known.retain(|name, _| {
            let stays = others.contains_key(name);
            if !stays {
                links.remove_peer(name);
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use metadata::command::{Command, PutNode};
    use metadata::objects::node::NodeRole;

    use super::*;

    #[test]
    fn all_others_that_are_somewhere() {
        let mut state = State::new();
        for (id, address) in [(1, "a:1"), (2, "b:1"), (3, "0.0.0.0:1"), (4, "[::]:1"), (5, "")] {
            let (name, role) = (format!("n{id}").into(), NodeRole::Full);
            let address = address.to_owned();
            let put = PutNode { id, name, address, role, boot: 1, starts: Vec::new(), zone: None };
            state.apply(Command::PutNode(put)).unwrap();
        }
        let found = directory(&state, NodeId(1));
        assert_eq!(found, Directory::from([("n2".into(), "b:1".to_owned())]));
    }

    #[test]
    fn addresses_that_can_be_dialled() {
        for address in ["a:1", "127.0.0.1:25672", "[::1]:25672", "a.b.c:1"] {
            assert!(is_dialable(address), "{address}");
        }
        for address in ["", ":1", "a", "0.0.0.0:25672", "[::]:25672"] {
            assert!(!is_dialable(address), "{address}");
        }
    }
}
