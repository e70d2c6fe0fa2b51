//! A leader's stream of appends to one follower.
//!
//! ```text
//!  Parked ──connected──▶ Open ──answers Conflict or HigherVote, or the input ended──▶ Over
//!                         │ connection lost, or the follower ended the session
//!                         ▼
//!                       Broken ──connected (again)──▶ an error, then Over
//! ```
//!
//! A dead follower costs nothing: the session waits, and asks openraft for no request meanwhile.
//! Ending it with an error at once would make openraft begin the next at once, for ever.

use crate::group::Address;
use crate::links::{Link, Links};
use crate::member::{Boxed, Transport};
use crate::rpc::Message;
use crate::types::{AppendRequest, AppendResult, LogId, Payload, Types, Vote};
use futures_util::{Stream, StreamExt};
use model::id::NodeId;
use openraft::async_runtime::Select2;
use openraft::errors::{NetworkError, RPCError};
use openraft::type_config::TypeConfigExt;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;
#[cfg(not(feature = "sim"))]
use tokio::sync::watch;

#[cfg(feature = "sim")]
use crate::sim::watch;

/// The most appends under way to a follower, and the most bytes. More than a journal's sync and
/// a round trip take in between helps nobody.
const WINDOW: usize = 32;
const WINDOW_BYTES: usize = 4 << 20;

/// What a follower says to a session.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The answer to an append.
    Appended(u64, AppendResult),
    /// It takes no more.
    Ended,
}

/// The sessions of one group on its leader, by which answers find them.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: Mutex<BTreeMap<u64, mpsc::UnboundedSender<Answer>>>,
    kicks: watch::Sender<u64>,
    /// The group leads and falls asleep.
    resting: Mutex<Option<Resting>>,
    /// What each follower has answered that it was told to be committed, and on which connection: by the
    /// next one it may have started again.
    told: Mutex<BTreeMap<NodeId, (u64, Option<LogId>)>>,
    /// Checkpoints under way.
    sending: AtomicUsize,
}

/// What a leader leaves behind that falls asleep: its vote, and its last entry, up to which all is
/// committed.
#[derive(Debug, Clone)]
pub(crate) struct Resting {
    pub(crate) vote: Vote,
    pub(crate) last: Option<LogId>,
}

/// A checkpoint under way.
#[derive(Debug)]
pub(crate) struct Underway(Arc<Sessions>);

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.sending.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Sessions {
    /// Ends the sessions that wait for a connection, once. openraft keeps entries that a session
    /// has still to send; without one it may purge them, and sends a checkpoint later.
    pub(crate) fn kick(&self) {
        self.kicks.send_modify(|kicks| *kicks += 1);
    }

    /// The group falls asleep, and leads if this says so: followers hear that by the end of their
    /// sessions, and what is committed if they have not heard it yet.
    pub(crate) fn rest(&self, leading: Option<Resting>) {
        *self.resting.lock() = leading;
    }

    /// A follower has answered an append that said so.
    fn has_told(&self, node: NodeId, link: u64, commit: Option<LogId>) {
        let mut told = self.told.lock();
        let told = told.entry(node).or_default();
        *told = (link, if told.0 == link { told.1.max(commit) } else { commit });
    }

    /// What a follower knows to be committed.
    fn told(&self, node: NodeId, link: u64) -> Option<LogId> {
        self.told.lock().get(&node).filter(|told| told.0 == link)?.1
    }

    /// A checkpoint is being sent until the answer is dropped.
    pub(crate) fn sending(self: &Arc<Self>) -> Underway {
        self.sending.fetch_add(1, Ordering::Relaxed);
        Underway(Arc::clone(self))
    }

    /// Whether a checkpoint is being sent.
    pub(crate) fn is_sending(&self) -> bool {
        self.sending.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn on_answer(&self, session: u64, answer: Answer) {
        if let Some(sender) = self.open.lock().get(&session) {
            // A session that was dropped this moment has no use for answers.
            drop(sender.send(answer));
        }
    }
}

/// Numbers sessions, for the life of the process.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// Where appends of a session go.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) address: Address,
    pub(crate) to: NodeId,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) links: Arc<Links>,
    pub(crate) sessions: Arc<Sessions>,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.address.get(), self.to)
    }
}

/// An append that is not answered.
struct UnderWay {
    bytes: usize,
    /// What it says is committed.
    commit: Option<LogId>,
}

enum State {
    /// Waits for the first connection, or a kick.
    Parked(Boxed<Option<Link>>),
    /// Sends; ends when this connection does.
    Open(Boxed<()>),
    /// Waits for the next connection, or a kick.
    Broken(Boxed<Option<Link>>),
    Over,
}

/// Sends the requests of `input` and yields their answers in order.
pub(crate) struct Session<S> {
    route: Route,
    number: u64,
    input: S,
    input_ended: bool,
    answers: mpsc::UnboundedReceiver<Answer>,
    state: State,
    under_way: VecDeque<UnderWay>,
    under_way_bytes: usize,
    next: u64,
    room: Option<Boxed<()>>,
    link: Link,
}

type Item = Result<AppendResult, RPCError<Types>>;

impl<S> Session<S> {
    pub(crate) fn new(route: Route, input: S) -> Self {
        let (sender, answers) = mpsc::unbounded_channel();
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        route.sessions.open.lock().insert(number, sender);
        let state = State::Parked(connected_or_kicked(&route, 0));
        Self {
            route,
            number,
            input,
            input_ended: false,
            answers,
            state,
            under_way: VecDeque::new(),
            under_way_bytes: 0,
            next: 0,
            room: None,
            link: Link::default(),
        }
    }

    fn on_answer(&mut self, answer: Answer) -> Option<AppendResult> {
        let Answer::Appended(number, result) = answer else {
            self.break_off();
            return None;
        };
        let expected = self.next - self.under_way.len() as u64;
        let Some(under_way) = self.under_way.pop_front().filter(|_| number == expected) else {
            // Answers come in order on one connection, so this follower is confused.
            self.break_off();
            return None;
        };
        self.under_way_bytes -= under_way.bytes;
        if let Ok(taken) = &result {
            let Route { sessions, to, .. } = &self.route;
            // What it has not taken yet it cannot know to be committed, whatever it was told.
            sessions.has_told(*to, self.link.number, under_way.commit.min(*taken));
        } else {
            self.state = State::Over;
        }
        Some(result)
    }

    fn send(&mut self, request: AppendRequest) {
        let bytes = request.entries.iter().map(|entry| match &entry.payload {
            Payload::Normal(data) => data.0.len(),
            Payload::Blank | Payload::Membership(_) => 0,
        });
        let bytes = bytes.sum();
        let group = self.route.address.get();
        let (session, number, commit) = (self.number, self.next, request.leader_commit);
        let message = Message::Append { group, session, number, request }.encode();
        self.next += 1;
        self.under_way.push_back(UnderWay { bytes, commit });
        self.under_way_bytes += bytes;
        if self.route.transport.send(self.route.to, message).is_err() {
            self.break_off();
        }
    }

    /// The connection is of no more use; nothing that is under way counts.
    fn break_off(&mut self) {
        let links = self.route.links.watch(self.route.to);
        let again = if links.borrow().up && links.borrow().number == self.link.number {
            // The follower ended the session, not the connection.
            self.link.number.saturating_sub(1)
        } else {
            self.link.number
        };
        drop(links);
        self.state = State::Broken(connected_or_kicked(&self.route, again));
    }
}

impl<S: Stream<Item = AppendRequest> + Unpin> Session<S> {
    fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<Option<Item>> {
        loop {
            if let State::Open(lost) = &mut self.state
                && lost.as_mut().poll(context).is_ready()
            {
                self.break_off();
            }
            if !matches!(self.state, State::Open(_)) {
                return Poll::Pending;
            }
            if let Poll::Ready(Some(answer)) = self.answers.poll_recv(context) {
                match self.on_answer(answer) {
                    Some(result) => return Poll::Ready(Some(Ok(result))),
                    None => continue,
                }
            }
            if self.input_ended {
                if self.under_way.is_empty() {
                    self.state = State::Over;
                    return Poll::Ready(None);
                }
                return Poll::Pending;
            }
            if self.under_way.len() >= WINDOW || self.under_way_bytes >= WINDOW_BYTES {
                return Poll::Pending;
            }
            if let Some(room) = &mut self.room {
                ready!(room.as_mut().poll(context));
                self.room = None;
            } else if !self.route.transport.has_room(self.route.to) {
                self.room = Some(self.route.transport.room(self.route.to));
                continue;
            }
            match ready!(self.input.poll_next_unpin(context)) {
                Some(request) => self.send(request),
                None => self.input_ended = true,
            }
        }
    }
}

impl<S: Stream<Item = AppendRequest> + Unpin> Stream for Session<S> {
    type Item = Item;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Item>> {
        let this = self.get_mut();
        loop {
            match &mut this.state {
                State::Parked(connected) => {
                    let Some(link) = ready!(connected.as_mut().poll(context)) else {
                        this.state = State::Over;
                        return Poll::Ready(Some(Err(broken())));
                    };
                    this.link = link;
                    let links = this.route.links.watch(this.route.to);
                    this.state = State::Open(lost(links, this.link.number));
                }
                State::Open(_) => {
                    let polled = this.poll_open(context);
                    if polled.is_ready() || matches!(this.state, State::Open(_)) {
                        return polled;
                    }
                }
                State::Broken(connected) => {
                    ready!(connected.as_mut().poll(context));
                    this.state = State::Over;
                    return Poll::Ready(Some(Err(broken())));
                }
                State::Over => return Poll::Ready(None),
            }
        }
    }
}

impl<S> Drop for Session<S> {
    fn drop(&mut self) {
        self.route.sessions.open.lock().remove(&self.number);
        // Who has heard of this leader by an answer alone hears so that it has stopped.
        let is_over = self.next > 0 && matches!(self.state, State::Over);
        if is_over || matches!(self.state, State::Open(_)) {
            let (group, session) = (self.route.address.get(), self.number);
            let resting = self.route.sessions.resting.lock().clone();
            let message = match resting {
                None => Message::Closed { group, session },
                Some(Resting { vote, last }) => {
                    // What was committed last is told by the append that comes next, and none does.
                    let told = self.route.sessions.told(self.route.to, self.link.number);
                    if told < last {
                        let (prev_log_id, leader_commit) = (last, last);
                        let entries = Vec::new();
                        self.send(AppendRequest { vote, prev_log_id, entries, leader_commit });
                    }
                    Message::Rests { group, session, term: vote.leader_id.term }
                }
            };
            // Without a connection the follower has ended it already.
            drop(self.route.transport.send(self.route.to, message.encode()));
        }
    }
}

/// What openraft hears of a session that broke off: it begins the next one soon.
fn broken() -> RPCError<Types> {
    let error = io::Error::new(io::ErrorKind::ConnectionReset, "the session broke off");
    RPCError::Network(NetworkError::new(&error))
}

/// Waits for a connection that is newer than `number`. Nothing comes of a kick.
fn connected_or_kicked(route: &Route, number: u64) -> Boxed<Option<Link>> {
    let links = route.links.watch(route.to);
    let mut kicks = route.sessions.kicks.subscribe();
    Box::pin(async move {
        match Types::select2(connected(links, number), kicks.changed()).await {
            Select2::First(link) => Some(link),
            Select2::Second(_) => None,
        }
    })
}

/// Waits for a connection that is newer than `number`.
pub(crate) async fn connected(mut links: watch::Receiver<Link>, number: u64) -> Link {
    let link = links.wait_for(|link| link.up && link.number > number).await.map(|link| *link);
    match link {
        Ok(link) => link,
        // The host is gone.
        Err(_) => std::future::pending().await,
    }
}

/// Waits until the connection with this number is lost.
fn lost(mut links: watch::Receiver<Link>, number: u64) -> Boxed<()> {
    Box::pin(async move {
        drop(links.wait_for(|link| !link.up || link.number != number).await);
    })
}
