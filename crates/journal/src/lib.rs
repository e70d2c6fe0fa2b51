//! A durable append-only segmented log with group commit.
//!
//! It stores payloads that are named by a stream and a sequence number, gives them back, and
//! forgets them when they are released. It knows nothing of what the payloads mean. One instance
//! owns one directory; one writer thread takes everything that waits, writes it at once, syncs
//! once, and then moves the durable watermark.
//!
//! The modules stand in reading order. The format on disk is drawn in `docs/journal-format.md`.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "offsets and lengths within a segment are below 1 GiB, heads below 25 bytes, and the \
              rest are bit fields; each place that could see more checks with try_from"
)]

// What a caller sees.
pub mod options;

pub mod op;

pub mod listener;

pub mod error;

pub mod stats;

pub mod journal;

// What stands behind it.
mod intake;

mod writer;

mod held;

mod parked;

mod gather;

mod index;

mod read;

// The bytes, and how they become an index again.
mod format;

mod scan;

pub mod recovery;

// The files.
mod keeper;

pub mod disk;

pub mod whole;

pub mod audit;

// For tools, tests and simulations.
pub mod inspect;

pub mod inline;

pub mod sim;

pub mod fuzz;

#[cfg(test)]
mod tests;
