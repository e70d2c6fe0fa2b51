//! The queue machine, pure: what a queue holds, who gets it next, and when it is gone.
//!
//! Classic and quorum queues run the same machine; they differ in [`settings::Style`] and in what
//! makes a command durable, which is the driver's business. The machine holds *names* of messages
//! ([`model::id::Seq`]) and small headers, never bodies. It is a deterministic function of its
//! state, the stamped time and the command: no clock, no entropy, no unordered map.
//!
//! ```text
//!  Command ──► Queue::apply(now, ·) ──► Reply            one, at once
//!                     │
//!                     └──────────────► Vec<Effect>       performed by the driver, in order
//! ```

pub mod settings;

pub mod command;

pub mod effect;

pub mod head;

pub mod malformed;

pub mod queue;

mod message;

mod dead;

mod delayed;

mod reader;

mod runs;

mod store;

mod unsettled;

mod consumers;
