//! A running node: its parts, and what more than one of them needs.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use journal::journal::Journal;
use metadata::refusal::Refusal;
use metadata::state::State;
use model::id::{ConsumerId, QueueId};
use tokio::sync::{mpsc, oneshot, watch};

use crate::accounts::Accounts;
use crate::cluster::Cluster;
use crate::cluster::members::Members;
use crate::cluster::reconciler::Reconciler;
use crate::cluster::unique::Unique;
use crate::config::Config;
use crate::connections::Connections;
use crate::exchange_counts::ExchangeCounts;
use crate::gateway::declare::delete_command;
use crate::limits::Budget;
use crate::limits::usage::Usage;
use crate::pressure::Pressure;
use crate::reply_to::ReplyTo;
use crate::router::Router;
use crate::shard::command::{Batch, Command};
use crate::shard::view::QueueView;
use crate::shards::Shards;
use crate::sizes::Sizes;
use crate::topology::{Gone, Topology};
use crate::totals::Totals;

/// Limits that gateways check, as configured.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// Bytes of a connection's publishes that may be in flight.
    pub(crate) in_flight: usize,
    pub(crate) connections: Option<u64>,
    pub(crate) channels: Option<u64>,
    pub(crate) queues: Option<u64>,
    pub(crate) loopback_users: Vec<String>,
    pub(crate) anonymous_user: Option<String>,
}

/// A node's name as tools want it: they take it apart at the '@'.
pub(crate) fn tool_name(name: &str) -> String {
    format!("leveret@{name}")
}

/// Where the node listens, once it does.
#[derive(Debug, Clone)]
pub(crate) struct Listening {
    /// RabbitMQ's word: `amqp`, `amqp/ssl`, `http`, `http/prometheus`.
    pub(crate) protocol: &'static str,
    pub(crate) address: std::net::SocketAddr,
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) config: Config,
    pub(crate) config_file: Option<PathBuf>,
    pub(crate) budget: Budget,
    pub(crate) limits: Limits,
    pub(crate) started_at_ms: u64,
    pub(crate) shards: Arc<Shards>,
    pub(crate) router: Arc<Router>,
    pub(crate) topology: Arc<Topology>,
    pub(crate) cluster: Arc<Cluster>,
    /// What changes the members of quorum queues.
    pub(crate) members: Arc<Members>,
    /// What keeps them as many as wanted.
    pub(crate) reconciler: Arc<Reconciler>,
    /// Its number in the cluster; none as long as the cluster does not know it, and 0 if it is on
    /// its own.
    pub(crate) number: watch::Receiver<Option<u16>>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) totals: Arc<Totals>,
    pub(crate) accounts: Accounts,
    pub(crate) connections: Connections,
    pub(crate) reply_to: ReplyTo,
    pub(crate) exchange_counts: Arc<ExchangeCounts>,
    pub(crate) sizes: Sizes,
    /// Channels that have published.
    pub(crate) publishers: AtomicU64,
    /// Subscriptions.
    pub(crate) consumers: Arc<AtomicU64>,
    pub(crate) pressure: Arc<Pressure>,
    pub(crate) usage: watch::Receiver<Usage>,
    pub(crate) listening: parking_lot::Mutex<Vec<Listening>>,
    pub(crate) stopping: AtomicBool,
    /// It is in maintenance mode.
    pub(crate) maintenance: watch::Sender<bool>,
    pub(crate) consumer_ids: Unique,
}

impl Node {
    /// A name for a new consumer.
    pub(crate) fn next_consumer(&self) -> ConsumerId {
        ConsumerId(self.consumer_ids.next())
    }

    /// Gives names of connections and consumers, once the node has its number.
    pub(crate) async fn take_number(
        self: Arc<Self>,
        mut number: watch::Receiver<Option<u16>>,
        boot: u64,
    ) {
        if let Ok(number) = number.wait_for(Option::is_some).await {
            let number = number.unwrap_or_default();
            self.connections.belong_to(number, boot);
            self.consumer_ids.belong_to(number, boot);
        }
    }

    /// The cluster's name: the one that an operator gave it, else the configured one, else that of
    /// its first node.
    pub(crate) fn cluster_name(&self) -> String {
        let state = self.router.state();
        let given = state.global_parameter("cluster_name");
        if let Some(name) = given.and_then(|given| given.value.as_str()) {
            return name.to_owned();
        }
        let configured = &self.config.cluster.given_name;
        if !configured.is_empty() {
            return configured.clone();
        }
        let first = state.nodes().min_by_key(|node| node.number);
        let first = first.map_or(self.config.node.name.as_str(), |node| &node.name);
        tool_name(first)
    }

    /// Whether clients may come: the node's number is known.
    pub(crate) fn is_joined(&self) -> bool {
        self.number.borrow().is_some()
    }

    /// Closes the connections of users and virtual hosts that were deleted, here or through another
    /// node.
    pub(crate) async fn close_gone(self: Arc<Self>, mut gone: mpsc::UnboundedReceiver<Gone>) {
        while let Some(gone) = gone.recv().await {
            match gone {
                Gone::Vhost(vhost) => {
                    let reason = format!("vhost '{vhost}' is deleted");
                    self.connections
                        .close(&reason, |record| record.login().vhost.as_ref() == Some(&vhost));
                }
                Gone::User(user) => {
                    let reason = format!("user '{user}' is deleted");
                    self.connections
                        .close(&reason, |record| record.login().user.as_ref() == Some(&user));
                }
            }
        }
    }

    /// Whether the node may have one more queue.
    ///
    /// # Errors
    /// 406, in the words of a virtual host's limit.
    pub(crate) fn check_queue_limit(&self, state: &State) -> Result<(), Refusal> {
        let Some(limit) = self.limits.queues else { return Ok(()) };
        if (state.all_queues().count() as u64) < limit {
            return Ok(());
        }
        Err(Refusal::precondition(format!("queue limit of this node ({limit}) is reached")))
    }

    /// Asks a shard about one of its queues; `None` if the node is stopping.
    pub(crate) async fn ask<T>(
        &self,
        queue: QueueId,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.shards.post(queue, Batch::one(command(answer)));
        answered.await.ok()
    }

    /// Deletes a queue, whatever is in it.
    ///
    /// # Errors
    /// Those of the metadata machine.
    pub(crate) async fn delete_by_id(&self, queue: QueueId) -> Result<(), Refusal> {
        let Some(known) = self.router.state().queue_by_id(queue).map(Arc::clone) else {
            return Ok(());
        };
        self.topology.submit(delete_command(&known)).await.map(|_| ())
    }

    /// Tells all connections when alarms begin and end, for as long as the node lives.
    pub(crate) async fn spread_alarms(self: Arc<Self>) {
        let mut reason = self.pressure.subscribe();
        loop {
            let now = *reason.borrow_and_update();
            self.connections.tell(now);
            if reason.changed().await.is_err() {
                return;
            }
        }
    }

    /// A look at every queue, as this node knows it.
    pub(crate) async fn views(&self) -> Vec<QueueView> {
        self.look(true).await
    }

    /// A look at every queue that this node keeps or leads.
    pub(crate) async fn own_views(&self) -> Vec<QueueView> {
        self.look(false).await
    }

    /// A look at every queue, `copies` of what others lead too if wanted. Shards that are stopping
    /// are left out.
    async fn look(&self, copies: bool) -> Vec<QueueView> {
        let mut answers = Vec::with_capacity(self.shards.len());
        for index in 0..self.shards.len() {
            let (answer, answered) = oneshot::channel();
            self.shards.inbox(index).post(Batch::one(Command::ViewAll { copies, answer }));
            answers.push(answered);
        }
        for inbox in self.cluster.pairs.inboxes() {
            let (answer, answered) = oneshot::channel();
            inbox.post(Batch::one(Command::ViewAll { copies, answer }));
            answers.push(answered);
        }
        let mut views = Vec::new();
        for answered in answers {
            if let Ok(mut shard) = answered.await {
                if views.is_empty() {
                    views = shard.queues;
                } else {
                    views.append(&mut shard.queues);
                }
            }
        }
        // Each shard's are in order already, which makes this cheap. The last one to know a queue has it.
        views.sort_by_key(|queue| queue.id);
        views.dedup_by(|later, kept| {
            let is_same = later.id == kept.id;
            if is_same {
                std::mem::swap(later, kept);
            }
            is_same
        });
        views
    }
}
