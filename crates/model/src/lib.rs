//! The nouns that two or more crates share: ids, times, addresses, the opaque message.
//!
//! A type enters this crate only when two crates need it. Nothing here does I/O.

pub mod address;
pub mod id;
pub mod message;
pub mod time;
