//! The node as its HTTP API sees it.
//!
//! Declarations, publishes and gets go through a [`Gateway`] that acts for the asking user, so the
//! checks are those of AMQP clients.

pub(crate) mod inquiries;
mod journals;
mod parts;
mod peek;
mod reconciliation;
mod turn;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use amqp::broker::Broker;
use amqp::request::{
    Binding, Error, ExchangeDeclare, Outcome, QueueDeclare, Reply, Request, Unsettled,
};
use bytes::Bytes;
use management::census::Names;
use management::inquiry::{self, Change, Done, Inquiry, Wanted};
use management::members::Drained;
use management::node::Node as ManagedNode;
use management::view::copy::{Amendment, JournalCopy, NodeCopies, NodeLeft};
use management::view::counters::GlobalCounters;
use management::view::message::{
    GetMode, GetRequest, GotMessage, PeekError, PeekedMessage, PublishOutcome, PublishRequest,
};
use management::view::node::{NodeStats, OtherNode, TopologyVotes};
use management::view::part::Part;
use management::view::raft::{MemberReport, RaftMember};
use management::view::reconciliation::{PlanReport, ReconciliationReport};
use management::view::topology::{
    BindingRequest, ExchangeDeclaration, ExchangeDeletion, QueueDeclaration, QueueDeletion,
};
use metadata::access::LoginRefusal;
use metadata::command::Command;
use metadata::coordination::Coordination;
use metadata::declarations::Declarations;
use metadata::objects::user::User;
use metadata::refusal::Refusal;
use metadata::state::State;
use model::id::{NodeId, QueueId};

use crate::cluster::proposer::no_majority;
use crate::gateway::Gateway;
use crate::gateway::account::is_loopback;
use crate::gateway::declare::delete_command;
use crate::maintenance;
use crate::node::Node;
use crate::operator::inquiries::Inquirer;

/// See the module head.
#[derive(Debug)]
pub(crate) struct Operator {
    node: Arc<Node>,
    inquirer: Inquirer,
}

impl Operator {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node, inquirer: Inquirer::default() }
    }

    fn gateway(&self, user: &str, vhost: &str) -> Result<Gateway, Refusal> {
        Gateway::for_operator(Arc::clone(&self.node), user, vhost)
    }

    async fn request(&self, user: &str, vhost: &str, request: Request) -> Result<Reply, Refusal> {
        let mut gateway = self.gateway(user, vhost)?;
        let reply = gateway.call(request).await;
        gateway.settled().await;
        match reply {
            Reply::Refused(error) => Err(refusal(error)),
            reply => Ok(reply),
        }
    }
}

/// What another node says of an order.
fn done(answer: Result<Bytes, String>) -> Result<(), Refusal> {
    let done: Result<Done, String> =
        answer.and_then(|bytes| inquiry::decode(&bytes).map_err(|error| error.to_string()));
    done.and_then(|done| done).map_err(Refusal::unavailable)
}

/// An AMQP error as a refusal of the metadata machine, which is what the HTTP API answers by.
fn refusal(error: Error) -> Refusal {
    match error.code {
        403 => Refusal::access_refused(error.text),
        404 => Refusal::not_found(error.text),
        405 => Refusal::locked(error.text),
        530 => Refusal::not_allowed(error.text),
        541 => Refusal::unavailable(error.text),
        _ if error.text.ends_with(" in use") || error.text.ends_with(" not empty") => {
            Refusal::in_use(error.text)
        }
        _ => Refusal::precondition(error.text),
    }
}

impl ManagedNode for Operator {
    fn state(&self) -> Arc<State> {
        self.node.router.state()
    }

    async fn submit(&self, command: Command, _by: &str) -> Result<bool, Refusal> {
        let outcome = self.node.topology.submit(command).await?;
        Ok(outcome.created)
    }

    fn authenticate(
        &self,
        user: &str,
        password: &[u8],
        from: Option<IpAddr>,
    ) -> Result<Arc<User>, LoginRefusal> {
        let loopback = from.is_some_and(is_loopback);
        let guarded = &self.node.limits.loopback_users;
        self.node.router.state().authenticate(user, password, loopback, guarded)
    }

    async fn declare_queue(&self, declaration: QueueDeclaration) -> Result<bool, Refusal> {
        let QueueDeclaration { vhost, queue, durable, auto_delete, arguments, user } = declaration;
        let existed = self.node.router.state().queue(&vhost, &queue).is_some();
        let declare = QueueDeclare {
            channel: 0,
            queue,
            passive: false,
            durable,
            exclusive: false,
            auto_delete,
            arguments,
        };
        self.request(&user, &vhost, Request::QueueDeclare(declare)).await?;
        Ok(!existed)
    }

    async fn delete_queue(&self, deletion: QueueDeletion) -> Result<(), Refusal> {
        let QueueDeletion { vhost, queue, if_unused, if_empty, user } = deletion;
        if self.node.router.state().queue(&vhost, &queue).is_none() {
            return Err(Refusal::not_found(format!("no queue '{queue}' in vhost '{vhost}'")));
        }
        let delete = Request::QueueDelete { channel: 0, queue, if_unused, if_empty };
        self.request(&user, &vhost, delete).await.map(|_| ())
    }

    async fn purge_queue(&self, vhost: &str, queue: &str, user: &str) -> Result<u64, Refusal> {
        let purge = Request::QueuePurge { channel: 0, queue: queue.to_owned() };
        match self.request(user, vhost, purge).await? {
            Reply::Count(count) => Ok(u64::from(count)),
            _ => Ok(0),
        }
    }

    async fn declare_exchange(&self, declaration: ExchangeDeclaration) -> Result<bool, Refusal> {
        let ExchangeDeclaration {
            vhost,
            exchange,
            kind,
            durable,
            auto_delete,
            internal,
            arguments,
            user,
        } = declaration;
        let existed = self.node.router.state().exchange(&vhost, &exchange).is_some();
        let declare = ExchangeDeclare {
            channel: 0,
            exchange,
            kind,
            passive: false,
            durable,
            auto_delete,
            internal,
            arguments,
        };
        self.request(&user, &vhost, Request::ExchangeDeclare(declare)).await?;
        Ok(!existed)
    }

    async fn delete_exchange(&self, deletion: ExchangeDeletion) -> Result<(), Refusal> {
        let ExchangeDeletion { vhost, exchange, if_unused, user } = deletion;
        if self.node.router.state().exchange(&vhost, &exchange).is_none() {
            return Err(Refusal::not_found(format!("no exchange '{exchange}' in vhost '{vhost}'")));
        }
        let delete = Request::ExchangeDelete { channel: 0, exchange, if_unused };
        self.request(&user, &vhost, delete).await.map(|_| ())
    }

    async fn bind(&self, binding: BindingRequest) -> Result<(), Refusal> {
        let (user, vhost) = (binding.user.clone(), binding.vhost.clone());
        self.request(&user, &vhost, Request::Bind(as_binding(binding))).await.map(|_| ())
    }

    async fn unbind(&self, binding: BindingRequest) -> Result<(), Refusal> {
        let (user, vhost) = (binding.user.clone(), binding.vhost.clone());
        self.request(&user, &vhost, Request::Unbind(as_binding(binding))).await.map(|_| ())
    }

    async fn publish(&self, request: PublishRequest) -> Result<PublishOutcome, Refusal> {
        /// How long a publisher over HTTP waits for its confirm.
        const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);
        if self.node.pressure.is_on() {
            return Ok(PublishOutcome::Blocked);
        }
        let size = request.message.body().len() as u64;
        let size_max = self.node.config.limits.message_size;
        if size > size_max {
            let text = format!("message size {size} is larger than configured max size {size_max}");
            return Err(Refusal::precondition(text));
        }
        let mut gateway = self.gateway(&request.user, &request.vhost)?;
        let taken = gateway.publish_and_wait(request.message);
        match tokio::time::timeout(PATIENCE, taken).await {
            Ok(Ok((true, true))) => Ok(PublishOutcome::Routed),
            Ok(Ok((true, false))) => Ok(PublishOutcome::Rejected),
            Ok(Ok((false, _))) => Ok(PublishOutcome::Unroutable),
            Ok(Err(error)) => Err(refusal(error)),
            Err(_) => Ok(PublishOutcome::TimedOut),
        }
    }

    async fn get(&self, request: GetRequest) -> Result<Vec<GotMessage>, Refusal> {
        let gateway = self.gateway(&request.user, &request.vhost)?;
        let mut holding = Holding { gateway, unsettled: Vec::new(), outcome: Outcome::Return };
        let no_ack = request.mode == GetMode::Ack;
        let mut messages = Vec::new();
        let mut bytes = 0;
        for _ in 0..request.count {
            if bytes >= request.bytes_max {
                break;
            }
            let get = Request::Get { channel: 0, queue: request.queue.clone(), no_ack };
            match holding.gateway.call(get).await {
                Reply::Got(Some((delivery, remaining))) => {
                    if !no_ack {
                        let (queue, seq) = (delivery.queue, delivery.seq);
                        holding.unsettled.push(Unsettled { queue, seq, consumer: None });
                    }
                    let message = &delivery.message;
                    bytes += message.properties().len() + message.body().len();
                    messages.push(GotMessage {
                        message: delivery.message,
                        redelivered: delivery.redelivered,
                        message_count: u64::from(remaining),
                    });
                }
                Reply::Refused(error) => return Err(refusal(error)),
                _ => break,
            }
        }
        holding.outcome = match request.mode {
            GetMode::Ack | GetMode::NackRequeue => Outcome::Return,
            GetMode::RejectRequeue => Outcome::Retry,
            GetMode::Reject => Outcome::Discard,
        };
        Ok(messages)
    }

    async fn parts(&self, wanted: Wanted) -> Vec<Part> {
        let others = async {
            if wanted.everywhere {
                self.inquirer.parts(&self.node, wanted).await
            } else {
                Vec::new()
            }
        };
        let (own, others) = tokio::join!(parts::part(&self.node, wanted), others);
        [own].into_iter().chain(others).collect()
    }

    fn names(&self) -> Names {
        parts::names(&self.node)
    }

    fn raft_members(&self) -> Vec<RaftMember> {
        parts::raft_members(&self.node)
    }

    async fn lost_members(&self) -> BTreeSet<QueueId> {
        inquiries::lost_members(&self.node).await
    }

    fn hibernations(&self) -> u64 {
        self.node.cluster.host.awake().1
    }

    async fn quorum_status(&self, queue: QueueId) -> Vec<MemberReport> {
        self.inquirer.quorum_status(&self.node, queue).await
    }

    async fn transfer_leadership(&self, queue: QueueId, to: NodeId) -> Result<(), Refusal> {
        self.inquirer.transfer(&self.node, queue, to).await.map_err(Refusal::unavailable)
    }

    async fn add_member(&self, queue: QueueId, node: NodeId) -> Change {
        self.node.members.add(queue, node).await
    }

    async fn checkpoint(&self, queues: Vec<QueueId>) -> BTreeMap<QueueId, String> {
        self.inquirer.checkpoint(&self.node, queues).await
    }

    async fn begin_rebalance(&self) -> Result<u64, Refusal> {
        turn::begin(&self.node).await
    }

    async fn keep_rebalance(&self, grant: u64) -> Result<(), Refusal> {
        turn::keep(&self.node, grant).await
    }

    async fn end_rebalance(&self, grant: u64) {
        turn::end(&self.node, grant).await;
    }

    async fn peek(
        &self,
        queue: QueueId,
        before: u64,
        most: usize,
    ) -> Result<PeekedMessage, PeekError> {
        peek::peek(&self.node, queue, before, most).await
    }

    async fn force_shrink(&self, queue: QueueId, node: NodeId) -> Change {
        self.node.members.force_shrink(queue, node).await
    }

    async fn delete_member(&self, queue: QueueId, node: NodeId, force: bool) -> Change {
        self.node.members.delete(queue, node, force).await
    }

    async fn drain(&self, node: NodeId) -> Result<Drained, Refusal> {
        if node == self.node.cluster.me.node {
            return maintenance::drain(&self.node).await;
        }
        let answer = self.inquirer.order(&self.node, node, Inquiry::Drain).await;
        let drained = answer.and_then(|bytes| {
            inquiry::decode::<Result<Drained, String>>(&bytes).map_err(|error| error.to_string())
        });
        drained.and_then(|drained| drained).map_err(Refusal::unavailable)
    }

    async fn revive(&self, node: NodeId) -> Result<(), Refusal> {
        if node == self.node.cluster.me.node {
            return maintenance::revive(&self.node).await;
        }
        done(self.inquirer.order(&self.node, node, Inquiry::Revive).await)
    }

    async fn may_forget(&self, node: NodeId) -> Result<(), Refusal> {
        let leader = self.node.cluster.metadata_leader().ok_or_else(no_majority)?;
        if leader == self.node.cluster.me.node {
            return self.node.members.may_forget(node).await;
        }
        done(self.inquirer.order(&self.node, leader, Inquiry::MayForget(node)).await)
    }

    async fn give_up(&self, queue: QueueId) -> Result<(), Refusal> {
        let state = self.node.topology.state();
        let Some(queue) = state.queue_by_id(queue) else { return Ok(()) };
        tracing::warn!(
            queue = %queue.name, vhost = %queue.vhost,
            "a quorum queue is given up, with the nodes that had its members"
        );
        self.node.topology.submit(delete_command(queue)).await.map(drop)
    }

    async fn forget(&self, node: NodeId) -> Result<(), Refusal> {
        let leader = self.node.cluster.metadata_leader().ok_or_else(no_majority)?;
        if leader == self.node.cluster.me.node {
            return self.node.members.forget(node).await;
        }
        done(self.inquirer.order(&self.node, leader, Inquiry::Forget(node)).await)
    }

    fn allows_replica_operations(&self) -> bool {
        self.node.config.quorum_queues.replica_operations
    }

    fn running_nodes(&self) -> Vec<NodeId> {
        self.node.members.running()
    }

    fn journal_copies(&self) -> Vec<JournalCopy> {
        journals::copies(&self.node)
    }

    async fn all_journal_copies(&self) -> Vec<NodeCopies> {
        journals::all_copies(&self.node).await
    }

    async fn amend_copy(
        &self,
        node: NodeId,
        uid: &str,
        amendment: Amendment,
    ) -> Result<String, Refusal> {
        if node == self.node.cluster.me.node {
            let amended = journals::amend(&self.node, uid, amendment).await;
            return amended.map_err(Refusal::invalid);
        }
        let order = Inquiry::AmendCopy { uid: uid.to_owned(), amendment };
        let answer = self.inquirer.order(&self.node, node, order).await;
        let answer = answer.map_err(Refusal::unavailable)?;
        let amended: Result<String, String> =
            inquiry::decode(&answer).map_err(|error| Refusal::unavailable(error.to_string()))?;
        amended.map_err(Refusal::invalid)
    }

    async fn left_journals(&self) -> Vec<NodeLeft> {
        journals::all_left(&self.node).await
    }

    async fn left_declarations(&self, node: NodeId, uid: &str) -> Result<Declarations, Refusal> {
        let uid = uid.to_owned();
        let text = if node == self.node.cluster.me.node {
            journals::declarations_here(&self.node, uid).await
        } else {
            let order = Inquiry::LeftDeclarations { uid };
            let answer = self.inquirer.order(&self.node, node, order).await;
            let answer = answer.map_err(Refusal::unavailable)?;
            inquiry::decode::<Result<String, String>>(&answer)
                .map_err(|error| Refusal::unavailable(error.to_string()))?
        };
        let text = text.map_err(Refusal::invalid)?;
        Declarations::decode(text.as_bytes()).map_err(|error| Refusal::invalid(error.to_string()))
    }

    async fn catch_up(&self) -> Result<(), Refusal> {
        // A command that changes nothing goes through the log. No grant has this number.
        let nothing = Coordination::Renew { id: "none".into(), token: 0 };
        self.node.topology.submit(Command::Coordinate(nothing)).await.map(drop)
    }

    fn reconciliation_here(&self) -> ReconciliationReport {
        self.node.reconciler.report()
    }

    async fn reconciliation(&self) -> Vec<ReconciliationReport> {
        reconciliation::reports(&self.node).await
    }

    async fn reconcile_now(&self) -> Vec<(String, Done)> {
        reconciliation::now(&self.node).await
    }

    async fn reconciliation_plan(&self, queue: QueueId) -> Result<PlanReport, Refusal> {
        reconciliation::plan(&self.node, queue).await.map_err(Refusal::unavailable)
    }

    async fn close_connection(&self, name: &str, reason: &str) -> bool {
        self.node.connections.close(reason, |record| record.name == name) > 0
            || self.inquirer.close(&self.node, name, reason).await
    }

    fn counters(&self) -> GlobalCounters {
        views::counters(&self.node)
    }

    fn stats(&self) -> NodeStats {
        views::node_stats(&self.node)
    }

    fn topology_votes(&self) -> TopologyVotes {
        self.node.cluster.topology_votes()
    }

    fn other_nodes(&self) -> Vec<OtherNode> {
        views::other_nodes(&self.node)
    }
}

/// Messages that an operator has got. They are settled when it is dropped, even if that happens
/// because nobody waits for the answer any more.
struct Holding {
    gateway: Gateway,
    unsettled: Vec<Unsettled>,
    outcome: Outcome,
}

impl Drop for Holding {
    fn drop(&mut self) {
        if !self.unsettled.is_empty() {
            let unsettled = std::mem::take(&mut self.unsettled);
            self.gateway.cast(Request::Settle { channel: 0, unsettled, outcome: self.outcome });
            self.gateway.end_of_batch();
        }
    }
}

fn as_binding(request: BindingRequest) -> Binding {
    Binding {
        channel: 0,
        source: request.source,
        destination: request.destination,
        to_queue: request.to_queue,
        routing_key: request.routing_key,
        arguments: request.arguments,
    }
}
