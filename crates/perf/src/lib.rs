//! leveret-perf: a load generator for any AMQP 0.9.1 broker.
//!
//! ```text
//!  run ──┬── control connection: declares, binds, deletes
//!        ├── publisher 1…P   one thread, one connection each      ┐ load::Load: counters and
//!        ├── consumer 1…C    one thread, one connection each      ┘ ledgers that they share
//!        └── the calling thread: progress lines, end of the run, process figures
//! ```
//!
//! The client must cost much less than the broker that it measures, so messages are copied from a
//! template and deliveries are read in place; nothing is allocated per message.

#![expect(clippy::cast_precision_loss, reason = "figures are for people, who read three digits")]

pub mod arguments;
pub mod client;
pub mod compare;
pub mod confirms;
pub mod consumer;
pub mod ledger;
pub mod load;
pub mod options;
pub mod process;
pub mod publisher;
pub mod report;
pub mod run;
pub mod stamp;
