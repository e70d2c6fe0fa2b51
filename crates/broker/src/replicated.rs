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
pub(crate) mod machine;
pub(crate) mod member;
pub(crate) mod notice;
pub(crate) mod numbered;
pub(crate) mod order;
pub(crate) mod queue;
pub(crate) mod replica;

#[cfg(test)]
mod tests;
