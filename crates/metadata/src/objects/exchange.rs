//! An exchange.

use std::fmt;

use amq_protocol_types::FieldTable;
use serde::{Deserialize, Serialize};

use crate::objects::Name;

/// An exchange as it was declared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    /// Where.
    pub vhost: Name,
    /// The name; empty for the default exchange.
    pub name: Name,
    /// How it routes.
    pub kind: ExchangeKind,
    /// Survives a restart.
    pub durable: bool,
    /// Goes with its last binding as a source.
    pub auto_delete: bool,
    /// Clients cannot publish to it.
    pub internal: bool,
    /// Such as `alternate-exchange`.
    #[serde(default, with = "crate::arguments::text")]
    pub arguments: FieldTable,
    /// Who declared it.
    pub user_who_performed_action: Name,
}

/// How an exchange routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ExchangeKind {
    /// The key equals the binding's.
    #[serde(rename = "direct")]
    Direct,
    /// Every binding matches.
    #[serde(rename = "fanout")]
    Fanout,
    /// Words with `*` and `#`.
    #[serde(rename = "topic")]
    Topic,
    /// The headers match the binding's arguments.
    #[serde(rename = "headers")]
    Headers,
    /// One destination by a hash, in proportion to the bindings' weights.
    #[serde(rename = "x-consistent-hash")]
    ConsistentHash,
    /// One destination by the hash of the key modulo the number of bindings.
    #[serde(rename = "x-modulus-hash")]
    ModulusHash,
    /// One destination at random.
    #[serde(rename = "x-random")]
    Random,
    /// One destination at random among those on this node.
    #[serde(rename = "x-local-random")]
    LocalRandom,
}

impl ExchangeKind {
    /// Every kind, in the order in which they are listed.
    pub const ALL: [Self; 8] = [
        Self::Direct,
        Self::Fanout,
        Self::Headers,
        Self::Topic,
        Self::ConsistentHash,
        Self::ModulusHash,
        Self::Random,
        Self::LocalRandom,
    ];

    /// The name that clients use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Fanout => "fanout",
            Self::Topic => "topic",
            Self::Headers => "headers",
            Self::ConsistentHash => "x-consistent-hash",
            Self::ModulusHash => "x-modulus-hash",
            Self::Random => "x-random",
            Self::LocalRandom => "x-local-random",
        }
    }

    /// The kind of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == name)
    }
}

impl fmt::Display for ExchangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
