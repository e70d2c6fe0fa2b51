//! Quorum queues on three and five nodes under one seed: virtual time, disks that lose what was not
//! synced, a network that delays and is cut, nodes whose power fails, clients that publish, consume
//! and go.
//!
//! ```text
//!  set up ─► a storm: faults, and clients at work ─► everything is mended ─► every queue serves,
//!            nothing that was promised is broken        every queue is drained, replicas are equal
//! ```
//!
//! The same seed is the same run; a failing one says how to see it again.

mod book;
mod chaos;
mod clients;
mod disk;
mod net;
mod node;
mod plan;
pub(crate) mod rng;
pub(crate) mod rules;
mod world;

use std::sync::Arc;
use std::time::Duration;

use quorum::sim::watch;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::replicated::queue::Input;
use crate::shard::command::Command;
use book::Tally;
use plan::Plan;
use rng::Rng;
use world::World;

/// How long everything may take to serve again once nothing is wrong any more.
const HEALING: Duration = Duration::from_secs(30);
/// How long nothing may come of a queue that is drained then.
const DRAINING: Duration = Duration::from_secs(30);

/// How a run ended.
#[derive(Debug, Clone)]
struct Outcome {
    failure: Option<String>,
    trace: u64,
    tally: Tally,
    /// Milliseconds from the end of the storm until every queue served.
    healed: u64,
    /// Virtual milliseconds altogether.
    took: u64,
}

fn run(plan: Plan) -> Outcome {
    rules::break_rule(plan.broken);
    quorum::sim::begin(plan.seed, rules::of_quorum(plan.broken));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        // Timers are looked at when nothing else is left to do, not after so many tasks: openraft has
        // tasks whose number of turns at a given time is not a matter of the seed.
        .event_interval(u32::MAX)
        .build()
        .expect("a runtime can be made");
    let outcome = runtime.block_on(async move {
        let world = World::new(plan);
        let mut failed = world.failed.subscribe();
        let mut healed = 0;
        tokio::select! {
            biased;
            _ = failed.wait_for(|failed| *failed) => {}
            time = script(Arc::clone(&world)) => healed = time,
        }
        world.end();
        Outcome {
            failure: world.failure(),
            trace: world.digest(),
            tally: world.book.lock().tally,
            healed,
            took: world.elapsed(),
        }
    });
    drop(runtime);
    rules::break_rule(None);
    outcome
}

/// A whole run; gives the time that it took to heal.
async fn script(world: Arc<World>) -> u64 {
    let plan = world.plan.clone();
    let mut rng = Rng::new(plan.seed ^ 0xa5a5);
    for node in world.all() {
        world.boot(node);
    }
    let nodes = world.all();
    for (at, &one) in nodes.iter().enumerate() {
        for &other in &nodes[at + 1..] {
            tokio::spawn(Arc::clone(&world).keep(one, other, rng.fork()));
        }
    }
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
        for _ in 0..plan.getters {
            let (world, rng) = (Arc::clone(&world), rng.fork());
            clients.spawn(clients::getter(world, queue, rng, stop.subscribe()));
        }
    }
    let mut rng_of_careless = Rng::new(plan.seed ^ 0xca4e);
    for queue in world.queues() {
        for _ in 0..plan.careless {
            let (world, rng) = (Arc::clone(&world), rng_of_careless.fork());
            clients.spawn(clients::careless(world, queue, rng, stop.subscribe()));
        }
    }
    let watching = tokio::spawn(watch_states(Arc::clone(&world), stop.subscribe()));
    chaos::storm(Arc::clone(&world), rng.fork()).await;
    stop.send_replace(true);
    let over = async { while clients.join_next().await.is_some() {} };
    if tokio::time::timeout(Duration::from_secs(60), over).await.is_err() {
        world.fail("clients wait for ever".into());
    }
    drop(watching.await);
    // Half of the runs first drain, and see to it that nothing else wakes the queues.
    let prove_first = plan.seed.is_multiple_of(2);
    let mut healed = 0;
    for prove in [prove_first, !prove_first] {
        let since = Instant::now();
        for queue in world.queues() {
            let alive = world.alive();
            if prove {
                for node in &alive {
                    if !clients::proves_to_serve(&world, node, queue).await {
                        let how = world.book.lock().describe(queue);
                        let node = node.me.node;
                        world.fail(format!("queue {queue} does not serve node {node}: {how}"));
                    }
                }
            } else if let Some(node) = rng.pick(&alive) {
                clients::drain(&world, node, queue, DRAINING).await;
            }
        }
        if prove {
            healed = since.elapsed().as_millis() as u64;
            if since.elapsed() > HEALING {
                world.fail("healing took too long".into());
            }
        }
    }
    for queue in world.queues() {
        if !prove_first {
            for node in world.alive().iter().take(1) {
                clients::drain(&world, node, queue, DRAINING).await;
            }
        }
    }
    settle(&world).await;
    for (name, fate) in world.book.lock().lost().into_iter().take(3) {
        world.fail(format!("{name:?} was confirmed and is lost: {fate:?}"));
    }
    healed
}

/// Every member comes to the end of the log, with the same state.
async fn settle(world: &Arc<World>) {
    let until = Instant::now() + HEALING;
    for queue in world.queues() {
        for node in world.members(queue) {
            if world.node(node).is_none() {
                continue;
            }
            loop {
                let (at, last) = {
                    let book = world.book.lock();
                    (book.applied(queue, node), book.last(queue))
                };
                if at == last {
                    break;
                }
                if Instant::now() > until {
                    world.fail(format!("node {node} is behind with {queue}: {at:?} of {last:?}"));
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    compare(world).await;
}

/// Compares the members' states while clients are at work.
async fn watch_states(world: Arc<World>, stop: clients::Stop) {
    while !*stop.borrow() {
        tokio::time::sleep(Duration::from_millis(400)).await;
        compare(&world).await;
    }
}

/// Every member has the state that the log gives.
async fn compare(world: &Arc<World>) {
    for queue in world.queues() {
        for node in world.members(queue) {
            let Some(node) = world.node(node) else { continue };
            let me = node.me;
            let Some(index) = world.book.lock().applied(queue, me.node) else { continue };
            let (answer, state) = oneshot::channel();
            let input = Input::Checkpoint(answer);
            node.post(Command::Raft { queue, stream: queue.into(), input });
            let mut dead = node.dead.subscribe();
            drop(node);
            let state = tokio::select! {
                biased;
                _ = dead.wait_for(|dead| *dead) => continue,
                state = state => state,
            };
            let found = state.ok().as_ref().and_then(book::machine_of);
            let expected = world.book.lock().state_after(queue, index);
            if world.is_alive(me) && (found.is_none() || found != expected) {
                world.fail(format!(
                    "queue {queue}: the state of node {} after {index} is not that of the others",
                    me.node
                ));
            }
        }
    }
}

/// What a failing run says.
fn report(seed: u64, outcome: &Outcome) -> Option<String> {
    let failure = outcome.failure.as_ref()?;
    let (took, tally) = (outcome.took, outcome.tally);
    Some(format!(
        "{failure}\n    ended after {took} ms; {tally:?}\n    again: SIM_SEED={seed} SIM_TRACE=1 make sim"
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
        (None, None) => 8..16,
    };
    let failed = sweep(seeds, Plan::new);
    assert!(failed.is_empty(), "{} seeds failed", failed.len());
}

#[test]
fn a_seed_is_a_run() {
    for seed in 0..4 {
        let (first, second) = (run(Plan::new(seed)), run(Plan::new(seed)));
        assert_eq!(first.trace, second.trace, "seed {seed}");
    }
}

/// Every rule is needed: broken, it fails runs that pass with it.
#[test]
#[ignore = "takes a minute: make sim-rules"]
fn a_broken_rule_is_noticed() {
    use rules::Rule;
    let rules = [
        Rule::SyncFirst,
        Rule::NoClock,
        Rule::NoRestoredLeader,
        Rule::MajoritysWord,
        Rule::DropRepeats,
    ];
    for rule in rules {
        let noticed = (8..48).find_map(|seed| {
            let broken = run(Plan { broken: Some(rule), ..Plan::new(seed) });
            let how = broken.failure.filter(|_| run(Plan::new(seed)).failure.is_none())?;
            Some((seed, how))
        });
        println!("{rule:?}: {noticed:?}");
        assert!(noticed.is_some(), "{rule:?} can be broken and nobody notices");
    }
}
