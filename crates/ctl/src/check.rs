//! Commands that say how the node is.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use ureq::http::Method;

use crate::cli::Command;
use crate::client::{Client, accept, segment};
use crate::exit::{Exit, Failed};
use crate::members::about_queue;
use crate::output::Rows;
use crate::run::Session;

/// Performs the command if it is one of these.
///
/// # Errors
/// With [`Exit::Unavailable`] if a check fails.
pub(crate) fn perform(session: &mut Session<'_>) -> Result<bool, Failed> {
    match &session.arguments.command {
        Command::Ping => {
            session.client.get("version")?;
            session.say("Ping succeeded")?;
        }
        Command::ServerVersion => {
            let overview = session.client.get("overview")?;
            let version = overview["product_version"].as_str().unwrap_or_default().to_owned();
            writeln!(session.out, "{version}")?;
        }
        Command::Status => status(session)?,
        Command::ClusterStatus => cluster_status(session)?,
        Command::Alarms => alarms(session)?,
        Command::CheckAlarms => {
            health(session, "alarms", "no alarms are in effect in the cluster")?;
        }
        Command::CheckLocalAlarms => {
            health(session, "local-alarms", "no alarms are in effect on the node")?;
        }
        Command::CheckRunning => health(session, "is-in-service", "the node serves clients")?,
        Command::CheckVirtualHosts => {
            health(session, "virtual-hosts", "all virtual hosts are up")?;
        }
        Command::CheckPortListener { port } => {
            let said = format!("a listener is open on port {port}");
            health(session, &format!("port-listener/{port}"), &said)?;
        }
        Command::CheckProtocolListener { protocol } => {
            let said = format!("a listener for {protocol} is open");
            health(session, &format!("protocol-listener/{}", segment(protocol)), &said)?;
        }
        Command::QuorumStatus { queue } => quorum_status(session, queue)?,
        Command::CheckIfNodeIsQuorumCritical => {
            let said = "no quorum queue would lose its majority with the node";
            health(session, "node-is-quorum-critical", said)?;
        }
        Command::AwaitOnlineQuorumPlusOne => {
            session
                .say("Will wait for a quorum + 1 of nodes to be online for all quorum queues")?;
            await_quorum_plus_one(session)?;
        }
        Command::CheckIfJournalsAreServed => {
            health(session, "journals-are-served", "all journals are served")?;
        }
        Command::CheckIfJournalsAreInSync => {
            let said = "all journals are served, and their copies are in sync";
            health(session, "journals-are-in-sync", said)?;
        }
        Command::CheckIfNewQuorumQueueReplicasHaveFinishedInitialSync => {
            let said = "all members of quorum queues on the node have a vote";
            health(session, "new-quorum-queue-replicas-have-finished-initial-sync", said)?;
        }
        Command::CheckForQuorumQueuesWithGhostMembers => {
            let said = "all members of quorum queues are on nodes of the cluster";
            health(session, "quorum-queues-without-ghost-members", said)?;
        }
        Command::CheckForQuorumQueuesWithoutAnElectedLeader { pattern, across_all_vhosts } => {
            let place = if *across_all_vhosts {
                "all-vhosts".to_owned()
            } else {
                format!("vhost/{}", segment(&session.arguments.vhost))
            };
            let path = format!(
                "quorum-queues-without-elected-leaders/{place}/pattern/{}",
                segment(pattern)
            );
            health(session, &path, "all quorum queues have a leader")?;
        }
        Command::AuthenticateUser { username, candidate } => {
            authenticate(session, username, candidate)?;
        }
        Command::Listeners => {
            let overview = session.client.get("overview")?;
            let columns = ["protocol", "ip_address", "port", "node"].map(str::to_owned).to_vec();
            let items = overview["listeners"].as_array().cloned().unwrap_or_default();
            session.print(&crate::list::rows(&items, columns, &[])?)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn health(session: &mut Session<'_>, path: &str, said: &str) -> Result<(), Failed> {
    let path = format!("health/checks/{path}");
    let response = session.client.send(Method::GET, &path, None, &[])?;
    if response.status == 503 {
        let mut reason = response.reason();
        for journal in response.body["journals"].as_array().into_iter().flatten() {
            reason += &ailing(journal);
        }
        return Err(Failed::new(Exit::Unavailable, reason));
    }
    accept(response)?;
    session.say(said)
}

/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);

fn await_quorum_plus_one(session: &mut Session<'_>) -> Result<(), Failed> {
    let deadline = Instant::now() + Duration::from_secs(session.arguments.timeout);
    loop {
        let path = "health/checks/node-is-quorum-critical";
        let response = session.client.send(Method::GET, path, None, &[])?;
        if response.status != 503 {
            return accept(response).map(drop);
        }
        if Instant::now() + LOOK > deadline {
            return Err(Failed::new(Exit::Timeout, response.reason()));
        }
        std::thread::sleep(LOOK);
    }
}

/// What is wrong with a journal: a line for it, and one for each node that waits.
fn ailing(journal: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let journal_line =
        format!("\njournal '{}': {}", text(&journal["name"]), text(&journal["summary"]));
    let waiting = journal["waiting"].as_array().into_iter().flatten();
    let waits = |one: &Value| format!("\n  {}: {}", text(&one["node"]), text(&one["reason"]));
    [journal_line].into_iter().chain(waiting.map(waits)).collect()
}

/// Whether a password is right. Users without a tag may not use the HTTP API, but are told so in
/// another way than those whose password is wrong.
fn authenticate(session: &mut Session<'_>, user: &str, password: &str) -> Result<(), Failed> {
    let arguments = session.arguments;
    let timeout = Duration::from_secs(arguments.timeout);
    let client = Client::new(&arguments.url, user, password, timeout);
    let response = client.send(Method::GET, "whoami", None, &[])?;
    if response.status == 401 && response.body["error"] == "not_authorized" {
        return Err(Failed::new(Exit::Data, format!("failed to authenticate user \"{user}\"")));
    }
    session.say("Success")
}

fn alarms(session: &mut Session<'_>) -> Result<(), Failed> {
    let response = session.client.send(Method::GET, "health/checks/alarms", None, &[])?;
    let items = response.body["alarms"].as_array().cloned().unwrap_or_default();
    if response.status != 503 {
        accept(response)?;
    }
    if items.is_empty() {
        return session.say("no alarms are in effect");
    }
    let columns = ["node", "resource"].map(str::to_owned).to_vec();
    session.print(&crate::list::rows(&items, columns, &[])?)
}

fn cluster_status(session: &mut Session<'_>) -> Result<(), Failed> {
    let nodes = session.client.get("nodes")?;
    let row = |node: &Value| {
        let error = node["link_error"].as_str().unwrap_or_default();
        json!({"name": node["name"], "running": node["running"], "error": error})
    };
    let items: Vec<Value> = nodes.as_array().into_iter().flatten().map(row).collect();
    let columns = ["name", "running", "error"].map(str::to_owned).to_vec();
    session.print(&crate::list::rows(&items, columns, &[])?)
}

fn quorum_status(session: &mut Session<'_>, queue: &str) -> Result<(), Failed> {
    let vhost = segment(&session.arguments.vhost);
    let path = format!("queues/quorum/{vhost}/{}/status", segment(queue));
    let response = session.client.send(Method::GET, &path, None, &[])?;
    if response.status == 400 && response.reason() == "not a quorum queue" {
        return Err(Failed::new(Exit::Data, "Cannot get quorum status of a classic queue"));
    }
    let members = about_queue(session, queue, "", response)?;
    let items = members.as_array().cloned().unwrap_or_default();
    let columns = [
        "Node Name",
        "Raft State",
        "Membership",
        "Last Log Index",
        "Last Written",
        "Last Applied",
        "Commit Index",
        "Snapshot Index",
        "Term",
        "Machine Version",
    ];
    session.print(&crate::list::rows(&items, columns.map(str::to_owned).to_vec(), &[])?)
}

fn status(session: &mut Session<'_>) -> Result<(), Failed> {
    let overview = session.client.get("overview")?;
    let nodes = session.client.get("nodes")?;
    // The one that was asked, which says its name.
    let mut found = nodes.as_array().into_iter().flatten();
    let node = found.find(|node| node["name"] == overview["node"]).cloned().unwrap_or_default();
    let flag = |on: &Value, name: &str| on.as_bool().unwrap_or(false).then(|| name.to_owned());
    let alarms: Vec<String> =
        [flag(&node["mem_alarm"], "memory"), flag(&node["disk_free_alarm"], "disk")]
            .into_iter()
            .flatten()
            .collect();
    let alarms = if alarms.is_empty() { "none".to_owned() } else { alarms.join(", ") };
    let totals = &overview["object_totals"];
    let messages = &overview["queue_totals"];
    let pairs = [
        ("node", overview["node"].clone()),
        ("cluster", overview["cluster_name"].clone()),
        ("version", overview["product_version"].clone()),
        ("compatible with RabbitMQ", overview["rabbitmq_version"].clone()),
        ("OS process", node["os_pid"].clone()),
        ("uptime (seconds)", json!(node["uptime"].as_u64().unwrap_or(0) / 1000)),
        ("data directory", node["db_dir"].clone()),
        ("alarms", json!(alarms)),
        ("memory used (bytes)", node["mem_used"].clone()),
        ("memory limit (bytes)", node["mem_limit"].clone()),
        ("disk free (bytes)", node["disk_free"].clone()),
        ("disk free limit (bytes)", node["disk_free_limit"].clone()),
        ("file descriptors used", node["fd_used"].clone()),
        ("file descriptors limit", node["fd_total"].clone()),
        ("connections", totals["connections"].clone()),
        ("channels", totals["channels"].clone()),
        ("consumers", totals["consumers"].clone()),
        ("queues", totals["queues"].clone()),
        ("exchanges", totals["exchanges"].clone()),
        ("messages ready", messages["messages_ready"].clone()),
        ("messages unacknowledged", messages["messages_unacknowledged"].clone()),
    ];
    session.print_pairs(&pairs)?;
    let listeners = overview["listeners"].as_array().cloned().unwrap_or_default();
    if session.arguments.formatter == crate::cli::Formatter::Table {
        let rows: Vec<Vec<Value>> = listeners
            .iter()
            .map(|one| {
                let address = one["ip_address"].as_str().unwrap_or_default();
                vec![
                    json!("listener"),
                    json!(format!(
                        "{} on {address} port {}",
                        one["protocol"].as_str().unwrap_or_default(),
                        one["port"]
                    )),
                ]
            })
            .collect();
        let rows = Rows { columns: vec!["name".to_owned(), "value".to_owned()], rows };
        rows.print(session.arguments.formatter, false, session.out)?;
    }
    Ok(())
}
