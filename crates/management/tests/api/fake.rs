//! A node in memory: the real metadata machine, queues that only hold messages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use amq_protocol_types::{AMQPValue, FieldTable};
use management::census::Names;
use management::inquiry::{Change, Wanted};
use management::members::{Changed, Drained, MemberError};
use management::node::Node;
use management::view::connection::{ChannelInfo, ConnectionInfo, ConnectionState};
use management::view::copy::{Amendment, JournalCopy, NodeCopies, NodeLeft};
use management::view::counters::{GlobalCounters, MessageCounters};
use management::view::message::{
    GetMode, GetRequest, GotMessage, PeekError, PeekedMessage, PublishOutcome, PublishRequest,
};
use management::view::node::{JournalStats, Listener, NodeStats, OtherNode, TopologyVotes};
use management::view::part::{ConsumerPart, MemberPart, Part, QueuePart};
use management::view::queue::QueueStats;
use management::view::raft::{MemberReport, RaftMember, RaftRole};
use management::view::reconciliation::{PlanReport, PlannedStep, ReconciliationReport};
use management::view::topology::{
    BindingRequest, ExchangeDeclaration, ExchangeDeletion, QueueDeclaration, QueueDeletion,
};
use metadata::access::{LoginRefusal, Right};
use metadata::boot::{self, DefaultUser};
use metadata::command::{
    Command, DeclareExchange, DeclareQueue, MemberName, PutNode, SerialQueueId,
};
use metadata::declarations::Declarations;
use metadata::objects::binding::{Binding, Destination};
use metadata::objects::node::NodeRole;
use metadata::objects::queue::QueueKind;
use metadata::objects::user::User;
use metadata::outcome::Outcome;
use metadata::refusal::Refusal;
use metadata::state::State;
use model::id::{ConnectionId, NodeId, QueueId};
use model::message::Message;
use parking_lot::Mutex;

mod mishaps;

/// The name of the node.
pub(crate) const NODE: &str = "leveret@test";
/// The node itself.
pub(crate) const OWN: NodeId = NodeId(100);

/// See the module head.
#[derive(Default)]
pub(crate) struct Fake {
    inner: Mutex<Inner>,
    restricted: AtomicBool,
    no_majority: AtomicBool,
    rebalanced: AtomicBool,
}

#[derive(Default)]
struct Inner {
    state: State,
    queues: BTreeMap<QueueId, VecDeque<(Message, bool)>>,
    connections: Vec<ConnectionInfo>,
    others: Vec<(String, Part)>,
    silent: BTreeMap<NodeId, String>,
    stopped: Vec<NodeId>,
    lost: BTreeSet<QueueId>,
    /// Why nodes may not be forgotten.
    keeps_nodes: Option<String>,
    members: Vec<RaftMember>,
    closed: Vec<(String, String)>,
    copies: Vec<NodeCopies>,
    amended: Vec<(NodeId, Amendment)>,
    /// What others do while copies are looked at, once.
    meanwhile: Vec<Command>,
    /// After so many commands the next one finds no majority.
    cut_off: Option<usize>,
    left: Vec<NodeLeft>,
    declarations: Vec<Declarations>,
    counters: GlobalCounters,
    alarm: bool,
    /// The others whose disk alarm is on.
    alarms_elsewhere: Vec<String>,
    /// How many of the others have no vote on the topology yet.
    voteless: usize,
    not_serving: bool,
    reject: bool,
}

impl Fake {
    /// With vhost `/` and the administrator `guest`.
    pub(crate) fn new() -> Self {
        let fake = Self {
            inner: Mutex::new(Inner { state: State::new(), ..Inner::default() }),
            restricted: AtomicBool::new(false),
            no_majority: AtomicBool::new(false),
            rebalanced: AtomicBool::new(false),
        };
        let user = DefaultUser {
            name: "guest".into(),
            password_hash: metadata::access::password::hash(
                metadata::objects::user::HashingAlgorithm::Sha256,
                [1, 2, 3, 4],
                b"guest",
            ),
            tags: vec!["administrator".into()],
        };
        for command in boot::commands("/", user) {
            fake.apply(command).unwrap();
        }
        fake
    }

    /// A client of `guest` in vhost `/`, with a channel, and a consumer on `queue` if that is there.
    pub(crate) fn connect(&self, port: u16) {
        self.inner.lock().connections.push(connection(NODE, port));
    }

    /// Another node, and what it says.
    pub(crate) fn add_node(&self, name: &str, part: Part) {
        self.inner.lock().others.push((name.to_owned(), part));
    }

    /// Another node that does not answer.
    pub(crate) fn add_silent(&self, id: NodeId, name: &str) {
        self.inner.lock().silent.insert(id, name.to_owned());
    }

    /// A node that may have copies of journals.
    pub(crate) fn keeper(&self, id: NodeId, name: &str) {
        let short = name.rsplit_once('@').map_or(name, |(_, short)| short);
        let put = PutNode {
            id: id.0,
            name: short.into(),
            address: "x:1".to_owned(),
            role: NodeRole::Full,
            boot: 1,
            zone: None,
            starts: Vec::new(),
        };
        self.apply(Command::PutNode(put)).unwrap();
        if id != OWN {
            self.inner.lock().silent.insert(id, name.to_owned());
        }
    }

    /// What a node has of journals, in the place of what it had.
    pub(crate) fn tell_copies(&self, node: &str, copies: Vec<JournalCopy>) {
        let mut inner = self.inner.lock();
        inner.copies.retain(|told| told.node != node);
        inner.copies.push(NodeCopies { node: node.to_owned(), copies });
    }

    /// Others do this while copies are looked at the next time.
    pub(crate) fn meanwhile(&self, commands: Vec<Command>) {
        self.inner.lock().meanwhile = commands;
    }

    /// Of the commands of requests, the one after so many is not carried out.
    pub(crate) fn cut_off_after(&self, commands: usize) {
        self.inner.lock().cut_off = Some(commands);
    }

    /// What was changed of copies.
    pub(crate) fn amended(&self) -> Vec<(NodeId, Amendment)> {
        self.inner.lock().amended.clone()
    }

    /// What nodes have on their disks that the topology does not know.
    pub(crate) fn leave_journals(&self, left: Vec<NodeLeft>, declarations: Declarations) {
        let mut inner = self.inner.lock();
        inner.left = left;
        inner.declarations = vec![declarations];
    }

    /// From now on no majority answers.
    pub(crate) fn lose_majority(&self) {
        self.no_majority.store(true, Ordering::Relaxed);
    }

    /// A quorum queue in vhost `/`.
    pub(crate) fn quorum_queue(&self, name: &str, members: &[NodeId]) -> QueueId {
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        self.apply(Command::DeclareQueue(DeclareQueue {
            vhost: "/".into(),
            name: name.into(),
            generated: false,
            durable: true,
            auto_delete: false,
            exclusive_owner: None,
            home: NodeId(0),
            members: members.to_vec(),
            away: Vec::new(),
            arguments,
            user: "guest".into(),
        }))
        .unwrap();
        self.id("/", name).unwrap()
    }

    /// A member of a quorum queue on this node.
    pub(crate) fn add_member(&self, member: RaftMember) {
        self.inner.lock().members.push(member);
    }

    /// This node's member of a queue.
    pub(crate) fn member(&self, queue: QueueId) -> RaftMember {
        *self.inner.lock().members.iter().find(|one| one.queue == queue).unwrap()
    }

    /// What this node says.
    fn part(&self) -> Part {
        let inner = self.inner.lock();
        let of = |id: QueueId| inner.state.queue_by_id(id);
        let kept = inner
            .queues
            .iter()
            .filter(|(id, _)| of(**id).is_some_and(|queue| queue.kind == QueueKind::Classic));
        let queue = |(id, messages): (&QueueId, &VecDeque<_>)| QueuePart {
            id: *id,
            term: 0,
            stats: stats(messages),
            voters: Vec::new(),
            learners: Vec::new(),
            consumers: match of(*id).map(|queue| &*queue.name) {
                Some("queue") => inner.connections.iter().map(consumer).collect(),
                _ => Vec::new(),
            },
        };
        let member = |one: &RaftMember| MemberPart {
            queue: one.queue,
            term: one.term,
            leader: if one.role == RaftRole::Leader { OWN } else { NodeId(0) },
        };
        let led = inner.members.iter().filter(|one| one.role == RaftRole::Leader);
        let led = led.map(|one| QueuePart {
            id: one.queue,
            term: one.term,
            stats: QueueStats { ready: one.last, ..QueueStats::default() },
            voters: of(one.queue).map(|queue| queue.nodes().collect()).unwrap_or_default(),
            learners: Vec::new(),
            consumers: Vec::new(),
        });
        let mut queues: Vec<QueuePart> = kept.map(queue).chain(led).collect();
        queues.sort_by_key(|queue| queue.id);
        Part {
            id: OWN,
            queues,
            members: inner.members.iter().map(member).collect(),
            channels: inner.connections.iter().map(channel).collect(),
            connections: inner.connections.clone(),
            clients: Vec::new(),
            exchanges: Vec::new(),
            messages: inner.counters.messages,
            churn: inner.counters.churn,
            node: None,
        }
    }

    /// What closed connections were told.
    pub(crate) fn closed(&self) -> Vec<(String, String)> {
        self.inner.lock().closed.clone()
    }

    /// Turns both alarms on or off.
    pub(crate) fn set_alarm(&self, on: bool) {
        self.inner.lock().alarm = on;
    }

    /// Turns the disk alarm of another node on.
    pub(crate) fn add_alarm_elsewhere(&self, name: &str) {
        self.inner.lock().alarms_elsewhere.push(name.to_owned());
    }

    /// So many of the nodes that run have no vote on the topology yet.
    pub(crate) fn set_voteless(&self, count: usize) {
        self.inner.lock().voteless = count;
    }

    /// As while recovering.
    pub(crate) fn set_serving(&self, on: bool) {
        self.inner.lock().not_serving = !on;
    }

    /// Every queue refuses publishes.
    pub(crate) fn set_reject(&self, on: bool) {
        self.inner.lock().reject = on;
    }

    pub(crate) fn apply(&self, command: Command) -> Result<Outcome, Refusal> {
        let mut inner = self.inner.lock();
        let outcome = inner.state.apply(command)?;
        for queue in &outcome.queues_created {
            inner.queues.insert(queue.id, VecDeque::new());
        }
        for queue in &outcome.queues_deleted {
            inner.queues.remove(&queue.id);
        }
        Ok(outcome)
    }

    fn id(&self, vhost: &str, queue: &str) -> Result<QueueId, Refusal> {
        let state = self.state();
        let found = state.queue(vhost, queue);
        found
            .map(|queue| queue.id)
            .ok_or_else(|| Refusal::not_found(format!("no queue '{queue}' in vhost '{vhost}'")))
    }
}

fn stats(messages: &VecDeque<(Message, bool)>) -> QueueStats {
    QueueStats {
        ready: messages.len() as u64,
        ready_bytes: messages.iter().map(|(message, _)| message.body().len() as u64).sum(),
        memory: 1000,
        ..QueueStats::default()
    }
}

/// The one channel of a connection.
fn channel(connection: &ConnectionInfo) -> ChannelInfo {
    let connection = connection.clone();
    ChannelInfo {
        node: connection.node,
        connection: connection.id,
        connection_name: connection.name,
        peer_host: connection.peer_host,
        peer_port: connection.peer_port,
        number: 1,
        user: connection.user,
        vhost: connection.vhost,
        confirm: true,
        transactional: false,
        in_flow: false,
        consumers: 1,
        prefetch_count: 10,
        global_prefetch_count: 0,
        unacknowledged: 3,
        unconfirmed: 0,
        uncommitted: 0,
        acks_uncommitted: 0,
        idle_since_ms: None,
        counters: MessageCounters::default(),
    }
}

/// The one consumer of a connection.
pub(crate) fn consumer(connection: &ConnectionInfo) -> ConsumerPart {
    ConsumerPart {
        connection: connection.id,
        channel: 1,
        tag: "ctag".into(),
        ack_required: true,
        exclusive: false,
        prefetch_count: 10,
        arguments: FieldTable::default(),
        user: connection.user.clone(),
        timeout_ms: None,
        has_turn: false,
    }
}

/// A client of `guest` in vhost `/`, from a port of this machine.
pub(crate) fn connection(node: &str, port: u16) -> ConnectionInfo {
    let mut client_properties = FieldTable::default();
    client_properties.insert("connection_name".into(), AMQPValue::LongString("my-app".into()));
    ConnectionInfo {
        id: ConnectionId(u64::from(port)),
        node: node.into(),
        name: format!("127.0.0.1:{port} -> 127.0.0.1:5672"),
        vhost: "/".into(),
        user: "guest".into(),
        host: "127.0.0.1".into(),
        port: 5672,
        peer_host: "127.0.0.1".into(),
        peer_port: port,
        tls: None,
        auth_mechanism: "PLAIN".into(),
        state: ConnectionState::Running,
        channels: 1,
        channel_max: 2047,
        frame_max: 131_072,
        heartbeat_s: 60,
        connected_at_ms: 1_700_000_000_000,
        client_properties,
        received_bytes: 100,
        received_count: 10,
        sent_bytes: 200,
        sent_count: 20,
        send_pending: 0,
    }
}

impl Node for Fake {
    fn state(&self) -> Arc<State> {
        Arc::new(self.inner.lock().state.clone())
    }

    async fn submit(&self, command: Command, _by: &str) -> Result<bool, Refusal> {
        let cut_off = self.inner.lock().cut_off.take();
        if cut_off == Some(0) {
            return Err(Refusal::unavailable("no majority of the cluster answers"));
        }
        self.inner.lock().cut_off = cut_off.map(|commands| commands - 1);
        Ok(self.apply(command)?.created)
    }

    fn authenticate(
        &self,
        user: &str,
        password: &[u8],
        from: Option<IpAddr>,
    ) -> Result<Arc<User>, LoginRefusal> {
        let local = from.is_none_or(|from| from.is_loopback());
        self.inner.lock().state.authenticate(user, password, local, &["guest".to_owned()])
    }

    async fn declare_queue(&self, declaration: QueueDeclaration) -> Result<bool, Refusal> {
        let access = self.state().access(&declaration.user, &declaration.vhost)?;
        access.check_queue(Right::Configure, &declaration.queue)?;
        let outcome = self.apply(Command::DeclareQueue(DeclareQueue {
            vhost: declaration.vhost.into(),
            name: declaration.queue.into(),
            generated: false,
            durable: declaration.durable,
            auto_delete: declaration.auto_delete,
            exclusive_owner: None,
            home: NodeId(0),
            members: Vec::new(),
            away: Vec::new(),
            arguments: declaration.arguments,
            user: declaration.user.into(),
        }))?;
        Ok(outcome.created)
    }

    async fn delete_queue(&self, deletion: QueueDeletion) -> Result<(), Refusal> {
        let id = self.id(&deletion.vhost, &deletion.queue)?;
        if deletion.if_empty && !self.inner.lock().queues[&id].is_empty() {
            return Err(Refusal::in_use(format!(
                "queue '{}' in vhost '{}' is not empty",
                deletion.queue, deletion.vhost
            )));
        }
        let (vhost, name) = (deletion.vhost.into(), deletion.queue.into());
        self.apply(Command::DeleteQueue { vhost, name, id: None }).map(drop)
    }

    async fn purge_queue(&self, vhost: &str, queue: &str, _user: &str) -> Result<u64, Refusal> {
        let id = self.id(vhost, queue)?;
        let mut inner = self.inner.lock();
        let messages = inner.queues.get_mut(&id).unwrap();
        let count = messages.len() as u64;
        messages.clear();
        Ok(count)
    }

    async fn declare_exchange(&self, declaration: ExchangeDeclaration) -> Result<bool, Refusal> {
        let outcome = self.apply(Command::DeclareExchange(DeclareExchange {
            vhost: declaration.vhost.into(),
            name: declaration.exchange.into(),
            kind: declaration.kind.into(),
            durable: declaration.durable,
            auto_delete: declaration.auto_delete,
            internal: declaration.internal,
            arguments: declaration.arguments,
            user: declaration.user.into(),
        }))?;
        Ok(outcome.created)
    }

    async fn delete_exchange(&self, deletion: ExchangeDeletion) -> Result<(), Refusal> {
        let access = self.state().access(&deletion.user, &deletion.vhost)?;
        access.check_exchange(Right::Configure, &deletion.exchange)?;
        self.apply(Command::DeleteExchange {
            vhost: deletion.vhost.into(),
            name: deletion.exchange.into(),
            if_unused: deletion.if_unused,
        })
        .map(drop)
    }

    async fn bind(&self, binding: BindingRequest) -> Result<(), Refusal> {
        self.apply(Command::Bind(stored(binding))).map(drop)
    }

    async fn unbind(&self, binding: BindingRequest) -> Result<(), Refusal> {
        self.apply(Command::Unbind(stored(binding))).map(drop)
    }

    async fn publish(&self, request: PublishRequest) -> Result<PublishOutcome, Refusal> {
        let state = self.state();
        let (exchange, key) = (request.message.exchange(), request.message.routing_key());
        let targets: Vec<QueueId> = if exchange.is_empty() {
            state.queue(&request.vhost, key).map(|queue| queue.id).into_iter().collect()
        } else {
            let bindings = state.bindings_from(&request.vhost, exchange);
            let names = bindings.filter(|binding| &*binding.routing_key == key);
            names
                .filter_map(|binding| state.queue(&request.vhost, binding.destination.name()))
                .map(|queue| queue.id)
                .collect()
        };
        let mut inner = self.inner.lock();
        if inner.alarm {
            return Ok(PublishOutcome::Blocked);
        }
        if inner.reject {
            return Ok(PublishOutcome::Rejected);
        }
        inner.counters.messages.publish += 1;
        for id in &targets {
            inner.queues.get_mut(id).unwrap().push_back((request.message.clone(), false));
        }
        Ok(if targets.is_empty() { PublishOutcome::Unroutable } else { PublishOutcome::Routed })
    }

    async fn get(&self, request: GetRequest) -> Result<Vec<GotMessage>, Refusal> {
        let id = self.id(&request.vhost, &request.queue)?;
        let mut inner = self.inner.lock();
        let messages = inner.queues.get_mut(&id).unwrap();
        let mut bytes = 0;
        let fitting = messages.iter().take_while(|(message, _)| {
            let fits = bytes < request.bytes_max;
            bytes += message.body().len();
            fits
        });
        let count = fitting.count().min(request.count as usize);
        let taken: Vec<_> = messages.drain(..count).collect();
        let rest = messages.len();
        let got = taken.iter().enumerate().map(|(at, (message, redelivered))| GotMessage {
            message: message.clone(),
            redelivered: *redelivered,
            message_count: (rest + count - 1 - at) as u64,
        });
        let got = got.collect();
        if matches!(request.mode, GetMode::NackRequeue | GetMode::RejectRequeue) {
            for (message, _) in taken.into_iter().rev() {
                messages.push_front((message, true));
            }
        }
        Ok(got)
    }

    async fn parts(&self, wanted: Wanted) -> Vec<Part> {
        let node = wanted.nodes.then(|| self.stats());
        let mut parts = vec![Part { node, ..self.part() }];
        if wanted.everywhere {
            parts.extend(self.inner.lock().others.iter().map(|(_, part)| part.clone()));
        }
        // As it comes over the wire.
        let wire = |part: Part| Part::decode(&part.encode()).unwrap();
        parts.into_iter().map(wire).collect()
    }

    fn names(&self) -> Names {
        let inner = self.inner.lock();
        let others = inner.others.iter().map(|(name, part)| (part.id, name.clone()));
        let silent = inner.silent.iter().map(|(id, name)| (*id, name.clone()));
        let own = (OWN, NODE.to_owned());
        Names::new(NODE.into(), others.chain(silent).chain([own]).collect())
    }

    fn hibernations(&self) -> u64 {
        7
    }

    async fn lost_members(&self) -> BTreeSet<QueueId> {
        self.inner.lock().lost.clone()
    }

    fn raft_members(&self) -> Vec<RaftMember> {
        self.inner.lock().members.clone()
    }

    async fn quorum_status(&self, queue: QueueId) -> Vec<MemberReport> {
        let member = self.inner.lock().members.iter().find(|one| one.queue == queue).copied();
        let (state, names) = (self.state(), self.names());
        let nodes = state.queue_by_id(queue).into_iter().flat_map(|queue| queue.nodes());
        let report = |node: NodeId| MemberReport {
            node: names.of(node).to_owned(),
            member: if node == OWN { member.ok_or("noproc") } else { Err("nodedown") },
        };
        nodes.map(report).collect()
    }

    fn reconciliation_here(&self) -> ReconciliationReport {
        ReconciliationReport {
            node: NODE.to_owned(),
            enabled: true,
            queues: 7,
            below_target: 2,
            blocked: [("member_down".to_owned(), 2)].into(),
            done: [("add".to_owned(), 3)].into(),
            last_pass: Some(1500),
            last_duration: Some(250),
            ..ReconciliationReport::default()
        }
    }

    async fn reconciliation(&self) -> Vec<ReconciliationReport> {
        vec![self.reconciliation_here()]
    }

    async fn reconcile_now(&self) -> Vec<(String, Result<(), String>)> {
        vec![(NODE.to_owned(), Ok(())), ("b".to_owned(), Err("it does not answer".to_owned()))]
    }

    async fn reconciliation_plan(&self, _queue: QueueId) -> Result<PlanReport, Refusal> {
        let step = PlannedStep {
            kind: "add".to_owned(),
            step: "add a member on c".to_owned(),
            reason: "the queue has 2 of 3 members".to_owned(),
        };
        Ok(PlanReport {
            leader: NODE.to_owned(),
            target: 3,
            steps: vec![step],
            ..PlanReport::default()
        })
    }

    async fn transfer_leadership(&self, queue: QueueId, to: NodeId) -> Result<(), Refusal> {
        if to == OWN {
            return Ok(());
        }
        Err(Refusal::unavailable(format!("{queue} cannot be led there")))
    }

    async fn add_member(&self, queue: QueueId, node: NodeId) -> Change {
        let queue = SerialQueueId(queue);
        let added = self.apply(Command::AddMember { queue, node: node.0 });
        let added = added.map_err(|refusal| MemberError::Failed(refusal.text))?;
        let size = added.queue.map_or(0, |queue| queue.members.len());
        Ok(Changed { changed: added.created, size })
    }

    async fn checkpoint(&self, queues: Vec<QueueId>) -> BTreeMap<QueueId, String> {
        let state = self.state();
        let ill = queues
            .into_iter()
            .filter(|id| state.queue_by_id(*id).is_some_and(|queue| queue.name.starts_with("ill")));
        ill.map(|id| (id, "on leveret@n2: the disk is full".to_owned())).collect()
    }

    async fn begin_rebalance(&self) -> Result<u64, Refusal> {
        if self.rebalanced.swap(true, Ordering::Relaxed) {
            return Err(Refusal::unavailable("another rebalance is in progress"));
        }
        Ok(1)
    }

    async fn keep_rebalance(&self, _grant: u64) -> Result<(), Refusal> {
        Ok(())
    }

    async fn end_rebalance(&self, _grant: u64) {
        assert!(self.rebalanced.swap(false, Ordering::Relaxed), "it is given back once");
    }

    async fn peek(
        &self,
        _queue: QueueId,
        before: u64,
        most: usize,
    ) -> Result<PeekedMessage, PeekError> {
        let texts = ["first, and rather long", "second"];
        match usize::try_from(before).ok().and_then(|before| texts.get(before)) {
            Some(text) => Ok(PeekedMessage {
                message: Message::from_parts("x", "k", &[0, 0], &text.as_bytes()[..most.min(6)]),
                payload_bytes: text.len() as u64,
                redelivered: before == 0,
            }),
            None if before < 9 => Err(PeekError::NoMessage),
            None => Err(PeekError::NoLeader),
        }
    }

    async fn force_shrink(&self, queue: QueueId, node: NodeId) -> Change {
        let found = self.state().queue_by_id(queue).map(Arc::clone).ok_or(MemberError::NotFound)?;
        let Some(member) = found.member(node) else { return Err(MemberError::NoLocalMember) };
        let stream = member.stream.0;
        let name = MemberName { queue: SerialQueueId(queue), node: node.0, stream };
        self.apply(Command::MembersStarted(vec![name])).expect("it is one");
        self.apply(Command::Reform(name)).expect("it has started");
        Ok(Changed { changed: true, size: 1 })
    }

    async fn delete_member(&self, queue: QueueId, node: NodeId, force: bool) -> Change {
        let found = self.state().queue_by_id(queue).map(Arc::clone).ok_or(MemberError::NotFound)?;
        let Some(member) = found.member(node) else {
            return Ok(Changed { changed: false, size: found.members.len() });
        };
        let stopped = self.inner.lock().stopped.clone();
        let running = found.nodes().filter(|node| !stopped.contains(node)).count();
        match found.members.len() {
            // As of a real one: nobody leads who could be asked.
            voters if running * 2 <= voters => return Err(MemberError::NoLeader),
            1 => return Err(MemberError::LastMember),
            2 if !force => return Err(MemberError::WouldLoseQuorum { running: 0, voters: 1 }),
            _ => {}
        }
        let stream = member.stream.0;
        let name = MemberName { queue: SerialQueueId(queue), node: node.0, stream };
        self.apply(Command::RemoveMember(name)).expect("it is one");
        Ok(Changed { changed: true, size: found.members.len() - 1 })
    }

    async fn drain(&self, node: NodeId) -> Result<Drained, Refusal> {
        if node != OWN {
            return Err(Refusal::unavailable("the node does not answer"));
        }
        let stayed = vec![("/".into(), "q".into(), "non_stable_members".into())];
        let journals_stayed = vec![("orders".to_owned(), "it has no backup".to_owned())];
        Ok(Drained { connections: 2, moved: 3, stayed, journals_moved: 1, journals_stayed })
    }

    async fn revive(&self, _: NodeId) -> Result<(), Refusal> {
        Ok(())
    }

    async fn may_forget(&self, _: NodeId) -> Result<(), Refusal> {
        match &self.inner.lock().keeps_nodes {
            Some(why) => Err(Refusal::unavailable(why.clone())),
            None => Ok(()),
        }
    }

    async fn give_up(&self, queue: QueueId) -> Result<(), Refusal> {
        let queue = self.state().queue_by_id(queue).map(Arc::clone).expect("it is there");
        let (vhost, name) = (Arc::clone(&queue.vhost), Arc::clone(&queue.name));
        let id = Some(SerialQueueId(queue.id));
        self.apply(Command::DeleteQueue { vhost, name, id }).map(drop)
    }

    async fn forget(&self, node: NodeId) -> Result<(), Refusal> {
        self.apply(Command::ForgetNode { id: node.0 }).map(drop)
    }

    fn allows_replica_operations(&self) -> bool {
        !self.restricted.load(Ordering::Relaxed)
    }

    fn running_nodes(&self) -> Vec<NodeId> {
        let stopped = self.inner.lock().stopped.clone();
        let state = self.state();
        state.nodes().map(|node| node.id).filter(|node| !stopped.contains(node)).collect()
    }

    fn journal_copies(&self) -> Vec<JournalCopy> {
        let inner = self.inner.lock();
        let own = inner.copies.iter().find(|told| told.node == NODE);
        own.map(|told| told.copies.clone()).unwrap_or_default()
    }

    async fn all_journal_copies(&self) -> Vec<NodeCopies> {
        let copies = self.inner.lock().copies.clone();
        let meanwhile = std::mem::take(&mut self.inner.lock().meanwhile);
        for command in meanwhile {
            self.apply(command).unwrap();
        }
        copies
    }

    async fn amend_copy(
        &self,
        node: NodeId,
        uid: &str,
        amendment: Amendment,
    ) -> Result<String, Refusal> {
        let mut inner = self.inner.lock();
        let copy = inner.copies.iter().flat_map(|told| &told.copies).find(|copy| copy.uid == uid);
        let before = copy.map(|copy| copy.standing.clone()).unwrap_or_default();
        inner.amended.push((node, amendment));
        Ok(before)
    }

    async fn left_journals(&self) -> Vec<NodeLeft> {
        self.inner.lock().left.clone()
    }

    async fn left_declarations(&self, _: NodeId, uid: &str) -> Result<Declarations, Refusal> {
        let inner = self.inner.lock();
        let known = inner.declarations.iter().find(|known| *known.uid == *uid).cloned();
        known.ok_or_else(|| Refusal::invalid("it was not written down"))
    }

    async fn catch_up(&self) -> Result<(), Refusal> {
        if self.no_majority.load(Ordering::Relaxed) {
            return Err(Refusal::unavailable("no majority of the cluster answers"));
        }
        Ok(())
    }

    async fn close_connection(&self, name: &str, reason: &str) -> bool {
        let mut inner = self.inner.lock();
        let before = inner.connections.len();
        inner.connections.retain(|connection| connection.name != name);
        inner.closed.push((name.to_owned(), reason.to_owned()));
        inner.connections.len() < before
    }

    fn topology_votes(&self) -> TopologyVotes {
        let inner = self.inner.lock();
        let running = 1 + inner.others.len() - inner.voteless;
        TopologyVotes { voters: running + inner.silent.len(), running, own: true }
    }

    fn other_nodes(&self) -> Vec<OtherNode> {
        let inner = self.inner.lock();
        let node = |name: &str, running| OtherNode {
            name: name.into(),
            running,
            error: None,
            memory_alarm: false,
            disk_alarm: inner.alarms_elsewhere.iter().any(|alarmed| alarmed == name),
        };
        let up = inner.others.iter().map(|(name, _)| node(name, true));
        up.chain(inner.silent.values().map(|name| node(name, false))).collect()
    }

    fn counters(&self) -> GlobalCounters {
        self.inner.lock().counters
    }

    fn stats(&self) -> NodeStats {
        let inner = self.inner.lock();
        let listener = |protocol: &str, port| Listener {
            protocol: protocol.into(),
            address: "::".into(),
            port,
        };
        NodeStats {
            name: NODE.into(),
            cluster_name: inner
                .state
                .global_parameter("cluster_name")
                .and_then(|name| name.value.as_str())
                .unwrap_or(NODE)
                .to_owned(),
            process: 42,
            processors: 2,
            started_at_ms: 1_700_000_000_000,
            serving: !inner.not_serving,
            memory_used: 50_000_000,
            memory_limit: 1_000_000_000,
            memory_alarm: inner.alarm,
            disk_free: 10_000_000_000,
            disk_free_limit: 50_000_000,
            disk_alarm: inner.alarm,
            fd_used: 30,
            fd_total: 1024,
            sockets_used: inner.connections.len() as u64,
            connection_limit: Some(2),
            data_dir: "/data".into(),
            listeners: vec![
                listener("amqp", 5672),
                listener("http", 15_672),
                listener("http/prometheus", 15_692),
            ],
            auth_mechanisms: vec!["PLAIN".into(), "AMQPLAIN".into()],
            exchange_types: ["direct", "fanout", "headers", "topic"].map(str::to_owned).to_vec(),
            default_queue_type: "classic".into(),
            journal: JournalStats { syncs: 4, sync_micros: 2_000, ..JournalStats::default() },
            ..NodeStats::default()
        }
    }
}

fn stored(binding: BindingRequest) -> Binding {
    let destination = binding.destination.into();
    Binding {
        vhost: binding.vhost.into(),
        source: binding.source.into(),
        destination: if binding.to_queue {
            Destination::Queue(destination)
        } else {
            Destination::Exchange(destination)
        },
        routing_key: binding.routing_key.into(),
        arguments: binding.arguments,
    }
}
