//! AMQP 0.9.1 sessions as pure machines, and the server that moves their bytes.

pub mod request;
