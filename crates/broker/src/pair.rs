//! Named journals on this node: the drivers of the activation machine, and what they move.
//!
//! ```text
//!  keeper ─ one driver for each journal that is on this node
//!    driver ── activation::Machine ──► lock and register   (quorum, over the metadata group)
//!      │                          ├──► state file, copies   (folder)
//!      │                          ├──► active side:  a shard of its own on a ground of its own
//!      │                          │      submit ─► local journal ─┐
//!      │                          │             └► replica ───────┴► what may be confirmed
//!      │                          └──► replica's side (standby): stores what comes, answers
//!      └─ words of the other node of the pair (line)
//!
//!  queue of a journal, on every node:  normal shard ─ orders ─► the pair's shard, where it is active
//!                                                  ◄─ notices ─┘
//! ```
//!
//! Every node reaches the queues of a journal in the same way, the active one too: by orders and
//! notices, as it reaches a queue that another node keeps. What the orders bring is answered when the
//! pair's ground says so; when the journal moves, orders without an answer go to the next active node.

pub(crate) mod aside;
pub(crate) mod backfill;
pub(crate) mod clock;
pub(crate) mod driver;
pub(crate) mod ear;
pub(crate) mod fabric;
pub(crate) mod folder;
pub(crate) mod ground;
pub(crate) mod hold;
pub(crate) mod keeper;
pub(crate) mod left;
pub(crate) mod line;
pub(crate) mod ops;
pub(crate) mod pulse;
pub(crate) mod quorum;
pub(crate) mod registry;
pub(crate) mod stage;
pub(crate) mod standby;
pub(crate) mod works;

#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    clippy::duration_suboptimal_units,
    clippy::needless_pass_by_value,
    clippy::print_stdout,
    reason = "a simulation counts small numbers, and says what it does"
)]
pub(crate) mod sim;
