//! Commands against a node that gives prepared answers: what is asked, what is printed, how it ends.

mod activation;
mod members;
mod node;
mod nodes;
mod prepared;

use clap::Parser as _;
use ctl::cli::Arguments;
use ctl::exit::Exit;

use crate::node::{Answer, Node};

/// Runs a command line against prepared answers: the exit, both outputs, and what was asked.
fn check(line: &[&str], answers: &[Answer]) -> (Exit, String, String, Vec<String>) {
    let node = Node::start(answers.to_vec());
    let url = node.url();
    let line = ["leveretctl", "--url", &url].into_iter().chain(line.iter().copied());
    let arguments = Arguments::try_parse_from(line).expect("a valid command line");
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let exit = ctl::run::run(&arguments, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).expect("texts");
    (exit, text(out), text(err), node.asked())
}

#[test]
fn the_nodes_of_the_cluster_are_listed() {
    let nodes = r#"[{"name":"leveret@a","running":true},
                    {"name":"leveret@b","running":false,"link_error":"refused"}]"#;
    let (exit, out, _, asked) = check(&["cluster_status"], &[(200, nodes)]);
    assert_eq!(exit, Exit::Done);
    assert_eq!(out, "name\trunning\terror\nleveret@a\ttrue\t\nleveret@b\tfalse\trefused\n");
    assert_eq!(asked.len(), 1);
}

#[test]
fn members_of_quorum_queues_are_shown_and_led() {
    let members = r#"[{"Node Name":"leveret@a","Raft State":"leader","Membership":"voter",
        "Last Log Index":4,"Last Written":4,"Last Applied":3,"Commit Index":3,"Snapshot Index":0,
        "Term":2,"Machine Version":1}]"#;
    let (exit, out, _, asked) = check(&["-s", "quorum_status", "q/1"], &[(200, members)]);
    assert_eq!(
        (exit, out.as_str()),
        (Exit::Done, "leveret@a\tleader\tvoter\t4\t4\t3\t3\t0\t2\t1\n")
    );
    assert_eq!(asked, ["GET /api/queues/quorum/%2F/q%2F1/status"]);
    let line = ["transfer_leadership", "q", "leveret@b", "--vhost", "v"];
    let (exit, _, _, asked) = check(&line, &[(204, "")]);
    assert_eq!(exit, Exit::Done);
    assert_eq!(asked, ["PUT /api/queues/quorum/v/q/leader {\"node\":\"leveret@b\"}"]);
    let failed = [(503, r#"{"status":"failed","reason":"no leader","queues":[]}"#)];
    let line = ["check_for_quorum_queues_without_an_elected_leader", "^a", "-p", "v"];
    let (exit, _, err, asked) = check(&line, &failed);
    assert_eq!(exit, Exit::Unavailable);
    assert!(err.contains("no leader"), "{err}");
    let path = "health/checks/quorum-queues-without-elected-leaders/vhost/v/pattern/%5Ea";
    assert_eq!(asked, [format!("GET /api/{path}")]);
}

#[test]
fn reconciliation_is_shown_asked_for_and_explained() {
    let reports = r#"[{"node":"leveret@a","now":100000,"enabled":true,"auto_remove":false,
        "queues":7,"below_target":2,"blocked":{"member_down":2},"running":1,"done":{"add":3},
        "failed":{},"last_pass":70000,"last_duration":250,"next_pass":160000}]"#;
    let (exit, out, _, asked) = check(&["-s", "reconcile", "status"], &[(200, reports)]);
    let line = "leveret@a\ttrue\tfalse\t7\t2\tmember_down 2\t1\tadd 3\tnone\t\
                30 s ago, took 250 ms\tin 60 s\n";
    assert_eq!((exit, out.as_str()), (Exit::Done, line));
    assert_eq!(asked, ["GET /api/reconciliation"]);
    let plan = r#"{"leader":"leveret@a","target":3,"size_afterwards":3,"members":[
        {"node":"leveret@a","state":"voter","running":true,"behind":0},
        {"node":"leveret@b","state":"voter","running":true,"behind":2}],
        "steps":[{"kind":"add","step":"add a member on c","reason":"the queue has 2 of 3 members"}],
        "refusals":[],"afterwards":[]}"#;
    let (exit, out, _, asked) = check(&["reconcile", "plan", "q/1"], &[(200, plan)]);
    assert_eq!(exit, Exit::Done);
    assert_eq!(
        out,
        "Queue 'q/1' in vhost '/': led by leveret@a, target 3\n\
         node\tstate\trunning\tbehind\n\
         leveret@a\tvoter\ttrue\t0\n\
         leveret@b\tvoter\ttrue\t2\n\
         when\twhat\twhy\n\
         next\tadd a member on c\tthe queue has 2 of 3 members\n\
         afterwards\t3 members\t\n"
    );
    assert_eq!(asked, ["GET /api/queues/quorum/%2F/q%2F1/plan"]);
    let absent = (404, r#"{"error":"Object Not Found","reason":"Not Found"}"#);
    let (exit, _, err, asked) = check(&["reconcile", "plan", "absent"], &[absent, absent]);
    assert_eq!(exit, Exit::Data);
    assert!(err.contains("Queue 'absent' in virtual host '/' does not exist"), "{err}");
    assert_eq!(asked.len(), 2, "whether it is the queue that is not there: {asked:?}");
    let told = r#"[{"node":"leveret@a","result":"ok"},
                   {"node":"leveret@b","result":"error","reason":"it does not answer"}]"#;
    let (exit, out, err, asked) = check(&["-s", "reconcile", "now"], &[(200, told)]);
    assert_eq!(
        (exit, out.as_str()),
        (Exit::Unavailable, "leveret@a\tok\t\nleveret@b\terror\tit does not answer\n")
    );
    assert!(err.contains("could not be told: leveret@b"), "{err}");
    assert_eq!(asked, ["POST /api/reconciliation/now {}"]);
}

#[test]
fn queues_are_listed() {
    let answers = [(200, r#"[{"name":"q","messages":3,"consumers":1}]"#)];
    let (exit, out, _, asked) = check(&["list_queues"], &answers);
    assert_eq!(
        (exit, out.as_str()),
        (Exit::Done, "Listing queues for vhost / ...\nname\tmessages\nq\t3\n")
    );
    assert_eq!(asked, ["GET /api/queues/%2F"]);
    let line = ["list_queues", "name", "consumers", "--formatter", "json", "-p", "a b"];
    let (_, out, _, asked) = check(&line, &answers);
    assert_eq!(out, "[{\"consumers\":1,\"name\":\"q\"}]\n");
    assert_eq!(asked, ["GET /api/queues/a%20b"]);
    let (_, out, _, _) = check(&["-s", "list_queues"], &answers);
    assert_eq!(out, "q\t3\n");
}

#[test]
fn failures_have_exit_codes_and_reasons() {
    let refused = [(401, r#"{"error":"not_authorized","reason":"Not_Authorized"}"#)];
    let (exit, _, err, _) = check(&["list_queues"], &refused);
    assert_eq!((exit, err.as_str()), (Exit::NoUser, "Error:\nNot_Authorized\n"));
    let absent = [(404, r#"{"error":"Object Not Found","reason":"Not Found"}"#)];
    let (exit, _, err, asked) = check(&["change_password", "u", "pw"], &absent);
    assert_eq!(exit, Exit::NoUser);
    assert!(err.contains("User \"u\" does not exist"));
    assert_eq!(asked, ["GET /api/users/u"]);
    let (exit, ..) = check(&["delete_queue", "q"], &absent);
    assert_eq!(exit, Exit::Data);
    let alarm = [(503, r#"{"status":"failed","reason":"There are alarms"}"#)];
    let (exit, _, err, _) = check(&["check_alarms"], &alarm);
    assert_eq!((exit, err.as_str()), (Exit::Unavailable, "Error:\nThere are alarms\n"));
    let (exit, ..) = check(&["set_policy", "p", ".*", "nonsense"], &[]);
    assert_eq!(exit, Exit::Data);
}

#[test]
fn a_node_that_is_not_there_is_unavailable() {
    let arguments =
        Arguments::try_parse_from(["leveretctl", "--url", "http://127.0.0.1:1", "ping"])
            .expect("a valid command line");
    let mut err = Vec::new();
    let exit = ctl::run::run(&arguments, &mut std::io::sink(), &mut err);
    assert_eq!(exit, Exit::Unavailable);
    let err = String::from_utf8(err).expect("text");
    assert!(err.contains("unable to reach the node at http://127.0.0.1:1"), "{err}");
}

#[test]
fn changes_are_asked_for() {
    let (exit, _, _, asked) = check(
        &["set_permissions", "u", ".*", "", "^r", "-p", "v"],
        &[(200, r#"{"name":"u"}"#), (201, "")],
    );
    assert_eq!(exit, Exit::Done);
    assert_eq!(
        asked,
        [
            "GET /api/users/u",
            "PUT /api/permissions/v/u {\"configure\":\".*\",\"read\":\"^r\",\"write\":\"\"}",
        ]
    );
    let (_, _, _, asked) = check(
        &["set_policy", "p", "^q", "{\"max-length\":5}", "--priority", "2", "--apply-to", "queues"],
        &[(201, "")],
    );
    assert_eq!(
        asked,
        ["PUT /api/policies/%2F/p {\"apply-to\":\"queues\",\"definition\":{\"max-length\":5},\
           \"pattern\":\"^q\",\"priority\":2}"]
    );
    let (_, _, _, asked) = check(&["delete_queue", "a/b", "--if-empty"], &[(204, "")]);
    assert_eq!(asked, ["DELETE /api/queues/%2F/a%2Fb?if-empty=true&if-unused=false"]);
    let (_, _, _, asked) = check(
        &["set_user_tags", "u", "administrator"],
        &[(200, r#"{"password_hash":"h","hashing_algorithm":"a","tags":[]}"#), (204, "")],
    );
    assert_eq!(
        asked[1],
        "PUT /api/users/u {\"hashing_algorithm\":\"a\",\"password_hash\":\"h\",\
         \"tags\":[\"administrator\"]}"
    );
}

#[test]
fn status_is_one_fact_a_line() {
    let overview = r#"{"node":"n","cluster_name":"c","product_version":"1","rabbitmq_version":"4",
        "object_totals":{"queues":2},"queue_totals":{},
        "listeners":[{"protocol":"amqp","ip_address":"::","port":5672}]}"#;
    let nodes = r#"[{"name":"n","mem_alarm":true,"uptime":5000,"mem_used":7}]"#;
    let (exit, out, _, _) = check(&["status"], &[(200, overview), (200, nodes)]);
    assert_eq!(exit, Exit::Done);
    for line in ["node\tn", "alarms\tmemory", "uptime (seconds)\t5", "queues\t2"] {
        assert!(out.lines().any(|one| one == line), "{line} is missing in {out}");
    }
    assert!(out.contains("listener\tamqp on :: port 5672"));
}

#[test]
fn a_directory_without_a_journal_is_no_journal() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("a UTF-8 path");
    for command in ["inspect", "verify"] {
        let (exit, out, err, _) = check(&["journal", command, path], &[]);
        assert_eq!((exit, out.as_str()), (Exit::Data, ""));
        assert!(err.contains("is not a journal: it is empty"), "{err}");
    }
}

#[test]
fn a_journal_is_inspected_and_verified() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("a UTF-8 path");
    prepared::journal_with_records(directory.path(), 3);
    let (exit, out, ..) = check(&["journal", "verify", path], &[]);
    assert_eq!(exit, Exit::Done, "{out}");
    assert!(out.contains("live records\t3\n"), "{out}");
    let (exit, out, ..) = check(&["journal", "inspect", path, "--formatter", "json"], &[]);
    assert_eq!(exit, Exit::Done);
    let found: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(found["streams"][0]["records"], 3);
    let (_, out, ..) = check(&["journal", "inspect", path], &[]);
    assert!(out.contains("closed properly\tyes\n"), "{out}");
}

#[test]
fn activation_sequences_of_the_cluster_are_listed_and_set() {
    let shown = r#"[{"journal":"orders","coordinated_sequence":-6,"lock":{"node":"leveret@a"},
        "copies":[{"node":"leveret@a","local_sequence":6,"class":"in sync","may_start":true,
        "state":"detaching","waits_for":"detaching"},{"node":"leveret@b","local_sequence":null,
        "class":null,"may_start":false,"state":null,"waits_for":"the node does not answer"}]}]"#;
    let (exit, out, _, asked) = check(&["-s", "activation", "list"], &[(200, shown)]);
    assert_eq!(
        (exit, out.as_str()),
        (
            Exit::Done,
            "orders\t-6\tleveret@a\tleveret@a\t6\tin sync\ttrue\tdetaching\tdetaching\n\
             orders\t-6\tleveret@a\tleveret@b\t\t\tfalse\t\tthe node does not answer\n"
        )
    );
    assert_eq!(asked, ["GET /api/activation"]);
    let line = ["activation", "list", "--journal", "a/b", "--formatter", "json"];
    let (_, out, _, asked) = check(&line, &[(200, r#"{"journal":"a/b"}"#)]);
    assert_eq!(
        (out.as_str(), asked[0].as_str()),
        ("{\"journal\":\"a/b\"}\n", "GET /api/activation/a%2Fb")
    );

    let body = r#"{"confirm":"","dry_run":false,"force":false,"node":"","to":5}"#;
    let local = r#"{"node":"leveret@a","from":"6","to":5,"dangers":[],"done":true}"#;
    let coordinated = r#"{"from":-7,"to":5,"dangers":["what"],"done":true,
        "copies":[{"node":"leveret@a","before":"stale","after":"in sync"}]}"#;
    let line = ["activation", "set", "--journal", "orders", "--to", "5"];
    let (exit, out, _, asked) = check(&line, &[(200, local), (200, coordinated)]);
    assert_eq!(exit, Exit::Done);
    assert_eq!(
        out,
        "journal 'orders' local sequence on leveret@a from 6 to 5\n\
         journal 'orders' coordinated sequence from -7 to 5\n- what\n\
         copy on leveret@a: stale, then in sync\n"
    );
    let asked_for = |which: &str| format!("PUT /api/activation/orders/{which} {body}");
    assert_eq!(asked, [asked_for("local"), asked_for("coordinated")]);
    // Refused, in use, without a majority.
    for (status, wanted) in [(412, 65), (409, 75), (503, 69)] {
        let line = [&line[..], &["--coordinated"]].concat();
        let (exit, out, err, asked) = check(&line, &[(status, r#"{"reason":"why not"}"#)]);
        assert!(std::process::ExitCode::from(exit) == std::process::ExitCode::from(wanted));
        assert_eq!((out.as_str(), err.contains("why not"), asked.len()), ("", true, 1));
    }
    let both = [&line[..], &["--coordinated", "--local"]].concat();
    let both = ["leveretctl"].into_iter().chain(both);
    assert!(Arguments::try_parse_from(both).is_err());
}

#[test]
fn ailing_journals_are_named_with_those_who_wait() {
    let failed = r#"{"status":"failed","reason":"nobody serves","journals":[{"name":"orders",
        "summary":"start leveret@b","waiting":[{"node":"leveret@a","reason":"stale"}]}]}"#;
    let (exit, _, err, asked) = check(&["check_if_journals_are_served"], &[(503, failed)]);
    assert_eq!(exit, Exit::Unavailable);
    assert!(
        err.contains("nobody serves\njournal 'orders': start leveret@b\n  leveret@a: stale\n"),
        "{err}"
    );
    assert_eq!(asked, ["GET /api/health/checks/journals-are-served"]);
    let (exit, ..) = check(&["check_if_journals_are_in_sync"], &[(200, r#"{"status":"ok"}"#)]);
    assert_eq!(exit, Exit::Done);
}

#[test]
fn a_named_journal_is_inspected_with_its_age_and_its_saved_copies() {
    use ::activation::age::Age;
    use ::activation::file::{JournalUid, encode};
    use ::activation::standing::{Record, Standing};
    let directory = tempfile::tempdir().expect("a directory");
    let folder = directory.path().join(format!("orders-{}", JournalUid(7)));
    let put = |folder: &std::path::Path, age: u64| {
        let standing = Standing::Valid(Age::new(age).expect("an age"));
        let bytes = encode(JournalUid(7), &Record { standing, incarnation: None });
        std::fs::write(folder.join("activation"), bytes).expect("a file");
    };
    for (saved, age) in [("3-10", 3), ("4-9", 4)] {
        let saved = folder.join("saved").join(saved);
        std::fs::create_dir_all(saved.join("data")).expect("a directory");
        std::fs::write(saved.join("data/segment"), "12345").expect("a file");
        put(&saved, age);
    }
    prepared::journal_with_records(&folder.join("data"), 3);
    put(&folder, 6);
    for path in [folder.clone(), folder.join("data")] {
        let (exit, out, err, _) = check(&["journal", "inspect", path.to_str().unwrap()], &[]);
        assert_eq!(exit, Exit::Done, "{err}");
        let head = "activation sequence\t6\nstate file\t6\nincarnation\tnone\n\
                    saved copy\t4-9\tsequence 4\t5 bytes\nsaved copy\t3-10\tsequence 3\t5 bytes\n";
        assert!(out.starts_with(head), "{out}");
    }
    let path = folder.to_str().unwrap();
    let (_, out, ..) = check(&["journal", "inspect", path, "--formatter", "json"], &[]);
    let found: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(found["activation"]["sequence"], 6);
    assert_eq!(found["activation"]["saved"][1]["name"], "3-10");
    std::fs::write(folder.join("activation"), "nonsense").expect("a file");
    let (_, out, ..) = check(&["journal", "inspect", path], &[]);
    assert!(out.starts_with("activation sequence\tnone\nstate file\tdamaged: "), "{out}");
}

#[test]
fn operators_decide_about_copies_of_journals() {
    let body =
        |more: &str| format!("{{\"confirm\":\"orders\",\"dry_run\":false,\"force\":true,{more}}}");
    let consent = ["--force", "--confirm", "orders"];
    let adopted = r#"{"node":"leveret@a","from":"none","to":6,"dangers":["what"],"done":true}"#;
    let line = [&["-s", "journal", "adopt", "orders", "--node", "a"], &consent[..]].concat();
    let (exit, out, _, asked) = check(&line, &[(200, adopted)]);
    assert_eq!((exit, out.as_str()), (Exit::Done, "from\tnone\nnode\tleveret@a\nto\t6\n- what\n"));
    let wanted = body("\"node\":\"a\",\"uid\":\"\"");
    assert_eq!(asked, [format!("POST /api/journals/orders/adopt {wanted}")]);
    let restored = r#"{"node":"leveret@b","copy":"3-1","to":3,"dangers":[],"done":false}"#;
    let line = [&["-s", "journal", "restore-copy", "orders", "3"], &consent[..]].concat();
    let (exit, out, _, asked) = check(&line, &[(200, restored)]);
    assert_eq!(exit, Exit::Done);
    assert!(out.ends_with("nothing was changed\n"), "{out}");
    let wanted = body("\"node\":\"\",\"sequence\":3");
    assert_eq!(asked, [format!("POST /api/journals/orders/restore-copy {wanted}")]);
    let line = [&["journal", "discard_copy", "orders", "--node", "b"], &consent[..]].concat();
    let (exit, _, err, asked) = check(&line, &[(409, r#"{"reason":"the copy is in use"}"#)]);
    assert_eq!((exit, err.contains("in use")), (Exit::Busy, true));
    let wanted = body("\"node\":\"b\"");
    assert_eq!(asked, [format!("POST /api/journals/orders/discard-copy {wanted}")]);
    let left = r#"[{"name":"orders","uid":"07","node":"leveret@a","sequence":6,"standing":"6",
        "queues":2,"reason":null}]"#;
    let (exit, out, _, asked) = check(&["-s", "journal", "list_abandoned"], &[(200, left)]);
    assert_eq!((exit, out.as_str()), (Exit::Done, "orders\t07\tleveret@a\t6\t6\t2\t\n"));
    assert_eq!(asked, ["GET /api/abandoned-journals"]);
}
