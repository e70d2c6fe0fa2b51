//! What a node begins with.

use std::sync::Arc;

use crate::command::Command;
use crate::objects::Name;
use crate::objects::exchange::{Exchange, ExchangeKind};
use crate::objects::permission::Permission;
use crate::objects::user::{HashingAlgorithm, User};
use crate::objects::vhost::Vhost;

/// The user that acts when nobody does.
pub const INTERNAL_USER: &str = "rmq-internal";

/// The first user of a new node.
#[derive(Debug, Clone)]
pub struct DefaultUser {
    /// The login.
    pub name: Name,
    /// See [`crate::access::password::hash`].
    pub password_hash: String,
    /// As a rule `administrator`.
    pub tags: Vec<String>,
}

/// The commands of a first boot: vhost `/`, and a user who may do everything in it.
pub fn commands(vhost: &str, user: DefaultUser) -> Vec<Command> {
    let vhost = Name::from(vhost);
    let DefaultUser { name, password_hash, tags } = user;
    let everything = || ".*".to_owned();
    vec![
        Command::PutVhost(Vhost {
            description: "Default virtual host".into(),
            ..Vhost::named(Arc::clone(&vhost))
        }),
        Command::PutUser(User {
            name: Arc::clone(&name),
            password_hash,
            hashing_algorithm: HashingAlgorithm::Sha256,
            tags,
        }),
        Command::PutPermission(Permission {
            vhost,
            user: name,
            configure: everything(),
            write: everything(),
            read: everything(),
        }),
    ]
}

/// The exchanges that every vhost has from its birth, the default exchange among them.
pub fn predeclared_exchanges(vhost: &Name) -> Vec<Exchange> {
    let exchange = |name: &str, kind, internal| Exchange {
        vhost: Arc::clone(vhost),
        name: name.into(),
        kind,
        durable: true,
        auto_delete: false,
        internal,
        arguments: amq_protocol_types::FieldTable::default(),
        user_who_performed_action: INTERNAL_USER.into(),
    };
    vec![
        exchange("", ExchangeKind::Direct, false),
        exchange("amq.direct", ExchangeKind::Direct, false),
        exchange("amq.fanout", ExchangeKind::Fanout, false),
        exchange("amq.headers", ExchangeKind::Headers, false),
        exchange("amq.match", ExchangeKind::Headers, false),
        exchange("amq.rabbitmq.trace", ExchangeKind::Topic, true),
        exchange("amq.topic", ExchangeKind::Topic, false),
    ]
}
