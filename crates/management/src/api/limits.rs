//! `/vhost-limits` and `/user-limits`.

use metadata::command::Command;
use metadata::objects::limit::{UserLimit, VhostLimit};
use serde_json::{Map, Value, json};

use super::call::Call;
use super::users;
use crate::http::answer::Answer;
use crate::http::body::{Body, missing};
use crate::http::failure::{Failure, Outcome};
use crate::http::list;
use crate::node::Node;

/// `GET /vhost-limits`, `/vhost-limits/VHOST`: virtual hosts without limits are left out.
pub(super) fn list_vhost<N: Node>(call: &Call<'_, N>, vhost: Option<&str>) -> Outcome<Answer> {
    let vhosts = call.vhosts(vhost)?;
    let items = vhosts.iter().filter_map(|vhost| {
        let value = vhost_limits(call, &vhost.name);
        (!value.is_empty()).then(|| json!({"vhost": &*vhost.name, "value": value}))
    });
    list::respond(items, &call.query)
}

/// The limits of a virtual host by name.
pub(super) fn vhost_limits<N: Node>(call: &Call<'_, N>, vhost: &str) -> Map<String, Value> {
    let limits = call.state.vhost_limits(vhost);
    limits.map(|(limit, value)| (limit.as_str().to_owned(), Value::from(value))).collect()
}

/// `GET /vhost-limits/VHOST/NAME`.
pub(super) fn get_vhost<N: Node>(call: &Call<'_, N>, vhost: &str, name: &str) -> Outcome<Answer> {
    call.visible(vhost)?;
    match vhost_limits(call, vhost).remove(name) {
        Some(value) => Ok(Answer::Json(json!({"vhost": vhost, "value": {name: value}}))),
        None => Err(Failure::not_found()),
    }
}

/// `PUT /vhost-limits/VHOST/NAME`.
pub(super) async fn put_vhost<N: Node>(
    call: &Call<'_, N>,
    vhost: &str,
    name: &str,
) -> Outcome<Answer> {
    call.administrator()?;
    call.exists(vhost)?;
    let limit = vhost_limit(name)?;
    let value = call.body.integer("value")?.ok_or_else(|| missing("value"))?;
    let command = Command::PutVhostLimit { vhost: vhost.into(), limit, value };
    call.node.submit(command, call.by()).await?;
    Ok(Answer::Done)
}

/// `DELETE /vhost-limits/VHOST/NAME`.
pub(super) async fn delete_vhost<N: Node>(
    call: &Call<'_, N>,
    vhost: &str,
    name: &str,
) -> Outcome<Answer> {
    call.administrator()?;
    call.exists(vhost)?;
    let limit = vhost_limit(name)?;
    if call.state.vhost_limits(vhost).any(|(own, _)| own == limit) {
        let command = Command::DeleteVhostLimit { vhost: vhost.into(), limit: Some(limit) };
        call.node.submit(command, call.by()).await?;
    }
    Ok(Answer::Done)
}

/// `PUT /parameters/vhost-limits/VHOST/limits`: these limits and no others.
pub(super) async fn put_all<N: Node>(
    call: &Call<'_, N>,
    vhost: &str,
    limits: &Body,
) -> Outcome<Answer> {
    call.administrator()?;
    let mut wanted = Vec::new();
    for name in limits.names() {
        let value = limits.integer(name)?.ok_or_else(|| missing(name))?;
        wanted.push((vhost_limit(name)?, value));
    }
    let before: Vec<VhostLimit> = call.state.vhost_limits(vhost).map(|(limit, _)| limit).collect();
    let is_new = before.is_empty();
    for limit in before.into_iter().filter(|limit| wanted.iter().all(|(one, _)| one != limit)) {
        let command = Command::DeleteVhostLimit { vhost: vhost.into(), limit: Some(limit) };
        call.node.submit(command, call.by()).await?;
    }
    for (limit, value) in wanted {
        let command = Command::PutVhostLimit { vhost: vhost.into(), limit, value };
        call.node.submit(command, call.by()).await?;
    }
    Ok(Answer::put(is_new))
}

/// `DELETE /parameters/vhost-limits/VHOST/limits`.
pub(super) async fn delete_all<N: Node>(call: &Call<'_, N>, vhost: &str) -> Outcome<Answer> {
    call.administrator()?;
    if call.state.vhost_limits(vhost).next().is_none() {
        return Err(Failure::not_found());
    }
    let command = Command::DeleteVhostLimit { vhost: vhost.into(), limit: None };
    call.node.submit(command, call.by()).await?;
    Ok(Answer::Done)
}

/// The limit that a path names.
pub(super) fn vhost_limit(name: &str) -> Outcome<VhostLimit> {
    VhostLimit::parse(name).ok_or_else(|| unrecognised(name))
}

/// `GET /user-limits`, `/user-limits/USER`: users without limits are left out. Everybody sees his own.
pub(super) fn list_user<N: Node>(call: &Call<'_, N>, user: Option<&str>) -> Outcome<Answer> {
    match user {
        None => call.administrator()?,
        Some(user) => {
            call.client_visible(user)?;
            users::find(call, user)?;
        }
    }
    let users = call.state.users().filter(|known| user.is_none_or(|name| &*known.name == name));
    let items = users.filter_map(|user| {
        let value = user_limits(call, &user.name);
        (!value.is_empty()).then(|| json!({"user": &*user.name, "value": value}))
    });
    list::respond(items, &call.query)
}

fn user_limits<N: Node>(call: &Call<'_, N>, user: &str) -> Map<String, Value> {
    let limits = call.state.user_limits(user);
    limits.map(|(limit, value)| (limit.as_str().to_owned(), Value::from(value))).collect()
}

/// `GET /user-limits/USER/NAME`.
pub(super) fn get_user<N: Node>(call: &Call<'_, N>, user: &str, name: &str) -> Outcome<Answer> {
    call.client_visible(user)?;
    match user_limits(call, user).remove(name) {
        Some(value) => Ok(Answer::Json(json!({"user": user, "value": {name: value}}))),
        None => Err(Failure::not_found()),
    }
}

/// `PUT /user-limits/USER/NAME`.
pub(super) async fn put_user<N: Node>(
    call: &Call<'_, N>,
    user: &str,
    name: &str,
) -> Outcome<Answer> {
    call.administrator()?;
    users::find(call, user)?;
    let limit = UserLimit::parse(name).ok_or_else(|| unrecognised(name))?;
    let value = call.body.integer("value")?.ok_or_else(|| missing("value"))?;
    let command = Command::PutUserLimit { user: user.into(), limit, value };
    call.node.submit(command, call.by()).await?;
    Ok(Answer::Done)
}

/// `DELETE /user-limits/USER/NAME`.
pub(super) async fn delete_user<N: Node>(
    call: &Call<'_, N>,
    user: &str,
    name: &str,
) -> Outcome<Answer> {
    call.administrator()?;
    users::find(call, user)?;
    let limit = UserLimit::parse(name).ok_or_else(|| unrecognised(name))?;
    if call.state.user_limits(user).any(|(own, _)| own == limit) {
        let command = Command::DeleteUserLimit { user: user.into(), limit: Some(limit) };
        call.node.submit(command, call.by()).await?;
    }
    Ok(Answer::Done)
}

fn unrecognised(name: &str) -> Failure {
    Failure::bad_request(format!("Unrecognised terms: {name}"))
}
