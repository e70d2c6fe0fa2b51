//! The end-to-end cases, one function per promise, named after its number in the list of cases.

#![allow(
    clippy::unwrap_used,
    clippy::string_slice,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a case that panics has failed, and its numbers are small"
)]

mod bad_input;
mod classic_queues;
mod confirms;
mod consumers;
mod dead_letters;
mod durability;
mod extensions;
mod failover;
mod formation;
mod http;
mod identity;
mod journal_operations;
mod member_operations;
mod member_refusals;
mod members;
mod nodes;
mod operators;
mod pairs;
mod partitions;
mod permissions;
mod protocol;
mod queues;
mod quorum_cases;
mod quorum_queues;
mod reconciliation;
mod reconciliation_table;
mod routing;
mod tls;
mod tour;
