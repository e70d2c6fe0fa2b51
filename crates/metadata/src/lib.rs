//! The topology of exchanges, queues, bindings, users and policies, pure.
//!
//! ```text
//!  Command ──► State::apply ──► Outcome          what changed, for the driver to act on
//!                   │   └─────► Refusal          reply code, RabbitMQ's text
//!                   ├─ routes() ──► Routes       immutable, shared structure, read by publishers
//!                   └─ records  ──► store::Kv    RocksDB or memory, without sync
//! ```
//!
//! `apply` is a function of the state and the command: no clock, no entropy, no configuration, so
//! that replicas that apply the same commands are equal. `check_…` functions say without a command
//! what a command would be answered with; drivers ask them first.
//!
//! `State` and `Routes` are cheap to clone and share structure with what they were cloned from.

pub mod objects;

pub mod command;
pub mod coordination;
pub mod outcome;
pub mod refusal;

pub mod access;
pub mod arguments;
pub mod checks;
pub mod effective;
pub mod machine;
pub mod state;

pub mod routes;

pub mod boot;
pub mod declarations;
pub mod leases;
pub mod placement;
pub mod store;

mod compact;
mod quoted;
#[cfg(test)]
mod scene;
