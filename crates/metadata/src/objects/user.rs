//! A user who may log in.

use serde::{Deserialize, Serialize};

use crate::objects::Name;

/// Who may log in and with which password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The login.
    pub name: Name,
    /// Base64 of a four-byte salt and the hash of salt and password; empty: no password is right.
    pub password_hash: String,
    /// What the hash was made with.
    #[serde(default)]
    pub hashing_algorithm: HashingAlgorithm,
    /// Such as `administrator`, `monitoring`, `policymaker`, `management`, `impersonator`.
    #[serde(default)]
    pub tags: Vec<String>,
}

impl User {
    /// Whether the user carries this tag itself; nothing is implied by other tags.
    pub fn has_tag(&self, tag: &str) -> bool {
        self.tags.iter().any(|own| own == tag)
    }

    /// May do everything over HTTP.
    pub fn is_administrator(&self) -> bool {
        self.has_tag("administrator")
    }

    /// May see everything of the node over HTTP.
    pub fn is_monitor(&self) -> bool {
        self.is_administrator() || self.has_tag("monitoring")
    }

    /// May change policies and parameters over HTTP.
    pub fn is_policymaker(&self) -> bool {
        self.is_administrator() || self.has_tag("policymaker")
    }

    /// May use the HTTP API at all.
    pub fn is_management(&self) -> bool {
        self.is_monitor() || self.has_tag("policymaker") || self.has_tag("management")
    }
}

/// The hash functions that definitions of RabbitMQ carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum HashingAlgorithm {
    /// The usual one.
    #[default]
    #[serde(rename = "rabbit_password_hashing_sha256")]
    Sha256,
    /// A longer one.
    #[serde(rename = "rabbit_password_hashing_sha512")]
    Sha512,
    /// Users that were made before 2016.
    #[serde(rename = "rabbit_password_hashing_md5")]
    Md5,
}

impl HashingAlgorithm {
    /// The name in definitions and over HTTP.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sha256 => "rabbit_password_hashing_sha256",
            Self::Sha512 => "rabbit_password_hashing_sha512",
            Self::Md5 => "rabbit_password_hashing_md5",
        }
    }

    /// The algorithm of that name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Sha256, Self::Sha512, Self::Md5].into_iter().find(|known| known.as_str() == name)
    }
}
