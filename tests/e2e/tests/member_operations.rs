//! Operations on members and nodes: what they refuse, what happens when they take too long or are cut
//! off, and what is done when a majority is gone for good.

use std::time::{Duration, Instant};

use e2e::client::topology::DURABLE;
use e2e::cluster::{Cluster, Setup, quorum};
use e2e::ctl::leveretctl;
use e2e::numbered::Plan;
use e2e::table;
use e2e::wait::{count, until, until_equal, until_some, until_some_for};
use serde_json::{Value, json};

use crate::member_refusals::{refused, rows};

const ALL: [&str; 5] = ["leveret@n0", "leveret@n1", "leveret@n2", "leveret@n3", "leveret@n4"];
const KEY: &str = "quorum_queue.continuous_membership_reconciliation";
/// How long many queues may take on a busy machine.
const LONG: Duration = Duration::from_mins(3);

fn single() -> e2e::codec::Table {
    table! { "x-queue-type" => "quorum", "x-quorum-initial-group-size" => 1 }
}

fn publish(cluster: &Cluster, node: usize, queue: &str, numbers: std::ops::Range<usize>) {
    let mut client = cluster.channel(node);
    client.confirm_select(1).unwrap();
    let count = numbers.len();
    for number in numbers {
        client.put(1, queue, number.to_string()).unwrap();
    }
    assert_eq!(client.confirms(1, count).unwrap().acked().len(), count);
}

/// What each member says of itself: node, state, whether it votes.
fn members(cluster: &Cluster, by: usize, queue: &str) -> Value {
    let status = cluster.api(by).get(&format!("queues/quorum/%2F/{queue}/status")).json();
    let of = |one: &Value| json!([one["Node Name"], one["Raft State"], one["Membership"]]);
    status.as_array().cloned().unwrap_or_default().iter().map(of).collect()
}

/// The nodes whose members run and vote.
fn voters(cluster: &Cluster, by: usize, queue: &str) -> Vec<String> {
    let members = members(cluster, by, queue);
    let is_well = |one: &&Value| one[2] == "voter" && (one[1] == "leader" || one[1] == "follower");
    let name = |one: &Value| one[0].as_str().unwrap_or_default().to_owned();
    members.as_array().cloned().unwrap_or_default().iter().filter(is_well).map(name).collect()
}

fn await_voters(cluster: &Cluster, by: usize, queue: &str, nodes: &[usize]) {
    let expected: Vec<&str> = nodes.iter().map(|node| ALL[*node]).collect();
    until_some_for(LONG, &format!("{queue} has its voters on {expected:?}"), || {
        let status = members(cluster, by, queue);
        let all = status.as_array()?.len();
        (voters(cluster, by, queue) == expected && all == expected.len()).then_some(())
    });
}

fn await_missed(cluster: &Cluster, by: usize, node: usize) {
    until("the node is missed", || {
        let nodes = cluster.api(by).json("nodes");
        nodes.as_array().unwrap().iter().any(|it| it["name"] == ALL[node] && it["running"] == false)
    });
}

#[test]
fn what_cannot_be_is_refused_in_the_same_words_by_both_interfaces_and_changes_nothing() {
    let mut cluster = Setup::new().start();
    let mut client = cluster.channel(0);
    client.queue(1, "q", DURABLE, &quorum()).unwrap();
    client.queue(1, "one", DURABLE, &single()).unwrap();
    client.queue(1, "classic", DURABLE, &table! {}).unwrap();
    await_voters(&cluster, 0, "q", &[0, 1, 2]);
    await_voters(&cluster, 0, "one", &[0]);
    publish(&cluster, 0, "q", 0..10);
    cluster.kill(2);
    for by in [0, 1] {
        await_missed(&cluster, by, 2);
    }
    // The leader may miss it a moment later than who was asked.
    until("the leader misses it", || members(&cluster, 0, "q")[2][1] == "nodedown");
    let now = |cluster: &Cluster| {
        let record = |queue: &str| cluster.view(1, queue)["members"].clone();
        json!([record("q"), record("one"), members(cluster, 1, "one"), members(cluster, 1, "q")])
    };
    let before = now(&cluster);
    let mut wrong = Vec::new();
    for one in refused() {
        for by in [0, 1] {
            let body = (one.verb != "GET").then(|| one.body.to_string());
            let answer = cluster.api(by).call(one.verb, one.path, body.as_deref());
            let is_it = (answer.status, answer.reason().as_str()) == (one.status, one.reason);
            if !is_it {
                let (status, reason) = (answer.status, answer.reason());
                wrong.push(format!("{} {} at n{by}: {status} {reason}", one.verb, one.path));
            }
        }
        let ended = leveretctl(&cluster.api(1), one.line);
        if (ended.code, ended.error.as_str()) != (one.code, one.error) {
            wrong.push(format!("{:?}: {ended:?}", one.line));
        }
        assert_eq!(now(&cluster), before, "{} {}", one.verb, one.path);
    }
    for one in rows() {
        let answer = cluster.api(1).call(one.verb, one.path, Some(&one.body.to_string()));
        let row = |row: &Value| json!([row["name"], row["size"], row["result"]]);
        let found: Value = answer.json().as_array().into_iter().flatten().map(row).collect();
        if found != one.expected {
            wrong.push(format!("{} {}: {found}", one.verb, one.path));
        }
        let line: Vec<&str> = one.line.iter().copied().chain(["--formatter", "json"]).collect();
        let ended = leveretctl(&cluster.api(1), &line);
        let printed: Value = serde_json::from_str(&ended.out).unwrap_or_default();
        let printed: Value = printed.as_array().into_iter().flatten().map(row).collect();
        if (ended.code, &printed) != (69, &one.expected) {
            wrong.push(format!("{:?}: {ended:?}", one.line));
        }
        assert_eq!(now(&cluster), before, "{} {}", one.verb, one.path);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // What is so already is no error, and changes nothing either.
    let again = leveretctl(&cluster.api(1), &["add_member", "q", "leveret@n1"]);
    assert_eq!((again.code, again.error.as_str()), (0, ""));
    let none = leveretctl(&cluster.api(1), &["delete_member", "one", "leveret@n1"]);
    assert_eq!((none.code, none.error.as_str()), (0, ""));
    assert_eq!(now(&cluster), before);
    publish(&cluster, 0, "q", 10..20);
    cluster.await_depth(1, "q", 20);
}

#[test]
fn what_takes_too_long_says_so_and_goes_on() {
    // Nobody misses a node that stands still for a while.
    let mut cluster = Setup::new().set("cluster.silence_timeout", "60s").start();
    cluster.channel(0).queue(1, "one", DURABLE, &single()).unwrap();
    await_voters(&cluster, 0, "one", &[0]);
    publish(&cluster, 0, "one", 0..10);
    cluster.freeze(2);
    // Who asks a node without a member asks all for the leader first; the silent one is not waited for.
    let begin = Instant::now();
    let body = json!({ "node": ALL[1] }).to_string();
    let path = "queues/quorum/%2F/one/replicas/delete";
    let absent = cluster.api(1).call("DELETE", path, Some(&body));
    assert!(absent.status < 300, "{}", absent.text());
    assert!(begin.elapsed() < Duration::from_secs(2), "it took {:?}", begin.elapsed());
    let slow = leveretctl(&cluster.api(1), &["--timeout", "3", "add_member", "one", ALL[2]]);
    assert_eq!(slow.code, 75, "{slow:?}");
    assert!(slow.error.contains("timeout"), "{slow:?}");
    // A second change has to wait for the first one.
    let body = json!({ "node": ALL[1] });
    let other = cluster.api(1).post("queues/quorum/%2F/one/replicas/add", &body);
    assert_eq!((other.status, other.reason().as_str()), (503, "cluster_change_not_permitted"));
    let other = leveretctl(&cluster.api(0), &["add_member", "one", ALL[1]]);
    let reason =
        "another change of the queue's members is under way (cluster_change_not_permitted)";
    assert_eq!((other.code, other.error.as_str()), (69, reason));
    // The queue is used meanwhile, and the change goes on when it can.
    publish(&cluster, 1, "one", 10..20);
    cluster.thaw(2);
    await_voters(&cluster, 0, "one", &[0, 2]);
    cluster.await_depth(2, "one", 20);
}

#[test]
fn nobody_knows_what_becomes_of_a_removal_that_no_majority_hears_of() {
    let mut cluster = Setup::new().start();
    cluster.channel(0).queue(1, "q", DURABLE, &quorum()).unwrap();
    await_voters(&cluster, 0, "q", &[0, 1, 2]);
    until("its founder leads", || members(&cluster, 0, "q")[0][1] == "leader");
    publish(&cluster, 0, "q", 0..10);
    cluster.freeze(1);
    cluster.freeze(2);
    let path = "queues/quorum/%2F/q/replicas/delete";
    let body = json!({ "node": ALL[2] }).to_string();
    let unknown = cluster.api(0).call("DELETE", path, Some(&body));
    assert_eq!((unknown.status, unknown.reason().as_str()), (503, "timeout"));
    cluster.thaw(1);
    cluster.thaw(2);
    // It may have been made since; to ask again is no mistake.
    let until_done = || cluster.api(0).call("DELETE", path, Some(&body)).status < 300;
    until("the member is removed", until_done);
    await_voters(&cluster, 0, "q", &[0, 1]);
    publish(&cluster, 2, "q", 10..20);
    cluster.await_depth(1, "q", 20);
}

#[test]
fn a_queue_without_a_majority_goes_on_by_force_and_is_not_joined_by_its_former_members() {
    let mut cluster = Setup::new().size(5).start();
    let mut client = cluster.channel(0);
    let names: Vec<String> = (0..4).map(|number| format!("q{number}")).collect();
    let add = |queue: &str, node: usize| {
        let body = json!({ "node": ALL[node] });
        let answer = cluster.api(0).post(&format!("queues/quorum/%2F/{queue}/replicas/add"), &body);
        assert_eq!(answer.status, 204, "{}", answer.text());
    };
    // All on the first three nodes, so that the others keep the topology.
    for name in &names {
        client.queue(1, name, DURABLE, &single()).unwrap();
        until("it is led", || voters(&cluster, 0, name) == [ALL[0]]);
        add(name, 1);
        add(name, 2);
        publish(&cluster, 0, name, 0..20);
    }
    // One of the same that nobody has used; who its other members are is drawn.
    let never = (0..200).map(|number| format!("never{number}")).find(|name| {
        cluster.channel(2).queue(1, name, DURABLE, &quorum()).unwrap();
        let mut found: Vec<String> =
            serde_json::from_value(cluster.view(2, name)["members"].clone()).unwrap();
        found.sort();
        let fits = found == ALL[..3];
        if !fits {
            client.delete_queue(1, name).unwrap();
        }
        fits
    });
    let never = never.expect("one of so many fits");
    // Two of three are gone, with the leader.
    cluster.kill(0);
    cluster.kill(1);
    for name in &names {
        until("nobody leads", || voters(&cluster, 2, name).len() <= 1);
        until("they are missed", || {
            let gone = members(&cluster, 2, name);
            gone.as_array().unwrap().iter().filter(|one| one[1] == "nodedown").count() == 2
        });
    }
    for line in [["add_member", "q0", ALL[3]], ["delete_member", "q0", ALL[0]]] {
        let refused = leveretctl(&cluster.api(3), &line);
        assert_eq!((refused.code, refused.error.as_str()), (69, "the queue has no leader"));
    }
    let unsure = leveretctl(&cluster.api(3), &["force_shrink", "q0", ALL[2]]);
    assert_eq!(unsure.code, 65, "{unsure:?}");
    let forced = leveretctl(&cluster.api(3), &["force_shrink", "q0", ALL[2], "--force"]);
    assert_eq!((forced.code, forced.error.as_str()), (0, ""));
    let again = leveretctl(&cluster.api(2), &["force_shrink", "q0", ALL[2], "--force"]);
    assert_eq!((again.code, again.error.as_str()), (0, ""));
    let line = ["force_shrink_all", ALL[2], "--queue-pattern", "^q[12]$", "--force"];
    let forced = leveretctl(&cluster.api(3), &line);
    assert_eq!(forced.code, 0, "{forced:?}");
    assert!(forced.out.contains("q1\t1\tok") && forced.out.contains("q2\t1\tok"), "{forced:?}");
    for name in &names[..3] {
        await_voters(&cluster, 3, name, &[2]);
        publish(&cluster, 3, name, 20..40);
    }
    let forced = leveretctl(&cluster.api(3), &["force_shrink", &never, ALL[2], "--force"]);
    assert_eq!((forced.code, forced.error.as_str()), (0, ""));
    await_voters(&cluster, 3, &never, &[2]);
    publish(&cluster, 3, &never, 0..40);
    // Not asked for, it waits for its majority.
    assert_eq!(voters(&cluster, 3, "q3").len(), 1);

    // Both come back, a majority of what they know of these queues.
    cluster.run(0);
    cluster.run(1);
    cluster.await_formed();
    for name in names[..3].iter().chain([&never]) {
        await_voters(&cluster, 0, name, &[2]);
    }
    await_voters(&cluster, 0, "q3", &[0, 1, 2]);
    // They can be members again, as new ones. All is there that the member had or has got since.
    for name in &names[..3] {
        let body = json!({ "node": ALL[0] });
        let path = format!("queues/quorum/%2F/{name}/replicas/add");
        let answer = cluster.api(1).post(&path, &body);
        assert_eq!(answer.status, 204, "{}", answer.text());
        await_voters(&cluster, 1, name, &[0, 2]);
    }
    // What goes on alone goes on alone after it starts again, too.
    cluster.kill(2);
    cluster.start(2);
    for name in &names[..3] {
        await_voters(&cluster, 1, name, &[0, 2]);
        let mut client = cluster.channel(1);
        cluster.await_depth(1, name, 40);
        for number in 0..40 {
            assert_eq!(client.get_soon(1, name).text(), number.to_string(), "of {name}");
        }
    }
    publish(&cluster, 4, "q3", 20..21);
    cluster.await_depth(4, "q3", 21);
}

#[test]
fn a_forget_that_is_cut_off_leaves_members_that_dangle_until_auto_remove_says_so() {
    let mut cluster = Setup::new()
        .size(4)
        .set(&format!("{KEY}.enabled"), "true")
        .set(&format!("{KEY}.trigger_interval"), "300ms")
        .set(&format!("{KEY}.target_group_size"), "3")
        .prepare();
    for node in 0..4 {
        cluster.node(node).configure("log.level = \"info\"\n");
        cluster.run(node);
    }
    cluster.await_formed();
    let queues: Vec<String> = (0..count(24, 600)).map(|n| format!("q{n}")).collect();
    for (number, queue) in queues.iter().enumerate() {
        cluster.channel(number % 4).queue(1, queue, DURABLE, &quorum()).unwrap();
        publish(&cluster, 0, queue, 0..3);
    }
    let with = |cluster: &Cluster, gone: &str| -> Vec<String> {
        let has = |queue: &&String| {
            let members = members(cluster, 0, queue);
            members.as_array().unwrap().iter().any(|one| one[0] == gone)
        };
        queues.iter().filter(has).cloned().collect()
    };
    let listed = with(&cluster, ALL[3]);
    // Of those that it declared it is a member; of the others its number decides, which is drawn.
    assert!(listed.len() * 4 >= queues.len(), "{} of {}", listed.len(), queues.len());
    cluster.kill(3);
    await_missed(&cluster, 1, 3);
    let line = ["forget_cluster_node", ALL[3], "--keep-members"];
    let forgotten = leveretctl(&cluster.api(1), &line);
    assert_eq!((forgotten.code, forgotten.error.as_str()), (0, ""));
    // Whoever was at it is gone.
    cluster.kill(1);
    cluster.start(1);

    // Without auto_remove they are told of, and stay.
    let dangling = |cluster: &Cluster| -> u64 {
        let nodes = cluster.api(0).json("reconciliation");
        let nodes = nodes.as_array().cloned().unwrap_or_default();
        nodes.iter().filter_map(|node| node["blocked"]["dangling"].as_u64()).sum()
    };
    until_equal("all are reported", &(listed.len() as u64), || dangling(&cluster));
    let ghosts = leveretctl(&cluster.api(0), &["check_for_quorum_queues_with_ghost_members"]);
    assert_eq!(ghosts.code, 69, "{ghosts:?}");
    let plan = until_some("the plan names it", || {
        let path = format!("queues/quorum/%2F/{}/plan", listed[0]);
        let plan = cluster.api(0).get(&path).json();
        let kinds = plan["refusals"].as_array()?.iter().map(|one| one["kind"].clone());
        let kinds: Vec<Value> = kinds.collect();
        kinds.contains(&json!("dangling")).then_some(plan)
    });
    assert_eq!(plan["steps"], json!([]));
    for queue in &listed {
        assert_eq!(members(&cluster, 0, queue).as_array().unwrap().len(), 3, "{queue}");
    }
    cluster.channel(0).queue(1, "load", DURABLE, &quorum()).unwrap();
    let load = Plan::new("load", &[cluster.amqp(0)], &[cluster.amqp(2)]).start();
    load.await_more(100);

    // With it each is removed and another node takes its place.
    for node in 0..3 {
        cluster.node(node).configure(&format!("{KEY}.auto_remove = true\n"));
        cluster.node(node).reload();
    }
    for queue in &queues {
        await_voters(&cluster, 0, queue, &[0, 1, 2]);
    }
    assert_eq!(dangling(&cluster), 0);
    let ghosts = leveretctl(&cluster.api(0), &["check_for_quorum_queues_with_ghost_members"]);
    assert_eq!(ghosts.code, 0, "{ghosts:?}");
    load.await_more(100);
    load.finish(LONG).judge();
    for queue in &queues {
        cluster.await_depth(2, queue, 3);
    }
}

#[test]
fn in_whatever_order_a_node_is_stopped_wiped_forgotten_and_started_its_queues_are_whole_again() {
    let mut cluster = Setup::new()
        .set(&format!("{KEY}.enabled"), "true")
        .set(&format!("{KEY}.trigger_interval"), "300ms")
        .set(&format!("{KEY}.target_group_size"), "3")
        .start();
    let names: Vec<String> = (0..6).map(|number| format!("q{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        cluster.channel(number % 3).queue(1, name, DURABLE, &quorum()).unwrap();
        publish(&cluster, 0, name, 0..10);
    }
    let whole = |cluster: &Cluster, numbers: std::ops::Range<usize>| {
        for name in &names {
            await_voters(cluster, 0, name, &[0, 1, 2]);
            publish(cluster, 1, name, numbers.clone());
        }
    };
    whole(&cluster, 10..11);
    let forget = |cluster: &Cluster| leveretctl(&cluster.api(0), &["forget_cluster_node", ALL[2]]);

    // Stop, wipe, start: nobody was told.
    cluster.kill(2);
    cluster.node(2).wipe();
    cluster.start(2);
    whole(&cluster, 11..12);
    // It runs, so neither what it is nor what it was can be forgotten.
    assert_eq!(forget(&cluster).code, 65);

    // Stop, forget, wipe, start.
    cluster.kill(2);
    await_missed(&cluster, 0, 2);
    let forgotten = forget(&cluster);
    assert_eq!((forgotten.code, forgotten.error.as_str()), (0, ""));
    for name in &names {
        assert_eq!(cluster.view(0, name)["members"], json!([ALL[0], ALL[1]]));
    }
    cluster.node(2).wipe();
    cluster.start(2);
    whole(&cluster, 12..13);

    // Stop, wipe, forget, start.
    cluster.kill(2);
    cluster.node(2).wipe();
    await_missed(&cluster, 0, 2);
    assert_eq!(forget(&cluster).code, 0);
    cluster.start(2);
    whole(&cluster, 13..14);

    // Stop, reset, start: the reset forgets.
    let directory = cluster.node(2).directory.display().to_string();
    let running = leveretctl(&cluster.api(0), &["reset", &directory]);
    assert_eq!(running.code, 69, "it runs: {running:?}");
    cluster.kill(2);
    await_missed(&cluster, 0, 2);
    let reset = leveretctl(&cluster.api(0), &["reset", &directory]);
    assert_eq!((reset.code, reset.error.as_str()), (0, ""));
    assert_eq!(cluster.view(0, "q0")["members"], json!([ALL[0], ALL[1]]));
    assert!(std::fs::read_dir(&directory).unwrap().next().is_none(), "nothing is left of it");
    cluster.start(2);
    whole(&cluster, 14..15);

    // Stop, wipe, start, and again before it was whole.
    for _ in 0..2 {
        cluster.kill(2);
        cluster.node(2).wipe();
        cluster.start(2);
    }
    whole(&cluster, 15..16);

    // Nothing is lost, and every member has all of it.
    cluster.kill(0);
    for name in &names {
        cluster.await_depth(2, name, 16);
        let mut client = cluster.channel(2);
        for number in 0..16 {
            assert_eq!(client.get_soon(1, name).text(), number.to_string(), "of {name}");
        }
    }
}
