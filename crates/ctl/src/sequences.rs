//! `activation list|set` against a running cluster.

use serde_json::{Value, json};
use ureq::http::Method;

use crate::activation::sequence;
use crate::cli::{ActivationCommand, Command, Formatter};
use crate::client::{Response, accept, segment};
use crate::exit::{Exit, Failed};
use crate::list;
use crate::run::Session;

/// Performs the command if it is one of these and names no data directory.
///
/// # Errors
/// With [`Exit::Unavailable`] if no majority answers, with [`Exit::Busy`] if somebody has the lock or
/// uses the copy, with [`Exit::Data`] if it was refused.
pub(crate) fn perform(session: &mut Session<'_>) -> Result<bool, Failed> {
    match &session.arguments.command {
        Command::Activation(ActivationCommand::List { directory: None, journal, .. }) => {
            list(session, journal.as_deref())?;
        }
        Command::Activation(ActivationCommand::Set {
            directory: None,
            journal,
            to,
            local,
            coordinated,
            node,
            force,
            confirm,
            dry_run,
        }) => {
            sequence(*to)?;
            let body = json!({
                "to": to, "node": node.as_deref().unwrap_or_default(), "force": force,
                "confirm": confirm.as_deref().unwrap_or_default(), "dry_run": dry_run,
            });
            // Without either, both: first the copy, so that the coordinated one finds it.
            if *local || !*coordinated {
                set(session, journal, "local", &body)?;
            }
            if *coordinated || !*local {
                set(session, journal, "coordinated", &body)?;
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// One line for each copy.
fn list(session: &mut Session<'_>, journal: Option<&str>) -> Result<(), Failed> {
    let path =
        journal.map_or("activation".to_owned(), |name| format!("activation/{}", segment(name)));
    let shown = session.client.get(&path)?;
    if session.arguments.formatter == Formatter::Json {
        writeln!(session.out, "{shown}")?;
        return Ok(());
    }
    session.say("Listing activation sequences ...")?;
    let one = [shown];
    let journals = one[0].as_array().map_or(&one[..], Vec::as_slice);
    let mut rows = Vec::new();
    for journal in journals {
        for copy in journal["copies"].as_array().into_iter().flatten() {
            rows.push(json!({
                "journal": journal["journal"],
                "coordinated_sequence": journal["coordinated_sequence"],
                "lock": journal["lock"]["node"],
                "node": copy["node"],
                "local_sequence": copy["local_sequence"],
                "class": copy["class"],
                "may_start": copy["may_start"],
                "state": copy["state"],
                "waits_for": copy["waits_for"],
            }));
        }
    }
    let columns = [
        "journal",
        "coordinated_sequence",
        "lock",
        "node",
        "local_sequence",
        "class",
        "may_start",
        "state",
        "waits_for",
    ];
    session.print(&list::rows(&rows, columns.map(str::to_owned).to_vec(), &[])?)
}

fn set(session: &mut Session<'_>, journal: &str, which: &str, body: &Value) -> Result<(), Failed> {
    let path = format!("activation/{}/{which}", segment(journal));
    let done = taken(session.client.send(Method::PUT, &path, Some(body), &[])?)?.body;
    if session.arguments.formatter == Formatter::Json {
        writeln!(session.out, "{done}")?;
        return Ok(());
    }
    let plain = |value: &Value| match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let on = done["node"].as_str().map(|node| format!(" on {node}")).unwrap_or_default();
    let (from, to) = (plain(&done["from"]), plain(&done["to"]));
    writeln!(session.out, "journal '{journal}' {which} sequence{on} from {from} to {to}")?;
    for danger in done["dangers"].as_array().into_iter().flatten() {
        writeln!(session.out, "- {}", plain(danger))?;
    }
    for copy in done["copies"].as_array().into_iter().flatten() {
        let (before, after) = (plain(&copy["before"]), plain(&copy["after"]));
        writeln!(session.out, "copy on {}: {before}, then {after}", plain(&copy["node"]))?;
    }
    if done["done"] == false {
        writeln!(session.out, "nothing was changed")?;
    }
    Ok(())
}

/// Lets successes pass; 409 says that something is in use.
///
/// # Errors
/// As [`accept`].
pub(crate) fn taken(response: Response) -> Result<Response, Failed> {
    if response.status == 409 {
        return Err(Failed::new(Exit::Busy, response.reason()));
    }
    accept(response)
}
