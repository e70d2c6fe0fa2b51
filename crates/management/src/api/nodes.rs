//! `/nodes`, `/cluster-name`.

use std::collections::BTreeMap;

use metadata::command::Command;
use metadata::objects::parameter::GlobalParameter;
use serde_json::{Map, Value, json};

use super::call::Call;
use crate::clock::now_ms;
use crate::http::answer::Answer;
use crate::http::failure::{Failure, Outcome};
use crate::http::list;
use crate::inquiry::Wanted;
use crate::node::Node;
use crate::sampler::{Rates, details};
use crate::version;
use crate::view::node::{Listener, NodeStats, OtherNode};

/// `GET /nodes`.
pub(super) async fn list<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    call.monitor()?;
    let answered = sights(call).await;
    let mut nodes: Vec<Value> = answered.values().map(|node| show(node, &call.rates)).collect();
    let silent = call.node.other_nodes();
    let silent = silent.iter().filter(|other| !answered.contains_key(&other.name));
    nodes.extend(silent.map(show_silent));
    nodes.sort_by(|one, other| one["name"].as_str().cmp(&other["name"].as_str()));
    list::respond(nodes, &call.query)
}

/// `GET /nodes/NODE`.
pub(super) async fn get<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    call.monitor()?;
    let item = match named(call, name).await? {
        Named::Answers(stats) => show(&stats, &call.rates),
        Named::Silent(other) => show_silent(&other),
    };
    Ok(list::one(item, &call.query))
}

/// `GET /nodes/NODE/memory`, `.../memory/relative`.
pub(super) async fn memory<N: Node>(
    call: &Call<'_, N>,
    name: &str,
    relative: bool,
) -> Outcome<Answer> {
    call.monitor()?;
    let Named::Answers(stats) = named(call, name).await? else {
        return Ok(list::one(json!({ "memory": "not_available" }), &call.query));
    };
    let is_own = call.node.stats().name == name;
    let wanted = if is_own { Wanted::QUEUES.here() } else { Wanted::QUEUES };
    let queues = call.node.census(wanted).await.queues;
    let its = || queues.values().filter(|queue| queue.place.node == name);
    let queue_procs: u64 = its().map(|queue| queue.stats.memory).sum();
    let bodies: u64 = its().map(|queue| queue.stats.in_memory_bytes).sum();
    let total = stats.memory_used;
    let queue_procs = queue_procs.min(total);
    let bodies = bodies.min(total - queue_procs);
    let mut parts = Map::new();
    // Tools require every key; what does not exist here is 0.
    for key in [
        "connection_readers",
        "connection_writers",
        "connection_channels",
        "connection_other",
        "quorum_queue_procs",
        "quorum_queue_dlx_procs",
        "stream_queue_procs",
        "stream_queue_replica_reader_procs",
        "stream_queue_coordinator_procs",
        "plugins",
        "metadata_store",
        "other_proc",
        "metrics",
        "mgmt_db",
        "mnesia",
        "quorum_ets",
        "metadata_store_ets",
        "other_ets",
        "msg_index",
        "code",
        "atom",
        "allocated_unused",
        "reserved_unallocated",
    ] {
        parts.insert(key.to_owned(), json!(0));
    }
    let known = [
        ("queue_procs", queue_procs),
        ("binary", bodies),
        ("other_system", total - queue_procs - bodies),
    ];
    for (key, bytes) in known {
        let value = if relative { percent(bytes, total) } else { bytes };
        parts.insert(key.to_owned(), json!(value));
    }
    if !relative {
        parts.insert("strategy".to_owned(), json!("rss"));
    }
    let total = if relative { 100 } else { total };
    parts.insert(
        "total".to_owned(),
        if relative {
            json!(total)
        } else {
            json!({"rss": total, "allocated": total, "erlang": total})
        },
    );
    Ok(list::one(json!({ "memory": parts }), &call.query))
}

fn percent(part: u64, total: u64) -> u64 {
    part.saturating_mul(100).checked_div(total).unwrap_or(0)
}

/// `GET /cluster-name`.
pub(super) fn cluster_name<N: Node>(call: &Call<'_, N>) -> Answer {
    Answer::Json(json!({"name": call.node.stats().cluster_name}))
}

/// `PUT /cluster-name`.
pub(super) async fn rename_cluster<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    call.administrator()?;
    let value = Value::from(call.body.text("name")?);
    let command =
        Command::PutGlobalParameter(GlobalParameter { name: "cluster_name".into(), value });
    call.node.submit(command, call.by()).await?;
    Ok(Answer::Done)
}

/// `GET /auth/attempts/NODE`.
pub(super) fn auth_attempts<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    call.monitor()?;
    if call.node.stats().name != name {
        return Err(Failure::not_found());
    }
    let auth = call.node.counters().auth;
    Ok(Answer::Json(json!([{
        "protocol": "amqp091",
        "auth_attempts": auth.succeeded + auth.failed,
        "auth_attempts_failed": auth.failed,
        "auth_attempts_succeeded": auth.succeeded,
    }])))
}

/// A node that is asked about.
enum Named {
    Answers(Box<NodeStats>),
    Silent(OtherNode),
}

async fn named<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Named> {
    let own = call.node.stats();
    if own.name == name {
        return Ok(Named::Answers(Box::new(own)));
    }
    let other = call.node.other_nodes().into_iter().find(|other| other.name == name);
    let other = other.ok_or_else(Failure::not_found)?;
    Ok(match sights(call).await.remove(name) {
        Some(stats) => Named::Answers(Box::new(stats)),
        None => Named::Silent(other),
    })
}

/// What the nodes that answer say of themselves, by name.
async fn sights<N: Node>(call: &Call<'_, N>) -> BTreeMap<String, NodeStats> {
    let nodes = call.node.census(Wanted::NODES).await.nodes;
    nodes.into_iter().filter_map(|(name, sight)| Some((name, sight.stats?))).collect()
}

/// The listeners of nodes.
pub(super) fn listeners(nodes: &[&NodeStats]) -> Value {
    let show = |(stats, listener): (&NodeStats, &Listener)| {
        json!({
            "node": stats.name,
            "protocol": listener.protocol,
            "ip_address": listener.address,
            "port": listener.port,
            "socket_opts": {"backlog": 128, "nodelay": true},
            "tls": listener.protocol.ends_with("/ssl") || listener.protocol == "https",
        })
    };
    each_listener(nodes).map(show).collect()
}

fn each_listener<'a>(
    nodes: &'a [&NodeStats],
) -> impl Iterator<Item = (&'a NodeStats, &'a Listener)> {
    nodes.iter().flat_map(|stats| stats.listeners.iter().map(|listener| (*stats, listener)))
}

/// The HTTP services of nodes.
pub(super) fn contexts(nodes: &[&NodeStats], with_node: bool) -> Value {
    let show = |(stats, listener): (&NodeStats, &Listener)| {
        let description = match listener.protocol.as_str() {
            "http" => "RabbitMQ Management",
            "http/prometheus" => "RabbitMQ Prometheus",
            _ => return None,
        };
        let mut context = json!({
            "description": description,
            "path": "/",
            "port": listener.port.to_string(),
            "ip": listener.address,
            "cowboy_opts": "[]",
            "ssl_opts": [],
        });
        if with_node {
            context["node"] = json!(stats.name);
        }
        Some(context)
    };
    each_listener(nodes).filter_map(show).collect()
}

/// The exchange types of the node.
pub(super) fn exchange_types(stats: &NodeStats) -> Value {
    let show = |name: &String| json!({"name": name, "description": format!("AMQP exchange type {name}"), "enabled": true});
    stats.exchange_types.iter().map(show).collect()
}

/// A number of the node by name.
type Number = (&'static str, fn(&NodeStats) -> u64);

/// The numbers that have a rate.
const NUMBERS: [Number; 9] = [
    ("mem_used", |node| node.memory_used),
    ("fd_used", |node| node.fd_used),
    ("sockets_used", |node| node.sockets_used),
    ("disk_free", |node| node.disk_free),
    ("io_write_count", |node| node.journal.writes),
    ("io_write_bytes", |node| node.journal.written_bytes),
    ("io_read_count", |node| node.journal.reads),
    ("io_read_bytes", |node| node.journal.read_bytes),
    ("io_sync_count", |node| node.journal.syncs),
];

/// A node that does not answer: what only it knows itself is 0.
fn show_silent(other: &OtherNode) -> Value {
    let stats =
        NodeStats { name: other.name.clone(), started_at_ms: now_ms(), ..NodeStats::default() };
    let mut item = show(&stats, &Rates::default());
    item["running"] = json!(other.running);
    item["os_pid"] = json!("");
    if let Some(error) = &other.error {
        item["link_error"] = json!(error);
    }
    item
}

fn show(stats: &NodeStats, rates: &Rates) -> Value {
    let data_dir = stats.data_dir.to_string_lossy();
    let config_files: Vec<_> =
        stats.config_files.iter().map(|file| file.to_string_lossy()).collect();
    let mechanisms: Vec<Value> = stats
        .auth_mechanisms
        .iter()
        .map(|name| json!({"name": name, "description": format!("SASL {name}"), "enabled": true}))
        .collect();
    let mut item = json!({
        "name": stats.name,
        "type": "disc",
        "running": true,
        "being_drained": stats.draining,
        "os_pid": stats.process.to_string(),
        "uptime": now_ms().saturating_sub(stats.started_at_ms),
        "run_queue": 0,
        "processors": stats.processors,
        "fd_total": stats.fd_total,
        "sockets_total": stats.connection_limit.unwrap_or(stats.fd_total),
        "proc_used": 0,
        "proc_total": 1_048_576,
        "mem_limit": stats.memory_limit,
        "mem_alarm": stats.memory_alarm,
        "mem_calculation_strategy": "rss",
        "disk_free_limit": stats.disk_free_limit,
        "disk_free_alarm": stats.disk_alarm,
        "rates_mode": "basic",
        "net_ticktime": 60,
        "partitions": [],
        "cluster_links": [],
        "log_files": stats.log_files,
        "config_files": config_files,
        "db_dir": data_dir,
        "enabled_plugins": ["rabbitmq_management", "rabbitmq_prometheus"],
        "exchange_types": exchange_types(stats),
        "auth_mechanisms": mechanisms,
        "applications": [{
            "name": "leveret", "description": version::PRODUCT, "version": version::OWN,
        }],
        "contexts": contexts(&[stats], false),
        "ra_open_file_metrics": {},
        "metrics_gc_queue_length": {},
    });
    let journal = &stats.journal;
    let counts = json!({
        "rabbitmq_version": version::COMPATIBLE,
        "erlang_version": version::ERLANG,
        "erlang_full_version": version::ERLANG_FULL,
        "crypto_lib_version": version::CRYPTO,
        "product_name": version::PRODUCT,
        "product_version": version::OWN,
        "io_sync_avg_time": milliseconds(journal.sync_micros, journal.syncs),
        "gc_num": 0,
        "gc_bytes_reclaimed": 0,
        "context_switches": 0,
    });
    if let (Value::Object(item), Value::Object(counts)) = (&mut item, counts) {
        item.extend(counts);
        for (name, value) in NUMBERS {
            let rate =
                rates.change(|sample| Some(value(sample.nodes.get(&stats.name)?.stats.as_ref()?)));
            item.insert(name.to_owned(), json!(value(stats)));
            item.insert(format!("{name}_details"), details(rate));
        }
    }
    item
}

#[expect(clippy::cast_precision_loss, reason = "a mean is shown with a few digits")]
fn milliseconds(micros: u64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { micros as f64 / count as f64 / 1000.0 }
}
