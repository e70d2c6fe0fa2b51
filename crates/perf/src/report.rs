//! What a run is reported as: numbers for programs, lines for people.

use crate::process::Sample;
use crate::run::Outcome;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// A run in numbers. Rates are per second, times in milliseconds, memory in bytes.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Product and version of the broker, if this run had publishers.
    pub broker_version: String,
    /// Bytes of body.
    pub size: u32,
    /// From the first publish until the last thing happened, in seconds.
    pub seconds: f64,
    /// Messages written.
    pub published: u64,
    /// Per second, while there was something to publish.
    pub publish_rate: f64,
    /// Confirms, if they were asked for.
    pub confirms: Option<Confirms>,
    /// Messages that came back as unroutable.
    pub returned: u64,
    /// For how long publishers were blocked, in seconds, summed.
    pub blocked_seconds: f64,
    /// Deliveries.
    pub consumed: u64,
    /// Per second, until the last delivery.
    pub consume_rate: f64,
    /// Deliveries marked as redelivered.
    pub redelivered: u64,
    /// From publish to delivery.
    pub latency: Option<Percentiles>,
    /// With `--verify`.
    pub verify: Option<Verify>,
    /// The consumers gave up waiting, or the publishers could not write all of `--messages`.
    pub stalled: bool,
    /// With `--broker-pid`.
    pub broker: Option<Cost>,
    /// This process.
    pub client: Cost,
}

/// What became of the publishes.
#[derive(Debug, Clone, Serialize)]
pub struct Confirms {
    /// `basic.ack`.
    pub acked: u64,
    /// `basic.nack`.
    pub nacked: u64,
    /// Neither, at the end.
    pub unconfirmed: u64,
    /// From publish to confirm.
    pub latency: Option<Percentiles>,
}

/// Whether what was published has arrived.
#[derive(Debug, Clone, Serialize)]
pub struct Verify {
    /// Published (and, with `--confirms`, confirmed), neither refused nor returned, and never
    /// arrived.
    pub lost: u64,
    /// Arrived again without being marked as redelivered.
    pub duplicated: u64,
    /// Arrived again, marked as redelivered.
    pub repeated: u64,
    /// Arrived after a later message of the same publisher at the same consumer.
    pub reordered: u64,
    /// Not of this run.
    pub foreign: u64,
}

/// Milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Percentiles {
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

/// What processes used.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Cost {
    /// Microseconds of CPU per consumed message (published, without consumers).
    pub cpu_us_per_message: f64,
    /// Cores that were busy, on average.
    pub cores: f64,
    /// The figures behind it.
    #[serde(flatten)]
    pub sample: Sample,
}

impl Report {
    /// Sums up a run.
    pub fn of(outcome: &Outcome) -> Self {
        let options = &outcome.load.options;
        let seconds = |time: Duration| time.as_secs_f64().max(1e-9);
        let whole = seconds(outcome.end.saturating_duration_since(outcome.start));
        let sum = |of: fn(&crate::publisher::Published) -> u64| -> u64 {
            outcome.published.iter().map(of).sum()
        };
        let published = sum(|one| one.sent);
        let returned = sum(|one| one.returned);
        let nacked = sum(|one| one.nacked);
        let publish_end = outcome.published.iter().map(|one| one.end).max();
        let publishing = publish_end.map_or(whole, |end| seconds(end - outcome.start));
        let consumed: u64 = outcome.consumed.iter().map(|one| one.count).sum();
        let last = outcome.consumed.iter().filter_map(|one| one.last).max();
        let consuming =
            last.map_or(whole, |last| seconds(last.saturating_duration_since(outcome.start)));
        let confirms = options.confirms.map(|_| Confirms {
            acked: sum(|one| one.acked),
            nacked,
            unconfirmed: sum(|one| one.unconfirmed.len() as u64),
            latency: percentiles(outcome.published.iter().map(|one| &one.confirm)),
        });
        let verify = options.verify.then(|| verify(outcome, nacked + returned));
        let messages = if options.consumers > 0 { consumed } else { published };
        let cost = |sample: Sample| Cost {
            cpu_us_per_message: sample.cpu_us as f64 / messages.max(1) as f64,
            cores: sample.cpu_us as f64 / 1e6 / whole,
            sample,
        };
        Self {
            broker_version: outcome
                .published
                .first()
                .map_or_else(String::new, |one| one.server.clone()),
            size: options.size,
            seconds: whole,
            published,
            publish_rate: published as f64 / publishing,
            confirms,
            returned,
            blocked_seconds: outcome.published.iter().map(|one| one.blocked.as_secs_f64()).sum(),
            consumed,
            consume_rate: consumed as f64 / consuming,
            redelivered: outcome.consumed.iter().map(|one| one.redelivered).sum(),
            latency: percentiles(outcome.consumed.iter().map(|one| &one.latency)),
            verify,
            stalled: outcome.stalled
                || options.publishers > 0
                    && options.messages.is_some_and(|messages| published < messages),
            broker: outcome.broker.map(cost),
            client: cost(outcome.client),
        }
    }

    /// Whether the broker kept its promises as far as this run looked.
    pub fn is_good(&self) -> bool {
        let unconfirmed = self.confirms.as_ref().map_or(0, |confirms| confirms.unconfirmed);
        let verified = self
            .verify
            .as_ref()
            .is_none_or(|found| found.lost + found.duplicated + found.reordered == 0);
        !self.stalled && unconfirmed == 0 && verified
    }
}

fn verify(outcome: &Outcome, refused: u64) -> Verify {
    let mut found = Verify {
        lost: 0,
        duplicated: 0,
        repeated: 0,
        reordered: 0,
        foreign: outcome.consumed.iter().map(|one| one.foreign).sum(),
    };
    for (index, ledger) in outcome.load.ledgers.iter().enumerate() {
        let ledger = ledger.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // without publishers of our own, gaps in what arrived are what can be seen
        let published = outcome.published.get(index).map_or(ledger.end(), |one| one.sent);
        // nobody promised what was not confirmed
        let unconfirmed = outcome.published.get(index).map_or(0, |one| {
            let missing = one.unconfirmed.iter().filter(|number| !ledger.has(**number)).count();
            missing as u64
        });
        found.lost += ledger.lost(published).saturating_sub(unconfirmed);
        found.duplicated += ledger.duplicated;
        found.repeated += ledger.repeated;
        found.reordered += ledger.reordered;
    }
    // refused messages have numbers too, but nobody promised them
    found.lost = found.lost.saturating_sub(refused);
    found
}

fn percentiles<'a>(parts: impl Iterator<Item = &'a Histogram<u64>>) -> Option<Percentiles> {
    let mut sum: Option<Histogram<u64>> = None;
    for part in parts {
        match &mut sum {
            None => sum = Some(part.clone()),
            Some(sum) => sum.add(part).ok()?,
        }
    }
    let sum = sum.filter(|sum| !sum.is_empty())?;
    let at = |quantile| sum.value_at_quantile(quantile) as f64 / 1e6;
    Some(Percentiles {
        p50: at(0.5),
        p95: at(0.95),
        p99: at(0.99),
        p999: at(0.999),
        max: sum.max() as f64 / 1e6,
    })
}

/// A number with commas.
pub fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl fmt::Display for Percentiles {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { p50, p95, p99, p999, max } = self;
        write!(out, "p50 {p50:.3}  p95 {p95:.3}  p99 {p99:.3}  p99.9 {p999:.3}  max {max:.3} ms")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |number: u64| grouped(number as f64);
        let rate = |rate: f64| format!("{}/s", grouped(rate));
        if self.published > 0 {
            let (published, rate) = (count(self.published), rate(self.publish_rate));
            writeln!(out, "published    {published:>14}   {rate:>12}")?;
        }
        if let Some(confirms) = &self.confirms {
            write!(out, "confirmed    {:>14}", count(confirms.acked))?;
            if confirms.nacked > 0 {
                write!(out, "   {} refused", count(confirms.nacked))?;
            }
            if confirms.unconfirmed > 0 {
                write!(out, "   {} NOT CONFIRMED", count(confirms.unconfirmed))?;
            }
            writeln!(out)?;
            if let Some(latency) = confirms.latency {
                writeln!(out, "confirm      {latency}")?;
            }
        }
        if self.returned > 0 {
            writeln!(out, "returned     {:>14}", count(self.returned))?;
        }
        if self.blocked_seconds > 0.0 {
            writeln!(out, "blocked      {:>14.1} s", self.blocked_seconds)?;
        }
        if self.consumed > 0 || self.stalled {
            let (consumed, rate) = (count(self.consumed), rate(self.consume_rate));
            writeln!(out, "consumed     {consumed:>14}   {rate:>12}")?;
        }
        if self.redelivered > 0 {
            writeln!(out, "redelivered  {:>14}", count(self.redelivered))?;
        }
        if let Some(latency) = self.latency {
            writeln!(out, "latency      {latency}")?;
        }
        if let Some(found) = &self.verify {
            let Verify { lost, duplicated, repeated, reordered, foreign } = found;
            write!(
                out,
                "verify       {lost} lost, {duplicated} duplicated, {reordered} reordered"
            )?;
            if *repeated > 0 {
                write!(out, ", {repeated} repeated as redelivered")?;
            }
            if *foreign > 0 {
                write!(out, ", {foreign} of another run")?;
            }
            writeln!(out)?;
        }
        if self.stalled {
            writeln!(out, "STALLED      nothing moved any more")?;
        }
        for (name, cost) in [("broker", self.broker.as_ref()), ("client", Some(&self.client))] {
            let Some(Cost { cpu_us_per_message, cores, sample }) = cost else { continue };
            let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
            writeln!(
                out,
                "{name:<12} {cpu_us_per_message:.2} µs CPU per message, {cores:.2} cores, \
                 {:.0} MiB resident (peak {:.0}), {} waits, {:.1} MiB to disk",
                mib(sample.rss),
                mib(sample.rss_peak),
                count(sample.voluntary_switches),
                mib(sample.disk_bytes),
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (number, text) in
            [(0.0, "0"), (999.4, "999"), (1000.0, "1,000"), (1_234_567.0, "1,234,567")]
        {
            assert_eq!(grouped(number), text);
        }
    }
}
