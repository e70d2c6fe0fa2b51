//! Export and import. Cases 86, 87, 88, 108.

use serde_json::{Value, json};

use crate::check::{Asker, asker, assert_shape};

async fn filled() -> Asker {
    let asker = asker();
    asker.user("u", "management", true).await;
    asker.put("user-limits/u/max-channels", json!({"value": 7})).await;
    asker.put("queues/%2F/q", json!({"arguments": {"x-max-length": 5}})).await;
    asker.put("exchanges/%2F/x", json!({"type": "topic"})).await;
    asker.post("bindings/%2F/e/x/q/q", json!({"routing_key": "a.#"})).await;
    let policy = json!({"pattern": ".*", "definition": {"max-length": 10}});
    asker.put("policies/%2F/p", policy.clone()).await;
    asker.put("operator-policies/%2F/o", policy).await;
    asker.put("vhost-limits/%2F/max-queues", json!({"value": 2})).await;
    let topic = json!({"exchange": "amq.topic", "write": "^a", "read": ".*"});
    asker.put("topic-permissions/%2F/u", topic).await;
    asker.put("global-parameters/cluster_tags", json!({"value": {"a": "b"}})).await;
    asker
}

/// Without what differs from export to export.
fn comparable(mut definitions: Value) -> Value {
    let object = definitions.as_object_mut().unwrap();
    object.remove("explanation");
    definitions
}

#[tokio::test]
async fn cases_87_and_108_an_export_is_imported_as_it_was() {
    let filled = filled().await;
    let exported = filled.get("definitions").await.json;
    assert_shape(
        &exported,
        "rabbit_version:s rabbitmq_version:s product_name:s product_version:s \
         rabbitmq_definition_format:s original_cluster_name:s explanation:s users:a vhosts:a \
         permissions:a topic_permissions:a parameters:a global_parameters:a policies:a queues:a \
         exchanges:a bindings:a",
    );
    assert_eq!(exported["exchanges"].as_array().unwrap().len(), 1);
    assert_eq!(exported["bindings"].as_array().unwrap().len(), 1);
    assert_eq!(exported["parameters"].as_array().unwrap().len(), 2);

    let other = asker();
    let with_mark = format!("\u{feff}{exported}");
    let got = other.send("POST", "definitions", &[], with_mark).await;
    assert_eq!(got.status, 204, "{}", got.text);
    assert_eq!(comparable(other.get("definitions").await.json), comparable(exported.clone()));
    assert_eq!(other.post("definitions", exported).await.status, 204);
    assert_eq!(other.by("u", "pw").get("whoami").await.status, 200);
}

#[tokio::test]
async fn a_virtual_host_is_exported_into_another() {
    let asker = filled().await;
    let exported = asker.get("definitions/%2F").await.json;
    assert_eq!(exported["rabbitmq_definition_format"], "single_virtual_host");
    assert!(exported["queues"][0].get("vhost").is_none());
    assert!(exported.get("users").is_none());
    asker.put("vhosts/copy", json!({})).await;
    assert_eq!(asker.post("definitions/copy", exported).await.status, 204);
    assert_eq!(asker.get("queues/copy").await.names(), ["q"]);
    assert_eq!(asker.get("vhost-limits/copy").await.json[0]["value"], json!({"max-queues": 2}));
}

#[tokio::test]
async fn case_86_what_differs_is_reported() {
    let asker = filled().await;
    let changed = json!({
        "parameters": [{"component": "shovel", "vhost": "/", "name": "s", "value": {}}],
        "queues": [
            {"name": "q", "vhost": "/", "durable": true, "arguments": {"x-max-length": 6}},
            {"name": "new", "vhost": "/", "durable": true},
        ],
    });
    let got = asker.post("definitions", changed).await;
    assert_eq!(got.status, 200);
    assert_eq!(got.json["skipped"][0]["object"], "parameter 'shovel/s'");
    assert_eq!(got.json["skipped"][1]["object"], "queue 'q'");
    assert_eq!(asker.get("queues").await.names(), ["new", "q"]);
}

/// As a RabbitMQ that nobody has used yet exports it.
#[tokio::test]
async fn what_is_under_reserved_names_is_passed_over() {
    let asker = asker();
    let exported = json!({
        "exchanges": [
            {"name": "amq.rabbitmq.log", "vhost": "/", "type": "topic", "durable": true,
             "auto_delete": false, "internal": true, "arguments": {}},
            {"name": "x", "vhost": "/", "type": "fanout", "durable": true},
        ],
        "queues": [
            {"name": "amq.gen-1", "vhost": "/", "durable": false},
            {"name": "q", "vhost": "/", "durable": true},
        ],
        "bindings": [
            {"source": "amq.rabbitmq.log", "vhost": "/", "destination": "q",
             "destination_type": "queue", "routing_key": "#", "arguments": {}},
            {"source": "x", "vhost": "/", "destination": "q",
             "destination_type": "queue", "routing_key": "", "arguments": {}},
        ],
    });
    let got = asker.post("definitions", exported).await;
    assert_eq!(got.status, 200, "{}", got.text);
    assert_eq!(got.json["skipped"].as_array().unwrap().len(), 1, "{}", got.text);
    assert_eq!(got.json["skipped"][0]["object"], "binding amq.rabbitmq.log -> q");
    assert_eq!(asker.get("queues").await.names(), ["q"]);
    assert_eq!(asker.get("exchanges/%2F/amq.rabbitmq.log").await.status, 404);
    let bound = asker.get("queues/%2F/q/bindings").await.json;
    assert!(bound.as_array().unwrap().iter().any(|binding| binding["source"] == "x"), "{bound}");
}

#[tokio::test]
async fn case_88_imported_limits_hold() {
    let asker = asker();
    let limits = json!({"parameters": [{
        "component": "vhost-limits", "vhost": "/", "name": "limits", "value": {"max-queues": 2},
    }]});
    assert_eq!(asker.post("definitions", limits).await.status, 204);
    assert_eq!(asker.put("queues/%2F/1", json!({})).await.status, 201);
    assert_eq!(asker.put("queues/%2F/2", json!({})).await.status, 201);
    assert_eq!(asker.put("queues/%2F/3", json!({})).await.status, 400);
}

#[tokio::test]
async fn forms_are_taken_and_nonsense_is_refused_as_a_whole() {
    let asker = asker();
    let form = "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"d.json\"\r\n\r\n\
                {\"queues\":[{\"name\":\"q\",\"vhost\":\"/\"}]}\r\n--B--\r\n";
    let kind = [("content-type", "multipart/form-data; boundary=B")];
    assert_eq!(asker.send("POST", "definitions", &kind, form.to_owned()).await.status, 204);
    assert_eq!(asker.get("queues").await.names(), ["q"]);
    let bad = json!({"vhosts": [{"name": "v"}], "queues": [{"vhost": "/"}]});
    assert_eq!(asker.post("definitions", bad).await.status, 400);
    assert_eq!(asker.get("vhosts").await.names(), ["/"]);
    assert_eq!(asker.post("definitions", json!({"queues": 5})).await.status, 400);
}
