//! The things that make up the topology, as they are stored.

pub mod binding;
pub mod exchange;
pub mod journal;
pub mod limit;
pub mod lock;
pub mod member;
pub mod node;
pub mod parameter;
pub mod permission;
pub mod policy;
pub mod queue;
pub mod register;
pub mod user;
pub mod vhost;

/// A name as every object and every index shares it.
pub type Name = std::sync::Arc<str>;
