//! The task of one peer: owns the two connections to it and performs what its link asks for.

use crate::answer::Answer;
use crate::connection::{Connection, Moved};
use crate::door::{Arrival, DialError, Met, dial};
use crate::frame::{FrameError, Front, Kind, cut};
use crate::handshake::Acceptor;
use crate::link::{DialFailure, Event, Link, Output, Side};
use crate::outbox::{Outbox, Unanswered};
use crate::refusal::{Reason, Refusal};
use crate::shared::{Seen, Shared};
use bytes::{Bytes, BytesMut};
use model::id::NodeId;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Sleep, sleep_until};

/// What others tell the task.
#[derive(Debug)]
pub(crate) enum Command {
    /// The peer has dialled.
    Arrived(Box<Arrival>),
    /// It is no peer any more.
    Remove,
    /// The node stops. The handler hears nothing more.
    Stop,
}

/// What the task has waited for.
enum Wake {
    Command(Command),
    Dialled(Result<Met, DialError>),
    Moved(Side, io::Result<Moved>),
    Tick,
    /// Something was put into an outbox.
    Filled,
}

type Dialling = Pin<Box<dyn Future<Output = Result<Met, DialError>> + Send>>;

/// A connection that is about to take its place.
struct New {
    side: Side,
    met: Met,
    /// Present if the other has dialled, and is to be welcomed.
    acceptor: Option<Acceptor>,
}

/// Both directions of a peer.
pub(crate) struct Pair {
    shared: Arc<Shared>,
    seen: Arc<Seen>,
    name: Arc<str>,
    link: Link,
    out: Option<Connection>,
    inn: Option<Connection>,
    dialling: Option<Dialling>,
    /// Counts the dials that have failed: addresses are tried in turn.
    failed: usize,
    /// The node that goes by the peer's name while a connection to it stands.
    node: Option<NodeId>,
    commands: mpsc::UnboundedReceiver<Command>,
    filled: Arc<Notify>,
    alarm: Pin<Box<Sleep>>,
    /// What the alarm is set to, until it rings.
    alarm_at: Option<Instant>,
    outputs: Vec<Output>,
    batches: Batches,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Pair {
    pub(crate) fn new(
        shared: Arc<Shared>,
        seen: Arc<Seen>,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Self {
        let now = Instant::now();
        let name = Arc::clone(&seen.0.lock().name);
        Self {
            link: Link::new(shared.silence_timeout, shared.first_session(), now),
            shared,
            seen,
            name,
            out: None,
            inn: None,
            dialling: None,
            failed: 0,
            node: None,
            commands,
            filled: Arc::default(),
            alarm: Box::pin(sleep_until(now.into())),
            alarm_at: None,
            outputs: Vec::new(),
            batches: Batches::default(),
        }
    }

    /// Runs until it is told to end.
    pub(crate) async fn run(mut self) {
        loop {
            match self.wait().await {
                Wake::Command(Command::Arrived(arrival)) => self.arrived(*arrival),
                Wake::Command(Command::Remove) => {
                    self.step(Event::Removed, None);
                    break;
                }
                Wake::Command(Command::Stop) => {
                    self.close(Side::Out);
                    self.close(Side::In);
                    break;
                }
                Wake::Dialled(outcome) => {
                    self.dialling = None;
                    self.dialled(outcome);
                }
                Wake::Moved(side, Ok(moved)) => {
                    if moved.read {
                        self.link.heard(side, Instant::now());
                        self.cut(side);
                    }
                }
                Wake::Moved(side, Err(error)) => self.lost(side, &error),
                Wake::Tick => {
                    self.alarm_at = None;
                    self.step(Event::Tick, None);
                }
                Wake::Filled => {}
            }
            // What was held back may go on: the link is up now, or answers were written.
            if self.inn.as_ref().is_some_and(|connection| connection.held) {
                self.cut(Side::In);
            }
        }
        self.forget_node();
        self.seen.0.lock().up = None;
    }

    async fn wait(&mut self) -> Wake {
        let wake_at = self.link.wake_at();
        if self.alarm_at != Some(wake_at) {
            self.alarm_at = Some(wake_at);
            self.alarm.as_mut().reset(wake_at.into());
        }
        let Self { out, inn, dialling, commands, filled, alarm, .. } = self;
        tokio::select! {
            command = commands.recv() => Wake::Command(command.unwrap_or(Command::Stop)),
            outcome = poll_fn(|context| match dialling {
                None => Poll::Pending,
                Some(dialling) => dialling.as_mut().poll(context),
            }) => Wake::Dialled(outcome),
            () = alarm.as_mut() => Wake::Tick,
            result = moved(inn) => Wake::Moved(Side::In, result),
            result = moved(out) => Wake::Moved(Side::Out, result),
            () = filled.notified() => Wake::Filled,
        }
    }

    fn arrived(&mut self, arrival: Arrival) {
        match self.judge(&arrival.met) {
            Err(refusal) => arrival.refuse(refusal),
            Ok(()) => self.connected(Side::In, arrival.met, Some(arrival.acceptor)),
        }
    }

    fn dialled(&mut self, outcome: Result<Met, DialError>) {
        let outcome = outcome.and_then(|met| {
            let admitted = self.shared.handler().admit(&met.claim.identity);
            match admitted.and_then(|()| self.judge(&met)) {
                Ok(()) => Ok(met),
                Err(refusal) => {
                    let failure = match refusal.reason {
                        Reason::Stale | Reason::LaterStart => DialFailure::Overtaken,
                        _ => DialFailure::Other,
                    };
                    let text = format!("not connected to it: {refusal}");
                    Err(DialError { failure, text, refusal: None })
                }
            }
        });
        match outcome {
            Ok(met) => {
                {
                    let mut seen = self.seen.0.lock();
                    seen.error = None;
                    seen.advertised = Some(met.claim.identity.address.clone());
                }
                self.connected(Side::Out, met, None);
            }
            Err(DialError { failure, text, refusal }) => {
                self.failed += 1;
                let before = self.seen.0.lock().error.replace(text.clone());
                if before.as_ref() != Some(&text) {
                    tracing::info!(peer = &*self.name, "{text}");
                }
                if let Some(refusal) = refusal {
                    self.shared.handler().refused(&self.name, &refusal);
                }
                self.step(Event::DialFailed(failure), None);
            }
        }
    }

    /// Whether the one who was met may be connected.
    fn judge(&mut self, met: &Met) -> Result<(), Refusal> {
        self.link.judge(&met.claim, met.session)?;
        let id = met.claim.identity.id;
        self.shared.take_name(id, &self.name).map_err(|other| {
            let detail = format!("node {id} is connected under the name {other:?}");
            Refusal::new(Reason::NameTaken, detail)
        })?;
        if self.node != Some(id) {
            // Nothing of another node stands, or the link would have had something against it.
            self.forget_node();
            self.node = Some(id);
        }
        Ok(())
    }

    fn forget_node(&mut self) {
        if let Some(node) = self.node.take() {
            self.shared.give_name(node);
        }
    }

    fn connected(&mut self, side: Side, met: Met, acceptor: Option<Acceptor>) {
        let event = Event::Connected { side, claim: Arc::clone(&met.claim), session: met.session };
        self.step(event, Some(New { side, met, acceptor }));
        self.cut(side);
    }

    fn lost(&mut self, side: Side, error: &dyn std::fmt::Display) {
        tracing::debug!(peer = &*self.name, ?side, "connection lost: {error}");
        self.close(side);
        self.step(Event::Lost { side }, None);
    }

    /// Lets the link take a step and performs what it asks for. A new connection takes its place
    /// when those that it replaces are closed.
    fn step(&mut self, event: Event, mut new: Option<New>) {
        let mut outputs = std::mem::take(&mut self.outputs);
        self.link.step(Instant::now(), event, &mut outputs);
        for output in outputs.drain(..) {
            if !matches!(output, Output::Close(_)) {
                self.place(new.take());
            }
            self.perform(output);
        }
        self.place(new);
        self.outputs = outputs;
        if Side::BOTH.into_iter().all(|side| !self.link.stands(side)) {
            self.forget_node();
        }
    }

    fn place(&mut self, new: Option<New>) {
        let Some(New { side, met, acceptor }) = new else { return };
        let mut welcome = BytesMut::new();
        if let Some(acceptor) = acceptor {
            acceptor.welcome(self.link.session(), &mut welcome);
        }
        let outbox = Outbox::new(Arc::clone(&self.filled), self.shared.queue_bytes_max);
        let connection = Connection::new(met.stream, Arc::new(outbox), met.input, welcome);
        let slot = self.connection(side);
        debug_assert!(slot.is_none());
        *slot = Some(connection);
    }

    fn perform(&mut self, output: Output) {
        match output {
            Output::Close(side) => self.close(side),
            Output::Ping(side) => {
                if let Some(connection) = self.connection(side) {
                    connection.send_urgent(Kind::Ping);
                }
            }
            Output::Dial => {
                let addresses: Vec<String> = {
                    let seen = self.seen.0.lock();
                    let advertised =
                        seen.advertised.as_ref().filter(|new| seen.address.as_ref() != Some(new));
                    seen.address.iter().chain(advertised).cloned().collect()
                };
                let address = addresses[self.failed % addresses.len()].clone();
                let shared = Arc::clone(&self.shared);
                let (name, session) = (Arc::clone(&self.name), self.link.session());
                self.dialling = Some(Box::pin(dial(shared, name, address, session)));
            }
            Output::Up(claim) => {
                let identity = &claim.identity;
                let (id, boot) = (identity.id, identity.boot);
                if let Some(connection) = &self.out {
                    self.shared.open_route(id, Arc::clone(&connection.outbox));
                }
                self.seen.0.lock().up = Some(identity.clone());
                tracing::info!(peer = &*self.name, node = %id, boot, "peer is up");
                self.shared.handler().up(identity);
            }
            Output::Down(claim, why) => {
                self.seen.0.lock().up = None;
                tracing::info!(peer = &*self.name, node = %claim.identity.id, %why, "peer is down");
                self.shared.handler().down(&claim.identity, why);
            }
            Output::Ended(claim) => {
                tracing::info!(peer = &*self.name, node = %claim.identity.id, "peer has ended");
                self.shared.handler().ended(&claim.identity);
            }
        }
    }

    fn close(&mut self, side: Side) {
        let closed = self.connection(side).take();
        if let (Some(connection), Some(node), Side::Out) = (&closed, self.node, side) {
            self.shared.close_route(node, &connection.outbox);
        }
    }

    fn connection(&mut self, side: Side) -> &mut Option<Connection> {
        match side {
            Side::Out => &mut self.out,
            Side::In => &mut self.inn,
        }
    }

    /// Hands over the frames that have come.
    fn cut(&mut self, side: Side) {
        let result = match side {
            Side::Out => self.cut_answers(),
            Side::In => self.cut_messages(),
        };
        if let Err(error) = result {
            tracing::warn!(peer = &*self.name, "what the peer sent is wrong: {error}");
            self.lost(side, &error);
        }
    }

    fn cut_answers(&mut self) -> Result<(), CutError> {
        let Some(connection) = &mut self.out else { return Ok(()) };
        while let Front::Whole(kind) = connection.front()? {
            let frame = cut(&mut connection.input, kind);
            match kind {
                Kind::Part => connection.parts.push(&frame.payload)?,
                Kind::Answer => {
                    let answer = connection.parts.join(frame.payload)?;
                    connection.outbox.answered(frame.correlation, Ok(answer));
                }
                Kind::Dropped => connection.outbox.answered(frame.correlation, Err(Unanswered)),
                Kind::Ping => connection.send_urgent(Kind::Pong),
                Kind::Pong => {}
                Kind::Message | Kind::Request => return Err(CutError::Misplaced(kind)),
            }
        }
        Ok(())
    }

    fn cut_messages(&mut self) -> Result<(), CutError> {
        let Some(connection) = &mut self.inn else { return Ok(()) };
        let from = self.link.up().map(|claim| claim.identity.id);
        connection.held = false;
        let result = loop {
            let kind = match connection.front() {
                Ok(Front::Whole(kind)) => kind,
                Ok(Front::Partial(_)) => break Ok(()),
                Err(error) => break Err(error.into()),
            };
            match kind {
                Kind::Part => {
                    let part = cut(&mut connection.input, kind);
                    if let Err(error) = connection.parts.push(&part.payload) {
                        break Err(error.into());
                    }
                }
                Kind::Message | Kind::Request => {
                    // The peer may know before this node that both connections stand.
                    let Some(from) = from else {
                        connection.held = true;
                        break Ok(());
                    };
                    if kind == Kind::Request && connection.outbox.is_full() {
                        connection.held = true;
                        break Ok(());
                    }
                    let frame = cut(&mut connection.input, kind);
                    let payload = match connection.parts.join(frame.payload) {
                        Ok(payload) => payload,
                        Err(error) => break Err(error.into()),
                    };
                    if kind == Kind::Message {
                        self.batches.push(frame.channel, payload);
                    } else {
                        let handler = self.shared.handler();
                        self.batches.flush(Some(frame.channel), |channel, messages| {
                            handler.messages(from, channel, messages);
                        });
                        let answer = Answer::new(Arc::clone(&connection.outbox), frame.correlation);
                        handler.request(from, frame.channel, payload, answer);
                    }
                }
                Kind::Ping => {
                    let _ping = cut(&mut connection.input, kind);
                    connection.send_urgent(Kind::Pong);
                }
                Kind::Pong => {
                    let _pong = cut(&mut connection.input, kind);
                }
                Kind::Answer | Kind::Dropped => break Err(CutError::Misplaced(kind)),
            }
        };
        if let Some(from) = from {
            let handler = self.shared.handler();
            self.batches.flush(None, |channel, messages| handler.messages(from, channel, messages));
        }
        result
    }
}

async fn moved(connection: &mut Option<Connection>) -> io::Result<Moved> {
    poll_fn(|context| match connection {
        None => Poll::Pending,
        Some(connection) => connection.poll(context),
    })
    .await
}

/// Why what a peer sent is wrong.
#[derive(Debug, thiserror::Error)]
enum CutError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("a frame of kind {0:?} in the wrong direction")]
    Misplaced(Kind),
}

/// The messages of one read, by channel. Channels are few, so a list is enough.
#[derive(Debug, Default)]
struct Batches(Vec<(u8, Vec<Bytes>)>);

impl Batches {
    fn push(&mut self, channel: u8, message: Bytes) {
        if let Some((_, messages)) = self.0.iter_mut().find(|(known, _)| *known == channel) {
            messages.push(message);
        } else {
            self.0.push((channel, vec![message]));
        }
    }

    /// Hands over what there is of one channel or of all, and keeps the lists for the next read.
    fn flush(&mut self, only: Option<u8>, mut hand: impl FnMut(u8, &mut Vec<Bytes>)) {
        for (channel, messages) in &mut self.0 {
            if !messages.is_empty() && only.is_none_or(|only| only == *channel) {
                hand(*channel, messages);
                messages.clear();
            }
        }
    }
}
