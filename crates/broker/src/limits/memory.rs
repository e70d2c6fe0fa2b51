//! How much memory there is: the cgroup's limit if it has one, else the machine's.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Memory that this process can count on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Available {
    /// Bytes.
    pub bytes: u64,
    /// What said so.
    pub source: Source,
}

/// What limits the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The machine's own size.
    Machine,
    /// `memory.limit_in_bytes` of cgroup version 1.
    CgroupV1,
    /// `memory.max` of cgroup version 2.
    CgroupV2,
    /// Nothing could be read; a cautious guess.
    Guess,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Machine => "the machine",
            Self::CgroupV1 | Self::CgroupV2 => "the cgroup",
            Self::Guess => "a guess",
        })
    }
}

/// Where neither `/proc` nor a cgroup can be read.
const GUESS: u64 = 1 << 30;

/// Reads `/proc` and `/sys/fs/cgroup` under `root` (`/`, but for tests).
pub fn detect(root: &Path) -> Available {
    let machine = match machine(root) {
        Some(bytes) => Available { bytes, source: Source::Machine },
        None => Available { bytes: GUESS, source: Source::Guess },
    };
    // A cgroup may allow more than there is; "no limit" of version 1 is a huge number.
    cgroup(root).filter(|cgroup| cgroup.bytes < machine.bytes).unwrap_or(machine)
}

fn machine(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The smallest limit on the way from this process's cgroup to the root.
fn cgroup(root: &Path) -> Option<Available> {
    let text = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    text.lines()
        .filter_map(|line| {
            // HIERARCHY:CONTROLLERS:PATH; version 2 has no controllers here.
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let (mount, file, source) = if controllers.is_empty() {
                ("sys/fs/cgroup", "memory.max", Source::CgroupV2)
            } else if controllers.split(',').any(|controller| controller == "memory") {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes", Source::CgroupV1)
            } else {
                return None;
            };
            let bytes = smallest(&root.join(mount), path, file)?;
            Some(Available { bytes, source })
        })
        .min_by_key(|available| available.bytes)
}

fn smallest(mount: &Path, path: &str, file: &str) -> Option<u64> {
    let mut folders = vec![mount.to_owned()];
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let deeper: PathBuf = folders[folders.len() - 1].join(part);
        folders.push(deeper);
    }
    // In a container the path may be the host's while the mount shows only our part of the tree: what is not
    // there is passed over. "max" is no number and so no limit.
    folders
        .iter()
        .filter_map(|folder| fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok())
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lays out files under a folder of its own and compares what is detected.
    fn check(files: &[(&str, &str)], bytes: u64, source: Source) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        assert_eq!(detect(root.path()), Available { bytes, source });
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:       8388608 kB\nMemFree: 1 kB\n");
    const MACHINE: u64 = 8 << 30;

    #[test]
    fn without_a_cgroup_the_machine_counts() {
        check(&[MEMINFO], MACHINE, Source::Machine);
        check(&[], GUESS, Source::Guess);
        check(&[("proc/meminfo", "nonsense")], GUESS, Source::Guess);
    }

    #[test]
    fn version_2_takes_the_smallest_on_the_way_up() {
        let own = ("proc/self/cgroup", "0::/system.slice/leveret.service\n");
        let base = "sys/fs/cgroup/system.slice";
        check(
            &[
                MEMINFO,
                own,
                (&format!("{base}/memory.max"), "1073741824\n"),
                (&format!("{base}/leveret.service/memory.max"), "max\n"),
            ],
            1 << 30,
            Source::CgroupV2,
        );
        check(&[MEMINFO, own], MACHINE, Source::Machine);
        let namespace = ("proc/self/cgroup", "0::/\n");
        check(
            &[MEMINFO, namespace, ("sys/fs/cgroup/memory.max", "536870912\n")],
            512 << 20,
            Source::CgroupV2,
        );
    }

    #[test]
    fn version_1_knows_no_limit_as_a_huge_one() {
        let own = ("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/docker/abc\n");
        let none = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        check(&[MEMINFO, own, none], MACHINE, Source::Machine);
        let inside = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n");
        check(&[MEMINFO, own, inside], 256 << 20, Source::CgroupV1);
    }
}
