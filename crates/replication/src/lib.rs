//! The stream of a journal to its replica, pure: what each side sends, stores, answers and confirms.
//!
//! ```text
//!   active node                                        replica
//!   Sender   ──── numbered requests, in order ─────►   Receiver
//!     │           pieces of the copy, live batches,      │  stores each, answers what is durable
//!     │           "whole", stopping, handed over         │
//!     │      ◄─── answers, cumulative; "in sync" ────    │
//!   Confirms                                           activation::Machine of the replica
//!     what may be confirmed: durable here, and there when the gate says so
//! ```
//!
//! Neither side reads a clock or a socket: time comes with the events, and messages are values that
//! [`wire`] turns into bytes. Which node may serve, and when the age is raised, is decided by
//! [`activation::machine`]; this crate tells it what the stream has come to.

pub mod message;
pub mod wire;

pub mod confirms;
pub mod receiver;
pub mod sender;
