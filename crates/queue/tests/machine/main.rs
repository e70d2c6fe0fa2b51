//! Tests of the queue machine through its public interface.

mod cases;
mod model;
mod random;
mod rig;
mod rules;
