//! The configuration as meant: plain values, checked, each with its origin.
//!
//! ```text
//! defaults < file < environment < --set        later ones override
//!      written::* ──▶ judged by keys::KEYS ──▶ Config
//! ```
//!
//! All complaints are made at once. Nothing below `main` reads a file, the environment or arguments again.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub mod complaint;
pub mod keys;
pub mod reconciliation;
#[cfg(test)]
mod tests;
pub mod value;
pub mod written;

use complaint::{Complaint, Origin};
use keys::{KEYS, Key};
use model::address::{Address, Peer, is_node_name};
use peer::tls::TlsFiles;
use reconciliation::Reconciliation;
use value::Value;
use written::Written;

/// The shortest secret of a cluster.
pub(crate) const SECRET_MIN: usize = 16;

/// Everything that a node is told. Meaning, unit, default and bounds of each key: `config/leveret.toml`.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `node.*`
    pub node: Node,
    /// `data_dir`
    pub data_dir: PathBuf,
    /// `listeners.*`
    pub listeners: Listeners,
    /// `cluster.*`
    pub cluster: Cluster,
    /// `quorum_queue.*`
    pub quorum_queues: QuorumQueues,
    /// `memory.*`
    pub memory: Memory,
    /// `disk.*`
    pub disk: Disk,
    /// `limits.*`
    pub limits: Limits,
    /// `heartbeat`; whole seconds, `None` offers none.
    pub heartbeat: Option<Duration>,
    /// `handshake_timeout`
    pub handshake_timeout: Duration,
    /// `shutdown_timeout`
    pub shutdown_timeout: Duration,
    /// `consumer_timeout`
    pub consumer_timeout: Option<Duration>,
    /// `journal.*`
    pub journal: Journal,
    /// `default_*`
    pub first_start: FirstStart,
    /// `auth.*` and `loopback_users`
    pub auth: Auth,
    /// `tls.*`
    pub tls: Tls,
    /// `log.*`
    pub log: Log,
}

/// This node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Letters, digits, '.', '-', '_'; not empty.
    pub name: String,
    /// Number of queue shards; 0 means one per processor.
    pub shards: usize,
    /// What it does in a cluster.
    pub role: Role,
    /// What members of a quorum queue are spread over, such as a rack; `None`: nothing is known.
    pub zone: Option<String>,
}

/// What a node does in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Everything.
    Full,
    /// It votes on the topology and keeps no quorum queues.
    Witness,
}

/// Where to listen; `None` is off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listeners {
    /// AMQP without TLS.
    pub amqp: Option<Address>,
    /// AMQP with TLS. If set, so are `tls.certificate` and `tls.key`.
    pub amqps: Option<Address>,
    /// HTTP API.
    pub http: Option<Address>,
    /// Prometheus.
    pub metrics: Option<Address>,
    /// Other nodes. If there are any, it is set.
    pub peer: Option<Address>,
}

/// The cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct Cluster {
    /// What clients are told; the node's name if none was given.
    pub name: String,
    /// The name as it was given, on which nodes must agree; may be empty.
    pub given_name: String,
    /// Where the others reach this node, if the list of nodes says so.
    pub advertised: Option<Address>,
    /// The other nodes; none: the node is on its own.
    pub peers: Vec<Peer>,
    /// Known to all nodes. If there are others, it is set.
    pub secret: String,
    /// A node that is not heard for so long counts as down.
    pub silence_timeout: Duration,
    /// `cluster.tls.*`; none: nodes talk in the clear.
    pub tls: Option<TlsFiles>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, given_name: _, advertised: _, peers, secret: _, silence_timeout, tls } =
            self;
        f.debug_struct("Cluster")
            .field("name", name)
            .field("peers", peers)
            .field("silence_timeout", silence_timeout)
            .field("tls", tls)
            .finish_non_exhaustive()
    }
}

/// Quorum queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuorumQueues {
    /// Members of one that does not say how many it wants.
    pub initial_group_size: u64,
    /// How long messages wait for a leader with a majority.
    pub publish_timeout: Duration,
    /// How long the messages of a consumer are kept for it whose node is silent.
    pub consumer_disconnected_timeout: Duration,
    /// After how long without use a group sleeps; `None`: never.
    pub hibernate_after: Option<Duration>,
    /// With more groups awake than this, they sleep sooner.
    pub awake_max: u64,
    /// How groups are kept whole.
    pub reconciliation: Reconciliation,
    /// Whether members may be changed over HTTP.
    pub replica_operations: bool,
}

/// Memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Memory {
    /// Mark of the memory alarm; `limits::Budget` turns it into bytes.
    pub limit: MemoryLimit,
    /// Bytes for bodies of waiting messages that the journal holds too; `limits::Budget` may lower it.
    pub message_cache: u64,
}

/// How the memory limit was given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MemoryLimit {
    /// Resident bytes.
    Bytes(u64),
    /// Percent of what the cgroup or the machine has; above 0, up to 100.
    Percent(f64),
}

/// Disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    /// Mark of the disk alarm, in free bytes.
    pub free_limit: u64,
}

/// Limits; `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Client connections of the node.
    pub connections: Option<u64>,
    /// Channels of the node.
    pub channels: Option<u64>,
    /// Channels of one connection, from 1 (`channel_max`).
    pub channels_per_connection: u16,
    /// Consumers of one channel.
    pub consumers_per_channel: Option<u64>,
    /// Queues of the node.
    pub queues: Option<u64>,
    /// Bytes of one message's body.
    pub message_size: u64,
    /// Bytes of one frame (`frame_max`), from 4096.
    pub frame_size: u32,
    /// Bytes of one frame before login, from 4096, at most `frame_size`.
    pub initial_frame_size: u32,
    /// Bytes of one connection's publishes that no queue has taken safely yet, up to 1 GiB.
    pub publish_window: u64,
    /// Bytes on their way to one consumer, up to 1 GiB.
    pub consumer_window: u32,
}

/// The journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Journal {
    /// Bytes of one segment, 1 MiB to 1 GiB.
    pub segment_size: u64,
    /// Empty segments that publishing may not touch, 2 to 64.
    pub reserve_segments: u32,
    /// How long acknowledgements may wait for an `fdatasync`, up to 1 s.
    pub sync_delay: Duration,
    /// How long acknowledgements may wait to be written, at most `sync_delay`.
    pub write_delay: Duration,
    /// How long the lock of a journal on two nodes lasts after each renewal, 500 ms to 1 min.
    pub lease: Duration,
    /// How long its replica may leave a request unanswered, 100 ms to 1 min.
    pub replica_timeout: Duration,
    /// Whether the node that a journal was made on gets it back once it is in sync.
    pub allow_failback: bool,
    /// Copies that were replaced and are kept; `None`: all of them.
    pub max_saved_copies: Option<u64>,
}

impl Journal {
    /// Goes on with what of `new` can change while the node runs. The lease is not of that kind: both
    /// nodes of a pair count with it.
    #[must_use]
    pub fn reloaded(self, new: Self) -> Self {
        Self {
            replica_timeout: new.replica_timeout,
            allow_failback: new.allow_failback,
            max_saved_copies: new.max_saved_copies,
            ..self
        }
    }
}

/// What is made at the first start on an empty data folder.
#[derive(Clone, PartialEq, Eq)]
pub struct FirstStart {
    /// The virtual host.
    pub vhost: String,
    /// The administrator; `None` makes none.
    pub user: Option<String>,
    /// The administrator's password.
    pub password: String,
}

impl fmt::Debug for FirstStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vhost, user, password: _ } = self;
        f.debug_struct("FirstStart")
            .field("vhost", vhost)
            .field("user", user)
            .finish_non_exhaustive()
    }
}

/// Logging in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auth {
    /// In the order in which they are offered.
    pub mechanisms: Vec<Mechanism>,
    /// User of ANONYMOUS; `None` means that it is not offered.
    pub anonymous_user: Option<String>,
    /// Users that may log in from loopback addresses only.
    pub loopback_users: Vec<String>,
}

/// A SASL mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// User and password.
    Plain,
    /// The same in a field table.
    Amqplain,
    /// The verified client certificate names the user.
    External,
    /// `auth.anonymous_user`.
    Anonymous,
}

/// TLS of the `amqps` listener: versions 1.2 and 1.3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// PEM file of the certificate chain.
    pub certificate: Option<PathBuf>,
    /// PEM file of the private key.
    pub key: Option<PathBuf>,
    /// PEM file of the authorities for client certificates.
    pub ca: Option<PathBuf>,
    /// Client certificates. Unless `None`, `ca` is set.
    pub verify: Verify,
    /// Which part of a client's certificate is the user of EXTERNAL.
    pub login_from: LoginFrom,
}

/// What is asked of a client's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// Nothing; none is requested.
    None,
    /// One that is sent must be valid.
    Optional,
    /// One must be sent and be valid.
    Required,
}

/// Which part of a client's certificate is the user of EXTERNAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginFrom {
    /// The subject in the form of RFC 4514.
    DistinguishedName,
    /// The subject's common name.
    CommonName,
}

/// Logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// A level, or a filter per module.
    pub level: String,
    /// How a line looks.
    pub format: LogFormat,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Every key with its value and origin, in the order of the documented file.
#[derive(Debug, Clone)]
pub struct Effective {
    settings: BTreeMap<&'static str, Setting>,
}

#[derive(Debug, Clone)]
struct Setting {
    value: Value,
    origin: Origin,
}

impl Default for Config {
    /// What a node without any configuration runs with. Reads nothing.
    fn default() -> Self {
        let (effective, complaints) = Effective::judge(Vec::new());
        assert!(complaints.is_empty(), "the defaults are valid: {complaints:?}");
        effective.config().expect("the defaults are consistent")
    }
}

impl Config {
    /// Judges everything that was written, in ascending order of precedence.
    ///
    /// # Errors
    /// Every complaint at once.
    pub fn read(written: Vec<Written>) -> Result<(Self, Effective), Vec<Complaint>> {
        let (effective, mut complaints) = Effective::judge(written);
        match effective.config() {
            Ok(config) if complaints.is_empty() => Ok((config, effective)),
            Ok(_) => Err(complaints),
            Err(more) => {
                complaints.extend(more);
                Err(complaints)
            }
        }
    }
}

impl Effective {
    /// Takes what each key accepts, else its default.
    fn judge(written: Vec<Written>) -> (Self, Vec<Complaint>) {
        let mut settings: BTreeMap<_, _> = KEYS.iter().map(default_setting).collect();
        let mut complaints = Vec::new();
        for Written { name, raw, origin } in written {
            match keys::find(&name) {
                None if is_foreign(&name, &origin) => {}
                None => complaints.push(Complaint::unknown(origin, &name)),
                Some(key) => match key.kind.read(&raw) {
                    None => complaints.push(Complaint::refused(origin, key, &raw)),
                    Some(value) => {
                        settings.insert(key.name, Setting { value, origin });
                    }
                },
            }
        }
        (Self { settings }, complaints)
    }

    /// Builds the configuration and checks what concerns several keys or the form of a text.
    fn config(&self) -> Result<Config, Vec<Complaint>> {
        let mut complaints = Vec::new();
        let mut complain =
            |name: &str, text: String| complaints.push(Complaint::new(self.origin(name), text));

        let node = Node {
            name: self.text("node.name"),
            shards: usize::try_from(self.count("node.shards")).expect("bounded to 256"),
            role: match self.text("node.role").as_str() {
                "witness" => Role::Witness,
                _ => Role::Full,
            },
            zone: self.optional("node.zone"),
        };
        if !is_node_name(&node.name) {
            let text =
                format!("node.name: {:?} may have letters, digits, '.', '-', '_'", node.name);
            complain("node.name", text);
        }

        let mut peers = Vec::new();
        for entry in self.list("cluster.peers") {
            match Peer::parse(&entry) {
                Some(peer) => peers.push(peer),
                None => complain(
                    "cluster.peers",
                    format!("cluster.peers: {entry:?} is not \"NAME@ADDRESS:PORT\""),
                ),
            }
        }
        for (index, peer) in peers.iter().enumerate() {
            if peers[..index].iter().any(|earlier| earlier.name == peer.name) {
                complain("cluster.peers", format!("cluster.peers: {} is listed twice", peer.name));
            }
        }
        let own = peers.iter().find(|peer| peer.name == node.name);
        let advertised = own.map(|peer| peer.address.clone());
        peers.retain(|peer| peer.name != node.name);
        let path = |name: &str| self.optional(name).map(PathBuf::from);
        let cluster_tls = ["cluster.tls.certificate", "cluster.tls.key", "cluster.tls.ca"];
        let tls = match cluster_tls.map(path) {
            [Some(certificate), Some(key), Some(authorities)] => Some(TlsFiles {
                certificate,
                key,
                authorities,
                mutual: self.text("cluster.tls.verify") == "required",
            }),
            files => {
                let given = cluster_tls.iter().zip(&files).find(|(_, file)| file.is_some());
                if let Some((given, _)) = given {
                    let missing = cluster_tls.iter().zip(&files).filter(|(_, file)| file.is_none());
                    let missing: Vec<&str> = missing.map(|(name, _)| *name).collect();
                    complain(given, format!("{given}: needs {} too", missing.join(" and ")));
                }
                None
            }
        };
        let cluster = Cluster {
            tls,
            name: self.optional("cluster.name").unwrap_or_else(|| node.name.clone()),
            given_name: self.text("cluster.name"),
            advertised,
            peers,
            secret: self.text("cluster.secret"),
            silence_timeout: self.time("cluster.silence_timeout"),
        };
        if !cluster.peers.is_empty() {
            if cluster.secret.len() < SECRET_MIN {
                complain(
                    "cluster.secret",
                    format!(
                        "cluster.secret: needs {SECRET_MIN} characters or more with cluster.peers"
                    ),
                );
            }
            if self.address("listeners.peer").is_none() {
                complain(
                    "listeners.peer",
                    "listeners.peer: is needed with cluster.peers".to_owned(),
                );
            }
        }
        let quorum_queues = QuorumQueues {
            initial_group_size: self.count("quorum_queue.initial_group_size"),
            publish_timeout: self.time("quorum_queue.publish_timeout"),
            consumer_disconnected_timeout: self.time("quorum_queue.consumer_disconnected_timeout"),
            hibernate_after: self.span("quorum_queue.hibernate_after"),
            awake_max: self.count("quorum_queue.awake_max"),
            reconciliation: self.reconciliation(),
            replica_operations: !self
                .flag("management.restrictions.quorum_queue_replica_operations.disabled"),
        };
        if let Some((name, complaint)) = quorum_queues.reconciliation.complaint() {
            complain(name, complaint);
        }

        let listeners = Listeners {
            amqp: self.address("listeners.amqp"),
            amqps: self.address("listeners.amqps"),
            http: self.address("listeners.http"),
            metrics: self.address("listeners.metrics"),
            peer: self.address("listeners.peer"),
        };
        let places = [
            ("listeners.amqp", &listeners.amqp),
            ("listeners.amqps", &listeners.amqps),
            ("listeners.http", &listeners.http),
            ("listeners.metrics", &listeners.metrics),
            ("listeners.peer", &listeners.peer),
        ];
        for (index, (name, place)) in places.iter().enumerate() {
            for (earlier, other) in &places[..index] {
                if let Some(address) = place.as_ref().filter(|a| a.port != 0)
                    && Some(address) == other.as_ref()
                {
                    complain(name, format!("{name}: {address} is taken by {earlier}"));
                }
            }
        }

        let tls = Tls {
            certificate: path("tls.certificate"),
            key: path("tls.key"),
            ca: path("tls.ca"),
            verify: match self.text("tls.verify").as_str() {
                "required" => Verify::Required,
                "optional" => Verify::Optional,
                _ => Verify::None,
            },
            login_from: match self.text("tls.login_from").as_str() {
                "common_name" => LoginFrom::CommonName,
                _ => LoginFrom::DistinguishedName,
            },
        };
        if listeners.amqps.is_some() && (tls.certificate.is_none() || tls.key.is_none()) {
            complain(
                "listeners.amqps",
                "listeners.amqps: needs tls.certificate and tls.key".to_owned(),
            );
        }
        if tls.verify != Verify::None && tls.ca.is_none() {
            complain("tls.verify", "tls.verify: needs tls.ca".to_owned());
        }

        let narrow = |name: &str| u32::try_from(self.size(name)).expect("bounded to 1 GiB");
        let limits = Limits {
            connections: self.limit("limits.connections"),
            channels: self.limit("limits.channels"),
            channels_per_connection: u16::try_from(self.count("limits.channels_per_connection"))
                .expect("bounded to 65535"),
            consumers_per_channel: self.limit("limits.consumers_per_channel"),
            queues: self.limit("limits.queues"),
            message_size: self.size("limits.message_size"),
            frame_size: narrow("limits.frame_size"),
            initial_frame_size: narrow("limits.initial_frame_size"),
            publish_window: self.size("limits.publish_window"),
            consumer_window: narrow("limits.consumer_window"),
        };
        if limits.initial_frame_size > limits.frame_size
            && self.origin("limits.initial_frame_size") != Origin::Default
        {
            complain(
                "limits.initial_frame_size",
                format!(
                    "limits.initial_frame_size: {} exceeds limits.frame_size {}",
                    limits.initial_frame_size, limits.frame_size
                ),
            );
        }
        let limits = Limits {
            initial_frame_size: limits.initial_frame_size.min(limits.frame_size),
            ..limits
        };

        let memory = Memory {
            limit: match self.value("memory.limit") {
                Value::Percent(share) => MemoryLimit::Percent(*share),
                Value::Size(bytes) => MemoryLimit::Bytes(*bytes),
                other => unreachable!("memory.limit holds {other}"),
            },
            message_cache: self.size("memory.message_cache"),
        };
        let journal = Journal {
            segment_size: self.size("journal.segment_size"),
            reserve_segments: u32::try_from(self.count("journal.reserve_segments"))
                .expect("bounded to 64"),
            sync_delay: self.time("journal.sync_delay"),
            write_delay: self.time("journal.write_delay"),
            lease: self.time("journal.lease"),
            replica_timeout: self.time("journal.replica_timeout"),
            allow_failback: self.flag("journal.allow_failback"),
            max_saved_copies: self.limit("journal.max_saved_copies"),
        };
        if journal.write_delay > journal.sync_delay
            && self.origin("journal.write_delay") != Origin::Default
        {
            complain(
                "journal.write_delay",
                format!(
                    "journal.write_delay: {} exceeds journal.sync_delay {}",
                    value::Span(journal.write_delay),
                    value::Span(journal.sync_delay)
                ),
            );
        }

        let journal =
            Journal { write_delay: journal.write_delay.min(journal.sync_delay), ..journal };

        let heartbeat = self.span("heartbeat");
        if heartbeat.is_some_and(|interval| interval.subsec_millis() != 0) {
            complain("heartbeat", "heartbeat: is not a whole number of seconds".to_owned());
        }

        let anonymous_user =
            Some(self.text("auth.anonymous_user")).filter(|user| user.as_str() != "none");
        let mechanisms: Vec<Mechanism> = self
            .list("auth.mechanisms")
            .iter()
            .map(|word| match word.as_str() {
                "PLAIN" => Mechanism::Plain,
                "AMQPLAIN" => Mechanism::Amqplain,
                "EXTERNAL" => Mechanism::External,
                _ => Mechanism::Anonymous,
            })
            .filter(|mechanism| *mechanism != Mechanism::Anonymous || anonymous_user.is_some())
            .collect();
        if mechanisms.is_empty() {
            complain("auth.mechanisms", "auth.mechanisms: nobody could log in".to_owned());
        }

        let log = Log {
            level: self.text("log.level"),
            format: match self.text("log.format").as_str() {
                "json" => LogFormat::Json,
                _ => LogFormat::Text,
            },
        };
        if let Err(reason) = crate::logging::check_filter(&log.level) {
            complain("log.level", format!("log.level: {:?} is no filter: {reason}", log.level));
        }

        let config = Config {
            node,
            data_dir: PathBuf::from(self.text("data_dir")),
            listeners,
            cluster,
            quorum_queues,
            memory,
            disk: Disk { free_limit: self.size("disk.free_limit") },
            limits,
            heartbeat,
            handshake_timeout: self.time("handshake_timeout"),
            shutdown_timeout: self.time("shutdown_timeout"),
            consumer_timeout: self.span("consumer_timeout"),
            journal,
            first_start: FirstStart {
                vhost: self.text("default_vhost"),
                user: self.optional("default_user"),
                password: self.text("default_pass"),
            },
            auth: Auth { mechanisms, anonymous_user, loopback_users: self.list("loopback_users") },
            tls,
            log,
        };
        if complaints.is_empty() { Ok(config) } else { Err(complaints) }
    }

    fn setting(&self, name: &str) -> &Setting {
        self.settings.get(name).unwrap_or_else(|| panic!("KEYS lists {name}"))
    }

    /// The value of a key. Panics if there is no such key.
    pub fn value(&self, name: &str) -> &Value {
        &self.setting(name).value
    }

    /// Where that value was written. Panics if there is no such key.
    pub fn origin(&self, name: &str) -> Origin {
        self.setting(name).origin.clone()
    }

    fn text(&self, name: &str) -> String {
        match self.value(name) {
            Value::Text(text) => text.clone(),
            other => unreachable!("{name} holds {other}"),
        }
    }

    fn optional(&self, name: &str) -> Option<String> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    fn list(&self, name: &str) -> Vec<String> {
        match self.value(name) {
            Value::List(items) => items.clone(),
            other => unreachable!("{name} holds {other}"),
        }
    }

    fn limit(&self, name: &str) -> Option<u64> {
        match self.value(name) {
            Value::Count(count) => *count,
            other => unreachable!("{name} holds {other}"),
        }
    }

    fn count(&self, name: &str) -> u64 {
        self.limit(name).expect("its kind knows no \"unlimited\"")
    }

    fn flag(&self, name: &str) -> bool {
        match self.value(name) {
            Value::Flag(flag) => *flag,
            other => unreachable!("{name} holds {other}"),
        }
    }

    fn size(&self, name: &str) -> u64 {
        match self.value(name) {
            Value::Size(bytes) => *bytes,
            other => unreachable!("{name} holds {other}"),
        }
    }

    fn span(&self, name: &str) -> Option<Duration> {
        match self.value(name) {
            Value::Span(span) => *span,
            other => unreachable!("{name} holds {other}"),
        }
    }

    fn time(&self, name: &str) -> Duration {
        self.span(name).expect("its kind knows no \"none\"")
    }

    fn address(&self, name: &str) -> Option<Address> {
        match self.value(name) {
            Value::Address(address) => address.clone(),
            other => unreachable!("{name} holds {other}"),
        }
    }
}

impl fmt::Display for Effective {
    /// One line per key: valid TOML, the origin as a comment. Secrets are hidden unless they are defaults.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for key in KEYS {
            let Setting { value, origin } = self.setting(key.name);
            let line = if key.secret && *origin != Origin::Default {
                format!("{} = \"********\"", key.name)
            } else {
                format!("{} = {value}", key.name)
            };
            writeln!(f, "{line:<48} # {origin}")?;
        }
        Ok(())
    }
}

/// Whether a variable merely begins like ours: no table in its name, and like none of our keys.
fn is_foreign(name: &str, origin: &Origin) -> bool {
    matches!(origin, Origin::Environment(_)) && !name.contains('.') && keys::nearest(name).is_none()
}

fn default_setting(key: &'static Key) -> (&'static str, Setting) {
    let line = format!("{} = {}", key.name, key.default);
    let (written, complaints) = written::file(PathBuf::new(), &line);
    let value = match (written.as_slice(), complaints.as_slice()) {
        ([one], []) => key.kind.read(&one.raw),
        _ => None,
    };
    let value = value.unwrap_or_else(|| panic!("{line} is a valid default"));
    (key.name, Setting { value, origin: Origin::Default })
}
