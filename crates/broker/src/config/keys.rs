//! Every key, in the order of the documented file: its name, kind, default and meaning.
//!
//! This table is the only place that knows a key's default and bounds. `config/leveret.toml` is written from
//! it and [`super::Config`] is read through it; a test holds them together.

use std::time::Duration;

use super::value::{Kind, Unit};

/// One key of the configuration.
#[derive(Debug)]
pub struct Key {
    /// Dotted name; `_` joins words, so `__` never occurs and stands for the dot in the environment.
    pub name: &'static str,
    /// What it accepts.
    pub kind: Kind,
    /// Its default, in TOML.
    pub default: &'static str,
    /// What it means: sentences, one per line.
    pub meaning: &'static str,
    /// Whether its value is hidden when it is shown.
    pub secret: bool,
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;
const TIB: u64 = 1024 * GIB;

const TEXT: Kind = Kind::Text { empty: false };
const TEXT_OR_NONE: Kind = Kind::Text { empty: true };
const LIMIT: Kind = Kind::Count { min: 1, max: 1_000_000_000, unlimited: true };

const fn size(min: u64, max: u64) -> Kind {
    Kind::Size { min, max, percent: false }
}

const fn millis(min: u64, max: u64) -> Kind {
    let (min, max) = (Duration::from_millis(min), Duration::from_millis(max));
    Kind::Span { unit: Unit::Milliseconds, min, max, none: false }
}

const fn key(name: &'static str, kind: Kind, default: &'static str, meaning: &'static str) -> Key {
    Key { name, kind, default, meaning, secret: false }
}

/// All keys.
pub const KEYS: &[Key] = &[
    key(
        "node.name",
        TEXT,
        "\"leveret\"",
        "Name of this node: what the HTTP API, metrics and peers call it.\n\
         Letters, digits, '.', '-' and '_'. Do not change it once the node has data.",
    ),
    key(
        "node.shards",
        Kind::Count { min: 0, max: 256, unlimited: false },
        "0",
        "Number of tasks that share the work of all queues; 0 takes one per processor.",
    ),
    key(
        "node.role",
        Kind::OneOf(&["full", "witness"]),
        "\"full\"",
        "\"witness\" makes a node of a cluster that votes on the topology and keeps no quorum queues.",
    ),
    key(
        "node.zone",
        TEXT_OR_NONE,
        "\"\"",
        "Where the node is, such as a rack or a data centre; empty says nothing.\n\
         The members of a quorum queue are spread over the zones of their nodes as evenly as can be.",
    ),
    key(
        "data_dir",
        TEXT,
        "\"data\"",
        "Folder of everything that the node keeps: journal, metadata, identity.\n\
         Created if missing; used by one node at a time. A relative path starts at the working folder.",
    ),
    key(
        "listeners.amqp",
        Kind::Address,
        "\"0.0.0.0:5672\"",
        "Where AMQP 0.9.1 clients connect without TLS.",
    ),
    key(
        "listeners.amqps",
        Kind::Address,
        "\"none\"",
        "Where AMQP 0.9.1 clients connect with TLS (usually port 5671). Needs tls.certificate and tls.key.",
    ),
    key(
        "listeners.http",
        Kind::Address,
        "\"0.0.0.0:15672\"",
        "Where the HTTP API and the web page are served.",
    ),
    key(
        "listeners.metrics",
        Kind::Address,
        "\"0.0.0.0:15692\"",
        "Where Prometheus scrapes /metrics. It asks for no password: keep it off public networks.",
    ),
    key(
        "listeners.peer",
        Kind::Address,
        "\"127.0.0.1:25672\"",
        "Where the other nodes of the cluster connect; open only if cluster.peers names others.\n\
         What they say to each other is encrypted only with cluster.tls: without, keep it on a private network.",
    ),
    key(
        "cluster.name",
        TEXT_OR_NONE,
        "\"\"",
        "Name of the cluster that clients are told; empty takes node.name.\n\
         Nodes that are given different names do not talk to each other.",
    ),
    key(
        "cluster.peers",
        Kind::List { words: &[] },
        "[]",
        "Nodes of the cluster, each \"NAME@ADDRESS:PORT\" with the peer listener's address.\n\
         The same list can be given to all of them. Without another node in it, a node is on its own.\n\
         A node that comes later needs itself and one that is there; they find each other.",
    ),
    Key {
        secret: true,
        ..key(
            "cluster.secret",
            TEXT_OR_NONE,
            "\"\"",
            "What all nodes of the cluster know and nobody else; needed with cluster.peers.\n\
             At least 16 characters that nobody can guess.",
        )
    },
    key(
        "cluster.silence_timeout",
        millis(200, 60_000),
        "\"2s\"",
        "A node that is not heard for so long counts as down, and others lead what it led.\n\
         One whose process has ended is noticed at once.",
    ),
    key(
        "cluster.tls.certificate",
        TEXT_OR_NONE,
        "\"\"",
        "PEM file with the certificate that this node shows other nodes, and its chain. With it nodes talk over TLS, and\n\
         all of them must. It has to be good for the host in cluster.peers. Read again when it changes.",
    ),
    key(
        "cluster.tls.key",
        TEXT_OR_NONE,
        "\"\"",
        "PEM file with that certificate's private key, not encrypted. Read again when it changes.",
    ),
    key(
        "cluster.tls.ca",
        TEXT_OR_NONE,
        "\"\"",
        "PEM file with the authorities that sign the nodes' certificates. Read again when it changes.",
    ),
    key(
        "cluster.tls.verify",
        Kind::OneOf(&["none", "required"]),
        "\"required\"",
        "Certificates of nodes that connect: \"required\" refuses those without one (the cluster's secret is needed\n\
         all the same), \"none\" asks for none.",
    ),
    key(
        "quorum_queue.initial_group_size",
        Kind::Count { min: 1, max: 255, unlimited: false },
        "3",
        "Members of a quorum queue that does not say how many it wants. An even number is lowered by one.",
    ),
    key(
        "quorum_queue.publish_timeout",
        millis(1, 600_000),
        "\"30s\"",
        "How long messages for a quorum queue wait for a leader with a majority before they are refused.",
    ),
    key(
        "quorum_queue.consumer_disconnected_timeout",
        millis(1, 3_600_000),
        "\"60s\"",
        "How long a quorum queue keeps the messages of a consumer whose node is silent for it.",
    ),
    key(
        "quorum_queue.hibernate_after",
        Kind::Span {
            unit: Unit::Milliseconds,
            min: Duration::from_millis(100),
            max: Duration::from_hours(24),
            none: true,
        },
        "\"10s\"",
        "After how long without use a quorum queue hibernates: its node keeps what is in it and who leads it, and\n\
         little else. It wakes by itself when it is used. \"none\": never.",
    ),
    key(
        "quorum_queue.awake_max",
        Kind::Count { min: 0, max: 1_000_000, unlimited: false },
        "1000",
        "With more quorum queues than this awake on a node, those that were not used for longest hibernate after a\n\
         second already. Each takes 0.1 to 0.4 MiB.",
    ),
    key(
        "management.restrictions.quorum_queue_replica_operations.disabled",
        Kind::Flag,
        "false",
        "Whether the HTTP API refuses to change the members of quorum queues.",
    ),
    key(
        "quorum_queue.continuous_membership_reconciliation.enabled",
        Kind::Flag,
        "false",
        "Whether the leader of a quorum queue adds members until there are as many as wanted, and replaces\n\
         those whose node was wiped: one at a time, and only while all others are well.",
    ),
    key(
        "quorum_queue.continuous_membership_reconciliation.auto_remove",
        Kind::Flag,
        "false",
        "Whether members are removed whose node was forgotten. Without it they are reported.",
    ),
    key(
        "quorum_queue.continuous_membership_reconciliation.interval",
        millis(1000, 24 * 3_600_000),
        "\"60m\"",
        "How often each node looks at the queues that it leads, give or take a tenth.\n\
         Most of what matters is noticed without it.",
    ),
    key(
        "quorum_queue.continuous_membership_reconciliation.trigger_interval",
        millis(100, 24 * 3_600_000),
        "\"10s\"",
        "How long after something has changed (a node, a policy, a leader) it looks; at most the interval.\n\
         It is also the time between two steps for one queue, and the first wait after one that failed.",
    ),
    key(
        "quorum_queue.continuous_membership_reconciliation.target_group_size",
        Kind::Count { min: 0, max: 255, unlimited: false },
        "0",
        "Members that every quorum queue should have at least; 0 says nothing.\n\
         Policies (target-group-size) and arguments (x-quorum-target-group-size) may ask for more.",
    ),
    key(
        "quorum_queue.continuous_membership_reconciliation.max_lag",
        Kind::Count { min: 1, max: 1_000_000_000, unlimited: false },
        "1000",
        "Entries of the log that every member may be behind when one is added or gets its vote.",
    ),
    key(
        "quorum_queue.continuous_membership_reconciliation.max_log_size",
        size(0, 1024 * TIB),
        "\"10GiB\"",
        "How much is copied to a new member at most, of messages and log; 0 copies any.",
    ),
    key(
        "quorum_queue.continuous_membership_reconciliation.concurrency",
        Kind::Count { min: 1, max: 1024, unlimited: false },
        "2",
        "How many queues a node changes the members of at once.",
    ),
    key(
        "memory.limit",
        Kind::Size { min: 0, max: 1024 * TIB, percent: true },
        "\"60%\"",
        "Resident memory at which the memory alarm stops publishers.\n\
         A percentage counts of the cgroup's limit or, without one, of the machine's memory.\n\
         0 stops publishers at once.",
    ),
    key(
        "memory.message_cache",
        size(MIB, 1024 * GIB),
        "\"32MiB\"",
        "Memory for bodies of waiting messages that the journal holds as well. What does not fit is read back\n\
         from the journal before it is delivered. At most a quarter of memory.limit is used.",
    ),
    key(
        "disk.free_limit",
        size(0, 1024 * TIB),
        "\"256MiB\"",
        "Free space of the data folder's file system under which the disk alarm stops publishers.\n\
         Consuming, purging and deleting go on.",
    ),
    key("limits.connections", LIMIT, "\"unlimited\"", "Client connections of this node."),
    key(
        "limits.channels",
        LIMIT,
        "\"unlimited\"",
        "Open channels of this node, all connections together.",
    ),
    key(
        "limits.channels_per_connection",
        Kind::Count { min: 1, max: 65535, unlimited: false },
        "2047",
        "Channels that one connection may open; what connection.tune offers as channel_max.",
    ),
    key("limits.consumers_per_channel", LIMIT, "\"unlimited\"", "Consumers of one channel."),
    key(
        "limits.queues",
        LIMIT,
        "\"unlimited\"",
        "Queues of this node, all virtual hosts together.",
    ),
    key(
        "limits.message_size",
        size(1, 512 * MIB),
        "\"16MiB\"",
        "Largest body of one message. A larger one closes its channel with 406.",
    ),
    key(
        "limits.frame_size",
        size(4 * KIB, 16 * MIB),
        "\"128KiB\"",
        "Largest AMQP frame; what connection.tune offers as frame_max. A client may lower it to 4096.",
    ),
    key(
        "limits.initial_frame_size",
        size(4 * KIB, 16 * MIB),
        "\"8KiB\"",
        "Largest frame before a client has logged in. Raise it for long tokens.",
    ),
    key(
        "limits.publish_window",
        size(64 * KIB, GIB),
        "\"4MiB\"",
        "Bytes that one connection has published and no queue has taken safely yet; at this mark it is not read.",
    ),
    key(
        "limits.consumer_window",
        size(16 * KIB, GIB),
        "\"512KiB\"",
        "Bytes on their way to one consumer and not yet given to the operating system; at this mark its queue\n\
         sends it no more. One message always fits.",
    ),
    key(
        "heartbeat",
        Kind::Span {
            unit: Unit::Seconds,
            min: Duration::from_secs(1),
            max: Duration::from_secs(65535),
            none: true,
        },
        "\"60s\"",
        "Heartbeat interval offered to clients, in whole seconds. A peer silent for two intervals is closed.",
    ),
    key(
        "handshake_timeout",
        millis(100, 600_000),
        "\"10s\"",
        "From accept to connection.open; a client that needs longer is disconnected.",
    ),
    key(
        "shutdown_timeout",
        millis(0, 600_000),
        "\"10s\"",
        "After SIGTERM, how long clients may take to answer connection.close.",
    ),
    key(
        "consumer_timeout",
        Kind::Span {
            unit: Unit::Milliseconds,
            min: Duration::from_secs(1),
            max: Duration::from_hours(365 * 24),
            none: true,
        },
        "\"none\"",
        "How long a delivery may stay unacknowledged before its channel is closed with 406.\n\
         A queue's x-consumer-timeout or policy comes first.",
    ),
    key(
        "journal.segment_size",
        size(MIB, GIB),
        "\"32MiB\"",
        "Size of one journal file, written in full when it is made and used again and again.\n\
         Disk use stays below three times the live bytes plus six segments. Existing files keep their size.",
    ),
    key(
        "journal.reserve_segments",
        Kind::Count { min: 2, max: 64, unlimited: false },
        "2",
        "Empty segments that publishing may not touch, so that acknowledging, purging and deleting go on when\n\
         the disk is full.",
    ),
    key(
        "journal.sync_delay",
        millis(0, 1000),
        "\"20ms\"",
        "How long acknowledgements may wait for an fdatasync if no publish asks for one sooner. After a power\n\
         cut, messages acknowledged within this time may be delivered again. Publishes never wait for it.",
    ),
    key(
        "journal.write_delay",
        millis(0, 1000),
        "\"2ms\"",
        "How long acknowledgements may wait to be written, at most journal.sync_delay. What is written survives\n\
         a killed process.",
    ),
    key(
        "journal.lease",
        millis(500, 60_000),
        "\"2s\"",
        "How long the lock of a journal on two nodes lasts after each renewal. When its active node dies, the\n\
         other one waits for the end of it; an active node that is cut off stops confirming a tenth earlier.\n\
         The same on both nodes.",
    ),
    key(
        "journal.replica_timeout",
        millis(100, 60_000),
        "\"3s\"",
        "How long the replica of a journal on two nodes may leave a request unanswered before the active node\n\
         goes on alone; and how long the active node's disk may take for what the replica has answered before\n\
         the replica gets the journal.",
    ),
    key(
        "journal.allow_failback",
        Kind::Flag,
        "false",
        "Whether the node that a journal on two nodes was made on gets it back by a clean hand-over when it is\n\
         in sync again. What the active node says counts, at the moment at which the other one is in sync.",
    ),
    key(
        "journal.max_saved_copies",
        Kind::Count { min: 0, max: 1000, unlimited: true },
        "2",
        "How many copies of a journal on two nodes that were replaced by newer ones are kept on this node, with\n\
         their sequences; the oldest go when a new copy is whole. 0 keeps none.",
    ),
    key(
        "default_vhost",
        TEXT,
        "\"/\"",
        "Virtual host made at the first start on an empty data folder.",
    ),
    key(
        "default_user",
        TEXT_OR_NONE,
        "\"guest\"",
        "User made at the first start on an empty data folder, as administrator with all permissions;\n\
         empty makes none.",
    ),
    Key {
        name: "default_pass",
        kind: TEXT_OR_NONE,
        default: "\"guest\"",
        meaning: "Password of that user.",
        secret: true,
    },
    key(
        "loopback_users",
        Kind::List { words: &[] },
        "[\"guest\"]",
        "Users that may log in from this machine only.",
    ),
    key(
        "auth.mechanisms",
        Kind::List { words: &["PLAIN", "AMQPLAIN", "EXTERNAL", "ANONYMOUS"] },
        "[\"PLAIN\", \"AMQPLAIN\", \"ANONYMOUS\"]",
        "Ways to log in that clients are offered.\n\
         EXTERNAL, by the name in a verified client certificate, has to be added: many clients prefer it, also where\n\
         certificates are only for TLS and passwords for login. ANONYMOUS is offered only with auth.anonymous_user.",
    ),
    key(
        "auth.anonymous_user",
        TEXT,
        "\"none\"",
        "User that a client becomes by ANONYMOUS; \"none\" offers it to nobody.",
    ),
    key(
        "tls.certificate",
        TEXT_OR_NONE,
        "\"\"",
        "PEM file with the node's certificate and its chain. Read again when it changes.",
    ),
    key(
        "tls.key",
        TEXT_OR_NONE,
        "\"\"",
        "PEM file with the certificate's private key, not encrypted. Read again when it changes.",
    ),
    key(
        "tls.ca",
        TEXT_OR_NONE,
        "\"\"",
        "PEM file with the authorities that sign client certificates.",
    ),
    key(
        "tls.verify",
        Kind::OneOf(&["none", "optional", "required"]),
        "\"none\"",
        "Client certificates: \"none\" asks for none; \"optional\" verifies one that is sent; \"required\" refuses\n\
         clients without one. The last two need tls.ca.",
    ),
    key(
        "tls.login_from",
        Kind::OneOf(&["distinguished_name", "common_name"]),
        "\"distinguished_name\"",
        "Which part of a client's certificate names the user of EXTERNAL.",
    ),
    key(
        "log.level",
        TEXT,
        "\"info\"",
        "error, warn, info, debug or trace; or a filter per module such as \"info,journal=debug\".",
    ),
    key(
        "log.format",
        Kind::OneOf(&["text", "json"]),
        "\"text\"",
        "Log lines for people or, one JSON object per line, for machines. Logs go to standard error.",
    ),
];

/// Names that RabbitMQ gives to what is called differently here, for the hint in a complaint.
pub const RABBITMQ_NAMES: &[(&str, &str)] = &[
    ("anonymous_login_user", "auth.anonymous_user"),
    ("auth_mechanisms", "auth.mechanisms"),
    ("channel_max", "limits.channels_per_connection"),
    ("channel_max_per_node", "limits.channels"),
    ("cluster_name", "cluster.name"),
    ("cluster_queue_limit", "limits.queues"),
    ("connection_max", "limits.connections"),
    ("consumer_max_per_channel", "limits.consumers_per_channel"),
    ("disk_free_limit.absolute", "disk.free_limit"),
    ("frame_max", "limits.frame_size"),
    ("initial_frame_max", "limits.initial_frame_size"),
    ("listeners.ssl.default", "listeners.amqps"),
    ("listeners.tcp.default", "listeners.amqp"),
    ("log.console.formatter", "log.format"),
    ("log.console.level", "log.level"),
    ("management.tcp.port", "listeners.http"),
    ("max_message_size", "limits.message_size"),
    ("nodename", "node.name"),
    ("prometheus.tcp.port", "listeners.metrics"),
    ("ssl_cert_login_from", "tls.login_from"),
    ("ssl_options.cacertfile", "tls.ca"),
    ("ssl_options.certfile", "tls.certificate"),
    ("ssl_options.keyfile", "tls.key"),
    ("ssl_options.verify", "tls.verify"),
    ("vm_memory_high_watermark.absolute", "memory.limit"),
    ("vm_memory_high_watermark.relative", "memory.limit"),
];

/// The key of this name.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The environment variable that sets a key: `LEVERET_`, upper case, two underscores for each dot.
pub fn variable(key: &Key) -> String {
    format!("LEVERET_{}", key.name.replace('.', "__").to_ascii_uppercase())
}

/// The known name that is most like `name`, if any is like it at all.
pub fn nearest(name: &str) -> Option<&'static str> {
    if let Some((_, ours)) = RABBITMQ_NAMES.iter().find(|(theirs, _)| *theirs == name) {
        return Some(ours);
    }
    // The last part alone is often right while its table is not: "frame_size" for "limits.frame_size".
    let last = |name: &str| name.rsplit('.').next().map(str::to_owned);
    KEYS.iter()
        .map(|key| {
            let whole = distance(name, key.name);
            let part = if last(name) == last(key.name) { 2 } else { usize::MAX };
            (whole.min(part), key.name)
        })
        .min()
        .filter(|(far, _)| *far <= 2.max(name.len() / 3))
        .map(|(_, known)| known)
}

/// Edits (insert, delete, replace one character) that turn one name into the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, left) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, right) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(left != *right);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}
