//! Which data a node may run on: copies, backups, and what is left of a lost majority.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use e2e::client::topology::DURABLE;
use e2e::cluster::{Cluster, Setup, quorum};
use e2e::node::{self, Node};
use e2e::table;
use e2e::wait::{until, until_some_for};

/// Runs `leveret` with a command that needs no node.
fn leveret(arguments: &[&str]) -> Output {
    Command::new(node::binary()).args(arguments).output().expect("the binary can be started")
}

fn told(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory can be made");
    for entry in fs::read_dir(from).expect("it can be read") {
        let entry = entry.expect("it can be read");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a file can be copied");
        }
    }
}

/// Puts messages into a queue, confirmed.
fn fill(cluster: &Cluster, node: usize, queue: &str, messages: u64) {
    let mut client = cluster.channel(node);
    client.confirm_select(1).unwrap();
    for number in 0..messages {
        client.put(1, queue, number.to_string()).unwrap();
    }
    let confirmed = client.confirms(1, messages as usize).unwrap().acked().len();
    assert_eq!(confirmed as u64, messages);
}

/// A node that does not want to start.
fn refuses(node: &mut Node, words: &str) {
    let status = node.await_exit();
    assert!(!status.success(), "{status}");
    assert!(node.log().contains(words), "{words}:\n{}", node.log());
}

#[test]
fn of_two_copies_of_a_data_directory_the_second_does_not_serve() {
    let mut cluster = Setup::new().start();
    cluster.channel(0).queue(1, "q", DURABLE, &quorum()).unwrap();
    fill(&cluster, 0, "q", 10);
    cluster.node(2).stop();
    let scratch = tempfile::tempdir().unwrap();
    let (directory, backup) = (cluster.node(2).directory.clone(), scratch.path().join("backup"));
    copy(&directory, &backup);
    cluster.start(2);
    fill(&cluster, 0, "q", 10);

    // The same node, from somewhere else: the first one is there.
    let mut twin = cluster.node(2).twin();
    copy(&backup, &twin.directory);
    for _ in 0..3 {
        twin.run();
        refuses(&mut twin, "leveret reincarnate");
    }
    // The first one has nothing to fear from it.
    fill(&cluster, 2, "q", 10);
    assert!(cluster.node(2).exited().is_none());
}

#[test]
fn a_backup_that_was_put_back_does_not_serve_until_it_is_another_node() {
    let mut cluster = Setup::new().start();
    let mut client = cluster.channel(2);
    client.queue(1, "q", DURABLE, &quorum()).unwrap();
    client.queue(1, "here", DURABLE, &table! {}).unwrap();
    drop(client);
    fill(&cluster, 0, "q", 10);
    fill(&cluster, 2, "here", 3);
    cluster.node(2).stop();
    let scratch = tempfile::tempdir().unwrap();
    let (directory, backup) = (cluster.node(2).directory.clone(), scratch.path().join("backup"));
    copy(&directory, &backup);
    cluster.start(2);
    fill(&cluster, 2, "q", 10);
    cluster.kill(2);
    cluster.node(2).wipe();
    copy(&backup, &directory);

    // However often it is tried, also while the cluster has forgotten that it was connected.
    for _ in 0..3 {
        cluster.run(2);
        refuses(cluster.node(2), "leveret reincarnate");
    }
    let path = directory.display().to_string();
    let asked = leveret(&["reincarnate", &path]);
    assert_eq!(asked.status.code(), Some(64), "{}", told(&asked));
    assert!(told(&asked).contains("Classic queue 'here' in vhost '/', which is lost: 3 messages."));
    let identity = fs::read_to_string(directory.join("identity")).unwrap();
    let done = leveret(&["reincarnate", &path, "--force"]);
    assert!(done.status.success(), "{}", told(&done));
    assert_ne!(fs::read_to_string(directory.join("identity")).unwrap(), identity);
    cluster.start(2);
    cluster.await_depth(2, "q", 20);
    assert!(cluster.channel(2).get(1, "here", true).is_err(), "it is lost");
}

#[test]
fn reincarnation_looks_before_it_leaps() {
    let empty = tempfile::tempdir().unwrap();
    let path = empty.path().display().to_string();
    let nothing = leveret(&["reincarnate", &path]);
    assert_eq!(nothing.status.code(), Some(65));
    assert!(told(&nothing).contains("is no node's data directory"), "{}", told(&nothing));

    let mut alone = node::Setup::new().start();
    let path = alone.directory.display().to_string();
    let running = leveret(&["reincarnate", &path]);
    assert_eq!(running.status.code(), Some(65));
    assert!(told(&running).contains("is in use by process"), "{}", told(&running));
    alone.stop();
    let unneeded = leveret(&["reincarnate", &path]);
    assert!(unneeded.status.success());
    assert!(told(&unneeded).contains("belongs to a node on its own"), "{}", told(&unneeded));
    alone.start_again();
}

#[test]
fn one_node_goes_on_when_the_majority_is_lost_for_good() {
    let mut cluster = Setup::new().set("cluster.name", "shop").start();
    let mut client = cluster.channel(1);
    client.queue(1, "q", DURABLE, &quorum()).unwrap();
    client.exchange(1, "x", "direct", DURABLE, &table! {}).unwrap();
    client.bind(1, "q", "x", "k", &table! {}).unwrap();
    client.queue(1, "theirs", DURABLE, &table! {}).unwrap();
    drop(client);
    cluster.channel(0).queue(1, "mine", DURABLE, &table! {}).unwrap();
    fill(&cluster, 1, "q", 100);
    fill(&cluster, 0, "mine", 5);
    until("node 0 has all of it", || cluster.api(0).json("queues/%2F/q")["messages"] == 100);
    for node in 0..3 {
        cluster.node(node).stop();
    }
    let arguments = cluster.node(0).command_line();
    let recover = |more: &[&str]| {
        let mut all = vec!["recover-metadata", "--from-this-node"];
        all.extend(more);
        all.extend(arguments.iter().map(String::as_str));
        leveret(&all)
    };
    for wrong in [&[][..], &["--confirm", "shup"]] {
        let asked = recover(wrong);
        assert_eq!(asked.status.code(), Some(64), "{}", told(&asked));
        let told = told(&asked);
        assert!(told.contains("nothing has changed. To go on: --confirm shop"), "{told}");
        assert!(told.contains("queue 'theirs' in vhost '/': node 'n1' keeps it"), "{told}");
    }
    // It was so indeed.
    for node in 0..3 {
        cluster.run(node);
    }
    cluster.await_formed();
    cluster.await_depth(0, "q", 100);
    for node in 0..3 {
        cluster.kill(node);
    }
    let done = recover(&["--confirm", "shop"]);
    assert!(done.status.success(), "{}", told(&done));
    cluster.start(0);
    cluster.await_depth(0, "q", 100);
    cluster.await_depth(0, "mine", 5);
    let mut client = cluster.channel(0);
    assert!(client.get(1, "theirs", true).is_err(), "it is lost");
    let mut client = cluster.channel(0);
    client.confirm_select(1).unwrap();
    let message = e2e::content::Properties::persistent();
    client.publish(1, "x", "k", &message, "after").unwrap();
    assert_eq!(client.confirms(1, 1).unwrap().acked(), [1]);

    // Nodes of before find no way in, alone or together.
    cluster.run(1);
    cluster.run(2);
    for node in 1..3 {
        until_some_for(Duration::from_secs(30), "it is refused", || {
            cluster.nodes[node].log().contains("whose data directory must be emptied").then_some(())
        });
        cluster.kill(node);
    }
    let nodes = cluster.api(0).json("nodes");
    let running = nodes.as_array().unwrap().iter().filter(|node| node["running"] == true);
    assert_eq!(running.count(), 1, "{nodes}");
    // As new ones they come in.
    for node in 1..3 {
        cluster.node(node).wipe();
        cluster.run(node);
    }
    cluster.await_formed();
    cluster.await_depth(2, "q", 101);
}
