//! What is between the nodes: a session for each pair, as the links keep it, over paths that can be
//! cut in each direction.
//!
//! ```text
//!  no session ─► both paths open ─► up, told to each end in its own time ─► a path cut for too
//!       ▲                                                                   long, an end that died,
//!       └── down, told to each end in its own time ◄── nothing arrives any more ◄── or a reset
//! ```
//!
//! Within a session things arrive in order. A path that is cut for a moment only delays them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use model::id::{NodeId, QueueId};
use quorum::member::{Boxed, NotConnected, RequestError, Transport};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::node::Loss;
use super::rng::Rng;
use super::world::World;
use crate::replicated::client::Leader;
use crate::replicated::notice::Notice;
use crate::replicated::numbered::Sender;
use crate::shard::command::{Batch, Command};

/// A session ends when a path was cut for so long.
const SILENCE: Duration = Duration::from_secs(2);

/// What goes from one node to another.
#[derive(Debug)]
pub(super) enum Parcel {
    Raft(Bytes),
    Request { number: u64, bytes: Bytes },
    Answer { number: u64, answer: Option<Bytes> },
    Orders { queue: QueueId, batch: Bytes },
    Notice(Bytes),
    Leads { queue: QueueId, leader: Leader },
}

impl Parcel {
    /// What it is and how large, for the trace: its bytes hold numbers that the process counts.
    fn gist(&self) -> (u64, u64) {
        let (kind, bytes) = match self {
            Self::Raft(bytes) => (1, bytes.len()),
            Self::Request { bytes, .. } => (2, bytes.len()),
            Self::Answer { answer, .. } => (3, answer.as_ref().map_or(0, Bytes::len)),
            Self::Orders { batch, .. } => (4, batch.len()),
            Self::Notice(bytes) => (5, bytes.len()),
            Self::Leads { leader, .. } => (6, leader.term as usize),
        };
        (kind, bytes as u64)
    }
}

/// The state of all pairs.
#[derive(Debug)]
pub(super) struct Net {
    rng: Rng,
    pub(super) pace: Pace,
    ends: BTreeMap<(NodeId, NodeId), End>,
    /// Paths that are cut, and since when.
    cuts: BTreeMap<(NodeId, NodeId), Instant>,
    /// Sessions that end at once though nothing is cut.
    resets: BTreeSet<(NodeId, NodeId)>,
    sessions: u64,
    requests: u64,
}

/// How long things take from node to node, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// So many in a hundred take more than no time.
    pub(super) slow: u64,
    pub(super) most: u64,
}

/// One node's end of what it has with another.
#[derive(Debug, Default)]
struct End {
    /// The session that this end believes in.
    session: Option<u64>,
    /// Whether the session really is there still.
    alive: bool,
    line: Option<mpsc::UnboundedSender<(Instant, Parcel)>>,
    due: Option<Instant>,
    asked: BTreeMap<u64, oneshot::Sender<Option<Bytes>>>,
}

impl Net {
    pub(super) fn new(rng: Rng, pace: Pace) -> Self {
        Self {
            rng,
            pace,
            ends: BTreeMap::new(),
            cuts: BTreeMap::new(),
            resets: BTreeSet::new(),
            sessions: 0,
            requests: 0,
        }
    }

    fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.cuts.contains_key(&(from, to))
    }

    /// Since when the path with the older cut of two is cut.
    fn cut_since(&self, a: NodeId, b: NodeId) -> Option<Instant> {
        let since = |from, to| self.cuts.get(&(from, to)).copied();
        since(a, b).into_iter().chain(since(b, a)).min()
    }
}

impl World {
    /// Cuts the path from one node to another.
    pub(super) fn cut(&self, from: NodeId, to: NodeId) {
        self.net.lock().cuts.entry((from, to)).or_insert_with(Instant::now);
        self.changed.send_modify(|changes| *changes += 1);
    }

    pub(super) fn mend(&self, from: NodeId, to: NodeId) {
        self.net.lock().cuts.remove(&(from, to));
        self.changed.send_modify(|changes| *changes += 1);
    }

    pub(super) fn mend_all(&self) {
        self.net.lock().cuts.clear();
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Breaks a session although both nodes can reach each other.
    pub(super) fn reset(&self, a: NodeId, b: NodeId) {
        self.net.lock().resets.insert((a.min(b), a.max(b)));
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Sends something; `false`: the sender knows of no connection.
    pub(super) fn send(&self, from: Sender, to: NodeId, parcel: Parcel) -> bool {
        if !self.is_alive(from) {
            return false;
        }
        let net = &mut *self.net.lock();
        let delay = if net.rng.chance(net.pace.slow) {
            net.rng.millis(1, net.pace.most.max(1))
        } else {
            Duration::ZERO
        };
        let Some(end) = net.ends.get_mut(&(from.node, to)) else { return false };
        if end.session.is_none() {
            return false;
        }
        if end.alive
            && let Some(line) = &end.line
        {
            let due = (Instant::now() + delay).max(end.due.unwrap_or_else(Instant::now));
            end.due = Some(due);
            drop(line.send((due, parcel)));
        }
        true
    }

    /// Keeps the session of a pair for the whole run.
    pub(super) async fn keep(self: Arc<Self>, a: NodeId, b: NodeId, mut rng: Rng) {
        let mut changed = self.changed.subscribe();
        loop {
            // Both are there, and nothing is cut.
            let (one, other) = loop {
                let ends = (self.node(a), self.node(b));
                if let (Some(one), Some(other)) = ends
                    && self.net.lock().cut_since(a, b).is_none()
                {
                    break (one.me, other.me);
                }
                if changed.changed().await.is_err() {
                    return;
                }
            };
            let patience = if rng.chance(70) { rng.millis(0, 20) } else { rng.millis(20, 300) };
            tokio::time::sleep(patience).await;
            let still = |me| self.is_alive(me);
            if !still(one) || !still(other) || self.net.lock().cut_since(a, b).is_some() {
                continue;
            }
            let session = {
                let net = &mut *self.net.lock();
                net.resets.remove(&(a, b));
                net.sessions += 1;
                net.sessions
            };
            for (from, to) in [(one, other), (other, one)] {
                let (line, parcels) = mpsc::unbounded_channel();
                let mut net = self.net.lock();
                let end = net.ends.entry((from.node, to.node)).or_default();
                *end = End { alive: true, line: Some(line), ..End::default() };
                drop(net);
                tokio::spawn(Arc::clone(&self).carry(from, to, session, parcels));
            }
            let up = |me: Sender, peer: Sender, delay| {
                let world = Arc::clone(&self);
                async move {
                    tokio::time::sleep(delay).await;
                    if world.is_alive(me) {
                        let mut net = world.net.lock();
                        if let Some(end) = net.ends.get_mut(&(me.node, peer.node)) {
                            end.session = Some(session);
                        }
                        drop(net);
                        world.trace(10, &[me.node.0, peer.node.0, session]);
                        if let Some(node) = world.node(me.node) {
                            node.on_up(peer);
                        }
                        world.changed.send_modify(|changes| *changes += 1);
                    }
                }
            };
            let (first, second) = (rng.millis(0, 3), rng.millis(0, 3));
            tokio::join!(up(one, other, first), up(other, one, second));
            // Until something ends it.
            let why = loop {
                if !still(one) || !still(other) {
                    break Loss::Refused;
                }
                let (since, reset) = {
                    let net = self.net.lock();
                    (net.cut_since(a, b), net.resets.contains(&(a, b)))
                };
                if reset {
                    break Loss::Reset;
                }
                match since.map(|since| since + SILENCE) {
                    Some(end) if end <= Instant::now() => break Loss::Silent,
                    Some(end) => {
                        drop(tokio::time::timeout_at(end, changed.changed()).await);
                    }
                    None => {
                        if changed.changed().await.is_err() {
                            return;
                        }
                    }
                }
            };
            // A node whose power fails says nothing: only its silence tells.
            let silent = why == Loss::Refused && rng.chance(30);
            let why = if silent { Loss::Silent } else { why };
            for (from, to) in [(a, b), (b, a)] {
                if let Some(end) = self.net.lock().ends.get_mut(&(from, to)) {
                    end.alive = false;
                    end.line = None;
                }
            }
            self.changed.send_modify(|changes| *changes += 1);
            let mut wait = || match (silent, why) {
                (true, _) => rng.millis(1500, 2500),
                (_, Loss::Silent) => rng.millis(0, 500),
                _ => rng.millis(0, 40),
            };
            let down = |me: Sender, peer: NodeId, delay: Duration| {
                let (world, mut changed) = (Arc::clone(&self), self.changed.subscribe());
                async move {
                    let until = Instant::now() + delay;
                    // One that has started again says so itself.
                    let back = || silent && world.node(peer).is_some();
                    while Instant::now() < until && !back() {
                        drop(tokio::time::timeout_at(until, changed.changed()).await);
                    }
                    let why = if back() { Loss::Refused } else { why };
                    let asked = {
                        let mut net = world.net.lock();
                        let Some(end) = net.ends.get_mut(&(me.node, peer)) else { return };
                        end.session = None;
                        std::mem::take(&mut end.asked)
                    };
                    drop(asked);
                    if world.is_alive(me)
                        && let Some(node) = world.node(me.node)
                    {
                        world.trace(11, &[me.node.0, peer.0, session]);
                        node.on_down(peer, why);
                    }
                }
            };
            let (first, second) = (wait(), wait());
            tokio::join!(down(one, b, first), down(other, a, second));
        }
    }

    /// Brings what one node sends another in a session.
    async fn carry(
        self: Arc<Self>,
        from: Sender,
        to: Sender,
        session: u64,
        mut parcels: mpsc::UnboundedReceiver<(Instant, Parcel)>,
    ) {
        let mut changed = self.changed.subscribe();
        while let Some((due, parcel)) = parcels.recv().await {
            tokio::time::sleep_until(due).await;
            loop {
                let (cut, alive, up) = {
                    let net = self.net.lock();
                    let end = net.ends.get(&(to.node, from.node));
                    let alive = end.is_some_and(|end| end.alive);
                    let up = end.is_some_and(|end| end.session == Some(session));
                    (net.is_cut(from.node, to.node), alive, up)
                };
                if !alive || !self.is_alive(to) {
                    return;
                }
                if !cut && up {
                    break;
                }
                if changed.changed().await.is_err() {
                    return;
                }
            }
            self.deliver(from, to, parcel);
        }
    }

    fn deliver(self: &Arc<Self>, from: Sender, to: Sender, parcel: Parcel) {
        let Some(node) = self.node(to.node) else { return };
        let (kind, bytes) = parcel.gist();
        self.trace(12, &[from.node.0, to.node.0, kind, bytes]);
        let post = |command: Command| {
            let queue = command.queue().expect("it is for one");
            node.shards.post(queue, Batch::one(command));
        };
        match parcel {
            Parcel::Raft(bytes) => node.host.on_messages(from.node, &mut vec![bytes]),
            Parcel::Request { number, bytes } => {
                let mut reply =
                    Replying { world: Arc::clone(self), from: to, to: from.node, number };
                let reply = Box::new(move |answer| reply.send(answer));
                node.host.on_request(from.node, bytes, reply);
            }
            Parcel::Answer { number, answer } => {
                let mut net = self.net.lock();
                let end = net.ends.get_mut(&(to.node, from.node));
                let asked = end.and_then(|end| end.asked.remove(&number));
                drop(net);
                if let Some(asked) = asked {
                    drop(asked.send(answer));
                }
            }
            Parcel::Orders { queue, batch } => post(Command::Orders { queue, batch }),
            Parcel::Notice(bytes) => {
                let notice = Notice::decode(bytes).expect("it was just encoded");
                post(Command::Notice(Box::new(notice)));
            }
            Parcel::Leads { queue, leader } => {
                node.on_announcement(queue, leader);
                post(Command::Leads { queue, leader });
            }
        }
    }
}

/// A request that has to be answered. Dropped, it is refused.
struct Replying {
    world: Arc<World>,
    from: Sender,
    to: NodeId,
    number: u64,
}

impl Replying {
    fn send(&mut self, answer: Bytes) {
        let number = std::mem::take(&mut self.number);
        self.world.send(self.from, self.to, Parcel::Answer { number, answer: Some(answer) });
    }
}

impl Drop for Replying {
    fn drop(&mut self) {
        if self.number > 0 {
            let parcel = Parcel::Answer { number: self.number, answer: None };
            self.world.send(self.from, self.to, parcel);
        }
    }
}

/// A node's way to others, for its host.
pub(super) struct Cable {
    pub(super) me: Sender,
    pub(super) world: std::sync::Weak<World>,
}

impl Transport for Cable {
    fn send(&self, to: NodeId, payload: Bytes) -> Result<(), NotConnected> {
        let world = self.world.upgrade().ok_or(NotConnected)?;
        world.send(self.me, to, Parcel::Raft(payload)).then_some(()).ok_or(NotConnected)
    }

    fn has_room(&self, _: NodeId) -> bool {
        true
    }

    fn room(&self, _: NodeId) -> Boxed<()> {
        Box::pin(std::future::ready(()))
    }

    fn request(
        &self,
        to: NodeId,
        payload: Bytes,
        within: Duration,
    ) -> Boxed<Result<Bytes, RequestError>> {
        let (me, world) = (self.me, self.world.clone());
        Box::pin(async move {
            let answered = {
                let world = world.upgrade().ok_or(RequestError::NotConnected)?;
                let (answer, answered) = oneshot::channel();
                let number = {
                    let net = &mut *world.net.lock();
                    net.requests += 1;
                    let end = net.ends.get_mut(&(me.node, to));
                    let end = end.filter(|end| end.session.is_some());
                    let end = end.ok_or(RequestError::NotConnected)?;
                    end.asked.insert(net.requests, answer);
                    net.requests
                };
                if !world.send(me, to, Parcel::Request { number, bytes: payload }) {
                    return Err(RequestError::NotConnected);
                }
                answered
            };
            match tokio::time::timeout(within, answered).await {
                Ok(Ok(Some(bytes))) => Ok(bytes),
                Ok(Ok(None)) => Err(RequestError::Refused("dropped".into())),
                Ok(Err(_)) => Err(RequestError::NotConnected),
                Err(_) => Err(RequestError::TimedOut),
            }
        })
    }
}
