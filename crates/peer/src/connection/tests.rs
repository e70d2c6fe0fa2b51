use super::*;
use crate::frame::{HEADER, cut};
use std::future::poll_fn;
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::Notify;

/// A connection over a pipe that holds that many bytes, and the other end of it.
fn connection(pipe: usize) -> (Connection, DuplexStream) {
    let (near, far) = duplex(pipe);
    let outbox = Arc::new(Outbox::new(Arc::new(Notify::new()), 1_000_000));
    (Connection::new(Box::new(near), outbox, BytesMut::new(), BytesMut::new()), far)
}

/// Reads frames at the far end while the connection is driven, until there are so many.
async fn frames(connection: &mut Connection, far: &mut DuplexStream, count: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut input = BytesMut::new();
    while frames.len() < count {
        if let Front::Whole(kind) = front(&input).unwrap() {
            frames.push(cut(&mut input, kind));
            continue;
        }
        tokio::select! {
            moved = poll_fn(|context| connection.poll(context)) => assert!(!moved.unwrap().read),
            read = far.read_buf(&mut input) => assert!(read.unwrap() > 0),
        }
    }
    frames
}

#[tokio::test]
async fn what_comes_while_the_socket_is_full_is_written_behind() {
    let (mut connection, mut far) = connection(1000);
    connection.outbox.message(1, Bytes::from(vec![1; 5000])).unwrap();
    poll_fn(|context| {
        assert!(connection.poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    connection.outbox.message(1, Bytes::from(vec![2; 5000])).unwrap();
    // Nobody but the socket wakes it now, as when the outbox has told of this message before.
    let frames = frames(&mut connection, &mut far, 2).await;
    assert_eq!(frames.iter().map(|frame| frame.payload[0]).collect::<Vec<_>>(), [1, 2]);
}

#[tokio::test]
async fn pings_jump_the_queue() {
    let (mut connection, mut far) = connection(1000);
    for _ in 0..4 {
        connection.outbox.message(1, Bytes::from(vec![1; STAGED_MIN / 2])).unwrap();
    }
    poll_fn(|context| {
        assert!(connection.poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    connection.send_urgent(Kind::Ping);
    connection.send_urgent(Kind::Ping);
    let frames = frames(&mut connection, &mut far, 5).await;
    let kinds: Vec<_> = frames.iter().map(|frame| frame.kind).collect();
    let message = Kind::Message;
    assert_eq!(kinds, [message, message, Kind::Ping, message, message]);
}

#[tokio::test]
async fn small_and_large_payloads_are_written_as_they_are() {
    let (mut connection, mut far) = connection(100_000);
    let payloads: Vec<_> = (0..200u8)
        .map(|n| Bytes::from(vec![n; usize::from(n) * 37 * usize::from(n % 3)]))
        .collect();
    for (channel, payload) in payloads.iter().enumerate() {
        connection.outbox.message(u8::try_from(channel).unwrap(), payload.clone()).unwrap();
    }
    let frames = frames(&mut connection, &mut far, payloads.len()).await;
    for (channel, (frame, payload)) in frames.iter().zip(&payloads).enumerate() {
        assert_eq!((usize::from(frame.channel), &frame.payload), (channel, payload));
    }
    assert!(!connection.outbox.is_full());
}

#[tokio::test]
async fn nothing_is_read_while_a_frame_is_held() {
    let (mut connection, mut far) = connection(1000);
    far.write_all(&[0; HEADER]).await.unwrap();
    connection.held = true;
    poll_fn(|context| {
        assert!(connection.poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    connection.held = false;
    assert_eq!(poll_fn(|context| connection.poll(context)).await.unwrap(), Moved { read: true });
    assert!(connection.front().is_err());
    drop(far);
    assert!(poll_fn(|context| connection.poll(context)).await.is_err());
}
