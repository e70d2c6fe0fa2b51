//! Three nodes and one group: elections, replication, deaths and returns.

use crate::member::Role;
use crate::tests::support::{Cluster, GROUP, Got, node};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::time::Duration;

fn groups() -> BTreeSet<crate::group::GroupId> {
    BTreeSet::from([GROUP])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_get_the_same_entries_of_all_sizes_in_the_same_order() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.group().await;
    let count = 10_000;
    for number in 0..count {
        // Mostly small, some large, one of several chunks.
        let length = match number % 1000 {
            0 => 200_000,
            1 => 70_000,
            500 if number == 500 => 3 << 20,
            other => 8 + other % 500,
        };
        let mut payload = vec![u8::try_from(number % 251).unwrap(); length];
        payload[..8].copy_from_slice(&(number as u64).to_le_bytes());
        cluster.propose(leader, payload);
        if number % 500 == 0 {
            cluster
                .member(leader)
                .until("keeping up", |got| got.entries.len() + 600 > number)
                .await;
        }
    }
    cluster.all_have(&cluster.ids(), count).await;
    assert_eq!(cluster.got(node(2)).voters, cluster.ids());
}

/// Nobody has used it for years, and it never slept: its leader leads.
#[tokio::test(start_paused = true)]
async fn a_group_that_was_idle_for_years_takes_proposals() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.group().await;
    cluster.propose(leader, "one");
    cluster.all_have(&cluster.ids(), 1).await;
    tokio::time::advance(Duration::from_hours(10 * 365 * 24)).await;
    cluster.propose(leader, "two");
    cluster.all_have(&cluster.ids(), 2).await;
    assert_eq!(cluster.host(leader).status(GROUP).unwrap().term, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_starts_again_has_what_it_had_and_catches_up() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.group().await;
    (0..50).for_each(|number| cluster.propose(leader, format!("one {number}")));
    cluster.all_have(&cluster.ids(), 50).await;
    cluster.kill(node(3)).await;
    (0..50).for_each(|number| cluster.propose(leader, format!("two {number}")));
    cluster.all_have(&[node(1), node(2)], 100).await;
    cluster.revive(node(3), &groups()).await;
    cluster.all_have(&cluster.ids(), 100).await;
    let got = cluster.got(node(3));
    assert!(got.roles.iter().all(|role| matches!(role, Role::Follower { .. })), "{:?}", got.roles);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_leaders_death_a_survivor_leads_and_the_dead_one_follows_when_back() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.group().await;
    (0..100).for_each(|number| cluster.propose(leader, format!("one {number}")));
    cluster.all_have(&cluster.ids(), 100).await;
    cluster.kill(leader).await;
    let next = cluster.some_leader(GROUP, &[node(2), node(3)]).await;
    let term = cluster.leader(next).await;
    assert!(term > 1);
    (0..100).for_each(|number| cluster.propose(next, format!("two {number}")));
    cluster.all_have(&[node(2), node(3)], 200).await;
    cluster.revive(leader, &groups()).await;
    cluster.all_have(&cluster.ids(), 200).await;
    let followed = Role::Follower { term, leader: Some(next) };
    cluster.member(leader).until("a follower", |got| got.role == Some(followed)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_heard_is_not_deposed() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.group().await;
    cluster.propose(leader, "known to all");
    cluster.all_have(&cluster.ids(), 1).await;
    cluster.net.cut(leader, node(2));
    // Node 2 lost the leader, but node 3 hears it and refuses.
    cluster.host(node(2)).elect(GROUP).await.unwrap();
    cluster.propose(leader, "still leading");
    cluster.all_have(&[leader, node(3)], 2).await;
    assert_eq!(cluster.host(leader).role(GROUP), Some(Role::Leader { term: 1 }));
    assert!(!cluster.got(node(2)).roles.iter().any(|role| matches!(role, Role::Leader { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unsynced_tail_of_a_dead_leader_does_not_come_back() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.group().await;
    cluster.propose(leader, "kept");
    cluster.all_have(&cluster.ids(), 1).await;
    // The leader's disk stands still and nobody hears it: these entries are nowhere.
    cluster.nodes[&leader].log.hold(true);
    cluster.net.mute(leader);
    (0..20).for_each(|number| cluster.propose(leader, format!("lost {number}")));
    cluster.net.cut(leader, node(2));
    cluster.net.cut(leader, node(3));
    cluster.net.unmute(leader);
    let next = cluster.some_leader(GROUP, &[node(2), node(3)]).await;
    cluster.propose(next, "new");
    cluster.all_have(&[node(2), node(3)], 2).await;
    cluster.kill(leader).await;
    cluster.revive(leader, &groups()).await;
    cluster.all_have(&cluster.ids(), 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synced_tail_that_no_majority_has_is_truncated() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.group().await;
    cluster.propose(leader, "kept");
    cluster.all_have(&cluster.ids(), 1).await;
    cluster.net.mute(leader);
    (0..20).for_each(|number| cluster.propose(leader, format!("lost {number}")));
    cluster.net.cut(leader, node(2));
    cluster.net.cut(leader, node(3));
    cluster.net.unmute(leader);
    let next = cluster.some_leader(GROUP, &[node(2), node(3)]).await;
    cluster.propose(next, "new");
    cluster.all_have(&[node(2), node(3)], 2).await;
    // The old leader still believes in itself; once connected it learns better.
    cluster.net.connect(leader, node(2));
    cluster.net.connect(leader, node(3));
    cluster.propose(next, "newer");
    cluster.all_have(&cluster.ids(), 3).await;
    let last = |got: &Got| matches!(got.role, Some(Role::Follower { leader: Some(_), .. }));
    cluster.member(leader).until("a follower", last).await;
    assert!(cluster.host(leader).propose(GROUP, Bytes::from("no")).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_unsynced_tail_both_followers_hold_does_not_lose_it() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.group().await;
    cluster.nodes[&leader].log.hold(true);
    (0..20).for_each(|number| cluster.propose(leader, format!("held {number}")));
    // Committed by the followers alone.
    cluster.all_have(&[node(2), node(3)], 20).await;
    cluster.kill(leader).await;
    cluster.revive(leader, &groups()).await;
    // It may stand again; it has lost its tail, so it cannot win.
    let next = cluster.some_leader(GROUP, &[node(2), node(3)]).await;
    cluster.propose(next, "more");
    cluster.all_have(&cluster.ids(), 21).await;
}
