//! What operators do with journals on two nodes: drain, failback, going on after losses that no rule
//! covers.

use std::fs;
use std::process::Command;

use e2e::client::topology::DURABLE;
use e2e::cluster::{Cluster, Setup};
use e2e::content::Properties;
use e2e::ctl::leveretctl;
use e2e::node::{self, Node};
use e2e::numbered::Plan;
use e2e::pair::{WHOLE, await_active, await_in_sync, await_state, journal, pair, sequence, state};
use e2e::table;
use e2e::wait::{until, until_some_for};

fn persistent() -> Properties {
    Properties::persistent()
}

fn publish(cluster: &Cluster, node: usize, text: &str) {
    let mut client = cluster.channel(node);
    client.confirm_select(1).unwrap();
    client.put(1, "q", text).unwrap();
    assert_eq!(client.confirms(1, 1).unwrap().acked(), [1]);
}

/// All nodes know by now who serves.
fn await_served(cluster: &Cluster, asked: usize, by: &str) {
    until_some_for(WHOLE, "the journal is served there", || {
        journal(cluster, asked).filter(|journal| journal["active"] == by)
    });
}

fn counted(cluster: &Cluster, node: usize, what: &str) -> i64 {
    let journal = journal(cluster, node).expect("the node answers");
    journal["here"]["counts"][what].as_i64().expect("it is counted")
}

/// What a node with an empty queue gets in order.
fn await_text(cluster: &Cluster, node: usize, wanted: &str) {
    let mut client = cluster.channel(node);
    assert_eq!(client.get_soon(1, "q").text(), wanted);
}

#[test]
fn a_drained_node_hands_its_journal_over_and_can_be_forgotten_then() {
    let mut cluster = pair(Setup::new());
    let addresses = [cluster.amqp(1)];
    let load = Plan::new("q", &addresses, &addresses).start();
    load.await_more(500);
    let drained = leveretctl(&cluster.api(0), &["drain", "leveret@n0"]);
    assert_eq!(drained.code, 0, "{drained:?}");
    assert!(drained.out.contains("journals moved\t1\n"), "{}", drained.out);
    await_active(&cluster, 1);
    await_in_sync(&cluster, 1);
    load.await_more(500);
    let report = load.finish(WHOLE);
    report.judge();
    assert_eq!(counted(&cluster, 0, "hand_overs"), 1);
    // A node that has nothing to hand over is drained too.
    let witness = leveretctl(&cluster.api(2), &["drain", "leveret@n2"]);
    assert!(witness.out.contains("journals moved\t0\n"), "{witness:?}");
    // The other one is whole, so this one may go.
    assert!(cluster.node(0).stop().success());
    await_state(&cluster, 1, &["active, alone"]);
    let forgotten = leveretctl(&cluster.api(1), &["forget_cluster_node", "leveret@n0"]);
    assert_eq!(forgotten.code, 0, "{forgotten:?}");
    let left = journal(&cluster, 1).unwrap();
    assert_eq!((left["nodes"].as_array().map(Vec::len), &left["paired"]), (Some(1), &true.into()));
    publish(&cluster, 1, "goes on");
}

#[test]
fn a_node_with_the_only_newest_copy_is_not_forgotten() {
    let mut cluster = pair(Setup::new());
    cluster.kill(1);
    await_state(&cluster, 0, &["active, alone"]);
    publish(&cluster, 0, "n0 alone");
    let critical = leveretctl(&cluster.api(0), &["check_if_node_is_quorum_critical"]);
    assert_eq!(critical.code, 69, "{critical:?}");
    cluster.run(1);
    // Before it is copied, this node goes for good.
    cluster.kill(0);
    cluster.await_formed();
    await_state(&cluster, 1, &["seeking"]);
    let refused = leveretctl(&cluster.api(1), &["forget_cluster_node", "leveret@n0"]);
    assert_eq!(refused.code, 65, "{refused:?}");
    assert!(refused.error.contains("'j'"), "{}", refused.error);
    cluster.start(0);
    await_in_sync(&cluster, 0);
    await_text(&cluster, 0, "n0 alone");
}

/// A12.2: 1, then 2 by the failover, then 3 by the failback, and nothing more.
#[test]
fn the_preferred_node_gets_the_journal_back_once() {
    let mut cluster = pair(Setup::new().set("journal.allow_failback", "true"));
    assert_eq!(sequence(&cluster, 0), (1, 1));
    let addresses = [cluster.amqp(1)];
    let load = Plan::new("q", &addresses, &addresses).start();
    load.await_more(300);
    cluster.kill(0);
    await_active(&cluster, 1);
    assert_eq!(sequence(&cluster, 1), (2, 2));
    load.await_more(300);
    cluster.start(0);
    await_in_sync(&cluster, 0);
    await_state(&cluster, 1, &["in sync"]);
    load.await_more(300);
    assert_eq!((sequence(&cluster, 0), sequence(&cluster, 1)), ((3, 3), (3, 3)));
    assert_eq!((counted(&cluster, 1, "failbacks"), counted(&cluster, 1, "hand_overs")), (1, 1));
    // The other one is in sync all the time now, and is not preferred.
    let more = load.confirmed() + 2000;
    until("there is no ping-pong", || {
        assert_eq!(sequence(&cluster, 0), (3, 3));
        load.confirmed() > more
    });
    load.finish(WHOLE).judge();
    assert_eq!(counted(&cluster, 0, "hand_overs"), 0);
    assert_eq!(state(&cluster, 0).as_deref(), Some("active, replicated"));
}

/// Takes everything from a node but its journals.
fn lose_metadata(node: &Node) {
    for entry in fs::read_dir(&node.directory).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().is_some_and(|name| name == "journals") {
            continue;
        }
        if path.is_dir() {
            fs::remove_dir_all(&path).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
    }
}

#[test]
fn a_journal_comes_back_with_its_queues_after_a_total_loss_of_metadata() {
    let mut cluster = pair(Setup::new());
    let mut client = cluster.channel(0);
    let arguments = table! { "x-journal" => "j", "x-max-length" => 100_i32 };
    client.queue(1, "bound", DURABLE, &arguments).unwrap();
    client.bind(1, "bound", "amq.topic", "a.*", &table! {}).unwrap();
    client.confirm_select(1).unwrap();
    client.publish(1, "amq.topic", "a.b", &persistent(), "by a binding").unwrap();
    client.put(1, "q", "by the name").unwrap();
    assert_eq!(client.confirms(1, 2).unwrap().acked(), [1, 2]);
    drop(client);
    // The backup is a step behind when everything is lost.
    assert!(cluster.node(1).stop().success());
    await_state(&cluster, 0, &["active, alone"]);
    publish(&cluster, 0, "n0 alone");
    for node in [0, 2] {
        assert!(cluster.node(node).stop().success());
    }
    for node in &cluster.nodes {
        lose_metadata(node);
    }
    for node in 0..3 {
        cluster.run(node);
    }
    cluster.await_formed();
    let listed = leveretctl(&cluster.api(1), &["journal", "list_abandoned"]);
    assert_eq!((listed.code, listed.out.lines().count()), (0, 2), "{listed:?}");
    // The older copy only knowingly.
    let adopt = ["journal", "adopt", "j", "--node", "n1"];
    let refused = leveretctl(&cluster.api(1), &adopt);
    assert_eq!(refused.code, 65, "{refused:?}");
    assert!(refused.error.contains("n0 has sequence 2"), "{}", refused.error);
    let adopted = leveretctl(&cluster.api(1), &["journal", "adopt", "j"]);
    assert_eq!(adopted.code, 0, "{adopted:?}");
    assert!(adopted.out.contains("node\tleveret@n0\n"), "{}", adopted.out);
    await_state(&cluster, 0, &["single"]);
    await_served(&cluster, 0, "leveret@n0");
    await_text(&cluster, 0, "by the name");
    await_text(&cluster, 0, "n0 alone");
    let mut client = cluster.channel(0);
    assert_eq!(client.get_soon(1, "bound").text(), "by a binding");
    // The binding is there too.
    client.confirm_select(1).unwrap();
    client.publish(1, "amq.topic", "a.c", &persistent(), "once more").unwrap();
    assert_eq!(client.confirms(1, 1).unwrap().acked(), [1]);
    assert_eq!(client.get_soon(1, "bound").text(), "once more");
    // It gets its backup again, whose copy of before is put aside.
    let paired = leveretctl(&cluster.api(0), &["journal", "set_backup", "j", "leveret@n1"]);
    assert_eq!(paired.code, 0, "{paired:?}");
    await_state(&cluster, 1, &["held"]);
    let discard = ["journal", "discard_copy", "j", "--node", "n1"];
    let discarded = leveretctl(&cluster.api(0), &discard);
    assert_eq!(discarded.code, 0, "{discarded:?}");
    await_in_sync(&cluster, 0);
}

/// The node with the newest copy is gone for good, and what the other one has is damaged: what lies
/// beside that is gone on with.
#[test]
fn an_old_copy_is_restored_when_there_is_nothing_better() {
    let mut cluster = pair(Setup::new());
    publish(&cluster, 0, "old");
    cluster.kill(1);
    await_state(&cluster, 0, &["active, alone"]);
    publish(&cluster, 0, "new");
    cluster.start(1);
    await_in_sync(&cluster, 0);
    cluster.kill(1);
    cluster.kill(0);
    let journals = cluster.node(1).directory.join("journals");
    let folder = fs::read_dir(journals).unwrap().next().unwrap().unwrap().path();
    fs::write(folder.join("activation"), b"nonsense").unwrap();
    cluster.run(1);
    cluster.await_formed();
    await_state(&cluster, 1, &["held"]);
    let inspected = leveretctl(
        &cluster.api(1),
        &["journal", "inspect", folder.to_str().unwrap(), "--even-if-in-use"],
    );
    assert!(inspected.out.contains("saved copy\t1-1\tsequence 1\t"), "{inspected:?}");
    // Whoever died with the lock has it until his lease ends.
    until("the lock is free", || cluster.api(1).json("activation/j")["lock"].is_null());
    let restore = ["journal", "restore-copy", "j", "1"];
    let refused = leveretctl(&cluster.api(1), &restore);
    assert_eq!(refused.code, 65, "{refused:?}");
    assert!(refused.error.contains("everything is lost that was confirmed"), "{}", refused.error);
    let restored =
        leveretctl(&cluster.api(1), &[&restore[..], &["--force", "--confirm", "j"]].concat());
    assert_eq!(restored.code, 0, "{restored:?}");
    await_active(&cluster, 1);
    await_served(&cluster, 1, "leveret@n1");
    assert_eq!(sequence(&cluster, 1), (2, 2));
    await_text(&cluster, 1, "old");
    // The newer one comes back after all: another history, held until somebody decides.
    cluster.start(0);
    await_state(&cluster, 0, &["held"]);
    let discarded = leveretctl(&cluster.api(0), &["journal", "discard_copy", "j"]);
    assert_eq!(discarded.code, 0, "{discarded:?}");
    await_in_sync(&cluster, 1);
}

/// A node that was wiped has nothing, and comes back as another one of its name: it is the backup
/// again, whichever it was before, and nobody has to help.
#[test]
fn a_wiped_node_is_the_backup_again() {
    let mut cluster = pair(Setup::new().set("journal.max_saved_copies", "0"));
    publish(&cluster, 0, "before");
    for wiped in [1, 0] {
        let other = 1 - wiped;
        cluster.kill(wiped);
        await_state(&cluster, other, &["active, alone"]);
        publish(&cluster, other, &format!("without n{wiped}"));
        cluster.node(wiped).wipe();
        let raised = sequence(&cluster, other);
        cluster.start(wiped);
        await_in_sync(&cluster, other);
        await_state(&cluster, wiped, &["in sync"]);
        // It takes the sequence with the copy.
        assert_eq!((sequence(&cluster, other), sequence(&cluster, wiped)), (raised, raised));
        publish(&cluster, wiped, &format!("with n{wiped} again"));
    }
    // What n0 has now it has from n1, that has it from the first n0.
    cluster.kill(1);
    await_active(&cluster, 0);
    publish(&cluster, 0, "n0 alone");
    let mut client = cluster.channel(0);
    for text in ["before", "without n1", "with n1 again", "without n0", "with n0 again", "n0 alone"]
    {
        assert_eq!(client.get_soon(1, "q").text(), text);
    }
    drop(client);
    // The one that alone has the newest copy is wiped: what the other one has is old, and nothing that
    // is old or empty is served in the place of what was confirmed.
    publish(&cluster, 0, "lost");
    cluster.kill(0);
    cluster.node(0).wipe();
    for node in [0, 1] {
        cluster.run(node);
    }
    cluster.await_formed();
    for node in [0, 1] {
        await_state(&cluster, node, &["seeking"]);
    }
    // Whoever died with the lock has it until the lease ends, wiped or not.
    until("the lock is free", || cluster.api(1).json("activation/j")["lock"].is_null());
    let set = ["activation", "set", "--journal", "j", "--coordinated", "--to", "3"];
    let refused = leveretctl(&cluster.api(1), &set);
    assert_eq!(refused.code, 65, "{refused:?}");
    let forced = leveretctl(&cluster.api(1), &[&set[..], &["--force", "--confirm", "j"]].concat());
    assert_eq!(forced.code, 0, "{forced:?}");
    await_in_sync(&cluster, 1);
}

/// Runs `leveret` with a command that needs no node.
fn leveret(arguments: &[&str]) -> String {
    let output = Command::new(node::binary()).args(arguments).output().expect("it can be started");
    let told = [&output.stdout[..], &output.stderr[..]].concat();
    let told = String::from_utf8_lossy(&told).into_owned();
    assert!(output.status.success(), "{told}");
    told
}

/// A data directory that was put back from somewhere is that of another node then; the copy in it may be
/// old, and nobody takes it for something before an operator has decided.
#[test]
fn a_reincarnated_node_holds_its_copy_until_somebody_decides() {
    let mut cluster = pair(Setup::new());
    publish(&cluster, 0, "before");
    for node in [1, 0] {
        let other = 1 - node;
        assert!(cluster.node(node).stop().success());
        await_state(&cluster, other, &["active, alone"]);
        let directory = cluster.node(node).directory.display().to_string();
        let told = leveret(&["reincarnate", &directory]);
        assert!(told.contains("The copy of journal 'j' is set aside, and held"), "{told}");
        cluster.start(node);
        await_state(&cluster, node, &["held"]);
        let name = format!("n{node}");
        let done =
            leveretctl(&cluster.api(other), &["journal", "discard_copy", "j", "--node", &name]);
        assert_eq!(done.code, 0, "{done:?}");
        await_in_sync(&cluster, other);
        publish(&cluster, node, &format!("with n{node}"));
    }
    cluster.kill(1);
    await_active(&cluster, 0);
    publish(&cluster, 0, "n0 alone");
    let mut client = cluster.channel(0);
    for text in ["before", "with n1", "with n0", "n0 alone"] {
        assert_eq!(client.get_soon(1, "q").text(), text);
    }
}

/// The majority of the metadata is gone for good with the other nodes: the journals of the survivor are
/// held, and gone on with by one command.
#[test]
fn the_survivor_of_a_lost_majority_goes_on_with_its_journals() {
    let mut cluster = pair(Setup::new().set("cluster.name", "shop"));
    publish(&cluster, 0, "with both");
    assert!(cluster.node(1).stop().success());
    await_state(&cluster, 0, &["active, alone"]);
    publish(&cluster, 0, "n0 alone");
    for node in [0, 2] {
        assert!(cluster.node(node).stop().success());
    }
    let arguments = cluster.node(0).command_line();
    let mut recover = vec!["recover-metadata", "--from-this-node", "--confirm", "shop"];
    recover.extend(arguments.iter().map(String::as_str));
    let told = leveret(&recover);
    assert!(told.contains("Journal 'j' with 1 queues is held until an operator goes on"), "{told}");
    cluster.start(0);
    await_state(&cluster, 0, &["held"]);
    let adopt = ["journal", "adopt", "j", "--node", "n0"];
    let adopted = leveretctl(&cluster.api(0), &adopt);
    assert_eq!(adopted.code, 0, "{adopted:?}");
    await_active(&cluster, 0);
    publish(&cluster, 0, "the survivor");
    let mut client = cluster.channel(0);
    for text in ["with both", "n0 alone", "the survivor"] {
        assert_eq!(client.get_soon(1, "q").text(), text);
    }
    drop(client);
    // The others come in as new ones, and the journal gets a backup again.
    for node in [1, 2] {
        cluster.node(node).wipe();
        cluster.run(node);
    }
    cluster.await_formed();
    let paired = leveretctl(&cluster.api(0), &["journal", "set_backup", "j", "leveret@n1"]);
    assert_eq!(paired.code, 0, "{paired:?}");
    await_in_sync(&cluster, 0);
    publish(&cluster, 1, "with both again");
    // Before that the first one may be half of the voters.
    until("both vote", || cluster.node(0).log().matches("a node has got a vote").count() == 2);
    cluster.kill(0);
    await_active(&cluster, 1);
    await_served(&cluster, 1, "leveret@n1");
    await_text(&cluster, 1, "with both again");
}

/// How many copies are kept can be changed while the node runs.
#[test]
fn a_reload_says_how_many_old_copies_are_kept() {
    let mut cluster = pair(Setup::new());
    publish(&cluster, 0, "first");
    cluster.kill(1);
    cluster.node(1).configure("journal.max_saved_copies = 1\n");
    await_state(&cluster, 0, &["active, alone"]);
    cluster.start(1);
    await_in_sync(&cluster, 0);
    let journals = cluster.node(1).directory.join("journals");
    let folder = fs::read_dir(journals).unwrap().next().unwrap().unwrap().path();
    let saved = || fs::read_dir(folder.join("saved")).map_or(0, Iterator::count);
    assert_eq!(saved(), 1);
    cluster.node(1).configure("journal.max_saved_copies = 0\n");
    cluster.node(1).reload();
    until("it is read again", || {
        cluster.node(1).log().contains("the configuration was read again")
    });
    assert_eq!(saved(), 1, "they go when the next copy is whole");
    let remove = leveretctl(&cluster.api(0), &["journal", "remove_backup", "j"]);
    assert_eq!(remove.code, 0, "{remove:?}");
    await_state(&cluster, 0, &["active, alone"]);
    publish(&cluster, 0, "second");
    let set = leveretctl(&cluster.api(0), &["journal", "set_backup", "j", "leveret@n1"]);
    assert_eq!(set.code, 0, "{set:?}");
    await_in_sync(&cluster, 0);
    until("none is kept", || saved() == 0);
}
