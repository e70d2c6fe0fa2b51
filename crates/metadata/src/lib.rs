//! The topology of exchanges, queues, bindings, users and policies, pure.
