//! The one table of AMQP errors: code, name, and what they end.

use crate::request::Error;

/// Reply codes of AMQP 0.9.1 that this server sends.
pub mod code {
    /// The peer refused a login or an access.
    pub const ACCESS_REFUSED: u16 = 403;
    /// No such thing.
    pub const NOT_FOUND: u16 = 404;
    /// Somebody else has it.
    pub const RESOURCE_LOCKED: u16 = 405;
    /// Not in this state, or not with these arguments.
    pub const PRECONDITION_FAILED: u16 = 406;
    /// An operator or the server itself ends the connection.
    pub const CONNECTION_FORCED: u16 = 320;
    /// The bytes are not a frame.
    pub const FRAME_ERROR: u16 = 501;
    /// A field of a method cannot be read.
    pub const SYNTAX_ERROR: u16 = 502;
    /// A method that makes no sense here.
    pub const COMMAND_INVALID: u16 = 503;
    /// The channel is not open, or open already.
    pub const CHANNEL_ERROR: u16 = 504;
    /// A frame of the wrong kind.
    pub const UNEXPECTED_FRAME: u16 = 505;
    /// Against the rules.
    pub const NOT_ALLOWED: u16 = 530;
    /// Not offered by this server.
    pub const NOT_IMPLEMENTED: u16 = 540;
    /// The server's own fault.
    pub const INTERNAL_ERROR: u16 = 541;
}

/// The name that precedes the text of an error.
pub fn name(code: u16) -> &'static str {
    match code {
        311 => "CONTENT_TOO_LARGE",
        312 => "NO_ROUTE",
        313 => "NO_CONSUMERS",
        320 => "CONNECTION_FORCED",
        402 => "INVALID_PATH",
        403 => "ACCESS_REFUSED",
        404 => "NOT_FOUND",
        405 => "RESOURCE_LOCKED",
        406 => "PRECONDITION_FAILED",
        501 => "FRAME_ERROR",
        502 => "SYNTAX_ERROR",
        503 => "COMMAND_INVALID",
        504 => "CHANNEL_ERROR",
        505 => "UNEXPECTED_FRAME",
        506 => "RESOURCE_ERROR",
        530 => "NOT_ALLOWED",
        540 => "NOT_IMPLEMENTED",
        _ => "INTERNAL_ERROR",
    }
}

/// Whether an error ends only the channel that caused it; all others end the connection.
pub fn ends_channel_only(code: u16) -> bool {
    matches!(code, 311 | 312 | 313 | 403..=406)
}

impl Error {
    /// An error with its text.
    pub fn new(code: u16, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// 406.
    pub fn precondition_failed(text: impl Into<String>) -> Self {
        Self::new(code::PRECONDITION_FAILED, text)
    }

    /// 404.
    pub fn not_found(text: impl Into<String>) -> Self {
        Self::new(code::NOT_FOUND, text)
    }

    /// 530.
    pub fn not_allowed(text: impl Into<String>) -> Self {
        Self::new(code::NOT_ALLOWED, text)
    }

    /// 540.
    pub fn not_implemented(text: impl Into<String>) -> Self {
        Self::new(code::NOT_IMPLEMENTED, text)
    }

    /// Name and text as they go into a close method: at most 255 bytes, cut as RabbitMQ cuts.
    pub fn reply_text(&self) -> String {
        let mut text = format!("{} - {}", name(self.code), self.text);
        if text.len() > 255 {
            text.truncate(text.floor_char_boundary(252));
            text.push_str("...");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_at_255_bytes() {
        let error = Error::not_found("é".repeat(200));
        assert!(error.reply_text().len() <= 255);
        assert!(error.reply_text().starts_with("NOT_FOUND - é"));
        assert!(error.reply_text().ends_with("..."));
        assert_eq!(Error::not_found("x").reply_text(), "NOT_FOUND - x");
    }

    #[test]
    fn scope_follows_from_the_code() {
        for code in [311, 312, 313, 403, 404, 405, 406] {
            assert!(ends_channel_only(code), "{code}");
        }
        for code in [320, 402, 501, 502, 503, 504, 505, 506, 530, 540, 541] {
            assert!(!ends_channel_only(code), "{code}");
        }
    }
}
