//! Tests of `method`.
