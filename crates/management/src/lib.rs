//! The HTTP API and the Prometheus metrics of a node.
//!
//! ```text
//!   server ─┬─ api ──── http        requests, answers, lists
//!           │    └───── sampler     rates
//!           ├─ scrape ─ metrics     Prometheus
//!           └─ page.html
//!                │
//!              node (trait) ── view     what the broker shows
//!                │
//!              inquiry ── census   what nodes ask each other, and what comes of it
//! ```
//!
//! Paths, JSON and metric names are RabbitMQ's, so that its tools work unchanged.

pub mod census;
pub mod inquiry;
pub mod journals;
pub mod members;
pub mod node;
pub mod view;

pub mod server;

pub mod api;
pub mod http;
pub mod metrics;
pub mod sampler;
pub mod scrape;
pub mod version;

mod clock;
