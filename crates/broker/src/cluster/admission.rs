//! Who may be a peer, and what it means if another node does not want this one.
//!
//! ```text
//!  facts = version u8 (2) · has a topology u8 · data set u64 · queue machine u8 · (start u64)*
//! ```
//!
//! A *data set* is one life of the cluster's topology. It ends when a majority of the nodes is lost
//! for good and the topology is recovered from one that is left: nodes that still have the former
//! one would go on without what was decided since, so they are refused, and do not talk to the new
//! one either. Data set 0 is the one that a cluster was founded with.
//!
//! A *start* of a node is known by its number, which the data directory counts, and by what it has
//! drawn, which the directory keeps until the cluster has taken note of a later one. If the last one
//! that is known ran on this directory, all is well; else it ran on a copy, or on the one of which this
//! is a backup, and this one would vote again on what was voted on.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use metadata::state::State;
use peer::identity::Identity;
use peer::refusal::{Reason, Refusal};

use crate::cluster::Cluster;
use crate::replicated::numbered::Sender;
use crate::replicated::version;

const VERSION: u8 = 2;

/// What a node tells its peers of itself beside its identity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// What starts on its directory have drawn; see [`PutNode`](metadata::command::PutNode).
    pub(crate) starts: Vec<u64>,
    /// The data set that its topology is of; `None`: it has none yet.
    pub(crate) data_set: Option<u64>,
    /// The newest version of the queue machine that it knows.
    pub(crate) machine: u8,
}

impl Facts {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(11 + 8 * self.starts.len());
        out.put_u8(VERSION);
        out.put_u8(self.data_set.is_some().into());
        out.put_u64_le(self.data_set.unwrap_or_default());
        out.put_u8(self.machine);
        for start in &self.starts {
            out.put_u64_le(*start);
        }
        out.freeze()
    }

    /// Reads what [`Facts::encode`] writes; `None`: it is something else.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Self> {
        if bytes.try_get_u8().ok()? != VERSION {
            return None;
        }
        let has = bytes.try_get_u8().ok()?;
        let data_set = bytes.try_get_u64_le().ok()?;
        let machine = bytes.try_get_u8().ok()?;
        let mut starts = Vec::new();
        while bytes.has_remaining() {
            starts.push(bytes.try_get_u64_le().ok()?);
        }
        let data_set = (has == 1).then_some(data_set);
        (has <= 1).then_some(Self { starts, data_set, machine })
    }
}

/// Whether a node may be a peer of one that has this topology, which is of `data_set` if it is of a
/// cluster at all.
///
/// # Errors
/// Why not.
fn admit(peer: &Identity, data_set: Option<u64>, state: &State) -> Result<(), Refusal> {
    let Some(facts) = Facts::decode(&peer.facts) else {
        let detail = "what it says of itself is of another version";
        return Err(Refusal::new(Reason::NotAdmitted, detail));
    };
    if let (Some(mine), Some(theirs)) = (data_set, facts.data_set)
        && mine != theirs
    {
        return Err(Refusal::new(
            Reason::NotAdmitted,
            format!(
                "data set {mine:016x} here, {theirs:016x} there: the topology of one was recovered \
                 without the other, whose data directory must be emptied before it can join"
            ),
        ));
    }
    if state.was_forgotten(peer.id) {
        let detail = format!("node {} was forgotten", peer.id);
        return Err(Refusal::new(Reason::Removed, detail));
    }
    let Some(known) = state.node(peer.id) else { return Ok(()) };
    if known.lost {
        let detail = format!("node {} was replaced by another one with its name", peer.id);
        return Err(Refusal::new(Reason::Removed, detail));
    }
    if known.has_overtaken(peer.boot, &facts.starts) {
        let detail = format!(
            "start {} of node {} is known here, and it did not run on that directory",
            known.boot, peer.id
        );
        return Err(Refusal::new(Reason::LaterStart, detail));
    }
    Ok(())
}

/// Whether a refusal says that this start of the node must not go on. `is_known`: the cluster has
/// taken note of this very start, so that another one that claims to be it is the wrong one.
fn is_final(reason: Reason, is_known: bool) -> bool {
    match reason {
        Reason::LaterStart | Reason::Removed => true,
        Reason::DuplicateIdentity => !is_known,
        Reason::WrongVersion
        | Reason::OtherCluster
        | Reason::WrongSecret
        | Reason::WrongName
        | Reason::NameTaken
        | Reason::Stale
        | Reason::Oneself
        | Reason::NotAdmitted
        | Reason::Unknown => false,
    }
}

/// What to tell whoever has made two of one node.
fn copied(what: &str) -> String {
    format!(
        "{what}; this data directory is a copy, or was put back from a backup, and the node has run \
         elsewhere since: stop one of them, and run `leveret reincarnate DIRECTORY` on this one"
    )
}

impl Cluster {
    /// What this node tells its peers.
    pub(crate) fn facts(&self) -> Facts {
        Facts {
            starts: self.starts.clone(),
            data_set: *self.data_set.lock(),
            machine: version::NEWEST,
        }
    }

    /// What this start has drawn.
    pub(crate) fn start(&self) -> u64 {
        self.starts.last().copied().unwrap_or_default()
    }

    /// The topology is of this data set.
    pub(crate) fn is_of(&self, data_set: u64) {
        *self.data_set.lock() = Some(data_set);
        if let Some(links) = self.road.links() {
            links.set_facts(self.facts().encode()).expect("they are few");
        }
    }

    /// Whether a node may be a peer.
    pub(super) fn admit(&self, peer: &Identity) -> Result<(), Refusal> {
        let Some(group) = &self.group else { return Ok(()) };
        admit(peer, *self.data_set.lock(), &group.part.topology.state())
    }

    /// A node does not want this one.
    pub(super) fn on_refused(&self, by: &str, refusal: &Refusal) {
        let Some(group) = &self.group else { return };
        let state = group.part.topology.state();
        let me = self.me;
        let is_known = state
            .node(me.node)
            .is_some_and(|known| (known.boot, known.start) == (me.boot, self.start()));
        if is_final(refusal.reason, is_known) {
            let refused = format!("node {by} refuses this one: {refusal}");
            self.fail(&if refusal.reason == Reason::Removed {
                format!(
                    "{refused}; what this data directory has is not the cluster's any more: `leveretctl \
                     reset DIRECTORY` empties it, and the node comes in as a new one"
                )
            } else {
                copied(&refused)
            });
        }
    }

    /// Stops the node if its cluster knows another start of it that has overtaken this one.
    pub(crate) fn stop_if_overtaken(&self, state: &State) {
        let Sender { node, boot } = self.me;
        if let Some(known) = state.node(node).filter(|it| it.has_overtaken(boot, &self.starts)) {
            self.fail(&copied(&format!(
                "start {} of this node is known to its cluster and did not run on this directory, \
                 and this is start {boot}",
                known.boot
            )));
        }
    }

    fn fail(&self, reason: &str) {
        let Some(group) = &self.group else { return };
        // The first reason is the one that counts.
        let first = group.part.failed.send_if_modified(|failed| {
            let first = failed.is_none();
            if first {
                *failed = Some(reason.to_owned());
            }
            first
        });
        if first {
            tracing::error!(%reason, "the node stops");
        }
    }
}

#[cfg(test)]
mod tests {
    use metadata::command::{Command, PutNode};
    use metadata::objects::node::NodeRole;
    use model::id::NodeId;

    use super::*;

    fn peer(boot: u64, starts: &[u64], data_set: Option<u64>) -> Identity {
        Identity {
            name: "c".into(),
            id: NodeId(3),
            boot,
            address: String::new(),
            facts: Facts { starts: starts.to_vec(), data_set, machine: 1 }.encode(),
        }
    }

    fn put(id: u64, boot: u64, start: u64) -> Command {
        let (name, address, role) = ("c".into(), String::new(), NodeRole::Full);
        let starts = vec![start];
        Command::PutNode(PutNode { id, name, address, role, boot, starts, zone: None })
    }

    fn refused(peer: &Identity, data_set: Option<u64>, state: &State) -> Option<Reason> {
        admit(peer, data_set, state).err().map(|refusal| refusal.reason)
    }

    #[test]
    fn facts_come_back_and_others_are_seen() {
        for data_set in [None, Some(0), Some(u64::MAX)] {
            let facts = Facts { starts: vec![7, 8], data_set, machine: 9 };
            let bytes = facts.encode();
            assert_eq!(Facts::decode(&bytes), Some(facts));
            for length in 0..bytes.len() {
                // A start more or less is no damage.
                let whole = length >= 11 && (length - 11) % 8 == 0;
                assert_eq!(Facts::decode(&bytes[..length]).is_some(), whole, "{length}");
            }
            let mut newer = bytes.to_vec();
            newer[0] = 3;
            assert_eq!(Facts::decode(&newer), None);
        }
    }

    #[test]
    fn nodes_of_another_data_set_are_refused_and_new_ones_are_not() {
        let state = State::new();
        for (mine, theirs, expected) in [
            (None, None, None),
            (None, Some(5), None),
            (Some(0), None, None),
            (Some(0), Some(0), None),
            (Some(0), Some(5), Some(Reason::NotAdmitted)),
            (Some(5), Some(0), Some(Reason::NotAdmitted)),
        ] {
            assert_eq!(
                refused(&peer(1, &[1], theirs), mine, &state),
                expected,
                "{mine:?} {theirs:?}"
            );
        }
        let silent = Identity { facts: Bytes::new(), ..peer(1, &[1], None) };
        assert_eq!(refused(&silent, None, &state), Some(Reason::NotAdmitted));
    }

    #[test]
    fn a_start_that_was_overtaken_is_refused() {
        let mut state = State::new();
        state.apply(put(3, 6, 66)).expect("it is new");
        for (boot, starts, expected) in [
            (5, &[55][..], Some(Reason::LaterStart)),
            (6, &[55, 66], None),
            (6, &[55, 67], Some(Reason::LaterStart)),
            (8, &[55, 67, 78], Some(Reason::LaterStart)),
            (7, &[66, 77], None),
        ] {
            let peer = peer(boot, starts, None);
            assert_eq!(refused(&peer, None, &state), expected, "{boot} {starts:?}");
        }
        state.apply(put(4, 1, 44)).expect("another incarnation");
        assert_eq!(refused(&peer(7, &[66, 77], None), None, &state), Some(Reason::Removed));
    }

    /// Whatever it says of itself: what it has is not the cluster's any more.
    #[test]
    fn who_was_forgotten_is_refused_for_good() {
        let mut state = State::new();
        state.apply(put(3, 6, 66)).expect("it is new");
        state.apply(put(4, 1, 44)).expect("another incarnation");
        state.apply(Command::ForgetNode { id: 3 }).expect("it is known");
        for data_set in [None, Some(0)] {
            let forgotten = peer(7, &[66, 77], data_set);
            assert_eq!(refused(&forgotten, Some(0), &state), Some(Reason::Removed));
        }
        assert!(is_final(Reason::Removed, false) && is_final(Reason::Removed, true));
    }

    #[test]
    fn a_copy_stops_and_what_was_copied_goes_on() {
        assert!(is_final(Reason::LaterStart, true), "a later start is known");
        assert!(is_final(Reason::DuplicateIdentity, false));
        assert!(!is_final(Reason::DuplicateIdentity, true), "the other one is the copy");
        assert!(!is_final(Reason::NameTaken, false), "what stands in the way may be over soon");
    }
}
