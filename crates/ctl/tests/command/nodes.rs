//! Commands about nodes of a cluster.

use std::fs;

use ctl::exit::Exit;

use crate::check;
use crate::prepared::journal_with_records;

#[test]
fn a_node_is_drained_and_revived() {
    let done = r#"{"connections":2,"leaders_moved":5,"leaders_stayed":[],
        "journals_moved":1,"journals_stayed":[]}"#;
    let (exit, out, _, asked) = check(&["drain", "leveret@b"], &[(200, done)]);
    assert_eq!(exit, Exit::Done);
    assert_eq!(
        out,
        "Will put node leveret@b into maintenance mode...\nconnections closed\t2\n\
         leaders moved\t5\njournals moved\t1\n"
    );
    assert_eq!(asked, ["POST /api/nodes/leveret%40b/drain {}"]);
    let stayed = r#"{"connections":0,"leaders_moved":0,
        "leaders_stayed":[{"vhost":"/","name":"q","reason":"non_stable_members"}],
        "journals_stayed":[{"name":"orders","reason":"it has no backup"}]}"#;
    let asked_first = (200, r#"{"node":"leveret@a"}"#);
    let (exit, out, err, _) = check(&["-s", "drain"], &[asked_first, (200, stayed)]);
    assert_eq!(exit, Exit::Unavailable);
    assert!(out.ends_with("/\tq\tnon_stable_members\norders\tit has no backup\n"), "{out}");
    assert_eq!(
        err,
        "Error:\n1 quorum queues are still led by the node; 1 journals are still served by the node\n"
    );
    let (exit, _, _, asked) = check(&["revive", "leveret@b"], &[(204, "")]);
    assert_eq!(exit, Exit::Done);
    assert_eq!(asked, ["POST /api/nodes/leveret%40b/revive {}"]);
}

#[test]
fn a_node_is_forgotten_or_why_not() {
    let rows = r#"{"queues":[{"vhost":"/","name":"q","size":2,"result":"ok"}]}"#;
    let (exit, out, _, asked) = check(&["forget_cluster_node", "leveret@b"], &[(200, rows)]);
    assert_eq!(exit, Exit::Done);
    assert_eq!(
        out,
        "Removing node leveret@b from the cluster\nvhost\tname\tsize\tresult\n/\tq\t2\tok\n"
    );
    assert_eq!(asked, [r#"DELETE /api/nodes/leveret%40b {"force":false,"keep_members":false}"#]);
    for (status, reason, exit) in [
        (400, "node leveret@b is running; it must be stopped", Exit::Data),
        (412, "2 queues are only on leveret@b and would be lost", Exit::Data),
        (503, "metadata: no majority of the cluster is reachable", Exit::Unavailable),
    ] {
        let body = format!(r#"{{"reason":"{reason}"}}"#).leak();
        let (ended, _, err, _) = check(&["forget_cluster_node", "leveret@b"], &[(status, body)]);
        assert_eq!((ended, err.as_str()), (exit, &*format!("Error:\n{reason}\n")));
    }
    let absent = (404, r#"{"reason":"Not Found"}"#);
    let (_, _, err, _) = check(&["forget_cluster_node", "leveret@x"], &[absent]);
    assert_eq!(err, "Error:\nNode leveret@x is not a member of the cluster\n");
}

#[test]
fn leaders_are_counted_after_a_rebalance() {
    let report = r#"{"nodes":[{"Node name":"leveret@a","Number of quorum queues":3}],"failed":0}"#;
    let (exit, out, _, asked) = check(&["rebalance", "quorum"], &[(200, report)]);
    assert_eq!(exit, Exit::Done);
    assert!(out.ends_with("Node name\tNumber of quorum queues\nleveret@a\t3\n"), "{out}");
    assert!(asked[0].starts_with("POST /api/rebalance/queues?report=true {"), "{asked:?}");
    let (exit, _, _, asked) = check(&["rebalance", "classic"], &[]);
    assert_eq!((exit, asked.len()), (Exit::Done, 0));
}

#[test]
fn a_node_without_data_is_told_whom_to_join() {
    let scratch = tempfile::tempdir().expect("a folder");
    let directory = scratch.path().join("data");
    let join = |peer: &str| check(&["join", directory.to_str().expect("a name"), peer], &[]);
    for peer in ["a", "a@10.0.0.1", "@10.0.0.1:1", "a@:1", "10.0.0.1:25672"] {
        let (exit, _, err, _) = join(peer);
        assert_eq!(exit, Exit::Usage);
        assert!(err.contains("is not \"NAME@ADDRESS:PORT\""), "{err}");
    }
    for peer in ["a@10.0.0.1:25672", "b@[::1]:25672"] {
        let (exit, out, _, asked) = join(peer);
        assert_eq!((exit, asked.len()), (Exit::Done, 0), "no node is asked");
        assert!(out.ends_with("joins the cluster of a when it starts\n") || peer.starts_with('b'));
        assert_eq!(fs::read_to_string(directory.join("join")).unwrap(), format!("{peer}\n"));
    }
    fs::write(directory.join("identity"), "it has run").unwrap();
    let journal = directory.join("journal");
    journal_with_records(&journal, 0);
    let (exit, ..) = join("a@10.0.0.2:25672");
    assert_eq!(exit, Exit::Done, "it was not let in, and what was mistaken can be put right");
    // It has something since: it was let in.
    journal_with_records(&journal, 1);
    let (exit, _, err, _) = join("a@10.0.0.1:25672");
    assert_eq!(exit, Exit::Data);
    assert!(err.contains("reset it first"), "{err}");
}

#[test]
fn a_node_is_forgotten_before_it_is_wiped() {
    let directory = tempfile::tempdir().expect("a folder");
    let identity = directory.path().join("identity");
    let line = |force: bool| {
        let mut line = vec!["reset", directory.path().to_str().expect("a name")];
        line.extend(force.then_some("--force"));
        line
    };
    let (exit, _, err, asked) = check(&line(false), &[]);
    assert_eq!((exit, asked.len()), (Exit::Data, 0), "{err}");
    fs::write(&identity, "leveret identity 1\nnode 00000000000000aa\nboot 3\nchecksum 1\n")
        .unwrap();
    fs::create_dir(directory.path().join("metadata")).unwrap();
    let refused = (503, r#"{"reason":"metadata: no majority of the cluster is reachable"}"#);
    let (exit, ..) = check(&line(false), &[refused]);
    assert_eq!(exit, Exit::Unavailable);
    assert!(identity.exists(), "nothing is deleted");
    let (exit, _, _, asked) = check(&line(false), &[(200, r#"{"queues":[]}"#)]);
    assert_eq!(exit, Exit::Done);
    assert_eq!(
        asked,
        [r#"DELETE /api/nodes/00000000000000aa {"force":false,"keep_members":false}"#]
    );
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    fs::write(&identity, "leveret identity 1\nnode 00000000000000aa\nboot 3\nchecksum 1\n")
        .unwrap();
    let (exit, ..) = check(&line(true), &[refused]);
    assert_eq!(exit, Exit::Done);
    assert!(!identity.exists());
}

#[test]
fn a_majority_without_the_node_is_waited_for() {
    let critical = (503, r#"{"status":"failed","reason":"q would have no majority"}"#);
    let (exit, out, _, asked) =
        check(&["await_online_quorum_plus_one"], &[critical, critical, (200, "{}")]);
    assert_eq!(exit, Exit::Done);
    assert_eq!(out, "Will wait for a quorum + 1 of nodes to be online for all quorum queues\n");
    assert_eq!(asked, ["GET /api/health/checks/node-is-quorum-critical"; 3]);
    // A second is enough for two looks.
    let line = ["await_online_quorum_plus_one", "--timeout", "1"];
    let (exit, _, err, asked) = check(&line, &[critical, critical, critical]);
    assert_eq!((exit, err.as_str()), (Exit::Timeout, "Error:\nq would have no majority\n"));
    assert_eq!(asked.len(), 2);
}
