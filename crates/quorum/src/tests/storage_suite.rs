//! openraft's own tests of a log store and a state machine.

use crate::checkpoint::Image;
use crate::group::GroupId;
use crate::grouplog::storage::Store;
use crate::grouplog::{Disk, GroupLog};
use crate::machine::{Builder, Machine};
use crate::recovered::Recovered;
use crate::seat::Seat;
use crate::supervisor::ballot::Ballot;
use crate::tail::Tail;
use crate::tests::support::LIMITS;
use crate::tests::support::{MemoryLog, Recorder};
use crate::types::{Flushed, LogId, Snapshot, SnapshotMeta, StoredMembership, Types, log_id};
use futures_util::{Stream, StreamExt};
use journal::op::{Class, Lsn};
use model::id::{NodeId, Seq, StreamId};
use openraft::StorageError;
use openraft::storage::{EntryResponder, RaftLogStorage, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use std::io;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

struct Stores;

/// The suite applies entries that it never appended, which a group never does: they are appended
/// first.
struct Appending {
    store: Store,
    machine: Machine,
}

impl RaftStateMachine<Types> for Appending {
    type SnapshotData = Image;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        self.machine.applied_state().await
    }

    async fn apply<Strm>(&mut self, entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<Types>, io::Error>> + Unpin + Send,
    {
        let entries: Vec<_> = entries.collect().await;
        for (entry, _) in entries.iter().flatten() {
            let index = entry.log_id.index;
            let last = self.store.0.last().map(|last| last.index);
            if last.is_none_or(|last| last < index) {
                if last.map_or(0, |last| last + 1) < index {
                    self.store.purge(log_id(0, index - 1)).await?;
                }
                self.store.append([entry.clone()], Flushed::noop()).await?;
            }
        }
        self.machine.apply(futures_util::stream::iter(entries)).await
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        self.machine.get_snapshot_builder().await
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, image: Image) -> io::Result<()> {
        let image =
            Image::Arrived { state: image.state().clone(), bodies: Vec::new(), stored: Lsn(0) };
        self.machine.install_snapshot(meta, image).await
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        self.machine.get_current_snapshot().await
    }
}

impl StoreBuilder<Types, Store, Appending, ()> for Stores {
    async fn build(&self) -> Result<((), Store, Appending), StorageError<Types>> {
        let log = MemoryLog::new();
        let watermark = log.watermark();
        let disk = Disk { log, watermark, tail: Arc::new(Tail::new(1 << 20)), limits: LIMITS };
        // The suite's members are not ours to check.
        let seat = Arc::new(Seat::new(
            NodeId(0),
            Recorder::lenient(),
            0,
            Ballot::new(GroupId(21), Arc::default()),
        ));
        // Nor may what it applies be seen in the log.
        let open = |stream| {
            let (disk, seat) = (disk.clone(), Arc::clone(&seat));
            Arc::new(GroupLog::new(
                StreamId(stream),
                Class::Bulk,
                disk,
                seat,
                Recovered::new(Seq(0)),
            ))
        };
        let (log, applied) = (open(20), open(21));
        let machine = Machine::new(
            GroupId(21),
            0,
            Arc::clone(&applied),
            seat,
            Arc::default(),
            mpsc::unbounded_channel().0,
            oneshot::channel().0,
        );
        Ok(((), Store(log), Appending { store: Store(applied), machine }))
    }
}

#[tokio::test]
async fn the_store_passes_the_suite_of_openraft() {
    Suite::test_all(Stores).await.unwrap();
}
