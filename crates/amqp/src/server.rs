//! Moves the bytes of one connection, between a stream, a [`Session`] and a [`Broker`].
//!
//! ```text
//!             ┌──────────── act (synchronous) ─────────────────────────┐
//!   wait ────►│ time, events, bytes ► session ► requests ► broker      │────► wait
//!    ▲        └────────────────────────────────────────────────────────┘       │
//!    └─ one of: bytes came · bytes can go · mail came · time is up · room came ┘
//! ```
//!
//! Reading never waits for writing: a client that does not read its deliveries can still
//! acknowledge. Deliveries are bounded by their queues, which hear of each one that has left;
//! when other output piles up, reading pauses.

use crate::broker::Broker;
use crate::config::SessionConfig;
use crate::mailbox::Mailbox;
use crate::outbox::Written;
use crate::request::{Event, Request};
use crate::session::{Session, SessionStatus};
use bytes::{Buf, BytesMut};
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};

/// Room for a read at the beginning, so that an idle connection is small.
const READ_MIN: usize = 4 * 1024;
/// Room for a read under load.
const READ_MAX: usize = 128 * 1024;
/// Pieces of one vectored write.
const SLICES: usize = 64;
/// How often memory that a burst has left behind is given back, in milliseconds.
const TRIM_MS: u64 = 10_000;
/// How long the last bytes may take to leave.
const FAREWELL: Duration = Duration::from_secs(1);

/// A connection, as the management API shows it.
#[derive(Debug, Clone)]
pub struct ConnectionStatus {
    /// What the session knows.
    pub session: SessionStatus,
    /// Bytes read from the socket.
    pub bytes_in: u64,
    /// Bytes written to the socket.
    pub bytes_out: u64,
    /// Bytes that wait to be written.
    pub bytes_pending: u64,
    /// Reading pauses, since the broker has no capacity or the client does not read its replies.
    pub is_throttled: bool,
}

/// Everything that makes a connection, beside its stream.
#[derive(Debug)]
pub struct Connection<B> {
    /// The broker, for this connection alone.
    pub broker: B,
    /// Where the broker posts events.
    pub mailbox: Mailbox,
    /// Limits and names.
    pub config: Arc<SessionConfig>,
    /// Different for each connection.
    pub seed: u64,
}

/// How a connection ended, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// `None`: in good order.
    pub reason: Option<String>,
    /// It had been opened.
    pub was_open: bool,
    /// The login, if it got that far.
    pub user: String,
    /// The virtual host, if it got that far.
    pub vhost: String,
}

/// Serves a connection until its end.
///
/// If the future is dropped, the broker hears nothing of the end.
pub async fn serve<S, B>(stream: S, connection: Connection<B>) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    B: Broker,
{
    let Connection { broker, mailbox, config, seed } = connection;
    let mut driver = Driver {
        session: Session::new(config, seed, 0),
        socket: Socket { stream, written_total: 0, unflushed: false },
        broker,
        mailbox,
        input: BytesMut::new(),
        read_size: READ_MIN,
        read_total: 0,
        events: Vec::new(),
        questions: Vec::new(),
        began: Instant::now(),
        trim_at: TRIM_MS,
        was_open: false,
    };
    let reason = driver.run().await;
    driver.end(reason).await
}

struct Driver<S, B> {
    session: Session,
    socket: Socket<S>,
    broker: B,
    mailbox: Mailbox,
    input: BytesMut,
    read_size: usize,
    read_total: u64,
    events: Vec<Event>,
    questions: Vec<oneshot::Sender<ConnectionStatus>>,
    began: Instant,
    trim_at: u64,
    was_open: bool,
}

/// Why waiting ended.
enum Woken {
    /// Bytes, mail, time or room: there is something to act on.
    Work,
    /// The client will send no more.
    EndOfStream,
}

impl<S, B> Driver<S, B>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    B: Broker,
{
    /// Runs until the socket is to be closed. The reason, if the session does not know it.
    async fn run(&mut self) -> Option<String> {
        let mut timer = pin!(tokio::time::sleep_until(self.began));
        let mut timer_at = 0;
        loop {
            self.act().await;
            if self.session.wants_close() && !self.session.has_output() {
                return None;
            }
            let deadline = if self.session.wants_close() {
                // the output could not leave at once
                return self.farewell().await;
            } else {
                self.session.deadline()
            };
            if deadline != timer_at {
                timer_at = deadline;
                let far = Duration::from_hours(365 * 24);
                let at = Duration::from_millis(deadline).min(far);
                timer.as_mut().reset(self.began + at);
            }
            match self.wait(timer.as_mut()).await {
                Ok(Woken::Work) => {}
                Ok(Woken::EndOfStream) => return None,
                Err(error) => return Some(error.to_string()),
            }
        }
    }

    /// Gives the session all there is, and performs all that it asks for.
    async fn act(&mut self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let reading = !self.is_throttled();
        self.session.on_tick(now, self.read_total, reading);
        if now >= self.trim_at {
            self.trim_at = now + TRIM_MS;
            self.trim();
        }
        self.take_events();
        while let Some(request) = self.session.next_request(&mut self.input) {
            match request {
                Request::Publish(publish) => {
                    let channel = publish.channel;
                    if let Err(error) = self.broker.publish(publish) {
                        self.session.on_publish_refused(channel, error);
                    }
                }
                request if request.is_answered() => {
                    let reply = self.broker.call(request).await;
                    if self.session.takes_events_before_reply() {
                        self.mailbox.take_events(&mut self.events);
                        self.take_events();
                    }
                    self.session.on_reply(reply);
                }
                request => self.broker.cast(request),
            }
        }
        self.broker.end_of_batch();
        self.broker.settled().await;
        self.was_open |= self.session.is_running();
        for question in std::mem::take(&mut self.questions) {
            // who asked may have gone
            drop(question.send(self.status()));
        }
    }

    fn trim(&mut self) {
        self.session.trim();
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
        if self.events.is_empty() {
            self.events = Vec::new();
        }
    }

    fn take_events(&mut self) {
        for event in self.events.drain(..) {
            self.session.on_event(event);
        }
    }

    fn status(&mut self) -> ConnectionStatus {
        ConnectionStatus {
            session: self.session.status(),
            bytes_in: self.read_total,
            bytes_out: self.socket.written_total,
            bytes_pending: self.session.output().remaining() as u64,
            is_throttled: self.is_throttled(),
        }
    }

    fn is_throttled(&self) -> bool {
        self.session.has_unread_replies() || !self.broker.has_capacity()
    }

    /// Moves bytes until there is something to act on.
    async fn wait(&mut self, mut timer: Pin<&mut Sleep>) -> io::Result<Woken> {
        if self.broker.has_capacity() {
            return poll_fn(|context| self.poll_wait(context, timer.as_mut())).await;
        }
        // the broker is lent to the future, so what is written is reported after
        let Self { session, socket, broker, mailbox, events, questions, .. } = self;
        let mut gone = Vec::new();
        let woken = {
            let mut capacity = pin!(broker.capacity());
            poll_fn(|context| {
                let before = gone.len();
                let sent = socket.poll_write(session, context, |written| gone.push(written));
                if let Poll::Ready(Err(error)) = sent {
                    return Poll::Ready(Err(error));
                }
                if gone.len() > before
                    || capacity.as_mut().poll(context).is_ready()
                    || mailbox.poll_take(context, events, questions).is_ready()
                    || timer.as_mut().poll(context).is_ready()
                {
                    return Poll::Ready(Ok(Woken::Work));
                }
                Poll::Pending
            })
            .await
        };
        for written in gone {
            broker.written(written);
        }
        woken
    }

    fn poll_wait(
        &mut self,
        context: &mut Context<'_>,
        timer: Pin<&mut Sleep>,
    ) -> Poll<io::Result<Woken>> {
        let Self { session, socket, broker, mailbox, events, questions, .. } = self;
        let mut reported = false;
        let held_back = !session.takes_input();
        let sent = socket.poll_write(session, context, |written| {
            reported = true;
            broker.written(written);
        });
        if let Poll::Ready(Err(error)) = sent {
            return Poll::Ready(Err(error));
        }
        // what was read before may hold more
        let mut woken = held_back && session.takes_input();
        woken |= mailbox.poll_take(context, events, questions).is_ready();
        woken |= timer.poll(context).is_ready();
        if self.session.takes_input() {
            match self.poll_read(context) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(Woken::EndOfStream)),
                Poll::Ready(Ok(_)) => woken = true,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {}
            }
        }
        if woken {
            return Poll::Ready(Ok(Woken::Work));
        }
        // acting hands on what was gathered; without it, nothing else would
        if reported {
            self.broker.end_of_batch();
        }
        Poll::Pending
    }

    /// Reads once. The room grows while reads fill it, and shrinks when they do not.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.input.capacity() - self.input.len() < self.read_size / 2 {
            self.input.reserve(self.read_size);
        }
        let room = self.input.capacity() - self.input.len();
        let read = ready!(poll_read_buf(&mut self.socket.stream, context, &mut self.input))?;
        tracing::trace!(target: "walk", "read");
        self.read_total += read as u64;
        if read == room {
            self.read_size = (self.read_size * 2).min(READ_MAX);
        } else if read < self.read_size / 8 {
            self.read_size = (self.read_size / 2).max(READ_MIN);
        }
        Poll::Ready(Ok(read))
    }

    /// Writes the last bytes, for a short while.
    async fn farewell(&mut self) -> Option<String> {
        let Self { session, socket, broker, .. } = self;
        let write = poll_fn(|context| {
            socket.poll_write(session, context, |written| broker.written(written))
        });
        match tokio::time::timeout(FAREWELL, write).await {
            Ok(Ok(())) | Err(_) => None,
            Ok(Err(error)) => Some(error.to_string()),
        }
    }

    /// The end: the channels give back what they hold, the socket is closed.
    async fn end(mut self, reason: Option<String>) -> Ended {
        let in_order = self.session.wants_close();
        self.mailbox.close();
        self.session.on_disconnected();
        self.input.clear();
        while let Some(request) = self.session.next_request(&mut self.input) {
            // what needed an answer has nobody to hear it
            if !request.is_answered() {
                self.broker.cast(request);
            }
        }
        self.broker.end_of_batch();
        self.broker.disconnected().await;
        if in_order {
            // what the client still sends is read, else its last bytes from us could be lost
            let stream = &mut self.socket.stream;
            let closing = async {
                stream.shutdown().await?;
                let mut scrap = [0; 1024];
                while stream.read(&mut scrap).await? > 0 {}
                io::Result::Ok(())
            };
            drop(tokio::time::timeout(FAREWELL, closing).await);
        }
        Ended {
            reason: self.session.end_reason().map(str::to_owned).or(reason),
            was_open: self.was_open,
            user: self.session.user().to_owned(),
            vhost: self.session.vhost().to_owned(),
        }
    }
}

/// The writing half of a stream.
struct Socket<S> {
    stream: S,
    written_total: u64,
    /// TLS keeps a part of what it was given until it is flushed.
    unflushed: bool,
}

impl<S: AsyncWrite + Unpin> Socket<S> {
    /// Writes until nothing is left (`Ready`) or the socket takes no more.
    fn poll_write(
        &mut self,
        session: &mut Session,
        context: &mut Context<'_>,
        mut report: impl FnMut(Written),
    ) -> Poll<io::Result<()>> {
        while session.has_output() {
            let output = session.output();
            if !output.has_remaining() {
                break;
            }
            let stream = Pin::new(&mut self.stream);
            let count = if stream.is_write_vectored() {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let count = output.chunks_vectored(&mut slices);
                ready!(stream.poll_write_vectored(context, &slices[..count]))?
            } else {
                ready!(stream.poll_write(context, output.chunk()))?
            };
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written_total += count as u64;
            self.unflushed = true;
            session.on_written(count, &mut report);
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(context))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

/// Reads into the spare room of a buffer.
fn poll_read_buf<S: AsyncRead + Unpin>(
    stream: &mut S,
    context: &mut Context<'_>,
    buffer: &mut BytesMut,
) -> Poll<io::Result<usize>> {
    let read = pin!(stream.read_buf(buffer));
    read.poll(context)
}
