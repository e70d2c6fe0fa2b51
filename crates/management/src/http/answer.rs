//! Successful answers.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

/// A successful answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// 200 with JSON.
    Json(Value),
    /// 200 with JSON that is text already.
    Text(Vec<u8>),
    /// 200 with JSON that the browser shall save under a name.
    Download(Value, String),
    /// Another status with JSON.
    Status(StatusCode, Value),
    /// 201: made.
    Created,
    /// 201 with the relative place of what was made.
    CreatedAt(String),
    /// 202: will be done.
    Accepted,
    /// 204: done, or already so.
    Done,
}

impl Answer {
    /// 201 if something is new, else 204.
    pub fn put(is_new: bool) -> Self {
        if is_new { Self::Created } else { Self::Done }
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let json = |status: StatusCode, value: &Value| {
            (status, [(header::CONTENT_TYPE, "application/json")], value.to_string())
                .into_response()
        };
        let mut response = match self {
            Self::Json(value) => json(StatusCode::OK, &value),
            Self::Text(text) => {
                ([(header::CONTENT_TYPE, "application/json")], text).into_response()
            }
            Self::Download(value, name) => {
                let mut response = json(StatusCode::OK, &value);
                let name: String = name.chars().filter(|c| !c.is_control() && *c != '"').collect();
                let disposition = format!("attachment; filename=\"{name}\"");
                if let Ok(disposition) = HeaderValue::from_str(&disposition) {
                    response.headers_mut().insert(header::CONTENT_DISPOSITION, disposition);
                }
                response
            }
            Self::Status(status, value) => json(status, &value),
            Self::Created => StatusCode::CREATED.into_response(),
            Self::CreatedAt(place) => {
                let mut response = StatusCode::CREATED.into_response();
                if let Ok(place) = HeaderValue::from_str(&place) {
                    response.headers_mut().insert(header::LOCATION, place);
                }
                response
            }
            Self::Accepted => StatusCode::ACCEPTED.into_response(),
            Self::Done => StatusCode::NO_CONTENT.into_response(),
        };
        let no_cache = HeaderValue::from_static("no-cache");
        response.headers_mut().insert(header::CACHE_CONTROL, no_cache);
        response
    }
}
