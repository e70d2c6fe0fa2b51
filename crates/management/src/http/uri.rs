//! Paths and query strings: percent-encoding both ways.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::failure::{Failure, Outcome};

/// One segment of a path, as sent and as meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// As it stands in the path.
    pub raw: String,
    /// Percent-decoded; a plus sign stays.
    pub text: String,
}

impl Segment {
    /// The text with plus signs read as spaces, which is what older tools send.
    pub fn text_with_spaces(&self) -> String {
        decode(&self.raw, true).unwrap_or_else(|| self.text.clone())
    }
}

/// Cuts a path at its slashes. The leading slash and one trailing slash make no segments; an empty
/// segment in the middle does, since the default exchange is named by one.
///
/// # Errors
/// 400 if a segment is not UTF-8 when decoded.
pub fn segments(path: &str) -> Outcome<Vec<Segment>> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    path.split('/')
        .map(|raw| {
            let text = decode(raw, false)
                .ok_or_else(|| Failure::bad_request("the path is not valid UTF-8"))?;
            Ok(Segment { raw: raw.to_owned(), text })
        })
        .collect()
}

/// The fields of a query string; of fields that come twice, all values in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    fields: BTreeMap<String, Vec<String>>,
}

impl Query {
    /// Reads `a=b&c=d`. What cannot be decoded is left out.
    pub fn parse(query: &str) -> Self {
        let mut fields: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let (Some(key), Some(value)) = (decode(key, true), decode(value, true)) {
                fields.entry(key).or_default().push(value);
            }
        }
        Self { fields }
    }

    /// The first value of a field.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.fields.get(key)?.first().map(String::as_str)
    }

    /// All values of a field.
    pub fn all(&self, key: &str) -> &[String] {
        self.fields.get(key).map_or(&[], Vec::as_slice)
    }

    /// Whether a switch is on.
    pub fn is_true(&self, key: &str) -> bool {
        self.get(key) == Some("true")
    }
}

/// Percent-decodes; `None` if the result is not UTF-8. A percent sign without two digits stays.
pub fn decode(text: &str, plus_is_space: bool) -> Option<String> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |offset: usize| {
            bytes.get(at + offset).and_then(|digit| char::from(*digit).to_digit(16))
        };
        match (bytes[at], hex(1), hex(2)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push(u8::try_from(high * 16 + low).expect("two hexadecimal digits"));
                at += 3;
                continue;
            }
            (b'+', _, _) if plus_is_space => decoded.push(b' '),
            (byte, _, _) => decoded.push(byte),
        }
        at += 1;
    }
    String::from_utf8(decoded).ok()
}

/// Percent-encodes everything but letters, digits, `-`, `.`, `_` and `~`; a space becomes `+`.
pub fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            b' ' => encoded.push('+'),
            _ => write!(encoded, "%{byte:02X}").expect("a string takes everything"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_decoded_one_by_one() {
        let segments = segments("/api/bindings/%2F/e//q/a%2520+b/").unwrap();
        let texts: Vec<_> = segments.iter().map(|segment| segment.text.as_str()).collect();
        assert_eq!(texts, ["api", "bindings", "/", "e", "", "q", "a%20+b"]);
        assert_eq!(segments[6].text_with_spaces(), "a%20 b");
        assert_eq!(segments[6].raw, "a%2520+b");
    }

    #[test]
    fn invalid_utf8_is_refused() {
        assert_eq!(segments("/api/%FF").unwrap_err().status, 400);
        assert_eq!(decode("100%", false).as_deref(), Some("100%"));
        assert_eq!(decode("%zz", false).as_deref(), Some("%zz"));
    }

    #[test]
    fn queries_are_forms() {
        let query = Query::parse("name=a+b%2B&family=x&family=y&flag");
        assert_eq!(query.get("name"), Some("a b+"));
        assert_eq!(query.all("family"), ["x", "y"]);
        assert_eq!(query.get("flag"), Some(""));
        assert!(!query.is_true("flag"));
    }

    #[test]
    fn encoding_is_undone_by_decoding() {
        for text in ["", "a b", "a+b", "/", "ü~#?", "100%"] {
            assert_eq!(decode(&encode(text), true).as_deref(), Some(text));
        }
        assert_eq!(encode("a.#"), "a.%23");
    }
}
