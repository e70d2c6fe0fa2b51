//! Lists: pages, order, columns. Cases 76, 85, 83, 84.

use serde_json::{Value, json};

use crate::check::{asker, assert_details, assert_shape};

#[tokio::test]
async fn case_76_pages_are_objects_always() {
    let asker = asker();
    let shape =
        "items:a page:n page_size:n page_count:n item_count:n filtered_count:n total_count:n";
    for query in ["page=1&page_size=100", "page=1&page_size=100&name=none", "pagination=true"] {
        let got = asker.get(&format!("queues?{query}")).await;
        assert_shape(&got.json, shape);
        assert_eq!(got.json["items"], json!([]), "{query}");
    }
    asker.put("queues/%2F/one", json!({})).await;
    assert_eq!(asker.get("queues?page=1&page_size=100").await.json["item_count"], 1);
    let got = asker.get("queues?page=2&page_size=100").await;
    assert_eq!((got.status, &got.json["error"]), (400, &json!("page_out_of_range")));
    assert!(asker.get("queues").await.json.is_array());
}

#[tokio::test]
async fn columns_and_order() {
    let asker = asker();
    for (name, messages) in [("a", 1), ("b", 3), ("c", 2)] {
        asker.put(&format!("queues/%2F/{name}"), json!({})).await;
        for _ in 0..messages {
            let message = json!({
                "routing_key": name, "properties": {}, "payload": "x", "payload_encoding": "string",
            });
            asker.post("exchanges/%2F/amq.default/publish", message).await;
        }
    }
    let got = asker
        .get("queues?columns=name,messages,message_stats.publish&sort=messages&sort_reverse=true")
        .await;
    assert_eq!(got.names(), ["b", "c", "a"]);
    // Nothing has been counted there.
    assert_eq!(got.json[0], json!({"name": "b", "messages": 3}));
    let got = asker.get("queues/%2F/a?columns=name").await;
    assert_eq!(got.json, json!({"name": "a"}));
}

#[tokio::test]
async fn case_85_definitions_stay_without_stats() {
    let asker = asker();
    asker.put("queues/%2F/q", json!({"arguments": {"x-max-length": 5}})).await;
    let got = asker.get("queues?disable_stats=true").await;
    assert_shape(
        &got.json[0],
        "name:s vhost:s type:s durable:b auto_delete:b exclusive:b arguments:o",
    );
    assert_eq!(got.json[0]["arguments"], json!({"x-max-length": 5, "x-queue-type": "classic"}));
    assert!(got.json[0].get("messages").is_none());
    let got = asker.get("queues?disable_stats=true&enable_queue_totals=true").await;
    assert_eq!(got.json[0]["messages"], 0);
}

#[tokio::test]
async fn cases_83_and_84_rates_are_finite_and_right() {
    let asker = asker();
    asker.put("queues/%2F/q", json!({})).await;
    asker.sample_at(10_000).await;
    let message = json!({
        "routing_key": "q", "properties": {}, "payload": "x", "payload_encoding": "string",
    });
    for _ in 0..10 {
        asker.post("exchanges/%2F/amq.default/publish", message.clone()).await;
    }
    asker.sample_at(10_000).await;
    let rate = |overview: &Value| overview["message_stats"]["publish_details"]["rate"].clone();
    assert_eq!(rate(&asker.get("overview").await.json), json!(0.0));
    asker.sample_at(15_000).await;
    let overview = asker.get("overview").await.json;
    assert_eq!(rate(&overview), json!(2.0));
    assert_details(&overview["message_stats"]);
    assert_details(&overview["queue_totals"]);
    assert_details(&overview["churn_rates"]);
    assert_eq!(overview["queue_totals"]["messages_details"]["rate"], json!(2.0));
    let queue = asker.get("queues/%2F/q").await.json;
    assert_eq!(queue["messages_ready_details"]["rate"], json!(2.0));
    let overview = asker.get("overview?msg_rates_age=60&msg_rates_incr=5").await.json;
    let details = &overview["message_stats"]["publish_details"];
    assert_eq!(details["samples"][0], json!({"sample": 10, "timestamp": 15_000}));
}
