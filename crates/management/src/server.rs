//! Listeners and the sampler's clock: the edge of this crate.
//!
//! A listener takes a bounded number of connections, and one on which no request comes is closed, so
//! that nobody can hold the file descriptors that AMQP's clients need.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::{ConnectInfo, Request};
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;
use tower::ServiceExt as _;

use crate::api::call::Api;
use crate::clock::now_ms;
use crate::http::failure::Failure;
use crate::inquiry::Wanted;
use crate::node::Node;
use crate::sampler::{self, Board, Sample};
use crate::scrape;

#[cfg(test)]
mod tests;

/// Connections that one listener serves at once. More wait until one ends.
const CONNECTIONS_MAX: usize = 1024;
/// A body up to this size is read before the request is looked at: one that is answered without it
/// (401, 404, 405) would end the connection, on which the client sends its next request.
const SMALL_BODY: u64 = 64 << 10;
/// How long the head of a request may take to come, counted from the accept or the last answer; and
/// then a small body.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait after the system refused to give a socket (out of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the HTTP API until `shutdown` is ready, and takes samples for its rates.
///
/// All of it runs on a thread of its own, so that a list of ten thousand queues delays no message.
///
/// # Errors
/// If the thread cannot be made or the listener fails.
pub async fn serve<N: Node>(
    node: Arc<N>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    on_own_thread("http", listener, move |listener| async move {
        let rates = Arc::new(Board::default());
        let sampler = tokio::spawn(sample_for_ever(Arc::clone(&node), Arc::clone(&rates)));
        answer(listener, router(Api { node, rates }), CONNECTIONS_MAX, shutdown).await;
        sampler.abort();
    })
    .await
}

/// Serves Prometheus metrics until `shutdown` is ready, on a thread of its own.
///
/// # Errors
/// If the thread cannot be made or the listener fails.
pub async fn serve_metrics<N: Node>(
    node: Arc<N>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    on_own_thread("metrics", listener, move |listener| async move {
        answer(listener, metrics_router(node), CONNECTIONS_MAX, shutdown).await;
    })
    .await
}

/// Runs a server with a runtime of its own. If the caller stops waiting, the server goes on until
/// its own end.
async fn on_own_thread<F>(
    name: &str,
    listener: TcpListener,
    serve: impl FnOnce(TcpListener) -> F + Send + 'static,
) -> io::Result<()>
where
    F: Future<Output = ()>,
{
    let listener = listener.into_std()?;
    let (done, ended) = oneshot::channel();
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            serve(TcpListener::from_std(listener)?).await;
            Ok(())
        })
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        // Nobody may be waiting any more, and then nobody cares.
        drop(done.send(run()));
    })?;
    ended.await.unwrap_or_else(|_| Err(io::Error::other("the server's thread panicked")))
}

/// Answers the requests of at most `connections_max` connections at once until `shutdown` is ready,
/// then ends those that are under way.
async fn answer(
    listener: TcpListener,
    router: Router,
    connections_max: usize,
    shutdown: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(connections_max));
    let connections = GracefulShutdown::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE);
    let mut shutdown = pin!(shutdown);
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await.expect("it is never closed");
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            next = next => next,
            () = &mut shutdown => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // An answer is written in one go and must not wait for the one before to be acknowledged.
        if stream.set_nodelay(true).is_err() {
            continue;
        }
        let router = router.clone();
        let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(peer));
            let router = router.clone();
            async move {
                match with_small_body(request).await {
                    Ok(request) => router.oneshot(request).await,
                    Err(status) => Ok(status.into_response()),
                }
            }
        });
        let connection = connections.watch(http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            // A client that sends nonsense or hangs up is its own affair.
            drop(connection.await);
            drop(place);
        });
    }
    drop(listener);
    connections.shutdown().await;
}

/// See [`SMALL_BODY`].
async fn with_small_body(request: Request) -> Result<Request, StatusCode> {
    let (head, body) = request.into_parts();
    let is_small = body.size_hint().upper().is_some_and(|size| size <= SMALL_BODY);
    if !is_small {
        return Ok(Request::from_parts(head, body));
    }
    match tokio::time::timeout(HEAD_PATIENCE, to_bytes(body, usize::MAX)).await {
        Ok(Ok(bytes)) => Ok(Request::from_parts(head, Body::from(bytes))),
        Ok(Err(_)) => Err(StatusCode::BAD_REQUEST),
        Err(_) => Err(StatusCode::REQUEST_TIMEOUT),
    }
}

/// The paths of the API's listener.
pub fn router<N: Node>(api: Api<N>) -> Router {
    let handler = move |request: Request| {
        let api = api.clone();
        async move {
            let path = request.uri().path();
            if path == "/api" || path.starts_with("/api/") {
                api.handle(request).await
            } else {
                Failure::not_found().into_response()
            }
        }
    };
    Router::new().route("/", get(page)).fallback(handler)
}

/// The paths of the metrics listener.
pub fn metrics_router<N: Node>(node: Arc<N>) -> Router {
    Router::new().fallback(move |request: Request| scrape::handle(Arc::clone(&node), request))
}

/// The page, which reads the API itself.
async fn page() -> impl IntoResponse {
    let policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                  connect-src 'self'";
    ([(header::CONTENT_SECURITY_POLICY, policy)], Html(include_str!("page.html")))
}

async fn sample_for_ever<N: Node>(node: Arc<N>, rates: Arc<Board>) {
    loop {
        let begin = Instant::now();
        if rates.is_watched() || node.other_nodes().is_empty() {
            rates.push(sample(node.as_ref()).await);
        }
        // Counted from here, so that none comes so soon after another one that rates are wild.
        tokio::time::sleep(sampler::interval(begin.elapsed())).await;
    }
}

/// All totals of the cluster, now.
pub async fn sample<N: Node>(node: &N) -> Sample {
    let parts = node.parts(Wanted::TOTALS).await;
    Sample::of(now_ms(), parts, &node.names())
}
