//! `reconcile`: how the members of quorum queues are kept as many as wanted.

use serde_json::{Value, json};
use ureq::http::Method;

use crate::cli::{Command, Formatter, ReconcileCommand};
use crate::client::{accept, segment};
use crate::exit::{Exit, Failed};
use crate::list;
use crate::members::about_queue;
use crate::output::Rows;
use crate::run::Session;

/// Performs the command if it is one of these.
///
/// # Errors
/// If the node refuses; with [`Exit::Unavailable`] if a node could not be told.
pub(crate) fn perform(session: &mut Session<'_>) -> Result<bool, Failed> {
    let Command::Reconcile(command) = &session.arguments.command else { return Ok(false) };
    match command {
        ReconcileCommand::Status => status(session)?,
        ReconcileCommand::Now => now(session)?,
        ReconcileCommand::Plan { queue } => plan(session, queue)?,
    }
    Ok(true)
}

fn status(session: &mut Session<'_>) -> Result<(), Failed> {
    let reports = session.client.get("reconciliation")?;
    if session.arguments.formatter == Formatter::Json {
        writeln!(session.out, "{reports}")?;
        return Ok(());
    }
    session.say("Reconciliation of the members of quorum queues ...")?;
    let row = |report: &Value| {
        let passed = match (report["last_pass"].as_u64(), report["last_duration"].as_u64()) {
            (Some(ended), Some(took)) => format!("{}, took {took} ms", ago(report, ended)),
            _ => "never".to_owned(),
        };
        let to_come = match report["next_pass"].as_u64() {
            Some(begins) => hence(report, begins),
            None if report["enabled"] == true => "now".to_owned(),
            None => "never".to_owned(),
        };
        json!({
            "node": report["node"],
            "enabled": report["enabled"],
            "auto_remove": report["auto_remove"],
            "queues": report["queues"],
            "below_target": report["below_target"],
            "blocked": counts(&report["blocked"]),
            "running": report["running"],
            "done": counts(&report["done"]),
            "failed": counts(&report["failed"]),
            "last_pass": passed,
            "next_pass": to_come,
        })
    };
    let items: Vec<Value> = reports.as_array().into_iter().flatten().map(row).collect();
    let columns = [
        "node",
        "enabled",
        "auto_remove",
        "queues",
        "below_target",
        "blocked",
        "running",
        "done",
        "failed",
        "last_pass",
        "next_pass",
    ];
    session.print(&list::rows(&items, columns.map(str::to_owned).to_vec(), &[])?)
}

fn now(session: &mut Session<'_>) -> Result<(), Failed> {
    session.say("Letting all nodes look at the quorum queues that they lead ...")?;
    let body = json!({});
    let told = session.client.send(Method::POST, "reconciliation/now", Some(&body), &[])?;
    let told = accept(told)?.body;
    let row = |item: &Value| {
        let reason = item["reason"].as_str().unwrap_or_default();
        json!({"node": item["node"], "result": item["result"], "reason": reason})
    };
    let items: Vec<Value> = told.as_array().into_iter().flatten().map(row).collect();
    let columns = ["node", "result", "reason"].map(str::to_owned).to_vec();
    session.print(&list::rows(&items, columns, &[])?)?;
    let failed: Vec<&str> = items
        .iter()
        .filter(|item| item["result"] != "ok")
        .filter_map(|item| item["node"].as_str())
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failed::new(Exit::Unavailable, format!("could not be told: {}", failed.join(", "))))
}

fn plan(session: &mut Session<'_>, queue: &str) -> Result<(), Failed> {
    let vhost = segment(&session.arguments.vhost);
    let path = format!("queues/quorum/{vhost}/{}/plan", segment(queue));
    let response = session.client.send(Method::GET, &path, None, &[])?;
    let plan = about_queue(session, queue, "", response)?;
    if session.arguments.formatter == Formatter::Json {
        writeln!(session.out, "{plan}")?;
        return Ok(());
    }
    let empty = Vec::new();
    let members = plan["members"].as_array().unwrap_or(&empty);
    let leader = plan["leader"].as_str().unwrap_or_default();
    let size = plan["size_afterwards"].as_u64().unwrap_or(0);
    session.say(&format!(
        "Queue '{queue}' in vhost '{}': led by {leader}, target {}",
        session.arguments.vhost, plan["target"]
    ))?;
    let columns = ["node", "state", "running", "behind"].map(str::to_owned).to_vec();
    session.print(&list::rows(members, columns, &[])?)?;
    let mut rows = Vec::new();
    for (at, step) in plan["steps"].as_array().unwrap_or(&empty).iter().enumerate() {
        let when = if at == 0 { "next" } else { "then" };
        rows.push(vec![json!(when), step["step"].clone(), step["reason"].clone()]);
    }
    let why = |refusals: &Value, when: &str, rows: &mut Vec<Vec<Value>>| {
        for refusal in refusals.as_array().into_iter().flatten() {
            rows.push(vec![json!(when), json!("nothing more"), refusal["reason"].clone()]);
        }
    };
    why(&plan["refusals"], "now", &mut rows);
    if rows.iter().any(|row| row[0] == "next") {
        why(&plan["afterwards"], "afterwards", &mut rows);
        rows.push(vec![json!("afterwards"), json!(format!("{size} members")), json!("")]);
    } else if rows.is_empty() {
        rows.push(vec![json!("now"), json!("nothing"), json!("there is nothing to be done")]);
    }
    if let Some(failure) = plan["last_failure"].as_str() {
        rows.push(vec![json!("before"), json!("failed"), json!(failure)]);
    }
    let columns = ["when", "what", "why"].map(str::to_owned).to_vec();
    session.print(&Rows { columns, rows })
}

/// `{"add": 3, "remove": 1}` as "add 3, remove 1".
fn counts(counts: &Value) -> String {
    let counts = counts.as_object().into_iter().flatten();
    let shown: Vec<String> = counts.map(|(name, count)| format!("{name} {count}")).collect();
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}

fn ago(report: &Value, at: u64) -> String {
    let now = report["now"].as_u64().unwrap_or(at);
    format!("{} s ago", now.saturating_sub(at) / 1000)
}

fn hence(report: &Value, at: u64) -> String {
    let now = report["now"].as_u64().unwrap_or(at);
    format!("in {} s", at.saturating_sub(now).div_ceil(1000))
}
