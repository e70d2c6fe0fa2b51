//! The end-to-end cases, one function per promise, named after its number in the list of cases.

mod bad_input;
mod confirms;
mod consumers;
mod dead_letters;
mod http;
mod permissions;
mod protocol;
mod queues;
mod routing;
