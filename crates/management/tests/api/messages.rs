//! Publishing, getting, purging.

use serde_json::{Value, json};

use crate::check::{Asker, asker};

fn message(payload: &str) -> Value {
    json!({
        "routing_key": "q",
        "properties": {"delivery_mode": 2, "headers": {"k": "v"}},
        "payload": payload,
        "payload_encoding": "string",
    })
}

fn get(count: u32, mode: &str) -> Value {
    json!({"count": count, "ackmode": mode, "encoding": "auto"})
}

async fn with_messages(payloads: &[&str]) -> Asker {
    let asker = asker();
    asker.put("queues/%2F/q", json!({})).await;
    for payload in payloads {
        let got = asker.post("exchanges/%2F/amq.default/publish", message(payload)).await;
        assert_eq!((got.status, got.json), (200, json!({"routed": true})));
    }
    asker
}

#[tokio::test]
async fn messages_are_got() {
    let asker = with_messages(&["one", "two"]).await;
    let got = asker.post("queues/%2F/q/get", get(1, "ack_requeue_true")).await.json;
    assert_eq!(
        got,
        json!([{
            "payload_bytes": 3, "redelivered": false, "exchange": "", "routing_key": "q",
            "message_count": 1, "properties": {"delivery_mode": 2, "headers": {"k": "v"}},
            "payload": "one", "payload_encoding": "string",
        }])
    );
    let got = asker.post("queues/%2F/q/get", get(5, "ack_requeue_false")).await.json;
    assert_eq!((&got[0]["redelivered"], &got[1]["payload"]), (&json!(true), &json!("two")));
    let got = asker.post("queues/%2F/q/get", get(5, "ack_requeue_false")).await;
    assert_eq!((got.status, got.json), (200, json!([])));
}

#[tokio::test]
async fn numbers_may_be_strings_and_payloads_are_cut() {
    let asker = with_messages(&["hello"]).await;
    let body = json!({
        "count": "1", "ackmode": "reject_requeue_true", "encoding": "base64", "truncate": "2",
    });
    let got = asker.post("queues/%2F/q/get", body).await.json;
    assert_eq!((&got[0]["payload"], &got[0]["payload_bytes"]), (&json!("aGU="), &json!(5)));
}

#[tokio::test]
async fn base64_is_decoded() {
    let asker = with_messages(&[]).await;
    let mut body = message("aGk=");
    body["payload_encoding"] = json!("base64");
    asker.post("exchanges/%2F//publish", body).await;
    let got = asker.post("queues/%2F/q/get", get(1, "ack_requeue_false")).await.json;
    assert_eq!(got[0]["payload"], "hi");
}

#[tokio::test]
async fn bad_requests_are_refused() {
    let asker = with_messages(&[]).await;
    for field in ["routing_key", "properties", "payload", "payload_encoding"] {
        let mut body = message("x");
        body.as_object_mut().unwrap().remove(field);
        let got = asker.post("exchanges/%2F/amq.default/publish", body).await;
        assert_eq!(got.refusal(), (400, format!("[{{key_missing,{field}}}]").as_str()));
    }
    let mut body = message("!");
    body["payload_encoding"] = json!("base64");
    assert_eq!(asker.post("exchanges/%2F/amq.default/publish", body).await.status, 400);
    assert_eq!(asker.post("exchanges/%2F/absent/publish", message("x")).await.status, 404);
    assert_eq!(asker.post("queues/%2F/absent/get", get(1, "ack_requeue_true")).await.status, 404);
    assert_eq!(asker.post("queues/%2F/q/get", get(1, "nonsense")).await.status, 400);
    assert_eq!(asker.post("queues/%2F/q/get", json!({})).await.status, 400);
}

#[tokio::test]
async fn unroutable_messages_are_not_routed() {
    let asker = with_messages(&[]).await;
    let got = asker.post("exchanges/%2F/amq.fanout/publish", message("x")).await;
    assert_eq!(got.json, json!({"routed": false}));
}

#[tokio::test]
async fn case_80_a_full_queue_is_a_bad_request() {
    let asker = with_messages(&[]).await;
    asker.node.set_reject(true);
    let got = asker.post("exchanges/%2F/amq.default/publish", message("x")).await;
    assert_eq!(got.refusal(), (400, "rejected: Unable to publish message. Check queue limits."));
}

#[tokio::test]
async fn case_73_alarms_block_publishing_over_http() {
    let asker = with_messages(&[]).await;
    asker.node.set_alarm(true);
    let got = asker.post("exchanges/%2F/amq.default/publish", message("x")).await;
    assert_eq!((got.status, &got.json["error"]), (503, &json!("service_unavailable")));
}

#[tokio::test]
async fn queues_are_purged() {
    let asker = with_messages(&["one", "two"]).await;
    assert_eq!(asker.get("queues/%2F/q").await.json["messages"], 2);
    let got = asker.delete("queues/%2F/q?if-empty=true").await;
    assert_eq!(got.status, 400);
    assert_eq!(asker.delete("queues/%2F/q/contents").await.status, 204);
    assert_eq!(asker.get("queues/%2F/q").await.json["messages"], 0);
    assert_eq!(asker.delete("queues/%2F/q?if-empty=true").await.status, 204);
}

#[tokio::test]
async fn one_request_gets_no_more_than_fits_into_memory() {
    let large = "x".repeat(17 << 20);
    let asker = with_messages(&[&large, &large, &large]).await;
    let got = asker.post("queues/%2F/q/get", get(5, "ack_requeue_true")).await;
    assert_eq!(got.json.as_array().unwrap().len(), 2);
}
