//! The metrics listener: `/metrics`, `/metrics/per-object`, `/metrics/detailed`.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use prometheus::TEXT_FORMAT;
use regex::RegexBuilder;

use crate::clock::now_ms;
use crate::http::uri::Query;
use crate::inquiry::Wanted;
use crate::metrics::aggregated::{self, ObjectCounts, QueueSums};
use crate::metrics::detailed::{self, Selection};
use crate::metrics::family::Families;
use crate::metrics::identity::Identity;
use crate::metrics::{clients, journals, raft, reconciliation};
use crate::node::Node;

/// Everything that `/metrics/per-object` shows.
const PER_OBJECT: [&str; 7] = [
    "queue_coarse_metrics",
    "queue_metrics",
    "queue_consumer_count",
    "queue_delivery_metrics",
    "connection_coarse_metrics",
    "channel_metrics",
    "ra_metrics",
];

/// Answers a request of a scraper. No credentials are asked for.
pub async fn handle<N: Node>(node: Arc<N>, request: Request) -> Response {
    let path = request.uri().path().trim_end_matches('/').to_owned();
    let query = Query::parse(request.uri().query().unwrap_or_default());
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let mut families = Families::default();
    match path.as_str() {
        "/metrics" => {
            identity(node.as_ref(), &mut families, "aggregated");
            common(node.as_ref(), &mut families, true).await;
        }
        "/metrics/per-object" => {
            identity(node.as_ref(), &mut families, "per-object");
            common(node.as_ref(), &mut families, false).await;
            let selection = Selection {
                families: PER_OBJECT.map(str::to_owned).into_iter().collect(),
                ..Selection::default()
            };
            objects(node.as_ref(), &mut families, &selection).await;
        }
        "/metrics/detailed" => {
            identity(node.as_ref(), &mut families, "detailed");
            let selection = match selection(&query) {
                Ok(selection) => selection,
                Err(reason) => return (StatusCode::BAD_REQUEST, reason).into_response(),
            };
            cluster(node.as_ref(), &mut families, &selection);
            families.set_prefix("rabbitmq_detailed_");
            whole_node(node.as_ref(), &mut families, &selection);
            objects(node.as_ref(), &mut families, &selection).await;
        }
        _ => return StatusCode::NOT_FOUND.into_response(),
    }
    let kind = format!("{TEXT_FORMAT}; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], families.encode()).into_response()
}

fn selection(query: &Query) -> Result<Selection, String> {
    let queue = match query.get("queue") {
        None | Some("") => None,
        Some(pattern) => Some(
            RegexBuilder::new(pattern)
                .size_limit(1 << 20)
                .build()
                .map_err(|error| format!("invalid queue pattern: {error}"))?,
        ),
    };
    Ok(Selection {
        families: query.all("family").iter().cloned().collect(),
        vhosts: query.all("vhost").to_vec(),
        queue,
    })
}

fn identity<N: Node>(node: &N, families: &mut Families, endpoint: &str) {
    let stats = node.stats();
    let state = node.state();
    let id = state.global_parameter("internal_cluster_id");
    let identity = Identity {
        cluster: stats.cluster_name,
        cluster_id: id.and_then(|id| id.value.as_str()).unwrap_or_default().to_owned(),
        node: stats.name,
    };
    identity.write(families, endpoint);
}

/// What does not depend on single objects; sums over queues only if single ones do not follow,
/// since both would have the same names.
async fn common<N: Node>(node: &N, families: &mut Families, with_sums: bool) {
    let stats = node.stats();
    let state = node.state();
    let now_ms = now_ms();
    let census = node.census(Wanted::TOTALS.here()).await;
    let own = census.queues.values();
    let counts = ObjectCounts {
        connections: census.connections.len() as u64,
        channels: census.channels.len() as u64,
        consumers: own.clone().map(|queue| queue.stats.consumers).sum(),
        // Those of other nodes are theirs to show: dashboards add all nodes up.
        queues: own.len() as u64,
        exchanges: state.vhosts().map(|vhost| state.exchanges(&vhost.name).count() as u64).sum(),
    };
    aggregated::objects(families, &counts);
    aggregated::node(families, &stats, now_ms);
    aggregated::journal(families, &stats);
    let counters = node.counters();
    aggregated::globals(families, &counters);
    aggregated::churn(families, &counters);
    aggregated::auth(families, &counters);
    if with_sums {
        let mut sums = QueueSums::default();
        own.for_each(|queue| sums.add(&queue.stats));
        aggregated::queues(families, &sums, now_ms);
        clients::sums(families, &census.connections, &census.channels, &counters.messages);
    }
    let members = node.raft_members();
    raft::node(families, &members, node.hibernations());
    reconciliation::node(families, &node.reconciliation_here());
    journals::node(families, &state, &node.journal_copies());
    if with_sums {
        raft::sums(families, &members);
    }
}

/// Families about the node as a whole.
fn whole_node<N: Node>(node: &N, families: &mut Families, selection: &Selection) {
    let wants = |family: &str| selection.families.contains(family);
    if wants("node_coarse_metrics") || wants("node_metrics") {
        aggregated::node(families, &node.stats(), now_ms());
    }
    if wants("node_persister_metrics") {
        aggregated::journal(families, &node.stats());
    }
    if wants("connection_churn_metrics") {
        aggregated::churn(families, &node.counters());
    }
    if wants("auth_attempt_metrics") {
        aggregated::auth(families, &node.counters());
    }
}

/// Families with a line per object.
async fn objects<N: Node>(node: &N, families: &mut Families, selection: &Selection) {
    let wants = |family: &str| selection.families.iter().any(|name| name.starts_with(family));
    let wanted = Wanted {
        queues: wants("queue_"),
        clients: wants("connection_coarse_metrics")
            || wants("connection_metrics")
            || wants("channel_"),
        ..Wanted::QUEUES.here()
    };
    let census = node.census(wanted).await;
    let state = node.state();
    if wanted.queues {
        let own = census.queues.into_iter();
        let stats = own.map(|(id, queue)| (id, queue.stats)).collect();
        detailed::queues(families, &state, &stats, selection);
    }
    if wants("connection_coarse_metrics") || wants("connection_metrics") {
        clients::connections(families, &census.connections);
    }
    if wants("channel_") {
        clients::channels(families, &census.channels);
    }
    if selection.families.contains("ra_metrics") {
        raft::members(families, &state, &node.raft_members(), selection);
    }
}

/// Families about the whole cluster.
fn cluster<N: Node>(node: &N, families: &mut Families, selection: &Selection) {
    let state = node.state();
    let wants = |family: &str| selection.families.contains(family);
    if wants("vhost_status") {
        let lines = state.vhosts().map(|vhost| (vec![("vhost", &*vhost.name)], 1.0));
        families.gauges("rabbitmq_cluster_vhost_status", "Whether a given vhost is running", lines);
    }
    let exchanges: Vec<_> = state.vhosts().flat_map(|vhost| state.exchanges(&vhost.name)).collect();
    if wants("exchange_names") {
        let lines = exchanges.iter().map(|exchange| {
            let labels = vec![
                ("vhost", &*exchange.vhost),
                ("exchange", &*exchange.name),
                ("type", exchange.kind.as_str()),
            ];
            (labels, 1.0)
        });
        families.gauges(
            "rabbitmq_cluster_exchange_name",
            "Enumerates exchanges without any additional info",
            lines,
        );
    }
    if wants("exchange_bindings") {
        let lines = exchanges.iter().map(|exchange| {
            let labels = vec![
                ("vhost", &*exchange.vhost),
                ("exchange", &*exchange.name),
                ("type", exchange.kind.as_str()),
            ];
            let count = state.bindings_from(&exchange.vhost, &exchange.name).count();
            (labels, crate::metrics::family::float(count as u64))
        });
        families.gauges(
            "rabbitmq_cluster_exchange_bindings",
            "Number of bindings for an exchange",
            lines,
        );
    }
}
