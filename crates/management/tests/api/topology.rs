//! Queues, exchanges, bindings, virtual hosts, policies.

use serde_json::json;

use crate::check::{asker, assert_details, assert_shape};

#[tokio::test]
async fn queues_are_declared_and_deleted() {
    let asker = asker();
    let body = json!({"durable": "true", "auto_delete": "false", "arguments": {"x-max-length": 5}});
    assert_eq!(asker.put("queues/%2F/q", body.clone()).await.status, 201);
    assert_eq!(asker.put("queues/%2F/q", body).await.status, 204);
    let got = asker.put("queues/%2F/q", json!({"durable": false})).await;
    assert_eq!(got.status, 400);
    let reason = got.json["reason"].as_str().unwrap();
    assert!(reason.starts_with("inequivalent arg 'durable' for queue 'q'"), "{reason}");
    assert_eq!(asker.delete("queues/%2F/q").await.status, 204);
    assert_eq!(asker.delete("queues/%2F/q").await.status, 404);
}

#[tokio::test]
async fn cases_77_and_78_a_new_queue_has_every_field() {
    let asker = asker();
    asker.put("queues/%2F/queue", json!({})).await;
    asker.node.connect(5001);
    for got in [asker.get("queues/%2F/queue").await.json, asker.get("queues").await.json[0].clone()]
    {
        assert_shape(
            &got,
            "name:s vhost:s type:s durable:b auto_delete:b exclusive:b arguments:o node:s leader:s \
             members:a online:a state:s consumers:n consumer_utilisation:n consumer_capacity:n \
             messages:n messages_ready:n messages_unacknowledged:n messages_details:o \
             messages_ready_details:o messages_unacknowledged_details:o messages_ram:n \
             messages_persistent:n message_bytes:n message_bytes_ready:n \
             message_bytes_unacknowledged:n message_bytes_ram:n message_bytes_persistent:n memory:n \
             policy:S operator_policy:S effective_policy_definition:o exclusive_consumer_tag:S \
             single_active_consumer_tag:S head_message_timestamp:N garbage_collection:o \
             message_stats:o storage_version:n",
        );
        assert_eq!(got["effective_policy_definition"], json!({}));
        assert_eq!(got["arguments"], json!({"x-queue-type": "classic"}));
        assert_details(&got);
        assert_details(&got["message_stats"]);
    }
    let got = asker.get("queues/%2F/queue").await.json;
    assert_shape(&got, "consumer_details:a incoming:a deliveries:a");
    assert_eq!(got["consumer_details"][0]["consumer_tag"], "ctag");
}

#[tokio::test]
async fn exchanges_are_declared_and_deleted() {
    let asker = asker();
    let body = json!({"type": "topic", "durable": true});
    assert_eq!(asker.put("exchanges/%2F/x", body.clone()).await.status, 201);
    assert_eq!(asker.put("exchanges/%2F/x", body).await.status, 204);
    assert_eq!(asker.put("exchanges/%2F/x", json!({"type": "fanout"})).await.status, 400);
    assert_eq!(asker.put("exchanges/%2F/y", json!({"type": "nonsense"})).await.status, 400);
    let got = asker.get("exchanges/%2F/x").await.json;
    assert_shape(
        &got,
        "name:s vhost:s type:s durable:b auto_delete:b internal:b arguments:o policy:S \
         user_who_performed_action:s message_stats:o incoming:a outgoing:a",
    );
    assert_eq!(asker.get("exchanges/%2F/amq.default").await.json["name"], "");
    assert_eq!(asker.delete("exchanges/%2F/amq.direct").await.status, 401);
    assert_eq!(asker.delete("exchanges/%2F/x").await.status, 204);
    let names = asker.get("exchanges").await;
    assert!(names.names().contains(&"amq.topic"));
}

#[tokio::test]
async fn bindings_are_named_by_their_properties() {
    let asker = asker();
    asker.put("queues/%2F/q", json!({})).await;
    let path = "bindings/%2F/e/amq.topic/q/q";
    let got = asker.post(path, json!({"routing_key": "a.#"})).await;
    assert_eq!(got.status, 201);
    assert_eq!(got.headers["location"], "q/a.%2523");
    assert_eq!(asker.post(path, json!({"routing_key": "a.#"})).await.status, 201);
    let got = asker.post(path, json!({})).await;
    assert_eq!(got.headers["location"], "q/~");
    let with_arguments = json!({"routing_key": "k", "arguments": {"x": 1}});
    let got = asker.post(path, with_arguments).await;
    let key = got.headers["location"].to_str().unwrap().rsplit('/').next().unwrap().to_owned();

    let listed = asker.get(path).await.json;
    assert_eq!(listed.as_array().unwrap().len(), 3);
    assert_shape(
        &listed[0],
        "source:s vhost:s destination:s destination_type:s routing_key:s arguments:o \
         properties_key:s",
    );
    assert_eq!(asker.get(&format!("{path}/a.%2523")).await.json["properties_key"], "a.%23");
    assert_eq!(asker.get(&format!("{path}/a.%23")).await.json["routing_key"], "a.#");
    let got = asker.get(&format!("{path}/{key}")).await.json;
    assert_eq!(got["arguments"], json!({"x": 1}));
    assert_eq!(asker.delete(&format!("{path}/{key}")).await.status, 204);
    assert_eq!(asker.delete(&format!("{path}/{key}")).await.status, 404);
    assert_eq!(asker.delete(&format!("{path}/~")).await.status, 204);
    assert_eq!(asker.get(path).await.json.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn bindings_are_listed_in_every_way() {
    let asker = asker();
    asker.put("queues/%2F/q", json!({})).await;
    asker.put("exchanges/%2F/x", json!({"type": "fanout"})).await;
    let got = asker.post("bindings/%2F/e/amq.direct/e/x", json!({"routing_key": "k"})).await;
    assert_eq!(got.headers["location"], "x/k");
    asker.post("bindings/%2F/e/x/q/q", json!({})).await;
    let count = async |path: &str| asker.get(path).await.json.as_array().unwrap().len();
    assert_eq!(count("bindings").await, 3);
    assert_eq!(count("bindings/%2F").await, 3);
    assert_eq!(count("queues/%2F/q/bindings").await, 2);
    assert_eq!(count("exchanges/%2F/x/bindings/source").await, 1);
    assert_eq!(count("exchanges/%2F/x/bindings/destination").await, 1);
    assert_eq!(count("exchanges/%2F/amq.default/bindings/source").await, 1);
    assert_eq!(count("bindings/%2F/e//q/q").await, 1);
    assert_eq!(count("bindings/%2F/e/amq.default/q/q").await, 1);
    let default = asker.get("bindings/%2F/e//q/q/q").await.json;
    assert_eq!((&default["source"], &default["routing_key"]), (&json!(""), &json!("q")));
}

#[tokio::test]
async fn virtual_hosts_are_made_and_deleted() {
    let asker = asker();
    let body = json!({
        "description": "d", "tags": "a,b", "default_queue_type": "quorum", "tracing": "true",
    });
    assert_eq!(asker.put("vhosts/v", body).await.status, 201);
    assert_eq!(asker.put("vhosts/v", json!({})).await.status, 204);
    assert_eq!(asker.get("permissions/v/guest").await.json["configure"], ".*");
    let got = asker.get("vhosts/v").await.json;
    assert_shape(
        &got,
        "name:s description:s tags:a default_queue_type:s protected_from_deletion:b metadata:o \
         tracing:b cluster_state:o messages:n messages_ready:n messages_unacknowledged:n recv_oct:n \
         send_oct:n message_stats:o",
    );
    assert_eq!(got["tags"], json!(["a", "b"]));
    assert_eq!(got["metadata"]["default_queue_type"], "quorum");
    assert_eq!(asker.post("vhosts/v/deletion/protection", json!({})).await.status, 204);
    assert_eq!(asker.delete("vhosts/v").await.status, 412);
    assert_eq!(asker.delete("vhosts/v/deletion/protection").await.status, 204);
    assert_eq!(asker.delete("vhosts/v").await.status, 204);
    assert_eq!(asker.delete("vhosts/v").await.status, 404);
}

#[tokio::test]
async fn a_virtual_host_is_emptied_by_deleting_and_making_it() {
    let asker = asker();
    asker.put("queues/%2F/q", json!({})).await;
    assert_eq!(asker.delete("vhosts/%2F").await.status, 204);
    assert_eq!(asker.put("vhosts/%2F", json!({})).await.status, 201);
    let all = json!({"configure": ".*", "write": ".*", "read": ".*"});
    assert_eq!(asker.put("permissions/%2F/guest", all).await.status, 204);
    assert_eq!(asker.get("queues").await.json, json!([]));
    assert_eq!(asker.put("queues/%2F/q", json!({})).await.status, 201);
}

#[tokio::test]
async fn policies_take_effect_and_are_listed() {
    let asker = asker();
    asker.put("queues/%2F/q", json!({})).await;
    let policy = json!({
        "pattern": "^q", "definition": {"max-length": 10, "message-ttl": 5}, "priority": "1",
        "apply-to": "queues",
    });
    assert_eq!(asker.put("policies/%2F/p", policy.clone()).await.status, 201);
    assert_eq!(asker.put("policies/%2F/p", policy).await.status, 204);
    let operator = json!({"pattern": "^q", "definition": {"max-length": 5}});
    assert_eq!(asker.put("operator-policies/%2F/o", operator).await.status, 201);
    let queue = asker.get("queues/%2F/q").await.json;
    assert_eq!((&queue["policy"], &queue["operator_policy"]), (&json!("p"), &json!("o")));
    assert_eq!(queue["effective_policy_definition"], json!({"max-length": 5, "message-ttl": 5}));
    assert_eq!(
        asker.get("policies").await.json,
        json!([{
            "vhost": "/", "name": "p", "pattern": "^q", "apply-to": "queues", "priority": 1,
            "definition": {"max-length": 10, "message-ttl": 5},
        }])
    );
    assert_eq!(asker.get("operator-policies/%2F/o").await.json["apply-to"], "all");
    assert_eq!(asker.delete("policies/%2F/p").await.status, 204);
    assert_eq!(asker.delete("operator-policies/%2F/o").await.status, 204);
    let bad = json!({"pattern": ".*", "definition": {"nonsense-key": 1}});
    assert_eq!(asker.put("policies/%2F/bad", bad).await.status, 400);
}

#[tokio::test]
async fn limits_and_parameters() {
    let asker = asker();
    assert_eq!(asker.get("vhost-limits").await.json, json!([]));
    assert_eq!(asker.put("vhost-limits/%2F/max-queues", json!({"value": "1"})).await.status, 204);
    assert_eq!(
        asker.get("vhost-limits").await.json,
        json!([{"vhost": "/", "value": {"max-queues": 1}}])
    );
    assert_eq!(asker.put("queues/%2F/one", json!({})).await.status, 201);
    assert_eq!(asker.put("queues/%2F/two", json!({})).await.status, 400);
    assert_eq!(asker.delete("vhost-limits/%2F/max-queues").await.status, 204);
    assert_eq!(asker.put("user-limits/guest/max-channels", json!({"value": 5})).await.status, 204);
    assert_eq!(
        asker.get("user-limits/guest").await.json,
        json!([{"user": "guest", "value": {"max-channels": 5}}])
    );
    assert_eq!(asker.delete("user-limits/guest/max-channels").await.status, 204);

    let got = asker.put("parameters/shovel/%2F/s", json!({"value": {"src-uri": "amqp://"}})).await;
    let refused = "Validation failed\n\ncomponent shovel not found\n";
    assert_eq!(got.refusal(), (400, refused));
    assert_eq!(asker.get("parameters").await.json, json!([]));
    assert_eq!(asker.put("global-parameters/g", json!({"value": [1]})).await.status, 201);
    assert_eq!(asker.get("global-parameters/g").await.json, json!({"name": "g", "value": [1]}));
    assert_eq!(asker.delete("global-parameters/g").await.status, 204);
}
