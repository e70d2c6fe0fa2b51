//! Journals on two nodes under one seed: virtual time, disks that lose what was not synced and may
//! fail, links that are cut each on its own, nodes that are killed, lose power, are stopped for a
//! while or stop in good order, a metadata group that has no majority for a time, and clients.
//!
//! ```text
//!  set up ─► a storm: faults, and clients at work ─► all is mended but one node, perhaps: those that
//!            INV-1 to INV-6 hold at every step        are there serve, or need it ─► it comes back:
//!                                                     some node serves, nothing confirmed is missing
//! ```
//!
//! What is real: drivers, activation machines, grounds, replication, initial copies, the journal's
//! machine, the shards with their queues, orders and notices between nodes, the metadata machine, who
//! proposes and who counts leases. What is made up: the consensus of the metadata group, sessions
//! between nodes, the disk under the journal, threads. The same seed is the same run; a failing one
//! says how to see it again.

mod book;
mod chaos;
mod clients;
mod disk;
pub(crate) mod eye;
mod group;
mod net;
mod node;
mod owner;
mod plan;
pub(crate) mod rules;
#[cfg(test)]
mod scripts;
mod trap;
mod world;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use model::id::NodeId;
use model::time::Millis;
use quorum::sim::watch;
use tokio::time::Instant;

use crate::replicated::sim::rng::Rng;
use book::Tally;
pub(crate) use node::bare_yard;
pub(crate) use owner::owner;
use plan::Plan;
use world::World;

/// What the clock shows when a run begins.
const BEGIN: u64 = 1_000_000;
/// How long everything may take to serve again once nothing is wrong any more.
const HEALING: Duration = Duration::from_secs(30);
/// How long a hand-over to the preferred node may take.
const SETTLING: Duration = Duration::from_secs(8);
/// How long nothing may come of a queue that is drained then.
const DRAINING: Duration = Duration::from_secs(30);

thread_local! {
    /// When the run of this thread began; `None`: there is none.
    static EPOCH: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The time of this thread's run.
pub(crate) fn time() -> Option<Millis> {
    let since = u64::try_from(EPOCH.get()?.elapsed().as_millis()).unwrap_or(u64::MAX);
    Some(Millis(BEGIN + since))
}

/// How a run ended.
#[derive(Debug, Clone)]
struct Outcome {
    failure: Option<String>,
    trace: u64,
    tally: Tally,
    /// Milliseconds from the end of all faults until every node could use the queues.
    healed: u64,
    /// Virtual milliseconds altogether.
    took: u64,
}

fn run(plan: Plan) -> Outcome {
    run_script(plan, script)
}

/// Runs something of which every step is given.
fn run_script<F>(plan: Plan, script: impl FnOnce(Arc<World>) -> F) -> Outcome
where
    F: Future<Output = u64>,
{
    rules::break_rule(plan.broken);
    quorum::sim::begin(plan.seed, quorum::sim::Broken::None);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .event_interval(u32::MAX)
        .build()
        .expect("a runtime can be made");
    let outcome = runtime.block_on(async move {
        EPOCH.set(Some(Instant::now()));
        let world = World::new(plan);
        eye::watch(&Arc::downgrade(&world));
        let mut failed = world.failed.subscribe();
        let mut healed = 0;
        tokio::select! {
            biased;
            _ = failed.wait_for(|failed| *failed) => {}
            time = script(Arc::clone(&world)) => healed = time,
        }
        world.end();
        let mut tally = world.book.lock().tally;
        tally.elections = world.group.lock().term;
        Outcome {
            failure: world.failure(),
            trace: world.digest(),
            tally,
            healed,
            took: world.elapsed(),
        }
    });
    drop(runtime);
    rules::break_rule(None);
    EPOCH.set(None);
    outcome
}

/// Starts all nodes and what is between them.
fn begin(world: &Arc<World>, rng: &mut Rng) {
    tokio::spawn(Arc::clone(world).lead());
    let nodes = world.all();
    for node in &nodes {
        world.boot(*node);
    }
    for (at, &one) in nodes.iter().enumerate() {
        for &other in &nodes[at + 1..] {
            tokio::spawn(Arc::clone(world).keep(one, other, rng.fork()));
        }
    }
}

/// A whole run; gives the time that it took to heal.
async fn script(world: Arc<World>) -> u64 {
    let plan = world.plan.clone();
    let mut rng = Rng::new(plan.seed ^ 0xa5a5);
    begin(&world, &mut rng);
    let stop = watch::Sender::new(false);
    let mut clients = tokio::task::JoinSet::new();
    for queue in world.queues() {
        for _ in 0..plan.publishers {
            let (world, rng) = (Arc::clone(&world), rng.fork());
            clients.spawn(clients::publisher(world, queue, rng, stop.subscribe()));
        }
        for _ in 0..plan.consumers {
            let (world, rng) = (Arc::clone(&world), rng.fork());
            clients.spawn(clients::consumer(world, queue, rng, stop.subscribe()));
        }
    }
    let away = chaos::storm(Arc::clone(&world), rng.fork()).await;
    stop.send_replace(true);
    if let Some((node, stopped)) = away {
        without(&world, node, stopped).await;
        *world.away.lock() = None;
        world.boot(node);
    }
    let since = Instant::now();
    for queue in world.queues() {
        for node in world.all() {
            if !clients::proves_to_serve(&world, node, queue, HEALING).await {
                let how = world.book.lock().describe();
                world.fail(format!("queue {queue} does not serve node {node}: {how}"));
            }
        }
    }
    let healed = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
    if plan.settings.allow_failback {
        // The preferred node gets it back now, if another one has it.
        tokio::time::sleep(SETTLING).await;
        for queue in world.queues() {
            let preferred = world.pair()[0];
            if !clients::proves_to_serve(&world, preferred, queue, HEALING).await {
                let how = world.book.lock().describe();
                world.fail(format!("queue {queue} does not serve after a failback: {how}"));
            }
        }
        if let Err(how) = world.book.lock().is_active(world.pair()[0]) {
            world.fail(how);
        }
    }
    let over = async { while clients.join_next().await.is_some() {} };
    if tokio::time::timeout(Duration::from_secs(60), over).await.is_err() {
        world.fail(format!("clients wait for ever; {}", world.book.lock().describe()));
    }
    for queue in world.queues() {
        let nodes = world.alive();
        if let Some(node) = rng.pick(&nodes) {
            clients::drain(&world, node, queue, DRAINING).await;
        }
    }
    healed
}

/// One node of the pair is missing: the others serve, or what they have says why they cannot.
async fn without(world: &Arc<World>, away: NodeId, stopped: bool) {
    // The witness, or one of the metadata group's own.
    let pair = world.pair();
    let witness = world.all().into_iter().rfind(|node| !pair.contains(node));
    let (Some(node), Some(queue)) = (witness, world.queues().first().copied()) else { return };
    if clients::proves_to_serve(world, node, queue, HEALING).await {
        world.book.lock().tally.served_without += 1;
    } else if let Err(how) = world.judge_wait(away, stopped) {
        world.fail(how);
    }
}

/// What a failing run says.
fn report(seed: u64, outcome: &Outcome) -> Option<String> {
    let failure = outcome.failure.as_ref()?;
    let (took, tally) = (outcome.took, outcome.tally);
    Some(format!(
        "{failure}\n    ended after {took} ms; {tally:?}\n    again: SIM_SEED={seed} SIM_TRACE=1 make sim-pairs"
    ))
}

/// Runs seeds on all processors; gives what failed, and prints how it was.
fn sweep(seeds: std::ops::Range<u64>, plan: impl Fn(u64) -> Plan + Sync) -> Vec<(u64, Outcome)> {
    let next = std::sync::atomic::AtomicU64::new(seeds.start);
    let failed = parking_lot::Mutex::new(Vec::new());
    let sum = parking_lot::Mutex::new((Tally::default(), 0, 0));
    let begin = std::time::Instant::now();
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let outcome = run(plan(seed));
                    let mut sum = sum.lock();
                    sum.0.add(&outcome.tally);
                    sum.1 = sum.1.max(outcome.healed);
                    sum.2 += outcome.took;
                    if let Some(report) = report(seed, &outcome) {
                        println!("seed {seed}: {report}");
                        failed.lock().push((seed, outcome));
                    }
                }
            });
        }
    });
    let (tally, healed, took) = sum.into_inner();
    println!(
        "seeds {seeds:?}: {} failed; {:.1} s for {} virtual; healed within {healed} ms; {tally:?}",
        failed.lock().len(),
        begin.elapsed().as_secs_f64(),
        took / 1000,
    );
    failed.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(name: &str) -> Option<u64> {
        std::env::var(name).ok()?.parse().ok()
    }

    /// A few seeds, or the one of `SIM_SEED`, or so many as `SIM_SEEDS` says.
    #[test]
    fn nothing_promised_is_broken() {
        let seeds = match (number("SIM_SEED"), number("SIM_SEEDS")) {
            (Some(seed), _) => seed..seed + 1,
            (None, Some(count)) => {
                let first = number("SIM_FIRST").unwrap_or(0);
                first..first + count
            }
            (None, None) => 0..8,
        };
        let failed = sweep(seeds, Plan::new);
        assert!(failed.is_empty(), "{} seeds failed", failed.len());
    }

    /// The tables of crash points, on the real drivers: at each point somebody of the pair dies, is
    /// stopped or is cut off, again and again.
    #[test]
    fn harm_at_every_point() {
        let rounds = number("SIM_ROUNDS").unwrap_or(1);
        for (at, point) in trap::Point::ALL.into_iter().enumerate() {
            let seeds = 100_000 + at as u64 * 1_000;
            let plan = |seed| Plan { trap: Some(point), calm: 1_500, ..Plan::new(seed) };
            println!("{point:?}:");
            let failed = sweep(seeds..seeds + rounds, plan);
            assert!(failed.is_empty(), "{point:?}: {} seeds failed", failed.len());
        }
    }

    #[test]
    fn a_seed_is_a_run() {
        for seed in 0..3 {
            let (first, second) = (run(Plan::new(seed)), run(Plan::new(seed)));
            assert_eq!(first.trace, second.trace, "seed {seed}");
        }
    }

    /// Every rule is needed: broken, it fails runs that pass with it.
    #[test]
    #[ignore = "takes some minutes: make sim-pairs-rules"]
    fn a_broken_rule_is_noticed() {
        use rules::Rule;
        let rules = [
            Rule::AnswerFirst,
            Rule::Lease,
            Rule::StaleIsPassive,
            Rule::RaiseAfterLoss,
            Rule::GateUntilCommit,
            Rule::Commit,
            Rule::DurableAnswers,
        ];
        let most = number("SIM_SEEDS").unwrap_or(200);
        let mut unnoticed = Vec::new();
        for rule in rules {
            let noticed = (0..most).find_map(|seed| {
                let broken = run(Plan { broken: Some(rule), ..Plan::new(seed) });
                let how = broken.failure.filter(|_| run(Plan::new(seed)).failure.is_none())?;
                Some((seed, how))
            });
            println!("{rule:?}: {noticed:?}");
            if noticed.is_none() {
                unnoticed.push(rule);
            }
        }
        assert!(unnoticed.is_empty(), "{unnoticed:?} can be broken and nobody notices");
    }
}
