//! Journals on two nodes, with a third one that only votes: numbered messages while nodes die, stop
//! and are cut off.

use std::time::{Duration, Instant};

use e2e::client::topology::DURABLE;
use e2e::cluster::{Cluster, Setup, name};
use e2e::numbered::{Plan, Report};
use e2e::table;
use e2e::wait::{count, until, until_some_for};
use serde_json::{Value, json};

/// How long what is left over may take.
const DRAIN: Duration = Duration::from_secs(30);
/// How long a pair may take to be whole again on a busy machine.
const WHOLE: Duration = Duration::from_mins(1);

/// Two brokers and a witness, with journal `j` on both and queue `q` in it.
fn pair(setup: Setup) -> Cluster {
    let mut cluster = setup.set_on(2, "node.role", "witness").start();
    let made = cluster.api(0).put("journals/j", &json!({ "node": "n0", "backup": "n1" }));
    assert_eq!(made.status, 201, "{}", made.text());
    await_active(&cluster, 0);
    declare(&mut cluster, 0);
    await_in_sync(&cluster, 0);
    cluster
}

fn declare(cluster: &mut Cluster, node: usize) {
    let mut client = cluster.channel(node);
    client.queue(1, "q", DURABLE, &table! { "x-journal" => "j" }).unwrap();
}

/// What a node says of the journal.
fn journal(cluster: &Cluster, node: usize) -> Option<Value> {
    let answer = cluster.api(node).request("GET", "/api/journals/j", None).ok()?;
    (answer.status == 200).then(|| answer.json())
}

fn state(cluster: &Cluster, node: usize) -> Option<String> {
    Some(journal(cluster, node)?["here"]["state"].as_str()?.to_owned())
}

fn sequence(cluster: &Cluster, node: usize) -> (i64, i64) {
    let journal = journal(cluster, node).expect("the node answers");
    let number = |value: &Value| value.as_i64().unwrap_or(-1);
    (number(&journal["coordinated_sequence"]), number(&journal["here"]["sequence"]))
}

fn await_state(cluster: &Cluster, node: usize, wanted: &[&str]) {
    until_some_for(WHOLE, &format!("{} says {wanted:?}", name(node)), || {
        state(cluster, node).filter(|state| wanted.contains(&state.as_str()))
    });
}

fn await_active(cluster: &Cluster, node: usize) {
    let active = ["active, alone", "active, copying", "active, handing in", "active, replicated"];
    await_state(cluster, node, &active);
}

/// The other copy is whole, and the active node knows it.
fn await_in_sync(cluster: &Cluster, active: usize) {
    await_state(cluster, active, &["active, replicated"]);
}

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
