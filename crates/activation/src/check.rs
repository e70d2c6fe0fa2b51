//! Exhaustive search over what two or three nodes and the register can do.
//!
//! ```text
//!   world       the nodes with their disks, the register and its lock, links, clients' operations
//!   steps       everything that can happen next, each a transition of its own
//!   invariants  the six of `machine`, as predicates over a state or a transition
//!   search      breadth first, so that the trace to a violation is a shortest one
//! ```
//!
//! Every step of a node can be followed by a crash of it, by a power cut, by the end of its lease,
//! by the loss of its links. What is written is first visible and then durable. Commands to the
//! register may be carried out after whoever sent them has given up or died. Reads without the
//! lock may return any older value. It is the machine of this crate that runs here, and nothing in
//! these files decides anything that the machine decides; what they add is the driver's part of the
//! contract, which `world::Driver` can break too.

mod invariants;
mod search;
mod steps;
mod world;

mod scenes;

mod broken;
mod forced;
mod holds;
mod rows;
mod seeds;
