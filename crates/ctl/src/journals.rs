//! `journal list|create|set_backup|remove_backup|delete` and what an operator decides about copies:
//! named journals of a cluster.

use serde_json::{Value, json};
use ureq::http::Method;

use crate::cli::{Command, Consent, Formatter, JournalCommand};
use crate::client::{accept, segment};
use crate::exit::Failed;
use crate::list;
use crate::run::Session;
use crate::sequences::taken;

/// Performs the command if it is one of these.
///
/// # Errors
/// If the node refuses.
pub(crate) fn perform(session: &mut Session<'_>) -> Result<bool, Failed> {
    let Command::Journal(command) = &session.arguments.command else { return Ok(false) };
    match command {
        JournalCommand::List => list(session)?,
        JournalCommand::Create { name, node, backup } => {
            session.say(&format!("Creating journal \"{name}\" ..."))?;
            let body = json!({ "node": node, "backup": backup });
            change(session, Method::PUT, &path(name, ""), Some(&body))?;
        }
        JournalCommand::SetBackup { name, node } => {
            session.say(&format!("Setting the backup of journal \"{name}\" to {node} ..."))?;
            let body = json!({ "node": node });
            change(session, Method::PUT, &path(name, "/backup"), Some(&body))?;
        }
        JournalCommand::RemoveBackup { name } => {
            session.say(&format!("Removing the backup of journal \"{name}\" ..."))?;
            change(session, Method::DELETE, &path(name, "/backup"), None)?;
        }
        JournalCommand::Delete { name } => {
            session.say(&format!("Deleting journal \"{name}\" ..."))?;
            change(session, Method::DELETE, &path(name, ""), None)?;
        }
        JournalCommand::ListAbandoned => abandoned(session)?,
        JournalCommand::Adopt { name, node, uid, consent } => {
            session.say(&format!("Adopting journal \"{name}\" ..."))?;
            let body = with(consent, &json!({ "node": node, "uid": uid }));
            decide(session, &path(name, "/adopt"), &body)?;
        }
        JournalCommand::RestoreCopy { name, sequence, node, consent } => {
            session.say(&format!("Restoring copy {sequence} of journal \"{name}\" ..."))?;
            let body = with(consent, &json!({ "node": node, "sequence": sequence }));
            decide(session, &path(name, "/restore-copy"), &body)?;
        }
        JournalCommand::DiscardCopy { name, node, consent } => {
            session.say(&format!("Putting a copy of journal \"{name}\" aside ..."))?;
            let body = with(consent, &json!({ "node": node }));
            decide(session, &path(name, "/discard-copy"), &body)?;
        }
        JournalCommand::Inspect { .. } | JournalCommand::Verify { .. } => return Ok(false),
    }
    Ok(true)
}

fn with(consent: &Consent, body: &Value) -> Value {
    let mut body = body.clone();
    body["force"] = json!(consent.force);
    body["confirm"] = json!(consent.confirm);
    body["dry_run"] = json!(consent.dry_run);
    body
}

/// Lets the cluster do what may lose something, and prints what it says.
fn decide(session: &mut Session<'_>, path: &str, body: &Value) -> Result<(), Failed> {
    let done = taken(session.client.send(Method::POST, path, Some(body), &[])?)?.body;
    if session.arguments.formatter == Formatter::Json {
        writeln!(session.out, "{done}")?;
        return Ok(());
    }
    let fields = done.as_object().into_iter().flatten();
    let shown = fields
        .filter(|(name, value)| !value.is_null() && !matches!(name.as_str(), "done" | "dangers"));
    let pairs: Vec<(&str, Value)> =
        shown.map(|(name, value)| (name.as_str(), value.clone())).collect();
    session.print_pairs(&pairs)?;
    for danger in done["dangers"].as_array().into_iter().flatten() {
        writeln!(session.out, "- {}", danger.as_str().unwrap_or_default())?;
    }
    if done["done"] == false {
        writeln!(session.out, "nothing was changed")?;
    }
    Ok(())
}

fn abandoned(session: &mut Session<'_>) -> Result<(), Failed> {
    let left = session.client.get("abandoned-journals")?;
    if session.arguments.formatter == Formatter::Json {
        writeln!(session.out, "{left}")?;
        return Ok(());
    }
    session.say("Listing abandoned journals ...")?;
    let items: Vec<Value> = left.as_array().cloned().unwrap_or_default();
    let columns = ["name", "uid", "node", "sequence", "standing", "queues", "reason"];
    session.print(&list::rows(&items, columns.map(str::to_owned).to_vec(), &[])?)
}

fn path(name: &str, rest: &str) -> String {
    format!("journals/{}{rest}", segment(name))
}

fn change(
    session: &mut Session<'_>,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<(), Failed> {
    let answer = session.client.send(method, path, body, &[])?;
    accept(answer).map(drop)
}

fn list(session: &mut Session<'_>) -> Result<(), Failed> {
    let journals = session.client.get("journals")?;
    if session.arguments.formatter == Formatter::Json {
        writeln!(session.out, "{journals}")?;
        return Ok(());
    }
    session.say("Listing journals ...")?;
    let row = |journal: &Value| {
        let here = &journal["here"];
        let state = match (here["state"].as_str(), here["reason"].as_str()) {
            (Some(state), Some(reason)) => format!("{state}: {reason}"),
            (Some(state), None) => state.to_owned(),
            (None, _) => String::new(),
        };
        json!({
            "name": journal["name"],
            "active": journal["active"],
            "backup": journal["backup"],
            "coordinated_sequence": journal["coordinated_sequence"],
            "queues": journal["queues"],
            "local_sequence": here["sequence"],
            "state_here": state,
        })
    };
    let items: Vec<Value> = journals.as_array().into_iter().flatten().map(row).collect();
    let columns = [
        "name",
        "active",
        "backup",
        "coordinated_sequence",
        "queues",
        "local_sequence",
        "state_here",
    ];
    session.print(&list::rows(&items, columns.map(str::to_owned).to_vec(), &[])?)
}
