//! A virtual host.

use serde::{Deserialize, Serialize};

use crate::objects::Name;

/// A name space of exchanges and queues with its own permissions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vhost {
    /// The name; `/` is the default one.
    pub name: Name,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// For people.
    #[serde(default)]
    pub tags: Vec<String>,
    /// The type of queues that are declared without `x-queue-type`. In a command `None` leaves it
    /// as it is; a new vhost then gets `classic`.
    #[serde(default)]
    pub default_queue_type: Option<String>,
    /// Cannot be deleted while set.
    #[serde(default)]
    pub protected: bool,
    /// Copies of all messages go to `amq.rabbitmq.trace`.
    #[serde(default)]
    pub tracing: bool,
}

impl Vhost {
    /// A vhost with nothing but a name.
    pub fn named(name: impl Into<Name>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            tags: Vec::new(),
            default_queue_type: None,
            protected: false,
            tracing: false,
        }
    }
}
