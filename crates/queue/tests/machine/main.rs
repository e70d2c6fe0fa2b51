//! Tests of the queue machine through its public interface.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cases;
mod delays;
mod kept;
mod model;
mod random;
mod rig;
mod rules;
