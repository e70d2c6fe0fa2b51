//! Composes everything into the binary leveret.
//!
//! ```text
//!  cli, config ─► start ─► node ─┬─ front ─► gateway (one for each connection) ─► shards
//!                                ├─ operator (HTTP API, metrics)
//!                                └─ topology ─► metadata machine, journal, store
//! ```

pub mod cli;
pub mod config;
pub mod limits;
pub mod logging;
pub mod run;

mod start;

mod node;

mod front;
mod gateway;
mod operator;

mod cluster;
mod router;
mod topology;

mod shard;
mod shards;

mod accounts;
mod chores;
mod connections;
mod death;
mod exchange_counts;
mod inbox;
mod maintenance;
mod origin;
mod outlet;
mod pair;
mod pressure;
mod replicated;
mod reply_to;
mod sizes;
mod slots;
mod totals;
mod vital;

#[cfg(test)]
mod tests;
