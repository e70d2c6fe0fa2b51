//! Sessions, seen from both sides: the client's bytes and the broker's requests.

#![allow(
    clippy::unwrap_used,
    clippy::default_trait_access,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tests: a failure is a panic, and numbers are small"
)]

mod channels;
mod consuming;
mod first;
mod framing;
mod handshake;
mod harness;
mod publishing;
mod queues;
mod random;
