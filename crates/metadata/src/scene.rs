//! What tests begin with: a state with vhost `/`, and short ways to say commands.

use std::sync::Arc;

use amq_protocol_types::{AMQPValue, FieldTable, LongString, ShortString};
use model::id::{ConnectionId, NodeId};

use crate::boot::{self, DefaultUser};
use crate::command::{Command, DeclareExchange, DeclareQueue};
use crate::objects::binding::{Binding, Destination};
use crate::objects::permission::Permission;
use crate::objects::policy::{ApplyTo, Policy};
use crate::objects::queue::Queue;
use crate::objects::user::{HashingAlgorithm, User};
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::routes::content::Content;
use crate::routes::targets::RouteSet;
use crate::state::State;

/// Vhost `/` and `guest`.
pub(crate) fn state() -> State {
    let mut state = State::new();
    let user = DefaultUser {
        name: "guest".into(),
        password_hash: crate::access::password::hash(
            HashingAlgorithm::Sha256,
            [1, 2, 3, 4],
            b"guest",
        ),
        tags: vec!["administrator".into()],
    };
    for command in boot::commands("/", user) {
        state.apply(command).unwrap();
    }
    state
}

pub(crate) fn integer(value: i32) -> AMQPValue {
    AMQPValue::LongInt(value)
}

pub(crate) fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(LongString::from(value))
}

pub(crate) fn table<const N: usize>(fields: [(&str, AMQPValue); N]) -> FieldTable {
    let mut table = FieldTable::default();
    for (key, value) in fields {
        table.insert(ShortString::from(key), value);
    }
    table
}

pub(crate) fn exchange(name: &str, kind: &str) -> DeclareExchange {
    DeclareExchange {
        vhost: "/".into(),
        name: name.into(),
        kind: kind.into(),
        durable: true,
        auto_delete: false,
        internal: false,
        arguments: FieldTable::default(),
        user: "guest".into(),
    }
}

pub(crate) fn queue(name: &str) -> DeclareQueue {
    DeclareQueue {
        vhost: "/".into(),
        name: name.into(),
        generated: false,
        durable: true,
        auto_delete: false,
        exclusive_owner: None,
        arguments: FieldTable::default(),
        user: "guest".into(),
        home: NodeId(0),
        members: Vec::new(),
        away: Vec::new(),
    }
}

pub(crate) fn exclusive(name: &str, owner: u64) -> DeclareQueue {
    DeclareQueue { exclusive_owner: Some(ConnectionId(owner)), durable: false, ..queue(name) }
}

pub(crate) fn to_queue(source: &str, key: &str, destination: &str) -> Binding {
    Binding {
        vhost: "/".into(),
        source: source.into(),
        destination: Destination::Queue(destination.into()),
        routing_key: key.into(),
        arguments: FieldTable::default(),
    }
}

pub(crate) fn to_exchange(source: &str, key: &str, destination: &str) -> Binding {
    Binding {
        destination: Destination::Exchange(destination.into()),
        ..to_queue(source, key, destination)
    }
}

pub(crate) fn policy(
    name: &str,
    pattern: &str,
    priority: i64,
    definition: serde_json::Value,
) -> Policy {
    let serde_json::Value::Object(definition) = definition else { panic!("an object") };
    Policy {
        vhost: "/".into(),
        name: name.into(),
        pattern: pattern.into(),
        apply_to: ApplyTo::All,
        definition,
        priority,
    }
}

/// Short ways to apply.
pub(crate) trait Act {
    fn add_exchange(&mut self, name: &str, kind: &str);
    fn add_queue(&mut self, name: &str) -> Arc<Queue>;
    fn add_binding(&mut self, binding: Binding) -> Outcome;
    fn drop_binding(&mut self, binding: Binding) -> Outcome;
    fn add_user(&mut self, name: &str, configure: &str, write: &str, read: &str);
    fn refused(&mut self, command: Command) -> Refusal;
    fn routed(&self, exchange: &str, key: &str, content: &dyn Content) -> Vec<String>;
}

impl Act for State {
    fn add_exchange(&mut self, name: &str, kind: &str) {
        self.apply(Command::DeclareExchange(exchange(name, kind))).unwrap();
    }

    fn add_queue(&mut self, name: &str) -> Arc<Queue> {
        self.apply(Command::DeclareQueue(queue(name))).unwrap().queue.unwrap()
    }

    fn add_binding(&mut self, binding: Binding) -> Outcome {
        self.apply(Command::Bind(binding)).unwrap()
    }

    fn drop_binding(&mut self, binding: Binding) -> Outcome {
        self.apply(Command::Unbind(binding)).unwrap()
    }

    fn add_user(&mut self, name: &str, configure: &str, write: &str, read: &str) {
        self.apply(Command::PutUser(User {
            name: name.into(),
            password_hash: String::new(),
            hashing_algorithm: HashingAlgorithm::Sha256,
            tags: vec![],
        }))
        .unwrap();
        self.apply(Command::PutPermission(Permission {
            vhost: "/".into(),
            user: name.into(),
            configure: configure.into(),
            write: write.into(),
            read: read.into(),
        }))
        .unwrap();
    }

    /// Applies what must be refused, and that it changed nothing that is stored.
    fn refused(&mut self, command: Command) -> Refusal {
        let before = records(self);
        let refusal = self.apply(command).unwrap_err();
        assert_eq!(records(self), before, "a refused command changes nothing");
        refusal
    }

    /// The names of the queues that a message goes to, sorted.
    fn routed(&self, exchange: &str, key: &str, content: &dyn Content) -> Vec<String> {
        let vhost = self.routes().vhost("/").unwrap();
        let mut out = RouteSet::new();
        let routed = vhost.route(vhost.exchange(exchange).unwrap(), key, content, &mut out);
        assert_eq!(routed.matched, !out.is_empty());
        let mut names: Vec<_> = out
            .targets()
            .iter()
            .map(|target| self.queue_by_id(target.id).unwrap().name.to_string())
            .collect();
        names.sort();
        names
    }
}

/// Everything that would be stored.
pub(crate) fn records(state: &State) -> Vec<crate::store::Write> {
    let mut out = Vec::new();
    crate::store::record::all_of(state, &mut |one| out.push(crate::store::record::put(&one)));
    out.sort_by_key(|write| format!("{write:?}"));
    out
}
