//! Links over real sockets on loopback: what the node hears, and when.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod delivery;
mod detector;
mod node;
mod proxy;
mod secure;
