//! What /proc says about processes: CPU, memory, waits, disk.

use serde::Serialize;
use std::ops::Sub;

/// Figures of one or more processes, summed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// User and system time of all threads, in microseconds; counted in steps of 10,000.
    pub cpu_us: u64,
    /// Resident memory in bytes.
    pub rss: u64,
    /// The most that was ever resident, in bytes.
    pub rss_peak: u64,
    /// How often threads gave up the processor to wait.
    pub voluntary_switches: u64,
    /// Bytes given to the disk; 0 if we may not know.
    pub disk_bytes: u64,
}

/// The kernel shows times in these units to user space, whatever its own clock does.
const TICK_US: u64 = 10_000;

impl Sample {
    /// Looks at the processes now.
    ///
    /// # Errors
    /// If one of them does not exist.
    pub fn take(pids: &[u32]) -> Result<Self, String> {
        let mut sum = Self::default();
        for pid in pids {
            let sample = Self::of(&pid.to_string())
                .ok_or_else(|| format!("cannot read /proc/{pid}: no such process?"))?;
            sum.cpu_us += sample.cpu_us;
            sum.rss += sample.rss;
            sum.rss_peak += sample.rss_peak;
            sum.voluntary_switches += sample.voluntary_switches;
            sum.disk_bytes += sample.disk_bytes;
        }
        Ok(sum)
    }

    /// This process.
    pub fn own() -> Self {
        Self::of("self").unwrap_or_default()
    }

    fn of(pid: &str) -> Option<Self> {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
        let cpu_us = cpu_us(&read("stat")?)?;
        let status = read("status")?;
        let kib = |key| field(&status, key).map_or(0, |kib| kib * 1024);
        let io = read("io").unwrap_or_default();
        let count = |key| field(&io, key).unwrap_or_default();
        Some(Self {
            cpu_us,
            rss: kib("VmRSS:"),
            rss_peak: kib("VmHWM:"),
            voluntary_switches: switches(pid),
            disk_bytes: count("write_bytes:"),
        })
    }
}

/// The counters count on; memory is the later one's.
impl Sub for Sample {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            cpu_us: self.cpu_us.saturating_sub(before.cpu_us),
            voluntary_switches: self.voluntary_switches.saturating_sub(before.voluntary_switches),
            disk_bytes: self.disk_bytes.saturating_sub(before.disk_bytes),
            ..self
        }
    }
}

/// Fields 14 and 15 of /proc/PID/stat; the name in field 2 may hold anything, even parentheses.
fn cpu_us(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) * TICK_US)
}

fn field(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

fn switches(pid: &str) -> u64 {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok())
        .filter_map(|status| field(&status, "voluntary_ctxt_switches:"))
        .sum()
}

/// Processor, memory and kernel of this machine, and how busy it is, as one line each.
pub fn machine() -> Vec<(&'static str, String)> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let model = model.trim_start_matches(['\t', ' ', ':']).to_owned();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = field(&read("/proc/meminfo"), "MemTotal:").unwrap_or_default();
    let load = read("/proc/loadavg");
    let load: Vec<&str> = load.split_whitespace().take(3).collect();
    vec![
        ("processor", format!("{model}, {cores} cores")),
        ("memory", format!("{:.1} GiB", memory as f64 / 1_048_576.0)),
        ("kernel", read("/proc/sys/kernel/osrelease").trim().to_owned()),
        ("load average before the runs", load.join(" ")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_with_an_odd_name_is_read() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 1 2 3 4 150 50 0 0 20 0 9 0 100 1 2";
        assert_eq!(cpu_us(stat), Some(2_000_000));
        assert_eq!(cpu_us(""), None);
    }

    #[test]
    fn fields_are_found() {
        let status = "Name:\tx\nVmHWM:\t   2048 kB\nvoluntary_ctxt_switches:\t5\n";
        assert_eq!(field(status, "VmHWM:"), Some(2048));
        assert_eq!(field(status, "voluntary_ctxt_switches:"), Some(5));
        assert_eq!(field(status, "VmRSS:"), None);
    }

    #[test]
    fn a_missing_process_is_an_error() {
        let error = Sample::take(&[u32::MAX]).unwrap_err();
        assert_eq!(error, "cannot read /proc/4294967295: no such process?");
    }
}
