//! Objects as text, for lists that are long: their keys are known and need no escaping, and nothing is
//! made of them but the text.

use serde::Serialize;
use serde_json::Value;

/// Why everything becomes text.
const KEYS: &str = "all keys are texts";

/// An item of a list.
pub trait Item {
    /// Adds its text.
    fn write(&self, out: &mut Vec<u8>);

    /// The same as a value, for those who look into it.
    fn value(&self) -> Value;
}

impl<T: Serialize> Item for T {
    fn write(&self, out: &mut Vec<u8>) {
        serde_json::to_writer(out, self).expect(KEYS);
    }

    fn value(&self) -> Value {
        serde_json::to_value(self).expect(KEYS)
    }
}

/// Writes an object, key by key; no key twice.
#[derive(Debug)]
pub struct Object<'o> {
    out: &'o mut Vec<u8>,
    is_empty: bool,
}

impl<'o> Object<'o> {
    /// Begins one.
    pub fn begin(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, is_empty: true }
    }

    /// Begins one within this one.
    pub fn object(&mut self, key: &'static str) -> Object<'_> {
        self.key(key);
        Object::begin(self.out)
    }

    /// Ends it.
    pub fn end(self) {
        self.out.push(b'}');
    }

    /// Anything that has a text.
    pub fn put(&mut self, key: &'static str, value: &(impl Serialize + ?Sized)) {
        self.key(key);
        serde_json::to_writer(&mut *self.out, value).expect(KEYS);
    }

    /// Nothing, if there is nothing.
    pub fn put_some(&mut self, key: &'static str, value: Option<&(impl Serialize + ?Sized)>) {
        if let Some(value) = value {
            self.put(key, value);
        }
    }

    /// A `*_details` object with a rate. Most are 0.
    pub fn rate(&mut self, key: &'static str, rate: f64) {
        if rate == 0.0 {
            self.key(key);
            self.out.extend_from_slice(b"{\"rate\":0.0}");
        } else {
            let mut details = self.object(key);
            details.put("rate", &rate);
            details.end();
        }
    }

    fn key(&mut self, key: &'static str) {
        debug_assert!(key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
        self.out.extend_from_slice(if self.is_empty { b"\"" } else { b",\"" });
        self.is_empty = false;
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let mut out = Vec::new();
        let mut object = Object::begin(&mut out);
        object.put("number", &1);
        object.put("text", "a\"b\n");
        object.put("nothing", &None::<u8>);
        object.put_some("absent", None::<&str>);
        object.put_some("some", Some("x"));
        object.rate("still", 0.0);
        object.rate("falls", -1.5);
        object.object("empty").end();
        object.end();
        let expected = serde_json::json!({
            "number": 1, "text": "a\"b\n", "nothing": null, "some": "x", "still": {"rate": 0.0},
            "falls": {"rate": -1.5}, "empty": {},
        });
        assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), expected);
    }
}
