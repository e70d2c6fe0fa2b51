//! Quorum queues that come back to their wanted number of members by themselves.

use std::time::Duration;

use e2e::client::topology::DURABLE;
use e2e::cluster::{Cluster, Setup, quorum};
use e2e::numbered::Plan;
use e2e::sleepers::Sleepers;
use e2e::table;
use e2e::wait::{count, until, until_equal, until_some, until_some_for};
use serde_json::{Value, json};

const KEY: &str = "quorum_queue.continuous_membership_reconciliation";
/// How long what is left over may take.
const DRAIN: Duration = Duration::from_secs(30);
/// How long twenty queues may take to be whole again, on a busy machine.
const WHOLE: Duration = Duration::from_mins(2);

/// A cluster that acts soon after a trigger, and not at all by itself.
fn setup(nodes: usize) -> Setup {
    Setup::new()
        .size(nodes)
        .set(&format!("{KEY}.enabled"), "true")
        .set(&format!("{KEY}.trigger_interval"), "300ms")
}

/// The names of the nodes with a vote in a queue, if every member is well.
fn voters(cluster: &Cluster, node: usize, queue: &str) -> Option<Vec<String>> {
    let members = cluster.api(node).get(&format!("queues/quorum/%2F/{queue}/status")).json();
    let members = members.as_array()?;
    let is_well = |member: &Value| {
        let state = member["Raft State"].as_str().unwrap_or_default();
        member["Membership"] == "voter" && ["leader", "follower"].contains(&state)
    };
    let name = |member: &Value| Some(member["Node Name"].as_str()?.to_owned());
    let led = members.iter().filter(|member| member["Raft State"] == "leader").count() == 1;
    (led && members.iter().all(is_well)).then(|| members.iter().filter_map(name).collect())
}

fn await_size(cluster: &Cluster, node: usize, queue: &str, size: usize) -> Vec<String> {
    until_some_for(WHOLE, &format!("{queue} has {size} members that are well"), || {
        voters(cluster, node, queue).filter(|voters| voters.len() == size)
    })
}

fn plan(cluster: &Cluster, node: usize, queue: &str) -> Value {
    cluster.api(node).get(&format!("queues/quorum/%2F/{queue}/plan")).json()
}

fn publish(cluster: &Cluster, node: usize, queue: &str, messages: usize) {
    let mut client = cluster.channel(node);
    client.confirm_select(1).unwrap();
    for n in 0..messages {
        client.put(1, queue, n.to_string()).unwrap();
    }
    assert_eq!(client.confirms(1, messages).unwrap().acked().len(), messages);
}

fn drain(cluster: &Cluster, node: usize, queue: &str, messages: usize) {
    let mut client = cluster.channel(node);
    for n in 0..messages {
        assert_eq!(client.get_soon(1, queue).text(), n.to_string(), "of {queue}");
    }
    assert!(client.get(1, queue, true).unwrap().is_none(), "{queue} has more than was published");
}

#[test]
fn a_wiped_node_gets_its_members_back_under_load() {
    let mut cluster = setup(4).start();
    let queues: Vec<String> = (0..20).map(|n| format!("q{n}")).collect();
    for (n, queue) in queues.iter().enumerate() {
        cluster.channel(n % 4).queue(1, queue, DURABLE, &quorum()).unwrap();
        publish(&cluster, 0, queue, 20);
    }
    let before: Vec<Vec<String>> =
        queues.iter().map(|queue| await_size(&cluster, 0, queue, 3)).collect();
    let wiped = "leveret@n3".to_owned();
    assert!(before.iter().filter(|voters| voters.contains(&wiped)).count() > 4, "{before:?}");
    cluster.channel(3).queue(1, "load", DURABLE, &quorum()).unwrap();
    let load = Plan::new("load", &[cluster.amqp(0)], &[cluster.amqp(1)]).start();
    load.await_more(count(300, 3000));
    cluster.kill(3);
    load.await_more(count(300, 3000));
    cluster.node(3).wipe();
    cluster.start(3);
    for (queue, before) in queues.iter().zip(&before) {
        let mut now = await_size(&cluster, 0, queue, 3);
        now.sort();
        let mut before = before.clone();
        before.sort();
        assert_eq!(now, before, "the same places as before");
        // A vote is shown a moment before it is agreed on.
        until_equal("there is nothing to do", &json!([[], []]), || {
            let plan = plan(&cluster, 0, queue);
            json!([plan["steps"], plan["refusals"]])
        });
    }
    await_size(&cluster, 0, "load", 3);
    load.await_more(count(300, 3000));
    load.finish(DRAIN).judge();
    // The new members count: with another one away each queue still has a majority.
    cluster.kill(2);
    for queue in &queues {
        cluster.await_depth(0, queue, 20);
        drain(&cluster, 0, queue, 20);
    }
}

#[test]
fn a_policy_that_is_set_makes_queues_grow_and_one_that_is_cleared_leaves_them() {
    let cluster = setup(3).start();
    let one = table! { "x-queue-type" => "quorum", "x-quorum-initial-group-size" => 1 };
    cluster.channel(0).queue(1, "small", DURABLE, &one).unwrap();
    cluster.channel(1).queue(1, "other", DURABLE, &one).unwrap();
    let wanted = table! {
        "x-queue-type" => "quorum",
        "x-quorum-initial-group-size" => 1,
        "x-quorum-target-group-size" => 3
    };
    cluster.channel(2).queue(1, "asks", DURABLE, &wanted).unwrap();
    publish(&cluster, 1, "small", 100);
    // The argument is noticed with the leader.
    await_size(&cluster, 0, "asks", 3);
    assert_eq!(voters(&cluster, 0, "small").unwrap().len(), 1);
    let policy = json!({
        "pattern": "^small$", "apply-to": "quorum_queues", "definition": {"target-group-size": 3}
    });
    // Set where the queue is not led.
    cluster.api(2).put("policies/%2F/p", &policy);
    await_size(&cluster, 0, "small", 3);
    drain(&cluster, 2, "small", 100);
    assert_eq!(voters(&cluster, 0, "other").unwrap().len(), 1);
    let gone = cluster.api(1).request("DELETE", "/api/policies/%2F/p", None).unwrap();
    assert_eq!(gone.status, 204);
    until("the policy is gone from the plan", || plan(&cluster, 0, "small")["target"] == 0);
    assert_eq!(await_size(&cluster, 0, "small", 3).len(), 3);
    assert_eq!(cluster.api(0).json("reconciliation").as_array().unwrap().len(), 3);
    // A step is counted when it is over, and its vote is seen a moment before.
    until_equal("four steps are counted", &4, || {
        let text = cluster.api(0).json("reconciliation");
        let nodes = text.as_array().cloned().unwrap_or_default();
        nodes.iter().filter_map(|node| node["done"]["add"].as_u64()).sum::<u64>()
    });
}

#[test]
fn a_member_that_is_down_stops_growth_and_is_named() {
    let mut cluster = setup(4).start();
    let queues: Vec<String> = (0..12).map(|n| format!("q{n}")).collect();
    for queue in &queues {
        cluster.channel(0).queue(1, queue, DURABLE, &quorum()).unwrap();
    }
    // Of so many queues one surely has a member on n3.
    let on_last =
        |queue: &&String| await_size(&cluster, 0, queue, 3).contains(&"leveret@n3".to_owned());
    let queue = queues.iter().find(on_last).expect("members are spread").clone();
    cluster.kill(3);
    let policy = json!({
        "pattern": ".*", "apply-to": "quorum_queues", "definition": {"target-group-size": 4}
    });
    cluster.api(0).put("policies/%2F/p", &policy);
    let said = until_some("the plan says who is missing", || {
        let plan = plan(&cluster, 1, &queue);
        let reasons = plan["refusals"].as_array()?.iter();
        reasons
            .map(|one| one["kind"].as_str().map(str::to_owned))
            .collect::<Option<Vec<_>>>()
            .filter(|kinds| kinds.contains(&"member_down".to_owned()))
    });
    assert!(said.contains(&"even_size".to_owned()), "{said:?}");
    until("it is counted", || {
        let answer = cluster.api(0).json("reconciliation");
        let nodes = answer.as_array().cloned().unwrap_or_default();
        nodes.iter().any(|node| node["blocked"]["member_down"].as_u64() > Some(0))
    });
}

#[test]
fn a_forgotten_node_is_replaced_by_another_one_under_load() {
    let mut cluster = setup(4).set(&format!("{KEY}.target_group_size"), "3").start();
    let queues: Vec<String> = (0..20).map(|n| format!("q{n}")).collect();
    for (n, queue) in queues.iter().enumerate() {
        cluster.channel(n % 4).queue(1, queue, DURABLE, &quorum()).unwrap();
        publish(&cluster, 0, queue, 20);
        await_size(&cluster, 0, queue, 3);
    }
    cluster.channel(3).queue(1, "load", DURABLE, &quorum()).unwrap();
    await_size(&cluster, 0, "load", 3);
    let load = Plan::new("load", &[cluster.amqp(0)], &[cluster.amqp(1)]).start();
    load.await_more(count(300, 3000));
    cluster.kill(3);
    until("it is missed", || {
        let nodes = cluster.api(0).json("nodes");
        let gone = nodes.as_array().unwrap().iter().find(|node| node["name"] == "leveret@n3");
        gone.is_some_and(|node| node["running"] == false)
    });
    load.await_more(count(300, 3000));
    let forgotten = until_some("the node is forgotten", || {
        let body = json!({}).to_string();
        let answer = cluster.api(1).call("DELETE", "nodes/leveret%40n3", Some(&body));
        // A queue may be between two leaders.
        (answer.status == 200).then_some(answer)
    });
    assert_eq!(forgotten.status, 200);
    for queue in queues.iter().map(String::as_str).chain(["load"]) {
        let mut now = await_size(&cluster, 0, queue, 3);
        now.sort();
        assert_eq!(now, ["leveret@n0", "leveret@n1", "leveret@n2"], "{queue}");
    }
    load.await_more(count(300, 3000));
    load.finish(DRAIN).judge();
    for queue in &queues {
        cluster.await_depth(2, queue, 20);
        drain(&cluster, 2, queue, 20);
    }
}

#[test]
fn a_drained_node_gets_no_member_until_it_is_revived() {
    let cluster = setup(3).start();
    let drained = cluster.api(0).post("nodes/leveret%40n1/drain", &json!({}));
    assert_eq!(drained.status, 200, "{}", drained.text());
    let asks = table! {
        "x-queue-type" => "quorum",
        "x-quorum-initial-group-size" => 1,
        "x-quorum-target-group-size" => 3
    };
    cluster.channel(0).queue(1, "q", DURABLE, &asks).unwrap();
    publish(&cluster, 2, "q", 50);
    let blocked = |cluster: &Cluster| {
        let plan = plan(cluster, 2, "q");
        (plan["steps"].clone(), plan["refusals"][0]["kind"].clone())
    };
    until("the leader knows why", || blocked(&cluster) == (json!([]), json!("even_size")));
    // Looked at several times more, it stays so.
    let passes = |cluster: &Cluster| {
        let nodes = cluster.api(0).json("reconciliation");
        nodes.as_array().unwrap().iter().filter_map(|node| node["passes"].as_u64()).min()
    };
    for _ in 0..3 {
        let before = passes(&cluster);
        assert_eq!(cluster.api(0).post("reconciliation/now", &json!({})).status, 200);
        until("all have looked", || passes(&cluster) > before);
    }
    assert_eq!(voters(&cluster, 0, "q").unwrap(), ["leveret@n0"]);
    assert_eq!(cluster.api(0).post("nodes/leveret%40n1/revive", &json!({})).status, 204);
    await_size(&cluster, 0, "q", 3);
    drain(&cluster, 2, "q", 50);
}

#[test]
fn settings_are_read_again_while_the_node_runs() {
    let mut cluster = Setup::new().prepare();
    cluster.node(0).configure("log.level = \"info\"\n");
    for node in 0..3 {
        cluster.run(node);
    }
    cluster.await_formed();
    let asks = table! {
        "x-queue-type" => "quorum",
        "x-quorum-initial-group-size" => 1,
        "x-quorum-target-group-size" => 3
    };
    cluster.channel(0).queue(1, "q", DURABLE, &asks).unwrap();
    let said = plan(&cluster, 1, "q");
    assert_eq!(said["refusals"][0]["kind"], "disabled", "{said}");
    let now = cluster.api(1).post("reconciliation/now", &json!({}));
    assert_eq!(now.status, 200);
    assert_eq!(now.json()[0]["result"], "error", "it is switched off everywhere");
    // A file that is wrong changes nothing.
    cluster.node(0).configure(&format!("{KEY}.trigger_interval = \"1ms\"\n"));
    cluster.node(0).reload();
    until("the node says what is wrong", || cluster.node(0).log().contains("is not a time"));
    let right = format!("{KEY}.enabled = true\n{KEY}.trigger_interval = \"100ms\"\n");
    cluster.node(0).configure(&right);
    cluster.node(0).reload();
    await_size(&cluster, 0, "q", 3);
}

#[test]
fn a_pass_with_nothing_to_do_wakes_no_queue() {
    const QUEUES: u64 = 50;
    let cluster = setup(3)
        .set(&format!("{KEY}.target_group_size"), "3")
        .set("quorum_queue.hibernate_after", "1s")
        .start();
    let mut client = cluster.channel(0);
    for number in 0..QUEUES {
        client.queue(1, format!("q{number}"), DURABLE, &quorum()).unwrap();
    }
    let total = |reports: &Value, key: &str| -> u64 {
        let nodes = reports.as_array().unwrap().iter();
        nodes.filter_map(|node| node[key].as_u64()).sum()
    };
    let all_asleep = || Sleepers::of(&cluster).are_all(QUEUES * 3);
    until_some_for(WHOLE, "all hibernate, and nothing is left to be done", || {
        let reports = cluster.api(0).json("reconciliation");
        let waits = total(&reports, "waiting") + total(&reports, "running");
        (total(&reports, "queues") == QUEUES && waits == 0 && all_asleep()).then_some(())
    });
    let before = (Sleepers::of(&cluster), cluster.api(0).json("reconciliation"));
    let passes = |reports: &Value| -> Vec<u64> {
        let nodes = reports.as_array().unwrap().iter();
        nodes.filter_map(|node| node["passes"].as_u64()).collect()
    };
    for _ in 0..3 {
        let last = passes(&cluster.api(1).json("reconciliation"));
        assert_eq!(cluster.api(0).post("reconciliation/now", &json!({})).status, 200);
        until("all nodes have looked", || {
            let now = passes(&cluster.api(1).json("reconciliation"));
            now.len() == 3 && now.iter().zip(&last).all(|(now, last)| now > last)
        });
    }
    let after = (Sleepers::of(&cluster), cluster.api(0).json("reconciliation"));
    assert!(total(&after.1, "examined") >= total(&before.1, "examined") + 3 * QUEUES);
    assert_eq!(after.0, before.0, "none was woken");

    // One that has to change is woken, alone, and sleeps again.
    publish(&cluster, 0, "q0", 1);
    until("those of one queue have slept once more", || {
        let now = Sleepers::of(&cluster);
        now.asleep == QUEUES * 3 && now.begun == before.0.begun + 3
    });
}

/// What the nodes say of a number, added up.
fn sum(cluster: &Cluster, number: impl Fn(&Value) -> Option<u64>) -> u64 {
    let nodes = cluster.api(0).json("reconciliation");
    nodes.as_array().unwrap().iter().filter_map(number).sum()
}

#[test]
fn an_addition_that_fails_leaves_nothing_and_another_node_is_tried() {
    // It acts when it is told to.
    let mut cluster = setup(5).set(&format!("{KEY}.trigger_interval"), "10m").start();
    let single = table! { "x-queue-type" => "quorum", "x-quorum-initial-group-size" => 1 };
    cluster.channel(0).queue(1, "q", DURABLE, &single).unwrap();
    publish(&cluster, 0, "q", 20);
    await_size(&cluster, 0, "q", 1);
    let policy = json!({
        "pattern": "", "apply-to": "quorum_queues", "definition": {"target-group-size": 3}
    });
    assert!(cluster.api(0).put("policies/%2F/p", &policy).status < 300);
    let next = until_some("a node is chosen", || {
        let step = plan(&cluster, 0, "q")["steps"][0]["step"].as_str()?.to_owned();
        (0..5).find(|node| step == format!("add a member on n{node}"))
    });
    // It stands still, and nobody has missed it when the step begins.
    cluster.freeze(next);
    let now = || assert_eq!(cluster.api(0).post("reconciliation/now", &json!({})).status, 200);
    now();
    until("the addition has failed", || sum(&cluster, |node| node["failed"]["add"].as_u64()) > 0);
    let name = format!("leveret@n{next}");
    let failed = plan(&cluster, 0, "q");
    let failure = failed["last_failure"].as_str().unwrap_or_default();
    assert!(failure.starts_with(&format!("add a member on n{next}: ")), "{failed}");
    until_equal("nothing is left of it", &json!(["leveret@n0"]), || {
        cluster.view(0, "q")["members"].clone()
    });
    assert_eq!(voters(&cluster, 0, "q").unwrap(), ["leveret@n0"]);

    // The queue is used all the time, and grows elsewhere.
    publish(&cluster, 0, "q", 20);
    let whole = until_some_for(WHOLE, "it has three members", || {
        now();
        voters(&cluster, 0, "q").filter(|voters| voters.len() == 3)
    });
    assert!(!whole.contains(&name), "{whole:?} without {name}");
    cluster.thaw(next);
    until("its node is there again", || {
        let nodes = cluster.api(0).json("nodes");
        nodes.as_array().unwrap().iter().all(|node| node["running"] == true)
    });
    until_equal("it has no member there", &Some(whole), || voters(&cluster, next, "q"));
    cluster.await_depth(next, "q", 40);
}

#[test]
fn leaders_that_move_during_a_pass_leave_no_queue_behind() {
    let mut cluster = setup(3).set(&format!("{KEY}.concurrency"), "1").start();
    let queues: Vec<String> = (0..count(60, 300)).map(|n| format!("q{n}")).collect();
    for queue in &queues {
        cluster.channel(0).queue(1, queue, DURABLE, &quorum()).unwrap();
        publish(&cluster, 0, queue, 5);
    }
    for queue in &queues {
        await_size(&cluster, 0, queue, 3);
    }
    cluster.channel(0).queue(1, "load", DURABLE, &quorum()).unwrap();
    let load = Plan::new("load", &[cluster.amqp(1)], &[cluster.amqp(1)]).start();
    load.await_more(count(300, 3000));
    cluster.kill(2);
    cluster.node(2).wipe();
    cluster.start(2);
    let done = |cluster: &Cluster| sum(cluster, |node| node["done"]["replace"].as_u64());
    let total = queues.len() as u64 + 1;
    until_some_for(WHOLE, "the pass has begun", || (done(&cluster) >= 3).then_some(()));
    // All leaders go to other nodes, which go on, and some of them back again.
    let drained = cluster.api(1).post("nodes/leveret%40n0/drain", &json!({}));
    assert_eq!(drained.status, 200, "{}", drained.text());
    let then = done(&cluster);
    assert!(then < total, "the pass was over before the leaders had moved");
    let led = |by_drained: bool| {
        let is_it = move |node: &Value| (node["node"] == "leveret@n0") == by_drained;
        sum(&cluster, |node| is_it(node).then(|| node["queues"].as_u64())?)
    };
    until_equal("the others look after them", &(0, total), || (led(true), led(false)));
    assert_eq!(cluster.api(1).post("nodes/leveret%40n0/revive", &json!({})).status, 204);
    assert_eq!(cluster.api(1).post("rebalance/queues", &json!({})).status, 204);
    for queue in queues.iter().map(String::as_str).chain(["load"]) {
        let mut now = await_size(&cluster, 1, queue, 3);
        now.sort();
        assert_eq!(now, ["leveret@n0", "leveret@n1", "leveret@n2"], "{queue}");
        until_equal("there is nothing to do", &json!([[], []]), || {
            let plan = plan(&cluster, 1, queue);
            json!([plan["steps"], plan["refusals"]])
        });
        assert_eq!(cluster.view(1, queue)["members"], json!(now), "the record says the same");
    }
    load.await_more(count(300, 3000));
    load.finish(DRAIN).judge();
    // The new members count.
    cluster.kill(0);
    for queue in &queues {
        cluster.await_depth(1, queue, 5);
        drain(&cluster, 1, queue, 5);
    }
}
