//! Names and keys that AMQP carries in short strings.

use super::failure::{Failure, Outcome};

/// The longest short string.
const BYTES_MAX: usize = 255;

/// A routing key, or any other short string.
///
/// # Errors
/// 400 if it is longer than AMQP can carry: no client could be given a message with it.
pub fn short(what: &str, text: String) -> Outcome<String> {
    if text.len() > BYTES_MAX {
        return Err(Failure::bad_request(format!("{what} is longer than {BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// The name of a queue or an exchange that is to be made.
///
/// # Errors
/// 400 as for [`short`], and if it is empty.
pub fn name(what: &str, text: String) -> Outcome<String> {
    if text.is_empty() {
        return Err(Failure::bad_request(format!("{what} name must not be empty")));
    }
    short(&format!("{what} name"), text)
}
