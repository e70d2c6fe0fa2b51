//! Nodes in one process: journals and a network in memory, members that remember what they got.

use crate::founding::Founding;
use crate::group::GroupId;
use crate::grouplog::Limits;
use crate::host::{Care, Host, Options};
use crate::log::{Log, Then};
use crate::member::{
    Body, BodyPlace, Boxed, Committed, Member, NotConnected, RequestError, Role, Transport,
};
use crate::records::Records;
use crate::recovered::Recovered;
use crate::rest::Rest;
use crate::watermark::Watermark;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use journal::error::ReadError;
use journal::op::{Class, Lsn, Op, Payload};
use model::id::{NodeId, Seq, StreamId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

/// How long anything may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A journal in memory. What was not synced is lost by a crash.
pub(crate) struct MemoryLog {
    watermark: Arc<Watermark>,
    state: Mutex<LogState>,
}

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fault of its own")]
struct LogState {
    records: BTreeMap<(StreamId, Seq), (Vec<u8>, Bytes)>,
    highest: BTreeMap<StreamId, Seq>,
    waiting: Vec<(Lsn, Vec<Op>)>,
    next: u64,
    /// Whether nothing is synced for now.
    held: bool,
    /// Whether there is no room for bulk puts, and those that wait for it.
    full: bool,
    homeless: Vec<(Lsn, Op)>,
    /// Whether nothing can be read.
    unreadable: bool,
    dead: bool,
}

impl MemoryLog {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { watermark: Arc::default(), state: Mutex::default() })
    }

    pub(crate) fn watermark(&self) -> Arc<Watermark> {
        Arc::clone(&self.watermark)
    }

    /// Lets everything wait for the disk, or no longer.
    pub(crate) fn hold(&self, held: bool) {
        self.state.lock().held = held;
        if !held {
            self.sync();
        }
    }

    /// Lets bulk puts wait for room, while all else goes past them, or no longer.
    pub(crate) fn fill(&self, full: bool) {
        let mut state = self.state.lock();
        state.full = full;
        let homeless = if full { Vec::new() } else { std::mem::take(&mut state.homeless) };
        let last = homeless.last().map(|(lsn, _)| *lsn);
        for (_, op) in homeless {
            state.apply(op);
        }
        drop(state);
        if let Some(last) = last {
            self.watermark.advance(last);
        }
    }

    /// Bytes of what waits for the disk.
    pub(crate) fn waiting(&self) -> usize {
        let bytes = |op: &Op| match op {
            Op::Put { payload: Payload::Bytes(bytes), .. } => bytes.len(),
            _ => 0,
        };
        self.state.lock().waiting.iter().flat_map(|(_, ops)| ops).map(bytes).sum()
    }

    /// Lets every read fail, or none.
    pub(crate) fn hide(&self, hidden: bool) {
        self.state.lock().unreadable = hidden;
    }

    pub(crate) fn sync(&self) {
        let mut state = self.state.lock();
        let Some((last, _)) = state.waiting.last() else { return };
        let last = *last;
        for (lsn, ops) in std::mem::take(&mut state.waiting) {
            for op in ops {
                if state.full && matches!(op, Op::Put { class: Class::Bulk, .. }) {
                    state.homeless.push((lsn, op));
                } else {
                    state.apply(op);
                }
            }
        }
        let durable = state.homeless.first().map_or(last, |(lsn, _)| Lsn(lsn.0 - 1));
        drop(state);
        self.watermark.advance_vital(last);
        self.watermark.advance(durable);
    }

    /// The machine dies; what was synced is in the log that it gives.
    pub(crate) fn crash(&self) -> Arc<Self> {
        let mut state = self.state.lock();
        state.dead = true;
        let after = LogState {
            records: state.records.clone(),
            highest: state.highest.clone(),
            ..LogState::default()
        };
        drop(state);
        self.watermark.fail(&io::Error::other("the machine died"));
        Arc::new(Self { watermark: Arc::default(), state: Mutex::new(after) })
    }

    pub(crate) fn recovered(&self, stream: StreamId) -> Recovered {
        let state = self.state.lock();
        let mut recovered = Recovered::new(state.highest.get(&stream).copied().unwrap_or(Seq(0)));
        for ((_, seq), (head, payload)) in state.stream(stream) {
            recovered.note(*seq, head, u32::try_from(payload.len()).unwrap());
        }
        recovered
    }

    /// The positions of a stream's records.
    pub(crate) fn positions(&self, stream: StreamId) -> Vec<Seq> {
        self.state.lock().stream(stream).map(|((_, seq), _)| *seq).collect()
    }
}

impl LogState {
    fn stream(
        &self,
        stream: StreamId,
    ) -> impl Iterator<Item = (&(StreamId, Seq), &(Vec<u8>, Bytes))> {
        self.records.range((stream, Seq(0))..=(stream, Seq(u64::MAX)))
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Put { stream, seq, class, head, payload } => {
                let highest = self.highest.entry(stream).or_insert(Seq(0));
                let late = *highest >= seq;
                assert!(!late || class == Class::Bulk, "positions ascend: {seq} after {highest}");
                *highest = seq.max(*highest);
                let Payload::Bytes(bytes) = payload else { panic!("groups put bytes") };
                self.records.insert((stream, seq), (head.as_slice().to_vec(), bytes));
            }
            Op::Note { stream, seq, bytes } => {
                if let Some((head, _)) = self.records.get_mut(&(stream, seq)) {
                    *head = bytes.as_slice().to_vec();
                }
            }
            Op::Release { stream, first, last } => {
                let gone: Vec<_> = self
                    .records
                    .range((stream, first)..=(stream, last))
                    .map(|(key, _)| *key)
                    .collect();
                for key in gone {
                    self.records.remove(&key);
                }
            }
            Op::Drop { stream } => self.records.retain(|(other, _), _| *other != stream),
        }
    }
}

impl Log for MemoryLog {
    fn submit(&self, ops: Vec<Op>) -> Lsn {
        let mut state = self.state.lock();
        state.next += 1;
        let lsn = Lsn(state.next);
        if state.dead {
            return lsn;
        }
        state.waiting.push((lsn, ops));
        let held = state.held;
        drop(state);
        if !held {
            self.sync();
        }
        lsn
    }

    fn read(&self, stream: StreamId, seqs: &[Seq], out: &mut Vec<Result<Bytes, ReadError>>) {
        let state = self.state.lock();
        for seq in seqs {
            let record = state.records.get(&(stream, *seq)).filter(|_| !state.unreadable);
            out.push(record.map(|(_, payload)| payload.clone()).ok_or(ReadError::Missing));
        }
    }

    /// At once: a clock that is paused does not wait for other threads.
    fn read_later(self: Arc<Self>, stream: StreamId, seqs: Vec<Seq>, then: Then) {
        let mut out = Vec::new();
        self.read(stream, &seqs, &mut out);
        then(out);
    }
}

/// What a member got.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Got {
    /// Proposals with their index; a hash stands for long ones.
    pub(crate) entries: Vec<(u64, Bytes)>,
    pub(crate) last: Option<u64>,
    pub(crate) role: Option<Role>,
    pub(crate) roles: Vec<Role>,
    pub(crate) voters: Vec<NodeId>,
    pub(crate) learners: Vec<NodeId>,
    pub(crate) purged: u64,
    pub(crate) installs: u32,
    pub(crate) bodies: Vec<Body>,
    /// Live entries: where their bodies lie.
    pub(crate) places: BTreeMap<u64, Seq>,
    pub(crate) failed: Option<String>,
}

/// A member that remembers all proposals, short ones in full.
pub(crate) struct Recorder {
    pub(crate) got: watch::Sender<Got>,
    pub(crate) records: Mutex<Option<Records>>,
    /// Whether entries may come with gaps.
    lenient: bool,
}

/// What is remembered of a payload.
pub(crate) fn digest(payload: &Bytes) -> Bytes {
    if payload.len() <= 64 {
        return payload.clone();
    }
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    payload.iter().for_each(|byte| hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    Bytes::from(format!("{} bytes {hash:016x}", payload.len()))
}

impl Recorder {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self::with(false))
    }

    /// One that takes entries with gaps.
    pub(crate) fn lenient() -> Arc<Self> {
        Arc::new(Self::with(true))
    }

    fn with(lenient: bool) -> Self {
        Self { got: watch::Sender::new(Got::default()), records: Mutex::default(), lenient }
    }

    pub(crate) async fn until(&self, what: &str, is_so: impl FnMut(&Got) -> bool) -> Got {
        let mut got = self.got.subscribe();
        let waited = tokio::time::timeout(PATIENCE, got.wait_for(is_so)).await;
        if let Ok(got) = waited {
            return got.expect("the recorder lives").clone();
        }
        let got = self.got.borrow();
        let (count, last, role) = (got.entries.len(), got.last, &got.roles);
        panic!("never {what}: {count} entries, last {last:?}, roles {role:?}")
    }
}

impl Member for Recorder {
    fn opened(&self, records: Records) {
        *self.records.lock() = Some(records);
    }

    fn committed(&self, entries: Vec<Committed>) {
        self.got.send_modify(|got| {
            for entry in entries {
                let expected = got.last.map_or(0, |last| last + 1);
                assert!(self.lenient || entry.index == expected, "entries come in order");
                got.last = Some(entry.index);
                if !entry.payload.is_empty() {
                    got.entries.push((entry.index, digest(&entry.payload)));
                    got.places.insert(entry.index, entry.position);
                }
            }
        });
    }

    fn role(&self, role: Role) {
        self.got.send_modify(|got| {
            got.role = Some(role);
            got.roles.push(role);
        });
    }

    fn checkpoint(&self, answer: oneshot::Sender<Bytes>) {
        let got = self.got.borrow();
        let mut bytes = BytesMut::new();
        for (index, entry) in &got.entries {
            bytes.put_u64_le(*index);
            bytes.put_u32_le(u32::try_from(entry.len()).unwrap());
            bytes.put_slice(entry);
        }
        drop(answer.send(bytes.freeze()));
    }

    fn install(&self, index: u64, mut state: Bytes, bodies: Vec<Body>, done: oneshot::Sender<()>) {
        self.got.send_modify(|got| {
            got.entries.clear();
            while state.has_remaining() {
                let (index, length) = (state.get_u64_le(), state.get_u32_le());
                got.entries.push((index, state.split_to(length as usize)));
            }
            got.last = Some(index);
            got.installs += 1;
            got.places = bodies
                .iter()
                .map(|body| match *body {
                    Body::Entry { index, position } => (index, position),
                    Body::Carried { name, position } => (name, position),
                })
                .collect();
            got.bodies = bodies;
        });
        done.send(()).ok();
    }

    fn export(&self, state: &Bytes) -> Vec<(u64, BodyPlace)> {
        // Every entry's body, whole; half of them as bytes at hand.
        let mut state = state.clone();
        let got = self.got.borrow();
        let mut out = Vec::new();
        while state.has_remaining() {
            let (index, length) = (state.get_u64_le(), state.get_u32_le());
            let entry = state.split_to(length as usize);
            if let Some(position) =
                got.places.get(&index).filter(|_| entry.len() == length as usize)
            {
                let place = if index % 2 == 0 && entry.len() <= 64 {
                    BodyPlace::Bytes(entry)
                } else {
                    BodyPlace::Record { position: *position, offset: 0, length: u32::MAX }
                };
                out.push((index, place));
            }
        }
        out
    }

    fn purged(&self, upto: u64) {
        self.got.send_modify(|got| got.purged = upto);
    }

    fn members(&self, voters: Vec<NodeId>, learners: Vec<NodeId>) {
        self.got.send_modify(|got| (got.voters, got.learners) = (voters, learners));
    }

    fn failed(&self, error: String) {
        self.got.send_modify(|got| got.failed = Some(error));
    }
}

/// The network: one queue per ordered pair of nodes.
#[derive(Default)]
pub(crate) struct Net {
    state: Mutex<NetState>,
}

#[derive(Default)]
struct NetState {
    hosts: BTreeMap<NodeId, Host>,
    queues: BTreeMap<(NodeId, NodeId), mpsc::UnboundedSender<(Instant, Bytes)>>,
    requests: u64,
    messages: u64,
    /// How long everything takes from one node to another.
    delay: Duration,
    /// From which node to which one there is no room for more appends.
    crowded: BTreeSet<(NodeId, NodeId)>,
    /// Nodes whose messages are lost although they are connected.
    mute: BTreeSet<NodeId>,
}

/// One node's end of the network.
pub(crate) struct Port {
    me: NodeId,
    net: Weak<Net>,
}

impl Net {
    pub(crate) fn is_connected(&self, one: NodeId, other: NodeId) -> bool {
        self.state.lock().queues.contains_key(&(one, other))
    }

    /// How many messages were sent so far.
    pub(crate) fn messages(&self) -> u64 {
        self.state.lock().messages
    }

    /// How many requests were sent so far.
    pub(crate) fn requests(&self) -> u64 {
        self.state.lock().requests
    }

    /// From now on what a node sends is lost. It hears that as little as the others do.
    pub(crate) fn mute(&self, id: NodeId) {
        self.state.lock().mute.insert(id);
    }

    /// From now on nothing more of what can wait goes from one node to another, or it does again.
    pub(crate) fn crowd(&self, from: NodeId, to: NodeId, crowded: bool) {
        let mut state = self.state.lock();
        if crowded {
            state.crowded.insert((from, to));
        } else {
            state.crowded.remove(&(from, to));
        }
    }

    /// A node is heard again.
    pub(crate) fn unmute(&self, id: NodeId) {
        self.state.lock().mute.remove(&id);
    }

    /// From now on everything takes so long from one node to another.
    pub(crate) fn delay(&self, delay: Duration) {
        self.state.lock().delay = delay;
    }

    /// Connects two nodes, if they are not.
    pub(crate) fn connect(&self, one: NodeId, other: NodeId) {
        if self.is_connected(one, other) {
            return;
        }
        let mut ups = Vec::new();
        let mut starts = Vec::new();
        let mut state = self.state.lock();
        for (from, to) in [(one, other), (other, one)] {
            let (Some(_), Some(host)) = (state.hosts.get(&from), state.hosts.get(&to)) else {
                return;
            };
            let host = host.clone();
            let (sender, receiver) = mpsc::unbounded_channel::<(Instant, Bytes)>();
            ups.push((host.clone(), from));
            starts.push((host, from, receiver));
            state.queues.insert((from, to), sender);
        }
        drop(state);
        for (host, from) in ups {
            host.on_up(from);
        }
        for (host, from, mut receiver) in starts {
            tokio::spawn(async move {
                let mut batch = Vec::new();
                while receiver.recv_many(&mut batch, 64).await > 0 {
                    for (due, message) in batch.drain(..) {
                        if due > Instant::now() {
                            tokio::time::sleep_until(due).await;
                        }
                        host.on_messages(from, &mut vec![message]);
                    }
                }
            });
        }
    }

    /// Cuts two nodes from each other; what is under way is lost.
    pub(crate) fn cut(&self, one: NodeId, other: NodeId) {
        let mut downs = Vec::new();
        let mut state = self.state.lock();
        for (from, to) in [(one, other), (other, one)] {
            if state.queues.remove(&(from, to)).is_some() {
                downs.extend(state.hosts.get(&to).map(|host| (host.clone(), from)));
            }
        }
        drop(state);
        for (host, from) in downs {
            host.on_down(from);
        }
    }
}

impl Transport for Port {
    fn send(&self, to: NodeId, payload: Bytes) -> Result<(), NotConnected> {
        let net = self.net.upgrade().ok_or(NotConnected)?;
        let mut state = net.state.lock();
        state.messages += 1;
        if state.mute.contains(&self.me) {
            return Ok(());
        }
        let due = Instant::now() + state.delay;
        let queue = state.queues.get(&(self.me, to)).ok_or(NotConnected)?;
        queue.send((due, payload)).map_err(|_| NotConnected)
    }

    fn has_room(&self, to: NodeId) -> bool {
        self.net.upgrade().is_none_or(|net| !net.state.lock().crowded.contains(&(self.me, to)))
    }

    fn room(&self, to: NodeId) -> Boxed<()> {
        let way = (self.me, to);
        let net = self.net.clone();
        Box::pin(async move {
            while net.upgrade().is_some_and(|net| net.state.lock().crowded.contains(&way)) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
    }

    fn request(
        &self,
        to: NodeId,
        payload: Bytes,
        within: Duration,
    ) -> Boxed<Result<Bytes, RequestError>> {
        let (net, me) = (self.net.clone(), self.me);
        Box::pin(async move {
            let net = net.upgrade().ok_or(RequestError::NotConnected)?;
            let (host, delay) = {
                let mut state = net.state.lock();
                if !state.queues.contains_key(&(me, to)) {
                    return Err(RequestError::NotConnected);
                }
                state.requests += 1;
                let host = state.hosts.get(&to).cloned().ok_or(RequestError::NotConnected)?;
                (host, state.delay)
            };
            let (sender, answer) = oneshot::channel();
            let answered = async move {
                under_way(delay).await;
                host.on_request(me, payload, Box::new(move |bytes| drop(sender.send(bytes))));
                let answer = answer.await;
                under_way(delay).await;
                answer
            };
            match tokio::time::timeout(within, answered).await {
                Ok(Ok(_)) if !net.is_connected(me, to) => Err(RequestError::NotConnected),
                Ok(Ok(bytes)) => Ok(bytes),
                Ok(Err(_)) => Err(RequestError::Refused("dropped".into())),
                Err(_) => Err(RequestError::TimedOut),
            }
        })
    }
}

async fn under_way(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}

/// A network without other nodes.
pub(crate) struct Lonely;

impl Transport for Lonely {
    fn send(&self, _: NodeId, _: Bytes) -> Result<(), NotConnected> {
        Err(NotConnected)
    }

    fn has_room(&self, _: NodeId) -> bool {
        true
    }

    fn room(&self, _: NodeId) -> Boxed<()> {
        Box::pin(std::future::ready(()))
    }

    fn request(&self, _: NodeId, _: Bytes, _: Duration) -> Boxed<Result<Bytes, RequestError>> {
        Box::pin(std::future::ready(Err(RequestError::NotConnected)))
    }
}

/// A node.
pub(crate) struct Node {
    pub(crate) log: Arc<MemoryLog>,
    pub(crate) host: Host,
    pub(crate) members: BTreeMap<GroupId, Arc<Recorder>>,
}

/// Some nodes.
pub(crate) struct Cluster {
    pub(crate) net: Arc<Net>,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    pub(crate) care: Care,
    /// What is on the disks of nodes that died.
    graves: BTreeMap<NodeId, Arc<MemoryLog>>,
    pub(crate) checkpoint_entries: u64,
    keep_entries: u64,
    pub(crate) rest: Rest,
}

pub(crate) fn node(number: u64) -> NodeId {
    NodeId(number)
}

pub(crate) const GROUP: GroupId = GroupId(77);

pub(crate) const LIMITS: Limits = Limits {
    checkpoint_entries: u64::MAX,
    checkpoint_bytes: u64::MAX,
    keep_entries: 0,
    keep_bytes: 0,
};

impl Cluster {
    /// Connected nodes, numbered from 1, without groups.
    pub(crate) fn new(count: u64) -> Self {
        let mut cluster = Self {
            net: Arc::default(),
            nodes: BTreeMap::new(),
            care: Care::Supervised,
            graves: BTreeMap::new(),
            checkpoint_entries: u64::MAX,
            keep_entries: 1000,
            rest: Rest { after: None, awake_max: usize::MAX },
        };
        for number in 1..=count {
            cluster.boot(node(number), MemoryLog::new());
        }
        cluster
    }

    fn boot(&mut self, id: NodeId, log: Arc<MemoryLog>) {
        let port = Port { me: id, net: Arc::downgrade(&self.net) };
        let shared: Arc<dyn Log> = Arc::clone(&log) as _;
        let options = Options {
            checkpoint_entries: self.checkpoint_entries,
            keep_entries: self.keep_entries,
            rest: self.rest,
            ..Options::new(id)
        };
        let host = Host::new(options, shared, log.watermark(), Arc::new(port));
        self.net.state.lock().hosts.insert(id, host.clone());
        self.nodes.insert(id, Node { log, host, members: BTreeMap::new() });
        let others: Vec<NodeId> = self.nodes.keys().copied().filter(|other| *other != id).collect();
        for other in others {
            self.net.connect(id, other);
        }
    }

    /// Logs keep nothing that is in a checkpoint. Before there are groups.
    pub(crate) fn keep_nothing(&mut self) {
        self.keep_entries = 1;
        self.restart_hosts();
    }

    /// Groups sleep when they were idle for so long. Before there are groups.
    pub(crate) fn rest_after(&mut self, after: Duration) {
        self.rest.after = Some(after);
        self.restart_hosts();
    }

    /// Whether the group sleeps on a node.
    pub(crate) fn sleeps(&self, id: NodeId) -> bool {
        self.host(id).status(GROUP).is_some_and(|status| status.is_asleep)
    }

    /// Waits until the group sleeps on these nodes.
    pub(crate) async fn asleep(&self, ids: &[NodeId]) {
        let asleep = async {
            while !ids.iter().all(|id| self.sleeps(*id)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, asleep).await.is_err() {
            let states = ids.iter().map(|id| self.host(*id).status(GROUP));
            panic!("awake: {:?}", states.collect::<Vec<_>>());
        }
    }

    /// New hosts, with the options as they are now. Before there are groups.
    pub(crate) fn restart_hosts(&mut self) {
        let ids = self.ids();
        for id in &ids {
            let others: Vec<NodeId> = ids.iter().copied().filter(|other| other != id).collect();
            for other in others {
                self.net.cut(*id, other);
            }
        }
        self.nodes.clear();
        self.net.state.lock().hosts.clear();
        for id in ids {
            self.boot(id, MemoryLog::new());
        }
    }

    pub(crate) fn ids(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }

    /// Starts a group on a node with what its log holds.
    pub(crate) async fn start(&mut self, id: NodeId, group: GroupId) {
        self.start_as(id, group, None).await;
    }

    /// The same of one that begins by a record, with all nodes.
    pub(crate) async fn begin(&mut self, id: NodeId, is_led: bool) {
        let members = (1..=3).map(node).collect();
        self.start_as(id, GROUP, Some(Founding { members, is_led })).await;
    }

    async fn start_as(&mut self, id: NodeId, group: GroupId, founding: Option<Founding>) {
        let care = self.care;
        let node = self.nodes.get_mut(&id).unwrap();
        let recorder = Recorder::new();
        let mut recovered = node.log.recovered(group.stream());
        recovered.founding = founding;
        let member: Arc<dyn Member> = Arc::clone(&recorder) as _;
        node.host.start(group, care, member, recovered).await.unwrap();
        node.members.insert(group, recorder);
    }

    /// Many groups on all nodes, led by the first, of which everybody knows.
    pub(crate) async fn groups(&mut self, groups: &[GroupId]) {
        let ids = self.ids();
        for group in groups {
            for id in &ids {
                self.start(*id, *group).await;
            }
            self.nodes[&ids[0]].host.initialise(*group, &ids).await.unwrap();
        }
        for group in groups {
            assert_eq!(self.some_leader(*group, &ids).await, ids[0]);
            for id in &ids {
                let founded = |got: &Got| got.voters.len() == ids.len();
                self.nodes[id].members[group].until("founded", founded).await;
            }
        }
    }

    /// A group on all nodes, led by the first.
    pub(crate) async fn group(&mut self) -> NodeId {
        let ids = self.ids();
        for id in &ids {
            self.start(*id, GROUP).await;
        }
        self.nodes[&ids[0]].host.initialise(GROUP, &ids).await.unwrap();
        self.leader(ids[0]).await;
        ids[0]
    }

    pub(crate) fn member(&self, id: NodeId) -> &Recorder {
        &self.nodes[&id].members[&GROUP]
    }

    pub(crate) fn host(&self, id: NodeId) -> &Host {
        &self.nodes[&id].host
    }

    pub(crate) fn got(&self, id: NodeId) -> Got {
        self.member(id).got.borrow().clone()
    }

    /// Waits until a node leads.
    pub(crate) async fn leader(&self, id: NodeId) -> u64 {
        let leads = |got: &Got| matches!(got.role, Some(Role::Leader { .. }));
        let got = self.member(id).until("leader", leads).await;
        match got.role {
            Some(Role::Leader { term }) => term,
            _ => unreachable!(),
        }
    }

    /// Waits until one of the nodes leads a group; tells which.
    pub(crate) async fn some_leader(&self, group: GroupId, ids: &[NodeId]) -> NodeId {
        let leads = |got: &Got| matches!(got.role, Some(Role::Leader { .. }));
        let wait = |id: NodeId| {
            let member = &self.nodes[&id].members[&group];
            Box::pin(async move {
                member.until("somebody leads", leads).await;
                id
            })
        };
        futures_util::future::select_all(ids.iter().map(|id| wait(*id))).await.0
    }

    /// Proposes on a node, which must lead.
    pub(crate) fn propose(&self, id: NodeId, payload: impl Into<Bytes>) {
        self.host(id).propose(GROUP, payload.into()).unwrap();
    }

    /// Waits until nodes have so many proposals, the same.
    pub(crate) async fn all_have(&self, ids: &[NodeId], count: usize) {
        let mut first: Option<Got> = None;
        for id in ids {
            let got = self.member(*id).until("all entries", |got| got.entries.len() >= count).await;
            assert_eq!(got.entries.len(), count, "node {id}");
            let first = first.get_or_insert_with(|| got.clone());
            assert!(first.entries == got.entries, "nodes {} and {id} differ", ids[0]);
        }
    }

    /// The machine of a node dies.
    pub(crate) async fn kill(&mut self, id: NodeId) {
        let others: Vec<NodeId> = self.ids().into_iter().filter(|other| *other != id).collect();
        let node = self.nodes.remove(&id).unwrap();
        let log = node.log.crash();
        for other in others {
            self.net.cut(id, other);
        }
        self.net.state.lock().hosts.remove(&id);
        for group in node.members.keys() {
            node.host.stop(*group).await;
        }
        self.graves.insert(id, log);
    }

    /// A node ends in good order; this was its log.
    pub(crate) async fn close(&mut self, id: NodeId) -> Arc<MemoryLog> {
        let node = self.nodes.remove(&id).unwrap();
        node.host.close().await;
        self.net.state.lock().hosts.remove(&id);
        for other in self.ids() {
            self.net.cut(id, other);
        }
        node.log
    }

    /// What is on the disk of a node whose machine died.
    pub(crate) fn grave(&self, id: NodeId) -> Arc<MemoryLog> {
        Arc::clone(&self.graves[&id])
    }

    /// A node whose machine died comes back, with its groups.
    pub(crate) async fn revive(&mut self, id: NodeId, groups: &BTreeSet<GroupId>) {
        let log = self.graves.remove(&id).unwrap();
        self.boot(id, log);
        for group in groups {
            self.start(id, *group).await;
        }
    }
}
