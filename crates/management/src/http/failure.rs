//! Refused requests: `{"error": "...", "reason": "..."}` with a status.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::node::Refusal;

/// A refused request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The HTTP status.
    pub status: StatusCode,
    /// The short word.
    pub error: &'static str,
    /// The text for people.
    pub reason: String,
}

/// What a handler gives.
pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// Any failure.
    pub fn new(status: StatusCode, error: &'static str, reason: impl Into<String>) -> Self {
        Self { status, error, reason: reason.into() }
    }

    /// 400: the request makes no sense.
    pub fn bad_request(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", reason)
    }

    /// 404: there is no such thing.
    pub fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "Object Not Found", "Not Found")
    }

    /// 404 for a virtual host that a listing needs.
    pub fn vhost_not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", "vhost_not_found")
    }

    /// 401: known, but not allowed. RabbitMQ spells it in the British way.
    pub fn not_authorised(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "not_authorised", reason)
    }

    /// 401: who are you? Asks for Basic credentials.
    pub fn not_authenticated(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "not_authorized", reason)
    }

    /// 405: the thing is there, but not for this method.
    pub fn method_not_allowed() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "Method Not Allowed")
    }

    /// 412: a condition of the request does not hold.
    pub fn precondition_failed(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, "precondition_failed", reason)
    }

    /// 503: not now.
    pub fn unavailable(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", reason)
    }
}

impl From<Refusal> for Failure {
    /// AMQP errors keep their text: 404 stays 404, 403 becomes 401, all others 400.
    fn from(refusal: Refusal) -> Self {
        match refusal.code {
            404 => Self::new(StatusCode::NOT_FOUND, "not_found", refusal.text),
            403 => Self::not_authorised(refusal.text),
            code => Self::bad_request(format!("{code} {} - {}", reply_name(code), refusal.text)),
        }
    }
}

/// The name of an AMQP reply code, as it stands before every reply text.
fn reply_name(code: u16) -> &'static str {
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

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = json!({"error": self.error, "reason": self.reason}).to_string();
        let mut response =
            (self.status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
        if self.error == "not_authorized" {
            response.headers_mut().insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Basic realm=\"RabbitMQ Management\""),
            );
        }
        response
    }
}
