//! What a command changed.

use std::sync::Arc;

use model::id::QueueId;

use crate::coordination::Answer;
use crate::objects::Name;
use crate::objects::binding::Binding;
use crate::objects::exchange::Exchange;
use crate::objects::queue::Queue;
use crate::store::Write;

/// What a command changed, for the driver to act on, in no particular order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// The object that was put, declared or bound did not exist (HTTP answers 201, else 204).
    pub created: bool,
    /// The object that the command was about exists no longer.
    pub deleted: bool,
    /// The queue that [`crate::command::Command::DeclareQueue`] made or found.
    pub queue: Option<Arc<Queue>>,
    /// How a lock or register answered.
    pub answer: Option<Answer>,
    /// Queues that are new: give each its machine.
    pub queues_created: Vec<Arc<Queue>>,
    /// Queues that are gone: end their machines, cancel their consumers.
    pub queues_deleted: Vec<Arc<Queue>>,
    /// Queues whose effective settings may differ now: ask `State::effective_queue` again.
    pub queues_changed: Vec<QueueId>,
    /// Named journals that are new, that have changed, or that are gone.
    pub journals_changed: Vec<Name>,
    /// Exchanges that are new.
    pub exchanges_created: Vec<Arc<Exchange>>,
    /// Exchanges that are gone.
    pub exchanges_deleted: Vec<Arc<Exchange>>,
    /// Bindings that are new.
    pub bindings_created: Vec<Arc<Binding>>,
    /// Bindings that are gone.
    pub bindings_deleted: Vec<Arc<Binding>>,
    /// The vhost is gone: close its connections.
    pub vhost_deleted: Option<Name>,
    /// The user is gone or has another password: its connections may have to go.
    pub user_changed: Option<Name>,
    /// The routing table differs: publish a new snapshot.
    pub routes_changed: bool,
    /// What the store has to write (see [`crate::store::save`]).
    pub records: Vec<Write>,
}
