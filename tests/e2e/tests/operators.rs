//! What operators see and do through any node of three.

use std::collections::BTreeSet;

use e2e::client::Failure;
use e2e::client::confirms::Confirms;
use e2e::client::topology::DURABLE;
use e2e::cluster::{Setup, quorum};
use e2e::ctl::leveretctl;
use e2e::http::Api;
use e2e::sleepers::Sleepers;
use e2e::table;
use e2e::wait::{until, until_equal};
use serde_json::{Value, json};

const ALL: [&str; 3] = ["leveret@n0", "leveret@n1", "leveret@n2"];

#[test]
fn every_node_shows_the_whole_cluster() {
    let cluster = Setup::new().start();
    let mut first = cluster.channel(0);
    first.queue(1, "quorum", DURABLE, &quorum()).unwrap();
    first.queue(1, "classic", DURABLE, &table! {}).unwrap();
    first.confirm_select(1).unwrap();
    for queue in ["quorum", "quorum", "classic"] {
        first.put(1, queue, "x").unwrap();
    }
    first.confirms(1, 3).unwrap();
    let mut second = cluster.channel(1);
    second.consume(1, "classic", "tag").unwrap();
    for node in 0..3 {
        let api = cluster.api(node);
        let seen = format!("through node {node}");
        until_equal(&seen, &json!(["running", 2]), || {
            let queue = cluster.view(node, "quorum");
            json!([queue["state"], queue["messages"]])
        });
        let queue = cluster.view(node, "quorum");
        assert_eq!(queue["type"], "quorum");
        assert_eq!((&queue["leader"], &queue["node"]), (&json!(ALL[0]), &json!(ALL[0])));
        assert_eq!((&queue["members"], &queue["online"]), (&json!(ALL), &json!(ALL)));
        let classic = cluster.view(node, "classic");
        assert_eq!((&classic["node"], &classic["consumers"]), (&json!(ALL[0]), &json!(1)));
        assert_eq!(classic["consumer_details"][0]["channel_details"]["node"], ALL[1]);
        let consumers = api.json("consumers");
        assert_eq!(consumers[0]["queue"]["name"], "classic");
        assert_eq!(consumers[0]["channel_details"]["node"], ALL[1]);
        let mut nodes: Vec<Value> = api
            .json("connections")
            .as_array()
            .unwrap()
            .iter()
            .map(|connection| connection["node"].clone())
            .collect();
        nodes.sort_by_key(Value::to_string);
        assert_eq!(nodes, [ALL[0], ALL[1]]);
        assert_eq!(api.json("channels").as_array().unwrap().len(), 2);
        let overview = api.json("overview");
        assert_eq!(overview["object_totals"]["connections"], 2);
        assert_eq!(overview["object_totals"]["consumers"], 1);
        assert_eq!(overview["message_stats"]["publish"], 3);
        assert_eq!(overview["cluster_name"], cluster.api(0).json("overview")["cluster_name"]);
        // Each says of itself what it says to whom asks it directly.
        let processes = |api: &Api| -> Vec<Value> {
            let nodes = api.json("nodes");
            nodes.as_array().unwrap().iter().map(|one| one["os_pid"].clone()).collect()
        };
        let pids = (0..3).map(|one| json!(cluster.nodes[one].pid().to_string()));
        assert_eq!(processes(&api), pids.collect::<Vec<_>>());
        let listed = overview["listeners"].as_array().unwrap();
        let of: BTreeSet<_> = listed.iter().map(|one| one["node"].as_str().unwrap()).collect();
        assert_eq!(of, ALL.into());
    }
    // A connection of one node is closed through another.
    let name = cluster.api(0).json("connections?sort=node")[1]["name"].clone();
    let path = format!("connections/{}", e2e::http::segment(name.as_str().unwrap()));
    assert_eq!(cluster.api(2).delete(&path).status, 204);
    // Its client has to answer, else the broker waits as long as this test does.
    match second.await_failure(1) {
        Failure::Connection { code: 320, text, .. } => {
            assert_eq!(text, "CONNECTION_FORCED - Closed via management plugin");
        }
        other => panic!("it is told that it is closed: {other:?}"),
    }
    until("it is gone", || cluster.api(0).json("connections").as_array().unwrap().len() == 1);
}

#[test]
fn members_leaders_and_checks() {
    let mut cluster = Setup::new().start();
    let mut client = cluster.channel(0);
    client.queue(1, "q", DURABLE, &quorum()).unwrap();
    // The log of a queue that nobody has used is empty.
    client.confirm_select(1).unwrap();
    client.put(1, "q", "m").unwrap();
    client.confirms(1, 1).unwrap();
    let states = |cluster: &e2e::cluster::Cluster, node: usize| -> Vec<(String, String)> {
        let members = cluster.api(node).json("queues/quorum/%2F/q/status");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of = |one: &Value| (text(&one["Node Name"]), text(&one["Raft State"]));
        members.as_array().unwrap().iter().map(of).collect()
    };
    let with = |leader: usize| -> Vec<(String, String)> {
        let state = |node: usize| if node == leader { "leader" } else { "follower" };
        (0..3).map(|node| (ALL[node].to_owned(), state(node).to_owned())).collect()
    };
    until_equal("n0 leads", &with(0), || states(&cluster, 1));
    // Followers hear a moment later what is committed.
    until("all members vote and know what is committed", || {
        let members = cluster.api(1).json("queues/quorum/%2F/q/status");
        members.as_array().unwrap().iter().all(|member| {
            member["Membership"] == "voter"
                && member["Term"].as_u64() > Some(0)
                && member["Commit Index"].as_u64() > Some(0)
        })
    });
    let critical = "health/checks/node-is-quorum-critical";
    until("no member is missed", || cluster.api(0).get(critical).status == 200);
    // Asked of a node that does not lead, about a third one.
    let to = json!({ "node": ALL[2] });
    let moved = cluster.api(1).put("queues/quorum/%2F/q/leader", &to);
    assert_eq!(moved.status, 204, "{}", moved.text());
    until_equal("n2 leads", &with(2), || states(&cluster, 0));
    until_equal("it is shown", &json!(ALL[2]), || cluster.view(0, "q")["leader"].clone());

    cluster.kill(2);
    until("another one leads", || {
        let queue = cluster.view(1, "q");
        queue["state"] == "running" && queue["online"] == json!([ALL[0], ALL[1]])
    });
    let down = ("leveret@n2".to_owned(), "nodedown".to_owned());
    until("its end is shown", || states(&cluster, 0).contains(&down));
    until("it is missed", || {
        let got = cluster.api(0).get(critical);
        got.status == 503 && got.json()["queues"][0]["name"] == "q"
    });
    // The last one may lead by then, or follow the one that is lost.
    cluster.channel(0).queue(1, "p", DURABLE, &quorum()).unwrap();
    for (queue, leader) in [("q", 0), ("p", 1)] {
        let is_led = || cluster.view(0, queue)["leader"] == json!(ALL[leader]);
        until("it is moved", || {
            let to = json!({ "node": ALL[leader] });
            is_led()
                || cluster.api(0).put(&format!("queues/quorum/%2F/{queue}/leader"), &to).status
                    == 204
        });
        until("that is shown", is_led);
    }
    let leaderless = "health/checks/quorum-queues-without-elected-leaders/all-vhosts/";
    until("all are led", || cluster.api(0).get(leaderless).status == 200);
    cluster.kill(1);
    for queue in ["q", "p"] {
        until_equal("it is alone", &json!("minority"), || cluster.view(0, queue)["state"].clone());
    }
    let found = || -> Vec<Value> {
        let answer = cluster.api(0).get(leaderless);
        let queues = answer.json()["queues"].as_array().cloned().unwrap_or_default();
        let mut names: Vec<Value> = queues.iter().map(|queue| queue["name"].clone()).collect();
        names.sort_by_key(Value::to_string);
        names
    };
    until_equal("nobody leads", &vec![json!("p"), json!("q")], found);
    for queue in ["q", "p"] {
        until("no member says that it leads", || {
            let states = cluster.api(0).json(&format!("queues/quorum/%2F/{queue}/status"));
            let leads = |member: &Value| member["Raft State"] == "leader";
            !states.as_array().unwrap().iter().any(leads)
        });
    }
}

#[test]
fn a_message_is_looked_at_through_any_node_and_stays_as_it_is() {
    let cluster = Setup::new().set("quorum_queue.hibernate_after", "1s").start();
    let mut client = cluster.channel(0);
    client.queue(1, "q", DURABLE, &quorum()).unwrap();
    let long = "ü".repeat(50);
    client.confirm_select(1).unwrap();
    for number in 0..200 {
        client.put(1, "q", number.to_string()).unwrap();
    }
    client.put(1, "q", &long).unwrap();
    assert_eq!(client.confirms(1, 201).unwrap().acked().len(), 201);
    let look = |by: usize, position: u64| -> Value {
        let answer = cluster.api(by).get(&format!("queues/quorum/%2F/q/peek/{position}"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    };
    for by in 0..3 {
        for position in [1, 2, 100, 200] {
            let found = look(by, position);
            assert_eq!(found["payload"], (position - 1).to_string());
            assert_eq!(
                (&found["redelivered"], &found["routing_key"]),
                (&json!(false), &json!("q"))
            );
            assert_eq!(found["properties"]["headers"], json!({"x-delivery-count": 0}));
        }
        assert_eq!(look(by, 201)["payload"], long);
        let none = cluster.api(by).get("queues/quorum/%2F/q/peek/202");
        let text = "Target queue does not have a message at that position";
        assert_eq!((none.status, none.reason().as_str()), (400, text));
    }
    let printed = leveretctl(&cluster.api(2), &["peek", "q", "201"]);
    assert_eq!(printed.code, 0, "{printed:?}");
    assert!(printed.out.contains(&format!("payload (max 64 bytes)\t{}\n", "ü".repeat(32))));
    assert!(printed.out.contains("\nheader.x-delivery-count\t0\n"), "{printed:?}");

    // What somebody has is not there, and what came back comes first.
    let taken: Vec<_> = (0..3).map(|_| client.get(1, "q", false).unwrap().unwrap()).collect();
    until_equal("the next one is first", &json!("3"), || look(1, 1)["payload"].clone());
    client.reject(1, taken[1].tag, true).unwrap();
    client.sync(1).unwrap();
    until_equal("one came back", &json!("1"), || look(1, 1)["payload"].clone());
    assert_eq!((&look(2, 1)["redelivered"], &look(2, 2)["payload"]), (&json!(true), &json!("3")));
    assert_eq!(look(2, 1)["properties"]["headers"], json!({"x-delivery-count": 1}));
    drop(client);
    cluster.await_depth(0, "q", 201);

    // Those of a queue that nobody uses are shown, and it goes on sleeping.
    until("it hibernates", || Sleepers::of(&cluster).are_all(3));
    let before = Sleepers::of(&cluster);
    for by in 0..3 {
        assert_eq!(look(by, 201)["payload"], long);
    }
    assert_eq!(Sleepers::of(&cluster), before);
}

#[test]
fn whether_a_node_is_critical_depends_on_how_many_run() {
    for (size, may_go) in [(1, 0), (2, 0), (3, 1), (5, 2)] {
        let mut cluster = Setup::new().size(size).start();
        let all = table! {
            "x-queue-type" => "quorum",
            "x-quorum-initial-group-size" => i32::try_from(size).unwrap()
        };
        let mut client = cluster.channel(0);
        client.queue(1, "q", DURABLE, &all).unwrap();
        client.confirm_select(1).unwrap();
        let mut answers = Confirms::default();
        client.put(1, "q", "m").unwrap();
        client.await_confirms(1, &mut answers, 1).unwrap();
        let status = |cluster: &e2e::cluster::Cluster| {
            cluster.api(0).get("health/checks/node-is-quorum-critical").status
        };
        // One that runs alone takes nothing along that others could go on with.
        let with_all = if size == 2 { 503 } else { 200 };
        until_equal(&format!("all of {size} run"), &with_all, || status(&cluster));
        for gone in 1..=may_go {
            cluster.kill(size - gone);
            let left = if gone == may_go { 503 } else { 200 };
            let what = format!("{gone} of {size} are gone");
            until("it is missed", || {
                let nodes = cluster.api(0).json("nodes");
                let nodes = nodes.as_array().unwrap();
                nodes.iter().filter(|node| node["running"] == false).count() == gone
            });
            until_equal(&what, &left, || status(&cluster));
        }
        client.put(1, "q", "m").unwrap();
        client.await_confirms(1, &mut answers, 2).unwrap();
        assert_eq!(answers.acked().len(), 2, "{size}: it is served");
    }
}
