//! The records of the topology: one per object.
//!
//! ```text
//!  key    [letter: u8] ([length: u16 big-endian][name])*
//!  value  [version: u8 = 1][the object as JSON]
//! ```
//!
//! Letters are in the order in which objects must be read: what others refer to comes first.

use std::sync::Arc;

use model::id::{NodeId, QueueId};

use crate::objects::binding::{Binding, Destination};
use crate::objects::exchange::Exchange;
use crate::objects::journal::Journal;
use crate::objects::limit::{UserLimit, VhostLimit};
use crate::objects::lock::Lock;
use crate::objects::node::Node;
use crate::objects::parameter::{GlobalParameter, Parameter};
use crate::objects::permission::{Permission, TopicPermission};
use crate::objects::policy::Policy;
use crate::objects::queue::Queue;
use crate::objects::register::Register;
use crate::objects::user::User;
use crate::objects::vhost::Vhost;
use crate::state::{State, VhostState};
use crate::store::Write;

/// The version that values begin with.
pub(super) const VERSION: u8 = 1;

pub(super) const APPLIED: u8 = b'A';
pub(super) const LAST_QUEUE: u8 = b'B';
pub(super) const GLOBAL_PARAMETER: u8 = b'C';
pub(super) const USER: u8 = b'D';
pub(super) const USER_LIMIT: u8 = b'E';
pub(super) const VHOST: u8 = b'F';
pub(super) const VHOST_LIMIT: u8 = b'G';
pub(super) const PERMISSION: u8 = b'H';
pub(super) const TOPIC_PERMISSION: u8 = b'I';
pub(super) const PARAMETER: u8 = b'J';
pub(super) const POLICY: u8 = b'K';
pub(super) const OPERATOR_POLICY: u8 = b'L';
pub(super) const EXCHANGE: u8 = b'M';
pub(super) const QUEUE: u8 = b'N';
pub(super) const BINDING: u8 = b'O';
pub(super) const LAST_NODE: u8 = b'P';
pub(super) const NODE: u8 = b'Q';
pub(super) const DATA_SET: u8 = b'R';
pub(super) const LAST_TOKEN: u8 = b'S';
pub(super) const LOCK: u8 = b'T';
pub(super) const REGISTER: u8 = b'U';
pub(super) const JOURNAL: u8 = b'V';
pub(super) const FORGOTTEN: u8 = b'W';

/// An object about to be written or deleted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Record<'o> {
    LastQueue(QueueId),
    LastNode(u16),
    Node(&'o Node),
    DataSet(u64),
    LastToken(u64),
    Lock(&'o Lock),
    Register(&'o Register),
    Journal(&'o Journal),
    Forgotten(NodeId),
    GlobalParameter(&'o GlobalParameter),
    User(&'o User),
    UserLimit(&'o str, UserLimit, i64),
    Vhost(&'o Vhost),
    VhostLimit(&'o str, VhostLimit, i64),
    Permission(&'o Permission),
    TopicPermission(&'o TopicPermission),
    Parameter(&'o Parameter),
    /// The flag: an operator policy.
    Policy(&'o Policy, bool),
    Exchange(&'o Exchange),
    Queue(&'o Queue),
    Binding(&'o Binding),
}

pub(crate) fn put(record: &Record<'_>) -> Write {
    Write::Put(key(record), value(record))
}

pub(crate) fn delete(record: &Record<'_>) -> Write {
    Write::Delete(key(record))
}

fn key(record: &Record<'_>) -> Vec<u8> {
    match record {
        Record::LastQueue(_) => join(LAST_QUEUE, &[]),
        Record::LastNode(_) => join(LAST_NODE, &[]),
        Record::Node(node) => join(NODE, &[&node.id.to_string()]),
        Record::DataSet(_) => join(DATA_SET, &[]),
        Record::LastToken(_) => join(LAST_TOKEN, &[]),
        Record::Lock(lock) => join(LOCK, &[&lock.id]),
        Record::Register(register) => join(REGISTER, &[&register.id]),
        Record::Journal(journal) => join(JOURNAL, &[&journal.name]),
        Record::Forgotten(node) => join(FORGOTTEN, &[&node.to_string()]),
        Record::GlobalParameter(parameter) => join(GLOBAL_PARAMETER, &[&parameter.name]),
        Record::User(user) => join(USER, &[&user.name]),
        Record::UserLimit(user, limit, _) => join(USER_LIMIT, &[user, limit.as_str()]),
        Record::Vhost(vhost) => join(VHOST, &[&vhost.name]),
        Record::VhostLimit(vhost, limit, _) => join(VHOST_LIMIT, &[vhost, limit.as_str()]),
        Record::Permission(one) => join(PERMISSION, &[&one.vhost, &one.user]),
        Record::TopicPermission(one) => {
            join(TOPIC_PERMISSION, &[&one.vhost, &one.user, &one.exchange])
        }
        Record::Parameter(one) => join(PARAMETER, &[&one.vhost, &one.component, &one.name]),
        Record::Policy(policy, operator) => {
            let letter = if *operator { OPERATOR_POLICY } else { POLICY };
            join(letter, &[&policy.vhost, &policy.name])
        }
        Record::Exchange(exchange) => join(EXCHANGE, &[&exchange.vhost, &exchange.name]),
        Record::Queue(queue) => join(QUEUE, &[&queue.vhost, &queue.name]),
        Record::Binding(binding) => {
            let kind = match &binding.destination {
                Destination::Queue(_) => "q",
                Destination::Exchange(_) => "e",
            };
            let destination = binding.destination.name();
            let properties = binding.properties_key();
            join(BINDING, &[&binding.vhost, &binding.source, kind, destination, &properties])
        }
    }
}

fn join(letter: u8, names: &[&str]) -> Vec<u8> {
    let mut key = vec![letter];
    for name in names {
        let length = u16::try_from(name.len()).unwrap_or(u16::MAX);
        key.extend(length.to_be_bytes());
        key.extend(name.as_bytes());
    }
    key
}

fn value(record: &Record<'_>) -> Vec<u8> {
    let mut out = vec![VERSION];
    let to = &mut out;
    let result = match record {
        Record::LastQueue(id) => serde_json::to_writer(to, &id.0),
        Record::LastNode(number) => serde_json::to_writer(to, number),
        Record::Node(node) => serde_json::to_writer(to, node),
        Record::DataSet(number) | Record::LastToken(number) => serde_json::to_writer(to, number),
        Record::Lock(lock) => serde_json::to_writer(to, lock),
        Record::Register(register) => serde_json::to_writer(to, register),
        Record::Journal(journal) => serde_json::to_writer(to, journal),
        Record::Forgotten(node) => serde_json::to_writer(to, &node.0),
        Record::GlobalParameter(parameter) => serde_json::to_writer(to, parameter),
        Record::User(user) => serde_json::to_writer(to, user),
        Record::UserLimit(user, limit, value) => serde_json::to_writer(to, &(user, limit, value)),
        Record::Vhost(vhost) => serde_json::to_writer(to, vhost),
        Record::VhostLimit(vhost, limit, value) => {
            serde_json::to_writer(to, &(vhost, limit, value))
        }
        Record::Permission(permission) => serde_json::to_writer(to, permission),
        Record::TopicPermission(permission) => serde_json::to_writer(to, permission),
        Record::Parameter(parameter) => serde_json::to_writer(to, parameter),
        Record::Policy(policy, _) => serde_json::to_writer(to, policy),
        Record::Exchange(exchange) => serde_json::to_writer(to, exchange),
        Record::Queue(queue) => serde_json::to_writer(to, queue),
        Record::Binding(binding) => serde_json::to_writer(to, binding),
    };
    result.expect("an object has no keys that JSON cannot hold");
    out
}

/// Visits every record of a state.
pub(crate) fn all_of(state: &State, visit: &mut dyn FnMut(Record<'_>)) {
    visit(Record::LastQueue(QueueId(state.last_queue)));
    state.global_parameters.values().for_each(|one| visit(Record::GlobalParameter(one)));
    state.users.values().for_each(|user| visit(Record::User(user)));
    for ((user, limit), value) in &state.user_limits {
        visit(Record::UserLimit(user, *limit, *value));
    }
    state.vhosts.values().for_each(|vhost| all_of_vhost(vhost, visit));
    if state.last_node > 0 {
        visit(Record::LastNode(state.last_node));
    }
    state.nodes.values().for_each(|node| visit(Record::Node(node)));
    if state.data_set > 0 {
        visit(Record::DataSet(state.data_set));
    }
    if state.last_token > 0 {
        visit(Record::LastToken(state.last_token));
    }
    state.locks.values().for_each(|lock| visit(Record::Lock(lock)));
    state.registers.values().for_each(|register| visit(Record::Register(register)));
    state.journals.values().for_each(|journal| visit(Record::Journal(journal)));
    state.forgotten.iter().for_each(|node| visit(Record::Forgotten(NodeId(*node))));
}

/// Visits every record of a vhost.
pub(crate) fn all_of_vhost(vhost: &Arc<VhostState>, visit: &mut dyn FnMut(Record<'_>)) {
    visit(Record::Vhost(&vhost.vhost));
    for (limit, value) in &vhost.limits {
        visit(Record::VhostLimit(&vhost.vhost.name, *limit, *value));
    }
    vhost.permissions.values().for_each(|one| visit(Record::Permission(&one.permission)));
    vhost
        .topic_permissions
        .values()
        .for_each(|one| visit(Record::TopicPermission(&one.permission)));
    vhost.parameters.values().for_each(|one| visit(Record::Parameter(one)));
    vhost.policies.values().for_each(|one| visit(Record::Policy(&one.policy, false)));
    vhost.operator_policies.values().for_each(|one| visit(Record::Policy(&one.policy, true)));
    vhost.exchanges.values().for_each(|one| visit(Record::Exchange(one)));
    vhost.queues.values().for_each(|one| visit(Record::Queue(one)));
    vhost.by_source.iter().for_each(|link| visit(Record::Binding(&link.0)));
}
