//! What the node may use: memory, disk and file descriptors, and the alarms that stop publishers in time.
//!
//! ```text
//! Config ──┐
//! cgroup,  ├──▶ Budget ──┐
//! machine ─┘             ├──▶ Watch::step ──▶ Alarms ──▶ connection.blocked, reading stops
//! Usage, sampled ─────────┘
//! ```

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;

pub mod alarms;
pub mod memory;
pub mod usage;

use crate::config::value::Size;
use crate::config::{Config, MemoryLimit};
use alarms::{Alarms, Watch};
use memory::Available;
use usage::Usage;

/// What this node may use; settled at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// Memory of the cgroup or machine.
    pub available: Available,
    /// Resident bytes at which the memory alarm goes on.
    pub memory_limit: u64,
    /// Bytes for bodies of waiting messages: as configured, at most a quarter of `memory_limit`.
    pub message_cache: u64,
    /// Free bytes on the data folder's file system under which the disk alarm goes on.
    pub disk_free_limit: u64,
    /// File descriptors that the process may have.
    pub open_files: u64,
    /// Processors that the process may use.
    pub processors: usize,
}

impl Budget {
    /// Looks at the cgroup and the machine, and raises the limit of open files as far as it goes.
    pub fn detect(config: &Config) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self::new(config, memory::detect(Path::new("/")), usage::raise_open_files(), processors)
    }

    fn new(config: &Config, available: Available, open_files: u64, processors: usize) -> Self {
        let memory_limit = match config.memory.limit {
            MemoryLimit::Bytes(bytes) => bytes,
            MemoryLimit::Percent(share) => share_of(available.bytes, share),
        };
        let message_cache = config.memory.message_cache.min(memory_limit / 4);
        let disk_free_limit = config.disk.free_limit;
        Self { available, memory_limit, message_cache, disk_free_limit, open_files, processors }
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of the memory need not be exact to the byte; 0 < share <= 100"
)]
fn share_of(bytes: u64, share: f64) -> u64 {
    (bytes as f64 * share / 100.0) as u64
}

impl fmt::Display for Budget {
    /// One line for the log at the start.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "memory {} from {}, publishers stop at {} resident, message cache {}, publishers stop under {} \
             free disk, {} open files, {} processors",
            About(self.available.bytes),
            self.available.source,
            About(self.memory_limit),
            About(self.message_cache),
            Size(self.disk_free_limit),
            self.open_files,
            self.processors,
        )
    }
}

/// Bytes in MiB: exact enough for people.
struct About(u64);

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB", self.0 >> 20)
    }
}

/// The alarms before the first client comes; none if nothing can be sampled.
pub fn first_alarms(budget: &Budget, data_dir: &Path) -> Alarms {
    let mut watch = Watch::new(budget.memory_limit, budget.disk_free_limit);
    let sample = Usage::sample(data_dir).ok();
    sample.and_then(|sample| watch.step(sample)).unwrap_or_default()
}

/// Samples usage for as long as somebody listens, and publishes alarms when they change.
///
/// Stops when every receiver of `usage` is gone. Dropping the future stops it, too.
pub async fn watch(
    budget: Budget,
    data_dir: PathBuf,
    alarms: watch::Sender<Alarms>,
    usage: watch::Sender<Usage>,
) {
    let mut watch = Watch::new(budget.memory_limit, budget.disk_free_limit);
    let mut failed = false;
    let mut pause = Duration::ZERO;
    loop {
        tokio::time::sleep(pause).await;
        let sample = match Usage::sample(&data_dir) {
            Ok(sample) => sample,
            Err(error) => {
                if !failed {
                    tracing::warn!(%error, "cannot sample memory and disk; the alarms stay as they are");
                }
                failed = true;
                pause = alarms::PAUSE_MAX;
                continue;
            }
        };
        failed = false;
        if let Some(now) = watch.step(sample) {
            log(now, sample, &budget);
            alarms.send_replace(now);
        }
        pause = watch.pause(sample);
        if usage.send(sample).is_err() {
            return;
        }
    }
}

fn log(now: Alarms, sample: Usage, budget: &Budget) {
    let (resident, free) = (About(sample.resident), About(sample.disk_free));
    let (limit, free_limit) = (About(budget.memory_limit), About(budget.disk_free_limit));
    match now.reason() {
        Some(reason) => tracing::warn!(
            "publishers are blocked, {reason}: {resident} of {limit} resident, {free} of disk free, limit {free_limit}"
        ),
        None => {
            tracing::info!("publishers go on: {resident} of {limit} resident, {free} of disk free");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::memory::Source;
    use super::*;

    #[test]
    fn a_budget_is_a_share_of_what_there_is() {
        let config = Config::default();
        let available = Available { bytes: 1 << 30, source: Source::CgroupV2 };
        let budget = Budget::new(&config, available, 1024, 2);
        assert_eq!(budget.memory_limit, 644_245_094);
        assert_eq!(budget.message_cache, 32 << 20);
        let shown = budget.to_string();
        assert!(
            shown.starts_with("memory 1024 MiB from the cgroup, publishers stop at 614 MiB"),
            "{shown}"
        );

        let small = Available { bytes: 100 << 20, source: Source::Machine };
        let budget = Budget::new(&config, small, 1024, 2);
        assert_eq!(budget.message_cache, budget.memory_limit / 4);
    }

    #[tokio::test]
    async fn the_watch_reports_and_ends_with_its_listeners() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut config = Config::default();
        config.memory.limit = MemoryLimit::Bytes(0);
        let budget = Budget::detect(&config);
        assert!(first_alarms(&budget, folder.path()).memory);
        let (alarms, mut changed) = watch::channel(Alarms::default());
        let (usage, mut samples) = watch::channel(Usage::default());
        let task = tokio::spawn(watch(budget, folder.path().to_owned(), alarms, usage));
        let raised = *changed.wait_for(|alarms| alarms.memory).await.expect("the alarm goes on");
        assert_eq!(raised.reason(), Some("low on memory"));
        samples.changed().await.expect("usage is sampled");
        assert!(samples.borrow().resident > 0 && samples.borrow().disk_total > 0);
        drop(samples);
        task.await.expect("it ends");
    }
}
