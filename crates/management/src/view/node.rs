//! The node itself.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The node, its limits and its listeners, now.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct NodeStats {
    /// Such as `leveret@host`.
    pub name: String,
    /// The name of its cluster.
    pub cluster_name: String,
    /// Its process.
    pub process: u32,
    /// Processors that it may use.
    pub processors: usize,
    /// When it started.
    pub started_at_ms: u64,
    /// Since when it serves; `None` while it recovers.
    pub serving: bool,
    /// Being emptied for maintenance.
    pub draining: bool,
    /// Resident memory.
    pub memory_used: u64,
    /// The memory budget; the alarm begins here.
    pub memory_limit: u64,
    /// Whether the memory alarm is on.
    pub memory_alarm: bool,
    /// Free bytes of the file system of `data_dir`.
    pub disk_free: u64,
    /// The disk alarm begins below this.
    pub disk_free_limit: u64,
    /// Whether the disk alarm is on.
    pub disk_alarm: bool,
    /// Open file descriptors, sockets included.
    pub fd_used: u64,
    /// The limit of file descriptors.
    pub fd_total: u64,
    /// Client sockets.
    pub sockets_used: u64,
    /// The limit of connections; `None` is no limit.
    pub connection_limit: Option<u64>,
    /// Where its data lies.
    pub data_dir: PathBuf,
    /// The configuration files that were read.
    pub config_files: Vec<PathBuf>,
    /// Where logs go, such as `<stderr>`.
    pub log_files: Vec<String>,
    /// Open listeners.
    pub listeners: Vec<Listener>,
    /// Offered SASL mechanisms.
    pub auth_mechanisms: Vec<String>,
    /// Registered exchange types.
    pub exchange_types: Vec<String>,
    /// The queue type of queues that are declared without one.
    pub default_queue_type: String,
    /// The certificates of TLS listeners.
    pub certificates: Vec<Certificate>,
    /// The journal.
    pub journal: JournalStats,
}

/// Another node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherNode {
    /// Such as `leveret@host`.
    pub name: String,
    /// Whether it is connected.
    pub running: bool,
    /// Why it is not connected, as far as it is known.
    pub error: Option<String>,
    /// Whether its memory alarm is on, as far as it has told.
    pub memory_alarm: bool,
    /// Whether its disk alarm is on, as far as it has told.
    pub disk_alarm: bool,
}

/// Who decides on the topology, as far as a node knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopologyVotes {
    /// How many nodes have a vote.
    pub voters: usize,
    /// How many of these run.
    pub running: usize,
    /// Whether the node itself has one.
    pub own: bool,
}

/// An open listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// RabbitMQ's word: `amqp`, `amqp/ssl`, `http`, `http/prometheus`, `clustering`.
    pub protocol: String,
    /// The address that it is bound to.
    pub address: String,
    /// The port that it is bound to.
    pub port: u16,
}

/// A certificate of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// The file.
    pub path: PathBuf,
    /// The listener's port.
    pub port: u16,
    /// When it ends.
    pub expires_at_ms: u64,
}

/// What the node's journal does and costs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JournalStats {
    /// Segment files on disk, the reserve included.
    pub segments: u64,
    /// Bytes of these files.
    pub disk_bytes: u64,
    /// Bytes of records that are still needed.
    pub live_bytes: u64,
    /// Bytes written since the start.
    pub written_bytes: u64,
    /// Writes since the start.
    pub writes: u64,
    /// Records that are still needed.
    pub live_records: u64,
    /// Syncs since the start.
    pub syncs: u64,
    /// Time spent in these syncs, microseconds.
    pub sync_micros: u64,
    /// Reads since the start.
    pub reads: u64,
    /// Bytes read since the start.
    pub read_bytes: u64,
}
