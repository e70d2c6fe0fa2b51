//! The HTTP API and the Prometheus metrics of a node.

pub mod node;
pub mod view;
