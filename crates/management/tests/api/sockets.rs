//! Real listeners.

use std::sync::Arc;

use management::server::{serve, serve_metrics};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::fake::Fake;

async fn ask(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\
         connection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn listeners_serve_until_they_are_stopped() {
    let node = Arc::new(Fake::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async { drop(stopped.await) };
    let serving = tokio::spawn(serve(Arc::clone(&node), listener, stopped));
    assert!(ask(address, "/api/whoami").await.contains("\"name\":\"guest\""));
    assert!(ask(address, "/").await.contains("<title>Leveret</title>"));
    assert!(ask(address, "/api").await.starts_with("HTTP/1.1 404"));
    drop(stop);
    serving.await.unwrap().unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async { drop(stopped.await) };
    let serving = tokio::spawn(serve_metrics(node, listener, stopped));
    assert!(ask(address, "/metrics").await.contains("rabbitmq_identity_info"));
    drop(stop);
    serving.await.unwrap().unwrap();
}
