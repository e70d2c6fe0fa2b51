use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::address::Address;
use proptest::prelude::*;

use super::complaint::Complaint;
use super::keys::{KEYS, variable};
use super::value::{Kind, Raw, Unit, Value};
use super::written::{self, Written};
use super::{Config, Effective, MemoryLimit};

fn from_file(text: &str) -> Result<(Config, Effective), Vec<Complaint>> {
    let (lines, mut complaints) = written::file(PathBuf::from("node.toml"), text);
    match Config::read(lines) {
        Ok(loaded) if complaints.is_empty() => Ok(loaded),
        Ok(_) => Err(complaints),
        Err(more) => {
            complaints.extend(more);
            Err(complaints)
        }
    }
}

/// Reads a file and compares all complaints, in order.
fn check_refused(text: &str, expected: &[&str]) {
    let complaints = from_file(text).expect_err("the file is wrong");
    let complaints: Vec<String> = complaints.iter().map(ToString::to_string).collect();
    assert_eq!(complaints, expected);
}

/// The documented file, written from the table of keys.
fn documented() -> String {
    let mut text = String::from(
        "# Every key of Leveret with its default. A node needs none of this: keep what you change.\n\
         #\n\
         # Environment variables override the file and `--set KEY=VALUE` overrides both. A key's variable is\n\
         # LEVERET_ and the key in upper case with two underscores for each dot: listeners.amqp is\n\
         # LEVERET_LISTENERS__AMQP. `leveret config check --config FILE` prints what is in force and why.\n\
         #\n\
         # Sizes are bytes or text with B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (of 1024).\n\
         # Times are text with ms, s, m, h or d; what a plain number counts stands at each key.\n\
         # This file is written by `make fix` from crates/broker/src/config/keys.rs.\n",
    );
    for key in KEYS {
        text.push('\n');
        for line in key.meaning.lines() {
            writeln!(text, "# {line}").unwrap();
        }
        writeln!(text, "# Allowed: {}. Default: {}.", key.kind.allowed(), key.default).unwrap();
        writeln!(text, "{} = {}", key.name, key.default).unwrap();
    }
    text
}

#[test]
fn the_documented_file_is_current_and_means_the_defaults() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/leveret.toml");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, documented()).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text == documented(), "config/leveret.toml is not current: run `make fix`");

    let (lines, complaints) = written::file(path, &text);
    assert_eq!(complaints, []);
    let named: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
    let mut missing: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
    missing.retain(|name| !named.contains(name));
    assert!(missing.is_empty(), "keys that the file does not name: {missing:?}");
    let (config, _) = Config::read(lines).unwrap();
    assert_eq!(config, Config::default());
}

#[test]
fn defaults_are_rabbitmqs_where_it_has_them() {
    let config = Config::default();
    assert_eq!(config.listeners.amqp, Address::parse("0.0.0.0:5672"));
    assert_eq!(config.limits.channels_per_connection, 2047);
    assert_eq!(config.limits.frame_size, 131_072);
    assert_eq!(config.limits.message_size, 16 * 1024 * 1024);
    assert_eq!(config.heartbeat, Some(Duration::from_mins(1)));
    assert_eq!(config.memory.limit, MemoryLimit::Percent(60.0));
    assert_eq!(config.consumer_timeout, None);
    assert_eq!(config.cluster.name, "leveret");
    assert_eq!(config.auth.loopback_users, ["guest"]);
}

#[test]
fn key_names_are_unique_and_map_to_unique_variables() {
    let mut variables: Vec<String> = KEYS.iter().map(variable).collect();
    variables.sort_unstable();
    let count = variables.len();
    variables.dedup();
    assert_eq!(variables.len(), count);
    assert!(KEYS.iter().all(|key| !key.name.contains("__")));
}

#[test]
fn later_sources_override_earlier_ones_and_say_so() {
    let (mut lines, _) = written::file(
        PathBuf::from("node.toml"),
        "heartbeat = 10\nlimits.queues = 5\n\n[listeners]\namqp = \"127.0.0.1:1\"\n",
    );
    let environment = [
        ("LEVERET_LISTENERS__AMQP", "127.0.0.1:2"),
        ("LEVERET_HEARTBEAT", "20"),
        ("LEVERET_LOOPBACK_USERS", ""),
        ("LEVERET_CONFIG", "node.toml"),
        ("LEVERET_SERVICE_HOST", "10.0.0.1"),
        ("LEVERET_PORT_5672_TCP_ADDR", "10.0.0.1"),
        ("LEVERET_PORT", "tcp://10.0.0.1:5672"),
        ("LEVERET_BIN", "/opt/leveret"),
        ("HOME", "/"),
    ];
    lines.extend(written::environment(
        environment.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())),
    ));
    let (more, complaints) = written::command_line(&[
        "listeners.amqp = \"[::1]:3\"".to_owned(),
        "auth.mechanisms=PLAIN, EXTERNAL".to_owned(),
    ]);
    lines.extend(more);
    assert_eq!(complaints, []);

    let (config, effective) = Config::read(lines).unwrap();
    assert_eq!(config.listeners.amqp, Some(Address { host: "::1".to_owned(), port: 3 }));
    assert_eq!(config.heartbeat, Some(Duration::from_secs(20)));
    assert_eq!(config.limits.queues, Some(5));
    assert!(config.auth.loopback_users.is_empty());
    let shown = effective.to_string();
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap();
    let words = |name: &str| line(name).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words("listeners.amqp "), "listeners.amqp = \"[::1]:3\" # command line");
    assert_eq!(words("heartbeat"), "heartbeat = \"20s\" # environment LEVERET_HEARTBEAT");
    assert_eq!(words("limits.queues"), "limits.queues = 5 # node.toml:2");
    assert_eq!(words("data_dir"), "data_dir = \"data\" # default");
}

#[test]
fn every_mistake_is_reported_at_once_with_its_line() {
    check_refused(
        "listners.amqp = \"127.0.0.1:5672\"\n\
         heartbeat = -1\n\
         frame_max = 4096\n\
         [limits]\n\
         message_size = \"1PB\"\n\
         frame_size = 4095\n\
         [journal]\n\
         write_delay = \"2\u{b5}s\"\n\
         quite_something_else = 1\n",
        &[
            "node.toml:1: unknown key listners.amqp; did you mean listeners.amqp?",
            "node.toml:2: heartbeat: -1 is not a time from 1s to 65535s (a plain number counts seconds), or \
             \"none\"",
            "node.toml:3: unknown key frame_max; did you mean limits.frame_size?",
            "node.toml:5: limits.message_size: \"1PB\" is not bytes from 1B to 512MiB",
            "node.toml:6: limits.frame_size: 4095 is not bytes from 4KiB to 16MiB",
            "node.toml:8: journal.write_delay: \"2\u{b5}s\" is not a time from 0ms to 1s (a plain number counts \
             milliseconds)",
            "node.toml:9: unknown key journal.quite_something_else; config/leveret.toml lists all keys",
        ],
    );
}

#[test]
fn a_misspelt_variable_is_refused() {
    for (variable, hint) in [
        ("LEVERET_LISTENERS__AMPQ", "unknown key listeners.ampq; did you mean listeners.amqp?"),
        ("LEVERET_LISTENERS_AMQP", "unknown key listeners_amqp; did you mean listeners.amqp?"),
        ("LEVERET_DATADIR", "unknown key datadir; did you mean data_dir?"),
        ("LEVERET_SOME__THING", "unknown key some.thing; config/leveret.toml lists all keys"),
    ] {
        let lines = written::environment([(variable.to_owned(), String::new())].into_iter());
        let complaints = Config::read(lines).expect_err(variable);
        assert_eq!(complaints[0].to_string(), format!("environment {variable}: {hint}"));
    }
}

#[test]
fn a_syntax_error_names_its_line_and_hides_no_other_complaint() {
    check_refused(
        "data_dir = \nheartbeat = \"soon\"\n",
        &[
            "node.toml:1: not TOML: string values must be quoted, expected literal string",
            "node.toml:2: heartbeat: \"soon\" is not a time from 1s to 65535s (a plain number counts \
             seconds), or \"none\"",
        ],
    );
}

#[test]
fn keys_that_do_not_fit_together_are_refused() {
    check_refused(
        "node.name = \"a\"\ncluster.peers = [\"b@10.0.0.1:1\"]\n",
        &["default: cluster.secret: needs 16 characters or more with cluster.peers"],
    );
    check_refused(
        "cluster.peers = [\"leveret\"]\nnode.name = \"leveret\"\n",
        &["node.toml:1: cluster.peers: \"leveret\" is not \"NAME@ADDRESS:PORT\""],
    );
    check_refused(
        "cluster.tls.key = \"k\"\n",
        &["node.toml:1: cluster.tls.key: needs cluster.tls.certificate and cluster.tls.ca too"],
    );
    check_refused(
        "listeners.amqps = \"0.0.0.0:5671\"\ntls.verify = \"required\"\n",
        &[
            "node.toml:1: listeners.amqps: needs tls.certificate and tls.key",
            "node.toml:2: tls.verify: needs tls.ca",
        ],
    );
    check_refused(
        "listeners.http = \"0.0.0.0:5672\"\n",
        &["node.toml:1: listeners.http: 0.0.0.0:5672 is taken by listeners.amqp"],
    );
    check_refused(
        "journal.write_delay = 30\n",
        &["node.toml:1: journal.write_delay: 30ms exceeds journal.sync_delay 20ms"],
    );
    check_refused(
        "log.level = \"inf\"\n",
        &[
            "node.toml:1: log.level: \"inf\" is no filter: \"inf\" is none of off, error, warn, info, debug, trace",
        ],
    );
    let (alone, _) = from_file("cluster.peers = [\"leveret@10.0.0.1:25672\"]").unwrap();
    assert_eq!(alone.cluster.peers, []);
    let (together, effective) = from_file(
        "node.name = \"a\"\ncluster.name = \"c\"\ncluster.secret = \"0123456789abcdef\"\n\
         cluster.peers = [\"a@10.0.0.1:25672\", \"b@10.0.0.2:25672\"]",
    )
    .unwrap();
    let [peer] = &together.cluster.peers[..] else { panic!("{:?}", together.cluster) };
    assert_eq!((peer.name.as_str(), peer.address.port), ("b", 25672));
    for shown in [format!("{together:?}"), effective.to_string()] {
        assert!(!shown.contains("0123456789abcdef"), "the secret is shown");
    }
    // A default follows the key that bounds it.
    assert!(from_file("limits.frame_size = 4096").unwrap().0.limits.initial_frame_size == 4096);
    let (config, _) = from_file("journal.sync_delay = 0").unwrap();
    assert_eq!(config.journal.write_delay, Duration::ZERO);
}

#[test]
fn secrets_are_not_shown() {
    let (_, effective) = from_file("default_pass = \"hunter2\"").unwrap();
    assert!(!effective.to_string().contains("hunter2"));
    check_refused("default_pass = 5", &["node.toml:1: default_pass: the value is not text"]);
    assert!(!format!("{:?}", Config::default()).contains("password"));
}

#[test]
fn how_quorum_queues_are_kept_whole() {
    let (config, effective) = from_file(
        "[quorum_queue.continuous_membership_reconciliation]\n\
         enabled = true\ninterval = 5000\ntrigger_interval = \"100ms\"\ntarget_group_size = 5\n",
    )
    .unwrap();
    let found = config.quorum_queues.reconciliation;
    assert!(found.enabled && !found.auto_remove);
    assert_eq!((found.interval.as_millis(), found.trigger_interval.as_millis()), (5000, 100));
    assert_eq!((found.target_group_size, found.concurrency), (5, 2));
    let shown = effective.to_string();
    assert!(shown.contains("continuous_membership_reconciliation.enabled = true "), "{shown}");
    let prefix = "quorum_queue.continuous_membership_reconciliation";
    for (line, complaint) in [
        ("interval = 999", "999 is not a time from 1s to 24h (a plain number counts milliseconds)"),
        (
            "trigger_interval = 0",
            "0 is not a time from 100ms to 24h (a plain number counts milliseconds)",
        ),
        (
            "trigger_interval = \"2h\"",
            "2h is more than quorum_queue.continuous_membership_reconciliation.interval, 60m",
        ),
        ("target_group_size = -1", "-1 is not a whole number from 0 to 255"),
        ("enabled = \"perhaps\"", "\"perhaps\" is not true or false"),
        ("concurrency = 0", "0 is not a whole number from 1 to 1024"),
    ] {
        let key = line.split(' ').next().unwrap();
        check_refused(
            &format!("{prefix}.{line}"),
            &[&format!("node.toml:1: {prefix}.{key}: {complaint}")],
        );
    }
}

/// Compares what a text is read as, by its display.
fn check_read(kind: Kind, text: &str, expected: Option<&str>) {
    let shown = kind.read(&Raw::Text(text.to_owned())).map(|value| value.to_string());
    assert_eq!(shown.as_deref(), expected, "{text}");
}

#[test]
fn sizes_times_and_addresses() {
    let size = Kind::Size { min: 0, max: u64::MAX, percent: true };
    check_read(size, "2GB", Some("\"2GB\""));
    check_read(size, "2GiB", Some("\"2GiB\""));
    check_read(size, "64 mib", Some("\"64MiB\""));
    check_read(size, "12.5%", Some("\"12.5%\""));
    check_read(size, "101%", None);
    check_read(size, "0%", None);
    check_read(size, "NaN%", None);
    check_read(size, "99999999999999999999", None);
    check_read(size, "18446744073709551615TiB", None);

    let (min, max) = (Duration::ZERO, Duration::MAX);
    let span = Kind::Span { unit: Unit::Milliseconds, min, max, none: true };
    check_read(span, "1500", Some("\"1500ms\""));
    check_read(span, "90s", Some("\"90s\""));
    check_read(span, "2 h", Some("\"2h\""));
    check_read(span, "0", Some("\"none\""));
    check_read(span, "1.5h", None);
    check_read(span, "1w", None);

    check_read(Kind::Address, "localhost:0", Some("\"localhost:0\""));
    check_read(Kind::Address, "[::]:5672", Some("\"[::]:5672\""));
    check_read(Kind::Address, "", Some("\"none\""));
    for wrong in ["5672", ":5672", "::1:5672", "[::1:5672", "a:65536", "a:-1", "a:+1", "a b:1"] {
        check_read(Kind::Address, wrong, None);
    }
}

fn any_kind() -> impl Strategy<Value = Kind> {
    (0..KEYS.len()).prop_map(|index| KEYS[index].kind)
}

proptest! {
    /// What is shown can be written into a file and means the same.
    #[test]
    fn display_reads_back(kind in any_kind(), text in "[0-9]{1,9}(ms|s|m|h|d|B|kB|KiB|MiB|GB|%)?|[a-z]{1,9}:[0-9]{1,5}|[ -~]{0,12}") {
        if let Some(value) = kind.read(&Raw::Text(text)) {
            let (lines, complaints) = written::file(PathBuf::new(), &format!("key = {value}"));
            prop_assert!(complaints.is_empty());
            let again = kind.read(&lines[0].raw);
            // 100.5 % survives the way through text; so do all others.
            prop_assert_eq!(again, Some(value));
        }
    }

    /// No text makes the reader panic, and every complaint has a line within the text.
    #[test]
    fn any_text_is_read_or_refused(text in "([a-z_.]{1,12} ?= ?[-0-9a-z\"\\[\\]{}',.]{0,12}\n|.{0,20}\n){0,8}") {
        let last = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
        if let Err(complaints) = from_file(&text) {
            for complaint in complaints {
                let shown = complaint.origin.to_string();
                let line: usize = shown.rsplit(':').next().unwrap().parse().unwrap();
                prop_assert!((1..=last).contains(&line));
            }
        }
    }
}

#[test]
fn a_value_may_be_given_as_text_or_as_toml_outside_a_file() {
    let read = |argument: &str| {
        let (lines, _) = written::command_line(&[argument.to_owned()]);
        let Written { name, raw, .. } = lines[0].clone();
        let kind = KEYS.iter().find(|key| key.name == name).unwrap().kind;
        kind.read(&raw)
    };
    let list = Some(Value::List(vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(read("loopback_users=a,b"), list);
    assert_eq!(read("loopback_users=[\"a\", \"b\"]"), list);
    assert_eq!(read("limits.queues=1000"), Some(Value::Count(Some(1000))));
    assert_eq!(read("default_pass=a=b"), Some(Value::Text("a=b".to_owned())));
    assert_eq!(read("default_pass=\""), Some(Value::Text("\"".to_owned())));
}
