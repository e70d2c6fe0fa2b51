//! What is wrong with a configuration, and where each value was written.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::keys::{self, Key};
use super::value::Raw;

/// Where a value was written. A later one overrides an earlier one, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nowhere; it is the key's default.
    Default,
    /// In a file.
    File {
        /// The file, as it was named.
        path: Arc<PathBuf>,
        /// Line, from 1.
        line: usize,
    },
    /// In this environment variable.
    Environment(String),
    /// By an option, usually `--set`.
    CommandLine,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(variable) => write!(f, "environment {variable}"),
            Self::CommandLine => f.write_str("command line"),
        }
    }
}

/// One thing that is wrong. `Display` names the place, the key, what is wrong and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// Where.
    pub origin: Origin,
    /// What, as one sentence without full stop.
    pub text: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.text)
    }
}

impl Complaint {
    pub(crate) fn new(origin: Origin, text: impl Into<String>) -> Self {
        Self { origin, text: text.into() }
    }

    /// No key has this name.
    pub(crate) fn unknown(origin: Origin, name: &str) -> Self {
        let hint = match keys::nearest(name) {
            Some(known) => format!("; did you mean {known}?"),
            None => "; config/leveret.toml lists all keys".to_owned(),
        };
        Self::new(origin, format!("unknown key {name}{hint}"))
    }

    /// The key does not accept this value.
    pub(crate) fn refused(origin: Origin, key: &Key, raw: &Raw) -> Self {
        let shown = if key.secret { "the value".to_owned() } else { shown(raw) };
        Self::new(origin, format!("{}: {shown} is not {}", key.name, key.kind.allowed()))
    }
}

fn shown(raw: &Raw) -> String {
    match raw {
        Raw::Text(text) => format!("{text:?}"),
        Raw::Integer(number) => number.to_string(),
        Raw::Float(number) => number.to_string(),
        Raw::Bool(flag) => flag.to_string(),
        Raw::List(items) => {
            format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", "))
        }
        Raw::Other(kind) => format!("a {kind}"),
    }
}
