//! Tests of `publish`.
