//! Members of quorum queues that come and go.

use management::node::Node as _;
use management::view::raft::{RaftMember, RaftRole};
use metadata::command::{Command, PutNode};
use metadata::objects::node::NodeRole;
use model::id::{NodeId, QueueId};
use serde_json::{Value, json};

use crate::check::{Asker, asker};
use crate::fake::{NODE, OWN};

const SECOND: NodeId = NodeId(200);
const ADD: &str = "queues/quorum/%2F/q/replicas/add";
const DELETE: &str = "queues/quorum/%2F/q/replicas/delete";

fn know(asker: &Asker, node: NodeId, name: &str) {
    let put = PutNode {
        id: node.0,
        name: name.into(),
        address: String::new(),
        role: NodeRole::Full,
        boot: 1,
        starts: Vec::new(),
        zone: None,
    };
    asker.node.apply(Command::PutNode(put)).unwrap();
}

/// Two nodes, and a queue that the first one leads alone.
fn cluster() -> Asker {
    let asker = asker();
    know(&asker, OWN, "own");
    know(&asker, SECOND, "second");
    asker.node.add_silent(SECOND, "leveret@second");
    queue(&asker, "q");
    asker
}

fn queue(asker: &Asker, name: &str) -> QueueId {
    let id = asker.node.quorum_queue(name, &[OWN]);
    let (role, has_leader) = (RaftRole::Leader, true);
    let (term, last, committed, applied, snapshot, log_bytes) = (1, 1, 1, 1, 0, 0);
    asker.node.add_member(RaftMember {
        queue: id,
        role,
        has_leader,
        term,
        last,
        committed,
        applied,
        snapshot,
        log_bytes,
        hibernated: false,
    });
    id
}

fn nodes(asker: &Asker, name: &str) -> Vec<NodeId> {
    asker.node.state().queue("/", name).unwrap().nodes().collect()
}

#[tokio::test]
async fn one_queue_gets_and_loses_a_member() {
    let asker = cluster();
    let body = json!({"node": "leveret@second"});
    for _ in 0..2 {
        assert_eq!(asker.post(ADD, body.clone()).await.status, 204);
        assert_eq!(nodes(&asker, "q"), [OWN, SECOND]);
    }
    let refused = asker.delete_with(DELETE, body.clone()).await;
    assert_eq!(refused.status, 503);
    let reason = "0 of the 1 members that would be left are running, which is no majority; use \
                  force to remove the member all the same";
    assert_eq!(refused.json, json!({"error": "service_unavailable", "reason": reason}));
    let forced = json!({"node": "leveret@second", "force": true});
    for _ in 0..2 {
        assert_eq!(asker.delete_with(DELETE, forced.clone()).await.status, 202);
        assert_eq!(nodes(&asker, "q"), [OWN]);
    }
    let last = asker.delete_with(DELETE, json!({"node": NODE})).await;
    assert_eq!((last.status, &last.json["reason"]), (503, &json!("last_node")));
    assert_eq!(nodes(&asker, "q"), [OWN]);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let asker = cluster();
    asker.put("queues/%2F/classic", json!({})).await;
    let body = |node: &str| json!({ "node": node });
    for (path, body, status) in [
        (ADD, body("leveret@nobody"), 404),
        (ADD, json!({}), 400),
        (ADD, json!({"node": "leveret@second", "membership": "non_voter"}), 400),
        (ADD, json!({"node": "leveret@second", "membership": "x"}), 400),
        ("queues/quorum/%2F/absent/replicas/add", body(NODE), 404),
        ("queues/quorum/%2F/classic/replicas/add", body(NODE), 400),
        ("queues/quorum/replicas/on/leveret%40nobody/grow", json!({}), 404),
        ("queues/quorum/replicas/on/leveret%40second/grow", json!({"strategy": "x"}), 400),
        ("queues/quorum/replicas/on/leveret%40second/grow", json!({"queue_pattern": "("}), 400),
        ("queues/quorum/replicas/grow", json!({"count": 0}), 400),
    ] {
        let answer = asker.post(path, body.clone()).await;
        assert_eq!(answer.status, status, "{path} {body}: {}", answer.text);
    }
    let path = "queues/quorum/replicas/on/leveret%40nobody/shrink";
    assert_eq!(asker.delete_with(path, json!({})).await.status, 404);
    assert_eq!(asker.delete_with(DELETE, body("leveret@nobody")).await.status, 404);
    assert_eq!(nodes(&asker, "q"), [OWN]);
}

#[tokio::test]
async fn many_queues_have_a_row_each() {
    let asker = cluster();
    queue(&asker, "r");
    let row = |name: &str, size: Value, result: &str| json!({"vhost": "/", "name": name, "size": size, "result": result});
    let path = "queues/quorum/replicas/on/leveret%40second/grow";
    let even = asker.post(path, json!({"strategy": "even"})).await;
    assert_eq!((even.status, even.json), (200, json!([])), "one is odd");
    let grown = asker.post(path, json!({"strategy": "all", "queue_pattern": "^q"})).await;
    assert_eq!(grown.json, json!([row("q", json!(2), "ok")]));
    // The second member of `q` does not answer, so nothing more happens to it.
    let counted = asker.post("queues/quorum/replicas/grow", json!({"count": 9})).await;
    assert_eq!(counted.json, json!([row("r", json!(2), "ok")]), "there are two nodes");
    let path = "queues/quorum/replicas/on/leveret%40second/shrink";
    let shrunk = asker.delete_with(path, json!({"force": true})).await;
    assert_eq!(shrunk.status, 202);
    assert_eq!(shrunk.json, json!([row("q", json!(1), "ok"), row("r", json!(1), "ok")]));
    let own = format!("queues/quorum/replicas/on/{}/shrink", NODE.replace('@', "%40"));
    let shrunk = asker.delete_with(&own, json!({})).await.json;
    assert_eq!(shrunk[0], row("q", json!(1), "error: the last node cannot be removed"));
    assert_eq!(nodes(&asker, "q"), [OWN]);
}

#[tokio::test]
async fn a_node_is_forgotten_with_its_members() {
    let asker = cluster();
    queue(&asker, "r");
    let path = "nodes/leveret%40second";
    let third = NodeId(0x300);
    know(&asker, third, "third");
    asker.node.add_silent(third, "leveret@third");
    let own = format!("nodes/{}", NODE.replace('@', "%40"));
    let running = asker.delete_with(&own, json!({})).await;
    assert_eq!(running.status, 400);
    assert!(running.json["reason"].as_str().unwrap().contains("is running"), "{}", running.text);
    assert_eq!(asker.delete_with("nodes/leveret%40nobody", json!({})).await.status, 404);

    asker.node.stop(SECOND);
    asker.node.stop(third);
    asker.post(ADD, json!({"node": "leveret@second"})).await;
    asker.post(ADD, json!({"node": "leveret@third"})).await;
    asker.node.quorum_queue("sole", &[SECOND]);
    let sole = asker.delete_with(path, json!({})).await;
    assert_eq!(sole.status, 412);
    let reason = "1 queues are only on leveret@second and would be lost, such as 'sole' in vhost \
                  '/'; use force to lose them";
    assert_eq!(sole.json["reason"], reason);
    assert_eq!(nodes(&asker, "q"), [OWN, SECOND, third], "nothing has changed");
    // Here it is missed, and whoever decides sees it run.
    asker.node.keep_nodes(Some("node 'second' is running"));
    let runs = asker.delete_with(path, json!({"force": true})).await;
    assert_eq!((runs.status, &runs.json["reason"]), (503, &json!("node 'second' is running")));
    assert_eq!(nodes(&asker, "q"), [OWN, SECOND, third], "nothing has changed");
    asker.node.keep_nodes(None);
    // One that refuses to go keeps its node, and nothing is lost yet.
    let refused = asker.delete_with(path, json!({"force": true})).await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert_eq!(refused.json["queues"][0]["result"], "error: the queue has no leader");
    assert!(refused.json["reason"].as_str().unwrap().contains("keep_members"), "{}", refused.text);
    assert!(asker.node.state().node(SECOND).is_some());
    assert_eq!(nodes(&asker, "sole"), [SECOND]);
    asker.node.runs(third);
    let forgotten = asker.delete_with(path, json!({"force": true})).await;
    assert_eq!(forgotten.status, 200, "{}", forgotten.text);
    let row = |name: &str, size: u64, result: &str| json!({"vhost": "/", "name": name, "size": size, "result": result});
    assert_eq!(forgotten.json["queues"], json!([row("q", 2, "ok"), row("sole", 0, "lost")]));
    assert_eq!(nodes(&asker, "q"), [OWN, third]);
    assert!(asker.node.state().node(SECOND).is_none());
    assert!(asker.node.state().queue("/", "sole").is_none(), "it is lost, as was wanted");
}

#[tokio::test]
async fn a_node_is_drained_and_revived() {
    let asker = cluster();
    let own = NODE.replace('@', "%40");
    let drained = asker.post(&format!("nodes/{own}/drain"), json!({})).await;
    assert_eq!(
        drained.json,
        json!({
            "connections": 2,
            "leaders_moved": 3,
            "leaders_stayed": [{"vhost": "/", "name": "q", "reason": "non_stable_members"}],
            "journals_moved": 1,
            "journals_stayed": [{"name": "orders", "reason": "it has no backup"}],
        })
    );
    assert_eq!(asker.post(&format!("nodes/{own}/revive"), json!({})).await.status, 204);
    assert_eq!(asker.post("nodes/leveret%40second/drain", json!({})).await.status, 503);
    assert_eq!(asker.post("nodes/leveret%40nobody/drain", json!({})).await.status, 404);
}

#[tokio::test]
async fn members_without_a_node_and_without_a_vote_are_found() {
    let asker = cluster();
    let ghosts = "health/checks/quorum-queues-without-ghost-members";
    let sync = "health/checks/new-quorum-queue-replicas-have-finished-initial-sync";
    assert_eq!(asker.get(ghosts).await.status, 200);
    assert_eq!(asker.get(sync).await.status, 200);
    // Its node runs, and has nothing of it.
    let state = asker.node.state();
    let q = state.queue("/", "q").unwrap();
    asker.node.lose(&[q.id]);
    let found = asker.get(ghosts).await;
    assert_eq!((found.status, &found.json["queues"][0]["name"]), (503, &json!("q")));
    asker.node.lose(&[]);
    assert_eq!(asker.get(ghosts).await.status, 200);
    let id = asker.node.quorum_queue("young", &[OWN, NodeId(0x999)]);
    let found = asker.get(ghosts).await;
    assert_eq!((found.status, &found.json["queues"][0]["name"]), (503, &json!("young")));
    let mut member = asker.node.member(asker.node.state().queue("/", "q").unwrap().id);
    (member.queue, member.role) = (id, RaftRole::Learner);
    asker.node.add_member(member);
    let found = asker.get(sync).await;
    assert_eq!((found.status, &found.json["queues"][0]["name"]), (503, &json!("young")));
}

#[tokio::test]
async fn members_take_checkpoints() {
    let asker = cluster();
    queue(&asker, "ill");
    asker.put("queues/%2F/classic", json!({})).await;
    let row = |name: &str, result: &str| json!({"vhost": "/", "name": name, "result": result});
    let all = asker.post("queues/quorum/replicas/checkpoint", json!({})).await;
    let full = "error: on leveret@n2: the disk is full";
    assert_eq!((all.status, all.json), (200, json!([row("ill", full), row("q", "ok")])));
    let some =
        asker.post("queues/quorum/replicas/checkpoint", json!({"queue_pattern": "^q"})).await;
    assert_eq!(some.json, json!([row("q", "ok")]));
    for (name, status, reason) in [
        ("q", 204, Value::Null),
        ("ill", 503, json!("on leveret@n2: the disk is full")),
        ("classic", 400, json!("not a quorum queue")),
        ("absent", 404, json!("Not Found")),
    ] {
        let one = asker.post(&format!("queues/quorum/%2F/{name}/checkpoint"), json!({})).await;
        assert_eq!((one.status, &one.json["reason"]), (status, &reason), "{name}");
    }
    let other = asker.user("other", "monitoring", true).await;
    for path in ["queues/quorum/replicas/checkpoint", "queues/quorum/%2F/q/checkpoint"] {
        assert_eq!(other.post(path, json!({})).await.status, 401);
    }
    let odd = asker.post("queues/quorum/replicas/checkpoint", json!({"vhost_pattern": "("})).await;
    assert_eq!(odd.status, 400);
}

#[tokio::test]
async fn changes_of_members_are_for_administrators_and_can_be_disallowed() {
    let asker = cluster();
    let body = json!({"node": "leveret@second"});
    let other = asker.user("other", "monitoring", true).await;
    assert_eq!(other.post(ADD, body.clone()).await.status, 401);
    asker.node.restrict();
    for path in
        [ADD, "queues/quorum/replicas/on/leveret%40second/grow", "queues/quorum/replicas/grow"]
    {
        let refused = asker.post(path, body.clone()).await;
        assert_eq!(refused.status, 405, "{path}");
        let reason = "Broker settings disallow quorum queue replica operations.";
        assert_eq!(refused.json, json!({"error": "method_not_allowed", "reason": reason}));
    }
    let shrink = "queues/quorum/replicas/on/leveret%40second/shrink";
    for path in [DELETE, shrink] {
        assert_eq!(asker.delete_with(path, body.clone()).await.status, 405, "{path}");
    }
    assert_eq!(nodes(&asker, "q"), [OWN]);
}

#[tokio::test]
async fn a_message_is_looked_at_where_it_is() {
    let asker = cluster();
    asker.put("queues/%2F/classic", json!({})).await;
    for path in ["queues/quorum/%2F/q/peek/1", "queues/%2F/q/peek/1"] {
        let got = asker.get(path).await;
        assert_eq!(got.status, 200);
        assert_eq!(
            got.json,
            json!({
                "position": 1, "payload_bytes": 22, "redelivered": true, "exchange": "x",
                "routing_key": "k", "properties": {}, "payload": "first,",
                "payload_encoding": "string",
            })
        );
    }
    let got = asker.get("queues/quorum/%2F/q/peek/2?truncate=3").await;
    assert_eq!((&got.json["payload"], &got.json["payload_bytes"]), (&json!("sec"), &json!(6)));
    for (path, status, reason) in [
        ("q/peek/3", 400, "Target queue does not have a message at that position"),
        ("q/peek/10", 503, "the queue has no leader"),
        ("q/peek/0", 400, "position value must be a positive integer"),
        ("q/peek/-1", 400, "position value must be a positive integer"),
        ("q/peek/first", 400, "position value must be a positive integer"),
        ("q/peek/1?truncate=x", 400, "truncate must be a number of bytes"),
        ("classic/peek/1", 400, "Cannot peek into a classic queue"),
        ("absent/peek/1", 404, "Not Found"),
    ] {
        let got = asker.get(&format!("queues/quorum/%2F/{path}")).await;
        assert_eq!(got.refusal(), (status, reason), "{path}");
    }
    assert_eq!(asker.post("queues/quorum/%2F/q/peek/1", json!({})).await.status, 405);
}
