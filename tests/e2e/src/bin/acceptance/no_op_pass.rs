//! M9: passes of reconciliation over many quorum queues that hibernate and need nothing.

use std::thread;
use std::time::{Duration, Instant};

use e2e::cluster::{Cluster, Setup};
use e2e::sleepers::Sleepers;
use e2e::wait::until_some_for;
use serde_json::{Value, json};

use crate::Verdict;
use crate::many_queues::declare_rest;

const KEY: &str = "quorum_queue.continuous_membership_reconciliation";
/// How long a step of the line may take before it is given up.
const GIVE_UP: Duration = Duration::from_mins(10);
/// How long rest is measured.
const REST: Duration = Duration::from_secs(30);
/// Passes that are measured.
const PASSES: u32 = 5;
/// Between two looks whether a pass is over.
const LOOK: Duration = Duration::from_millis(100);

/// What all nodes say of a number in their reports.
fn sum(reports: &Value, key: &str) -> u64 {
    reports.as_array().into_iter().flatten().filter_map(|node| node[key].as_u64()).sum()
}

fn each(reports: &Value, key: &str) -> Vec<u64> {
    let nodes = reports.as_array().into_iter().flatten();
    nodes.map(|node| node[key].as_u64().unwrap_or_default()).collect()
}

/// Lets all nodes look at all queues, and waits until they have.
fn pass(cluster: &Cluster) -> Value {
    let passes = |reports: &Value| each(reports, "passes");
    let before = passes(&cluster.api(0).json("reconciliation"));
    assert_eq!(cluster.api(0).post("reconciliation/now", &json!({})).status, 200);
    until_some_for(GIVE_UP, "all nodes have looked", || {
        thread::sleep(LOOK);
        let reports = cluster.api(0).json("reconciliation");
        let now = passes(&reports);
        (now.iter().zip(&before).all(|(now, before)| now > before)).then_some(reports)
    })
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn measure(count: usize) -> Vec<Verdict> {
    let cluster = Setup::new()
        .set(&format!("{KEY}.enabled"), "true")
        .set(&format!("{KEY}.target_group_size"), "3")
        .set("journal.segment_size", "32MiB")
        .start();
    let mut client = cluster.channel(0);
    declare_rest(&mut client, 0, count);
    drop(client);
    let members = count as u64 * 3;
    // What the declarations brought about is over: nobody looks by himself for an hour.
    until_some_for(GIVE_UP, "all hibernate, and nothing is left to be done", || {
        thread::sleep(LOOK * 10);
        let reports = cluster.api(0).json("reconciliation");
        let is_settled = sum(&reports, "queues") == count as u64
            && sum(&reports, "waiting") == 0
            && sum(&reports, "running") == 0
            && each(&reports, "passes").iter().all(|passes| *passes > 0)
            && Sleepers::of(&cluster).are_all(members);
        is_settled.then_some(())
    });
    let (begin, before) = (Instant::now(), cluster.cpu());
    thread::sleep(REST);
    let at_rest =
        cluster.cpu().saturating_sub(before).as_secs_f64() / begin.elapsed().as_secs_f64();

    let asleep = Sleepers::of(&cluster);
    let first = cluster.api(0).json("reconciliation");
    let (begin, before) = (Instant::now(), cluster.cpu());
    let mut longest = 0;
    let mut last = first.clone();
    for _ in 0..PASSES {
        last = pass(&cluster);
        longest = each(&last, "last_duration").into_iter().fold(longest, u64::max);
    }
    let (took, used) = (begin.elapsed(), cluster.cpu().saturating_sub(before));
    let above = used.saturating_sub(took.mul_f64(at_rest)) / PASSES;
    let after = Sleepers::of(&cluster);
    let looked = sum(&last, "examined") - sum(&first, "examined");
    let steps = |reports: &Value| -> u64 {
        let nodes = reports.as_array().into_iter().flatten();
        let kinds = nodes.flat_map(|node| [&node["done"], &node["failed"]]);
        kinds.filter_map(Value::as_object).flatten().filter_map(|(_, count)| count.as_u64()).sum()
    };
    let steps = steps(&last) - steps(&first);
    let woken = after.begun - asleep.begun + (members - after.asleep.min(members));
    vec![Verdict {
        figures: format!(
            "{PASSES} passes over {count} quorum queues that hibernate on three nodes: {looked} looks, \
             {steps} steps, {woken} of {members} members woken; a pass took {longest} ms at most and \
             used {} ms of CPU in all three nodes above rest ({:.1} % of one core)",
            millis(above),
            at_rest * 100.0,
        ),
        holds: asleep.are_all(members)
            && looked >= count as u64 * u64::from(PASSES)
            && steps == 0
            && woken == 0,
    }]
}
