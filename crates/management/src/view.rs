//! What the HTTP API shows of a node: plain values that the broker fills in when it is asked.
//!
//! Totals count since the start of the node and never fall; rates are made of them here. Times are
//! milliseconds since the Unix epoch, sizes are bytes.

pub mod connection;
pub mod consumer;
pub mod copy;
pub mod counters;
pub mod message;
pub mod node;
pub mod part;
pub mod queue;
pub mod raft;
pub mod reconciliation;
pub mod topology;
