//! Commands about the members of quorum queues.

use clap::Parser as _;
use ctl::cli::Arguments;
use ctl::exit::Exit;

use crate::check;

const REASON_ADD: &[&str] = &["add_member", "q", "leveret@b"];

#[test]
fn members_are_added_and_deleted() {
    let (exit, out, _, asked) = check(REASON_ADD, &[(204, "")]);
    assert_eq!(exit, Exit::Done);
    assert_eq!(out, "Adding a member for queue q on node leveret@b...\n");
    assert_eq!(
        asked,
        [
            r#"POST /api/queues/quorum/%2F/q/replicas/add {"membership":"promotable","node":"leveret@b"}"#
        ]
    );
    let line = ["delete_member", "q", "leveret@b", "--force", "--vhost", "v"];
    let (exit, out, _, asked) = check(&line, &[(202, "")]);
    assert_eq!(exit, Exit::Done);
    assert_eq!(out, "Removing a replica of queue q on node leveret@b...\n");
    assert_eq!(
        asked,
        [r#"DELETE /api/queues/quorum/v/q/replicas/delete {"force":true,"node":"leveret@b"}"#]
    );
}

#[test]
fn failures_say_what_is_wrong() {
    let refused = |reason: &'static str| (503, reason);
    for (answer, exit, text) in [
        (
            refused(r#"{"reason":"last_node"}"#),
            Exit::Unavailable,
            "the last node cannot be removed",
        ),
        (
            refused(r#"{"reason":"timeout"}"#),
            Exit::Unavailable,
            "the operation timed out and may not have been completed",
        ),
        (refused(r#"{"reason":"node_not_running"}"#), Exit::Unavailable, "the node is not running"),
        (
            (400, r#"{"reason":"not a quorum queue"}"#),
            Exit::Data,
            "Cannot delete members from a classic queue",
        ),
    ] {
        let (ended, _, err, _) = check(&["delete_member", "q", "leveret@b"], &[answer]);
        assert_eq!((ended, err.as_str()), (exit, &*format!("Error:\n{text}\n")));
    }
    let absent = (404, r#"{"error":"Object Not Found","reason":"Not Found"}"#);
    let (exit, _, err, _) = check(REASON_ADD, &[absent, absent]);
    assert_eq!(exit, Exit::Data);
    assert_eq!(err, "Error:\nQueue 'q' in virtual host '/' does not exist\n");
    let (_, _, err, _) = check(REASON_ADD, &[absent, (200, r#"{"name":"q"}"#)]);
    assert_eq!(err, "Error:\nNode leveret@b is not a member of the cluster\n");
}

#[test]
fn many_queues_have_a_row_each() {
    let rows = r#"[{"vhost":"/","name":"q1","size":3,"result":"ok"},
        {"vhost":"/","name":"q2","size":"?","result":"error: the operation timed out and may not have been completed"}]"#;
    let line = ["grow", "leveret@b", "even", "--queue-pattern", "^q"];
    let (exit, out, err, asked) = check(&line, &[(200, rows)]);
    assert_eq!(exit, Exit::Unavailable);
    assert_eq!(
        out,
        "Growing even quorum queues on leveret@b...\nvhost\tname\tsize\tresult\n/\tq1\t3\tok\n\
         /\tq2\t?\terror: the operation timed out and may not have been completed\n"
    );
    assert_eq!(err, "Error:\nit did not work for 1 of 2 queues\n");
    assert_eq!(
        asked,
        [
            r#"POST /api/queues/quorum/replicas/on/leveret%40b/grow {"membership":"promotable","queue_pattern":"^q","strategy":"even","vhost_pattern":".*"}"#
        ]
    );
    let line = ["shrink", "leveret@b", "--errors-only", "--formatter", "json"];
    let (_, out, _, asked) = check(&line, &[(202, rows)]);
    assert!(out.starts_with("[{") && out.contains("q2") && !out.contains("q1"), "{out}");
    assert_eq!(
        asked,
        [r#"DELETE /api/queues/quorum/replicas/on/leveret%40b/shrink {"force":false}"#]
    );
    let done = r#"[{"vhost":"/","name":"q1","size":5,"result":"ok"}]"#;
    let (exit, _, _, asked) = check(&["grow_to_count", "5", "all"], &[(200, done)]);
    assert_eq!(exit, Exit::Done);
    assert!(
        asked[0].starts_with("POST /api/queues/quorum/replicas/grow {\"count\":5,"),
        "{asked:?}"
    );
}

#[test]
fn checkpoints_are_forced_for_many_queues_and_for_one() {
    let rows = r#"[{"vhost":"/","name":"q1","result":"ok"},{"vhost":"/","name":"q2","result":"error: on leveret@b: the disk is full"}]"#;
    let line = ["force_checkpoint", "--queue-pattern", "^q", "--errors-only"];
    let (exit, out, err, asked) = check(&line, &[(200, rows)]);
    assert_eq!(exit, Exit::Unavailable);
    let expected = "Forcing checkpoint for all matching quorum queues...\nvhost\tname\tresult\n/\tq2\terror: on leveret@b: the disk is full\n";
    assert_eq!(out, expected);
    assert_eq!(err, "Error:\nit did not work for 1 of 2 queues\n");
    assert_eq!(
        asked,
        [
            r#"POST /api/queues/quorum/replicas/checkpoint {"queue_pattern":"^q","vhost_pattern":".*"}"#
        ]
    );

    let (exit, out, _, asked) =
        check(&["reclaim_quorum_memory", "q", "--vhost", "v"], &[(204, "")]);
    assert_eq!(exit, Exit::Done);
    assert_eq!(out, "Will reclaim memory of quorum queue q...\n");
    assert_eq!(asked, ["POST /api/queues/quorum/v/q/checkpoint {}"]);
    let classic = (400, r#"{"reason":"not a quorum queue"}"#);
    let (exit, _, err, _) = check(&["reclaim_quorum_memory", "q"], &[classic]);
    let text = "Error:\nCannot reclaim memory of a classic queue\n";
    assert_eq!((exit, err.as_str()), (Exit::Data, text));
    let absent = (404, r#"{"error":"Object Not Found","reason":"Not Found"}"#);
    let (exit, _, err, _) = check(&["reclaim_quorum_memory", "q"], &[absent, absent]);
    let text = "Error:\nQueue 'q' in virtual host '/' does not exist\n";
    assert_eq!((exit, err.as_str()), (Exit::Data, text));
    let full = (503, r#"{"reason":"on leveret@b: the disk is full"}"#);
    let (exit, _, err, _) = check(&["reclaim_quorum_memory", "q"], &[full]);
    let text = "Error:\non leveret@b: the disk is full\n";
    assert_eq!((exit, err.as_str()), (Exit::Unavailable, text));
}

#[test]
fn a_message_that_waits_is_printed() {
    let message = r#"{"position":2,"payload_bytes":70,"redelivered":true,"exchange":"x","routing_key":"k",
        "properties":{"delivery_mode":2,"headers":{"x-delivery-count":1}},"payload":"hi",
        "payload_encoding":"string"}"#;
    let (exit, out, _, asked) = check(&["peek", "q", "2"], &[(200, message)]);
    assert_eq!(exit, Exit::Done);
    assert_eq!(
        out,
        "Peeking at quorum queue q at position 2 ...\nkeys\tvalues\npayload (max 64 bytes)\thi\n\
         payload_encoding\tstring\nexchange\tx\nrouting_keys\t[k]\ndelivery_mode\t2\n\
         header.x-delivery-count\t1\n"
    );
    assert_eq!(asked, ["GET /api/queues/quorum/%2F/q/peek/2?truncate=64"]);
    let line = ["peek", "q", "2", "--formatter", "json", "-p", "v"];
    let (_, out, _, asked) = check(&line, &[(200, message)]);
    let printed: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(printed["result"], "ok");
    assert_eq!(printed["message"]["header.x-delivery-count"], 1);
    assert_eq!(asked, ["GET /api/queues/quorum/v/q/peek/2?truncate=64"]);

    let refused = |status, reason: &'static str| check(&["peek", "q", "1"], &[(status, reason)]);
    let none = r#"{"reason":"Target queue does not have a message at that position"}"#;
    let (exit, _, err, _) = refused(400, none);
    assert_eq!(exit, Exit::Data);
    assert_eq!(err, "Error:\nTarget queue does not have a message at that position\n");
    let (exit, _, err, _) = refused(503, r#"{"reason":"the queue has no leader"}"#);
    assert_eq!((exit, err.as_str()), (Exit::Unavailable, "Error:\nthe queue has no leader\n"));
    for position in ["0", "-1", "first"] {
        let refused = Arguments::try_parse_from(["leveretctl", "peek", "q", position]);
        assert!(refused.is_err(), "{position}");
    }
}
