//! `/feature-flags` and `/deprecated-features`. Every node of a version has all features, so that
//! there is nothing to switch.

use serde_json::{Value, json};

use super::call::Call;
use crate::http::answer::Answer;
use crate::http::failure::{Failure, Outcome};
use crate::http::list;
use crate::node::Node;

/// Flags that tools look for, all of them in force for good: name, description, stability.
const FLAGS: [(&str, &str, &str); 7] = [
    ("detailed_queues_endpoint", "A detailed queues HTTP API endpoint", "required"),
    ("user_limits", "Connection and channel limits for a user", "required"),
    ("virtual_host_metadata", "Virtual hosts have metadata", "required"),
    ("rabbitmq_4.0.0", "All of RabbitMQ 4.0 that is here", "stable"),
    ("rabbitmq_4.1.0", "All of RabbitMQ 4.1 that is here", "stable"),
    ("rabbitmq_4.2.0", "All of RabbitMQ 4.2 that is here", "stable"),
    ("rabbitmq_4.3.0", "All of RabbitMQ 4.3 that is here", "stable"),
];

/// `GET /feature-flags`.
pub(super) fn flags<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    let show = |(name, desc, stability): &(&str, &str, &str)| {
        json!({
            "name": name,
            "desc": desc,
            "doc_url": "",
            "state": "enabled",
            "stability": stability,
            "provided_by": "leveret",
        })
    };
    list::respond(FLAGS.iter().map(show), &call.query)
}

/// `PUT /feature-flags/NAME/enable`.
pub(super) fn enable<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    call.administrator()?;
    if name == "all" || FLAGS.iter().any(|(known, ..)| *known == name) {
        return Ok(Answer::Done);
    }
    Err(Failure::bad_request(format!("unsupported feature flag: {name}")))
}

/// `GET /deprecated-features`: what RabbitMQ has deprecated and what is here for good.
pub(super) fn deprecated<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    list::respond([show_deprecated(GLOBAL_QOS), show_deprecated(TRANSIENT)], &call.query)
}

/// `GET /deprecated-features/used`. Whether channels have a limit of their own is known to them
/// alone, so that only queues are looked at.
pub(super) fn used_deprecated<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    let is_used =
        call.state.all_queues().any(|queue| !queue.durable && queue.exclusive_owner.is_none());
    list::respond(is_used.then(|| show_deprecated(TRANSIENT)), &call.query)
}

const GLOBAL_QOS: (&str, &str) = ("global_qos", "Prefetch limits per channel");
const TRANSIENT: (&str, &str) =
    ("transient_nonexcl_queues", "Transient queues that are not exclusive");

fn show_deprecated((name, desc): (&str, &str)) -> Value {
    json!({
        "name": name,
        "state": "permitted",
        "desc": desc,
        "deprecation_phase": "permitted_by_default",
        "doc_url": "",
        "provided_by": "leveret",
    })
}
