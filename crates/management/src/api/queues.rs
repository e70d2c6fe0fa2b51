//! `/queues`.

mod row;

use std::borrow::Cow;

use amq_protocol_types::AMQPValue;
use metadata::objects::queue::Queue;
use serde_json::{Value, json};

use self::row::{Definition, Lister};
use super::call::Call;
use super::consumers;
use crate::census::Place;
use crate::http::answer::Answer;
use crate::http::failure::{Failure, Outcome};
use crate::http::object::Item;
use crate::http::{self, list, table};
use crate::inquiry::Wanted;
use crate::node::Node;
use crate::view::topology::{QueueDeclaration, QueueDeletion};

/// `GET /queues`, `/queues/VHOST`.
pub(super) async fn list<N: Node>(call: &Call<'_, N>, vhost: Option<&str>) -> Outcome<Answer> {
    let vhosts = call.vhosts(vhost)?;
    let queues = vhosts.iter().flat_map(|vhost| call.state.queues(&vhost.name));
    if call.query.is_true("disable_stats") && !call.query.is_true("enable_queue_totals") {
        let names = call.node.names();
        let items = queues.map(|queue| {
            Definition::of(&call.state, queue, Cow::Owned(Place::declared(queue, &names)))
        });
        return list::respond(items, &call.query);
    }
    let lister = Lister::of(call.node.census(Wanted::QUEUES).await, &call.state, &call.rates);
    let count = vhosts.iter().map(|vhost| call.state.queues(&vhost.name).count()).sum();
    list::respond_about(count, queues.filter_map(|queue| lister.row(queue)), &call.query)
}

/// `GET /queues/VHOST/NAME`.
pub(super) async fn get<N: Node>(call: &Call<'_, N>, vhost: &str, name: &str) -> Outcome<Answer> {
    let queue = find(call, vhost, name)?;
    let census = call.node.census(Wanted::queue(queue.id)).await;
    let shown: Value = census.consumers.iter().map(consumers::show).collect();
    let lister = Lister::of(census, &call.state, &call.rates);
    let mut item = lister.row(queue).ok_or_else(Failure::not_found)?.value();
    item["consumer_details"] = shown;
    item["incoming"] = json!([]);
    item["deliveries"] = json!([]);
    Ok(list::one(item, &call.query))
}

/// `PUT /queues/VHOST/NAME`.
pub(super) async fn put<N: Node>(call: &Call<'_, N>, vhost: &str, name: &str) -> Outcome<Answer> {
    call.inside(vhost)?;
    let queue = http::name::name("queue", name.to_owned())?;
    let mut arguments = table::from_json(&call.body.object("arguments")?)?;
    // rabbitmqadmin sends the type beside the arguments.
    if call.body.get("queue_type").is_some() && !arguments.contains_key("x-queue-type") {
        let kind = AMQPValue::LongString(call.body.text("queue_type")?.into());
        arguments.insert("x-queue-type".into(), kind);
    }
    let declaration = QueueDeclaration {
        vhost: vhost.to_owned(),
        queue,
        durable: call.body.flag("durable", false)?,
        auto_delete: call.body.flag("auto_delete", false)?,
        arguments,
        user: call.by().to_owned(),
    };
    Ok(Answer::put(call.node.declare_queue(declaration).await?))
}

/// `DELETE /queues/VHOST/NAME`.
pub(super) async fn delete<N: Node>(
    call: &Call<'_, N>,
    vhost: &str,
    name: &str,
) -> Outcome<Answer> {
    call.inside(vhost)?;
    find(call, vhost, name)?;
    let deletion = QueueDeletion {
        vhost: vhost.to_owned(),
        queue: name.to_owned(),
        if_unused: call.query.is_true("if-unused"),
        if_empty: call.query.is_true("if-empty"),
        user: call.by().to_owned(),
    };
    call.node.delete_queue(deletion).await?;
    Ok(Answer::Done)
}

/// `DELETE /queues/VHOST/NAME/contents`.
pub(super) async fn purge<N: Node>(call: &Call<'_, N>, vhost: &str, name: &str) -> Outcome<Answer> {
    call.inside(vhost)?;
    find(call, vhost, name)?;
    call.node.purge_queue(vhost, name, call.by()).await?;
    Ok(Answer::Done)
}

/// `POST /queues/VHOST/NAME/actions`: those of mirrored queues, which are no more.
pub(super) fn act<N: Node>(call: &Call<'_, N>, vhost: &str, name: &str) -> Outcome<Answer> {
    call.inside(vhost)?;
    find(call, vhost, name)?;
    match call.body.text("action")?.as_str() {
        "sync" | "cancel_sync" => Ok(Answer::Done),
        other => Err(Failure::bad_request(format!("not_an_action: {other}"))),
    }
}

/// A queue that may be seen.
pub(super) fn find<'a, N: Node>(
    call: &'a Call<'_, N>,
    vhost: &str,
    name: &str,
) -> Outcome<&'a Queue> {
    call.visible(vhost)?;
    call.state.queue(vhost, name).map(AsRef::as_ref).ok_or_else(Failure::not_found)
}
