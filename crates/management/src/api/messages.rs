//! Publishing and getting over HTTP: for tests and for people, not for work.

use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use metadata::objects::queue::QueueKind;
use metadata::refusal::Refusal;
use model::message::Message;
use serde_json::{Value, json};

use super::call::Call;
use super::queues;
use crate::http::answer::Answer;
use crate::http::body::missing;
use crate::http::failure::{Failure, Outcome};
use crate::http::name::short;
use crate::http::properties;
use crate::node::Node;
use crate::view::message::{
    GetMode, GetRequest, GotMessage, PeekError, PublishOutcome, PublishRequest,
};

/// The most messages that one request gets.
const COUNT_MAX: i64 = 100_000;
/// The most bytes of messages that one request gets; the last one may exceed it. All of them are in
/// memory until the answer is sent.
const BYTES_MAX: usize = 32 << 20;
/// The most bytes of a body that are shown of a message that is only looked at.
const PEEK_BYTES: usize = 1 << 20;

/// `POST /exchanges/VHOST/NAME/publish`.
pub(super) async fn publish<N: Node>(
    call: &Call<'_, N>,
    vhost: &str,
    name: &str,
) -> Outcome<Answer> {
    call.inside(vhost)?;
    if call.state.exchange(vhost, name).is_none() {
        return Err(Failure::new(StatusCode::NOT_FOUND, "not_found", "exchange_not_found"));
    }
    let routing_key = short("routing_key", call.body.text("routing_key")?)?;
    if call.body.get("properties").is_none() {
        return Err(missing("properties"));
    }
    let properties = properties::from_json(&call.body)?;
    let payload = call.body.text("payload")?;
    let body = match call.body.text("payload_encoding")?.as_str() {
        "string" => payload.into_bytes(),
        "base64" => {
            STANDARD.decode(payload).map_err(|_| Failure::bad_request("payload is not base64"))?
        }
        other => {
            return Err(Failure::bad_request(format!("unsupported_encoding: {other}")));
        }
    };
    let request = PublishRequest {
        vhost: vhost.to_owned(),
        message: Message::from_parts(name, &routing_key, &properties, &body),
        user: call.by().to_owned(),
    };
    match call.node.publish(request).await.map_err(|refusal| refused(&refusal))? {
        PublishOutcome::Routed => Ok(Answer::Json(json!({"routed": true}))),
        PublishOutcome::Unroutable => Ok(Answer::Json(json!({"routed": false}))),
        PublishOutcome::Rejected => {
            Err(Failure::bad_request("rejected: Unable to publish message. Check queue limits."))
        }
        PublishOutcome::TimedOut => Err(Failure::bad_request(
            "confirm_timeout: Timed out waiting for the confirmation of the message.",
        )),
        PublishOutcome::Blocked => {
            Err(Failure::unavailable("publishers are blocked: a resource alarm is in effect"))
        }
    }
}

/// RabbitMQ publishes over HTTP by a channel of its own, and tells how that was closed.
fn refused(refusal: &Refusal) -> Failure {
    Failure::bad_request(format!("{} {refusal}", refusal.code))
}

/// `POST /queues/VHOST/NAME/get`.
pub(super) async fn get<N: Node>(call: &Call<'_, N>, vhost: &str, name: &str) -> Outcome<Answer> {
    call.inside(vhost)?;
    if call.state.queue(vhost, name).is_none() {
        return Err(Failure::new(StatusCode::NOT_FOUND, "not_found", "queue_not_found"));
    }
    let count = call.body.integer("count")?.ok_or_else(|| missing("count"))?;
    let count = u32::try_from(count.min(COUNT_MAX))
        .map_err(|_| Failure::bad_request("count must not be negative"))?;
    let mode = match call.body.text("ackmode")?.as_str() {
        "ack_requeue_true" => GetMode::NackRequeue,
        "ack_requeue_false" => GetMode::Ack,
        "reject_requeue_true" => GetMode::RejectRequeue,
        "reject_requeue_false" => GetMode::Reject,
        other => {
            return Err(Failure::bad_request(format!(
                "Invalid ackmode value: {other}. Valid values are: ack_requeue_true, \
                 ack_requeue_false, reject_requeue_true, reject_requeue_false"
            )));
        }
    };
    let encoding = match call.body.text("encoding")?.as_str() {
        "auto" => Encoding::Auto,
        "base64" => Encoding::Base64,
        _ => {
            return Err(Failure::bad_request("Unsupported encoding. Please use auto or base64."));
        }
    };
    let truncate = match call.body.integer("truncate")? {
        None => usize::MAX,
        Some(bytes) => usize::try_from(bytes)
            .map_err(|_| Failure::bad_request("truncate must not be negative"))?,
    };
    let request = GetRequest {
        vhost: vhost.to_owned(),
        queue: name.to_owned(),
        count,
        bytes_max: BYTES_MAX,
        mode,
        user: call.by().to_owned(),
    };
    let got = call.node.get(request).await?;
    Ok(Answer::Json(got.iter().map(|message| show(message, encoding, truncate)).collect()))
}

/// `GET /queues/quorum/VHOST/NAME/peek/POSITION`, counted from 1 in the order of delivery, with
/// perhaps `truncate`: a message that waits. Nothing happens to it.
pub(super) async fn peek<N: Node>(
    call: &Call<'_, N>,
    vhost: &str,
    name: &str,
    position: &str,
) -> Outcome<Answer> {
    call.administrator()?;
    let queue = queues::find(call, vhost, name)?;
    if queue.kind != QueueKind::Quorum {
        return Err(Failure::bad_request("Cannot peek into a classic queue"));
    }
    let position: Option<u64> = position.parse().ok().filter(|position| *position > 0);
    let position = position
        .ok_or_else(|| Failure::bad_request("position value must be a positive integer"))?;
    let most = match call.query.get("truncate") {
        None => PEEK_BYTES,
        Some(bytes) => bytes
            .parse::<usize>()
            .map_err(|_| Failure::bad_request("truncate must be a number of bytes"))?
            .min(PEEK_BYTES),
    };
    let peeked =
        call.node.peek(queue.id, position - 1, most).await.map_err(|error| match error {
            PeekError::NoMessage => Failure::bad_request(error.to_string()),
            error => Failure::unavailable(error.to_string()),
        })?;
    let (payload, payload_encoding) = payload(peeked.message.body(), Encoding::Auto);
    Ok(Answer::Json(json!({
        "position": position,
        "payload_bytes": peeked.payload_bytes,
        "redelivered": peeked.redelivered,
        "exchange": peeked.message.exchange(),
        "routing_key": peeked.message.routing_key(),
        "properties": properties::to_json(peeked.message.properties()),
        "payload": payload,
        "payload_encoding": payload_encoding,
    })))
}

/// How payloads are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    /// As text if it is UTF-8, else as base64.
    Auto,
    /// As base64.
    Base64,
}

fn show(got: &GotMessage, encoding: Encoding, truncate: usize) -> Value {
    let message = &got.message;
    let whole = message.body();
    let mut body = &whole[..whole.len().min(truncate)];
    // A text that is cut within a character is still a text.
    if encoding == Encoding::Auto && body.len() < whole.len() && std::str::from_utf8(whole).is_ok()
    {
        while std::str::from_utf8(body).is_err() {
            body = &body[..body.len() - 1];
        }
    }
    let (payload, payload_encoding) = payload(body, encoding);
    json!({
        "payload_bytes": whole.len(),
        "redelivered": got.redelivered,
        "exchange": message.exchange(),
        "routing_key": message.routing_key(),
        "message_count": got.message_count,
        "properties": properties::to_json(message.properties()),
        "payload": payload,
        "payload_encoding": payload_encoding,
    })
}

fn payload(body: &[u8], encoding: Encoding) -> (String, &'static str) {
    let text = if encoding == Encoding::Auto { std::str::from_utf8(body).ok() } else { None };
    match text {
        Some(text) => (text.to_owned(), "string"),
        None => (STANDARD.encode(body), "base64"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &[u8], encoding: Encoding, truncate: usize) -> (Value, Value) {
        let got = GotMessage {
            message: Message::from_parts("", "q", &[0, 0], body),
            redelivered: false,
            message_count: 0,
        };
        let shown = show(&got, encoding, truncate);
        assert_eq!(shown["payload_bytes"], body.len());
        assert_eq!(shown["properties"], json!({}));
        (shown["payload"].clone(), shown["payload_encoding"].clone())
    }

    #[test]
    fn payloads_are_text_or_base64() {
        let max = usize::MAX;
        assert_eq!(check(b"hi", Encoding::Auto, max), (json!("hi"), json!("string")));
        assert_eq!(check(b"hi", Encoding::Base64, max), (json!("aGk="), json!("base64")));
        assert_eq!(check(&[0xff], Encoding::Auto, max), (json!("/w=="), json!("base64")));
    }

    #[test]
    fn payloads_are_cut() {
        assert_eq!(check(b"hello", Encoding::Auto, 2), (json!("he"), json!("string")));
        assert_eq!(check("aü".as_bytes(), Encoding::Auto, 2), (json!("a"), json!("string")));
        assert_eq!(check(b"hello", Encoding::Auto, 0), (json!(""), json!("string")));
        assert_eq!(check(&[0xff, 0xfe], Encoding::Auto, 1), (json!("/w=="), json!("base64")));
    }
}
