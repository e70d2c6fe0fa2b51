//! Tests of `deliver`.
