//! One request on its way to its handler.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use metadata::access::LoginRefusal;
use metadata::objects::user::User;
use metadata::state::State;
use tokio::time::timeout;

use super::resource::Resource;
use crate::http::answer::Answer;
use crate::http::body::Body;
use crate::http::credentials::Credentials;
use crate::http::failure::{Failure, Outcome};
use crate::http::uri::{Query, Segment, segments};
use crate::node::Node;
use crate::sampler::{Board, Rates};

/// The largest request body.
const BODY_MAX: usize = 20_000_000;
/// The largest body of a login, which anybody may send.
const LOGIN_MAX: usize = 16_384;
/// How long a request's body may take to come.
const BODY_PATIENCE: Duration = Duration::from_mins(2);

/// The API of one node.
#[derive(Debug)]
pub struct Api<N> {
    /// The node.
    pub node: Arc<N>,
    /// Its rates.
    pub rates: Arc<Board>,
}

impl<N> Clone for Api<N> {
    fn clone(&self) -> Self {
        Self { node: Arc::clone(&self.node), rates: Arc::clone(&self.rates) }
    }
}

/// One authenticated request.
#[derive(Debug)]
pub struct Call<'a, N> {
    /// The node.
    pub node: &'a N,
    /// Its rates when the request came.
    pub rates: Arc<Rates>,
    /// The topology when the request came.
    pub state: Arc<State>,
    /// Who asks.
    pub user: Arc<User>,
    /// The query string.
    pub query: Query,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; an empty object if there is none.
    pub body: Body,
}

impl<N> Call<'_, N> {
    /// The name of who asks.
    pub fn by(&self) -> &str {
        &self.user.name
    }
}

impl<N: Node> Api<N> {
    /// Answers a request to a path below `/api`.
    pub async fn handle(self, request: Request) -> Response {
        let is_head = request.method() == Method::HEAD;
        let mut response = match self.answer(request).await {
            Ok(response) => response,
            Err(failure) => failure.into_response(),
        };
        let vary = HeaderValue::from_static("accept, accept-encoding, origin");
        response.headers_mut().insert(header::VARY, vary);
        if is_head {
            let (parts, _body) = response.into_parts();
            response = Response::from_parts(parts, axum::body::Body::empty());
        }
        response
    }

    async fn answer(&self, request: Request) -> Outcome<Response> {
        let state = self.node.state();
        let segments = segments(request.uri().path())?;
        let vhost = |segment: &Segment| vhost_name(&state, segment);
        let resource = Resource::parse(&segments[1..], &vhost).ok_or_else(Failure::not_found)?;
        let methods = resource.methods();
        let method = request.method().clone();
        if method == Method::OPTIONS {
            return Ok(options(methods));
        }
        if !methods.contains(&method.as_str()) {
            let mut response = Failure::method_not_allowed().into_response();
            allow(&mut response, methods);
            return Ok(response);
        }
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        if let Resource::Login = resource {
            let bytes = read(body, LOGIN_MAX).await?;
            return Ok(self.login(&bytes, peer)?.into_response());
        }
        if resource.is_open() {
            return Ok(super::health::open(self.node.as_ref(), &resource)?.into_response());
        }
        let user = self.authenticate(&parts.headers, peer)?;
        let bytes = read(body, BODY_MAX).await?;
        let body = match (&resource, method.as_str()) {
            (_, "GET" | "HEAD") => Body::default(),
            (Resource::Definitions(_), "POST") => super::definitions::body(&parts.headers, &bytes)?,
            // Tools send all kinds of bodies with a deletion; none means anything.
            (_, "DELETE") => Body::parse(&bytes).unwrap_or_default(),
            _ => Body::parse(&bytes)?,
        };
        let call = Call {
            node: self.node.as_ref(),
            // Probes do not look at rates.
            rates: match resource {
                Resource::Health(_) => self.rates.read(),
                _ => self.rates.look(),
            },
            state,
            user,
            query,
            headers: parts.headers,
            body,
        };
        let answer = super::dispatch::dispatch(&call, &resource, &method).await?;
        Ok(answer.into_response())
    }

    fn authenticate(&self, headers: &HeaderMap, peer: Option<IpAddr>) -> Outcome<Arc<User>> {
        let Some(credentials) = Credentials::of(headers) else {
            return Err(Failure::not_authenticated("Not_Authorized"));
        };
        self.check(&credentials, peer)
    }

    /// Who it is, if he may use the API at all.
    fn check(&self, credentials: &Credentials, peer: Option<IpAddr>) -> Outcome<Arc<User>> {
        let user = self.node.authenticate(&credentials.user, &credentials.password, peer).map_err(
            |refusal| match refusal {
                LoginRefusal::LoopbackOnly => {
                    Failure::not_authorised("User can only log in via localhost")
                }
                LoginRefusal::UnknownUser | LoginRefusal::WrongPassword => {
                    Failure::not_authenticated("Not_Authorized")
                }
            },
        )?;
        if !user.is_management() {
            return Err(Failure::not_authorised("Not management user"));
        }
        Ok(user)
    }

    /// `POST /login` with a form, for pages.
    fn login(&self, body: &[u8], peer: Option<IpAddr>) -> Outcome<Answer> {
        let form = Query::parse(&String::from_utf8_lossy(body));
        let (Some(user), Some(password)) = (form.get("username"), form.get("password")) else {
            return Err(Failure::bad_request("username and password are required"));
        };
        let credentials =
            Credentials { user: user.to_owned(), password: password.as_bytes().to_vec() };
        self.check(&credentials, peer)?;
        Ok(Answer::Json(serde_json::Value::from("ok")))
    }
}

/// The virtual host that a segment means: some tools write spaces as plus signs, but a plus sign
/// may also be meant.
fn vhost_name(state: &State, segment: &Segment) -> String {
    if state.vhost(&segment.text).is_none() && segment.raw.contains('+') {
        let with_spaces = segment.text_with_spaces();
        if state.vhost(&with_spaces).is_some() {
            return with_spaces;
        }
    }
    segment.text.clone()
}

/// The whole body of a request.
async fn read(body: axum::body::Body, bytes_max: usize) -> Outcome<axum::body::Bytes> {
    match timeout(BODY_PATIENCE, to_bytes(body, bytes_max)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(Failure::bad_request("Exceeded HTTP request body size limit")),
        Err(_) => Err(Failure::new(
            StatusCode::REQUEST_TIMEOUT,
            "request_timeout",
            "the request's body did not come in time",
        )),
    }
}

fn options(methods: &[&str]) -> Response {
    let mut response = StatusCode::OK.into_response();
    allow(&mut response, methods);
    response
}

fn allow(response: &mut Response, methods: &[&str]) {
    let allowed = format!("{}, OPTIONS", methods.join(", "));
    if let Ok(allowed) = HeaderValue::from_str(&allowed) {
        response.headers_mut().insert(header::ALLOW, allowed);
    }
}
