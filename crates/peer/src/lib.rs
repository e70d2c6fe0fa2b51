//! Links between the nodes of a cluster.
//!
//! Knows bytes, channels, requests and answers; nothing of Raft, AMQP or queues. Each node dials
//! each other one, so a pair of nodes shares two connections: a node sends its messages and
//! requests on the one that it dialled, and answers come back on the same one. A link is *up* when
//! both stand and lead to the same incarnation of the peer.
//!
//! ```text
//!   links      what the node uses: send, request, peers
//!   ├── pair   one task per peer: owns its two connections, performs what the link asks for
//!   │   ├── link        (pure)  when to dial, ping, call it up or down
//!   │   ├── connection          one socket: coalesced writes, frames cut from reads
//!   │   │   └── frame   (pure)  bytes ↔ frames
//!   │   └── outbox              what waits to be written, and who waits for an answer
//!   └── door   accepts and dials
//!       ├── handshake   (pure)  who is there: identities, proofs of the shared secret
//!       └── tls                 certificates
//! ```

pub mod links;

pub mod answer;
pub mod frame;
pub mod handler;
pub mod identity;
pub mod options;
pub mod outbox;
pub mod refusal;
pub mod secret;
pub mod shared;
pub mod tls;

mod codec;
mod connection;
mod door;
mod handshake;
mod link;
mod pair;
