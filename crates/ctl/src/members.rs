//! Commands about the members of quorum queues.

use std::time::Duration;

use serde_json::{Value, json};
use ureq::http::Method;

use crate::cli::{Command, Formatter, Matching};
use crate::client::{Client, Response, accept, segment};
use crate::exit::{Exit, Failed};
use crate::list;
use crate::output::Rows;
use crate::run::Session;

/// Seconds that a command about many queues may take at least.
const MANY: u64 = 3600;

/// Performs the command if it is one of these.
///
/// # Errors
/// If the node refuses, or it did not work for some queue.
pub(crate) fn perform(session: &mut Session<'_>) -> Result<bool, Failed> {
    match &session.arguments.command {
        Command::AddMember { queue, node, membership } => {
            session.say(&format!("Adding a member for queue {queue} on node {node}..."))?;
            let body = json!({"node": node, "membership": membership});
            change(session, &Method::POST, queue, "add", &body)?;
        }
        Command::DeleteMember { queue, node, force } => {
            session.say(&format!("Removing a replica of queue {queue} on node {node}..."))?;
            let body = json!({"node": node, "force": force});
            change(session, &Method::DELETE, queue, "delete", &body)?;
        }
        Command::Grow { node, strategy, matching } => {
            session.say(&format!("Growing {strategy} quorum queues on {node}..."))?;
            let path = format!("queues/quorum/replicas/on/{}/grow", segment(node));
            let body = body_of(matching, strategy);
            many(session, Method::POST, &path, &body, matching.errors_only)?;
        }
        Command::GrowToCount { count, strategy, matching } => {
            session.say(&format!("Growing {strategy} quorum queues to {count} members..."))?;
            let mut body = body_of(matching, strategy);
            body["count"] = json!(count);
            let path = "queues/quorum/replicas/grow";
            many(session, Method::POST, path, &body, matching.errors_only)?;
        }
        Command::Shrink { node, errors_only, force } => {
            session.say(&format!("Shrinking quorum queues on {node}..."))?;
            let path = format!("queues/quorum/replicas/on/{}/shrink", segment(node));
            many(session, Method::DELETE, &path, &json!({ "force": force }), *errors_only)?;
        }
        Command::ForceShrink { queue, node, force } => {
            session
                .say(&format!("Letting queue {queue} go on with its member on {node} alone..."))?;
            let body = json!({"node": node, "force": force});
            change(session, &Method::POST, queue, "force-shrink", &body)?;
        }
        Command::ForceShrinkAll { node, vhost_pattern, queue_pattern, errors_only, force } => {
            session.say(&format!("Letting quorum queues go on with members on {node} alone..."))?;
            let path = format!("queues/quorum/replicas/on/{}/force-shrink", segment(node));
            let body = json!({
                "vhost_pattern": vhost_pattern,
                "queue_pattern": queue_pattern,
                "force": force,
            });
            many(session, Method::POST, &path, &body, *errors_only)?;
        }
        Command::ForceCheckpoint { vhost_pattern, queue_pattern, errors_only } => {
            session.say("Forcing checkpoint for all matching quorum queues...")?;
            let body = json!({"vhost_pattern": vhost_pattern, "queue_pattern": queue_pattern});
            let columns = ["vhost", "name", "result"];
            let path = "queues/quorum/replicas/checkpoint";
            rows(session, Method::POST, path, &body, *errors_only, &columns)?;
        }
        Command::Peek { queue, position } => {
            session.say(&format!("Peeking at quorum queue {queue} at position {position} ..."))?;
            peek(session, queue, *position)?;
        }
        Command::ReclaimQuorumMemory { queue } => {
            session.say(&format!("Will reclaim memory of quorum queue {queue}..."))?;
            reclaim(session, queue)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn reclaim(session: &Session<'_>, queue: &str) -> Result<(), Failed> {
    let place = &session.arguments.vhost;
    let path = format!("queues/quorum/{}/{}/checkpoint", segment(place), segment(queue));
    let response = session.client.send(Method::POST, &path, Some(&json!({})), &[])?;
    if response.status == 400 && response.reason() == "not a quorum queue" {
        return Err(Failed::new(Exit::Data, "Cannot reclaim memory of a classic queue"));
    }
    about_queue(session, queue, "", response).map(drop)
}

/// Bytes of a body that are printed.
const PEEK_BYTES: usize = 64;

fn peek(session: &mut Session<'_>, queue: &str, position: u64) -> Result<(), Failed> {
    let place = segment(&session.arguments.vhost);
    let path =
        format!("queues/quorum/{place}/{}/peek/{position}?truncate={PEEK_BYTES}", segment(queue));
    let response = session.client.send(Method::GET, &path, None, &[])?;
    let peeked = about_queue(session, queue, "", response)?;
    let mut message = vec![
        (format!("payload (max {PEEK_BYTES} bytes)"), peeked["payload"].clone()),
        ("payload_encoding".to_owned(), peeked["payload_encoding"].clone()),
        ("exchange".to_owned(), peeked["exchange"].clone()),
        ("routing_keys".to_owned(), json!([peeked["routing_key"]])),
    ];
    for (name, value) in peeked["properties"].as_object().into_iter().flatten() {
        match value.as_object().filter(|_| name == "headers") {
            Some(headers) => message.extend(
                headers.iter().map(|(name, value)| (format!("header.{name}"), value.clone())),
            ),
            None => message.push((name.clone(), value.clone())),
        }
    }
    if session.arguments.formatter == Formatter::Json {
        let message: serde_json::Map<String, Value> = message.into_iter().collect();
        writeln!(session.out, "{}", json!({"result": "ok", "message": message}))?;
        return Ok(());
    }
    let columns = ["keys", "values"].map(str::to_owned).to_vec();
    let rows = message.into_iter().map(|(key, value)| vec![json!(key), value]).collect();
    session.print(&Rows { columns, rows })
}

fn body_of(matching: &Matching, strategy: &str) -> Value {
    json!({
        "strategy": strategy,
        "vhost_pattern": matching.vhost_pattern,
        "queue_pattern": matching.queue_pattern,
        "membership": matching.membership,
    })
}

/// One queue's members.
fn change(
    session: &Session<'_>,
    method: &Method,
    queue: &str,
    what: &str,
    body: &Value,
) -> Result<(), Failed> {
    let place = &session.arguments.vhost;
    let path = format!("queues/quorum/{}/{}/replicas/{what}", segment(place), segment(queue));
    let response = session.client.send(method.clone(), &path, Some(body), &[])?;
    if response.status == 404 {
        return Err(missing(session, queue, body["node"].as_str().unwrap_or_default()));
    }
    if response.status == 400 && response.reason() == "not a quorum queue" {
        let text = match *method {
            _ if what == "force-shrink" => "Cannot shrink a classic queue",
            Method::POST => "Cannot add members to a classic queue",
            _ => "Cannot delete members from a classic queue",
        };
        return Err(Failed::new(Exit::Data, text));
    }
    accept(explained(response)).map(drop)
}

/// What a node answered about a queue that may not be there.
///
/// # Errors
/// If the node refuses.
pub(crate) fn about_queue(
    session: &Session<'_>,
    queue: &str,
    node: &str,
    response: Response,
) -> Result<Value, Failed> {
    if response.status == 404 {
        return Err(missing(session, queue, node));
    }
    Ok(accept(response)?.body)
}

/// What is not there: the queue, or the node.
fn missing(session: &Session<'_>, queue: &str, node: &str) -> Failed {
    let place = &session.arguments.vhost;
    let path = format!("queues/{}/{}?columns=name", segment(place), segment(queue));
    match session.client.send(Method::GET, &path, None, &[]) {
        Ok(response) if response.status == 404 => {
            let text = format!("Queue '{queue}' in virtual host '{place}' does not exist");
            Failed::new(Exit::Data, text)
        }
        Ok(_) => Failed::new(Exit::Data, format!("Node {node} is not a member of the cluster")),
        Err(failed) => failed,
    }
}

/// Words for what the node says in one.
fn explained(mut response: Response) -> Response {
    let text = match response.reason().as_str() {
        "last_node" => "the last node cannot be removed",
        "timeout" => "the operation timed out and may not have been completed",
        "node_not_running" => "the node is not running",
        "no_local_member" => "the node has no member of the queue that could go on",
        "cluster_change_not_permitted" => {
            "another change of the queue's members is under way (cluster_change_not_permitted)"
        }
        _ => return response,
    };
    response.body["reason"] = json!(text);
    response
}

/// Many queues' members; one row for each.
fn many(
    session: &mut Session<'_>,
    method: Method,
    path: &str,
    body: &Value,
    errors_only: bool,
) -> Result<(), Failed> {
    rows(session, method, path, body, errors_only, &["vhost", "name", "size", "result"])
}

/// What became of many queues; one row for each.
fn rows(
    session: &mut Session<'_>,
    method: Method,
    path: &str,
    body: &Value,
    errors_only: bool,
    columns: &[&str],
) -> Result<(), Failed> {
    let arguments = session.arguments;
    let patience = Duration::from_secs(arguments.timeout.max(MANY));
    let client = Client::new(&arguments.url, &arguments.user, &arguments.password, patience);
    let response = client.send(method, path, Some(body), &[])?;
    if response.status == 404 {
        return Err(Failed::new(Exit::Data, "the node is not a member of the cluster"));
    }
    let answer = accept(response)?.body;
    let mut items = answer.as_array().cloned().unwrap_or_default();
    let is_error = |item: &Value| item["result"] != "ok";
    let failed = items.iter().filter(|item| is_error(item)).count();
    let count = items.len();
    if errors_only {
        items.retain(is_error);
    }
    let columns = columns.iter().map(|column| (*column).to_owned()).collect();
    session.print(&list::rows(&items, columns, &[])?)?;
    match failed {
        0 => Ok(()),
        failed => Err(Failed::new(
            Exit::Unavailable,
            format!("it did not work for {failed} of {count} queues"),
        )),
    }
}
