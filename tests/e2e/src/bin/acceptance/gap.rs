//! B3: the node that leads 1,001 quorum queues is killed, or cut off; a publisher on another node
//! measures how long it waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use e2e::client::topology::DURABLE;
use e2e::client::{Client, Outcome};
use e2e::cluster::{Cluster, Setup, quorum};
use e2e::numbered::Plan;
use e2e::wait::until_some;

use crate::Verdict;

/// Queues beside the one that is published to.
const OTHERS: usize = 1000;
/// How often.
const ROUNDS: usize = 5;
/// The line for a kill.
const KILL: Duration = Duration::from_millis(500);
/// The line for a partition.
const PARTITION: Duration = Duration::from_secs(3);

/// Declares quorum queues one after the other through one client.
pub(crate) fn declare(client: &mut Client, prefix: &str, count: usize) -> Outcome<Duration> {
    let begin = Instant::now();
    for number in 0..count {
        client.queue(1, format!("{prefix}-{number}"), DURABLE, &quorum())?;
    }
    Ok(begin.elapsed())
}

pub(crate) fn measure(rounds: Option<usize>) -> Vec<Verdict> {
    let rounds = rounds.unwrap_or(ROUNDS);
    vec![
        line("quiet", rounds, false, false),
        line("two busy loops", rounds, true, false),
        line("partition", rounds.min(3), false, true),
    ]
}

fn line(what: &str, rounds: usize, busy: bool, partition: bool) -> Verdict {
    let over = AtomicBool::new(false);
    let mut gaps = Vec::new();
    let mut all_served = Vec::new();
    let mut faults = String::new();
    std::thread::scope(|scope| {
        for _ in 0..if busy { 2 } else { 0 } {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        for _ in 0..rounds {
            let (gap, served, fault) = round(partition);
            gaps.push(gap);
            all_served.push(served);
            faults.push_str(&fault);
        }
        over.store(true, Ordering::Relaxed);
    });
    gaps.sort_unstable();
    all_served.sort_unstable();
    let median = gaps.get(gaps.len() / 2).copied().unwrap_or_default();
    let line = if partition { PARTITION } else { KILL };
    Verdict {
        figures: format!(
            "{what}, {} queues: longest gap between confirms {gaps:?}, median {median:?}, {line:?} \
             allowed; all queues confirm again after {all_served:?}{faults}",
            OTHERS + 1,
        ),
        holds: median <= line && faults.is_empty(),
    }
}

/// The longest gap, when all the other queues had taken a message, and what else went wrong.
fn round(partition: bool) -> (Duration, Duration, String) {
    let mut setup = Setup::new();
    if partition {
        setup = setup.proxied();
    }
    let mut cluster = setup.start();
    let mut client = cluster.channel(0);
    client.queue(1, "watched", DURABLE, &quorum()).expect("declares");
    declare(&mut client, "other", OTHERS).expect("declares");
    let mut plan = Plan::new("watched", &[cluster.amqp(1)], &[cluster.amqp(2)]);
    plan.rate = 1000;
    let load = plan.start();
    load.await_more(3000);
    let begin = Instant::now();
    if partition {
        cluster.isolate(0);
    } else {
        cluster.kill(0);
    }
    let served =
        until_some("all queues confirm", || all_confirm(&cluster).then(|| begin.elapsed()));
    load.await_more(1000);
    let end = Instant::now();
    let report = load.finish(Duration::from_secs(30));
    let fault = if report.passes() { String::new() } else { format!("\n  {report}") };
    (report.longest_gap_in(begin, end), served, fault)
}

/// Publishes to every other queue and waits for the confirms.
fn all_confirm(cluster: &Cluster) -> bool {
    let mut client = cluster.channel(2);
    let mut run = || -> Outcome<usize> {
        client.confirm_select(1)?;
        for number in 0..OTHERS {
            client.put(1, &format!("other-{number}"), "m")?;
        }
        Ok(client.confirms(1, OTHERS)?.acked().len())
    };
    run() == Ok(OTHERS)
}
