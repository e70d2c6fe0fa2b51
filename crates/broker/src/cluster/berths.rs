//! This node's members of quorum queues: how they start and end, one thing after the other for each
//! queue.
//!
//! A member that is recorded as started and whose data is gone, or damaged, is *lost*: it does not
//! start, since it might vote a second time in a term or lack what it has acknowledged. It is shown
//! so until its record is removed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use journal::op::Op;
use metadata::objects::member::Stage;
use model::id::{QueueId, StreamId};
use parking_lot::Mutex;
use quorum::founding::Founding;
use quorum::group::GroupId;
use quorum::host::{Care, Host};
use quorum::log::Log;
use quorum::member::Member;
use quorum::recovered::Recovered;
use tokio::task::JoinHandle;

use crate::replicated::fabric::Berth;

/// See the module head. Clones are the same.
#[derive(Clone)]
pub(crate) struct Berths(Arc<Inner>);

struct Inner {
    host: Host,
    journal: Arc<dyn Log>,
    /// What the journal had of members that have not started yet.
    recovered: Mutex<BTreeMap<StreamId, Recovered>>,
    turns: Mutex<Turns>,
    /// Why they do not start.
    lost: Mutex<BTreeMap<QueueId, String>>,
}

/// The last thing that was begun for each queue.
#[derive(Default)]
struct Turns {
    last: BTreeMap<QueueId, JoinHandle<()>>,
    /// How many there may be before those that are over are looked for.
    room: usize,
}

impl fmt::Debug for Berths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Berths").field("lost", &self.0.lost.lock().len()).finish_non_exhaustive()
    }
}

impl Berths {
    pub(crate) fn new(host: Host, journal: Arc<dyn Log>) -> Self {
        let (recovered, turns, lost) = Default::default();
        Self(Arc::new(Inner { host, journal, recovered, turns, lost }))
    }

    /// Takes what the journal has.
    pub(crate) fn recovered(&self, found: impl IntoIterator<Item = (StreamId, Recovered)>) {
        self.0.recovered.lock().extend(found);
    }

    /// These are no members' any more.
    pub(crate) fn forget(&self, streams: &[StreamId]) {
        let mut recovered = self.0.recovered.lock();
        for stream in streams {
            recovered.remove(stream);
        }
    }

    /// What the journal has of one member.
    pub(crate) fn take(&self, stream: StreamId) -> Recovered {
        self.0.recovered.lock().remove(&stream).unwrap_or_default().in_stream(stream)
    }

    /// Starts a member; `founding` is how its group begins, if the journal has no trace of it.
    pub(crate) fn start(
        &self,
        queue: QueueId,
        member: Arc<dyn Member>,
        berth: &Berth,
        founding: Founding,
    ) {
        let Berth { stream, stage, group: address, .. } = *berth;
        let this = self.clone();
        self.in_turn(queue, async move {
            let recovered = this.take(stream).at(address).founded(founding);
            if matches!(stage, Stage::Started | Stage::Sole) && recovered.is_empty() {
                return this.lose(queue, "its data is gone".into());
            }
            if stage == Stage::Lost {
                return this.lose(queue, "another one is about to take its place".into());
            }
            let group = GroupId::from(queue);
            match this.0.host.start(group, Care::Supervised, member, recovered).await {
                Ok(()) => {
                    if stage == Stage::Sole {
                        this.go_on_alone(queue, address).await;
                    }
                }
                Err(error) => this.lose(queue, error.to_string()),
            }
        });
    }

    /// The members of a group know each other by another number; `alone`: and the one that runs here
    /// has to go on as the only one.
    pub(crate) fn move_to(&self, queue: QueueId, address: GroupId, alone: bool) {
        let this = self.clone();
        self.in_turn(queue, async move {
            if alone {
                this.go_on_alone(queue, address).await;
            } else if let Err(error) = this.0.host.move_to(GroupId::from(queue), address) {
                tracing::info!(%queue, %error, "a group has another number");
            }
        });
    }

    async fn go_on_alone(&self, queue: QueueId, address: GroupId) {
        match self.0.host.reform(GroupId::from(queue), address).await {
            Ok(()) => tracing::warn!(
                %queue,
                "a quorum queue goes on with the member of this node alone; what only the others had \
                 is lost"
            ),
            Err(error) => tracing::error!(%queue, %error, "a member cannot go on alone"),
        }
    }

    /// Ends a member, and drops what the journal has in its stream.
    pub(crate) fn delete(&self, queue: QueueId, stream: StreamId) {
        let this = self.clone();
        self.in_turn(queue, async move {
            let group = GroupId::from(queue);
            let Inner { host, journal, recovered, lost, .. } = &*this.0;
            lost.lock().remove(&queue);
            if host.role(group).is_some() {
                host.delete(group).await;
            } else {
                recovered.lock().remove(&stream);
                journal.submit(vec![Op::Drop { stream }]);
            }
        });
    }

    /// Why this node's member of a queue cannot start, if it cannot.
    pub(crate) fn lost(&self, queue: QueueId) -> Option<String> {
        self.0.lost.lock().get(&queue).cloned()
    }

    /// The queues whose members on this node cannot start.
    pub(crate) fn all_lost(&self) -> Vec<QueueId> {
        self.0.lost.lock().keys().copied().collect()
    }

    fn lose(&self, queue: QueueId, reason: String) {
        tracing::error!(
            %queue, reason,
            "this node's member of a quorum queue is lost and must be replaced: delete the member \
             and add it again"
        );
        self.0.lost.lock().insert(queue, reason);
    }

    fn in_turn(&self, queue: QueueId, work: impl Future<Output = ()> + Send + 'static) {
        let mut turns = self.0.turns.lock();
        let before = turns.last.remove(&queue);
        let turn = tokio::spawn(async move {
            if let Some(before) = before {
                // An error says that it was cut off, with the node.
                drop(before.await);
            }
            work.await;
        });
        turns.last.insert(queue, turn);
        if turns.last.len() > turns.room {
            turns.last.retain(|_, turn| !turn.is_finished());
            turns.room = (turns.last.len() * 2).max(1024);
        }
    }
}
