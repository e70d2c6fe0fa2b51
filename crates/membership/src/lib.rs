//! Continuous reconciliation of the members of quorum queues, as values.
//!
//! ```text
//!              desired ─┐
//!  settings, policies   ├─► plan ─► at most one step, and what stands in the way of others
//!             observed ─┘              │
//!  Raft's members, nodes               ▼
//!                          scheduler: when which queue is looked at, how many steps at once,
//!                                     what failed lately, what there is to count
//! ```
//!
//! Each node plans for the queues that it leads. A plan has one step, so that the next one is made
//! from what is there by then: a change of members that is lost half-way is found and finished,
//! because everything that a plan depends on is in Raft's membership and in the list of nodes.
//!
//! What is never planned: removing the node that plans, making a group smaller because its target is
//! smaller, and a removal after which those who run are no majority of those who are left.

pub mod desired;

pub mod observed;

pub mod step;

pub mod refusal;

pub mod plan;

pub mod placement;

pub mod forecast;

pub mod scheduler;
