//! Tests of `ack`.
