//! `/users`, `/whoami`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use metadata::access::password;
use metadata::command::Command;
use metadata::objects::limit::UserLimit;
use metadata::objects::user::{HashingAlgorithm, User};
use serde_json::{Map, Value, json};

use super::call::Call;
use crate::http::answer::Answer;
use crate::http::body::{Body, missing};
use crate::http::failure::{Failure, Outcome};
use crate::http::list;
use crate::node::Node;

/// `GET /users`.
pub(super) fn list<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    call.administrator()?;
    list::respond(call.state.users().map(|user| show(call, user)), &call.query)
}

/// `GET /users/without-permissions`.
pub(super) fn without_permissions<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    call.administrator()?;
    let has_some = |user: &User| {
        call.state.vhosts().any(|vhost| call.state.permission(&vhost.name, &user.name).is_some())
    };
    let users = call.state.users().filter(|user| !has_some(user));
    list::respond(users.map(|user| show(call, user)), &call.query)
}

/// `GET /users/USER`.
pub(super) fn get<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    call.administrator()?;
    Ok(list::one(show(call, find(call, name)?), &call.query))
}

/// `PUT /users/USER`. Without a password, a new user has none, and an existing one loses his.
pub(super) async fn put<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    call.administrator()?;
    let user = parse(&call.body, name)?;
    let limits = limits(&call.body)?;
    let is_new = call.node.submit(Command::PutUser(user), call.by()).await?;
    for (limit, value) in limits {
        let command = Command::PutUserLimit { user: name.into(), limit, value };
        call.node.submit(command, call.by()).await?;
    }
    Ok(Answer::put(is_new))
}

/// `DELETE /users/USER`.
pub(super) async fn delete<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    call.administrator()?;
    find(call, name)?;
    call.node.submit(Command::DeleteUser { name: name.into() }, call.by()).await?;
    Ok(Answer::Done)
}

/// `POST /users/bulk-delete`. Users that are not there are passed over.
pub(super) async fn bulk_delete<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    call.administrator()?;
    let names = call.body.words("users")?.ok_or_else(|| missing("users"))?;
    for name in names {
        if call.state.user(&name).is_some() {
            call.node.submit(Command::DeleteUser { name: name.into() }, call.by()).await?;
        }
    }
    Ok(Answer::Done)
}

/// `GET /whoami`.
pub(super) fn whoami<N: Node>(call: &Call<'_, N>) -> Answer {
    Answer::Json(json!({
        "name": call.by(), "tags": call.user.tags, "is_internal_user": true,
    }))
}

/// `GET /auth/hash_password/PASSWORD`.
pub(super) fn hash_password<N: Node>(call: &Call<'_, N>, text: &str) -> Outcome<Answer> {
    call.administrator()?;
    Ok(Answer::Json(json!({ "ok": salted(text) })))
}

/// Reads a user out of a request or out of definitions.
pub(super) fn parse(body: &Body, name: &str) -> Outcome<User> {
    if name.is_empty() {
        return Err(Failure::bad_request("a user's name must not be empty"));
    }
    let Some(tags) = body.words("tags")? else {
        return Err(Failure::bad_request("tags_not_present"));
    };
    let mut algorithm = match body.get("hashing_algorithm") {
        None => HashingAlgorithm::default(),
        Some(word) => word
            .as_str()
            .and_then(HashingAlgorithm::parse)
            .ok_or_else(|| Failure::bad_request(format!("unknown hashing_algorithm: {word}")))?,
    };
    let password_hash = match (body.get("password"), body.get("password_hash")) {
        (Some(_), Some(_)) => {
            return Err(Failure::bad_request("both_password_and_password_hash_are_provided"));
        }
        (Some(_), None) => {
            algorithm = HashingAlgorithm::default();
            match body.text("password")? {
                // The empty password is right for nobody.
                empty if empty.is_empty() => empty,
                password => salted(&password),
            }
        }
        (None, Some(_)) => {
            let hash = body.text("password_hash")?;
            if STANDARD.decode(&hash).is_err() {
                return Err(Failure::bad_request(format!("not_base64: {hash}")));
            }
            hash
        }
        (None, None) => String::new(),
    };
    Ok(User { name: name.into(), password_hash, hashing_algorithm: algorithm, tags })
}

/// The limits in a user's definition.
pub(super) fn limits(body: &Body) -> Outcome<Vec<(UserLimit, i64)>> {
    let fields = Body::from(body.object("limits")?);
    let mut limits = Vec::new();
    for name in fields.fields().keys() {
        let limit = UserLimit::parse(name)
            .ok_or_else(|| Failure::bad_request(format!("unknown user limit: {name}")))?;
        limits.push((limit, fields.integer(name)?.ok_or_else(|| missing(name))?));
    }
    Ok(limits)
}

fn salted(text: &str) -> String {
    password::hash(HashingAlgorithm::default(), rand::random(), text.as_bytes())
}

/// A user who exists.
pub(super) fn find<'a, N: Node>(call: &'a Call<'_, N>, name: &str) -> Outcome<&'a User> {
    call.state.user(name).map(AsRef::as_ref).ok_or_else(Failure::not_found)
}

/// A user as he is listed and exported.
pub(super) fn show<N: Node>(call: &Call<'_, N>, user: &User) -> Value {
    let limits: Map<String, Value> = call
        .state
        .user_limits(&user.name)
        .map(|(limit, value)| (limit.as_str().to_owned(), Value::from(value)))
        .collect();
    json!({
        "name": &*user.name,
        "password_hash": user.password_hash,
        "hashing_algorithm": user.hashing_algorithm.as_str(),
        "tags": user.tags,
        "limits": limits,
    })
}
