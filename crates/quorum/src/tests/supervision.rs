//! Leaders are found without anybody's help, and not more often than needed.

use crate::group::GroupId;
use crate::host::Care;
use crate::member::Role;
use crate::tests::support::{Cluster, GROUP, Got, node};
use std::collections::BTreeSet;
use std::time::Duration;

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
    let ids = cluster.ids();
    let groups: Vec<GroupId> = (100..160).map(GroupId).collect();
    for group in &groups {
        for id in &ids {
            cluster.start(*id, *group).await;
        }
        cluster.host(node(1)).initialise(*group, &ids).await.unwrap();
    }
    for group in &groups {
        assert_eq!(cluster.some_leader(*group, &ids).await, node(1));
        for id in &ids {
            let founded = |got: &Got| got.voters.len() == 3;
            cluster.nodes[id].members[group].until("founded", founded).await;
        }
    }
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
async fn fail_over_takes_a_moment_even_if_the_old_leader_lives_on_alone() {
    let mut cluster = Cluster::new(3);
    let ids = cluster.ids();
    let groups: Vec<GroupId> = (100..130).map(GroupId).collect();
    for group in &groups {
        for id in &ids {
            cluster.start(*id, *group).await;
        }
        cluster.host(node(1)).initialise(*group, &ids).await.unwrap();
        cluster.some_leader(*group, &ids).await;
        for id in &ids {
            let founded = |got: &Got| got.voters.len() == 3;
            cluster.nodes[id].members[group].until("founded", founded).await;
        }
    }
    // What happened while they were founded is over.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = tokio::time::Instant::now();
    cluster.net.cut(node(1), node(2));
    cluster.net.cut(node(1), node(3));
    for group in &groups {
        cluster.some_leader(*group, &[node(2), node(3)]).await;
    }
    assert!(before.elapsed() < Duration::from_secs(1), "{:?}", before.elapsed());
}
