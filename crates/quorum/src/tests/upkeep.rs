//! Checkpoints, members that lag, changes of members and of the leader.

use crate::change::Change;
use crate::group::GroupId;
use crate::member::{Body, Role};
use crate::rpc::Request;
use crate::tests::support::{Cluster, GROUP, Got, digest, node};
use crate::types::{VoteRequest, vote};
use bytes::Bytes;
use model::id::NodeId;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

fn groups() -> BTreeSet<GroupId> {
    BTreeSet::from([GROUP])
}

/// Proposals of which some are large.
fn payload(number: usize) -> Bytes {
    let length = if number % 40 == 7 { 1_500_000 } else { 20 + number % 200 };
    let mut payload = vec![u8::try_from(number % 251).unwrap(); length];
    payload[..8].copy_from_slice(&(number as u64).to_le_bytes());
    Bytes::from(payload)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_is_purged_behind_a_checkpoint_and_a_start_begins_there() {
    let mut cluster = Cluster::new(3);
    cluster.keep_nothing();
    let leader = cluster.group().await;
    (0..50).for_each(|number| cluster.propose(leader, payload(number)));
    cluster.all_have(&cluster.ids(), 50).await;
    cluster.host(node(2)).checkpoint(GROUP).await.unwrap();
    cluster.member(node(2)).until("purged", |got| got.purged > 0).await;
    let status = cluster.host(node(2)).status(GROUP).unwrap();
    assert_eq!(status.checkpoint, status.applied);
    assert_eq!(status.purged.map(|purged| purged + 1), status.checkpoint);
    (50..60).for_each(|number| cluster.propose(leader, payload(number)));
    cluster.all_have(&cluster.ids(), 60).await;
    let before = cluster.got(node(2));
    cluster.kill(node(2)).await;
    cluster.revive(node(2), &groups()).await;
    let after = cluster.member(node(2)).until("back", |got| got.entries.len() == 60).await;
    assert_eq!(before.entries, after.entries);
    assert_eq!(after.installs, 1);
    // All entries' records are still there, as bodies, where they were.
    for (index, place) in &before.places {
        assert_eq!(after.places.get(index), Some(place));
    }
    assert!(after.purged > 0);
    // And the log goes on.
    cluster.propose(leader, "more");
    cluster.all_have(&cluster.ids(), 61).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_lags_too_far_gets_the_checkpoint_and_the_bodies() {
    let mut cluster = Cluster::new(3);
    cluster.keep_nothing();
    let leader = cluster.group().await;
    (0..10).for_each(|number| cluster.propose(leader, payload(number)));
    cluster.all_have(&cluster.ids(), 10).await;
    cluster.kill(node(3)).await;
    (10..100).for_each(|number| cluster.propose(leader, payload(number)));
    cluster.all_have(&[leader, node(2)], 100).await;
    cluster.host(leader).checkpoint(GROUP).await.unwrap();
    cluster.member(leader).until("purged", |got| got.purged > 90).await;
    (100..110).for_each(|number| cluster.propose(leader, payload(number)));
    cluster.revive(node(3), &groups()).await;
    cluster.all_have(&cluster.ids(), 110).await;
    let got = cluster.got(node(3));
    assert_eq!(got.installs, 1);
    let carried = got.bodies.iter().filter(|body| matches!(body, Body::Carried { .. })).count();
    assert_eq!(carried, 100);
    check_bodies(&cluster, &got).await;
    // What came is there after a start, too.
    cluster.kill(node(3)).await;
    cluster.revive(node(3), &groups()).await;
    let again = cluster.member(node(3)).until("back", |got| got.entries.len() == 110).await;
    assert_eq!(again.entries, got.entries);
    assert_eq!(again.places, got.places);
    check_bodies(&cluster, &again).await;
}

/// Reads every body of node 3 and compares it with what was proposed.
async fn check_bodies(cluster: &Cluster, got: &Got) {
    let log = cluster.host(node(3)).shared.group(GROUP).unwrap().log.clone();
    for (index, entry) in &got.entries {
        let position = got.places[index];
        let read = log.read_payloads(vec![position]).await.unwrap().pop().unwrap();
        assert_eq!(&digest(&read.unwrap()), entry, "entry {index}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_is_taken_when_the_log_has_grown() {
    let mut cluster = Cluster::new(3);
    cluster.keep_nothing();
    cluster.checkpoint_entries = 100;
    cluster.restart_hosts();
    let leader = cluster.group().await;
    (0..1000).for_each(|number| cluster.propose(leader, format!("{number}")));
    cluster.all_have(&cluster.ids(), 1000).await;
    for id in cluster.ids() {
        cluster.member(id).until("purged", |got| got.purged > 50).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_node_becomes_a_learner_then_a_voter_and_an_old_one_leaves() {
    let mut cluster = Cluster::new(4);
    cluster.keep_nothing();
    let three = [node(1), node(2), node(3)];
    for id in three {
        cluster.start(id, GROUP).await;
    }
    cluster.host(node(1)).initialise(GROUP, &three).await.unwrap();
    cluster.leader(node(1)).await;
    (0..60).for_each(|number| cluster.propose(node(1), payload(number)));
    cluster.all_have(&three, 60).await;
    cluster.host(node(1)).checkpoint(GROUP).await.unwrap();
    cluster.member(node(1)).until("purged", |got| got.purged > 50).await;
    cluster.start(node(4), GROUP).await;
    let host = cluster.host(node(1)).clone();
    host.change(GROUP, Change::AddLearner(node(4))).await.unwrap();
    cluster.all_have(&cluster.ids(), 60).await;
    host.change(GROUP, Change::Promote(node(4))).await.unwrap();
    host.change(GROUP, Change::Remove(node(3))).await.unwrap();
    let left = [node(1), node(2), node(4)];
    for id in left {
        cluster.member(id).until("changed", |got| got.voters == left).await;
    }
    let status = host.status(GROUP).unwrap();
    assert!(!status.is_changing);
    let members: Vec<_> = status.members.iter().map(|member| member.node).collect();
    assert_eq!(members, left);
    cluster.propose(node(1), "more");
    cluster.all_have(&left, 61).await;
    // The new member can lead.
    cluster.kill(node(1)).await;
    let next = cluster.some_leader(GROUP, &[node(2), node(4)]).await;
    cluster.propose(next, "and more");
    cluster.all_have(&[node(2), node(4)], 62).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_gives_its_leadership_away() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.group().await;
    (0..100).for_each(|number| cluster.propose(leader, payload(number)));
    cluster.host(leader).transfer(GROUP, node(3)).await.unwrap();
    assert!(cluster.host(leader).propose(GROUP, Bytes::from("no")).is_err());
    cluster.leader(node(3)).await;
    cluster.propose(node(3), "more");
    cluster.all_have(&cluster.ids(), 101).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_that_fails_leaves_a_leader_that_takes_proposals() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.group().await;
    cluster.kill(node(3)).await;
    assert!(cluster.host(leader).transfer(GROUP, node(3)).await.is_err());
    let over = |got: &Got| !matches!(got.role, Some(Role::Leader { term: 1 }));
    cluster.member(leader).until("no leader of that term", over).await;
    let next = cluster.some_leader(GROUP, &[leader, node(2)]).await;
    cluster.propose(next, "more");
    cluster.all_have(&[leader, node(2)], 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_leader_that_a_majority_hears_may_be_read_from() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.group().await;
    (0..10).for_each(|number| cluster.propose(leader, payload(number)));
    let index = cluster.host(leader).read_index(GROUP).await.unwrap();
    assert!(cluster.got(leader).last >= Some(index));
    assert!(cluster.host(node(2)).read_index(GROUP).await.is_err());
    cluster.net.cut(leader, node(2));
    cluster.net.cut(leader, node(3));
    assert!(cluster.host(leader).read_index(GROUP).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_that_fails_stops_the_group_aloud() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.group().await;
    cluster.nodes[&node(2)].log.hold(true);
    cluster.propose(leader, "one");
    cluster.all_have(&[leader, node(3)], 1).await;
    drop(cluster.nodes[&node(2)].log.crash());
    cluster.member(node(2)).until("failed", |got| got.failed.is_some()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_group_fails_is_followed_by_another_one() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.group().await;
    cluster.propose(leader, "one");
    cluster.all_have(&cluster.ids(), 1).await;
    cluster.nodes[&leader].log.hold(true);
    cluster.propose(leader, "two");
    drop(cluster.nodes[&leader].log.crash());
    cluster.member(leader).until("failed", |got| got.failed.is_some()).await;
    // It is connected, and has the newest log perhaps.
    let others: Vec<NodeId> = cluster.ids().into_iter().filter(|node| *node != leader).collect();
    let next = cluster.some_leader(GROUP, &others).await;
    cluster.propose(next, "three");
    assert!(!matches!(cluster.host(leader).role(GROUP), Some(Role::Leader { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_closes_lets_go_of_its_log_at_once() {
    // The one that ends leads, and has lost one member; or it has lost all, and asks who leads.
    for lost in 0..=2 {
        let mut cluster = Cluster::new(3);
        let leader = cluster.group().await;
        cluster.propose(leader, "one");
        cluster.all_have(&cluster.ids(), 1).await;
        cluster.net.delay(Duration::from_millis(10));
        for number in 0..lost {
            cluster.kill(node(3 - number)).await;
        }
        if lost == 0 {
            // A question is under way, and so is an election.
            cluster.host(leader).stop(GROUP).await;
            cluster.start(leader, GROUP).await;
            cluster.host(leader).elect(GROUP).await.unwrap();
        }
        // Another node has something for a group that is not there.
        let request = VoteRequest::new(vote(1, 2, false), None);
        let request = Request::Vote { group: GroupId(1), request };
        let (answer, answered) = tokio::sync::oneshot::channel();
        let reply = Box::new(move |bytes| drop(answer.send(bytes)));
        cluster.host(leader).on_request(node(2), request.encode(), reply);
        tokio::task::yield_now().await;
        let begin = Instant::now();
        let log = cluster.close(leader).await;
        assert!(answered.await.is_err());
        // What is on its way arrives in vain; nothing else is waited for.
        while Arc::strong_count(&log) > 1 {
            assert!(begin.elapsed() <= Duration::from_millis(20), "with {lost} lost");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// What is received and not on the disk is in memory.
#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_holds_up_whoever_brings_its_member_up() {
    let mut cluster = Cluster::new(3);
    cluster.keep_nothing();
    let leader = cluster.group().await;
    cluster.all_have(&cluster.ids(), 0).await;
    cluster.kill(node(3)).await;
    let body = Bytes::from(vec![7; 1 << 20]);
    (0..12).for_each(|_| cluster.propose(leader, body.clone()));
    cluster.all_have(&[leader, node(2)], 12).await;
    cluster.host(leader).checkpoint(GROUP).await.unwrap();
    cluster.member(leader).until("purged", |got| got.purged > 10).await;
    cluster.grave(node(3)).hold(true);
    cluster.revive(node(3), &groups()).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let waiting = cluster.nodes[&node(3)].log.waiting();
    assert!((1 << 20..4 << 20).contains(&waiting), "{waiting} bytes");
    cluster.nodes[&node(3)].log.hold(false);
    cluster.all_have(&cluster.ids(), 12).await;
}

#[tokio::test(start_paused = true)]
async fn groups_that_are_asked_for_and_never_start_leave_nothing() {
    let cluster = Cluster::new(2);
    let shared = &cluster.host(node(1)).shared;
    for number in 500..600 {
        let request = Request::Vote {
            group: GroupId(number),
            request: VoteRequest::new(vote(1, 2, false), None),
        };
        cluster.host(node(1)).on_request(node(2), request.encode(), Box::new(|_| ()));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(shared.awaited.lock().len(), 100);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(shared.awaited.lock().len(), 0);
}

/// Whoever asked for it has gone, and the heir does not take over.
#[tokio::test(start_paused = true)]
async fn a_leader_whose_heir_hangs_leads_again_though_nobody_waits_for_it() {
    let mut cluster = Cluster::new(3);
    let leader = cluster.group().await;
    cluster.propose(leader, "one");
    cluster.all_have(&cluster.ids(), 1).await;
    cluster.nodes[&node(2)].log.hold(true);
    let host = cluster.host(leader).clone();
    let transfer = host.transfer(GROUP, node(2));
    let cut_off = tokio::time::timeout(Duration::from_millis(100), transfer).await;
    assert!(cut_off.is_err(), "{cut_off:?}");
    let heir = cluster.some_leader(GROUP, &[leader, node(3)]).await;
    cluster.propose(heir, "two");
    cluster.all_have(&[leader, node(3)], 2).await;
}
