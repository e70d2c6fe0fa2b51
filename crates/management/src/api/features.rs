//! `/feature-flags` and `/deprecated-features`: there are none, since every node of a version has
//! all features.

use serde_json::json;

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
    call.administrator()?;
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

/// `GET /deprecated-features`, `/deprecated-features/used`.
pub(super) fn deprecated<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    call.administrator()?;
    list::respond(Vec::new(), &call.query)
}
