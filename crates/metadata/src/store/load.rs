//! From records to a state and back.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::checks;
use crate::machine::users;
use crate::objects::Name;
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
use crate::outcome::Outcome;
use crate::state::{CompiledPolicy, State};
use crate::store::record::{self, VERSION};
use crate::store::{Failure, Kv, Write};

pub(super) fn save(kv: &dyn Kv, outcome: &Outcome, applied: u64) -> Result<(), Failure> {
    let mut batch = outcome.records.clone();
    batch.push(applied_write(applied));
    kv.write(batch)
}

pub(super) fn save_all(kv: &dyn Kv, state: &State, applied: u64) -> Result<(), Failure> {
    let mut batch = Vec::new();
    kv.scan(&[], &mut |key, _| {
        batch.push(Write::Delete(key.to_vec()));
        true
    })?;
    record::all_of(state, &mut |record| batch.push(record::put(&record)));
    batch.push(applied_write(applied));
    kv.write(batch)
}

fn applied_write(applied: u64) -> Write {
    Write::Put(vec![record::APPLIED], applied.to_be_bytes().to_vec())
}

pub(super) fn applied(kv: &dyn Kv) -> Result<Option<u64>, Failure> {
    let Some(bytes) = kv.get(&[record::APPLIED])? else { return Ok(None) };
    let bytes = <[u8; 8]>::try_from(bytes.as_slice())
        .map_err(|_| Failure { reason: "the store's position is not a number".into() })?;
    Ok(Some(u64::from_be_bytes(bytes)))
}

pub(super) fn load(kv: &dyn Kv) -> Result<Option<(State, u64)>, Failure> {
    let Some(applied) = applied(kv)? else { return Ok(None) };
    let mut state = State::new();
    let mut result = Ok(());
    kv.scan(&[], &mut |key, value| {
        result = insert(&mut state, key, value);
        result.is_ok()
    })?;
    result?;
    Ok(Some((state, applied)))
}

/// Records come in the order of their letters, so that what an object needs is there.
pub(super) fn insert(state: &mut State, key: &[u8], value: &[u8]) -> Result<(), Failure> {
    let letter = key.first().copied().unwrap_or_default();
    match letter {
        record::APPLIED => {}
        record::LAST_NODE => state.last_node = read(key, value)?,
        record::NODE => {
            let node: Arc<Node> = read(key, value)?;
            state.nodes.insert(node.id.0, node);
        }
        record::DATA_SET => state.data_set = read(key, value)?,
        record::LAST_TOKEN => state.last_token = read(key, value)?,
        record::LOCK => {
            let lock: Arc<Lock> = read(key, value)?;
            state.locks.insert(Arc::clone(&lock.id), lock);
        }
        record::REGISTER => {
            let register: Arc<Register> = read(key, value)?;
            state.registers.insert(Arc::clone(&register.id), register);
        }
        record::JOURNAL => {
            let journal: Arc<Journal> = read(key, value)?;
            state.journals.insert(Arc::clone(&journal.name), journal);
        }
        record::FORGOTTEN => {
            state.forgotten.insert(read(key, value)?);
        }
        record::LAST_QUEUE => state.last_queue = read(key, value)?,
        record::GLOBAL_PARAMETER => {
            let parameter: GlobalParameter = read(key, value)?;
            state.global_parameters.insert(Arc::clone(&parameter.name), Arc::new(parameter));
        }
        record::USER => {
            let user: User = read(key, value)?;
            state.users.insert(Arc::clone(&user.name), Arc::new(user));
        }
        record::USER_LIMIT => {
            let (user, limit, value): (Name, UserLimit, i64) = read(key, value)?;
            state.user_limits.insert((user, limit), value);
        }
        record::VHOST => state.insert_vhost(read(key, value)?),
        record::VHOST_LIMIT => {
            let (vhost, limit, value): (Name, VhostLimit, i64) = read(key, value)?;
            let vhost = state.vhosts.get_mut(&vhost).ok_or_else(|| damaged(key, &NO_VHOST))?;
            Arc::make_mut(vhost).limits.insert(limit, value);
        }
        record::PERMISSION => {
            let permission: Permission = read(key, value)?;
            needs_vhost(state, key, &permission.vhost)?;
            let compiled = users::compile(permission).map_err(|error| damaged(key, &error))?;
            state.insert_permission(compiled);
        }
        record::TOPIC_PERMISSION => {
            let permission: Arc<TopicPermission> = read(key, value)?;
            needs_vhost(state, key, &permission.vhost)?;
            state.insert_topic_permission(permission);
        }
        record::PARAMETER => {
            let parameter: Arc<Parameter> = read(key, value)?;
            needs_vhost(state, key, &parameter.vhost)?;
            state.insert_parameter(parameter);
        }
        record::POLICY | record::OPERATOR_POLICY => {
            let operator = letter == record::OPERATOR_POLICY;
            let policy: Policy = read(key, value)?;
            needs_vhost(state, key, &policy.vhost)?;
            let pattern =
                checks::policy::compile(&policy, operator).map_err(|error| damaged(key, &error))?;
            state.insert_policy(Arc::new(CompiledPolicy { policy, pattern }), operator);
        }
        record::EXCHANGE => {
            let exchange: Arc<Exchange> = read(key, value)?;
            needs_vhost(state, key, &exchange.vhost)?;
            state.insert_exchange(&exchange);
        }
        record::QUEUE => {
            let mut queue: Queue = read(key, value)?;
            needs_vhost(state, key, &queue.vhost)?;
            // Members that were recorded as mere nodes.
            for member in queue.members.iter_mut().filter(|member| member.stream.0 == 0) {
                member.stream = queue.id.into();
            }
            state.insert_queue(Arc::new(queue));
        }
        record::BINDING => {
            let binding: Arc<Binding> = read(key, value)?;
            let vhost = &binding.vhost;
            let has_destination = match &binding.destination {
                Destination::Queue(name) => state.queue(vhost, name).is_some(),
                Destination::Exchange(name) => state.exchange(vhost, name).is_some(),
            };
            if !has_destination || state.exchange(vhost, &binding.source).is_none() {
                return Err(damaged(key, &"one of its ends is missing"));
            }
            state.insert_binding(binding);
        }
        _ => return Err(damaged(key, &"a kind of object that this version does not know")),
    }
    Ok(())
}

const NO_VHOST: &str = "its vhost is missing";

fn needs_vhost(state: &State, key: &[u8], vhost: &str) -> Result<(), Failure> {
    if state.vhosts.contains_key(vhost) { Ok(()) } else { Err(damaged(key, &NO_VHOST)) }
}

fn read<T: DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<T, Failure> {
    match value.split_first() {
        Some((&VERSION, json)) => {
            serde_json::from_slice(json).map_err(|error| damaged(key, &error))
        }
        Some((version, _)) => {
            Err(damaged(key, &format_args!("version {version}, and this node knows {VERSION}")))
        }
        None => Err(damaged(key, &"empty")),
    }
}

fn damaged(key: &[u8], why: &dyn std::fmt::Display) -> Failure {
    Failure { reason: format!("the record {} cannot be read: {why}", key.escape_ascii()) }
}
