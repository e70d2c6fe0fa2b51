//! A durable append-only segmented log with group commit.
//!
//! It stores payloads that are named by a stream and a sequence number, gives them back, and
//! forgets them when they are released. It knows nothing of what the payloads mean. One instance
//! owns one directory; one writer thread takes everything that waits, writes it at once, syncs
//! once, and then moves the durable watermark.
//!
//! The modules stand in reading order. The format on disk is drawn in `docs/journal-format.md`.

pub mod disk;
pub mod error;
mod format;
pub mod fuzz;
mod gather;
mod held;
mod index;
pub mod inline;
pub mod inspect;
mod intake;
pub mod journal;
mod keeper;
pub mod listener;
pub mod op;
pub mod options;
mod read;
pub mod recovery;
mod scan;
pub mod sim;
pub mod stats;
#[cfg(test)]
mod tests;
mod writer;
