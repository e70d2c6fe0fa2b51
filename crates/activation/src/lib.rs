//! The activation sequence: which of the nodes that hold a journal may serve it, pure.
//!
//! Mutual exclusion is not enough for a journal that lives on two nodes: the lock says that one
//! serves at a time, not that its copy is the newest. So every journal has an *age*, kept beside
//! the copy on each node and, coordinated, in the cluster's register. Whoever serves alone raises
//! it first; whoever finds a newer age in the register never serves what it has.
//!
//! ```text
//!   events from the driver                        outputs for the driver, in order
//!   ──────────────────────► Machine::step ──────► read, acquire, compare-and-set, release
//!   answers of the register     │                 write the state file
//!   the state file's writes     │                 load and close the queues
//!   the replication's news      │                 copy, hand over, leave
//!   timers, the operator        └─ gate()         what may be confirmed to clients now
//! ```
//!
//! The crate knows no clock, no file and no network. [`check`](self) (a test module) searches every
//! state that two or three nodes can reach with crashes, power loss, ended leases, delayed commands
//! and lagging reads between any two steps, and finds the invariants of [`machine`] kept.

pub mod age;
pub mod register;

pub mod class;
pub mod standing;

pub mod file;
pub mod force;
pub mod lease;

pub mod event;
pub mod gate;
pub mod notice;
pub mod output;

pub mod machine;

#[cfg(not(feature = "sim"))]
#[expect(unreachable_pub, reason = "a simulation reaches it")]
mod rules;

#[cfg(feature = "sim")]
pub mod rules;

#[cfg(test)]
mod check;
