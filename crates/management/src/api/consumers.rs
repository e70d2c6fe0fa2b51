//! `/consumers`.

use serde_json::{Value, json};

use super::call::Call;
use crate::http::answer::Answer;
use crate::http::failure::Outcome;
use crate::http::{list, table};
use crate::inquiry::Wanted;
use crate::node::Node;
use crate::view::consumer::ConsumerInfo;

/// `GET /consumers`, `/consumers/VHOST`.
pub(super) async fn list<N: Node>(call: &Call<'_, N>, vhost: Option<&str>) -> Outcome<Answer> {
    if let Some(vhost) = vhost {
        call.visible(vhost)?;
    }
    let mut consumers = call.node.census(Wanted::QUEUES).await.consumers;
    consumers.retain(|consumer| match vhost {
        Some(name) => consumer.vhost == name,
        None => call.sees(&consumer.vhost),
    });
    list::respond(consumers.iter().map(show), &call.query)
}

/// A consumer as it is listed.
pub(super) fn show(consumer: &ConsumerInfo) -> Value {
    json!({
        "consumer_tag": consumer.tag,
        "active": consumer.activity.is_active(),
        "activity_status": consumer.activity.as_str(),
        "ack_required": consumer.ack_required,
        "exclusive": consumer.exclusive,
        "prefetch_count": consumer.prefetch_count,
        "arguments": table::to_json(&consumer.arguments),
        // Tools require a number; 0 is no timeout.
        "consumer_timeout": consumer.timeout_ms.unwrap_or(0),
        "queue": {"name": consumer.queue, "vhost": consumer.vhost},
        "channel_details": {
            "name": format!("{} ({})", consumer.connection_name, consumer.channel),
            "number": consumer.channel,
            "connection_name": consumer.connection_name,
            "node": consumer.node,
            "peer_host": consumer.peer_host,
            "peer_port": consumer.peer_port,
            "user": consumer.user,
        },
    })
}
