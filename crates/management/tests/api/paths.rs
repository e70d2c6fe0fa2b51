//! Paths, methods, encodings.

use axum::body::Body;
use serde_json::json;

use crate::check::asker;

#[tokio::test]
async fn unknown_things_are_not_found() {
    let asker = asker();
    for path in [
        "nothing",
        "queues/%2F/absent",
        "queues/absent/q",
        "exchanges/%2F/absent",
        "nodes/absent",
        "users/absent",
        "vhosts/absent",
        "policies/%2F/absent",
        "permissions/%2F/absent",
        "connections/absent",
        "channels/absent",
        "parameters/shovel/%2F/absent",
        "global-parameters/absent",
        "bindings/%2F/e/amq.direct/q/absent/~",
        "health/checks/absent",
    ] {
        let got = asker.get(path).await;
        assert_eq!(got.status, 404, "{path}");
        assert!(got.json["error"].is_string() && got.json["reason"].is_string(), "{path}");
    }
    for path in [
        "queues/%2F/absent",
        "exchanges/%2F/absent",
        "users/absent",
        "vhosts/absent",
        "policies/%2F/absent",
        "permissions/%2F/absent",
        "connections/absent",
        "bindings/%2F/e/amq.direct/q/absent/~",
        "queues/%2F/absent/contents",
    ] {
        assert_eq!(asker.delete(path).await.status, 404, "{path}");
    }
    let got = asker.put("queues/absent/q", json!({})).await;
    assert_eq!(got.refusal(), (404, "vhost_not_found"));
    assert_eq!(asker.get("bindings/%2F/e/amq.direct/q/absent").await.json, json!([]));
}

#[tokio::test]
async fn methods_are_known_for_every_path() {
    let asker = asker();
    let got = asker.post("queues/%2F/q", json!({})).await;
    assert_eq!(got.status, 405);
    assert_eq!(got.json["error"], "method_not_allowed");
    let got = asker.anonymous().send("OPTIONS", "queues/%2F/q", &[], String::new()).await;
    assert_eq!(got.status, 200);
    assert_eq!(got.headers["allow"], "HEAD, GET, PUT, DELETE, OPTIONS");
    let got = asker.send("HEAD", "overview", &[], String::new()).await;
    assert_eq!((got.status, got.text.as_str()), (200, ""));
    assert_eq!(got.headers["content-type"], "application/json");
    assert_eq!(asker.get("users/bulk-delete").await.status, 405);
}

#[tokio::test]
async fn names_may_hold_anything() {
    let asker = asker();
    assert_eq!(asker.put("vhosts/a%20b", json!({})).await.status, 201);
    assert_eq!(asker.get("vhosts/a+b").await.json["name"], "a b");
    asker
        .put("permissions/a%20b/guest", json!({"configure": ".*", "write": ".*", "read": ".*"}))
        .await;
    assert_eq!(asker.put("queues/a+b/x%2Fy%20z%25", json!({})).await.status, 201);
    assert_eq!(asker.get("queues/a%20b").await.names(), ["x/y z%"]);
    assert_eq!(asker.put("queues/%2F/a+b", json!({})).await.status, 201);
    assert_eq!(asker.get("queues/%2F/a%2Bb").await.json["name"], "a+b");
    assert_eq!(asker.get("queues/%2F/%FF").await.status, 400);
}

#[tokio::test]
async fn bad_bodies_are_refused() {
    let asker = asker();
    let put =
        async |path: &str, body: &str| asker.send("PUT", path, &[], body.to_owned()).await.status;
    assert_eq!(put("queues/%2F/q", "{").await, 400);
    assert_eq!(put("queues/%2F/q", "[]").await, 400);
    assert_eq!(put("queues/%2F/q", r#"{"durable":"maybe"}"#).await, 400);
    assert_eq!(put("queues/%2F/q", r#"{"arguments":{"x":null}}"#).await, 400);
    assert_eq!(put("policies/%2F/p", r#"{"pattern":".*"}"#).await, 400);
    assert_eq!(put("policies/%2F/p", r#"{"pattern":"(","definition":{"expires":1}}"#).await, 400);
    assert_eq!(put("permissions/%2F/guest", r#"{"configure":".*"}"#).await, 400);
    assert_eq!(
        put("permissions/%2F/absent", r#"{"configure":"","write":"","read":""}"#).await,
        400
    );
    assert_eq!(put("vhost-limits/%2F/max-queues", "{}").await, 400);
    assert_eq!(put("vhost-limits/%2F/nonsense", r#"{"value":1}"#).await, 400);
    assert_eq!(put("parameters/nonsense/%2F/x", r#"{"value":1}"#).await, 400);
    assert_eq!(put("vhosts/v", r#"{"default_queue_type":5}"#).await, 400);
    assert_eq!(
        put("policies/%2F/p", r#"{"pattern":".*","definition":{"expires":1},"apply-to":5}"#).await,
        400
    );
    assert_eq!(put("queues/%2F/q", "").await, 201);
}

#[tokio::test]
async fn names_that_amqp_cannot_carry_are_refused() {
    let asker = asker();
    let long = "x".repeat(256);
    let got = asker.put(&format!("queues/%2F/{long}"), json!({})).await;
    assert_eq!(got.refusal(), (400, "queue name is longer than 255 bytes"));
    let got = asker.put(&format!("exchanges/%2F/{long}"), json!({"type": "direct"})).await;
    assert_eq!(got.refusal(), (400, "exchange name is longer than 255 bytes"));
    let longest = "x".repeat(255);
    assert_eq!(asker.put(&format!("queues/%2F/{longest}"), json!({})).await.status, 201);
    let path = format!("bindings/%2F/e/amq.direct/q/{longest}");
    let got = asker.post(&path, json!({"routing_key": long})).await;
    assert_eq!(got.refusal(), (400, "routing_key is longer than 255 bytes"));
    for object in [
        json!({"queues": [{"vhost": "/", "name": long}]}),
        json!({"queues": [{"vhost": "/", "name": ""}]}),
        json!({"exchanges": [{"vhost": "/", "name": long}]}),
        json!({"bindings": [{
            "vhost": "/", "source": "amq.direct", "destination": longest, "routing_key": long,
        }]}),
    ] {
        assert_eq!(asker.post("definitions", object.clone()).await.status, 400, "{object}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let asker = asker();
    let never = futures_util::stream::pending::<std::io::Result<Vec<u8>>>();
    let got = asker.send_body("PUT", "queues/%2F/q", &[], Body::from_stream(never)).await;
    assert_eq!((got.status, &got.json["error"]), (408, &json!("request_timeout")));
}
