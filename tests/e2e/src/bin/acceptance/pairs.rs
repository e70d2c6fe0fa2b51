//! J5: a journal on two nodes under numbered messages, while its nodes are killed, stopped, frozen and
//! cut off, or their disks hang: how long nothing is confirmed. J6: what the second copy costs.

use std::time::{Duration, Instant};

use e2e::cluster::{Cluster, Setup};
use e2e::ctl::leveretctl;
use e2e::hung::HangingDisk;
use e2e::numbered::{Load, Plan, Report};
use e2e::pair::{WHOLE, await_in_sync, journal, pair, state};
use e2e::wait::{until, until_some, until_some_for};
use serde_json::json;

use crate::Verdict;

/// Active node killed.
const KILLED: Duration = Duration::from_secs(4);
/// The same if it led the metadata group too.
const LEADER_KILLED: Duration = Duration::from_secs(7);
/// Clean hand-over.
const HANDED_OVER: Duration = Duration::from_millis(300);
/// Backup killed.
const BACKUP_KILLED: Duration = Duration::from_secs(1);
/// Backup frozen or cut off: `replica_timeout`, 3 s, and one more.
const BACKUP_SILENT: Duration = Duration::from_secs(4);
/// The active node's disk hangs: nobody has promised a time, but it must end.
const ACTIVE_HUNG: Duration = Duration::from_secs(30);
/// Messages per second.
const RATE: u32 = 1000;
/// Before one of so many kills it is tried to let the active node lead the metadata group.
const STEERED: usize = 2;

/// What is done to a pair, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blow {
    KillActive,
    StopActive,
    KillBackup,
    FreezeBackup,
    CutBackupOff,
    CutLink,
    /// A disk hangs.
    HangBackup,
    HangActive,
}

pub(crate) fn measure(rounds: usize) -> Vec<Verdict> {
    let few = (rounds / 10).max(2);
    vec![
        line(Blow::KillActive, rounds),
        line(Blow::StopActive, few),
        line(Blow::KillBackup, few),
        line(Blow::FreezeBackup, few),
        line(Blow::CutBackupOff, few),
        line(Blow::CutLink, few),
        hung(false, few),
        hung(true, few),
        rolling(few),
    ]
}

/// How many messages a second are confirmed with and without a backup in sync, and what CPU time the
/// brokers take for one.
pub(crate) fn cost(seconds: usize) -> Verdict {
    let time = Duration::from_secs(seconds as u64);
    let mut cluster = pair(Setup::new());
    await_in_sync(&cluster, 0);
    let (both, first) = full(&mut cluster, time);
    let removed = leveretctl(&cluster.api(0), &["journal", "remove_backup", "j"]);
    assert_eq!(removed.code, 0, "{removed:?}");
    until("the journal is on one node", || state(&cluster, 0).as_deref() == Some("active, alone"));
    let (alone, second) = full(&mut cluster, time);
    let share = both.rate / alone.rate;
    Verdict {
        figures: format!(
            "{seconds} s each, 100 bytes, 200 in flight, nobody consumes: with a backup in sync {both}; \
             without one {alone}; {:.0} % of it (60 % wanted); lost {}",
            share * 100.0,
            first.missing.len() + second.missing.len(),
        ),
        holds: share >= 0.6 && first.passes() && second.passes(),
    }
}

/// What a load came to.
struct Cost {
    /// Confirms per second.
    rate: f64,
    /// CPU time of both brokers, in microseconds per confirm.
    cpu: [f64; 2],
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [active, backup] = self.cpu;
        write!(
            f,
            "{:.0} confirms/s, CPU per message {active:.1} µs on the active node and {backup:.1} µs on \
             the other one, {:.1} µs together",
            self.rate,
            active + backup
        )
    }
}

/// As fast as it goes for a while, at the first node.
fn full(cluster: &mut Cluster, time: Duration) -> (Cost, Report) {
    let plan = Plan::new("q", &[cluster.amqp(0)], &[]);
    let load = plan.start();
    load.await_more(1000);
    let used = |cluster: &mut Cluster| [0, 1].map(|node| cluster.node(node).cpu());
    let (before, first, begin) = (used(cluster), load.confirmed(), Instant::now());
    std::thread::sleep(time);
    let (after, last, took) = (used(cluster), load.confirmed(), begin.elapsed());
    let report = load.finish(WHOLE);
    #[allow(clippy::cast_precision_loss, reason = "figures are rounded anyway")]
    let messages = (last - first).max(1) as f64;
    let cpu =
        [0, 1].map(|node| after[node].saturating_sub(before[node]).as_secs_f64() * 1e6 / messages);
    (Cost { rate: messages / took.as_secs_f64(), cpu }, report)
}

/// The disk of the backup, or of the active node, hangs: it fails nothing and finishes nothing.
fn hung(active: bool, rounds: usize) -> Verdict {
    let blow = if active { Blow::HangActive } else { Blow::HangBackup };
    let disks = match (HangingDisk::new(), HangingDisk::new()) {
        (Ok(first), Ok(second)) => [first, second],
        (Err(reason), _) | (_, Err(reason)) => {
            return Verdict { figures: format!("{blow:?}: skipped, {reason}"), holds: true };
        }
    };
    let folder = |node: usize| disks[node].folder().display().to_string();
    let setup = Setup::new().set_on(0, "data_dir", folder(0)).set_on(1, "data_dir", folder(1));
    let mut cluster = pair(setup);
    // From here on they are dropped before the nodes are: who waits for a disk cannot be killed.
    let disks = disks;
    let load = load(&cluster);
    let mut blows = Vec::new();
    for _ in 0..rounds {
        let serves = await_replicated(&cluster);
        load.await_more(300);
        let victim = if active { serves } else { 1 - serves };
        let led = leader(&cluster) == Some(victim);
        let begin = Instant::now();
        disks[victim].freeze();
        await_alone(&cluster, victim, blow);
        load.await_more(300);
        let end = Instant::now();
        disks[victim].thaw();
        if cluster.node(victim).exited().is_some() {
            cluster.start(victim);
        }
        blows.push((begin, end, led));
    }
    await_replicated(&cluster);
    let report = load.finish(WHOLE);
    verdict(blow, &report, &blows)
}

fn load(cluster: &Cluster) -> Load {
    let both = [cluster.amqp(0), cluster.amqp(1)];
    // Nobody consumes, so that every confirm waits for both disks.
    let plan = Plan::new("q", &both, &[]);
    Plan { patience: Duration::from_secs(8), rate: RATE, ..plan }.start()
}

/// One blow after the other, and how long nothing was confirmed after each.
fn line(blow: Blow, rounds: usize) -> Verdict {
    let cut = matches!(blow, Blow::CutBackupOff | Blow::CutLink);
    let mut cluster = pair(if cut { Setup::new().proxied() } else { Setup::new() });
    let load = load(&cluster);
    let mut blows = Vec::new();
    for round in 0..rounds {
        let active = await_replicated(&cluster);
        load.await_more(300);
        if blow == Blow::KillActive && round % STEERED == 0 {
            lead(&cluster, active);
        }
        let led = leader(&cluster);
        let victim = match blow {
            Blow::KillActive | Blow::StopActive => active,
            _ => 1 - active,
        };
        let begin = Instant::now();
        strike(&mut cluster, blow, victim, true);
        // What was under way is confirmed for some milliseconds still.
        if blow != Blow::StopActive {
            await_alone(&cluster, victim, blow);
        }
        load.await_more(300);
        // Whatever comes later is no answer to the blow.
        let end = Instant::now();
        strike(&mut cluster, blow, victim, false);
        blows.push((begin, end, led == Some(victim)));
    }
    await_replicated(&cluster);
    let report = load.finish(WHOLE);
    verdict(blow, &report, &blows)
}

fn verdict(blow: Blow, report: &Report, blows: &[(Instant, Instant, bool)]) -> Verdict {
    let gaps = |of_leader: bool| {
        let of = blows.iter().filter(|(_, _, led)| *led == of_leader);
        let mut gaps: Vec<Duration> =
            of.map(|(begin, end, _)| report.longest_gap_in(*begin, *end)).collect();
        gaps.sort_unstable();
        gaps
    };
    let (others, leaders) = (gaps(false), gaps(true));
    let (bound, leader_bound) = match blow {
        Blow::KillActive => (KILLED, LEADER_KILLED),
        Blow::StopActive => (HANDED_OVER, HANDED_OVER),
        Blow::KillBackup => (BACKUP_KILLED, BACKUP_KILLED),
        Blow::FreezeBackup | Blow::CutBackupOff | Blow::CutLink | Blow::HangBackup => {
            (BACKUP_SILENT, BACKUP_SILENT)
        }
        Blow::HangActive => (ACTIVE_HUNG, ACTIVE_HUNG),
    };
    let within = |gaps: &[Duration], bound| gaps.last().is_none_or(|longest| *longest <= bound);
    let shown = |gaps: &[Duration]| {
        let at =
            |share: usize| gaps.get((gaps.len() * share / 100).min(gaps.len().saturating_sub(1)));
        format!(
            "{} times: median {:?}, longest {:?}",
            gaps.len(),
            at(50).copied().unwrap_or_default(),
            gaps.last().copied().unwrap_or_default()
        )
    };
    let holds = report.passes() && within(&others, bound) && within(&leaders, leader_bound);
    Verdict {
        figures: format!(
            "{blow:?}: longest gap between confirms, {} ({bound:?} allowed); when the node also led \
             the metadata group, {} ({leader_bound:?} allowed); {} confirmed, {} of them lost, {} \
             nacked, {} without an answer{}",
            shown(&others),
            shown(&leaders),
            report.confirmed,
            report.missing.len(),
            report.nacked,
            report.unknown,
            if report.passes() { String::new() } else { format!("\n  {report}") },
        ),
        holds,
    }
}

/// Both brokers are stopped and started again in turn, without waiting longer than an operator would.
fn rolling(rounds: usize) -> Verdict {
    let mut cluster = pair(Setup::new());
    let load = load(&cluster);
    let begin = Instant::now();
    for _ in 0..rounds {
        for node in 0..2 {
            await_replicated(&cluster);
            load.await_more(300);
            assert!(cluster.node(node).stop().success(), "a node stops without an error");
            cluster.start(node);
        }
    }
    await_replicated(&cluster);
    load.await_more(300);
    let took = begin.elapsed();
    let report = load.finish(WHOLE);
    Verdict {
        figures: format!(
            "{rounds} rolling restarts of both brokers in {took:?}: longest gap between confirms {:?}; \
             {} confirmed, {} of them lost, {} nacked, {} without an answer",
            report.longest_gap(),
            report.confirmed,
            report.missing.len(),
            report.nacked,
            report.unknown,
        ),
        holds: report.passes(),
    }
}

fn strike(cluster: &mut Cluster, blow: Blow, victim: usize, begin: bool) {
    match (blow, begin) {
        (Blow::KillActive | Blow::KillBackup, true) => cluster.kill(victim),
        (Blow::StopActive, true) => {
            assert!(cluster.node(victim).stop().success(), "a node stops without an error");
        }
        (Blow::KillActive | Blow::KillBackup | Blow::StopActive, false) => cluster.start(victim),
        (Blow::FreezeBackup, true) => cluster.freeze(victim),
        (Blow::FreezeBackup, false) => cluster.thaw(victim),
        (Blow::CutBackupOff, true) => cluster.isolate(victim),
        (Blow::CutBackupOff, false) => cluster.rejoin(victim),
        (Blow::HangBackup | Blow::HangActive, _) => unreachable!("disks are not the cluster's"),
        (Blow::CutLink, _) => {
            cluster.cut(0, 1, begin);
            cluster.cut(1, 0, begin);
        }
    }
}

/// The active node, once both copies are the same.
fn await_replicated(cluster: &Cluster) -> usize {
    until_some_for(WHOLE, "the copies are the same", || {
        (0..2).find(|node| state(cluster, *node).as_deref() == Some("active, replicated"))
    })
}

/// The other one serves alone. If only the link is cut, either may.
fn await_alone(cluster: &Cluster, victim: usize, blow: Blow) {
    let alone = |node: usize| state(cluster, node).as_deref() == Some("active, alone");
    until("one of them serves alone", || {
        alone(1 - victim) || (blow == Blow::CutLink && alone(victim))
    });
}

/// Who leads the metadata group: whoever said so last, in the highest term.
fn leader(cluster: &Cluster) -> Option<usize> {
    let led = |node: usize| {
        let log = cluster.nodes.get(node)?.log();
        let last = log.lines().rev().find(|line| line.contains("metadata group role="))?.to_owned();
        let (_, term) = last.split_once("role=leader of term ")?;
        Some((term.trim().parse::<u64>().ok()?, node))
    };
    cluster.reachable().into_iter().filter_map(led).max().map(|(_, node)| node)
}

/// Tries to let a node lead the metadata group, by maintenance of whoever else does: the leadership goes
/// to the first other node, which may never be the one that is wanted.
fn lead(cluster: &Cluster, wanted: usize) {
    let other = until_some("somebody leads the metadata group", || leader(cluster));
    if other == wanted {
        return;
    }
    let node = format!("nodes/leveret@n{other}");
    let api = cluster.api(wanted);
    api.post(&format!("{node}/drain"), &json!({}));
    api.post(&format!("{node}/revive"), &json!({}));
    await_in_sync(cluster, wanted);
    until("the journal is known", || journal(cluster, wanted).is_some());
}
