//! Members of quorum queues that are added and deleted while the queues are used.

use e2e::client::Client;
use e2e::client::topology::DURABLE;
use e2e::cluster::{Cluster, Setup, quorum};
use e2e::codec::Table;
use e2e::http::Answer;
use e2e::table;
use e2e::wait::{until, until_equal};
use serde_json::{Value, json};

const ALL: [&str; 3] = ["leveret@n0", "leveret@n1", "leveret@n2"];

/// A quorum queue that begins with one member.
fn single() -> Table {
    let mut arguments = quorum();
    arguments.insert("x-quorum-initial-group-size", 1_i32);
    arguments
}

fn add(cluster: &Cluster, by: usize, queue: &str, node: &str) -> Answer {
    let path = format!("queues/quorum/%2F/{queue}/replicas/add");
    cluster.api(by).post(&path, &json!({ "node": node }))
}

fn delete(cluster: &Cluster, by: usize, queue: &str, node: &str) -> Answer {
    let path = format!("queues/quorum/%2F/{queue}/replicas/delete");
    cluster.api(by).call("DELETE", &path, Some(&json!({ "node": node }).to_string()))
}

fn done(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{}", answer.text());
}

fn fill(client: &mut Client, queue: &str, from: u32, count: u32) {
    client.confirm_select(1).unwrap();
    for number in from..from + count {
        client.put(1, queue, number.to_string()).unwrap();
    }
    client.confirms(1, count as usize).unwrap();
}

/// Each member's node, state and whether it votes.
fn members(cluster: &Cluster, by: usize, queue: &str) -> Value {
    let status = cluster.api(by).json(&format!("queues/quorum/%2F/{queue}/status"));
    let of = |one: &Value| json!([one["Node Name"], one["Raft State"], one["Membership"]]);
    status.as_array().unwrap().iter().map(of).collect()
}

fn votes(nodes: &[usize], leader: usize) -> Value {
    let state = |node: usize| if node == leader { "leader" } else { "follower" };
    nodes.iter().map(|node| json!([ALL[*node], state(*node), "voter"])).collect()
}

/// Waits until a leader says that a member has its vote. What it shows is a moment earlier, when
/// that is not agreed on yet.
fn await_vote(cluster: &mut Cluster, leader: usize) {
    let said = "a quorum queue has got a member";
    until(said, || cluster.node(leader).log().contains(said));
}

#[test]
fn members_come_and_go_through_any_node() {
    let mut cluster = Setup::new().start();
    let mut client = cluster.channel(0);
    client.queue(1, "q", DURABLE, &single()).unwrap();
    fill(&mut client, "q", 0, 20);
    until_equal("one member", &votes(&[0], 0), || members(&cluster, 1, "q"));
    for node in [1, 2] {
        done(&add(&cluster, 2, "q", ALL[node]), 204);
        let expected = votes(&(0..=node).collect::<Vec<_>>(), 0);
        assert_eq!(members(&cluster, 1, "q"), expected, "when it is answered it is so");
    }
    done(&add(&cluster, 1, "q", ALL[2]), 204);
    assert_eq!(members(&cluster, 0, "q"), votes(&[0, 1, 2], 0), "again is nothing");

    // The leader's own member goes: another one leads on.
    done(&delete(&cluster, 1, "q", ALL[0]), 202);
    until("two are left", || {
        let now = members(&cluster, 0, "q");
        now == votes(&[1, 2], 1) || now == votes(&[1, 2], 2)
    });
    // What is not its any more it has dropped.
    fill(&mut client, "q", 20, 5);
    done(&delete(&cluster, 2, "q", ALL[0]), 202);
    done(&add(&cluster, 0, "q", ALL[0]), 204);
    cluster.kill(1);
    cluster.await_depth(0, "q", 25);
    let mut third = cluster.channel(2);
    let got = |client: &mut Client| client.get(1, "q", true).unwrap();
    for number in 0..25 {
        let got = got(&mut third).expect("nothing confirmed is lost");
        assert_eq!(got.text(), number.to_string());
    }
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut cluster = Setup::new().start();
    let mut client = cluster.channel(0);
    client.queue(1, "q", DURABLE, &quorum()).unwrap();
    client.queue(1, "one", DURABLE, &single()).unwrap();
    client.queue(1, "classic", DURABLE, &table! {}).unwrap();
    until_equal("three members", &votes(&[0, 1, 2], 0), || members(&cluster, 0, "q"));
    for by in 0..3 {
        done(&add(&cluster, by, "q", "leveret@n9"), 404);
        done(&add(&cluster, by, "absent", ALL[0]), 404);
        done(&delete(&cluster, by, "absent", ALL[0]), 404);
        done(&add(&cluster, by, "classic", ALL[1]), 400);
        done(&delete(&cluster, by, "classic", ALL[1]), 400);
        let last = delete(&cluster, by, "one", ALL[0]);
        assert_eq!((last.status, last.reason()), (503, "last_node".to_owned()));
    }
    cluster.kill(2);
    until("it is missed", || members(&cluster, 0, "q")[2][1] == "nodedown");
    let away = add(&cluster, 1, "one", ALL[2]);
    assert_eq!((away.status, away.reason()), (503, "node_not_running".to_owned()));
    let refused = delete(&cluster, 1, "q", ALL[1]);
    assert_eq!(refused.status, 503);
    assert!(refused.reason().starts_with("1 of the 2 members"), "{}", refused.reason());
    assert_eq!(cluster.view(0, "q")["members"], json!(ALL));
    assert_eq!(members(&cluster, 0, "one"), votes(&[0], 0));

    // A dead node's member can be deleted, and the node finds out when it is back.
    fill(&mut client, "q", 0, 10);
    done(&delete(&cluster, 1, "q", ALL[2]), 202);
    assert_eq!(members(&cluster, 1, "q"), votes(&[0, 1], 0));
    cluster.start(2);
    until_equal("it is none", &votes(&[0, 1], 0), || members(&cluster, 2, "q"));
    done(&add(&cluster, 2, "q", ALL[2]), 204);
    cluster.kill(1);
    cluster.await_depth(2, "q", 10);
    fill(&mut client, "q", 10, 1);
}

#[test]
fn a_queue_that_was_declared_while_a_node_was_away_gets_its_member_there() {
    let mut cluster = Setup::new().start();
    cluster.kill(2);
    let mut client = cluster.channel(0);
    until("it can be declared", || client.queue(1, "q", DURABLE, &quorum()).is_ok());
    fill(&mut client, "q", 0, 10);
    assert_eq!(members(&cluster, 0, "q").as_array().unwrap().len(), 2, "it founds nothing");
    cluster.start(2);
    until_equal("it votes", &votes(&[0, 1, 2], 0), || members(&cluster, 1, "q"));
    await_vote(&mut cluster, 0);
    cluster.kill(1);
    fill(&mut client, "q", 10, 10);
    cluster.await_depth(2, "q", 20);
}

#[test]
fn a_wiped_node_is_given_its_members_again() {
    let mut cluster = Setup::new().start();
    let mut client = cluster.channel(0);
    client.queue(1, "q", DURABLE, &quorum()).unwrap();
    fill(&mut client, "q", 0, 10);
    cluster.kill(2);
    cluster.node(2).wipe();
    cluster.start(2);
    let lost = json!(["leveret@n2 (lost)", "nodedown", ""]);
    until("its old self is lost", || members(&cluster, 0, "q").as_array().unwrap().contains(&lost));
    done(&add(&cluster, 1, "q", ALL[2]), 204);
    until_equal("it is whole", &votes(&[0, 1, 2], 0), || members(&cluster, 2, "q"));
    cluster.kill(1);
    fill(&mut client, "q", 10, 10);
    cluster.await_depth(2, "q", 20);
}

#[test]
fn a_queue_that_was_deleted_while_a_node_was_away_leaves_nothing_there() {
    let mut cluster = Setup::new().start();
    let mut client = cluster.channel(0);
    for queue in ["kept", "gone", "again"] {
        client.queue(1, queue, DURABLE, &quorum()).unwrap();
        fill(&mut client, queue, 0, 10);
    }
    until_equal("it has its members", &votes(&[0, 1, 2], 0), || members(&cluster, 0, "again"));
    cluster.kill(2);
    for queue in ["gone", "again"] {
        until("it can be deleted", || client.delete_queue(1, queue).is_ok());
    }
    client.queue(1, "again", DURABLE, &quorum()).unwrap();
    fill(&mut client, "again", 100, 3);
    cluster.start(2);
    until_equal("the new queue has a member", &votes(&[0, 1, 2], 0), || {
        members(&cluster, 0, "again")
    });
    await_vote(&mut cluster, 0);
    // Nothing of the old one came back.
    cluster.kill(1);
    cluster.await_depth(2, "again", 3);
    let mut third = cluster.channel(2);
    assert_eq!(third.depth(1, "again").unwrap().messages, 3);
    assert_eq!(third.depth(1, "kept").unwrap().messages, 10);
}
