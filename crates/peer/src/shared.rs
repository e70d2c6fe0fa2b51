//! What all tasks of the links share: who is who, and where to send.

use crate::handler::Handler;
use crate::handshake::Party;
use crate::identity::{Claim, Identity};
use crate::outbox::Outbox;
use crate::pair::{Command, Pair};
use crate::tls::Tls;
use bytes::Bytes;
use model::id::NodeId;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Locks are short and never held while the handler is called. Of two, `peers` is taken first.
pub(crate) struct Shared {
    party: Party,
    /// What peers are told beside the rest; see [`Identity::facts`].
    facts: Mutex<Bytes>,
    pub(crate) silence_timeout: Duration,
    pub(crate) queue_bytes_max: usize,
    pub(crate) tls: Option<Tls>,
    handler: OnceLock<Arc<dyn Handler>>,
    /// Where to put what goes to a peer that is up.
    routes: RwLock<BTreeMap<NodeId, Arc<Outbox>>>,
    /// The name under which each node is connected.
    names: Mutex<BTreeMap<NodeId, Arc<str>>>,
    peers: Mutex<Peers>,
    /// How many links there have been.
    links: AtomicU64,
}

struct Peers {
    stopped: bool,
    by_name: BTreeMap<Arc<str>, Peer>,
    /// Tasks of removed peers. One that comes again under the name waits for them, so that the
    /// handler hears the end of the former first.
    ending: BTreeMap<Arc<str>, JoinHandle<()>>,
}

impl Peers {
    /// What is seen of the peer with this name, which is known from now on.
    fn entry(&mut self, name: &Arc<str>) -> Arc<Seen> {
        let peer = self.by_name.entry(Arc::clone(name)).or_insert_with(|| {
            let state = PeerState { name: Arc::clone(name), ..PeerState::default() };
            Peer { seen: Arc::new(Seen(Mutex::new(state))), task: None }
        });
        Arc::clone(&peer.seen)
    }
}

struct Peer {
    seen: Arc<Seen>,
    /// Absent until the links are served.
    task: Option<Task>,
}

struct Task {
    commands: mpsc::UnboundedSender<Command>,
    ended: JoinHandle<()>,
}

/// What the task of a peer shows of it, and what it is told to use next.
#[derive(Debug, Default)]
pub(crate) struct Seen(pub(crate) Mutex<PeerState>);

/// A peer, as the links see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerState {
    /// Its name.
    pub name: Arc<str>,
    /// The address that it was added with.
    pub address: Option<String>,
    /// The address that it gave itself. Both are tried in turn.
    pub advertised: Option<String>,
    /// Who it is, while it is up.
    pub up: Option<Identity>,
    /// Why the last try to connect to it has failed, until one succeeds.
    pub error: Option<String>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("me", &self.party.me).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(
        party: Party,
        silence_timeout: Duration,
        queue_bytes_max: usize,
        tls: Option<Tls>,
    ) -> Self {
        let peers = Peers { stopped: false, by_name: BTreeMap::new(), ending: BTreeMap::new() };
        let facts = Mutex::new(party.me.identity.facts.clone());
        Self {
            party,
            facts,
            silence_timeout,
            queue_bytes_max,
            tls,
            handler: OnceLock::new(),
            routes: RwLock::default(),
            names: Mutex::default(),
            peers: Mutex::new(peers),
            links: AtomicU64::new(0),
        }
    }

    /// Who this node is.
    pub(crate) fn me(&self) -> &Identity {
        &self.party.me.identity
    }

    /// What it says in a handshake that begins now.
    pub(crate) fn party(&self) -> Party {
        let facts = self.facts.lock().clone();
        let identity = Identity { facts, ..self.party.me.identity.clone() };
        let me = Arc::new(Claim { identity, instance: self.party.me.instance });
        Party { me, ..self.party.clone() }
    }

    pub(crate) fn set_facts(&self, facts: Bytes) {
        *self.facts.lock() = facts;
    }

    /// # Panics
    /// If nobody serves yet; no connection is accepted or made before.
    pub(crate) fn handler(&self) -> &Arc<dyn Handler> {
        self.handler.get().expect("connections are made once there is a handler")
    }

    /// Begins to dial the peers that are known. Returns whether it is the first time.
    pub(crate) fn serve(self: &Arc<Self>, handler: Arc<dyn Handler>) -> bool {
        let mut peers = self.peers.lock();
        if peers.stopped || self.handler.set(handler).is_err() {
            return false;
        }
        for peer in peers.by_name.values_mut() {
            peer.task = Some(self.spawn(&peer.seen, None));
        }
        true
    }

    /// A number for the first session of a link, above those of all links before it.
    pub(crate) fn first_session(&self) -> u64 {
        self.links.fetch_add(1, Ordering::Relaxed) << 40
    }

    fn spawn(self: &Arc<Self>, seen: &Arc<Seen>, after: Option<JoinHandle<()>>) -> Task {
        let (commands, receiver) = mpsc::unbounded_channel();
        let pair = Pair::new(Arc::clone(self), Arc::clone(seen), receiver);
        let running = tokio::spawn(async move {
            if let Some(after) = after {
                let _panicked = after.await.is_err();
            }
            pair.run().await;
        });
        let handler = Arc::clone(self.handler());
        let name = Arc::clone(&seen.0.lock().name);
        let ended = tokio::spawn(async move {
            if let Err(error) = running.await
                && error.is_panic()
            {
                tracing::error!(peer = &*name, "the link to a peer has failed by a defect");
                handler.failed(format!("the link to {name} panicked"));
            }
        });
        Task { commands, ended }
    }

    /// Adds a peer, or gives a known one another address.
    pub(crate) fn add(self: &Arc<Self>, name: &Arc<str>, address: &str) {
        let mut peers = self.peers.lock();
        if *name == self.party.me.identity.name || peers.stopped {
            return;
        }
        let seen = peers.entry(name);
        seen.0.lock().address = Some(address.to_owned());
        self.ensure_task(&mut peers, name);
    }

    /// Where to announce a connection of this one; it becomes a peer if it is none yet.
    pub(crate) fn pair_of(
        self: &Arc<Self>,
        identity: &Identity,
    ) -> Option<mpsc::UnboundedSender<Command>> {
        let mut peers = self.peers.lock();
        if peers.stopped {
            return None;
        }
        let seen = peers.entry(&identity.name);
        seen.0.lock().advertised = Some(identity.address.clone());
        Some(self.ensure_task(&mut peers, &identity.name)?.commands.clone())
    }

    fn ensure_task<'a>(self: &Arc<Self>, peers: &'a mut Peers, name: &str) -> Option<&'a Task> {
        let peer = peers.by_name.get_mut(name)?;
        if peer.task.is_none() && self.handler.get().is_some() {
            peer.task = Some(self.spawn(&peer.seen, peers.ending.remove(name)));
        }
        peer.task.as_ref()
    }

    pub(crate) fn remove(&self, name: &str) {
        let mut peers = self.peers.lock();
        peers.ending.retain(|_, ended| !ended.is_finished());
        let Some((name, peer)) = peers.by_name.remove_entry(name) else { return };
        if let Some(task) = peer.task {
            // A task that has failed has nothing to remove.
            let _gone = task.commands.send(Command::Remove).is_err();
            peers.ending.insert(name, task.ended);
        }
    }

    pub(crate) fn peers(&self) -> Vec<PeerState> {
        let peers = self.peers.lock();
        peers.by_name.values().map(|peer| peer.seen.0.lock().clone()).collect()
    }

    /// Ends all tasks of peers, for good. Returns what to wait for.
    pub(crate) fn stop(&self) -> Vec<JoinHandle<()>> {
        let mut peers = self.peers.lock();
        peers.stopped = true;
        let mut ended: Vec<_> = std::mem::take(&mut peers.ending).into_values().collect();
        let peers = std::mem::take(&mut peers.by_name);
        for task in peers.into_values().filter_map(|peer| peer.task) {
            let _gone = task.commands.send(Command::Stop).is_err();
            ended.push(task.ended);
        }
        ended
    }

    pub(crate) fn route(&self, to: NodeId) -> Option<Arc<Outbox>> {
        self.routes.read().get(&to).cloned()
    }

    pub(crate) fn open_route(&self, to: NodeId, outbox: Arc<Outbox>) {
        self.routes.write().insert(to, outbox);
    }

    /// Closes the route if it leads into this outbox.
    pub(crate) fn close_route(&self, to: NodeId, outbox: &Arc<Outbox>) {
        let mut routes = self.routes.write();
        if routes.get(&to).is_some_and(|known| Arc::ptr_eq(known, outbox)) {
            routes.remove(&to);
        }
    }

    /// Takes a node for a name.
    ///
    /// # Errors
    /// The other name under which it is connected.
    pub(crate) fn take_name(&self, id: NodeId, name: &Arc<str>) -> Result<(), Arc<str>> {
        let mut names = self.names.lock();
        let known = names.entry(id).or_insert_with(|| Arc::clone(name));
        if known == name { Ok(()) } else { Err(Arc::clone(known)) }
    }

    /// It is connected no longer.
    pub(crate) fn give_name(&self, id: NodeId) {
        self.names.lock().remove(&id);
    }
}
