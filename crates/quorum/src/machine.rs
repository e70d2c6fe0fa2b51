//! The state machine of a group as openraft wants to see it: it hands everything to the member.

use crate::checkpoint::Image;
use crate::group::GroupId;
use crate::grouplog::GroupLog;
use crate::life::Summary;
use crate::member::{Body, Committed};
use crate::seat::Seat;
use crate::types::{Entry, LogId, Payload, Snapshot, SnapshotMeta, StoredMembership, Types};
use crate::upkeep::News;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use parking_lot::Mutex;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// The most entries that the member gets with one call, so that a long log is not in memory at
/// once when it is applied after a start.
const BATCH_MAX: usize = 4096;
const BATCH_BYTES_MAX: usize = 4 << 20;

/// How far a member has come, whatever state machine brought it there.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) applied: Option<LogId>,
    pub(crate) membership: StoredMembership,
}

/// The state machine of a group that is awake.
#[derive(Debug)]
pub(crate) struct Machine {
    group: GroupId,
    /// The time of being awake that it belongs to.
    number: u64,
    news: mpsc::UnboundedSender<News>,
    log: Arc<GroupLog>,
    seat: Arc<Seat>,
    /// Nobody else changes it while this is there.
    progress: Arc<Mutex<Progress>>,
    /// Ends with it.
    _alive: oneshot::Sender<Infallible>,
}

/// A checkpoint in the making.
#[derive(Debug)]
pub(crate) struct Builder {
    log: Arc<GroupLog>,
    meta: SnapshotMeta,
    state: oneshot::Receiver<Bytes>,
}

impl Machine {
    pub(crate) fn new(
        group: GroupId,
        number: u64,
        log: Arc<GroupLog>,
        seat: Arc<Seat>,
        progress: Arc<Mutex<Progress>>,
        news: mpsc::UnboundedSender<News>,
        alive: oneshot::Sender<Infallible>,
    ) -> Self {
        Self { group, number, news, log, seat, progress, _alive: alive }
    }

    fn tell(&self, news: News) {
        // Without a host there is nobody to tell.
        self.news.send(news).ok();
    }

    fn meta(&self) -> SnapshotMeta {
        let progress = self.progress.lock();
        SnapshotMeta { last_log_id: progress.applied, last_membership: progress.membership.clone() }
    }

    /// Hands entries over, and then what they say about members.
    fn hand_over(&mut self, entries: &mut Vec<Entry>) {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return };
        let (first, last) = (first.log_id, last.log_id);
        let positions = self.log.positions(first.index..last.index + 1);
        let mut membership = None;
        let mut committed = Vec::with_capacity(entries.len());
        for (entry, position) in entries.drain(..).zip(positions) {
            let id = entry.log_id;
            let payload = match entry.payload {
                Payload::Normal(data) => data.0,
                Payload::Blank => Bytes::new(),
                Payload::Membership(members) => {
                    membership = Some(StoredMembership::new(Some(id), members));
                    Bytes::new()
                }
            };
            let (index, term) = (id.index, id.leader_id.term);
            committed.push(Committed { index, term, position, payload });
        }
        self.seat.on_committed(committed);
        self.progress.lock().applied = Some(last);
        if self.log.applied(last.index) {
            self.tell(News::Grown(self.group));
        }
        if let Some(membership) = membership {
            self.seat.on_members(membership.membership());
            self.progress.lock().membership = membership;
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.tell(News::Gone(self.group, self.number));
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotData = Image;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let progress = self.progress.lock();
        Ok((progress.applied, progress.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<Types>, io::Error>> + Unpin + Send,
    {
        let (mut batch, mut responders, mut bytes) = (Vec::new(), Vec::new(), 0);
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            if let Payload::Normal(data) = &entry.payload {
                bytes += data.0.len();
            }
            batch.push(entry);
            responders.extend(responder);
            if batch.len() >= BATCH_MAX || bytes >= BATCH_BYTES_MAX {
                self.hand_over(&mut batch);
                responders.drain(..).for_each(|responder| responder.send(()));
                bytes = 0;
            }
        }
        self.hand_over(&mut batch);
        for responder in responders {
            responder.send(());
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        let (answer, state) = oneshot::channel();
        self.seat.call(|member| member.checkpoint(answer));
        Builder { log: Arc::clone(&self.log), meta: self.meta(), state }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, image: Image) -> io::Result<()> {
        let Some(last) = meta.last_log_id else { return Ok(()) };
        let (state, bodies) = match image {
            Image::Own { state } => (state, self.log.take_bodies()),
            Image::Arrived { state, bodies, stored } => {
                let first = bodies.first().map(|(_, position)| *position);
                self.log.save_arrived(meta, &state, first, stored).await?;
                let body = |(name, position)| Body::Carried { name, position };
                (state, bodies.into_iter().map(body).collect())
            }
        };
        let (done, installed) = oneshot::channel();
        self.seat.call(|member| member.install(last.index, state, bodies, done));
        installed.await.map_err(|_| io::Error::other("the member did not install a checkpoint"))?;
        let membership = meta.last_membership.clone();
        *self.progress.lock() = Progress { applied: Some(last), membership };
        self.seat.on_members(meta.last_membership.membership());
        if let Some(purged) = self.log.purged() {
            self.seat.call(|member| member.purged(purged.index.min(last.index)));
        }
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        let checkpoint = self.log.read_checkpoint().await?;
        Ok(checkpoint.map(|checkpoint| Snapshot {
            meta: checkpoint.meta,
            snapshot: Image::Own { state: checkpoint.state },
        }))
    }
}

impl RaftSnapshotBuilder<Types> for Builder {
    type SnapshotData = Image;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let gone = |_| io::Error::other("the member did not answer with a checkpoint");
        let state = (&mut self.state).await.map_err(gone)?;
        self.log.save_checkpoint(&self.meta, &state).await?;
        Ok(Snapshot { meta: self.meta.clone(), snapshot: Image::Own { state } })
    }
}

/// Brings a member to the last checkpoint and to what is known to be committed after it, as
/// openraft does when it starts, without openraft: the group begins asleep.
pub(crate) async fn load(
    log: &Arc<GroupLog>,
    seat: &Arc<Seat>,
    progress: &Arc<Mutex<Progress>>,
) -> io::Result<Summary> {
    let (news, _) = mpsc::unbounded_channel();
    let (alive, _) = oneshot::channel();
    let (log, seat, progress) = (Arc::clone(log), Arc::clone(seat), Arc::clone(progress));
    let mut machine = Machine::new(GroupId(0), 0, log, seat, progress, news, alive);
    if let Some(Snapshot { meta, snapshot }) = machine.get_current_snapshot().await? {
        machine.install_snapshot(&meta, snapshot).await?;
    }
    let committed = machine.log.committed().map_or(0, |id| id.index + 1);
    loop {
        let applied = machine.progress.lock().applied;
        let from = applied.map_or(0, |id| id.index + 1);
        if from >= committed {
            break;
        }
        let mut entries = machine.log.read(from..committed, BATCH_BYTES_MAX as u64).await?;
        if entries.first().is_none_or(|first| first.log_id.index != from) {
            return Err(io::Error::other(format!("committed entry {from} is not in the log")));
        }
        machine.hand_over(&mut entries);
    }
    let (applied, membership) = {
        let progress = machine.progress.lock();
        (progress.applied, progress.membership.clone())
    };
    if let Some(applied) = applied.filter(|applied| machine.log.last() < Some(*applied)) {
        // Its checkpoint came from another node, and what was before it did not go in time.
        machine.log.purge(applied);
        machine.seat.call(|member| member.purged(applied.index));
    }
    let newer = machine.log.memberships_after(applied.map(|id| id.index)).await?.pop();
    let is_changing = newer.is_some();
    let membership = Arc::new(newer.unwrap_or(membership));
    Ok(Summary { membership, is_changing, matched: Vec::new() })
}
