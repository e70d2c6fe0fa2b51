//! A small HTTP client for the management API: one request per connection, JSON in and out.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base64::Engine;
use serde_json::Value;

/// Where the API is and as whom to call it.
#[derive(Debug, Clone)]
pub struct Api {
    /// Its listener.
    pub address: SocketAddr,
    /// Login and password; none sends no credentials.
    pub login: Option<(String, String)>,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Header names in lower case, with values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as JSON; null if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The `reason` of an error body.
    pub fn reason(&self) -> String {
        self.json().get("reason").and_then(Value::as_str).unwrap_or_default().to_owned()
    }
}

/// Percent-encodes one path segment.
pub fn segment(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("writing to a string works");
        }
    }
    out
}

impl Api {
    /// As `guest`.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, login: Some(("guest".into(), "guest".into())) }
    }

    /// As somebody else.
    #[must_use]
    pub fn login(&self, user: &str, password: &str) -> Self {
        Self { address: self.address, login: Some((user.into(), password.into())) }
    }

    /// Without credentials.
    #[must_use]
    pub fn anonymous(&self) -> Self {
        Self { address: self.address, login: None }
    }

    /// `GET /api/PATH`.
    pub fn get(&self, path: &str) -> Answer {
        self.call("GET", path, None)
    }

    /// `GET /api/PATH`, which must answer 200 with JSON.
    pub fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "GET {path}: {}", answer.text());
        answer.json()
    }

    /// `PUT /api/PATH`.
    pub fn put(&self, path: &str, body: &Value) -> Answer {
        self.call("PUT", path, Some(&body.to_string()))
    }

    /// `POST /api/PATH`.
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path, Some(&body.to_string()))
    }

    /// `DELETE /api/PATH`.
    pub fn delete(&self, path: &str) -> Answer {
        self.call("DELETE", path, None)
    }

    /// Any request below `/api/`.
    pub fn call(&self, verb: &str, path: &str, body: Option<&str>) -> Answer {
        self.request(verb, &format!("/api/{path}"), body)
            .unwrap_or_else(|error| panic!("{verb} /api/{path}: {error}"))
    }

    /// Any request to any path.
    pub fn request(&self, verb: &str, path: &str, body: Option<&str>) -> std::io::Result<Answer> {
        let mut head = format!("{verb} {path} HTTP/1.1\r\nhost: {}\r\n", self.address);
        if let Some((user, password)) = &self.login {
            let token =
                base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
            let _ = write!(head, "authorization: Basic {token}\r\n");
        }
        if let Some(body) = body {
            let _ = write!(
                head,
                "content-type: application/json\r\ncontent-length: {}\r\n",
                body.len()
            );
        }
        head.push_str("connection: close\r\n\r\n");
        let mut stream = TcpStream::connect_timeout(&self.address, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(Duration::from_mins(1)))?;
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.unwrap_or_default().as_bytes())?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        parse(&bytes).ok_or_else(|| {
            std::io::Error::other(format!("no HTTP: {:?}", String::from_utf8_lossy(&bytes)))
        })
    }
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(bytes.get(..end)?).into_owned();
    let mut rest = bytes.get(end + 4..)?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_lowercase(), value.trim().to_owned()))
        .collect();
    let chunked =
        headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let mut body = Vec::new();
    if chunked {
        loop {
            let line_end = rest.windows(2).position(|window| window == b"\r\n")?;
            let line = std::str::from_utf8(rest.get(..line_end)?).ok()?;
            let size = usize::from_str_radix(line.split(';').next()?.trim(), 16).ok()?;
            rest = rest.get(line_end + 2..)?;
            if size == 0 {
                break;
            }
            body.extend_from_slice(rest.get(..size)?);
            rest = rest.get(size + 2..)?;
        }
    } else {
        body.extend_from_slice(rest);
    }
    Some(Answer { status, headers, body })
}
