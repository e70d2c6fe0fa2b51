//! A queue that this node reaches through the cluster: a quorum queue, with its member here if this
//! node has one, or a classic queue that another node keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use amqp::request::{Flow, Unsettled};
use bytes::Bytes;
use metadata::objects::member::{Member, Stage};
use model::id::{ConnectionId, ConsumerId, NodeId, QueueId, Seq, StreamId};
use model::message::Message;
use model::time::{Millis, Timestamp};
use quorum::group::GroupId;
use quorum::member::{Body, Committed, Role};
use quorum::records::Records;
use tokio::sync::oneshot;

use crate::origin::Origin;
use crate::replicated::client::{Asker, Client, Leader};
use crate::replicated::fabric::Berth;
use crate::replicated::loan::Lent;
use crate::replicated::member::QueueMember;
use crate::replicated::notice::Notice;
use crate::replicated::numbered::Sender;
use crate::replicated::order::{self, Order, Published, Subscribed};
use crate::replicated::replica::Replica;
use crate::replicated::replica::carry::Carried;
use crate::replicated::replica::peek::{Peek, Unseen};
use crate::shard::command::{Arrival, Batch, Command, Consume, Counts, Deleted, Got, Settlement};
use crate::shard::desk::Desk;
use crate::shard::profile::Profile;
use crate::shard::view::{ConsumerView, QueueView};

/// What a group's host tells its member on this node.
#[derive(Debug)]
pub(crate) enum Input {
    /// The member has started: this is its hold on its records.
    Started(Records),
    Committed(Vec<Committed>),
    Role(Role),
    Checkpoint(oneshot::Sender<Bytes>),
    Install {
        state: Bytes,
        records: Vec<Body>,
        done: oneshot::Sender<()>,
    },
    Purged(u64),
    /// What was carried over is durable at these positions.
    Stored {
        carried: Carried,
        positions: Vec<Seq>,
    },
    Members {
        voters: Vec<NodeId>,
        learners: Vec<NodeId>,
    },
    Failed(String),
}

/// After which an entry that the host had no room for is proposed again.
const RETRY: Millis = Millis(5);

/// See the module head.
#[derive(Debug)]
pub(crate) struct ClusterQueue {
    pub(crate) profile: Profile,
    /// The node that keeps it, if it is a classic queue.
    home: Option<NodeId>,
    client: Client,
    replica: Option<Replica>,
    records: Option<Records>,
    voters: Vec<NodeId>,
    learners: Vec<NodeId>,
    /// Whether this turn's list of touched queues has it.
    pub(crate) touched: bool,
    /// The deadline that the shard has on its list.
    pub(crate) deadline: Option<Timestamp>,
    used_at: Timestamp,
    /// Publishes wait at most this long for a leader.
    patience: Millis,
    /// Nodes that were lost for too long, and are not back.
    gone: BTreeSet<NodeId>,
    /// Nodes that hold something and were not there when this one began to lead, and until when
    /// they have time to come.
    absent: BTreeMap<NodeId, Timestamp>,
    /// Consumers of this node of a queue whose journal may move: they subscribe again where it goes.
    subscribed: BTreeMap<ConsumerId, Subscribed>,
}

impl ClusterQueue {
    /// A queue without a leader yet; if this node is one of its members, the member starts.
    pub(crate) fn open(profile: Profile, desk: &Desk, now: Timestamp) -> Self {
        let me = desk.fabric.me();
        let home = profile.quorum.is_none().then_some(profile.home);
        let replica = profile.member(me.node).map(|member| start(desk, &profile, member));
        let mut client = Client::new(profile.id, me);
        if home.is_none()
            && let Some(leader) = desk.fabric.leader_of(profile.id)
        {
            client.follow(now, Some(leader));
        }
        if let Some(leader) = keeper_of(&profile, desk) {
            client.follow(now, Some(leader));
        }
        let patience = desk.publish_timeout;
        Self {
            profile,
            home,
            client,
            replica,
            records: None,
            voters: Vec::new(),
            learners: Vec::new(),
            touched: false,
            deadline: None,
            used_at: now,
            patience,
            gone: BTreeSet::new(),
            absent: BTreeMap::new(),
            subscribed: BTreeMap::new(),
        }
    }

    /// A message of a connection here.
    pub(crate) fn publish(
        &mut self,
        now: Timestamp,
        origin: Option<&Arc<Origin>>,
        bytes: usize,
        arrival: Arrival,
    ) {
        self.used_at = now;
        let Arrival { content, persistent, priority, ttl, done, .. } = arrival;
        let message = content.message().clone();
        let order = Order::Publish(Published { persistent, priority, ttl, message });
        let asker = Asker::Publisher { origin: origin.cloned(), bytes, done };
        self.client.order(now, order, asker);
    }

    pub(crate) fn settle(&mut self, now: Timestamp, unsettled: &[Unsettled], how: Settlement) {
        self.used_at = now;
        let runs = order::runs(unsettled);
        self.client.order(now, Order::Settle { runs, outcome: how }, Asker::Nobody);
    }

    /// An order that nobody waits for.
    pub(crate) fn cast(&mut self, now: Timestamp, order: Order) {
        self.client.order(now, order, Asker::Nobody);
    }

    /// A consumer of this node is gone with its channel.
    pub(crate) fn gone(&mut self, desk: &mut Desk, consumer: ConsumerId) {
        self.subscribed.remove(&consumer);
        self.client.unseat(&mut desk.outboxes, consumer);
        self.cast(desk.now, Order::Gone { consumer });
    }

    pub(crate) fn consume(&mut self, desk: &mut Desk, consume: Consume) {
        self.used_at = desk.now;
        let consumer = consume.consumer;
        self.client.seat(
            &mut desk.outboxes,
            consumer,
            &consume.origin,
            consume.channel,
            consume.no_ack,
        );
        let subscribed = Subscribed {
            at: self.client.me(),
            connection: consume.origin.id,
            channel: consume.channel,
            consumer,
            tag: consume.tag,
            no_ack: consume.no_ack,
            exclusive: consume.exclusive,
            priority: consume.priority,
            timeout: consume.timeout,
            flow: consume.flow,
            window: desk.consumer_window,
            arguments: consume.arguments,
            user: consume.user.to_string(),
        };
        if self.profile.journal.is_some() {
            self.subscribed.insert(consumer, subscribed.clone());
        }
        let asker = Asker::Consume(consumer, consume.answer);
        self.client.order(desk.now, Order::Consume(Box::new(subscribed)), asker);
    }

    pub(crate) fn cancel(
        &mut self,
        now: Timestamp,
        consumer: ConsumerId,
        answer: oneshot::Sender<bool>,
    ) {
        self.subscribed.remove(&consumer);
        self.client.order(now, Order::Cancel { consumer }, Asker::Cancel(consumer, answer));
    }

    /// The broker ends a consumer of this node.
    pub(crate) fn revoke(&mut self, desk: &mut Desk, consumer: ConsumerId) {
        self.subscribed.remove(&consumer);
        self.client.revoke(&mut desk.outboxes, consumer);
        self.cast(desk.now, Order::Cancel { consumer });
    }

    /// A connection of this node has ended without a word.
    pub(crate) fn connection_gone(&mut self, desk: &mut Desk, connection: ConnectionId) {
        self.subscribed.retain(|_, subscribed| subscribed.connection != connection);
        if self.client.leave(&mut desk.outboxes, connection) {
            self.cast(desk.now, Order::Left { connection });
        }
    }

    pub(crate) fn get(
        &mut self,
        now: Timestamp,
        connection: ConnectionId,
        no_ack: bool,
        answer: oneshot::Sender<Got>,
    ) {
        self.used_at = now;
        self.client.order(now, Order::Get { connection, no_ack }, Asker::Get(answer));
    }

    pub(crate) fn count(&mut self, now: Timestamp, answer: oneshot::Sender<Option<Counts>>) {
        self.client.order(now, Order::Count, Asker::Count(answer));
    }

    /// It was declared again: that matters to one that expires, wherever it is kept.
    pub(crate) fn touch(&mut self, now: Timestamp) {
        self.used_at = now;
        if self.profile.settings.expires.is_some() {
            self.cast(now, Order::Touch);
        }
    }

    pub(crate) fn purge(&mut self, now: Timestamp, answer: oneshot::Sender<Option<u64>>) {
        self.client.order(now, Order::Purge, Asker::Purge(answer));
    }

    pub(crate) fn delete(
        &mut self,
        now: Timestamp,
        if_unused: bool,
        if_empty: bool,
        answer: oneshot::Sender<Deleted>,
    ) {
        let order = Order::Delete { if_unused, if_empty };
        self.client.order(now, order, Asker::Delete(answer));
    }

    /// Its settings or its members have changed.
    pub(crate) fn configure(&mut self, desk: &mut Desk, profile: Profile) {
        let member = profile.member(desk.fabric.me().node);
        let stream = self.replica.as_ref().map(Replica::stream);
        let before = self.profile.member(desk.fabric.me().node).map(|member| member.group);
        self.profile = profile;
        if self.profile.journal.is_some() {
            self.home = Some(self.profile.home);
            let leader = keeper_of(&self.profile, desk);
            if leader != self.client.leader() {
                self.move_to(desk, leader);
            }
        }
        if stream != member.map(|member| member.stream) {
            self.leave(desk);
            self.replica = member.map(|member| start(desk, &self.profile, member));
        } else if let Some(member) = member
            && before != Some(member.group)
        {
            let (id, alone) = (self.profile.id, member.stage == Stage::Sole);
            desk.fabric.move_to(id, address(id, &member), alone);
        }
        if let Some(replica) = &mut self.replica {
            replica.configure(&self.profile);
        }
    }

    /// The journal that it is in is served by somebody else now, or by nobody.
    fn move_to(&mut self, desk: &mut Desk, leader: Option<Leader>) {
        self.client.give_up_questions(&mut desk.outboxes);
        self.client.follow(desk.now, leader);
        if leader.is_some() {
            self.client.subscribe_again(desk.now, self.subscribed.values());
        }
    }

    /// This node's member goes, with all that is in the journal of it.
    fn leave(&mut self, desk: &mut Desk) {
        let Some(mut replica) = self.replica.take() else { return };
        let me = self.client.me().node;
        replica.end(desk);
        self.records = None;
        (self.voters, self.learners) = (Vec::new(), Vec::new());
        if self.client.leader().is_some_and(|leader| leader.node == me) {
            self.client.follow(desk.now, None);
        }
        desk.fabric.delete(self.profile.id, replica.stream());
    }

    /// Batches of another node, or of this one, for the leader.
    pub(crate) fn orders(&mut self, desk: &Desk, batch: Bytes) {
        if let Some(seat) = &self.profile.journal {
            desk.fabric.keep(seat.journal, self.profile.id, batch);
        } else if let Some(replica) = &mut self.replica
            && let Err(error) = replica.orders(batch)
        {
            tracing::error!(queue = %self.profile.name, vhost = %self.profile.vhost, %error,
                "orders of a node are passed over");
        }
    }

    /// The leader tells something.
    pub(crate) fn notice(&mut self, desk: &mut Desk, notice: Notice) {
        desk.counted.confirmed += self.client.notice(desk.now, &mut desk.outboxes, notice);
    }

    /// Somebody says that he leads.
    pub(crate) fn leads(&mut self, now: Timestamp, leader: Leader) {
        if self.client.leader().is_none_or(|known| known.term <= leader.term) {
            self.client.follow(now, Some(leader));
        }
    }

    /// A node is connected: if it keeps this queue, the way to it is open.
    pub(crate) fn up(&mut self, desk: &mut Desk, node: Sender) {
        let now = desk.now;
        self.gone.remove(&node.node);
        self.absent.remove(&node.node);
        if let Some(replica) = &mut self.replica {
            replica.is_here(node);
        }
        self.agree(desk);
        if let Some(seat) = &self.profile.journal {
            let leader = Leader { node: node.node, term: seat.term };
            if seat.served == Some(node) && self.client.leader() != Some(leader) {
                self.move_to(desk, Some(leader));
            }
        } else if self.home == Some(node.node) {
            self.client.follow(now, Some(Leader { node: node.node, term: node.boot }));
        }
    }

    /// A node is lost: if it led, nobody does for now; if it keeps this queue, there is nothing to
    /// wait for.
    pub(crate) fn lost(&mut self, desk: &mut Desk, node: NodeId) {
        let now = desk.now;
        if self.profile.journal.is_some() {
            // The other node of the pair goes on with it soon.
            if self.client.leader().is_some_and(|leader| leader.node == node) {
                self.move_to(desk, None);
            }
        } else if self.home == Some(node) {
            self.client.follow(now, None);
            self.client.abandon(&mut desk.outboxes);
        } else if self.client.leader().is_some_and(|leader| leader.node == node) {
            self.client.follow(now, None);
        }
    }

    /// A node has been lost for too long: its consumers are gone. Who leads says so in the log, now
    /// or when it comes to lead.
    pub(crate) fn lost_for_long(&mut self, node: NodeId) {
        if self.profile.quorum.is_some() {
            self.gone.insert(node);
        }
        if let Some(replica) = &mut self.replica {
            replica.is_lost(node);
        }
    }

    /// This node leads now: who holds something may have gone before.
    fn look_for_holders(&mut self, desk: &Desk) {
        let Some(replica) = &mut self.replica else { return };
        self.absent.clear();
        for node in replica.nodes() {
            match desk.fabric.start_of(node) {
                Some(start) => replica.is_here(start),
                None if self.gone.contains(&node) => replica.is_lost(node),
                None => {
                    let until = Timestamp(desk.now.0 + desk.fabric.patience().0);
                    self.absent.insert(node, until);
                }
            }
        }
    }

    /// Sees to it that the newest version which the nodes of all members know comes into force.
    fn agree(&mut self, desk: &Desk) {
        let Some(replica) = self.replica.as_mut().filter(|replica| replica.led_in().is_some())
        else {
            return;
        };
        let members = self.voters.iter().chain(&self.learners);
        let known: Option<Vec<u8>> = members.map(|node| desk.fabric.knows(*node)).collect();
        if let Some(all_know) = known.and_then(|known| known.into_iter().min()) {
            replica.agree(all_know);
        }
    }

    /// The host of its group has something for its member. Returns whether it leads now and did
    /// not before: then all nodes must hear of it.
    ///
    /// What is for a member that this node had before is nothing to this one.
    pub(crate) fn input(
        &mut self,
        desk: &mut Desk,
        stream: StreamId,
        input: Input,
    ) -> Option<Leader> {
        let replica = self.replica.as_mut().filter(|replica| replica.stream() == stream)?;
        match input {
            Input::Started(records) => self.records = Some(records),
            Input::Committed(entries) => {
                if replica.stopped().is_none()
                    && let Err(error) = replica.committed(desk, &self.profile, entries)
                {
                    tracing::error!(
                        queue = %self.profile.name, vhost = %self.profile.vhost, %error,
                        "this member of a quorum queue cannot go on and is read-only"
                    );
                    // It must not lead, and nothing must be taken for what it has not become.
                    desk.fabric.halt(self.profile.id);
                }
            }
            Input::Role(Role::Leader { term }) => {
                replica.lead(term, &self.profile);
                let leader = Leader { node: self.client.me().node, term };
                self.client.follow(desk.now, Some(leader));
                self.look_for_holders(desk);
                self.agree(desk);
                return Some(leader);
            }
            Input::Role(Role::Follower { term, leader }) => {
                replica.step_down();
                // It says itself when it is ready to lead; this is for the case that it cannot be
                // heard.
                self.client.hint(desk.now, leader.map(|node| Leader { node, term }));
                let me = self.client.me().node;
                let is_over =
                    |known: Leader| known.term < term || (known.term == term && known.node == me);
                if self.client.leader().is_some_and(is_over) {
                    self.client.follow(desk.now, None);
                }
            }
            Input::Checkpoint(answer) => {
                // Dropping the answer stops the group.
                if let Some(state) = replica.checkpoint() {
                    crate::shard::command::answer(answer, state);
                }
            }
            Input::Install { state, records, done } => {
                match replica.install(desk, state, records) {
                    Ok(()) => crate::shard::command::answer(done, ()),
                    // Dropping the answer stops the group.
                    Err(error) => tracing::error!(
                        queue = %self.profile.name, %error, "a checkpoint cannot be read"
                    ),
                }
            }
            Input::Purged(index) => replica.purged(desk, self.profile.id, index),
            Input::Stored { carried, positions } => {
                replica.on_stored(desk, self.profile.id, &carried, &positions);
            }
            Input::Members { voters, learners } => {
                self.voters = voters;
                self.learners = learners;
                self.agree(desk);
            }
            Input::Failed(error) => {
                tracing::error!(queue = %self.profile.name, vhost = %self.profile.vhost, error,
                    "this member of a quorum queue has failed");
                replica.step_down();
            }
        }
        None
    }

    pub(crate) fn on_bodies(
        &mut self,
        desk: &mut Desk,
        stream: StreamId,
        bodies: Vec<(Seq, Option<Message>)>,
        carry: bool,
    ) {
        let current = self.replica.as_mut().filter(|replica| replica.stream() == stream);
        let Some(replica) = current else { return };
        if !carry {
            replica.on_read(desk, &self.profile, bodies);
        } else if let Some(records) = &self.records
            && let Some((carried, payloads)) = replica.on_carried(bodies)
        {
            let (queue, inbox) = (self.profile.id, Arc::clone(&desk.inbox));
            records.carry(payloads, move |positions| {
                let input = Input::Stored { carried, positions };
                inbox.post(Batch::one(Command::Raft { queue, stream, input }));
            });
        }
    }

    /// The leader wants bodies of this node's member.
    pub(crate) fn lend(&mut self, desk: &mut Desk, to: NodeId, seqs: Vec<Seq>) {
        // One that has not started may do so yet: no answer is no denial.
        if let Some(replica) = &mut self.replica {
            replica.lend(desk, &self.profile, to, seqs);
        }
    }

    /// Somebody wants to see a message that waits.
    pub(crate) fn peek(&self, desk: &Desk, peek: Peek) {
        match &self.replica {
            Some(replica) => replica.peek(desk, self.profile.id, peek),
            None => peek.answer(Err(Unseen::NotLeader)),
        }
    }

    /// Another member has answered that.
    pub(crate) fn lent(&mut self, desk: &mut Desk, from: NodeId, bodies: Vec<(Seq, Lent)>) {
        if let Some(replica) = &mut self.replica {
            replica.lent(desk, &self.profile, from, bodies);
        }
    }

    pub(crate) fn dead_lettered(&mut self, desk: &mut Desk, seq: Seq, accepted: bool) {
        if let Some(replica) = &mut self.replica {
            replica.dead_lettered(desk, &self.profile, seq, accepted);
        }
    }

    /// The end of a turn: what has gathered goes to the leader, into the log, and to nodes.
    pub(crate) fn hand_over(&mut self, desk: &mut Desk) {
        if self.profile.journal.is_some() {
            self.client.refuse_questions_without_leader(&mut desk.outboxes);
        } else if self.home.is_some() {
            self.client.refuse_without_leader(&mut desk.outboxes);
        } else if self.client.wants_leader() {
            desk.fabric.want(self.profile.id);
        }
        let me = self.client.me();
        if let Some(replica) = &mut self.replica {
            replica.go_on(desk, &self.profile);
        }
        loop {
            let mut moved = false;
            while let Some((leader, batch)) = self.client.batch() {
                moved = true;
                if leader.node == me.node {
                    self.orders(desk, batch);
                } else {
                    desk.fabric.orders(leader.node, self.profile.id, batch);
                }
            }
            if let Some(replica) = &mut self.replica {
                while let Some(entry) = replica.proposal(desk.now) {
                    if !desk.fabric.propose(self.profile.id, entry.clone()) {
                        replica.not_proposed(entry);
                        break;
                    }
                }
                for (sender, notice) in replica.take_notices() {
                    moved = true;
                    if sender == me {
                        desk.counted.confirmed +=
                            self.client.notice(desk.now, &mut desk.outboxes, notice);
                    } else {
                        desk.fabric.notice(sender.node, &notice);
                    }
                }
            }
            if !moved {
                break;
            }
        }
        if let (Some(replica), Some(records)) = (&mut self.replica, &self.records) {
            let free = replica.take_free();
            if !free.is_empty() {
                records.release(&free);
            }
            replica.report(desk);
        }
    }

    /// When something has to be done next: a deadline of the machine, or of a publish that waits.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        let machine = self.replica.as_ref().and_then(Replica::deadline);
        let publish =
            self.client.oldest_publish().map(|since| Timestamp(since.0 + self.patience.0 + 1));
        let refused = self.replica.as_ref().filter(|replica| replica.has_refused());
        let again = refused.map(|_| Timestamp(self.used_at.0 + RETRY.0));
        let absent = self.absent.values().copied();
        let client = self.client.deadline();
        let dead = self.replica.as_ref().and_then(Replica::again_deadline);
        machine
            .into_iter()
            .chain(dead)
            .chain(publish)
            .chain(again)
            .chain(client)
            .chain(absent)
            .min()
    }

    /// That time has come.
    pub(crate) fn tick(&mut self, desk: &Desk) {
        let now = desk.now;
        if let Some(replica) = &mut self.replica
            && replica.deadline().is_some_and(|deadline| deadline <= now)
        {
            replica.tick();
        }
        if let Some(replica) = &mut self.replica {
            replica.again(now);
        }
        while let Some((&node, _)) = self.absent.iter().find(|(_, until)| **until <= now) {
            self.absent.remove(&node);
            self.lost_for_long(node);
        }
        self.used_at = now;
        self.client.tick(now);
        if self.waits_for_room(desk) {
            self.client.excuse(now);
        }
        let oldest = Timestamp(now.0.saturating_sub(self.patience.0));
        let refused = self.client.refuse_older(oldest);
        if refused > 0 {
            let why = match self.client.leader() {
                None => "nobody has led the queue for too long",
                Some(_) => "whoever leads the queue has not answered for too long",
            };
            tracing::warn!(
                queue = %self.profile.name, vhost = %self.profile.vhost, refused,
                "publishes were refused: {why}"
            );
        }
    }

    /// Whether the node that keeps it has no room, and blocks publishers therefore. A queue of several
    /// members goes on with those that have some.
    fn waits_for_room(&self, desk: &Desk) -> bool {
        let keeper = self.client.leader().filter(|_| self.home.is_some());
        keeper.is_some_and(|keeper| desk.fabric.has_no_room(keeper.node))
    }

    /// The journal has synced up to `lsn`: bodies up to there may be dropped.
    pub(crate) fn synced(&mut self, desk: &mut Desk, lsn: journal::op::Lsn, keep: u64) {
        if let Some(replica) = &mut self.replica {
            replica.synced(lsn, keep);
            replica.report(desk);
        }
    }

    /// The queue is gone.
    pub(crate) fn end(mut self, desk: &mut Desk) {
        self.leave(desk);
        desk.counted.confirmed += self.client.end(&mut desk.outboxes);
    }

    /// How it is, as this node knows it.
    pub(crate) fn view(&self) -> QueueView {
        let Some(replica) = &self.replica else {
            return QueueView { used_at: self.used_at.0, ..QueueView::empty(self.profile.id) };
        };
        let (machine, queue) = (replica.machine(), replica.machine().queue());
        let (in_memory, in_memory_bytes) = replica.in_memory();
        let consumers = machine
            .subscribed()
            .values()
            .map(|one| ConsumerView {
                id: one.consumer,
                connection: one.connection,
                channel: one.channel,
                tag: one.tag.clone(),
                no_ack: one.no_ack,
                exclusive: one.exclusive,
                prefetch: match one.flow {
                    Flow::Prefetch(count) => count,
                    Flow::Granted => 0,
                },
                arguments: one.arguments.clone(),
                user: one.user.as_str().into(),
                timeout: one
                    .timeout
                    .or(self.profile.settings.consumer_timeout)
                    .map(|timeout| timeout.0),
            })
            .collect();
        QueueView {
            ready: queue.ready(),
            unsettled: queue.unsettled(),
            ready_bytes: queue.ready_bytes(),
            unsettled_bytes: queue.unsettled_bytes(),
            delayed: queue.delayed(),
            delayed_bytes: queue.delayed_bytes(),
            dead: queue.dead(),
            dead_bytes: queue.dead_bytes(),
            in_memory,
            in_memory_bytes,
            persistent: queue.ready() + queue.unsettled() + queue.delayed() + queue.dead(),
            consumers,
            active: queue.active(),
            term: self.led_in(),
            voters: self.voters.clone(),
            learners: self.learners.clone(),
            counters: replica.counters(),
            used_at: self.used_at.0,
            ..QueueView::empty(self.profile.id)
        }
    }

    /// The term in which this node leads it, if it does.
    pub(crate) fn led_in(&self) -> Option<u64> {
        self.replica.as_ref().and_then(Replica::led_in)
    }
}

/// By which number the members of a queue's group know each other.
fn address(queue: QueueId, member: &Member) -> GroupId {
    if member.group == 0 { queue.into() } else { GroupId(member.group) }
}

/// Who keeps a classic queue of another node or of a journal, as far as it can be reached.
fn keeper_of(profile: &Profile, desk: &Desk) -> Option<Leader> {
    if profile.quorum.is_some() {
        return None;
    }
    let Some(seat) = &profile.journal else {
        let keeper = desk.fabric.start_of(profile.home)?;
        return Some(Leader { node: keeper.node, term: keeper.boot });
    };
    let served = seat.served?;
    // Another start of that node has not said that it serves it.
    let is_there = desk.fabric.start_of(served.node) == Some(served);
    is_there.then_some(Leader { node: served.node, term: seat.term })
}

/// Starts this node's member of a queue.
fn start(desk: &Desk, profile: &Profile, member: Member) -> Replica {
    let (queue, stream, group) = (profile.id, member.stream, address(profile.id, &member));
    let containers = Arc::default();
    let shards = Arc::clone(&desk.shards);
    let stage = member.stage;
    let member = QueueMember::new(queue, stream, shards, Arc::clone(&containers));
    let (founders, led_by) = (profile.founders(), profile.led_by);
    let berth = Berth { stream, stage, group, founders, led_by };
    desk.fabric.start(queue, Arc::new(member), berth);
    Replica::new(stream, containers)
}
