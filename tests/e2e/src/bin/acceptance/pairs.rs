//! J5: a journal on two nodes under numbered messages, while its nodes are killed, stopped, frozen and
//! cut off: how long nothing is confirmed.

use std::time::{Duration, Instant};

use e2e::cluster::{Cluster, Setup};
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
        rolling(few),
    ]
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
        Blow::FreezeBackup | Blow::CutBackupOff | Blow::CutLink => (BACKUP_SILENT, BACKUP_SILENT),
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
