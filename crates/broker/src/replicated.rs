//! Quorum queues on this node.
//!
//! ```text
//!                 ┌──────────────── queue ────────────────┐
//!  connections ─► │ client ── batches ──► replica ──► Raft │ ─► other members
//!  connections ◄─ │    ▲                     │ committed   │
//!                 │    └──── notices ◄── machine           │ ─► notices to other nodes
//!                 └────────────────────────────────────────┘
//! ```
//!
//! `client` is there on every node, `replica` on members; the one that leads makes entries of
//! everybody's orders and performs what follows from them.

pub(crate) mod client;
pub(crate) mod containers;
pub(crate) mod fabric;
pub(crate) mod loan;
pub(crate) mod machine;
pub(crate) mod member;
pub(crate) mod notice;
pub(crate) mod numbered;
pub(crate) mod order;
pub(crate) mod queue;
pub(crate) mod replica;
mod seat;
pub(crate) mod version;

#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    clippy::duration_suboptimal_units,
    clippy::needless_pass_by_value,
    clippy::print_stdout,
    clippy::unused_async,
    reason = "a simulation counts small numbers, and says what it does"
)]
pub(crate) mod sim;
#[cfg(test)]
mod tests;
