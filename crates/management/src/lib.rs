//! HTTP API and Prometheus metrics.
