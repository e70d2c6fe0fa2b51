//! Nodes of a cluster that are drained, revived and forgotten.

use std::sync::Barrier;
use std::thread;

use e2e::client::topology::DURABLE;
use e2e::cluster::{Cluster, Setup, channel, quorum};
use e2e::http::Answer;
use e2e::table;
use e2e::wait::{until, until_equal};
use serde_json::{Value, json};

const ALL: [&str; 3] = ["leveret@n0", "leveret@n1", "leveret@n2"];

fn leader(cluster: &Cluster, by: usize, queue: &str) -> Value {
    cluster.view(by, queue)["leader"].clone()
}

fn members(cluster: &Cluster, by: usize, queue: &str) -> Value {
    cluster.view(by, queue)["members"].clone()
}

#[test]
fn a_drained_node_has_no_clients_and_no_leaders_until_it_is_revived() {
    let mut cluster = Setup::new().start();
    let mut client = cluster.channel(0);
    let names: Vec<String> = (0..5).map(|number| format!("q{number}")).collect();
    for name in &names {
        client.queue(1, name, DURABLE, &quorum()).unwrap();
        until_equal("n0 leads", &json!(ALL[0]), || leader(&cluster, 1, name));
        until_equal("all are there", &json!(ALL), || cluster.view(1, name)["online"].clone());
    }
    // Asked of another node.
    let drained = cluster.api(1).post("nodes/leveret%40n0/drain", &json!({}));
    assert_eq!(drained.status, 200, "{}", drained.text());
    let report = drained.json();
    assert_eq!((&report["leaders_moved"], &report["leaders_stayed"]), (&json!(5), &json!([])));
    assert!(report["connections"].as_u64().unwrap() >= 1, "{report}");
    let failure = client.await_failure(1);
    assert_eq!(failure.reply().map(|(code, _)| code), Some(320), "{failure:?}");
    until("nobody can connect", || channel(cluster.amqp(0)).is_err());
    for name in &names {
        until("it has moved", || {
            [json!(ALL[1]), json!(ALL[2])].contains(&leader(&cluster, 1, name))
        });
    }
    let own =
        |cluster: &Cluster| cluster.api(0).json("nodes/leveret%40n0")["being_drained"].clone();
    assert_eq!(own(&cluster), true);
    assert_eq!(cluster.api(0).get("health/checks/is-in-service").status, 503);
    assert_eq!(cluster.api(0).get("health/checks/node-is-quorum-critical").status, 200);
    // New queues and members do not come here.
    let mut other = cluster.channel(1);
    other.queue(1, "new", DURABLE, &quorum()).unwrap();
    until("it has a leader", || leader(&cluster, 1, "new") != Value::Null);
    assert!(!members(&cluster, 1, "new").as_array().unwrap().contains(&json!(ALL[0])));
    let refused =
        cluster.api(1).post("queues/quorum/%2F/new/replicas/add", &json!({"node": ALL[0]}));
    assert_eq!(refused.status, 503);
    assert_eq!(refused.reason(), "the node is in maintenance mode");

    assert_eq!(cluster.api(2).post("nodes/leveret%40n0/revive", &json!({})).status, 204);
    until("clients can connect", || channel(cluster.amqp(0)).is_ok());
    assert_eq!(own(&cluster), false);
    let added = cluster.api(1).post("queues/quorum/%2F/new/replicas/add", &json!({"node": ALL[0]}));
    assert_eq!(added.status, 204, "{}", added.text());

    // Leaders come back when they are asked to.
    let report = cluster.api(1).post("rebalance/queues?report=true", &json!({}));
    assert_eq!(report.status, 200, "{}", report.text());
    let counts: Vec<u64> = report.json()["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["Number of quorum queues"].as_u64().unwrap())
        .collect();
    assert_eq!(counts.iter().sum::<u64>(), 6, "{counts:?}");
    assert!(counts.iter().all(|count| *count == 2), "{counts:?}");
    assert_eq!(cluster.api(1).post("rebalance/queues", &json!({})).status, 204);
    cluster.kill(0);
}

#[test]
fn one_rebalance_runs_at_a_time_in_the_whole_cluster() {
    let cluster = Setup::new().start();
    let mut client = cluster.channel(0);
    let names: Vec<String> = (0..60).map(|number| format!("q{number}")).collect();
    for name in &names {
        client.queue(1, name, DURABLE, &quorum()).unwrap();
    }
    until("n0 leads all", || {
        let queues = cluster.api(1).json("queues?columns=leader,online");
        let led = |one: &&Value| one["leader"] == ALL[0] && one["online"] == json!(ALL);
        queues.as_array().unwrap().iter().filter(led).count() == names.len()
    });
    // Two operators ask at the same time, at two nodes: one of them is told that the other is at it.
    let path = "rebalance/queues?report=true";
    let together = Barrier::new(2);
    let ended: Vec<Answer> = thread::scope(|scope| {
        let asked: Vec<_> = (1..3)
            .map(|by| {
                let (api, together) = (cluster.api(by), &together);
                scope.spawn(move || {
                    together.wait();
                    api.post(path, &json!({}))
                })
            })
            .collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let (done, refused): (Vec<_>, Vec<_>) = ended.iter().partition(|one| one.status == 200);
    assert_eq!((done.len(), refused.len()), (1, 1), "{:?}", refused.first().map(|it| it.text()));
    assert_eq!(refused[0].status, 503);
    let words = "another rebalance is in progress, which was asked for at leveret@n";
    assert!(refused[0].reason().starts_with(words), "{}", refused[0].reason());
    let report = done[0].json();
    assert_eq!(report["failed"], 0);
    for node in report["nodes"].as_array().unwrap() {
        assert_eq!(node["Number of quorum queues"], 20, "{report}");
    }
    assert_eq!(cluster.api(2).post(path, &json!({})).status, 200);
}

#[test]
fn a_forgotten_node_leaves_no_member_behind() {
    let mut cluster = Setup::new().start();
    let mut client = cluster.channel(0);
    let names: Vec<String> = (0..5).map(|number| format!("q{number}")).collect();
    for name in &names {
        client.queue(1, name, DURABLE, &quorum()).unwrap();
        until_equal("all are there", &json!(ALL), || cluster.view(1, name)["online"].clone());
    }
    let mut third = cluster.channel(2);
    third.queue(1, "classic", DURABLE, &table! {}).unwrap();
    let alone = table! { "x-queue-type" => "quorum", "x-quorum-initial-group-size" => 1 };
    third.queue(1, "alone", DURABLE, &alone).unwrap();
    until_equal("it is there alone", &json!([ALL[2]]), || {
        cluster.view(1, "alone")["online"].clone()
    });
    let forget = |cluster: &Cluster, by: usize, force: bool| {
        let body = json!({ "force": force }).to_string();
        cluster.api(by).call("DELETE", "nodes/leveret%40n2", Some(&body))
    };
    let running = forget(&cluster, 0, false);
    assert_eq!(running.status, 400, "{}", running.text());
    assert!(running.reason().contains("is running"), "{}", running.reason());
    cluster.kill(2);
    until("it is missed", || cluster.view(0, "q0")["online"].as_array().unwrap().len() == 2);
    let sole = forget(&cluster, 1, false);
    assert_eq!(sole.status, 412, "{}", sole.text());
    assert!(sole.reason().contains("'classic' in vhost '/'"), "{}", sole.reason());
    assert!(sole.reason().contains("'alone' in vhost '/'"), "{}", sole.reason());
    assert_eq!(members(&cluster, 1, "q0"), json!(ALL));
    let forgotten = forget(&cluster, 1, true);
    assert_eq!(forgotten.status, 200, "{}", forgotten.text());
    let rows = forgotten.json()["queues"].as_array().unwrap().clone();
    let lost = json!({"vhost": "/", "name": "alone", "size": 0, "result": "lost"});
    assert_eq!((rows.len(), rows.last()), (6, Some(&lost)));
    for name in &names {
        assert_eq!(members(&cluster, 0, name), json!([ALL[0], ALL[1]]));
    }
    for lost in ["classic", "alone"] {
        assert_eq!(cluster.api(0).get(&format!("queues/%2F/{lost}")).status, 404, "{lost}");
    }
    let ghosts = "health/checks/quorum-queues-without-ghost-members";
    assert_eq!(cluster.api(0).get(ghosts).status, 200);
    client.confirm_select(1).unwrap();
    client.put(1, "q0", "x").unwrap();
    client.confirms(1, 1).unwrap();
    // Wiped, it is a new node and comes in again.
    cluster.node(2).wipe();
    cluster.start(2);
    let grown = cluster.api(0).post(
        "queues/quorum/replicas/on/leveret%40n2/grow",
        &json!({"strategy": "even", "queue_pattern": "^q"}),
    );
    assert_eq!(grown.status, 200, "{}", grown.text());
    let rows = grown.json();
    assert_eq!(rows.as_array().unwrap().len(), 5);
    for row in rows.as_array().unwrap() {
        assert_eq!((&row["size"], &row["result"]), (&json!(3), &json!("ok")), "{row}");
    }
    let shrunk =
        cluster.api(2).call("DELETE", "queues/quorum/replicas/on/leveret%40n1/shrink", Some("{}"));
    assert_eq!(shrunk.status, 202, "{}", shrunk.text());
    for name in &names {
        until_equal("it has shrunk", &json!([ALL[0], ALL[2]]), || members(&cluster, 2, name));
    }
}

#[test]
fn a_node_that_has_lost_its_journal_does_not_start_under_its_old_identity() {
    let mut cluster = Setup::new().start();
    let mut client = cluster.channel(0);
    client.queue(1, "q", DURABLE, &quorum()).unwrap();
    let directory = cluster.node(2).directory.clone();
    let identity = directory.join("identity");
    until("it is known to be in a cluster", || {
        std::fs::read_to_string(&identity).unwrap().contains("\nformed\n")
    });
    cluster.kill(2);
    std::fs::remove_dir_all(directory.join("journal")).unwrap();
    cluster.run(2);
    assert!(!cluster.node(2).await_exit().success());
    assert!(cluster.node(2).log().contains("has lost its journal"), "{}", cluster.node(2).log());
    cluster.node(2).wipe();
    cluster.start(2);
}
