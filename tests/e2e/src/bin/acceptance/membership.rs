//! M4 and M5: many quorum queues come back to three members, and a publisher hardly notices.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use e2e::client::topology::DURABLE;
use e2e::cluster::{Cluster, Setup, channel, name, quorum};
use e2e::wait::{until, until_some_for};
use serde_json::Value;

use crate::Verdict;
use crate::many_queues::declare_rest;

const KEY: &str = "quorum_queue.continuous_membership_reconciliation";
/// How long a step of a line may take before it is given up.
const GIVE_UP: Duration = Duration::from_mins(30);
/// How often it is looked how far it is.
const LOOK: Duration = Duration::from_secs(2);
/// How long the publisher is watched before anything happens.
const BEFORE: Duration = Duration::from_secs(20);
/// Between two messages of the publisher.
const PACE: Duration = Duration::from_millis(5);

/// One message after the other, each confirmed before the next: when, and how long that took.
struct Publisher {
    over: Arc<AtomicBool>,
    runs: JoinHandle<Samples>,
}

#[derive(Default)]
struct Samples {
    confirms: Vec<(Instant, Duration)>,
    errors: Vec<String>,
}

impl Publisher {
    fn start(address: SocketAddr, queue: &str) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (stop, queue) = (Arc::clone(&over), queue.to_owned());
        let runs = thread::spawn(move || {
            let mut samples = Samples::default();
            while !stop.load(Ordering::Relaxed) {
                if let Err(error) = publish(address, &queue, &stop, &mut samples.confirms) {
                    samples.errors.push(error);
                }
            }
            samples
        });
        Self { over, runs }
    }

    fn finish(self) -> Samples {
        self.over.store(true, Ordering::Relaxed);
        self.runs.join().expect("the publisher does not panic")
    }
}

fn publish(
    address: SocketAddr,
    queue: &str,
    stop: &AtomicBool,
    confirms: &mut Vec<(Instant, Duration)>,
) -> Result<(), String> {
    let mut client = channel(address).map_err(|error| format!("{error:?}"))?;
    client.confirm_select(1).map_err(|error| format!("{error:?}"))?;
    while !stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        client.put(1, queue, "m").map_err(|error| format!("{error:?}"))?;
        let answer = client.confirms(1, 1).map_err(|error| format!("{error:?}"))?;
        confirms.push((begin, begin.elapsed()));
        if answer.acked().is_empty() {
            return Err("a nack".to_owned());
        }
        thread::sleep(PACE);
    }
    Ok(())
}

impl Samples {
    fn between(&self, since: Instant, until: Instant) -> Vec<Duration> {
        let within = self.confirms.iter().filter(|(at, _)| (since..until).contains(at));
        let mut took: Vec<Duration> = within.map(|(_, took)| *took).collect();
        took.sort_unstable();
        took
    }
}

fn p99(sorted: &[Duration]) -> Duration {
    sorted.get(sorted.len() * 99 / 100).copied().unwrap_or_default()
}

/// Watches how much of a core all nodes use, each second, until it is told to stop.
fn most_cpu(cluster: &Cluster, over: &AtomicBool) -> u128 {
    let mut most = 0;
    let mut last = (Instant::now(), cluster.cpu());
    while !over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_secs(1));
        let now = (Instant::now(), cluster.cpu());
        let used = now.1.saturating_sub(last.1).as_millis() * 100;
        most = most.max(used / now.0.duration_since(last.0).as_millis().max(1));
        last = now;
    }
    most
}

/// Whether every queue has these members, all of which are there and vote; how many have not.
fn unfinished(cluster: &Cluster, members: &[String]) -> Option<usize> {
    let path = "queues/%2F?columns=name,members,online&disable_stats=true";
    let answer = cluster.api(0).request("GET", &format!("/api/{path}"), None).ok()?;
    let queues = answer.json();
    let names = |value: &Value| -> Vec<String> {
        let texts = value.as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut names: Vec<String> = texts.map(str::to_owned).collect();
        names.sort();
        names
    };
    let is_whole =
        |queue: &&Value| names(&queue["members"]) == members && names(&queue["online"]) == members;
    let queues = queues.as_array()?;
    Some(queues.iter().filter(|queue| !is_whole(queue)).count())
}

/// Whether every member on every node has its vote.
fn all_vote(cluster: &Cluster) -> bool {
    let check = "health/checks/new-quorum-queue-replicas-have-finished-initial-sync";
    cluster.reachable().into_iter().all(|node| cluster.api(node).get(check).status == 200)
}

fn declare(cluster: &Cluster, count: usize) -> String {
    let mut client = cluster.channel(0);
    client.queue(1, "watched", DURABLE, &quorum()).expect("declares");
    declare_rest(&mut client, 0, count)
}

#[allow(clippy::print_stdout, reason = "it takes minutes, and somebody waits")]
fn await_whole(cluster: &Cluster, members: &[String]) -> Duration {
    let (begin, mut said) = (Instant::now(), Instant::now());
    until_some_for(GIVE_UP, "all queues are whole", || {
        let left = unfinished(cluster, members);
        if said.elapsed() > Duration::from_secs(20) {
            said = Instant::now();
            println!("  {:?}: {left:?} are not whole", begin.elapsed());
        }
        if left == Some(0) && all_vote(cluster) {
            return Some(begin.elapsed());
        }
        thread::sleep(LOOK);
        None
    })
}

fn members(nodes: &[usize]) -> Vec<String> {
    nodes.iter().map(|node| format!("leveret@{}", name(*node))).collect()
}

/// M4: a node of three is stopped, wiped and joined again under its name.
pub(crate) fn wiped(count: usize) -> Vec<Verdict> {
    let mut cluster = Setup::new()
        .set(&format!("{KEY}.enabled"), "true")
        .set("journal.segment_size", "32MiB")
        .start();
    let declared = declare(&cluster, count);
    let all = members(&[0, 1, 2]);
    await_whole(&cluster, &all);
    let publisher = Publisher::start(cluster.amqp(0), "watched");
    let begin = Instant::now();
    thread::sleep(BEFORE);
    let stopped = Instant::now();
    cluster.node(2).signal_stop();
    cluster.node(2).await_exit();
    cluster.node(2).wipe();
    cluster.run(2);
    cluster.node(2).await_ready();
    let joined = Instant::now();
    let over = AtomicBool::new(false);
    let (took, most) = thread::scope(|scope| {
        let watch = scope.spawn(|| most_cpu(&cluster, &over));
        let took = await_whole(&cluster, &all);
        over.store(true, Ordering::Relaxed);
        (took, watch.join().unwrap_or_default())
    });
    let end = Instant::now();
    let samples = publisher.finish();
    let (before, during) = (samples.between(begin, stopped), samples.between(stopped, end));
    let gap = during.last().copied().unwrap_or_default();
    vec![Verdict {
        figures: format!(
            "{count} quorum queues (declared at {declared}), one node of three stopped, wiped and joined \
             again: it was back after {:?}, all whole {took:?} later (10 min allowed); most CPU in a \
             second {most} % of one core; longest wait for a confirm {gap:?} (1 s allowed), p99 \
             {:?} before and {:?} meanwhile (three times allowed); {} confirms, errors {:?}",
            joined.duration_since(stopped),
            p99(&before),
            p99(&during),
            samples.confirms.len(),
            samples.errors,
        ),
        holds: took <= Duration::from_mins(10)
            && gap <= Duration::from_secs(1)
            && p99(&during) <= p99(&before) * 3
            && samples.errors.is_empty(),
    }]
}

/// M5: a node of four is forgotten: with its members, and cut off after it has left the cluster.
pub(crate) fn forgotten(count: usize) -> Vec<Verdict> {
    vec![with_members(count), cut_off(count)]
}

fn four(count: usize) -> (Cluster, String) {
    let mut cluster = Setup::new()
        .size(4)
        .set(&format!("{KEY}.enabled"), "true")
        .set(&format!("{KEY}.target_group_size"), "3")
        .set("journal.segment_size", "32MiB")
        .prepare();
    for node in 0..4 {
        cluster.node(node).configure("log.level = \"info\"\n");
        cluster.run(node);
    }
    cluster.await_formed();
    let declared = declare(&cluster, count);
    until("all have votes", || all_vote(&cluster));
    (cluster, declared)
}

fn forget(cluster: &Cluster, keep_members: bool) -> u16 {
    let body = serde_json::json!({ "keep_members": keep_members }).to_string();
    let path = "/api/nodes/leveret%40n3";
    let answer = cluster.api(1).request("DELETE", path, Some(&body));
    answer.map_or(0, |answer| answer.status)
}

/// Kills the last node, and waits until everybody misses it.
fn lose(cluster: &mut Cluster) {
    cluster.kill(3);
    for by in 0..3 {
        until("it is missed", || {
            let nodes = cluster.api(by).json("nodes");
            let mut nodes = nodes.as_array().into_iter().flatten();
            nodes.any(|node| node["name"] == "leveret@n3" && node["running"] == false)
        });
    }
}

fn with_members(count: usize) -> Verdict {
    let (mut cluster, declared) = four(count);
    let publisher = Publisher::start(cluster.amqp(0), "watched");
    lose(&mut cluster);
    let begin = Instant::now();
    // A queue may be between two leaders.
    until_some_for(GIVE_UP, "it is forgotten", || (forget(&cluster, false) == 200).then_some(()));
    let forgotten = begin.elapsed();
    await_whole(&cluster, &members(&[0, 1, 2]));
    let took = begin.elapsed();
    let samples = publisher.finish();
    Verdict {
        figures: format!(
            "{count} queues on four nodes (declared at {declared}), auto_remove off, a dead node \
             forgotten in {forgotten:?}: three members each after {took:?} (2 min allowed), publisher \
             {} confirms, errors {:?}",
            samples.confirms.len(),
            samples.errors,
        ),
        holds: took <= Duration::from_mins(2) && samples.errors.is_empty(),
    }
}

fn cut_off(count: usize) -> Verdict {
    let (mut cluster, _) = four(count);
    lose(&mut cluster);
    let status = forget(&cluster, true);
    cluster.kill(1);
    cluster.start(1);
    let dangling = |cluster: &Cluster| -> u64 {
        let nodes = cluster.api(0).json("reconciliation");
        let nodes = nodes.as_array().into_iter().flatten();
        nodes.filter_map(|node| node["blocked"]["dangling"].as_u64()).sum()
    };
    let wanted = count as u64 / 2;
    until_some_for(GIVE_UP, "those that list it are reported", || {
        (dangling(&cluster) >= wanted).then_some(())
    });
    let listed = dangling(&cluster);
    let ghosts = cluster.api(0).get("health/checks/quorum-queues-without-ghost-members").status;
    let begin = Instant::now();
    for node in 0..3 {
        cluster.node(node).configure(&format!("{KEY}.auto_remove = true\n"));
        cluster.node(node).reload();
    }
    await_whole(&cluster, &members(&[0, 1, 2]));
    let took = begin.elapsed();
    let left = dangling(&cluster);
    Verdict {
        figures: format!(
            "a forget cut off (it answered {status}, and its node was killed) with {count} queues: \
             {listed} are reported as dangling and stay, the check for ghosts answers {ghosts}; with \
             auto_remove three members each after {took:?}, {left} dangling"
        ),
        holds: ghosts == 503 && left == 0,
    }
}
