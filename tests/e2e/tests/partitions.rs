//! Nodes that live and do not hear each other: cut by proxies between their peer listeners, or
//! stopped.

use std::time::{Duration, Instant};

use e2e::client::topology::DURABLE;
use e2e::cluster::{Cluster, Setup, quorum};
use e2e::numbered::Plan;
use e2e::table;
use e2e::wait::until;

const DRAIN: Duration = Duration::from_mins(1);

fn declare(cluster: &Cluster, node: usize, queue: &str) {
    cluster.channel(node).queue(1, queue, DURABLE, &quorum()).unwrap();
}

#[test]
fn the_leader_is_cut_off_under_load() {
    let mut cluster = Setup::new().proxied().start();
    declare(&cluster, 0, "q");
    let load = Plan::new("q", &[cluster.amqp(1)], &[cluster.amqp(2)]).start();
    load.await_more(300);
    let begin = Instant::now();
    cluster.isolate(0);
    load.await_more(300);
    let (cut, healed) = (begin, Instant::now());
    cluster.rejoin(0);
    load.await_more(300);
    cluster.await_formed();
    let report = load.finish(DRAIN);
    report.judge();
    let gap = report.longest_gap_in(cut, healed);
    eprintln!("longest gap while the leader was cut off: {gap:?}");
    assert_eq!((report.nacked, report.unknown, report.again), (0, 0, 0), "{report}");
    // Two seconds of silence, and the election.
    assert!(gap < Duration::from_secs(6), "{gap:?}");
}

#[test]
fn clients_of_the_leader_that_is_cut_off_lose_nothing() {
    let mut cluster = Setup::new().proxied().set("quorum_queue.publish_timeout", "2s").start();
    declare(&cluster, 0, "q");
    let load = Plan::new("q", &[cluster.amqp(0)], &[cluster.amqp(0)]).start();
    load.await_more(300);
    cluster.isolate(0);
    // The others go on without it.
    cluster.await_depth(1, "q", 0);
    std::thread::sleep(Duration::from_secs(5));
    cluster.rejoin(0);
    load.await_more(300);
    let report = load.finish(DRAIN);
    report.judge();
    assert_eq!(report.sessions, (1, 1), "{:?}", report.ends);
}

#[test]
fn the_minority_s_leader_does_not_confirm() {
    let mut cluster = Setup::new().proxied().set("quorum_queue.publish_timeout", "3s").start();
    declare(&cluster, 0, "q");
    let mut publisher = cluster.channel(0);
    publisher.confirm_select(1).unwrap();
    publisher.put(1, "q", "before").unwrap();
    let mut confirms = publisher.confirms(1, 1).unwrap();
    assert_eq!(confirms.acked(), [1]);
    cluster.isolate(0);
    publisher.put(1, "q", "alone").unwrap();
    publisher.await_confirms(1, &mut confirms, 2).unwrap();
    assert_eq!(confirms.nacked(), [2], "a leader without its followers has confirmed");
    let mut other = cluster.channel(1);
    other.confirm_select(1).unwrap();
    other.put(1, "q", "majority").unwrap();
    assert_eq!(other.confirms(1, 1).unwrap().acked(), [1]);
    cluster.rejoin(0);
    cluster.await_formed();
    let mut client = cluster.channel(0);
    assert_eq!(client.get_soon(1, "q").text(), "before");
    assert_eq!(client.get_soon(1, "q").text(), "majority");
}

#[test]
fn one_way_and_pairwise_cuts_heal() {
    let mut cluster = Setup::new().proxied().start();
    declare(&cluster, 0, "q");
    let load = Plan::new("q", &[cluster.amqp(1)], &[cluster.amqp(2)]).start();
    load.await_more(200);
    for (from, to, both) in [(0, 1, false), (1, 0, false), (0, 2, true), (1, 2, true), (0, 1, true)]
    {
        cluster.cut(from, to, true);
        if both {
            cluster.cut(to, from, true);
        }
        std::thread::sleep(Duration::from_secs(4));
        cluster.cut(from, to, false);
        cluster.cut(to, from, false);
        load.await_more(200);
    }
    cluster.await_formed();
    load.finish(DRAIN).judge();
}

#[test]
fn connections_between_nodes_that_break_are_made_anew() {
    let mut cluster = Setup::new().proxied().start();
    declare(&cluster, 0, "q");
    let load = Plan::new("q", &[cluster.amqp(1)], &[cluster.amqp(2)]).start();
    for round in 0..30 {
        load.await_more(50);
        cluster.reset(round % 3, (round + 1) % 3);
    }
    load.await_more(200);
    cluster.await_formed();
    let report = load.finish(DRAIN);
    report.judge();
    assert_eq!((report.nacked, report.unknown), (0, 0), "{report}");
    assert_eq!(report.sessions, (1, 1), "{:?}", report.ends);
}

#[test]
fn a_stopped_leader_that_goes_on_confirms_nothing_of_its_own() {
    let mut cluster = Setup::new().set("quorum_queue.consumer_disconnected_timeout", "3s").start();
    declare(&cluster, 0, "q");
    let load = Plan::new("q", &[cluster.amqp(1)], &[cluster.amqp(2)]).start();
    load.await_more(300);
    for _ in 0..2 {
        cluster.freeze(0);
        load.await_more(300);
        cluster.thaw(0);
        load.await_more(300);
    }
    cluster.await_formed();
    load.finish(DRAIN).judge();
}

#[test]
fn a_silent_node_s_consumer_loses_its_messages_only_after_the_timeout() {
    let mut cluster =
        Setup::new().proxied().set("quorum_queue.consumer_disconnected_timeout", "6s").start();
    declare(&cluster, 0, "q");
    let mut publisher = cluster.channel(0);
    publisher.confirm_select(1).unwrap();
    for n in 0..5 {
        publisher.put(1, "q", n.to_string()).unwrap();
    }
    publisher.confirms(1, 5).unwrap();
    let mut holder = cluster.channel(1);
    holder.consume(1, "q", "holder").unwrap();
    holder.deliveries(1, 5).unwrap();
    let mut other = cluster.channel(2);
    other.consume(1, "q", "other").unwrap();
    let begin = Instant::now();
    cluster.isolate(1);
    let back = other.deliveries(1, 5).unwrap();
    let waited = begin.elapsed();
    assert!(
        waited > Duration::from_secs(6) && waited < Duration::from_secs(20),
        "they came after {waited:?}"
    );
    assert!(back.iter().all(|message| message.redelivered));
    other.ack(1, back[4].tag, true).unwrap();
    other.sync(1).unwrap();
    cluster.rejoin(1);
    // The late acks of the first are of no effect, and its channel lives or is told.
    holder.ack(1, 5, true).unwrap();
    cluster.await_formed();
    until("nothing is left", || {
        let mut client = cluster.channel(0);
        client.depth(1, "q").is_ok_and(|queue| queue.messages == 0)
    });
}

#[test]
fn a_minority_refuses_topology_changes_and_takes_them_again() {
    let mut cluster = Setup::new().proxied().start();
    let mut client = cluster.channel(2);
    client.queue(1, "q", DURABLE, &quorum()).unwrap();
    cluster.isolate(2);
    // It has to notice first.
    let mut attempt = 0;
    until("changes are refused", || {
        attempt += 1;
        let new = format!("new-{attempt}");
        e2e::cluster::channel(cluster.amqp(2))
            .is_ok_and(|mut client| client.queue(1, new, DURABLE, &table! {}).is_err())
    });
    let begin = Instant::now();
    assert!(cluster.channel(2).queue(1, "new2", DURABLE, &table! {}).is_err());
    assert!(begin.elapsed() < Duration::from_millis(1500), "{:?}", begin.elapsed());
    cluster.channel(0).queue(1, "theirs", DURABLE, &table! {}).unwrap();
    cluster.rejoin(2);
    until("the minority has caught up", || {
        e2e::cluster::channel(cluster.amqp(2))
            .is_ok_and(|mut client| client.depth(1, "theirs").is_ok())
    });
    cluster.await_formed();
}
