//! Tests of the journal as a whole.

mod basics;
mod crash;
mod entry;
mod faults;
mod full;
mod golden;
mod support;
mod threads;
