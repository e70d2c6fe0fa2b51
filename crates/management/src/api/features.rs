//! `/feature-flags` and `/deprecated-features`: there are none, since every node of a version has
//! all features.

use serde_json::json;

use super::call::Call;
use crate::http::answer::Answer;
use crate::http::failure::{Failure, Outcome};
use crate::http::list;
use crate::node::Node;

/// Flags that tools look for, all of them in force for good.
const FLAGS: [(&str, &str); 4] = [
    (
        "classic_queue_type_delivery_support",
        "Deliveries of classic queues have a type of their own",
    ),
    ("quorum_queue", "Support queues of type `quorum`"),
    ("user_limits", "Configure connection and channel limits for a user"),
    ("virtual_host_metadata", "Virtual hosts have metadata (description, tags)"),
];

/// `GET /feature-flags`.
pub(super) fn flags<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    call.administrator()?;
    let show = |(name, desc): &(&str, &str)| {
        json!({
            "name": name,
            "desc": desc,
            "doc_url": "",
            "state": "enabled",
            "stability": "required",
            "provided_by": "leveret",
        })
    };
    list::respond(FLAGS.iter().map(show), &call.query)
}

/// `PUT /feature-flags/NAME/enable`.
pub(super) fn enable<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    call.administrator()?;
    if name == "all" || FLAGS.iter().any(|(known, _)| *known == name) {
        return Ok(Answer::Done);
    }
    Err(Failure::bad_request(format!("unsupported feature flag: {name}")))
}

/// `GET /deprecated-features`, `/deprecated-features/used`.
pub(super) fn deprecated<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    call.administrator()?;
    list::respond(Vec::new(), &call.query)
}
