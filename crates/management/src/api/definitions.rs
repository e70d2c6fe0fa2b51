//! `/definitions`: everything but messages, out and in.
//!
//! An import adds and replaces; it deletes nothing. Queues, exchanges and bindings that exist with
//! other properties stay as they are and are reported; so are bindings of what does not exist. What
//! begins with `amq.` is the broker's own and is passed over: other brokers export some of it.

use axum::http::{HeaderMap, header};
use metadata::command::{Command, DeclareExchange, DeclareQueue};
use metadata::objects::binding::{Binding, Destination};
use metadata::objects::exchange::Exchange;
use metadata::objects::parameter::GlobalParameter;
use metadata::objects::queue::Queue;
use metadata::refusal::Kind;
use model::id::NodeId;
use serde_json::{Map, Value, json};

use super::call::Call;
use super::overview::date;
use super::{limits, parameters, permissions, policies, users, vhosts};
use crate::clock::now_ms;
use crate::http::answer::Answer;
use crate::http::body::Body;
use crate::http::failure::{Failure, Outcome};
use crate::http::name::{name, short};
use crate::http::table;
use crate::node::Node;
use crate::version;

/// `GET /definitions`.
pub(super) fn export<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    call.administrator()?;
    let state = &call.state;
    let all: Vec<String> = state.vhosts().map(|vhost| vhost.name.to_string()).collect();
    let mut item = header(call, "cluster");
    item["original_cluster_name"] = json!(call.node.stats().cluster_name);
    item["users"] = state.users().map(|user| users::show(call, user)).collect();
    item["vhosts"] = state.vhosts().map(|vhost| vhosts::definition(vhost)).collect();
    item["global_parameters"] =
        state.global_parameters().map(|parameter| parameters::show_global(parameter)).collect();
    let permissions = all.iter().flat_map(|vhost| state.permissions(vhost));
    item["permissions"] = permissions.map(permissions::show).collect();
    let topics = all.iter().flat_map(|vhost| state.topic_permissions(vhost));
    item["topic_permissions"] = topics.map(|topic| permissions::show_topic(topic)).collect();
    add_objects(call, &mut item, &all, true);
    Ok(download(call, item))
}

/// `GET /definitions/VHOST`.
pub(super) fn export_vhost<N: Node>(call: &Call<'_, N>, vhost: &str) -> Outcome<Answer> {
    call.administrator()?;
    call.exists(vhost)?;
    let mut item = header(call, "single_virtual_host");
    item["original_vhost_name"] = json!(vhost);
    if let Some(found) = call.state.vhost(vhost) {
        let definition = vhosts::definition(found);
        item["description"] = definition["description"].clone();
        item["default_queue_type"] = definition["default_queue_type"].clone();
        item["metadata"] = definition["metadata"].clone();
    }
    add_objects(call, &mut item, &[vhost.to_owned()], false);
    Ok(download(call, item))
}

fn header<N: Node>(call: &Call<'_, N>, format: &str) -> Value {
    json!({
        "rabbit_version": version::COMPATIBLE,
        "rabbitmq_version": version::COMPATIBLE,
        "product_name": version::PRODUCT,
        "product_version": version::OWN,
        "rabbitmq_definition_format": format,
        "explanation": format!(
            "Definitions of {} {} exported by user '{}' at {}",
            version::PRODUCT, version::OWN, call.by(), date(now_ms())
        ),
    })
}

fn download<N: Node>(call: &Call<'_, N>, item: Value) -> Answer {
    match call.query.get("download") {
        Some(name) if !name.is_empty() => Answer::Download(item, name.to_owned()),
        _ => Answer::Json(item),
    }
}

/// What lies in virtual hosts.
fn add_objects<N: Node>(call: &Call<'_, N>, item: &mut Value, vhosts: &[String], named: bool) {
    let state = &call.state;
    let strip = |mut value: Value| {
        if !named && let Value::Object(object) = &mut value {
            object.remove("vhost");
        }
        value
    };
    let queues = vhosts.iter().flat_map(|vhost| state.queues(vhost));
    let queues = queues.filter(|queue| queue.exclusive_owner.is_none());
    item["queues"] = queues.map(|queue| strip(show_queue(queue))).collect();
    let exchanges = vhosts.iter().flat_map(|vhost| state.exchanges(vhost));
    let own = exchanges.filter(|one| !one.name.is_empty() && !one.name.starts_with("amq."));
    item["exchanges"] = own.map(|exchange| strip(show_exchange(exchange))).collect();
    let bindings = vhosts.iter().flat_map(|vhost| state.bindings(vhost));
    let kept = bindings.filter(|binding| match &binding.destination {
        Destination::Queue(name) => {
            state.queue(&binding.vhost, name).is_some_and(|queue| queue.exclusive_owner.is_none())
        }
        Destination::Exchange(_) => true,
    });
    item["bindings"] = kept.map(|binding| strip(show_binding(binding))).collect();
    let policies = vhosts.iter().flat_map(|vhost| state.policies(vhost));
    item["policies"] = policies.map(|policy| strip(policies::show(policy))).collect();
    let mut parameters: Vec<Value> = vhosts
        .iter()
        .flat_map(|vhost| state.parameters(vhost))
        .map(|parameter| strip(parameters::show(parameter)))
        .collect();
    for vhost in vhosts {
        let limits = limits::vhost_limits(call, vhost);
        if !limits.is_empty() {
            parameters.push(strip(json!({
                "component": "vhost-limits", "vhost": vhost, "name": "limits", "value": limits,
            })));
        }
        parameters.extend(state.operator_policies(vhost).map(|policy| {
            let shown = policies::show(policy);
            strip(json!({
                "component": "operator_policy",
                "vhost": vhost,
                "name": &*policy.name,
                "value": {
                    "pattern": shown["pattern"], "definition": shown["definition"],
                    "priority": shown["priority"], "apply-to": shown["apply-to"],
                },
            }))
        }));
    }
    item["parameters"] = Value::Array(parameters);
}

fn show_queue(queue: &Queue) -> Value {
    json!({
        "name": &*queue.name,
        "vhost": &*queue.vhost,
        "type": queue.kind.as_str(),
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "arguments": table::to_json(&queue.arguments),
    })
}

fn show_exchange(exchange: &Exchange) -> Value {
    json!({
        "name": &*exchange.name,
        "vhost": &*exchange.vhost,
        "type": exchange.kind.as_str(),
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": table::to_json(&exchange.arguments),
    })
}

fn show_binding(binding: &Binding) -> Value {
    let mut item = super::bindings::show(binding);
    if let Value::Object(object) = &mut item {
        object.remove("properties_key");
    }
    item
}

/// The definitions in a request: JSON, or a form with a part `file`.
pub(super) fn body(headers: &HeaderMap, bytes: &[u8]) -> Outcome<Body> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let boundary = kind
        .filter(|kind| kind.starts_with("multipart/form-data"))
        .and_then(|kind| kind.split_once("boundary="))
        .map(|(_, boundary)| boundary.trim_matches('"').to_owned());
    let Some(boundary) = boundary else { return Body::parse(bytes) };
    let text = String::from_utf8_lossy(bytes);
    let file = text
        .split(&format!("--{boundary}"))
        .filter_map(|part| part.split_once("\r\n\r\n"))
        .find(|(head, _)| head.contains("name=\"file\""))
        .map(|(_, content)| content.trim_end_matches("\r\n").to_owned());
    let file = file.ok_or_else(|| Failure::bad_request("the form has no part named file"))?;
    Body::parse(file.as_bytes())
}

/// `POST /definitions`, `/definitions/VHOST`.
pub(super) async fn import<N: Node>(call: &Call<'_, N>, vhost: Option<&str>) -> Outcome<Answer> {
    // Of one virtual host too: an import asks for no permissions and may hold operator policies.
    call.administrator()?;
    if let Some(vhost) = vhost {
        call.exists(vhost)?;
    }
    // Everything is read before anything is done, so that nonsense changes nothing.
    let mut skipped = Vec::new();
    let commands = commands(call, vhost, &mut skipped)?;
    for (what, command) in commands {
        let declares = matches!(
            command,
            Command::DeclareQueue(_) | Command::DeclareExchange(_) | Command::Bind(_)
        );
        match call.node.submit(command, call.by()).await {
            Ok(_) => {}
            Err(refusal)
                if declares && matches!(refusal.kind, Kind::Precondition | Kind::NotFound) =>
            {
                tracing::warn!(object = what, reason = refusal.text, "definition was not imported");
                skipped.push(json!({"object": what, "reason": refusal.text}));
            }
            Err(refusal) if refusal.kind == Kind::Unavailable => return Err(refusal.into()),
            Err(refusal) => {
                return Err(Failure::bad_request(format!("{what}: {}", refusal.text)));
            }
        }
    }
    if skipped.is_empty() {
        return Ok(Answer::Done);
    }
    // The rest was imported, so it is no failure; but it is not silent either.
    Ok(Answer::Json(json!({ "skipped": skipped })))
}

/// Commands with what each is about.
type Commands = Vec<(String, Command)>;

fn commands<N: Node>(
    call: &Call<'_, N>,
    vhost: Option<&str>,
    skipped: &mut Vec<Value>,
) -> Outcome<Commands> {
    let mut commands = Commands::new();
    if vhost.is_none() {
        for entry in entries(&call.body, "users")? {
            add_user(&mut commands, &entry)?;
        }
        for entry in entries(&call.body, "vhosts")? {
            let name = entry.text("name")?;
            let old = call.state.vhost(&name).map(AsRef::as_ref);
            let parsed = vhosts::parse(&entry, old, &name)?;
            let what = format!("vhost '{name}'");
            commands.push((what.clone(), Command::PutVhost(parsed)));
            add_limits(&mut commands, &what, &name, &Body::from(entry.object("limits")?))?;
        }
        for entry in entries(&call.body, "permissions")? {
            let (vhost, user) = (entry.text("vhost")?, entry.text("user")?);
            let permission = permissions::parse(&entry, &vhost, &user)?;
            let what = format!("permission of '{user}' in '{vhost}'");
            commands.push((what, Command::PutPermission(permission)));
        }
        for entry in entries(&call.body, "topic_permissions")? {
            let (vhost, user) = (entry.text("vhost")?, entry.text("user")?);
            let permission = permissions::parse_topic(&entry, &vhost, &user)?;
            let what = format!("topic permission of '{user}' in '{vhost}'");
            commands.push((what, Command::PutTopicPermission(permission)));
        }
        for entry in entries(&call.body, "global_parameters")? {
            let name = entry.text("name")?;
            let value = entry.get("value").cloned().unwrap_or_default();
            let parameter = GlobalParameter { name: name.as_str().into(), value };
            let what = format!("global parameter '{name}'");
            commands.push((what, Command::PutGlobalParameter(parameter)));
        }
    }
    for entry in entries(&call.body, "parameters")? {
        add_parameter(&mut commands, &entry, &place(&entry, vhost)?, skipped)?;
    }
    for entry in entries(&call.body, "policies")? {
        let (vhost, name) = (place(&entry, vhost)?, entry.text("name")?);
        let policy = policies::parse(&entry, &vhost, &name)?;
        commands.push((format!("policy '{name}'"), Command::PutPolicy(policy)));
    }
    for entry in own_entries(&call.body, "exchanges")? {
        let declaration = exchange(&entry, &place(&entry, vhost)?, call.by())?;
        let what = format!("exchange '{}'", declaration.name);
        commands.push((what, Command::DeclareExchange(declaration)));
    }
    for entry in own_entries(&call.body, "queues")? {
        let declaration = queue(&entry, &place(&entry, vhost)?, call.by())?;
        let what = format!("queue '{}'", declaration.name);
        commands.push((what, Command::DeclareQueue(declaration)));
    }
    for entry in entries(&call.body, "bindings")? {
        let binding = binding(&entry, &place(&entry, vhost)?)?;
        if !binding.source.is_empty() {
            let what = format!("binding {} -> {}", binding.source, binding.destination.name());
            commands.push((what, Command::Bind(binding)));
        }
    }
    Ok(commands)
}

/// The objects of a list, which may be missing.
fn entries(body: &Body, key: &str) -> Outcome<Vec<Body>> {
    let not_objects = || Failure::bad_request(format!("{key} must be a list of objects"));
    match body.get(key) {
        None => Ok(Vec::new()),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| item.as_object().cloned().map(Body::from).ok_or_else(not_objects))
            .collect(),
        Some(_) => Err(not_objects()),
    }
}

/// The same without those whose names are the broker's to give.
fn own_entries(body: &Body, key: &str) -> Outcome<Vec<Body>> {
    let mut entries = entries(body, key)?;
    entries.retain(|entry| {
        let name = entry.get("name").and_then(Value::as_str).unwrap_or_default();
        let is_own = !name.starts_with("amq.");
        if !is_own {
            tracing::info!(name, "a definition under a reserved name is passed over");
        }
        is_own
    });
    Ok(entries)
}

/// The virtual host of an entry: the one that the import is for, or the entry's own.
fn place(entry: &Body, vhost: Option<&str>) -> Outcome<String> {
    match vhost {
        Some(vhost) => Ok(vhost.to_owned()),
        None => entry.text("vhost"),
    }
}

fn add_user(commands: &mut Commands, entry: &Body) -> Outcome<()> {
    let name = entry.text("name")?;
    let what = format!("user '{name}'");
    commands.push((what.clone(), Command::PutUser(users::parse(entry, &name)?)));
    for (limit, value) in users::limits(entry)? {
        let user = name.as_str().into();
        commands.push((what.clone(), Command::PutUserLimit { user, limit, value }));
    }
    Ok(())
}

fn add_limits(commands: &mut Commands, what: &str, vhost: &str, limits: &Body) -> Outcome<()> {
    for name in limits.fields().keys() {
        let value = limits.integer(name)?.unwrap_or(-1);
        let limit = limits::vhost_limit(name)?;
        let command = Command::PutVhostLimit { vhost: vhost.into(), limit, value };
        commands.push((what.to_owned(), command));
    }
    Ok(())
}

/// Limits and operator policies travel as parameters.
fn add_parameter(
    commands: &mut Commands,
    entry: &Body,
    vhost: &str,
    skipped: &mut Vec<Value>,
) -> Outcome<()> {
    let (component, name) = (entry.text("component")?, entry.text("name")?);
    let what = format!("parameter '{component}/{name}'");
    let value = entry.get("value").cloned().unwrap_or_default();
    match (component.as_str(), &value) {
        ("vhost-limits", Value::Object(values)) => {
            add_limits(commands, &what, vhost, &Body::from(values.clone()))?;
        }
        ("operator_policy", Value::Object(values)) => {
            let values = Body::from(values.clone());
            let policy = policies::parse(&values, vhost, &name)?;
            commands.push((what, Command::PutOperatorPolicy(policy)));
        }
        // Of a plugin that is not here: no reason to refuse everything else.
        _ => match parameters::parse(&component, vhost, &name, value) {
            Ok(parameter) => commands.push((what, Command::PutParameter(parameter))),
            Err(failure) => skipped.push(json!({"object": what, "reason": failure.reason})),
        },
    }
    Ok(())
}

fn exchange(entry: &Body, vhost: &str, by: &str) -> Outcome<DeclareExchange> {
    Ok(DeclareExchange {
        vhost: vhost.into(),
        name: name("exchange", entry.text("name")?)?.into(),
        kind: entry.text_or("type", Some("direct"))?.into(),
        durable: entry.flag("durable", true)?,
        auto_delete: entry.flag("auto_delete", false)?,
        internal: entry.flag("internal", false)?,
        arguments: table::from_json(&entry.object("arguments")?)?,
        user: by.into(),
    })
}

fn queue(entry: &Body, vhost: &str, by: &str) -> Outcome<DeclareQueue> {
    let mut arguments: Map<String, Value> = entry.object("arguments")?;
    if let Some(kind) = entry.get("type").filter(|_| !arguments.contains_key("x-queue-type"))
        && kind != "classic"
    {
        arguments.insert("x-queue-type".to_owned(), kind.clone());
    }
    Ok(DeclareQueue {
        vhost: vhost.into(),
        name: name("queue", entry.text("name")?)?.into(),
        generated: true,
        durable: entry.flag("durable", true)?,
        auto_delete: entry.flag("auto_delete", false)?,
        exclusive_owner: None,
        arguments: table::from_json(&arguments)?,
        user: by.into(),
        // The node that takes it says where it shall be.
        home: NodeId(0),
        members: Vec::new(),
        away: Vec::new(),
    })
}

fn binding(entry: &Body, vhost: &str) -> Outcome<Binding> {
    let destination = entry.text("destination")?.as_str().into();
    Ok(Binding {
        vhost: vhost.into(),
        source: entry.text("source")?.into(),
        destination: match entry.text_or("destination_type", Some("queue"))?.as_str() {
            "queue" => Destination::Queue(destination),
            "exchange" => Destination::Exchange(destination),
            other => {
                return Err(Failure::bad_request(format!("unknown destination_type: {other}")));
            }
        },
        routing_key: short("routing_key", entry.text_or("routing_key", Some(""))?)?.into(),
        arguments: table::from_json(&entry.object("arguments")?)?,
    })
}
