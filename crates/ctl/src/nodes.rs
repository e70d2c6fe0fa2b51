//! Commands about nodes of a cluster.

use std::fs;
use std::path::Path;
use std::time::Duration;

use journal::disk::real::RealDisk;
use journal::error::OpenError;
use journal::inspect::inspect;
use journal::whole;
use model::address::Peer;
use serde_json::{Value, json};
use ureq::http::Method;

use crate::cli::Command;
use crate::client::{Client, accept, segment};
use crate::exit::{Exit, Failed};
use crate::list;
use crate::run::Session;

/// Seconds that a command about all of a node may take at least.
const MANY: u64 = 3600;

/// Performs the command if it is one of these.
///
/// # Errors
/// If a node refuses.
pub(crate) fn perform(session: &mut Session<'_>) -> Result<bool, Failed> {
    match &session.arguments.command {
        Command::Rebalance { kind, vhost_pattern, queue_pattern } => {
            session.say(&format!("Re-balancing leaders of {kind} queues..."))?;
            let body = json!({"vhost_pattern": vhost_pattern, "queue_pattern": queue_pattern});
            if kind != "classic" {
                rebalance(session, &body)?;
            }
        }
        Command::Drain { node } => {
            let node = named(session, node.as_deref())?;
            session.say(&format!("Will put node {node} into maintenance mode..."))?;
            drain(session, &node)?;
        }
        Command::Revive { node } => {
            let node = named(session, node.as_deref())?;
            session.say(&format!("Will revive node {node} from maintenance..."))?;
            let path = format!("nodes/{}/revive", segment(&node));
            send(session, Method::POST, &path, &json!({}), &node)?;
        }
        Command::ForgetClusterNode { node, force, keep_members } => {
            session.say(&format!("Removing node {node} from the cluster"))?;
            forget(session, node, *force, *keep_members)?;
        }
        Command::Join { directory, peer } => join(session, directory, peer)?,
        Command::Reset { directory, force } => reset(session, directory, *force)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// What concerns all queues takes its time.
fn patient(session: &Session<'_>) -> Client {
    let arguments = session.arguments;
    let patience = Duration::from_secs(arguments.timeout.max(MANY));
    Client::new(&arguments.url, &arguments.user, &arguments.password, patience)
}

fn send(
    session: &Session<'_>,
    method: Method,
    path: &str,
    body: &Value,
    node: &str,
) -> Result<Value, Failed> {
    let response = patient(session).send(method, path, Some(body), &[])?;
    if response.status == 404 {
        return Err(Failed::new(Exit::Data, format!("Node {node} is not a member of the cluster")));
    }
    Ok(accept(response)?.body)
}

fn named(session: &Session<'_>, node: Option<&str>) -> Result<String, Failed> {
    match node {
        Some(node) => Ok(node.to_owned()),
        None => Ok(session.client.get("overview")?["node"].as_str().unwrap_or_default().to_owned()),
    }
}

fn rebalance(session: &mut Session<'_>, body: &Value) -> Result<(), Failed> {
    let response =
        patient(session).send(Method::POST, "rebalance/queues?report=true", Some(body), &[])?;
    let report = accept(response)?.body;
    let items = report["nodes"].as_array().cloned().unwrap_or_default();
    let columns = ["Node name", "Number of quorum queues"].map(str::to_owned).to_vec();
    session.print(&list::rows(&items, columns, &[])?)?;
    match report["failed"].as_u64().unwrap_or(0) {
        0 => Ok(()),
        failed => Err(Failed::new(Exit::Unavailable, format!("{failed} leaders did not move"))),
    }
}

fn drain(session: &mut Session<'_>, node: &str) -> Result<(), Failed> {
    let path = format!("nodes/{}/drain", segment(node));
    let drained = send(session, Method::POST, &path, &json!({}), node)?;
    session.print_pairs(&[
        ("connections closed", drained["connections"].clone()),
        ("leaders moved", drained["leaders_moved"].clone()),
        ("journals moved", drained["journals_moved"].clone()),
    ])?;
    let rows = |what: &str| drained[what].as_array().cloned().unwrap_or_default();
    let (leaders, journals) = (rows("leaders_stayed"), rows("journals_stayed"));
    let mut left = Vec::new();
    if !leaders.is_empty() {
        let columns = ["vhost", "name", "reason"].map(str::to_owned).to_vec();
        session.print(&list::rows(&leaders, columns, &[])?)?;
        left.push(format!("{} quorum queues are still led by the node", leaders.len()));
    }
    if !journals.is_empty() {
        let columns = ["name", "reason"].map(str::to_owned).to_vec();
        session.print(&list::rows(&journals, columns, &[])?)?;
        left.push(format!("{} journals are still served by the node", journals.len()));
    }
    if left.is_empty() { Ok(()) } else { Err(Failed::new(Exit::Unavailable, left.join("; "))) }
}

fn forget(
    session: &mut Session<'_>,
    node: &str,
    force: bool,
    keep_members: bool,
) -> Result<(), Failed> {
    let path = format!("nodes/{}", segment(node));
    let body = json!({ "force": force, "keep_members": keep_members });
    let response = patient(session).send(Method::DELETE, &path, Some(&body), &[])?;
    if response.status == 404 {
        return Err(Failed::new(Exit::Data, format!("Node {node} is not a member of the cluster")));
    }
    let rows = response.body["queues"].as_array().cloned().unwrap_or_default();
    let columns = ["vhost", "name", "size", "result"].map(str::to_owned).to_vec();
    session.print(&list::rows(&rows, columns, &[])?)?;
    accept(response).map(drop)
}

/// Leaves a word for the node, which one that was on its own could not follow.
fn join(session: &mut Session<'_>, directory: &Path, peer: &str) -> Result<(), Failed> {
    let Some(Peer { name, .. }) = Peer::parse(peer) else {
        let reason = format!("{peer:?} is not \"NAME@ADDRESS:PORT\"");
        return Err(Failed::new(Exit::Usage, reason));
    };
    if !is_nobody(directory)? {
        let reason = format!(
            "{} has the data of a node, and only one without any can join a cluster: reset it first",
            directory.display()
        );
        return Err(Failed::new(Exit::Data, reason));
    }
    fs::create_dir_all(directory)?;
    whole::replace(&RealDisk, directory, "join", format!("{peer}\n").as_bytes())?;
    let directory = directory.display();
    session.say(&format!("The node in {directory} joins the cluster of {name} when it starts"))
}

/// Whether the node of this directory has been none yet: it was never started, or was told whom to join
/// and has not been let in, so that what was mistaken can be put right.
fn is_nobody(directory: &Path) -> Result<bool, Failed> {
    if !directory.join("identity").exists() {
        return Ok(true);
    }
    match inspect(&RealDisk, &directory.join("journal"), false) {
        Ok(journal) => Ok(journal.streams.is_empty() && directory.join("join").exists()),
        Err(error @ OpenError::Locked { .. }) => {
            Err(Failed::new(Exit::Unavailable, error.to_string()))
        }
        Err(_) => Ok(false),
    }
}

/// Forgets first: a node that is wiped and still listed would be missed for ever.
fn reset(session: &mut Session<'_>, directory: &Path, force: bool) -> Result<(), Failed> {
    let node = identity(directory)?;
    if let Err(error @ OpenError::Locked { .. }) =
        inspect(&RealDisk, &directory.join("journal"), false)
    {
        return Err(Failed::new(Exit::Unavailable, error.to_string()));
    }
    session.say(&format!("Resetting node {node} in {} ...", directory.display()))?;
    match forget(session, &node, force, false) {
        Ok(()) => {}
        // It may never have been in a cluster, or have been forgotten before.
        Err(failed) if failed.exit == Exit::Data && failed.reason.contains("not a member") => {}
        Err(failed) if force => {
            session.say(&format!("The cluster was not told: {}", failed.reason))?;
        }
        Err(failed) => return Err(failed),
    }
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() { fs::remove_dir_all(&path)? } else { fs::remove_file(&path)? }
    }
    Ok(())
}

/// The number of the node whose directory it is.
fn identity(directory: &Path) -> Result<String, Failed> {
    let path = directory.join("identity");
    let text = fs::read_to_string(&path)
        .map_err(|error| Failed::new(Exit::Data, format!("{}: {error}", path.display())))?;
    let node = text.lines().find_map(|line| line.strip_prefix("node "));
    let node = node.filter(|node| node.len() == 16);
    node.map(str::to_owned)
        .ok_or_else(|| Failed::new(Exit::Data, format!("{} is no node's identity", path.display())))
}
