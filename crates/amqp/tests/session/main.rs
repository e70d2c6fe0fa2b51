//! Sessions, seen from both sides: the client's bytes and the broker's requests.

mod first;
mod harness;
