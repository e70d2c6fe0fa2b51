//! The host of all groups of a node.

use crate::bringup::{self, Piece, Received, Receiving};
use crate::founding;
use crate::group::{Address, GroupId};
use crate::grouplog::{Disk, GroupLog, Limits};
use crate::guard::{Electorate, Heard};
use crate::inbox::{Inbox, Origin};
use crate::life::{self, Life, Summary};
use crate::links::Links;
use crate::log::Log;
use crate::machine::{Progress, load};
use crate::member::{Member, Role, Transport};
use crate::records::Records;
use crate::recovered::Recovered;
use crate::rest::Rest;
use crate::rpc::{self, Message, Request};
use crate::seat::Seat;
use crate::session::{Answer, Sessions};
use crate::sleeper;
use crate::supervisor::ballot::Ballot;
use crate::supervisor::{self, Alarm, Vigil};
use crate::tail::Tail;
use crate::types::{Types, VoteRequest, VoteResponse, log_id, vote};
use crate::upkeep::{self, News};
use crate::watermark::Watermark;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use journal::op::Class;
use model::id::NodeId;
use openraft::Instant as _;
use openraft::errors::{InitializeError, RaftError};
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::InstantOf;
use parking_lot::{Mutex, RwLock};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How long a request for a group waits for the group to be started.
const START_WAIT: Duration = Duration::from_secs(5);
/// How many groups stop at a time.
const STOPS: usize = 64;

/// How the host behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// This node.
    pub me: NodeId,
    /// How many bytes of entries all groups may keep in memory beyond need, for followers that
    /// are a little behind. Default 64 MiB.
    pub tail_bytes: usize,
    /// How many entries, or bytes of them, come between two checkpoints of a group: that is what
    /// its log may take on the disk beyond what is alive. Default 16,384 and 16 MiB; but not fewer
    /// bytes than the last checkpoint has.
    pub checkpoint_entries: u64,
    /// See `checkpoint_entries`.
    pub checkpoint_bytes: u64,
    /// How many entries before its last checkpoint a log keeps for members that are away for a
    /// moment, and at most how many bytes of them. Default 1,024 and 8 MiB.
    pub keep_entries: u64,
    /// See `keep_entries`.
    pub keep_bytes: u64,
    /// When groups without heartbeats sleep. Default: never.
    pub rest: Rest,
}

impl Options {
    /// Options of a node.
    pub fn new(me: NodeId) -> Self {
        Self {
            me,
            tail_bytes: 64 << 20,
            checkpoint_entries: 16_384,
            checkpoint_bytes: 16 << 20,
            keep_entries: 1024,
            keep_bytes: 8 << 20,
            rest: Rest { after: None, awake_max: usize::MAX },
        }
    }
}

/// How a group finds out that its leader is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Care {
    /// By the host's supervisor, for groups of which there are many.
    Supervised,
    /// By heartbeats of its own, for the few that must not depend on anything else. Its entries
    /// are small and rare, and may use the reserve of a full disk.
    Heartbeats,
}

/// A group cannot be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// It runs already.
    #[error("{0} is started already")]
    Started(GroupId),
    /// Its records are not what was written. The member must be replaced.
    #[error("the log of {0} is damaged: {1}")]
    Damaged(GroupId, String),
    /// Its log cannot be read, or the node is shutting down.
    #[error("{0} cannot start: {1}")]
    Failed(GroupId, String),
}

/// This node does not lead the group, or not any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the leader")]
pub struct NotLeader;

/// The group is not started on this node, or has stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// It is not started here.
    #[error("{0} is not started on this node")]
    Unknown(GroupId),
    /// It refused.
    #[error("{0}")]
    Refused(String),
    /// This node led when it began and does not any more: it may have happened, or happen yet.
    #[error(
        "this node does not lead the group any more, and nobody knows what became of the change"
    )]
    Interrupted,
}

/// Answers a request of another host.
pub type Reply = Box<dyn FnOnce(Bytes) + Send>;

/// The host. Clones are the same host.
#[derive(Clone)]
pub struct Host {
    pub(crate) shared: Arc<Shared>,
}

/// What all of a host's tasks share.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) disk: Disk,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) links: Arc<Links>,
    groups: RwLock<BTreeMap<GroupId, Arc<Group>>>,
    /// Groups that have another address than their number, by address.
    moved: RwLock<BTreeMap<GroupId, GroupId>>,
    /// Requests that wait for a group to be started, by its address.
    pub(crate) awaited: Mutex<BTreeMap<GroupId, Vec<oneshot::Sender<Arc<Group>>>>>,
    pub(crate) alarm: Arc<Alarm>,
    pub(crate) news: mpsc::UnboundedSender<News>,
    /// The groups that are awake and may sleep some day.
    pub(crate) awake: Mutex<BTreeSet<GroupId>>,
    /// Groups that have begun since somebody wrote down how.
    pub(crate) begun: Mutex<Vec<GroupId>>,
    /// How often a group has fallen asleep.
    pub(crate) dozed: AtomicU64,
    began: InstantOf<Types>,
    /// Nothing is started any more. Changes under the lock of the groups.
    closed: AtomicBool,
}

/// A group on this node.
pub(crate) struct Group {
    pub(crate) id: GroupId,
    pub(crate) address: Address,
    pub(crate) care: Care,
    pub(crate) host: Weak<Shared>,
    pub(crate) log: Arc<GroupLog>,
    pub(crate) seat: Arc<Seat>,
    pub(crate) progress: Arc<Mutex<Progress>>,
    pub(crate) life: Life,
    /// By which answers of followers find their way; from before openraft is there until it is gone,
    /// for it sends before it says that it is there.
    pub(crate) sessions: Mutex<Option<Arc<Sessions>>>,
    pub(crate) inbox: Inbox,
    /// The leader that spoke last.
    pub(crate) heard: Mutex<Option<Heard>>,
    pub(crate) vigil: Mutex<Vigil>,
    /// A checkpoint that another node is sending.
    pub(crate) receiving: Mutex<Option<Receiving>>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = self.shared.groups.read().len();
        f.debug_struct("Host")
            .field("me", &self.shared.options.me)
            .field("groups", &groups)
            .finish()
    }
}

impl Host {
    /// A host without groups. `watermark` is told by the journal's listener what is durable. Call
    /// it, and everything else, within a runtime.
    pub fn new(
        options: Options,
        log: Arc<dyn Log>,
        watermark: Arc<Watermark>,
        transport: Arc<dyn Transport>,
    ) -> Self {
        let limits = Limits {
            checkpoint_entries: options.checkpoint_entries,
            checkpoint_bytes: options.checkpoint_bytes,
            keep_entries: options.keep_entries,
            keep_bytes: options.keep_bytes,
        };
        let tail = Arc::new(Tail::new(options.tail_bytes));
        let disk = Disk { log, watermark, tail, limits };
        let (news, received) = mpsc::unbounded_channel();
        let alarm = Arc::new(Alarm::default());
        let shared = Arc::new(Shared {
            options,
            disk,
            transport,
            links: Arc::default(),
            groups: RwLock::default(),
            moved: RwLock::default(),
            awaited: Mutex::default(),
            alarm: Arc::clone(&alarm),
            news,
            awake: Mutex::default(),
            begun: Mutex::default(),
            dozed: AtomicU64::new(0),
            began: Types::now(),
            closed: AtomicBool::new(false),
        });
        drop(Types::spawn(supervisor::run(Arc::downgrade(&shared), alarm)));
        drop(Types::spawn(upkeep::run(Arc::downgrade(&shared), received)));
        drop(Types::spawn(sleeper::run(Arc::downgrade(&shared))));
        Self { shared }
    }

    /// Starts a group with what the journal held of it: brings the member to the last checkpoint
    /// and to what is known to be committed after it. Nobody leads it yet, unless it begins with a
    /// leader ([`Recovered::founded`]).
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(
        &self,
        id: GroupId,
        care: Care,
        member: Arc<dyn Member>,
        mut recovered: Recovered,
    ) -> Result<(), StartError> {
        let shared = &self.shared;
        if shared.group(id).is_some() {
            return Err(StartError::Started(id));
        }
        recovered.check();
        if let Some(damage) = recovered.damage() {
            return Err(StartError::Damaged(id, damage.into()));
        }
        let me = shared.options.me;
        #[cfg(feature = "sim")]
        let resumed = recovered.vote.map(|(vote, _)| vote).filter(|vote| {
            let mine = vote.committed && vote.leader_id.voted_for == me.0;
            mine && crate::sim::breaks(crate::sim::Broken::RestoredLeader)
        });
        let founding = recovered.founding.take();
        let founding = founding.filter(|founding| recovered.is_as_before(founding));
        let term = match &founding {
            Some(_) => founding::TERM,
            None => recovered.vote.map_or(0, |(vote, _)| vote.leader_id.term),
        };
        let ballot = Ballot::new(id, Arc::clone(&shared.alarm));
        let seat = Arc::new(Seat::new(me, member, term, ballot));
        let class = match care {
            Care::Supervised => Class::Bulk,
            Care::Heartbeats => Class::Vital,
        };
        let (disk, at) = (shared.disk.clone(), Arc::clone(&seat));
        let stream = recovered.stream.unwrap_or_else(|| id.stream());
        let address = Address::new(recovered.address.unwrap_or(id));
        let log = Arc::new(GroupLog::new(stream, class, disk, at, recovered));
        seat.call(|member| member.opened(Records { log: Arc::clone(&log) }));
        let failed = |error: &dyn fmt::Display| StartError::Failed(id, error.to_string());
        let progress = Arc::<Mutex<Progress>>::default();
        let may_sleep = care == Care::Supervised && shared.options.rest.after.is_some();
        #[cfg(feature = "sim")]
        let may_sleep = may_sleep && resumed.is_none();
        #[cfg(feature = "sim")]
        let is_loaded = resumed.is_none();
        #[cfg(not(feature = "sim"))]
        let is_loaded = true;
        let summary = if let Some(founding) = &founding {
            log.begin(founding);
            seat.on_members(&founding.membership());
            let leads = founding.is_led && founding.first() == Some(me);
            if leads {
                seat.begin_to_lead(founding::TERM);
            }
            founding.summary(leads)
        } else if is_loaded {
            load(&log, &seat, &progress).await.map_err(|error| failed(&error))?
        } else {
            Summary::default()
        };
        let group = Arc::new(Group {
            id,
            address,
            care,
            host: Arc::downgrade(shared),
            log,
            seat,
            progress,
            life: Life::new(summary),
            sessions: Mutex::default(),
            inbox: Inbox::default(),
            heard: Mutex::default(),
            vigil: Mutex::default(),
            receiving: Mutex::default(),
        });
        if let Some(founding) = founding.as_ref().filter(|founding| founding.is_led)
            && let Some(first) = founding.first().filter(|first| *first != me)
        {
            shared.on_heard(&group, first, founding::TERM, 0);
            group.seat.on_leader(founding::TERM, first);
        }
        if let Err(error) = shared.add(&group) {
            group.stop().await;
            return Err(error);
        }
        let address = group.address.get();
        shared.moved_to(id, address);
        // It is found from now on: a leader that wakes speaks at once, and may be answered at once.
        if !may_sleep && let Err(error) = group.wake().await {
            shared.remove(&group);
            return Err(failed(&error));
        }
        #[cfg(feature = "sim")]
        if let Some(vote) = resumed {
            group.seat.on_vote(vote);
        }
        for waiting in shared.awaited.lock().remove(&address).unwrap_or_default() {
            drop(waiting.send(Arc::clone(&group)));
        }
        if founding.is_some() && shared.options.rest.after.is_some() {
            shared.begun.lock().push(id);
        } else if founding.is_some() {
            // Nobody comes by who does that later.
            group.log.write_down();
        }
        shared.alarm.ring_for(id);
        Ok(())
    }

    /// Founds a group, on one of its members; the others just start it. This node stands for
    /// election in it. Doing it again does nothing.
    ///
    /// # Errors
    /// If the group is not started here, or this node is not among the members.
    pub async fn initialise(&self, id: GroupId, members: &[NodeId]) -> Result<(), GroupError> {
        let group = self.group(id)?;
        // openraft stands by itself after the founding entry; the supervisor gives it time.
        group.seat.ballot.open(Vec::new());
        let nodes: BTreeMap<u64, ()> = members.iter().map(|node| (node.0, ())).collect();
        match group.wake().await?.raft.initialize(nodes).await {
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {
                self.shared.alarm.ring_for(id);
                Ok(())
            }
            Err(error) => Err(GroupError::Refused(error.to_string())),
        }
    }

    /// Stands for election, whoever leads; the others vote only if they lost the leader too.
    ///
    /// # Errors
    /// If the group is not started here, or has stopped.
    pub async fn elect(&self, id: GroupId) -> Result<(), GroupError> {
        self.group(id)?.elect(0).await
    }

    /// Wakes a group that sleeps. If it leads, it tells members the log that lack some of it, and stays
    /// awake for that for a while.
    ///
    /// # Errors
    /// If it is not started here, or cannot wake.
    pub async fn rouse(&self, id: GroupId) -> Result<(), GroupError> {
        self.group(id)?.wake().await.map(drop)
    }

    /// Proposes an entry. Never blocks; the caller bounds what is under way. It learns the outcome
    /// from its member: `committed`, or the loss of the leadership by `role`.
    ///
    /// # Errors
    /// If this node does not lead.
    pub fn propose(&self, id: GroupId, payload: Bytes) -> Result<(), NotLeader> {
        let group = self.shared.group(id).ok_or(NotLeader)?;
        group.propose(payload)
    }

    /// Somebody waits for a leader of the group: it is seen to before others.
    pub fn want(&self, id: GroupId) {
        if let Some(group) = self.shared.group(id) {
            group.seat.on_wanted();
            self.shared.alarm.ring_for(id);
        }
    }

    /// Stops a group on this node; it can be started again.
    pub async fn stop(&self, id: GroupId) {
        let group = self.shared.groups.write().remove(&id);
        if let Some(group) = group {
            self.shared.moved_to(id, id);
            group.stop().await;
        }
    }

    /// Stops all groups on this node, for good: none can be started any more, and all other nodes
    /// count as lost. Then nothing of this host holds the log.
    pub async fn close(&self) {
        let groups: Vec<Arc<Group>> = {
            // Both locks, or somebody could begin to wait in between.
            let mut awaited = self.shared.awaited.lock();
            let groups = self.shared.groups.write();
            self.shared.closed.store(true, Ordering::Release);
            awaited.clear();
            groups.values().cloned().collect()
        };
        self.shared.write_down();
        for node in self.shared.links.up() {
            self.on_down(node);
        }
        self.shared.groups.write().clear();
        let stop = |group: Arc<Group>| async move { group.stop().await };
        stream::iter(groups).map(stop).buffer_unordered(STOPS).collect::<()>().await;
    }

    /// Stops a group on this node and forgets it in the journal.
    pub async fn delete(&self, id: GroupId) {
        let group = self.shared.group(id);
        self.stop(id).await;
        if let Some(group) = group {
            group.log.delete();
        }
    }

    /// What this node is in a group.
    pub fn role(&self, id: GroupId) -> Option<Role> {
        Some(self.shared.group(id)?.seat.role())
    }

    /// A node is connected.
    pub fn on_up(&self, node: NodeId) {
        self.shared.links.on_up(node);
        self.shared.alarm.ring();
    }

    /// A node is lost.
    pub fn on_down(&self, node: NodeId) {
        self.shared.links.on_down(node);
        for group in self.shared.all() {
            group.inbox.on_down(node);
            Receiving::on_down(&mut group.receiving.lock(), &group.log, node);
            if group.care == Care::Supervised {
                self.shared.on_lost(&group, node);
            }
        }
        self.shared.alarm.ring();
    }

    /// Messages of another host, in the order in which it sent them.
    pub fn on_messages(&self, from: NodeId, messages: &mut Vec<Bytes>) {
        for bytes in messages.drain(..) {
            match Message::decode(bytes) {
                Ok(message) => self.on_message(from, message),
                Err(error) => tracing::error!(%from, %error, "a message of another node"),
            }
        }
    }

    fn on_message(&self, from: NodeId, message: Message) {
        match message {
            Message::Append { group, session, number, request } => {
                let transport = Arc::clone(&self.shared.transport);
                let origin = Origin { group, from, session, transport };
                match self.shared.at(group) {
                    Some(group) => {
                        // A stream never outlives its connection.
                        if number == 0 {
                            let term = request.vote.leader_id.term;
                            self.shared.on_heard(&group, from, term, session);
                            // One that was away for a while knows the term already, and saves no
                            // vote that would tell it who leads.
                            group.seat.on_leader(term, from);
                        }
                        group.feed(|raft| group.inbox.on_append(raft, &origin, number, request));
                    }
                    None if number == 0 => self.end_once_started(origin),
                    // The first of the session is waited for.
                    None => {}
                }
            }
            Message::Appended { group, session, number, result } => {
                if let Some(group) = self.shared.at(group) {
                    group.on_answer(session, Answer::Appended(number, result));
                }
            }
            Message::Ended { group, session } => {
                if let Some(group) = self.shared.at(group) {
                    group.on_answer(session, Answer::Ended);
                }
            }
            Message::Closed { group, session } => {
                if let Some(group) = self.shared.at(group) {
                    group.inbox.on_closed(from, session);
                    self.shared.on_silent(&group, from, session);
                }
            }
            Message::Rests { group, session, term } => {
                if let Some(group) = self.shared.at(group) {
                    group.inbox.on_closed(from, session);
                    group.on_rest(from, term);
                }
            }
        }
    }

    /// Lets a leader begin again once the group is there.
    fn end_once_started(&self, origin: Origin) {
        let shared = Arc::clone(&self.shared);
        drop(Types::spawn(async move {
            // Found or not, the leader tries again; it slows down by itself.
            drop(shared.started(origin.group).await);
            origin.end();
        }));
    }

    /// A request of another host. The answer may come later, from anywhere; a reply that is
    /// dropped refuses it.
    pub fn on_request(&self, from: NodeId, payload: Bytes, reply: Reply) {
        let request = match Request::decode(payload) {
            Ok(request) => request,
            Err(error) => return tracing::error!(%from, %error, "a request of another node"),
        };
        let shared = Arc::clone(&self.shared);
        drop(Types::spawn(async move {
            if let Some(answer) = shared.serve(from, request).await {
                reply(answer);
            }
        }));
    }

    pub(crate) fn group(&self, id: GroupId) -> Result<Arc<Group>, GroupError> {
        self.shared.group(id).ok_or(GroupError::Unknown(id))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The supervisor finds nothing more to see to, and ends.
        self.alarm.ring();
    }
}

impl Shared {
    pub(crate) fn group(&self, id: GroupId) -> Option<Arc<Group>> {
        self.groups.read().get(&id).cloned()
    }

    /// The group that is reached by an address.
    pub(crate) fn at(&self, address: GroupId) -> Option<Arc<Group>> {
        let id = self.moved.read().get(&address).copied().unwrap_or(address);
        self.group(id).filter(|group| group.address.get() == address)
    }

    /// From now on a group is reached by this address alone.
    pub(crate) fn moved_to(&self, id: GroupId, address: GroupId) {
        let mut moved = self.moved.write();
        moved.retain(|_, group| *group != id);
        if address != id {
            moved.insert(address, id);
        }
    }

    /// From now on the group is there, unless somebody else has started it meanwhile; then this one
    /// was never heard of.
    fn add(&self, group: &Arc<Group>) -> Result<(), StartError> {
        let mut groups = self.groups.write();
        if self.is_closed() {
            return Err(StartError::Failed(group.id, "the node is shutting down".into()));
        }
        match groups.entry(group.id) {
            Entry::Occupied(_) => Err(StartError::Started(group.id)),
            Entry::Vacant(place) => {
                place.insert(Arc::clone(group));
                Ok(())
            }
        }
    }

    /// The group has never come to be.
    fn remove(&self, group: &Arc<Group>) {
        let mut groups = self.groups.write();
        if groups.get(&group.id).is_some_and(|one| Arc::ptr_eq(one, group)) {
            groups.remove(&group.id);
            self.moved_to(group.id, group.id);
        }
    }

    /// Hands over to the journal how groups have begun. Nobody waits for that.
    pub(crate) fn write_down(&self) {
        for id in std::mem::take(&mut *self.begun.lock()) {
            if let Some(group) = self.group(id) {
                group.log.write_down();
            }
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Group>> {
        self.groups.read().values().cloned().collect()
    }

    /// A group, as soon as it is started, by its address.
    async fn started(&self, id: GroupId) -> Option<Arc<Group>> {
        let waiting = {
            // Both locks, or the group could be started in between.
            let mut awaited = self.awaited.lock();
            if let Some(group) = self.at(id) {
                return Some(group);
            }
            if self.is_closed() {
                return None;
            }
            let (sender, waiting) = oneshot::channel();
            let waiters = awaited.entry(id).or_default();
            waiters.retain(|waiter| !waiter.is_closed());
            waiters.push(sender);
            waiting
        };
        let started = Types::timeout(START_WAIT, waiting).await.ok().and_then(Result::ok);
        if started.is_none() {
            // It may never be started, or asked for again.
            let mut awaited = self.awaited.lock();
            if let Some(waiters) = awaited.get_mut(&id) {
                waiters.retain(|waiter| !waiter.is_closed());
                if waiters.is_empty() {
                    awaited.remove(&id);
                }
            }
        }
        started
    }

    /// A leader has spoken as such.
    pub(crate) fn on_heard(&self, group: &Group, leader: NodeId, term: u64, session: u64) {
        let Some(link) = self.links.number(leader) else { return };
        let mut heard = group.heard.lock();
        // An answer says nothing about a stream that is there, whose end will be heard.
        let is_known = |heard: Heard| {
            session == 0 && (heard.leader, heard.term, heard.link) == (leader, term, link)
        };
        if heard.is_none_or(|heard| heard.term <= term && !is_known(heard)) {
            *heard = Some(Heard { leader, term, link, session });
        }
    }

    /// A node is lost: if it led, nobody is known to; if this one leads and has no majority any more,
    /// it does not.
    fn on_lost(&self, group: &Group, node: NodeId) {
        group.seat.on_lost(node);
        if group.abdicates_in_sleep(|node| self.is_up(node)) {
            return;
        }
        let Some(term) = group.seat.won() else { return };
        if !self.has_majority(group) {
            group.seat.leave();
            group.vigil.lock().alone = Some(term);
        }
    }

    /// The leader ended the stream by which it was heard. It may begin another, or give its place
    /// to somebody, or have stopped: the supervisor asks.
    fn on_silent(&self, group: &Group, leader: NodeId, session: u64) {
        let mut heard = group.heard.lock();
        let is_it = |heard: Heard| {
            heard.leader == leader && (heard.session == session || heard.session == 0)
        };
        if heard.is_some_and(is_it) {
            *heard = None;
            self.alarm.ring_for(group.id);
        }
    }

    async fn serve(&self, from: NodeId, request: Request) -> Option<Bytes> {
        match request {
            Request::Vote { group, request } => {
                let group = self.started(group).await?;
                let response = self.vote(&group, from, request).await?;
                Some(rpc::encode_vote_response(&response))
            }
            Request::PreVote { group, request } => {
                let group = self.started(group).await?;
                let response = group.wake().await.ok()?.raft.pre_vote(request).await.ok()?;
                Some(rpc::encode_vote_response(&response))
            }
            Request::Transfer { group, request } => {
                let group = self.started(group).await?;
                // Only the leader itself names its heir.
                if request.from_leader().leader_id.voted_for != from.0 {
                    return None;
                }
                let awake = group.wake().await.ok()?;
                awake.raft.handle_transfer_leader(request).await.ok()?.ok()?;
                Some(Bytes::new())
            }
            Request::Ask { groups } => Some(rpc::encode_words(&self.words(from, &groups))),
            Request::Piece { group, session, number, piece } => {
                let group = self.started(group).await?;
                group.on_piece(from, session, number, piece).await
            }
        }
    }

    async fn vote(
        &self,
        group: &Arc<Group>,
        from: NodeId,
        mut request: VoteRequest,
    ) -> Option<VoteResponse> {
        if group.care == Care::Heartbeats {
            // The heartbeats of a leader whose node is lost are not waited for.
            let leader = group.log.vote().filter(|vote| vote.committed);
            let leader = leader.map(|vote| NodeId(vote.leader_id.voted_for));
            if leader.is_some_and(|leader| {
                leader != self.options.me && self.links.number(leader).is_none()
            }) {
                request.leadership_transfer = true;
            }
            return group.wake().await.ok()?.raft.vote(request).await.ok();
        }
        let voters = group.voters();
        let electorate = self.electorate(group, &voters);
        match electorate.admits(from, &request, |node| self.links.number(node)) {
            Ok(()) => {
                // If that one does not win, somebody must.
                self.alarm.ring_for(group.id);
                // The guard stands in for the lease, which never expires.
                request.leadership_transfer = true;
                group.wake().await.ok()?.raft.vote(request).await.ok()
            }
            Err(refusal) => {
                tracing::info!(group = %group.id, %from, ?refusal, "no vote");
                let mine = group.log.vote().unwrap_or_else(|| vote(0, self.options.me.0, false));
                Some(VoteResponse::new(mine, group.log.last(), false))
            }
        }
    }
}

impl Shared {
    /// What this node knows when it is asked for a vote.
    pub(crate) fn electorate<'a>(&self, group: &Group, voters: &'a [NodeId]) -> Electorate<'a> {
        Electorate {
            me: self.options.me,
            vote: group.log.vote(),
            leads: self.leads(group),
            voters,
            heard: *group.heard.lock(),
        }
    }
}

impl Group {
    /// Milliseconds since the host began.
    pub(crate) fn now(&self) -> u64 {
        let began = self.host.upgrade().map(|shared| shared.began.elapsed());
        began.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// A follower answers.
    fn on_answer(&self, session: u64, answer: Answer) {
        // A leader that sleeps has asked nothing.
        let sessions = self.sessions.lock().clone();
        if let Some(sessions) = sessions {
            sessions.on_answer(session, answer);
        }
    }

    /// The leader sleeps, and is heard all the same: by its word, since there is no stream.
    fn on_rest(&self, leader: NodeId, term: u64) {
        let mut heard = self.heard.lock();
        if let Some(heard) = heard.as_mut()
            && (heard.leader, heard.term) == (leader, term)
        {
            heard.session = 0;
        }
        drop(heard);
        self.may_rest();
    }

    /// Stands for election in a term above this one.
    pub(crate) async fn elect(self: &Arc<Self>, above: u64) -> Result<(), GroupError> {
        if self.log.vote().map_or(0, |vote| vote.leader_id.term) < above {
            self.raise(above).await?;
        }
        self.seat.ballot.open(self.electors());
        let elected = self.wake().await?.raft.trigger().elect(false).await;
        elected.map_err(|error| GroupError::Refused(error.to_string()))
    }

    /// Ends what this node was or voted for in earlier terms: it votes in this one, for nobody. A vote
    /// for somebody who did not ask, and is not told, can do no harm.
    pub(crate) async fn raise(self: &Arc<Self>, term: u64) -> Result<(), GroupError> {
        let request = VoteRequest {
            vote: vote(term, u64::MAX, false),
            // No log of this node is longer, whatever is being appended.
            last_log_id: Some(log_id(term, u64::MAX)),
            leadership_transfer: true,
        };
        let voted = self.wake().await?.raft.vote(request).await;
        voted.map(drop).map_err(|error| GroupError::Refused(error.to_string()))
    }

    /// The sets of voters of the newest membership, committed or not: each has to agree.
    pub(crate) fn electors(&self) -> Vec<BTreeSet<NodeId>> {
        life::electors(&self.membership())
    }

    /// Whether a node has a vote in the newest membership, committed or not.
    pub(crate) fn is_voter(&self, node: NodeId) -> bool {
        self.membership().membership().get_joint_config().iter().any(|set| set.contains(&node.0))
    }

    /// The voters of the newest membership, committed or not.
    pub(crate) fn voters(&self) -> Vec<NodeId> {
        self.membership().membership().voter_ids().map(NodeId).collect()
    }
}

impl Group {
    /// Takes a piece of a checkpoint from another node. No answer refuses it.
    async fn on_piece(
        self: &Arc<Self>,
        from: NodeId,
        session: u64,
        number: u64,
        piece: Piece,
    ) -> Option<Bytes> {
        let awake = self.wake().await.ok()?;
        let received = {
            let mut receiving = self.receiving.lock();
            Receiving::take(&mut receiving, &self.log, from, session, number, piece)?
        };
        let vote = match received {
            Received::More { stored } => {
                // A disk that is slower than the net, or full, holds up the sender.
                self.log.reached(stored).await.ok()?;
                return Some(Bytes::new());
            }
            Received::All(complete) => bringup::install(&awake.raft, &self.log, *complete).await?,
        };
        Some(rpc::encode_vote(&vote))
    }
}
