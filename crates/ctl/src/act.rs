//! Commands that change something.

use std::io::Read as _;
use std::path::Path;

use serde_json::{Map, Value, json};
use ureq::http::Method;

use crate::cli::Command;
use crate::client::{Client, accept, segment};
use crate::exit::{Exit, Failed};
use crate::members::about_queue;
use crate::run::Session;

/// Performs the command if it is one of these.
///
/// # Errors
/// If the node refuses, or what is given makes no sense.
pub(crate) fn perform(session: &mut Session<'_>) -> Result<bool, Failed> {
    let vhost = segment(&session.arguments.vhost);
    match &session.arguments.command {
        Command::AddUser { username, new_password } => {
            session.say(&format!("Adding user \"{username}\" ..."))?;
            let path = format!("users/{}", segment(username));
            let old = session.client.send(Method::GET, &path, None, &[])?;
            if old.status == 200 {
                return Err(Failed::new(
                    Exit::Software,
                    format!("user \"{username}\" already exists"),
                ));
            }
            let body = json!({"password": new_password, "tags": ""});
            session.client.put(&path, &body)?;
        }
        Command::DeleteUser { username } => {
            session.say(&format!("Deleting user \"{username}\" ..."))?;
            user(&session.client, username)?;
            session.client.delete(&format!("users/{}", segment(username)))?;
        }
        Command::ChangePassword { username, new_password } => {
            session.say(&format!("Changing password for user \"{username}\" ..."))?;
            let old = user(&session.client, username)?;
            let body = json!({"password": new_password, "tags": old["tags"]});
            session.client.put(&format!("users/{}", segment(username)), &body)?;
        }
        Command::SetUserTags { username, tags } => {
            session.say(&format!("Setting tags for user \"{username}\" to {tags:?} ..."))?;
            let old = user(&session.client, username)?;
            let body = json!({
                "password_hash": old["password_hash"],
                "hashing_algorithm": old["hashing_algorithm"],
                "tags": tags,
            });
            session.client.put(&format!("users/{}", segment(username)), &body)?;
        }
        Command::SetPermissions { username, configure, write, read } => {
            let place = session.arguments.vhost.clone();
            session.say(&format!(
                "Setting permissions for user \"{username}\" in vhost \"{place}\" ..."
            ))?;
            user(&session.client, username)?;
            let body = json!({"configure": configure, "write": write, "read": read});
            let path = format!("permissions/{vhost}/{}", segment(username));
            session.client.put(&path, &body)?;
        }
        Command::ClearPermissions { username } => {
            session.say(&format!("Clearing permissions for user \"{username}\" ..."))?;
            user(&session.client, username)?;
            let path = format!("permissions/{vhost}/{}", segment(username));
            delete_if_there(&session.client, &path)?;
        }
        Command::SetTopicPermissions { username, exchange, write, read } => {
            session.say(&format!("Setting topic permissions for user \"{username}\" ..."))?;
            user(&session.client, username)?;
            let body = json!({"exchange": exchange, "write": write, "read": read});
            let path = format!("topic-permissions/{vhost}/{}", segment(username));
            session.client.put(&path, &body)?;
        }
        Command::ClearTopicPermissions { username } => {
            session.say(&format!("Clearing topic permissions for user \"{username}\" ..."))?;
            user(&session.client, username)?;
            let path = format!("topic-permissions/{vhost}/{}", segment(username));
            delete_if_there(&session.client, &path)?;
        }
        Command::AddVhost { name, description, tags, default_queue_type } => {
            session.say(&format!("Adding vhost \"{name}\" ..."))?;
            let mut body = Map::new();
            let fields = [
                ("description", description),
                ("tags", tags),
                ("default_queue_type", default_queue_type),
            ];
            for (key, value) in fields {
                if let Some(value) = value {
                    body.insert(key.to_owned(), json!(value));
                }
            }
            session.client.put(&format!("vhosts/{}", segment(name)), &Value::Object(body))?;
        }
        Command::DeleteVhost { name } => {
            session.say(&format!("Deleting vhost \"{name}\" ..."))?;
            session.client.delete(&format!("vhosts/{}", segment(name)))?;
        }
        Command::SetVhostLimits { definition } => {
            for (name, value) in object(definition)? {
                let path = format!("vhost-limits/{vhost}/{}", segment(&name));
                session.client.put(&path, &json!({ "value": value }))?;
            }
        }
        Command::ClearVhostLimits => {
            for name in ["max-connections", "max-queues"] {
                session.client.delete(&format!("vhost-limits/{vhost}/{name}"))?;
            }
        }
        Command::SetPolicy { name, pattern, definition, priority, apply_to }
        | Command::SetOperatorPolicy { name, pattern, definition, priority, apply_to } => {
            session.say(&format!("Setting policy \"{name}\" for pattern \"{pattern}\" ..."))?;
            let body = json!({
                "pattern": pattern,
                "definition": object(definition)?,
                "priority": priority,
                "apply-to": apply_to,
            });
            let list = policies(&session.arguments.command);
            session.client.put(&format!("{list}/{vhost}/{}", segment(name)), &body)?;
        }
        Command::ClearPolicy { name } | Command::ClearOperatorPolicy { name } => {
            session.say(&format!("Clearing policy \"{name}\" ..."))?;
            let list = policies(&session.arguments.command);
            session.client.delete(&format!("{list}/{vhost}/{}", segment(name)))?;
        }
        Command::DeleteQueue { name, if_empty, if_unused } => {
            session.say(&format!("Deleting queue '{name}' ..."))?;
            let path = format!(
                "queues/{vhost}/{}?if-empty={if_empty}&if-unused={if_unused}",
                segment(name)
            );
            session.client.delete(&path)?;
        }
        Command::PurgeQueue { name } => {
            session.say(&format!("Purging queue '{name}' ..."))?;
            session.client.delete(&format!("queues/{vhost}/{}/contents", segment(name)))?;
        }
        Command::TransferLeadership { queue, node } => {
            session.say(&format!("Transferring leadership of queue '{queue}' to {node} ..."))?;
            let path = format!("queues/quorum/{vhost}/{}/leader", segment(queue));
            let body = json!({ "node": node });
            let response = session.client.send(Method::PUT, &path, Some(&body), &[])?;
            about_queue(session, queue, node, response)?;
        }
        Command::CloseConnection { name, reason } => {
            session.say(&format!("Closing connection {name}, reason: {reason}..."))?;
            close(&session.client, &format!("connections/{}", segment(name)), reason)?;
        }
        Command::CloseAllConnections { reason } => {
            session.say(&format!("Closing connections, reason: {reason}..."))?;
            let list = session.client.get(&format!("vhosts/{vhost}/connections?columns=name"))?;
            for name in list.as_array().into_iter().flatten().filter_map(|one| one["name"].as_str())
            {
                close(&session.client, &format!("connections/{}", segment(name)), reason)?;
            }
        }
        Command::CloseAllUserConnections { username, reason } => {
            session.say(&format!("Closing connections of {username}, reason: {reason}..."))?;
            let path = format!("connections/username/{}", segment(username));
            close(&session.client, &path, reason)?;
        }
        Command::ExportDefinitions { file } => {
            let definitions = session.client.get("definitions")?;
            if is_standard(file) {
                writeln!(session.out, "{definitions:#}")?;
            } else {
                std::fs::write(file, format!("{definitions:#}\n"))?;
            }
        }
        Command::ImportDefinitions { file } => {
            let mut text = String::new();
            if is_standard(file) {
                std::io::stdin().read_to_string(&mut text)?;
            } else {
                text = std::fs::read_to_string(file)?;
            }
            let body = Value::Object(object(&text)?);
            let response = session.client.send(Method::POST, "definitions", Some(&body), &[])?;
            for one in accept(response)?.body["skipped"].as_array().into_iter().flatten() {
                let (object, reason) = (&one["object"], &one["reason"]);
                writeln!(
                    session.out,
                    "skipped {}: {}",
                    object.as_str().unwrap_or_default(),
                    reason.as_str().unwrap_or_default()
                )?;
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// A user who exists.
fn user(client: &Client, name: &str) -> Result<Value, Failed> {
    let response = client.send(Method::GET, &format!("users/{}", segment(name)), None, &[])?;
    if response.status == 404 {
        return Err(Failed::new(Exit::NoUser, format!("User \"{name}\" does not exist")));
    }
    Ok(accept(response)?.body)
}

fn delete_if_there(client: &Client, path: &str) -> Result<(), Failed> {
    let response = client.send(Method::DELETE, path, None, &[])?;
    if response.status == 404 { Ok(()) } else { accept(response).map(drop) }
}

fn close(client: &Client, path: &str, reason: &str) -> Result<(), Failed> {
    let response = client.send(Method::DELETE, path, None, &[("x-reason", reason)])?;
    accept(response).map(drop)
}

fn policies(command: &Command) -> &'static str {
    match command {
        Command::SetOperatorPolicy { .. } | Command::ClearOperatorPolicy { .. } => {
            "operator-policies"
        }
        _ => "policies",
    }
}

fn object(text: &str) -> Result<Map<String, Value>, Failed> {
    match serde_json::from_str(text.trim_start_matches('\u{feff}')) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Failed::new(Exit::Data, "a JSON object is required")),
        Err(error) => Err(Failed::new(Exit::Data, format!("not JSON: {error}"))),
    }
}

fn is_standard(file: &Path) -> bool {
    file == Path::new("-")
}
