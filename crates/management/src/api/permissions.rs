//! `/permissions` and `/topic-permissions`.

use metadata::command::Command;
use metadata::objects::permission::{Permission, TopicPermission};
use serde_json::{Value, json};

use super::call::Call;
use super::users;
use crate::http::answer::Answer;
use crate::http::body::Body;
use crate::http::failure::{Failure, Outcome};
use crate::http::list;
use crate::node::Node;

/// `GET /permissions`.
pub(super) fn list<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    call.administrator()?;
    respond(call, |_| true)
}

/// `GET /vhosts/VHOST/permissions`.
pub(super) fn of_vhost<N: Node>(call: &Call<'_, N>, vhost: &str) -> Outcome<Answer> {
    call.administrator()?;
    call.exists(vhost)?;
    respond(call, |permission| &*permission.vhost == vhost)
}

/// `GET /users/USER/permissions`.
pub(super) fn of_user<N: Node>(call: &Call<'_, N>, user: &str) -> Outcome<Answer> {
    call.administrator()?;
    users::find(call, user)?;
    respond(call, |permission| &*permission.user == user)
}

/// `GET /permissions/VHOST/USER`.
pub(super) fn get<N: Node>(call: &Call<'_, N>, vhost: &str, user: &str) -> Outcome<Answer> {
    call.administrator()?;
    let permission = call.state.permission(vhost, user).ok_or_else(Failure::not_found)?;
    Ok(list::one(show(permission), &call.query))
}

/// `PUT /permissions/VHOST/USER`.
pub(super) async fn put<N: Node>(call: &Call<'_, N>, vhost: &str, user: &str) -> Outcome<Answer> {
    call.administrator()?;
    exist(call, vhost, user)?;
    let permission = parse(&call.body, vhost, user)?;
    Ok(Answer::put(call.node.submit(Command::PutPermission(permission), call.by()).await?))
}

/// `DELETE /permissions/VHOST/USER`.
pub(super) async fn delete<N: Node>(
    call: &Call<'_, N>,
    vhost: &str,
    user: &str,
) -> Outcome<Answer> {
    call.administrator()?;
    call.state.permission(vhost, user).ok_or_else(Failure::not_found)?;
    let command = Command::DeletePermission { vhost: vhost.into(), user: user.into() };
    call.node.submit(command, call.by()).await?;
    Ok(Answer::Done)
}

/// `GET /topic-permissions`.
pub(super) fn list_topics<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    call.administrator()?;
    respond_topics(call, |_| true)
}

/// `GET /vhosts/VHOST/topic-permissions`.
pub(super) fn topics_of_vhost<N: Node>(call: &Call<'_, N>, vhost: &str) -> Outcome<Answer> {
    call.administrator()?;
    call.exists(vhost)?;
    respond_topics(call, |permission| &*permission.vhost == vhost)
}

/// `GET /users/USER/topic-permissions`.
pub(super) fn topics_of_user<N: Node>(call: &Call<'_, N>, user: &str) -> Outcome<Answer> {
    call.administrator()?;
    users::find(call, user)?;
    respond_topics(call, |permission| &*permission.user == user)
}

/// `GET /topic-permissions/VHOST/USER`.
pub(super) fn get_topics<N: Node>(call: &Call<'_, N>, vhost: &str, user: &str) -> Outcome<Answer> {
    call.administrator()?;
    let found = topics(call, vhost, user, None);
    if found.is_empty() {
        return Err(Failure::not_found());
    }
    list::respond(found.into_iter().map(show_topic), &call.query)
}

/// `GET /topic-permissions/VHOST/USER/EXCHANGE`.
pub(super) fn get_topic<N: Node>(
    call: &Call<'_, N>,
    vhost: &str,
    user: &str,
    exchange: &str,
) -> Outcome<Answer> {
    call.administrator()?;
    let found = topics(call, vhost, user, Some(exchange));
    let permission = found.first().ok_or_else(Failure::not_found)?;
    Ok(list::one(show_topic(permission), &call.query))
}

/// `PUT /topic-permissions/VHOST/USER`.
pub(super) async fn put_topic<N: Node>(
    call: &Call<'_, N>,
    vhost: &str,
    user: &str,
) -> Outcome<Answer> {
    call.administrator()?;
    exist(call, vhost, user)?;
    let permission = parse_topic(&call.body, vhost, user)?;
    let command = Command::PutTopicPermission(permission);
    Ok(Answer::put(call.node.submit(command, call.by()).await?))
}

/// `DELETE /topic-permissions/VHOST/USER`, `.../EXCHANGE`.
pub(super) async fn delete_topics<N: Node>(
    call: &Call<'_, N>,
    vhost: &str,
    user: &str,
    exchange: Option<&str>,
) -> Outcome<Answer> {
    call.administrator()?;
    if topics(call, vhost, user, exchange).is_empty() {
        return Err(Failure::not_found());
    }
    let command = Command::DeleteTopicPermission {
        vhost: vhost.into(),
        user: user.into(),
        exchange: exchange.map(Into::into),
    };
    call.node.submit(command, call.by()).await?;
    Ok(Answer::Done)
}

/// Reads a permission out of a request or out of definitions.
pub(super) fn parse(body: &Body, vhost: &str, user: &str) -> Outcome<Permission> {
    Ok(Permission {
        vhost: vhost.into(),
        user: user.into(),
        configure: body.text("configure")?,
        write: body.text("write")?,
        read: body.text("read")?,
    })
}

/// Reads a topic permission out of a request or out of definitions.
pub(super) fn parse_topic(body: &Body, vhost: &str, user: &str) -> Outcome<TopicPermission> {
    let exchange = body.text("exchange")?;
    Ok(TopicPermission {
        vhost: vhost.into(),
        user: user.into(),
        exchange: if exchange == "amq.default" { "".into() } else { exchange.into() },
        write: body.text("write")?,
        read: body.text("read")?,
    })
}

/// The vhost and the user of a new permission.
fn exist<N: Node>(call: &Call<'_, N>, vhost: &str, user: &str) -> Outcome<()> {
    match (call.state.vhost(vhost), call.state.user(user)) {
        (Some(_), Some(_)) => Ok(()),
        _ => Err(Failure::bad_request("vhost_or_user_not_found")),
    }
}

fn respond<N: Node>(call: &Call<'_, N>, wanted: impl Fn(&Permission) -> bool) -> Outcome<Answer> {
    let vhosts = call.state.vhosts();
    let permissions = vhosts.flat_map(|vhost| call.state.permissions(&vhost.name));
    let items = permissions.filter(|permission| wanted(permission)).map(show);
    list::respond(items, &call.query)
}

fn respond_topics<N: Node>(
    call: &Call<'_, N>,
    wanted: impl Fn(&TopicPermission) -> bool,
) -> Outcome<Answer> {
    let vhosts = call.state.vhosts();
    let permissions = vhosts.flat_map(|vhost| call.state.topic_permissions(&vhost.name));
    let wanted = permissions.filter(|permission| wanted(permission));
    list::respond(wanted.map(|permission| show_topic(permission)), &call.query)
}

fn topics<'a, N: Node>(
    call: &'a Call<'_, N>,
    vhost: &str,
    user: &str,
    exchange: Option<&str>,
) -> Vec<&'a TopicPermission> {
    let permissions = call.state.topic_permissions(vhost).map(AsRef::as_ref);
    let wanted = |permission: &&TopicPermission| {
        &*permission.user == user && exchange.is_none_or(|name| &*permission.exchange == name)
    };
    permissions.filter(wanted).collect()
}

/// A permission as it is listed and exported.
pub(super) fn show(permission: &Permission) -> Value {
    json!({
        "user": &*permission.user,
        "vhost": &*permission.vhost,
        "configure": permission.configure,
        "write": permission.write,
        "read": permission.read,
    })
}

/// A topic permission as it is listed and exported.
pub(super) fn show_topic(permission: &TopicPermission) -> Value {
    json!({
        "user": &*permission.user,
        "vhost": &*permission.vhost,
        "exchange": &*permission.exchange,
        "write": permission.write,
        "read": permission.read,
    })
}
