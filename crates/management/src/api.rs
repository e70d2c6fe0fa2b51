//! The HTTP API.
//!
//! ```text
//!  request ── path ── resource ── credentials ── rights ── handler ── answer or failure
//! ```

pub mod call;
pub mod resource;

mod access;
mod activation;
mod bindings;
mod cluster;
mod connections;
mod consent;
mod consumers;
mod definitions;
mod dispatch;
mod exchanges;
mod features;
mod health;
mod journals;
mod limits;
mod messages;
mod nodes;
mod overview;
mod parameters;
mod permissions;
mod policies;
mod queues;
mod quorum;
mod reconciliation;
mod replicas;
mod stats;
mod users;
mod vhosts;
