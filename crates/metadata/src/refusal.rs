//! Why a command or a question is refused, as clients see it.

use std::fmt;

/// A refusal: RabbitMQ's reply code and text, and the kind that the HTTP API answers by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong.
    pub kind: Kind,
    /// The AMQP reply code; 403, 404, 405 and 406 end the channel, others the connection.
    pub code: u16,
    /// The text without the name of the code before it.
    pub text: String,
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// 404: the object, or one that it needs, does not exist.
    NotFound,
    /// 403: no permission, or a reserved name.
    AccessRefused,
    /// 405: exclusive to another connection.
    Locked,
    /// 406: arguments that cannot be, or that differ from those of the existing object.
    Precondition,
    /// 406, over HTTP 400: it has bindings, consumers or messages, and the client said not then.
    InUse,
    /// 530: no access to the vhost, or a limit.
    NotAllowed,
    /// A value that only the HTTP API can give is wrong (HTTP 400).
    Invalid,
    /// The vhost is protected from deletion (HTTP 412).
    Protected,
    /// 541, over HTTP 503: nobody can decide it now.
    Unavailable,
}

impl Refusal {
    /// 404.
    pub fn not_found(text: impl Into<String>) -> Self {
        Self { kind: Kind::NotFound, code: 404, text: text.into() }
    }

    /// 403.
    pub fn access_refused(text: impl Into<String>) -> Self {
        Self { kind: Kind::AccessRefused, code: 403, text: text.into() }
    }

    /// 405.
    pub fn locked(text: impl Into<String>) -> Self {
        Self { kind: Kind::Locked, code: 405, text: text.into() }
    }

    /// 406.
    pub fn precondition(text: impl Into<String>) -> Self {
        Self { kind: Kind::Precondition, code: 406, text: text.into() }
    }

    /// 406 for something that is in use.
    pub fn in_use(text: impl Into<String>) -> Self {
        Self { kind: Kind::InUse, code: 406, text: text.into() }
    }

    /// 530.
    pub fn not_allowed(text: impl Into<String>) -> Self {
        Self { kind: Kind::NotAllowed, code: 530, text: text.into() }
    }

    /// A value that only the HTTP API can give.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self { kind: Kind::Invalid, code: 406, text: text.into() }
    }

    /// The vhost is protected from deletion.
    pub fn protected(text: impl Into<String>) -> Self {
        Self { kind: Kind::Protected, code: 406, text: text.into() }
    }

    /// 541.
    pub fn unavailable(text: impl Into<String>) -> Self {
        Self { kind: Kind::Unavailable, code: 541, text: text.into() }
    }

    /// The name of the reply code, such as `PRECONDITION_FAILED`.
    pub fn code_name(&self) -> &'static str {
        match self.code {
            403 => "ACCESS_REFUSED",
            404 => "NOT_FOUND",
            405 => "RESOURCE_LOCKED",
            406 => "PRECONDITION_FAILED",
            541 => "INTERNAL_ERROR",
            _ => "NOT_ALLOWED",
        }
    }
}

impl fmt::Display for Refusal {
    /// As a client sees it: `PRECONDITION_FAILED - …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} - {}", self.code_name(), self.text)
    }
}

impl std::error::Error for Refusal {}
