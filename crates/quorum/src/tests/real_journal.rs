//! A group over the real journal, on a disk that loses what was not synced.

use crate::group::GroupId;
use crate::host::{Care, Host, Options};
use crate::member::{Member, Role};
use crate::recovered::Recovered;
use crate::tests::support::{Got, Lonely, Recorder};
use crate::watermark::Watermark;
use bytes::Bytes;
use journal::disk::Disk;
use journal::journal::Journal;
use journal::sim::SimDisk;
use model::id::{NodeId, Seq};
use std::collections::BTreeMap;
use std::sync::Arc;

const GROUP: GroupId = GroupId(33);
const ME: NodeId = NodeId(5);

struct Alone {
    host: Host,
    member: Arc<Recorder>,
}

/// A node with one group that it alone is a member of.
async fn boot(disk: &SimDisk) -> Alone {
    let watermark = Arc::new(Watermark::default());
    let options = journal::options::Options {
        segment_bytes: journal::options::Options::SEGMENT_BYTES_MIN,
        ..journal::options::Options::new("/journal")
    };
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let (journal, recovery) = Journal::open(options, disk, Arc::clone(&watermark) as _).unwrap();
    let mut found: BTreeMap<_, Recovered> = BTreeMap::new();
    for known in recovery.streams() {
        found.insert(known.stream, Recovered::new(known.highest));
    }
    let note = |stream, seq, head: &[u8], bytes| {
        found.get_mut(&stream).unwrap().note(seq, head, bytes);
    };
    recovery.for_each(note).unwrap();
    let recovered = found.remove(&GROUP.stream()).unwrap_or_else(|| Recovered::new(Seq(0)));
    let options =
        Options { checkpoint_entries: 200, keep_entries: 10, tail_bytes: 0, ..Options::new(ME) };
    let host = Host::new(options, Arc::new(journal), watermark, Arc::new(Lonely));
    let member = Recorder::new();
    let shared: Arc<dyn Member> = Arc::clone(&member) as _;
    host.start(GROUP, Care::Supervised, shared, recovered).await.unwrap();
    host.initialise(GROUP, &[ME]).await.unwrap();
    let leads = |got: &Got| matches!(got.role, Some(Role::Leader { .. }));
    member.until("leading", leads).await;
    Alone { host, member }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_handed_over_is_there_after_every_crash() {
    let disk = SimDisk::new(11);
    let mut handed: Vec<(u64, Bytes)> = Vec::new();
    for life in 0..12_u64 {
        let alone = boot(&disk).await;
        let got = alone.member.got.borrow().clone();
        assert!(got.entries.len() >= handed.len(), "life {life}");
        assert_eq!(got.entries[..handed.len()], handed[..], "life {life}");
        for number in 0..250_u64 {
            let length = usize::try_from(8 + (life * 7919 + number * 104_729) % 3000).unwrap();
            let mut payload = vec![u8::try_from(number).unwrap(); length];
            payload[..8].copy_from_slice(&(life * 1000 + number).to_le_bytes());
            alone.host.propose(GROUP, Bytes::from(payload)).unwrap();
        }
        let enough = handed.len() + 120;
        alone.member.until("half of them", |got| got.entries.len() >= enough).await;
        // Whatever was handed over by now must survive; more may.
        handed.clone_from(&alone.member.got.borrow().entries);
        disk.crash();
        alone.host.stop(GROUP).await;
    }
    let alone = boot(&disk).await;
    let got = alone.member.got.borrow().clone();
    assert_eq!(got.entries[..handed.len()], handed[..]);
    assert!(got.installs > 0, "there were checkpoints");
}
