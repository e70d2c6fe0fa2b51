//! A follower's end of the streams of appends: one task per stream hands them to openraft, in
//! order, and sends the answers back.

use crate::group::GroupId;
use crate::machine::Machine;
use crate::member::Transport;
use crate::rpc::Message;
use crate::types::{AppendRequest, Types};
use futures_util::{Stream, StreamExt};
use model::id::NodeId;
use openraft::type_config::TypeConfigExt;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::sync::mpsc;

pub(crate) type Raft = openraft::Raft<Types, Machine>;

/// The streams that a group receives.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    streams: Mutex<BTreeMap<(NodeId, u64), Receiving>>,
    /// Streams that began while the group was not awake.
    waiting: Mutex<Vec<(mpsc::UnboundedReceiver<AppendRequest>, Origin)>>,
    /// Streams that openraft has not taken in to their end, also if that has come.
    serving: Arc<AtomicUsize>,
}

/// A stream that openraft takes in.
struct Serving(Arc<AtomicUsize>);

impl Serving {
    fn begin(all: &Arc<AtomicUsize>) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(all))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Receiving {
    next: u64,
    sender: mpsc::UnboundedSender<AppendRequest>,
}

/// Whose stream it is, and where its answers go.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) group: GroupId,
    pub(crate) from: NodeId,
    pub(crate) session: u64,
    pub(crate) transport: Arc<dyn Transport>,
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {} of {} from {}", self.session, self.group, self.from)
    }
}

impl Origin {
    /// Tells the sender that nothing more is taken.
    pub(crate) fn end(&self) {
        let message = Message::Ended { group: self.group, session: self.session };
        // A sender that is not connected has ended the session already.
        drop(self.transport.send(self.from, message.encode()));
    }
}

impl Inbox {
    /// Takes an append. A stream begins with number 0 and has no gaps; anything else is of a
    /// stream that has ended here. Without openraft it waits.
    pub(crate) fn on_append(
        &self,
        raft: Option<&Raft>,
        origin: &Origin,
        number: u64,
        request: AppendRequest,
    ) {
        let key = (origin.from, origin.session);
        let mut streams = self.streams.lock();
        if number == 0 {
            let (sender, requests) = mpsc::unbounded_channel();
            streams.insert(key, Receiving { next: 0, sender });
            match raft {
                Some(raft) => self.serve(raft, requests, origin.clone()),
                None => self.waiting.lock().push((requests, origin.clone())),
            }
        }
        let taken = streams.get_mut(&key).is_some_and(|stream| {
            let fits = stream.next == number;
            stream.next += 1;
            fits && stream.sender.send(request).is_ok()
        });
        if !taken {
            streams.remove(&key);
            origin.end();
        }
    }

    /// Whether streams wait for openraft.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.lock().is_empty()
    }

    /// openraft is there.
    pub(crate) fn serve_waiting(&self, raft: &Raft) {
        for (requests, origin) in self.waiting.lock().drain(..) {
            self.serve(raft, requests, origin);
        }
    }

    fn serve(&self, raft: &Raft, requests: mpsc::UnboundedReceiver<AppendRequest>, origin: Origin) {
        let serving = Serving::begin(&self.serving);
        let raft = raft.clone();
        drop(Types::spawn(async move {
            serve(raft, requests, origin).await;
            drop(serving);
        }));
    }

    /// Whether no stream is open, and all that came is taken in.
    pub(crate) fn is_empty(&self) -> bool {
        let is_serving = self.serving.load(Ordering::Relaxed) > 0;
        self.streams.lock().is_empty() && !self.is_waiting() && !is_serving
    }

    /// The sender ended a stream.
    pub(crate) fn on_closed(&self, from: NodeId, session: u64) {
        self.streams.lock().remove(&(from, session));
    }

    /// What others have under way is of no group that is here any more.
    pub(crate) fn clear(&self) {
        self.streams.lock().clear();
        self.waiting.lock().clear();
    }

    /// A connection is lost, and all its streams with it.
    pub(crate) fn on_down(&self, from: NodeId) {
        self.streams.lock().retain(|(node, _), _| *node != from);
    }
}

async fn serve(raft: Raft, requests: mpsc::UnboundedReceiver<AppendRequest>, origin: Origin) {
    let mut results = pin!(raft.stream_append(Requests(requests)));
    let mut number = 0;
    while let Some(Ok(result)) = results.next().await {
        let is_over = result.is_err();
        let (group, session) = (origin.group, origin.session);
        let message = Message::Appended { group, session, number, result };
        let sent = origin.transport.send(origin.from, message.encode());
        if is_over || sent.is_err() {
            return;
        }
        number += 1;
    }
    // Either the sender closed the stream and will not hear this, or the group has stopped.
    origin.end();
}

struct Requests(mpsc::UnboundedReceiver<AppendRequest>);

impl Stream for Requests {
    type Item = AppendRequest;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}
