//! Groups that begin by a record: nobody says anything until somebody uses them.

use crate::change::Change;
use crate::founding::Founding;
use crate::host::{Care, Host, Options};
use crate::log::Log;
use crate::member::{Boxed, Member, NotConnected, RequestError, Role, Transport};
use crate::rpc::Message;
use crate::tests::support::{Cluster, GROUP, MemoryLog, PATIENCE, Recorder, node};
use bytes::Bytes;
use model::id::NodeId;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const AFTER: Duration = Duration::from_secs(2);

/// A group that has begun on all nodes, or on so many, and is led by the first.
async fn begun(count: u64) -> Cluster {
    let mut cluster = Cluster::new(3);
    cluster.rest_after(AFTER);
    for number in 1..=count {
        cluster.begin(node(number), true).await;
    }
    cluster
}

fn role(cluster: &Cluster, id: NodeId) -> Role {
    cluster.host(id).role(GROUP).unwrap()
}

fn voters(cluster: &Cluster, id: NodeId) -> Vec<NodeId> {
    cluster.host(id).status(GROUP).unwrap().members.iter().map(|one| one.node).collect()
}

#[tokio::test(start_paused = true)]
async fn the_first_leads_and_nobody_says_anything() {
    let cluster = begun(3).await;
    assert_eq!(role(&cluster, node(1)), Role::Leader { term: 1 });
    tokio::time::sleep(PATIENCE).await;
    assert_eq!((cluster.net.messages(), cluster.net.requests()), (0, 0));
    for id in cluster.ids() {
        assert!(cluster.sleeps(id));
        assert_eq!(voters(&cluster, id), cluster.ids());
        assert_eq!(cluster.got(id).voters, cluster.ids());
        assert_eq!(cluster.host(id).status(GROUP).unwrap().leader, Some(node(1)));
    }
    cluster.propose(node(1), "one");
    cluster.propose(node(1), "two");
    cluster.all_have(&cluster.ids(), 2).await;
    assert_eq!(role(&cluster, node(1)), Role::Leader { term: 1 });
    cluster.asleep(&cluster.ids()).await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_hears_of_it_late_follows() {
    let mut cluster = begun(2).await;
    cluster.propose(node(1), "one");
    cluster.all_have(&[node(1), node(2)], 1).await;
    cluster.begin(node(3), true).await;
    cluster.all_have(&cluster.ids(), 1).await;
    cluster.asleep(&cluster.ids()).await;
}

#[tokio::test(start_paused = true)]
async fn without_the_first_another_one_is_elected() {
    let mut cluster = begun(3).await;
    cluster.kill(node(1)).await;
    let heir = cluster.some_leader(GROUP, &[node(2), node(3)]).await;
    assert_eq!(role(&cluster, heir), Role::Leader { term: 2 });
    cluster.propose(heir, "one");
    cluster.all_have(&[node(2), node(3)], 1).await;
    // It has never written anything down, and begins again.
    let log = cluster.grave(node(1));
    assert!(log.recovered(GROUP.stream()).is_empty());
    cluster.revive(node(1), &std::collections::BTreeSet::new()).await;
    cluster.begin(node(1), false).await;
    cluster.all_have(&cluster.ids(), 1).await;
    assert_eq!(role(&cluster, node(1)), Role::Follower { term: 2, leader: Some(heir) });
}

/// The first process may have sent what its disk has lost.
#[tokio::test(start_paused = true)]
async fn a_later_process_of_the_first_leads_nothing() {
    let mut cluster = begun(3).await;
    cluster.nodes[&node(1)].log.hold(true);
    cluster.propose(node(1), "one");
    cluster.all_have(&cluster.ids(), 1).await;
    cluster.kill(node(1)).await;
    assert!(cluster.grave(node(1)).recovered(GROUP.stream()).is_empty());
    cluster.revive(node(1), &std::collections::BTreeSet::new()).await;
    cluster.begin(node(1), false).await;
    assert!(cluster.host(node(1)).propose(GROUP, "no".into()).is_err());
    let heir = cluster.some_leader(GROUP, &[node(2), node(3)]).await;
    cluster.propose(heir, "two");
    cluster.all_have(&cluster.ids(), 2).await;
}

#[tokio::test(start_paused = true)]
async fn how_it_began_is_written_down_in_time() {
    let mut cluster = begun(3).await;
    tokio::time::sleep(AFTER).await;
    for id in cluster.ids() {
        cluster.kill(id).await;
        let recovered = cluster.grave(id).recovered(GROUP.stream());
        assert!(!recovered.is_empty() && recovered.damage().is_none());
    }
    for number in 1..=3 {
        cluster.revive(node(number), &[GROUP].into()).await;
    }
    let leader = cluster.some_leader(GROUP, &cluster.ids()).await;
    assert_eq!(role(&cluster, leader), Role::Leader { term: 2 });
    cluster.propose(leader, "one");
    cluster.all_have(&cluster.ids(), 1).await;
}

#[tokio::test(start_paused = true)]
async fn nobody_leads_until_somebody_is_elected_if_the_first_is_not_there() {
    let mut cluster = Cluster::new(3);
    cluster.rest_after(AFTER);
    for number in 1..=3 {
        cluster.begin(node(number), false).await;
    }
    let leader = cluster.some_leader(GROUP, &cluster.ids()).await;
    assert_eq!(role(&cluster, leader), Role::Leader { term: 2 });
    cluster.propose(leader, "one");
    cluster.all_have(&cluster.ids(), 1).await;
}

/// It has been deposed by others, and one member has not heard of that.
#[tokio::test(start_paused = true)]
async fn a_leader_that_asks_is_not_believed_to_lead() {
    let mut cluster = begun(2).await;
    cluster.host(node(1)).transfer(GROUP, node(2)).await.unwrap();
    cluster.leader(node(2)).await;
    cluster.net.cut(node(2), node(3));
    cluster.begin(node(3), true).await;
    assert_eq!(cluster.host(node(3)).status(GROUP).unwrap().leader, Some(node(1)));
    cluster.kill(node(2)).await;
    let heir = cluster.some_leader(GROUP, &[node(1), node(3)]).await;
    cluster.propose(heir, "one");
    cluster.all_have(&[node(1), node(3)], 1).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_nobody_has_used_can_be_changed_asked_and_given_away() {
    let cluster = begun(3).await;
    assert!(cluster.host(node(1)).read_index(GROUP).await.is_ok());
    let cluster = begun(3).await;
    cluster.host(node(1)).change(GROUP, Change::Remove(node(3))).await.unwrap();
    assert_eq!(voters(&cluster, node(1)), [node(1), node(2)]);
    let cluster = begun(3).await;
    cluster.host(node(1)).transfer(GROUP, node(2)).await.unwrap();
    cluster.leader(node(2)).await;
    let cluster = begun(3).await;
    cluster.host(node(1)).checkpoint(GROUP).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn groups_that_never_sleep_begin_in_the_same_way() {
    let mut cluster = Cluster::new(3);
    for number in 1..=3 {
        cluster.begin(node(number), true).await;
    }
    cluster.propose(node(1), "one");
    cluster.all_have(&cluster.ids(), 1).await;
    assert_eq!(role(&cluster, node(1)), Role::Leader { term: 1 });
}

/// Followers that answer a leader before it has gone on.
#[derive(Default)]
struct Prompt(OnceLock<Host>);

impl Transport for Prompt {
    fn send(&self, to: NodeId, payload: Bytes) -> Result<(), NotConnected> {
        if let Message::Append { group, session, number, request } =
            Message::decode(payload).unwrap()
        {
            let last = request.entries.last().map(|entry| entry.log_id);
            let result = Ok(last.or(request.prev_log_id));
            let answer = Message::Appended { group, session, number, result };
            self.0.get().unwrap().on_messages(to, &mut vec![answer.encode()]);
        }
        Ok(())
    }

    fn has_room(&self, _: NodeId) -> bool {
        true
    }

    fn room(&self, _: NodeId) -> Boxed<()> {
        Box::pin(std::future::ready(()))
    }

    fn request(&self, _: NodeId, _: Bytes, _: Duration) -> Boxed<Result<Bytes, RequestError>> {
        Box::pin(std::future::pending())
    }
}

/// A leader speaks as soon as openraft is there: what it is answered then must find it.
#[tokio::test(start_paused = true)]
async fn one_that_never_sleeps_hears_those_that_answer_at_once() {
    let (net, log) = (Arc::new(Prompt::default()), MemoryLog::new());
    let shared: Arc<dyn Log> = Arc::clone(&log) as _;
    let host = Host::new(Options::new(node(1)), shared, log.watermark(), Arc::clone(&net) as _);
    net.0.set(host.clone()).unwrap();
    let members: Vec<NodeId> = (1..=3).map(node).collect();
    members[1..].iter().for_each(|other| host.on_up(*other));
    let recorder = Recorder::new();
    let member: Arc<dyn Member> = Arc::clone(&recorder) as _;
    let recovered = log.recovered(GROUP.stream()).founded(Founding { members, is_led: true });
    host.start(GROUP, Care::Supervised, member, recovered).await.unwrap();
    host.propose(GROUP, "one".into()).unwrap();
    recorder.until("committed", |got| got.entries.len() == 1).await;
}

/// Votes may use the reserve of a full disk, entries may not: what is left of the beginning is the
/// vote alone.
#[tokio::test(start_paused = true)]
async fn what_began_while_the_disks_were_full_begins_again() {
    let mut cluster = begun(3).await;
    for id in cluster.ids() {
        cluster.nodes[&id].log.fill(true);
    }
    tokio::time::sleep(AFTER).await;
    for id in cluster.ids() {
        cluster.kill(id).await;
        let recovered = cluster.grave(id).recovered(GROUP.stream());
        assert!(recovered.vote.is_some() && recovered.entries.is_empty());
    }
    for number in 1..=3 {
        cluster.revive(node(number), &std::collections::BTreeSet::new()).await;
        cluster.begin(node(number), false).await;
    }
    let leader = cluster.some_leader(GROUP, &cluster.ids()).await;
    cluster.propose(leader, "one");
    cluster.all_have(&cluster.ids(), 1).await;
    tokio::time::sleep(AFTER).await;
    cluster.kill(node(1)).await;
    let recovered = cluster.grave(node(1)).recovered(GROUP.stream());
    assert!(recovered.damage().is_none() && recovered.stale.is_empty());
}
