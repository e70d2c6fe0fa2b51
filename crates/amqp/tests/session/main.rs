//! Sessions, seen from both sides: the client's bytes and the broker's requests.

mod channels;
mod consuming;
mod first;
mod framing;
mod handshake;
mod harness;
mod publishing;
mod queues;
