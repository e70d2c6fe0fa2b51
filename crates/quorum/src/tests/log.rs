//! The log of a group, over a journal in memory: what comes back after a start.

use crate::group::GroupId;
use crate::grouplog::storage::Store;
use crate::grouplog::{Disk, GroupLog, Limits};
use crate::recovered::Recovered;
use crate::seat::Seat;
use crate::supervisor::ballot::Ballot;
use crate::tail::Tail;
use crate::tests::support::LIMITS;
use crate::tests::support::{MemoryLog, Recorder};
use crate::types::{Data, Entry, Flushed, Payload, SnapshotMeta, log_id, vote};
use bytes::Bytes;
use futures_util::FutureExt;
use journal::op::{Class, Lsn};
use model::id::NodeId;
use openraft::storage::{RaftLogReader, RaftLogStorage};
use std::sync::Arc;

const GROUP: GroupId = GroupId(40);

fn open(log: &Arc<MemoryLog>, tail: usize) -> Store {
    open_recovered(log, tail, log.recovered(GROUP.stream()))
}

fn open_recovered(log: &Arc<MemoryLog>, tail: usize, recovered: Recovered) -> Store {
    open_limited(log, tail, recovered, LIMITS)
}

fn open_limited(
    log: &Arc<MemoryLog>,
    tail: usize,
    mut recovered: Recovered,
    limits: Limits,
) -> Store {
    recovered.check();
    assert_eq!(recovered.damage(), None);
    let watermark = log.watermark();
    let tail = Arc::new(Tail::new(tail));
    let disk = Disk { log: Arc::clone(log) as _, watermark, tail, limits };
    let ballot = Ballot::new(GROUP, Arc::default());
    let seat = Arc::new(Seat::new(NodeId(1), Recorder::new(), 0, ballot));
    Store(Arc::new(GroupLog::new(GROUP.stream(), Class::Bulk, disk, seat, recovered)))
}

fn entry(term: u64, index: u64) -> Entry {
    let payload = Payload::Normal(Data(Bytes::from(format!("{term}/{index}"))));
    Entry { log_id: log_id(term, index), payload }
}

async fn append(store: &mut Store, term: u64, indexes: std::ops::Range<u64>) {
    let entries: Vec<Entry> = indexes.map(|index| entry(term, index)).collect();
    store.append(entries, Flushed::noop()).await.unwrap();
}

async fn ids(store: &mut Store) -> Vec<(u64, u64)> {
    let entries = store.try_get_log_entries(..).await.unwrap();
    for found in &entries {
        assert_eq!(*found, entry(found.log_id.leader_id.term, found.log_id.index));
    }
    entries.iter().map(|entry| (entry.log_id.leader_id.term, entry.log_id.index)).collect()
}

#[tokio::test]
async fn a_checkpoint_is_due_when_the_log_has_grown_by_enough_and_by_as_much_as_the_last_one() {
    let log = MemoryLog::new();
    let limits = Limits { checkpoint_bytes: 100, ..LIMITS };
    let mut store = open_limited(&log, 1 << 20, log.recovered(GROUP.stream()), limits);
    let mut next = 0;
    let mut entries_until_due = async |store: &mut Store| {
        let begin = next;
        loop {
            append(store, 1, next..next + 1).await;
            next += 1;
            if store.0.applied(next - 1) {
                return next - begin;
            }
        }
    };
    let few = entries_until_due(&mut store).await;
    assert!(entries_until_due(&mut store).await <= few);
    let meta = SnapshotMeta { last_log_id: Some(log_id(1, 3)), ..SnapshotMeta::default() };
    store.0.save_checkpoint(&meta, &Bytes::from(vec![0; 1000])).await.unwrap();
    let more = entries_until_due(&mut store).await;
    assert!(more > 5 * few, "{more} entries, {few} for a small state");
}

#[tokio::test]
async fn everything_comes_back_after_a_start() {
    let log = MemoryLog::new();
    let mut store = open(&log, 1 << 20);
    store.save_vote(&vote(1, 9, false)).await.unwrap();
    store.save_vote(&vote(2, 9, true)).await.unwrap();
    append(&mut store, 2, 0..6).await;
    store.save_committed(Some(log_id(2, 3))).await.unwrap();
    store.save_committed(Some(log_id(2, 4))).await.unwrap();
    let meta = SnapshotMeta { last_log_id: Some(log_id(2, 2)), ..SnapshotMeta::default() };
    store.0.save_checkpoint(&meta, &Bytes::from("old")).await.unwrap();
    store.0.save_checkpoint(&meta, &Bytes::from("state")).await.unwrap();
    store.purge(log_id(2, 1)).await.unwrap();
    store.purge(log_id(2, 2)).await.unwrap();
    // The entries' records stay, and one of each of the others.
    assert_eq!(log.positions(GROUP.stream()).len(), 6 + 4);
    drop(store);
    let mut store = open(&log.crash(), 1 << 20);
    assert_eq!(store.read_vote().await.unwrap(), Some(vote(2, 9, true)));
    assert_eq!(store.read_committed().await.unwrap(), Some(log_id(2, 4)));
    let state = store.get_log_state().await.unwrap();
    assert_eq!(state.last_purged_log_id, Some(log_id(2, 2)));
    assert_eq!(state.last_log_id, Some(log_id(2, 5)));
    assert_eq!(ids(&mut store).await, [(2, 3), (2, 4), (2, 5)]);
    assert_eq!(store.0.read_checkpoint().await.unwrap().unwrap().state, "state");
    append(&mut store, 3, 6..8).await;
    assert_eq!(ids(&mut store).await.last(), Some(&(3, 7)));
}

fn at(index: u64) -> SnapshotMeta {
    SnapshotMeta { last_log_id: Some(log_id(1, index)), ..SnapshotMeta::default() }
}

#[tokio::test]
async fn a_checkpoint_that_waits_for_room_takes_no_place_before_it_has_any() {
    for arrives in [false, true] {
        let log = MemoryLog::new();
        let mut store = open(&log, 1 << 20);
        append(&mut store, 1, 0..6).await;
        store.0.save_checkpoint(&at(2), &Bytes::from("old")).await.unwrap();
        let before = log.positions(GROUP.stream()).len();
        log.fill(true);
        let (meta, state) = (at(5), Bytes::from("new"));
        let saved = if arrives {
            store.0.save_arrived(&meta, &state, None, Lsn(0)).now_or_never()
        } else {
            store.0.save_checkpoint(&meta, &state).now_or_never()
        };
        assert!(saved.is_none(), "there is no room");
        let log = log.crash();
        let mut store = open(&log, 1 << 20);
        assert_eq!(store.0.read_checkpoint().await.unwrap().unwrap().state, "old");
        assert_eq!(ids(&mut store).await.len(), 6);
        assert_eq!(log.positions(GROUP.stream()).len(), before);
        // With room it takes the place of the old one, and of the entries if it came from elsewhere.
        if arrives {
            store.0.save_arrived(&at(9), &state, None, Lsn(0)).await.unwrap();
        } else {
            store.0.save_checkpoint(&meta, &state).await.unwrap();
        }
        assert_eq!(store.0.read_checkpoint().await.unwrap().unwrap().state, "new");
        assert_eq!(log.positions(GROUP.stream()).len(), if arrives { 1 } else { before });
    }
}

#[tokio::test]
async fn a_vote_is_not_saved_before_the_entries_before_it() {
    let log = MemoryLog::new();
    let mut store = open(&log, 1 << 20);
    append(&mut store, 1, 0..3).await;
    log.fill(true);
    assert!(store.save_vote(&vote(2, 9, false)).now_or_never().is_some(), "nothing waits for room");
    append(&mut store, 1, 3..5).await;
    let (mut other, later) = (store.clone(), vote(3, 9, true));
    let mut saving = std::pin::pin!(other.save_vote(&later));
    assert!(saving.as_mut().now_or_never().is_none());
    log.fill(false);
    saving.await.unwrap();
}

#[tokio::test]
async fn an_unsynced_tail_is_lost_and_a_synced_one_is_not() {
    let log = MemoryLog::new();
    let mut store = open(&log, 1 << 20);
    append(&mut store, 1, 0..3).await;
    log.hold(true);
    append(&mut store, 1, 3..9).await;
    // Entries can be read before they are durable.
    assert_eq!(ids(&mut store).await.len(), 9);
    let mut store = open(&log.crash(), 1 << 20);
    assert_eq!(ids(&mut store).await, [(1, 0), (1, 1), (1, 2)]);
    append(&mut store, 2, 3..5).await;
    assert_eq!(ids(&mut store).await[3..], [(2, 3), (2, 4)]);
}

#[tokio::test]
async fn a_truncation_that_was_lost_is_made_up_by_what_follows_it() {
    let log = MemoryLog::new();
    let mut store = open(&log, 1 << 20);
    append(&mut store, 1, 0..10).await;
    log.hold(true);
    store.truncate_after(Some(log_id(1, 3))).await.unwrap();
    assert_eq!(ids(&mut store).await.len(), 4);
    // Nothing of the truncation survives: the old tail is back, as Raft allows.
    let lost = log.crash();
    let mut store = open(&lost, 1 << 20);
    assert_eq!(ids(&mut store).await.len(), 10);
    store.truncate_after(Some(log_id(1, 3))).await.unwrap();
    append(&mut store, 2, 4..6).await;
    let mut store = open(&lost.crash(), 1 << 20);
    assert_eq!(ids(&mut store).await, [(1, 0), (1, 1), (1, 2), (1, 3), (2, 4), (2, 5)]);
}

#[tokio::test]
async fn entries_that_left_memory_are_read_from_the_journal() {
    let log = MemoryLog::new();
    let mut store = open(&log, 0);
    append(&mut store, 1, 0..100).await;
    store.0.applied(59);
    assert_eq!(ids(&mut store).await.len(), 100);
    assert_eq!(store.limited_get_log_entries(50, 70).await.unwrap().len(), 20);
    // Not durable: must stay.
    log.hold(true);
    append(&mut store, 1, 100..110).await;
    store.0.applied(109);
    assert_eq!(ids(&mut store).await.len(), 110);
}

#[tokio::test]
async fn reads_for_followers_are_bounded_but_never_empty() {
    let log = MemoryLog::new();
    let mut store = open(&log, 1 << 20);
    let big = Payload::Normal(Data(Bytes::from(vec![7; 3 << 20])));
    let entries = (0..4).map(|index| Entry { log_id: log_id(1, index), payload: big.clone() });
    store.append(entries, Flushed::noop()).await.unwrap();
    assert_eq!(store.limited_get_log_entries(1, 4).await.unwrap().len(), 1);
    assert_eq!(store.try_get_log_entries(1..4).await.unwrap().len(), 3);
    assert_eq!(store.limited_get_log_entries(9, 12).await.unwrap().len(), 0);
}

#[tokio::test]
async fn a_gap_is_damage() {
    let log = MemoryLog::new();
    let mut store = open(&log, 1 << 20);
    append(&mut store, 1, 0..10).await;
    let mut recovered = Recovered::new(model::id::Seq(0));
    let whole = log.recovered(GROUP.stream());
    for found in whole.entries.iter().filter(|found| found.id.index != 5) {
        let head = crate::record::Head::Entry { kind: found.kind, id: found.id }.encode();
        recovered.note(found.position, head.as_slice(), found.bytes);
    }
    recovered.check();
    assert_eq!(recovered.damage(), Some("entry 5 is missing before 6"));
}
