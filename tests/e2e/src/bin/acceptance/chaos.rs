//! B2: nodes are killed, stopped and cut off, one at a time, under numbered messages.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use e2e::client::topology::DURABLE;
use e2e::cluster::{Cluster, Setup, name, quorum};
use e2e::load::Dice;
use e2e::numbered::{Load, Plan};

use crate::Verdict;

/// From one blow to the next.
const EVERY: Duration = Duration::from_secs(10);
/// Queues, led by the nodes in turn.
const QUEUES: usize = 6;
/// Messages per second into each.
const RATE: u32 = 200;
/// Every queue must serve so soon after healing.
const SERVES: Duration = Duration::from_secs(5);
/// After so long a queue that does not serve is given up.
const GIVEN_UP: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, Copy)]
enum Blow {
    Kill,
    Stop,
    Partition,
}

pub(crate) fn measure(minutes: usize, seed: u64) -> Verdict {
    let mut cluster =
        Setup::new().proxied().set("quorum_queue.consumer_disconnected_timeout", "5s").start();
    let addresses = cluster.addresses();
    let loads: Vec<Load> = (0..QUEUES)
        .map(|number| {
            let queue = format!("chaos-{number}");
            cluster.channel(number % 3).queue(1, &queue, DURABLE, &quorum()).expect("declares");
            let from = |first: usize| -> Vec<_> {
                (0..3).filter_map(|next| addresses.get((first + next) % 3).copied()).collect()
            };
            // Publisher and consumer in all relations to the leader.
            let mut plan = Plan::new(&queue, &from(number), &from(number + number / 3));
            plan.rate = RATE;
            plan.patience = Duration::from_secs(4);
            plan.start()
        })
        .collect();
    let mut dice = Dice::new(seed);
    let end = Instant::now() + Duration::from_secs(60 * minutes as u64);
    let mut next = Instant::now() + EVERY / 2;
    let mut slowest = (Duration::ZERO, String::new());
    let mut counts = [0_usize; 3];
    let mut stuck = Vec::new();
    while next < end {
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        next += EVERY;
        let victim = dice.below(3);
        let kind = dice.below(3);
        let blow = [Blow::Kill, Blow::Stop, Blow::Partition][kind];
        counts[kind] += 1;
        let pain = Duration::from_millis(500 + dice.below(4500) as u64);
        strike(&mut cluster, victim, blow, true);
        std::thread::sleep(pain);
        strike(&mut cluster, victim, blow, false);
        for (took, queue) in serving(&loads) {
            let what = format!("{queue} after {blow:?} of {} for {pain:?}", name(victim));
            if took > GIVEN_UP {
                stuck.push(what);
            } else if took > slowest.0 {
                slowest = (took, what);
            }
        }
        cluster.await_formed();
        if let Some(status) = cluster.nodes.iter_mut().find_map(e2e::node::Node::exited) {
            stuck.push(format!("a node exited by itself: {status}"));
            break;
        }
    }
    let mut holds = slowest.0 <= SERVES && stuck.is_empty();
    let mut text = String::new();
    let mut totals = [0_usize; 5];
    for load in loads {
        let report = load.finish(GIVEN_UP);
        holds &= report.passes();
        if !report.passes() {
            write!(text, "\n  {report}").expect("writing to a string works");
        }
        let figures =
            [report.confirmed, report.nacked, report.unknown, report.again, report.missing.len()];
        for (total, figure) in totals.iter_mut().zip(figures) {
            *total += figure;
        }
    }
    let [confirmed, nacked, unknown, again, lost] = totals;
    let [kills, stops, cuts] = counts;
    if !stuck.is_empty() {
        write!(text, "\n  stuck: {stuck:?}").expect("writing to a string works");
        cluster.keep_logs();
    }
    Verdict {
        figures: format!(
            "{minutes} minutes, seed {seed}: {kills} kills, {stops} stops, {cuts} partitions; \
             {confirmed} confirmed, {lost} of them lost; {nacked} nacked, {unknown} without an \
             answer, {again} delivered again; slowest to serve after healing {:?} ({}){text}",
            slowest.0, slowest.1,
        ),
        holds,
    }
}

fn strike(cluster: &mut Cluster, victim: usize, blow: Blow, begin: bool) {
    match (blow, begin) {
        (Blow::Kill, true) => cluster.kill(victim),
        (Blow::Kill, false) => cluster.run(victim),
        (Blow::Stop, true) => cluster.freeze(victim),
        (Blow::Stop, false) => cluster.thaw(victim),
        (Blow::Partition, true) => cluster.isolate(victim),
        (Blow::Partition, false) => cluster.rejoin(victim),
    }
}

/// How long from now until each queue has confirmed and delivered something.
fn serving(loads: &[Load]) -> Vec<(Duration, String)> {
    let begin = Instant::now();
    let before: Vec<usize> = loads.iter().map(Load::confirmed).collect();
    let mut took: Vec<Option<Duration>> = vec![None; loads.len()];
    while took.contains(&None) && begin.elapsed() < GIVEN_UP {
        for ((load, before), took) in loads.iter().zip(&before).zip(&mut took) {
            let delivered = load.last_received().is_some_and(|last| last > begin);
            if took.is_none() && delivered && load.confirmed() > *before {
                *took = Some(begin.elapsed());
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    took.into_iter()
        .zip(loads)
        .map(|(took, load)| (took.unwrap_or(Duration::MAX), load.queue().to_owned()))
        .collect()
}
