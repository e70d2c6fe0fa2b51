//! Nodes that die, come back and fall behind: quorum queues under numbered messages.

use std::time::{Duration, Instant};

use e2e::client::topology::DURABLE;
use e2e::client::{Client, Outcome};
use e2e::cluster::{Cluster, Setup, name, quorum};
use e2e::numbered::Plan;
use e2e::wait::{count, until, until_equal, until_some};
use serde_json::json;

/// How long what is left over may take.
const DRAIN: Duration = Duration::from_secs(30);

/// A queue led by the node it is declared through.
fn declare(cluster: &Cluster, node: usize, queue: &str) {
    cluster.channel(node).queue(1, queue, DURABLE, &quorum()).unwrap();
}

#[test]
fn leader_killed_under_load_with_both_clients_on_survivors() {
    let mut cluster = Setup::new().start();
    declare(&cluster, 0, "q");
    let load = Plan::new("q", &[cluster.amqp(1)], &[cluster.amqp(2)]).start();
    load.await_more(count(500, 5000));
    cluster.kill(0);
    load.await_more(count(500, 5000));
    let report = load.finish(DRAIN);
    report.judge();
    assert_eq!(
        report.sessions,
        (1, 1),
        "clients on survivors keep their connections: {:?}",
        report.ends
    );
    assert_eq!((report.unknown, report.nacked), (0, 0), "{report}");
    assert_eq!(report.again, 0, "a surviving consumer gets nothing twice: {report}");
}

#[test]
fn each_node_in_turn_is_killed_and_comes_back() {
    let mut cluster = Setup::new().start();
    declare(&cluster, 0, "q");
    let all = cluster.addresses();
    let load = Plan::new("q", &all, &[all[1], all[2], all[0]]).start();
    for round in 0..count(3, 30) {
        let victim = round % 3;
        load.await_more(200);
        cluster.kill(victim);
        load.await_more(200);
        cluster.start(victim);
    }
    load.await_more(200);
    load.finish(DRAIN).judge();
}

#[test]
fn a_follower_that_was_away_catches_up() {
    let mut cluster = Setup::new().start();
    declare(&cluster, 0, "q");
    let publish = |cluster: &Cluster, from: usize, to: usize| {
        let mut client = cluster.channel(0);
        client.confirm_select(1).unwrap();
        for n in from..to {
            client.put(1, "q", n.to_string()).unwrap();
        }
        assert_eq!(client.confirms(1, to - from).unwrap().acked().len(), to - from);
    };
    publish(&cluster, 0, 1000);
    cluster.kill(2);
    publish(&cluster, 1000, 3000);
    cluster.start(2);
    // With n1 gone what is confirmed now is confirmed by n0 and n2 alone, so n2 has all before it.
    cluster.kill(1);
    publish(&cluster, 3000, 3100);
    cluster.kill(0);
    cluster.start(1);
    let mut client = cluster.channel(2);
    for n in 0..3100 {
        assert_eq!(client.get_soon(1, "q").text(), n.to_string());
    }
    assert!(client.get(1, "q", true).unwrap().is_none());
}

#[test]
fn without_a_majority_publishes_are_nacked_and_all_goes_on_afterwards() {
    let mut cluster = Setup::new().set("quorum_queue.publish_timeout", "3s").start();
    declare(&cluster, 0, "q");
    let mut consumer = cluster.channel(0);
    consumer.consume(1, "q", "c").unwrap();
    let mut publisher = cluster.channel(0);
    publisher.confirm_select(1).unwrap();
    publisher.put(1, "q", "before").unwrap();
    assert_eq!(publisher.confirms(1, 1).unwrap().acked(), [1]);
    assert_eq!(consumer.delivery(1).unwrap().text(), "before");
    cluster.kill(1);
    cluster.kill(2);
    let begin = Instant::now();
    let mut confirms = e2e::client::confirms::Confirms::default();
    confirms.skip(1);
    for _ in 0..10 {
        publisher.put(1, "q", "refused").unwrap();
    }
    publisher.await_confirms(1, &mut confirms, 10).unwrap();
    assert_eq!(confirms.nacked().len(), 10, "{confirms:?}");
    let waited = begin.elapsed();
    assert!(
        waited >= Duration::from_millis(2500) && waited < Duration::from_secs(10),
        "nacked after {waited:?}"
    );
    consumer.sync(1).unwrap();
    assert_eq!(consumer.waiting(1), []);
    cluster.run(1);
    cluster.start(2);
    publisher.put(1, "q", "after").unwrap();
    publisher.await_confirms(1, &mut confirms, 11).unwrap();
    assert_eq!(confirms.acked(), [12]);
    // What was nacked may be there as well.
    let after = until_some("the message after it all arrives", || {
        let message = consumer.delivery(1).unwrap();
        (message.text() == "after").then_some(message)
    });
    consumer.ack(1, after.tag, true).unwrap();
    consumer.sync(1).unwrap();
}

type Ask = fn(&mut Client) -> Outcome<()>;

/// With an error that names the queue, instead of waiting for a leader for ever.
#[test]
fn without_a_majority_requests_are_refused_in_time() {
    let mut cluster = Setup::new().set("quorum_queue.publish_timeout", "1s").start();
    declare(&cluster, 0, "q");
    cluster.kill(1);
    cluster.kill(2);
    let asked: [(&str, Ask); 4] = [
        ("get", |client| client.get(1, "q", false).map(drop)),
        ("consume", |client| client.consume(1, "q", "c").map(drop)),
        ("purge", |client| client.purge(1, "q").map(drop)),
        ("declare", |client| client.queue(1, "q", DURABLE, &quorum()).map(drop)),
    ];
    for (what, ask) in asked {
        let begin = Instant::now();
        let failure = ask(&mut cluster.channel(0)).expect_err(what);
        assert_eq!(failure.reply(), Some((541, &*no_answer("q"))), "{what}");
        assert!(begin.elapsed() < Duration::from_secs(10), "{what}: {:?}", begin.elapsed());
    }
    cluster.run(1);
    cluster.start(2);
    let mut client = cluster.channel(0);
    client.confirm_select(1).unwrap();
    client.put(1, "q", "for whoever asks now").unwrap();
    client.confirms(1, 1).unwrap();
    assert_eq!(client.get_soon(1, "q").text(), "for whoever asks now");
}

/// The client is told that it is not known; the queue goes for good when its member comes back.
#[test]
fn a_deletion_that_was_late_is_brought_to_its_end() {
    let mut cluster = Setup::new().set("quorum_queue.publish_timeout", "1s").start();
    let mut alone = quorum();
    alone.insert("x-quorum-initial-group-size", 1_i32);
    cluster.channel(2).queue(1, "alone", DURABLE, &alone).unwrap();
    cluster.kill(2);
    let failure = cluster.channel(0).delete_queue(1, "alone").expect_err("its only member is gone");
    assert_eq!(failure.reply(), Some((541, &*no_answer("alone"))));
    cluster.start(2);
    let api = cluster.api(1);
    until("it is gone", || api.get("queues/%2F/alone").status == 404);
}

fn no_answer(queue: &str) -> String {
    format!(
        "INTERNAL_ERROR - queue '{queue}' in vhost '/': no majority of its members has answered in time"
    )
}

#[test]
fn a_load_outlives_the_loss_of_two_nodes() {
    let mut cluster = Setup::new().set("quorum_queue.publish_timeout", "2s").start();
    declare(&cluster, 1, "q");
    let load = Plan::new("q", &[cluster.amqp(0)], &[cluster.amqp(0)]).start();
    load.await_more(300);
    cluster.kill(1);
    cluster.kill(2);
    std::thread::sleep(Duration::from_secs(3));
    cluster.run(2);
    cluster.start(1);
    load.await_more(300);
    let report = load.finish(DRAIN);
    report.judge();
    assert_eq!(report.sessions, (1, 1), "{:?}", report.ends);
}

#[test]
fn a_node_of_a_cluster_ends_in_good_order() {
    let mut cluster = Setup::new().start();
    declare(&cluster, 0, "q");
    let mut publisher = cluster.channel(1);
    publisher.confirm_select(1).unwrap();
    publisher.put(1, "q", "0").unwrap();
    publisher.confirms(1, 1).unwrap();
    drop(publisher);
    // The one that leads, and one that follows.
    for node in [0, 1] {
        assert!(cluster.node(node).stop().success());
        let log = cluster.node(node).log();
        assert!(!log.contains("stopped while"), "something still has the journal: {log}");
        cluster.start(node);
        let log = cluster.node(node).log();
        let starts = |how: &str| log.matches(&format!("journal opened clean={how}")).count();
        assert_eq!((starts("true"), starts("false")), (2, 0), "{log}");
    }
}

#[test]
fn rolling_restart_under_load() {
    let mut cluster = Setup::new().start();
    declare(&cluster, 0, "q");
    let all = cluster.addresses();
    let load = Plan::new("q", &all, &[all[2], all[0], all[1]]).start();
    for node in 0..3 {
        load.await_more(300);
        assert!(cluster.node(node).stop().success());
        load.await_more(300);
        cluster.start(node);
    }
    load.await_more(300);
    load.finish(DRAIN).judge();
}

#[test]
fn what_a_killed_node_s_consumer_held_comes_back_at_once() {
    let mut cluster = Setup::new().start();
    declare(&cluster, 0, "q");
    let mut publisher = cluster.channel(0);
    publisher.confirm_select(1).unwrap();
    for n in 0..20 {
        publisher.put(1, "q", n.to_string()).unwrap();
    }
    assert_eq!(publisher.confirms(1, 20).unwrap().acked().len(), 20);
    let mut holder = cluster.channel(1);
    holder.qos(1, 10, false).unwrap();
    holder.consume(1, "q", "holder").unwrap();
    holder.deliveries(1, 10).unwrap();
    let mut other = cluster.channel(2);
    other.consume(1, "q", "other").unwrap();
    let first = other.deliveries(1, 10).unwrap();
    assert_eq!(first[0].text(), "10");
    let begin = Instant::now();
    cluster.kill(1);
    for n in 0..10 {
        let message = other.delivery(1).unwrap();
        assert_eq!((message.text(), message.redelivered), (n.to_string(), true));
    }
    // The default of consumer_disconnected_timeout is a minute.
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}

#[test]
fn a_consumer_on_a_surviving_node_keeps_what_it_holds() {
    let mut cluster = Setup::new().start();
    declare(&cluster, 0, "q");
    let mut publisher = cluster.channel(1);
    publisher.confirm_select(1).unwrap();
    for n in 0..20 {
        publisher.put(1, "q", n.to_string()).unwrap();
    }
    assert_eq!(publisher.confirms(1, 20).unwrap().acked().len(), 20);
    let mut consumer = cluster.channel(2);
    consumer.qos(1, 10, false).unwrap();
    consumer.consume(1, "q", "c").unwrap();
    let held = consumer.deliveries(1, 10).unwrap();
    cluster.kill(0);
    let mut confirms = e2e::client::confirms::Confirms::default();
    confirms.skip(20);
    publisher.put(1, "q", "20").unwrap();
    publisher.await_confirms(1, &mut confirms, 1).unwrap();
    // The new leader knows whose they are: nothing is handed out again, and acks count.
    let mut other = cluster.channel(1);
    assert_eq!(other.depth(1, "q").unwrap().messages, 11);
    consumer.sync(1).unwrap();
    assert_eq!(consumer.waiting(1), []);
    consumer.ack(1, held[9].tag, true).unwrap();
    let rest = consumer.deliveries(1, 10).unwrap();
    let texts: Vec<_> = rest.iter().map(e2e::content::Delivery::text).collect();
    assert_eq!(texts, (10..20).map(|n| n.to_string()).collect::<Vec<_>>());
    assert!(rest.iter().all(|message| !message.redelivered));
    drop(consumer);
    until("what was not settled is ready again", || other.depth(1, "q").unwrap().messages == 11);
}

#[test]
fn topology_can_be_changed_while_its_leader_dies() {
    let mut cluster = Setup::new().start();
    for victim in 0..3 {
        cluster.kill(victim);
        let survivor = (victim + 1) % 3;
        let begin = Instant::now();
        until("a survivor changes topology", || {
            e2e::cluster::channel(cluster.amqp(survivor)).is_ok_and(|mut client| {
                client.queue(1, format!("q{victim}"), DURABLE, &quorum()).is_ok()
            })
        });
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        cluster.await_served(survivor, &format!("q{victim}"));
        cluster.start(victim);
        cluster.await_served(victim, &format!("q{victim}"));
    }
}

#[test]
fn a_queue_outlives_its_first_leader_from_the_moment_it_is_declared() {
    let mut cluster = Setup::new().start();
    for round in 0..3 {
        let queue = format!("q{round}");
        declare(&cluster, round, &queue);
        cluster.kill(round);
        let took = cluster.await_served((round + 1) % 3, &queue);
        assert!(took < Duration::from_secs(5), "served after {took:?}");
        cluster.start(round);
    }
}

/// Of five nodes the two die that a queue needs for its majority; the topology has one.
#[test]
fn a_policy_that_is_set_while_a_queue_has_no_leader_holds_when_it_has_one() {
    let mut cluster = Setup::new().size(5).start();
    declare(&cluster, 0, "q");
    let names = cluster.view(0, "q")["members"].clone();
    let is_member = |node: &usize| {
        let name = format!("leveret@{}", name(*node));
        names.as_array().unwrap().iter().any(|member| *member == name)
    };
    let members: Vec<usize> = (0..5).filter(is_member).collect();
    let [0, victims @ ..] = &members[..] else { panic!("{names}") };
    assert_eq!(victims.len(), 2);
    for victim in victims {
        cluster.kill(*victim);
    }
    until("it has no leader", || cluster.view(0, "q")["leader"].is_null());
    let policy = json!({"pattern": "^q$", "definition": {"max-length": 5}});
    until("the policy is set", || cluster.api(0).put("policies/%2F/p", &policy).status < 300);
    for victim in victims {
        cluster.run(*victim);
    }
    cluster.await_formed();
    let mut client = cluster.channel(victims[0]);
    client.confirm_select(1).unwrap();
    client.patience = Duration::from_secs(30);
    for number in 0..10 {
        client.put(1, "q", number.to_string()).unwrap();
    }
    assert_eq!(client.confirms(1, 10).unwrap().acked().len(), 10);
    for node in [0, victims[0], victims[1]] {
        until_equal("what is over the length is gone", &5, || {
            cluster.channel(node).depth(1, "q").unwrap().messages
        });
    }
    assert_eq!(client.get_soon(1, "q").text(), "5");
}
