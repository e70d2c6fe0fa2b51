//! Regular expressions over names, with the frequent ones recognised.
//!
//! RabbitMQ's are PCRE's, and `^(?!amq\.)` is a favourite. What the linear-time engine cannot do is
//! left to a backtracking one, with a limit on its steps.

use regex::Regex;

/// Steps of backtracking after which a name counts as not matching; a millisecond or so.
const STEPS_MAX: usize = 50_000;

/// An expression that is matched anywhere in a name, as Erlang's `re:run` does.
#[derive(Debug, Clone)]
pub(crate) enum Matcher {
    /// `.*` and the like.
    Everything,
    /// The empty permission.
    Nothing,
    Pattern(Regex),
    /// With look-around or back references.
    Backtracking(Box<fancy_regex::Regex>),
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
        let error = match Regex::new(expression) {
            Ok(regex) => return Ok(Self::Pattern(regex)),
            Err(error) => error,
        };
        fancy_regex::RegexBuilder::new(expression)
            .backtrack_limit(STEPS_MAX)
            .build()
            .map(|regex| Self::Backtracking(Box::new(regex)))
            .map_err(|_| error.to_string())
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Nothing => false,
            Self::Pattern(regex) => regex.is_match(name),
            Self::Backtracking(regex) => regex.is_match(name).unwrap_or(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Matcher;

    fn check(expression: &str, name: &str) -> bool {
        Matcher::pattern(expression).unwrap().matches(name)
    }

    #[test]
    fn expressions_match_anywhere() {
        assert!(check("b", "abc") && !check("^b", "abc") && check("c$", "abc"));
        assert!(check("", "abc") && check(".*", "abc") && check("^a.c$", "abc"));
        assert!(!Matcher::permission("").unwrap().matches("") && check("^$", ""));
    }

    #[test]
    fn look_around() {
        assert!(check(r"^(?!amq\.).*", "queue") && !check(r"^(?!amq\.).*", "amq.gen-1"));
        assert!(check(r"^(?=.*x)(?=.*y)", "yx") && !check(r"^(?=.*x)(?=.*y)", "x"));
    }

    #[test]
    fn what_takes_too_long_does_not_match() {
        assert!(!check(r"^(?=a)(a|aa)+\1$b", &"a".repeat(200)));
    }

    #[test]
    fn bad_expressions_are_named() {
        assert!(Matcher::pattern("(").unwrap_err().contains("unclosed group"));
    }
}
