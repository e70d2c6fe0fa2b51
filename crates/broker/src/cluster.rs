//! This node among others: its links, its Raft groups, and what is sent between nodes.
//!
//! ```text
//!  links ─┬─ Raft's requests and messages ─► host ─► members: the metadata group's part, queues
//!         ├─ metadata commands ────────────► host, if this node leads their group
//!         ├─ orders, notices, announcements ► the shards
//!         ├─ alarms ───────────────────────► the node's pressure
//!         └─ queries ──────────────────────► formation, steward
//! ```
//!
//! A node on its own has a host and no links: its quorum queues have one member.

pub(crate) mod acquaintances;
pub(crate) mod admission;
mod alarms;
pub(crate) mod bell;
pub(crate) mod berths;
pub(crate) mod changer;
pub(crate) mod channel;
mod fabric;
mod forget;
pub(crate) mod formation;
pub(crate) mod identity;
pub(crate) mod keeper;
pub(crate) mod lanes;
pub(crate) mod member;
pub(crate) mod members;
pub(crate) mod proposal;
pub(crate) mod proposer;
pub(crate) mod reconciler;
pub(crate) mod site;
pub(crate) mod steward;
pub(crate) mod transport;
pub(crate) mod unique;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::{Buf, Bytes};
use journal::journal::Journal;
use journal::op::Op;
use management::view::node::TopologyVotes;
use model::id::{NodeId, QueueId, StreamId};
use parking_lot::Mutex;
use peer::answer::Answer;
use peer::handler::{Handler, Loss};
use peer::identity::Identity;
use peer::refusal::Refusal;
use quorum::group::GroupId;
use quorum::host::{Care, Host, Options};
use quorum::log::Log;
use quorum::rest::Rest;
use quorum::watermark::Watermark;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cluster::acquaintances::{Acquaintances, directory};
use crate::cluster::bell::Bell;
use crate::cluster::berths::Berths;
use crate::cluster::formation::{Query, Standing};
use crate::cluster::lanes::Lanes;
use crate::cluster::member::Part;
use crate::cluster::proposer::Proposer;
use crate::cluster::transport::Road;
use crate::limits::alarms::Alarms;
use crate::pair::registry::Pairs;
use crate::pressure::Pressure;
use crate::replicated::client::Leader;
use crate::replicated::numbered::Sender;
use crate::shard::command::Command;
use crate::shards::Shards;

/// The metadata group, and its stream in the journal. Stream 1 is the log of a node on its own.
pub(crate) const GROUP: GroupId = GroupId(2);
/// The answer that a proposal was taken.
const TAKEN: &[u8] = b"taken";
/// How long another node may take to lead the metadata group in the place of this one.
const HAND_OVER_WAIT: Duration = Duration::from_secs(1);
/// How long after the loss of a leader the first one stands for election.
const NOTICE: Duration = Duration::from_millis(20);
/// How long the next one waits for it.
const STAGGER: Duration = Duration::from_millis(200);
/// How long a leader may take to take a proposal.
const PROPOSAL_WAIT: Duration = Duration::from_secs(2);

/// See the module head.
pub(crate) struct Cluster {
    pub(crate) me: Sender,
    /// What this start and those before it have drawn; see [`admission`].
    pub(crate) starts: Vec<u64>,
    /// The data set of the topology that this node has, if it has one of a cluster.
    data_set: Mutex<Option<u64>>,
    pub(crate) name: String,
    pub(crate) host: Host,
    pub(crate) road: Road,
    /// The way of what must not be lost as long as a node is connected.
    lanes: Arc<Lanes<Road>>,
    /// `None`: the node is on its own.
    pub(crate) group: Option<Group>,
    /// Nodes that are connected.
    pub(crate) up: Mutex<BTreeMap<NodeId, Identity>>,
    /// This node's members of quorum queues.
    pub(crate) berths: Berths,
    shards: Arc<Shards>,
    /// Journals that are on this node.
    pub(crate) pairs: Arc<Pairs>,
    /// Wakes the reconciler.
    pub(crate) bell: Bell,
    /// Wakes the keeper: members may have been left half done.
    pub(crate) unfinished: Notify,
    /// Queues that this node leads.
    leads: Mutex<BTreeMap<QueueId, Leader>>,
    /// Other nodes that lead queues, as they last said. A queue may become known here later than who
    /// leads it.
    heard: Mutex<BTreeMap<QueueId, Leader>>,
    /// How long a silent node's consumers keep what they hold.
    patience: Duration,
    pub(crate) pressure: Arc<Pressure>,
    /// Held while a word on alarms is read and sent.
    alarm_word: Mutex<()>,
    /// When connected nodes were lost; gone from here as soon as they are back.
    lost: Mutex<BTreeMap<NodeId, Instant>>,
    /// Starts of nodes that are over, as far as this node knows: the metadata leader ends what lived
    /// with them.
    pub(crate) ended: Mutex<BTreeSet<Sender>>,
    acquaintances: Mutex<Acquaintances>,
    journal: Arc<Journal>,
    /// Streams that were of no queue when the node started.
    strays: Mutex<Vec<StreamId>>,
    /// Who answers what other nodes' operators want to know, once somebody does.
    inquiries: OnceLock<Box<dyn Inquiries>>,
}

/// Answers what other nodes' operators want to know.
pub(crate) trait Inquiries: fmt::Debug + Send + Sync {
    /// Returns at once; the answer may come later, or never.
    fn ask(&self, from: NodeId, question: Bytes, answer: Answer);
}

/// What a host needs of the node.
pub(crate) struct HostParts {
    pub(crate) journal: Arc<Journal>,
    pub(crate) watermark: Arc<Watermark>,
    pub(crate) shards: Arc<Shards>,
    pub(crate) pairs: Arc<Pairs>,
    /// How long a silent node's consumers keep what they hold.
    pub(crate) patience: Duration,
    /// When groups sleep.
    pub(crate) rest: Rest,
    /// Where alarms of other nodes are told, and this node's are read.
    pub(crate) pressure: Arc<Pressure>,
    /// What this start and those before it have drawn.
    pub(crate) starts: Vec<u64>,
    /// The data set that its topology is of; `None`: it has none of a cluster yet.
    pub(crate) data_set: Option<u64>,
}

/// The metadata group on this node.
pub(crate) struct Group {
    /// The names of all nodes that are configured.
    pub(crate) listed: Vec<String>,
    pub(crate) proposer: Arc<Proposer>,
    pub(crate) part: Arc<Part>,
    /// Wakes the steward.
    pub(crate) changed: Arc<Notify>,
    /// It is started on this node.
    pub(crate) started: tokio::sync::Mutex<bool>,
    /// The journal has, or is about to have, a trace of it.
    pub(crate) formed: AtomicBool,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("me", &self.me)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// A node on its own.
    pub(crate) fn alone(me: Sender, name: &str, parts: HostParts) -> Self {
        Self::new(me, name, parts, Road::default(), None)
    }

    /// A node among others.
    pub(crate) fn together(
        me: Sender,
        name: &str,
        parts: HostParts,
        road: Road,
        group: Group,
    ) -> Self {
        Self::new(me, name, parts, road, Some(group))
    }

    fn new(me: Sender, name: &str, parts: HostParts, road: Road, group: Option<Group>) -> Self {
        let HostParts {
            journal,
            watermark,
            shards,
            pairs,
            patience,
            rest,
            pressure,
            starts,
            data_set,
        } = parts;
        let log = Arc::clone(&journal) as Arc<dyn Log>;
        let transport = Arc::new(road.clone());
        let options = Options { rest, ..Options::new(me.node) };
        let host = Host::new(options, Arc::clone(&log), watermark, transport);
        let berths = Berths::new(host.clone(), log);
        Self {
            me,
            starts,
            data_set: Mutex::new(data_set),
            name: name.to_owned(),
            host,
            lanes: Arc::new(Lanes::new(road.clone())),
            road,
            group,
            up: Mutex::default(),
            berths,
            shards,
            pairs,
            bell: Bell::default(),
            unfinished: Notify::new(),
            leads: Mutex::default(),
            heard: Mutex::default(),
            patience,
            pressure,
            alarm_word: Mutex::default(),
            lost: Mutex::default(),
            ended: Mutex::default(),
            acquaintances: Mutex::default(),
            journal,
            strays: Mutex::default(),
            inquiries: OnceLock::new(),
        }
    }

    /// Takes note of streams of no queue that the journal has. They are dropped as soon as it is sure
    /// that this node knows of all queues.
    pub(crate) fn found_strays(&self, strays: Vec<StreamId>) {
        *self.strays.lock() = strays;
        if self.group.is_none() {
            self.drop_strays(|_| false);
        }
    }

    /// From now on inquiries are answered.
    pub(crate) fn open_inquiries(&self, inquiries: Box<dyn Inquiries>) {
        self.inquiries.set(inquiries).expect("a node is made once");
    }

    /// Whether there may be streams of no queue.
    pub(crate) fn has_strays(&self) -> bool {
        !self.strays.lock().is_empty()
    }

    /// Drops what is of no queue.
    pub(crate) fn drop_strays(&self, is_used: impl Fn(StreamId) -> bool) {
        let mut strays = std::mem::take(&mut *self.strays.lock());
        strays.retain(|stream| !is_used(*stream));
        if !strays.is_empty() {
            tracing::info!(streams = strays.len(), "dropping what queues have left that are gone");
            self.berths.forget(&strays);
            let ops = strays.into_iter().map(|stream| Op::Drop { stream }).collect();
            self.journal.submit(ops);
        }
    }

    /// Who decides on the topology; a node on its own does.
    pub(crate) fn topology_votes(&self) -> TopologyVotes {
        let Some(group) = &self.group else {
            return TopologyVotes { voters: 1, running: 1, own: true };
        };
        let (voters, _) = group.proposer.members();
        let own = voters.contains(&self.me.node);
        let up = self.up.lock();
        let others = voters.iter().filter(|voter| up.contains_key(voter)).count();
        TopologyVotes { voters: voters.len(), running: others + usize::from(own), own }
    }

    /// Gives the leadership of the metadata group to another node, if this one has it.
    pub(crate) async fn hand_over(&self) {
        if let Some(group) = &self.group
            && group.proposer.leader() == Some(self.me.node)
        {
            let (voters, _) = group.proposer.members();
            let heir = voters.into_iter().find(|voter| self.up.lock().contains_key(voter));
            if let Some(heir) = heir {
                let transfer = self.host.transfer(GROUP, heir);
                // If it fails, the others elect somebody.
                drop(tokio::time::timeout(HAND_OVER_WAIT, transfer).await);
            }
        }
    }

    /// Ends what this node does with others. Its queues have stopped already.
    pub(crate) async fn stop(&self) {
        self.hand_over().await;
        if let Some(links) = self.road.links() {
            links.stop().await;
        }
        self.host.close().await;
    }

    /// Starts this node's part of the metadata group, if it is not started.
    ///
    /// # Errors
    /// What is wrong with what the journal has of it.
    pub(crate) async fn start_group(&self) -> Result<(), String> {
        let Some(group) = &self.group else { return Ok(()) };
        let mut started = group.started.lock().await;
        if *started {
            return Ok(());
        }
        let recovered = self.berths.take(GROUP.stream());
        let part = Arc::clone(&group.part);
        self.host
            .start(GROUP, Care::Heartbeats, part, recovered)
            .await
            .map_err(|error| error.to_string())?;
        *started = true;
        Ok(())
    }

    /// What this node says of itself to one that has no group.
    fn standing(&self) -> Standing {
        let Some(group) = &self.group else { return Standing::default() };
        Standing {
            formed: group.formed.load(Ordering::Acquire),
            members: self.members(),
            leader: group.proposer.leader(),
            nodes: directory(&group.part.topology.state(), self.me.node).into_iter().collect(),
        }
    }

    /// The members of the metadata group, as far as this node knows.
    fn members(&self) -> Vec<NodeId> {
        let status = self.host.status(GROUP);
        status.map(|status| status.members).unwrap_or_default().iter().map(|one| one.node).collect()
    }

    fn answer_query(self: Arc<Self>, from: NodeId, query: Query, answer: Answer) {
        match query {
            Query::Standing => answer.send(self.standing().encode()),
            Query::Found { names, members } => {
                tokio::spawn(async move {
                    let done = self.be_founded(from, &names, &members).await;
                    if let Err(reason) = &done {
                        tracing::warn!(%from, %reason, "cannot take part in founding a cluster");
                    }
                    answer.send(formation::agreement(done));
                });
            }
            Query::Join { name } => {
                tokio::spawn(async move {
                    answer.send(formation::agreement(self.let_in(from, &name).await));
                });
            }
        }
    }

    /// Another node proposes commands by this one.
    fn take_proposal(&self, proposal: Bytes, answer: Answer) {
        if self.host.propose(GROUP, proposal).is_ok() {
            answer.send(Bytes::from_static(TAKEN));
        }
    }

    fn heard(&self, from: NodeId, mut message: &[u8]) {
        if let (Some(group), Ok(index)) = (&self.group, message.try_get_u64_le()) {
            group.proposer.on_applied(from, index);
        }
    }

    /// The quorum queues that this node has led last, ascending.
    pub(crate) fn led(&self) -> Vec<QueueId> {
        self.leads.lock().keys().copied().collect()
    }

    /// Who leads the metadata group, if changes can be made; a node on its own leads itself.
    pub(crate) fn metadata_leader(&self) -> Option<NodeId> {
        match &self.group {
            Some(group) => group.proposer.leader().filter(|_| group.proposer.is_available()),
            None => Some(self.me.node),
        }
    }

    /// The connected nodes.
    pub(crate) fn connected(&self) -> Vec<Identity> {
        self.up.lock().values().cloned().collect()
    }
}

/// What the links call, and the task that sends proposals. It does not keep the cluster alive: the
/// cluster has the links.
#[derive(Debug, Clone)]
pub(crate) struct Ends(pub(crate) Weak<Cluster>);

impl proposer::Road for Ends {
    fn here(&self, proposal: Bytes) -> bool {
        self.0.upgrade().is_some_and(|cluster| cluster.host.propose(GROUP, proposal).is_ok())
    }

    async fn there(&self, leader: NodeId, proposal: Bytes) -> bool {
        let Some(cluster) = self.0.upgrade() else { return false };
        let answer = cluster.road.request(leader, channel::METADATA, proposal, PROPOSAL_WAIT).await;
        answer.is_some_and(|answer| answer == TAKEN)
    }
}

impl Handler for Ends {
    fn admit(&self, peer: &Identity) -> Result<(), Refusal> {
        self.0.upgrade().map_or(Ok(()), |cluster| cluster.admit(peer))
    }

    fn refused(&self, peer: &str, refusal: &Refusal) {
        if let Some(cluster) = self.0.upgrade() {
            cluster.on_refused(peer, refusal);
        }
    }

    fn up(&self, peer: &Identity) {
        if let Some(cluster) = self.0.upgrade() {
            cluster.on_up(peer);
        }
    }

    fn down(&self, peer: &Identity, why: Loss) {
        if let Some(cluster) = self.0.upgrade() {
            cluster.on_down(peer, why);
        }
    }

    fn ended(&self, peer: &Identity) {
        if let Some(cluster) = self.0.upgrade() {
            cluster.on_ended(Sender { node: peer.id, boot: peer.boot }, None);
        }
    }

    fn messages(&self, from: NodeId, channel: u8, messages: &mut Vec<Bytes>) {
        if let Some(cluster) = self.0.upgrade() {
            cluster.on_messages(from, channel, messages);
        }
    }

    fn request(&self, from: NodeId, channel: u8, payload: Bytes, answer: Answer) {
        if let Some(cluster) = self.0.upgrade() {
            cluster.on_request(from, channel, payload, answer);
        }
    }

    fn failed(&self, error: String) {
        if let Some(group) = self.0.upgrade().as_ref().and_then(|cluster| cluster.group.as_ref()) {
            group.part.failed.send_replace(Some(error));
        }
    }
}

impl Cluster {
    fn on_up(&self, peer: &Identity) {
        tracing::info!(node = %peer.name, id = %peer.id, boot = peer.boot, "connected with a node");
        self.up.lock().insert(peer.id, peer.clone());
        self.host.on_up(peer.id);
        self.announce_all(peer.id);
        self.tell_alarms(peer.id);
        {
            // Who is given up in this moment is so before it is here.
            let mut lost = self.lost.lock();
            lost.remove(&peer.id);
            self.ended.lock().retain(|start| start.node != peer.id);
            let node = Sender { node: peer.id, boot: peer.boot };
            self.tell_shards(|| Command::Up { node });
        }
        self.pairs.node(peer.id, true);
        self.unfinished.notify_one();
        self.bell.nodes();
        if let Some(group) = &self.group {
            group.proposer.on_up(peer.id);
            group.changed.notify_one();
        }
    }

    fn on_down(self: Arc<Self>, peer: &Identity, why: Loss) {
        let node = peer.id;
        tracing::warn!(node = %peer.name, id = %node, %why, "lost a node");
        self.up.lock().remove(&node);
        self.lanes.lost(node);
        self.heard.lock().retain(|_, leader| leader.node != node);
        self.pressure.elsewhere(node, Alarms::default());
        self.host.on_down(node);
        self.bell.nodes();
        self.tell_shards(|| Command::Lost { node });
        self.pairs.node(node, false);
        match why {
            // Nothing of that process is left.
            Loss::Refused | Loss::Restarted | Loss::Removed => {
                self.on_ended(Sender { node, boot: peer.boot }, None);
            }
            Loss::Reset => {}
            Loss::Gone | Loss::Silent => {
                Arc::clone(&self).wait_for(Sender { node, boot: peer.boot });
            }
        }
        if let Some(group) = &self.group {
            let led = group.proposer.leader() == Some(node);
            group.proposer.on_down(peer.id);
            group.changed.notify_one();
            if led {
                Arc::clone(&self).stand_soon();
            }
        }
    }

    /// The node that led the metadata group is lost: those that are left stand for election, one
    /// after the other, without waiting for its heartbeats to stay away.
    fn stand_soon(self: Arc<Self>) {
        let Some(group) = &self.group else { return };
        let (voters, _) = group.proposer.members();
        if !voters.contains(&self.me.node) {
            return;
        }
        let up = self.up.lock();
        let before = voters.iter().filter(|voter| **voter < self.me.node && up.contains_key(voter));
        let rank = u32::try_from(before.count()).unwrap_or(u32::MAX);
        drop(up);
        let cluster = Arc::downgrade(&self);
        tokio::spawn(async move {
            // The others have to notice first.
            tokio::time::sleep(NOTICE + STAGGER.saturating_mul(rank)).await;
            let Some(cluster) = cluster.upgrade() else { return };
            let Some(group) = &cluster.group else { return };
            if group.proposer.has_leader() {
                return;
            }
            if let Err(error) = cluster.host.elect(GROUP).await {
                tracing::warn!(%error, "cannot stand for election to the metadata group");
            }
        });
    }

    /// Nothing is left of a start of a node that is not connected; or it has been away for too long,
    /// if it has been away since then.
    fn on_ended(&self, start: Sender, since: Option<Instant>) {
        let node = start.node;
        {
            let mut lost = self.lost.lock();
            if since.is_some_and(|since| lost.get(&node) != Some(&since)) {
                // It has come back, and perhaps been lost again.
                return;
            }
            lost.remove(&node);
            self.ended.lock().insert(start);
            self.tell_shards(|| Command::LostForLong { node });
        }
        if let Some(group) = &self.group {
            group.changed.notify_one();
        }
    }

    /// Gives nodes up that are not here and that this start has never seen, if they do not come in
    /// time either: `starts` are the last that are known of them.
    pub(crate) fn wait_for_unseen(self: &Arc<Self>, starts: impl Iterator<Item = Sender>) {
        for start in starts {
            let known = start.node == self.me.node
                || self.up.lock().contains_key(&start.node)
                || self.lost.lock().contains_key(&start.node)
                || self.ended.lock().iter().any(|ended| ended.node == start.node);
            if !known {
                Arc::clone(self).wait_for(start);
            }
        }
    }

    /// Gives a node up if it does not come back in time.
    fn wait_for(self: Arc<Self>, start: Sender) {
        let (node, since) = (start.node, Instant::now());
        self.lost.lock().insert(node, since);
        let (cluster, patience) = (Arc::downgrade(&self), self.patience);
        tokio::spawn(async move {
            tokio::time::sleep(patience).await;
            if let Some(cluster) = cluster.upgrade() {
                cluster.on_ended(start, Some(since));
            }
        });
    }

    fn on_messages(&self, from: NodeId, channel: u8, messages: &mut Vec<Bytes>) {
        match channel {
            channel::RAFT_MESSAGES => self.host.on_messages(from, messages),
            channel::METADATA => messages.drain(..).for_each(|message| self.heard(from, &message)),
            channel::ORDERS => messages.drain(..).for_each(|orders| self.on_orders(from, orders)),
            channel::NOTICES => messages.drain(..).for_each(|notice| self.on_notice(from, notice)),
            channel::LOANS => messages.drain(..).for_each(|loan| self.on_loan(from, loan)),
            channel::ALARMS => messages.drain(..).for_each(|word| self.on_alarms(from, &word)),
            channel::PAIRS => messages.drain(..).for_each(|word| self.pairs.word(from, word)),
            channel::ANNOUNCEMENTS => {
                messages.drain(..).for_each(|message| self.on_announcements(from, message));
            }
            other => {
                tracing::warn!(%from, channel = other, "messages that this version does not know");
            }
        }
    }

    fn on_request(self: Arc<Self>, from: NodeId, channel: u8, payload: Bytes, answer: Answer) {
        match channel {
            channel::RAFT_REQUESTS => {
                self.host.on_request(from, payload, Box::new(move |bytes| answer.send(bytes)));
            }
            channel::METADATA => self.take_proposal(payload, answer),
            channel::QUERIES => match Query::decode(payload) {
                Ok(query) => self.answer_query(from, query, answer),
                Err(error) => tracing::warn!(%from, %error, "a query"),
            },
            // A node that is still starting says that it does not answer.
            channel::INQUIRIES => {
                if let Some(inquiries) = self.inquiries.get() {
                    inquiries.ask(from, payload, answer);
                }
            }
            other => {
                tracing::warn!(%from, channel = other, "a request that this version does not know");
            }
        }
    }
}
