//! Refused requests: `{"error": "...", "reason": "..."}` with a status.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use metadata::refusal::{Kind, Refusal};

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

    /// 404 for a virtual host that something is to be put into.
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
    /// What a client may not do is 401, what is not there 404, what is protected 412, what cannot
    /// be decided now 503; all else is 400.
    fn from(refusal: Refusal) -> Self {
        match refusal.kind {
            Kind::NotFound => Self::new(StatusCode::NOT_FOUND, "not_found", refusal.text),
            Kind::AccessRefused => Self::not_authorised(refusal.text),
            Kind::Protected => Self::precondition_failed(refusal.text),
            Kind::Unavailable => Self::unavailable(refusal.text),
            Kind::Invalid | Kind::Locked | Kind::Precondition | Kind::InUse | Kind::NotAllowed => {
                Self::bad_request(refusal.text)
            }
        }
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
