//! JSON bodies as tools send them: numbers and booleans may be strings.

use serde_json::{Map, Value};

use super::failure::{Failure, Outcome};

/// The object in a request's body.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Body {
    fields: Map<String, Value>,
}

impl From<Map<String, Value>> for Body {
    fn from(fields: Map<String, Value>) -> Self {
        Self { fields }
    }
}

impl Body {
    /// The names of all fields.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.keys().map(String::as_str)
    }

    /// Reads a body; an empty one is an empty object. A byte order mark before it is ignored.
    ///
    /// # Errors
    /// 400 if it is not a JSON object.
    pub fn parse(bytes: &[u8]) -> Outcome<Self> {
        let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self::default());
        }
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(fields)) => Ok(Self { fields }),
            _ => Err(Failure::bad_request("not_json")),
        }
    }

    /// The object.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// A field, if it is there and not null.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.fields.get(key).filter(|value| !value.is_null())
    }

    /// A text that must be there. Numbers and booleans are read as text.
    ///
    /// # Errors
    /// 400 if it is missing or not a text.
    pub fn text(&self, key: &str) -> Outcome<String> {
        self.text_or(key, None)
    }

    /// A text, or what stands for a missing one.
    ///
    /// # Errors
    /// 400 if it is missing and nothing stands for it, or not a text.
    pub fn text_or(&self, key: &str, default: Option<&str>) -> Outcome<String> {
        match (self.get(key), default) {
            (Some(Value::String(text)), _) => Ok(text.clone()),
            (Some(Value::Number(number)), _) => Ok(number.to_string()),
            (Some(Value::Bool(flag)), _) => Ok(flag.to_string()),
            (Some(_), _) => Err(Failure::bad_request(format!("{key} must be a string"))),
            (None, Some(default)) => Ok(default.to_owned()),
            (None, None) => Err(missing(key)),
        }
    }

    /// A switch.
    ///
    /// # Errors
    /// 400 if it is there and neither a boolean nor `"true"` or `"false"`.
    pub fn flag(&self, key: &str, default: bool) -> Outcome<bool> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => {
                flag(value).ok_or_else(|| Failure::bad_request(format!("not_boolean: {key}")))
            }
        }
    }

    /// A whole number.
    ///
    /// # Errors
    /// 400 if it is there and neither a whole number nor a text of one.
    pub fn integer(&self, key: &str) -> Outcome<Option<i64>> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => match integer(value) {
                Some(number) => Ok(Some(number)),
                None => Err(Failure::bad_request(format!("not_integer: {key}"))),
            },
        }
    }

    /// An object; an empty one if it is missing or an empty list, which some tools send for it.
    ///
    /// # Errors
    /// 400 if it is something else.
    pub fn object(&self, key: &str) -> Outcome<Map<String, Value>> {
        match self.get(key) {
            None => Ok(Map::new()),
            Some(Value::Object(object)) => Ok(object.clone()),
            Some(Value::Array(items)) if items.is_empty() => Ok(Map::new()),
            Some(Value::String(text)) if text.is_empty() => Ok(Map::new()),
            Some(Value::String(text)) => match serde_json::from_str(text) {
                Ok(Value::Object(object)) => Ok(object),
                _ => Err(Failure::bad_request(format!("{key} must be an object"))),
            },
            Some(_) => Err(Failure::bad_request(format!("{key} must be an object"))),
        }
    }

    /// Words: a list of texts, or one text with commas. `None` if it is missing.
    ///
    /// # Errors
    /// 400 if it is something else.
    pub fn words(&self, key: &str) -> Outcome<Option<Vec<String>>> {
        let words: Vec<String> = match self.get(key) {
            None => return Ok(None),
            Some(Value::String(text)) => text.split(',').map(str::to_owned).collect(),
            Some(Value::Array(items)) => items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<_>>()
                .ok_or_else(|| Failure::bad_request(format!("{key} must be strings")))?,
            Some(_) => return Err(Failure::bad_request(format!("{key} must be strings"))),
        };
        let words = words.iter().map(|word| word.trim().to_owned());
        Ok(Some(words.filter(|word| !word.is_empty()).collect()))
    }
}

/// The failure of a field that must be there.
pub fn missing(key: &str) -> Failure {
    Failure::bad_request(format!("[{{key_missing,{key}}}]"))
}

/// A boolean, or a text of one.
pub fn flag(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::String(text) if text == "true" => Some(true),
        Value::String(text) if text == "false" => Some(false),
        _ => None,
    }
}

/// A whole number, or a text of one.
pub fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> Body {
        Body::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn strings_stand_for_numbers_and_booleans() {
        let body = body(r#"{"durable":"false","auto_delete":true,"priority":"5","value":6}"#);
        assert!(!body.flag("durable", true).unwrap());
        assert!(body.flag("auto_delete", false).unwrap());
        assert!(body.flag("absent", true).unwrap());
        assert_eq!(body.integer("priority").unwrap(), Some(5));
        assert_eq!(body.integer("value").unwrap(), Some(6));
        assert_eq!(body.text("value").unwrap(), "6");
    }

    #[test]
    fn nonsense_is_a_bad_request() {
        for text in ["[]", "{", "1", "\"x\""] {
            assert_eq!(Body::parse(text.as_bytes()).unwrap_err().status, 400, "{text}");
        }
        let body = body(r#"{"durable":"maybe","priority":"x","arguments":5,"tags":[1]}"#);
        assert!(body.flag("durable", true).is_err());
        assert!(body.integer("priority").is_err());
        assert!(body.object("arguments").is_err());
        assert!(body.words("tags").is_err());
        assert_eq!(body.text("absent").unwrap_err().reason, "[{key_missing,absent}]");
    }

    #[test]
    fn words_are_lists_or_texts() {
        let body = body(r#"{"a":"x, y,","b":["x","y"],"c":""}"#);
        assert_eq!(body.words("a").unwrap().unwrap(), ["x", "y"]);
        assert_eq!(body.words("b").unwrap().unwrap(), ["x", "y"]);
        assert!(body.words("c").unwrap().unwrap().is_empty());
        assert!(body.words("d").unwrap().is_none());
    }

    #[test]
    fn a_byte_order_mark_is_ignored() {
        assert!(Body::parse(b"\xEF\xBB\xBF{}").is_ok());
        assert!(Body::parse(b"").unwrap().fields().is_empty());
    }
}
