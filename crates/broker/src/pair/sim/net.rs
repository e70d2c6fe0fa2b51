//! What is between nodes: a session for each pair of them, over paths that can be cut in each
//! direction, whatever the paths to others are like.
//!
//! ```text
//!  both there, nothing cut ─► a session, told to each end ─► a cut, an end that is dead or stopped
//!                                     ▲                      for too long, or a reset
//!                                     └── told to each end ◄──────────┘
//! ```
//!
//! Within a session things arrive in order; a path that is cut for a moment only delays them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use model::id::{NodeId, QueueId};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::node::Node;
use super::world::World;
use crate::replicated::notice::Notice;
use crate::replicated::numbered::Sender;
use crate::replicated::sim::rng::Rng;

/// A session ends when nothing came for so long.
const SILENCE: Duration = Duration::from_secs(2);

/// What goes from one node to another.
#[derive(Debug)]
pub(super) enum Parcel {
    /// A word of a pair.
    Word(Bytes),
    Orders {
        queue: QueueId,
        batch: Bytes,
    },
    Notice(Bytes),
}

impl Parcel {
    /// What it is and how large.
    fn gist(&self) -> (u64, u64) {
        let (kind, bytes) = match self {
            Self::Word(bytes) => (1, bytes.len()),
            Self::Orders { batch, .. } => (2, batch.len()),
            Self::Notice(bytes) => (3, bytes.len()),
        };
        (kind, bytes as u64)
    }
}

/// How long things take, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// So many in a hundred take more than no time.
    pub(super) slow: u64,
    pub(super) most: u64,
}

/// The state of all pairs of nodes.
#[derive(Debug)]
pub(super) struct Net {
    rng: Rng,
    pace: Pace,
    ends: BTreeMap<(NodeId, NodeId), End>,
    /// Paths that are cut, and since when.
    cuts: BTreeMap<(NodeId, NodeId), Instant>,
    resets: BTreeSet<(NodeId, NodeId)>,
    sessions: u64,
}

/// One node's end of what it has with another.
#[derive(Debug, Default)]
struct End {
    /// The session that this end believes in.
    session: Option<u64>,
    /// Whether it really is there still.
    alive: bool,
    line: Option<mpsc::UnboundedSender<(Instant, Parcel)>>,
    due: Option<Instant>,
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
        }
    }

    fn delay(&mut self) -> Duration {
        if self.rng.chance(self.pace.slow) {
            self.rng.millis(1, self.pace.most.max(1))
        } else {
            Duration::ZERO
        }
    }

    /// Since when one of the two paths is cut.
    fn cut_since(&self, a: NodeId, b: NodeId) -> Option<Instant> {
        let since = |from, to| self.cuts.get(&(from, to)).copied();
        since(a, b).into_iter().chain(since(b, a)).min()
    }
}

impl World {
    /// Cuts the path from one node to another.
    pub(super) fn cut(&self, from: NodeId, to: NodeId) {
        self.net.lock().cuts.entry((from, to)).or_insert_with(Instant::now);
        self.touch();
    }

    pub(super) fn mend(&self, from: NodeId, to: NodeId) {
        self.net.lock().cuts.remove(&(from, to));
        self.touch();
    }

    pub(super) fn mend_all(&self) {
        self.net.lock().cuts.clear();
        self.touch();
    }

    /// Breaks a session although both nodes can reach each other.
    pub(super) fn reset(&self, a: NodeId, b: NodeId) {
        self.net.lock().resets.insert((a.min(b), a.max(b)));
        self.touch();
    }

    /// Whether something can go from one node to another.
    pub(super) fn is_open(&self, from: NodeId, to: NodeId) -> bool {
        !self.net.lock().cuts.contains_key(&(from, to))
    }

    /// How long something may take from one to another.
    pub(super) fn delay(&self, _from: NodeId, _to: NodeId) -> Duration {
        self.net.lock().delay()
    }

    /// Sends something; `false`: the sender knows of no session.
    pub(super) fn send(&self, from: Sender, to: NodeId, parcel: Parcel) -> bool {
        if !self.is_alive(from) {
            return false;
        }
        let net = &mut *self.net.lock();
        let delay = net.delay();
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

    /// Since when nothing goes between two nodes.
    fn silent_since(&self, one: &Node, other: &Node) -> Option<Instant> {
        let cut = self.net.lock().cut_since(one.me.node, other.me.node);
        let stopped = [one, other].into_iter().filter_map(Node::frozen_since).min();
        cut.into_iter().chain(stopped).min()
    }

    /// Keeps the session of two nodes for the whole run.
    pub(super) async fn keep(self: Arc<Self>, a: NodeId, b: NodeId, mut rng: Rng) {
        let mut changed = self.changed.subscribe();
        loop {
            let (one, other) = loop {
                if let (Some(one), Some(other)) = (self.node(a), self.node(b))
                    && self.silent_since(&one, &other).is_none()
                {
                    break (one, other);
                }
                if changed.changed().await.is_err() {
                    return;
                }
            };
            let patience = if rng.chance(70) { rng.millis(0, 20) } else { rng.millis(20, 300) };
            tokio::time::sleep(patience).await;
            let still = |node: &Node| self.is_alive(node.me);
            if !still(&one) || !still(&other) || self.silent_since(&one, &other).is_some() {
                continue;
            }
            let session = {
                let net = &mut *self.net.lock();
                net.resets.remove(&(a, b));
                net.sessions += 1;
                net.sessions
            };
            for (from, to) in [(&one, &other), (&other, &one)] {
                let (line, parcels) = mpsc::unbounded_channel();
                let end = End { alive: true, line: Some(line), ..End::default() };
                self.net.lock().ends.insert((from.me.node, to.me.node), end);
                let (from, to) = (from.me, Arc::clone(to));
                tokio::spawn(Arc::clone(&self).carry(from, to, session, parcels));
            }
            let (first, second) = (rng.millis(0, 3), rng.millis(0, 3));
            tokio::join!(
                self.up(&one, other.me, session, first),
                self.up(&other, one.me, session, second)
            );
            let (is_over, is_silent) = loop {
                if !still(&one) || !still(&other) {
                    break (true, false);
                }
                if self.net.lock().resets.contains(&(a, b)) {
                    break (false, false);
                }
                match self.silent_since(&one, &other).map(|since| since + SILENCE) {
                    Some(end) if end <= Instant::now() => break (false, true),
                    Some(end) => drop(tokio::time::timeout_at(end, changed.changed()).await),
                    None => {
                        if changed.changed().await.is_err() {
                            return;
                        }
                    }
                }
            };
            for ends in [(a, b), (b, a)] {
                if let Some(end) = self.net.lock().ends.get_mut(&ends) {
                    end.alive = false;
                    end.line = None;
                }
            }
            self.touch();
            // A machine whose power fails says nothing: only its silence tells.
            let unheard = is_over && rng.chance(30);
            let mut wait = || match (unheard, is_silent) {
                (true, _) => rng.millis(1500, 2500),
                (_, true) => rng.millis(0, 500),
                _ => rng.millis(0, 40),
            };
            let (first, second) = (wait(), wait());
            tokio::join!(
                self.down(&one, b, session, first, unheard, is_over),
                self.down(&other, a, session, second, unheard, is_over)
            );
        }
    }

    async fn up(self: &Arc<Self>, node: &Arc<Node>, peer: Sender, session: u64, delay: Duration) {
        tokio::time::sleep(delay).await;
        self.thawed(node).await;
        if !self.is_alive(node.me) {
            return;
        }
        if let Some(end) = self.net.lock().ends.get_mut(&(node.me.node, peer.node)) {
            end.session = Some(session);
        }
        self.trace(10, &[node.me.node.0, peer.node.0, session]);
        node.on_up(peer);
        self.touch();
    }

    async fn down(
        self: &Arc<Self>,
        node: &Arc<Node>,
        peer: NodeId,
        session: u64,
        delay: Duration,
        unheard: bool,
        is_over: bool,
    ) {
        let (until, mut changed) = (Instant::now() + delay, self.changed.subscribe());
        // One that has started again says so itself.
        while Instant::now() < until && !(unheard && self.node(peer).is_some()) {
            drop(tokio::time::timeout_at(until, changed.changed()).await);
        }
        self.thawed(node).await;
        if let Some(end) = self.net.lock().ends.get_mut(&(node.me.node, peer)) {
            end.session = None;
        }
        if self.is_alive(node.me) {
            self.trace(11, &[node.me.node.0, peer.0, session]);
            node.on_down(peer, is_over);
        }
    }

    /// Waits until a node that is stopped goes on, or is dead.
    async fn thawed(&self, node: &Node) {
        let mut changed = self.changed.subscribe();
        while node.owner.is_frozen() && self.is_alive(node.me) {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Brings what one node sends another in a session.
    async fn carry(
        self: Arc<Self>,
        from: Sender,
        to: Arc<Node>,
        session: u64,
        mut parcels: mpsc::UnboundedReceiver<(Instant, Parcel)>,
    ) {
        let mut changed = self.changed.subscribe();
        while let Some((due, parcel)) = parcels.recv().await {
            tokio::time::sleep_until(due).await;
            loop {
                let (is_cut, alive, up) = {
                    let net = self.net.lock();
                    let end = net.ends.get(&(to.me.node, from.node));
                    let alive = end.is_some_and(|end| end.alive);
                    let up = end.is_some_and(|end| end.session == Some(session));
                    (net.cuts.contains_key(&(from.node, to.me.node)), alive, up)
                };
                if !alive || !self.is_alive(to.me) {
                    return;
                }
                if !is_cut && up && !to.owner.is_frozen() {
                    break;
                }
                if changed.changed().await.is_err() {
                    return;
                }
            }
            let (kind, bytes) = parcel.gist();
            self.trace(12, &[from.node.0, to.me.node.0, kind, bytes]);
            match parcel {
                Parcel::Word(word) => to.pairs.word(from.node, word),
                Parcel::Orders { queue, batch } => to.on_orders(queue, batch),
                Parcel::Notice(bytes) => {
                    to.on_notice(Notice::decode(bytes).expect("it was just encoded"));
                }
            }
        }
    }
}
