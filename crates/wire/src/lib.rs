//! AMQP 0.9.1 bytes and frames.
