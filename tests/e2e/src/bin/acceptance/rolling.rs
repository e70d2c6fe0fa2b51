//! B7: the nodes are restarted one after the other under load.

use std::time::{Duration, Instant};

use e2e::client::topology::DURABLE;
use e2e::cluster::{Setup, quorum};
use e2e::numbered::{Load, Plan};

use crate::Verdict;

/// Queues, led by the nodes in turn.
const QUEUES: usize = 6;

pub(crate) fn measure(rounds: usize) -> Verdict {
    let mut cluster = Setup::new().start();
    let addresses = cluster.addresses();
    let loads: Vec<Load> = (0..QUEUES)
        .map(|number| {
            let queue = format!("rolling-{number}");
            cluster.channel(number % 3).queue(1, &queue, DURABLE, &quorum()).expect("declares");
            let from = |first: usize| -> Vec<_> {
                (0..3).filter_map(|next| addresses.get((first + next) % 3).copied()).collect()
            };
            let mut plan = Plan::new(&queue, &from(number), &from(number + number / 3));
            plan.rate = 500;
            plan.start()
        })
        .collect();
    let begin = Instant::now();
    for _ in 0..rounds {
        for node in 0..3 {
            await_more(&loads, 500);
            assert!(cluster.node(node).stop().success(), "a node stops without an error");
            await_more(&loads, 100);
            cluster.start(node);
        }
    }
    await_more(&loads, 500);
    let took = begin.elapsed();
    let reports: Vec<_> =
        loads.into_iter().map(|load| load.finish(Duration::from_secs(30))).collect();
    let sum = |of: fn(&e2e::numbered::Report) -> usize| reports.iter().map(of).sum::<usize>();
    let gaps: Vec<Duration> = reports.iter().map(e2e::numbered::Report::longest_gap).collect();
    let bad: Vec<String> = reports
        .iter()
        .filter(|report| !report.passes())
        .map(|report| format!("\n  {report}"))
        .collect();
    Verdict {
        figures: format!(
            "{rounds} rolling restarts of three nodes in {took:?}: {} confirmed, {} of them lost, {} \
             nacked, {} without an answer; longest gap {:?} (of each queue {gaps:?}){}",
            sum(|report| report.confirmed),
            sum(|report| report.missing.len()),
            sum(|report| report.nacked),
            sum(|report| report.unknown),
            gaps.iter().max().copied().unwrap_or_default(),
            bad.concat(),
        ),
        holds: bad.is_empty(),
    }
}

fn await_more(loads: &[Load], count: usize) {
    for load in loads {
        load.await_more(count);
    }
}
