//! Names and versions that tools ask for.

/// What this is.
pub const PRODUCT: &str = "Leveret";

/// Its version.
pub const OWN: &str = env!("CARGO_PKG_VERSION");

/// The RabbitMQ whose behaviour is followed; tools choose their requests by it.
pub const COMPATIBLE: &str = "4.3.0";

/// There is no Erlang here, but tools require the field to be a version.
pub const ERLANG: &str = "27.0";

/// The same, at length.
pub const ERLANG_FULL: &str = "Erlang/OTP 27 (none: Leveret is not written in Erlang)";

/// What does the cryptography.
pub const CRYPTO: &str = "rustls with ring";
