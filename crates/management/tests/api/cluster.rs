//! Three nodes as one of them shows them.

use management::view::counters::ExchangeCounters;
use management::view::node::{Listener, NodeStats};
use management::view::part::{ExchangePart, MemberPart, Part, QueuePart};
use management::view::queue::QueueStats;
use management::view::raft::{RaftMember, RaftRole};
use model::id::{NodeId, QueueId};
use serde_json::json;

use crate::check::{Asker, asker};
use crate::fake::{NODE, OWN, connection, consumer};

const SECOND: NodeId = NodeId(200);
const THIRD: NodeId = NodeId(300);

fn member(queue: QueueId, role: RaftRole, term: u64) -> RaftMember {
    RaftMember {
        queue,
        role,
        has_leader: role == RaftRole::Leader,
        term,
        last: 40,
        committed: 39,
        applied: 38,
        snapshot: 30,
        log_bytes: 1000,
        hibernated: role == RaftRole::Follower,
    }
}

fn led(id: QueueId, term: u64, ready: u64) -> QueuePart {
    QueuePart {
        id,
        term,
        stats: QueueStats { ready, ..QueueStats::default() },
        voters: vec![OWN, SECOND, THIRD],
        learners: Vec::new(),
        consumers: Vec::new(),
    }
}

fn seat(queue: QueueId, term: u64, leader: NodeId) -> MemberPart {
    MemberPart { queue, term, leader }
}

/// A queue that is led by the second node, with a consumer of a client of the second node.
fn second(queue: QueueId) -> Part {
    let client = connection("leveret@second", 6000);
    let mut led = led(queue, 7, 5);
    led.consumers.push(consumer(&client));
    led.stats.consumers = 1;
    let mut part = Part::empty(SECOND);
    part.messages.publish = 30;
    part.queues.push(led);
    part.members.push(seat(queue, 7, SECOND));
    part.connections.push(client);
    part
}

fn cluster() -> (Asker, QueueId) {
    let asker = asker();
    let queue = asker.node.quorum_queue("q", &[OWN, SECOND, THIRD]);
    asker.node.add_member(member(queue, RaftRole::Follower, 7));
    asker.node.add_node("leveret@second", second(queue));
    (asker, queue)
}

#[tokio::test]
async fn what_went_through_an_exchange_is_the_sum_of_all_nodes() {
    let asker = asker();
    for (id, name, publish_in) in [(SECOND, "second", 30), (THIRD, "third", 12)] {
        let mut part = Part::empty(id);
        part.exchanges.push(ExchangePart {
            vhost: "/".into(),
            name: "amq.topic".into(),
            counters: ExchangeCounters { publish_in, ..ExchangeCounters::default() },
        });
        asker.node.add_node(name, part);
    }
    let one = asker.get("exchanges/%2F/amq.topic").await.json;
    assert_eq!(one["message_stats"]["publish_in"], 42);
    let all = asker.get("exchanges").await.json;
    let sum = |name| {
        let found = all.as_array().unwrap().iter().find(|one| one["name"] == name).unwrap();
        found["message_stats"]["publish_in"].clone()
    };
    assert_eq!((sum("amq.topic"), sum("amq.direct")), (json!(42), json!(0)));
}

#[tokio::test]
async fn a_quorum_queue_is_what_its_leader_says() {
    let (asker, queue) = cluster();
    asker.node.add_silent(THIRD, "leveret@third");
    for item in [asker.get("queues/%2F/q").await.json, asker.get("queues").await.json[0].clone()] {
        assert_eq!(item["type"], "quorum");
        assert_eq!(item["state"], "running");
        assert_eq!(item["node"], "leveret@second");
        assert_eq!(item["leader"], "leveret@second");
        assert_eq!(item["members"], json!(["leveret@second", NODE, "leveret@third"]));
        assert_eq!(item["online"], json!(["leveret@second", NODE]));
        assert_eq!((&item["messages_ready"], &item["consumers"]), (&json!(5), &json!(1)));
    }
    // Somebody who still believes that he leads is not believed.
    let mut stale = Part::empty(THIRD);
    stale.queues.push(led(queue, 6, 99));
    stale.members.push(seat(queue, 6, THIRD));
    asker.node.add_node("leveret@third", stale);
    let item = asker.get("queues/%2F/q").await.json;
    assert_eq!((&item["leader"], &item["messages"]), (&json!("leveret@second"), &json!(5)));
}

#[tokio::test]
async fn without_a_majority_or_a_leader_a_queue_says_so() {
    let asker = asker();
    let queue = asker.node.quorum_queue("q", &[OWN, SECOND, THIRD]);
    asker.node.add_silent(SECOND, "leveret@second");
    asker.node.add_silent(THIRD, "leveret@third");
    let state = async |asker: &Asker| asker.get("queues/%2F/q").await.json["state"].clone();
    assert_eq!(state(&asker).await, "down");
    asker.node.add_member(member(queue, RaftRole::Follower, 7));
    assert_eq!(state(&asker).await, "minority");
    let mut second = Part::empty(SECOND);
    second.members.push(seat(queue, 7, THIRD));
    asker.node.add_node("leveret@second", second);
    // Its leader is known, but does not answer.
    let item = asker.get("queues/%2F/q").await.json;
    assert_eq!((&item["state"], &item["leader"]), (&json!("down"), &json!("leveret@third")));
}

#[tokio::test]
async fn clients_of_all_nodes_are_listed() {
    let (asker, _) = cluster();
    asker.node.connect(5001);
    let connections = asker.get("connections?sort=name").await.json;
    assert_eq!(connections[0]["node"], NODE);
    assert_eq!(connections[1]["node"], "leveret@second");
    let consumers = asker.get("consumers").await.json;
    assert_eq!(consumers[0]["queue"]["name"], "q");
    assert_eq!(consumers[0]["channel_details"]["node"], "leveret@second");
    assert_eq!(consumers[0]["channel_details"]["peer_port"], 6000);
    let overview = asker.get("overview").await.json;
    assert_eq!(overview["object_totals"]["connections"], 2);
    assert_eq!(overview["object_totals"]["consumers"], 1);
    assert_eq!(overview["queue_totals"]["messages"], 5);
    assert_eq!(overview["message_stats"]["publish"], 30);
    // What other nodes do is theirs to tell a scraper.
    let text = asker.scrape("/metrics").await.text;
    assert!(text.contains("\nrabbitmq_connections 1\n"));
    assert!(text.contains("\nrabbitmq_queue_messages 0\n"));
}

#[tokio::test]
async fn members_of_a_quorum_queue_are_reported() {
    let (asker, _) = cluster();
    asker.put("queues/%2F/classic", json!({})).await;
    let members = asker.get("queues/quorum/%2F/q/status").await.json;
    assert_eq!(
        members[0],
        json!({
            "Node Name": NODE, "Raft State": "follower", "Membership": "voter",
            "Last Log Index": 40, "Last Written": 40, "Last Applied": 38, "Commit Index": 39,
            "Snapshot Index": 30, "Term": 7, "Machine Version": 1,
            "Hibernated": true,
        })
    );
    assert_eq!(members[1]["Raft State"], "nodedown");
    assert_eq!(asker.get("queues/quorum/%2F/classic/status").await.status, 400);
    assert_eq!(asker.get("queues/quorum/%2F/absent/status").await.status, 404);
}

#[tokio::test]
async fn the_leadership_can_be_given_away() {
    let (asker, _) = cluster();
    let path = "queues/quorum/%2F/q/leader";
    assert_eq!(asker.put(path, json!({"node": NODE})).await.status, 204);
    assert_eq!(asker.put(path, json!({"node": "leveret@second"})).await.status, 503);
    assert_eq!(asker.put(path, json!({"node": "leveret@nobody"})).await.status, 404);
    assert_eq!(asker.put(path, json!({})).await.status, 400);
    let other = asker.user("mona", "monitoring", true).await;
    assert_eq!(other.put(path, json!({"node": NODE})).await.status, 401);
}

#[tokio::test]
async fn how_groups_are_kept_whole_is_shown() {
    let (asker, _) = cluster();
    asker.put("queues/%2F/classic", json!({})).await;
    let other = asker.user("mona", "monitoring", true).await;
    let got = other.get("reconciliation").await.json;
    assert_eq!(got[0]["node"], NODE);
    assert_eq!(
        (&got[0]["below_target"], &got[0]["blocked"]["member_down"]),
        (&json!(2), &json!(2))
    );
    let plan = other.get("queues/quorum/%2F/q/plan").await.json;
    assert_eq!(plan["steps"][0]["step"], "add a member on c");
    assert_eq!(other.get("queues/quorum/%2F/classic/plan").await.status, 400);
    assert_eq!(other.get("queues/quorum/%2F/absent/plan").await.status, 404);
    assert_eq!(other.post("reconciliation/now", json!({})).await.status, 401);
    let told = asker.post("reconciliation/now", json!({})).await.json;
    assert_eq!(
        told,
        json!([
            {"node": NODE, "result": "ok"},
            {"node": "b", "result": "error", "reason": "it does not answer"},
        ])
    );
    assert_eq!(asker.get("reconciliation/now").await.status, 405);
    let text = asker.scrape("/metrics").await.text;
    for line in [
        "leveret_reconciliation_queues_below_target 2",
        "leveret_reconciliation_queues_blocked{reason=\"member_down\"} 2",
        "leveret_reconciliation_steps_total{kind=\"add\"} 3",
        "leveret_reconciliation_last_pass_seconds 0.25",
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
    }
}

#[tokio::test]
async fn health_checks_look_at_quorum_queues() {
    let (asker, queue) = cluster();
    let checks = "health/checks/quorum-queues-without-elected-leaders";
    let critical = "health/checks/node-is-quorum-critical";
    asker.node.add_silent(THIRD, "leveret@third");
    // Two of three: without this node there is no majority.
    let got = asker.get(critical).await;
    assert_eq!(got.status, 503);
    assert_eq!(
        got.json["queues"][0],
        json!({
            "name": "q", "readable_name": "queue 'q' in vhost '/'", "virtual_host": "/",
            "type": "quorum",
        })
    );
    assert_eq!(asker.get(&format!("{checks}/all-vhosts/")).await.status, 200);
    let orphan = asker.node.quorum_queue("orphan", &[OWN, SECOND, THIRD]);
    asker.node.add_member(member(orphan, RaftRole::Follower, 1));
    for path in ["all-vhosts", "vhost/%2F", "vhost/%2F/pattern/^or", "all-vhosts/pattern/.*"] {
        let got = asker.get(&format!("{checks}/{path}")).await;
        assert_eq!(got.status, 503, "{path}");
        assert_eq!(got.json["queues"].as_array().unwrap().len(), 1, "{path}");
        assert_eq!(got.json["queues"][0]["name"], "orphan");
    }
    assert_eq!(asker.get(&format!("{checks}/vhost/%2F/pattern/^q")).await.status, 200);
    assert_eq!(asker.get(&format!("{checks}/vhost/%2F/pattern/(")).await.status, 400);
    assert_eq!(asker.get(&format!("{checks}/vhost/absent/pattern/a")).await.status, 404);
    let mut third = Part::empty(THIRD);
    third.members = vec![seat(queue, 7, SECOND), seat(orphan, 7, SECOND)];
    asker.node.add_node("leveret@third", third);
    let got = asker.get(critical).await;
    assert_eq!(got.json["queues"][0]["name"], "orphan", "the second has no member of it");
}

#[tokio::test]
async fn a_node_without_a_vote_does_not_count_for_the_topology() {
    let asker = asker();
    let critical = "health/checks/node-is-quorum-critical";
    for (id, name) in [(SECOND, "leveret@second"), (THIRD, "leveret@third")] {
        asker.node.add_node(name, Part::empty(id));
    }
    assert_eq!(asker.get(critical).await.status, 200);
    // Three run; two of them vote, this one included.
    asker.node.set_voteless(1);
    let got = asker.get(critical).await;
    assert_eq!(got.status, 503);
    assert!(got.text.contains("no majority for changes of the topology"), "{}", got.text);
}

#[tokio::test]
async fn raft_has_metrics() {
    let (asker, _) = cluster();
    let text = asker.scrape("/metrics").await.text;
    assert!(text.contains("\nrabbitmq_raft_commit_index 39\n"));
    assert!(text.contains("\nleveret_raft_leaders 0\n"));
    assert!(text.contains("\nleveret_quorum_queues_without_leader 1\n"));
    let text = asker.scrape("/metrics/per-object").await.text;
    for (name, value) in [
        ("term", 7),
        ("commit_index", 39),
        ("last_written_index", 40),
        ("snapshot_index", 30),
        ("log_commit_index", 39),
        ("log_last_written_index", 40),
        ("log_snapshot_index", 30),
    ] {
        let line = format!("\nrabbitmq_raft_{name}{{queue=\"q\",vhost=\"/\"}} {value}\n");
        let other = format!("\nrabbitmq_raft_{name}{{vhost=\"/\",queue=\"q\"}} {value}\n");
        assert!(text.contains(&line) || text.contains(&other), "{name}");
    }
    let text = asker.scrape("/metrics/detailed?family=ra_metrics&queue=^x").await.text;
    assert!(!text.contains("raft_term{"));
}

#[tokio::test]
async fn limits_and_operator_policies_are_parameters_too() {
    let asker = asker();
    let limits = "parameters/vhost-limits/%2F/limits";
    let value = |limits| json!({ "value": limits });
    assert_eq!(asker.put(limits, value(json!({"max-queues": 3}))).await.status, 201);
    let other = value(json!({"max-connections": 5}));
    assert_eq!(asker.put(limits, other).await.status, 204);
    let shown = asker.get("vhost-limits/%2F").await.json;
    assert_eq!(shown[0]["value"], json!({"max-connections": 5}));
    assert_eq!(asker.put(limits, value(json!({"max-hares": 5}))).await.status, 400);
    assert_eq!(asker.send("DELETE", limits, &[], String::new()).await.status, 204);
    assert_eq!(asker.get("vhost-limits/%2F").await.json, json!([]));

    let policy = "parameters/operator_policy/%2F/p";
    let definition = json!({"pattern": "^a", "definition": {"max-length": 10}, "priority": 1});
    assert_eq!(asker.put(policy, value(definition)).await.status, 201);
    assert_eq!(asker.get("operator-policies/%2F/p").await.json["pattern"], "^a");
    assert_eq!(asker.send("DELETE", policy, &[], String::new()).await.status, 204);
    assert_eq!(asker.get("operator-policies/%2F/p").await.status, 404);
}

#[tokio::test]
async fn alarms_of_other_nodes_are_the_cluster_s_and_not_this_node_s() {
    let asker = asker();
    asker.node.add_node("leveret@second", Part::empty(SECOND));
    assert_eq!(asker.get("health/checks/alarms").await.status, 200);
    asker.node.add_alarm_elsewhere("leveret@second");
    let got = asker.get("health/checks/alarms").await;
    let theirs = json!([{"node": "leveret@second", "resource": "disk"}]);
    assert_eq!((got.status, &got.json["alarms"]), (503, &theirs));
    assert_eq!(asker.get("health/checks/local-alarms").await.status, 200);
}

#[tokio::test]
async fn nodes_that_answer_are_shown_as_they_are() {
    let asker = asker();
    let listener = Listener { protocol: "amqp".into(), address: "::".into(), port: 5673 };
    let stats = NodeStats {
        name: "leveret@second".into(),
        process: 77,
        processors: 16,
        memory_used: 70_000_000,
        disk_free: 9_000_000,
        disk_alarm: true,
        draining: true,
        listeners: vec![listener],
        ..NodeStats::default()
    };
    let quorum = asker.node.quorum_queue("q", &[OWN, SECOND, THIRD]);
    let mut part = second(quorum);
    part.queues[0].stats.memory = 1_000;
    part.node = Some(stats);
    asker.node.add_node("leveret@second", part);
    asker.node.add_silent(THIRD, "leveret@third");
    let list = asker.get("nodes").await;
    assert_eq!(list.names(), ["leveret@second", NODE, "leveret@third"]);
    let second = asker.get("nodes/leveret@second").await.json;
    for shown in [&list.json[0], &second] {
        assert_eq!((&shown["running"], &shown["os_pid"]), (&json!(true), &json!("77")));
        assert_eq!((&shown["mem_used"], &shown["processors"]), (&json!(70_000_000), &json!(16)));
        assert_eq!(shown["disk_free"], json!(9_000_000));
        assert_eq!(
            (&shown["disk_free_alarm"], &shown["being_drained"]),
            (&json!(true), &json!(true))
        );
    }
    assert_eq!(list.json[2]["running"], json!(false));
    assert_eq!(asker.get("nodes/leveret@third").await.json["mem_used"], json!(0));
    let memory = asker.get("nodes/leveret@second/memory").await.json;
    assert_eq!(memory["memory"]["total"]["rss"], json!(70_000_000));
    assert_eq!(memory["memory"]["queue_procs"], json!(1_000));
    let memory = asker.get("nodes/leveret@third/memory").await.json;
    assert_eq!(memory["memory"], "not_available");
    assert_eq!(asker.get("nodes/leveret@fourth/memory").await.status, 404);
    let overview = asker.get("overview").await.json;
    let listeners = overview["listeners"].as_array().unwrap();
    let of_second = |one: &&serde_json::Value| one["node"] == "leveret@second";
    let theirs: Vec<_> = listeners.iter().filter(of_second).collect();
    assert_eq!((theirs.len(), &theirs[0]["port"]), (1, &json!(5673)));
    assert!(listeners.len() > 1, "its own are there too");
}
