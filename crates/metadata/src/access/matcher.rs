//! Regular expressions over names, with the frequent ones recognised.

use regex::Regex;

/// An expression that is matched anywhere in a name, as Erlang's `re:run` does.
#[derive(Debug, Clone)]
pub(crate) enum Matcher {
    /// `.*` and the like.
    Everything,
    /// The empty permission.
    Nothing,
    Pattern(Regex),
}

impl Matcher {
    /// A permission: the empty expression matches nothing.
    ///
    /// # Errors
    /// Why the expression is none.
    pub(crate) fn permission(expression: &str) -> Result<Self, String> {
        if expression.is_empty() || expression == "^$" {
            return Ok(Self::Nothing);
        }
        Self::pattern(expression)
    }

    /// A policy's pattern: the empty expression matches everything.
    ///
    /// # Errors
    /// Why the expression is none.
    pub(crate) fn pattern(expression: &str) -> Result<Self, String> {
        if matches!(expression, "" | ".*" | "^.*" | "^.*$" | ".*$" | "^") {
            return Ok(Self::Everything);
        }
        Regex::new(expression).map(Self::Pattern).map_err(|error| error.to_string())
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Nothing => false,
            Self::Pattern(regex) => regex.is_match(name),
        }
    }
}
