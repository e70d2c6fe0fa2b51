//! The queue machine, pure.
