//! Health checks: 200 `{"status":"ok"}`, or 503 `{"status":"failed","reason":...}`.

use std::sync::Arc;

use axum::http::StatusCode;
use metadata::objects::member::Stage;
use metadata::objects::queue::{Queue, QueueKind};
use regex::RegexBuilder;
use serde_json::{Value, json};

use super::call::Call;
use super::resource::Resource;
use crate::clock::now_ms;
use crate::http::answer::Answer;
use crate::http::failure::{Failure, Outcome};
use crate::inquiry::Wanted;
use crate::journals::{Seat, Service, Sight};
use crate::node::Node;
use crate::version;
use crate::view::node::{NodeStats, OtherNode};
use crate::view::raft::RaftRole;

/// Checks for everybody: probes carry no credentials.
pub(super) fn open<N: Node>(node: &N, resource: &Resource) -> Outcome<Answer> {
    let path = match resource {
        Resource::Version => return Ok(Answer::Json(Value::from(version::COMPATIBLE))),
        Resource::Auth => return Ok(Answer::Json(json!({"oauth_enabled": false}))),
        Resource::Health(path) => path,
        _ => return Err(Failure::not_found()),
    };
    let stats = node.stats();
    match path.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["is-in-service"] => Ok(if stats.serving && !stats.draining {
            ok(json!({}))
        } else {
            failed("this rabbit is not in service", json!({}))
        }),
        ["ready-to-serve-clients"] => Ok(ready(&stats)),
        ["below-node-connection-limit"] => Ok(below_limit(&stats)),
        ["reached-target-cluster-size"] => Ok(cluster_size(node)),
        _ => Err(Failure::not_found()),
    }
}

/// `GET /health/checks/...` with credentials.
pub(super) async fn check<N: Node>(call: &Call<'_, N>, path: &[String]) -> Outcome<Answer> {
    let stats = call.node.stats();
    Ok(match path.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["alarms"] => {
            let others = call.node.other_nodes();
            alarms(&stats, &others, "There are alarms in effect in the cluster")
        }
        ["local-alarms"] => alarms(&stats, &[], "There are alarms in effect on the node"),
        ["port-listener", port] => port_listener(&stats, port)?,
        ["protocol-listener", protocols] => protocol_listener(&stats, protocols),
        ["certificate-expiration", within, unit] => certificates(&stats, within, unit)?,
        ["virtual-hosts"] => ok(json!({})),
        ["node-is-quorum-critical"] => quorum_critical(call).await,
        ["new-quorum-queue-replicas-have-finished-initial-sync"] => initial_sync(call),
        ["quorum-queues-without-ghost-members"] => ghosts(call).await,
        ["quorum-queues-without-elected-leaders", rest @ ..] => leaderless(call, rest).await?,
        ["journals-are-served"] => journals(call, false).await,
        ["journals-are-in-sync"] => journals(call, true).await,
        ["metadata-store", "initialized"] | ["metadata-store", "initialized", "with-data"] => {
            if stats.serving {
                ok(json!({}))
            } else {
                failed("Metadata store has not yet been initialized", json!({}))
            }
        }
        _ => return Err(Failure::not_found()),
    })
}

/// How many nodes run, this one included, and how many there are.
fn running<N: Node>(node: &N) -> (usize, usize) {
    let others = node.other_nodes();
    (1 + others.iter().filter(|other| other.running).count(), 1 + others.len())
}

fn cluster_size<N: Node>(node: &N) -> Answer {
    let (online, target) = running(node);
    let counts = json!({"online": online, "target": target});
    if online < target {
        failed("not all nodes of the cluster are online", counts)
    } else {
        ok(counts)
    }
}

/// Whether the others could go on without this node: with the topology, and with each quorum queue
/// that it has a member of.
async fn quorum_critical<N: Node>(call: &Call<'_, N>) -> Answer {
    if call.node.other_nodes().is_empty() {
        return ok(json!({"reason": "single node cluster"}));
    }
    let stats = call.node.stats();
    if stats.draining {
        return ok(json!({"reason": "the node is in maintenance mode"}));
    }
    let own = stats.name;
    let census = call.node.census(Wanted::QUEUES).await;
    let critical = |queue: &Queue| {
        census.queues.get(&queue.id).is_some_and(|sight| {
            let (voters, voting) = sight.place.votes;
            sight.place.online.contains(&own) && voting <= voters / 2 + 1
        })
    };
    let queues: Vec<Value> = call
        .state
        .all_queues()
        .filter(|queue| queue.kind == QueueKind::Quorum && critical(queue))
        .map(|queue| name(queue))
        .collect();
    if !queues.is_empty() {
        return failed(
            "There are quorum queues that would lose their quorum if the target node is shut down",
            json!({ "queues": queues }),
        );
    }
    let journals = critical_journals(call, &own).await;
    if !journals.is_empty() {
        return failed(
            "There are journals that nobody could serve if the target node is shut down",
            json!({ "queues": [], "journals": journals }),
        );
    }
    let topology = call.node.topology_votes();
    if !topology.own || topology.running - 1 > topology.voters / 2 {
        return ok(json!({}));
    }
    failed(
        "without this node there is no majority for changes of the topology",
        json!({"queues": []}),
    )
}

/// Whether all named journals are served, and by two copies that are the same if that is asked; for
/// each that is not, who may start, and why the others wait. It does not wait for a majority.
async fn journals<N: Node>(call: &Call<'_, N>, in_sync: bool) -> Answer {
    let names = call.node.names();
    let told = call.node.all_journal_copies().await;
    let mut ailing = Vec::new();
    for journal in call.state.journals() {
        let sight = Sight::new(&call.state, &names, &told, journal);
        let is_well = match sight.service() {
            Service::Whole => true,
            Service::Alone => !in_sync,
            Service::Starting | Service::Down => false,
        };
        if is_well {
            continue;
        }
        let may_start = sight.seats.iter().filter(|seat| sight.may_start(seat));
        let wait = |seat: &Seat| Some(json!({"node": seat.name, "reason": sight.wait(seat)?}));
        ailing.push(json!({
            "name": &*journal.name,
            "summary": sight.advice(),
            "active": sight.serving().map(|seat| &seat.name),
            "may_start": may_start.map(|seat| &seat.name).collect::<Vec<_>>(),
            "waiting": sight.seats.iter().filter_map(wait).collect::<Vec<_>>(),
        }));
    }
    if ailing.is_empty() {
        return ok(json!({}));
    }
    let reason = if in_sync {
        "There are journals that are not on two nodes in sync"
    } else {
        "There are journals that nobody serves"
    };
    failed(reason, json!({ "journals": ailing }))
}

/// Journals on two nodes of which this one alone has a copy that may be served.
async fn critical_journals<N: Node>(call: &Call<'_, N>, own: &str) -> Vec<Value> {
    let paired = || call.state.journals().filter(|journal| journal.paired && journal.backup.0 != 0);
    if paired().next().is_none() {
        return Vec::new();
    }
    let names = call.node.names();
    let told = call.node.all_journal_copies().await;
    let critical = paired().filter(|journal| {
        let sight = Sight::new(&call.state, &names, &told, journal);
        let may = |is_own: bool| {
            sight.seats.iter().any(|seat| (seat.name == own) == is_own && sight.may_start(seat))
        };
        may(true) && !may(false)
    });
    let summary = "no other node that runs has a copy that may be served";
    critical.map(|journal| json!({"name": &*journal.name, "summary": summary})).collect()
}

/// Whether members of this node still get the log: they have no vote yet.
fn initial_sync<N: Node>(call: &Call<'_, N>) -> Answer {
    let members = call.node.raft_members().into_iter();
    let learning = members.filter(|member| member.role == RaftRole::Learner);
    let queues: Vec<Value> = learning
        .filter_map(|member| call.state.queue_by_id(member.queue))
        .map(|queue| name(queue))
        .collect();
    if queues.is_empty() {
        return ok(json!({}));
    }
    failed(
        "There are new quorum queue replicas on this node that have not finished initial sync",
        json!({ "queues": queues }),
    )
}

/// Whether every member of every quorum queue can run: its node is one of the cluster, and does not
/// say that it has lost the member's data.
async fn ghosts<N: Node>(call: &Call<'_, N>) -> Answer {
    let lost = call.node.lost_members().await;
    let is_gone = |node| call.state.node(node).is_none_or(|node| node.lost);
    let mut queues = Vec::new();
    for queue in call.state.all_queues().filter(|queue| queue.kind == QueueKind::Quorum) {
        // A node on its own is not recorded.
        let is_haunted = call.state.nodes().next().is_some() && queue.nodes().any(is_gone);
        let is_lost = queue.members.iter().any(|member| member.stage == Stage::Lost);
        if is_haunted || is_lost || lost.contains(&queue.id) {
            queues.push(name(queue));
        }
    }
    if queues.is_empty() {
        return ok(json!({}));
    }
    failed(
        "There are quorum queues with members whose nodes were forgotten or have lost their data",
        json!({ "queues": queues }),
    )
}

/// `GET .../quorum-queues-without-elected-leaders/all-vhosts/[pattern/PATTERN]`, or
/// `.../vhost/VHOST/[pattern/PATTERN]`.
async fn leaderless<N: Node>(call: &Call<'_, N>, path: &[&str]) -> Outcome<Answer> {
    let (vhost, pattern) = match path {
        ["all-vhosts"] => (None, ".*"),
        ["all-vhosts", pattern] | ["all-vhosts", "pattern", pattern] => (None, *pattern),
        ["vhost", vhost] => (Some(*vhost), ".*"),
        ["vhost", vhost, pattern] | ["vhost", vhost, "pattern", pattern] => {
            (Some(*vhost), *pattern)
        }
        _ => return Err(Failure::not_found()),
    };
    if let Some(vhost) = vhost {
        call.exists(vhost)?;
    }
    let pattern = RegexBuilder::new(pattern)
        .size_limit(1 << 20)
        .build()
        .map_err(|error| Failure::bad_request(format!("invalid pattern: {error}")))?;
    let wanted = |queue: &&Arc<Queue>| {
        queue.kind == QueueKind::Quorum
            && vhost.is_none_or(|vhost| *queue.vhost == *vhost)
            && call.sees(&queue.vhost)
            && pattern.is_match(&queue.name)
    };
    if !call.state.all_queues().any(|queue| wanted(&queue)) {
        return Ok(ok(json!({})));
    }
    let census = call.node.census(Wanted::QUEUES).await;
    let is_led =
        |queue: &Queue| census.queues.get(&queue.id).is_none_or(|sight| sight.place.is_led);
    let queues: Vec<Value> = call
        .state
        .all_queues()
        .filter(|queue| wanted(queue) && !is_led(queue))
        .map(|queue| name(queue))
        .collect();
    Ok(if queues.is_empty() {
        ok(json!({}))
    } else {
        failed("Detected quorum queues without an elected leader", json!({ "queues": queues }))
    })
}

/// A queue as health checks name it.
fn name(queue: &Queue) -> Value {
    json!({
        "readable_name": format!("queue '{}' in vhost '{}'", queue.name, queue.vhost),
        "name": &*queue.name,
        "virtual_host": &*queue.vhost,
        "type": queue.kind.as_str(),
    })
}

/// `GET /aliveness-test/VHOST`: as in RabbitMQ 4, only whether the virtual host is there.
pub(super) fn aliveness<N: Node>(call: &Call<'_, N>, vhost: &str) -> Outcome<Answer> {
    call.visible(vhost)?;
    Ok(ok(json!({})))
}

/// `GET /healthchecks/node`: what older tools ask.
pub(super) fn old<N: Node>(call: &Call<'_, N>) -> Answer {
    let stats = call.node.stats();
    if stats.memory_alarm || stats.disk_alarm {
        return Answer::Json(json!({
            "status": "failed", "reason": "resource alarm(s) in effect",
        }));
    }
    Answer::Json(json!({"status": "ok"}))
}

fn ok(mut extra: Value) -> Answer {
    extra["status"] = json!("ok");
    Answer::Json(extra)
}

fn failed(reason: &str, mut extra: Value) -> Answer {
    extra["status"] = json!("failed");
    extra["reason"] = json!(reason);
    Answer::Status(StatusCode::SERVICE_UNAVAILABLE, extra)
}

fn alarms(stats: &NodeStats, others: &[OtherNode], reason: &str) -> Answer {
    let own = (&stats.name, stats.memory_alarm, stats.disk_alarm);
    let others = others.iter().map(|other| (&other.name, other.memory_alarm, other.disk_alarm));
    let all = [own].into_iter().chain(others).flat_map(|(node, memory, disk)| {
        [("memory", memory), ("disk", disk)].map(|(resource, on)| (node, resource, on))
    });
    let alarms: Vec<Value> = all
        .filter(|(.., on)| *on)
        .map(|(node, resource, _)| json!({"node": node, "resource": resource}))
        .collect();
    if alarms.is_empty() { ok(json!({})) } else { failed(reason, json!({ "alarms": alarms })) }
}

fn port_listener(stats: &NodeStats, port: &str) -> Outcome<Answer> {
    let port: u16 = port.parse().map_err(|_| Failure::bad_request("Invalid port"))?;
    let mut ports: Vec<u16> = stats.listeners.iter().map(|listener| listener.port).collect();
    ports.sort_unstable();
    ports.dedup();
    if ports.contains(&port) {
        return Ok(ok(json!({ "port": port })));
    }
    Ok(failed("No active listener", json!({"missing": port, "ports": ports})))
}

fn protocol_listener(stats: &NodeStats, wanted: &str) -> Answer {
    let mut protocols: Vec<&str> =
        stats.listeners.iter().map(|listener| listener.protocol.as_str()).collect();
    protocols.sort_unstable();
    protocols.dedup();
    let missing: Vec<&str> = wanted
        .split(',')
        .map(str::trim)
        .filter(|name| !protocols.contains(&protocol(name).as_str()))
        .collect();
    if missing.is_empty() {
        ok(json!({ "protocols": protocols }))
    } else {
        failed("No active listener", json!({"missing": missing, "protocols": protocols}))
    }
}

/// The name of a protocol as listeners have it.
fn protocol(alias: &str) -> String {
    let name = alias.to_ascii_lowercase();
    match name.as_str() {
        "amqp091" | "amqp0.9.1" | "amqp-0-9-1" | "amqp0-9-1" | "amqp09" => "amqp",
        "amqps" | "amqp/tls" | "amqp091/tls" => "amqp/ssl",
        "prometheus" => "http/prometheus",
        other => other,
    }
    .to_owned()
}

fn certificates(stats: &NodeStats, within: &str, unit: &str) -> Outcome<Answer> {
    let within: u64 = within
        .parse()
        .map_err(|_| Failure::bad_request(format!("Invalid expiration value: {within}")))?;
    let days = match unit.to_ascii_lowercase().as_str() {
        "d" | "day" | "days" => 1,
        "w" | "week" | "weeks" => 7,
        "m" | "month" | "months" => 30,
        "y" | "year" | "years" => 365,
        _ => {
            return Err(Failure::bad_request(
                "Time unit not recognised. Supported units: days, weeks, months, years.",
            ));
        }
    };
    let until = now_ms().saturating_add(within.saturating_mul(days).saturating_mul(86_400_000));
    let expired: Vec<Value> = stats
        .certificates
        .iter()
        .filter(|certificate| certificate.expires_at_ms <= until)
        .map(|certificate| {
            json!({
                "node": stats.name,
                "port": certificate.port,
                "cert_path": certificate.path.to_string_lossy(),
                "cert_expires_on": super::overview::date(certificate.expires_at_ms),
            })
        })
        .collect();
    Ok(if expired.is_empty() {
        ok(json!({}))
    } else {
        failed("Certificates expiring", json!({ "expired": expired }))
    })
}

fn ready(stats: &NodeStats) -> Answer {
    if !stats.serving || stats.draining {
        return failed("the node is booting or in maintenance mode", json!({}));
    }
    if !stats.listeners.iter().any(|listener| listener.protocol.starts_with("amqp")) {
        return failed("there are no active listeners for AMQP clients", json!({}));
    }
    if !is_below_limit(stats) {
        return failed("node connection limit is reached", json!({}));
    }
    ok(json!({}))
}

fn below_limit(stats: &NodeStats) -> Answer {
    let count = json!({ "connections": stats.sockets_used });
    if is_below_limit(stats) {
        ok(count)
    } else {
        failed("node connection limit is reached", count)
    }
}

fn is_below_limit(stats: &NodeStats) -> bool {
    stats.connection_limit.is_none_or(|limit| stats.sockets_used < limit)
}
