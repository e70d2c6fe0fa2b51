//! `/parameters` and `/global-parameters`.

use metadata::command::Command;
use metadata::objects::parameter::{GlobalParameter, Parameter};
use serde_json::{Value, json};

use super::call::Call;
use super::resource::PolicyList;
use super::{limits, policies};
use crate::http::answer::Answer;
use crate::http::body::{Body, missing};
use crate::http::failure::{Failure, Outcome};
use crate::http::list;
use crate::node::Node;

/// Components that parameters may belong to: none. Those of shovels and federation are refused as by
/// a RabbitMQ without these plugins, since nothing would act on them.
const COMPONENTS: [&str; 0] = [];

/// `GET /parameters`, `/parameters/COMPONENT`, `/parameters/COMPONENT/VHOST`.
pub(super) fn list<N: Node>(
    call: &Call<'_, N>,
    component: Option<&str>,
    vhost: Option<&str>,
) -> Outcome<Answer> {
    call.policymaker()?;
    let vhosts = call.vhosts(vhost)?;
    let parameters = vhosts.iter().flat_map(|vhost| call.state.parameters(&vhost.name));
    let wanted = |parameter: &&std::sync::Arc<Parameter>| {
        component.is_none_or(|component| &*parameter.component == component)
    };
    let items = parameters.filter(wanted).map(|parameter| show(parameter));
    list::respond(items, &call.query)
}

/// `GET /parameters/COMPONENT/VHOST/NAME`.
pub(super) fn get<N: Node>(
    call: &Call<'_, N>,
    component: &str,
    vhost: &str,
    name: &str,
) -> Outcome<Answer> {
    call.policymaker_in(vhost)?;
    let found = call.state.parameter(component, vhost, name).ok_or_else(Failure::not_found)?;
    Ok(list::one(show(found), &call.query))
}

/// `PUT /parameters/COMPONENT/VHOST/NAME`.
pub(super) async fn put<N: Node>(
    call: &Call<'_, N>,
    component: &str,
    vhost: &str,
    name: &str,
) -> Outcome<Answer> {
    call.policymaker_in(vhost)?;
    let value = call.body.get("value").cloned().ok_or_else(|| missing("value"))?;
    // What has commands of its own here is a parameter to RabbitMQ.
    match (component, &value) {
        ("vhost-limits", Value::Object(limits)) => {
            return limits::put_all(call, vhost, &Body::from(limits.clone())).await;
        }
        ("operator_policy", Value::Object(policy)) => {
            call.administrator()?;
            let policy = policies::parse(&Body::from(policy.clone()), vhost, name)?;
            let command = Command::PutOperatorPolicy(policy);
            return Ok(Answer::put(call.node.submit(command, call.by()).await?));
        }
        _ => {}
    }
    let parameter = parse(component, vhost, name, value)?;
    Ok(Answer::put(call.node.submit(Command::PutParameter(parameter), call.by()).await?))
}

/// `DELETE /parameters/COMPONENT/VHOST/NAME`.
pub(super) async fn delete<N: Node>(
    call: &Call<'_, N>,
    component: &str,
    vhost: &str,
    name: &str,
) -> Outcome<Answer> {
    call.policymaker_in(vhost)?;
    match component {
        "vhost-limits" => return limits::delete_all(call, vhost).await,
        "operator_policy" => {
            return policies::delete(call, PolicyList::Operators, vhost, name).await;
        }
        _ => {}
    }
    call.state.parameter(component, vhost, name).ok_or_else(Failure::not_found)?;
    let command = Command::DeleteParameter {
        component: component.into(),
        vhost: vhost.into(),
        name: name.into(),
    };
    call.node.submit(command, call.by()).await?;
    Ok(Answer::Done)
}

/// A parameter of a known component.
pub(super) fn parse(component: &str, vhost: &str, name: &str, value: Value) -> Outcome<Parameter> {
    if !COMPONENTS.contains(&component) {
        return Err(Failure::bad_request(format!(
            "Validation failed\n\ncomponent {component} not found\n"
        )));
    }
    Ok(Parameter { component: component.into(), vhost: vhost.into(), name: name.into(), value })
}

/// `GET /global-parameters`.
pub(super) fn list_global<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    call.policymaker()?;
    let items = call.state.global_parameters().map(|parameter| show_global(parameter));
    list::respond(items, &call.query)
}

/// `GET /global-parameters/NAME`.
pub(super) fn get_global<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    call.policymaker()?;
    let found = call.state.global_parameter(name).ok_or_else(Failure::not_found)?;
    Ok(list::one(show_global(found), &call.query))
}

/// `PUT /global-parameters/NAME`.
pub(super) async fn put_global<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    call.administrator()?;
    let value = call.body.get("value").cloned().ok_or_else(|| missing("value"))?;
    let command = Command::PutGlobalParameter(GlobalParameter { name: name.into(), value });
    Ok(Answer::put(call.node.submit(command, call.by()).await?))
}

/// `DELETE /global-parameters/NAME`.
pub(super) async fn delete_global<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    call.administrator()?;
    call.state.global_parameter(name).ok_or_else(Failure::not_found)?;
    let command = Command::DeleteGlobalParameter { name: name.into() };
    call.node.submit(command, call.by()).await?;
    Ok(Answer::Done)
}

/// A parameter as it is listed and exported.
pub(super) fn show(parameter: &Parameter) -> Value {
    json!({
        "component": &*parameter.component,
        "vhost": &*parameter.vhost,
        "name": &*parameter.name,
        "value": parameter.value,
    })
}

/// A parameter of the cluster as it is listed and exported.
pub(super) fn show_global(parameter: &GlobalParameter) -> Value {
    json!({"name": &*parameter.name, "value": parameter.value})
}
