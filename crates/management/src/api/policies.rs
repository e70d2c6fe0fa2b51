//! `/policies` and `/operator-policies`.

use metadata::command::Command;
use metadata::objects::policy::{ApplyTo, Policy};
use serde_json::{Value, json};

use super::call::Call;
use super::resource::PolicyList;
use crate::http::answer::Answer;
use crate::http::body::{Body, missing};
use crate::http::failure::{Failure, Outcome};
use crate::http::list;
use crate::node::Node;

/// `GET /policies`, `/policies/VHOST`.
pub(super) fn list<N: Node>(
    call: &Call<'_, N>,
    which: PolicyList,
    vhost: Option<&str>,
) -> Outcome<Answer> {
    let vhosts = call.vhosts(vhost)?;
    let items = vhosts.iter().flat_map(|vhost| match which {
        PolicyList::Users => call.state.policies(&vhost.name).map(show).collect::<Vec<_>>(),
        PolicyList::Operators => call.state.operator_policies(&vhost.name).map(show).collect(),
    });
    list::respond(items, &call.query)
}

/// `GET /policies/VHOST/NAME`.
pub(super) fn get<N: Node>(
    call: &Call<'_, N>,
    which: PolicyList,
    vhost: &str,
    name: &str,
) -> Outcome<Answer> {
    call.visible(vhost)?;
    Ok(list::one(show(find(call, which, vhost, name)?), &call.query))
}

/// `PUT /policies/VHOST/NAME`.
pub(super) async fn put<N: Node>(
    call: &Call<'_, N>,
    which: PolicyList,
    vhost: &str,
    name: &str,
) -> Outcome<Answer> {
    allowed(call, which, vhost)?;
    let policy = parse(&call.body, vhost, name)?;
    let command = match which {
        PolicyList::Users => Command::PutPolicy(policy),
        PolicyList::Operators => Command::PutOperatorPolicy(policy),
    };
    Ok(Answer::put(call.node.submit(command, call.by()).await?))
}

/// `DELETE /policies/VHOST/NAME`.
pub(super) async fn delete<N: Node>(
    call: &Call<'_, N>,
    which: PolicyList,
    vhost: &str,
    name: &str,
) -> Outcome<Answer> {
    allowed(call, which, vhost)?;
    find(call, which, vhost, name)?;
    let (vhost, name) = (vhost.into(), name.into());
    let command = match which {
        PolicyList::Users => Command::DeletePolicy { vhost, name },
        PolicyList::Operators => Command::DeleteOperatorPolicy { vhost, name },
    };
    call.node.submit(command, call.by()).await?;
    Ok(Answer::Done)
}

fn allowed<N: Node>(call: &Call<'_, N>, which: PolicyList, vhost: &str) -> Outcome<()> {
    match which {
        PolicyList::Users => call.policymaker_in(vhost),
        PolicyList::Operators => {
            call.administrator()?;
            call.exists(vhost)
        }
    }
}

fn find<'a, N: Node>(
    call: &'a Call<'_, N>,
    which: PolicyList,
    vhost: &str,
    name: &str,
) -> Outcome<&'a Policy> {
    let found = match which {
        PolicyList::Users => call.state.policy(vhost, name),
        PolicyList::Operators => call.state.operator_policy(vhost, name),
    };
    found.ok_or_else(Failure::not_found)
}

/// Reads a policy out of a request or out of definitions.
pub(super) fn parse(body: &Body, vhost: &str, name: &str) -> Outcome<Policy> {
    if body.get("definition").is_none() {
        return Err(missing("definition"));
    }
    let apply_to = match body.text_or("apply-to", Some(""))?.as_str() {
        "" => ApplyTo::All,
        word => ApplyTo::parse(word).ok_or_else(|| {
            Failure::bad_request(format!(
                "Validation failed\n\napply-to '{word}' unrecognised; should be one of: 'queues', \
                 'classic_queues',  'quorum_queues', 'streams', 'exchanges', or 'all'\n"
            ))
        })?,
    };
    Ok(Policy {
        vhost: vhost.into(),
        name: name.into(),
        pattern: body.text("pattern")?,
        apply_to,
        definition: body.object("definition")?,
        priority: body.integer("priority")?.unwrap_or(0),
    })
}

/// A policy as it is listed.
pub(super) fn show(policy: &Policy) -> Value {
    json!({
        "vhost": &*policy.vhost,
        "name": &*policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to.as_str(),
        "definition": policy.definition,
        "priority": policy.priority,
    })
}
