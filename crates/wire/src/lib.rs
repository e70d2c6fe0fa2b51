//! AMQP 0.9.1: bytes ↔ frames ↔ methods, for the broker's sessions and for the load generator.
//!
//! Methods, tables and properties are those of `amq-protocol`. What happens once per message
//! (publish, deliver, acknowledge) has a hand-written path here that allocates nothing and copies
//! no body; property tests prove each one equal to `amq-protocol`.
//!
//! Nothing in this crate does I/O, and no input makes it panic or allocate more than a small
//! multiple of the input's own size.

pub mod ack;
pub mod content;
pub mod deliver;
pub mod frame;
pub mod method;
pub mod output;
pub mod properties;
pub mod publish;
mod reader;
pub mod table;
#[cfg(test)]
mod testing;
