//! What the HTTP API and the metrics show.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use amqp::server::ConnectionStatus;
use management::view::connection::{ChannelInfo, ConnectionInfo, ConnectionState, TlsInfo};
use management::view::counters::{
    AuthCounters, ChurnCounters, DeadLetterCounters, ExchangeCounters, GlobalCounters,
    MessageCounters, MessageSizes,
};
use management::view::node::{JournalStats, Listener, NodeStats, OtherNode};
use management::view::part::ExchangePart;
use management::view::queue::{QueueState, QueueStats};

use crate::connections::Record;
use crate::limits::usage;
use crate::node::{Node, tool_name};
use crate::shard;
use crate::shard::view::QueueView;
use crate::totals::Counters;

/// How long a connection may take to describe itself; a busy one answers between two reads.
const PATIENCE: Duration = Duration::from_secs(1);
/// A queue that has done nothing for so long is idle.
const IDLE_MS: u64 = 10_000;

pub(super) fn queue_stats(view: &QueueView) -> QueueStats {
    let idle = shard::now().0.saturating_sub(view.used_at) >= IDLE_MS;
    QueueStats {
        ready: view.ready,
        unsettled: view.unsettled,
        ready_bytes: view.ready_bytes,
        unsettled_bytes: view.unsettled_bytes,
        delayed: view.delayed,
        delayed_bytes: view.delayed_bytes,
        dead: view.dead,
        dead_bytes: view.dead_bytes,
        persistent: view.persistent,
        persistent_bytes: if view.persistent > 0 {
            view.ready_bytes + view.unsettled_bytes + view.delayed_bytes + view.dead_bytes
        } else {
            0
        },
        in_memory: view.in_memory,
        in_memory_bytes: view.in_memory_bytes,
        consumers: view.consumers.len() as u64,
        consumer_capacity: if view.consumers.is_empty() || view.ready > 0 { 0.0 } else { 1.0 },
        memory: view.ready * 9 + (view.unsettled + view.delayed + view.dead) * 40 + 1024,
        idle_since_ms: idle.then_some(view.used_at),
        state: QueueState::Running,
        counters: message_counters(&view.counters, view.counters.enqueued),
        ..QueueStats::default()
    }
}

fn message_counters(counters: &Counters, publish: u64) -> MessageCounters {
    MessageCounters {
        publish,
        confirm: counters.confirmed,
        return_unroutable: counters.unroutable_returned,
        drop_unroutable: counters.unroutable_dropped,
        deliver: counters.delivered,
        deliver_no_ack: counters.delivered_no_ack,
        get: counters.got,
        get_no_ack: counters.got_no_ack,
        get_empty: counters.got_empty,
        redeliver: counters.redelivered,
        ack: counters.acknowledged,
        disk_reads: counters.disk_reads,
        disk_writes: counters.disk_writes,
    }
}

/// Exchanges that had traffic through this node.
pub(super) fn exchanges(node: &Node) -> Vec<ExchangePart> {
    node.exchange_counts
        .all()
        .into_iter()
        .map(|((vhost, name), cell)| {
            let counters = ExchangeCounters {
                publish_in: cell.published_in.load(Ordering::Relaxed),
                publish_out: cell.published_out.load(Ordering::Relaxed),
                confirm: cell.confirm_wanted.load(Ordering::Relaxed),
                return_unroutable: cell.returned.load(Ordering::Relaxed),
                drop_unroutable: cell.dropped.load(Ordering::Relaxed),
            };
            ExchangePart { vhost: vhost.to_string(), name: name.to_string(), counters }
        })
        .collect()
}

/// Every open connection with what it says of itself. Those that end meanwhile are left out.
async fn statuses(node: &Node) -> Vec<(Arc<Record>, ConnectionStatus)> {
    let asked: Vec<_> = node
        .connections
        .all()
        .into_iter()
        .filter(|record| record.login().vhost.is_some())
        .filter_map(|record| {
            let answer = record.origin.outlet.mailbox()?.ask_status();
            Some((record, answer))
        })
        .collect();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut statuses = Vec::with_capacity(asked.len());
    for (record, answer) in asked {
        if let Ok(Ok(status)) = tokio::time::timeout_at(deadline, answer).await {
            statuses.push((record, status));
        }
    }
    statuses
}

/// Connections and their channels.
pub(super) async fn clients(node: &Node) -> (Vec<ConnectionInfo>, Vec<ChannelInfo>) {
    let own = tool_name(&node.config.node.name);
    let mut connections = Vec::new();
    let mut channels = Vec::new();
    for (record, status) in statuses(node).await {
        channels.extend(channels_of(&own, &record, &status));
        connections.push(connection(&own, &record, status));
    }
    (connections, channels)
}

fn connection(own: &str, record: &Record, status: ConnectionStatus) -> ConnectionInfo {
    let session = status.session;
    let state = match session.state {
        "blocked" => ConnectionState::Blocked,
        "blocking" => ConnectionState::Blocking,
        "closing" | "closed" => ConnectionState::Closing,
        _ if status.is_throttled => ConnectionState::Flow,
        _ => ConnectionState::Running,
    };
    ConnectionInfo {
        id: record.id,
        node: own.to_owned(),
        name: record.name.clone(),
        vhost: session.vhost,
        user: session.user,
        host: record.peer.local.ip().to_string(),
        port: record.peer.local.port(),
        peer_host: record.peer.remote.ip().to_string(),
        peer_port: record.peer.remote.port(),
        tls: record.peer.tls.as_ref().map(|tls| TlsInfo {
            protocol: tls.protocol.clone(),
            cipher: tls.cipher.clone(),
            peer_subject: tls.distinguished_name.clone(),
            ..TlsInfo::default()
        }),
        auth_mechanism: session.mechanism.to_owned(),
        state,
        channels: u32::try_from(session.channels.len()).unwrap_or(u32::MAX),
        channel_max: session.channel_max,
        frame_max: session.frame_max,
        heartbeat_s: u16::try_from(session.heartbeat).unwrap_or(u16::MAX),
        connected_at_ms: record.connected_at_ms,
        client_properties: session.client_properties,
        received_bytes: status.bytes_in,
        received_count: session.frames_in,
        sent_bytes: status.bytes_out,
        sent_count: session.frames_out,
        send_pending: status.bytes_pending,
    }
}

fn channels_of(
    own: &str,
    record: &Record,
    status: &ConnectionStatus,
) -> impl Iterator<Item = ChannelInfo> {
    status.session.channels.iter().map(|channel| ChannelInfo {
        node: own.to_owned(),
        connection: record.id,
        connection_name: record.name.clone(),
        peer_host: record.peer.remote.ip().to_string(),
        peer_port: record.peer.remote.port(),
        number: channel.number,
        user: status.session.user.clone(),
        vhost: status.session.vhost.clone(),
        confirm: channel.confirm,
        transactional: channel.transactional,
        in_flow: status.is_throttled,
        consumers: u32::try_from(channel.consumers.len()).unwrap_or(u32::MAX),
        prefetch_count: u32::from(channel.prefetch),
        global_prefetch_count: channel.global_prefetch,
        unacknowledged: channel.unsettled as u64,
        unconfirmed: channel.unconfirmed,
        uncommitted: channel.uncommitted as u64,
        acks_uncommitted: channel.uncommitted_settlements as u64,
        idle_since_ms: None,
        counters: MessageCounters::default(),
    })
}

pub(super) fn counters(node: &Node) -> GlobalCounters {
    let counters = node.totals.get();
    GlobalCounters {
        messages: message_counters(&counters, counters.published),
        received_confirm: counters.published_confirm,
        routed: counters.routed,
        dead_lettered: DeadLetterCounters {
            delivery_limit: counters.dead_delivery_limit,
            expired: counters.dead_expired,
            maxlen: counters.dead_maxlen,
            rejected: counters.dead_rejected,
        },
        churn: ChurnCounters {
            connection_created: counters.connections_opened,
            connection_closed: counters.connections_closed,
            channel_created: counters.channels_opened,
            channel_closed: counters.channels_closed,
            queue_declared: counters.queues_declared,
            queue_created: counters.queues_created,
            queue_deleted: counters.queues_deleted,
        },
        auth: AuthCounters {
            // The two are not read at the same moment.
            succeeded: counters.auth_attempts.saturating_sub(counters.auth_failures),
            failed: counters.auth_failures,
        },
        sizes: MessageSizes { buckets: node.sizes.get(), sum: counters.published_bytes },
        publishers: node.publishers.load(Ordering::Relaxed),
        consumers: node.consumers.load(Ordering::Relaxed),
    }
}

pub(super) fn node_stats(node: &Node) -> NodeStats {
    let config = &node.config;
    let usage = *node.usage.borrow();
    let alarms = node.pressure.alarms();
    let journal = node.journal.stats();
    let stopping = node.stopping.load(Ordering::Acquire);
    let connections = node.connections.count() as u64;
    NodeStats {
        name: tool_name(&config.node.name),
        cluster_name: node.cluster_name(),
        process: std::process::id(),
        processors: node.budget.processors,
        started_at_ms: node.started_at_ms,
        serving: !stopping && node.is_joined(),
        draining: stopping || *node.maintenance.borrow(),
        memory_used: usage.resident,
        memory_limit: node.budget.memory_limit,
        memory_alarm: alarms.memory,
        disk_free: usage.disk_free,
        disk_free_limit: node.budget.disk_free_limit,
        disk_alarm: alarms.disk,
        fd_used: usage::open_files(),
        fd_total: node.budget.open_files,
        sockets_used: connections,
        connection_limit: node.limits.connections,
        data_dir: config.data_dir.clone(),
        config_files: node.config_file.iter().cloned().collect(),
        log_files: vec!["<stderr>".to_owned()],
        listeners: node
            .listening
            .lock()
            .iter()
            .map(|listening| Listener {
                protocol: listening.protocol.to_owned(),
                address: listening.address.ip().to_string(),
                port: listening.address.port(),
            })
            .collect(),
        auth_mechanisms: config
            .auth
            .mechanisms
            .iter()
            .map(|mechanism| format!("{mechanism:?}").to_ascii_uppercase())
            .collect(),
        exchange_types: [
            "direct",
            "fanout",
            "topic",
            "headers",
            "x-consistent-hash",
            "x-modulus-hash",
            "x-random",
            "x-local-random",
        ]
        .map(str::to_owned)
        .to_vec(),
        default_queue_type: "classic".to_owned(),
        certificates: Vec::new(),
        journal: JournalStats {
            segments: journal.segments,
            disk_bytes: journal.disk_bytes,
            live_bytes: journal.live_bytes,
            written_bytes: journal.written_bytes,
            writes: journal.writes,
            live_records: journal.live_records,
            syncs: journal.syncs,
            sync_micros: journal.sync_us,
            reads: journal.reads,
            read_bytes: journal.read_bytes,
        },
    }
}

/// The other nodes: those that the cluster knows, and those that are configured and have not joined.
pub(super) fn other_nodes(node: &Node) -> Vec<OtherNode> {
    let links = node.cluster.road.links().map(|links| links.peers()).unwrap_or_default();
    let state = node.router.state();
    let own = node.config.node.name.as_str();
    let known = state.nodes().filter(|known| !known.lost).map(|known| known.name.to_string());
    let mut names: BTreeSet<String> = known.collect();
    names.extend(links.iter().map(|peer| peer.name.to_string()));
    names.remove(own);
    let other = |name: String| {
        let link = links.iter().find(|peer| *peer.name == *name);
        let up = link.and_then(|link| link.up.as_ref());
        let alarms = up.map(|up| node.pressure.alarms_of(up.id)).unwrap_or_default();
        OtherNode {
            memory_alarm: alarms.memory,
            disk_alarm: alarms.disk,
            running: link.is_some_and(|link| link.up.is_some()),
            error: link.and_then(|link| link.error.clone()),
            name: tool_name(&name),
        }
    };
    names.into_iter().map(other).collect()
}
