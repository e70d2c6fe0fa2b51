//! The border between this crate and the broker: what the HTTP API asks of a node.
//!
//! Topology is read from immutable snapshots of the metadata state. Users, virtual hosts, policies
//! and other plain metadata change through [`Node::submit`]; queues, exchanges and bindings through
//! methods of their own, since the broker checks and performs these as it does for AMQP clients.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

use metadata::command::Command;
use metadata::state::State;
use model::id::QueueId;

use crate::view::connection::{ChannelInfo, ConnectionInfo};
use crate::view::consumer::ConsumerInfo;
use crate::view::counters::{ExchangeCounters, GlobalCounters};
use crate::view::message::{GetRequest, GotMessage, PublishOutcome, PublishRequest};
use crate::view::node::NodeStats;
use crate::view::queue::QueueStats;
use crate::view::topology::{
    BindingRequest, ExchangeDeclaration, ExchangeDeletion, QueueDeclaration, QueueDeletion,
};

/// A running node. All futures may be dropped at any time; a change that was begun is then
/// completed or not, as if the connection had been lost.
pub trait Node: Send + Sync + 'static {
    /// The topology as it is now.
    fn state(&self) -> Arc<State>;

    /// Applies a metadata command that is not a queue's, exchange's or binding's. It is durable and
    /// in force when the answer comes; what follows from it (queues of a deleted virtual host,
    /// connections of a deleted user) is done too.
    ///
    /// # Errors
    /// The machine refused it; nothing changed.
    fn submit(
        &self,
        command: Command,
        by: &str,
    ) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// Whether somebody is who he says, as for an AMQP login from that address.
    ///
    /// # Errors
    /// He is not, or not from there.
    fn authenticate(
        &self,
        user: &str,
        password: &[u8],
        from: Option<IpAddr>,
    ) -> Result<(), LoginRefused>;

    /// `queue.declare`; true if the queue is new.
    ///
    /// # Errors
    /// As AMQP's.
    fn declare_queue(
        &self,
        declaration: QueueDeclaration,
    ) -> impl Future<Output = Result<bool, Refusal>> + Send;

    /// `queue.delete`.
    ///
    /// # Errors
    /// As AMQP's, and 404 if there is no such queue.
    fn delete_queue(
        &self,
        deletion: QueueDeletion,
    ) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// `queue.purge`; the number of messages that are gone.
    ///
    /// # Errors
    /// As AMQP's.
    fn purge_queue(
        &self,
        vhost: &str,
        queue: &str,
        user: &str,
    ) -> impl Future<Output = Result<u64, Refusal>> + Send;

    /// `exchange.declare`; true if the exchange is new.
    ///
    /// # Errors
    /// As AMQP's.
    fn declare_exchange(
        &self,
        declaration: ExchangeDeclaration,
    ) -> impl Future<Output = Result<bool, Refusal>> + Send;

    /// `exchange.delete`.
    ///
    /// # Errors
    /// As AMQP's, and 404 if there is no such exchange.
    fn delete_exchange(
        &self,
        deletion: ExchangeDeletion,
    ) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// `queue.bind` or `exchange.bind`. Binding again is no error.
    ///
    /// # Errors
    /// As AMQP's.
    fn bind(&self, binding: BindingRequest) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// `queue.unbind` or `exchange.unbind`.
    ///
    /// # Errors
    /// As AMQP's.
    fn unbind(&self, binding: BindingRequest) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// `basic.publish` with `mandatory` on a confirming channel of its own.
    ///
    /// # Errors
    /// As AMQP's.
    fn publish(
        &self,
        request: PublishRequest,
    ) -> impl Future<Output = Result<PublishOutcome, Refusal>> + Send;

    /// `basic.get`, several times, then settlement.
    ///
    /// # Errors
    /// As AMQP's.
    fn get(
        &self,
        request: GetRequest,
    ) -> impl Future<Output = Result<Vec<GotMessage>, Refusal>> + Send;

    /// What every queue holds and does. Queues that do not answer in time are left out.
    fn queue_stats(&self) -> impl Future<Output = BTreeMap<QueueId, QueueStats>> + Send;

    /// The same for one queue; `None` if it is gone or does not answer in time.
    fn queue_stats_of(&self, queue: QueueId) -> impl Future<Output = Option<QueueStats>> + Send;

    /// Totals by exchange, keyed by virtual host and name. May lack exchanges without traffic.
    fn exchange_counters(&self) -> BTreeMap<(String, String), ExchangeCounters>;

    /// All client connections.
    fn connections(&self) -> impl Future<Output = Vec<ConnectionInfo>> + Send;

    /// All channels.
    fn channels(&self) -> impl Future<Output = Vec<ChannelInfo>> + Send;

    /// All consumers.
    fn consumers(&self) -> impl Future<Output = Vec<ConsumerInfo>> + Send;

    /// Closes a connection with 320 `CONNECTION_FORCED` and `reason`; false if there is none of
    /// that name. Returns without waiting for the client.
    fn close_connection(&self, name: &str, reason: &str) -> bool;

    /// Totals of the node.
    fn counters(&self) -> GlobalCounters;

    /// The node itself.
    fn stats(&self) -> NodeStats;
}

/// Why a request was refused, as an AMQP error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The reply code, such as 406.
    pub code: u16,
    /// The text after `NAME - `.
    pub text: String,
}

/// Why somebody may not log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginRefused {
    /// Unknown user, wrong password, or a user without a password.
    Credentials,
    /// The user may log in only from the node's own machine.
    NotLocal,
}
