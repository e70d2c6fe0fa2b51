//! Prometheus metrics under RabbitMQ's names, so that its dashboards work unchanged.
//!
//! Every scrape begins with one `rabbitmq_identity_info`, which the dashboards join with.

pub mod aggregated;
pub mod clients;
pub mod detailed;
pub mod family;
pub mod identity;
pub mod journals;
pub mod raft;
pub mod reconciliation;
