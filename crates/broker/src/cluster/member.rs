//! This node's part in the metadata group: what Raft commits goes to the topology, and the outcomes
//! go to those who wait for them.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use model::id::{NodeId, Seq};
use parking_lot::Mutex;
use quorum::member::{Body, BodyPlace, Committed, Member, Role};
use quorum::records::Records;
use tokio::sync::{Notify, oneshot, watch};

use crate::cluster::channel;
use crate::cluster::proposer::Proposer;
use crate::cluster::transport::Road;
use crate::topology::{Fate, Topology};

/// See the module head.
pub(crate) struct Part {
    pub(crate) me: NodeId,
    pub(crate) topology: Arc<Topology>,
    pub(crate) proposer: Arc<Proposer>,
    pub(crate) road: Road,
    /// Woken when something has changed that the steward may have to act on.
    pub(crate) changed: Arc<Notify>,
    pub(crate) failed: watch::Sender<Option<String>>,
    pub(crate) held: Mutex<Held>,
}

/// The records of the log, which are this part's to release.
#[derive(Debug, Default)]
pub(crate) struct Held {
    records: Option<Records>,
    /// By index.
    entries: VecDeque<(u64, Seq)>,
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("me", &self.me).finish_non_exhaustive()
    }
}

impl Part {
    fn stop(&self, reason: String) {
        tracing::error!(%reason, "the metadata group has failed on this node; the node stops");
        self.failed.send_replace(Some(reason));
    }
}

impl Member for Part {
    fn opened(&self, records: Records) {
        self.held.lock().records = Some(records);
    }

    fn committed(&self, entries: Vec<Committed>) {
        let Some(last) = entries.last().map(|last| last.index) else { return };
        self.held.lock().entries.extend(entries.iter().map(|entry| (entry.index, entry.position)));
        let mut others = BTreeSet::new();
        let fates = match self.topology.commit(&entries) {
            Ok(fates) => fates,
            Err(reason) => return self.stop(reason),
        };
        for fate in fates {
            match fate {
                Fate::Done { sender, number, index, answer } => {
                    if sender == self.proposer.me() {
                        self.proposer.applied(index, number, *answer);
                    } else {
                        others.insert(sender.node);
                    }
                }
                Fate::Missing { sender, number } if sender == self.proposer.me() => {
                    self.proposer.missing(number);
                }
                Fate::Missing { .. } => {}
            }
        }
        for other in others.into_iter().filter(|other| *other != self.me) {
            // If it is not connected, it does not wait for this node.
            self.road.send(other, channel::METADATA, applied(last));
        }
        self.changed.notify_one();
    }

    fn role(&self, role: Role) {
        tracing::info!(%role, "metadata group");
        self.topology.counts_leases(matches!(role, Role::Leader { .. }));
        match role {
            Role::Leader { term } => self.proposer.led_by(term, Some(self.me)),
            Role::Follower { term, leader } => self.proposer.led_by(term, leader),
        }
        self.changed.notify_one();
    }

    fn checkpoint(&self, answer: oneshot::Sender<Bytes>) {
        // Nobody waits if the group is being stopped.
        drop(answer.send(self.topology.checkpoint()));
    }

    fn install(&self, index: u64, state: Bytes, bodies: Vec<Body>, done: oneshot::Sender<()>) {
        let mut carried = Vec::new();
        {
            let mut held = self.held.lock();
            held.entries.retain(|(entry, _)| *entry > index);
            for body in bodies {
                match body {
                    Body::Entry { index, position } => held.entries.push_back((index, position)),
                    Body::Carried { position, .. } => carried.push(position),
                }
            }
            held.entries.make_contiguous().sort_unstable();
            if let (Some(records), false) = (&held.records, carried.is_empty()) {
                records.release(&carried);
            }
        }
        match self.topology.install(index, state) {
            Ok(ledger) => {
                self.proposer.skipped(ledger.last(self.proposer.me()));
                self.changed.notify_one();
                // Nobody waits if the group is being stopped.
                let _stopping = done.send(());
            }
            Err(reason) => self.stop(reason),
        }
    }

    fn export(&self, _state: &Bytes) -> Vec<(u64, BodyPlace)> {
        // The state holds everything.
        Vec::new()
    }

    fn purged(&self, upto: u64) {
        let mut held = self.held.lock();
        let count = held.entries.partition_point(|(index, _)| *index <= upto);
        let positions: Vec<Seq> =
            held.entries.drain(..count).map(|(_, position)| position).collect();
        if let (Some(records), false) = (&held.records, positions.is_empty()) {
            records.release(&positions);
        }
    }

    fn members(&self, voters: Vec<NodeId>, learners: Vec<NodeId>) {
        self.proposer.members_changed(voters, learners);
        self.changed.notify_one();
    }

    fn failed(&self, error: String) {
        self.stop(error);
    }
}

/// Tells a node that this one has applied the log up to an index.
pub(crate) fn applied(index: u64) -> Bytes {
    let mut out = BytesMut::with_capacity(8);
    out.put_u64_le(index);
    out.freeze()
}
