//! The state machine of a group as openraft wants to see it: it hands everything to the member.

use crate::checkpoint::Image;
use crate::group::GroupId;
use crate::grouplog::GroupLog;
use crate::member::{Body, Committed};
use crate::seat::Seat;
use crate::types::{Entry, LogId, Payload, Snapshot, SnapshotMeta, StoredMembership, Types};
use crate::upkeep::News;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use std::io;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// The most entries that the member gets with one call, so that a long log is not in memory at
/// once when it is applied after a start.
const BATCH_MAX: usize = 4096;
const BATCH_BYTES_MAX: usize = 4 << 20;

/// The state machine.
#[derive(Debug)]
pub(crate) struct Machine {
    group: GroupId,
    news: mpsc::UnboundedSender<News>,
    log: Arc<GroupLog>,
    seat: Arc<Seat>,
    applied: Option<LogId>,
    membership: StoredMembership,
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
        log: Arc<GroupLog>,
        seat: Arc<Seat>,
        news: mpsc::UnboundedSender<News>,
    ) -> Self {
        let membership = StoredMembership::default();
        Self { group, news, log, seat, applied: None, membership }
    }

    fn tell(&self, news: News) {
        // Without a host there is nobody to tell.
        self.news.send(news).ok();
    }

    fn meta(&self) -> SnapshotMeta {
        SnapshotMeta { last_log_id: self.applied, last_membership: self.membership.clone() }
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
        self.applied = Some(last);
        if self.log.applied(last.index) {
            self.tell(News::Grown(self.group));
        }
        if let Some(membership) = membership {
            self.seat.on_members(membership.membership());
            self.membership = membership;
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.tell(News::Gone(self.group));
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotData = Image;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.applied, self.membership.clone()))
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
        self.applied = Some(last);
        self.membership = meta.last_membership.clone();
        self.seat.on_members(self.membership.membership());
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
