//! HTTP Basic credentials.

use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A name and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The login.
    pub user: String,
    /// The password.
    pub password: Vec<u8>,
}

impl std::fmt::Debug for Credentials {
    /// Leaves out the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Credentials {
    /// Reads the `Authorization` header; `None` if it is missing or not of the scheme `Basic`.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, encoded) = value.trim().split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let decoded = STANDARD.decode(encoded.trim()).ok()?;
        let colon = decoded.iter().position(|byte| *byte == b':')?;
        let user = String::from_utf8(decoded[..colon].to_vec()).ok()?;
        Some(Self { user, password: decoded[colon + 1..].to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn check(value: &str) -> Option<(String, Vec<u8>)> {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        Credentials::of(&headers).map(|found| (found.user, found.password))
    }

    #[test]
    fn passwords_may_hold_colons() {
        assert_eq!(check("Basic YTpiOmM="), Some(("a".into(), b"b:c".to_vec())));
        assert_eq!(check("basic YTo="), Some(("a".into(), vec![])));
    }

    #[test]
    fn anything_else_is_no_credentials() {
        for value in ["Bearer abc", "Basic", "Basic !!!", "Basic YWJj", ""] {
            assert_eq!(check(value), None, "{value}");
        }
        assert_eq!(Credentials::of(&HeaderMap::new()), None);
    }
}
