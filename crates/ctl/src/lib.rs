//! `leveretctl`, the operator's command line: over the HTTP API of a running node, and offline on a
//! journal's directory.
//!
//! Command names, columns and exit codes are those of `rabbitmqctl`, so that scripts keep working.

pub mod cli;
pub mod client;
pub mod exit;
pub mod output;
pub mod run;

mod act;
mod activation;
mod age;
mod check;
mod journals;
mod list;
mod members;
mod nodes;
mod offline;
mod reconcile;
mod sequences;
