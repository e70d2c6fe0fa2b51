//! Groups that nobody uses sleep, and nobody who uses them notices.

use crate::change::Change;
use crate::member::Role;
use crate::rest::Rest;
use crate::tests::support::{Cluster, GROUP, PATIENCE, node};
use bytes::Bytes;
use model::id::NodeId;
use std::collections::BTreeSet;
use std::time::Duration;

const AFTER: Duration = Duration::from_secs(2);

/// A group on three nodes that has one entry and sleeps everywhere.
async fn sleeping() -> (Cluster, NodeId) {
    let mut cluster = Cluster::new(3);
    cluster.rest_after(AFTER);
    let leader = cluster.group().await;
    cluster.propose(leader, "one");
    cluster.all_have(&cluster.ids(), 1).await;
    cluster.asleep(&cluster.ids()).await;
    (cluster, leader)
}

fn terms(cluster: &Cluster) -> Vec<u64> {
    let term = |id: &NodeId| cluster.host(*id).status(GROUP).unwrap().term;
    cluster.ids().iter().map(term).collect()
}

#[tokio::test(start_paused = true)]
async fn a_proposal_wakes_a_group_and_nobody_is_elected() {
    let (cluster, leader) = sleeping().await;
    let (before, sent) = (terms(&cluster), cluster.net.messages());
    tokio::time::sleep(PATIENCE).await;
    assert_eq!(cluster.net.messages(), sent, "it costs nothing");
    assert_eq!(cluster.host(leader).role(GROUP), Some(Role::Leader { term: 1 }));
    for round in 2..5 {
        cluster.propose(leader, "more");
        cluster.all_have(&cluster.ids(), round).await;
        cluster.asleep(&cluster.ids()).await;
    }
    cluster.propose(leader, "two at");
    cluster.propose(leader, "once");
    cluster.all_have(&cluster.ids(), 6).await;
    assert_eq!(terms(&cluster), before);
    let roles = cluster.got(leader).roles;
    let led = roles.iter().filter(|role| matches!(role, Role::Leader { .. })).count();
    assert_eq!(led, 1, "{roles:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_used_stays_awake() {
    let mut cluster = Cluster::new(3);
    cluster.rest_after(AFTER);
    let leader = cluster.group().await;
    for count in 1..30 {
        cluster.propose(leader, "again");
        cluster.all_have(&cluster.ids(), count).await;
        tokio::time::sleep(AFTER / 2).await;
        assert!(cluster.ids().iter().all(|id| !cluster.sleeps(*id)));
    }
}

#[tokio::test(start_paused = true)]
async fn looking_at_a_group_does_not_wake_it() {
    let (cluster, leader) = sleeping().await;
    for id in cluster.ids() {
        let status = cluster.host(id).status(GROUP).unwrap();
        assert!(status.is_asleep && !status.is_changing, "{status:?}");
        assert_eq!((status.leader, status.term), (Some(leader), 1));
        let one = status.last;
        assert!(one.is_some());
        assert_eq!((status.committed, status.applied), (one, one));
        assert_eq!(status.members.len(), 3);
        let matched = status.members.iter().filter(|member| member.matched == one).count();
        assert_eq!(matched, if id == leader { 3 } else { 0 });
    }
    cluster.asleep(&cluster.ids()).await;
}

#[tokio::test(start_paused = true)]
async fn survivors_find_a_leader_of_a_group_that_slept() {
    let (mut cluster, leader) = sleeping().await;
    cluster.kill(leader).await;
    let heir = cluster.some_leader(GROUP, &[node(2), node(3)]).await;
    cluster.propose(heir, "two");
    cluster.all_have(&[node(2), node(3)], 2).await;
    cluster.asleep(&[node(2), node(3)]).await;
    // The dead one lacks that. Nobody uses the group when it is back.
    cluster.revive(leader, &BTreeSet::from([GROUP])).await;
    cluster.all_have(&cluster.ids(), 2).await;
    assert_eq!(cluster.host(leader).status(GROUP).unwrap().leader, Some(heir));
    cluster.asleep(&cluster.ids()).await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_starts_again_wakes_nobody_if_it_lacks_nothing() {
    let (mut cluster, leader) = sleeping().await;
    for victim in [node(2), node(3)] {
        cluster.kill(victim).await;
        cluster.revive(victim, &BTreeSet::from([GROUP])).await;
        let heard = async {
            while cluster.host(victim).status(GROUP).unwrap().leader != Some(leader) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, heard).await.unwrap();
        assert!(cluster.ids().iter().all(|id| cluster.sleeps(*id)));
        assert_eq!(cluster.got(victim).entries.len(), 1, "it has what was committed");
    }
    cluster.propose(leader, "two");
    cluster.all_have(&cluster.ids(), 2).await;
    assert_eq!(terms(&cluster), [1, 1, 1]);
}

/// A group of which nodes 1 and 2 sleep and have two entries, while node 3 has the second one without
/// knowing that it is committed: the leader could not tell it any more, since this happened first.
async fn untold(happens: impl Fn(&Cluster, NodeId, NodeId)) -> (Cluster, NodeId, NodeId) {
    let (cluster, leader) = sleeping().await;
    let (other, away) = (node(2), node(3));
    let before = cluster.host(leader).status(GROUP).unwrap().last;
    let has_it = || {
        let members = cluster.host(leader).status(GROUP).unwrap().members;
        members.iter().any(|one| one.node == away && one.matched > before)
    };
    for log in [leader, other].map(|id| &cluster.nodes[&id].log) {
        log.hold(true);
    }
    cluster.propose(leader, "two");
    let heard = async {
        while !has_it() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, heard).await.unwrap();
    happens(&cluster, leader, away);
    for log in [leader, other].map(|id| &cluster.nodes[&id].log) {
        log.hold(false);
    }
    cluster.all_have(&[leader, other], 2).await;
    assert_eq!(cluster.got(away).entries.len(), 1);
    cluster.asleep(&[leader, other]).await;
    assert!(has_it());
    (cluster, leader, away)
}

/// A member that has all entries, and lost its leader before it heard that the last one is committed,
/// hears so when they see each other again, although the leader slept meanwhile and is not used.
#[tokio::test(start_paused = true)]
async fn a_member_that_does_not_know_what_is_committed_hears_it_when_it_is_back() {
    let cut = |cluster: &Cluster, leader, away| cluster.net.cut(leader, away);
    let (cluster, leader, away) = untold(cut).await;
    cluster.asleep(&[away]).await;
    assert_eq!(cluster.got(away).entries.len(), 1);
    cluster.net.connect(leader, away);
    cluster.all_have(&cluster.ids(), 2).await;
    cluster.asleep(&cluster.ids()).await;
    assert_eq!(terms(&cluster), [1, 1, 1]);
}

/// The append that would have told it waits for room when the leader falls asleep.
#[tokio::test(start_paused = true)]
async fn who_falls_asleep_says_what_is_committed() {
    let crowd = |cluster: &Cluster, leader, away| cluster.net.crowd(leader, away, true);
    let (cluster, leader, away) = untold(crowd).await;
    cluster.all_have(&cluster.ids(), 2).await;
    cluster.asleep(&cluster.ids()).await;
    cluster.net.crowd(leader, away, false);
    cluster.propose(leader, "three");
    cluster.all_have(&cluster.ids(), 3).await;
    assert_eq!(terms(&cluster), [1, 1, 1]);
}

/// It still takes itself for a member and asks who leads. That changes nothing for it.
#[tokio::test(start_paused = true)]
async fn a_node_that_was_taken_out_wakes_nobody() {
    let (mut cluster, leader) = sleeping().await;
    let (heir, out) = (node(2), node(3));
    cluster.kill(out).await;
    cluster.host(leader).change(GROUP, Change::Remove(out)).await.unwrap();
    cluster.host(leader).transfer(GROUP, heir).await.unwrap();
    cluster.leader(heir).await;
    cluster.propose(heir, "two");
    cluster.all_have(&[leader, heir], 2).await;
    cluster.asleep(&[leader, heir]).await;
    cluster.revive(out, &BTreeSet::from([GROUP])).await;
    let asked = cluster.net.requests();
    let slept = || [leader, heir].map(|id| cluster.host(id).awake().1);
    let before = slept();
    tokio::time::sleep(PATIENCE).await;
    assert!(cluster.net.requests() > asked + 10, "it asks all the time");
    assert_eq!(slept(), before);
    assert!(cluster.sleeps(leader) && cluster.sleeps(heir));
}

#[tokio::test(start_paused = true)]
async fn all_start_asleep_and_one_is_elected() {
    let (mut cluster, _) = sleeping().await;
    let ids = cluster.ids();
    for id in &ids {
        cluster.kill(*id).await;
    }
    for id in &ids {
        cluster.revive(*id, &BTreeSet::from([GROUP])).await;
    }
    let leader = cluster.some_leader(GROUP, &ids).await;
    cluster.propose(leader, "two");
    cluster.all_have(&ids, 2).await;
    assert!(terms(&cluster).iter().all(|term| *term > 1), "a process that starts leads nothing");
    cluster.asleep(&ids).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_in_its_sleep_leads_no_longer() {
    let (cluster, leader) = sleeping().await;
    cluster.net.cut(leader, node(2));
    cluster.net.cut(leader, node(3));
    assert!(cluster.host(leader).propose(GROUP, Bytes::from("no")).is_err());
    assert!(cluster.sleeps(leader), "it need not wake for that");
    let heir = cluster.some_leader(GROUP, &[node(2), node(3)]).await;
    cluster.propose(heir, "two");
    cluster.all_have(&[node(2), node(3)], 2).await;
    cluster.net.connect(leader, node(2));
    cluster.net.connect(leader, node(3));
    cluster.all_have(&cluster.ids(), 2).await;
    cluster.asleep(&cluster.ids()).await;
}

#[tokio::test(start_paused = true)]
async fn all_are_alone_in_their_sleep_and_find_each_other() {
    let (cluster, leader) = sleeping().await;
    for (one, other) in [(1, 2), (1, 3), (2, 3)] {
        cluster.net.cut(node(one), node(other));
    }
    tokio::time::sleep(PATIENCE).await;
    assert!(cluster.ids().iter().all(|id| cluster.sleeps(*id)));
    cluster.net.connect(node(2), node(3));
    let heir = cluster.some_leader(GROUP, &[node(2), node(3)]).await;
    cluster.net.connect(leader, heir);
    cluster.propose(heir, "two");
    cluster.all_have(&cluster.ids(), 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_in_its_sleep_is_replaced() {
    let (cluster, leader) = sleeping().await;
    cluster.host(leader).stop(GROUP).await;
    let heir = cluster.some_leader(GROUP, &[node(2), node(3)]).await;
    cluster.propose(heir, "two");
    cluster.all_have(&[node(2), node(3)], 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_sleeping_group_can_be_given_away_changed_and_asked() {
    let (cluster, leader) = sleeping().await;
    cluster.host(leader).transfer(GROUP, node(2)).await.unwrap();
    cluster.leader(node(2)).await;
    cluster.asleep(&cluster.ids()).await;
    assert!(cluster.host(node(2)).read_index(GROUP).await.is_ok());
    cluster.asleep(&cluster.ids()).await;
    cluster.host(node(2)).change(GROUP, Change::Remove(node(3))).await.unwrap();
    cluster.asleep(&[node(1), node(2)]).await;
    assert_eq!(cluster.host(node(1)).status(GROUP).unwrap().members.len(), 2);
    cluster.host(node(2)).checkpoint(GROUP).await.unwrap();
    cluster.host(node(2)).delete(GROUP).await;
    assert_eq!(cluster.host(node(2)).status(GROUP), None);
}

/// Its leader is none for openraft until a majority has answered it.
#[tokio::test(start_paused = true)]
async fn members_of_a_sleeping_group_change_also_when_answers_take_time() {
    let (cluster, leader) = sleeping().await;
    cluster.net.delay(Duration::from_millis(20));
    let out = node(3);
    cluster.host(leader).change(GROUP, Change::Remove(out)).await.unwrap();
    cluster.asleep(&[leader, node(2)]).await;
    cluster.host(leader).change(GROUP, Change::AddLearner(out)).await.unwrap();
    cluster.asleep(&cluster.ids()).await;
    cluster.host(leader).change(GROUP, Change::Promote(out)).await.unwrap();
    cluster.asleep(&cluster.ids()).await;
    cluster.host(leader).transfer(GROUP, out).await.unwrap();
    cluster.leader(out).await;
}

#[tokio::test(start_paused = true)]
async fn a_vote_that_is_not_synced_keeps_awake() {
    let mut cluster = Cluster::new(3);
    cluster.rest_after(AFTER);
    let leader = cluster.group().await;
    cluster.propose(leader, "one");
    cluster.all_have(&cluster.ids(), 1).await;
    // The others have it, so it is committed; this one's disk is slow.
    cluster.nodes[&leader].log.hold(true);
    cluster.propose(leader, "two");
    cluster.all_have(&cluster.ids(), 2).await;
    tokio::time::sleep(AFTER * 5).await;
    assert!(!cluster.sleeps(leader));
    cluster.nodes[&leader].log.hold(false);
    cluster.asleep(&cluster.ids()).await;
}

#[tokio::test(start_paused = true)]
async fn of_too_many_those_that_were_used_last_stay_awake() {
    let mut cluster = Cluster::new(1);
    let after = Duration::from_hours(1);
    cluster.rest = Rest { after: Some(after), awake_max: 3 };
    cluster.restart_hosts();
    let groups: Vec<_> = (100..108).map(crate::group::GroupId).collect();
    cluster.groups(&groups).await;
    let host = cluster.host(node(1));
    let awake = || -> Vec<_> {
        let is_awake = |group: &&crate::group::GroupId| !host.status(**group).unwrap().is_asleep;
        groups.iter().filter(is_awake).copied().collect()
    };
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(awake().len(), 3);
    for group in &groups[..3] {
        host.propose(*group, Bytes::from("used")).unwrap();
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(awake(), groups[..3]);
}

/// Followers may answer a leader that wakes before it is quite awake.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_that_sleep_and_wake_all_the_time_lose_no_answer() {
    let mut cluster = Cluster::new(3);
    cluster.rest_after(Duration::from_millis(20));
    let groups: Vec<_> = (100..140).map(crate::group::GroupId).collect();
    cluster.groups(&groups).await;
    for round in 1..=12 {
        for group in &groups {
            cluster.host(node(1)).propose(*group, Bytes::from("again")).unwrap();
        }
        for group in &groups {
            let member = &cluster.nodes[&node(1)].members[group];
            member.until("committed", |got| got.entries.len() >= round).await;
        }
        let is_awake = |group| !cluster.host(node(1)).status(group).unwrap().is_asleep;
        while groups.iter().any(|group| is_awake(*group)) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// A record of it cannot be read: it has failed here, and the others go on.
#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_wake_leads_no_longer() {
    let (cluster, leader) = sleeping().await;
    cluster.host(leader).checkpoint(GROUP).await.unwrap();
    cluster.asleep(&cluster.ids()).await;
    cluster.nodes[&leader].log.hide(true);
    cluster.propose(leader, "nobody hears of it");
    let heir = cluster.some_leader(GROUP, &[node(2), node(3)]).await;
    cluster.propose(heir, "two");
    cluster.all_have(&[node(2), node(3)], 2).await;
    let failed = cluster.host(leader).status(GROUP).unwrap();
    assert!(failed.has_failed && failed.members.len() == 3, "{failed:?}");
    assert!(!matches!(failed.role, Role::Leader { .. }), "{failed:?}");
    assert!(!cluster.host(heir).status(GROUP).unwrap().has_failed);
}
