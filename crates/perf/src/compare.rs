//! Two brokers, the same workloads, in the same run: the figures of `docs/benchmarks.md` and
//! `docs/benchmarks-quorum.md`.
//!
//! Absolute figures of a machine that does other work as well are worth little; ratios of runs
//! that took turns are worth more. Each round runs every workload on both brokers, and changes who
//! comes first.

use crate::options::{Compare, Options};
use crate::process;
use crate::report::{Report, grouped};
use crate::run;
use anyhow::{Context as _, Result, bail};
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::SystemTime;

/// One row of the table.
struct Workload {
    name: &'static str,
    size: u32,
    /// Publishers, consumers and queues.
    pairs: u16,
    /// Persistent, a thousand confirms in flight, an acknowledgement for every ten messages.
    durable: bool,
    /// Messages per write.
    batch: Option<u64>,
}

impl Workload {
    const fn new(name: &'static str, size: u32, durable: bool) -> Self {
        Self { name, size, pairs: 1, durable, batch: None }
    }
}

const WORKLOADS: [Workload; 7] = [
    Workload::new("16 B, automatic ack, no confirms", 16, false),
    Workload::new("1 KiB, automatic ack, no confirms", 1024, false),
    Workload::new("16 B, persistent, confirms, acks", 16, true),
    Workload::new("1 KiB, persistent, confirms, acks", 1024, true),
    Workload { batch: Some(1), ..Workload::new("16 B, automatic ack, single writes", 16, false) },
    Workload { pairs: 4, ..Workload::new("four queues, 16 B, automatic ack", 16, false) },
    Workload { pairs: 4, ..Workload::new("four queues, 16 B, persistent", 16, true) },
];

/// Of quorum queues, which keep every message on disk: all of them persistent and confirmed.
const QUORUM_WORKLOADS: [Workload; 4] = [
    Workload::new("16 B", 16, true),
    Workload::new("1 KiB", 1024, true),
    Workload { pairs: 8, ..Workload::new("eight queues, 16 B", 16, true) },
    Workload { pairs: 8, ..Workload::new("eight queues, 1 KiB", 1024, true) },
];

impl Workload {
    fn options(&self, compare: &Compare, uri: &str, pids: &[u32]) -> Options {
        Options {
            uri: uri.to_owned(),
            publishers: self.pairs,
            consumers: self.pairs,
            size: self.size,
            persistent: self.durable,
            confirms: self.durable.then_some(1000),
            ack_every: self.durable.then_some(10),
            auto_ack: false,
            prefetch: self.durable.then_some(1000),
            queue: "leveret-perf-compare".to_owned(),
            queues: (self.pairs > 1).then_some(self.pairs),
            queue_args: compare.quorum.then(|| r#"{"x-queue-type":"quorum"}"#.to_owned()),
            transient: false,
            exclusive: false,
            auto_delete: false,
            no_declare: false,
            keep: false,
            exchange: String::new(),
            routing_key: None,
            mandatory: false,
            rate: None,
            batch: self.batch,
            duration: Some(compare.seconds),
            messages: None,
            verify: false,
            drain: true,
            stall: 60.0,
            latency: false,
            run_id: None,
            broker_pid: pids.to_vec(),
            heartbeat: None,
            json: false,
            quiet: true,
        }
    }
}

struct Broker<'a> {
    uri: &'a str,
    pids: &'a [u32],
}

/// Runs the comparison and writes the page.
///
/// # Errors
/// If a run fails, or the page cannot be written.
pub fn run(compare: &Compare) -> Result<()> {
    let mut brokers = vec![Broker { uri: &compare.uri, pids: &compare.pid }];
    if let Some(uri) = &compare.peer_uri {
        brokers.push(Broker { uri, pids: &compare.peer_pid });
    }
    let machine = process::machine();
    let workloads: &[Workload] = if compare.quorum { &QUORUM_WORKLOADS } else { &WORKLOADS };
    let chosen: Vec<&Workload> = workloads
        .iter()
        .filter(|workload| compare.only.as_deref().is_none_or(|part| workload.name.contains(part)))
        .collect();
    if chosen.is_empty() {
        bail!("no workload has {:?} in its name", compare.only.as_deref().unwrap_or_default());
    }
    // results[workload][broker] is one report per round
    let mut results: Vec<Vec<Vec<Report>>> = vec![vec![Vec::new(); brokers.len()]; chosen.len()];
    for round in 0..compare.rounds {
        for (workload, results) in chosen.iter().zip(&mut results) {
            let mut turns: Vec<usize> = (0..brokers.len()).collect();
            if round % 2 == 1 {
                turns.reverse();
            }
            for turn in turns {
                let Broker { uri, pids } = brokers[turn];
                let outcome = run::run(workload.options(compare, uri, pids))
                    .with_context(|| format!("{} at broker {}", workload.name, turn + 1))?;
                let report = Report::of(&outcome);
                let line = format!(
                    "round {}  {:<36} {:<22} {:>10}/s  {:>7.2} µs",
                    round + 1,
                    workload.name,
                    report.broker_version,
                    grouped(report.consume_rate),
                    cpu(&report),
                );
                drop(writeln!(std::io::stderr(), "{line}"));
                if !report.is_good() {
                    bail!("{} at {}: not everything arrived", workload.name, report.broker_version);
                }
                results[turn].push(report);
            }
        }
    }
    let page = page(compare, &machine, &chosen, &results);
    match &compare.out {
        Some(path) => std::fs::write(path, page)
            .with_context(|| format!("cannot write {}", path.display()))?,
        None => std::io::stdout().write_all(page.as_bytes())?,
    }
    Ok(())
}

fn cpu(report: &Report) -> f64 {
    report.broker.map_or(f64::NAN, |cost| cost.cpu_us_per_message)
}

fn median(reports: &[Report], of: impl Fn(&Report) -> f64) -> f64 {
    let mut values: Vec<f64> = reports.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// What the rows of the tables mean.
const WORDS: &[&str] = &[
    "Queues are durable and of the broker's default type, messages of the first kind transient.",
    "\"Persistent, confirms, acks\": delivery mode 2, at most 1000 unconfirmed messages, prefetch 1000, one acknowledgement for every ten messages.",
    "Publishers gather up to 64 KiB for each write; with \"single writes\" every message has its own, as with most client libraries.",
    "\"Four queues\": four publishers, each with a queue and a consumer of its own.",
];
const QUORUM_WORDS: &[&str] = &[
    "Quorum queues with a member on every node; clients connect to the first one.",
    "Messages are persistent, at most 1000 unconfirmed for each publisher; prefetch 1000, one acknowledgement for every ten messages.",
    "CPU, memory and disk are those of all nodes together.",
    "\"Eight queues\": eight publishers, each with a queue and a consumer of its own.",
];

fn page(
    compare: &Compare,
    machine: &[(&str, String)],
    workloads: &[&Workload],
    results: &[Vec<Vec<Report>>],
) -> String {
    let version = |broker: usize| {
        let report = results.first().and_then(|brokers| brokers.get(broker)?.first());
        report.map_or("?", |report| report.broker_version.as_str())
    };
    let two = compare.peer_uri.is_some();
    let mut page = String::from("# Benchmarks\n\n");
    let mut line = |text: &str| {
        page.push_str(text);
        page.push('\n');
    };
    line("Written by `leveret-perf compare` (`make bench`); do not edit.");
    line("Each figure is the median of the rounds.");
    line(
        "A round runs every workload on both brokers in turn, and the next round changes the order.",
    );
    line("The client runs on the same machine, so rates are what both together reach.");
    line(
        "CPU is the broker's own (user and system, all threads), divided by the messages consumed.",
    );
    line("");
    line("| | |");
    line("|---|---|");
    line(&format!("| date | {} |", today()));
    for (name, value) in machine {
        line(&format!("| {name} | {value} |"));
    }
    line(&format!("| broker | {} |", version(0)));
    if two {
        line(&format!("| compared with | {} |", version(1)));
    }
    line(&format!(
        "| rounds | {} of {} s publishing, then draining |",
        compare.rounds, compare.seconds
    ));
    line(&format!("| nodes | {} |", compare.pid.len()));
    line("");
    for text in if compare.quorum { QUORUM_WORDS } else { WORDS } {
        line(text);
    }
    line("");
    line("## CPU per message and throughput");
    line("");
    if two {
        let (a, b) = (version(0), version(1));
        line(&format!("| work | {a} | {b} | CPU ratio | throughput ratio |"));
        line("|---|---|---|---|---|");
    } else {
        line(&format!("| work | {} |", version(0)));
        line("|---|---|");
    }
    for (workload, brokers) in workloads.iter().zip(results) {
        let mut row = format!("| {} |", workload.name);
        let rate = |broker: usize| median(&brokers[broker], |report| report.consume_rate);
        let cost = |broker: usize| median(&brokers[broker], cpu);
        for broker in 0..brokers.len() {
            let _ = write!(row, " {}/s, {:.2} µs |", grouped(rate(broker)), cost(broker));
        }
        if two {
            let _ = write!(row, " {:.1} | {:.1} |", cost(1) / cost(0), rate(0) / rate(1));
        }
        line(&row);
    }
    line("");
    line("## Latency, memory, waits");
    line("");
    line(
        "Latency is from publish to delivery at full speed, so without confirms it is mostly the length of the queue.",
    );
    line("Memory is the most that the process ever had resident, since its start.");
    line(
        "Waits are voluntary context switches of the broker per thousand messages; disk is what it gave to the disk per message.",
    );
    line("");
    line(
        "| work | broker | confirm p50, p99 | latency p50, p99 | peak memory | waits | disk | client CPU |",
    );
    line("|---|---|---|---|---|---|---|---|");
    for (workload, brokers) in workloads.iter().zip(results) {
        for reports in brokers {
            let milliseconds = |of: fn(&Report) -> Option<(f64, f64)>| {
                let fifty = median(reports, |report| of(report).map_or(f64::NAN, |both| both.0));
                let high = median(reports, |report| of(report).map_or(f64::NAN, |both| both.1));
                if fifty.is_nan() { "–".to_owned() } else { format!("{fifty:.2}, {high:.2} ms") }
            };
            let confirm = milliseconds(|report| {
                report.confirms.as_ref()?.latency.map(|times| (times.p50, times.p99))
            });
            let latency = milliseconds(|report| report.latency.map(|times| (times.p50, times.p99)));
            let of = |figure: fn(&process::Sample) -> u64| {
                median(reports, |report| {
                    report.broker.map_or(f64::NAN, |cost| figure(&cost.sample) as f64)
                })
            };
            let messages = median(reports, |report| report.consumed as f64);
            line(&format!(
                "| {} | {} | {confirm} | {latency} | {:.0} MiB | {:.1} | {:.0} B | {:.2} µs |",
                workload.name,
                reports.first().map_or("?", |report| report.broker_version.as_str()),
                of(|sample| sample.rss_peak) / 1_048_576.0,
                of(|sample| sample.voluntary_switches) / messages * 1000.0,
                of(|sample| sample.disk_bytes) / messages,
                median(reports, |report| report.client.cpu_us_per_message),
            ));
        }
    }
    page
}

/// Today's date (UTC) as `2026-11-29`.
fn today() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    date_of(since.as_secs() / 86_400)
}

/// The date of a day, counted from 1970-01-01.
fn date_of(mut day: u64) -> String {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        for (day, date) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (789, "1972-02-29"),
            (11_016, "2000-02-29"),
            (20_786, "2026-11-29"),
        ] {
            assert_eq!(date_of(day), date);
        }
    }
}
