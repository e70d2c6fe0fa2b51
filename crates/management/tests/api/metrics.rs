//! Scrapes. Case 105: every family once.

use std::collections::BTreeSet;

use serde_json::json;

use crate::check::{Asker, asker};

async fn scrape(asker: &Asker, path: &str) -> String {
    let got = asker.scrape(path).await;
    assert_eq!(got.status, 200);
    assert_eq!(got.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let mut families = BTreeSet::new();
    for line in got.text.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let name = family.split(' ').next().unwrap();
            assert!(families.insert(name.to_owned()), "{name} twice");
        } else if !line.starts_with('#') {
            let value = line.rsplit(' ').next().unwrap();
            assert!(value.parse::<f64>().unwrap().is_finite(), "{line}");
        }
    }
    assert_eq!(got.text.matches("rabbitmq_identity_info{").count(), 1);
    got.text
}

#[tokio::test]
async fn dashboards_find_their_metrics() {
    let asker = asker();
    let text = scrape(&asker, "/metrics").await;
    for name in [
        "rabbitmq_build_info{",
        "rabbitmq_erlang_uptime_seconds",
        "rabbitmq_connections ",
        "rabbitmq_channels ",
        "rabbitmq_queues ",
        "rabbitmq_consumers ",
        "rabbitmq_connections_opened_total",
        "rabbitmq_connections_closed_total",
        "rabbitmq_channels_opened_total",
        "rabbitmq_channels_closed_total",
        "rabbitmq_queues_declared_total",
        "rabbitmq_queues_created_total",
        "rabbitmq_queues_deleted_total",
        "rabbitmq_queue_messages_ready ",
        "rabbitmq_queue_messages_unacked ",
        "rabbitmq_process_resident_memory_bytes",
        "rabbitmq_resident_memory_limit_bytes",
        "rabbitmq_disk_space_available_bytes",
        "rabbitmq_disk_space_available_limit_bytes",
        "rabbitmq_process_max_fds",
        "rabbitmq_process_open_fds",
        "rabbitmq_global_publishers{protocol=\"amqp091\"}",
        "rabbitmq_global_consumers{",
        "rabbitmq_global_messages_received_total{",
        "rabbitmq_global_messages_received_confirm_total{",
        "rabbitmq_global_messages_routed_total{",
        "rabbitmq_global_messages_confirmed_total{",
        "rabbitmq_global_messages_unroutable_dropped_total{",
        "rabbitmq_global_messages_unroutable_returned_total{",
        "rabbitmq_global_messages_delivered_total{",
        "rabbitmq_global_messages_delivered_consume_manual_ack_total{",
        "rabbitmq_global_messages_delivered_consume_auto_ack_total{",
        "rabbitmq_global_messages_delivered_get_manual_ack_total{",
        "rabbitmq_global_messages_delivered_get_auto_ack_total{",
        "rabbitmq_global_messages_get_empty_total{",
        "rabbitmq_global_messages_redelivered_total{",
        "rabbitmq_global_messages_acknowledged_total{",
        "rabbitmq_message_size_bytes_bucket{",
        "rabbitmq_global_messages_dead_lettered_maxlen_total{",
        "rabbitmq_alarms_memory_used_watermark",
        "rabbitmq_auth_attempts_total{protocol=\"amqp091\"}",
        "rabbitmq_channel_messages_unconfirmed ",
        "rabbitmq_channel_messages_published_total ",
        "rabbitmq_channel_get_ack_total ",
        "rabbitmq_connection_incoming_bytes_total ",
        "rabbitmq_connection_channels ",
        "rabbitmq_exchange_messages_published_total ",
        "rabbitmq_queue_messages_delivered_ack_total ",
        "rabbitmq_queue_messages_published_total ",
        "process_start_time_seconds ",
    ] {
        assert!(text.contains(name), "{name} is missing");
    }
    assert!(text.contains("rabbitmq_endpoint=\"aggregated\""));
    assert!(text.contains("queue_type=\"rabbit_classic_queue\""));
}

#[tokio::test]
async fn single_objects_have_labels() {
    let asker = asker();
    asker.put("queues/%2F/a%22b", json!({})).await;
    asker.node.connect(5003);
    let text = scrape(&asker, "/metrics/per-object").await;
    assert!(text.contains("rabbitmq_queue_messages_ready{vhost=\"/\",queue=\"a\\\"b\"} 0"));
    assert!(text.contains("rabbitmq_connection_incoming_bytes_total{connection=\""));
    assert!(text.contains("rabbitmq_channel_messages_unacked{channel=\""));
    assert!(text.contains("rabbitmq_channel_messages_acked_total{channel=\""));
}

#[tokio::test]
async fn families_are_chosen() {
    let asker = asker();
    asker.put("queues/%2F/one", json!({})).await;
    asker.put("queues/%2F/two", json!({})).await;
    let text = scrape(&asker, "/metrics/detailed").await;
    assert!(!text.contains("rabbitmq_detailed_"));
    let text = scrape(&asker, "/metrics/detailed?family=queue_coarse_metrics&queue=^o").await;
    assert!(text.contains("rabbitmq_detailed_queue_messages{vhost=\"/\",queue=\"one\"} 0"));
    assert!(!text.contains("two") && !text.contains("queue_consumers"));
    let text = scrape(&asker, "/metrics/detailed?family=vhost_status&family=exchange_names").await;
    assert!(text.contains("rabbitmq_cluster_vhost_status{vhost=\"/\"} 1"));
    let families =
        "family=node_metrics&family=connection_churn_metrics&family=auth_attempt_metrics";
    let text = scrape(&asker, &format!("/metrics/detailed?{families}")).await;
    assert!(text.contains("rabbitmq_detailed_process_open_fds 30"));
    assert!(text.contains("rabbitmq_detailed_connections_opened_total 0"));
    assert!(text.contains("rabbitmq_detailed_auth_attempts_total{protocol=\"amqp091\"} 0"));
    assert_eq!(asker.scrape("/metrics/detailed?queue=(").await.status, 400);
    assert_eq!(asker.scrape("/nothing").await.status, 404);
}
