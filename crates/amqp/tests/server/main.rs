//! The connection loop over real streams: a broker by script, and clients that speak frames.

#![allow(
    clippy::unwrap_used,
    clippy::default_trait_access,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tests: a failure is a panic, and numbers are small"
)]

mod broker;
mod client;
mod loops;
mod secure;
