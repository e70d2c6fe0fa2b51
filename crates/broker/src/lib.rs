//! Composes everything into the binary leveret.

pub mod cli;
pub mod config;
pub mod limits;
pub mod logging;
