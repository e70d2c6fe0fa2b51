//! How nodes become a cluster, and what they agree on.

use std::time::{Duration, Instant};

use e2e::client::Failure;
use e2e::client::topology::DURABLE;
use e2e::cluster::{Cluster, SECRET, Setup, quorum};
use e2e::ctl::leveretctl;
use e2e::table;
use e2e::wait::{until, until_equal};
use serde_json::Value;

#[test]
fn any_start_order_forms_the_same_cluster() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut cluster = Setup::new().prepare();
        for node in order {
            cluster.run(node);
            // The next one starts when this one has found out that it is not alone, or alone.
            until("the node answers", || {
                cluster.node(node).log().contains("listening")
                    || cluster
                        .api(node)
                        .anonymous()
                        .request("GET", "/api/health/checks/is-in-service", None)
                        .is_ok()
            });
        }
        cluster.await_formed();
    }
}

#[test]
fn a_node_without_peers_answers_health_and_waits() {
    let mut cluster = Setup::new().prepare();
    cluster.run(2);
    let api = cluster.api(2).anonymous();
    let answers = |path: &str| api.request("GET", path, None).map(|answer| answer.status);
    until("the node answers", || answers("/api/health/checks/ready-to-serve-clients").is_ok());
    assert_eq!(answers("/api/health/checks/ready-to-serve-clients").ok(), Some(503));
    assert!(cluster.node(2).exited().is_none());
    cluster.run(0);
    cluster.run(1);
    cluster.await_formed();
    assert_eq!(answers("/api/health/checks/ready-to-serve-clients").ok(), Some(200));
}

#[test]
fn what_one_node_declares_can_be_used_on_another_at_once() {
    let cluster = Setup::new().start();
    let mut clients: Vec<_> = (0..3).map(|node| cluster.channel(node)).collect();
    for client in &mut clients {
        client.confirm_select(1).unwrap();
    }
    for round in 0..30 {
        let (from, to) = (round % 3, (round + 1 + round / 3 % 2) % 3);
        let (queue, exchange) = (format!("q{round}"), format!("x{round}"));
        let arguments = if round % 2 == 0 {
            quorum()
        } else {
            table! {}
        };
        clients[from].queue(1, &queue, DURABLE, &arguments).unwrap();
        clients[from].exchange(1, &exchange, "direct", DURABLE, &table! {}).unwrap();
        clients[from].bind(1, &queue, &exchange, "k", &table! {}).unwrap();
        let body = format!("m{round}");
        let message = e2e::content::Properties::persistent();
        clients[to].publish(1, &exchange, "k", &message, &body).unwrap();
        assert_eq!(clients[to].get_soon(1, &queue).text(), body);
    }
}

#[test]
fn a_wrong_secret_is_refused() {
    let mut cluster =
        Setup::new().set_on(2, "cluster.secret", "another-secret-than-theirs").prepare();
    for node in 0..3 {
        cluster.run(node);
    }
    until("a node says that the secret is wrong", || {
        (0..3).any(|node| cluster.node(node).log().to_lowercase().contains("secret"))
    });
    // All three have to agree on a first cluster, so none serves.
    assert!((0..3).all(|node| !cluster.node(node).serves()));
    cluster.kill(2);
    cluster.node(2).set("cluster.secret", SECRET);
    cluster.run(2);
    cluster.await_formed();
    // A stranger later on changes nothing.
    cluster.kill(2);
    cluster.node(2).set("cluster.secret", "another-secret-than-theirs");
    cluster.run(2);
    cluster.channel(0).queue(1, "q", DURABLE, &quorum()).unwrap();
    cluster.await_served(1, "q");
    assert!(!cluster.node(2).serves() || cluster.channel(2).depth(1, "q").is_err());
}

#[test]
fn a_minority_refuses_changes_within_a_moment_and_goes_on_routing() {
    let mut cluster = Setup::new().start();
    let mut client = cluster.channel(0);
    client.queue(1, "local", DURABLE, &table! {}).unwrap();
    client.queue(1, "q", DURABLE, &quorum()).unwrap();
    cluster.kill(1);
    cluster.kill(2);
    // The first refusal may have to wait until it is sure.
    for (attempt, limit) in [2500, 1500, 1500].into_iter().enumerate() {
        let mut other = cluster.channel(0);
        let begin = Instant::now();
        let refused = other.queue(1, format!("new{attempt}"), DURABLE, &table! {});
        let took = begin.elapsed();
        assert!(
            matches!(&refused, Err(Failure::Connection { .. } | Failure::Channel { .. })),
            "{refused:?}"
        );
        assert!(took < Duration::from_millis(limit), "refused after {took:?}: {refused:?}");
    }
    let begin = Instant::now();
    let refused = cluster.channel(0).delete_queue(1, "local");
    assert!(refused.is_err(), "{refused:?}");
    assert!(begin.elapsed() < Duration::from_millis(1500), "{:?}", begin.elapsed());
    // What is here works on, for the same client.
    client.confirm_select(1).unwrap();
    client.put(1, "local", "m").unwrap();
    assert_eq!(client.confirms(1, 1).unwrap().acked(), [1]);
    assert_eq!(client.get_soon(1, "local").text(), "m");
    // What exists may be declared again.
    client.queue(1, "local", DURABLE, &table! {}).unwrap();
    cluster.start(1);
    cluster.channel(0).queue(1, "new", DURABLE, &table! {}).unwrap();
    cluster.await_served(0, "q");
}

#[test]
fn restarted_one_by_one_and_all_at_once_it_is_the_same_cluster() {
    let mut cluster = Setup::new().start();
    let mut client = cluster.channel(1);
    client.queue(1, "q", DURABLE, &quorum()).unwrap();
    client.confirm_select(1).unwrap();
    for n in 0..100 {
        client.put(1, "q", n.to_string()).unwrap();
    }
    assert_eq!(client.confirms(1, 100).unwrap().acked().len(), 100);
    drop(client);
    for node in 0..3 {
        cluster.node(node).stop();
        cluster.start(node);
    }
    for node in 0..3 {
        cluster.kill(node);
    }
    for node in [2, 0, 1] {
        cluster.run(node);
    }
    cluster.await_formed();
    let mut client = cluster.channel(2);
    for n in 0..100 {
        assert_eq!(client.get_soon(1, "q").text(), n.to_string());
    }
    assert!(client.get(1, "q", true).unwrap().is_none());
}

#[test]
fn a_witness_keeps_no_queues() {
    let mut cluster = Setup::new().set_on(2, "node.role", "witness").start();
    let mut client = cluster.channel(2);
    client.queue(1, "q", DURABLE, &quorum()).unwrap();
    drop(client);
    cluster.await_served(2, "q");
    // One member is on a full node; the other full node and the witness are a majority for topology.
    cluster.kill(1);
    until("topology can be changed", || {
        e2e::cluster::channel(cluster.amqp(0))
            .is_ok_and(|mut client| client.queue(1, "r", DURABLE, &table! {}).is_ok())
    });
}

/// One address is enough: who comes finds the others, and they find each other, whatever their lists
/// say, also after restarts without the one that was listed.
#[test]
fn a_node_that_knows_one_of_a_cluster_comes_in() {
    let mut cluster = Setup::new().size(5).newcomer(3, 2).newcomer(4, 1).prepare();
    for node in 0..3 {
        cluster.run(node);
    }
    cluster.await_formed();
    cluster.start(3);
    cluster.start(4);
    cluster.kill(2);
    cluster.kill(3);
    // What it asks to find the others is in its own data now.
    cluster.start(3);
    let running = |node: &Value| {
        (node["name"].as_str().unwrap().to_owned(), node["running"].as_bool().unwrap())
    };
    for by in [0, 1, 3, 4] {
        let nodes = cluster.api(by).json("nodes");
        let mut seen: Vec<_> = nodes.as_array().unwrap().iter().map(running).collect();
        seen.sort_unstable();
        let wanted = (0..5).map(|node| (format!("leveret@n{node}"), node != 2));
        assert_eq!(seen, wanted.collect::<Vec<_>>(), "as n{by} sees it");
    }
}

/// The configuration of the one that comes names nobody: `leveretctl join` does, also for later starts.
#[test]
fn a_node_is_told_by_the_command_line_whom_to_join() {
    let mut cluster =
        Setup::new().size(4).newcomer(3, 1).set_on(3, "cluster.peers", "[]").prepare();
    for node in 0..3 {
        cluster.run(node);
    }
    let directory = cluster.node(3).directory.display().to_string();
    let peer = format!("n1@{}", cluster.node(1).setting("listeners.peer"));
    let joined = leveretctl(&cluster.api(0), &["join", &directory, &peer]);
    assert_eq!((joined.code, joined.error.as_str()), (0, ""));
    cluster.run(3);
    cluster.await_formed();
    let refused = leveretctl(&cluster.api(0), &["join", &directory, &peer]);
    assert_eq!(refused.code, 69, "it runs: {refused:?}");
    cluster.kill(3);
    let refused = leveretctl(&cluster.api(0), &["join", &directory, &peer]);
    assert_eq!(refused.code, 65, "it was let in: {refused:?}");
    cluster.kill(1);
    cluster.start(3);
    let mut client = cluster.channel(3);
    client.queue(1, "q", DURABLE, &quorum()).unwrap();
}

/// A change of the group's members refuses another one meanwhile: who is refused asks again, also if
/// the group has it already, without a vote.
#[test]
fn all_that_come_at_once_get_a_vote() {
    let mut cluster = Setup::new().size(6).newcomer(3, 0).newcomer(4, 1).newcomer(5, 2).prepare();
    for node in 0..3 {
        cluster.run(node);
    }
    cluster.await_formed();
    for node in 3..6 {
        cluster.run(node);
    }
    until("all vote", || {
        let votes = |node| cluster.node(node).log().matches("a node has got a vote").count();
        (0..6).map(votes).sum::<usize>() == 3
    });
}

#[test]
fn a_wiped_node_under_its_old_name_is_another_node() {
    let mut cluster = Setup::new().start();
    let mut client = cluster.channel(0);
    client.queue(1, "q", DURABLE, &quorum()).unwrap();
    client.confirm_select(1).unwrap();
    for n in 0..50 {
        client.put(1, "q", n.to_string()).unwrap();
    }
    assert_eq!(client.confirms(1, 50).unwrap().acked().len(), 50);
    drop(client);
    cluster.kill(2);
    cluster.node(2).wipe();
    cluster.start(2);
    // It is let into the cluster, and the queue has everything with the two that are left of it.
    cluster.await_depth(2, "q", 50);
    // Now its word does not count for the queue: with n1 gone there is one true member of three.
    cluster.kill(1);
    let mut client = cluster.channel(0);
    client.confirm_select(1).unwrap();
    client.put(1, "q", "no majority").unwrap();
    client.patience = Duration::from_secs(4);
    let confirmed = client.confirms(1, 1);
    assert!(
        !confirmed.is_ok_and(|confirms| confirms.acked() == [1]),
        "a node that knows nothing of the queue has voted in it"
    );
    cluster.start(1);
    cluster.await_depth(0, "q", 50);
}

/// Stopped, forgotten, and started on what it had: it stops, and says what to do.
#[test]
fn a_forgotten_node_does_not_come_back_with_what_it_had() {
    let mut cluster = Setup::new().start();
    let mut client = cluster.channel(2);
    client.queue(1, "home", DURABLE, &table! {}).unwrap();
    client.queue(1, "shared", DURABLE, &quorum()).unwrap();
    cluster.kill(2);
    let forget = |cluster: &Cluster| {
        leveretctl(&cluster.api(0), &["forget_cluster_node", "leveret@n2", "--force"])
    };
    until("it is forgotten", || forget(&cluster).code == 0);
    // Those that the configuration lists are shown, whether they are nodes or not.
    let running = |cluster: &Cluster| -> Vec<String> {
        let nodes = cluster.api(0).json("nodes");
        let runs = nodes.as_array().unwrap().iter().filter(|node| node["running"] == true);
        runs.map(|node| node["name"].as_str().unwrap().to_owned()).collect()
    };
    cluster.run(2);
    assert!(!cluster.node(2).await_exit().success());
    let log = cluster.node(2).log();
    assert!(log.contains("was forgotten") && log.contains("leveretctl reset"), "{log}");
    assert_eq!(running(&cluster), ["leveret@n0", "leveret@n1"]);
    let directory = cluster.node(2).directory.display().to_string();
    let reset = leveretctl(&cluster.api(0), &["reset", &directory]);
    assert_eq!((reset.code, reset.error.as_str()), (0, ""));
    cluster.start(2);
    until_equal("it is a node again, once", &3, || running(&cluster).len());
    assert!(cluster.channel(2).depth(1, "home").is_err(), "it had that alone");
}
