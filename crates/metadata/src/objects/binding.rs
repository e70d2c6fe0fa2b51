//! A binding: the way from an exchange to a queue or to another exchange.

use amq_protocol_types::FieldTable;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::arguments;
use crate::objects::Name;

/// A binding. Two are the same if all fields are equal, argument values compared by value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Binding {
    /// Where.
    pub vhost: Name,
    /// The exchange that messages come from.
    pub source: Name,
    /// What messages go to.
    pub destination: Destination,
    /// The binding key.
    pub routing_key: Name,
    /// Such as `x-match`.
    #[serde(default, with = "crate::arguments::text")]
    pub arguments: FieldTable,
}

/// Where a binding leads.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Destination {
    /// To a queue of the same vhost.
    #[serde(rename = "queue")]
    Queue(Name),
    /// To an exchange of the same vhost.
    #[serde(rename = "exchange")]
    Exchange(Name),
}

impl Destination {
    /// The name of the queue or exchange.
    pub fn name(&self) -> &Name {
        match self {
            Self::Queue(name) | Self::Exchange(name) => name,
        }
    }

    /// `queue` or `exchange`, as over HTTP.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Queue(_) => "queue",
            Self::Exchange(_) => "exchange",
        }
    }
}

impl Binding {
    /// Names the binding among those with the same source and destination, as in paths of the
    /// HTTP API: `~` without key and arguments, the percent-encoded key, or `key~hash`.
    pub fn properties_key(&self) -> String {
        if self.arguments.inner().is_empty() {
            return if self.routing_key.is_empty() {
                "~".into()
            } else {
                encode(&self.routing_key)
            };
        }
        let hash = Sha256::digest(arguments::canonical(&self.arguments).as_bytes());
        format!("{}~{}", encode(&self.routing_key), URL_SAFE_NO_PAD.encode(&hash[..16]))
    }
}

/// Percent-encodes all but RFC 3986's unreserved characters; `~` too, since it separates.
fn encode(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => out.push(byte as char),
            _ => write!(out, "%{byte:02X}").expect("writing to a string does not fail"),
        }
    }
    out
}
