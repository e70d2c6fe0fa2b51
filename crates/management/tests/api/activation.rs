//! The activation sequence over HTTP: what is shown of journals, what operators may set, and what the
//! health checks and metrics say of them.

use management::node::Node;
use management::view::copy::{
    Amendment, CopyCounts, CopyFile, JournalCopy, LeftJournal, NodeLeft, SavedCopy,
};
use metadata::command::Command;
use metadata::coordination::Coordination;
use model::id::NodeId;
use serde_json::{Value, json};

use crate::check::{Asker, asker};
use crate::fake::{NODE, OWN};

const B: NodeId = NodeId(200);
const NODE_B: &str = "leveret@b";

/// Journal `orders` on both nodes.
async fn pair() -> (Asker, String) {
    let asker = asker();
    asker.node.keeper(OWN, NODE);
    asker.node.keeper(B, NODE_B);
    let made = asker.put("journals/orders", json!({"node": NODE, "backup": NODE_B})).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let uid = asker.get("journals/orders").await.json["uid"].as_str().unwrap().to_owned();
    (asker, uid)
}

/// The register, without a claim.
fn set(asker: &Asker, uid: &str, value: i64, incarnation: u64) {
    let (id, adopts, founder) = (uid.into(), 0, OWN.0);
    let state = Node::state(&*asker.node);
    let known = state.coordinated(uid).register;
    let seen = known.map(|register| (register.value, register.incarnation));
    let force = Coordination::Force { id, seen, value, incarnation, adopts, founder };
    asker.node.apply(Command::Coordinate(force)).unwrap();
}

fn lock(asker: &Asker, uid: &str) -> u64 {
    let acquire =
        Coordination::Acquire { id: uid.into(), node: OWN.0, boot: 1, attempt: 1, lease_ms: 2000 };
    asker.node.apply(Command::Coordinate(acquire)).unwrap();
    Node::state(&*asker.node).lock(uid).unwrap().token
}

fn copy(uid: &str, state: &str, sequence: u64) -> JournalCopy {
    JournalCopy {
        uid: uid.to_owned(),
        state: state.to_owned(),
        sequence: Some(sequence),
        standing: sequence.to_string(),
        file: CopyFile::Valid,
        incarnation: Some(format!("{:016x}", 7)),
        ..JournalCopy::default()
    }
}

/// What a list says of each copy: node, class, whether it may start, why it waits.
fn copies(shown: &Value) -> Vec<(String, String, bool, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let copy = |copy: &Value| {
        let may_start = copy["may_start"].as_bool().unwrap();
        (text(&copy["node"]), text(&copy["class"]), may_start, text(&copy["waits_for"]))
    };
    shown["copies"].as_array().unwrap().iter().map(copy).collect()
}

#[tokio::test]
async fn copies_are_shown_with_what_they_are_worth_and_a_claim_is_negative() {
    let (asker, uid) = pair().await;
    set(&asker, &uid, 5, 7);
    let token = lock(&asker, &uid);
    let claim = Coordination::CompareAndSet {
        id: uid.as_str().into(),
        incarnation: 7,
        expected: 5,
        new: -6,
        token,
    };
    asker.node.apply(Command::Coordinate(claim)).unwrap();
    asker.node.tell_copies(NODE, vec![copy(&uid, "detaching", 6)]);
    asker.node.tell_copies(NODE_B, vec![copy(&uid, "waiting", 5)]);
    let shown = asker.get("activation").await.json[0].clone();
    assert_eq!(shown["coordinated_sequence"], -6);
    assert_eq!(shown["claim_open"], true);
    assert_eq!(shown["incarnation"], "0000000000000007");
    assert_eq!(shown["lock"], json!({"node": NODE, "token": token, "lease": 2000}));
    let (own, other) =
        ("in sync, a claim of its own is open", "in sync, a claim of another node is open");
    assert_eq!(
        copies(&shown),
        [
            (NODE.to_owned(), own.to_owned(), true, "detaching".to_owned()),
            (NODE_B.to_owned(), other.to_owned(), true, "waiting".to_owned()),
        ]
    );
    assert_eq!(asker.get("activation/orders").await.json, shown);
    assert_eq!(asker.get("activation/nothing").await.status, 404);
    asker.node.lose_majority();
    let got = asker.get("activation").await;
    assert_eq!((got.status, &got.json["error"]), (503, &json!("service_unavailable")));
    assert!(got.text.contains("no majority"), "{}", got.text);
}

#[tokio::test]
async fn an_older_copy_is_gone_on_with_only_if_what_may_be_lost_was_confirmed() {
    let (asker, uid) = pair().await;
    set(&asker, &uid, 6, 7);
    asker.node.tell_copies(NODE, vec![copy(&uid, "seeking", 5)]);
    let path = "activation/orders/coordinated";
    let refused = asker.put(path, json!({"to": 5})).await;
    assert_eq!((refused.status, &refused.json["error"]), (412, &json!("precondition_failed")));
    let reason = refused.json["reason"].as_str().unwrap();
    for part in [
        "from 6 to 5",
        "may have been confirmed under sequence 6",
        "the copy on leveret@b cannot be seen",
    ] {
        assert!(reason.contains(part), "{reason}");
    }
    for almost in
        [json!({"to": 5, "force": true}), json!({"to": 5, "force": true, "confirm": "other"})]
    {
        assert_eq!(asker.put(path, almost).await.status, 412);
    }
    let dry = asker.put(path, json!({"to": 5, "dry_run": true})).await;
    assert_eq!((dry.status, &dry.json["done"]), (200, &json!(false)));
    assert_eq!(dry.json["copies"][0], json!({"node": NODE, "before": "stale", "after": "in sync"}));
    assert_eq!(dry.json["copies"][1], json!({"node": NODE_B, "before": null, "after": null}));
    assert_eq!(Node::state(&*asker.node).coordinated(&uid).register.unwrap().value, 6);
    let body = json!({"to": 5, "force": true, "confirm": "orders"});
    let done = asker.put(path, body.clone()).await;
    assert_eq!((done.status, &done.json["from"], &done.json["to"]), (200, &json!(6), &json!(5)));
    let state = Node::state(&*asker.node);
    let register = state.coordinated(&uid).register.unwrap();
    // The copies of the life before, up to that sequence, count.
    assert_eq!((register.value, register.adopted.unwrap().incarnation), (5, 7));
    assert!(register.incarnation != 7);
    let shown = asker.get("activation/orders").await.json;
    assert_eq!(copies(&shown)[0].1, "in sync");
    // Never below somebody who has the lock.
    lock(&asker, &uid);
    let locked = asker.put(path, body).await;
    assert_eq!((locked.status, &locked.json["error"]), (409, &json!("locked")));
    assert!(locked.text.contains("leveret@test has the lock"), "{}", locked.text);
}

#[tokio::test]
async fn the_newest_of_all_copies_needs_no_force_after_the_register_was_lost() {
    let (asker, uid) = pair().await;
    asker.node.apply(Command::Coordinate(Coordination::NewDataSet { incarnation: 9 })).unwrap();
    asker.node.tell_copies(NODE, vec![copy(&uid, "held", 6)]);
    asker.node.tell_copies(NODE_B, vec![copy(&uid, "held", 5)]);
    let shown = asker.get("activation/orders").await.json;
    assert_eq!(shown["coordinated_sequence"], Value::Null);
    assert!(copies(&shown).iter().all(|(_, class, may_start, _)| {
        class == "held: the coordinated sequence was lost" && !may_start
    }));
    // Which of two histories is meant has to be said.
    let other = JournalCopy { incarnation: Some("00".repeat(8)), ..copy(&uid, "held", 6) };
    asker.node.tell_copies(NODE_B, vec![other]);
    let path = "activation/orders/coordinated";
    let unclear = asker.put(path, json!({"to": 6, "dry_run": true})).await;
    assert_eq!(unclear.status, 400);
    assert!(unclear.text.contains("different histories"), "{}", unclear.text);
    asker.node.tell_copies(NODE_B, vec![copy(&uid, "held", 5)]);
    let done = asker.put(path, json!({"to": 6})).await;
    assert_eq!((done.status, &done.json["dangers"]), (200, &json!([])), "{}", done.text);
    let shown = asker.get("activation/orders").await.json;
    let classes: Vec<String> = copies(&shown).into_iter().map(|copy| copy.1).collect();
    assert_eq!(classes, ["in sync", "stale"]);
}

#[tokio::test]
async fn a_local_sequence_goes_up_only_by_force() {
    let (asker, uid) = pair().await;
    asker.node.tell_copies(NODE, vec![copy(&uid, "seeking", 5)]);
    let path = "activation/orders/local";
    let down = asker.put(path, json!({"to": 4})).await;
    assert_eq!((down.status, &down.json["from"]), (200, &json!("5")), "{}", down.text);
    assert_eq!(asker.node.amended(), [(OWN, Amendment::Sequence { to: 4, forced: false })]);
    let up = asker.put(path, json!({"to": 6})).await;
    assert_eq!(up.status, 412);
    assert!(up.text.contains("every message is lost"), "{}", up.text);
    let body = json!({"to": 6, "node": "test", "force": true, "confirm": "orders"});
    assert_eq!(asker.put(path, body).await.status, 200);
    assert_eq!(asker.node.amended()[1], (OWN, Amendment::Sequence { to: 6, forced: true }));
    let away = asker.put(path, json!({"to": 4, "node": NODE_B})).await;
    assert_eq!(away.status, 503, "{}", away.text);
    assert_eq!(asker.put(path, json!({"to": 4, "node": "c"})).await.status, 400);
    // Nobody could go on from the highest number that there is.
    let (end, highest) = (json!({"to": i64::MAX}), json!({"to": i64::MAX / 2 + 1}));
    for bad in [json!({}), json!({"to": -1}), json!({"to": "x"}), end, highest] {
        assert_eq!(asker.put(path, confirmed(&bad)).await.status, 400, "{bad}");
        let path = "activation/orders/coordinated";
        assert_eq!(asker.put(path, confirmed(&bad)).await.status, 400, "{bad}");
    }
    let body = confirmed(&json!({"sequence": i64::MAX}));
    let restored = asker.post("journals/orders/restore-copy", body).await;
    assert_eq!(restored.status, 400);
    assert!(restored.text.contains("has to be a sequence"), "{}", restored.text);
    let viewer = asker.user("viewer", "monitoring", true).await;
    assert_eq!(viewer.get("activation").await.status, 200);
    assert_eq!(viewer.put(path, json!({"to": 4})).await.status, 401);
}

#[tokio::test]
async fn the_health_checks_say_who_may_start_and_why_the_others_wait() {
    let (asker, uid) = pair().await;
    let (served, in_sync) =
        ("health/checks/journals-are-served", "health/checks/journals-are-in-sync");
    set(&asker, &uid, 6, 7);
    asker.node.tell_copies(NODE, vec![copy(&uid, "active, replicated", 6)]);
    asker.node.tell_copies(NODE_B, vec![copy(&uid, "in sync", 6)]);
    assert_eq!((asker.get(served).await.status, asker.get(in_sync).await.status), (200, 200));
    // The active node is alone.
    asker.node.tell_copies(NODE, vec![copy(&uid, "active, alone", 6)]);
    asker.node.tell_copies(NODE_B, vec![]);
    assert_eq!(asker.get(served).await.status, 200);
    let failed = asker.get(in_sync).await;
    assert_eq!(failed.status, 503);
    let journal = &failed.json["journals"][0];
    assert_eq!(journal["summary"], "served by leveret@test alone; leveret@b is not in sync");
    // The newest copy is away.
    asker.node.tell_copies(NODE, vec![copy(&uid, "seeking", 5)]);
    let failed = asker.get(served).await;
    assert_eq!(failed.status, 503);
    let journal = &failed.json["journals"][0];
    assert_eq!(
        journal["summary"],
        "nobody serves it, and no copy that can be seen may start: start leveret@b"
    );
    assert_eq!(journal["may_start"], json!([]));
    assert_eq!(
        journal["waiting"],
        json!([
            {"node": NODE, "reason": "its copy is stale: it has sequence 5, and 6 is wanted"},
            {"node": NODE_B, "reason": "the node does not answer"},
        ])
    );
    // It comes back.
    asker.node.tell_copies(NODE_B, vec![copy(&uid, "starting", 6)]);
    let journal = asker.get(served).await.json["journals"][0].clone();
    assert_eq!(journal["summary"], "nobody serves it; leveret@b may start");
    assert_eq!(journal["may_start"], json!([NODE_B]));
    // Nobody may: an operator has to decide.
    let syncing =
        JournalCopy { file: CopyFile::Copying, sequence: None, ..copy(&uid, "seeking", 0) };
    asker.node.tell_copies(NODE_B, vec![syncing]);
    let journal = asker.get(served).await.json["journals"][0].clone();
    let summary = journal["summary"].as_str().unwrap();
    assert!(summary.contains("an operator has to decide"), "{summary}");
    assert_eq!(journal["waiting"][1]["reason"], "its copy is not complete");
}

#[tokio::test]
async fn metrics_say_how_old_a_copy_is_and_what_has_happened() {
    let (asker, uid) = pair().await;
    assert!(!asker.scrape("/metrics").await.text.contains("leveret_journal_local"));
    set(&asker, &uid, 6, 7);
    let counts =
        CopyCounts { activations: 3, auto_repairs: 1, hand_overs: 2, ..CopyCounts::default() };
    let active = JournalCopy {
        held: 4,
        unanswered_bytes: 900,
        unanswered_ms: 250,
        lease_ms: Some(1500),
        counts,
        ..copy(&uid, "active, replicated", 6)
    };
    asker.node.tell_copies(NODE, vec![active]);
    let text = asker.scrape("/metrics").await.text;
    for (name, value) in [
        ("local_sequence", "6"),
        ("coordinated_sequence", "6"),
        ("claim_open", "0"),
        ("active", "1"),
        ("in_sync", "1"),
        ("is_held", "0"),
        ("confirms_held", "4"),
        ("replica_lag_bytes", "900"),
        ("replica_lag_seconds", "0.25"),
        ("lease_seconds", "1.5"),
        ("activations_total", "3"),
        ("auto_repairs_total", "1"),
        ("self_repairs_total", "0"),
        ("hand_overs_total", "2"),
        ("failbacks_total", "0"),
    ] {
        let line = format!("leveret_journal_{name}{{journal=\"orders\"}} {value}\n");
        assert!(text.contains(&line), "{line} is missing");
    }
    assert!(
        text.contains("leveret_journal_state{journal=\"orders\",state=\"active, replicated\"} 1")
    );
    let copying =
        JournalCopy { sequence: None, file: CopyFile::Copying, ..copy(&uid, "copying", 0) };
    asker.node.tell_copies(NODE, vec![copying]);
    let text = asker.scrape("/metrics").await.text;
    assert!(text.contains("leveret_journal_local_sequence{journal=\"orders\"} -1\n"));
    assert!(text.contains("leveret_journal_active{journal=\"orders\"} 0\n"));
    assert!(!text.contains("leveret_journal_lease_seconds"));
}

fn confirmed(more: &Value) -> Value {
    let mut body = more.clone();
    body["force"] = json!(true);
    body["confirm"] = json!("orders");
    body
}

#[tokio::test]
async fn a_copy_without_a_state_file_is_adopted_and_all_others_are_held() {
    let (asker, uid) = pair().await;
    set(&asker, &uid, 6, 7);
    let bare = JournalCopy {
        file: CopyFile::None,
        sequence: None,
        incarnation: None,
        standing: "none".into(),
        ..copy(&uid, "held", 0)
    };
    asker.node.tell_copies(NODE, vec![bare]);
    asker.node.tell_copies(NODE_B, vec![copy(&uid, "seeking", 5)]);
    let refused = asker.post("journals/orders/adopt", json!({})).await;
    assert_eq!(refused.status, 412);
    for part in ["nothing says how much", "go on with the copy"] {
        assert!(refused.text.contains(part), "{}", refused.text);
    }
    let done = asker.post("journals/orders/adopt", confirmed(&json!({}))).await;
    assert_eq!((done.status, &done.json["to"]), (200, &json!(6)), "{}", done.text);
    let state = Node::state(&*asker.node);
    let life = state.coordinated(&uid).register.unwrap().adopted.unwrap().incarnation;
    assert_eq!(asker.node.amended(), [(OWN, Amendment::Adopt { sequence: 6, incarnation: life })]);
    let shown = asker.get("activation/orders").await.json;
    assert_eq!(copies(&shown)[1].1, "held: the coordinated sequence was lost");
    // One that says its age: others of its life are compared with it.
    set(&asker, &uid, 6, 7);
    let marked = JournalCopy { file: CopyFile::SetAside, ..copy(&uid, "held", 5) };
    asker.node.tell_copies(NODE, vec![marked]);
    asker.node.tell_copies(NODE_B, vec![copy(&uid, "held", 5)]);
    let body = confirmed(&json!({"node": "b", "dry_run": true}));
    let dry = asker.post("journals/orders/adopt", body).await;
    assert_eq!((&dry.json["to"], &dry.json["done"]), (&json!(5), &json!(false)), "{}", dry.text);
    lock(&asker, &uid);
    let locked = asker.post("journals/orders/adopt", confirmed(&json!({}))).await;
    assert_eq!((locked.status, &locked.json["error"]), (409, &json!("locked")));
}

/// What is weighed up is what is changed: between the look at the copies and the command, somebody may
/// have gone on, confirmed and ended in good order.
#[tokio::test]
async fn what_was_not_shown_is_not_overridden() {
    let (asker, uid) = pair().await;
    set(&asker, &uid, 5, 7);
    asker.node.tell_copies(NODE, vec![copy(&uid, "seeking", 5)]);
    asker.node.tell_copies(NODE_B, vec![copy(&uid, "seeking", 5)]);
    let (id, boot) = (uid.as_str().into(), 1);
    let acquire = Coordination::Acquire { id, node: B.0, boot, attempt: 1, lease_ms: 2000 };
    let id = || uid.as_str().into();
    let swap = |expected, new| {
        let (id, incarnation, token) = (id(), 7, 1);
        Coordination::CompareAndSet { id, incarnation, expected, new, token }
    };
    let release = Coordination::Release { id: id(), token: 1 };
    let served = [acquire, swap(5, -6), swap(-6, 6), release];
    asker.node.meanwhile(served.into_iter().map(Command::Coordinate).collect());
    let path = "activation/orders/coordinated";
    let refused = asker.put(path, json!({"to": 5})).await;
    assert_eq!((refused.status, &refused.json["error"]), (409, &json!("changed")));
    assert!(refused.text.contains("5 then, 6 now"), "{}", refused.text);
    let state = Node::state(&*asker.node);
    assert_eq!(state.coordinated(&uid).register.unwrap().value, 6);
    // Asked again, it is shown.
    let refused = asker.put(path, json!({"to": 5})).await;
    assert!(refused.text.contains("confirmed under sequence 6"), "{}", refused.text);
}

/// The copy is changed, and then the register cannot be: repeated, it goes on.
#[tokio::test]
async fn an_adoption_that_was_cut_off_is_repeated() {
    let (asker, uid) = pair().await;
    set(&asker, &uid, 6, 7);
    asker.node.tell_copies(NODE, vec![copy(&uid, "seeking", 5)]);
    asker.node.tell_copies(NODE_B, vec![copy(&uid, "seeking", 4)]);
    let path = "journals/orders/adopt";
    for _ in 0..2 {
        asker.node.cut_off_after(0);
        assert_eq!(asker.post(path, confirmed(&json!({}))).await.status, 503);
        let (_, Amendment::Adopt { sequence, incarnation }) = asker.node.amended().pop().unwrap()
        else {
            panic!()
        };
        let incarnation = Some(format!("{incarnation:016x}"));
        let adopted = JournalCopy { incarnation, ..copy(&uid, "held", sequence) };
        asker.node.tell_copies(NODE, vec![adopted]);
    }
    let done = asker.post(path, confirmed(&json!({}))).await;
    assert_eq!((done.status, &done.json["to"]), (200, &json!(5)), "{}", done.text);
    let shown = asker.get("activation/orders").await.json;
    let classes: Vec<String> = copies(&shown).into_iter().map(|copy| copy.1).collect();
    assert_eq!(classes, ["in sync", "stale"]);
}

#[tokio::test]
async fn a_restored_copy_is_gone_on_with_also_if_that_was_cut_off() {
    let (asker, uid) = pair().await;
    set(&asker, &uid, 6, 7);
    let saved = SavedCopy {
        name: "4-1".to_owned(),
        sequence: Some(4),
        standing: "4".to_owned(),
        incarnation: Some(format!("{:016x}", 7)),
        bytes: 4096,
    };
    let syncing = JournalCopy {
        file: CopyFile::Copying,
        sequence: None,
        saved: vec![saved],
        ..copy(&uid, "seeking", 0)
    };
    asker.node.tell_copies(NODE, vec![syncing]);
    let path = "journals/orders/restore-copy";
    let body = json!({"sequence": 4});
    asker.node.cut_off_after(0);
    assert_eq!(asker.post(path, confirmed(&body)).await.status, 503);
    assert_eq!(asker.node.amended().len(), 1);
    asker.node.tell_copies(NODE, vec![copy(&uid, "seeking", 4)]);
    let refused = asker.post(path, body.clone()).await;
    assert_eq!(refused.status, 412, "{}", refused.text);
    let done = asker.post(path, confirmed(&body)).await;
    assert_eq!((done.status, &done.json["to"]), (200, &json!(4)), "{}", done.text);
    assert_eq!(asker.node.amended().len(), 1);
    let shown = asker.get("activation/orders").await.json;
    assert_eq!(copies(&shown)[0].1, "in sync");
}

#[tokio::test]
async fn an_old_copy_is_restored_only_knowingly() {
    let (asker, uid) = pair().await;
    set(&asker, &uid, 6, 7);
    let saved = |name: &str, sequence| SavedCopy {
        name: name.to_owned(),
        sequence: Some(sequence),
        standing: sequence.to_string(),
        incarnation: Some(format!("{:016x}", 7)),
        bytes: 4096,
    };
    let syncing = JournalCopy {
        file: CopyFile::Copying,
        sequence: None,
        saved: vec![saved("3-1", 3), saved("4-2", 4), saved("4-3", 4)],
        ..copy(&uid, "seeking", 0)
    };
    asker.node.tell_copies(NODE, vec![syncing]);
    let path = "journals/orders/restore-copy";
    let refused = asker.post(path, json!({"sequence": 4})).await;
    assert_eq!(refused.status, 412);
    assert!(
        refused.text.contains("everything is lost that was confirmed after copy 4-3"),
        "{}",
        refused.text
    );
    let absent = asker.post(path, confirmed(&json!({"sequence": 9}))).await;
    assert_eq!(absent.status, 400);
    assert!(absent.text.contains("there are: 3-1, 4-2, 4-3"), "{}", absent.text);
    let done = asker.post(path, confirmed(&json!({"sequence": 4}))).await;
    assert_eq!((done.status, &done.json["copy"]), (200, &json!("4-3")), "{}", done.text);
    assert_eq!(asker.node.amended(), [(OWN, Amendment::Restore { name: "4-3".into() })]);
    let state = Node::state(&*asker.node);
    let register = state.coordinated(&uid).register.unwrap();
    assert_eq!((register.value, register.adopted.unwrap().incarnation), (4, 7));
}

#[tokio::test]
async fn a_copy_is_put_aside_and_one_that_may_be_served_only_knowingly() {
    let (asker, uid) = pair().await;
    set(&asker, &uid, 6, 7);
    asker.node.tell_copies(NODE, vec![copy(&uid, "held", 9)]);
    let path = "journals/orders/discard-copy";
    let alone = asker.post(path, json!({})).await;
    assert_eq!(alone.status, 412);
    assert!(alone.text.contains("all that is left"), "{}", alone.text);
    asker.node.tell_copies(NODE_B, vec![copy(&uid, "active, alone", 6)]);
    assert_eq!(asker.post(path, json!({})).await.status, 200);
    assert_eq!(asker.node.amended(), [(OWN, Amendment::Discard)]);
    asker.node.tell_copies(NODE, vec![copy(&uid, "waiting", 6)]);
    assert_eq!(asker.post(path, json!({})).await.status, 412);
}

#[tokio::test]
async fn a_journal_comes_back_from_a_disk_with_its_queues() {
    use metadata::declarations::Declarations;
    let (asker, uid) = pair().await;
    let arguments = json!({"durable": true, "arguments": {"x-journal": "orders"}});
    assert_eq!(asker.put("queues/%2F/q", arguments).await.status, 201);
    let binding = json!({"routing_key": "k"});
    assert_eq!(asker.post("bindings/%2F/e/amq.topic/q/q", binding).await.status, 201);
    let known = Declarations::of(&Node::state(&*asker.node), "orders").unwrap();
    assert_eq!((known.queues.len(), known.bindings.len()), (1, 1));

    // Another cluster, of the same nodes.
    let asker = crate::check::asker();
    asker.node.keeper(OWN, NODE);
    asker.node.keeper(B, NODE_B);
    let left = |sequence: Option<u64>, uid: &str| LeftJournal {
        name: "orders".into(),
        uid: uid.to_owned(),
        sequence,
        standing: "-".into(),
        queues: Some(1),
        reason: None,
    };
    let on = |node: &str, journal| NodeLeft { node: node.to_owned(), journals: vec![journal] };
    let copies = vec![on(NODE, left(Some(5), &uid)), on(NODE_B, left(Some(6), &uid))];
    asker.node.leave_journals(copies.clone(), known.clone());
    let listed = asker.get("abandoned-journals").await.json;
    assert_eq!((&listed[1]["node"], &listed[1]["sequence"]), (&json!(NODE_B), &json!(6)));
    assert_eq!(asker.post("journals/other/adopt", json!({})).await.status, 404);
    let path = "journals/orders/adopt";
    // Of two the newer one; that the other node does not run is a danger.
    let refused = asker.post(path, json!({})).await;
    assert_eq!(refused.status, 412);
    assert!(refused.text.contains("leveret@b does not answer"), "{}", refused.text);
    let older = asker.post(path, confirmed(&json!({"node": NODE, "dry_run": true}))).await;
    let dangers = older.json["dangers"].to_string();
    assert!(dangers.contains("the copy on leveret@b has sequence 6"), "{dangers}");
    // Cut off anywhere, it is repeated: all of it is there or nothing.
    asker.node.cut_off_after(0);
    assert_eq!(asker.post(path, confirmed(&json!({}))).await.status, 503);
    assert!(Node::state(&*asker.node).journal("orders").is_none());
    let done = asker.post(path, confirmed(&json!({}))).await;
    assert_eq!((done.status, &done.json["queues"]), (200, &json!(1)), "{}", done.text);
    let state = Node::state(&*asker.node);
    assert_eq!(Declarations::of(&state, "orders").as_ref().map(|it| it.bindings.len()), Some(1));
    let journal = state.journal("orders").unwrap();
    assert_eq!((journal.node, journal.paired, &*journal.uid), (B, false, uid.as_str()));
    assert_eq!(state.queue("/", "q").unwrap().id, known.queues[0].id);
    // Several of one name.
    let asker = crate::check::asker();
    asker.node.keeper(OWN, NODE);
    let copies = vec![on(NODE, left(Some(5), &uid)), on(NODE, left(Some(6), &"7".repeat(32)))];
    asker.node.leave_journals(copies, known);
    let unclear = asker.post(path, json!({})).await;
    assert_eq!(unclear.status, 400);
    assert!(unclear.text.contains("name the uid"), "{}", unclear.text);
}

#[tokio::test]
async fn the_only_copy_in_sync_is_critical_and_its_node_is_not_forgotten() {
    let (asker, uid) = pair().await;
    set(&asker, &uid, 6, 7);
    // This node has the newest copy, and the other one a stale one.
    asker.node.tell_copies(NODE, vec![copy(&uid, "active, alone", 6)]);
    asker.node.tell_copies(NODE_B, vec![copy(&uid, "seeking", 5)]);
    let critical = asker.get("health/checks/node-is-quorum-critical").await;
    assert_eq!(critical.status, 503);
    assert_eq!(critical.json["journals"][0]["name"], "orders");
    asker.node.tell_copies(NODE_B, vec![copy(&uid, "in sync", 6)]);
    let whole = asker.get("health/checks/node-is-quorum-critical").await;
    assert!(!whole.text.contains("orders"), "{}", whole.text);
    // The other one is away, and may have the newest copy.
    asker.node.tell_copies(NODE, vec![copy(&uid, "seeking", 5)]);
    asker.node.tell_copies(NODE_B, vec![]);
    let forget = || asker.delete_with("nodes/leveret@b", json!({}));
    let refused = forget().await;
    assert_eq!(refused.status, 412, "{}", refused.text);
    assert!(refused.text.contains("'orders'"), "{}", refused.text);
    // What is left has everything.
    asker.node.tell_copies(NODE, vec![copy(&uid, "active, alone", 6)]);
    assert_eq!(forget().await.status, 200);
}
