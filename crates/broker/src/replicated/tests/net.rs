//! The nodes of the tests and what is between them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use amqp::mailbox::Mailbox;
use amqp::request::{Event, Flow, Unsettled};
use bytes::Bytes;
use journal::disk::real::RealDisk;
use journal::journal::Journal;
use journal::listener::Listener;
use journal::op::Lsn;
use metadata::objects::member::Member as Seat;
use model::id::{ConnectionId, ConsumerId, NodeId, QueueId, Seq, StreamId};
use model::message::Message;
use model::time::Millis;
use parking_lot::Mutex;
use queue::settings::{Settings, Style};
use quorum::change::Change;
use quorum::host::{Host, Options};
use quorum::member::{Boxed, Member, NotConnected, RequestError, Role, Transport};
use quorum::recovered::Recovered;
use quorum::watermark::Watermark;
use tokio::sync::{mpsc, oneshot};

use crate::cluster::berths::Berths;
use crate::origin::{InFlight, Origin};
use crate::outlet::Outlet;
use crate::replicated::client::Leader;
use crate::replicated::fabric::{Berth, Fabric};
use crate::replicated::loan::{Lent, Loan};
use crate::replicated::notice::Notice;
use crate::replicated::numbered::Sender;
use crate::replicated::version::NEWEST;
use crate::router::Router;
use crate::shard::Shard;
use crate::shard::bodies::Weight;
use crate::shard::command::{
    Arrival, Batch, Command, Consume, Consumed, Content, Deleted, Done, Got, Settlement,
};
use crate::shard::desk::Desk;
use crate::shard::ground::Ground;
use crate::shard::outboxes::Outboxes;
use crate::shard::profile::Profile;
use crate::shards::Shards;
use crate::totals::{Counters, Totals};

/// Waits for something that happens in the end.
pub(super) async fn until(is_so: impl Fn() -> bool) {
    let waited = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waited).await.expect("it happens in the end");
}

const PATIENCE: Duration = Duration::from_secs(20);

/// What goes from one node to another.
enum Parcel {
    Raft(Bytes),
    Command(Command),
}

#[derive(Default)]
struct Wires {
    /// Nodes that are there.
    hosts: Mutex<BTreeMap<NodeId, (Host, Arc<Shards>)>>,
    lines: Mutex<BTreeMap<(NodeId, NodeId), mpsc::UnboundedSender<Parcel>>>,
}

impl Wires {
    /// Things from one node to another arrive in order.
    fn carry(self: &Arc<Self>, from: NodeId, to: NodeId, parcel: Parcel) -> bool {
        if !self.hosts.lock().contains_key(&to) || !self.hosts.lock().contains_key(&from) {
            return false;
        }
        let mut lines = self.lines.lock();
        let line = lines.entry((from, to)).or_insert_with(|| {
            let (sender, mut parcels) = mpsc::unbounded_channel();
            let wires = Arc::clone(self);
            tokio::spawn(async move {
                while let Some(parcel) = parcels.recv().await {
                    let there = wires.hosts.lock().get(&to).cloned();
                    let Some((host, shards)) = there else { continue };
                    match parcel {
                        Parcel::Raft(bytes) => host.on_messages(from, &mut vec![bytes]),
                        Parcel::Command(command) => {
                            let index = command.queue().map_or(0, |queue| shards.index_of(queue));
                            shards.inbox(index).post(Batch::one(command));
                        }
                    }
                }
            });
            sender
        });
        line.send(parcel).is_ok()
    }
}

struct Cable {
    me: NodeId,
    wires: Arc<Wires>,
}

impl Transport for Cable {
    fn send(&self, to: NodeId, payload: Bytes) -> Result<(), NotConnected> {
        let sent = self.wires.carry(self.me, to, Parcel::Raft(payload));
        sent.then_some(()).ok_or(NotConnected)
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
        let (from, host) =
            (self.me, self.wires.hosts.lock().get(&to).map(|(host, _)| host.clone()));
        Box::pin(async move {
            let Some(host) = host else { return Err(RequestError::NotConnected) };
            let (answer, answered) = oneshot::channel();
            host.on_request(from, payload, Box::new(move |bytes| drop(answer.send(bytes))));
            match tokio::time::timeout(within, answered).await {
                Ok(Ok(bytes)) => Ok(bytes),
                Ok(Err(_)) => Err(RequestError::Refused("dropped".into())),
                Err(_) => Err(RequestError::TimedOut),
            }
        })
    }
}

struct Cluster {
    me: Sender,
    host: Host,
    wires: Arc<Wires>,
    berths: Berths,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("me", &self.me).finish_non_exhaustive()
    }
}

impl Fabric for Cluster {
    fn me(&self) -> Sender {
        self.me
    }

    fn start_of(&self, node: NodeId) -> Option<Sender> {
        let there = self.wires.hosts.lock().contains_key(&node);
        there.then_some(Sender { node, boot: 1 })
    }

    fn knows(&self, node: NodeId) -> Option<u8> {
        self.start_of(node).map(|_| NEWEST)
    }

    fn halt(&self, queue: QueueId) {
        let host = self.host.clone();
        tokio::spawn(async move { host.challenge(queue.into()).await });
    }

    fn patience(&self) -> Millis {
        Millis(60_000)
    }

    fn orders(&self, to: NodeId, queue: QueueId, batch: Bytes) {
        let command = Command::Orders { queue, batch };
        self.wires.carry(self.me.node, to, Parcel::Command(command));
    }

    fn notice(&self, to: NodeId, notice: &Notice) {
        let notice = Notice::decode(notice.encode()).expect("it was just encoded");
        self.wires.carry(self.me.node, to, Parcel::Command(Command::Notice(Box::new(notice))));
    }

    fn borrow_bodies(&self, from: NodeId, queue: QueueId, seqs: Vec<Seq>) {
        let command = Command::Lend { queue, to: self.me.node, seqs };
        self.wires.carry(self.me.node, from, Parcel::Command(command));
    }

    fn lend_bodies(&self, to: NodeId, queue: QueueId, bodies: Vec<(Seq, Lent)>) {
        let answer = Loan::decode(Loan::Answer(queue, bodies).encode());
        let Ok(Loan::Answer(queue, bodies)) = answer else { panic!("it was just encoded") };
        let command = Command::Lent { queue, from: self.me.node, bodies };
        self.wires.carry(self.me.node, to, Parcel::Command(command));
    }

    fn propose(&self, queue: QueueId, entry: Bytes) -> bool {
        self.host.propose(queue.into(), entry).is_ok()
    }

    fn announce(&self, queue: QueueId, leader: Leader) {
        let others: Vec<NodeId> = self.wires.hosts.lock().keys().copied().collect();
        for to in others.into_iter().filter(|to| *to != self.me.node) {
            let command = Command::Leads { queue, leader };
            self.wires.carry(self.me.node, to, Parcel::Command(command));
        }
    }

    fn start(&self, queue: QueueId, member: Arc<dyn Member>, berth: Berth) {
        let founding = berth.founding(|node| self.start_of(node));
        self.berths.start(queue, member, &berth, founding);
    }

    fn move_to(&self, queue: QueueId, group: quorum::group::GroupId, alone: bool) {
        self.berths.move_to(queue, group, alone);
    }

    fn delete(&self, queue: QueueId, stream: StreamId) {
        self.berths.delete(queue, stream);
    }
}

#[derive(Debug)]
struct Ear {
    watermark: Arc<Watermark>,
    shards: Arc<Shards>,
}

impl Listener for Ear {
    fn durable(&self, lsn: Lsn) {
        self.watermark.advance(lsn);
        self.shards.wake_all();
    }

    fn full(&self, _: bool) {}

    fn failed(&self, error: &std::io::Error) {
        panic!("the journal has failed: {error}");
    }
}

/// One node.
pub(super) struct Node {
    pub(super) me: Sender,
    shards: Arc<Shards>,
    host: Host,
    berths: Berths,
    journal: Arc<Journal>,
    shard: tokio::task::JoinHandle<()>,
    dead: AtomicBool,
    last_connection: AtomicU16,
}

/// All nodes.
pub(super) struct Net {
    wires: Arc<Wires>,
    nodes: Vec<Node>,
    directories: Vec<tempfile::TempDir>,
    queues: Mutex<BTreeMap<QueueId, Vec<Seat>>>,
}

impl Net {
    pub(super) fn new(count: u64) -> Self {
        let wires: Arc<Wires> = Arc::default();
        let mut net =
            Self { wires, nodes: Vec::new(), directories: Vec::new(), queues: Mutex::default() };
        for node in 1..=count {
            let directory = tempfile::tempdir().expect("a directory can be made");
            let me = Sender { node: NodeId(node), boot: 1 };
            net.nodes.push(Node::start(me, directory.path().into(), &net.wires));
            net.directories.push(directory);
        }
        for node in &net.nodes {
            for other in net.nodes.iter().filter(|other| other.me != node.me) {
                node.host.on_up(other.me.node);
            }
        }
        net
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Damages these bytes wherever a node has them on its disk; how often that was.
    pub(super) fn damage(&self, node: NodeId, bytes: &[u8]) -> usize {
        use std::os::unix::fs::FileExt;

        let index = self.nodes.iter().position(|one| one.me.node == node).expect("it is there");
        let mut damaged = 0;
        let files = std::fs::read_dir(self.directories[index].path()).expect("it can be read");
        for file in files.map(|file| file.expect("it can be read").path()) {
            let content = std::fs::read(&file).expect("it can be read");
            let mut at = 0;
            while let Some(found) = content[at..].windows(bytes.len()).position(|it| it == bytes) {
                at += found;
                let file = std::fs::File::options().write(true).open(&file).expect("it is there");
                file.write_all_at(b"damaged!", at as u64).expect("it can be written");
                (damaged, at) = (damaged + 1, at + bytes.len());
            }
        }
        damaged
    }

    /// Declares a queue on all nodes and waits for its leader.
    pub(super) async fn declare(&self, queue: QueueId) {
        let founding = |node: &Node| Seat::founding(queue, node.me.node);
        let members: Vec<Seat> = self.nodes.iter().map(founding).collect();
        self.queues.lock().insert(queue, members.clone());
        for node in &self.nodes {
            let mut profile = Node::profile(queue, members.clone());
            profile.led_by = self.nodes.first().map(|first| first.me);
            node.post(Command::Create(profile));
        }
        self.leader(queue).await;
    }

    /// Records other members of a queue, as all nodes that are there hear.
    pub(super) fn record(&self, queue: QueueId, members: &[Seat]) {
        self.queues.lock().insert(queue, members.to_vec());
        for node in self.nodes.iter().filter(|node| !node.dead.load(Ordering::Relaxed)) {
            node.post(Command::Configure(Node::profile(queue, members.to_vec())));
        }
    }

    /// Nodes that start later are told of these members: they have not heard of newer ones.
    pub(super) fn stale(&self, queue: QueueId, members: &[Seat]) {
        self.queues.lock().insert(queue, members.to_vec());
    }

    /// The leader changes the members of a group, and says when it is done.
    pub(super) async fn change(&self, queue: QueueId, change: Change) {
        let leader = self.leader(queue).await;
        leader.host.change(queue.into(), change).await.expect("it is committed");
    }

    /// Waits until a node has everything that whoever leads has.
    pub(super) async fn caught_up(&self, queue: QueueId, node: NodeId) {
        let is_so = || {
            self.nodes.iter().filter(|one| one.is_leading(queue)).any(|leader| {
                let status = leader.host.status(queue.into()).expect("it leads");
                let member = status.members.iter().find(|one| one.node == node);
                member.is_some_and(|one| one.matched.is_some() && one.matched >= status.last)
            })
        };
        let waited = async {
            while !is_so() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, waited).await.is_err() {
            let all = self.nodes.iter().map(|one| (one.me.node, one.host.status(queue.into())));
            panic!("{node} does not catch up: {:#?}", all.collect::<Vec<_>>());
        }
    }

    /// Declares a durable classic queue that the first node keeps.
    pub(super) async fn declare_classic(&self, queue: QueueId) {
        for node in &self.nodes {
            node.post(Command::Create(Box::new(Profile {
                home: NodeId(1),
                journal: None,
                quorum: None,
                settings: Settings::new(Style::Classic),
                ..*Node::profile(queue, Vec::new())
            })));
        }
        // The first node must have it before the others ask.
        self.nodes[0].client().purge(queue).await;
    }

    /// Waits for a queue's leader.
    pub(super) async fn leader(&self, queue: QueueId) -> &Node {
        let lead = async {
            loop {
                if let Some(node) = self.nodes.iter().find(|node| node.is_leading(queue)) {
                    return node;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, lead).await.expect("somebody leads in the end")
    }

    /// A node is gone, and the others know.
    pub(super) async fn kill(&self, node: NodeId) {
        self.wires.hosts.lock().remove(&node);
        let gone = self.nodes.iter().find(|one| one.me.node == node).expect("it is one of them");
        gone.dead.store(true, Ordering::Relaxed);
        gone.shard.abort();
        let queues = self.queues.lock().clone();
        for id in queues.keys() {
            gone.host.stop((*id).into()).await;
        }
        for other in self.nodes.iter().filter(|other| !other.dead.load(Ordering::Relaxed)) {
            other.host.on_down(node);
            other.shards.inbox(0).post(Batch::one(Command::Lost { node }));
        }
    }

    /// A node is killed and starts again from its journal.
    pub(super) async fn restart(&mut self, index: usize) {
        self.start_again(index, false).await;
    }

    /// The same, without its journal.
    pub(super) async fn wipe(&mut self, index: usize) {
        self.start_again(index, true).await;
    }

    async fn start_again(&mut self, index: usize, wiped: bool) {
        self.kill(self.nodes[index].me.node).await;
        let old = self.nodes.remove(index);
        let me = Sender { boot: old.me.boot + 1, ..old.me };
        let Node { journal, shards, host, berths, shard, .. } = old;
        drop((shards, host, berths, shard.await));
        let closed = async {
            let mut journal = journal;
            loop {
                match Arc::try_unwrap(journal) {
                    Ok(alone) => return drop(alone),
                    Err(shared) => journal = shared,
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, closed).await.expect("nobody else has the journal");
        if wiped {
            self.directories[index] = tempfile::tempdir().expect("a directory can be made");
        }
        let node = Node::start(me, self.directories[index].path().into(), &self.wires);
        for (queue, members) in self.queues.lock().iter() {
            node.post(Command::Open(Node::profile(*queue, members.clone())));
        }
        for other in &self.nodes {
            other.host.on_up(me.node);
            node.host.on_up(other.me.node);
            other.reannounce(&self.queues.lock(), &self.wires);
        }
        self.nodes.insert(index, node);
        let queues = self.queues.lock().clone();
        for queue in queues.into_keys() {
            self.leader(queue).await;
        }
    }
}

impl Node {
    fn is_leading(&self, queue: QueueId) -> bool {
        !self.dead.load(Ordering::Relaxed)
            && matches!(self.host.role(queue.into()), Some(Role::Leader { .. }))
    }

    fn start(me: Sender, directory: PathBuf, wires: &Arc<Wires>) -> Self {
        let shards = Arc::new(Shards::new(1));
        let watermark = Arc::new(Watermark::default());
        let ear = Ear { watermark: Arc::clone(&watermark), shards: Arc::clone(&shards) };
        let mut options = journal::options::Options::new(directory);
        options.segment_bytes = 4 << 20;
        let (journal, recovery) =
            Journal::open(options, Arc::new(RealDisk), Arc::new(ear)).expect("opens");
        let journal = Arc::new(journal);
        let mut recovered: BTreeMap<StreamId, Recovered> = recovery
            .streams()
            .iter()
            .map(|known| (known.stream, Recovered::new(known.highest)))
            .collect();
        recovery
            .for_each(|stream, seq, head, bytes| {
                if let Some(group) = recovered.get_mut(&stream) {
                    group.note(seq, head, bytes);
                }
            })
            .expect("is read");
        let cable = Cable { me: me.node, wires: Arc::clone(wires) };
        let log = Arc::clone(&journal) as Arc<dyn quorum::log::Log>;
        let host = Host::new(Options::new(me.node), Arc::clone(&log), watermark, Arc::new(cable));
        let berths = Berths::new(host.clone(), log);
        berths.recovered(recovered);
        wires.hosts.lock().insert(me.node, (host.clone(), Arc::clone(&shards)));
        let fabric =
            Cluster { me, host: host.clone(), wires: Arc::clone(wires), berths: berths.clone() };
        let (chores, _) = mpsc::unbounded_channel();
        let totals = Arc::new(Totals::default());
        let desk = Desk {
            now: crate::shard::now(),
            outboxes: Outboxes::default(),
            ops: Vec::new(),
            effects: Vec::new(),
            counted: Counters::default(),
            weight: Weight::default(),
            budget: Weight { cached: 1 << 20, only: 1 << 20 },
            attached: std::collections::VecDeque::new(),
            consumer_window: 1 << 20,
            journal: Arc::clone(&journal) as Arc<dyn Ground>,
            inbox: Arc::clone(shards.inbox(0)),
            shards: Arc::clone(&shards),
            router: Arc::new(Router::new(metadata::state::State::new())),
            fabric: Arc::new(fabric),
            publish_timeout: Millis(8000),
            chores,
            consumers: Arc::default(),
        };
        let shard = tokio::spawn(Shard::new(desk, totals, Vec::new()).run());
        let dead = AtomicBool::new(false);
        let last_connection = AtomicU16::new(0);
        Self { me, shards, host, berths, journal, shard, dead, last_connection }
    }

    fn profile(queue: QueueId, members: Vec<Seat>) -> Box<Profile> {
        Box::new(Profile {
            id: queue,
            vhost: "/".into(),
            name: "q".into(),
            durable: true,
            home: NodeId(0),
            journal: None,
            settings: Settings::new(Style::Quorum),
            dead_letter: None,
            quorum: Some(members),
            led_by: None,
        })
    }

    fn post(&self, command: Command) {
        self.shards.inbox(0).post(Batch::one(command));
    }

    /// Waits until this node leads a group of these voters.
    pub(super) async fn leads(&self, queue: QueueId, voters: &[NodeId]) {
        until(|| {
            let status = self.host.status(queue.into());
            status.is_some_and(|status| {
                let members = status.members.iter().map(|one| (one.node, one.is_voter));
                let expected = voters.iter().map(|voter| (*voter, true));
                matches!(status.role, Role::Leader { .. }) && members.eq(expected)
            })
        })
        .await;
    }

    /// Says once more what it leads.
    fn reannounce(&self, queues: &BTreeMap<QueueId, Vec<Seat>>, wires: &Arc<Wires>) {
        for &queue in queues.keys() {
            if let Some(Role::Leader { term }) = self.host.role(queue.into()) {
                let leader = Leader { node: self.me.node, term };
                let others: Vec<NodeId> = wires.hosts.lock().keys().copied().collect();
                for to in others.into_iter().filter(|to| *to != self.me.node) {
                    let command = Command::Leads { queue, leader };
                    wires.carry(self.me.node, to, Parcel::Command(command));
                }
            }
        }
    }

    /// Waits until this node has a member of a queue, or none.
    pub(super) async fn has_member(&self, queue: QueueId, has: bool) {
        until(|| self.host.role(queue.into()).is_some() == has).await;
    }

    /// Waits until this node's member of a queue is known to be lost.
    pub(super) async fn has_lost(&self, queue: QueueId) {
        until(|| self.berths.lost(queue).is_some()).await;
        assert!(self.host.role(queue.into()).is_none(), "it does not run");
    }

    /// Waits until the journal has something of a stream, or nothing.
    pub(super) async fn has_stream(&self, stream: StreamId, has: bool) {
        let positions: Vec<Seq> = (1..500).map(Seq).collect();
        until(|| {
            let mut found = Vec::new();
            self.journal.read(stream, &positions, &mut found);
            found.iter().any(Result::is_ok) == has
        })
        .await;
    }

    /// A connection to this node.
    pub(super) fn host(&self) -> &Host {
        &self.host
    }

    pub(super) fn client(&self) -> Client {
        let id = self.last_connection.fetch_add(1, Ordering::Relaxed) + 1;
        let mailbox = Mailbox::new();
        let origin = Arc::new(Origin {
            id: ConnectionId(id.into()),
            outlet: Outlet::new(mailbox.clone()),
            totals: Arc::default(),
            in_flight: InFlight::default(),
        });
        Client { shards: Arc::clone(&self.shards), origin, mailbox }
    }
}

/// A connection.
pub(super) struct Client {
    shards: Arc<Shards>,
    origin: Arc<Origin>,
    mailbox: Mailbox,
}

impl Client {
    fn post(&self, bytes: usize, command: Command) {
        let origin = Some(Arc::clone(&self.origin));
        self.shards.inbox(0).post(Batch { origin, bytes, commands: vec![command] });
    }

    pub(super) fn publish(&self, queue: QueueId, number: u64, body: &[u8]) {
        let message = Message::from_parts("", "q", &[0, 0], body);
        let arrival = Arrival {
            queue,
            content: Content::Own(message),
            persistent: true,
            priority: None,
            ttl: None,
            done: Done::Confirm { channel: 1, number },
        };
        let weight = arrival.weight();
        self.origin.in_flight.add(weight);
        self.post(weight, Command::Publish(arrival));
    }

    async fn take(&self, wanted: usize, is_wanted: impl Fn(&Event) -> bool) -> Vec<Event> {
        let mut all = Vec::new();
        let taken = async {
            while all.len() < wanted {
                let events = self.mailbox.next().await;
                all.extend(events.into_iter().filter(|event| is_wanted(event)));
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, taken).await.is_ok();
        assert!(in_time, "{} of {wanted} events: {all:?}", all.len());
        all
    }

    /// Waits for so many events.
    pub(super) async fn events(&self, wanted: usize) -> Vec<Event> {
        self.take(wanted, |_| true).await
    }

    /// Waits for so many deliveries of messages behind `last`, each counted once as a session does.
    pub(super) async fn new_events(&self, last: Seq, wanted: usize) -> Vec<Event> {
        let seen = Mutex::new(BTreeSet::new());
        let is_new = |event: &Event| match event {
            Event::Deliver(it) => it.seq > last && seen.lock().insert(it.seq),
            _ => false,
        };
        self.take(wanted, is_new).await
    }

    /// Waits until so many publishes are confirmed, each once.
    pub(super) async fn confirmed(&self, wanted: usize) {
        let events = self.events(wanted).await;
        let mut numbers = BTreeSet::new();
        for event in events {
            let Event::Confirmed { number, accepted: true, .. } = event else {
                panic!("{event:?} instead of a confirm");
            };
            assert!(numbers.insert(number), "{number} is confirmed twice");
        }
        self.origin.in_flight.below(1).await;
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> T {
        let (answer, answered) = oneshot::channel();
        self.post(0, command(answer));
        tokio::time::timeout(PATIENCE, answered).await.expect("in time").expect("answered")
    }

    pub(super) async fn consume(
        &self,
        queue: QueueId,
        consumer: ConsumerId,
        flow: Flow,
    ) -> Consumed {
        let origin = Arc::clone(&self.origin);
        self.ask(|answer| {
            Command::Consume(Box::new(Consume {
                queue,
                consumer,
                origin,
                channel: 1,
                tag: "tag".into(),
                no_ack: false,
                exclusive: false,
                priority: 0,
                timeout: None,
                flow,
                arguments: amq_protocol_types::FieldTable::default(),
                user: "guest".into(),
                answer,
            }))
        })
        .await
    }

    pub(super) async fn cancel(&self, queue: QueueId, consumer: ConsumerId) {
        self.ask(|answer| Command::Cancel { queue, consumer, answer }).await;
    }

    pub(super) fn settle(&self, queue: QueueId, unsettled: Vec<Unsettled>, outcome: Settlement) {
        self.post(0, Command::Settle { queue, unsettled, outcome });
    }

    /// Settles and cancels in one go, as a client does that has had enough.
    pub(super) async fn settle_and_cancel(
        &self,
        queue: QueueId,
        unsettled: Vec<Unsettled>,
        outcome: Settlement,
        consumer: ConsumerId,
    ) {
        let (answer, answered) = oneshot::channel();
        let origin = Some(Arc::clone(&self.origin));
        let settle = Command::Settle { queue, unsettled, outcome };
        let commands = vec![settle, Command::Cancel { queue, consumer, answer }];
        self.shards.inbox(0).post(Batch { origin, bytes: 0, commands });
        tokio::time::timeout(PATIENCE, answered).await.expect("in time").expect("answered");
    }

    /// What has come and was not taken.
    pub(super) async fn left(&self) -> Vec<Event> {
        self.mailbox.post_one(Event::Unblocked);
        let mut events = self.mailbox.next().await;
        events.pop();
        events
    }

    pub(super) async fn get(&self, queue: QueueId) -> Got {
        let connection = self.origin.id;
        self.ask(|answer| Command::Get { queue, connection, no_ack: false, answer }).await
    }

    pub(super) async fn purge(&self, queue: QueueId) -> Option<u64> {
        self.ask(|answer| Command::Purge { queue, answer }).await
    }

    pub(super) async fn delete(&self, queue: QueueId, if_unused: bool, if_empty: bool) -> Deleted {
        self.ask(|answer| Command::Delete { queue, if_unused, if_empty, answer }).await
    }
}
