//! Every endpoint, asked as tools ask, against a node in memory whose topology is the real machine.

mod access;
mod check;
mod definitions;
mod fake;
mod lists;
mod messages;
mod metrics;
mod node;
mod paths;
mod topology;
mod users;
