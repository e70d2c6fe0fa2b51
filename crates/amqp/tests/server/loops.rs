//! Promises of the loop, over in-memory streams with little room.

use crate::broker::{Echo, GOT, Shared};
use crate::client::Client;
use amq_protocol::protocol::{AMQPClass, basic, connection};
use amqp::config::SessionConfig;
use amqp::mailbox::Mailbox;
use amqp::request::{Error, Event};
use amqp::server::{Connection, Ended, serve};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;

struct Running {
    shared: Arc<Shared>,
    mailbox: Mailbox,
    task: JoinHandle<Ended>,
}

/// A connection over a pipe of `room` bytes.
fn start(room: usize) -> (DuplexStream, Running) {
    let (near, far) = tokio::io::duplex(room);
    let shared = Arc::new(Shared::default());
    let mailbox = Mailbox::new();
    let connection = Connection {
        broker: Echo::new(Arc::clone(&shared), mailbox.clone()),
        mailbox: mailbox.clone(),
        config: Arc::new(SessionConfig::default()),
        seed: 1,
    };
    let task = tokio::spawn(serve(far, connection));
    (near, Running { shared, mailbox, task })
}

#[tokio::test]
async fn the_main_road() {
    let (stream, running) = start(1 << 16);
    let mut client = Client::open(stream, "PLAIN").await;
    client.confirm().await;
    client.consume().await;
    for size in [0, 1, 10_000, 200_000] {
        let publish = client.publish(size);
        publish.await;
        assert!(matches!(client.method().await, AMQPClass::Basic(basic::AMQPMethod::Deliver(_))));
        assert!(matches!(client.method().await, AMQPClass::Basic(basic::AMQPMethod::Ack(_))));
    }
    client.ack(2, true).await;
    running.shared.until(|log| log.iter().any(|line| line == "settle 2")).await;
    let status = running.mailbox.ask_status().await.unwrap();
    assert_eq!(status.session.state, "running");
    assert_eq!(status.session.channels[0].unsettled, 2);
    assert_eq!(status.session.channels[0].consumers[0].tag, "c");
    assert!(status.bytes_in > 210_000 && status.bytes_out > 210_000);
    client.close().await;
    let ended = running.task.await.unwrap();
    assert_eq!(ended.reason, None);
    assert!(ended.was_open);
    let log = running.shared.log.lock().unwrap();
    assert_eq!(log[log.len() - 3..], ["channel closed 2", "closing", "disconnected"]);
    assert_eq!(running.shared.written(), 4);
}

#[tokio::test]
async fn a_client_that_does_not_read_can_still_acknowledge() {
    let (stream, running) = start(4096);
    let mut client = Client::open(stream, "PLAIN").await;
    client.consume().await;
    // far more than the pipe holds; nothing of it is read
    for _ in 0..50 {
        client.publish(4000).await;
    }
    running
        .shared
        .until(|log| log.iter().filter(|line| *line == "publish 4000").count() == 50)
        .await;
    let written = running.shared.written();
    assert!(written < 5, "{written} deliveries are said to have left");
    client.ack(1, false).await;
    running.shared.until(|log| log.iter().any(|line| line == "settle 1")).await;
    for _ in 0..50 {
        client.method().await;
    }
    client.close().await;
    assert_eq!(running.shared.written(), 50);
}

#[tokio::test]
async fn answers_that_nobody_reads_are_not_piled_up() {
    let (stream, running) = start(1 << 16);
    let mut client = Client::open(stream, "PLAIN").await;
    let get = basic::AMQPMethod::Get(basic::Get { queue: "q".into(), no_ack: true });
    let mut bytes = bytes::BytesMut::new();
    for _ in 0..500 {
        wire::method::write_method(&mut bytes, 1, &AMQPClass::Basic(get.clone()));
    }
    client.stream.write_all(&bytes).await.unwrap();
    // asks in vain until it has got there
    while !running.mailbox.ask_status().await.unwrap().is_throttled {}
    let asked = || running.shared.log.lock().unwrap().iter().filter(|line| *line == "get").count();
    let room = 4 * 1024 * 1024;
    assert!((room..room + 2 * GOT).contains(&(asked() * GOT)), "{} messages", asked());
    // and all are answered to a client that reads
    for _ in 0..500 {
        assert!(matches!(client.method().await, AMQPClass::Basic(basic::AMQPMethod::GetOk(_))));
    }
    client.close().await;
    assert_eq!(asked(), 500);
}

#[tokio::test]
async fn a_full_broker_stops_reading_and_nothing_else() {
    let (stream, running) = start(1024);
    let mut client = Client::open(stream, "PLAIN").await;
    client.consume().await;
    running.shared.full.store(true, Ordering::SeqCst);
    // wakes the loop, which then sees that the broker is full
    running.mailbox.ask_status().await.unwrap();
    let mut bytes = bytes::BytesMut::new();
    for _ in 0..20 {
        wire::publish::write(&mut bytes, 1, "", "q", false, &[0, 0], &[7; 300], 4096);
    }
    let sent = client.stream.write_all(&bytes);
    assert!(tokio::time::timeout(Duration::from_millis(50), sent).await.is_err(), "it was read");
    assert!(!running.shared.log.lock().unwrap().iter().any(|line| line.starts_with("publish")));
    let status = running.mailbox.ask_status().await.unwrap();
    assert!(status.is_throttled);
    running.shared.full.store(false, Ordering::SeqCst);
    running.shared.room.notify_waiters();
    running.shared.until(|log| log.iter().any(|line| line.starts_with("publish"))).await;
}

#[tokio::test]
async fn a_lost_connection_is_told() {
    let (stream, running) = start(1 << 16);
    let mut client = Client::open(stream, "PLAIN").await;
    client.consume().await;
    client.publish(5).await;
    client.method().await;
    drop(client);
    let ended = running.task.await.unwrap();
    assert_eq!(ended.reason.as_deref(), Some("client unexpectedly closed the connection"));
    {
        let log = running.shared.log.lock().unwrap();
        assert_eq!(log[log.len() - 2..], ["channel closed 1", "disconnected"]);
    }
    // posting to it is harmless
    running.mailbox.post_one(Event::Unblocked);
    assert!(running.mailbox.ask_status().await.is_err());
}

#[tokio::test]
async fn the_broker_closes_a_connection() {
    let (stream, running) = start(1 << 16);
    let mut client = Client::open(stream, "PLAIN").await;
    running.mailbox.post_one(Event::Close(Error::new(320, "shutdown")));
    assert!(matches!(
        client.method().await,
        AMQPClass::Connection(connection::AMQPMethod::Close(close)) if close.reply_code == 320
    ));
    let mut bytes = bytes::BytesMut::new();
    let ok = connection::AMQPMethod::CloseOk(connection::CloseOk {});
    wire::method::write_method(&mut bytes, 0, &AMQPClass::Connection(ok));
    client.stream.write_all(&bytes).await.unwrap();
    assert_eq!(client.frame().await, None);
    let ended = running.task.await.unwrap();
    assert_eq!(ended.reason.as_deref(), Some("320 CONNECTION_FORCED - shutdown"));
}

#[tokio::test]
async fn other_protocols_get_our_header() {
    let (mut stream, running) = start(1 << 16);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, b"AMQP\x00\x00\x09\x01");
    drop(stream);
    let reason = running.task.await.unwrap().reason.unwrap();
    assert!(reason.starts_with("looks like an HTTP request"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_is_dropped() {
    let (stream, running) = start(1 << 16);
    let mut client = Client::open(stream, "PLAIN").await;
    // negotiated: 10 s
    let mut beats = 0;
    while let Some(frame) = client.frame().await {
        assert_eq!(frame.kind, wire::frame::Kind::Heartbeat);
        beats += 1;
    }
    assert!((3..=5).contains(&beats), "{beats} heartbeats");
    let ended = running.task.await.unwrap();
    assert_eq!(ended.reason.as_deref(), Some("missed heartbeats from client, timeout: 10s"));
}

#[tokio::test(start_paused = true)]
async fn the_handshake_has_a_limit() {
    let (mut stream, running) = start(1 << 16);
    stream.write_all(b"AMQP\x00\x00\x09\x01").await.unwrap();
    let ended = running.task.await.unwrap();
    assert_eq!(ended.reason.as_deref(), Some("handshake timeout"));
    assert!(!ended.was_open);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_reads_cannot_hold_the_end_up() {
    let (stream, running) = start(512);
    let mut client = Client::open(stream, "PLAIN").await;
    client.consume().await;
    client.publish(100_000).await;
    running.mailbox.post_one(Event::Close(Error::new(320, "shutdown")));
    let ended = running.task.await.unwrap();
    assert_eq!(ended.reason.as_deref(), Some("320 CONNECTION_FORCED - shutdown"));
    drop(client);
}
