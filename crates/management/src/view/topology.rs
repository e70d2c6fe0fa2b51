//! Declarations over HTTP: each is what the AMQP method of the same name does, with the same
//! checks for the user that asks.

use amq_protocol_types::FieldTable;

/// `PUT /queues/VHOST/NAME`.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueDeclaration {
    /// The virtual host.
    pub vhost: String,
    /// The queue; may be empty, then the broker makes a name.
    pub queue: String,
    /// Survives a restart.
    pub durable: bool,
    /// Goes with its last consumer.
    pub auto_delete: bool,
    /// Such as `x-message-ttl`.
    pub arguments: FieldTable,
    /// Who asks.
    pub user: String,
}

/// `DELETE /queues/VHOST/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueDeletion {
    /// The virtual host.
    pub vhost: String,
    /// The queue.
    pub queue: String,
    /// Refuse if it has consumers.
    pub if_unused: bool,
    /// Refuse if it has ready messages.
    pub if_empty: bool,
    /// Who asks.
    pub user: String,
}

/// `PUT /exchanges/VHOST/NAME`.
#[derive(Debug, Clone, PartialEq)]
pub struct ExchangeDeclaration {
    /// The virtual host.
    pub vhost: String,
    /// The exchange.
    pub exchange: String,
    /// Its type, such as `topic`.
    pub kind: String,
    /// Survives a restart.
    pub durable: bool,
    /// Goes with its last binding.
    pub auto_delete: bool,
    /// Clients cannot publish to it.
    pub internal: bool,
    /// Such as `alternate-exchange`.
    pub arguments: FieldTable,
    /// Who asks.
    pub user: String,
}

/// `DELETE /exchanges/VHOST/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExchangeDeletion {
    /// The virtual host.
    pub vhost: String,
    /// The exchange.
    pub exchange: String,
    /// Refuse if it has bindings as a source.
    pub if_unused: bool,
    /// Who asks.
    pub user: String,
}

/// `POST` and `DELETE` below `/bindings/VHOST`.
#[derive(Debug, Clone, PartialEq)]
pub struct BindingRequest {
    /// The virtual host.
    pub vhost: String,
    /// The exchange that messages come from.
    pub source: String,
    /// The queue or exchange that they go to.
    pub destination: String,
    /// Whether the destination is a queue.
    pub to_queue: bool,
    /// The binding key.
    pub routing_key: String,
    /// Such as `x-match`.
    pub arguments: FieldTable,
    /// Who asks.
    pub user: String,
}
