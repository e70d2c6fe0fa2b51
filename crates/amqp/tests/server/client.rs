//! A client that writes frames and reads frames.

use amq_protocol::protocol::{AMQPClass, basic, channel, confirm, connection};
use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use wire::frame::{self, Frame, Kind};
use wire::method;

pub(crate) struct Client<S> {
    pub(crate) stream: S,
    input: BytesMut,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    /// A client after the handshake, with channel 1 open.
    pub(crate) async fn open(stream: S, mechanism: &str) -> Self {
        let mut client = Self { stream, input: BytesMut::new() };
        client.stream.write_all(b"AMQP\x00\x00\x09\x01").await.unwrap();
        client.method().await;
        let start_ok = connection::StartOk {
            mechanism: mechanism.into(),
            response: "\0u\0p".into(),
            ..connection::StartOk::default()
        };
        client.send(0, connection::AMQPMethod::StartOk(start_ok)).await;
        client.method().await;
        let tune_ok = connection::TuneOk { channel_max: 10, frame_max: 131_072, heartbeat: 10 };
        client.send(0, connection::AMQPMethod::TuneOk(tune_ok)).await;
        client.send(0, connection::AMQPMethod::Open(connection::Open::default())).await;
        client.method().await;
        client.call(AMQPClass::Channel(channel::AMQPMethod::Open(channel::Open {}))).await;
        client
    }

    async fn send(&mut self, channel: u16, method: connection::AMQPMethod) {
        let mut bytes = BytesMut::new();
        method::write_method(&mut bytes, channel, &AMQPClass::Connection(method));
        self.stream.write_all(&bytes).await.unwrap();
    }

    pub(crate) async fn call(&mut self, class: AMQPClass) -> AMQPClass {
        let mut bytes = BytesMut::new();
        method::write_method(&mut bytes, 1, &class);
        self.stream.write_all(&bytes).await.unwrap();
        self.method().await
    }

    pub(crate) async fn consume(&mut self) {
        let consume = basic::Consume {
            queue: "q".into(),
            consumer_tag: "c".into(),
            ..basic::Consume::default()
        };
        self.call(AMQPClass::Basic(basic::AMQPMethod::Consume(consume))).await;
    }

    pub(crate) async fn confirm(&mut self) {
        let select = confirm::Select { nowait: false };
        self.call(AMQPClass::Confirm(confirm::AMQPMethod::Select(select))).await;
    }

    pub(crate) async fn publish(&mut self, size: usize) {
        let mut bytes = BytesMut::new();
        let body = vec![7; size];
        wire::publish::write(&mut bytes, 1, "", "q", false, &[0, 0], &body, 131_072);
        self.stream.write_all(&bytes).await.unwrap();
    }

    pub(crate) async fn ack(&mut self, tag: u64, multiple: bool) {
        let mut bytes = BytesMut::new();
        let ack = wire::ack::Settlement::Ack { delivery_tag: tag, multiple };
        wire::ack::write(&mut bytes, 1, ack);
        self.stream.write_all(&bytes).await.unwrap();
    }

    pub(crate) async fn close(&mut self) {
        self.send(0, connection::AMQPMethod::Close(connection::Close::default())).await;
        assert!(matches!(
            self.method().await,
            AMQPClass::Connection(connection::AMQPMethod::CloseOk(_))
        ));
        assert_eq!(self.frame().await, None);
    }

    /// The next frame; `None` at the end.
    pub(crate) async fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = frame::decode(&mut self.input, 0).expect("a frame") {
                return Some(frame);
            }
            if self.stream.read_buf(&mut self.input).await.unwrap() == 0 {
                assert!(self.input.is_empty(), "half a frame");
                return None;
            }
        }
    }

    /// The next method; heartbeats and contents are passed over.
    pub(crate) async fn method(&mut self) -> AMQPClass {
        loop {
            let frame = self.frame().await.expect("the connection lives");
            if frame.kind == Kind::Method {
                return method::parse(&frame.payload).expect("a method");
            }
        }
    }
}
