//! Leaders are found without anybody's help, and not more often than needed.

use crate::group::GroupId;
use crate::host::Care;
use crate::member::Role;
use crate::tests::support::{Cluster, GROUP, Got, node};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

fn leads(got: &Got) -> bool {
    matches!(got.role, Some(Role::Leader { .. }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn survivors_elect_by_themselves_and_the_one_with_the_longer_log_wins() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.group().await;
    cluster.propose(leader, "one");
    cluster.all_have(&cluster.ids(), 1).await;
    // Node 2 misses what follows.
    cluster.net.cut(leader, node(2));
    cluster.propose(leader, "two");
    cluster.all_have(&[leader, node(3)], 2).await;
    cluster.kill(leader).await;
    cluster.leader(node(3)).await;
    cluster.propose(node(3), "three");
    cluster.all_have(&[node(2), node(3)], 3).await;
    // And when the dead one is back, nothing changes.
    cluster.revive(leader, &BTreeSet::from([GROUP])).await;
    cluster.all_have(&cluster.ids(), 3).await;
    let terms: BTreeSet<u64> = cluster
        .got(node(2))
        .roles
        .iter()
        .map(|role| match role {
            Role::Leader { term } | Role::Follower { term, .. } => *term,
        })
        .collect();
    assert!(terms.len() <= 3, "{terms:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_groups_are_spread_over_the_survivors() {
    let mut cluster = Cluster::new(3);
    let groups: Vec<GroupId> = (100..160).map(GroupId).collect();
    cluster.groups(&groups).await;
    cluster.kill(node(1)).await;
    let mut led = [0; 2];
    for group in &groups {
        let leader = cluster.some_leader(*group, &[node(2), node(3)]).await;
        led[usize::try_from(leader.0 - 2).unwrap()] += 1;
    }
    assert!(led.iter().all(|count| *count > 10), "{led:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_all_nodes_died_a_group_finds_a_leader() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.group().await;
    cluster.propose(leader, "kept");
    cluster.all_have(&cluster.ids(), 1).await;
    for number in 1..=3 {
        cluster.kill(node(number)).await;
    }
    let groups = BTreeSet::from([GROUP]);
    cluster.revive(node(1), &groups).await;
    // One alone may not lead.
    tokio::task::yield_now().await;
    assert!(!leads(&cluster.got(node(1))));
    cluster.revive(node(3), &groups).await;
    let leader = cluster.some_leader(GROUP, &[node(1), node(3)]).await;
    cluster.propose(leader, "more");
    cluster.all_have(&[node(1), node(3)], 2).await;
    cluster.revive(node(2), &groups).await;
    cluster.all_have(&cluster.ids(), 2).await;
}

#[tokio::test(start_paused = true)]
async fn two_that_do_not_see_each_other_do_not_depose_each_other_for_ever() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.group().await;
    cluster.propose(leader, "known to all");
    cluster.all_have(&cluster.ids(), 1).await;
    cluster.net.cut(leader, node(2));
    // Node 2 asks, again and again; node 3 hears the leader.
    for number in 0..30 {
        cluster.propose(leader, format!("{number}"));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    cluster.all_have(&[leader, node(3)], 31).await;
    assert_eq!(cluster.host(leader).role(GROUP), Some(Role::Leader { term: 1 }));
    assert_eq!(cluster.host(node(3)).role(GROUP).map(term), Some(1));
    cluster.net.connect(leader, node(2));
    cluster.all_have(&cluster.ids(), 31).await;
}

fn term(role: Role) -> u64 {
    match role {
        Role::Leader { term } | Role::Follower { term, .. } => term,
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_member_costs_no_messages() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.group().await;
    cluster.propose(leader, "one");
    cluster.all_have(&cluster.ids(), 1).await;
    cluster.kill(node(3)).await;
    cluster.propose(leader, "two");
    cluster.all_have(&[leader, node(2)], 2).await;
    let before = cluster.net.messages();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(cluster.net.messages() - before < 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_with_heartbeats_of_its_own_elects_and_survives_its_leader() {
    let mut cluster = Cluster::new(3);
    cluster.care = Care::Heartbeats;
    let leader = cluster.group().await;
    cluster.propose(leader, "one");
    cluster.all_have(&cluster.ids(), 1).await;
    cluster.kill(leader).await;
    let next = cluster.some_leader(GROUP, &[node(2), node(3)]).await;
    cluster.propose(next, "two");
    cluster.all_have(&[node(2), node(3)], 2).await;
    cluster.revive(leader, &BTreeSet::from([GROUP])).await;
    cluster.all_have(&cluster.ids(), 2).await;
}

/// It waits for less than entries of other groups do: so they must not wait for more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_group_with_heartbeats_has_taken_is_on_a_disk_that_is_full() {
    let mut cluster = Cluster::new(3);
    cluster.care = Care::Heartbeats;
    let leader = cluster.group().await;
    cluster.nodes[&node(3)].log.fill(true);
    cluster.propose(leader, "one");
    cluster.all_have(&cluster.ids(), 1).await;
    cluster.kill(node(3)).await;
    let recovered = cluster.grave(node(3)).recovered(GROUP.stream());
    let last = recovered.entries.last().map(|entry| entry.id.index);
    let leader_s = cluster.host(leader).status(GROUP).unwrap().last;
    assert_eq!(last, leader_s);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_stops_while_its_node_lives_is_replaced() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.group().await;
    cluster.propose(leader, "one");
    cluster.all_have(&cluster.ids(), 1).await;
    cluster.host(leader).stop(GROUP).await;
    let next = cluster.some_leader(GROUP, &[node(2), node(3)]).await;
    cluster.propose(next, "two");
    cluster.all_have(&[node(2), node(3)], 2).await;
}

#[tokio::test(start_paused = true)]
async fn fail_over_takes_a_few_messages_and_the_group_in_use_comes_first() {
    const DELAY: Duration = Duration::from_millis(1);
    let mut cluster = Cluster::new(3);
    let groups: Vec<GroupId> = (100..300).map(GroupId).collect();
    cluster.groups(&groups).await;
    // The one in the middle is used last.
    let urgent = groups[100];
    cluster.host(node(1)).propose(urgent, "in use".into()).unwrap();
    for id in cluster.ids() {
        let has_it = |got: &Got| got.entries.len() == 1;
        cluster.nodes[&id].members[&urgent].until("used", has_it).await;
    }
    // The old leader lives on alone.
    cluster.net.delay(DELAY);
    let (begin, requests) = (Instant::now(), cluster.net.requests());
    cluster.net.cut(node(1), node(2));
    cluster.net.cut(node(1), node(3));
    cluster.some_leader(urgent, &[node(2), node(3)]).await;
    // A question, a vote and an entry, each there and back; and what is gathered before a second
    // question, if one noticed before the other.
    let urgent = begin.elapsed();
    assert!(urgent <= 10 * DELAY, "{urgent:?}");
    for group in &groups {
        cluster.some_leader(*group, &[node(2), node(3)]).await;
    }
    // Each survivor leads half of them, 64 at a time.
    let all = begin.elapsed();
    assert!(all <= 30 * DELAY, "{all:?}");
    let requests = cluster.net.requests() - requests;
    assert!(requests <= 210, "{requests} requests");
    for group in &groups {
        let terms = [node(2), node(3)].map(|id| cluster.host(id).role(*group).map(term));
        assert_eq!(terms, [Some(2); 2], "one election was enough");
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_was_under_way_the_next_leader_is_found_at_once() {
    for steps in 0..60 {
        let mut cluster = Cluster::new(3);
        let leader = cluster.group().await;
        cluster.propose(leader, "known to all");
        cluster.all_have(&cluster.ids(), 1).await;
        // The followers' logs grow, each at its own pace, while they find out.
        cluster.net.cut(leader, if steps % 2 == 0 { node(2) } else { node(3) });
        for number in 0..steps {
            cluster.propose(leader, format!("{number}"));
            tokio::task::yield_now().await;
        }
        let begin = Instant::now();
        cluster.kill(leader).await;
        let next = cluster.some_leader(GROUP, &[node(2), node(3)]).await;
        assert!(begin.elapsed() < Duration::from_millis(100), "{steps}: {:?}", begin.elapsed());
        cluster.propose(next, "more");
        let count = cluster.member(next).until("more", |got| has(got, "more")).await.entries.len();
        cluster.all_have(&[node(2), node(3)], count).await;
    }
}

fn has(got: &Got, text: &str) -> bool {
    got.entries.iter().any(|(_, entry)| entry == text)
}

#[tokio::test(start_paused = true)]
async fn candidates_that_refuse_each_other_agree_at_once() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.group().await;
    cluster.propose(leader, "known to all");
    cluster.all_have(&cluster.ids(), 1).await;
    cluster.net.delay(Duration::from_millis(1));
    let begin = Instant::now();
    cluster.kill(leader).await;
    for id in [node(2), node(3)] {
        cluster.host(id).elect(GROUP).await.unwrap();
    }
    let next = cluster.some_leader(GROUP, &[node(2), node(3)]).await;
    assert!(begin.elapsed() < Duration::from_millis(20), "{:?}", begin.elapsed());
    cluster.propose(next, "more");
    cluster.all_have(&[node(2), node(3)], 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_a_majority_is_none_and_can_become_one_again() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.group().await;
    cluster.propose(leader, "known to all");
    cluster.all_have(&cluster.ids(), 1).await;
    cluster.net.cut(leader, node(2));
    assert_eq!(cluster.host(leader).role(GROUP), Some(Role::Leader { term: 1 }));
    cluster.propose(leader, "two are enough");
    cluster.all_have(&[leader, node(3)], 2).await;
    // All three are alone.
    cluster.net.cut(node(2), node(3));
    cluster.net.cut(leader, node(3));
    for id in cluster.ids() {
        let status = cluster.host(id).status(GROUP).unwrap();
        assert!(matches!(status.role, Role::Follower { leader: None, .. }), "{id}: {status:?}");
        assert_eq!(status.leader, None, "{id}");
        assert!(cluster.host(id).propose(GROUP, Bytes::from("no")).is_err());
    }
    // Nor does it lead as soon as the others are back: somebody else may.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let terms: Vec<Option<u64>> =
        cluster.ids().iter().map(|id| cluster.host(*id).role(GROUP).map(term)).collect();
    assert_eq!(terms, [Some(2), Some(1), Some(1)], "nobody stood");
    let begin = Instant::now();
    cluster.net.connect(leader, node(2));
    // Node 2 lacks an entry.
    assert_eq!(cluster.some_leader(GROUP, &[leader, node(2)]).await, leader);
    assert!(begin.elapsed() < Duration::from_millis(100), "{:?}", begin.elapsed());
    cluster.net.connect(leader, node(3));
    cluster.net.connect(node(2), node(3));
    cluster.propose(leader, "three");
    cluster.all_have(&cluster.ids(), 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_leader_is_not_shown_by_those_who_followed_it() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.group().await;
    cluster.propose(leader, "known to all");
    cluster.all_have(&cluster.ids(), 1).await;
    cluster.kill(node(3)).await;
    assert_eq!(cluster.host(node(2)).status(GROUP).unwrap().leader, Some(leader));
    cluster.kill(leader).await;
    assert_eq!(cluster.host(node(2)).status(GROUP).unwrap().leader, None);
}
