//! Journals on two nodes, with a third one that only votes: numbered messages while nodes die, stop
//! and are cut off.

use std::time::{Duration, Instant};

use e2e::cluster::{Cluster, Setup};
use e2e::ctl::leveretctl;
use e2e::numbered::{Plan, Report};
use e2e::pair::{
    await_active, await_in_sync, await_state, declare, journal, pair, sequence, state,
};
use e2e::wait::{count, until};
use serde_json::json;

/// How long what is left over may take.
const DRAIN: Duration = Duration::from_secs(30);
fn load(cluster: &Cluster, publisher: &[usize], consumer: &[usize]) -> Plan {
    let of = |nodes: &[usize]| nodes.iter().map(|node| cluster.amqp(*node)).collect::<Vec<_>>();
    Plan { patience: Duration::from_secs(8), ..Plan::new("q", &of(publisher), &of(consumer)) }
}

fn judge(report: &Report) {
    report.judge();
}

#[test]
fn active_killed_under_load_with_clients_on_the_survivor() {
    let mut cluster = pair(Setup::new());
    let load = load(&cluster, &[1], &[1]).start();
    load.await_more(count(500, 5000));
    let begin = Instant::now();
    cluster.kill(0);
    load.await_more(count(500, 5000));
    let end = Instant::now();
    let report = load.finish(DRAIN);
    judge(&report);
    let gap = report.longest_gap_in(begin, end);
    eprintln!("longest gap when the active node was killed: {gap:?}");
    assert!(gap < Duration::from_secs(10), "{gap:?}");
    assert_eq!(state(&cluster, 1).as_deref(), Some("active, alone"));
}

#[test]
fn the_active_node_dies_again_and_again() {
    let mut cluster = pair(Setup::new());
    let load = load(&cluster, &[0, 1], &[1, 0]).start();
    for round in 0..count(2, 50) {
        let active = round % 2;
        load.await_more(300);
        cluster.kill(active);
        load.await_more(300);
        cluster.start(active);
        await_in_sync(&cluster, 1 - active);
    }
    judge(&load.finish(DRAIN));
}

#[test]
fn the_backup_dies_and_comes_back() {
    let mut cluster = pair(Setup::new());
    let load = load(&cluster, &[0], &[0]).start();
    load.await_more(500);
    let (coordinated, local) = sequence(&cluster, 0);
    assert_eq!(coordinated, local);
    let begin = Instant::now();
    cluster.kill(1);
    load.await_more(500);
    let end = Instant::now();
    await_state(&cluster, 0, &["active, alone"]);
    // Nobody else may go on with what the backup has.
    let raised = sequence(&cluster, 0);
    assert!(raised.0 == raised.1 && raised.0 > coordinated, "{raised:?}");
    cluster.start(1);
    await_in_sync(&cluster, 0);
    load.await_more(500);
    // To attach it is no breaking point.
    assert_eq!(sequence(&cluster, 0), raised);
    let report = load.finish(DRAIN);
    judge(&report);
    eprintln!("longest gap when the backup was killed: {:?}", report.longest_gap_in(begin, end));
}

/// ARTEMIS-3340: the one that is started first has an old copy, and must not serve it.
#[test]
fn artemis_3340_a_stale_primary_that_starts_first_waits_for_the_newer_copy() {
    let mut cluster = pair(Setup::new());
    let mut client = cluster.channel(0);
    client.confirm_select(1).unwrap();
    client.put(1, "q", "with both").unwrap();
    assert_eq!(client.confirms(1, 1).unwrap().acked(), [1]);
    assert_eq!(sequence(&cluster, 0), (1, 1));
    drop(client);
    cluster.kill(0);
    await_active(&cluster, 1);
    assert_eq!(sequence(&cluster, 1), (2, 2));
    let mut client = cluster.channel(1);
    client.confirm_select(1).unwrap();
    client.put(1, "q", "with the backup alone").unwrap();
    assert_eq!(client.confirms(1, 1).unwrap().acked(), [1]);
    drop(client);
    cluster.node(1).stop();
    // The stale one comes first.
    cluster.run(0);
    cluster.await_formed();
    await_state(&cluster, 0, &["seeking"]);
    assert_eq!(sequence(&cluster, 0), (2, 1));
    cluster.start(1);
    await_active(&cluster, 1);
    await_in_sync(&cluster, 1);
    assert_eq!(sequence(&cluster, 0), (3, 3));
    let mut client = cluster.channel(0);
    assert_eq!(client.get_soon(1, "q").text(), "with both");
    assert_eq!(client.get_soon(1, "q").text(), "with the backup alone");
}

/// What the operator's command prints, for the transcript in `docs/journal-pairs.md`.
fn transcript(cluster: &Cluster, node: usize, line: &[&str]) -> String {
    let ended = leveretctl(&cluster.api(node), line);
    assert_eq!(ended.code, 0, "{ended:?}");
    eprintln!("$ leveretctl --url http://n{node}:15672 {}\n{}", line.join(" "), ended.out);
    ended.out
}

/// ARTEMIS-3430: the active node has claimed the next sequence and ends before it is written in its
/// state file. Nobody has to help: the other one repairs the claim and serves, and raises once more, so
/// that the first one knows that it is stale.
#[test]
fn artemis_3430_a_claim_that_its_node_never_wrote_is_repaired_by_the_other_one() {
    let mut cluster = pair(Setup::new());
    publish(&mut cluster, 0, "with both");
    let list = ["activation", "list"];
    transcript(&cluster, 0, &list);
    // From now on its disk takes no new state file.
    let journals = cluster.node(0).directory.join("journals");
    let folder = std::fs::read_dir(journals).unwrap().next().unwrap().unwrap().path();
    let in_the_way = folder.join("activation.new");
    std::fs::create_dir(&in_the_way).unwrap();
    cluster.kill(1);
    let status = cluster.node(0).await_exit();
    assert!(!status.success(), "a failed write stops the node: {status}");
    let log = cluster.node(0).log();
    assert!(log.contains("sequence 2 could not be written on this node"), "{log}");
    // What the witness knows: a claim.
    transcript(&cluster, 2, &["journal", "list"]);
    assert_eq!(journal(&cluster, 2).unwrap()["coordinated_sequence"], -2);
    cluster.run(1);
    cluster.await_formed();
    await_active(&cluster, 1);
    assert_eq!(sequence(&cluster, 1), (3, 3));
    transcript(&cluster, 1, &list);
    let counts = &journal(&cluster, 1).unwrap()["here"]["counts"];
    assert_eq!((&counts["auto_repairs"], &counts["self_repairs"]), (&1.into(), &0.into()));
    publish(&mut cluster, 1, "with n1 alone");
    // The first one comes back with sequence 1.
    std::fs::remove_dir(&in_the_way).unwrap();
    cluster.start(0);
    await_in_sync(&cluster, 1);
    transcript(&cluster, 0, &list);
    assert_eq!((sequence(&cluster, 0), sequence(&cluster, 1)), ((3, 3), (3, 3)));
    cluster.kill(1);
    await_active(&cluster, 0);
    assert_eq!(sequence(&cluster, 0), (4, 4));
    transcript(&cluster, 0, &list);
    until("all know who serves it", || {
        journal(&cluster, 0).is_some_and(|journal| journal["active"] == "leveret@n0")
    });
    let mut client = cluster.channel(0);
    assert_eq!(client.get_soon(1, "q").text(), "with both");
    assert_eq!(client.get_soon(1, "q").text(), "with n1 alone");
}

#[test]
fn a_clean_stop_hands_over_at_once() {
    let mut cluster = pair(Setup::new());
    let load = load(&cluster, &[1], &[1]).start();
    load.await_more(500);
    let begin = Instant::now();
    cluster.node(0).stop();
    load.await_more(500);
    let end = Instant::now();
    await_active(&cluster, 1);
    let report = load.finish(DRAIN);
    judge(&report);
    eprintln!("longest gap at a clean hand-over: {:?}", report.longest_gap_in(begin, end));
    cluster.start(0);
    await_in_sync(&cluster, 1);
}

#[test]
fn the_link_between_the_two_is_cut() {
    let cluster = pair(Setup::new().proxied());
    let load = load(&cluster, &[0], &[0]).start();
    load.await_more(500);
    let begin = Instant::now();
    cluster.cut(0, 1, true);
    cluster.cut(1, 0, true);
    load.await_more(500);
    let end = Instant::now();
    // If the other one leads the metadata group, n0 loses its lease too, and then either serves.
    let alone = |node| state(&cluster, node).as_deref() == Some("active, alone");
    until("one of them serves alone", || alone(0) || alone(1));
    cluster.cut(0, 1, false);
    cluster.cut(1, 0, false);
    let whole = |node| state(&cluster, node).as_deref() == Some("active, replicated");
    until("they are a pair again", || whole(0) || whole(1));
    let report = load.finish(DRAIN);
    judge(&report);
    eprintln!("longest gap when the link was cut: {:?}", report.longest_gap_in(begin, end));
}

/// Confirms wait for the backup until it is given up, and no longer.
#[test]
fn a_frozen_backup_holds_confirms_for_its_time_out() {
    let mut cluster = pair(Setup::new());
    // Nobody consumes, so that every confirm waits for both disks.
    let load = load(&cluster, &[0], &[]).start();
    load.await_more(500);
    let begin = Instant::now();
    cluster.freeze(1);
    await_state(&cluster, 0, &["active, alone"]);
    load.await_more(500);
    let end = Instant::now();
    cluster.thaw(1);
    await_in_sync(&cluster, 0);
    let report = load.finish(DRAIN);
    judge(&report);
    let gap = report.longest_gap_in(begin, end);
    eprintln!("longest gap when the backup was frozen: {gap:?}");
    assert!((Duration::from_millis(100)..Duration::from_secs(6)).contains(&gap), "{gap:?}");
}

#[test]
fn a_frozen_active_node_confirms_nothing_that_its_successor_lacks() {
    let mut cluster = pair(Setup::new());
    let load = load(&cluster, &[0, 1], &[1, 0]).start();
    load.await_more(500);
    cluster.freeze(0);
    await_active(&cluster, 1);
    load.await_more(500);
    cluster.thaw(0);
    await_in_sync(&cluster, 1);
    load.await_more(200);
    judge(&load.finish(DRAIN));
}

#[test]
fn a_journal_gets_a_backup_while_it_is_served_and_loses_it_again() {
    let mut cluster = Setup::new().set_on(2, "node.role", "witness").start();
    let made = cluster.api(0).put("journals/j", &json!({ "node": "n0" }));
    assert_eq!(made.status, 201, "{}", made.text());
    await_state(&cluster, 0, &["single"]);
    declare(&mut cluster, 0);
    let load = load(&cluster, &[0], &[0]).start();
    load.await_more(500);
    let set = cluster.api(1).put("journals/j/backup", &json!({ "node": "n1" }));
    assert_eq!(set.status, 204, "{}", set.text());
    await_in_sync(&cluster, 0);
    assert_eq!(sequence(&cluster, 0), (1, 1));
    load.await_more(500);
    let removed = cluster.api(0).delete("journals/j/backup");
    assert_eq!(removed.status, 204, "{}", removed.text());
    await_state(&cluster, 0, &["active, alone"]);
    assert_eq!(sequence(&cluster, 0), (2, 2));
    load.await_more(500);
    let report = load.finish(DRAIN);
    judge(&report);
    assert_eq!((report.nacked, report.unknown, report.again), (0, 0, 0), "{report}");
    until("the former backup knows that it is none", || {
        journal(&cluster, 1).is_some_and(|journal| journal["here"].is_null())
    });
}

fn publish(cluster: &mut Cluster, node: usize, text: &str) {
    let mut client = cluster.channel(node);
    client.confirm_select(1).unwrap();
    client.put(1, "q", text).unwrap();
    assert_eq!(client.confirms(1, 1).unwrap().acked(), [1]);
}

/// The node with the newest copy does not come back: the older one is served by one command, which
/// says what may be lost, and the newer copy is held when it comes back after all.
#[test]
fn an_operator_goes_on_with_an_older_copy() {
    let mut cluster = pair(Setup::new());
    publish(&mut cluster, 0, "with both");
    cluster.kill(0);
    await_active(&cluster, 1);
    publish(&mut cluster, 1, "with the backup alone");
    cluster.kill(1);
    cluster.run(0);
    cluster.await_formed();
    await_state(&cluster, 0, &["seeking"]);
    // What the operator is told.
    let check = leveretctl(&cluster.api(0), &["check_if_journals_are_served"]);
    assert_eq!(check.code, 69, "{check:?}");
    assert!(check.error.contains("may start: start leveret@n1"), "{}", check.error);
    let stale = "leveret@n0: its copy is stale: it has sequence 1, and 2 is wanted";
    assert!(check.error.contains(stale), "{}", check.error);
    let list = leveretctl(&cluster.api(0), &["activation", "list"]);
    assert_eq!(list.code, 0, "{list:?}");
    assert!(list.out.contains("j\t2\t"), "{}", list.out);
    // Whoever died with the lock has it until his lease ends.
    until("the lock is free", || {
        let shown = cluster.api(0).get("activation/j").json();
        shown["lock"].is_null()
    });
    let set = ["activation", "set", "--journal", "j", "--coordinated", "--to", "1"];
    let refused = leveretctl(&cluster.api(0), &set);
    assert_eq!(refused.code, 65, "{refused:?}");
    assert!(refused.error.contains("confirmed under sequence 2"), "{}", refused.error);
    let forced = [&set[..], &["--force", "--confirm", "j"]].concat();
    let forced = leveretctl(&cluster.api(0), &forced);
    assert_eq!(forced.code, 0, "{forced:?}");
    assert!(forced.out.contains("coordinated sequence from 2 to 1"), "{}", forced.out);
    await_active(&cluster, 0);
    assert_eq!(sequence(&cluster, 0), (2, 2));
    until("all know who serves it", || {
        journal(&cluster, 0).is_some_and(|journal| journal["active"] == "leveret@n0")
    });
    let mut client = cluster.channel(0);
    assert_eq!(client.get_soon(1, "q").text(), "with both");
    // The newer one has another history, whatever its number is.
    cluster.start(1);
    await_state(&cluster, 1, &["held"]);
    let held = journal(&cluster, 1).unwrap()["here"]["reason"].clone();
    assert_eq!(held, "the copy is newer than the coordinated sequence");
    // It is in use by nobody, so its sequence can be set; that changes nothing about its history.
    let local = ["activation", "set", "--journal", "j", "--local", "--node", "n1", "--to", "1"];
    let set = leveretctl(&cluster.api(0), &local);
    assert_eq!(set.code, 0, "{set:?}");
    assert!(set.out.contains("on leveret@n1 from 2 to 1"), "{}", set.out);
    // Now it is an older one of the life that was gone on from: it is copied over.
    await_in_sync(&cluster, 0);
    assert_eq!(sequence(&cluster, 1), (2, 2));
    // The copy of whoever serves cannot be set, and neither can the coordinated sequence.
    for (line, code) in [
        (["activation", "set", "--journal", "j", "--local", "--to", "0"], 75),
        (["activation", "set", "--journal", "j", "--coordinated", "--to", "2"], 75),
    ] {
        let refused = leveretctl(&cluster.api(0), &line);
        assert_eq!(refused.code, code, "{refused:?}");
    }
}
