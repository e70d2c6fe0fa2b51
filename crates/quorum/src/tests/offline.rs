//! A group whose other members are lost for good, founded anew by the one that is left.

use crate::offline::{Dormant, Part};
use crate::recovered::Recovered;
use crate::tests::support::{Cluster, GROUP, node};
use bytes::Bytes;
use model::id::Seq;
use std::collections::BTreeSet;

fn groups() -> BTreeSet<crate::group::GroupId> {
    BTreeSet::from([GROUP])
}

/// All but node 3 are lost, and it founds the group anew so many times.
async fn check(checkpoint_entries: u64, times: usize) {
    let mut cluster = Cluster::new(3);
    cluster.checkpoint_entries = checkpoint_entries;
    cluster.keep_nothing();
    let leader = cluster.group().await;
    for number in 0..50 {
        cluster.propose(leader, format!("one {number}"));
        // One at a time, so that there are checkpoints between them.
        cluster.all_have(&cluster.ids(), number + 1).await;
    }
    let before = cluster.got(node(3)).entries;
    for id in cluster.ids() {
        cluster.kill(id).await;
    }
    let log = cluster.grave(node(3));
    let mut words = Vec::new();
    for time in 0..times {
        let dormant = Dormant::new(GROUP.stream(), log.recovered(GROUP.stream())).unwrap();
        let (mut next, mut checkpoints) = (None, 0);
        let take = |part| {
            match part {
                Part::Checkpoint(index, _) => {
                    checkpoints += 1;
                    next = Some(index + 1);
                }
                Part::Entries(entries) => {
                    for entry in entries {
                        assert_eq!(entry.index, next.unwrap_or(0));
                        next = Some(entry.index + 1);
                    }
                }
            }
            Ok(())
        };
        dormant.replay(&*log, take).unwrap();
        assert_eq!(next, Some(dormant.end().index + 1));
        assert_eq!(checkpoints > 0, checkpoint_entries < 50);
        words.push(Bytes::from(format!("anew {time}")));
        crate::log::Log::submit(&*log, dormant.refound(node(3), words.last().cloned()));
        log.sync();
        let again = Dormant::new(GROUP.stream(), log.recovered(GROUP.stream())).unwrap();
        assert!(again.end().term > dormant.end().term, "nobody has led in it");
    }
    cluster.revive(node(3), &groups()).await;
    cluster.leader(node(3)).await;
    cluster.propose(node(3), "alone");
    let all = 50 + times + 1;
    let got = cluster.member(node(3)).until("alone", |got| got.entries.len() == all).await;
    assert_eq!(got.entries[..50], before);
    let rest: Vec<Bytes> = got.entries[50..].iter().map(|(_, payload)| payload.clone()).collect();
    assert_eq!(rest, [words, vec![Bytes::from_static(b"alone")]].concat());
    assert_eq!(got.voters, [node(3)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_member_goes_on_alone_with_all_that_it_has() {
    check(u64::MAX, 1).await;
    check(7, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn founding_anew_can_be_repeated() {
    check(7, 3).await;
}

#[test]
fn a_member_without_entries_founds_nothing() {
    let empty = Dormant::new(GROUP.stream(), Recovered::new(Seq(0)));
    assert_eq!(empty.unwrap_err(), "it has no entries");
}
