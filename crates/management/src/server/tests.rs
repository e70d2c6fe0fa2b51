//! Connections that do not behave, with a clock that jumps ahead whenever everybody waits.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::*;

/// Runs a listener with room for this many connections.
async fn listening(connections_max: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/", get(async || "hello"));
    tokio::spawn(answer(listener, router, connections_max, std::future::pending()));
    address
}

async fn ended(mut stream: TcpStream) -> (String, Duration) {
    let begin = Instant::now();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    (answer, begin.elapsed())
}

#[tokio::test(start_paused = true)]
async fn who_sends_no_request_is_disconnected() {
    let address = listening(10).await;
    for sent in ["", "GET / HTTP/1.1\r\nhost:", "GET / HTTP/1.1\r\nhost: x\r\n\r\n"] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let (answer, waited) = ended(stream).await;
        assert_eq!(answer.ends_with("hello"), sent.ends_with("\r\n\r\n"), "{sent:?}: {answer}");
        assert!((HEAD_PATIENCE..2 * HEAD_PATIENCE).contains(&waited), "{sent:?}: {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_connection_too_many_waits_for_a_place() {
    let address = listening(1).await;
    let holder = TcpStream::connect(address).await.unwrap();
    let mut next = TcpStream::connect(address).await.unwrap();
    next.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let (answer, waited) = ended(next).await;
    assert!(answer.ends_with("hello"), "{answer}");
    assert!(waited >= HEAD_PATIENCE, "served beside another after {waited:?}");
    drop(holder);
}

#[tokio::test(start_paused = true)]
async fn a_connection_outlives_an_answer_that_needs_no_body() {
    let address = listening(1).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = b"POST /nothing HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n";
    stream.write_all(head).await.unwrap();
    // The body comes when a server that answers heads alone has answered.
    tokio::time::sleep(Duration::from_secs(1)).await;
    stream.write_all(b"body").await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 404");
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let (answer, _) = ended(stream).await;
    assert!(answer.ends_with("hello"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_ends_the_request() {
    let address = listening(1).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 4\r\n\r\n";
    stream.write_all(head).await.unwrap();
    let (answer, waited) = ended(stream).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(waited >= HEAD_PATIENCE, "{waited:?}");
}
