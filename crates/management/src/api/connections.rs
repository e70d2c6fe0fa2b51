//! `/connections` and `/channels`.

use serde_json::{Value, json};

use super::call::Call;
use super::{consumers, overview, stats};
use crate::http::answer::Answer;
use crate::http::failure::{Failure, Outcome};
use crate::http::{list, table};
use crate::inquiry::Wanted;
use crate::node::Node;
use crate::sampler::{Rates, details};
use crate::view::connection::{ChannelInfo, ConnectionInfo};

/// What clients are told that are closed without a reason.
const REASON: &str = "Closed via management plugin";

/// `GET /connections`, `/vhosts/VHOST/connections`.
pub(super) async fn list<N: Node>(call: &Call<'_, N>, vhost: Option<&str>) -> Outcome<Answer> {
    if let Some(vhost) = vhost {
        call.visible(vhost)?;
    }
    let mut connections = call.node.census(Wanted::CLIENTS).await.connections;
    connections.retain(|connection| {
        call.sees_client(&connection.user) && vhost.is_none_or(|name| connection.vhost == name)
    });
    respond(call, &connections)
}

/// `GET /connections/username/USER`.
pub(super) async fn list_user<N: Node>(call: &Call<'_, N>, user: &str) -> Outcome<Answer> {
    call.client_visible(user)?;
    let mut connections = call.node.census(Wanted::CLIENTS).await.connections;
    connections.retain(|connection| connection.user == user);
    respond(call, &connections)
}

/// `GET /connections/NAME`.
pub(super) async fn get<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    let connection = find(call, name).await?;
    Ok(list::one(show(&connection, &call.rates), &call.query))
}

/// `DELETE /connections/NAME`; the header `X-Reason` becomes the text of the close.
pub(super) async fn close<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    let connection = find(call, name).await?;
    if call.by() != connection.user {
        call.administrator()?;
    }
    call.node.close_connection(name, reason(call)).await;
    Ok(Answer::Done)
}

/// `DELETE /connections/username/USER`.
pub(super) async fn close_user<N: Node>(call: &Call<'_, N>, user: &str) -> Outcome<Answer> {
    if call.by() != user {
        call.administrator()?;
    }
    for connection in call.node.census(Wanted::CLIENTS).await.connections {
        if connection.user == user {
            call.node.close_connection(&connection.name, reason(call)).await;
        }
    }
    Ok(Answer::Done)
}

/// `GET /connections/NAME/channels`.
pub(super) async fn channels_of<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    let connection = find(call, name).await?;
    let mut channels = call.node.census(Wanted::CLIENTS).await.channels;
    channels.retain(|channel| channel.connection == connection.id);
    respond_channels(call, &channels)
}

/// `GET /channels`, `/vhosts/VHOST/channels`.
pub(super) async fn channels<N: Node>(call: &Call<'_, N>, vhost: Option<&str>) -> Outcome<Answer> {
    if let Some(vhost) = vhost {
        call.visible(vhost)?;
    }
    let mut channels = call.node.census(Wanted::CLIENTS).await.channels;
    channels.retain(|channel| {
        call.sees_client(&channel.user) && vhost.is_none_or(|name| channel.vhost == name)
    });
    respond_channels(call, &channels)
}

/// `GET /channels/NAME`.
pub(super) async fn channel<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    let census = call.node.census(Wanted::ALL).await;
    let channel = census
        .channels
        .iter()
        .find(|channel| channel.name() == name)
        .ok_or_else(Failure::not_found)?;
    call.client_visible(&channel.user)?;
    let own = census.consumers.iter().filter(|consumer| {
        consumer.connection_name == channel.connection_name && consumer.channel == channel.number
    });
    let shown: Value = own.map(consumers::show).collect();
    let mut item = show_channel(channel, &call.rates);
    item["consumer_details"] = shown;
    item["publishes"] = json!([]);
    item["deliveries"] = json!([]);
    Ok(list::one(item, &call.query))
}

fn reason<'a, N>(call: &'a Call<'_, N>) -> &'a str {
    call.headers.get("x-reason").and_then(|value| value.to_str().ok()).unwrap_or(REASON)
}

async fn find<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<ConnectionInfo> {
    let connections = call.node.census(Wanted::CLIENTS).await.connections;
    let found = connections.into_iter().find(|connection| connection.name == name);
    let found = found.ok_or_else(Failure::not_found)?;
    call.client_visible(&found.user)?;
    Ok(found)
}

fn respond<N: Node>(call: &Call<'_, N>, connections: &[ConnectionInfo]) -> Outcome<Answer> {
    let rates = &*call.rates;
    let show = |connection: &ConnectionInfo| show(connection, rates);
    list::respond(connections.iter().map(show), &call.query)
}

fn respond_channels<N: Node>(call: &Call<'_, N>, channels: &[ChannelInfo]) -> Outcome<Answer> {
    let rates = &*call.rates;
    let show = |channel: &ChannelInfo| show_channel(channel, rates);
    list::respond(channels.iter().map(show), &call.query)
}

fn show(connection: &ConnectionInfo, rates: &Rates) -> Value {
    let id = connection.id;
    let received = rates.of(|sample| sample.connections.get(&id).map(|bytes| bytes.0));
    let sent = rates.of(|sample| sample.connections.get(&id).map(|bytes| bytes.1));
    let client_properties = table::to_json(&connection.client_properties);
    let mut item = json!({
        "name": connection.name,
        "node": connection.node,
        "vhost": connection.vhost,
        "user": connection.user,
        "user_who_performed_action": connection.user,
        "protocol": "AMQP 0-9-1",
        "type": "network",
        "host": connection.host,
        "port": connection.port,
        "peer_host": connection.peer_host,
        "peer_port": connection.peer_port,
        "ssl": connection.tls.is_some(),
        "ssl_protocol": null,
        "ssl_key_exchange": null,
        "ssl_cipher": null,
        "ssl_hash": null,
        "peer_cert_subject": null,
        "peer_cert_issuer": null,
        "peer_cert_validity": null,
        "auth_mechanism": connection.auth_mechanism,
        "state": connection.state.as_str(),
        "channels": connection.channels,
        "channel_max": connection.channel_max,
        "frame_max": connection.frame_max,
        "timeout": connection.heartbeat_s,
        "connected_at": connection.connected_at_ms,
        "recv_oct": connection.received_bytes,
        "recv_oct_details": details(received),
        "recv_cnt": connection.received_count,
        "send_oct": connection.sent_bytes,
        "send_oct_details": details(sent),
        "send_cnt": connection.sent_count,
        "send_pend": connection.send_pending,
        "reductions": 0,
        "reductions_details": details(0.0),
        "garbage_collection": stats::NO_GARBAGE,
    });
    if let Some(name) = client_properties.get("connection_name") {
        item["user_provided_name"] = name.clone();
    }
    if let Some(tls) = &connection.tls {
        item["ssl_protocol"] = json!(tls.protocol);
        item["ssl_cipher"] = json!(tls.cipher);
        item["peer_cert_subject"] = json!(tls.peer_subject);
        item["peer_cert_issuer"] = json!(tls.peer_issuer);
        item["peer_cert_validity"] = json!(tls.peer_validity);
    }
    item["client_properties"] = client_properties;
    item
}

fn show_channel(channel: &ChannelInfo, rates: &Rates) -> Value {
    let key = (channel.connection, channel.number);
    let mut item = json!({
        "name": channel.name(),
        "number": channel.number,
        "node": channel.node,
        "vhost": channel.vhost,
        "user": channel.user,
        "user_who_performed_action": channel.user,
        "state": if channel.in_flow { "flow" } else { "running" },
        "confirm": channel.confirm,
        "transactional": channel.transactional,
        "consumer_count": channel.consumers,
        "prefetch_count": channel.prefetch_count,
        "global_prefetch_count": channel.global_prefetch_count,
        "messages_unacknowledged": channel.unacknowledged,
        "messages_unconfirmed": channel.unconfirmed,
        "messages_uncommitted": channel.uncommitted,
        "acks_uncommitted": channel.acks_uncommitted,
        "pending_raft_commands": 0,
        "connection_details": {
            "name": channel.connection_name,
            "peer_host": channel.peer_host,
            "peer_port": channel.peer_port,
        },
        "message_stats": stats::messages(&channel.counters, rates, |sample| {
            sample.channels.get(&key)
        }),
        "reductions": 0,
        "reductions_details": details(0.0),
        "garbage_collection": stats::NO_GARBAGE,
    });
    if let Some(idle) = channel.idle_since_ms {
        item["idle_since"] = Value::from(overview::date(idle));
    }
    item
}
