//! Asking the API.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use management::api::call::Api;
use management::sampler::Board;
use management::server::{metrics_router, router, sample};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::fake::Fake;

/// The API of a fake node, with somebody asking.
#[derive(Clone)]
pub(crate) struct Asker {
    /// The node.
    pub(crate) node: Arc<Fake>,
    rates: Arc<Board>,
    credentials: Option<(String, String)>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Got {
    /// The status.
    pub(crate) status: u16,
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// The body as text.
    pub(crate) text: String,
    /// The body as JSON; null if it is none.
    pub(crate) json: Value,
}

/// A new node, asked by its administrator.
pub(crate) fn asker() -> Asker {
    let credentials = Some(("guest".into(), "guest".into()));
    Asker { node: Arc::new(Fake::new()), rates: Arc::default(), credentials }
}

impl Asker {
    /// The same node asked by somebody else.
    pub(crate) fn by(&self, user: &str, password: &str) -> Self {
        Self { credentials: Some((user.into(), password.into())), ..self.clone() }
    }

    /// The same node asked by nobody.
    pub(crate) fn anonymous(&self) -> Self {
        Self { credentials: None, ..self.clone() }
    }

    /// Makes a user with a tag, password `pw`, and permissions in `/` if wanted.
    pub(crate) async fn user(&self, name: &str, tag: &str, in_root: bool) -> Self {
        let body = json!({"password": "pw", "tags": tag});
        assert_eq!(self.put(&format!("users/{name}"), body).await.status, 201);
        if in_root {
            let all = json!({"configure": ".*", "write": ".*", "read": ".*"});
            assert_eq!(self.put(&format!("permissions/%2F/{name}"), all).await.status, 201);
        }
        self.by(name, "pw")
    }

    /// Takes a sample now, as the sampler does every few seconds.
    pub(crate) async fn sample_at(&self, at_ms: u64) {
        let mut sample = sample(self.node.as_ref()).await;
        sample.at_ms = at_ms;
        self.rates.push(sample);
    }

    pub(crate) async fn get(&self, path: &str) -> Got {
        self.send("GET", path, &[], String::new()).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Got {
        self.send("PUT", path, &[], body.to_string()).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Got {
        self.send("POST", path, &[], body.to_string()).await
    }

    pub(crate) async fn delete_with(&self, path: &str, body: Value) -> Got {
        self.send("DELETE", path, &[], body.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Got {
        self.send("DELETE", path, &[], String::new()).await
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Got {
        self.send_body(method, path, headers, Body::from(body)).await
    }

    pub(crate) async fn send_body(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Body,
    ) -> Got {
        let api = Api { node: Arc::clone(&self.node), rates: Arc::clone(&self.rates) };
        let mut request = Request::builder().method(method).uri(format!("/api/{path}"));
        if let Some((user, password)) = &self.credentials {
            let pair = STANDARD.encode(format!("{user}:{password}"));
            request = request.header("authorization", format!("Basic {pair}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        ask(router(api), request.body(body).unwrap()).await
    }

    /// Scrapes.
    pub(crate) async fn scrape(&self, path: &str) -> Got {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        ask(metrics_router(Arc::clone(&self.node)), request).await
    }
}

async fn ask(router: Router, request: Request<Body>) -> Got {
    let response = router.oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let json = serde_json::from_str(&text).unwrap_or_default();
    Got { status: parts.status.as_u16(), headers: parts.headers, text, json }
}

impl Got {
    /// The status and the reason of a refusal.
    pub(crate) fn refusal(&self) -> (u16, &str) {
        (self.status, self.json["reason"].as_str().unwrap_or_default())
    }

    /// A list's names.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.json.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
    }
}

/// Fails unless an object has these keys with values of these kinds: `s` string, `n` number, `b`
/// boolean, `o` object, `a` array; in capitals the value may be null.
#[track_caller]
pub(crate) fn assert_shape(object: &Value, shape: &str) {
    for field in shape.split_whitespace() {
        let (key, kind) = field.split_once(':').unwrap();
        let value = object.get(key).unwrap_or_else(|| panic!("{key} is missing in {object:#}"));
        let right = match kind.to_ascii_lowercase().as_str() {
            "s" => value.is_string(),
            "n" => value.is_number(),
            "b" => value.is_boolean(),
            "o" => value.is_object(),
            "a" => value.is_array(),
            other => panic!("unknown kind {other}"),
        };
        let may_be_null = kind.chars().all(char::is_uppercase);
        assert!(right || may_be_null && value.is_null(), "{key} is {value}");
    }
}

/// Fails unless every `*_details` has a finite rate.
#[track_caller]
pub(crate) fn assert_details(object: &Value) {
    for (key, value) in object.as_object().unwrap() {
        if key.ends_with("_details")
            && let Some(rate) = value.get("rate")
        {
            assert!(rate.as_f64().is_some_and(f64::is_finite), "{key} has rate {rate}");
        }
    }
}
