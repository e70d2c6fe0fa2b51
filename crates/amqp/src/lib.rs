//! AMQP 0.9.1 sessions as pure machines, and the server that moves their bytes.
//!
//! [`session`] is the machine of one connection, made of the files before it; it speaks to the
//! broker in the words of [`request`].

pub mod broker;
mod certificate;
mod channel;
pub mod config;
mod confirms;
mod consumers;
pub mod error;
mod limiter;
pub mod listener;
pub mod mailbox;
pub mod outbox;
pub mod request;
mod requests;
pub mod server;
pub mod session;
pub mod tls;
mod transaction;
mod unsettled;
