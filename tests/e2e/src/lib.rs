//! Real processes with real clients: the harness of the end-to-end tests.
//!
//! The cases stand in `tests/`, one function per promise; the longer measurements are the binary
//! `acceptance`. `README.md` says which cases exist and how to point them at another broker.
//!
//! The client here is written by hand on purpose: it shares no codec with the broker, so that an
//! error in one is not hidden by the same error in the other, and it can send what no library
//! would.

#![allow(
    clippy::missing_errors_doc,
    reason = "the error is always the broker's answer, which the test looks at"
)]

pub mod broker;
pub mod client;
pub mod cluster;
pub mod codec;
pub mod content;
pub mod ctl;
pub mod exposition;
pub mod http;
pub mod hung;
pub mod load;
pub mod node;
pub mod numbered;
pub mod pair;
pub mod proxy;
pub mod sleepers;
pub mod wait;
