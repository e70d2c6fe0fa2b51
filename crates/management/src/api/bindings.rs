//! `/bindings`, and the bindings of queues and exchanges.

use std::sync::Arc;

use metadata::objects::binding::{Binding, Destination};
use metadata::state::State;
use serde_json::{Value, json};

use super::call::Call;
use super::resource::{BindingEnd, Ends, Key};
use super::{exchanges, queues};
use crate::http::answer::Answer;
use crate::http::failure::{Failure, Outcome};
use crate::http::name::short;
use crate::http::{list, table, uri};
use crate::node::Node;
use crate::view::topology::BindingRequest;

/// `GET /bindings`, `/bindings/VHOST`. Every queue's binding to the default exchange is shown too.
pub(super) fn list<N: Node>(call: &Call<'_, N>, vhost: Option<&str>) -> Outcome<Answer> {
    let mut items = Vec::new();
    for vhost in call.vhosts(vhost)? {
        let queues = call.state.queues(&vhost.name);
        items.extend(queues.map(|queue| show(&State::default_binding(queue))));
        items.extend(call.state.bindings(&vhost.name).map(|binding| show(binding)));
    }
    list::respond(items, &call.query)
}

/// `GET /queues/VHOST/NAME/bindings`.
pub(super) fn of_queue<N: Node>(call: &Call<'_, N>, vhost: &str, name: &str) -> Outcome<Answer> {
    let queue = queues::find(call, vhost, name)?;
    let destination = Destination::Queue(Arc::clone(&queue.name));
    let mut items = vec![show(&State::default_binding(queue))];
    items.extend(call.state.bindings_to(vhost, &destination).map(|binding| show(binding)));
    list::respond(items, &call.query)
}

/// `GET /exchanges/VHOST/NAME/bindings/source`, `.../destination`.
pub(super) fn of_exchange<N: Node>(
    call: &Call<'_, N>,
    vhost: &str,
    name: &str,
    end: BindingEnd,
) -> Outcome<Answer> {
    let exchange = exchanges::find(call, vhost, name)?;
    let items: Vec<Value> = match end {
        BindingEnd::Source if name.is_empty() => {
            call.state.queues(vhost).map(|queue| show(&State::default_binding(queue))).collect()
        }
        BindingEnd::Source => {
            call.state.bindings_from(vhost, name).map(|binding| show(binding)).collect()
        }
        BindingEnd::Destination => {
            let destination = Destination::Exchange(Arc::clone(&exchange.name));
            call.state.bindings_to(vhost, &destination).map(|binding| show(binding)).collect()
        }
    };
    list::respond(items, &call.query)
}

/// `GET /bindings/VHOST/e/SOURCE/q/DESTINATION`.
pub(super) fn between<N: Node>(call: &Call<'_, N>, ends: &Ends) -> Outcome<Answer> {
    let found = between_ends(call, ends)?;
    list::respond(found.iter().map(show), &call.query)
}

/// `POST /bindings/VHOST/e/SOURCE/q/DESTINATION`: 201 with the place of the binding, new or not.
pub(super) async fn post<N: Node>(call: &Call<'_, N>, ends: &Ends) -> Outcome<Answer> {
    call.inside(&ends.vhost)?;
    let routing_key = short("routing_key", call.body.text_or("routing_key", Some(""))?)?;
    let arguments = table::from_json(&call.body.object("arguments")?)?;
    let key = Binding {
        vhost: ends.vhost.as_str().into(),
        source: ends.source.as_str().into(),
        destination: destination(ends),
        routing_key: routing_key.as_str().into(),
        arguments: arguments.clone(),
    }
    .properties_key();
    call.node.bind(request(call, ends, routing_key, arguments)).await?;
    Ok(Answer::CreatedAt(format!("{}/{}", uri::encode(&ends.destination), uri::encode(&key))))
}

/// `GET /bindings/VHOST/e/SOURCE/q/DESTINATION/KEY`.
pub(super) fn get<N: Node>(call: &Call<'_, N>, ends: &Ends, key: &Key) -> Outcome<Answer> {
    Ok(list::one(show(&find(call, ends, key)?), &call.query))
}

/// `DELETE /bindings/VHOST/e/SOURCE/q/DESTINATION/KEY`.
pub(super) async fn delete<N: Node>(call: &Call<'_, N>, ends: &Ends, key: &Key) -> Outcome<Answer> {
    call.inside(&ends.vhost)?;
    let found = find(call, ends, key)?;
    let request = request(call, ends, found.routing_key.to_string(), found.arguments.clone());
    call.node.unbind(request).await?;
    Ok(Answer::Done)
}

fn request<N: Node>(
    call: &Call<'_, N>,
    ends: &Ends,
    routing_key: String,
    arguments: amq_protocol_types::FieldTable,
) -> BindingRequest {
    BindingRequest {
        vhost: ends.vhost.clone(),
        source: ends.source.clone(),
        destination: ends.destination.clone(),
        to_queue: ends.to_queue,
        routing_key,
        arguments,
        user: call.by().to_owned(),
    }
}

fn destination(ends: &Ends) -> Destination {
    let name = ends.destination.as_str().into();
    if ends.to_queue { Destination::Queue(name) } else { Destination::Exchange(name) }
}

/// The bindings between two ends; none if an end does not exist.
fn between_ends<N: Node>(call: &Call<'_, N>, ends: &Ends) -> Outcome<Vec<Binding>> {
    call.visible(&ends.vhost)?;
    let destination = destination(ends);
    let mut found = Vec::new();
    if ends.to_queue
        && ends.source.is_empty()
        && let Some(queue) = call.state.queue(&ends.vhost, &ends.destination)
    {
        found.push(State::default_binding(queue));
    }
    let stored = call.state.bindings_to(&ends.vhost, &destination);
    found.extend(stored.filter(|binding| *binding.source == *ends.source).map(|b| (**b).clone()));
    Ok(found)
}

/// The binding that a path names. Its key is to be encoded once more in the path, but not all
/// tools do so.
fn find<N: Node>(call: &Call<'_, N>, ends: &Ends, key: &Key) -> Outcome<Binding> {
    let found = between_ends(call, ends)?;
    let named = |wanted: &str| found.iter().find(|binding| binding.properties_key() == wanted);
    named(&key.text).or_else(|| named(&key.raw)).cloned().ok_or_else(Failure::not_found)
}

/// A binding as it is listed.
pub(super) fn show(binding: &Binding) -> Value {
    json!({
        "source": &*binding.source,
        "vhost": &*binding.vhost,
        "destination": &**binding.destination.name(),
        "destination_type": binding.destination.type_name(),
        "routing_key": &*binding.routing_key,
        "arguments": table::to_json(&binding.arguments),
        "properties_key": binding.properties_key(),
    })
}
