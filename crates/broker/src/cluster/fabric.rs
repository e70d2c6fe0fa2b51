//! The cluster as shards use it, and what comes for them from other nodes.
//!
//! ```text
//!  orders        = queue u64 · batch
//!  announcements = (queue u64 · leader's node u64 · term u64)*
//! ```

use std::sync::Arc;

use activation::file::JournalUid;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use model::id::{NodeId, QueueId, Seq, StreamId};
use model::time::Millis;
use quorum::group::GroupId;
use quorum::member::{Member, Role};

use crate::cluster::admission::Facts;
use crate::cluster::{Cluster, channel};
use crate::replicated::client::Leader;
use crate::replicated::fabric::{Berth, Fabric};
use crate::replicated::loan::{Lent, Loan};
use crate::replicated::notice::Notice;
use crate::replicated::numbered::Sender;
use crate::replicated::version;
use crate::shard::command::{Batch, Command};

/// A notice of more bytes is sent in parts, for a frame holds up what is behind it and has a limit.
const NOTICE_BYTES: usize = 4 << 20;
/// Bytes of one announcement.
const ANNOUNCEMENT: usize = 24;
/// Announcements in one message.
const ANNOUNCEMENTS: usize = 4096;

impl Fabric for Cluster {
    fn me(&self) -> Sender {
        self.me
    }

    fn start_of(&self, node: NodeId) -> Option<Sender> {
        if node == self.me.node {
            return Some(self.me);
        }
        self.up.lock().get(&node).map(|peer| Sender { node, boot: peer.boot })
    }

    fn knows(&self, node: NodeId) -> Option<u8> {
        if node == self.me.node {
            return Some(version::NEWEST);
        }
        Some(Facts::decode(&self.up.lock().get(&node)?.facts)?.machine)
    }

    fn has_no_room(&self, node: NodeId) -> bool {
        let is_own = node == self.me.node;
        let alarms = if is_own { self.pressure.alarms() } else { self.pressure.alarms_of(node) };
        alarms.disk
    }

    fn halt(&self, queue: QueueId) {
        self.leads.lock().remove(&queue);
        self.bell.leads(queue, false);
        let host = self.host.clone();
        tokio::spawn(async move { host.challenge(GroupId::from(queue)).await });
    }

    fn patience(&self) -> Millis {
        Millis(u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX))
    }

    fn orders(&self, to: NodeId, queue: QueueId, batch: Bytes) {
        if to == self.me.node {
            return self.shards.post(queue, Batch::one(Command::Orders { queue, batch }));
        }
        let mut out = BytesMut::with_capacity(8 + batch.len());
        out.put_u64_le(queue.0);
        out.put_slice(&batch);
        // If it is not connected the shards have heard so.
        self.lanes.send(to, channel::ORDERS, out.freeze());
    }

    fn keep(&self, journal: JournalUid, queue: QueueId, batch: Bytes) {
        self.pairs.orders(journal, queue, batch);
    }

    fn notice(&self, to: NodeId, notice: &Notice) {
        // If it is not connected it has let go of what it had, and asks again when it is back.
        if notice.weight() <= NOTICE_BYTES {
            self.lanes.send(to, channel::NOTICES, notice.encode());
            return;
        }
        for part in notice.parts(NOTICE_BYTES) {
            self.lanes.send(to, channel::NOTICES, part.encode());
        }
    }

    fn borrow_bodies(&self, from: NodeId, queue: QueueId, seqs: Vec<Seq>) {
        self.lanes.send(from, channel::LOANS, Loan::Question(queue, seqs).encode());
    }

    fn lend_bodies(&self, to: NodeId, queue: QueueId, bodies: Vec<(Seq, Lent)>) {
        self.lanes.send(to, channel::LOANS, Loan::Answer(queue, bodies).encode());
    }

    fn propose(&self, queue: QueueId, entry: Bytes) -> bool {
        self.host.propose(GroupId::from(queue), entry).is_ok()
    }

    fn want(&self, queue: QueueId) {
        self.host.want(GroupId::from(queue));
    }

    fn announce(&self, queue: QueueId, leader: Leader) {
        self.leads.lock().insert(queue, leader);
        self.heard.lock().remove(&queue);
        self.bell.leads(queue, true);
        self.unfinished.notify_one();
        let bytes = encode([(queue, leader)].into_iter());
        for peer in self.connected() {
            self.lanes.send(peer.id, channel::ANNOUNCEMENTS, bytes.clone());
        }
    }

    fn leader_of(&self, queue: QueueId) -> Option<Leader> {
        self.heard.lock().get(&queue).copied()
    }

    fn start(&self, queue: QueueId, member: Arc<dyn Member>, berth: Berth) {
        let founding = berth.founding(|node| self.start_of(node));
        self.berths.start(queue, member, &berth, founding);
    }

    fn move_to(&self, queue: QueueId, group: GroupId, alone: bool) {
        self.berths.move_to(queue, group, alone);
    }

    fn delete(&self, queue: QueueId, stream: StreamId) {
        self.leads.lock().remove(&queue);
        self.bell.leads(queue, false);
        self.berths.delete(queue, stream);
    }

    fn forget(&self, queue: QueueId) {
        self.leads.lock().remove(&queue);
        self.bell.leads(queue, false);
        self.heard.lock().remove(&queue);
    }
}

impl Cluster {
    /// Orders to queues that this node leads.
    pub(super) fn on_orders(&self, from: NodeId, mut message: Bytes) {
        let Ok(queue) = message.try_get_u64_le().map(QueueId) else {
            return tracing::warn!(%from, "orders without a queue");
        };
        self.shards.post(queue, Batch::one(Command::Orders { queue, batch: message }));
    }

    /// What a queue's leader tells this node.
    pub(super) fn on_notice(&self, from: NodeId, message: Bytes) {
        match Notice::decode(message) {
            Ok(notice) => {
                let queue = notice.queue;
                self.shards.post(queue, Batch::one(Command::Notice(Box::new(notice))));
            }
            Err(error) => tracing::warn!(%from, %error, "a notice"),
        }
    }

    /// A member of a queue wants bodies of another one, or has been asked for them.
    pub(super) fn on_loan(&self, from: NodeId, message: Bytes) {
        let command = match Loan::decode(message) {
            Ok(Loan::Question(queue, seqs)) => Command::Lend { queue, to: from, seqs },
            Ok(Loan::Answer(queue, bodies)) => Command::Lent { queue, from, bodies },
            Err(error) => return tracing::warn!(%from, %error, "a loan"),
        };
        if let Some(queue) = command.queue() {
            self.shards.post(queue, Batch::one(command));
        }
    }

    /// Who leads which queue.
    pub(super) fn on_announcements(&self, from: NodeId, mut message: Bytes) {
        while message.len() >= ANNOUNCEMENT {
            let queue = QueueId(message.get_u64_le());
            let leader = Leader { node: NodeId(message.get_u64_le()), term: message.get_u64_le() };
            if leader.node != from {
                tracing::warn!(%from, %queue, "a node announces another one");
                continue;
            }
            let mut leads = self.leads.lock();
            if leads.get(&queue).is_some_and(|mine| mine.term < leader.term) {
                leads.remove(&queue);
                self.bell.leads(queue, false);
            }
            drop(leads);
            self.hear(queue, leader);
            self.shards.post(queue, Batch::one(Command::Leads { queue, leader }));
        }
    }

    fn hear(&self, queue: QueueId, leader: Leader) {
        let mut heard = self.heard.lock();
        let known = heard.entry(queue).or_insert(leader);
        if known.term <= leader.term {
            *known = leader;
        }
    }

    /// Tells a node that has just connected what this one leads. It may have stepped down without
    /// hearing of another leader.
    pub(super) fn announce_all(&self, to: NodeId) {
        let follows = |queue: QueueId| {
            matches!(self.host.role(GroupId::from(queue)), Some(Role::Follower { .. }))
        };
        self.leads.lock().retain(|queue, _| {
            let leads = !follows(*queue);
            if !leads {
                self.bell.leads(*queue, false);
            }
            leads
        });
        let leads: Vec<(QueueId, Leader)> =
            self.leads.lock().iter().map(|(queue, leader)| (*queue, *leader)).collect();
        for some in leads.chunks(ANNOUNCEMENTS) {
            self.lanes.send(to, channel::ANNOUNCEMENTS, encode(some.iter().copied()));
        }
    }

    /// Says something to the other node of a pair; `false`: it is not connected.
    pub(crate) fn pair_word(&self, to: NodeId, word: Bytes) -> bool {
        self.lanes.send(to, channel::PAIRS, word)
    }

    /// Tells all shards.
    pub(super) fn tell_shards(&self, command: impl Fn() -> Command) {
        self.pairs.post_all(&command);
        for index in 0..self.shards.len() {
            self.shards.inbox(index).post(Batch::one(command()));
        }
    }
}

fn encode(leads: impl ExactSizeIterator<Item = (QueueId, Leader)>) -> Bytes {
    let mut out = BytesMut::with_capacity(leads.len() * ANNOUNCEMENT);
    for (queue, leader) in leads {
        out.put_u64_le(queue.0);
        out.put_u64_le(leader.node.0);
        out.put_u64_le(leader.term);
    }
    out.freeze()
}
