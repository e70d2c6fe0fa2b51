//! leveret-perf, a load generator for any AMQP 0.9.1 broker.
