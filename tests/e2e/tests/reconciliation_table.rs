//! The table of what reconciliation is expected to do, row by row, on real processes; the same rows
//! are checked on the plan alone in crate `membership`.

use std::time::Duration;

use e2e::client::topology::DURABLE;
use e2e::cluster::{Cluster, Setup, name};
use e2e::ctl::leveretctl;
use e2e::table;
use e2e::wait::{until, until_equal, until_some_for};
use serde_json::{Value, json};

const KEY: &str = "quorum_queue.continuous_membership_reconciliation";
/// How long a row may take on a busy machine.
const LONG: Duration = Duration::from_mins(3);

fn cluster(nodes: usize, auto_remove: bool) -> Cluster {
    Setup::new()
        .size(nodes)
        .set(&format!("{KEY}.enabled"), "true")
        .set(&format!("{KEY}.auto_remove"), auto_remove.to_string())
        .set(&format!("{KEY}.trigger_interval"), "300ms")
        .start()
}

/// A queue of so many members that wants so many.
fn declare(cluster: &Cluster, queue: &str, size: i32, target: i32) {
    let arguments = table! {
        "x-queue-type" => "quorum",
        "x-quorum-initial-group-size" => size,
        "x-quorum-target-group-size" => target
    };
    cluster.channel(0).queue(1, queue, DURABLE, &arguments).unwrap();
    let mut client = cluster.channel(0);
    client.confirm_select(1).unwrap();
    client.put(1, queue, "kept").unwrap();
    assert_eq!(client.confirms(1, 1).unwrap().acked().len(), 1);
}

/// Declares queues of three members that want `target`, some and then so many that a node that did not
/// declare them has a member of one: which nodes are taken depends on their numbers, which are drawn.
fn declare_until_on(cluster: &Cluster, node: &str, target: i32) -> Vec<String> {
    let mut queues: Vec<String> = Vec::new();
    while queues.len() < 6 || !queues.iter().any(|queue| is_on(cluster, queue, node)) {
        assert!(queues.len() < 40, "members are spread");
        let queue = format!("q{}", queues.len());
        declare(cluster, &queue, 3, target);
        ends(cluster, &queue, 3, &[]);
        queues.push(queue);
    }
    queues
}

fn is_on(cluster: &Cluster, queue: &str, node: &str) -> bool {
    let plan = plan(cluster, queue);
    plan["members"].as_array().unwrap().iter().any(|one| one["node"] == node)
}

fn plan(cluster: &Cluster, queue: &str) -> Value {
    cluster.api(0).get(&format!("queues/quorum/%2F/{queue}/plan")).json()
}

/// The voters of a queue, if all its members vote; and the kinds of reasons why there are no more, if
/// nothing is to be done.
fn seen(cluster: &Cluster, queue: &str) -> Option<(usize, Vec<String>)> {
    let plan = plan(cluster, queue);
    let members = plan["members"].as_array()?;
    let settled =
        plan["steps"] == json!([]) && !members.iter().any(|one| one["state"] == "learner");
    let kinds = plan["refusals"].as_array()?.iter();
    let kinds = kinds.map(|one| one["kind"].as_str().unwrap_or_default().to_owned()).collect();
    settled.then_some((members.len(), kinds))
}

/// Waits until a queue has so many members and nothing more is done, for these reasons.
fn ends(cluster: &Cluster, queue: &str, size: usize, why: &[&str]) {
    let expected = Some((size, why.iter().map(|kind| (*kind).to_owned()).collect::<Vec<_>>()));
    let mut last = None;
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        until_some_for(LONG, &format!("{queue} ends as {expected:?}"), || {
            last = seen(cluster, queue);
            (last == expected).then_some(())
        });
    }));
    assert!(ended.is_ok(), "{queue}: {last:?}, wanted {expected:?}; {}", plan(cluster, queue));
}

/// All nodes look several times more, and everything stays as it is.
fn stays(cluster: &Cluster, rows: &[(&str, usize)]) {
    let passes = || {
        let nodes = cluster.api(0).json("reconciliation");
        nodes.as_array().unwrap().iter().filter_map(|node| node["passes"].as_u64()).min()
    };
    for _ in 0..3 {
        let before = passes();
        assert_eq!(cluster.api(0).post("reconciliation/now", &json!({})).status, 200);
        until("all have looked", || passes() > before);
    }
    for (queue, size) in rows {
        assert_eq!(seen(cluster, queue).unwrap().0, *size, "{queue}");
        cluster.await_depth(0, queue, 1);
    }
}

fn drain(cluster: &Cluster, node: usize, on: bool) {
    let what = if on { "drain" } else { "revive" };
    let path = format!("nodes/leveret%40{}/{what}", name(node));
    let answer = cluster.api(0).post(&path, &json!({}));
    assert!(answer.status < 300, "{}", answer.text());
}

fn lose(cluster: &mut Cluster, node: usize) {
    cluster.kill(node);
    for by in cluster.reachable() {
        await_missed(cluster, by, node);
    }
}

fn await_missed(cluster: &Cluster, by: usize, node: usize) {
    until("it is missed", || {
        let nodes = cluster.api(by).json("nodes");
        let gone = format!("leveret@{}", name(node));
        nodes.as_array().unwrap().iter().any(|it| it["name"] == gone && it["running"] == false)
    });
}

fn forget(cluster: &Cluster, node: usize) {
    let node = format!("leveret@{}", name(node));
    let ended = leveretctl(&cluster.api(0), &["forget_cluster_node", &node, "--keep-members"]);
    assert_eq!((ended.code, ended.error.as_str()), (0, ""));
}

/// So many passes more of all nodes that can be reached.
fn look(cluster: &Cluster, times: u64) {
    let passes = |node: &Value| Some((node["node"].to_string(), node["passes"].as_u64()?));
    let all = || -> Vec<(String, u64)> {
        let nodes = cluster.api(0).json("reconciliation");
        nodes.as_array().into_iter().flatten().filter_map(passes).collect()
    };
    for _ in 0..times {
        let before = all();
        // Nodes that cannot be told are named, and the others look all the same.
        drop(cluster.api(0).post("reconciliation/now", &json!({})));
        until("all that are there have looked", || {
            let now = all();
            before.iter().all(|(node, passes)| {
                let same = now.iter().find(|(other, _)| other == node);
                same.is_none_or(|(_, now)| now > passes)
            })
        });
    }
}

#[test]
fn the_row_of_one_node() {
    let cluster = cluster(1, false);
    declare(&cluster, "one-of-three", 1, 3);
    // Nobody looks by itself on a node that is on its own.
    ends(&cluster, "one-of-three", 1, &["no_candidate"]);
}

#[test]
fn a_queue_grows_as_nodes_join() {
    let setup = Setup::new().size(4).newcomer(2, 0).newcomer(3, 1);
    let setup = setup.set(&format!("{KEY}.enabled"), "true");
    let mut cluster = setup.set(&format!("{KEY}.trigger_interval"), "300ms").prepare();
    for node in 0..2 {
        cluster.run(node);
    }
    cluster.await_formed();
    declare(&cluster, "q", 1, 3);
    declare(&cluster, "five", 1, 5);
    ends(&cluster, "q", 1, &["even_size"]);
    look(&cluster, 3);
    ends(&cluster, "q", 1, &["even_size"]);
    cluster.start(2);
    ends(&cluster, "q", 3, &[]);
    ends(&cluster, "five", 3, &["no_candidate"]);
    // One more would make four.
    cluster.start(3);
    ends(&cluster, "five", 3, &["even_size"]);
    for queue in ["q", "five"] {
        cluster.await_depth(2, queue, 1);
    }
}

#[test]
fn a_leader_in_maintenance_plans_nothing_and_the_next_one_does() {
    let cluster = cluster(5, false);
    declare(&cluster, "alone", 1, 0);
    declare(&cluster, "q", 3, 0);
    for (queue, size) in [("alone", 1), ("q", 3)] {
        ends(&cluster, queue, size, &[]);
    }
    drain(&cluster, 0, true);
    let policy = json!({
        "pattern": "", "apply-to": "quorum_queues", "definition": {"target-group-size": 5}
    });
    assert!(cluster.api(1).put("policies/%2F/p", &policy).status < 300);
    // Nobody can take over its only member.
    ends(&cluster, "alone", 1, &["maintenance"]);
    // Of the other one somebody else leads, and brings it on; the drained node keeps its member.
    ends(&cluster, "q", 5, &[]);
    assert_ne!(cluster.view(1, "q")["leader"], "leveret@n0");
    look(&cluster, 3);
    ends(&cluster, "alone", 1, &["maintenance"]);
    drain(&cluster, 0, false);
    ends(&cluster, "alone", 5, &[]);
}

#[test]
fn a_node_that_is_cut_off_changes_nothing_and_is_given_its_member_when_it_is_back() {
    let setup = Setup::new().size(5).proxied().set(&format!("{KEY}.enabled"), "true");
    let setup = setup.set(&format!("{KEY}.auto_remove"), "true");
    let mut cluster = setup.set(&format!("{KEY}.trigger_interval"), "300ms").start();
    let queues = declare_until_on(&cluster, "n4", 3);
    let listed: Vec<&String> = queues.iter().filter(|queue| is_on(&cluster, queue, "n4")).collect();
    cluster.isolate(4);
    // Nobody may take it for a node that runs when more members are wanted.
    for by in 0..4 {
        await_missed(&cluster, by, 4);
    }
    let policy = json!({
        "pattern": "^q", "apply-to": "quorum_queues", "definition": {"target-group-size": 5}
    });
    let set = || cluster.api(0).put("policies/%2F/p", &policy).status < 300;
    until("a policy can be set", set);
    // It may come back, so nobody is put in its place, and none is added beside it.
    for queue in &listed {
        ends(&cluster, queue, 3, &["member_down"]);
    }
    look(&cluster, 3);
    for queue in &listed {
        ends(&cluster, queue, 3, &["member_down"]);
        assert!(is_on(&cluster, queue, "n4"));
    }
    cluster.rejoin(4);
    for queue in &queues {
        ends(&cluster, queue, 5, &[]);
        cluster.await_depth(4, queue, 1);
    }
}

#[test]
fn rows_of_two_nodes() {
    let cluster = cluster(2, false);
    declare(&cluster, "one-of-three", 1, 3);
    ends(&cluster, "one-of-three", 1, &["even_size"]);
    stays(&cluster, &[("one-of-three", 1)]);
}

#[test]
fn rows_of_three_nodes() {
    let mut cluster = cluster(3, true);
    declare(&cluster, "one-of-three", 1, 3);
    declare(&cluster, "two-of-three", 2, 3);
    declare(&cluster, "one-of-five", 1, 5);
    ends(&cluster, "one-of-three", 3, &[]);
    ends(&cluster, "two-of-three", 3, &[]);
    ends(&cluster, "one-of-five", 3, &["no_candidate"]);

    // One drained: it stays at one until that is over.
    drain(&cluster, 1, true);
    declare(&cluster, "drained", 1, 3);
    ends(&cluster, "drained", 1, &["even_size"]);
    stays(&cluster, &[("drained", 1), ("one-of-three", 3)]);
    drain(&cluster, 1, false);
    ends(&cluster, "drained", 3, &[]);

    // One forgotten, with auto_remove: two are left, and there is no other node.
    lose(&mut cluster, 2);
    stays(&cluster, &[("one-of-three", 3), ("drained", 3)]);
    forget(&cluster, 2);
    for queue in ["one-of-three", "two-of-three", "drained"] {
        ends(&cluster, queue, 2, &["no_candidate"]);
    }
    // Another one comes under its name.
    cluster.node(2).wipe();
    cluster.start(2);
    for queue in ["one-of-three", "two-of-three", "drained"] {
        ends(&cluster, queue, 3, &[]);
        cluster.await_depth(2, queue, 1);
    }
}

#[test]
fn rows_of_four_nodes() {
    let mut cluster = cluster(4, false);
    declare(&cluster, "three-of-four", 3, 4);
    ends(&cluster, "three-of-four", 3, &["even_size"]);
    stays(&cluster, &[("three-of-four", 3)]);
    // Forgotten without auto_remove: reported, and never grows.
    let queues = declare_until_on(&cluster, "n3", 3);
    let listed: Vec<&String> = queues.iter().filter(|queue| is_on(&cluster, queue, "n3")).collect();
    lose(&mut cluster, 3);
    forget(&cluster, 3);
    for queue in &listed {
        ends(&cluster, queue, 3, &["dangling"]);
    }
    let rows: Vec<(&str, usize)> = listed.iter().map(|queue| (queue.as_str(), 3)).collect();
    stays(&cluster, &rows);
    for queue in &listed {
        assert!(plan(&cluster, queue)["members"].to_string().contains("dangling"));
    }
}

#[test]
fn rows_of_five_nodes() {
    let mut cluster = cluster(5, true);
    declare(&cluster, "three-of-four", 3, 4);
    declare(&cluster, "three-of-five", 3, 5);
    declare(&cluster, "five-of-three", 5, 3);
    ends(&cluster, "three-of-four", 4, &[]);
    ends(&cluster, "three-of-five", 5, &[]);
    ends(&cluster, "five-of-three", 5, &[]);
    stays(&cluster, &[("three-of-four", 4), ("five-of-three", 5)]);

    // A leader in maintenance does nothing; the next one does.
    let queues = declare_until_on(&cluster, "n4", 0);
    let wants = |cluster: &Cluster, size: u64| {
        let policy = json!({
            "pattern": "^q", "apply-to": "quorum_queues", "definition": {"target-group-size": size}
        });
        assert!(cluster.api(1).put("policies/%2F/p", &policy).status < 300);
    };
    drain(&cluster, 0, true);
    for queue in &queues {
        until("somebody else leads", || {
            let leader = cluster.view(1, queue)["leader"].clone();
            leader != Value::Null && leader != "leveret@n0"
        });
    }
    drain(&cluster, 0, false);

    // One member is down, and there are two candidates: it stays until that is back.
    let waits: Vec<&String> = queues.iter().filter(|queue| is_on(&cluster, queue, "n4")).collect();
    lose(&mut cluster, 4);
    wants(&cluster, 5);
    for queue in &waits {
        ends(&cluster, queue, 3, &["member_down"]);
    }
    let rows: Vec<(&str, usize)> = waits.iter().map(|queue| (queue.as_str(), 3)).collect();
    stays(&cluster, &rows);
    cluster.start(4);
    for queue in &queues {
        ends(&cluster, queue, 5, &[]);
    }

    // Two of five dangle: one goes after the other.
    lose(&mut cluster, 3);
    lose(&mut cluster, 4);
    wants(&cluster, 3);
    forget(&cluster, 3);
    forget(&cluster, 4);
    for queue in queues.iter().map(String::as_str).chain(["five-of-three"]) {
        ends(&cluster, queue, 3, &[]);
    }
    until_equal("nothing dangles", &0, || {
        let nodes = cluster.api(0).json("reconciliation");
        let nodes = nodes.as_array().cloned().unwrap_or_default();
        nodes.iter().filter_map(|node| node["blocked"]["dangling"].as_u64()).sum::<u64>()
    });
    stays(&cluster, &[("five-of-three", 3), ("three-of-five", 3)]);
}
