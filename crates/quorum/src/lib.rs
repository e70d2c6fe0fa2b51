//! Hosts the Raft groups of a node.
//!
//! A group is replicated by openraft; its log lies in the node's one journal, as one stream; what
//! is committed goes to a [`member::Member`]; other nodes are reached by a [`member::Transport`].
//! Nothing here knows what a proposal means. How the broker uses it:
//!
//! ```text
//! let watermark = Arc::new(Watermark::default());         // the journal's listener calls
//!                                                         // advance(lsn) and fail(error)
//! // While the journal is opened, records of groups are noted per stream:
//! recovered.entry(stream).or_insert_with(|| Recovered::new(known.highest))
//!          .note(seq, head, bytes);
//! let host = Host::new(Options::new(me), journal, watermark, transport);
//! // The links' handler calls on_up, on_down, on_messages and on_request.
//!
//! // On each member; `founding` says with whom the group begins.
//! host.start(group, Care::Supervised, member, recovered.founded(founding)).await?;
//! // The member hears: opened, install (if there was a checkpoint), committed, role, ...
//! host.propose(group, payload)?;      // after role(Leader); the outcome comes by committed/role
//! ```
//!
//! A proposal is one entry, and rounds are what costs: a proposer keeps one or two entries under
//! way and gathers everything that comes meanwhile into the next.

#![allow(
    clippy::zero_sized_map_values,
    reason = "openraft takes nodes as a map; ours have nothing but their number"
)]

// What the broker gives and gets.
pub mod group;

pub mod member;

pub mod records;

pub mod host;

pub mod change;

pub mod status;

// The log of a group, in the node's journal.
pub mod log;

pub mod watermark;

pub mod recovered;

pub mod founding;

pub mod offline;

mod record;
mod reform;

mod tail;

mod grouplog;

mod checkpoint;

// openraft, and what stands between it and the rest.
mod types;

mod config;

mod machine;

mod seat;

// Who leads, and what is done on the side.
mod guard;

mod supervisor;

mod upkeep;

// Whether groups are awake.
pub mod rest;

mod life;

mod sleeper;

// Between hosts.
pub mod wire;

mod rpc;

mod links;

mod network;

mod session;

mod inbox;

mod bringup;

#[cfg(feature = "sim")]
pub mod sim;

#[cfg(test)]
mod tests;
