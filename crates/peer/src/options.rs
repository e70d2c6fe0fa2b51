//! What a node is told about its peers.

use crate::identity::{ADDRESS_MAX, FACTS_MAX, Identity, NAME_MAX};
use crate::secret::Secret;
use crate::tls::TlsFiles;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The default of [`Options::silence_timeout`].
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(2);
/// The least silence timeout; a shorter one counts as that.
pub const SILENCE_TIMEOUT_MIN: Duration = Duration::from_millis(20);
/// The default of [`Options::queue_bytes_max`].
pub const QUEUE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Settings of [`Links`](crate::links::Links).
#[derive(Debug, Clone)]
pub struct Options {
    /// What the peers are told of this node.
    pub me: Identity,
    /// The cluster's name: nodes of others are refused. At most [`NAME_MAX`] bytes.
    pub cluster: Arc<str>,
    /// What all its nodes know.
    pub secret: Secret,
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Names and addresses (`host:port`) of the peers that are known from the start. One with the
    /// name of this node is left out, so that all nodes can have the same list.
    pub peers: Vec<(Arc<str>, String)>,
    /// A peer that is not heard for so long is down. It is also the limit of one dial. At least
    /// [`SILENCE_TIMEOUT_MIN`]; below some 500 ms a busy machine is taken for a dead one.
    pub silence_timeout: Duration,
    /// Messages and requests to one peer are taken while fewer bytes than that wait to be written;
    /// as much again may wait of answers to it. At least 1.
    pub queue_bytes_max: usize,
    /// `None`: connections are in the clear. All nodes of a cluster must agree.
    pub tls: Option<TlsFiles>,
}

/// Why [`Options`] cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} of {bytes} bytes; {min} to {max} are possible")]
pub struct OutOfRange {
    /// What it is.
    pub what: &'static str,
    /// How long it is.
    pub bytes: usize,
    /// The least.
    pub min: usize,
    /// The most.
    pub max: usize,
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), OutOfRange> {
        let check = OutOfRange::check;
        check("node name", self.me.name.len(), 1, NAME_MAX)?;
        check("cluster name", self.cluster.len(), 0, NAME_MAX)?;
        check("address", self.me.address.len(), 0, ADDRESS_MAX)?;
        OutOfRange::check_facts(&self.me.facts)
    }
}

impl OutOfRange {
    fn check(what: &'static str, bytes: usize, min: usize, max: usize) -> Result<(), Self> {
        if (min..=max).contains(&bytes) { Ok(()) } else { Err(Self { what, bytes, min, max }) }
    }

    pub(crate) fn check_facts(facts: &[u8]) -> Result<(), Self> {
        Self::check("facts", facts.len(), 0, FACTS_MAX)
    }
}
