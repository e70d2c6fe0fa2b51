//! `/vhosts`.

use std::collections::BTreeMap;

use metadata::command::Command;
use metadata::objects::permission::Permission;
use metadata::objects::vhost::Vhost;
use serde_json::{Value, json};

use super::call::Call;
use super::stats;
use crate::http::answer::Answer;
use crate::http::body::Body;
use crate::http::failure::{Failure, Outcome};
use crate::http::list;
use crate::inquiry::Wanted;
use crate::node::Node;
use crate::sampler::{Depth, Sample, details};
use crate::view::counters::MessageCounters;

/// `GET /vhosts`: those that may be seen.
pub(super) async fn list<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    let totals = Totals::by_vhost(call).await;
    let items = call.vhosts(None)?.into_iter().map(|vhost| show(call, vhost, &totals));
    list::respond(items, &call.query)
}

/// `GET /vhosts/VHOST`.
pub(super) async fn get<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    call.visible(name)?;
    let vhost = find(call, name)?;
    let totals = Totals::by_vhost(call).await;
    Ok(list::one(show(call, vhost, &totals), &call.query))
}

/// `PUT /vhosts/VHOST`: what is not given stays as it is. Who makes a virtual host may do everything
/// in it.
pub(super) async fn put<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    call.administrator()?;
    let vhost = parse(&call.body, call.state.vhost(name).map(AsRef::as_ref), name)?;
    let is_new = call.node.submit(Command::PutVhost(vhost), call.by()).await?;
    if is_new {
        let everything = || ".*".to_owned();
        let permission = Permission {
            vhost: name.into(),
            user: call.by().into(),
            configure: everything(),
            write: everything(),
            read: everything(),
        };
        call.node.submit(Command::PutPermission(permission), call.by()).await?;
    }
    Ok(Answer::put(is_new))
}

/// `DELETE /vhosts/VHOST`.
pub(super) async fn delete<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    call.administrator()?;
    let vhost = find(call, name)?;
    if vhost.protected {
        return Err(Failure::precondition_failed(format!(
            "Refusing to delete virtual host '{name}' because it is protected from deletion"
        )));
    }
    call.node.submit(Command::DeleteVhost { name: name.into() }, call.by()).await?;
    Ok(Answer::Done)
}

/// `POST` and `DELETE /vhosts/VHOST/deletion/protection`.
pub(super) async fn protect<N: Node>(
    call: &Call<'_, N>,
    name: &str,
    protected: bool,
) -> Outcome<Answer> {
    call.administrator()?;
    let vhost = Vhost { protected, ..find(call, name)?.clone() };
    call.node.submit(Command::PutVhost(vhost), call.by()).await?;
    Ok(Answer::Done)
}

/// `POST /vhosts/VHOST/start/NODE`: virtual hosts are always up.
pub(super) fn start<N: Node>(call: &Call<'_, N>, name: &str, node: &str) -> Outcome<Answer> {
    call.administrator()?;
    find(call, name)?;
    if node != call.node.stats().name {
        return Err(Failure::not_found());
    }
    Ok(Answer::Done)
}

/// Reads a virtual host out of a request or out of definitions; `old` says what stays.
pub(super) fn parse(body: &Body, old: Option<&Vhost>, name: &str) -> Outcome<Vhost> {
    if name.is_empty() {
        return Err(Failure::bad_request("a virtual host's name must not be empty"));
    }
    let mut vhost = old.cloned().unwrap_or_else(|| Vhost::named(name));
    let metadata = Body::from(body.object("metadata")?);
    for fields in [&metadata, body] {
        if fields.get("description").is_some() {
            vhost.description = fields.text("description")?;
        }
        if let Some(tags) = fields.words("tags")? {
            vhost.tags = tags;
        }
        if fields.get("default_queue_type").is_some() {
            vhost.default_queue_type = match fields.text("default_queue_type")?.as_str() {
                // What RabbitMQ and its tools write for "none".
                "" | "undefined" => None,
                "classic" | "rabbit_classic_queue" => Some("classic".to_owned()),
                "quorum" | "rabbit_quorum_queue" => Some("quorum".to_owned()),
                "stream" | "rabbit_stream_queue" => Some("stream".to_owned()),
                other => {
                    return Err(Failure::bad_request(format!(
                        "Unsupported default queue type: {other}"
                    )));
                }
            };
        }
        vhost.protected = fields.flag("protected_from_deletion", vhost.protected)?;
        vhost.tracing = fields.flag("tracing", vhost.tracing)?;
    }
    Ok(vhost)
}

fn find<'a, N: Node>(call: &'a Call<'_, N>, name: &str) -> Outcome<&'a Vhost> {
    call.state.vhost(name).map(AsRef::as_ref).ok_or_else(Failure::not_found)
}

/// What a virtual host's queues and connections do, as far as it is summed.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    depth: Depth,
    received: u64,
    sent: u64,
    messages: MessageCounters,
}

impl Totals {
    async fn by_vhost<N: Node>(call: &Call<'_, N>) -> BTreeMap<String, Self> {
        let mut totals: BTreeMap<String, Self> = BTreeMap::new();
        let census = call.node.census(Wanted::ALL).await;
        for (id, queue) in census.queues {
            let Some(entry) = call.state.queue_by_id(id) else { continue };
            let queue = queue.stats;
            let total = totals.entry(entry.vhost.to_string()).or_default();
            total.add(&queue.counters, Depth { ready: queue.ready, unsettled: queue.unsettled });
        }
        for connection in census.connections {
            let total = totals.entry(connection.vhost).or_default();
            total.received += connection.received_bytes;
            total.sent += connection.sent_bytes;
        }
        totals
    }

    /// The sums over a virtual host's queues in a sample.
    fn of_sample<N: Node>(call: &Call<'_, N>, vhost: &str, sample: &Sample) -> Self {
        let mut total = Self::default();
        for queue in call.state.queues(vhost) {
            if let Some((counters, depth)) = sample.queues.get(&queue.id) {
                total.add(counters, *depth);
            }
        }
        total
    }

    fn add(&mut self, own: &MessageCounters, depth: Depth) {
        self.depth.ready += depth.ready;
        self.depth.unsettled += depth.unsettled;
        self.messages.add(own);
    }
}

fn show<N: Node>(call: &Call<'_, N>, vhost: &Vhost, totals: &BTreeMap<String, Totals>) -> Value {
    type Field = (&'static str, fn(&Depth) -> u64);
    let total = totals.get(&*vhost.name).copied().unwrap_or_default();
    let rates = &*call.rates;
    let sums = rates.map(|sample| Totals::of_sample(call, &vhost.name, sample));
    let mut item = definition(vhost);
    let Value::Object(object) = &mut item else { return item };
    let Value::Object(added) = json!({
        "cluster_state": { call.node.stats().name: "running" },
        "recv_oct": total.received,
        "send_oct": total.sent,
        "message_stats": stats::sums(&total.messages, &sums, |sum| &sum.messages),
    }) else {
        return item;
    };
    object.extend(added);
    let depths: [Field; 3] = [
        ("messages", |depth| depth.ready + depth.unsettled),
        ("messages_ready", |depth| depth.ready),
        ("messages_unacknowledged", |depth| depth.unsettled),
    ];
    for (name, value) in depths {
        object.insert(name.to_owned(), json!(value(&total.depth)));
        let rate = sums.change(|sum| value(&sum.depth));
        object.insert(format!("{name}_details"), details(rate));
    }
    item
}

/// A virtual host as it is exported.
pub(super) fn definition(vhost: &Vhost) -> Value {
    let kind = vhost.default_queue_type.as_deref().unwrap_or("classic");
    json!({
        "name": &*vhost.name,
        "description": vhost.description,
        "tags": vhost.tags,
        "default_queue_type": kind,
        "protected_from_deletion": vhost.protected,
        "tracing": vhost.tracing,
        "metadata": {
            "description": vhost.description,
            "tags": vhost.tags,
            "default_queue_type": kind,
        },
    })
}
