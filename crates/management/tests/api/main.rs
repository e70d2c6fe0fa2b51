//! Every endpoint, asked as tools ask, against a node in memory whose topology is the real machine.

#![expect(clippy::unwrap_used, reason = "a failed test may panic")]

mod access;
mod activation;
mod check;
mod cluster;
mod definitions;
mod fake;
mod lists;
mod messages;
mod metrics;
mod node;
mod paths;
mod replicas;
mod sockets;
mod topology;
mod users;
