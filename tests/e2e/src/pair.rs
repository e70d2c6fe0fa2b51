//! Two brokers and a witness, with a journal on both brokers: what tests and measurements of journal
//! pairs have in common.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::topology::DURABLE;
use crate::cluster::{Cluster, Setup, name};
use crate::table;
use crate::wait::until_some_for;

/// How long a pair may take to be whole again on a busy machine.
pub const WHOLE: Duration = Duration::from_mins(1);

/// Journal `j` on the first two nodes and queue `q` in it; the third node only votes.
///
/// # Panics
/// If they do not become a pair.
pub fn pair(setup: Setup) -> Cluster {
    let mut cluster = setup.set_on(2, "node.role", "witness").start();
    let made = cluster.api(0).put("journals/j", &json!({ "node": "n0", "backup": "n1" }));
    assert_eq!(made.status, 201, "{}", made.text());
    await_active(&cluster, 0);
    declare(&mut cluster, 0);
    await_in_sync(&cluster, 0);
    cluster
}

/// Declares the queue through a node.
///
/// # Panics
/// If it is refused.
pub fn declare(cluster: &mut Cluster, node: usize) {
    let mut client = cluster.channel(node);
    client.queue(1, "q", DURABLE, &table! { "x-journal" => "j" }).expect("declares");
}

/// What a node says of the journal.
pub fn journal(cluster: &Cluster, node: usize) -> Option<Value> {
    let answer = cluster.api(node).request("GET", "/api/journals/j", None).ok()?;
    (answer.status == 200).then(|| answer.json())
}

/// What a node does with it.
pub fn state(cluster: &Cluster, node: usize) -> Option<String> {
    Some(journal(cluster, node)?["here"]["state"].as_str()?.to_owned())
}

/// The coordinated and the local sequence, as a node says; -1: none.
///
/// # Panics
/// If the node does not answer.
pub fn sequence(cluster: &Cluster, node: usize) -> (i64, i64) {
    let journal = journal(cluster, node).expect("the node answers");
    let number = |value: &Value| value.as_i64().unwrap_or(-1);
    (number(&journal["coordinated_sequence"]), number(&journal["here"]["sequence"]))
}

/// Waits until a node does one of these.
///
/// # Panics
/// If it does not.
pub fn await_state(cluster: &Cluster, node: usize, wanted: &[&str]) {
    until_some_for(WHOLE, &format!("{} says {wanted:?}", name(node)), || {
        state(cluster, node).filter(|state| wanted.contains(&state.as_str()))
    });
}

/// Waits until a node serves the journal.
///
/// # Panics
/// If it does not.
pub fn await_active(cluster: &Cluster, node: usize) {
    let active = ["active, alone", "active, copying", "active, handing in", "active, replicated"];
    await_state(cluster, node, &active);
}

/// Waits until the other copy is whole, and the active node knows it.
///
/// # Panics
/// If that does not come.
pub fn await_in_sync(cluster: &Cluster, active: usize) {
    await_state(cluster, active, &["active, replicated"]);
}
