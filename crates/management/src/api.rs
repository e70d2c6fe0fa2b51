//! The HTTP API.
//!
//! ```text
//!  request ── path ── resource ── credentials ── rights ── handler ── answer or failure
//! ```

pub mod call;
pub mod resource;

mod access;
mod bindings;
mod connections;
mod consumers;
mod definitions;
mod dispatch;
mod exchanges;
mod features;
mod health;
mod limits;
mod messages;
mod nodes;
mod overview;
mod parameters;
mod permissions;
mod policies;
mod queues;
mod stats;
mod users;
mod vhosts;

use metadata::state::State;

use crate::view::node::NodeStats;

/// The cluster's name, for metrics.
pub(crate) fn cluster_name(state: &State, stats: &NodeStats) -> String {
    nodes::name_of_cluster(state, stats)
}
