//! Methods that cannot be read, with RabbitMQ's codes and words where it has any.

use super::Failure;
use crate::error::code;
use crate::request::{ChannelId, Error};
use wire::method::{MethodError, Reason};

/// The failure for a method frame's payload that `wire` refused.
pub(super) fn bad_method(channel: ChannelId, payload: &[u8], error: &MethodError) -> Failure {
    let failure = |ids, code, text: String| Failure { channel, ids, error: Error::new(code, text) };
    match error {
        MethodError::UnknownClass { class, method }
        | MethodError::UnknownMethod { class, method } => {
            failure((*class, *method), code::COMMAND_INVALID, error.to_string())
        }
        MethodError::Syntax { class, method, reason: Reason::Table(_) } => {
            failure((*class, *method), code::SYNTAX_ERROR, error.to_string())
        }
        MethodError::Syntax { class, method, reason: Reason::Truncated | Reason::Trailing } => {
            let arguments = payload.get(4..).unwrap_or_default();
            if has_bad_text((*class, *method), arguments) {
                let text = "Malformed UTF-8 in shortstr".to_owned();
                return failure((0, 0), code::FRAME_ERROR, text);
            }
            let numbers: Vec<String> = arguments.iter().take(100).map(u8::to_string).collect();
            let text = format!("cannot decode <<{}>>", numbers.join(","));
            failure((*class, *method), code::FRAME_ERROR, text)
        }
    }
}

/// Whether one of the names at the beginning of the arguments is not UTF-8.
fn has_bad_text(ids: (u16, u16), arguments: &[u8]) -> bool {
    // bytes to pass over, then short strings
    let (skip, count) = match ids {
        (10, 40) | (60, 30) => (0, 1),
        (40, 20) | (50, 10 | 30 | 40) | (60, 70) => (2, 1),
        (40, 10) | (60, 20 | 40) => (2, 2),
        (40, 30 | 40) | (50, 20 | 50) => (2, 3),
        _ => return false,
    };
    let mut rest = arguments.get(skip..).unwrap_or_default();
    for _ in 0..count {
        let Some((&length, after)) = rest.split_first() else { return false };
        let Some((text, after)) = after.split_at_checked(length.into()) else { return false };
        if std::str::from_utf8(text).is_err() {
            return true;
        }
        rest = after;
    }
    false
}
