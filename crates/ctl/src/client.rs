//! Requests to the HTTP API.

use std::fmt::Write as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use ureq::http::{Method, Request};

use crate::exit::{Exit, Failed};

/// A node, seen over HTTP.
#[derive(Debug)]
pub struct Client {
    agent: ureq::Agent,
    base: String,
    authorization: String,
}

/// What a node answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The body; null if it was empty or no JSON.
    pub body: Value,
}

impl Response {
    /// What the node says about a refusal.
    pub fn reason(&self) -> String {
        match self.body.get("reason").and_then(Value::as_str) {
            Some(reason) => reason.to_owned(),
            None => format!("HTTP status {}", self.status),
        }
    }
}

impl Client {
    /// For a node at `url`, such as `http://127.0.0.1:15672`.
    pub fn new(url: &str, user: &str, password: &str, timeout: Duration) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(timeout))
            .http_status_as_error(false)
            .build();
        Self {
            agent: config.into(),
            base: url.trim_end_matches('/').trim_end_matches("/api").to_owned(),
            authorization: format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))),
        }
    }

    /// Sends a request to a path below `/api`. Statuses of refusals are answers too.
    ///
    /// # Errors
    /// If the node cannot be reached or does not answer in time.
    pub fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> Result<Response, Failed> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}/api/{path}", self.base))
            .header("authorization", &self.authorization)
            .header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let request =
            request.body(body).map_err(|error| Failed::new(Exit::Usage, error.to_string()))?;
        let mut response = self.agent.run(request).map_err(|error| self.unreachable(&error))?;
        let status = response.status().as_u16();
        let text = response
            .body_mut()
            .with_config()
            .limit(1 << 30)
            .read_to_string()
            .map_err(|error| self.unreachable(&error))?;
        Ok(Response { status, body: serde_json::from_str(&text).unwrap_or_default() })
    }

    /// A successful answer's body.
    ///
    /// # Errors
    /// As [`Client::send`], and if the node refuses.
    pub fn get(&self, path: &str) -> Result<Value, Failed> {
        Ok(accept(self.send(Method::GET, path, None, &[])?)?.body)
    }

    /// Makes or changes something.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn put(&self, path: &str, body: &Value) -> Result<(), Failed> {
        accept(self.send(Method::PUT, path, Some(body), &[])?).map(drop)
    }

    /// Deletes something.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn delete(&self, path: &str) -> Result<(), Failed> {
        accept(self.send(Method::DELETE, path, None, &[])?).map(drop)
    }

    fn unreachable(&self, error: &ureq::Error) -> Failed {
        let exit = match error {
            ureq::Error::Timeout(_) => Exit::Timeout,
            _ => Exit::Unavailable,
        };
        Failed::new(exit, format!("unable to reach the node at {}: {error}", self.base))
    }
}

/// Lets successes pass.
///
/// # Errors
/// If the status says that the node refuses.
pub fn accept(response: Response) -> Result<Response, Failed> {
    let exit = match response.status {
        200..=299 => return Ok(response),
        401 => Exit::NoUser,
        503 => Exit::Unavailable,
        500 => Exit::Software,
        _ => Exit::Data,
    };
    Err(Failed::new(exit, response.reason()))
}

/// One segment of a path.
pub fn segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("a string takes everything");
        }
    }
    encoded
}
