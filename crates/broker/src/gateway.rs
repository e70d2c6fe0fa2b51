//! One connection's way into the broker: checks, routes and hands on what its session asks for.
//!
//! ```text
//!  Publish ─► exchange, permission, properties ─► Routes snapshot ─► staged, by shard ─┐
//!  Settle, Sent, Grant ────────────────────────────────────────────► staged, by shard ─┤
//!                                                                    end of a read ────┴─► inboxes
//!  declare, bind, delete … ─► topology      consume, get, purge … ─► shard, answer awaited
//! ```
//!
//! The way in is [`amqp::broker::Broker`]. What one read brought is handed on as one batch for each shard. Before an answered request is
//! performed, everything staged is handed on, so that a client's requests never overtake each other.

pub(crate) mod account;
mod calls;
pub(crate) mod declare;
mod publish;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use amqp::outbox::Written;
use amqp::request::{ChannelId, Error, Event, Outcome, Publish, Reply, Request, Unsettled};
use amqp::tls::TlsPeer;
use journal::op::Lsn;
use metadata::access::Access;
use metadata::objects::Name;
use metadata::objects::queue::{Queue, QueueKind};
use metadata::refusal::Refusal;
use metadata::routes::VhostRoutes;
use metadata::routes::targets::{RouteSet, Target};
use metadata::state::State;
use model::id::{ConnectionId, ConsumerId, QueueId};
use tokio::sync::oneshot;

use crate::connections::Record;
use crate::node::Node;
use crate::origin::Origin;
use crate::reply_to;
use crate::shard::command::{Batch, Command, Settlement};
use crate::totals::Counters;
use crate::{exchange_counts, sizes};

/// Where a connection comes from, as its listener knows it.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// What its TLS handshake told, if there was one.
    pub(crate) tls: Option<TlsPeer>,
    /// The user that its verified certificate names, if there is one.
    pub(crate) certificate_user: Option<String>,
}

/// What is staged for one shard.
#[derive(Debug, Default)]
struct Staged {
    bytes: usize,
    commands: Vec<Command>,
}

/// What channels that were closed since the last hand-over leave behind.
#[derive(Debug, Default)]
struct Ended {
    consumers: Vec<(ConsumerId, QueueId)>,
    unsettled: Vec<Unsettled>,
}

/// Who is logged in, and where.
#[derive(Debug)]
struct Place {
    vhost: Name,
    access: Access,
    /// The snapshot that `access` and `routes` were made from.
    state: Arc<State>,
    routes: Arc<VhostRoutes>,
}

/// The route of the last message, valid for the snapshot that it was found in.
#[derive(Debug, Default)]
struct LastRoute {
    route: Vec<u8>,
    targets: Vec<Target>,
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct Gateway {
    node: Arc<Node>,
    origin: Arc<Origin>,
    peer: Peer,
    record: Arc<Record>,
    user: Option<Name>,
    place: Option<Place>,
    staged: Vec<Staged>,
    ended: Ended,
    /// For this connection itself: returns, confirms of what no queue takes.
    events: Vec<Event>,
    routes: RouteSet,
    last: LastRoute,
    /// Reply consumers: at most one on each channel, and the name that stands for it.
    replies: BTreeMap<ChannelId, (ConsumerId, String)>,
    counted: Counters,
    sizes: sizes::Counting,
    exchange: exchange_counts::Counting,
    /// Channels that have published, and the last one that did.
    publishers: BTreeSet<ChannelId>,
    publisher: Option<ChannelId>,
    /// Replies wait until the journal has synced this.
    unsynced: Option<Lsn>,
    /// It acts for an operator: there is no client, and nobody counts it.
    internal: bool,
    /// It has let go of everything that it held.
    disconnected: bool,
    /// Questions to shards that were asked and not answered.
    unanswered: u32,
    opened: bool,
}

/// What becomes of a question to a shard.
#[derive(Debug)]
enum Asked<T> {
    Answered(T),
    /// Nobody leads the queue for too long. The answer may come yet.
    Late(oneshot::Receiver<T>, Error),
}

impl Gateway {
    pub(crate) fn new(node: Arc<Node>, record: Arc<Record>) -> Self {
        let (origin, peer) = (Arc::clone(&record.origin), record.peer.clone());
        let staged = (0..node.shards.len()).map(|_| Staged::default()).collect();
        let counted = Counters { connections_opened: 1, ..Counters::default() };
        Self {
            node,
            origin,
            peer,
            record,
            user: None,
            place: None,
            staged,
            ended: Ended::default(),
            events: Vec::new(),
            routes: RouteSet::new(),
            last: LastRoute::default(),
            replies: BTreeMap::new(),
            counted,
            sizes: sizes::Counting::default(),
            exchange: exchange_counts::Counting::default(),
            publishers: BTreeSet::new(),
            publisher: None,
            unsynced: None,
            internal: false,
            disconnected: false,
            unanswered: 0,
            opened: false,
        }
    }

    /// A way in for an operator who is this user, without a client: the same checks apply.
    ///
    /// # Errors
    /// 530 if the user may not use the virtual host.
    pub(crate) fn for_operator(node: Arc<Node>, user: &str, vhost: &str) -> Result<Self, Refusal> {
        let state = node.router.state();
        let access = state.access(user, vhost)?;
        let record = Arc::new(node.connections.internal());
        let mut gateway = Self::new(node, record);
        gateway.counted = Counters::default();
        gateway.internal = true;
        gateway.user = Some(Arc::clone(&access.user.name));
        let routes = state.routes().vhost(vhost).map(Arc::clone).unwrap_or_default();
        gateway.place = Some(Place { vhost: vhost.into(), access, state, routes });
        Ok(gateway)
    }

    fn id(&self) -> ConnectionId {
        self.origin.id
    }

    fn stage(&mut self, queue: QueueId, command: Command) {
        let index = self.node.shards.index_of(queue);
        self.staged[index].commands.push(command);
    }

    /// Requests that have no answer.
    fn accept(&mut self, request: Request) {
        match request {
            Request::Settle { unsettled, outcome, .. } => self.settle(unsettled, outcome),
            Request::Limit { consumer, queue } => {
                self.stage(queue, Command::Limit { queue, consumer });
            }
            Request::Grant { consumer, queue, count } => {
                self.stage(queue, Command::Grant { queue, consumer, count });
            }
            Request::ConsumerEnded { consumer, queue } => {
                self.stage(queue, Command::Gone { queue, consumer });
            }
            Request::ChannelClosed { channel, consumers, unsettled } => {
                self.channel_closed(channel, consumers, unsettled);
            }
            other => debug_assert!(false, "{other:?} wants an answer"),
        }
    }

    fn settle(&mut self, unsettled: Vec<Unsettled>, outcome: Outcome) {
        self.settle_as(unsettled, Settlement::Client(outcome));
    }

    /// Splits a settlement by queues, keeping the order.
    fn settle_as(&mut self, unsettled: Vec<Unsettled>, outcome: Settlement) {
        let Some(first) = unsettled.first() else { return };
        let queue = first.queue;
        if unsettled.iter().all(|one| one.queue == queue) {
            self.stage(queue, Command::Settle { queue, unsettled, outcome });
            return;
        }
        let mut by_queue: Vec<(QueueId, Vec<Unsettled>)> = Vec::new();
        for one in unsettled {
            match by_queue.iter_mut().find(|(queue, _)| *queue == one.queue) {
                Some((_, list)) => list.push(one),
                None => by_queue.push((one.queue, vec![one])),
            }
        }
        for (queue, unsettled) in by_queue {
            self.stage(queue, Command::Settle { queue, unsettled, outcome });
        }
    }

    fn channel_closed(
        &mut self,
        channel: ChannelId,
        consumers: Vec<(ConsumerId, QueueId)>,
        unsettled: Vec<Unsettled>,
    ) {
        self.counted.channels_closed += 1;
        if self.publishers.remove(&channel) {
            self.publisher = None;
            self.node.publishers.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some((_, name)) = self.replies.remove(&channel) {
            self.node.reply_to.close(&name);
        }
        let ends = |one: &Unsettled| {
            one.consumer.is_some_and(|holder| consumers.iter().any(|(ended, _)| *ended == holder))
        };
        // What its consumers hold comes back with them; the rest was got, or its consumer was
        // cancelled before.
        self.ended.unsettled.extend(unsettled.into_iter().filter(|one| !ends(one)));
        for (consumer, queue) in consumers {
            if queue != reply_to::QUEUE {
                self.stage(queue, Command::End { queue, consumer });
                self.ended.consumers.push((consumer, queue));
            }
        }
        self.node.accounts.close_channel(&self.record);
    }

    /// Lets go of what closed channels held. All their consumers have ended by then, so nothing
    /// goes to another one that is about to end as well.
    fn let_go(&mut self) {
        let Ended { consumers, unsettled } = std::mem::take(&mut self.ended);
        self.settle_as(unsettled, Settlement::Lost);
        for (consumer, queue) in consumers {
            self.stage(queue, Command::Gone { queue, consumer });
        }
    }

    /// Hands on what one read has brought.
    fn hand_on(&mut self) {
        self.let_go();
        for (index, staged) in self.staged.iter_mut().enumerate() {
            if staged.commands.is_empty() {
                continue;
            }
            let Staged { bytes, commands } = std::mem::take(staged);
            if bytes > 0 {
                self.origin.in_flight.add(bytes);
            }
            let origin = Some(Arc::clone(&self.origin));
            self.node.shards.inbox(index).post(Batch { origin, bytes, commands });
        }
        if !self.events.is_empty() {
            self.origin.outlet.post(&mut self.events);
        }
        self.node.totals.add(&mut self.counted);
        self.node.sizes.add(&mut self.sizes);
        self.exchange.report();
    }

    /// Whether more may be read: not too much of its is in flight. Alarms are the session's, which
    /// tells the client when it stops reading.
    fn has_room(&self) -> bool {
        self.origin.in_flight.bytes() < self.node.limits.in_flight
    }

    /// Resolves when there may be room. Safe to drop and call again.
    async fn room(&mut self) {
        self.origin.in_flight.below(self.node.limits.in_flight).await;
    }

    /// Asks the shard of a queue, after everything that was staged.
    ///
    /// # Errors
    /// 541 if a quorum queue has no leader for too long: what was asked may still be done later.
    async fn ask<T>(
        &mut self,
        queue: QueueId,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, Error> {
        match self.ask_in_time(queue, command).await? {
            Asked::Answered(answer) => Ok(answer),
            Asked::Late(_, error) => Err(error),
        }
    }

    /// The same, for who has to do with the answer that comes too late.
    async fn ask_in_time<T>(
        &mut self,
        queue: QueueId,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<Asked<T>, Error> {
        self.hand_on();
        let (answer, mut answered) = oneshot::channel();
        self.node.shards.post(
            queue,
            Batch {
                origin: Some(Arc::clone(&self.origin)),
                bytes: 0,
                commands: vec![command(answer)],
            },
        );
        // One that is never answered stays counted: the answer may have been a message.
        self.unanswered += 1;
        let state = self.node.router.state();
        let may_wait =
            |queue: &&Arc<Queue>| queue.kind == QueueKind::Quorum || queue.journal.is_some();
        let known = state.queue_by_id(queue).filter(may_wait);
        let answer = if let Some(queue) = known {
            let patience = self.node.config.quorum_queues.publish_timeout;
            let Ok(answer) = tokio::time::timeout(patience, &mut answered).await else {
                let (name, vhost) = (&queue.name, &queue.vhost);
                let text = match &queue.journal {
                    Some(journal) => format!(
                        "queue '{name}' in vhost '{vhost}': no node has served its journal '{journal}' in time"
                    ),
                    None => format!(
                        "queue '{name}' in vhost '{vhost}': no majority of its members has answered in time"
                    ),
                };
                return Ok(Asked::Late(answered, Error { code: 541, text }));
            };
            answer
        } else {
            answered.await
        };
        self.unanswered -= 1;
        let stopping = |_| Error { code: 541, text: "the node is stopping".into() };
        answer.map(Asked::Answered).map_err(stopping)
    }

    /// The end that nobody planned: a defect has ended the connection's task, or an operator does
    /// not wait for an answer any more, which may have been a message. The shards find out
    /// themselves what was held.
    fn vanish(&mut self) {
        for index in 0..self.node.shards.len() {
            let gone = Command::ConnectionGone { connection: self.origin.id };
            self.node.shards.inbox(index).post(Batch::one(gone));
        }
        // When the node stops they go with the next start.
        if !self.internal && !self.node.stopping.load(Ordering::Acquire) {
            self.closing_later();
        }
    }

    fn place(&self) -> Result<&Place, Error> {
        self.place
            .as_ref()
            .ok_or_else(|| Error { code: 504, text: "expected 'connection.open'".into() })
    }

    /// Makes the snapshot of this connection the current one.
    fn refresh(&mut self) {
        let Some(place) = &mut self.place else { return };
        if self.node.router.is_current(&place.state) {
            return;
        }
        self.last.route.clear();
        self.exchange.leave();
        place.state = self.node.router.state();
        if let Some(routes) = place.state.routes().vhost(&place.vhost) {
            place.routes = Arc::clone(routes);
        }
        // Permissions are read anew with every snapshot; a user that has lost all of them keeps
        // what he had until his connection is closed.
        if let Ok(access) = place.state.access(&place.access.user.name, &place.vhost) {
            place.access = access;
        }
    }
}

impl amqp::broker::Broker for Gateway {
    fn publish(&mut self, publish: Publish) -> Result<(), Error> {
        self.take(publish)
    }

    async fn call(&mut self, request: Request) -> Reply {
        self.answer(request).await
    }

    fn cast(&mut self, request: Request) {
        self.accept(request);
    }

    fn end_of_batch(&mut self) {
        self.hand_on();
    }

    fn written(&mut self, written: Written) {
        let Written { consumer, queue, count, bytes } = written;
        if queue != reply_to::QUEUE {
            self.stage(queue, Command::Sent { queue, consumer, messages: count, bytes });
        }
    }

    fn has_capacity(&self) -> bool {
        self.has_room()
    }

    async fn capacity(&mut self) {
        self.room().await;
    }

    async fn disconnected(&mut self) {
        self.hand_on();
        self.closing().await;
        self.disconnected = true;
    }

    async fn settled(&mut self) {
        if let Some(lsn) = self.unsynced.take() {
            self.node.topology.durable(lsn).await;
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        for (_, name) in self.replies.values() {
            self.node.reply_to.close(name);
        }
        self.hand_on();
        if self.unanswered > 0 || !(self.internal || self.disconnected) {
            self.vanish();
        }
        if self.internal {
            return;
        }
        self.node.publishers.fetch_sub(self.publishers.len() as u64, Ordering::Relaxed);
        self.counted.connections_closed += 1;
        self.node.totals.add(&mut self.counted);
        self.node.accounts.close_connection(&self.record, self.opened);
        self.node.connections.remove(self.record.id);
    }
}

/// A refusal as the session sends it.
fn error(refusal: Refusal) -> Error {
    Error { code: refusal.code, text: refusal.text }
}
