//! Tests of the journal as a whole.

mod basics;
mod crash;
mod threads;
